"""Log-sums over some variables, given the states of the others, by connected component.

The parts of the variables to sum out that are connected depend on the others that they touch, and
on nothing else. A change of one label is a new sum over the parts around it; sums are kept.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise._kernels import clock
from cliquewise._kernels.graphs import junction_tree as passes
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._sum_elimination import Mask, Parts
from cliquewise.oracles.base import Limits
from cliquewise.oracles.junction_tree import elimination_oracle, search_budget
from cliquewise.ragged import Floats, Ints

#: A part with so few labelings (their logarithm) needs no look at its order, which else may take
#: a tenth of so many seconds.
SMALL, ORDER = 12.0, 10.0
#: A sum of more seconds than this is too dear to be asked for again and again.
LONG = 0.5
#: Sums that are kept of one part.
KEPT = 100_000


class Part:
    """One connected component with its factors, or one factor without summed variables."""

    def __init__(self, graph: FactorGraph, sums: Ints, factors: Ints, limits: Limits):
        s = graph.structure
        self.flat = graph.tables
        local = {v: i for i, v in enumerate(sums.tolist())}
        scopes: list[list[int]] = []
        entries, sizes, links = [np.empty(0, dtype=np.int64)], [], []
        for row, f in enumerate(factors.tolist()):
            at, scope = s.table_offsets[f : f + 1], s.scope(f).tolist()
            strides = s.strides[s.scope_offsets[f] : s.scope_offsets[f + 1]].tolist()
            for v, stride in zip(scope, strides, strict=True):
                if v in local:
                    steps = stride * np.arange(s.cardinalities[v])
                    at = (at[:, None] + steps).ravel()
                else:
                    links.append((row, v, stride))
            scopes.append([local[v] for v in scope if v in local])
            entries.append(at)
            sizes.append(len(at))
        self.entries, self.sizes = np.concatenate(entries), np.array(sizes, dtype=np.int64)
        rows, touched, strides = np.array(links, dtype=np.int64).reshape(-1, 3).T
        self.rows, self.touched, self.strides = rows, touched, strides
        self.around = np.unique(touched)
        self.structure = Structure(s.cardinalities[sums], scopes) if len(sums) else None
        self.known: dict[bytes, float] = {}
        self.is_exact = True
        if self.structure is not None:
            self._prepare(limits)

    def _prepare(self, limits: Limits) -> None:
        tree, s = elimination_oracle(), self.structure
        assert s is not None
        if float(np.log(s.cardinalities.astype(float)).sum()) > SMALL:
            quickly = limits._replace(planning=search_budget(ORDER))
            verdict = tree.estimate(s, "marginals", quickly)
            self.is_exact = verdict.is_accepted and verdict.seconds <= LONG

    @cached_property
    def wiring(self) -> tuple[Any, ...]:
        """Index arrays for the kernels, built at first use."""
        assert self.structure is not None
        plan = elimination_oracle().plan(self.structure)
        return plan, elimination_oracle().workspace(plan), np.zeros(len(plan.order), dtype=np.int64)

    def tables(self, labels: Ints) -> Floats:
        """Return the tables of the component, given the labels of the others."""
        steps = np.bincount(
            self.rows, weights=self.strides * labels[self.touched], minlength=len(self.sizes)
        )
        return self.flat[self.entries + np.repeat(steps.astype(np.int64), self.sizes)]

    def value(self, labels: Ints) -> float:
        """Return the log of the sum, from a cache if possible."""
        key = labels[self.around].tobytes()
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= KEPT:
                self.known.clear()
            found = self.known[key] = self._value(self.tables(labels))
        return found

    def _value(self, tables: Floats) -> float:
        if self.structure is None:
            return float(tables.sum())
        plan, room, nowhere = self.wiring
        return float(passes.upward_sum(plan, tables, *room, nowhere, False))


class SumsGiven:
    """Evaluate labels of the kept variables, and search for better ones."""

    def __init__(self, graph: FactorGraph, is_kept: Mask, limits: Limits):
        s, found = graph.structure, Parts.of(graph.structure, is_kept)
        self.cards, self.kept = graph.cardinalities, np.flatnonzero(is_kept)
        places = found.structure.scope_offsets[:-1]
        summed = np.minimum.reduceat(found.structure.scopes, places) if len(places) else places
        members = _grouped(found.sums, found.part)
        factors = _grouped(found.factors, found.part[summed])
        alone = np.empty(0, dtype=np.int64)
        self.parts = [Part(graph, members[p], factors.get(p, alone), limits) for p in members]
        for f in np.setdiff1d(np.arange(s.n_factors), found.factors).tolist():
            self.parts.append(Part(graph, alone, np.array([f]), limits))
        self.holders: list[list[Part]] = [[] for _ in range(s.n_variables)]
        for part in self.parts:
            for v in part.around.tolist():
                self.holders[v].append(part)

    @property
    def is_exact(self) -> bool:
        """Whether all sums are cheap enough to compute."""
        return all(part.is_exact for part in self.parts)

    def value(self, labels: Ints) -> float:
        """Return the log of the sum with these labels of the kept variables."""
        return math.fsum(part.value(labels) for part in self.parts)

    def _around(self, labels: Ints, v: int) -> float:
        return math.fsum(part.value(labels) for part in self.holders[v])

    def climb(
        self,
        labels: Ints,
        rng: np.random.Generator,
        deadline: float,
        variables: Ints | None = None,
    ) -> bool:
        """Change one label at a time while the value rises; return whether it converged."""
        still, order = 0, rng.permutation(self.kept if variables is None else variables)
        while still < len(order):
            for v in order.tolist():
                if clock.now() >= deadline:
                    return False
                still = 0 if self._improve(labels, v) else still + 1
                if still >= len(order):
                    break
        return True

    def _improve(self, labels: Ints, v: int) -> bool:
        """Set one variable to its best state, all others fixed; return whether it changed."""
        old = int(labels[v])
        best, state = self._around(labels, v), old
        slack = 1e-12 * max(1.0, abs(best)) if best > -math.inf else 0.0
        for x in range(int(self.cards[v])):
            if x == old:
                continue
            labels[v] = x
            found = self._around(labels, v)
            if found > best + slack:
                best, state = found, x
        labels[v] = state
        return state != old


def _grouped(items: Ints, group: Ints) -> dict[int, Ints]:
    """Return the items of each group."""
    order = np.argsort(group, kind="stable")
    names, starts = np.unique(group[order], return_index=True)
    return dict(zip(names.tolist(), np.split(items[order], starts[1:]), strict=bool(len(names))))
