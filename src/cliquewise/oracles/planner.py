"""The planner: the only place that chooses an inference method.

Every oracle estimates its cost (``Oracle.consider``). The planner takes an exact method at once if
that is cheaper than anything else could be. Otherwise it takes ``anytime`` for MAP and marginals,
which tries cheap methods before expensive ones, and the cheapest exact method for other questions.
``method=`` overrides the choice. No clock influences it: the same graph gets the same method on
every machine, unless the user gives a time limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, TooLargeError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._anytime_marginals import PATIENCE, SHARE
from cliquewise.oracles._explanation import explain
from cliquewise.oracles._rescaling import (
    PLAIN,
    RescaledGraph,
    check_resolved,
    rescale_for,
)
from cliquewise.oracles.anytime import Anytime
from cliquewise.oracles.base import (
    NO_LIMITS,
    QUESTIONS,
    Fit,
    Limits,
    Oracle,
    Question,
    Verdict,
)
from cliquewise.oracles.marginal_map import marginal_map as answer_marginal_map
from cliquewise.oracles.options import (
    LIMIT_OPTIONS,
    check_number,
    check_options,
    limits_of,
    options_of,
    takes,
)
from cliquewise.oracles.registry import get, registered, unknown_method
from cliquewise.oracles.results import MapResult

#: The questions that ``anytime`` answers.
ANYTIME_QUESTIONS: tuple[Question, ...] = ("map", "marginals")
#: An exact method that takes at most so many seconds is taken at once.
INSTANT = 0.02
#: For MAP, an elimination order that takes longer (seconds) costs more than trying without it; of
#: a time limit, it may take this share.
MAP_PLANNING, PLANNING_SHARE = 2e-3, 0.1
#: Methods that end with a proof unless the time runs out.
PROVERS = ("toulbar2", "milp")

#: The orchestrator of the steps; it is not registered, because it uses the registry.
ANYTIME = Anytime()


class Candidate(NamedTuple):
    """An oracle, its verdict, and why the planner passes it by (None: it does not)."""

    oracle: Oracle
    verdict: Verdict
    reason: str | None


@dataclass(frozen=True)
class Plan:
    """A chosen oracle with its options, and the candidates that were considered.

    ``candidates`` is None if the user named the method.
    """

    oracle: Oracle
    graph: FactorGraph
    question: Question
    limits: Limits
    options: Mapping[str, Any] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] | None = None

    def answer(self, graph: FactorGraph, **changes: Any) -> Any:
        """Answer the question, about this graph or a rescaled one."""
        options = {**self.options, **changes}
        if takes(self.oracle, self.question, "limits"):
            options["limits"] = self.limits
        return getattr(self.oracle, self.question)(graph, **options)

    @property
    def seconds(self) -> float:
        """Estimated time; infinite where the method ends at its time limit."""
        return self.oracle.consider(self.graph, self.question, self.limits).seconds

    @property
    def explanation(self) -> str:
        """The chosen method, and the estimated cost and guarantee of every method."""
        if self.candidates is None:
            return f"{self.oracle.name}: chosen by name"
        reasons = {c.oracle.name: c.reason for c in self.candidates if c.reason}
        methods = (ANYTIME, *registered())
        return explain(self.graph, self.question, self.limits, self.oracle, methods, reasons)


def method_names() -> list[str]:
    """Return the values of ``method=`` besides "auto".

    Examples
    --------
    >>> "anytime" in method_names()
    True
    """
    names = [oracle.name for oracle in registered()]
    return [ANYTIME.name, *names]


def find_method(name: str) -> Oracle:
    """Return the method with this name.

    Examples
    --------
    >>> find_method("anytime").name
    'anytime'
    """
    if name == ANYTIME.name:
        return ANYTIME
    names = method_names()
    if name not in names:
        raise unknown_method(name, names)
    return get(name)


# ---- one question about one graph


def ask(graph: FactorGraph, question: Question, method: str = "auto", **options: Any) -> Any:
    """Answer a question about a graph with evidence, by the chosen or the named method.

    Examples
    --------
    >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [3.0, 0.0]])]).condition({0: 0})
    >>> ask(g, "map").labels.tolist()
    [0, 1]
    """
    started = clock.now()
    check_options(options)
    core = graph.core
    if core.constant == -np.inf:
        raise InfeasibleError(INFEASIBLE)
    if core.graph.largest <= PLAIN:
        plan = choose(core.graph, question, method, options)
        answer = plan.answer(core.graph, **_time_left(plan, started))
    else:
        plan, answer = _ask_rescaled(core.graph, question, method, options, started)
    if question == "map" and answer.score == -np.inf:
        name = plan.oracle.name
        raise UnsupportedError(
            f"method {name!r} found no labeling of positive probability, and proves "
            f"nothing; {_alternatives(core.graph, question, name, exact=True)}"
        )
    return core.translate(question, answer)


def _time_left(plan: Plan, started: float) -> dict[str, float]:
    """Return the rest of a time limit for anytime, which counts the time of planning as well."""
    seconds = plan.options.get("seconds")
    if seconds is None or plan.oracle is not ANYTIME:
        return {}
    return {"seconds": max(0.0, seconds + started - clock.now())}


def _ask_rescaled(
    graph: FactorGraph, question: Question, method: str, options: dict[str, Any], started: float
) -> tuple[Plan, Any]:
    """Answer a question about a graph whose scores are too large to be added up as they are."""
    rescaled = RescaledGraph.of(graph)
    plan = choose(rescaled.graph, question, method, options)
    oracle = plan.oracle
    rescaled = rescale_for(rescaled, question, oracle)
    if question == "sample" and oracle.only_adds:
        check_resolved(oracle.map(rescaled.graph).score)
    changes = _time_left(plan, started)
    if "gap" in plan.options:
        changes["gap"] = plan.options["gap"] * rescaled.scale
    answer = plan.answer(rescaled.graph, **changes)
    return plan, rescaled.translate(question, answer, oracle)


def choose(
    graph: FactorGraph,
    question: Question,
    method: str = "auto",
    options: Mapping[str, Any] | None = None,
) -> Plan:
    """Choose the method for a question: the named one, or the cheapest that proves its answer.

    Parameters
    ----------
    graph : FactorGraph
        Without evidence (``FactorGraph.core``).
    question : str
    method : str, default="auto"
    options : dict, optional
        Options of the question. ``max_memory``, ``max_operations`` and ``seconds`` influence the
        choice.

    Raises
    ------
    UnsupportedError
        If the named method does not apply (the message names those that do), or if none does.
    TooLargeError
        If no method applies, and one only because of a limit.

    Examples
    --------
    >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [1.0, 0.0]])])
    >>> choose(g, "map").oracle.name
    'chain'
    """
    if question not in QUESTIONS:
        known = ", ".join(QUESTIONS)
        raise UnsupportedError(f"unknown question {question!r}; the questions are: {known}")
    rest = {k: v for k, v in (options or {}).items() if k not in LIMIT_OPTIONS}
    limits = limits_of(options or {})
    if method != "auto":
        return _named(graph, question, method, limits, options or {}, rest)
    seconds = rest.get("seconds")
    check_number("seconds", seconds)
    candidates = tuple(_candidates(graph, question, limits, seconds))
    accepted = [c for c in candidates if c.reason is None]
    if accepted:
        best = min(accepted, key=lambda c: c.verdict.seconds)
        if question in ANYTIME_QUESTIONS:
            rest = {k: v for k, v in rest.items() if k not in ("seconds", "gap")}
        return _checked(Plan(best.oracle, graph, question, limits, rest, candidates))
    if question in ANYTIME_QUESTIONS:
        return _checked(Plan(ANYTIME, graph, question, limits, rest, candidates))
    raise _no_method(graph, question, candidates)


def _named(
    graph: FactorGraph,
    question: Question,
    method: str,
    limits: Limits,
    options: Mapping[str, Any],
    rest: dict[str, Any],
) -> Plan:
    """Return the plan for a method that the user named."""
    oracle = find_method(method)
    reason = why_not(oracle, graph, question)
    if reason is not None:
        raise UnsupportedError(
            f"method {method!r} {reason}; {_alternatives(graph, question, without=method)}"
        )
    if not takes(oracle, question, "limits"):
        rest |= {k: options[k] for k in LIMIT_OPTIONS if options.get(k) is not None}
    return _checked(Plan(oracle, graph, question, limits, rest))


def _checked(plan: Plan) -> Plan:
    """Raise an error for unknown options instead of ignoring them."""
    known = options_of(type(plan.oracle), plan.question)
    unknown = sorted(set(plan.options) - known - {"k", "n", "rng"})
    if not unknown:
        return plan
    names = known - {"limits"} | (set(LIMIT_OPTIONS) if "limits" in known else set())
    shown = ", ".join(sorted(names)) or "none"
    raise UnsupportedError(
        f"method {plan.oracle.name!r} has no option {unknown[0]!r}; its options are: {shown} "
        "(other methods, chosen by name, have others)"
    ).concerning(unknown[0])


# ---- candidates


def _candidates(
    graph: FactorGraph, question: Question, limits: Limits, seconds: float | None
) -> Iterator[Candidate]:
    """Consider the exact oracles in order, until one is so cheap that no other matters."""
    least = math.inf
    for oracle in registered():
        if not oracle.exact or question not in oracle.provides:
            continue
        most = min(least, _time_limit(oracle, question, seconds))
        planning = MAP_PLANNING if question == "map" else math.inf
        if seconds is not None:
            planning = PLANNING_SHARE * seconds
        own = limits._replace(seconds=most, planning=planning)
        verdict = _consider(oracle, graph, question, own, is_kept=seconds is None)
        reason = verdict.reason
        if verdict.is_accepted and verdict.seconds > most:
            reason = _too_slow(verdict.seconds, question, seconds)
        yield Candidate(oracle, verdict, reason)
        if reason is None:
            if oracle.is_fastest or verdict.seconds <= INSTANT:
                return
            least = verdict.seconds


def _consider(
    oracle: Oracle, graph: FactorGraph, question: Question, limits: Limits, is_kept: bool
) -> Verdict:
    """Return the verdict of an oracle, cached with the structure where it holds for all tables."""
    memo, key = graph.structure.memo, ("verdict", oracle.name, question, limits)
    found: Verdict | None = memo.get(key)
    if found is None:
        found = oracle.consider(graph, question, limits)
        if is_kept and found.is_reusable:
            memo[key] = found
    return found


def _time_limit(oracle: Oracle, question: Question, seconds: float | None) -> float:
    """Return how long an exact method may take before anytime is the better choice."""
    if question not in ANYTIME_QUESTIONS:
        return math.inf
    if question == "map" and not oracle.is_fastest:
        return INSTANT
    if seconds is not None:
        return max(INSTANT, SHARE * seconds)
    return math.inf if oracle.is_fastest else PATIENCE


def _too_slow(needed: float, question: Question, seconds: float | None) -> str:
    """Return the reason against an exact method, as the end of a sentence."""
    reason = f"would take about {needed:.2g} s"
    if question not in ANYTIME_QUESTIONS:
        return f"{reason}: another method is faster"
    if seconds is not None and needed > SHARE * seconds:
        return f"{reason} of the time limit of {seconds:g} s"
    if question == "map":
        return f"{reason}: cheaper methods may prove the same earlier"
    return f"{reason} (set seconds={3 * needed:.2g} to allow it)"


def _no_method(
    graph: FactorGraph, question: Question, candidates: Iterable[Candidate]
) -> UnsupportedError | TooLargeError:
    """Return the error if no method applies; it has all reasons."""
    listed = list(candidates)
    message = f"no method can answer {question!r} on this graph:" + "".join(
        f"\n  {c.oracle.name}: it {c.reason}" for c in listed
    )
    tried = {c.oracle.name for c in listed}
    if names := [name for name in _methods_for(graph, question) if name not in tried]:
        message += f"\nThese methods can, by name: method={' or '.join(map(repr, names))}"
    large = [c.verdict for c in listed if c.verdict.fit is Fit.TOO_LARGE]
    if not large:
        return UnsupportedError(message)
    cost = large[-1].cost
    assert cost is not None
    return TooLargeError(message, cost.memory, cost.operations)


# ---- what applies to a graph


def why_not(oracle: Oracle, graph: FactorGraph, question: Question) -> str | None:
    """Return why an oracle cannot answer, whatever its limits, as the end of a sentence.

    Examples
    --------
    >>> ring = FactorGraph([2] * 3, [((v, (v + 1) % 3), [[0.0, 0.0]] * 2) for v in range(3)])
    >>> why_not(get("tree"), ring, "map")
    'needs a graph without cycles'
    """
    if question not in oracle.provides:
        return f"does not provide {question}"
    verdict = oracle.consider(graph, question, NO_LIMITS)
    return verdict.reason if verdict.fit is Fit.REJECTED else None


def _methods_for(
    graph: FactorGraph, question: Question, without: str = "", exact: bool = False
) -> list[str]:
    """Return the methods (or only the exact ones) that can answer a question."""
    return [
        o.name
        for o in registered()
        if o.name != without
        and (o.exact or not exact or o.name in PROVERS)
        and question in o.provides
        and o.consider(graph, question, NO_LIMITS).can_answer
    ]


def _alternatives(graph: FactorGraph, question: Question, without: str, exact: bool = False) -> str:
    """Return the methods that can answer, as the end of an error message."""
    names = _methods_for(graph, question, without, exact)
    if names:
        return f"for {question!r} these methods accept this graph: {', '.join(names)}"
    return f"no registered method can answer {question!r} on this graph"


def _without_numbers(structure: Structure) -> FactorGraph:
    """Return a graph of zeros, to consider an oracle for a structure."""
    return FactorGraph.from_structure(structure, np.zeros(int(structure.table_offsets[-1])))


def why_not_structure(method: str, structure: Structure, question: Question) -> str | None:
    """Return why a method cannot answer for graphs with this structure, or None.

    Tables may still be a reason: only those of zeros are considered.

    Examples
    --------
    >>> why_not_structure("tree", Structure([2] * 3, [(0, 1), (1, 2), (0, 2)]), "map")
    'needs a graph without cycles'
    """
    verdict = find_method(method).consider(_without_numbers(structure), question, NO_LIMITS)
    return None if verdict.can_answer else verdict.reason


def has_exact_method(structure: Structure, questions: Iterable[Question]) -> bool:
    """Return whether some exact method answers all these questions for a structure.

    Examples
    --------
    >>> has_exact_method(Structure([2] * 2, [(0, 1)]), ["map", "max_marginals"])
    True
    """
    wanted, graph = list(questions), _without_numbers(structure)
    return any(
        oracle.exact
        and all(
            question in oracle.provides and oracle.consider(graph, question, NO_LIMITS).is_accepted
            for question in wanted
        )
        for oracle in registered()
    )


# ---- marginal MAP


def marginal_map(graph: FactorGraph, over: Any, method: str = "auto", **options: Any) -> MapResult:
    """Return the best labels of the variables ``over``, with all others summed out.

    Examples
    --------
    >>> g = FactorGraph([2, 3], [((0, 1), [[1.0, 1.0, 1.0], [1.5, 0.0, 0.0]])])
    >>> marginal_map(g, [0]).labels
    array([ 0, -1])
    """
    return answer_marginal_map(graph, over, method, options)
