"""Marginal MAP: the best labels of some variables, with the others summed out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cliquewise.errors import GraphError, InfeasibleError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE, Core, shift_steps
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.support import Support
from cliquewise.oracles._marginal_map_steps import MarginalMapSteps
from cliquewise.oracles._rescaling import PLAIN, RescaledGraph, check_resolved
from cliquewise.oracles._sum_elimination import Mask
from cliquewise.oracles.options import LIMIT_OPTIONS, check_number, check_options
from cliquewise.oracles.results import MapResult, tolerance
from cliquewise.ragged import Ints

METHODS = ("auto", "junction-tree", "mini-buckets")
OPTIONS = ("seconds", "gap", "max_memory", "max_operations")
#: The label of a variable that was summed out.
SUMMED = -1


def marginal_map(graph: FactorGraph, over: Any, method: str, options: dict[str, Any]) -> MapResult:
    """Return the best labels of the variables ``over``, by the log-sum over all others.

    Examples
    --------
    >>> g = FactorGraph([2, 3], [((0, 1), [[1.0, 1.0, 1.0], [1.5, 0.0, 0.0]])])
    >>> g.map().labels, g.map(over=[0]).labels
    (array([1, 0]), array([ 0, -1]))
    """
    asked = _asked(graph, over)
    core = graph.core
    if core.constant == -np.inf:
        raise InfeasibleError(INFEASIBLE)
    is_max = asked[core.free]
    if is_max.all():
        found = _map(graph, method, options)
        return replace(found, labels=np.where(asked | _observed(graph), found.labels, SUMMED))
    _check(method, options)
    inner = _Inner.of(core.graph)
    labels, answer = inner.ask(is_max, method, options)
    whole = np.full(graph.n_variables, SUMMED, dtype=np.int64)
    for v, state in graph.evidence.items():
        whole[v] = state
    whole[core.free[is_max]] = labels[is_max]
    shifted: MapResult = core.translate("map", replace(answer, labels=labels))
    return replace(shifted, labels=whole)


def _map(graph: FactorGraph, method: str, options: dict[str, Any]) -> MapResult:
    """Answer a question without variables to sum out, by any MAP method."""
    if method not in METHODS:
        return graph.map(method, **options)
    _check(method, options)
    given = {name: value for name, value in options.items() if value is not None}
    if method != "junction-tree":
        return graph.map(**given)
    return graph.map(method, **{k: v for k, v in given.items() if k in LIMIT_OPTIONS})


def _asked(graph: FactorGraph, over: Any) -> Mask:
    """Return which variables are maximized."""
    listed = [over] if isinstance(over, str | int | np.integer) else over
    if not isinstance(listed, Iterable):
        raise GraphError(f"over = {over!r}; it is a list of variables, by numbers or names")
    numbers = [graph.variable(v) for v in listed]
    if len(set(numbers)) < len(numbers):
        raise GraphError("a variable is named twice in over=; name each once")
    asked = np.zeros(graph.n_variables, dtype=bool)
    asked[numbers] = True
    return asked


def _observed(graph: FactorGraph) -> Mask:
    observed = np.zeros(graph.n_variables, dtype=bool)
    observed[list(graph.evidence)] = True
    return observed


def _check(method: str, options: dict[str, Any]) -> None:
    if method not in METHODS:
        raise UnsupportedError(
            f"method {method!r} cannot sum variables out; with over= the methods are: "
            f"{', '.join(METHODS)}"
        )
    check_options(options)
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UnsupportedError(
            f"with over=, map has no option {unknown[0]!r}; it takes {', '.join(OPTIONS)}"
        )
    check_number("gap", options.get("gap"))


@dataclass(frozen=True)
class _Inner:
    """A graph without impossible states and without determined variables."""

    graph: FactorGraph
    support: Support
    core: Core

    @classmethod
    def of(cls, graph: FactorGraph) -> _Inner:
        support = Support.of(graph)
        core = support.graph.condition(support.determined).core
        if core.constant == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        return cls(graph, support, core)

    def ask(self, is_max: Mask, method: str, options: dict[str, Any]) -> tuple[Ints, MapResult]:
        """Return labels of all variables (arbitrary for summed ones), and the result."""
        inner = self.core.graph
        rescaled = RescaledGraph.of(inner) if inner.largest > PLAIN else None
        answer = _answer(
            inner if rescaled is None else rescaled.graph, is_max[self.core.free], method, options
        )
        if rescaled is not None:
            check_resolved(answer.score)
            error = rescaled.rounding(answer.score, only_adds=True)
            bound = rescaled.restored(answer.upper_bound, 0.0 if answer.exact else error)
            score = rescaled.restored(answer.score)
            answer = replace(
                answer,
                score=score,
                upper_bound=max(score, bound),
                rounding=answer.rounding + error,
                info=shift_steps(answer.info, rescaled.restored),
            )
        whole = self.core.translate("map", answer)
        labels = [x[label] for x, label in zip(self.support.states, whole.labels, strict=True)]
        return np.array(labels, dtype=np.int64), whole


def _answer(graph: FactorGraph, is_max: Mask, method: str, options: dict[str, Any]) -> MapResult:
    """Answer for a graph without impossible states and observed variables."""
    given = {name: value for name, value in options.items() if value is not None}
    seconds, gap = given.pop("seconds", None), float(given.pop("gap", 0.0))
    if not is_max.any():
        return _log_z(graph, method, seconds, gap, given)
    steps = MarginalMapSteps(graph, is_max, seconds, gap, given)
    steps.answer(method)
    assert steps.labels is not None
    score, bound = steps.score, steps.bound
    if steps.exact:
        bound = max(bound, score)
    else:
        score -= 0.0 if steps.sums_are_exact else steps.rounding
        bound = max(score, bound + steps.rounding)
    sums_exact = steps.exact or steps.sums_are_exact
    info = {"steps": steps.steps, "bound_by": steps.bound_by, "sums_exact": sums_exact}
    if steps.maximum_by:
        info["maximum_by"] = steps.maximum_by
    return MapResult(steps.labels, score, bound, steps.exact, steps.method, info, steps.rounding)


def _log_z(
    graph: FactorGraph, method: str, seconds: float | None, gap: float, limits: dict[str, Any]
) -> MapResult:
    """Answer a question without variables to maximize: log Z or its bounds."""
    if method == "junction-tree":
        found = graph.marginals(method, **limits)
    else:
        timed = {"gap": gap} if seconds is None else {"gap": gap, "seconds": seconds}
        found = graph.marginals(method, **timed, **(limits if method == "auto" else {}))
    labels = np.zeros(graph.n_variables, dtype=np.int64)
    if found.exact:
        return MapResult(
            labels, found.log_z, found.log_z, True, found.method, rounding=found.rounding
        )
    certified, (lower, upper) = found.bounds_certified, found.log_z_bounds
    proved = (lower if certified[0] else -math.inf, upper if certified[1] else math.inf)
    closed = proved[1] - proved[0] <= tolerance(*proved)
    return MapResult(
        labels, proved[0], proved[1], closed, found.method, {"sums_exact": False}, found.rounding
    )
