"""Support: the states that may occur in a labeling of positive probability.

A state that some factor rules out by itself (all entries with it are ``-inf``) is taken out of
every table, which may rule out others, and so on. What is left is a smaller graph with the same
distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.structure import Structure
from cliquewise.ragged import Floats, Ints, Ragged, offsets_of

if TYPE_CHECKING:
    from cliquewise.graph.factor_graph import FactorGraph


@dataclass(frozen=True, eq=False)
class Support:
    """A graph without impossible states, and the translation of its results."""

    original: FactorGraph
    graph: FactorGraph
    states: list[Ints]

    @classmethod
    def of(cls, graph: FactorGraph) -> Support:
        """Remove states until each has a possible entry in every table of its variable."""
        s = graph.structure
        alive = _consistent(graph)
        states = [np.flatnonzero(a) for a in alive]
        if all(a.all() for a in alive):
            return cls(graph, graph, states)
        tables = [
            graph.table(f)[np.ix_(*(states[v] for v in s.scope(f).tolist()))].ravel()
            if len(s.scope(f))
            else graph.table(f).ravel()
            for f in range(s.n_factors)
        ]
        cards = np.array([len(x) for x in states])
        smaller = Structure.from_arrays(cards, s.scopes, s.scope_offsets)
        flat = np.concatenate([np.empty(0), *tables])
        return cls(graph, graph.from_structure(smaller, flat), states)

    @property
    def determined(self) -> dict[int, int]:
        """Variables of the smaller graph that have a single state."""
        return {v: 0 for v, x in enumerate(self.states) if len(x) == 1}

    def translate(self, want: str, answer: Any) -> Any:
        """Translate a result to the original graph."""
        if self.graph is self.original:
            return answer
        if want == "map":
            labels = [x[label] for x, label in zip(self.states, answer.labels, strict=True)]
            return replace(answer, labels=np.array(labels, dtype=np.int64))
        s = self.original.structure
        return replace(
            answer,
            nodes=self._nodes(answer.nodes.flat),
            factors=Ragged(self._factors(answer.factors), s.table_offsets, s.shape),
        )

    def _nodes(self, flat: Floats) -> Ragged:
        s = self.original.structure
        out = np.zeros(int(s.node_offsets[-1]))
        starts = offsets_of([len(x) for x in self.states])[:-1]
        at = np.concatenate([np.empty(0, dtype=np.int64), *self.states])
        at = at + np.repeat(s.node_offsets[:-1], np.diff(np.append(starts, len(at))))
        out[at] = flat
        return Ragged(out, s.node_offsets)

    def _factors(self, factors: Ragged) -> Floats:
        s = self.original.structure
        flat = np.zeros(int(s.table_offsets[-1]))
        full = Ragged(flat, s.table_offsets, s.shape)
        for f in range(s.n_factors):
            scope = s.scope(f).tolist()
            full[f][np.ix_(*(self.states[v] for v in scope)) if scope else ()] = factors[f]
        return flat


def _consistent(graph: FactorGraph) -> list[NDArray[np.bool_]]:
    """Return the states of each variable with a possible entry in every table."""
    s = graph.structure
    alive = [np.ones(k, dtype=bool) for k in s.cardinalities.tolist()]
    scopes = [s.scope(f).tolist() for f in range(s.n_factors)]
    holders: list[list[int]] = [[] for _ in alive]
    for f, scope in enumerate(scopes):
        for v in scope:
            holders[v].append(f)
    possible = graph.tables > -np.inf
    spans = list(pairwise(s.table_offsets.tolist()))
    ruling = (f for f, span in enumerate(spans) if not possible[slice(*span)].all())
    waiting = dict.fromkeys(ruling)
    while waiting:
        f = next(iter(waiting))
        del waiting[f]
        scope = scopes[f]
        table = possible[slice(*spans[f])].reshape(s.shape(f))
        for axis, v in enumerate(scope):
            if not alive[v].all():
                shape = [-1 if k == axis else 1 for k in range(len(scope))]
                table = table & alive[v].reshape(shape)
        if not table.any():
            raise InfeasibleError(INFEASIBLE)
        for axis, v in enumerate(scope):
            others = tuple(k for k in range(len(scope)) if k != axis)
            seen = np.asarray(table.any(axis=others))
            if seen.sum() < alive[v].sum():
                alive[v] = seen
                waiting |= dict.fromkeys(g for g in holders[v] if g != f)
    return alive
