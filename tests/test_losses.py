"""Smoothed maxima: against a generic solver, finite differences and their bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.smoothers import L2, SMOOTHERS, Entropy, Smoother, get_smoother

every = pytest.mark.parametrize("smoother", SMOOTHERS.values(), ids=SMOOTHERS.keys())
smooth = pytest.mark.parametrize("smoother", [Entropy(), L2()], ids=lambda s: s.name)
scores = arrays(np.float64, st.integers(1, 8), elements=st.floats(-20, 20))
amounts = st.floats(0.05, 20)


def listed_value(smoother: Smoother, z: np.ndarray, mu: float) -> float:
    """The definition, maximized over the simplex by scipy."""
    found = minimize(
        lambda u: -(z @ u) + mu * smoother.omega(np.maximum(u, 0)), np.full(len(z), 1 / len(z)),
        method="SLSQP", bounds=[(0, 1)] * len(z), options={"ftol": 1e-14, "maxiter": 500},
        constraints={"type": "eq", "fun": lambda u: u.sum() - 1},
    )  # fmt: skip
    return -float(found.fun)


@smooth
@given(z=arrays(np.float64, st.integers(1, 5), elements=st.floats(-3, 3)), mu=st.floats(0.3, 5))
def test_value_is_the_maximum_that_defines_it(smoother: Smoother, z: np.ndarray, mu: float) -> None:
    assert smoother.value(z, mu) == pytest.approx(listed_value(smoother, z, mu), abs=2e-5)


@every
@given(z=scores, mu=amounts)
def test_gradient_is_a_distribution_that_attains_the_value(
    smoother: Smoother, z: np.ndarray, mu: float
) -> None:
    u = smoother.gradient(z, mu)
    assert u.min() >= 0 and u.sum() == pytest.approx(1)
    assert z @ u - mu * smoother.omega(u) == pytest.approx(smoother.value(z, mu), abs=1e-9)


@smooth
@given(z=scores, mu=amounts, seed=st.integers(0, 99))
def test_gradient_matches_finite_differences(
    smoother: Smoother, z: np.ndarray, mu: float, seed: int
) -> None:
    d = np.random.default_rng(seed).normal(size=len(z))
    h = 1e-5
    slope = (smoother.value(z + h * d, mu) - smoother.value(z - h * d, mu)) / (2 * h)
    # The l2 gradient has kinks: at one of them the difference is off by h times the curvature.
    kink = h * (d @ d) / mu if smoother.name == "l2" else 0.0
    assert slope == pytest.approx(d @ smoother.gradient(z, mu), abs=1e-6 + kink)


@every
@given(z=scores, one=amounts, two=amounts)
def test_bounds_of_proposition_2_hold(
    smoother: Smoother, z: np.ndarray, one: float, two: float
) -> None:
    low, high = sorted((one, two))
    width = -smoother.omega(np.full(len(z), 1 / len(z)))  # omega is 0 where it is largest
    difference = smoother.value(z, high) - smoother.value(z, low)
    assert -1e-9 <= difference <= (high - low) * width + 1e-9
    assert smoother.value(z, 0.0) == z.max()


@smooth
@given(rows=arrays(np.float64, (4, 3), elements=st.floats(-3, 3)), mu=amounts,
       seed=st.integers(0, 99))  # fmt: skip
def test_gradient_is_as_lipschitz_as_stated(
    smoother: Smoother, rows: np.ndarray, mu: float, seed: int
) -> None:
    v, w = np.random.default_rng(seed).normal(size=(2, 3))
    change = rows.T @ (smoother.gradient(rows @ v, mu) - smoother.gradient(rows @ w, mu))
    is_l2 = smoother.name == "l2"  # Lemma 40: the norms that match the smoothers
    norm = np.linalg.norm(rows, 2) if is_l2 else np.linalg.norm(rows, axis=1).max()
    limit = norm**2 / mu * np.linalg.norm(v - w)
    assert np.linalg.norm(change) <= limit * (1 + 1e-9) + 1e-9


@given(z=scores, mu=amounts, k=st.integers(1, 8))
def test_k_best_scores_give_the_full_projection_if_and_only_if_is_exact(
    z: np.ndarray, mu: float, k: int
) -> None:
    z = np.sort(z)[::-1]
    k = min(k, len(z))
    u = L2().gradient(z, mu)
    exact = L2().is_exact(z[:k], z[k] if k < len(z) else -np.inf, mu)
    if exact:
        np.testing.assert_allclose(u[:k], L2().gradient(z[:k], mu), atol=1e-9)
        assert u[k:].sum() <= 1e-9
    elif L2().is_exact(z[:k], z[k] + 1e-9, mu * (1 - 1e-9)) == exact:  # not a tie
        assert np.count_nonzero(u) > k
    assert L2().value(z[:k], mu) <= L2().value(z, mu) + 1e-9


def test_bad_input_is_rejected_with_a_reason() -> None:
    for z, mu, words in (([], 1.0, "one score"), ([1.0], -1.0, "mu = -1"), ([1.0], np.nan, "mu"),
                         ([np.inf], 1.0, "finite")):  # fmt: skip
        with pytest.raises(DataError, match=words):
            L2().gradient(z, mu)
    with pytest.raises(UnsupportedError, match=r"'l3'.*entropy, l2, none"):
        get_smoother("l3")
    assert get_smoother(L2()) == L2()


def test_huge_and_tiny_amounts_stay_finite() -> None:
    for smoother in SMOOTHERS.values():
        for mu in (1e-300, 1e300):
            assert np.isfinite(smoother.value([0.0, 1e5, -1e5], mu))
            assert smoother.gradient([0.0, 1e5, -1e5], mu).sum() == pytest.approx(1)
