"""Sparse tables: the possible rows of a graph, and index arrays for joins along an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise._kernels.graphs.sparse_joins import Wiring
from cliquewise._kernels.graphs.sparse_orders import Subsets, count_rows
from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE, Core
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.support import Support
from cliquewise.oracles.results import MarginalResult, MaxMarginalResult
from cliquewise.ragged import Floats, Ints, Ragged, offsets_of

#: Bits of a word of a key; the sign and one more are left alone.
WORD = 62
#: Tables with more variables or entries are joined, but not looked at for what they rule out.
MOST_VARIABLES, MOST_ENTRIES = 8, 100_000
#: Factors of a variable that are looked at; one that has more is in too many buckets.
MOST_HOLDERS = 100

#: A factor, and some of its variables by their places in the order.
Check = tuple[int, frozenset[int]]


@dataclass(frozen=True, eq=False)
class Possible:
    """The table rows that may occur in a labeling of positive probability.

    States without support are taken away, and variables with a single one. A factor whose
    variables are all in another one is added to that (``hosts``: absorbed factor to host).
    """

    graph: FactorGraph
    support: Support
    core: Core
    hosts: dict[int, int]
    kept: list[int]
    scopes: list[tuple[int, ...]]
    entries: list[Ints]
    values: list[Floats]

    @classmethod
    def of(cls, graph: FactorGraph) -> Possible:
        """Remove impossible rows; raise InfeasibleError if none is left."""
        support = Support.of(graph)
        core = support.graph.condition(support.determined).core
        if core.constant == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        inner = core.graph
        scopes = [tuple(inner.structure.scope(f).tolist()) for f in range(inner.n_factors)]
        hosts, tables = _absorb(inner, scopes)
        kept = [f for f in range(len(scopes)) if f not in hosts]
        entries, values = [], []
        for f in kept:
            flat = tables[f].ravel()
            at = np.flatnonzero(flat > -np.inf)
            if not len(at):
                raise InfeasibleError(INFEASIBLE)
            entries.append(at)
            values.append(flat[at])
        held = {v for f in kept for v in scopes[f]}
        wanted = [scopes[f] for f in kept]
        for v in range(inner.n_variables):
            if v not in held:
                wanted.append((v,))
                entries.append(np.arange(inner.cardinalities[v]))
                values.append(np.zeros(inner.cardinalities[v]))
        return cls(graph, support, core, hosts, kept, wanted, entries, values)

    @property
    def cards(self) -> Ints:
        """Number of possible states of each remaining variable."""
        return self.core.graph.cardinalities

    @cached_property
    def subsets(self) -> Subsets:
        """Number of combinations that a factor allows, for subsets of its variables."""
        n, small = len(self.cards), []
        for scope in self.scopes:
            size = np.prod(self.cards[list(scope)].astype(float))
            small.append(len(scope) <= MOST_VARIABLES and size <= MOST_ENTRIES)
        listed = [len(scope) if ok else 0 for scope, ok in zip(self.scopes, small, strict=True)]
        starts = offsets_of([1 << r for r in listed])
        log_rows = np.zeros(int(starts[-1]))
        held: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        for t, scope in enumerate(self.scopes):
            if small[t]:
                for i, v in enumerate(scope):
                    held[v].append((t, 1 << i))
                states = np.stack(self.states(t), axis=1)
                count_rows(states, self.cards[list(scope)], int(starts[t]), log_rows)
        flat = np.array([pair for pairs in held for pair in pairs], dtype=np.int64).reshape(-1, 2)
        offsets = offsets_of([len(pairs) for pairs in held])
        return Subsets(offsets, flat[:, 0].copy(), flat[:, 1].copy(), starts[:-1].copy(), log_rows)

    def restricts(self, f: int, axes: list[int]) -> bool:
        """Return whether a factor forbids a combination of the states of some variables."""
        subset = sum(1 << axis for axis in axes)
        at, listed = int(self.subsets.starts[f]) + subset, self.subsets.log_rows
        if 1 << len(self.scopes[f]) > self._counted[f]:  # a large one, whose rows were not counted
            return False
        states = sum(float(self.log_cards[self.scopes[f][axis]]) for axis in axes)
        return bool(listed[at] < states - 1e-9)

    @cached_property
    def _counted(self) -> Ints:
        """Number of subsets of each factor's variables whose rows were counted."""
        counted: Ints = np.diff(self.subsets.starts, append=len(self.subsets.log_rows))
        return counted

    @cached_property
    def log_cards(self) -> Floats:
        """Logarithms of the numbers of states."""
        logs: Floats = np.log(self.cards.astype(float))
        return logs

    def states(self, t: int) -> list[Ints]:
        """States of the rows of a table, one array per variable."""
        shape = tuple(self.cards[list(self.scopes[t])].tolist())
        return [np.asarray(x, dtype=np.int64) for x in np.unravel_index(self.entries[t], shape)]

    # ---- answers about what is left, as answers about the graph

    def labels(self, rows: Ints) -> Ints:
        """Translate labelings of the remaining variables to all variables."""
        full = np.atleast_2d(self.core.translate("sample", rows)).copy()
        if self.support.graph is not self.support.original:
            for v, states in enumerate(self.support.states):
                full[:, v] = states[full[:, v]]
        return full

    def marginals(
        self, nodes: Floats, shares: list[Floats], log_z: float, name: str, **more: Any
    ) -> MarginalResult:
        """Build a result from the probabilities of the rows of each table."""
        inner = self.core.graph
        s = inner.structure
        flat = np.zeros(int(s.table_offsets[-1]))
        factors = Ragged(flat, s.table_offsets, s.shape)
        for f, at, share in zip(self.kept, self.entries, shares, strict=False):
            flat[s.table_offsets[f] + at] = share / share.sum()
        for f, host in reversed(self.hosts.items()):
            scope, wider = s.scope(f).tolist(), s.scope(host).tolist()
            rest = tuple(axis for axis, v in enumerate(wider) if v not in scope)
            order = [v for v in wider if v in scope]
            found = factors[host].sum(axis=rest)
            factors[f][...] = found.transpose([order.index(v) for v in scope])
        answer = MarginalResult.from_flat(inner, nodes, flat, log_z, name)
        whole = self.support.translate("marginals", self.core.translate("marginals", answer))
        return MarginalResult.from_flat(
            self.graph, whole.nodes.flat, whole.factors.flat, whole.log_z, name, **more
        )

    def max_marginals(self, nodes: Floats, score: float, name: str) -> MaxMarginalResult:
        """Build a result from the best score with each possible state."""
        inner, s = self.core.graph, self.graph.structure
        answer = MaxMarginalResult(Ragged(nodes, inner.structure.node_offsets), score, True, name)
        found = self.core.translate("max_marginals", answer)
        flat = np.full(int(s.node_offsets[-1]), -np.inf)
        for v, states in enumerate(self.support.states):
            flat[s.node_offsets[v] + states] = found.nodes[v]
        tables = Ragged(flat, s.node_offsets)
        return MaxMarginalResult(tables, found.value, True, name, self.graph.rounding)


