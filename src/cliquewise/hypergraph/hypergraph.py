"""Hypergraph: the topology of a dynamic program, and inference over its derivations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import ArrayLike

from cliquewise._kernels.hypergraph import best as best_kernels
from cliquewise._kernels.hypergraph import sums
from cliquewise.errors import DataError, GraphError, InfeasibleError, TooLargeError
from cliquewise.ragged import Floats, Ints, offsets_of

#: Bytes that a search for the K best derivations may allocate, unless the caller sets a limit.
MAX_MEMORY = 4 * 2**30
#: A derivation may have this many edges per node of the hypergraph (shared nodes are repeated).
MAX_EDGES_PER_NODE = 64


@dataclass(frozen=True)
class Derivation:
    """One derivation of the root.

    Attributes
    ----------
    score : float
        Sum of the scores of its edges.
    edges : int array
        The edges it uses in preorder: each before those below it, tails from first to last.
    parts : int array
        The parts of these edges, without edges that have none.
    """

    score: float
    edges: Ints
    parts: Ints


@dataclass(frozen=True)
class HypergraphMarginals:
    """The distribution over derivations, with probability proportional to exp(score).

    Attributes
    ----------
    log_z : float
        Log of the sum over all derivations, exact up to rounding.
    parts : float array
        Expected number of times that each part is used; its probability if a derivation uses a
        part at most once. This is the gradient of ``log_z``.
    edges, nodes : float array
        The same for edges and nodes.
    entropy : float
        Entropy of the distribution, in nats.
    """

    log_z: float
    parts: Floats
    edges: Floats
    nodes: Floats
    entropy: float


class Hypergraph:
    """A directed acyclic hypergraph whose derivations are the outputs of a dynamic program.

    A node is a partial result. A hyperedge is a way to build its head from its tails, and adds the
    score of a part. A derivation of the root picks one edge into the root, one edge into each of
    its tails, and so on. An edge without tails starts a derivation. The topology is immutable and
    separate from the scores, so it can be shared by many examples.

    Parameters
    ----------
    heads : array-like of int, shape (n_edges,)
        Head of each edge, in ascending order. Nodes are numbered so that every tail is smaller than
        its head; the root is the last node.
    tails : sequence of sequences of int
        Tails of each edge.
    parts : array-like of int, shape (n_edges,), optional
        The part whose score each edge adds, or -1 for none; several edges may share a part. By
        default every edge is a part.
    n_parts : int, optional
        Number of parts; by default one more than the largest.

    See Also
    --------
    Hypergraph.from_edges : Build from nodes with arbitrary names in any order.
    cliquewise.hypergraph.segmentations : Segmentations of a sequence.
    cliquewise.hypergraph.projective_trees : Projective dependency trees of a sentence.

    References
    ----------
    Huang and Chiang (2005). Better k-best parsing. IWPT.

    Li and Eisner (2009). First- and second-order expectation semirings. EMNLP.

    Examples
    --------
    Two ways to split a sequence of two tokens, as one segment or as two:

    >>> import numpy as np
    >>> from cliquewise.hypergraph import Hypergraph
    >>> splits = Hypergraph([0, 1, 2, 2], [[], [0], [1], [0]])
    >>> scores = np.array([0.0, 1.0, 1.0, 1.5])
    >>> splits.best(scores).edges
    array([2, 1, 0])
    >>> splits.marginals(scores).parts.round(3)
    array([1.   , 0.622, 0.622, 0.378])
    """

    def __init__(
        self,
        heads: ArrayLike,
        tails: Sequence[Sequence[int]],
        parts: ArrayLike | None = None,
        n_parts: int | None = None,
    ):
        sizes = np.array([len(t) for t in tails], dtype=np.int64)
        flat = np.array([v for t in tails for v in t], dtype=np.int64)
        self._set(np.asarray(heads), flat, offsets_of(sizes), parts, n_parts)

    @classmethod
    def from_arrays(
        cls,
        heads: ArrayLike,
        tails: ArrayLike,
        tail_offsets: ArrayLike,
        parts: ArrayLike | None = None,
        n_parts: int | None = None,
    ) -> Hypergraph:
        """Build from flat arrays: edge ``e`` has ``tails[tail_offsets[e]:tail_offsets[e + 1]]``.

        Examples
        --------
        >>> Hypergraph.from_arrays([0, 1], [0], [0, 0, 1]).n_edges
        2
        """
        self = cls.__new__(cls)
        flat, offsets = np.array(tails, dtype=np.int64), np.array(tail_offsets, dtype=np.int64)
        self._set(np.asarray(heads), flat, offsets, parts, n_parts)
        return self

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[Hashable, Sequence[Hashable], int]],
        root: Hashable,
        n_parts: int | None = None,
    ) -> Hypergraph:
        """Build from triples (head, tails, part) with any names, in any order.

        Edges that cannot be part of a derivation of ``root`` are dropped.

        Examples
        --------
        >>> edges = [("end", ["a"], 0), ("a", [], 1), ("unused", ["a"], 2)]
        >>> Hypergraph.from_edges(edges, root="end").parts
        array([1, 0])
        """
        by_head: dict[Hashable, list[tuple[Sequence[Hashable], int]]] = {}
        for head, below, part in edges:
            by_head.setdefault(head, []).append((below, part))
        needed, new = {root}, [root]
        while new:
            for below, _ in by_head.get(new.pop(), ()):
                new += [t for t in dict.fromkeys(below) if t not in needed]
                needed.update(below)
        ancestors = {v: {t for below, _ in by_head.get(v, ()) for t in below} for v in needed}
        try:
            order = list(TopologicalSorter(ancestors).static_order())
        except CycleError as error:
            raise GraphError(f"the hypergraph has a cycle: {error.args[1]}") from None
        order.sort(key=lambda v: v == root)  # the root comes last; nothing needed is above it
        number = {v: i for i, v in enumerate(order)}
        heads, tails, parts = [], [], []
        for v in order:
            for below, part in by_head.get(v, ()):
                heads.append(number[v])
                tails.append([number[t] for t in below])
                parts.append(part)
        self = cls(heads, tails, parts, n_parts)
        if self.n_nodes != len(order):
            raise InfeasibleError(f"{root!r} has no derivation: no edge leads to it")
        return self

    def _set(
        self,
        heads: Ints,
        tails: Ints,
        tail_offsets: Ints,
        parts: ArrayLike | None,
        n_parts: int | None,
    ) -> None:
        heads = np.array(heads, dtype=np.int64)
        n_edges = len(heads)
        if heads.ndim != 1 or n_edges == 0:
            raise GraphError("a hypergraph needs at least one edge, and heads as a flat list")
        if (
            len(tail_offsets) != n_edges + 1
            or tail_offsets[0] != 0
            or tail_offsets[-1] != len(tails)
            or (np.diff(tail_offsets) < 0).any()
        ):
            raise GraphError(
                f"tail offsets must rise from 0 to {len(tails)}, with one entry more than edges"
            )
        if (np.diff(heads) < 0).any() or heads[0] < 0:
            raise GraphError("edges must be in ascending order of their heads; see from_edges")
        owner = np.repeat(heads, np.diff(tail_offsets))
        if ((tails < 0) | (tails >= owner)).any():
            bad = int(np.argmax((tails < 0) | (tails >= owner)))
            raise GraphError(
                f"tail {tails[bad]} of an edge into node {owner[bad]} must be a smaller node; "
                "see from_edges"
            )
        own = np.arange(n_edges) if parts is None else np.array(parts, dtype=np.int64)
        count = int(own.max()) + 1 if n_parts is None else int(n_parts)
        if own.shape != (n_edges,) or own.min() < -1 or own.max() >= count:
            raise GraphError(f"parts must be {n_edges} numbers from -1 to {count - 1}")
        self.n_nodes, self.n_edges, self.n_parts = int(heads[-1]) + 1, n_edges, count
        self.heads, self.tails, self.tail_offsets, self.parts = heads, tails, tail_offsets, own
        self._slots = np.where(own < 0, count, own)  # the last slot holds a score of zero
        self.edge_offsets: Ints = np.searchsorted(heads, np.arange(self.n_nodes + 1))
        for array in (heads, tails, tail_offsets, own, self._slots, self.edge_offsets):
            array.setflags(write=False)
        self._topology = (self.edge_offsets, self.tail_offsets, self.tails)

    @property
    def root(self) -> int:
        """The last node."""
        return self.n_nodes - 1

    def __repr__(self) -> str:
        return f"Hypergraph({self.n_nodes} nodes, {self.n_edges} edges, {self.n_parts} parts)"

    # ---- inference

    def best(self, scores: ArrayLike) -> Derivation:
        """Return the derivation with the highest score.

        Parameters
        ----------
        scores : array-like of float, shape (n_parts,)
            Score of each part; ``-inf`` forbids it.

        Raises
        ------
        InfeasibleError
            If every derivation uses a forbidden part.
        """
        checked = self._checked(scores)
        _, chosen = self._viterbi(checked)
        stack = self._stack()
        found = np.empty(len(stack), dtype=np.int64)
        count = best_kernels.follow(
            self.tail_offsets, self.tails, chosen, self.root, stack[:, 0].copy(), found
        )
        return self._derivation(checked, found, count)

    def log_partition(self, scores: ArrayLike) -> float:
        """Return the log of the sum over all derivations of exp(score)."""
        beta, _ = self._inside(self._checked(scores))
        return float(beta[self.root])

    def marginals(self, scores: ArrayLike) -> HypergraphMarginals:
        """Return log Z, expected counts of parts, edges and nodes, and the entropy."""
        beta, local = self._inside(self._checked(scores))
        nodes, edges = np.zeros(self.n_nodes), np.empty(self.n_edges)
        nodes[self.root], parts = 1.0, np.zeros(self.n_parts + 1)
        sums.outside(*self._topology, self._slots, local, nodes, edges, parts)
        entropy = float(sums.entropy(self.edge_offsets, nodes, local))
        return HypergraphMarginals(float(beta[self.root]), parts[:-1], edges, nodes, entropy)

    def kl_divergence(self, scores: ArrayLike, other: ArrayLike) -> float:
        """Return the Kullback-Leibler divergence KL(p || q) of the distributions of two scores.

        Examples
        --------
        >>> coin = Hypergraph([0, 0], [[], []])
        >>> round(coin.kl_divergence([0.0, 0.0], [1.0, 0.0]), 4)
        0.1201
        """
        _, first = self._inside(self._checked(scores))
        _, second = self._inside(self._checked(other))
        nodes, edges = np.zeros(self.n_nodes), np.empty(self.n_edges)
        nodes[self.root], parts = 1.0, np.zeros(self.n_parts + 1)
        sums.outside(*self._topology, self._slots, first, nodes, edges, parts)
        return float(sums.divergence(self.edge_offsets, nodes, first, second))

    def top_k(
        self, scores: ArrayLike, k: int, *, max_memory: float = MAX_MEMORY
    ) -> list[Derivation]:
        """Return the ``k`` best derivations, best first, or all if there are fewer.

        Raises
        ------
        TooLargeError
            If the search would need more than ``max_memory`` bytes.

        Examples
        --------
        >>> splits = Hypergraph([0, 1, 2, 2], [[], [0], [1], [0]])
        >>> [d.score for d in splits.top_k([0.0, 1.0, 1.0, 1.5], 5)]
        [2.0, 1.5]
        """
        if not (isinstance(k, int | np.integer) and k >= 1):
            raise DataError(f"k = {k!r}; it must be a whole number of at least 1")
        checked = self._checked(scores)
        delta, chosen = self._viterbi(checked)
        arity = max(1, int(np.diff(self.tail_offsets).max()))
        starts = offsets_of(np.diff(self.edge_offsets) + k * arity)
        room = int(starts[-1])
        memory = room * 8.0 * (3 + arity) + self.n_nodes * 8.0 * (k + 6)
        if memory > max_memory:
            raise TooLargeError(
                f"the {k} best derivations need {memory / 2**30:.3g} GiB "
                f"(max_memory = {max_memory / 2**30:.3g} GiB)", memory, 0.0,
            )  # fmt: skip
        sizes, counts, pending = np.empty((3, self.n_nodes), dtype=np.int64)
        search = best_kernels.Search(
            starts=starts,
            edges=np.empty(room, dtype=np.int64),
            ranks=np.zeros((room, arity), dtype=np.int64),
            keys=np.empty(room),
            heap=np.empty(room, dtype=np.int64),
            ranked=np.empty((self.n_nodes, k), dtype=np.int64),
            counts=counts,
            sizes=sizes,
            pending=pending,
            stack=np.empty((self.n_nodes + 1, 2), dtype=np.int64),
        )
        n = best_kernels.top_k(
            *self._topology, self._slots, checked, delta, self.root, int(k), search
        )
        stack = self._stack()
        found, result = np.empty(len(stack), dtype=np.int64), []
        for rank in range(n):
            count = best_kernels.follow_ranked(
                self.tail_offsets, self.tails, search, self.root, rank, chosen, stack, found
            )
            result.append(self._derivation(checked, found, count))
        return result

    def sample(
        self, scores: ArrayLike, n: int, random_state: int | np.random.Generator | None = None
    ) -> list[Derivation]:
        """Draw ``n`` independent derivations from the distribution.

        Examples
        --------
        >>> coin = Hypergraph([0, 0], [[], []])
        >>> draws = coin.sample([0.0, 0.0], 1000, random_state=0)
        >>> 450 < sum(int(d.edges[0]) for d in draws) < 550
        True
        """
        checked = self._checked(scores)
        _, local = self._inside(checked)
        rng = np.random.default_rng(random_state)
        stack = self._stack()[:, 0].copy()
        found, result = np.empty(len(stack), dtype=np.int64), []
        for seed in rng.integers(0, 2**63, n).astype(np.uint64):
            count = sums.sample(*self._topology, local, self.root, seed, stack, found)
            result.append(self._derivation(checked, found, count))
        return result

    # ---- shared steps

    def _checked(self, scores: ArrayLike) -> Floats:
        checked = np.ascontiguousarray(scores, dtype=np.float64).ravel()
        if len(checked) != self.n_parts:
            raise DataError(f"{len(checked)} scores for {self.n_parts} parts")
        if np.isnan(checked).any() or (checked == np.inf).any():
            raise DataError("scores must be numbers or -inf; they hold NaN or inf")
        return np.append(checked, 0.0)

    def _viterbi(self, scores: Floats) -> tuple[Floats, Ints]:
        delta, chosen = np.empty(self.n_nodes), np.empty(self.n_nodes, dtype=np.int64)
        best_kernels.best(*self._topology, self._slots, scores, delta, chosen)
        self._check_feasible(delta)
        return delta, chosen

    def _inside(self, scores: Floats) -> tuple[Floats, Floats]:
        beta, local = np.empty(self.n_nodes), np.empty(self.n_edges)
        sums.inside(*self._topology, self._slots, scores, beta, local)
        self._check_feasible(beta)
        return beta, local

    def _check_feasible(self, values: Floats) -> None:
        if values[self.root] == -np.inf:
            raise InfeasibleError("every derivation of the root uses a forbidden part")

    def _stack(self) -> Ints:
        """Return scratch that holds the edges of one derivation."""
        return np.empty((MAX_EDGES_PER_NODE * self.n_nodes + 8, 2), dtype=np.int64)

    def _derivation(self, scores: Floats, found: Ints, count: int) -> Derivation:
        if count < 0:
            raise TooLargeError(
                "the derivation uses shared nodes so often that it has more than "
                f"{len(found)} edges", 8.0 * len(found), 0.0,
            )  # fmt: skip
        edges = found[:count].copy()
        score, parts = float(scores[self._slots[edges]].sum()), self.parts[edges]
        return Derivation(score, edges, parts[parts >= 0])
