"""Core: the part of a graph without evidence, and the translation of results.

Observed variables are sliced out of every table, and factors that have no variable left
become one constant. Oracles see only what remains, and need no notion of evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cliquewise.graph.structure import Structure
from cliquewise.ragged import Floats, Ints, Ragged, offsets_of

if TYPE_CHECKING:
    from cliquewise.graph.factor_graph import FactorGraph
    from cliquewise.oracles.results import MapResult

INFEASIBLE = (
    "every labeling has probability zero (Z = 0): the forbidden combinations"
    " (or the evidence) contradict each other"
)


@dataclass(frozen=True, eq=False)
class Core:
    """A graph without evidence and constants, and the translation of its results."""

    original: FactorGraph
    graph: FactorGraph
    free: Ints
    kept: Ints
    constant: float

    @classmethod
    def of(cls, graph: FactorGraph) -> Core:
        """Slice the observed variables and the constants out of ``graph``."""
        s = graph.structure
        n, m = s.n_variables, s.n_factors
        if graph._evidence is None and not s.has_constants:
            return cls(graph, graph, np.arange(n), np.arange(m), 0.0)
        evidence = np.full(n, -1, dtype=np.int64) if graph._evidence is None else graph._evidence
        free = np.flatnonzero(evidence < 0)
        renumber = np.full(n, -1, dtype=np.int64)
        renumber[free] = np.arange(len(free))
        scopes, owners = renumber[s.scopes], np.repeat(np.arange(m), s.orders)
        left = np.bincount(owners[scopes >= 0], minlength=m)
        kept = np.flatnonzero(left)
        structure = Structure.from_arrays(
            s.cardinalities[free], scopes[scopes >= 0], offsets_of(left[kept])
        )
        entries, sizes = _entries(s, evidence)
        tables, has_variables = graph.tables[entries], np.repeat(left > 0, sizes)
        core = graph.from_structure(structure, tables[has_variables])
        return cls(graph, core, free, kept, math.fsum(tables[~has_variables].tolist()))

    @property
    def is_whole(self) -> bool:
        """Whether the core is the original graph."""
        return self.graph is self.original

    def translate(self, want: str, answer: Any) -> Any:
        """Translate the result of a question about the core to the original graph."""
        if self.is_whole:
            return answer
        if want == "map":
            return self._labeling(answer)
        if want == "top_k":
            return [self._labeling(a) for a in answer]
        if want == "sample":
            return self._labels(answer)
        error = self._rounding(answer.value)
        if want == "max_marginals":
            nodes = self._nodes(answer.nodes.flat, -np.inf, answer.value + self.constant)
            nodes.flat[self._free_entries()] += self.constant
            value = answer.value + self.constant
            return replace(answer, nodes=nodes, value=value, rounding=answer.rounding + error)
        lower, upper = (bound + self.constant for bound in answer.log_z_bounds)
        return replace(
            answer,
            nodes=self._nodes(answer.nodes.flat, 0.0, 1.0),
            factors=self._factors(answer.factors),
            log_z=answer.log_z + self.constant,
            log_z_bounds=(lower - error, upper + error),
            rounding=answer.rounding + error,
        )

    def _rounding(self, value: float) -> float:
        """Return the rounding error of adding the constant."""
        return float(np.finfo(np.float64).eps) * (abs(value) + 2.0 * abs(self.constant))

    def _labels(self, free_labels: Ints) -> Ints:
        rows = np.atleast_2d(free_labels)
        full = np.zeros((len(rows), self.original.n_variables), dtype=np.int64)
        if self.original._evidence is not None:
            full[:] = self.original._evidence
        full[:, self.free] = rows
        return full if free_labels.ndim == 2 else full[0]

    def _labeling(self, answer: MapResult) -> MapResult:
        error = self._rounding(answer.score)
        bound = answer.upper_bound + self.constant
        return replace(
            answer,
            labels=self._labels(answer.labels),
            score=answer.score + self.constant,
            upper_bound=bound if answer.exact else bound + error,
            rounding=answer.rounding + error,
            info=shift_steps(answer.info, lambda value: value + self.constant),
        )

    def _free_entries(self) -> Ints:
        s = self.original.structure
        is_free = np.zeros(s.n_variables, dtype=bool)
        is_free[self.free] = True
        return np.flatnonzero(np.repeat(is_free, s.cardinalities))

    def _nodes(self, free_flat: Floats, absent: float, present: float) -> Ragged:
        """Return node tables of all variables; observed ones have ``present`` at their state."""
        s = self.original.structure
        flat = np.full(int(s.node_offsets[-1]), absent)
        flat[self._free_entries()] = free_flat
        for variable, state in self.original.evidence.items():
            flat[s.node_offsets[variable] + state] = present
        return Ragged(flat, s.node_offsets)

    def _factors(self, kept_factors: Ragged) -> Ragged:
        s = self.original.structure
        flat = np.zeros(int(s.table_offsets[-1]))
        full = Ragged(flat, s.table_offsets, s.shape)
        evidence = self.original._evidence
        if evidence is None:
            evidence = np.full(s.n_variables, -1, dtype=np.int64)
        entries, sizes = _entries(s, evidence)
        is_kept = np.zeros(s.n_factors, dtype=bool)
        is_kept[self.kept] = True
        has_variables = np.repeat(is_kept, sizes)
        flat[entries[has_variables]] = kept_factors.flat
        flat[entries[~has_variables]] = 1.0
        return full


def shift_steps(info: dict[str, Any], shift: Callable[[float], float]) -> dict[str, Any]:
    """Translate the scores and bounds of the steps that a method reports.

    Examples
    --------
    >>> shift_steps({"steps": [{"method": "icm", "score": 1.0, "bound": 2.0}]}, lambda x: x + 3)
    {'steps': [{'method': 'icm', 'score': 4.0, 'bound': 5.0}]}
    """
    if "steps" not in info:
        return info
    steps = [
        {**step, "score": shift(step["score"]), "bound": shift(step["bound"])}
        for step in info["steps"]
    ]
    return {**info, "steps": steps}


def _entries(s: Structure, evidence: Ints) -> tuple[Ints, Ints]:
    """Return the table entries that agree with the evidence, and their number per table."""
    first, owners = s.scope_offsets[:-1], np.repeat(np.arange(s.n_factors), s.orders)
    observed = evidence[s.scopes]
    shifts = np.where(observed < 0, 0, observed) * s.strides
    start = s.table_offsets[:-1] + np.bincount(owners, shifts, s.n_factors).astype(np.int64)
    cards = np.where(observed < 0, s.cardinalities[s.scopes], 1)
    touched = np.bincount(owners[observed >= 0], minlength=s.n_factors) > 0
    sizes = np.diff(s.table_offsets)
    sizes[touched] = 1
    for axis in range(s.max_order):
        long = np.flatnonzero(touched & (s.orders > axis))
        sizes[long] *= cards[first[long] + axis]
    owner = np.repeat(np.arange(s.n_factors), sizes)
    rest = np.arange(len(owner)) - offsets_of(sizes)[owner]
    entries = start[owner] + rest  # of a table without observed variables, these are all
    sliced = np.flatnonzero(touched[owner])
    owner, rest, at = owner[sliced], rest[sliced], start[owner[sliced]]
    for axis in reversed(range(s.max_order)):
        place = np.minimum(first + axis, max(len(cards) - 1, 0))
        card = np.where(s.orders > axis, cards[place], 1)[owner]
        at += rest % card * s.strides[place][owner]
        rest //= card
    entries[sliced] = at
    return entries, sizes