def _absorb(
    graph: FactorGraph, scopes: list[tuple[int, ...]]
) -> tuple[dict[int, int], dict[int, Floats]]:
    """Add every table to one that has all its variables, the smallest tables first."""
    holders: dict[int, set[int]] = {}
    for f, scope in enumerate(scopes):
        for v in scope:
            holders.setdefault(v, set()).add(f)
    tables = {f: graph.table(f) for f in range(len(scopes))}
    hosts: dict[int, int] = {}
    for f in sorted(range(len(scopes)), key=lambda f: len(scopes[f])):
        around = set.intersection(*(holders[v] for v in scopes[f])) - {f}
        if not around:
            continue
        host = min(around, key=lambda g: (tables[g].size, g))
        hosts[f] = host
        for v in scopes[f]:
            holders[v].discard(f)
        scope, wider = scopes[f], scopes[host]
        order = [scope.index(v) for v in wider if v in scope]
        shape = [tables[host].shape[a] if v in scope else 1 for a, v in enumerate(wider)]
        tables[host] = tables[host] + tables[f].transpose(order).reshape(shape)
    return hosts, tables


def layout(bits: Sequence[int]) -> tuple[list[tuple[int, int]], int]:
    """Return word and shift of every variable of a key, and the number of words."""
    words: list[int] = []
    at = []
    for width in bits:
        if not words or words[-1] + width > WORD:
            words.append(0)
        words[-1] += width
        at.append((len(words) - 1, words[-1]))
    return [(word, words[word] - end) for word, end in at], len(words)


