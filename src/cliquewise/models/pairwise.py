"""PairwiseModel: weights of graphs, shared by all nodes and edges of a type.

A clique of type t with features x scores its state s by ``sum_f x_f w[base_t + f * params_t +
tie_t(s)]``. The tie maps states to weights: each state of a node has a separate weight; an edge
has a full table, a symmetric one, one weight for equal labels (Potts), or one weight for both ends
having their last label (co-occurrence, for labels that are on or off).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError
from cliquewise.graph.structure import Structure
from cliquewise.ragged import Floats, Ints, offsets_of

PAIRWISE = ("table", "symmetric", "potts", "co-occurrence")


@dataclass(frozen=True, eq=False)
class PairwiseModel:
    """The layout of the weights, and the linear map from weights to scores.

    Parameters
    ----------
    cardinalities : sequence of int
        Number of labels of each node type.
    n_features, n_edge_features : int
        Without constant features. Edges without features have a constant one.
    pairwise : {"table", "symmetric", "potts", "co-occurrence"}
    intercept : bool
        Adds a constant feature to nodes, and to edges that have features.
    pairs : sequence of (int, int), optional
        Types of the two ends of each edge type, smaller first; all pairs by default.

    Examples
    --------
    >>> model = PairwiseModel([3], 4, pairwise="potts")
    >>> model.dimension                        # (4 features + intercept) x 3 labels + 1
    16
    """

    cardinalities: Sequence[int]
    n_features: int
    n_edge_features: int = 0
    pairwise: str = "table"
    intercept: bool = True
    pairs: Any = None
    pair_list: Ints = field(init=False)

    def __post_init__(self) -> None:
        if self.pairwise not in PAIRWISE:
            raise DataError(f"pairwise is one of {', '.join(PAIRWISE)}, not {self.pairwise!r}")
        t = len(self.cardinalities)
        listed = self.pairs
        if listed is None:
            a, b = np.triu_indices(t)
            listed = np.stack([a, b], axis=1)
        array = np.asarray(listed, dtype=np.int64).reshape(-1, 2)
        object.__setattr__(self, "pair_list", array)
        cards = np.asarray(self.cardinalities, dtype=np.int64)
        unequal = cards[array[:, 0]] != cards[array[:, 1]]
        if self.pairwise in ("symmetric", "potts") and unequal.any():
            i, j = array[int(np.argmax(unequal))]
            raise DataError(
                f"pairwise={self.pairwise!r} needs equal numbers of labels, but node types {i} and "
                f'{j} have {cards[i]} and {cards[j]}; use pairwise="table"'
            )

    # ---- layout

    @property
    def n_node_types(self) -> int:
        """Number of node types."""
        return len(self.cardinalities)

    @property
    def node_columns(self) -> int:
        """Number of features of a node, including the constant one."""
        return self.n_features + int(self.intercept)

    @property
    def edge_columns(self) -> int:
        """Number of features of an edge, including the constant one."""
        if self.n_edge_features == 0:
            return 1
        return self.n_edge_features + int(self.intercept)

    @cached_property
    def _ties(self) -> list[Ints]:
        cards = np.asarray(self.cardinalities, dtype=np.int64)
        made: dict[tuple[int, int], Ints] = {}
        out = [np.arange(k) for k in cards]
        for i, j in self.pair_list:
            shape = (int(cards[i]), int(cards[j]))
            if shape not in made:
                made[shape] = _tie(self.pairwise, *shape)
            out.append(made[shape])
        return out

    @cached_property
    def layout(self) -> dict[str, Any]:
        """Arrays over clique types (node types, then edge types) for the kernels."""
        ties = self._ties
        params = np.array([int(t.max(initial=-1)) + 1 for t in ties], dtype=np.int64)
        columns = np.full(len(ties), self.edge_columns)
        columns[: self.n_node_types] = self.node_columns
        starts = offsets_of(params * columns)
        sizes = np.array([len(t) for t in ties])
        spread = {id(t): _spread(t) for t in ties}
        return {
            "base": starts[:-1],
            "params": params,
            "tie_start": offsets_of(sizes)[:-1],
            "plain": params == sizes,
            "tie": np.concatenate([np.empty(0, dtype=np.int64), *ties]).astype(np.int32),
            "dimension": int(starts[-1]),
            "spread": np.array([spread[id(t)] for t in ties]),
        }

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return int(self.layout["dimension"])

    def unary(self, w: Floats, node_type: int = 0) -> Floats:
        """Return the (features, labels) weights of a node type; the last row is the intercept."""
        k, at = int(self.cardinalities[node_type]), int(self.layout["base"][node_type])
        return w[at : at + self.node_columns * k].reshape(self.node_columns, k)

    def tables(self, w: Floats, pair: int = 0) -> Floats:
        """Return the (edge features, k_i, k_j) tables of an edge type."""
        t = self.n_node_types + pair
        tie, params = self._ties[t], int(self.layout["params"][t])
        at = int(self.layout["base"][t])
        block = w[at : at + self.edge_columns * params].reshape(self.edge_columns, params)
        padded = np.concatenate([block, np.zeros((self.edge_columns, 1))], axis=1)
        i, j = self.pair_list[pair]
        return padded[:, tie].reshape(-1, int(self.cardinalities[i]), int(self.cardinalities[j]))

    # ---- scores, and the adjoint

    def potentials(self, w: Floats, data: Any) -> Floats:
        """Return the scores of all states of all cliques: nodes first, then edges.

        Parameters
        ----------
        w : array (dimension)
        data : GraphDataset, or its :meth:`cliques`
            The latter avoids compiling the cliques again.

        Examples
        --------
        >>> data = GraphDataset.from_examples([([[1.0], [3.0]], [(0, 1)])])
        >>> model = PairwiseModel([2], 1, pairwise="potts", intercept=False)
        >>> model.potentials(np.array([1.0, 2.0, 5.0]), data)
        array([1., 2., 3., 6., 5., 0., 0., 5.])
        """
        from cliquewise._kernels.cliques.features import all_scores

        g = self.cliques(data) if isinstance(data, GraphDataset) else data
        out = np.empty(int(g.offsets[-1]))
        all_scores(g, w, out)
        return out

    def accumulate(self, mu: Floats, data: Any, out: Floats) -> None:
        """Add ``B mu`` to ``out``: features times mean parameters, the adjoint of ``potentials``.

        Examples
        --------
        >>> data = GraphDataset.from_examples([([[1.0], [3.0]], [(0, 1)])])
        >>> model, out = PairwiseModel([2], 1, pairwise="potts", intercept=False), np.zeros(3)
        >>> model.accumulate(np.array([1.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0]), data, out)
        >>> out
        array([2.5, 1.5, 0.5])
        """
        from cliquewise._kernels.cliques.features import accumulate

        accumulate(self.cliques(data) if isinstance(data, GraphDataset) else data, mu, out)

    # ---- the cliques of a data set

    def states(self, data: GraphDataset) -> Ints:
        """Number of labels of every node."""
        return np.asarray(self.cardinalities, dtype=np.int64)[data.node_types]

    def cliques(self, data: GraphDataset, cost: Floats | None = None) -> Any:
        """Return the arrays of a data set for the kernels; missing labels become 0."""
        from cliquewise._kernels.cliques.features import Cliques

        edges, types = self.oriented(data)
        cards = self.states(data)
        sizes = np.concatenate([cards, cards[edges[:, 0]] * cards[edges[:, 1]]])
        messages = cards[edges].sum(axis=1)
        labels = np.zeros(data.n_nodes, dtype=np.int64) if data.labels is None else data.labels
        truth = [labels, labels[edges[:, 0]] * cards[edges[:, 1]] + labels[edges[:, 1]]]
        rows, indptr, indices, values = self._features(data)
        part = self.layout
        return Cliques(
            offsets_of(sizes), np.concatenate([data.node_types, types]).astype(np.int32),
            rows, indptr, indices, values, part["base"], part["params"], part["tie_start"],
            part["plain"], part["tie"], np.ascontiguousarray(edges[:, 0]),
            np.ascontiguousarray(edges[:, 1]), offsets_of(messages)[:-1],
            np.bincount(edges.ravel(), minlength=data.n_nodes).astype(np.float64),
            np.concatenate(truth), np.empty(0) if cost is None else cost,
        )  # fmt: skip

    def oriented(self, data: GraphDataset) -> tuple[Ints, Ints]:
        """Return the edges with the smaller node type first, and their clique types."""
        types = data.node_types
        if len(types) and int(types.max()) >= self.n_node_types:
            raise DataError(
                f"{data.place(int(np.argmax(types)))}: node type {types.max()} does not occur "
                "in training"
            )
        ends = types[data.edges]
        flip = ends[:, 0] > ends[:, 1]
        edges = np.where(flip[:, None], data.edges[:, ::-1], data.edges)
        ends = np.sort(ends, axis=1)
        n = self.n_node_types
        numbers = np.full(n * n, -1, dtype=np.int64)
        numbers[self.pair_list @ np.array([n, 1])] = np.arange(len(self.pair_list))
        pair = numbers[ends @ np.array([n, 1])]
        if len(pair) and pair.min() < 0:
            raise DataError(f"an edge joins node types {ends[int(np.argmin(pair))].tolist()}")
        return edges, pair + n

    def _features(self, data: GraphDataset) -> tuple[Ints, Ints, Ints, Floats]:
        """Return the features of nodes and edges as one CSR matrix, and the row of each clique."""
        if data.features.shape[1] != self.n_features:
            raise DataError(
                f"the nodes have {data.features.shape[1]} features, the model has {self.n_features}"
            )
        given = 0 if data.edge_features is None else data.edge_features.shape[1]
        if given != self.n_edge_features and data.n_edges:
            raise DataError(
                f"the edges have {given} features, the model has {self.n_edge_features}"
            )
        nodes = _with_constant(data.features) if self.intercept else data.features
        own = np.arange(data.n_nodes) if data.rows is None else data.rows
        if self.n_edge_features == 0 or data.edge_features is None:
            on_edges = csr_matrix(np.ones((1, 1)))
            rows = np.full(data.n_edges, nodes.shape[0])
        else:
            on_edges = _with_constant(data.edge_features) if self.intercept else data.edge_features
            rows = nodes.shape[0] + np.arange(data.n_edges)
        indptr = np.concatenate([nodes.indptr, nodes.indptr[-1] + on_edges.indptr[1:]])
        return (
            np.concatenate([own, rows]).astype(np.int64),
            indptr.astype(np.int64),
            np.concatenate([nodes.indices, on_edges.indices]).astype(np.int64),
            np.concatenate([nodes.data, on_edges.data]).astype(np.float64),
        )

    def structures(self, data: GraphDataset) -> list[Structure]:
        """Return the structure of every example (nodes, then edges); equal graphs share one."""
        edges, _ = self.oriented(data)
        cards = self.states(data)
        seen: dict[tuple[bytes, bytes], Structure] = {}
        out = []
        for i in range(len(data)):
            first, last = int(data.node_offsets[i]), int(data.node_offsets[i + 1])
            local = edges[data.edge_offsets[i] : data.edge_offsets[i + 1]] - first
            key = (cards[first:last].tobytes(), local.tobytes())
            if key not in seen:
                n = last - first
                scopes = np.concatenate([np.arange(n), local.ravel()])
                orders = np.concatenate([np.ones(n, np.int64), np.full(len(local), 2)])
                seen[key] = Structure.from_arrays(cards[first:last], scopes, offsets_of(orders))
            out.append(seen[key])
        return out


def _tie(pairwise: str, ki: int, kj: int) -> Ints:
    if pairwise == "table":
        return np.arange(ki * kj)
    a, b = np.divmod(np.arange(ki * kj), kj)
    if pairwise == "co-occurrence":
        return np.where((a == ki - 1) & (b == kj - 1), 0, -1)
    if pairwise == "potts":
        return np.where(a == b, 0, -1)
    low, high = np.minimum(a, b), np.maximum(a, b)
    return np.asarray(low * ki - low * (low - 1) // 2 + (high - low))


def _spread(tie: Ints) -> float:
    """Return the largest ``||T d||^2 / ||d||^2``; T sums the entries that share a weight."""
    counts = np.bincount(tie[tie >= 0])
    return float(counts.max(initial=0))


def _with_constant(matrix: csr_matrix) -> csr_matrix:
    return csr_matrix(hstack([matrix, np.ones((matrix.shape[0], 1))], format="csr"))
