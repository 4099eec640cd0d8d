"""ClusterProblem: an objective whose sums over the examples are made by a cluster.

The solvers, the loop around them and the certificate are those of one machine. What the client asks
in a round is the loss and its gradient of every partition, at the weights of that partition.
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

#: How well each partition is solved by itself for a start, and the passes that may take.
START_TOL, START_PASSES = 1e-2, 10


class ClusterProblem(Problem):
    """The sum of the problems of all partitions, with one penalty.

    Parameters
    ----------
    cluster : Cluster
    parts : list of Future
        Of :class:`~cliquewise.distributed.partition.Part`.
    places, rows : sequences
        Those of every part, for the client.
    like : Problem
        The same problem without examples: it knows the weights.
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
        # Sums of the parts are one more sum of that many; each summand was rounded SUM times.
        more = 1.0 + len(found) / SUM
        self._summands *= more
        self._doubts = by_row * more, fsum(s.rounding_terms[1] for s in found)

    # ---- sizes

    @property
    def n_examples(self) -> int:
        """Number of examples of all partitions."""
        return self._n

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return self.like.dimension

    @property
    def vector_size(self) -> int:
        """As on one machine."""
        return self.like.vector_size

    @property
    def is_convex(self) -> bool:
        """Whether the problems of all partitions are."""
        return self._is_convex

    @property
    def lower_bound(self) -> float:
        """Mean cost of the true outputs."""
        return self._lower_bound

    # ---- values

    def losses_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """One round: the partitions' sums, added in their order whichever worker was first."""
        found = self.cluster.each_with(losses_and_gradient, self.parts, w, self._own(w))
        self.rounds += 1
        self.cluster.received += sum(slope.nbytes for _, slope in found)
        total = np.zeros(self.dimension)
        for (_, slope), places in zip(found, self.places, strict=True):
            places.add(slope, total)
        return fsum(loss for loss, _ in found), total

    def _own(self, w: Floats) -> Any:
        """What each part needs of the weights, unless sending all to every worker is less."""
        workers = len(self.cluster.baseline)
        if sum(places.size for places in self.places) > workers * self.dimension:
            return None
        return lambda p: self.places[p].take(w)

    def start(self) -> Floats:
        """Weights to start from: the mean of what partitions find best, by weight.

        A weight's mean is over the partitions that have it.
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
        """As on one machine."""
        return self.like.largest_by_row(w)

    @property
    def weight_error_scale(self) -> Floats:
        """Those of all partitions."""
        return self._summands

    @property
    def rounding_terms(self) -> tuple[Floats, float]:
        """Those of all partitions."""
        return self._doubts

    # ---- who it is

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """What the partitions are, one by one."""
        assert n == self.n_examples, "a part of the examples is not known by itself"
        for found in self._prints:
            for name, digest in sorted(found.digests.items()):
                if name != "loss":
                    yield name, np.frombuffer(digest.encode(), dtype=np.uint8)
