"""Gibbs sampling with several chains: marginals with standard errors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from scipy.special import stdtrit

from cliquewise._kernels import clock
from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._factor_messages import bethe
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles._trw import log_sum_of
from cliquewise.oracles.base import ESTIMATE, Limits, Oracle, Question, Verdict
from cliquewise.oracles.icm import climb, flat_factors
from cliquewise.oracles.mini_buckets import good_labels
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MarginalResult
from cliquewise.ragged import Floats, Ints

#: Part of the sweeps of each chain that are not counted.
BURN_IN = 0.2
#: Sweeps that are tried before fewer are made than were asked for.
TRIALS = 4
#: Sweeps between two draws of one chain, and before its first.
THIN, FIRST_DRAW = 20, 200
#: Seconds for a search where a start breaks rules.
SEARCH = 2.0


@register
class Gibbs(Oracle):
    """Gibbs sampling with several chains: frequencies with standard errors, no guarantee."""

    name = "gibbs"
    provides: ClassVar[frozenset[Question]] = frozenset({"marginals", "sample"})
    exact = False
    guarantee = ESTIMATE
    rank = 310

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Count the factors of each variable in every sweep."""
        s = graph.structure
        return Verdict.accept(1e-3 + 2000 * sweep_seconds(s), 16.0 * s.table_offsets[-1])

    def marginals(
        self,
        graph: FactorGraph,
        sweeps: int = 2000,
        restarts: int = 8,
        seconds: float | None = None,
        random_state: Any = 0,
    ) -> MarginalResult:
        """Compute the frequencies of the states over several chains.

        Parameters
        ----------
        graph : FactorGraph
            Where entries are forbidden, chains start from possible labelings; changing one
            variable at a time may not reach all others (``info["may_miss_states"]``).
        sweeps : int, default=2000
            Draws of every variable in each chain; the first fifth is not counted.
        restarts : int, default=8
            Chains, at least two, from different labelings.
        seconds : float, optional
            Time limit: chains are shorter where they would take longer.
        random_state : int or Generator, default=0

        Returns
        -------
        MarginalResult
            Frequencies. ``info["standard_errors"]`` has one number per state, from the variance
            between the chains, which is large if chains stay in different modes. The interval of
            1.96 standard errors to both sides has a coverage of 95 %. ``log_z`` is Bethe's
            estimate at the frequencies; its bounds are a sum over the sampled labelings, and all
            tables at their largest entries. No bound is certified.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [((0, 1), [[1.0, 0.0], [0.0, 1.0]])])
        >>> found = g.marginals("gibbs")
        >>> bool(abs(found.nodes[0][0] - 0.5) < 0.05), "may_miss_states" in found.info
        (True, True)
        """
        if sweeps < 1 or restarts < 2:
            raise UnsupportedError(
                f"sweeps = {sweeps}, restarts = {restarts}; at least one and two are needed"
            )
        begin = clock.now()
        s, rng = graph.structure, np.random.default_rng(random_state)
        starts = _starts(graph, restarts, rng, None if seconds is None else SEARCH)
        chains = Chains(graph, starts, rng)
        count = sweeps
        if seconds is not None:
            count = chains.affordable(sweeps, seconds - (clock.now() - begin))
        chains.run(max(1, int(BURN_IN * count)))
        nodes = np.zeros((restarts, int(s.node_offsets[-1])))
        entries = np.zeros(int(s.table_offsets[-1]))
        chains.run(count, nodes, entries)
        nodes /= count
        mean, factors = nodes.mean(axis=0), entries / (count * restarts)
        # A state that no chain has met may still be possible.
        errors = np.maximum(nodes.std(axis=0, ddof=1), 1.0 / count) / math.sqrt(restarts)
        errors *= normal_factor(restarts)
        met = np.unique(np.concatenate([starts, chains.labels]), axis=0)
        lower = log_sum_of([float(v) for v in graph.score(met)])
        upper = table_bound(graph) + float(np.log(graph.cardinalities.astype(float)).sum())
        info = {
            "standard_errors": errors,
            "sweeps": count,
            "chains": restarts,
            "may_miss_states": bool(np.isneginf(graph.tables).any()),
        }
        value = min(max(bethe(graph, mean, factors), lower), upper)
        return MarginalResult.from_flat(
            graph, mean, factors, value, self.name, (lower, upper),
            bounds_certified=(False, False), info=info,
        )  # fmt: skip

    def sample(
        self, graph: FactorGraph, n: int, rng: np.random.Generator, chains: int = 8, **options: Any
    ) -> Ints:
        """Return states of a few chains, twenty sweeps apart: approximate and dependent."""
        rows = np.zeros((n, graph.n_variables), dtype=np.int64)
        if n:
            count = min(chains, n)
            several = Chains(graph, _starts(graph, count, rng, None), rng)
            several.run(FIRST_DRAW)
            for at in range(0, n, count):
                several.run(THIN)
                rows[at : at + count] = several.labels[: min(count, n - at)]
        return rows


