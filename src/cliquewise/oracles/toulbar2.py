"""toulbar2: exact search with strong bounds, through its Python package."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, warn_user
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles._worker import Worker, WorkerError
from cliquewise.oracles.base import OFTEN_PROVED, Limits, Oracle, Question, Verdict
from cliquewise.oracles.portfolio import quick_labels
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, map_result
from cliquewise.ragged import Floats, Ints

#: Rounding of all costs together stays below this part of the range of the scores.
ROUNDING = 1e-10
#: Sums of costs stay exact in float64, through which the package reports them.
LARGEST = 2.0**52
#: More table entries than this are refused; those of four or more variables are listed singly.
MAX_ENTRIES, MAX_LISTED = 20_000_000, 2_000_000
#: Without a limit, backtracks for so many estimated seconds, and a safeguard in real seconds.
DEFAULT_SECONDS, LAST_RESORT = 60.0, 1800.0
#: Seconds per backtrack, and per table entry and backtrack (0.3 to 18 ms measured).
PER_BACKTRACK, PER_ENTRY = 2e-4, 4e-8
#: Memory limit of the search in bytes, including the code of the solver.
MAX_MEMORY = 8 * 2**30

_worker = Worker(Path(__file__).with_name("_toulbar2_worker.py"))


@cache
def _is_installed() -> bool:
    return importlib.util.find_spec("pytoulbar2") is not None


@dataclass(frozen=True)
class Costs:
    """Non-negative integer costs, ``cost = (peak - table) * scale``; inf where forbidden.

    ``peaks`` is the sum of the tables' largest entries, ``error`` the most that rounding
    changes a labeling's score.
    """

    flat: Floats
    scale: float
    peaks: float
    error: float


@register
class Toulbar2(Oracle):
    """Branch and bound of toulbar2: exact on any graph, unless the time runs out first."""

    name = "toulbar2"
    provides: ClassVar[frozenset[Question]] = frozenset({"map"})
    exact = False
    guarantee = OFTEN_PROVED
    rank = 50

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Reject graphs without the package, and tables beyond any search."""
        if not _is_installed():
            return Verdict.reject("needs pytoulbar2: pip install 'cliquewise[exact]'").for_tables()
        s = graph.structure
        sizes = np.diff(s.table_offsets)
        entries, listed = int(sizes.sum()), int(sizes[s.orders > 3].sum())
        if entries > MAX_ENTRIES or listed > MAX_LISTED:
            return Verdict.reject(
                f"takes at most {MAX_ENTRIES:.2g} table entries ({MAX_LISTED:.2g} in factors of "
                f"four or more variables), and this graph has {entries:.3g} ({listed:.3g})"
            )
        return Verdict.accept(math.inf, 64.0 * entries)

    def map(
        self,
        graph: FactorGraph,
        seconds: float | None = None,
        backtracks: int | None = None,
        init: Ints | None = None,
    ) -> MapResult:
        """Search until the optimum is proved or the time or the backtracks are used up.

        Parameters
        ----------
        graph : FactorGraph
        seconds : float, optional
            Time limit.
        backtracks : int, optional
            Limit of the search. Without any limit, as many as usually take a minute; the result
            does not depend on the speed of the machine then.
        init : array-like of int, optional
            A good labeling to start from; found by local search by default.

        Returns
        -------
        MapResult
            ``exact`` means: proved for costs rounded to 1e-10 of the range of the scores.
            ``upper_bound`` includes that rounding, and holds when the search was cut short.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [2.0, 0.0]])])
        >>> g.map("toulbar2").labels
        array([1, 0])
        """
        started = clock.now()
        if seconds is None and backtracks is None:
            backtracks = backtracks_for(graph.structure, DEFAULT_SECONDS)
        limit = LAST_RESORT if seconds is None else seconds
        if limit > 0 and graph.n_variables:
            launch()  # it starts while the labeling is improved
        costs = integer_costs(graph)
        if init is None:
            init = quick_labels(graph, None if seconds is None else min(1.0, 0.05 * seconds))
        labels = np.array(init, dtype=np.int64)
        score = float(graph.score(labels))
        bound, proved = table_bound(graph), False
        if limit > 0 and graph.n_variables:
            known = labels if score > -np.inf else None
            search = Search(limit, backtracks)
            found, dual, proved = _search(graph, costs, known, search)
            if found is not None and float(graph.score(found)) > score:
                labels, score = found, float(graph.score(found))
            if proved and score == -np.inf:
                raise InfeasibleError(INFEASIBLE)
            if math.isfinite(dual):
                bound = min(bound, costs.peaks - dual / costs.scale + costs.error)
        bound = max(bound, score)
        info = {"seconds": clock.now() - started, "rounding": costs.error}
        return map_result(graph, labels, bound, self.name, info, proved or bound <= score)


