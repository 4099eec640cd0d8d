"""SVRG and Casimir on graphs, and how their oracle calls are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.backends.base import SmoothingSettings
from cliquewise.solvers.backends.examples import ExampleSmoothing
from cliquewise.solvers.casimir import Casimir
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import run
from cliquewise.solvers.svrg import SVRG


def rings(seed: int, examples: int = 4, k: int = 2, weights: Any = None) -> GraphProblem:
    """Cycles of three to five nodes."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(examples):
        n = int(rng.integers(3, 6))
        labels = rng.integers(0, k, n)
        edges = np.array([(v, (v + 1) % n) for v in range(n)])
        X.append((np.eye(k)[labels] + rng.normal(size=(n, k)), edges))
        y.append(labels)
    data = GraphDataset.from_examples(X, y)
    return GraphProblem(PairwiseModel([k], k), data, loss="hinge", weights=weights)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6), smoother=st.sampled_from(["l2", "entropy"]),
    mu=st.floats(0.2, 3.0),
)  # fmt: skip
def test_full_gradient_is_that_of_the_smoothed_losses(seed: int, smoother: str, mu: float) -> None:
    problem, rng = rings(seed, 2), np.random.default_rng(seed)
    w, d = rng.normal(size=(2, problem.dimension))
    backend, h = (
        ExampleSmoothing(problem, SmoothingSettings(smoother, 32)),
        1e-6,
    )  # 32: all labelings there are
    found = backend.full_gradient(w, mu)
    rise = backend.smooth_loss(w + h * d, mu) - backend.smooth_loss(w - h * d, mu)
    assert rise / (2 * h) == pytest.approx(found.gradient @ d, abs=1e-5)
    assert found.loss == pytest.approx(backend.smooth_loss(w, mu))
    # Proposition 2: the smoothed maximum is above the maximum, by mu times the omega met at most.
    hinge = backend.total_loss(w) / problem.n_examples
    assert hinge - 1e-9 <= found.loss and found.omega <= 1e-12 and found.exact == 1.0
    # Value = expected cost + <gradient, w> - mu omega: cost and slope are a point of the dual.
    assert found.loss == pytest.approx(found.cost + found.gradient @ w - found.omega)


@pytest.mark.parametrize("solver", [SVRG(mu=0.1), Casimir(), Casimir(smoother="entropy")])
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5, 0.0]])
def test_the_optimum_is_met_on_graphs_with_cycles(solver: Any, weights: Any) -> None:
    problem = rings(3, weights=weights)
    best = run(problem, choose(problem, "bcfw").solver, tol=1e-7, max_epochs=500, random_state=0)
    fit = run(problem, solver, tol=0.04, max_epochs=1200, random_state=0)
    lasting = solver.name == "svrg"  # whose smoothing stays
    assert fit.certificate.primal <= (1.15 if lasting else 1.05) * best.certificate.primal
    assert fit.converged or lasting
    for row in fit.trace:
        assert row["dual"] <= best.certificate.primal + 1e-9
        assert row["primal"] >= best.certificate.dual - 1e-9
    assert problem.primal(fit.weights) == pytest.approx(fit.certificate.primal)


def test_casimir_asks_for_full_gradients_only_where_visits_cannot_be_kept() -> None:
    problem = rings(5)
    kept, full = (
        run(problem, solver, tol=0, max_epochs=12, random_state=0).trace[-1]
        for solver in (Casimir(), Casimir(smoother="entropy"))
    )
    assert kept["full_passes"] == 0 < full["full_passes"]
    # What else is counted apart are trials of smaller weights.
    assert kept["oracle_calls"] - kept["full_calls"] > 0.5 * 12 * problem.n_examples


def test_graphs_beyond_every_exact_oracle_are_refused_with_the_remedy() -> None:
    rng, size = np.random.default_rng(0), 40
    at = np.arange(size**2).reshape(size, size)
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in pairs])
    features, labels = rng.normal(size=(size**2, 1)), rng.integers(0, 3, size**2)
    data = GraphDataset.from_examples([(features, edges)], [labels])
    problem = GraphProblem(PairwiseModel([3], 1), data, loss="hinge")
    for solver in (Casimir(), SVRG(smoother="entropy"), Casimir(smoother="none")):
        with pytest.raises(UnsupportedError, match=r"1600 nodes.*bcfw or subgradient"):
            choose(problem, solver)


def test_an_answer_without_proof_ends_training_with_the_example_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = FactorGraph.top_k

    def unproved(self: FactorGraph, k: int) -> Any:
        return [replace(result, exact=False) for result in ask(self, k)]

    monkeypatch.setattr(FactorGraph, "top_k", unproved)
    with pytest.raises(
        UnsupportedError, match=r"example \d.*did not find an exact answer.*bcfw or subgradient"
    ):
        run(rings(3), Casimir(), max_epochs=5, random_state=0)


def test_a_true_cost_that_is_not_zero_is_part_of_the_bound() -> None:
    data = GraphDataset.from_examples([([[0.5], [-1.0]], [(0, 1)])], [[0, 1]])
    cost = np.array([-2.0, 0.0, 0.0, -1.0])
    problem = GraphProblem(PairwiseModel([2], 1), data, loss="hinge", cost=cost)
    fit = run(problem, Casimir(), tol=1e-6, max_epochs=50, random_state=0)
    best = run(problem, choose(problem, "bcfw").solver, tol=1e-9, max_epochs=300, random_state=0)
    assert fit.trace.dual.max() <= best.certificate.primal + 1e-9


@pytest.mark.parametrize(
    ("solver", "kind"),
    [(Casimir(smoothing="constant", anchor="full"), "top_k"),
     (Casimir(smoother="none", anchor="full"), "max"),
     (SVRG(smoother="entropy"), "exp"), (SVRG(k=1), "max")],
)  # fmt: skip
def test_oracle_calls_are_counted_by_kind_and_those_of_full_gradients_apart(
    solver: Any, kind: str
) -> None:
    problem = rings(5)
    fit = run(problem, solver, tol=0, max_epochs=12, random_state=0)
    last = fit.trace[-1]
    counts = {name: last[f"{name}_calls"] for name in ("max", "top_k", "exp")}
    assert counts.pop(kind) == last["oracle_calls"] > 0 and not any(counts.values())
    assert 0 < problem.n_examples * last["full_passes"] <= last["full_calls"]
    assert last["full_calls"] < last["oracle_calls"]
    assert 0 < last["full_seconds"] <= last["seconds"]
