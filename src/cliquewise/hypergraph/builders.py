"""Hypergraphs of common dynamic programs.

Each function returns the topology for one size of the input and documents how its parts are
numbered. Topologies are immutable and cached by size.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np

from cliquewise.errors import DataError
from cliquewise.hypergraph.hypergraph import Hypergraph

#: Topologies that are kept per function.
CACHED = 128
#: Larger topologies are refused.
MAX_EDGES = 20_000_000
#: The part of edges without a score.
FREE = -1
#: Tails and part of an edge.
Edge = tuple[tuple[int, ...], int]


class _EdgeList:
    """Edges in flat lists; a new node starts with each call of :meth:`node`."""

    def __init__(self) -> None:
        self.heads: list[int] = []
        self.tails: list[int] = []
        self.offsets: list[int] = [0]
        self.parts: list[int] = []
        self.n_nodes = 0

    def node(self, *edges: Edge) -> int:
        """Add a node with edges (tails, part); return its number."""
        for below, part in edges:
            self.heads.append(self.n_nodes)
            self.tails.extend(below)
            self.offsets.append(len(self.tails))
            self.parts.append(part)
        self.n_nodes += 1
        return self.n_nodes - 1

    def hypergraph(self, n_parts: int) -> Hypergraph:
        return Hypergraph.from_arrays(self.heads, self.tails, self.offsets, self.parts, n_parts)


def _check_sizes(n_edges: float, **sizes: int) -> None:
    """Raise an error for sizes below 1 and for topologies that are too large."""
    for name, size in sizes.items():
        is_whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if not (is_whole and size >= 1):
            raise DataError(f"{name} = {size!r}; it must be a whole number of at least 1")
    if n_edges > MAX_EDGES:
        raise DataError(
            f"the hypergraph would have {n_edges:.3g} edges; the limit is {MAX_EDGES:.3g}"
        )


@lru_cache(CACHED)
def segmentations(length: int, max_length: int, n_labels: int) -> Hypergraph:
    """Return the labeled segmentations of a sequence (a semi-Markov chain).

    The scores are an array of shape (length, max_length, n_labels) for segments, by first token,
    number of tokens minus one, and label, followed by an array of shape (n_labels, n_labels) for
    transitions between the labels of adjacent segments.

    Parameters
    ----------
    length : int
        Number of tokens.
    max_length : int
        Largest number of tokens of a segment.
    n_labels : int

    References
    ----------
    Sarawagi and Cohen (2004). Semi-Markov conditional random fields for information extraction.
    NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from cliquewise.hypergraph import segmentations
    >>> graph = segmentations(3, max_length=2, n_labels=1)
    >>> round(float(np.exp(graph.log_partition(np.zeros(graph.n_parts)))))  # 1+1+1, 1+2, 2+1
    3
    """
    n_edges = length * n_labels * (min(max_length, length) + n_labels)
    _check_sizes(n_edges, length=length, max_length=max_length, n_labels=n_labels)
    edges, labels = _EdgeList(), range(n_labels)
    first_transition = length * max_length * n_labels
    # begins[t][k]: segmentations of the tokens before t, before a segment with label k
    begins = [[edges.node(((), FREE)) for _ in labels]]
    ends: list[int] = []
    for t in range(1, length + 1):
        ends = [
            edges.node(*(
                ((begins[t - size][k],), ((t - size) * max_length + size - 1) * n_labels + k)
                for size in range(1, min(max_length, t) + 1)
            ))
            for k in labels
        ]  # fmt: skip
        if t < length:
            begins.append([
                edges.node(*(
                    ((ends[before],), first_transition + before * n_labels + k)
                    for before in labels
                ))
                for k in labels
            ])  # fmt: skip
    edges.node(*(((end,), FREE) for end in ends))
    return edges.hypergraph(first_transition + n_labels * n_labels)


@lru_cache(CACHED)
def projective_trees(length: int, single_root: bool = True) -> Hypergraph:
    """Return the projective dependency trees of a sentence (Eisner's algorithm).

    The scores are an array of shape (length + 1, length + 1): the arc from head ``h`` to modifier
    ``m``, where the tokens are 1 to ``length`` and 0 is the root. Arcs into 0 are not used.

    Parameters
    ----------
    length : int
        Number of tokens.
    single_root : bool, default=True
        Whether exactly one token has the root as its head.

    References
    ----------
    Eisner (1996). Three new probabilistic models for dependency parsing. COLING.

    Examples
    --------
    >>> import numpy as np
    >>> from cliquewise.hypergraph import projective_trees
    >>> graph = projective_trees(3)
    >>> round(float(np.exp(graph.log_partition(np.zeros(graph.n_parts)))))
    7
    >>> arcs = graph.best(np.arange(16.0)).parts
    >>> sorted((int(a // 4), int(a % 4)) for a in arcs)          # (head, modifier)
    [(0, 3), (3, 1), (3, 2)]
    """
    n = length + 1
    _check_sizes(2.0 * n**3 / 3.0, length=length)
    edges = _EdgeList()
    first = 1 if single_root else 0
    # Spans whose head is their left or right end: complete, or waiting for the end of an arc.
    complete_right = {(i, i): edges.node(((), FREE)) for i in range(first, n)}
    complete_left = dict(complete_right)
    open_right: dict[tuple[int, int], int] = {}
    open_left: dict[tuple[int, int], int] = {}
    for width in range(1, n - first):
        for i in range(first, n - width):
            j = i + width
            halves = [(complete_right[i, k], complete_left[k + 1, j]) for k in range(i, j)]
            open_right[i, j] = edges.node(*((pair, i * n + j) for pair in halves))
            if i > 0:
                open_left[i, j] = edges.node(*((pair, j * n + i) for pair in halves))
                complete_left[i, j] = edges.node(*(
                    ((complete_left[i, k], open_left[k, j]), FREE) for k in range(i, j)
                ))  # fmt: skip
            complete_right[i, j] = edges.node(*(
                ((open_right[i, k], complete_right[k, j]), FREE) for k in range(i + 1, j + 1)
            ))  # fmt: skip
    if single_root:
        edges.node(*(((complete_left[1, r], complete_right[r, n - 1]), r) for r in range(1, n)))
    return edges.hypergraph(n * n)


@lru_cache(CACHED)
def span_trees(length: int, n_labels: int = 1) -> Hypergraph:
    """Return the binary trees over a sentence with labeled spans (the CKY algorithm).

    The scores are an array of shape (length, length + 1, n_labels): the span of the tokens
    ``i`` to ``j - 1`` with a label. Every tree has ``2 * length - 1`` spans.

    References
    ----------
    Younger (1967). Recognition and parsing of context-free languages in time n^3.

    Examples
    --------
    >>> import numpy as np
    >>> from cliquewise.hypergraph import span_trees
    >>> graph = span_trees(4)
    >>> round(float(np.exp(graph.log_partition(np.zeros(graph.n_parts)))))  # a Catalan number
    5
    """
    _check_sizes(length**3 / 6.0 + n_labels * length**2 / 2.0, length=length, n_labels=n_labels)
    edges = _EdgeList()
    spans: dict[tuple[int, int], int] = {}
    for width in range(1, length + 1):
        for i in range(length - width + 1):
            j = i + width
            ways: list[Edge] = [((spans[i, k], spans[k, j]), FREE) for k in range(i + 1, j)]
            built = edges.node(*(ways or [((), FREE)]))
            first = (i * (length + 1) + j) * n_labels
            spans[i, j] = edges.node(*(((built,), first + k) for k in range(n_labels)))
    return edges.hypergraph(length * (length + 1) * n_labels)


@lru_cache(CACHED)
def alignments(rows: int, columns: int) -> Hypergraph:
    """Return the monotone alignments of two sequences, with affine gaps.

    The scores are, one after the other: an array of shape (rows, columns) for matches of tokens
    ``i`` and ``j``; an array of shape (rows, columns + 1) for the deletion of ``i`` before ``j``;
    an array of shape (rows + 1, columns) for the insertion of ``j`` before ``i``; and the scores of
    starting a run of deletions and of starting a run of insertions.

    References
    ----------
    Gotoh (1982). An improved algorithm for matching biological sequences. J. Mol. Biol. 162.

    Examples
    --------
    >>> import numpy as np
    >>> from cliquewise.hypergraph import alignments
    >>> graph = alignments(2, 2)
    >>> round(float(np.exp(graph.log_partition(np.zeros(graph.n_parts)))))  # a Delannoy number
    13
    """
    _check_sizes(12.0 * (rows + 1) * (columns + 1), rows=rows, columns=columns)
    deletions = rows * columns
    insertions = deletions + rows * (columns + 1)
    start_deleting = insertions + (rows + 1) * columns
    start_inserting = start_deleting + 1
    edges = _EdgeList()
    start = edges.node(((), FREE))
    # By position: nodes by the last operation (matched, deleted, inserted), where it is possible.
    last: dict[tuple[int, int], tuple[int | None, int | None, int | None]] = {
        (0, 0): (start, None, None)
    }
    may_delete: dict[tuple[int, int], int] = {}
    may_insert: dict[tuple[int, int], int] = {}
    for i, j in product(range(rows + 1), range(columns + 1)):
        if i or j:
            matched = deleted = inserted = None
            if i and j:
                below = [v for v in last[i - 1, j - 1] if v is not None]
                part = (i - 1) * columns + j - 1
                matched = edges.node(*(((v,), part) for v in below))
            if i:
                part, run = deletions + (i - 1) * (columns + 1) + j, last[i - 1, j][1]
                below = [v for v in (run, may_delete.get((i - 1, j))) if v is not None]
                deleted = edges.node(*(((v,), part) for v in below))
            if j:
                part, run = insertions + i * columns + j - 1, last[i, j - 1][2]
                below = [v for v in (run, may_insert.get((i, j - 1))) if v is not None]
                inserted = edges.node(*(((v,), part) for v in below))
            last[i, j] = matched, deleted, inserted
        matched, deleted, inserted = last[i, j]
        before_deleting = [v for v in (matched, inserted) if v is not None]
        if i < rows and before_deleting:
            may_delete[i, j] = edges.node(*(((v,), start_deleting) for v in before_deleting))
        before_inserting = [v for v in (matched, deleted) if v is not None]
        if j < columns and before_inserting:
            may_insert[i, j] = edges.node(*(((v,), start_inserting) for v in before_inserting))
    edges.node(*(((v,), FREE) for v in last[rows, columns] if v is not None))
    return edges.hypergraph(start_inserting + 1)


@lru_cache(CACHED)
def context_chain(length: int, n_labels: int, order: int = 2) -> Hypergraph:
    """Return the labelings of a sequence whose labels depend on the ``order`` labels before them.

    The scores are an array of shape (length, n_labels) for the labels of tokens, followed by arrays
    of shape (n_labels,) * 2, ..., (n_labels,) * (order + 1) for adjacent labels. Only the last of
    these is used from token ``order`` on; the smaller ones score the first tokens.

    Examples
    --------
    >>> import numpy as np
    >>> from cliquewise.hypergraph import context_chain
    >>> graph = context_chain(4, n_labels=2, order=2)
    >>> graph.best(np.r_[np.zeros(8), np.zeros(4), np.arange(8.0)]).score
    14.0
    """
    _check_sizes(
        float(length) * float(n_labels) ** (order + 1),
        length=length,
        n_labels=n_labels,
        order=order,
    )
    edges, labels = _EdgeList(), range(n_labels)
    first = [length * n_labels]  # where the table of each number of preceding labels starts
    for m in range(1, order):
        first.append(first[-1] + n_labels ** (m + 1))
    contexts: dict[tuple[int, ...], int] = {(k,): edges.node(((), k)) for k in labels}
    for t in range(1, length):
        before = min(t, order)
        incoming: dict[tuple[int, ...], list[Edge]] = {}
        for context, node in contexts.items():
            for k in labels:
                history = (*context, k)
                index = 0
                for label in history:
                    index = index * n_labels + label
                kept = history[-order:]
                incoming.setdefault(kept, []).append(((node,), first[before - 1] + index))
        contexts = {}
        for kept, ways in incoming.items():
            scored = edges.node(*ways)
            contexts[kept] = edges.node(((scored,), t * n_labels + kept[-1]))
    edges.node(*(((node,), FREE) for node in contexts.values()))
    sizes = sum(n_labels ** (m + 1) for m in range(1, order + 1))
    return edges.hypergraph(length * n_labels + sizes)