def launch() -> None:
    """Start the process of the solver, without waiting for it."""
    _worker.launch()


def backtracks_for(structure: Structure, seconds: float) -> int:
    """Return the backtracks in so many estimated seconds; propagation reads tables at each.

    Examples
    --------
    >>> backtracks_for(Structure([2, 2], [(0, 1)]), 60.0)
    299760
    """
    each = PER_BACKTRACK + PER_ENTRY * float(structure.table_offsets[-1])
    return max(1, int(seconds / each))


def integer_costs(graph: FactorGraph) -> Costs:
    """Turn scores to be maximized into integer costs to be minimized."""
    s = graph.structure
    peaks_sum = table_bound(graph)
    if s.n_factors == 0:
        return Costs(np.empty(0), 1.0, 0.0, 0.0)
    sizes = np.diff(s.table_offsets)
    peaks = np.maximum.reduceat(graph.tables, s.table_offsets[:-1])
    costs = np.repeat(peaks, sizes) - graph.tables
    finite = np.where(np.isfinite(costs), costs, 0.0)
    spread = float(np.maximum.reduceat(finite, s.table_offsets[:-1]).sum())
    if spread == 0.0:
        return Costs(costs, 1.0, peaks_sum, 0.0)
    # A power of two keeps halves and integers exact; twice the least, since it is rounded down.
    budget = min(LARGEST, s.n_factors / ROUNDING)
    scale = 2.0 ** min(1000, math.floor(math.log2(budget) - math.log2(spread)))
    rounded = np.rint(costs * scale)
    wrong = np.abs(np.where(np.isfinite(costs), rounded, 0.0) / scale - finite)
    error = float(np.maximum.reduceat(wrong, s.table_offsets[:-1]).sum())
    return Costs(rounded, scale, peaks_sum, error)


class Search(NamedTuple):
    """Limits of one search."""

    seconds: float
    backtracks: int | None


def _search(
    graph: FactorGraph, costs: Costs, start: Ints | None, search: Search
) -> tuple[Ints | None, float, bool]:
    """Return labels better than ``start`` (or None), a bound of the cost, and if it is proved."""
    s = graph.structure
    if not graph.n_factors:
        return np.zeros(graph.n_variables, dtype=np.int64), 0.0, True
    known = math.inf if start is None else _cost(graph, costs, start)
    seconds = min(search.seconds, 1e6)
    question = {
        "known": None if start is None else known,
        "memory": MAX_MEMORY,
        # The solver's own limit has whole seconds of processor time: a safeguard.
        "seconds": math.ceil(2 * seconds) + 10,
        "backtracks": search.backtracks,
    }
    arrays = {
        "cards": s.cardinalities, "scopes": s.scopes, "scope_offsets": s.scope_offsets,
        "costs": costs.flat, "table_offsets": s.table_offsets,
    }  # fmt: skip
    try:
        answer, was_cut = _worker.ask(question, arrays, seconds)
    except WorkerError as error:
        warn_user(f"toulbar2 {error}: the labeling is that of a local search, without a proof")
        return None, -math.inf, False
    found = None if answer["labels"] is None else np.array(answer["labels"], dtype=np.int64)
    if answer["ended"] and not was_cut:
        # If the search found nothing, the start is optimal.
        return found, known if found is None else _cost(graph, costs, found), True
    dual = -math.inf if answer["dual"] is None else answer["dual"]
    return found, min(dual, known), False


def _cost(graph: FactorGraph, costs: Costs, labels: Ints) -> float:
    return float(sum(costs.flat[at].sum() for at in graph._entries(labels[None])))