class _Columns:
    """Lists that become index arrays."""

    def __init__(self, *names: str):
        self.lists: dict[str, list[int]] = {name: [] for name in names}

    def add(self, **values: int) -> None:
        for name, value in values.items():
            self.lists[name].append(value)

    def arrays(self) -> dict[str, Ints]:
        return {name: np.array(values, dtype=np.int64) for name, values in self.lists.items()}


def wire(possible: Possible, order: Ints) -> tuple[Wiring, Ints, Floats, list[Ints]]:
    """Return the index arrays of all buckets, and sorted keys and values of the factors."""
    n, m = len(order), len(possible.scopes)
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    cards = possible.cards[order]
    bits = [max(1, int(k - 1).bit_length()) for k in cards.tolist()]
    held = [sorted((int(place[v]) for v in scope), reverse=True) for scope in possible.scopes]
    buckets, messages, checks = _buckets(possible, held, place)
    projections = list(dict.fromkeys(check for listed in checks for check in listed))
    number = {check: m + i for i, check in enumerate(projections)}
    held += [[p for p in held[f] if p in chosen] for f, chosen in projections]
    first = len(held)
    held += messages
    layouts = [layout([bits[p] for p in places]) for places in held]
    ends: dict[str, list[int]] = {"op": [0], "level": [0], "part": [0], "var": [0]}
    columns = _Columns(
        "op_table", "level_bits", "level_word", "level_shift", "part_op", "part_word",
        "part_shift", "var_place", "var_word", "var_shift",
    )  # fmt: skip
    for b in range(n):
        own = [t if t < m else first + t - m for t in buckets[b]]
        tables = own + [number[check] for check in checks[b]]
        for t in tables:
            columns.add(op_table=t)
        ends["op"].append(len(columns.lists["op_table"]))
        _levels([*messages[b], b], [(held[t], layouts[t][0]) for t in tables],
                layouts[first + b][0], bits, columns, ends["part"])  # fmt: skip
        ends["level"].append(len(columns.lists["level_bits"]))
    for places, (spots, _) in zip(held, layouts, strict=True):
        for p, (word, shift) in zip(places, spots, strict=True):
            columns.add(var_place=p, var_word=word, var_shift=shift)
        ends["var"].append(len(columns.lists["var_place"]))
    keys, values, sorted_rows = _keys(possible, place, layouts)
    for f, chosen in projections:
        keys.append(_projected(possible, f, place, chosen, layouts[len(keys)][0]))
    words = np.array([count for _, count in layouts], dtype=np.int64)
    rows = np.zeros(len(held), dtype=np.int64)
    rows[:m] = [len(v) for v in values]
    rows[m:first] = [len(k) for k in keys[m:]]
    arrays = columns.arrays() | {
        f"{name}_offsets": np.array(values, dtype=np.int64) for name, values in ends.items()
    }
    wiring = Wiring(
        order=order, cards=cards, bits=np.array(bits, dtype=np.int64), words=words, rows=rows,
        key_start=offsets_of(rows * words)[:-1].copy(), value_start=offsets_of(rows)[:-1].copy(),
        op_values=np.array([len(b) for b in buckets], dtype=np.int64), **arrays,
    )  # fmt: skip
    none = np.empty(0, dtype=np.int64)
    flat = np.concatenate([none, *keys]), np.concatenate([np.empty(0), *values])
    return wiring, *flat, sorted_rows


