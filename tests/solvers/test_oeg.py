"""Online exponentiated gradient: its steps are those of the paper, and its dual never falls."""

from __future__ import annotations

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration, chain_recipes, random_problem
from hypothesis import given, settings
from scipy.special import softmax
from test_sdca_duals import distributions

from cliquewise.errors import DataError
from cliquewise.solvers import get
from cliquewise.solvers.oeg import OEG
from cliquewise.solvers.run import run


@settings(max_examples=30)
@given(recipe=chain_recipes(max_log_c=1))
def test_a_visit_is_an_exponentiated_gradient_step_of_listed_distributions(
    recipe: ChainRecipe,
) -> None:
    problem, solver = recipe.build(), OEG()
    reference, rng = Enumeration(problem), np.random.default_rng(recipe.seed)
    state = solver.init(problem)
    for _ in range(6 if problem.n_examples else 0):
        i = int(rng.integers(problem.n_examples))
        before, w = distributions(reference, state), solver.weights(problem, state)
        state.duals.visit_in_steps(np.array([i]), 1.0)
        after, eta = distributions(reference, state), state.duals.steps[i]
        # The dual's derivative by the share of labeling y, up to constants: phi(y) w - log q(y).
        with np.errstate(divide="ignore", invalid="ignore"):
            gradient = np.asarray(reference.features[i] @ w) - np.log(before[i])
            expected = softmax(np.log(before[i]) + eta * np.where(before[i] > 0, gradient, 0.0))
        if reference.weights[i] > 0:
            np.testing.assert_allclose(after[i], expected, atol=1e-9)
        assert reference.dual(after) >= reference.dual(before) - 1e-10 * (
            1 + abs(reference.dual(before))
        )


def test_most_visits_take_one_inference_where_sdca_takes_two() -> None:
    problem = random_problem(5, 60, 4, 8, C=0.3)
    one, two = (
        run(problem, get(name), tol=1e-6, max_epochs=500, random_state=0)
        for name in ("oeg", "sdca")
    )
    assert one.converged and two.converged
    assert one.certificate.primal == pytest.approx(two.certificate.primal, rel=2e-6)
    for fit, most, least in ((one, 1.2, 1.0), (two, 2.5, 1.9)):
        calls = fit.trace[-1]["oracle_calls"] / (fit.epochs * problem.n_examples)
        assert least <= calls <= most


@pytest.mark.parametrize("sampling", ["permuted", "uniform", "cyclic"])
def test_every_sampling_reaches_the_optimum(sampling: str) -> None:
    problem = ChainRecipe(12, examples=6, labels=3, weights=True).build()
    fit = run(problem, OEG(sampling=sampling), tol=1e-8, max_epochs=5000, random_state=0)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(Enumeration(problem).optimum, rel=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "gap"}, "permuted, uniform or cyclic"),
        ({"step_length": 1.5}, r"step_length = 1.5.*\(0, 1\]"),
        ({"growth": 0.9}, "growth = 0.9.*between 1 and 2"),
    ],
)
def test_bad_parameters_are_rejected(options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        OEG(**options)
