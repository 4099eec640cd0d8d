"""The projection on the simplex satisfies its optimality conditions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from cliquewise._kernels.common.simplex import project_simplex

values = arrays(
    np.float64, st.integers(1, 30), elements=st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1.0])
)


@given(values, st.floats(1e-3, 1e3))
def test_projection_meets_the_optimality_conditions(point, radius):
    result = point.copy()
    tau = project_simplex(result, radius)
    scale = np.abs(point).max() + radius
    assert np.all(result >= 0)
    assert result.sum() == pytest.approx(radius, rel=1e-12)
    active = result > 0
    np.testing.assert_allclose(point[active] - result[active], tau, atol=1e-13 * scale)
    assert np.all(point[~active] <= tau + 1e-13 * scale)


def test_projection_equals_a_general_solver():
    point = np.random.default_rng(0).normal(size=8)
    found = minimize(
        lambda x: 0.5 * np.sum((x - point) ** 2),
        np.full(8, 0.25),
        jac=lambda x: x - point,
        bounds=[(0, None)] * 8,
        constraints=[{"type": "eq", "fun": lambda x: x.sum() - 2}],
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    result = point.copy()
    project_simplex(result, 2.0)
    np.testing.assert_allclose(result, found.x, atol=1e-6)


def test_values_far_greater_than_the_radius_keep_their_digits():
    result = np.array([1e12, 1e12 - 0.5, 0.0])
    project_simplex(result, 1.0)
    np.testing.assert_array_equal(result, [0.75, 0.25, 0.0])


def test_forbidden_entries_stay_zero():
    result = np.array([-np.inf, 0.0, -np.inf, 0.0])
    project_simplex(result, 1.0)
    np.testing.assert_array_equal(result, [0.0, 0.5, 0.0, 0.5])


@pytest.mark.parametrize("radius", [0.0, -1.0])
def test_an_empty_simplex_gives_zeros(radius):
    result = np.array([3.0, 1.0])
    project_simplex(result, radius)
    np.testing.assert_array_equal(result, 0)


def test_a_point_of_the_simplex_does_not_move():
    point = np.random.default_rng(1).dirichlet(np.ones(1000))
    result = point.copy()
    project_simplex(result, 1.0)
    np.testing.assert_allclose(result, point, atol=1e-15)


def test_single_precision_is_served_too():
    result = np.array([0.5, 2.0, 1.9], np.float32)
    project_simplex(result, 1.0)
    np.testing.assert_allclose(result, [0.0, 0.55, 0.45], atol=1e-6)
