"""Joint queries: the probabilities of several variables together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from cliquewise.errors import GraphError, TooLargeError
from cliquewise.graph.structure import Structure
from cliquewise.ragged import Floats
from cliquewise.tables import frame, text_table

if TYPE_CHECKING:
    from cliquewise.graph.factor_graph import FactorGraph

#: A table of more combinations than this is nothing to look at.
MOST = 10_000_000
#: Logarithms of sums that differ by rounding only.
SAME = 1e-12
#: Rows that ``print`` shows.
SHOWN = 50


@dataclass(frozen=True)
class Joint:
    """Probabilities of all combinations of the states of some variables.

    Attributes
    ----------
    variables : tuple of str or int
    states : tuple of tuples
        Names of their states, or numbers.
    probabilities : ndarray
        One axis per variable.
    exact : bool
    method : str
        The oracle that answered.

    Examples
    --------
    >>> from cliquewise.graph import FactorGraph
    >>> graph = FactorGraph.from_cpts({"Rain": [0.75, 0.25]}, states={"Rain": ["no", "yes"]})
    >>> round(graph.query("Rain")["yes"], 6)
    0.25
    """

    variables: tuple[Any, ...]
    states: tuple[tuple[Any, ...], ...]
    probabilities: Floats
    exact: bool
    method: str

    def __getitem__(self, states: Any) -> float:
        """Return the probability of one combination, by names or numbers of states."""
        given = states if isinstance(states, tuple) else (states,)
        if len(given) != len(self.variables):
            raise GraphError(f"{len(given)} states for {len(self.variables)} variables")
        at = []
        for variable, known, state in zip(self.variables, self.states, given, strict=True):
            if state in known:
                at.append(known.index(state))
            elif isinstance(state, int) and 0 <= state < len(known):
                at.append(state)
            else:
                raise GraphError(f"{variable} has no state {state!r}; they are {known}")
        return float(self.probabilities[tuple(at)])

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield states and probability of every combination, the last variable fastest."""
        for states, p in zip(product(*self.states), self.probabilities.ravel(), strict=True):
            yield (*states, float(p))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per combination."""
        columns = list(zip(*self.rows(), strict=True))
        return frame(dict(zip([*self.variables, "probability"], columns, strict=True)))

    def __str__(self) -> str:
        shown = [
            (*row[:-1], f"{row[-1]:.6f}") for row, _ in zip(self.rows(), range(SHOWN), strict=False)
        ]
        text = text_table([*self.variables, "probability"], shown)
        left = self.probabilities.size - len(shown)
        note = "" if self.exact else f"\n(estimated by {self.method})"
        return text + (f"\n... and {left} more" if left else "") + note


def relevant_factors(graph: FactorGraph, asked: list[int]) -> list[int]:
    """Return the factors that influence the probabilities of some variables.

    A factor has none if one of its variables is in no other, neither asked for nor observed, and
    sums to the same whatever the others are: a leaf of a Bayesian network. Without it, others
    may be leaves.
    """
    s = graph.structure
    holders: list[set[int]] = [set() for _ in range(s.n_variables)]
    for f in range(s.n_factors):
        for v in s.scope(f).tolist():
            holders[v].add(f)
    wanted = {*asked, *graph.evidence}
    dropped: set[int] = set()
    waiting = [v for v in range(s.n_variables) if len(holders[v]) == 1 and v not in wanted]
    while waiting:
        v = waiting.pop()
        if len(holders[v]) != 1:  # its factor went with another variable
            continue
        f = next(iter(holders[v]))
        scope = s.scope(f).tolist()
        sums = np.logaddexp.reduce(graph.table(f), axis=scope.index(v))
        if not np.isfinite(sums).all() or np.ptp(sums) > SAME:
            continue
        dropped.add(f)
        for u in scope:
            holders[u].discard(f)
            if len(holders[u]) == 1 and u not in wanted:
                waiting.append(u)
    return [f for f in range(s.n_factors) if f not in dropped]


def ask_joint(
    graph: FactorGraph, variables: Any, evidence: Any, method: str, options: dict[str, Any]
) -> Joint:
    """Compute joint probabilities as the marginal of an added factor of zeros."""
    listed = [variables] if isinstance(variables, str | int | np.integer) else list(variables)
    asked = [graph.variable(v) for v in listed]
    if not asked or len(set(asked)) < len(asked):
        raise GraphError("a query names at least one variable, and none twice")
    cards = graph.cardinalities[asked]
    size = float(np.prod(cards.astype(float)))
    if size > MOST:
        raise TooLargeError(
            f"the query has {size:.3g} combinations of states, more than {MOST:.0g}; ask for fewer "
            "variables, or sample()", 8.0 * size, size
        )  # fmt: skip
    known = graph if evidence is None else graph.condition(evidence)
    kept = relevant_factors(known, asked)
    scopes = [known.structure.scope(f).tolist() for f in kept]
    wider = Structure(known.cardinalities, [*scopes, asked])
    tables = [known.table(f).ravel() for f in kept]
    flat = np.concatenate([*tables, np.zeros(int(size))])
    answer = known.with_tables(wider, flat).marginals(method, **options)
    names, states = graph.names, graph.states
    return Joint(
        tuple(asked if names is None else (names[v] for v in asked)),
        tuple(tuple(range(graph.cardinalities[v])) if states is None else states[v] for v in asked),
        np.array(answer.factors[len(kept)]).reshape(cards),
        answer.exact,
        answer.method,
    )
