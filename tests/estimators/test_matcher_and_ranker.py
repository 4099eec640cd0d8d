"""Matcher and CandidateRanker: learning, conventions of scikit-learn, files, bad input."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV

import cliquewise as cw
from cliquewise.errors import DataError, FormatError, UnsupportedError
from cliquewise.oracles.matching import max_matching


def alignments(seed: int, n: int = 40, noise: float = 0.0) -> tuple[list[Any], list[Any]]:
    """Words of two sentences: similarity, distance of positions, and a useless feature."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        p, q = rng.integers(2, 7, 2)
        x = rng.normal(size=(p, q, 3))
        x[..., 1] = np.abs(np.arange(p)[:, None] / p - np.arange(q) / q)
        scores = 3 * x[..., 0] - 4 * x[..., 1] - 0.5 + noise * rng.normal(size=(p, q))
        X.append(x)
        y.append(max_matching(scores, 0.0).columns)
    return X, y


def choices(seed: int, n: int = 60, noise: float = 0.0) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(2, 9), 4)) for _ in range(n)]
    w = np.array([2.0, -1.0, 0.5, 0.0])
    return X, np.array([int(np.argmax(x @ w + noise * rng.normal(size=len(x)))) for x in X])


# ---- Matcher


def test_matcher_learns_to_align():
    X, y = alignments(0)
    matcher = cw.Matcher(C=10.0, random_state=0).fit(X, y)
    assert matcher.certificate_.gap <= 1e-3
    assert matcher.certificate_.status == "exact"
    assert len(matcher.trace_) >= 1
    test_X, test_y = alignments(1)
    assert matcher.score(test_X, test_y) > 0.95
    assert any((m < 0).any() for m in matcher.predict(test_X))


def test_complete_matchings_cover_the_smaller_side():
    X, y = alignments(2)
    y = [max_matching(3 * x[..., 0] - 4 * x[..., 1]).columns for x in X]
    matcher = cw.Matcher(C=10.0, partial=False, intercept=False, random_state=0).fit(X, y)
    for x, m in zip(X, matcher.predict(X), strict=True):
        assert (m >= 0).sum() == min(x.shape[:2])
    assert matcher.score(X, y) > 0.95
    assert matcher.coef_.shape == (3,)


def test_pairs_and_columns_are_equivalent_targets():
    X, y = alignments(3, noise=1.0)
    pairs = [[(i, int(c)) for i, c in enumerate(m) if c >= 0] for m in y]
    one, two = (cw.Matcher(random_state=0).fit(X, given) for given in (y, pairs))
    assert one.coef_.tobytes() == two.coef_.tobytes()
    assert one.score(X, y) == two.score(X, pairs)


def test_sparse_and_dense_pairs_give_the_same_model():
    X, y = alignments(4, n=15, noise=1.0)
    sparse = [[csr_matrix(row) for row in x] for x in X]
    one, two = (cw.Matcher(tol=1e-8, random_state=0).fit(given, y) for given in (X, sparse))
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-3)
    for a, b in zip(one.decision_function(X), one.decision_function(sparse), strict=True):
        np.testing.assert_allclose(a, b)


def test_first_of_the_k_best_matchings_is_the_prediction():
    X, y = alignments(5, n=10)
    matcher = cw.Matcher(random_state=0).fit(X, y)
    for best, single in zip(matcher.predict_top_k(X, 4), matcher.predict(X), strict=True):
        scores = [s for s, _ in best]
        assert scores == sorted(scores, reverse=True)
        assert best[0][1].tolist() == single.tolist()
    few = matcher.predict_top_k([np.zeros((1, 1, 3))], 10)
    assert len(few[0]) == 2  # matched, or not


def test_cost_wrong_changes_the_number_of_matched_pairs():
    X, y = alignments(6, noise=1.0)
    count = {}
    for wrong in (0.2, 5.0):
        matcher = cw.Matcher(cost_wrong=wrong, random_state=0).fit(X, y)
        count[wrong] = sum(int((m >= 0).sum()) for m in matcher.predict(X))
    assert count[0.2] > count[5.0]


# ---- CandidateRanker