def _buckets(
    possible: Possible, held: list[list[int]], place: Ints
) -> tuple[list[list[int]], list[list[int]], list[list[Check]]]:
    """Per bucket: its tables (message b is table m + b), its message's variables, its checks.

    A check is a factor that is multiplied in elsewhere, and the variables in which it has a say
    here (places in the order): what it rules out in the end need not be joined now. What one of
    the bucket's messages holds was checked when that was made.
    """
    n, m = len(place), len(held)
    members = [frozenset(places) for places in held]
    holders: list[list[int]] = [[] for _ in range(n)]
    for t, places in enumerate(held):
        for p in places:
            holders[p].append(t)
    buckets: list[list[int]] = [[] for _ in range(n)]
    for t, places in enumerate(held):
        buckets[places[-1]].append(t)
    messages: list[list[int]] = []
    checks: list[list[Check]] = []
    for b in range(n):
        clique = frozenset().union(*(members[t] for t in buckets[b]))
        places = sorted(clique - {b}, reverse=True)
        messages.append(places)
        members.append(clique - {b})
        if places:
            buckets[places[-1]].append(m + b)
        seen: set[int] = set()
        shared: set[int] = set()  # factors that hold at least two of the variables
        for p in [*places, b]:
            if len(holders[p]) <= MOST_HOLDERS:
                shared.update(seen.intersection(holders[p]))
                seen.update(holders[p])
        listed = []
        for f in sorted(shared):
            chosen = members[f] & clique
            if any(chosen <= members[t] for t in buckets[b]):
                continue
            axes = [a for a, v in enumerate(possible.scopes[f]) if int(place[v]) in chosen]
            if possible.restricts(f, axes):
                listed.append((f, chosen))
        checks.append(listed)
    return buckets, messages, checks


def _projected(
    possible: Possible, f: int, place: Ints, chosen: frozenset[int], spots: list[tuple[int, int]]
) -> Ints:
    """Sorted keys of the combinations that a factor allows of some of its variables."""
    scope = possible.scopes[f]
    axes = sorted((a for a, v in enumerate(scope) if int(place[v]) in chosen),
                  key=lambda a: -place[scope[a]])  # fmt: skip
    states = possible.states(f)
    keys = np.zeros(len(possible.entries[f]), dtype=np.int64)
    for axis, (_, shift) in zip(axes, spots, strict=True):
        keys |= states[axis] << shift
    return np.unique(keys)


def _levels(
    clique: list[int],
    tables: list[tuple[list[int], list[tuple[int, int]]]],
    out: list[tuple[int, int]],
    bits: list[int],
    columns: _Columns,
    part_ends: list[int],
) -> None:
    """Return runs of variables in the same tables, each within one word."""
    spots: dict[int, list[tuple[int, int, int]]] = {p: [] for p in clique}
    for o, (places, where) in enumerate(tables):
        for p, (word, shift) in zip(places, where, strict=True):
            spots[p].append((o, word, shift))
    # The bucket's own variable has no place in the message: any word will do.
    goals = [*out, (out[-1][0] if out else 0, 0)]
    run: list[int] = []
    for i, p in enumerate(clique):
        run.append(p)
        here = [(o, word) for o, word, _ in spots[p]], goals[i][0]
        if i + 1 < len(clique):
            after = clique[i + 1]
            if ([(o, word) for o, word, _ in spots[after]], goals[i + 1][0]) == here:
                continue
        # The message's part of the last level ends with the variable before the bucket's own.
        goal = goals[i] if i + 1 < len(clique) else (goals[i - 1] if len(run) > 1 else (0, 0))
        columns.add(level_bits=sum(bits[q] for q in run), level_word=goal[0], level_shift=goal[1])
        for o, word, shift in spots[p]:
            columns.add(part_op=o, part_word=word, part_shift=shift)
        part_ends.append(len(columns.lists["part_op"]))
        run = []


def _keys(
    possible: Possible, place: Ints, layouts: list[tuple[list[tuple[int, int]], int]]
) -> tuple[list[Ints], list[Floats], list[Ints]]:
    """Sorted keys of every factor (words of a row side by side), its values, and its order."""
    keys, values, orders = [], [], []
    for t, scope in enumerate(possible.scopes):
        spots, words = layouts[t]
        columns = np.zeros((len(possible.entries[t]), words), dtype=np.int64)
        axes = np.argsort(-place[list(scope)])
        states = possible.states(t)
        for axis, (word, shift) in zip(axes.tolist(), spots, strict=True):
            columns[:, word] |= states[axis] << shift
        order = np.lexsort(columns.T[::-1])
        keys.append(columns[order].ravel())
        values.append(possible.values[t][order])
        orders.append(order)
    return keys, values, orders
