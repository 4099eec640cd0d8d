"""Local search on pairwise graphs: simulated annealing, and exact moves of regions."""

from __future__ import annotations

import math

import numpy as np

from cliquewise._kernels import clock
from cliquewise.oracles._pairwise import Pairwise
from cliquewise.ragged import Ints

#: Sweeps of one annealing, and proposals at most (large graphs get fewer sweeps).
SWEEPS, MAX_PROPOSALS = 3000, 10_000_000
#: Proposals per second where variables have few neighbors; where time is limited it is measured,
#: with so many proposals.
PACE, TRIAL = 3e7, 20_000
#: Not worth while with fewer sweeps.
FEWEST_SWEEPS = 10
#: All annealings end at this temperature, in units of the spread of a variable's score given
#: its neighbors.
COLD = 0.04
#: Entries of the tables of a move: at least one edge's, within these bounds.
SMALL_TABLE, LARGE_TABLE = 2**14, 2**20
#: How often a variable is in a move, on average, before a labeling counts as improved.
PASSES = 10
#: Moves between two looks at the clock.
AT_ONCE = 10


class LocalSearch:
    """Improve labelings of one graph; forbidden entries get a large finite penalty."""

    def __init__(self, pairwise: Pairwise):
        t = self.topology = pairwise.topology
        finite = pairwise.tables[np.isfinite(pairwise.tables)]
        alone = pairwise.nodes[np.isfinite(pairwise.nodes)]
        steep = 3.0 * sum(float(np.ptp(a)) for a in (finite, alone) if len(a)) + 1.0
        finite_numbers = (np.maximum(a, -steep) for a in (pairwise.nodes, pairwise.tables))
        self.graph = Pairwise(t, *finite_numbers).arrays
        degree = 2.0 * t.n_edges / max(1, t.n_nodes)
        spread = float(finite.std()) * math.sqrt(degree) if len(finite) else 0.0
        self.scale = spread or 1.0
        largest = int(np.diff(t.edge_offsets).max(initial=1))
        self.limit = min(max(largest, SMALL_TABLE), LARGE_TABLE)
        self.reach = np.full(1, 50.0)
        self.pace = 0.0

    def anneal(self, labels: Ints, hot: float, seconds: float, seed: int) -> Ints:
        """Return the best labeling found while cooling down from ``hot``."""
        from cliquewise._kernels.graphs.icm import anneal

        t = self.topology
        proposals = float(MAX_PROPOSALS)
        if math.isfinite(seconds):
            proposals = min(proposals, self._pace(labels, hot) * seconds)
        if proposals < FEWEST_SWEEPS * t.n_nodes:
            return labels
        sweeps = int(np.clip(proposals / max(1, t.n_nodes), FEWEST_SWEEPS, SWEEPS))
        # Neither way of cooling wins on all graphs: they take turns.
        cool = np.linspace if seed % 2 else np.geomspace
        heat = self.scale * cool(hot, COLD, sweeps)
        current, best = labels.copy(), labels.copy()
        anneal(heat, seed, current, best, -np.inf, self.graph)
        return best

    def _pace(self, labels: Ints, hot: float) -> float:
        """Return proposals per second, measured once."""
        from cliquewise._kernels.graphs.icm import anneal

        if not self.pace:
            n = max(1, self.topology.n_nodes)
            heat = np.full(max(1, TRIAL // n), self.scale * hot)
            begin = clock.now()
            anneal(heat, 1, labels.copy(), labels.copy(), -np.inf, self.graph)
            self.pace = n * len(heat) / max(clock.now() - begin, 1e-6)
        return self.pace

    def improve(self, labels: Ints, seconds: float, seed: int) -> Ints:
        """Make exact moves of random regions, for at most so many seconds."""
        from cliquewise._kernels.cliques.block_moves import block_moves

        t, deadline = self.topology, clock.now() + seconds
        improved, rng, made = labels.copy(), np.random.default_rng(seed), 0
        while made * self.reach[0] < PASSES * t.n_nodes and clock.now() < deadline:
            seed = int(rng.integers(2**31))
            block_moves(AT_ONCE, self.limit, self.reach, seed, improved, self.graph)
            made += AT_ONCE
        return improved