@pytest.mark.parametrize("loss", ["hinge", "log"])
def test_ranker_learns_to_choose(loss):
    X, y = choices(0)
    ranker = cw.CandidateRanker(loss, C=10.0, random_state=0).fit(X, y)
    assert ranker.certificate_.gap <= 1e-3
    test_X, test_y = choices(1)
    assert ranker.score(test_X, test_y) > 0.9
    assert ranker.predict(test_X).dtype.kind == "i"


def test_log_loss_is_a_conditional_logit():
    """At the optimum the expected features are the true ones, up to the penalty."""
    X, y = choices(2, noise=2.0)
    ranker = cw.CandidateRanker("log", C=1.0, tol=1e-10).fit(X, y)
    p = ranker.predict_proba(X)
    residual = sum(x[t] - q @ x for x, q, t in zip(X, p, y, strict=True))
    np.testing.assert_allclose(ranker.coef_, residual, atol=1e-3)
    for q in p:
        assert q.sum() == pytest.approx(1.0)
    with pytest.raises(UnsupportedError, match="log"):
        cw.CandidateRanker(random_state=0).fit(X, y).predict_proba(X)


def test_costs_may_replace_the_index_of_the_true_candidate():
    X, y = choices(3)
    costs = [np.where(np.arange(len(x)) == t, 0.0, 1.0) for x, t in zip(X, y, strict=True)]
    one, two = (cw.CandidateRanker(random_state=0).fit(X, given) for given in (y, costs))
    three = cw.CandidateRanker(random_state=0).fit(X, y, costs=costs)
    assert one.coef_.tobytes() == two.coef_.tobytes() == three.coef_.tobytes()
    assert two.score(X, costs) == pytest.approx(one.score(X, y) - 1.0)


def test_one_hot_rows_are_not_accepted_as_costs():
    X, y = choices(3, n=8)
    marks = [np.eye(len(x))[number] for x, number in zip(X, y, strict=True)]
    with pytest.raises(DataError, match=r"np\.argmax of each"):
        cw.CandidateRanker().fit(X, marks)
    ranker = cw.CandidateRanker(random_state=0).fit(X, [1 - m for m in marks])
    with pytest.raises(DataError, match="marks one candidate"):
        ranker.score(X, marks)


def test_ranker_prefers_cheap_mistakes_to_expensive_ones():
    rng = np.random.default_rng(4)
    X = [np.eye(3) + 0.3 * rng.normal(size=(3, 3)) for _ in range(50)]
    # Candidate 2 looks as good as 0; choosing 1 costs little, choosing 2 much.
    y = [0 if rng.random() < 0.5 else 2 for _ in X]
    costs = [np.array([0.0, 0.1, 1.0] if t == 0 else [1.0, 0.1, 0.0]) for t in y]
    ranker = cw.CandidateRanker(C=1.0, random_state=0).fit(X, costs)
    assert ranker.score(X, costs) > -0.4


def test_k_best_candidates_are_sorted():
    X, y = choices(5)
    ranker = cw.CandidateRanker(random_state=0).fit(X, y)
    for best, scores in zip(ranker.predict_top_k(X, 3), ranker.decision_function(X), strict=True):
        order = np.argsort(-scores)[:3]
        assert [c for _, c in best] == order.tolist()
    assert len(ranker.predict_top_k(X[:1], 100)[0]) == len(X[0])


def test_object_localization_end_to_end():
    """Windows as candidates, word histograms as features, 1 - IoU as cost."""
    rng = np.random.default_rng(6)
    boxes = [(t, s, t + h, s + h) for h in (4, 6) for t in range(0, 7, 2) for s in range(0, 7, 2)]
    X, truth = [], []
    for _ in range(40):
        words = rng.integers(0, 4, (12, 12))
        box = boxes[rng.integers(len(boxes))]
        words[box[0] : box[2], box[1] : box[3]] = rng.integers(3, 6, (box[2] - box[0],) * 2)
        histograms = [
            np.bincount(words[a:c, b:d].ravel(), minlength=6) / 36.0 for a, b, c, d in boxes
        ]
        X.append(np.array(histograms))
        truth.append(box)
    costs = [1 - cw.metrics.iou(box, boxes) for box in truth]
    ranker = cw.CandidateRanker(C=10.0, random_state=0).fit(X[:30], costs[:30])
    best = [found[0] for found in ranker.predict_top_k(X[30:], 1)]
    predicted = [boxes[c] for _, c in best]
    assert cw.metrics.corloc(truth[30:], predicted) >= 0.8
    right = cw.metrics.iou(truth[30:], predicted) > 0.5
    assert cw.metrics.average_precision(right, [s for s, _ in best], 10) >= 0.7


