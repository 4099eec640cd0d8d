"""Attributes of token pairs: B rules with macros in CRF++ templates."""

from __future__ import annotations

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data import Template
from cliquewise.errors import UnsupportedError
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem

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
    assert tagger.solver_ == "lbfgs"
    assert tagger.certificate_.status == "exact"
    assert tagger.certificate_.gap <= 1e-8
    assert tagger.model_.n_edge_attributes == 3


def test_solvers_without_pair_attributes_say_so():
    with pytest.raises(UnsupportedError, match=r"token pairs.*lbfgs"):
        cw.SequenceTagger(template=Template.parse(TEMPLATE), solver="sdca").fit(X, Y)


def test_the_gradient_agrees_with_finite_differences(tagger):
    data, _, _ = tagger._training
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
    data = cw.SequenceTagger(template=Template.parse(TEMPLATE)).fit(X, Y)._training[0]
    model = ChainModel.build(data, 2)
    assert model.dimension == model.n_emissions + 4 * (1 + 3)
