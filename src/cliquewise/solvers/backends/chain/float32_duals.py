"""SDCA on chains in single precision: half the memory, and certificates in double precision.

The scores define a distribution, and they are exact numbers in any type. For every certificate,
weights, marginals and entropies are recomputed from them in float64, some sequences at a time.
Rounding errors in the visits may cost more steps, but do not affect certificates.
"""

from __future__ import annotations

from itertools import pairwise
from math import fsum
from typing import Any, ClassVar

import numpy as np

from cliquewise.problems.base import between as in_threads
from cliquewise.problems.rounding import Bound
from cliquewise.solvers.backends.chain.duals import ChainDuals, between

#: Tokens whose distributions are in memory in double precision at a time.
SECTION_TOKENS = 1 << 14


class Float32Duals(ChainDuals):
    """Dual distributions of all sequences and their weights, in float32."""

    dtype: ClassVar[type[np.floating]] = np.float32

    _proven: Bound

    def refresh(self) -> None:
        from cliquewise._kernels.chain import sdca

        self._rebuild_trees()
        problem, w = self.problem, self.form.zeros()
        entropy, sizes, largest = np.zeros((3, problem.n_examples))
        masses: list[tuple[float, float]] = [(0.0, 0.0)]
        for start, end in pairwise(self._sections()):
            chains, duals = self._doubled(start, end)

            def part(
                first: int, last: int, at: int = start, c: Any = chains, d: Any = duals
            ) -> tuple[float, float]:
                own = between(c, d, first, last)
                here = slice(at + first, at + last)
                sdca.infer_all(*own)
                sdca.entropies(*own, entropy[here], sizes[here])
                sdca.largest_scores(*own, largest[here])
                return sdca.wrong_mass(own[0], own[1].mu)  # type: ignore[no-any-return]

            shares = np.linspace(0, end - start, max(problem.n_jobs, 1) + 1).astype(int)
            masses += in_threads(sorted({*shares.tolist()}), part)
            given = chains, duals, self._strength, w
            problem.over_attributes(lambda *rows, g=given: sdca.weights_of_duals(*g, *rows))
        self.w[:] = w
        w *= self.gamma
        wrong, cost = (fsum(parts) for parts in zip(*masses, strict=True))
        self._proven = self._bound(largest, (entropy, sizes), (wrong, cost), w)

    def bound(self) -> Bound:
        return self._proven

    def _sections(self) -> list[int]:
        """Return where to cut the sequences, so that few are in memory in double precision."""
        offsets, n = self.problem.data.offsets, self.problem.n_examples
        marks = np.searchsorted(offsets, np.arange(SECTION_TOKENS, offsets[-1], SECTION_TOKENS))
        return sorted({0, *marks.tolist(), n})

    def _doubled(self, first: int, last: int) -> tuple[Any, Any]:
        """Return some of the sequences and the scores of their distributions in float64."""
        chains, duals, offsets = self.problem.chains, self.arrays, self.problem.chains.offsets
        tokens = slice(offsets[first], offsets[last])
        rows = duals.edge_row[first:last]
        linked = rows[rows >= 0]
        tables = slice(linked[0], linked[-1] + 1) if len(linked) else slice(0, 0)
        theta, edges = (
            np.asarray(part, dtype=np.float64)
            for part in (duals.theta[tokens], duals.theta_edges[tables])
        )
        n = last - first
        own = duals._replace(
            theta=theta, theta_edges=edges, mu=np.empty_like(theta), mu_edges=np.empty_like(edges),
            log_z=np.empty(n), gaps=np.empty(n), tree=np.empty(0),
            edge_row=np.where(rows >= 0, rows - tables.start, -1),
        )  # fmt: skip
        return chains._replace(
            offsets=offsets[first : last + 1] - offsets[first],
            indptr=chains.indptr[offsets[first] : offsets[last] + 1],
            labels=chains.labels[tokens], weights=chains.weights[first:last],
            allowed=chains.allowed[tokens] if len(chains.allowed) else chains.allowed,
            costs=chains.costs[tokens] if len(chains.costs) else chains.costs,
        ), own  # fmt: skip
