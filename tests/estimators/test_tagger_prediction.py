"""Marginals, the k best, likelihoods and explanations, against brute force."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tagging_cases import LABELS, all_labelings, graph_of, problem, tight

import cliquewise as cw
from cliquewise.errors import DataError, PrecisionError, UnsupportedError
from cliquewise.estimators.tagger import chain_tagger as _prediction
from cliquewise.models.chain import ChainModel

X, Y = problem(10)
NEW, TRUE = problem(6, seed=5)


@pytest.fixture(scope="module", params=["all", "seen"])
def tagger(request):
    return tight(feature_pairs=request.param, transitions=request.param, C=3.0).fit(X, Y)


def test_marginals_are_those_of_the_factor_graph(tagger):
    answers = tagger.predict_marginals(NEW, pairwise=True)
    for x, (nodes, edges) in zip(NEW, answers, strict=True):
        exact = graph_of(tagger, x).marginals("brute-force")
        np.testing.assert_allclose(nodes, exact.nodes, atol=1e-10)
        assert edges.shape == (len(x) - 1, 3, 3)
        pairs = [f for f in exact.factors if np.ndim(f) == 2]
        np.testing.assert_allclose(edges, np.array(pairs).reshape(edges.shape), atol=1e-10)


def test_the_k_best_are_those_of_brute_force_with_their_probabilities(tagger):
    for x, best in zip(NEW, tagger.predict_top_k(NEW, 5), strict=True):
        exact = graph_of(tagger, x).top_k(5, "brute-force")
        log_z = graph_of(tagger, x).marginals("brute-force").log_z
        assert len(best) == min(5, 3 ** len(x))
        np.testing.assert_allclose(
            [p for p, _ in best], [np.exp(r.score - log_z) for r in exact], atol=1e-10
        )
        assert len({tuple(tags) for _, tags in best}) == len(best)
    assert [best[0][1] for best in tagger.predict_top_k(NEW, 1)] == tagger.predict(NEW)


@given(
    st.fixed_dictionaries(
        {
            "feature_pairs": st.sampled_from(["all", "seen"]),
            "transitions": st.sampled_from(["all", "seen"]),
            "forbidden_transitions": st.sampled_from([None, [("A", "C"), ("B", "B")]]),
            "intercept": st.booleans(),
            "boundary_weights": st.booleans(),
            "n_jobs": st.sampled_from([1, 2]),
        }
    ),
    st.sampled_from(["strings", "dicts", "numbers", "arrays"]),
    st.sampled_from([0.0, 1.0, 1e9]),
    st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_the_way_straight_to_the_labels_and_the_one_by_scores_agree(options, form, size, seed):
    """From all forms of input, whatever the constraints; where all scores are equal, too."""
    rng = np.random.default_rng(seed)
    new, _ = problem(6, seed=seed)
    made = {
        "strings": lambda token: [*token, *token[:1], "never seen"],
        "dicts": lambda token: dict(item.split("=") for item in token),
        "numbers": lambda token: {item: float(len(item)) / 4 for item in token},
        "arrays": lambda token: [float(item[-1]) - 1 for item in token],
    }[form]
    given = [[made(token) for token in x] for x in new]
    given = [np.array(x) for x in given] if form == "arrays" else [*given, []]
    free = [["A"] * len(x) for x in given]
    free[0][-1:], free[1][-1:], free[2][-1:] = ["A"], ["B"], ["C"]
    name = "forbidden_transitions"
    forbidden, options[name] = options[name], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger = cw.SequenceTagger(max_epochs=1, **options).fit(given, free)
    tagger.set_params(forbidden_transitions=forbidden)
    if forbidden is not None:
        model = ChainModel.build(
            tagger._record.data, 3, feature_pairs=options["feature_pairs"],
            transitions=options["transitions"], forbidden=forbidden, classes=tagger.classes_,
            intercept=options["intercept"], boundaries=options["boundary_weights"],
        )  # fmt: skip
        tagger._chain = tagger._make_chain(tagger.encoder_, tagger.labels_, model, tagger.coef_)
    weights = size * rng.integers(-3, 4, len(tagger.coef_)).astype(float)
    tagger._chain = tagger.chain_.with_weights(weights)
    assert tagger.predict(given) == tagger.predict(given, allowed=[None] * len(given))


def test_likelihoods_of_all_labelings_add_up_to_one(tagger):
    x = NEW[0]
    every = all_labelings(tagger, len(x))
    values = tagger.log_likelihood([x] * len(every), every)
    assert np.exp(values).sum() == pytest.approx(1)
    best = every[int(np.argmax(values))]
    assert tagger.predict([x])[0] == best


def test_the_objective_is_the_penalty_and_the_mean_loss(tagger):
    loss = -tagger.log_likelihood(X, Y).mean()
    penalty = 0.5 * tagger.coef_ @ tagger.coef_ / (tagger.C * len(X))
    assert tagger.certificate_.primal == pytest.approx(penalty + loss, rel=1e-9)


def test_an_explanation_adds_up_to_the_score_of_the_labeling(tagger):
    for x in NEW:
        parts = tagger.explain(x, n=100)
        tags = [p["tag"] for p in parts]
        assert tags == tagger.predict([x])[0]
        total = sum(sum(v for _, v in p["features"]) + p["transition"] for p in parts)
        numbers = np.array([LABELS.index(t) for t in tags])
        assert total == pytest.approx(graph_of(tagger, x).score(numbers), abs=1e-10)
        for t, p in enumerate(parts):
            marginal = tagger.predict_marginals([x])[0][t, numbers[t]]
            assert p["probability"] == pytest.approx(marginal)


def test_top_features_and_transitions_are_the_largest_weights(tagger):
    emissions = tagger.model_.emissions(tagger.coef_)
    names = tagger.feature_names()
    for y, (label, features) in enumerate(tagger.top_features(n=3).items()):
        assert label == tagger.classes_[y]
        sizes = np.sort(np.abs(emissions[:, y]))[::-1][: len(features)]
        np.testing.assert_allclose(np.abs([w for _, w in features]), sizes)
        for name, weight in features:
            assert emissions[names.index(name), y] == weight
    a, b, weight = tagger.top_transitions(1)[0]
    trans = tagger.model_.transitions(tagger.coef_)
    assert weight == trans[LABELS.index(a), LABELS.index(b)]
    assert abs(weight) == np.abs(trans).max()
    with pytest.raises(DataError, match="not a class"):
        tagger.top_features("Z")


def test_threads_and_small_blocks_change_no_bit(tagger, monkeypatch):
    many = NEW * 20
    tagger.set_params(n_jobs=1)
    alone = tagger.predict(many), tagger.predict_marginals(many), tagger.predict_top_k(many, 3)
    likely = tagger.log_likelihood(many, TRUE * 20)
    monkeypatch.setattr(_prediction, "BLOCK", 30)
    for jobs in (1, 2, -1):
        tagger.set_params(n_jobs=jobs)
        assert tagger.predict(many) == alone[0]
        for p, q in zip(tagger.predict_marginals(many), alone[1], strict=True):
            np.testing.assert_array_equal(p, q)
        assert tagger.predict_top_k(many, 3) == alone[2]
        np.testing.assert_array_equal(tagger.log_likelihood(many, TRUE * 20), likely)


def test_training_in_threads_reaches_the_same_optimum():
    one, two = (tight(solver="lbfgs", n_jobs=jobs).fit(X, Y) for jobs in (1, 2))
    assert one.certificate_.primal == pytest.approx(two.certificate_.primal, rel=1e-9)


@given(lengths=st.lists(st.integers(0, 5), max_size=5))
def test_any_lengths_give_answers_of_these_lengths(lengths):
    tagger = _trained()
    x = [[["w=1"]] * n for n in lengths]
    assert [len(t) for t in tagger.predict(x)] == lengths
    for nodes, edges in tagger.predict_marginals(x, pairwise=True):
        assert len(edges) == max(len(nodes) - 1, 0)
        np.testing.assert_allclose(nodes.sum(axis=1), 1)
    best = tagger.predict_top_k(x, 2)
    assert all(b == [(1.0, [])] for b, n in zip(best, lengths, strict=True) if n == 0)
    assert np.all(tagger.log_likelihood(x, [["A"] * n for n in lengths]) <= 0)


_KEPT: list = []


def _trained():
    if not _KEPT:
        _KEPT.append(tight().fit(X, Y))
    return _KEPT[0]


def test_scores_count_labels_that_training_did_not_see_as_wrong(tagger):
    assert tagger.score([[["w=0"], ["w=1"]]], [["Z", "Z"]]) == 0.0
    with pytest.raises(DataError, match="not a class"):
        tagger.log_likelihood([[["w=0"]]], [["Z"]])


@pytest.mark.parametrize("size", [1e15, 1e30, 1e100, 1e290])
def test_weights_of_any_size_predict_the_same_and_give_no_false_probability(size):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(4, 3)) for _ in range(8)]
    y = [rng.integers(0, 3, 4).tolist() for _ in range(8)]
    tagger = cw.SequenceTagger(tol=0.1).fit(X, y)
    expected, plain = tagger.predict(X), tagger.coef_
    tagger._chain = tagger.chain_.with_weights(plain * size)
    assert tagger.predict(X) == expected
    for ask in (tagger.predict_marginals, lambda X: tagger.predict_top_k(X, 2),
                lambda X: tagger.log_likelihood(X, y)):  # fmt: skip
        with pytest.raises(PrecisionError, match="sequence 0: the labelings that matter lose"):
            ask(X)
    tagger._chain = tagger.chain_.with_weights(plain * 1e305)
    with pytest.raises(PrecisionError, match="scale the features"):
        tagger.predict(X)


def test_prediction_follows_parameters_that_change_after_training():
    copy = cw.SequenceTagger(random_state=0).fit(X, Y)
    before = copy.predict(X)
    copy.set_params(n_jobs=2, max_memory=1.0)
    assert (copy.chain_.n_jobs, copy.chain_.max_memory) == (2, 1.0)
    assert copy.predict(X) == before
    copy.set_params(loss="hinge")
    with pytest.raises(UnsupportedError, match="scores, not probabilities"):
        copy.predict_marginals(X)
