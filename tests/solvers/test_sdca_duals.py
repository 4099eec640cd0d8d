"""SDCA's own claims: what its dual state is, and what a step does to the dual objective."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration, chain_recipes, random_problem
from hypothesis import given, settings
from scipy.special import softmax

from cliquewise.errors import DataError
from cliquewise.solvers.run import run
from cliquewise.solvers.sdca import SDCA, DualAscent

SAMPLINGS = ("gap", "permuted", "uniform", "cyclic")


def distributions(reference: Enumeration, state: DualAscent) -> list[np.ndarray]:
    """The dual variables as explicit distributions over all labelings."""
    out = []
    for i, labelings in enumerate(reference.labelings):
        first = reference.data.offsets[i]
        scores = np.zeros(len(labelings))
        for at, y in enumerate(labelings):
            scores[at] += sum(state.duals.arrays.theta[first + t, a] for t, a in enumerate(y))
            if len(y) > 1:
                edges = state.duals.arrays.theta_edges[state.duals.arrays.edge_row[i]]
                scores[at] += sum(edges[a, b] for a, b in pairwise(y))
        out.append(softmax(scores))
    return out


@settings(max_examples=60)
@given(recipe=chain_recipes())
def test_dual_value_is_that_of_the_enumerated_distributions(recipe: ChainRecipe) -> None:
    problem, solver = recipe.build(), SDCA(sampling=SAMPLINGS[recipe.seed % 4])
    reference = Enumeration(problem)
    rng = np.random.default_rng(recipe.seed)
    state = solver.init(problem)
    for _ in range(4):
        expected = reference.dual(distributions(reference, state))
        proof = solver.certify(problem, state)
        assert proof.dual == pytest.approx(expected, rel=1e-9, abs=1e-10)
        assert proof.dual <= reference.optimum + 1e-10 * (1 + reference.optimum)
        solver.step(problem, state, rng)


@settings(max_examples=40)
@given(recipe=chain_recipes())
def test_marginals_and_weights_are_those_of_the_enumerated_distributions(
    recipe: ChainRecipe,
) -> None:
    problem, solver = recipe.build(), SDCA()
    reference = Enumeration(problem)
    state = solver.init(problem)
    for _ in range(3):
        solver.step(problem, state, np.random.default_rng(recipe.seed))
    expected = np.zeros(reference.dimension)
    for i, q in enumerate(distributions(reference, state)):
        first, last = problem.data.offsets[i : i + 2]
        mu = np.zeros((last - first, problem.model.n_labels))
        for share, y in zip(q, reference.labelings[i], strict=True):
            mu[np.arange(len(y)), list(y)] += share
        np.testing.assert_allclose(state.duals.arrays.mu[first:last], mu, atol=1e-10)
        phi = reference.features[i]
        expected += problem.C * reference.weights[i] * (phi[reference.truth[i]] - q @ phi)
    size = 1 + np.abs(expected).max(initial=0)
    np.testing.assert_allclose(solver.weights(problem, state), expected, atol=1e-9 * size)


@settings(max_examples=60)
@given(recipe=chain_recipes())
def test_dual_never_falls_with_the_line_search(recipe: ChainRecipe) -> None:
    problem, solver = recipe.build(), SDCA(sampling=SAMPLINGS[recipe.seed % 4])
    rng = np.random.default_rng(recipe.seed)
    state = solver.init(problem)
    before = solver.certify(problem, state).dual
    for _ in range(10):
        solver.step(problem, state, rng)
        after = solver.certify(problem, state).dual
        assert after >= before - 1e-10 * (1 + abs(before))
        before = after


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
def test_every_sampling_reaches_the_optimum(sampling: str, C: float) -> None:
    problem = ChainRecipe(12, examples=6, labels=3, weights=True, C=C).build()
    fit = run(problem, SDCA(sampling=sampling), tol=1e-8, max_epochs=5000, random_state=0)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(Enumeration(problem).optimum, rel=1e-7)


def test_small_fixed_steps_reach_the_optimum_too() -> None:
    problem = ChainRecipe(12, examples=6, labels=3, C=0.3).build()
    solver = SDCA(sampling="uniform", line_search=False, step_length=0.1)
    fit = run(problem, solver, tol=1e-7, max_epochs=5000, random_state=0)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(Enumeration(problem).optimum, rel=1e-6)


def test_true_gap_is_the_mean_of_the_block_gaps() -> None:
    problem, solver = ChainRecipe(12, examples=6, labels=3, weights=True).build(), SDCA()
    reference = Enumeration(problem)
    state = solver.init(problem)
    for _ in range(2):
        solver.step(problem, state, np.random.default_rng(0))
    proof, w = solver.certify(problem, state), solver.weights(problem, state)
    total = 0.0
    for c, phi, q in zip(
        reference.weights, reference.features, distributions(reference, state), strict=True
    ):
        total += c * float(q @ (np.log(q) - np.log(softmax(phi @ w))))  # Eq. 16 of sdca_crf
    assert proof.absolute_gap == pytest.approx(total / problem.n_examples, rel=1e-8)


@pytest.mark.parametrize(
    "hard",
    [
        {"n": 20, "k": 4, "longest": 8, "C": 1e4},
        {"n": 20, "k": 4, "longest": 8, "scale": 1e3},
        {"n": 100, "k": 6, "longest": 10, "C": 30.0},
    ],
    ids=["large C", "large features", "noisy labels"],
)
def test_duals_that_end_far_from_their_start_get_there(hard: dict) -> None:
    # The steps are then short, and a step length that is a poor guess stalls for ever.
    fit = run(random_problem(1, **hard), SDCA(), tol=1e-4, max_epochs=1500, random_state=0)
    assert fit.converged


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "random"}, "gap, permuted, uniform or cyclic"),
        ({"uniform_share": 1.5}, r"uniform_share = 1.5.*\[0, 1\]"),
        ({"step_length": 0.0}, r"step_length = 0.0.*\(0, 1\]"),
    ],
)
def test_bad_parameters_are_rejected(options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        SDCA(**options)


def test_warm_start_of_other_labels_is_rejected() -> None:
    one, two = ChainRecipe(1, labels=2).build(), ChainRecipe(1, labels=3).build()
    with pytest.raises(DataError, match="the same labels"):
        SDCA().init(two, SDCA().init(one))
