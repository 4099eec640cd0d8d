"""ShardedChainProblem: chains that lie on disk, of which one part at a time is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.data.shard_cache import ShardCache
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.chain_rounding import ChainRounding, FeatureSizes
from cliquewise.ragged import Floats, Ints

#: Most bytes of a part, and the share of all memory that it may take: a part is visited in about
#: a second, and its pages are read, written and given back while the weights stay.
PART_BYTES, PART_SHARE = 128 << 20, 0.125
#: Chunks of a part: what lies together on disk and is visited in the same part.
CHUNKS = 64
#: Bytes per entry of the features while a part is opened: constant attributes are added.
ENTRY_BYTES = 40


class ShardedChainProblem(ChainRounding):
    """Likelihood or structured hinge loss of chains in a `ShardCache`, with an L2 penalty.

    Parameters
    ----------
    model : ChainModel
    cache : ShardCache
    C : float, default=1.0
    n_jobs : int, default=1
        Threads for passes over all examples of a part.
    loss : {"log", "hinge"}, default="log"
    max_bytes : float, default=infinity
        Memory that may be used.
    resume : bool, default=False
        Whether dual variables that lie in the cache's folder are taken up.
    """

    kind = "shards"
    losses_known = ("log", "hinge")

    def __init__(
        self,
        model: ChainModel,
        cache: ShardCache,
        C: float = 1.0,
        n_jobs: int = 1,
        loss: str = "log",
        max_bytes: float = np.inf,
        resume: bool = False,
    ):
        super().__init__(C, loss, n_jobs)
        self.model, self.cache, self.resume = model, cache, resume
        self.form = model.form(_nothing(model))
        self.has_pair_attributes = model.n_edge_attributes > 0
        most = min(PART_BYTES, PART_SHARE * max_bytes)
        self.chunks_at = self._cut(most / CHUNKS)
        self.cuts_at = self._cut(most)
        for part in self:  # labels that a scheme forbids are refused now
            part.longest  # noqa: B018

    # ---- parts

    def _cut(self, most: float) -> Ints:
        """Where parts begin: each has the examples that fit into so many bytes, at least one."""
        cuts, end = [0], self.n_examples
        total = np.cumsum(self._bytes_of_examples())
        while cuts[-1] < end:
            before = total[cuts[-1] - 1] if cuts[-1] else 0.0
            cut = int(np.searchsorted(total, before + most, side="right"))
            cuts.append(min(max(cut, cuts[-1] + 1), end))
        return np.array(cuts)

    def _bytes_of_examples(self) -> Floats:
        """What each example takes while its part is open: dual variables and features."""
        k, lengths = self.model.n_labels, np.diff(self.cache.offsets)
        links = np.maximum(lengths - 1, 0)
        tables = links if self.has_pair_attributes else np.minimum(links, 1)
        entries = self.cache.n_entries / max(self.cache.n_tokens, 1) + 3
        own = lengths * (16.0 * k + ENTRY_BYTES * entries + 64) + tables * 16.0 * k * k
        return np.asarray(own, dtype=np.float64)

    @property
    def part_bytes(self) -> float:
        """What the largest part takes."""
        cuts = self.cuts_at
        if len(cuts) < 2:
            return 0.0
        return float(np.add.reduceat(self._bytes_of_examples(), cuts[:-1]).max())

    @property
    def dual_bytes(self) -> float:
        """What the dual variables take on disk."""
        k, links = self.model.n_labels, np.maximum(np.diff(self.cache.offsets) - 1, 0)
        tables = links if self.has_pair_attributes else np.minimum(links, 1)
        return 16.0 * (k * self.cache.n_tokens + k * k * float(tables.sum()) + self.n_examples)

    def __len__(self) -> int:
        return len(self.cuts_at) - 1

    def open(self, part: int) -> ChainProblem:
        """One part, as a problem of its own (whose averages are those of its own examples)."""
        return self._problem([(int(self.cuts_at[part]), int(self.cuts_at[part + 1]))])

    def gather(self, chunks: Ints) -> ChainProblem:
        """Some chunks, one after the other, as a problem of its own."""
        return self._problem(self.ranges(chunks))

    def ranges(self, chunks: Ints) -> list[tuple[int, int]]:
        """The examples of each of some chunks."""
        return list(zip(self.chunks_at[chunks].tolist(), self.chunks_at[chunks + 1].tolist()))

    def _problem(self, ranges: list[tuple[int, int]]) -> ChainProblem:
        data = self.cache.read(ranges)
        part = ChainProblem(self.model, data, self.C, None, self.n_jobs, self.loss)
        return part.elastic(self.l1_ratio)

    def __iter__(self) -> Iterator[ChainProblem]:
        return (self.open(part) for part in range(len(self)))

    # ---- sizes

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return self.cache.n_examples

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return self.model.dimension

    @property
    def vector_size(self) -> int:
        """Seen pairs may be packed as rows of all labels."""
        return self.form.size

    @property
    def max_step_examples(self) -> int:
        """Examples of the largest part."""
        return int(np.diff(self.cuts_at).max(initial=1))

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """The data by the digest of their cache, and the model."""
        m = self.model
        yield "features", np.frombuffer(f"{self.cache.digest} {n}".encode(), dtype=np.uint8)
        sizes = np.array([m.n_labels, m.intercept, m.boundaries, m.n_edge_attributes])
        yield "constraints", m.edge_allowed
        yield from (("model", a) for a in (m.pair_start, m.pair_label, m.edge_free, sizes))

    # ---- values

    def total_loss(self, packed: Floats) -> float:
        """The weighted sum of the losses at packed weights."""
        return sum(float(p.chains.weights @ p.packed_losses(packed)) for p in self)

    def losses(self, w: Floats) -> Floats:
        """Loss of every example."""
        packed = self.form.pack(w)
        return np.concatenate([np.empty(0), *(p.packed_losses(packed) for p in self)])

    def primal(self, w: Floats) -> float:
        """The objective."""
        return self.penalized(w, self.total_loss(self.form.pack(w)))

    def primal_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The objective and the gradient of all of it but the L1 norm."""
        total, gradient = 0.0, self.penalty.ridge * w
        for part in self:
            loss, slope = part.losses_and_gradient(w)
            total += loss
            slope /= max(self.n_examples, 1)
            gradient += slope
        return self.penalized(w, total), gradient

    # ---- rounding

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return int(np.diff(self.cache.offsets).max(initial=0))

    @cached_property
    def heaviest(self) -> float:
        """The largest weight of a sequence."""
        return max((p.heaviest for p in self), default=0.0)

    @cached_property
    def _sums(self) -> tuple[FeatureSizes, float, int]:
        """Features and roundings of all parts, and the largest number of attributes of a token."""
        rows = self.model.n_attributes + 1 + self.model.n_edge_attributes
        sums, rounding_error, entries = np.zeros((4, rows)), 0.0, 0
        for part in self:
            f = part.features
            sums[:2] += f.total, f.deep
            sums[2] = np.maximum(sums[2], f.most)
            sums[3] += f.counts
            rounding_error += part.data_rounding_error
            entries = max(entries, part.most_entries)
        return FeatureSizes(*sums), rounding_error, entries

    @property
    def most_entries(self) -> int:
        """The largest number of attributes of a token and of the pair that ends there."""
        return self._sums[2]

    @property
    def features(self) -> FeatureSizes:
        """Sizes of the features of all tokens, by row."""
        return self._sums[0]

    @property
    def data_rounding_error(self) -> float:
        """Roundings of log partition functions, and of their sum over the sequences."""
        return self._sums[1]


def _nothing(model: ChainModel) -> Dataset:
    """No examples, to know how weights are packed."""
    constant = model.intercept + 2 * model.boundaries
    none = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)
    edges = None
    if model.n_edge_attributes:
        edges = Dataset.trusted(*none, None, model.n_edge_attributes)
    labels = np.empty(0, dtype=np.int32)
    return Dataset.trusted(
        *none, None, model.n_attributes - constant, labels, None, None, edges
    )  # fmt: skip
