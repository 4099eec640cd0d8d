"""Structure: the topology of a factor graph, without its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cliquewise.errors import GraphError
from cliquewise.ragged import Ints, offsets_of, owner_of

#: Largest number of states of one variable, and of table entries of one graph.
MAX_CARDINALITY = 10_000_000
MAX_ENTRIES = 2_000_000_000

T = TypeVar("T")


class Structure:
    """Variables, their cardinalities, and the scopes of the factors, in flat arrays.

    Many graphs may share one structure (a thousand sentences of equal length, an image
    model with new pixels), and with it everything that is derived from the topology
    alone, such as an elimination order: it is computed once and kept in ``memo``.

    Parameters
    ----------
    cardinalities : array-like of int, shape (n_variables,)
    scopes : iterable of sequences of int
        The variables of each factor; its table has its axes in this order.

    Examples
    --------
    >>> s = Structure([2, 3, 2], [(0,), (0, 1), (1, 2)])
    >>> s.n_variables, s.n_factors, s.is_forest
    (3, 3, True)
    """

    def __init__(self, cardinalities: Any, scopes: Iterable[Sequence[int]]):
        listed = [as_scope(s, f) for f, s in enumerate(scopes)]
        orders = np.array([len(s) for s in listed], dtype=np.int64)
        flat = np.array([v for s in listed for v in s], dtype=np.int64)
        self._set(np.asarray(cardinalities), flat, offsets_of(orders))

    @classmethod
    def from_arrays(cls, cardinalities: Any, scopes: Any, scope_offsets: Any) -> Structure:
        """Build from flat arrays: factor ``f`` has ``scopes[scope_offsets[f]:scope_offsets[f+1]]``.

        Examples
        --------
        >>> Structure.from_arrays([2, 2], [0, 1], [0, 2]).n_factors
        1
        """
        self = cls.__new__(cls)
        self._set(
            np.asarray(cardinalities),
            np.array(scopes, dtype=np.int64),
            np.array(scope_offsets, dtype=np.int64),
        )
        return self

    def _set(self, cardinalities: NDArray[Any], scopes: Ints, scope_offsets: Ints) -> None:
        if cardinalities.ndim != 1 or (
            cardinalities.size and not np.issubdtype(cardinalities.dtype, np.integer)
        ):
            raise GraphError("cardinalities must be a flat list of integers, one per variable")
        if (
            scope_offsets.size == 0
            or scope_offsets[0] != 0
            or scope_offsets[-1] != scopes.size
            or np.any(np.diff(scope_offsets) < 0)
        ):
            raise GraphError(
                f"scope offsets must rise from 0 to the {scopes.size} entries of the scopes"
            )
        cards = cardinalities.astype(np.int64)
        if cards.size and cards.min() < 1:
            v = int(np.argmin(cards))
            raise GraphError(f"variable {v} has cardinality {cards[v]}; it must be at least 1")
        if cards.size and cards.max() > MAX_CARDINALITY:
            v = int(np.argmax(cards))
            raise GraphError(
                f"variable {v} has cardinality {cards[v]}; the limit is {MAX_CARDINALITY}"
            )
        if scopes.size and (scopes.min() < 0 or scopes.max() >= cards.size):
            bad = int(np.argmax((scopes < 0) | (scopes >= cards.size)))
            f, _ = owner_of(scope_offsets, bad)
            raise GraphError(
                f"factor {f} names variable {scopes[bad]}, but the variables are "
                f"0..{cards.size - 1}"
            )
        self.cardinalities = cards
        self.scopes = scopes
        self.scope_offsets = scope_offsets
        self.orders: Ints = np.diff(scope_offsets)
        self._check_repeats()
        sizes = self._table_sizes()
        if sizes.sum() > MAX_ENTRIES:
            raise GraphError(
                f"the tables would have {sizes.sum():.3g} entries; the limit is {MAX_ENTRIES:.3g}"
            )
        self.table_offsets = offsets_of(sizes)
        self.node_offsets = offsets_of(cards)
        for array in (cards, scopes, scope_offsets, self.orders, self.table_offsets,
                      self.node_offsets):  # fmt: skip
            read_only(array)
        self.memo: dict[Any, Any] = {}

    def _check_repeats(self) -> None:
        owner = np.repeat(np.arange(self.n_factors), self.orders)
        order = np.lexsort((self.scopes, owner))
        same = (np.diff(owner[order]) == 0) & (np.diff(self.scopes[order]) == 0)
        if same.any():
            at = order[int(np.argmax(same))]
            raise GraphError(
                f"factor {owner[at]} names variable {self.scopes[at]} twice in its scope; "
                "take the diagonal of the table and name it once"
            )

    def _table_sizes(self) -> NDArray[np.float64]:
        # In float64: the product of absurd cardinalities must not wrap around.
        logs = np.zeros(self.n_factors)
        sizes = np.ones(self.n_factors)
        owner = np.repeat(np.arange(self.n_factors), self.orders)
        np.add.at(logs, owner, np.log(self.cardinalities[self.scopes].astype(float)))
        if logs.size and logs.max() > np.log(MAX_ENTRIES) + 1e-6:
            f = int(np.argmax(logs))
            raise GraphError(
                f"the table of factor {f} would have {np.exp(min(logs[f], 700.0)):.3g} entries; "
                f"the limit is {MAX_ENTRIES:.3g}"
            )
        np.multiply.at(sizes, owner, self.cardinalities[self.scopes])
        return sizes

    def __getstate__(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in ("cardinalities", "scopes", "scope_offsets")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(state["cardinalities"], state["scopes"], state["scope_offsets"])

    def once(self, make: Callable[[Structure], T]) -> T:
        """Return ``make(self)``, computed at the first call and then cached."""
        if make not in self.memo:
            self.memo[make] = make(self)
        known: T = self.memo[make]
        return known

    # ---- sizes and access

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.cardinalities)

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return len(self.scope_offsets) - 1

    def scope(self, f: int) -> Ints:
        """Return the variables of factor ``f``, in the order of its table's axes."""
        return self.scopes[self.scope_offsets[f] : self.scope_offsets[f + 1]]

    def shape(self, f: int) -> tuple[int, ...]:
        """Return the shape of the table of factor ``f``."""
        return tuple(self.cardinalities[self.scope(f)].tolist())

    @cached_property
    def by_order(self) -> list[tuple[Ints, Ints, Ints]]:
        """Factors by order: their variables (order, m), cardinalities, and table starts."""
        groups = []
        for order in np.flatnonzero(np.bincount(self.orders)):
            members = np.flatnonzero(self.orders == order)
            variables = self.scopes[self.scope_offsets[members] + np.arange(order)[:, None]]
            cards, starts = self.cardinalities[variables], self.table_offsets[members]
            groups.append((read_only(variables), read_only(cards), read_only(starts)))
        return groups

    @cached_property
    def strides(self) -> Ints:
        """The stride of each scope position in the flat table."""
        strides = np.ones(len(self.scopes), dtype=np.int64)
        for order in np.flatnonzero(np.bincount(self.orders)[2:]) + 2:
            places = self.scope_offsets[:-1][self.orders == order][:, None] + np.arange(order)
            sizes = self.cardinalities[self.scopes[places]]
            strides[places[:, :-1]] = np.cumprod(sizes[:, :0:-1], axis=1)[:, ::-1]
        return read_only(strides)

    @cached_property
    def with_unaries(self) -> Structure:
        """The same factors and a unary factor for each variable."""
        n = self.n_variables
        return Structure.from_arrays(
            self.cardinalities,
            np.concatenate([self.scopes, np.arange(n)]),
            np.concatenate([self.scope_offsets, self.scope_offsets[-1] + np.arange(1, n + 1)]),
        )

    # ---- what kind of graph it is

    @cached_property
    def has_constants(self) -> bool:
        """Whether some factor has no variable."""
        return bool((self.orders == 0).any())

    @cached_property
    def max_order(self) -> int:
        """Number of variables of the largest factor."""
        return int(self.orders.max(initial=0))

    @cached_property
    def max_cardinality(self) -> int:
        """Number of states of the variable that has most."""
        return int(self.cardinalities.max(initial=1))

    @cached_property
    def is_binary(self) -> bool:
        """Whether no variable has more than two states."""
        return self.max_cardinality <= 2

    @cached_property
    def edges(self) -> Ints:
        """Pairs ``i < j`` of variables that share a factor, each once, sorted."""
        pairs = [np.empty((0, 2), dtype=np.int64)]
        for variables, _, _ in self.by_order:
            a, b = np.triu_indices(len(variables), 1)
            pairs.append(np.stack([variables[a].ravel(), variables[b].ravel()], axis=1))
        both = np.sort(np.concatenate(pairs), axis=1)
        n = max(self.n_variables, 1)
        codes = np.sort(both[:, 0] * n + both[:, 1])  # quicker than np.unique, which hashes
        codes = codes[np.append(True, codes[1:] > codes[:-1])] if len(codes) else codes
        return read_only(np.stack([codes // n, codes % n], axis=1))

    @cached_property
    def adjacency(self) -> csr_array:
        """Symmetric 0/1 matrix of which variables share a factor."""
        n, e = self.n_variables, self.edges
        ones = np.ones(2 * len(e), dtype=np.int8)
        rows = np.concatenate([e[:, 0], e[:, 1]])
        columns = np.concatenate([e[:, 1], e[:, 0]])
        return csr_array((ones, (rows, columns)), shape=(n, n))

    @cached_property
    def components(self) -> tuple[int, Ints]:
        """Number of connected components, and the component of each variable."""
        if self.n_variables == 0:
            return 0, np.empty(0, dtype=np.int64)
        from scipy.sparse.csgraph import connected_components  # which not every start waits for

        count, part = connected_components(self.adjacency, directed=False)
        return int(count), read_only(part.astype(np.int64))

    @cached_property
    def is_pairwise(self) -> bool:
        """Whether no factor has more than two variables."""
        return self.max_order <= 2

    @cached_property
    def is_forest(self) -> bool:
        """Whether the graph is pairwise and has no cycle (parallel factors are fine)."""
        if not self.is_pairwise or len(self.edges) > max(self.n_variables - 1, 0):
            return False  # without a look at the components
        return len(self.edges) == self.n_variables - self.components[0]

    @cached_property
    def path(self) -> Ints | None:
        """All variables along disjoint paths, one path after the other; None if branched."""
        degree = np.bincount(self.edges.ravel(), minlength=self.n_variables)
        if not self.is_forest or degree.max(initial=0) > 2:
            return None
        if self.n_variables == 0:
            return np.empty(0, dtype=np.int64)
        if len(self.edges) == self.n_variables - 1 and np.all(
            self.edges == np.arange(self.n_variables - 1)[:, None] + np.array([0, 1])
        ):
            return read_only(np.arange(self.n_variables))
        return read_only(_path_order(self.adjacency, degree, self.components))

    def __repr__(self) -> str:
        return (
            f"<Structure: {self.n_variables} variables, {self.n_factors} factors, "
            f"largest factor of {self.max_order}>"
        )


def read_only(array: Ints) -> Ints:
    """Forbid writing to an array, and return it.

    Examples
    --------
    >>> read_only(np.arange(3)).flags.writeable
    False
    """
    array.setflags(write=False)
    return array


def as_scope(scope: Any, f: int) -> tuple[int, ...]:
    """Return the variables of factor ``f`` as integers; a single variable needs no list."""
    try:
        array = np.atleast_1d(np.asarray(scope))
    except ValueError:
        array = np.empty((0, 0))
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        named = "; names of variables are given as FactorGraph(..., names=[...])"
        raise GraphError(
            f"the scope of factor {f} is {scope!r}; it must be a list of variables, by number"
            + (named if array.dtype.kind == "U" else "")
        )
    return tuple(array.tolist())


def _path_order(adjacency: csr_array, degree: Ints, components: tuple[int, Ints]) -> Ints:
    """Return all variables along their paths, one path after the other.

    A breadth-first walk from one end of every path visits each path in order; a depth-first walk
    by SciPy would take quadratic time for many paths.
    """
    from scipy.sparse.csgraph import breadth_first_order

    count, part = components
    n = len(degree)
    ends = np.flatnonzero(degree <= 1)
    first = np.full(count, -1, dtype=np.int64)
    first[part[ends[::-1]]] = ends[::-1]
    edges = adjacency.tocoo()
    rows = np.concatenate([edges.row, np.full(count, n), first])
    columns = np.concatenate([edges.col, first, np.full(count, n)])
    rooted = csr_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(n + 1, n + 1))
    walk = breadth_first_order(rooted, n, directed=True, return_predecessors=False)
    along = np.asarray(walk[1:], dtype=np.int64)
    return along[np.argsort(part[along], kind="stable")]
