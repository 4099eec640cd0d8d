"""Which oracle answers: the named one, or the cheapest that can prove its answer.

Oracles estimate what an answer takes (``Oracle.cost``). One that is exact, and quicker than any
attempt to do better, is asked at once; otherwise ``anytime`` tries cheap provers before dear
ones. What a structure decides is decided once and kept in its memo.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, TooLargeError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._rescaling import PLAIN, Leveled, check_resolved, level
from cliquewise.oracles.base import (
    LIMITS,
    PROVED,
    QUESTIONS,
    Cost,
    Oracle,
    _registry,
    answer_to,
    check_number,
    get,
    refuse_evidence,
    registered,
)
from cliquewise.tables import text_table

__all__ = ["Choice", "answer_to", "ask", "choose", "good_score"]

#: Where elimination keeps what it found out about a structure.
ORDERS = (("junction-tree", "sketch"), ("junction-tree", "hurried sketch"))
#: Methods that end with a proof, unless the time runs out.
PROVERS = ("toulbar2", "milp")
#: The oracle that tries one method after the other, and the questions it answers.
STEPS, ANYTIME = "anytime", ("map", "marginals")
#: An exact method that takes so many seconds is asked at once.
INSTANT = 0.02
#: Exact marginals may take this long where no limit is given, and this part of one that is.
PATIENCE, SHARE = 5.0, 0.5
#: Table entries up to which elimination finds a good labeling in a moment.
QUICK = 1e6


class Standing(NamedTuple):
    """What a structure says of an oracle: its cost, or why it cannot be asked."""

    oracle: Oracle
    cost: Cost | None
    why: Any


class Choice(NamedTuple):
    """An oracle and its options; those passed by, with the reasons (None: it was asked for)."""

    oracle: Oracle
    passed: list[tuple[Oracle, Any]] | None
    graph: FactorGraph
    want: str
    options: dict[str, Any]

    @property
    def explanation(self) -> str:
        """Why it was taken: what each method would cost and give."""
        doc = (self.oracle.__doc__ or "").strip().splitlines()[0]
        if self.passed is None:
            return f"{self.oracle.name}: asked for"
        return f"{self.oracle.name}: {doc}\n{_table(self)}"


def choose(
    graph: FactorGraph, want: str, method: str = "auto", options: dict[str, Any] | None = None
) -> Choice:
    """Pick the oracle for a question: the named one, or the cheapest that proves its answer.

    Parameters
    ----------
    graph : FactorGraph
        Without evidence (``FactorGraph.core`` takes care of that).
    want : str
        The question.
    method : str, default="auto"
    options : dict, optional
        Options of the question; limits among them count in the choice.

    Raises
    ------
    UnsupportedError
        If the named method does not fit, naming those that do; or if none fits.
    TooLargeError
        If none fits and one of them only for want of memory; it states the estimate.

    Examples
    --------
    >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [1.0, 0.0]])])
    >>> choose(g, "map").oracle.name
    'chain'
    """
    if want not in QUESTIONS:
        known = ", ".join(QUESTIONS)
        raise UnsupportedError(f"unknown question {want!r}; the questions are: {known}")
    options = options or {}
    if method != "auto":
        oracle = get(method)
        reason = oracle.refusal(graph, want)
        if reason is None:
            return Choice(oracle, None, graph, want, options)
        raise UnsupportedError(
            f"method {method!r} {reason}; {_alternatives(graph, want, without=method)}"
        )
    started, seconds = clock.now(), _limit(options)
    passed: list[tuple[Oracle, Any]] = []
    standings = _standings(graph.structure, want, options)
    if seconds is not None:
        seconds = max(0.0, seconds + started - clock.now())
    for standing in standings:
        oracle = standing.oracle
        why = standing.why or _too_slow(standing, graph.structure, want, seconds)
        why = why or oracle.refuses_tables(graph, want) or oracle.avoids_tables(graph, want)
        if why is None:
            if want in ANYTIME and oracle.name != STEPS:
                options = {k: v for k, v in options.items() if k not in ("seconds", "gap")}
            return Choice(oracle, passed, graph, want, oracle.known_limits(options))
        passed.append((oracle, why))
    message = f"no method can answer {want!r} on this graph:" + "".join(
        f"\n  {oracle.name}: it {why}" for oracle, why in passed
    )
    tried = {oracle.name for oracle, _ in passed}
    if named := [name for name in _accepting(graph, want) if name not in tried]:
        message += f"\nAsked for by name, these do: method={' or '.join(map(repr, named))}"
    large = [why for _, why in passed if isinstance(why, TooLargeError)]
    if large:
        raise TooLargeError(message, large[-1].memory_bytes, large[-1].operations)
    raise UnsupportedError(message)


def _limit(options: dict[str, Any]) -> float | None:
    """The limit of time among the options, if there is one."""
    check_number("seconds", options.get("seconds"))
    return options.get("seconds")


def _standings(structure: Structure, want: str, options: dict[str, Any]) -> list[Standing]:
    """What ``auto`` would try, and why not where the structure alone forbids it.

    The list ends at the first oracle that takes whatever tables there are and is not dear. It
    stays in the structure's memo, unless a limit of time had a say: many graphs of one structure
    ask for its first entries.
    """
    if _limit(options) is not None:
        return _listed(structure, want, options)
    limits = tuple((k, options[k]) for k in ("max_memory", "max_operations", "k") if k in options)
    # What is known of the orders of a junction tree, which a hurry keeps short.
    orders = sum(1 for key in ORDERS if key in structure.memo)
    key = ("oracles", len(_registry), want, limits, orders)
    known: list[Standing] | None = structure.memo.get(key)
    if known is None:
        known = structure.memo[key] = _listed(structure, want, options)
    return known


def _listed(structure: Structure, want: str, options: dict[str, Any]) -> list[Standing]:
    listed = []
    for oracle in registered():
        if not oracle.automatic or want not in oracle.provides:
            continue
        standing = _standing(oracle, structure, want, options)
        listed.append(standing)
        if standing.cost is None or _reads_tables(oracle):
            continue
        quick = oracle.is_quickest or standing.cost.seconds <= INSTANT
        if quick or want not in ANYTIME or oracle.name == STEPS:
            break
    return listed


def _reads_tables(oracle: Oracle) -> bool:
    """Whether the numbers have a say in whether it is asked."""
    kind = type(oracle)
    return (kind.refuses_tables, kind.avoids_tables) != (
        Oracle.refuses_tables, Oracle.avoids_tables
    )  # fmt: skip


def _standing(oracle: Oracle, structure: Structure, want: str, options: dict[str, Any]) -> Standing:
    why = (
        oracle.refuses(structure, want)
        or oracle.avoids(structure, want)
        or _surely_slow(oracle, structure, want, options)
        or oracle.too_large(structure, want, options)
    )
    return Standing(oracle, None if why else oracle.cost(structure, want), why)


def _surely_slow(
    oracle: Oracle, structure: Structure, want: str, options: dict[str, Any]
) -> str | None:
    """Why not to look closer: a first look says that it takes long, and there are other ways."""
    if want not in ANYTIME or oracle.name == STEPS or _limit(options) is not None:
        return None
    if get(STEPS).refuses(structure, want) is not None:
        return None
    needed = oracle.at_least(structure, want)
    if needed <= (INSTANT if want == "map" else PATIENCE):
        return None
    more = "cheaper methods may prove the same before"
    if want != "map":
        more = f"give seconds={10 * needed:.2g} to have it"
    return f"would take at least {needed:.2g} s: {more}"


def _too_slow(
    standing: Standing, structure: Structure, want: str, seconds: float | None
) -> str | None:
    """Why not to ask an exact oracle at once: others may be quicker, or there is no time."""
    if want not in ANYTIME or standing.oracle.name == STEPS or standing.cost is None:
        return None
    needed = standing.cost.seconds
    if needed <= INSTANT:
        return None
    limit = math.inf if seconds is None else SHARE * seconds
    if needed > limit:
        return f"would take about {needed:.2g} s of the {seconds:g} s that there are"
    if standing.oracle.is_quickest or get(STEPS).refuses(structure, want) is not None:
        return None
    if want == "map":
        return f"would take about {needed:.2g} s: cheaper methods may prove the same before"
    if seconds is None and needed > PATIENCE:
        return f"would take about {needed:.2g} s (give seconds={3 * needed:.2g} to have it)"
    return None


def ask(graph: FactorGraph, want: str, method: str = "auto", **options: Any) -> Any:
    """Choose an oracle, ask it about what evidence leaves open, and translate its answer.

    Examples
    --------
    >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [3.0, 0.0]])]).condition({0: 0})
    >>> ask(g, "map").labels.tolist()
    [0, 1]
    """
    refuse_evidence(options)
    for name in LIMITS & options.keys():
        check_number(name, options[name])
    options = {k: v for k, v in options.items() if v is not None or k not in LIMITS}
    started = clock.now()
    core = graph.core
    if core.constant == -np.inf:
        raise InfeasibleError(INFEASIBLE)
    if core.graph.largest <= PLAIN:
        choice = choose(core.graph, want, method, options)
        oracle = choice.oracle
        answer = getattr(oracle, want)(core.graph, **_left(choice, started))
    else:
        oracle, answer = _ask_leveled(core.graph, want, method, options)
    if want == "map" and answer.score == -np.inf:
        raise UnsupportedError(
            f"method {oracle.name!r} found no labeling of positive probability, and proves "
            f"nothing; {_alternatives(core.graph, want, oracle.name, exact=True)}"
        )
    return core.translate(want, answer)


def _left(choice: Choice, started: float) -> dict[str, Any]:
    """The options, with what is left of the time after the choice."""
    seconds = choice.options.get("seconds")
    if seconds is None or choice.oracle.name != STEPS:
        return choice.options
    return {**choice.options, "seconds": max(0.0, seconds + started - clock.now())}


def _ask_leveled(
    graph: FactorGraph, want: str, method: str, options: dict[str, Any]
) -> tuple[Oracle, Any]:
    """The answer about a graph whose scores are too large to be added up as they are."""
    started = clock.now()
    leveled = Leveled.of(graph)
    choice = choose(leveled.graph, want, method, options)
    oracle = choice.oracle
    leveled = level(leveled, want, oracle, good_score)
    if want == "sample" and oracle.only_adds:
        check_resolved(oracle.map(leveled.graph).score)
    options = _left(choice, started)
    if "gap" in options:
        options = {**options, "gap": options["gap"] * leveled.scale}
    return oracle, leveled.translate(want, getattr(oracle, want)(leveled.graph, **options), oracle)


def good_score(graph: FactorGraph) -> float:
    """Score of a good labeling: the best one where elimination is quick."""
    tree = get("tree" if graph.structure.is_forest else "junction-tree")
    quick = tree.too_large(graph.structure, "map", {"max_operations": QUICK}) is None
    return float((tree if quick else get("icm")).map(graph).score)


def _accepting(graph: FactorGraph, want: str, without: str = "", exact: bool = False) -> list[str]:
    """Methods (or exact ones) that would work."""
    return [
        o.name
        for o in registered()
        if o.name != without
        and (o.exact or not exact or o.name in PROVERS)
        and o.refusal(graph, want) is None
        and o.too_large(graph.structure, want, {}) is None
    ]


def _alternatives(graph: FactorGraph, want: str, without: str, exact: bool = False) -> str:
    """Which methods (or exact ones) would work, as the end of an error message."""
    works = _accepting(graph, want, without, exact)
    if works:
        return f"for {want!r} these methods accept this graph: {', '.join(works)}"
    return f"no registered method can answer {want!r} on this graph"


# ---- what a user is told


def _table(choice: Choice) -> str:
    """What each method would cost and give, the cheapest first, and why it is not taken."""
    rows: list[tuple[float, tuple[str, str, str, str], str]] = []
    for oracle in registered():
        if choice.want not in oracle.provides:
            continue
        s, want = choice.graph.structure, choice.want
        why = oracle.refuses(s, want) or oracle.too_large(s, want, choice.options)
        why = why or oracle.refuses_tables(choice.graph, want)
        taken = oracle is choice.oracle
        remark = "<- taken" if taken else f"it {why}" if why else _remark(oracle, choice)
        if why is not None:
            rows.append((math.inf, (oracle.name, "-", "-", "-"), remark))
            continue
        seconds, memory = oracle.cost(s, want)
        shown = "to its limit" if math.isinf(seconds) else f"{seconds:.2g}"
        cells = (oracle.name, shown, _bytes(memory), _gives(oracle))
        rows.append((-1.0 if taken else min(seconds, 1e9), cells, remark))
    rows.sort(key=lambda row: row[0])
    lines = text_table(["  method", "seconds", "memory", "gives"],
                       [(f"  {c[0]}", *c[1:]) for _, c, _ in rows]).splitlines()  # fmt: skip
    width = max(map(len, lines))
    remarks = ["", *(remark for _, _, remark in rows)]
    return "\n".join(
        f"{line.ljust(width)}  {remark}".rstrip()
        for line, remark in zip(lines, remarks, strict=True)
    )


def _gives(oracle: Oracle) -> str:
    if oracle.exact:
        return PROVED
    return f"{PROVED} or {oracle.gives}" if oracle.may_prove else oracle.gives


def _remark(oracle: Oracle, choice: Choice) -> str:
    """Why an oracle that would take the graph is not the one."""
    reason = next((why for other, why in choice.passed or () if other is oracle), None)
    if reason is not None:
        return f"it {reason}"
    if oracle.name in choice.oracle.steps(choice.graph.structure, choice.want):
        return f"a step of {choice.oracle.name}"
    return "" if oracle.automatic else "only if asked for by name"


def _bytes(memory: float) -> str:
    for unit in ("kB", "MB"):
        memory /= 1000.0
        if memory < 1000.0:
            return f"{memory:.3g} {unit}"
    return f"{memory / 1000.0:.3g} GB"
