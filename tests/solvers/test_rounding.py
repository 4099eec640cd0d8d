"""Dual values are lower bounds in exact arithmetic, whatever the scale of the data.

The reference is 80-bit arithmetic over a list of all labelings: its own rounding is a thousandth
of what is being tested.
"""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration, chain_recipes
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import cliquewise as cw
from cliquewise.errors import DataError
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.penalty import Penalty
from cliquewise.problems.rounding import UNIT, lowered, squared_norm
from cliquewise.solvers import get
from cliquewise.solvers.run import run
from cliquewise.solvers.sdca import SDCA

LONG = np.longdouble


def long_dual(problem: ChainProblem, arrays) -> tuple[LONG, float]:
    """The dual value of stored marginals, and how far they are from those of their scores.

    Marginals are exact for scores that differ from the stored ones by rounding; where they do,
    ``A(theta) - <theta, mu>`` is the entropy of these marginals but for the rounding squared.
    """
    reference, data = Enumeration(problem), problem.data
    n, total, apart = LONG(reference.n), LONG(0), 0.0
    for i, labelings in enumerate(reference.labelings):
        first, last = data.offsets[i], data.offsets[i + 1]
        if first == last:
            continue
        truth, row = data.labels[first:last], arrays.edge_row[i]
        theta = arrays.theta[first:last].astype(LONG)
        scores = np.array(
            [
                sum((theta[t, k] for t, k in enumerate(y)), LONG(0))
                + sum((LONG(arrays.theta_edges[row, a, b]) for a, b in pairwise(y)), LONG(0))
                for y in map(tuple, labelings)
            ]
        )
        p = np.exp(scores - scores.max())
        p /= p.sum()
        nodes = np.zeros_like(theta)
        for y, share in zip(labelings, p, strict=True):
            nodes[np.arange(len(y)), y] += share
        mu = arrays.mu[first:last].astype(LONG)
        size = 100.0 * len(truth) + float(np.abs(scores).max())
        apart = max(apart, float(np.abs(mu - nodes).max()) / (64 * UNIT * size))
        if problem.loss == "log":
            gain = scores.max() + np.log(np.exp(scores - scores.max()).sum()) - (theta * mu).sum()
            if len(truth) > 1:
                gain -= (arrays.theta_edges[row].astype(LONG) * arrays.mu_edges[row]).sum()
        else:
            gain = mu.sum() - mu[np.arange(len(truth)), truth].sum()
        total += LONG(reference.weights[i]) * gain
    w = long_weights(problem, arrays)
    return total / n - LONG(1) / (LONG(problem.C) * n) / 2 * (w @ w), apart


def long_weights(problem: ChainProblem, arrays) -> np.ndarray:
    """``C sum_i c_i (F_i - B mu_i)``, term by term."""
    chains, k = problem.chains, problem.model.n_labels
    w = np.zeros((problem.model.n_attributes + k, k), dtype=LONG)
    mass = -arrays.mu.astype(LONG)
    mass[np.arange(len(chains.labels)), chains.labels] += 1
    for i, (first, last) in enumerate(pairwise(chains.offsets)):
        c = LONG(problem.C) * LONG(chains.weights[i])
        for t in range(first, last):
            for e in range(chains.indptr[t], chains.indptr[t + 1]):
                x = LONG(chains.values[e]) if len(chains.values) else LONG(1)
                w[chains.indices[e]] += c * x * mass[t]
        for a, b in pairwise(chains.labels[first:last]):
            w[problem.model.n_attributes + a, b] += c
        if last - first > 1:
            w[problem.model.n_attributes :] -= c * arrays.mu_edges[arrays.edge_row[i]]
    w[problem.model.n_attributes :][~problem.model.edge_free] = 0
    if len(problem.model.pair_start):
        free = np.zeros((problem.model.n_attributes, k), dtype=bool)
        rows = np.repeat(np.arange(len(free)), np.diff(problem.model.pair_start))
        free[rows, problem.model.pair_label] = True
        w[: len(free)][~free] = 0
    return w.ravel()


@pytest.mark.parametrize("loss", ["log", "hinge"])
@given(
    recipe=chain_recipes(min_log_c=-4, max_log_c=8),
    scale=st.sampled_from([1e-3, 1.0, 4e3, 1e8]),
    start=st.sampled_from([0.0, 10.0]),
    passes=st.integers(1, 8),
)
def test_dual_ascent_never_claims_more_than_its_distributions_are_worth(
    loss, recipe, scale, start, passes
):
    plain = ChainRecipe(**{**recipe.__dict__, "values": True, "scale": scale}).build()
    problem = ChainProblem(plain.model, plain.data, plain.C, loss=loss)
    state, rng = SDCA(start=start).init(problem), np.random.default_rng(0)
    for _ in range(passes):
        SDCA(start=start).step(problem, state, rng)
    state.duals.refresh()
    exact, apart = long_dual(problem, state.duals.arrays)
    assert state.duals.bound().value <= exact
    assert apart < 1


