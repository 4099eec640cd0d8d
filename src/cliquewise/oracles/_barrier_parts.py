"""Barrier Frank-Wolfe on parts of a graph, split by fixing variables to each of their states.

Z is the sum of the parts' Z, so the log-sum of their bounds bounds log Z. The trees of a part
are those of the whole graph with the fixed variables joined to everything: structures wider
than trees whose MAP problems are smaller, not larger. What remains of the bound's error after
the best edge probabilities is the entropy that trees miss, and a split takes a share of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import Core
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.spanning_trees import edge_probabilities
from cliquewise.graph.structure import Structure
from cliquewise.oracles._barrier_run import Run
from cliquewise.oracles._trw import Problem, log_sum_of, problem
from cliquewise.oracles.results import MarginalResult
from cliquewise.ragged import Floats

#: Gap and updates of rho before a part is split, and what the first may take of calls and time.
SKETCH, SKETCH_UPDATES, FIRST = 2.0, 1, 0.5
#: Parts that add less than this to log Z are left as they are.
NEGLIGIBLE = 0.01
#: Part of the wanted gap for the largest of several parts; small ones may have a larger gap.
SHARPER = 0.6


@dataclass(eq=False)
class Part:
    """One part: its run, and the map to the whole graph (None if it is the whole graph)."""

    run: Run
    core: Core | None

    def point(self) -> Floats:
        """Marginals of the whole graph, conditioned on this part."""
        if self.core is None:
            return self.run.x
        run, t = self.run, self.run.p.topology
        inner = MarginalResult.from_flat(self.core.graph, run.nodes, run.x[t.targets], 0.0, "")
        return np.asarray(self.core.translate("marginals", inner).factors.flat)


class Parts:
    """All parts of one graph, and their combined bounds."""

    def __init__(self, first: Run):
        self.first = first
        self.parts = [Part(first, None)]
        self.graph = first.p.graph(first.p.theta)
        self.upper = math.inf

    def whole(self, parts: int, updates: int, gap: float) -> None:
        """Split into so many parts, the one with the largest bound first, and improve each."""
        if parts > 1:
            self._sketch(self.first, FIRST)
            while len(self.parts) < parts and self._split(parts):
                pass
        order = sorted(self.parts, key=lambda part: -part.run.upper)
        for k, part in enumerate(order):
            share = math.exp(max(-50.0, min(0.0, part.run.upper - self._total())))
            goal = gap if len(order) == 1 else gap * max(SHARPER, 1.0 / (share * len(order)))
            if not self._improve(part.run, updates, goal, 1.0 / (len(order) - k)):
                break
        for part in self.parts:
            part.run.bound_without_calls()
        self.upper = min(self.upper, self._total())

    # ---- steps

    def _total(self) -> float:
        return log_sum_of([part.run.upper for part in self.parts])

    def _improve(self, run: Run, updates: int, gap: float, share: float) -> bool:
        """Improve one part; return whether there is time for more."""
        others = [part.run.upper for part in self.parts if part.run is not run]
        run.overall = lambda bound: min(self.upper, log_sum_of([*others, bound]))
        below = log_sum_of([score for part in self.parts for score in part.run.scores])
        run.enough = below + math.log(NEGLIGIBLE / len(self.parts))
        run.whole(updates, gap, share)
        self.upper = min(self.upper, run.overall(run.upper))
        self.first.stopped = run.stopped
        return run.stopped == "gap"

    def _sketch(self, run: Run, share: float) -> bool:
        updates = min(SKETCH_UPDATES, run.settings.rho_updates)
        return self._improve(run, updates, max(SKETCH, run.settings.gap), share)

    def _split(self, parts: int) -> bool:
        """Split the part with the largest bound; return False if that is useless or impossible."""
        part = max(self.parts, key=lambda part: part.run.upper)
        run = part.run
        if self.first.stopped != "gap" or not run.is_reached or run.p.topology.n_edges < 2:
            return False
        variable = _variable(run)
        children = self._children(part, variable)
        before = self.parts
        self.parts = [p for p in before if p is not part] + children
        for k, child in enumerate(children):
            self._sketch(child.run, 1.0 / (parts + len(children) - k))
        if any(child.run.gap == math.inf for child in children):
            self.parts = before  # no time to look at all of them
            return False
        return self.first.stopped == "gap"

    def _children(self, part: Part, variable: int) -> list[Part]:
        """Return the possible parts with one more variable fixed."""
        run, children = part.run, []
        fixed = {} if part.core is None else dict(part.core.original.evidence)
        label = variable if part.core is None else int(part.core.free[variable])
        structure: Structure | None = None
        rows = run.labels[: run.n_atoms]
        for state in range(int(run.p.topology.cards[variable])):
            core = self.graph.condition({**fixed, label: state}).core
            if core.constant == -math.inf:
                continue
            structure = structure or core.graph.structure  # what is planned for it serves all
            tables = core.graph.tables.copy()
            tables[: int(core.graph.cardinalities[0])] += core.constant
            known = np.delete(rows[rows[:, variable] == state], variable, axis=1).astype(np.int64)
            graph, left = FactorGraph.from_structure(structure, tables), run.left[1]
            try:
                p = problem(graph, run.mapper.on, left, list(known))
            except InfeasibleError:
                continue
            child = Run(
                p, run.mapper.on(p.structure, left), run.settings, run.started,
                _rho(run, variable, p), run.trace, rho_certified=run.rho_certified,
            )  # fmt: skip
            child.upper, child.moves = run.upper, run.moves
            children.append(Part(child, core))
        return children

    # ---- the answer

    def result(self, graph: FactorGraph, method: str) -> MarginalResult:
        """Return marginals, bounds and the trace."""
        first, t = self.first, self.first.p.topology
        runs = [part.run for part in self.parts]
        below = [run.sum_below() for run in runs]
        lower = min(log_sum_of(below), self.upper)
        values = np.clip([run.primal for run in runs], below, [run.upper for run in runs])
        primal = log_sum_of(values.tolist())
        shares = np.exp(values - values.max())  # their sum may not be 1 by far if they are huge
        shares /= shares.sum()
        x = np.sum([share * part.point() for share, part in zip(shares, self.parts, strict=True)],
                   axis=0)  # fmt: skip
        certified = all(run.p.certified and run.rho_certified for run in runs)
        info = {
            "stopped": first.stopped,
            "rho": first.rho,
            "parts": len(runs),
            "map_method": "linear relaxation" if first.is_local else first.mapper.name,
            "map_calls": first.mapper.tally.calls,
            "map_seconds": first.mapper.tally.seconds,
            "primal": primal,
            "gap": float(shares @ [max(0.0, min(run.gap, 1e300)) for run in runs]),
        }
        return MarginalResult.from_flat(
            graph, x[: int(t.node_offsets[-1])].copy(), x[t.targets],
            min(max(primal, lower), self.upper), method, (lower, self.upper),
            bounds_certified=(True, certified), trace=first.trace, info=info,
        )  # fmt: skip


def _rho(run: Run, variable: int, p: Problem) -> Floats:
    """Return edge probabilities of a part, from the mutual information of its edges."""
    kept = (run.p.topology.edges != variable).all(axis=1)
    information = run.p.information(run.x)[kept]
    t = p.topology
    return edge_probabilities(t.n_nodes, t.edges, information)


def _variable(run: Run) -> int:
    """Return the variable with the most information beyond spanning trees, per new part."""
    t = run.p.topology
    missed = np.repeat(run.p.information(run.x) * (1.0 - run.rho), 2)
    tied = np.bincount(t.edges.ravel(), missed, minlength=t.n_nodes)
    return int(np.argmax(np.where(t.cards > 1, tied / np.log(np.maximum(t.cards, 2)), -1.0)))
