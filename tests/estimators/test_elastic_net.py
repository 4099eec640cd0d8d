"""``l1_ratio``: few weights, certificates over both penalties, files, paths, other solvers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

import cliquewise as cw
from cliquewise import (
    CandidateRanker,
    GraphLabeler,
    MulticlassClassifier,
    MultiLabelClassifier,
    SequenceTagger,
    regularization_path,
)
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.problems.penalty import Penalty

RNG = np.random.default_rng(0)
X = [
    [[f"w{RNG.zipf(1.5) % 50}", f"p{RNG.integers(5)}"] for _ in range(RNG.integers(1, 9))]
    for _ in range(40)
]
Y = [[str((int(word[1:]) + RNG.integers(2)) % 3) for word, _ in x] for x in X]


def total(tagger: SequenceTagger, c1: float, c2: float) -> float:
    """CRFsuite's objective of a tagger's weights."""
    w = tagger.coef_
    return float(-tagger.log_likelihood(X, Y).sum() + c1 * np.abs(w).sum() + c2 * w @ w)


@pytest.mark.parametrize(("c1", "c2"), [(0.0, 0.5), (0.1, 0.1), (1.0, 0.2), (0.7, 0.0)])
def test_the_objective_is_that_of_crfsuite_for_c1_and_c2(c1: float, c2: float) -> None:
    C = 1 / (c1 + 2 * c2)
    tagger = SequenceTagger(C=C, l1_ratio=c1 * C, tol=1e-4, random_state=0).fit(X, Y)
    assert total(tagger, c1, c2) == pytest.approx(len(X) * tagger.certificate_.primal, rel=1e-9)
    assert tagger.certificate_.gap <= 1e-4
    rng = np.random.default_rng(1)
    for _ in range(20):  # no weights nearby are better
        other = SequenceTagger(**tagger.get_params())
        step = rng.normal(size=len(tagger.coef_)) * 10 ** rng.uniform(-3, 0)
        other._chain = tagger.chain_.with_weights(tagger.coef_ + step)
        assert total(other, c1, c2) >= len(X) * tagger.certificate_.dual


def test_sdca_and_owlqn_agree_and_leave_the_same_weights() -> None:
    for ratio in (0.3, 0.8):
        given = {"l1_ratio": ratio, "tol": 1e-7, "max_epochs": 2000, "random_state": 0}
        one, two = (SequenceTagger(solver=s, **given).fit(X, Y) for s in ("sdca", "owlqn"))
        assert one.certificate_.primal == pytest.approx(two.certificate_.primal, rel=1e-6)
        np.testing.assert_allclose(one.coef_, two.coef_, atol=2e-2)
        assert abs(one.n_nonzero_ - two.n_nonzero_) <= 0.05 * two.n_nonzero_ + 1
        assert 0 < one.n_nonzero_ < 0.8 * len(one.coef_)


def test_threads_and_single_precision_prove_the_same() -> None:
    plain = SequenceTagger(l1_ratio=0.5, random_state=0).fit(20 * X, 20 * Y)
    for changes in ({"n_jobs": 2}, {"dtype": "float32"}, {"loss": "hinge", "tol": 0.02}):
        other = SequenceTagger(l1_ratio=0.5, random_state=0).set_params(**changes)
        other.fit(20 * X, 20 * Y)
        assert other.certificate_.gap <= other.tol
        if other.loss == "log":
            assert other.certificate_.dual <= plain.certificate_.primal
            assert other.certificate_.primal >= plain.certificate_.dual


def test_a_path_over_both_penalties_is_warm_and_says_how_many_weights_are_left(tmp_path) -> None:
    path = regularization_path(
        SequenceTagger(random_state=0), X, Y, [0.1, 1.0], l1_ratios=[0.1, 0.9, 1.0]
    )
    assert [(e.l1_ratio, e.C) for e in path[1:4]] == [(0.1, 1.0), (0.9, 0.1), (0.9, 1.0)]
    assert all(e.certificate_.gap <= 1e-3 for e in path)
    assert path[1].n_nonzero_ > path[3].n_nonzero_ >= path[2].n_nonzero_
    assert path[-1].solver_ == "owlqn"
    path[3].save(tmp_path / "m")
    again = cw.load(tmp_path / "m")
    assert again.l1_ratio == 0.9 and again.n_nonzero_ == path[3].n_nonzero_
    with pytest.raises(DataError, match="l1_ratios is empty"):
        regularization_path(SequenceTagger(), X, Y, [1.0], l1_ratios=[])


def test_a_logistic_regression_with_an_elastic_net_is_the_one_that_scipy_finds() -> None:
    data, target = load_iris(return_X_y=True)
    rows, flags = data[:100] - data[:100].mean(axis=0), target[:100]
    for ratio in (0.4, 1.0):
        ours = MulticlassClassifier(C=0.3, l1_ratio=ratio, tol=1e-6, max_epochs=2000).fit(
            rows, flags
        )
        d = rows.shape[1] + 1
        features = np.hstack([rows, np.ones((100, 1))])

        def objective(z: np.ndarray, features=features, ratio=ratio, d=d) -> float:
            w = (z[: 2 * d] - z[2 * d :]).reshape(2, d)
            scores = features @ w.T
            loss = np.logaddexp(*scores.T) - scores[np.arange(100), flags]
            return float(loss.sum() + (ratio * z.sum() + (1 - ratio) / 2 * z @ z) / 0.3)

        found = minimize(objective, np.zeros(4 * d), bounds=[(0, None)] * 4 * d, method="L-BFGS-B")
        assert 100 * ours.certificate_.primal == pytest.approx(found.fun, rel=1e-4)
        assert 100 * ours.certificate_.dual <= found.fun


def test_graphs_label_sets_and_candidates_have_it_too() -> None:
    rng = np.random.default_rng(0)
    graphs = [(rng.normal(size=(3, 4)), [(0, 1), (1, 2)]) for _ in range(8)]
    labels = [(x[:, 0] > 0).astype(int) for x, _ in graphs]
    rows = rng.normal(size=(40, 5))
    sets = (rows[:, :2] + rng.normal(size=(40, 2)) > 0).astype(int)
    lists = [rng.normal(size=(4, 3)) for _ in range(20)]
    for ratio in (0.5, 1.0):
        fitted = [
            GraphLabeler(l1_ratio=ratio).fit(graphs, labels),
            MultiLabelClassifier(l1_ratio=ratio, C=1.0, label_graph="none").fit(rows, sets),
            MultiLabelClassifier(l1_ratio=ratio, C=1.0, label_graph="tree").fit(rows, sets),
            CandidateRanker(loss="log", l1_ratio=ratio).fit(
                lists, [int(x[:, 0].argmax()) for x in lists]
            ),
        ]
        if ratio < 1:
            fitted.append(GraphLabeler(l1_ratio=ratio, solver="sdca").fit(graphs, labels))
            one, two = fitted[0].certificate_, fitted[-1].certificate_
            assert one.dual <= two.primal and two.dual <= one.primal
        for estimator in fitted:
            assert estimator.certificate_.gap <= 1e-3
            weights = getattr(estimator, "weights_", estimator.coef_)
            assert 0 < estimator.n_nonzero_ < len(weights) or ratio < 1


def test_what_cannot_be_done_is_rejected_with_a_reason() -> None:
    with pytest.raises(
        UnsupportedError, match=r"lbfgs.*does not support an L1 penalty.*these do: sdca, owlqn"
    ):
        SequenceTagger(l1_ratio=0.5, solver="lbfgs").fit(X, Y)
    with pytest.raises(UnsupportedError, match="l1_ratio must be below 1; these do: owlqn"):
        SequenceTagger(l1_ratio=1.0, solver="sdca").fit(X, Y)
    for wrong in (-0.1, 1.1, np.nan, "0.5", None, True):
        with pytest.raises(DataError, match="l1_ratio"):
            SequenceTagger(l1_ratio=wrong).fit(X, Y)


def test_the_conjugate_is_the_largest_difference_that_weights_reach() -> None:
    rng = np.random.default_rng(3)
    for ratio in (0.0, 0.2, 0.7):
        penalty = Penalty(0.3, ratio)
        v = 2.0 * rng.normal(size=6)
        slope = penalty.lam * penalty.scale * v
        best = penalty.shrunk(v)
        reached = slope @ best - penalty.value(best)
        assert reached == pytest.approx(penalty.conjugate(v))
        for gamma in (0.1, 1e300):
            assert penalty.conjugate(v / gamma, gamma) == pytest.approx(reached)
        for _ in range(50):
            w = best + rng.normal(size=6) * 10 ** rng.uniform(-3, 1)
            assert slope @ w - penalty.value(w) <= reached + 1e-12


def test_l1_alone_is_proved_by_default():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        tagger = SequenceTagger(C=10.0, l1_ratio=1, random_state=0).fit(X, Y)
    assert tagger.solver_ == "owlqn" and tagger.certificate_.gap <= tagger.tol
    with pytest.warns(ConvergenceWarning, match="after 5 epochs"):
        SequenceTagger(C=10.0, l1_ratio=1, max_epochs=5, random_state=0).fit(X, Y)


@pytest.mark.parametrize("loss", ["log", "softmax_margin"])
def test_gradients_that_vanish_are_no_corrections_to_divide_by(loss):
    for C in np.geomspace(1.0, 1e4, 9):
        classifier = MultiLabelClassifier(
            loss=loss,
            C=C,
            l1_ratio=1.0,
            label_graph=[(0, 2), (1, 2)],
            intercept=False,
            tol=1e-12,
            max_epochs=100,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            classifier.fit([[804.0, 0.0]], [[1, 1, 0]])
        assert classifier.certificate_.status == "exact"
