"""Without a time limit, the speed of the machine does not influence an answer."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from oracle_checks import bits

from cliquewise._kernels import clock
from cliquewise.graph.builders import complete, random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.planner import find_method, method_names, why_not


def frustrated(side: int = 8, states: int = 3) -> FactorGraph:
    """A grid with strong random tables, on which messages do not converge."""
    rng = np.random.default_rng(0)
    return FactorGraph.grid(
        rng.normal(size=(side, side, states)),
        3.0 * rng.normal(size=(side - 1, side, states, states)),
        3.0 * rng.normal(size=(side, side - 1, states, states)),
    )


def with_zeros() -> FactorGraph:
    """Factors of up to three variables, a third of their entries impossible."""
    graph, rng = random_graph(14, 20, max_order=3, random_state=1), np.random.default_rng(1)
    labels = rng.integers(0, graph.cardinalities)
    factors = []
    for scope, values in graph.factors:
        table = np.where(rng.random(values.shape) < 0.3, -np.inf, values)
        table[tuple(labels[v] for v in scope)] = 0.0
        factors.append((scope, table))
    return FactorGraph(graph.cardinalities, factors)


GRAPHS = {
    "frustrated": frustrated(),
    "clique": complete(np.zeros((9, 2)), -1.5 * np.eye(2)),
    "zeros": with_zeros(),
    "triples": random_graph(24, 40, max_order=3, random_state=0),
}


def answer(graph: FactorGraph, question: str, method: str, options: dict[str, Any]) -> bytes:
    fresh = FactorGraph(graph.cardinalities, list(graph.factors))
    return bits(getattr(fresh, question)(method, **options))


def slow_clock(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(clock, "now", lambda: step * next(ticks))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("question", ["map", "marginals"])
@pytest.mark.parametrize("method", ["auto", *method_names()])
def test_a_slow_machine_gives_the_same_answer(method, question, name, monkeypatch):
    graph = GRAPHS[name]
    if method != "auto" and why_not(find_method(method), graph, question) is not None:
        pytest.skip(f"{method} does not apply")
    options: dict[str, Any] = {}
    if method in ("auto", "anytime") and question == "marginals":
        options = {"max_operations": 0}
    if method == "barrier-fw":
        options = {"max_calls": 20}
    if name == "frustrated" and method in ("sparse", "perturb-and-map"):
        pytest.skip(f"{method} takes long on this graph; the other graphs test the same code")
    expected = answer(graph, question, method, options)
    slow_clock(monkeypatch, 7.0)
    assert answer(graph, question, method, options) == expected
