"""GraphDataset: labeled graphs in flat arrays, from lists of examples or a folder of files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_matrix, csr_matrix, issparse
from scipy.sparse import vstack as stack_rows

from cliquewise.data.formats._packed import MAX_TEXT
from cliquewise.data.matrices import checked_matrix
from cliquewise.errors import DataError, FormatError
from cliquewise.ragged import Ints, gather, offsets_of, owner_of, pointers


@dataclass(frozen=True, eq=False)
class GraphDataset:
    """Graphs with node features, edges and optional edge features, in flat arrays.

    Parameters
    ----------
    node_offsets : int64 array (n_examples + 1)
        Nodes ``node_offsets[i]:node_offsets[i + 1]`` belong to example ``i``.
    edge_offsets : int64 array (n_examples + 1)
        Likewise for edges.
    edges : int64 array (n_edges, 2)
        Ends of each edge, as node numbers within the whole data set.
    features : csr_matrix (rows, n_features)
        Features of the nodes.
    edge_features : csr_matrix (n_edges, n_edge_features) or None
    types : int64 array (n_nodes) or None
        Type of each node, from 0; None if all have the same type.
    rows : int64 array (n_nodes) or None
        The row of `features` of each node; None if each node has its own row.
    labels : int64 array (n_nodes) or None

    Examples
    --------
    >>> data = GraphDataset.from_examples([([[0.5], [1.0]], [(0, 1)])], [[0, 1]])
    >>> len(data), data.n_nodes, data.n_edges
    (1, 2, 1)
    """

    node_offsets: Ints
    edge_offsets: Ints
    edges: Ints
    features: csr_matrix
    edge_features: csr_matrix | None = None
    types: Ints | None = None
    rows: Ints | None = None
    labels: Ints | None = None

    def __post_init__(self) -> None:
        for name in ("node_offsets", "edge_offsets"):
            object.__setattr__(self, name, pointers(getattr(self, name), name))
        if len(self.edge_offsets) != len(self.node_offsets):
            raise DataError(
                "node_offsets and edge_offsets need one number per example and one more"
            )
        self._check_features()
        self._check_nodes()
        if self.edge_offsets[-1] != len(self.edges):
            raise DataError(f"edge_offsets end at {self.edge_offsets[-1]}, not at {self.n_edges}")
        self._check_edges()

    def _check_features(self) -> None:
        whole = self.rows is not None
        features = checked_matrix(self.features, "X", None if whole else self.place)
        object.__setattr__(self, "features", csr_matrix(features))
        if self.edge_features is None:
            return
        on_edges = checked_matrix(self.edge_features, "edge features", self._place_of_edge)
        object.__setattr__(self, "edge_features", csr_matrix(on_edges))
        if on_edges.shape[0] != len(self.edges):
            raise DataError(f"{on_edges.shape[0]} rows of edge features for {self.n_edges} edges")

    def _check_nodes(self) -> None:
        """Check that kernels can use all row numbers, types and labels as indices."""
        if self.rows is None and self.features.shape[0] != self.n_nodes:
            raise DataError(f"{self.features.shape[0]} rows of features for {self.n_nodes} nodes")
        for name, size in (("rows", self.features.shape[0]), ("types", 2**31), ("labels", 2**31)):
            numbers = getattr(self, name)
            if numbers is None:
                continue
            if numbers.shape != (self.n_nodes,) or numbers.dtype.kind not in "iu":
                raise DataError(f"{name} must be {self.n_nodes} integers, one per node")
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
                raise DataError(f"{name} must be in 0..{size - 1}")

    def _check_edges(self) -> None:
        e = self.edges
        if not len(e):
            return
        if e.ndim != 2 or e.shape[1] != 2 or e.dtype.kind not in "iu":
            raise DataError(f"edges must be pairs of node numbers, not {e.dtype}{e.shape}")
        owner = np.repeat(np.arange(len(self)), np.diff(self.edge_offsets))
        low, high = self.node_offsets[owner], self.node_offsets[owner + 1]
        outside = ((e < low[:, None]) | (e >= high[:, None])).any(axis=1)
        if outside.any():
            at = int(np.argmax(outside))
            raise DataError(
                f"{self._edge(at)} has an end that is not a node of its example, which has the "
                f"nodes 0..{high[at] - low[at] - 1}"
            )
        loops = e[:, 0] == e[:, 1]
        if loops.any():
            raise DataError(
                f"{self._edge(int(np.argmax(loops)))} joins a node to itself; remove it and "
                "describe the node by its features"
            )
        codes = np.sort(e, axis=1) @ np.array([self.n_nodes, 1])
        order = np.argsort(codes, kind="stable")
        twice = np.flatnonzero(np.diff(codes[order]) == 0)
        if len(twice):
            raise DataError(
                f"{self._edge(int(order[twice[0] + 1]))} occurs twice; keep one and add up the "
                "features"
            )

    def _edge(self, at: int) -> str:
        i, edge = owner_of(self.edge_offsets, at)
        ends = (self.edges[at] - self.node_offsets[i]).tolist()
        return f"example {i}: edge {edge}, {tuple(ends)},"

    def _place_of_edge(self, at: int) -> str:
        return "example {}, edge {}".format(*owner_of(self.edge_offsets, at))

    def place(self, node: int) -> str:
        """Return the name of a node for error messages."""
        return "example {}, node {}".format(*owner_of(self.node_offsets, node))

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    @property
    def n_nodes(self) -> int:
        """Total number of nodes."""
        return int(self.node_offsets[-1])

    @property
    def n_edges(self) -> int:
        """Total number of edges."""
        return len(self.edges)

    @cached_property
    def node_types(self) -> Ints:
        """Type of every node."""
        return np.zeros(self.n_nodes, dtype=np.int64) if self.types is None else self.types

    def with_labels(self, labels: Ints) -> GraphDataset:
        """Return the same graphs with labels (numbers)."""
        if labels.shape != (self.n_nodes,):
            raise DataError(f"{labels.size} labels for {self.n_nodes} nodes")
        return replace(self, labels=labels.astype(np.int64))

    @classmethod
    def from_examples(cls, examples: Iterable[Any], labels: Any = None) -> GraphDataset:
        """Build from one tuple or dict per example.

        Parameters
        ----------
        examples : iterable
            ``(node_features, edges[, edge_features[, types]])`` each, or dicts with the keys
            ``features``, ``edges``, ``edge_features``, ``types`` (and ``names``, which only
            :meth:`GraphLabeler.graph` uses). Features are 2-D arrays or sparse matrices. Edges are
            (n_edges, 2) or (2, n_edges) node numbers, or a sparse adjacency matrix; an edge may
            occur in both directions if it has no features. Types are integers >= 0, one per node.
        labels : list of int arrays, optional
            Class numbers of the nodes.
        """
        parts = [_Example.of(x, i) for i, x in enumerate(examples)]
        nodes, edges = [p.features.shape[0] for p in parts], [len(p.edges) for p in parts]
        node_offsets, edge_offsets = offsets_of(nodes), offsets_of(edges)
        ends = [p.edges + start for p, start in zip(parts, node_offsets[:-1], strict=True)]
        with_features = [p.edge_features for p in parts if p.edge_features is not None]
        data = cls(
            node_offsets,
            edge_offsets,
            np.concatenate([np.empty((0, 2), dtype=np.int64), *ends]),
            _stack([p.features for p in parts], "node"),
            _edge_matrix(parts) if with_features else None,
            _types(parts),
        )
        if labels is None:
            return data
        flat = [np.asarray(y, dtype=np.int64).ravel() for y in labels]
        if [len(y) for y in flat] != nodes:
            raise DataError(_unequal(nodes, [len(y) for y in flat]))
        return data.with_labels(np.concatenate([np.empty(0, dtype=np.int64), *flat]))

    def induced(self, keep: NDArray[np.bool_]) -> GraphDataset:
        """Return the subgraphs on some of the nodes: these nodes, and the edges between them.

        Examples
        --------
        >>> data = GraphDataset.from_examples([([[1.0], [2.0], [3.0]], [(0, 1), (1, 2)])])
        >>> data.induced(np.array([False, True, True])).edges.tolist()
        [[0, 1]]
        """
        nodes = np.flatnonzero(keep)
        number = np.cumsum(keep) - 1
        edges = np.flatnonzero(keep[self.edges].all(axis=1)) if self.n_edges else np.empty(0, int)
        features = self.features if self.rows is not None else self.features[nodes]
        return GraphDataset(
            np.searchsorted(nodes, self.node_offsets), np.searchsorted(edges, self.edge_offsets),
            number[self.edges[edges]].reshape(-1, 2), features,
            None if self.edge_features is None else self.edge_features[edges],
            None if self.types is None else self.types[nodes],
            None if self.rows is None else self.rows[nodes],
            None if self.labels is None else self.labels[nodes],
        )  # fmt: skip

    def subset(self, chosen: ArrayLike) -> GraphDataset:
        """Return some of the examples, in the given order.

        Examples
        --------
        >>> x = ([[0.5], [1.0]], [(0, 1)])
        >>> len(GraphDataset.from_examples([x, x, x]).subset([0, 2]))
        2
        """
        index = np.asarray(chosen, dtype=np.int64)
        nodes, node_offsets = gather(self.node_offsets, index)
        edges, edge_offsets = gather(self.edge_offsets, index)
        shift = np.repeat(node_offsets[:-1] - self.node_offsets[index], np.diff(edge_offsets))
        rows = nodes if self.rows is None else self.rows[nodes]
        used, new = np.unique(rows, return_inverse=True)
        return GraphDataset(
            node_offsets, edge_offsets, self.edges[edges] + shift[:, None],
            self.features[used] if self.rows is not None else self.features[nodes],
            None if self.edge_features is None else self.edge_features[edges],
            None if self.types is None else self.types[nodes],
            None if self.rows is None else new.astype(np.int64),
            None if self.labels is None else self.labels[nodes],
        )  # fmt: skip


@dataclass(frozen=True)
class _Example:
    features: csr_matrix
    edges: Ints
    edge_features: csr_matrix | None
    types: Ints | None

    @classmethod
    def of(cls, x: Any, i: int) -> _Example:
        if isinstance(x, dict):
            unknown = set(x) - {"features", "edges", "edge_features", "types", "names"}
            if unknown or "features" not in x:
                raise DataError(
                    f"example {i}: its keys must be features, edges, edge_features, types; not "
                    f"{sorted(x)}"
                )
            x = tuple(x.get(k) for k in ("features", "edges", "edge_features", "types"))
        if not isinstance(x, tuple | list) or not 2 <= len(x) <= 4:
            image = isinstance(x, np.ndarray) and x.ndim in (2, 3)
            raise DataError(
                f"example {i} must be (node_features, edges[, edge_features[, types]]), or a dict; "
                + ("cliquewise.data.images.grids makes it of an image" if image else "X lists them")
            )
        features, edges, edge_features, types = (*x, None, None)[:4]
        place = f"example {i}, node {{}}".format
        nodes = csr_matrix(checked_matrix(features, f"example {i}: node features", place))
        pairs = _pairs(edges, i, nodes.shape[0], edge_features is not None)
        on_edges = None
        if edge_features is not None:
            place = f"example {i}, edge {{}}".format
            on_edges = csr_matrix(
                checked_matrix(edge_features, f"example {i}: edge features", place)
            )
            if on_edges.shape[0] != len(pairs):
                raise DataError(
                    f"example {i}: {on_edges.shape[0]} rows of edge features for {len(pairs)} edges"
                )
        numbers = None
        if types is not None:
            numbers = np.asarray(types)
            if numbers.shape != (nodes.shape[0],) or (
                numbers.size and (numbers.dtype.kind not in "iu" or numbers.min() < 0)
            ):
                raise DataError(f"example {i}: types must be one integer >= 0 per node")
            numbers = numbers.astype(np.int64)
        return cls(nodes, pairs, on_edges, numbers)


def _pairs(edges: Any, i: int, n_nodes: int, has_features: bool) -> Ints:
    """Return edges in any accepted form as pairs of node numbers, without reversed duplicates."""
    if issparse(edges):
        return _adjacent_pairs(edges, i, n_nodes, has_features)
    array = np.asarray(() if edges is None else edges)
    if array.ndim == 2 and array.shape[0] == 2 != array.shape[1] and array.dtype.kind in "iu":
        array = array.T  # (2, n_edges), as in PyTorch Geometric
    if array.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        found = f"an array of {array.dtype} of shape {array.shape}"
        hint = "; take edges.astype(int)" if array.dtype.kind == "f" else ""
        if array.ndim == 2 and array.shape[0] == array.shape[1]:
            hint = "; of an adjacency matrix these are np.argwhere(np.triu(matrix, 1))"
        raise DataError(f"example {i}: edges must be pairs of node numbers, not {found}{hint}")
    pairs = array.astype(np.int64)
    return pairs if has_features else _without_reversed(pairs)


def _adjacent_pairs(matrix: Any, i: int, n_nodes: int, has_features: bool) -> Ints:
    """Return the edges of a sparse adjacency matrix; its values must be 0 and 1."""
    if matrix.shape != (n_nodes, n_nodes):
        raise DataError(
            f"example {i}: an adjacency matrix must be {(n_nodes, n_nodes)}, not {matrix.shape}"
        )
    entries = coo_matrix(matrix)
    if has_features or not np.isin(entries.data, (0, 1)).all():
        raise DataError(
            f"example {i}: with edge features, or weights other than 0 and 1, pass edges as pairs"
        )
    pairs = np.stack([entries.row, entries.col], axis=1)[entries.data != 0]
    return _without_reversed(pairs.astype(np.int64))


def _without_reversed(pairs: Ints) -> Ints:
    """Drop the second direction of edges if every edge occurs in both directions."""
    up = pairs[pairs[:, 0] < pairs[:, 1]]
    down = pairs[pairs[:, 0] > pairs[:, 1]][:, ::-1]
    if len(pairs) == 0 or len(up) != len(down) or len(up) + len(down) != len(pairs):
        return pairs
    up_order, down_order = (np.lexsort((p[:, 1], p[:, 0])) for p in (up, down))
    return up if np.array_equal(up[up_order], down[down_order]) else pairs


def _stack(matrices: Sequence[csr_matrix], what: str) -> csr_matrix:
    widths = [m.shape[1] for m in matrices]
    wrong = [i for i, width in enumerate(widths) if width != widths[0]]
    if wrong:
        raise DataError(
            f"example {wrong[0]} has {widths[wrong[0]]} {what} features, example 0 has {widths[0]}"
        )
    if not matrices:
        return csr_matrix((0, 0), dtype=np.float64)
    return csr_matrix(stack_rows(matrices, format="csr"))


def _edge_matrix(parts: Sequence[_Example]) -> csr_matrix:
    """Return the features of all edges; an example without edges needs none."""
    missing = [i for i, p in enumerate(parts) if p.edge_features is None and len(p.edges)]
    if missing:
        raise DataError(f"example {missing[0]} has no edge features, but other examples have")
    filled = [p.edge_features for p in parts if p.edge_features is not None and len(p.edges)]
    if not filled:
        width = next(p.edge_features.shape[1] for p in parts if p.edge_features is not None)
        return csr_matrix((0, width), dtype=np.float64)
    return _stack(filled, "edge")


def _types(parts: Sequence[_Example]) -> Ints | None:
    if all(p.types is None for p in parts):
        return None
    missing = [i for i, p in enumerate(parts) if p.types is None]
    if missing:
        raise DataError(f"example {missing[0]} has no node types, but other examples have")
    given = [p.types for p in parts if p.types is not None]
    return np.concatenate([np.empty(0, dtype=np.int64), *given])


def _unequal(nodes: Sequence[int], labels: Sequence[int]) -> str:
    if len(nodes) != len(labels):
        return f"{len(labels)} lists of labels for {len(nodes)} examples"
    i = next(i for i, (a, b) in enumerate(zip(nodes, labels, strict=True)) if a != b)
    return f"example {i} has {nodes[i]} nodes and {labels[i]} labels"


def read_graphs(folder: str | Path) -> tuple[list[dict[str, Any]], list[NDArray[Any]] | None]:
    """Read a folder of ``.npz`` files with one graph each, sorted by name.

    A file holds ``features`` (nodes x d) and ``edges`` (pairs), and may hold ``edge_features``,
    ``types`` and ``labels`` (one per node; in all files or in none).

    Returns
    -------
    X : list of dicts
        For :class:`cliquewise.GraphLabeler`.
    y : list of arrays, or None

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> np.savez(folder + "/a.npz", features=np.eye(2), edges=[(0, 1)], labels=[0, 1])
    >>> X, y = read_graphs(folder)
    >>> X[0]["edges"].tolist(), y[0].tolist()
    ([[0, 1]], [0, 1])
    """
    paths = sorted(Path(folder).glob("*.npz"))
    if not paths:
        raise FormatError("no .npz files here", folder)
    X: list[dict[str, Any]] = []
    y: list[NDArray[Any]] = []
    known = {"features", "edges", "edge_features", "types"}
    for path in paths:
        arrays = _read_npz(path)
        if not {"features", "edges"} <= set(arrays) or set(arrays) - known - {"labels"}:
            raise FormatError(
                f"holds {sorted(arrays)}; needs features and edges, and may have edge_features, "
                "types and labels",
                path,
            )
        if "labels" in arrays:
            y.append(arrays.pop("labels"))
        X.append(arrays)
    if y and len(y) != len(X):
        raise FormatError(f"{len(X) - len(y)} of {len(X)} files have no labels", folder)
    return X, y or None


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file; what it would take is known before anything is allocated."""
    from zipfile import ZipFile

    arrays: dict[str, NDArray[Any]] = {}
    try:
        with ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > MAX_TEXT:
                raise FormatError(f"its arrays have more than {MAX_TEXT >> 30} GiB", path)
            for info in archive.infolist():
                with archive.open(info) as file:
                    _check_size(file, info.file_size)
                with archive.open(info) as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
                arrays[info.filename.removesuffix(".npy")] = array
    except FormatError:
        raise
    except Exception as error:  # zipfile and numpy raise a dozen kinds on damaged files
        raise FormatError(f"not a readable .npz file ({error})", path) from error
    return arrays


def _check_size(file: Any, size: int) -> None:
    """Raise an error if the shape in an array's header does not match the bytes that follow."""
    form = np.lib.format
    read = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
    shape, _, dtype = read[form.read_magic(file)](file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError(f"an array {shape} of {dtype} does not fit the file")