def normal_factor(chains: int) -> float:
    """Return the ratio of the 97.5 % quantiles of Student's t (chains - 1) and the normal.

    It makes an interval of 1.96 standard errors from few chains cover 95 %.

    Examples
    --------
    >>> round(normal_factor(8), 3)
    1.206
    """
    return float(stdtrit(chains - 1, 0.975) / stdtrit(np.inf, 0.975))


def sweep_seconds(structure: Structure, chains: int = 8) -> float:
    """Return the estimated time of one sweep of all chains."""
    looks = float((structure.orders * structure.orders).sum()) + len(structure.scopes)
    return chains * 1e-8 * looks


class Chains:
    """Several Markov chains, resampled variable by variable."""

    def __init__(self, graph: FactorGraph, labels: Ints, rng: np.random.Generator):
        self.graph, self.labels, self.rng = graph, labels.copy(), rng
        self.factors = graph.structure.once(flat_factors)

    def run(self, sweeps: int, nodes: Floats | None = None, entries: Floats | None = None) -> None:
        """Sweep all chains; ``nodes`` has one row of counts per chain, ``entries`` sums them."""
        from cliquewise._kernels.graphs.gibbs import gibbs

        none, offsets = np.empty(0), self.graph.structure.node_offsets
        for k, row in enumerate(self.labels):
            gibbs(
                sweeps, int(self.rng.integers(1, 2**31)), row, offsets,
                none if nodes is None else nodes[k], none if entries is None else entries,
                self.factors, self.graph.tables,
            )  # fmt: skip

    def affordable(self, sweeps: int, seconds: float) -> int:
        """Return the number of sweeps within a time limit, at most ``sweeps``.

        Copies are tried, so that answers are the same however often; and some of them, since one
        may have waited for another thread.
        """
        least = np.inf
        for _ in range(TRIALS):
            copies = Chains(self.graph, self.labels, np.random.default_rng(0))
            begin = clock.now()
            copies.run(1)
            least = min(least, (1.0 + BURN_IN) * (clock.now() - begin))
            if sweeps * least <= seconds:
                return sweeps
        return max(1, int(seconds / max(least, 1e-9)))


def _starts(
    graph: FactorGraph, count: int, rng: np.random.Generator, seconds: float | None
) -> Ints:
    """Return random start labelings; a search replaces those of probability zero."""
    rows = rng.integers(0, graph.cardinalities, (count, graph.n_variables))
    known: Ints | None = None
    for k, row in enumerate(rows):
        if graph.score(row) > -np.inf:
            continue
        rows[k], _ = climb(graph, row, 100)
        if graph.score(rows[k]) > -np.inf:
            continue
        if known is None:
            uniform = np.repeat(1.0 / graph.cardinalities, graph.cardinalities)
            known = good_labels(graph, uniform, seconds)
            if graph.score(known) == -np.inf:
                raise UnsupportedError(
                    "gibbs found no labeling of positive probability to start from; an exact MAP "
                    "method may (toulbar2, junction-tree)"
                )
        rows[k] = known
    return np.asarray(rows)
