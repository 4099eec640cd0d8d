"""FactorGraph: a structure with log-potentials, and methods for inference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from cliquewise.errors import GraphError, warn_user
from cliquewise.graph.evidence import Core
from cliquewise.graph.joint import Joint, ask_joint
from cliquewise.graph.names import (
    Evidence,
    Names,
    read_evidence,
    with_unary_factors,
)
from cliquewise.graph.networks import Conditional, factors_of, sums_to_one
from cliquewise.graph.shapes import Shapes, as_floats
from cliquewise.graph.sizes import LARGEST, largest_finite, refuse_size, rounding_of
from cliquewise.graph.structure import Structure, as_scope
from cliquewise.ragged import Floats, Ints

if TYPE_CHECKING:
    from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult

NAMELESS = Names()


class FactorGraph(Shapes):
    """Discrete variables and factors with natural-log tables. Immutable.

    The score of a labeling is the sum of one entry of each table; its probability is
    proportional to the exponential of the score.

    Parameters
    ----------
    cardinalities : array-like of int, shape (n_variables,)
        Number of states of each variable.
    factors : iterable of (scope, table)
        Variables of the factor, and its log-potentials with one axis per variable, in the
        scope's order. ``-inf`` forbids a combination; NaN, ``+inf`` and finite numbers beyond
        1e300 are errors.
    names : sequence of str, optional
        Names of the variables, for scopes, evidence and queries.
    states : sequence of sequences of str, or mapping, optional
        Names of the states of each variable, or of some by name.

    Examples
    --------
    >>> import numpy as np
    >>> graph = FactorGraph([2, 2], [((0,), [0.0, 1.0]), ((0, 1), [[1.0, 0.0], [0.0, 1.0]])])
    >>> graph.map().labels
    array([1, 1])
    >>> round(graph.marginals().log_z, 4)
    2.6265
    """

    __slots__ = ("__dict__", "_evidence", "_names", "largest", "structure", "tables")

    def __init__(
        self,
        cardinalities: ArrayLike,
        factors: Iterable[tuple[Any, ArrayLike]] | Mapping[Any, ArrayLike] = (),
        names: Sequence[str] | None = None,
        states: Sequence[Sequence[str]] | Mapping[str, Sequence[str]] | None = None,
    ):
        if isinstance(factors, Mapping):
            factors = factors.items()
        known = Names.of(names, states, np.atleast_1d(cardinalities))
        listed = [(_numbered(s, f, known), t) for f, (s, t) in enumerate(factors)]
        structure = Structure(cardinalities, [s for s, _ in listed])
        tables = np.empty(int(structure.table_offsets[-1]))
        for f, (_, table) in enumerate(listed):
            array = as_floats(table, f"the table of factor {f}")
            if array.shape != structure.shape(f):
                raise GraphError(
                    f"the table of factor {f} has shape {array.shape}, but its scope "
                    f"{tuple(structure.scope(f).tolist())} needs {structure.shape(f)}"
                )
            tables[structure.table_offsets[f] : structure.table_offsets[f + 1]] = array.ravel()
        self._set(structure, tables, names=known)
        if sums_to_one(self.factors, tables):
            warn_user(
                "every table looks like probabilities, but FactorGraph takes their natural "
                "logarithms: use FactorGraph.from_cpts for conditional probabilities, or np.log"
            )

    @classmethod
    def from_structure(cls, structure: Structure, tables: ArrayLike) -> Self:
        """Build a graph from a structure and tables, without analyzing the structure again.

        Parameters
        ----------
        structure : Structure
        tables : array-like of float
            All tables, flat, in factor order, each in C order.

        Examples
        --------
        >>> s = Structure([2], [(0,)])
        >>> FactorGraph.from_structure(s, [0.0, 2.0]).map().labels
        array([1])
        """
        flat = np.array(tables, dtype=np.float64).ravel()
        if flat.size != structure.table_offsets[-1]:
            raise GraphError(
                f"{flat.size} table entries were given, but the structure has "
                f"{structure.table_offsets[-1]}"
            )
        graph = cls.__new__(cls)
        graph._set(structure, flat)
        return graph

    @classmethod
    def from_cpts(cls, cpts: Mapping[str, Conditional], states: Any = None) -> FactorGraph:
        """Build a Bayesian network from conditional probabilities (not logarithms).

        Parameters
        ----------
        cpts : mapping of name to probabilities, or to (parents, probabilities)
            The table has one axis per parent, in their order, and a last one for the variable's
            own states, along which it sums to one.
        states : mapping of name to list of str, or list of lists, optional
            Names of states; numbers by default.

        Examples
        --------
        >>> FactorGraph.from_cpts({"Rain": [0.8, 0.2],
        ...                        "Grass": (["Rain"], [[0.9, 0.1], [0.01, 0.99]])})
        <FactorGraph: 2 variables, 2 factors>
        """
        cards, factors = factors_of(cpts)
        return cls(cards, factors, names=list(cpts), states=states)

    def with_tables(self, structure: Structure, tables: Floats) -> FactorGraph:
        """Return a graph with the same variables, names and evidence, and other factors."""
        return _restore(structure, tables, self._evidence, self._names)

    def _set(
        self,
        structure: Structure,
        tables: Floats,
        evidence: Ints | None = None,
        names: Names = NAMELESS,
    ) -> None:
        self.largest = largest_finite(tables)
        if not self.largest <= LARGEST:
            refuse_size(structure, tables)
        tables.setflags(write=False)
        self.structure = structure
        self.tables = tables
        self._evidence = evidence
        self._names = names

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.structure, np.array(self.tables), self._evidence, self._names)

    # ---- access

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the variables, or None."""
        return None if self._names.variables is None else tuple(self._names.variables)

    @property
    def states(self) -> tuple[tuple[str, ...], ...] | None:
        """Names of the states of every variable, or None."""
        return None if self._names.states is None else tuple(map(tuple, self._names.states))

    @property
    def rounding(self) -> float:
        """Bound of the rounding error of a sum of log-potentials, one of each table.

        Machine precision times the number of additions times the sum of the tables' sizes; the
        constant covers what exponentials and logarithms add.
        """
        return rounding_of(self.structure, self.n_factors * self.largest)

    @property
    def cardinalities(self) -> Ints:
        """Number of states of each variable."""
        return self.structure.cardinalities

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return self.structure.n_variables

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return self.structure.n_factors

    @property
    def factors(self) -> Iterator[tuple[tuple[int, ...], Floats]]:
        """Scope and table of every factor, in order."""
        for f in range(self.n_factors):
            yield tuple(self.structure.scope(f).tolist()), self.table(f)

    @property
    def evidence(self) -> dict[int, int]:
        """Observed variables and their states."""
        if self._evidence is None:
            return {}
        return {int(v): int(self._evidence[v]) for v in np.flatnonzero(self._evidence >= 0)}

    def table(self, f: int) -> Floats:
        """Return the log-potentials of factor ``f``, with one axis per variable of its scope."""
        s = self.structure
        return self.tables[s.table_offsets[f] : s.table_offsets[f + 1]].reshape(s.shape(f))

    def score(self, labels: ArrayLike) -> Any:
        """Return the sum of the log-potentials of one labeling, or of several (one per row).

        Examples
        --------
        >>> FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [2.0, 3.0]])]).score([1, 0])
        2.0
        """
        array = np.asarray(labels)
        rows = np.atleast_2d(array)
        if (
            rows.ndim != 2
            or rows.shape[1] != self.n_variables
            or (rows.size and not np.issubdtype(rows.dtype, np.integer))
            or (rows.size and ((rows < 0) | (rows >= self.cardinalities)).any())
        ):
            raise GraphError(
                f"a labeling needs {self.n_variables} integers, each below its cardinality"
            )
        rows = rows.astype(np.int64)
        total = np.zeros(len(rows))
        for entries in self._entries(rows):
            total += self.tables[entries].sum(axis=1)
        if self._evidence is not None:
            observed = self._evidence >= 0
            total[(rows[:, observed] != self._evidence[observed]).any(axis=1)] = -np.inf
        return total if array.ndim == 2 else float(total[0])

    def _entries(self, rows: Ints) -> Iterator[Ints]:
        """Yield flat positions of the entries of each labeling, for factors of equal order."""
        for variables, cards, starts in self.structure.by_order:
            position = np.zeros((len(rows), len(starts)), dtype=np.int64)
            for axis in range(len(variables)):
                position = position * cards[axis] + rows[:, variables[axis]]
            yield position + starts

    # ---- evidence

    def with_names(self, names: Sequence[str] | None, states: Any = None) -> FactorGraph:
        """Return the same graph with names for its variables and their states.

        Examples
        --------
        >>> FactorGraph([2], [((0,), [0.0, 1.0])]).with_names(["Rain"]).variable("Rain")
        0
        """
        known = Names.of(names, states, self.cardinalities)
        return _restore(self.structure, self.tables, self._evidence, known)

    def variable(self, name: str | int | np.integer[Any]) -> int:
        """Return the number of a variable, which is its position in all results."""
        return self._names.variable(name, self.n_variables, "the question")

    def condition(self, evidence: Evidence) -> FactorGraph:
        """Return the graph with some variables observed, for certain or by likelihoods.

        Every answer still speaks of all variables: an observed one has its state with
        probability one. ``log_z`` is that of the restricted sum. Likelihoods multiply the
        distribution: they become one more factor of the variable, after all others.

        Parameters
        ----------
        evidence : mapping of variable to state, or to the likelihoods of its states
            A variable is a number, or a name if the graph has ``names``; so are states.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [2.0, 0.0]])], names=["Rain", "Wet"])
        >>> g.condition({"Wet": 1}).map().labels
        array([0, 1])
        >>> g.condition({"Wet": [0.01, 0.99]}).map().labels  # probably wet
        array([0, 1])
        """
        states = (
            np.full(self.n_variables, -1, dtype=np.int64)
            if self._evidence is None
            else self._evidence.copy()
        )
        soft = read_evidence(evidence, self.structure, self._names, states)
        structure, tables = self.structure, self.tables
        if soft:
            structure, tables = with_unary_factors(structure, tables, soft)
        observed = states if (states >= 0).any() else self._evidence
        return _restore(structure, tables, observed, self._names)

    @cached_property
    def core(self) -> Core:
        """The graph for oracles: without observed variables and constant factors."""
        return Core.of(self)

    # ---- questions

    def map(
        self, method: str = "auto", over: Iterable[str | int] | None = None, **options: Any
    ) -> MapResult:
        """Return the MAP labeling, or the marginal MAP labeling of some variables.

        Parameters
        ----------
        method : str, default="auto"
            Name of an oracle; ``auto`` takes the cheapest that proves its answer.
        over : list of str or int, optional
            Marginal MAP: the variables to label, by names or numbers. The score is the log of the
            sum over all labelings of the others (a lower bound of it where
            ``info["sums_exact"]`` is False), whose label is -1 then. Methods: ``auto``,
            ``junction-tree`` (exact or refused), ``mini-buckets`` (bounds and a search).
        **options
            Passed to the oracle. ``auto`` takes ``seconds`` (return the best so far, with its
            bound), ``gap`` (stop when the bound is so close), ``max_memory``, ``max_operations``.

        Returns
        -------
        MapResult
            ``labels``, ``score``, ``upper_bound``, ``gap``, ``exact``, ``method``.

        Examples
        --------
        >>> FactorGraph([3], [((0,), [0.0, 2.0, 1.0])]).map().labels
        array([1])
        """
        if over is not None:
            found = self._planner().marginal_map(self, over, method, **options)
            return found  # type: ignore[no-any-return]
        return self._planner().ask(self, "map", method, **options)  # type: ignore[no-any-return]

    def marginals(self, method: str = "auto", **options: Any) -> MarginalResult:
        """Return the probabilities of the states of each variable and factor, and log Z.

        Parameters
        ----------
        method : str, default="auto"
            Exact where that is cheap; else estimates, and certified bounds of log Z.
        **options
            Passed to the oracle; ``auto`` takes the same as in :meth:`map`.

        Returns
        -------
        MarginalResult
            ``nodes``, ``factors``, ``log_z``, ``log_z_bounds``, ``exact``, ``method``.

        Examples
        --------
        >>> FactorGraph([2], [((0,), [0.0, 0.0])]).marginals().nodes[0]
        array([0.5, 0.5])
        """
        return self._planner().ask(self, "marginals", method, **options)  # type: ignore[no-any-return]

    def query(
        self, variables: Any, evidence: Evidence | None = None, method: str = "auto", **options: Any
    ) -> Joint:
        """Return joint probabilities of some variables, given evidence.

        Parameters
        ----------
        variables : list of str or int, or one of them
        evidence : mapping, optional
            As for :meth:`condition`.

        Returns
        -------
        Joint
            ``probabilities`` has one axis per variable asked for; prints as a table.

        Examples
        --------
        >>> wet = FactorGraph.from_cpts(
        ...     {"Rain": [0.8, 0.2], "Grass": (["Rain"], [[0.9, 0.1], [0.01, 0.99]])},
        ...     states={"Rain": ["no", "yes"], "Grass": ["dry", "wet"]})
        >>> print(wet.query(["Rain"], {"Grass": "wet"}))
        Rain  probability
        no       0.287770
        yes      0.712230
        """
        return ask_joint(self, variables, evidence, method, options)

    def max_marginals(self, method: str = "auto", **options: Any) -> MaxMarginalResult:
        """Return, for every variable and state, the best score of a labeling with that state.

        Examples
        --------
        >>> FactorGraph([2], [((0,), [0.0, 3.0])]).max_marginals().nodes[0]
        array([0., 3.])
        """
        return self._planner().ask(self, "max_marginals", method, **options)  # type: ignore[no-any-return]

    def top_k(self, k: int, method: str = "auto", **options: Any) -> list[MapResult]:
        """Return the ``k`` labelings with the highest scores, best first (all, if fewer exist).

        Examples
        --------
        >>> [r.labels.tolist() for r in FactorGraph([3], [((0,), [0., 2., 1.])]).top_k(2)]
        [[1], [2]]
        """
        if not isinstance(k, int | np.integer) or int(k) < 1:
            raise GraphError(f"k = {k!r}; it must be an integer, at least 1")
        return self._planner().ask(self, "top_k", method, k=int(k), **options)  # type: ignore[no-any-return]

    def sample(
        self, n: int = 1, random_state: Any = None, method: str = "auto", **options: Any
    ) -> Ints:
        """Return independent samples from the distribution, one per row.

        Examples
        --------
        >>> FactorGraph([2], [((0,), [0.0, -800.0])]).sample(3, random_state=0).tolist()
        [[0], [0], [0]]
        """
        if not isinstance(n, int | np.integer) or int(n) < 0:
            raise GraphError(f"n = {n!r}; it must be an integer, not negative")
        rng = np.random.default_rng(random_state)
        return self._planner().ask(self, "sample", method, n=int(n), rng=rng, **options)  # type: ignore[no-any-return]

    def explain(self, want: str = "marginals") -> str:
        """Return the method that ``auto`` would choose, and cost and guarantee of all methods.

        Examples
        --------
        >>> print(FactorGraph([2], [((0,), [0.0, 0.0])]).explain("map"))
        chain: ...
        """
        return self._planner().choose(self.core.graph, want).explanation  # type: ignore[no-any-return]

    def report(self, path: Any, title: str = "", subtitle: str = "", **options: Any) -> None:
        """Write a report about this graph as one self-contained HTML file.

        Parameters
        ----------
        path : path
            The file to write.
        title, subtitle : str
            What the page calls itself.
        **options
            For :meth:`marginals` and :meth:`map`: ``seconds``, say.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "graph.html"
        >>> FactorGraph([2, 2], [((0, 1), [[1.0, 0.0], [0.0, 1.0]])]).report(path)
        >>> path.stat().st_size > 10_000
        True
        """
        from cliquewise.graph.html import graph_sections
        from cliquewise.report.page import check_report, write_page

        check_report(path)
        sections = graph_sections(self, **options)
        write_page(path, title or "Graphical model", subtitle or repr(self)[1:-1], sections)

    def _repr_html_(self) -> str:
        """Return a picture of a small graph with the probabilities of its states."""
        from cliquewise.graph.html import picture

        return picture(self)

    @staticmethod
    def _planner() -> Any:
        """Return the planner; the only import of ``oracles`` in ``graph`` (they import graphs)."""
        from cliquewise.oracles import planner

        return planner

    def __repr__(self) -> str:
        observed = "" if self._evidence is None else f", {len(self.evidence)} observed"
        return f"<FactorGraph: {self.n_variables} variables, {self.n_factors} factors{observed}>"


def _numbered(scope: Any, f: int, names: Names) -> tuple[int, ...]:
    """Return the scope of factor ``f`` as numbers; it may be given by names."""
    known = names.variables
    if known is not None:
        listed = [scope] if isinstance(scope, str) else scope
        if isinstance(listed, list | tuple) and any(isinstance(v, str) for v in listed):
            place = f"the scope of factor {f}"
            return tuple(names.variable(v, len(known), place) for v in listed)
    return as_scope(scope, f)


def _restore(
    structure: Structure, tables: Floats, evidence: Ints | None, names: Names = NAMELESS
) -> FactorGraph:
    graph = FactorGraph.__new__(FactorGraph)
    graph._set(structure, tables, evidence, names)
    return graph
