"""Attributes of token pairs: B rules with macros in CRF++ templates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cliquewise as cw
from cliquewise.data import Dataset, Template
from cliquewise.errors import UnsupportedError
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers import get
from cliquewise.solvers.backends.base import DualSettings
from cliquewise.solvers.backends.chain.duals import ChainDuals
from cliquewise.solvers.run import run

TEMPLATE = "U00:%x[0,0]\nB\nB01:%x[0,0]\n"
X = [
    [["a"], ["b"], ["a"]],
    [["b"], ["b"]],
    [["a"]],
    [["c"], ["a"], ["b"], ["c"]],
]
Y = [["P", "Q", "Q"], ["Q", "P"], ["P"], ["Q", "P", "Q", "Q"]]


@pytest.fixture(scope="module")
def tagger():
    return cw.SequenceTagger(template=Template.parse(TEMPLATE), C=2.0, tol=1e-8).fit(X, Y)


def test_auto_takes_a_solver_that_knows_pair_attributes_and_proves_the_optimum(tagger):
    assert tagger.solver_ in ("sdca", "lbfgs")  # the latter may end what the former began
    assert tagger.certificate_.status == "exact"
    assert tagger.certificate_.gap <= 1e-8
    assert tagger.model_.n_edge_attributes == 3


def test_solvers_without_pair_attributes_say_so():
    with pytest.raises(UnsupportedError, match=r"token pairs.*lbfgs"):
        cw.SequenceTagger(template=Template.parse(TEMPLATE), solver="sag").fit(X, Y)
    with pytest.raises(UnsupportedError, match="token pairs"):
        cw.SequenceTagger("hinge", template=Template.parse(TEMPLATE), solver="sdca").fit(X, Y)


@pytest.mark.parametrize("seed", range(6))
def test_sdca_with_pair_attributes_brackets_the_optimum_of_lbfgs_all_along(seed):
    """Drawn sequences, weights, constraints and values of attributes."""
    problem = drawn(seed)
    optimum = run(problem, get("lbfgs"), tol=1e-9, max_epochs=2000).certificate
    fit = run(problem, get("sdca"), tol=1e-7, max_epochs=500, random_state=seed)
    assert fit.certificate.gap <= 1e-7
    trace = fit.trace
    assert len(trace.dual) > 1 and max(trace.dual) <= optimum.primal
    assert min(trace.primal) >= optimum.dual
    assert problem.primal(fit.weights) == pytest.approx(optimum.primal, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_weights_of_pair_attributes_are_the_features_of_the_duals(seed):
    """By the model's own adjoint; and losses are those that the gradient is of."""
    problem = drawn(seed)
    blocks = ChainDuals(problem, DualSettings(1.0, 1.0, by_gap=False))
    rng = np.random.default_rng(seed)
    for scores in (blocks.arrays.theta, blocks.arrays.theta_edges):
        scores[:] = rng.normal(size=scores.shape)
    blocks.infer()
    blocks.refresh()
    data, model = problem.data, problem.model
    weights = np.repeat(data.weights, data.lengths)
    true = np.zeros_like(blocks.arrays.mu)
    true[np.arange(data.n_tokens), data.labels] = 1.0
    at = data.followers
    edges = np.zeros_like(blocks.arrays.mu_edges)
    edges[np.arange(len(at)), data.labels[at - 1], data.labels[at]] = 1.0
    mu = (
        (true - blocks.arrays.mu) * weights[:, None],
        (edges - blocks.arrays.mu_edges) * weights[at, None, None],
    )
    expected = np.zeros(model.dimension)
    model.accumulate(mu, data, expected)
    np.testing.assert_allclose(blocks.unpacked(blocks.w), problem.C * expected, atol=1e-10)
    w = rng.normal(size=model.dimension)
    total = problem.ridge_objective(float(w @ w), float(data.weights @ problem.losses(w)))
    assert total == pytest.approx(problem.primal_and_gradient(w)[0], rel=1e-10)


def test_a_checkpoint_of_pair_attributes_goes_on_where_it_stood(tmp_path):
    path = tmp_path / "state"
    first = run(drawn(3), get("sdca"), tol=0, max_epochs=3, random_state=0, checkpoint=path)
    again = run(
        drawn(3), get("sdca"), tol=0, max_epochs=6, random_state=0, checkpoint=path, resume=True
    )
    straight = run(drawn(3), get("sdca"), tol=0, max_epochs=6, random_state=0)
    assert first.epochs == 3 and again.epochs == 6
    assert again.certificate.dual == pytest.approx(straight.certificate.dual, rel=1e-9)


