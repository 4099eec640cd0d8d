"""Random factor graphs for tests, small enough to list every labeling.

Hypothesis draws a :class:`Recipe`: a family of structures, a few sizes and modes, and a
seed. The scopes and tables come from NumPy's generator under that seed, so that drawing
costs little; a failing example prints a recipe that can be pasted into a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from cliquewise.graph.factor_graph import FactorGraph

#: Most labelings of a drawn graph.
MAX_LABELINGS = 3000

VALUES = ("normal", "ties", "tiny", "wide", "magnitudes", "zero")
# Repetition is weight: trivial graphs have to occur, and must not crowd out the hard ones.
FORBID_WEIGHTED = ("nothing",) * 6 + ("some",) * 4 + ("much", "everything")
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 9)
STATES = (1, 2, 2, 2, 3, 3, 3, 4)

Scopes = list[tuple[int, ...]]
Family = Callable[[np.random.Generator, int, int], tuple[list[int], Scopes]]

FAMILIES: dict[str, Family] = {}


def family(function: Family) -> Family:
    FAMILIES[function.__name__] = function
    return function


def _fitting(n: int, states: int) -> int:
    """The largest number of variables up to n that has few enough labelings."""
    return n if states == 1 else max(1, min(n, int(np.log(MAX_LABELINGS) / np.log(states))))


def _mixed(rng: np.random.Generator, n: int, states: int) -> list[int]:
    """Cardinalities 1..states; ones where the labelings would become too many."""
    cards, total = [], 1
    for _ in range(n):
        # One state is rare: it cuts every cycle through its variable and makes the graph easy.
        card = int(rng.integers(2, states + 1)) if states > 1 and rng.random() < 0.9 else 1
        card = card if total * card <= MAX_LABELINGS else 1
        total *= card
        cards.append(card)
    return cards


def _links(pairs: list[tuple[int, int]], n: int) -> Scopes:
    return [*((v,) for v in range(n)), *pairs]


def _flipped(rng: np.random.Generator, scopes: Scopes) -> Scopes:
    return [tuple(rng.permutation(s).tolist()) for s in scopes]


@family
def chain(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    n = _fitting(n, states)
    return [states] * n, _links([(i, i + 1) for i in range(n - 1)], n)


@family
def shuffled_chain(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    order = rng.permutation(n).tolist()
    pairs = [(order[i], order[i + 1]) for i in range(n - 1)]
    return _mixed(rng, n, states), _flipped(rng, _links(pairs, n))


@family
def several_chains(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    n = _fitting(n, states)
    pairs = [(i, i + 1) for i in range(n - 1) if rng.random() < 0.7]
    return [states] * n, _links(pairs, n)


@family
def forest(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    order = rng.permutation(n).tolist()
    pairs = [(order[int(rng.integers(i))], order[i]) for i in range(1, n) if rng.random() < 0.85]
    return _mixed(rng, n, states), _flipped(rng, _links(pairs, n))


@family
def star(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    center = int(rng.integers(n))
    return _mixed(rng, n, states), _links([(center, i) for i in range(n) if i != center], n)


@family
def cycle(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    n = max(3, n)
    pairs = [(i, (i + 1) % n) for i in range(n)]
    return _mixed(rng, n, states), _links(pairs, n)


@family
def grid(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    width = int(rng.integers(2, 4))
    height = max(2, _fitting(n, states) // width)
    states = states if states ** (width * height) <= MAX_LABELINGS else 2
    cells = width * height
    pairs = [(i, i + 1) for i in range(cells) if (i + 1) % width]
    pairs += [(i, i + width) for i in range(cells - width)]
    return [states] * cells, _links(pairs, cells)


@family
def complete(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    n = min(_fitting(n, states), 7)
    return [states] * n, _links([(i, j) for i in range(n) for j in range(i + 1, n)], n)


@family
def higher_order(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    cards = _mixed(rng, n, states)
    scopes = []
    for _ in range(int(rng.integers(1, n + 2))):
        size = int(rng.integers(1, min(4, n) + 1))
        scopes.append(tuple(rng.choice(n, size=size, replace=False).tolist()))
    return cards, scopes


@family
def single_node(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    return [states], [(0,)] * int(rng.integers(1, 4))


@family
def no_factor(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    return _mixed(rng, n, states), []


@family
def no_variable(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    return [], [()] * int(rng.integers(0, 3))


@family
def repeated_scopes(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    cards, scopes = forest(rng, n, states)
    again = [scopes[int(i)] for i in rng.integers(0, len(scopes), size=len(scopes))]
    return cards, _flipped(rng, scopes + again)


@family
def disconnected(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    """A cycle of three, a pair, and loose variables with and without a factor."""
    n = max(n, 6)
    scopes: Scopes = [(0, 1), (1, 2), (2, 0), (4, 3)]
    return _mixed(rng, n, states), scopes + [(v,) for v in range(n) if rng.random() < 0.5]


@family
def with_constants(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    cards, scopes = shuffled_chain(rng, n, states)
    return cards, [(), *scopes, ()]


@family
def binary_supermodular(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    """Any pairs of binary variables; the tables reward agreement (see ``_tables``)."""
    cards, scopes = complete(rng, n, 2)
    return cards, [s for s in scopes if len(s) == 1 or rng.random() < 0.6]


@family
def potts(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    """A grid whose edges reward equal states (see ``_tables``)."""
    return grid(rng, n, states)


@family
def assignment(rng: np.random.Generator, n: int, states: int) -> tuple[list[int], Scopes]:
    """Variables that must all take different states (see ``_tables``)."""
    n = min(n, 4)
    cards, scopes = complete(rng, n, n + int(rng.integers(0, 2)))
    return cards, scopes


def _value(rng: np.random.Generator, mode: str, shape: tuple[int, ...]) -> np.ndarray:
    if mode == "zero":
        return np.zeros(shape)
    if mode == "ties":
        return rng.integers(-1, 2, size=shape).astype(float)
    normal = rng.standard_normal(shape)
    if mode == "tiny":
        return normal * 1e-300
    if mode == "wide":
        return np.clip(normal * 4e3, -1e4, 1e4)
    if mode == "magnitudes":
        return np.sign(normal) * 10.0 ** rng.uniform(-300, 4, size=shape)
    return normal


def _specialize(name: str, table: np.ndarray) -> np.ndarray:
    """What the names of some families promise of their tables."""
    if table.ndim != 2:
        return table
    if name == "binary_supermodular" and table.shape == (2, 2):
        agrees = table[0, 0] + table[1, 1] >= table[0, 1] + table[1, 0]
        return table if agrees else table[:, ::-1].copy()
    if name == "potts":
        reward = abs(table[0, 0]) if np.isfinite(table[0, 0]) else 1.0
        return np.eye(len(table)) * reward
    if name == "assignment":
        return np.where(np.eye(*table.shape, dtype=bool), -np.inf, 0.0)
    return table


def _forbid(
    rng: np.random.Generator, mode: str, tables: list[np.ndarray], picked: list[tuple[int, ...]]
) -> None:
    """Put ``-inf`` into tables; ``some`` keeps one labeling possible, ``much`` may not."""
    share = {"nothing": 0.0, "some": 0.3, "much": 0.5, "everything": 0.2}[mode]
    for table, entry in zip(tables, picked, strict=True):
        if share == 0.0:
            continue
        kept = float(table[entry])
        table[rng.random(table.shape) < share] = -np.inf
        if mode == "some":
            table[entry] = kept
    if mode == "everything" and tables:
        tables[int(rng.integers(len(tables)))][...] = -np.inf


@dataclass(frozen=True)
class Recipe:
    """All that determines a random graph."""

    family: str
    size: int = 4
    states: int = 2
    values: str = "normal"
    forbid: str = "nothing"
    observed: int = 0
    seed: int = 0

    def build(self) -> FactorGraph:
        rng = np.random.default_rng(self.seed)
        cards, scopes = FAMILIES[self.family](rng, self.size, self.states)
        labels = [int(rng.integers(c)) for c in cards]
        tables = [np.array(_value(rng, self.values, tuple(cards[v] for v in s))) for s in scopes]
        _forbid(rng, self.forbid, tables, [tuple(labels[v] for v in s) for s in scopes])
        tables = [_specialize(self.family, t) for t in tables]
        graph = FactorGraph(cards, list(zip(scopes, tables, strict=True)))
        if self.observed and cards:
            seen = rng.permutation(len(cards))[: self.observed]
            graph = graph.condition({int(v): labels[v] for v in seen})
        return graph


#: Families whose graphs are trivial; the others are drawn three times as often.
TRIVIAL = ("single_node", "no_factor", "no_variable")


def recipes(families: tuple[str, ...] = tuple(FAMILIES)) -> st.SearchStrategy[Recipe]:
    """Graphs of these families; most are possible, a few are not, a third has evidence."""
    families += 2 * tuple(f for f in families if f not in TRIVIAL)
    return st.builds(
        Recipe,
        family=st.sampled_from(families),
        size=st.sampled_from(SIZES),
        states=st.sampled_from(STATES),
        values=st.sampled_from((*VALUES, "normal", "normal", "normal", "wide")),
        forbid=st.sampled_from(FORBID_WEIGHTED),
        observed=st.sampled_from((0, 0, 0, 0, 1, 2)),
        seed=st.integers(0, 2**32 - 1),
    )
