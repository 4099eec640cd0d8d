"""Explain a plan: a table of all methods, with estimated cost, guarantee, and remarks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.anytime import Anytime, steps_for
from cliquewise.oracles.base import NO_LIMITS, PROVED, Limits, Oracle, Question
from cliquewise.tables import text_table

#: Methods with unknown cost come after all others.
UNKNOWN = 1e9


def explain(
    graph: FactorGraph,
    question: Question,
    limits: Limits,
    chosen: Oracle,
    methods: Sequence[Oracle],
    reasons: Mapping[str, str],
) -> str:
    """Return the chosen method and a table of all methods, cheapest first.

    ``reasons`` tells for each rejected candidate why the planner passed it by.
    """
    unlimited = limits._replace(seconds=NO_LIMITS.seconds, planning=NO_LIMITS.planning)
    rows: list[tuple[float, tuple[str, str, str, str], str]] = []
    for oracle in methods:
        if question not in oracle.provides:
            continue
        verdict = oracle.consider(graph, question, unlimited)
        if not verdict.can_answer or verdict.cost is None:
            gives = _guarantee(oracle) if verdict.can_answer else "-"
            rows.append((math.inf, (oracle.name, "-", "-", gives), f"it {verdict.reason}"))
            continue
        seconds = verdict.cost.seconds
        shown = "to its limit" if math.isinf(seconds) else f"{seconds:.2g}"
        cells = (oracle.name, shown, _bytes(verdict.cost.memory), _guarantee(oracle))
        if oracle is chosen:
            rows.append((-1.0, cells, "<- taken"))
        else:
            remark = _remark(graph, question, chosen, oracle, reasons)
            rows.append((min(seconds, UNKNOWN), cells, remark))
    rows.sort(key=lambda row: row[0])
    doc = (chosen.__doc__ or "").strip().splitlines()[0]
    return f"{chosen.name}: {doc}\n{_table(rows)}"


def _table(rows: Sequence[tuple[float, tuple[str, str, str, str], str]]) -> str:
    lines = text_table(["  method", "seconds", "memory", "gives"],
                       [(f"  {c[0]}", *c[1:]) for _, c, _ in rows]).splitlines()  # fmt: skip
    width = max(map(len, lines))
    remarks = ["", *(remark for _, _, remark in rows)]
    return "\n".join(
        f"{line.ljust(width)}  {remark}".rstrip()
        for line, remark in zip(lines, remarks, strict=True)
    )


def _guarantee(oracle: Oracle) -> str:
    return PROVED if oracle.exact else oracle.guarantee


def _remark(
    graph: FactorGraph,
    question: Question,
    chosen: Oracle,
    oracle: Oracle,
    reasons: Mapping[str, str],
) -> str:
    """Return why a method that could answer is not the chosen one."""
    if oracle.name in reasons:
        return f"it {reasons[oracle.name]}"
    if isinstance(oracle, Anytime):
        return "for graphs without a fast exact method"
    if isinstance(chosen, Anytime) and oracle.name in steps_for(graph.structure, question):
        return "a step of anytime"
    return "slower" if oracle.exact else "only by name"


def _bytes(memory: float) -> str:
    for unit in ("kB", "MB"):
        memory /= 1000.0
        if memory < 1000.0:
            return f"{memory:.3g} {unit}"
    return f"{memory / 1000.0:.3g} GB"
