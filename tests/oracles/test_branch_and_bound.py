"""Branch and bound: it proves what it finds, and notices a bound that is none."""

from __future__ import annotations

import numpy as np
import pytest

from cliquewise.errors import BoundError, DataError, InfeasibleError, TooLargeError
from cliquewise.oracles.branch_and_bound import branch_and_bound
from cliquewise.oracles.candidates import candidate_marginals, top_k_candidates


def halves(r):
    middle = (r[0] + r[1]) // 2
    return [(r[0], middle), (middle, r[1])] if r[1] - r[0] > 1 else []


def highest(values):
    return lambda r: values[r[0] : r[1]].max()


def test_a_tight_bound_leads_straight_to_the_best():
    values = np.random.default_rng(0).normal(size=1024)
    found = branch_and_bound((0, 1024), halves, highest(values))[0]
    assert found.output == (values.argmax(), values.argmax() + 1)
    assert found.visited == 1 + 2 * 10
    assert found.exact and found.upper_bound == found.score


def test_k_may_exceed_the_number_of_outputs():
    values = np.array([2.0, 5.0, 3.0])
    found = branch_and_bound((0, 3), halves, highest(values), k=10)
    assert [f.score for f in found] == [5.0, 3.0, 2.0]


def test_a_bound_that_is_not_a_bound_is_detected():
    values = np.array([1.0, 2.0, 9.0, 4.0])

    def mean(r):
        return values[r[0] : r[1]].mean()

    with pytest.raises(BoundError, match="is not a bound"):
        branch_and_bound((0, 4), halves, mean)


def test_rounding_is_no_violation():
    values = np.array([1.0, 2.0])

    def noisy(r):
        return values[r[0] : r[1]].max() + (1e-13 if r[1] - r[0] == 1 else 0.0)

    assert branch_and_bound((0, 2), halves, noisy)[0].output == (1, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bound_that_is_no_number_is_rejected(value):
    with pytest.raises(BoundError):
        branch_and_bound((0, 2), halves, lambda r: value)


def test_impossible_outputs_are_never_returned():
    values = np.array([-np.inf, 3.0, -np.inf])
    assert [f.score for f in branch_and_bound((0, 3), halves, highest(values), k=3)] == [3.0]
    with pytest.raises(InfeasibleError):
        branch_and_bound((0, 3), halves, lambda r: -np.inf)


def test_a_long_search_ends_with_what_is_known():
    with pytest.raises(TooLargeError, match="at most 1"):
        branch_and_bound((0, 1000), halves, lambda r: 1.0 if r[1] - r[0] > 1 else 0.0, max_sets=99)
    with pytest.raises(DataError):
        branch_and_bound((0, 2), halves, lambda r: 0.0, max_sets=0)
    with pytest.raises(DataError):
        branch_and_bound((0, 2), halves, lambda r: 0.0, k=0)


def test_probabilities_of_candidates_are_the_gradient_of_their_soft_maximum():
    scores = np.array([0.3, -1.0, 2.0])
    for temperature in (0.1, 1.0, 7.0):
        p, value = candidate_marginals(scores, temperature)
        assert p.sum() == pytest.approx(1.0)
        assert scores.max() <= value <= scores.max() + temperature * np.log(3)
        for c in range(3):
            moved = scores + 1e-6 * (np.arange(3) == c)
            slope = (candidate_marginals(moved, temperature)[1] - value) / 1e-6
            assert slope == pytest.approx(p[c], abs=1e-5)


def test_candidate_scores_may_be_huge_and_impossible():
    p, value = candidate_marginals([1e5, -np.inf, 1e5])
    assert p.tolist() == [0.5, 0.0, 0.5] and value == pytest.approx(1e5 + np.log(2))
    assert top_k_candidates([1.0, -np.inf, 3.0], 3).tolist() == [2, 0]


@pytest.mark.parametrize("scores", [[], [[1.0]], [np.nan], [np.inf]])
def test_bad_candidate_scores_are_rejected(scores):
    with pytest.raises(DataError):
        top_k_candidates(scores)
    with pytest.raises(DataError):
        candidate_marginals(scores)


def test_a_list_of_impossible_candidates_is_infeasible():
    with pytest.raises(InfeasibleError):
        top_k_candidates([-np.inf, -np.inf])
    with pytest.raises(DataError):
        candidate_marginals([1.0], temperature=0.0)