# ---- both


BOTH = [(cw.Matcher, alignments), (cw.CandidateRanker, choices)]


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_files_keep_the_model(cls, make, tmp_path):
    X, y = make(7)
    fitted = cls(C=3.0, random_state=0).fit(X, y)
    fitted.save(tmp_path / "model.cw")
    again = cw.load(tmp_path / "model.cw")
    assert type(again) is cls
    assert again.C == 3.0
    assert again.certificate_ == fitted.certificate_
    assert again.solver_ == fitted.solver_
    assert again.score(X, y) == fitted.score(X, y)
    for a, b in zip(again.predict(X), fitted.predict(X), strict=True):
        assert np.array_equal(a, b)
    copied = pickle.loads(pickle.dumps(fitted))
    assert copied.coef_.tobytes() == fitted.coef_.tobytes()


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_file_with_weights_of_the_wrong_size_raises_an_error(cls, make, tmp_path):
    X, y = make(7, n=5)
    fitted = cls(random_state=0).fit(X, y)
    fitted.coef_ = fitted.coef_[:-1]
    fitted.save(tmp_path / "model.cw")
    with pytest.raises(FormatError, match="damaged"):
        cw.load(tmp_path / "model.cw")


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_clones_grids_and_seeds_behave(cls, make):
    X, y = make(8, n=12, noise=1.0)
    one, two = (clone(cls(C=0.5, random_state=1)).fit(X, y) for _ in range(2))
    assert one.coef_.tobytes() == two.coef_.tobytes()
    assert one.n_features_in_ == X[0].shape[-1]
    indices = np.arange(len(X))
    grid = GridSearchCV(
        cls(random_state=0), {"C": [0.1, 1.0]}, cv=[(indices[:8], indices[8:])], refit=False
    )
    assert len(grid.fit(X, y).cv_results_["mean_test_score"]) == 2


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_sample_weight_two_equals_a_repeated_example(cls, make):
    X, y = make(9, n=8, noise=2.0)
    weights = np.array([2.0] * 3 + [1.0] * 5)
    one = cls(tol=1e-9, random_state=0, max_epochs=10_000).fit(X, y, sample_weight=weights)
    two = cls(tol=1e-9, random_state=0, max_epochs=10_000).fit(
        [*X, *X[:3]], [*list(y), *list(y[:3])]
    )
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-3)


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_stopping_early_warns_with_the_gap(cls, make):
    X, y = make(10, noise=3.0)
    with pytest.warns(ConvergenceWarning, match="relative gap"):
        cls(max_epochs=1, tol=1e-12, random_state=0).fit(X, y)


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_invalid_input_raises_a_clear_error(cls, make):
    X, y = make(11, n=4)
    with pytest.raises(NotFittedError):
        cls().predict(X)
    fitted = cls(random_state=0).fit(X, y)
    bad = [np.full_like(X[0], np.nan), *X[1:]]
    narrow = [X[0][..., :1], *X[1:]]
    for wrong_X, wrong_y in [
        (bad, y), ([], []), (X, y[:-1]), (X, None), (3, y), (X[0][0, 0], y), (narrow, y),
        (X, [["a"]] * 4),
    ]:  # fmt: skip
        with warnings.catch_warnings(), pytest.raises(DataError):
            warnings.simplefilter("error")
            cls().fit(wrong_X, wrong_y)
    with pytest.raises(DataError, match="features"):
        fitted.predict([x[..., :1] for x in X])
    with pytest.raises(DataError, match="C must be"):
        cls(C=-1.0).fit(X, y)
    with pytest.raises(DataError, match="k ="):
        fitted.predict_top_k(X, 0)
    with pytest.raises(DataError, match="sample_weight"):
        cls().fit(X, y, sample_weight=[1.0])
    with pytest.raises(DataError, match="loss must be"):
        cls("square").fit(X, y)
    with pytest.raises(UnsupportedError, match="these do"):
        cls(solver="sdca").fit(X, y)


