"""Matchings: max-marginals against one assignment per pair, and input that cannot be matched."""

from __future__ import annotations

import itertools
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cliquewise.errors import DataError, InfeasibleError, TooLargeError
from cliquewise.oracles.matching import (
    matching_max_marginals,
    max_matching,
    no_exp_oracle,
    top_k_matchings,
)


@st.composite
def tables(draw):
    p, q = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        scores = rng.integers(-2, 3, (p, q)).astype(float)
    else:
        scores = rng.normal(size=(p, q)) * draw(st.sampled_from([1e-3, 1.0, 1e6]))
    scores[rng.random((p, q)) < draw(st.sampled_from([0.0, 0.2, 0.5]))] = -np.inf
    return scores, rng.normal(size=p), rng.normal(size=q)


def best_or_nothing(scores, *alone):
    try:
        return max_matching(scores, *alone).score
    except InfeasibleError:
        return -np.inf


def forced(scores, i, j):
    """Only pair (i, j) for row i and column j."""
    out = scores.copy()
    out[i], out[:, j] = -np.inf, -np.inf
    out[i, j] = scores[i, j]
    return out


@settings(max_examples=300)
@given(tables(), st.booleans())
def test_max_marginals_equal_one_matching_per_decision(example, is_partial):
    scores, rows, columns = example
    p, q = scores.shape
    alone = (rows, columns) if is_partial else ()
    value = best_or_nothing(scores, *alone)
    if value == -np.inf:
        with pytest.raises(InfeasibleError, match="no matching"):
            matching_max_marginals(scores, *alone)
        return
    got = matching_max_marginals(scores, *alone)
    close = {"rtol": 1e-9, "atol": 1e-9 * (1 + np.abs(scores[np.isfinite(scores)]).sum())}
    assert got.value == pytest.approx(value)
    for i, j in itertools.product(range(p), range(q)):
        if is_partial:
            # Row i alone is no longer possible.
            kept = np.where(np.arange(p) == i, -np.inf, rows)
            expected = best_or_nothing(forced(scores, i, j), kept, columns)
        else:
            expected = max((s for s, c in listed(scores) if c[i] == j), default=-np.inf)
        np.testing.assert_allclose(got.pairs[i, j], expected, **close)
    if is_partial:
        for i in range(p):
            without = scores.copy()
            without[i] = -np.inf
            np.testing.assert_allclose(
                got.rows[i], best_or_nothing(without, rows, columns), **close
            )
        for j in range(q):
            without = scores.copy()
            without[:, j] = -np.inf
            np.testing.assert_allclose(
                got.columns[j], best_or_nothing(without, rows, columns), **close
            )


def listed(scores):
    """(score, columns) of all complete matchings."""
    p, q = scores.shape
    size = min(p, q)
    for some in itertools.combinations(range(p), size):
        for order in itertools.permutations(range(q), size):
            columns = np.full(p, -1)
            columns[list(some)] = order
            total = sum(scores[i, c] for i, c in zip(some, order, strict=True))
            if total > -np.inf:
                yield total, columns.tolist()


@settings(max_examples=150)
@given(tables())
def test_best_matching_and_what_may_stay_free_equal_the_list_of_all(example):
    scores = example[0]
    every = list(listed(scores))
    if not every:
        with pytest.raises(InfeasibleError):
            max_matching(scores)
        return
    best = max_matching(scores)
    assert best.score == pytest.approx(max(s for s, _ in every))
    got = matching_max_marginals(scores)
    close = {"rtol": 1e-9, "atol": 1e-9 * (1 + np.abs(scores[np.isfinite(scores)]).sum())}
    for i in range(scores.shape[0]):
        expected = max((s for s, c in every if c[i] < 0), default=-np.inf)
        np.testing.assert_allclose(got.rows[i], expected, **close)
    for j in range(scores.shape[1]):
        expected = max((s for s, c in every if j not in c), default=-np.inf)
        np.testing.assert_allclose(got.columns[j], expected, **close)


def test_max_marginals_of_a_large_table_equal_repeated_assignment():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(60, 60))
    got = matching_max_marginals(scores)
    for i, j in rng.integers(0, 60, (40, 2)):
        assert got.pairs[i, j] == pytest.approx(max_matching(forced(scores, i, j)).score)
    # Each row's best is the best of all.
    np.testing.assert_allclose(got.pairs.max(axis=1), got.value)


