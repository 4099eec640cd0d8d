"""toulbar2: exact search with strong bounds, through its Python package."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, warn_user
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
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
#: Bytes that the search may take, the solver's own code included.
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
        seconds: float = 60.0,
        init: Ints | None = None,
    ) -> MapResult:
        """Search until the optimum is proved or the time is over.

        Parameters
        ----------
        graph : FactorGraph
        seconds : float, default=60
            Limit of the search; 0 only polishes ``init``.
        init : array-like of int, optional
            A good labeling to start from; found by local search by default.

        Returns
        -------
        MapResult
            ``exact`` means: proved for costs rounded to 1e-10 of the range of the scores.
            ``upper_bound`` allows for that rounding, and holds when the time ran out too.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [2.0, 0.0]])])
        >>> g.map("toulbar2").labels
        array([1, 0])
        """
        started = clock.now()
        costs = integer_costs(graph)
        if init is None:
            init = quick_labels(graph, seconds=min(1.0, 0.05 * seconds))
        labels = np.array(init, dtype=np.int64)
        score = float(graph.score(labels))
        bound, proved = table_bound(graph), False
        if seconds > 0 and graph.n_variables:
            known = labels if score > -np.inf else None
            found, dual, proved = _search(graph, costs, known, seconds)
            if found is not None and float(graph.score(found)) > score:
                labels, score = found, float(graph.score(found))
            if proved and score == -np.inf:
                raise InfeasibleError(INFEASIBLE)
            if math.isfinite(dual):
                bound = min(bound, costs.peaks - dual / costs.scale + costs.error)
        bound = max(bound, score)
        info = {"seconds": clock.now() - started, "rounding": costs.error}
        return map_result(graph, labels, bound, self.name, info, proved or bound <= score)


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


def _search(
    graph: FactorGraph, costs: Costs, start: Ints | None, seconds: float
) -> tuple[Ints | None, float, bool]:
    """Labels better than ``start`` (or None), a bound of the cost, and whether it is proved."""
    s = graph.structure
    if not graph.n_factors:
        return np.zeros(graph.n_variables, dtype=np.int64), 0.0, True
    known = math.inf if start is None else _cost(graph, costs, start)
    seconds = min(seconds, 1e6)
    question = {"known": None if start is None else known, "memory": MAX_MEMORY}
    # Its own limit is in whole seconds of processor time: a backstop only.
    question["seconds"] = math.ceil(2 * seconds) + 10
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
        # Without an answer nothing is better than the start.
        return found, known if found is None else _cost(graph, costs, found), True
    dual = -math.inf if answer["dual"] is None else answer["dual"]
    return found, min(dual, known), False


def _cost(graph: FactorGraph, costs: Costs, labels: Ints) -> float:
    return float(sum(costs.flat[at].sum() for at in graph._entries(labels[None])))
