"""ClusterProblem: an objective whose sums over examples are computed by a cluster.

Solvers, training loop and certificates are those of one machine. In a round, every partition
computes its loss and gradient at its own weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum
from typing import Any

import numpy as np

from cliquewise.distributed.checks import check_memory
from cliquewise.distributed.cluster import Cluster
from cliquewise.distributed.partition import (
    Places,
    Summary,
    local_solution,
    losses_and_gradient,
    summary,
)
from cliquewise.problems.base import Problem
from cliquewise.problems.rounding import SUM
from cliquewise.ragged import Floats, Ints

#: Tolerance and maximal epochs of the solutions of single partitions, which start the training.
START_TOL, START_PASSES = 1e-2, 10


class ClusterProblem(Problem):
    """The sum of the problems of all partitions, with one penalty.

    Parameters
    ----------
    cluster : Cluster
    parts : list of Future
        Futures of :class:`~cliquewise.distributed.partition.Part`.
    places, rows : sequences
        Positions of weights and rows of every partition.
    like : Problem
        The same problem without examples, for the layout of the weights.
    """

    def __init__(
        self,
        cluster: Cluster,
        parts: Sequence[Any],
        places: Sequence[Places],
        rows: Sequence[Ints],
        like: Problem,
    ):
        self.kind, self.losses_known = like.kind, like.losses_known  # type: ignore[misc]
        super().__init__(like.C, like.loss)
        self.gamma, self.smoother, self.top = like.gamma, like.smoother, like.top
        self.has_pair_attributes = like.has_pair_attributes
        self.cluster, self.like = cluster, like
        self.parts, self.places, self.rows = list(parts), list(places), list(rows)
        self.rounds = 0
        self._take(cluster.each(summary, self.parts))

    def _take(self, found: list[Summary]) -> None:
        workers = self.cluster.client.scheduler_info(n_workers=-1)["workers"]
        limits = {worker: about["memory_limit"] or 0 for worker, about in workers.items()}
        sizes, working = [s.nbytes for s in found], [s.working for s in found]
        check_memory(sizes, working, limits, self.cluster.baseline)
        self._n = sum(s.n_examples for s in found)
        self._is_convex = all(s.is_convex for s in found)
        self._lower_bound = fsum(s.lower_bound for s in found) / max(self._n, 1)
        self._prints = [s.fingerprint for s in found]
        n_rows = len(self.like.weight_error_scale)
        self._summands, by_row = np.zeros(n_rows), np.zeros(n_rows)
        for s, rows in zip(found, self.rows, strict=True):
            self._summands[rows] += s.weight_error_scale
            by_row[rows] += s.rounding_terms[0]
        # Summing the partitions adds rounding errors; each summand was rounded SUM times.
        more = 1.0 + len(found) / SUM
        self._summands *= more
        self._doubts = by_row * more, fsum(s.rounding_terms[1] for s in found)

    # ---- sizes

    @property
    def n_examples(self) -> int:
        """Number of examples in all partitions."""
        return self._n

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return self.like.dimension

    @property
    def vector_size(self) -> int:
        """See :class:`~cliquewise.problems.base.Problem`."""
        return self.like.vector_size

    @property
    def is_convex(self) -> bool:
        """Whether the problems of all partitions are convex."""
        return self._is_convex

    @property
    def lower_bound(self) -> float:
        """Mean cost of the true outputs."""
        return self._lower_bound

    # ---- values

    def losses_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Run one round; sums are added in the order of the partitions, to be reproducible."""
        found = self.cluster.each_with(losses_and_gradient, self.parts, w, self._own(w))
        self.rounds += 1
        self.cluster.received += sum(slope.nbytes for _, slope in found)
        total = np.zeros(self.dimension)
        for (_, slope), places in zip(found, self.places, strict=True):
            places.add(slope, total)
        return fsum(loss for loss, _ in found), total

    def _own(self, w: Floats) -> Any:
        """Return the function that selects a partition's weights, or None to send all weights."""
        workers = len(self.cluster.baseline)
        if sum(places.size for places in self.places) > workers * self.dimension:
            return None
        return lambda p: self.places[p].take(w)

    def start(self) -> Floats:
        """Return weights to start from: the means of the solutions of the partitions.

        Each mean is over the partitions that have the weight.
        """
        total, having = np.zeros(self.dimension), np.zeros(self.dimension)
        found = self.cluster.each(local_solution, self.parts, START_TOL, START_PASSES)
        for own, places in zip(found, self.places, strict=True):
            places.add(own, total)
            places.add(np.ones(places.size), having)
            self.cluster.received += own.nbytes
        return total / np.maximum(having, 1.0)

    # ---- rounding

    def largest_by_row(self, w: Floats) -> Floats:
        """See :class:`~cliquewise.problems.base.Problem`."""
        return self.like.largest_by_row(w)

    @property
    def weight_error_scale(self) -> Floats:
        """Sum over all partitions."""
        return self._summands

    @property
    def rounding_terms(self) -> tuple[Floats, float]:
        """Sum over all partitions."""
        return self._doubts

    # ---- fingerprint

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """Yield the fingerprints of the partitions."""
        assert n == self.n_examples, "only all examples together have a fingerprint"
        for found in self._prints:
            for name, digest in sorted(found.digests.items()):
                if name != "loss":
                    yield name, np.frombuffer(digest.encode(), dtype=np.uint8)