def test_invalid_matchings_raise_an_error():
    X, _ = alignments(12, n=1)
    p, q = X[0].shape[:2]
    for y in ([0] * p, [q] * p, [(0, 0), (0, 1)], [(p, 0)], [(0, q)], [0.5] * p, [(0, 0, 0)]):
        with pytest.raises(DataError, match="example 0"):
            cw.Matcher().fit(X, [y])
    with pytest.raises(DataError, match="columns"):
        cw.Matcher().fit([csr_matrix(np.eye(2))], [[0, 1]])
    with pytest.raises(DataError, match="permanent"):
        cw.Matcher("log").fit(X, [[-1] * p])
    with pytest.raises(DataError, match="partial=True"):
        cw.Matcher(partial=False).fit(X, [[-1] * p])


def test_empty_matching_is_valid():
    X, _ = alignments(13, n=3)
    matcher = cw.Matcher(C=10.0, random_state=0).fit(X, [[], [], []])
    assert all((m == -1).all() for m in matcher.predict(X))
    assert matcher.score(X, [[], [], []]) == 1.0


def test_invalid_candidates_raise_an_error():
    X, y = choices(14, n=3)
    with pytest.raises(DataError, match="no candidates"):
        cw.CandidateRanker().fit([*X[:2], np.empty((0, 4))], y)
    with pytest.raises(DataError, match="example 1"):
        cw.CandidateRanker().fit(X, [0, 99, 0])
    with pytest.raises(DataError, match="integers"):
        cw.CandidateRanker().fit(X, [0.5, 0, 0])
    with pytest.raises(DataError, match="costs"):
        cw.CandidateRanker().fit(X, [np.zeros(len(x) + 1) for x in X])
    with pytest.raises(UnsupportedError, match="log"):
        cw.CandidateRanker("log").fit(X, y, costs=[np.ones(len(x)) for x in X])
    with pytest.raises(DataError, match="list"):
        cw.CandidateRanker().fit(csr_matrix(X[0]), y)


def test_a_matcher_that_matches_nothing_warns():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 6, 2)) for _ in range(4)]  # features without information
    y = [[(0, 1)] for _ in X]
    with pytest.warns(UserWarning, match="matches no pair of its training data"):
        matcher = cw.Matcher("hinge", C=1.0, random_state=0).fit(X, y)
    assert all((columns < 0).all() for columns in matcher.predict(X))


def test_default_matcher_finds_sparse_pairs_that_the_hinge_loss_misses():
    def tables(seed):
        rng = np.random.default_rng(seed)
        X, y = [], []
        for _ in range(8):
            rows, columns = rng.choice(20, 8, False), rng.choice(20, 8, False)
            truth = np.full(20, -1)
            truth[rows] = columns
            x = rng.normal(size=(20, 20, 2))
            x[rows, columns] += 1.5
            X.append(x)
            y.append(truth)
        return X, y

    X, y = tables(0)
    matcher = cw.Matcher().fit(X, y)
    assert matcher.loss_ == "pseudo_likelihood" and matcher.certificate_.gap <= 1e-3
    with pytest.warns(UserWarning, match="matches no pair"):
        hinge = cw.Matcher("hinge", random_state=0).fit(X, y)
    X, y = tables(1)
    assert hinge.score(X, y) == 0.0
    assert matcher.score(X, y) > 0.25


def test_pseudo_likelihood_of_matchings_matches_enumeration():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(2, 3, 2)) for _ in range(3)]
    y = [np.array([0, -1]), np.array([2, 1]), np.array([-1, -1])]
    matcher = cw.Matcher("pseudo_likelihood", C=0.7, tol=1e-8).fit(X, y)
    total, w = 0.0, matcher.coef_
    for x, columns in zip(X, y, strict=True):
        scores = x @ w[:2] + w[2]
        for i, j in enumerate(columns):
            chosen = scores[i, j] if j >= 0 else 0.0
            total += 0.5 * (np.log(1 + np.exp(scores[i]).sum()) - chosen)
        for j in range(3):
            rows = np.flatnonzero(columns == j)
            chosen = scores[rows[0], j] if len(rows) else 0.0
            total += 0.5 * (np.log(1 + np.exp(scores[:, j]).sum()) - chosen)
    n = 3 * 5  # choices; objectives are per choice
    objective = total / n + 0.5 * w @ w / (0.7 * n)
    assert matcher.certificate_.primal == pytest.approx(objective, rel=1e-9)