def tagged(X, y, **parameters) -> cw.SequenceTagger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cw.SequenceTagger(random_state=0, **parameters).fit(X, y)


def test_large_features_and_a_weak_penalty_prove_no_more_than_they_can():
    """Scores of 1e11 cancel in the entropy: the dual was 7.6e-6, the primal 2.7e-8."""
    rng = np.random.default_rng(3)
    X = [4174 * rng.uniform(-1, 1, (1, 2)) for _ in range(4)]
    tagger = tagged(X, [[i % 2] for i in range(4)], C=8560.0, solver=SDCA(start=0.0))
    c = tagger.certificate_
    assert c.dual <= c.primal
    assert c.rounding > 0


@pytest.mark.parametrize("loss", ["log", "hinge"])
@pytest.mark.parametrize("C", [1e12, 1e20, 1e30])
def test_no_penalty_is_weak_enough_to_fool_the_dual(C, loss):
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(3, 2)) for _ in range(4)], [rng.integers(0, 2, 3) for _ in range(4)]
    tagger = tagged(X, y, C=C, loss=loss, max_epochs=30)
    assert tagger.certificate_.dual <= tagger.certificate_.primal


def test_a_gap_that_rounding_alone_exceeds_is_said_to_be_useless():
    rng = np.random.default_rng(1)
    X = [1e8 * rng.normal(size=(2, 2)) for _ in range(3)]
    with pytest.warns(ConvergenceWarning, match="rounding errors"):
        cw.SequenceTagger(C=1e6, solver="sdca", max_epochs=3).fit(X, [[0, 1], [1, 0], [0, 0]])


@pytest.mark.parametrize("solver", ["sdca", "lbfgs", "bcfw", "gdmm", "svrg", "casimir"])
def test_what_the_term_takes_off_is_far_below_any_tolerance(solver):
    loss = "log" if solver in ("sdca", "lbfgs") else "hinge"
    base = ChainRecipe(5, examples=6, labels=3, values=True, bare=True).build()
    problem = ChainProblem(base.model, base.data, loss=loss)
    fit = run(problem, get(solver, "chain"), tol=1e-2, max_epochs=400, random_state=0)
    assert 0 < fit.certificate.rounding < 1e-9 * fit.certificate.primal


def test_features_whose_squares_overflow_are_refused_by_name():
    X = [[{"fine": 1.0, "huge": 1e200}], [{"fine": 0.5}]]
    with pytest.raises(DataError, match="huge"):
        cw.SequenceTagger().fit(X, [["a"], ["b"]])


@given(st.lists(st.floats(-1e10, 1e10), max_size=50))
def test_norms_are_summed_in_pairs(values):
    w = np.array(values, dtype=np.float64)
    exact = float((w.astype(LONG) ** 2).sum())
    assert abs(squared_norm(w) - exact) <= 32 * UNIT * exact


def test_a_bound_beyond_float64_says_nothing():
    assert lowered(1.0, 0.0, np.inf, 1.0, np.ones(1), np.ones(1)).value == -np.inf
    assert lowered(np.nan, 0.0, 1.0, 1.0, np.ones(1), np.ones(1)).value == -np.inf


def test_the_largest_weights_of_rows_are_the_same_packed_or_not() -> None:
    for seed in range(20):
        pairs = "seen" if seed % 2 else "all"
        problem = ChainRecipe(seed, 4, 3, pairs, pairs=seed % 3, bare=seed % 5 == 0).build()
        w = np.random.default_rng(seed).normal(size=problem.dimension)
        np.testing.assert_array_equal(
            problem.largest_by_row(w), problem.largest_by_row(problem.form.pack(w))
        )


def test_the_optimal_mixing_share_matches_a_search() -> None:
    rng = np.random.default_rng(0)
    for ratio in (0.05, 0.3, 0.9):
        penalty = Penalty(0.1, ratio)
        for gain in (0.0, 0.1, 1.0, 100.0):
            v = 10.0 ** rng.uniform(-2, 1) * rng.normal(size=50)

            share = penalty.share(gain, v, np.abs(v), np.zeros(50))
            assert 0 <= share <= 1
            own, *others = (
                s * gain - penalty.square(penalty.shrunk(s * v))
                for s in (share, *np.linspace(0, 1, 501))
            )
            assert own >= max(others) - 1e-12 * (1 + abs(own))
