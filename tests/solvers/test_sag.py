"""SAG's own claims: what is stored, lazy updates, sampling."""

from __future__ import annotations

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration, chain_recipes
from hypothesis import given, settings

from cliquewise.errors import DataError
from cliquewise.solvers.run import run
from cliquewise.solvers.sag import SAG


def stored_sum(problem, state) -> np.ndarray:
    """The sum of the stored gradients, from the marginals, in the model's own order."""
    reference = Enumeration(problem)
    k, model = problem.model.n_labels, problem.model
    total = np.zeros(reference.dimension)
    for i in range(problem.n_examples):
        first, last = problem.data.offsets[i : i + 2]
        mu, phi = state.memory.mu[first:last], reference.features[i][reference.truth[i]]
        nodes = reference.attributes[first:last].T @ mu
        edges = np.zeros((k, k))
        if last - first > 1:
            edges = np.where(model.edge_free, state.memory.mu_edges[state.memory.edge_row[i]], 0)
        joint = np.concatenate([nodes.ravel(), edges.ravel()])[reference.columns]
        total += reference.weights[i] * (joint - phi)
    return total


@settings(max_examples=40)
@given(recipe=chain_recipes())
def test_sum_of_gradients_is_that_of_the_stored_marginals(recipe: ChainRecipe) -> None:
    problem, solver = recipe.build(), SAG()
    rng = np.random.default_rng(recipe.seed)
    state = solver.init(problem)
    for _ in range(4):
        d = problem.form.unpack(state.d)
        expected = stored_sum(problem, state)
        size = 1 + np.abs(expected).max(initial=0)
        np.testing.assert_allclose(d, expected, atol=1e-11 * size)
        solver.step(problem, state, rng)


def test_lazy_steps_equal_dense_ones() -> None:
    """One example after the other with all weights updated at once, in NumPy."""
    problem = ChainRecipe(21, examples=5, labels=3, feature_pairs="seen", values=True).build()
    reference, solver = Enumeration(problem), SAG()
    state = solver.init(problem)
    rng = np.random.default_rng(3)
    solver.step(problem, state, rng)
    order = state.order.order
    w, d, stored, seen = np.zeros(reference.dimension), np.zeros(reference.dimension), {}, 0
    smooth = np.zeros(5)
    for i in order:
        phi, t = reference.features[i], reference.truth[i]
        if len(reference.labelings[i][0]) == 0:
            continue
        scores = phi @ w
        q = np.exp(scores - scores.max())
        gradient = (q / q.sum()) @ phi - phi[t]
        d += gradient - stored.get(i, 0.0)
        stored[i] = gradient
        empty = np.sum(problem.data.lengths == 0)
        smooth[i] = state.memory.smoothness[i]
        seen = np.count_nonzero(smooth) + empty
        mean, most = (smooth.sum() + 1e-12 * empty) / seen, smooth.max()
        lam = problem.lam
        step = min(0.5 / (most + lam) + 0.5 / (mean + lam), 0.5 / lam)
        w = (1 - step * lam) * w - step / seen * d
    np.testing.assert_allclose(solver.weights(problem, state), w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("uniform_share", [0.0, 0.5, 1.0])
def test_any_mixture_of_samplings_reaches_the_optimum(uniform_share: float) -> None:
    problem = ChainRecipe(12, examples=6, labels=3).build()
    solver = SAG(uniform_share=uniform_share)
    fit = run(problem, solver, tol=1e-8, max_epochs=20_000, random_state=0)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(Enumeration(problem).optimum, rel=1e-7)


def test_smoothness_is_no_greater_than_twice_the_largest_curvature() -> None:
    problem = ChainRecipe(12, examples=6, labels=3, weights=True).build()
    reference, solver = Enumeration(problem), SAG()
    fit = run(problem, solver, tol=1e-8, max_epochs=5000, random_state=0)
    for i, phi in enumerate(reference.features):
        spread = max(float(np.sum((a - b) ** 2)) for a in phi for b in phi)
        bound = reference.weights[i] * spread / 4  # of a log-sum-exp over that polytope
        assert fit.state.memory.smoothness[i] <= max(2 * bound, 1.1)


def test_share_outside_of_zero_to_one_is_rejected() -> None:
    with pytest.raises(DataError, match=r"uniform_share = -0.1.*\[0, 1\]"):
        SAG(uniform_share=-0.1)


def test_warm_start_of_other_labels_is_rejected() -> None:
    one, two = ChainRecipe(1, labels=2).build(), ChainRecipe(1, labels=3).build()
    with pytest.raises(DataError, match="the same labels"):
        SAG().init(two, SAG().init(one))