def test_equal_scores_do_not_confuse_the_paths():
    got = matching_max_marginals(np.zeros((50, 50)))
    np.testing.assert_array_equal(got.pairs, 0.0)
    # Sums that round differently along different paths.
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 40)) * 1e8
    got = matching_max_marginals(a[:, None] + b)
    np.testing.assert_allclose(got.pairs, got.value, rtol=1e-9)


def test_k_may_exceed_the_number_of_matchings():
    found = top_k_matchings(np.arange(4.0).reshape(2, 2), 100)
    assert [m.score for m in found] == [3.0, 3.0]
    assert [m.pairs for m in found] == [[(0, 0), (1, 1)], [(0, 1), (1, 0)]] or [
        m.pairs for m in found
    ] == [[(0, 1), (1, 0)], [(0, 0), (1, 1)]]


def test_all_partial_matchings_of_a_square_are_listed_once():
    found = top_k_matchings(np.zeros((3, 3)), 1000, 0.0)
    assert len(found) == 34  # sum over k of (3 choose k)^2 k!
    assert len({tuple(m.columns) for m in found}) == 34


@pytest.mark.parametrize("ask", [max_matching, matching_max_marginals])
def test_an_infeasible_matching_is_an_error_that_names_the_remedy(ask):
    scores = np.array([[1.0, -np.inf], [2.0, -np.inf]])
    with pytest.raises(InfeasibleError, match="unmatched_rows"):
        ask(scores)
    with pytest.raises(InfeasibleError):
        top_k_matchings(scores, 3)
    assert max_matching(scores, 0.0).pairs == [(1, 0)]


def test_a_row_that_must_be_matched_is():
    assert max_matching([[-5.0, -9.0]], unmatched_rows=[-np.inf]).pairs == [(0, 0)]


@pytest.mark.parametrize(
    ("scores", "alone"),
    [
        ([[np.nan]], ()),
        ([[np.inf]], ()),
        ([1.0, 2.0], ()),
        ([["a"]], ()),
        ([[1.0]], ([0.0, 1.0],)),
        ([[1.0]], (np.nan,)),
        ([[1.0]], (0.0, -np.inf)),
        ([[1.0]], (np.inf,)),
    ],
)
def test_bad_tables_are_rejected(scores, alone):
    with pytest.raises(DataError):
        max_matching(scores, *alone)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "2"])
def test_k_must_be_a_positive_whole_number(k):
    with pytest.raises(DataError, match="k = "):
        top_k_matchings([[1.0]], k)


def test_tables_without_rows_or_columns_have_the_empty_matching():
    assert max_matching(np.empty((0, 3))).pairs == []
    assert max_matching(np.empty((2, 0))).columns.tolist() == [-1, -1]
    assert max_matching(np.empty((2, 0)), 1.5).score == 3.0
    assert len(top_k_matchings(np.empty((0, 0)), 4)) == 1


def test_the_refusal_of_the_exp_oracle_says_why():
    assert "permanent" in str(no_exp_oracle())


def test_a_table_that_nobody_could_hold_is_refused_before_it_is_made():
    rows = np.broadcast_to(0.0, (60_000, 1))
    with pytest.raises(TooLargeError, match="GiB"):
        max_matching(rows, 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_scores_of_mixed_sizes_are_right_up_to_the_stated_rounding(seed):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((3, 3)) * 10.0 ** rng.uniform(-3.0, 299.0, (3, 3))
    exact = {
        p: sum(Fraction(scores[i, j]) for i, j in enumerate(p)) for p in permutations(range(3))
    }
    found = max_matching(scores)
    assert max(exact.values()) - exact[tuple(found.columns.tolist())] <= Fraction(found.rounding)
    assert found.rounding <= 1e-12 * np.abs(scores).max()
    together = matching_max_marginals(scores)
    for i, j in product(range(3), repeat=2):
        best = max(score for p, score in exact.items() if p[i] == j)
        assert abs(Fraction(together.pairs[i, j]) - best) <= Fraction(together.rounding)


def test_sums_that_would_overflow_are_rejected():
    with pytest.raises(DataError, match="up to 1e\\+300"):
        max_matching(np.full((3, 3), 1e308))
    with pytest.raises(DataError, match="up to 1e\\+300"):
        max_matching(np.zeros((3, 3)), unmatched_rows=-1e308)