def drawn(seed):
    """A problem with pair attributes of drawn shapes and sizes."""
    rng = np.random.default_rng(seed)
    k, lengths = int(rng.integers(2, 5)), rng.integers(0, 6, size=8)
    offsets, n = np.concatenate([[0], np.cumsum(lengths)]), int(lengths.sum())
    labels = rng.integers(0, k, n).astype(np.int32)

    def part(width, inner):
        here = rng.random((n, width)) < 0.4
        here[offsets[:-1][lengths > 0]] &= not inner
        values = np.where(here, rng.normal(size=(n, width)) if seed % 2 else 1.0, 0.0)
        return Dataset.from_matrix(csr_matrix(values), offsets)

    data = replace(part(5, False), labels=labels, weights=rng.random(8), edges=part(3, True))
    allowed = np.ones((k, k), dtype=bool)
    if seed % 3 == 1:
        allowed = rng.random((k, k)) < 0.5
        at = data.followers
        allowed[labels[at - 1], labels[at]] = True
    pairs = "seen" if seed % 4 == 2 else "all"
    model = ChainModel.build(data, k, feature_pairs=pairs, transitions=allowed)
    return ChainProblem(model, data, C=float(rng.choice([0.3, 3.0])))


def test_the_gradient_agrees_with_finite_differences(tagger):
    data = tagger._record.data
    problem = ChainProblem(tagger.model_, data, 2.0)
    w = np.random.default_rng(0).standard_normal(problem.dimension)
    _, gradient = problem.primal_and_gradient(w)
    numeric = np.array(
        [
            (problem.primal(w + 1e-6 * e) - problem.primal(w - 1e-6 * e)) / 2e-6
            for e in np.eye(problem.dimension)
        ]
    )
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)


def test_answers_agree_with_the_factor_graph(tagger):
    data = tagger.encoder_.transform(X)
    marginals = tagger.predict_marginals(X, pairwise=True)
    likelihood = tagger.log_likelihood(X, Y)
    best = tagger.predict(X)
    top = tagger.predict_top_k(X, 3)
    for i in range(len(X)):
        graph = tagger.model_.graph(tagger.coef_, data, i)
        exact = graph.marginals("brute-force")
        labels = np.array([tagger.classes_.index(t) for t in Y[i]])
        np.testing.assert_allclose(marginals[i][0], np.stack(list(exact.nodes)), atol=1e-10)
        assert likelihood[i] == pytest.approx(graph.score(labels) - exact.log_z, abs=1e-10)
        found = [tagger.classes_[y] for y in graph.map("brute-force").labels]
        assert best[i] == found == top[i][0][1]


def test_a_pair_attribute_can_decide_what_the_tokens_alone_cannot():
    # The label of the second token depends on the first label and the word together.
    sentences = [[["x"], [w]] for w in "uvuvuv"]
    labels = [["A", "A"], ["A", "B"], ["B", "B"], ["B", "A"], ["A", "A"], ["A", "B"]]
    plain = cw.SequenceTagger(template=Template.parse("U:%x[0,0]\nB\n"), C=100.0)
    pairs = cw.SequenceTagger(template=Template.parse("U:%x[0,0]\nB\nB1:%x[0,0]\n"), C=100.0)
    score = {
        name: model.fit(sentences, labels).log_likelihood(sentences, labels).sum()
        for name, model in (("plain", plain), ("pairs", pairs))
    }
    assert score["pairs"] > score["plain"] + 1.0


def test_a_model_with_pair_attributes_survives_saving(tagger, tmp_path):
    tagger.save(tmp_path / "m.cw")
    again = cw.load(tmp_path / "m.cw")
    for a, b in zip(tagger.predict_marginals(X), again.predict_marginals(X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_pair_attributes_train_with_partial_labels():
    partial = [["P", None, "Q"], *Y[1:]]
    model = cw.SequenceTagger(template=Template.parse(TEMPLATE), max_epochs=200).fit(X, partial)
    assert model.certificate_.status == "none"


def test_the_explanation_counts_the_pair_attributes(tagger):
    data = tagger.encoder_.transform(X[:1])
    graph = tagger.model_.graph(tagger.coef_, data, 0)
    parts = tagger.explain(X[0], n=100)
    total = sum(sum(v for _, v in p["features"]) + p["transition"] for p in parts)
    labels = np.array([tagger.classes_.index(p["tag"]) for p in parts])
    assert total == pytest.approx(graph.score(labels), abs=1e-10)


def test_the_model_knows_its_size():
    data = cw.SequenceTagger(template=Template.parse(TEMPLATE)).fit(X, Y)._record.data
    model = ChainModel.build(data, 2)
    assert model.dimension == model.n_emissions + 4 * (1 + 3)


def test_a_tagger_of_a_dataset_with_pairs_comes_back_from_its_file(tmp_path):
    rng, offsets = np.random.default_rng(0), [0, 3, 5]
    tokens, pairs = (Dataset.from_matrix(rng.normal(size=(5, 2)), offsets) for _ in range(2))
    data, labels = replace(tokens, edges=pairs), [["P", "Q", "P"], ["Q", "Q"]]
    tagger = cw.SequenceTagger(random_state=0).fit(data, labels)
    tagger.save(tmp_path / "m.cw", with_state=True)
    again = cw.load(tmp_path / "m.cw")
    np.testing.assert_array_equal(again.coef_, tagger.coef_)
    assert again.predict(data) == tagger.predict(data)
    again.fit(data, labels, warm_start=True)
    assert again.certificate_.dual <= tagger.certificate_.primal
