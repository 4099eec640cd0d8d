"""Loopy belief propagation for factors of any order, with residual scheduling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.icm import flat_factors
from cliquewise.ragged import Floats, Ints, offsets_of

#: Marginals below this are no divisors.
TINY = 1e-280
#: Messages are damped where so many turns of all factors do not shrink their changes to this part.
WINDOW, SHRINKS = 10, 0.5
#: About so many entries of tables between two looks at the clock.
AT_ONCE = 1_000_000
#: Urgency of factors that have sent nothing yet.
UNSENT = 1e6
#: Rounds of scaling that make tables agree with the marginals of variables, and how closely.
FITTING, FITTED = 50, 1e-13


class Group:
    """Factors whose tables have the same shape, and the positions of their variables."""

    def __init__(self, graph: FactorGraph, shape: tuple[int, ...], factors: Ints):
        s = graph.structure
        self.shape, self.factors = shape, factors
        size = int(np.prod(shape))
        self.entries = s.table_offsets[factors][:, None] + np.arange(size)
        self.tables = graph.tables[self.entries].reshape(len(factors), *shape)
        scopes = s.scope_offsets[factors][:, None] + np.arange(len(shape))
        nodes = s.scopes[scopes]
        #: Per axis: flat positions of the states of the variables there.
        self.places = [s.node_offsets[nodes[:, a]][:, None] + np.arange(k)
                       for a, k in enumerate(shape)]  # fmt: skip
        #: Per axis: places in the scopes.
        self.scopes = list(scopes.T)
        self.to_nodes = [np.zeros(p.shape) for p in self.places]
        self.from_nodes = [np.zeros(p.shape) for p in self.places]

    def scores(self) -> Floats:
        """Return the tables plus the messages of their variables."""
        total: Floats = self.tables
        for a, message in enumerate(self.from_nodes):
            total = total + self._spread(message, a)
        return total

    def fitted(self, tables: Floats, nodes: Floats) -> Floats:
        """Scale tables so their marginals match those of the nodes.

        Scaling in turn leaves zeros where they are; what is still missing after that is added as
        a table of rank one.
        """
        if not self.shape:  # constants
            return tables
        p = tables.reshape(-1, *self.shape)
        wanted = [nodes[places] for places in self.places]
        for _ in range(FITTING):
            worst = 0.0
            for a in range(len(self.shape)):
                now = self._side(p, a)
                worst = max(worst, float(np.abs(now - wanted[a]).max(initial=0.0)))
                p = p * self._spread(wanted[a] / np.where(now > TINY, now, 1.0), a)
            if worst <= FITTED:
                break
        for a in range(len(self.shape)):
            now = self._side(p, a)
            p = p * self._spread(np.minimum(1.0, wanted[a] / np.where(now > 0, now, 1.0)), a)
        short = [np.maximum(w - self._side(p, a), 0.0) for a, w in enumerate(wanted)]
        # As much on every side, but for rounding: each is divided by its own, which may be tiny.
        missing = np.min([one.sum(axis=1) for one in short], axis=0)
        product = missing.reshape(-1, *[1] * len(self.shape))
        for a, one in enumerate(short):
            total = one.sum(axis=1, keepdims=True)
            product = product * self._spread(one / np.where(total > 0, total, 1.0), a)
        p = p + product
        return np.asarray(p.reshape(tables.shape))

    def _side(self, p: Floats, axis: int) -> Floats:
        """Return the marginals of the tables at one of their variables."""
        return np.asarray(p.sum(axis=tuple(b + 1 for b in range(len(self.shape)) if b != axis)))

    def _spread(self, values: Floats, axis: int) -> Floats:
        """Reshape numbers of the states of one variable to its axis of the tables."""
        sides = [1] * len(self.shape)
        sides[axis] = self.shape[axis]
        return values.reshape(-1, *sides)


class FactorMessages:
    """Messages between factors and variables, in logarithms, each with its largest entry zero."""

    def __init__(self, graph: FactorGraph):
        self.graph = graph
        s = graph.structure
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for f in range(s.n_factors):
            by_shape.setdefault(s.shape(f), []).append(f)
        self.groups = [Group(graph, shape, np.array(fs)) for shape, fs in by_shape.items()]
        self.owners = np.repeat(np.arange(s.n_variables), s.cardinalities)
        self.belief = np.zeros(len(self.owners))
        self.flow, self.queue = _start(graph)

    def run(self, tol: float, most: int, deadline: float) -> tuple[bool, int]:
        """Update the messages with the largest residual; return if they converged, and the turns.

        A turn is as many factors as there are. Damping starts where changes no longer shrink
        without.
        """
        from cliquewise._kernels.graphs.factor_messages import settle

        n, entries = len(self.queue.heap), len(self.graph.tables)
        at_once = n * int(np.clip(AT_ONCE // max(entries, 1), 1, WINDOW))
        flat = self.graph.structure.once(flat_factors)
        damping, before, sums, since, made = 0.0, math.inf, 0.0, 0, 0
        settled = n == 0
        while not settled and made < most * n:
            count = min(at_once, most * n - made)
            done, change = settle(
                count, tol, damping, flat, self.graph.tables, self.flow, self.queue
            )
            if done < 0:  # what has no support at all is impossible
                raise InfeasibleError(INFEASIBLE)
            made, sums, since, settled = made + done, sums + change, since + done, done < count
            if clock.now() > deadline:
                break
            if since >= WINDOW * n:
                if sums / since > SHRINKS * before:
                    damping = min(0.9, 0.5 + damping / 2.0)
                before, sums, since = sums / since, 0.0, 0
        for group in self.groups:
            for a, (scopes, k) in enumerate(zip(group.scopes, group.shape, strict=True)):
                places = self.flow.places[scopes][:, None] + np.arange(k)
                group.to_nodes[a] = self.flow.messages[places]
        return settled, -(-made // max(n, 1))

    def _listen(self) -> None:
        """Compute the beliefs of the variables and their messages to the factors."""
        finite, zeros = np.zeros(len(self.owners)), np.zeros(len(self.owners))
        for group in self.groups:
            for places, message in zip(group.places, group.to_nodes, strict=True):
                gone = message == -np.inf
                np.add.at(finite, places, np.where(gone, 0.0, message))
                np.add.at(zeros, places, gone)
        self.belief = np.where(zeros > 0, -np.inf, finite)
        for group in self.groups:
            for a, (places, message) in enumerate(zip(group.places, group.to_nodes, strict=True)):
                gone = message == -np.inf
                rest = finite[places] - np.where(gone, 0.0, message)
                rest[zeros[places] - gone > 0] = -np.inf
                top = rest.max(axis=1, keepdims=True)
                group.from_nodes[a] = rest - np.where(top > -np.inf, top, 0.0)

    def answer(self) -> tuple[Floats, Floats, float]:
        """Return flat marginals of variables and factors, and Bethe's estimate of log Z."""
        self._listen()
        s = self.graph.structure
        starts = s.node_offsets[:-1]
        nodes = _normalized(self.belief, self.owners, starts)
        degrees = np.bincount(s.scopes, minlength=s.n_variables)
        entropies = np.add.reduceat(_entropy(nodes), starts) if len(starts) else np.empty(0)
        value = float(((1 - degrees) * entropies).sum())
        factors = np.empty(int(s.table_offsets[-1]))
        for group in self.groups:
            scores = group.scores().reshape(len(group.factors), -1)
            total = _log_sum(scores)
            if not np.isfinite(total).all():
                raise InfeasibleError(INFEASIBLE)
            p = np.exp(scores - total)
            factors[group.entries] = group.fitted(p, nodes)
            flat = np.where(p > 0, group.tables.reshape(p.shape), 0.0)
            value += float((p * flat).sum() + _entropy(p).sum())
        return nodes, factors, value


def _start(graph: FactorGraph) -> tuple[Any, Any]:
    """Return uniform messages, and a queue in which factors of one variable come first."""
    from cliquewise._kernels.graphs.factor_messages import Flow, Queue

    s = graph.structure
    places = offsets_of(s.cardinalities[s.scopes])
    flow = Flow(
        np.zeros(int(places[-1])), places, np.zeros(int(s.node_offsets[-1])), s.node_offsets
    )
    urgency = np.choose(np.minimum(s.orders, 2), [0.0, 2.0 * UNSENT, UNSENT])
    heap = np.argsort(-urgency, kind="stable").astype(np.int64)
    where = np.empty_like(heap)
    where[heap] = np.arange(len(heap))
    return flow, Queue(urgency, heap, where)


def bethe(graph: FactorGraph, nodes: Floats, factors: Floats) -> float:
    """Return Bethe's estimate of log Z at these marginals."""
    s = graph.structure
    degrees = np.bincount(s.scopes, minlength=s.n_variables)
    scores = np.where(factors > 0, graph.tables, 0.0)
    single = _entropy(nodes) @ np.repeat(1.0 - degrees, s.cardinalities)
    return float(factors @ scores + _entropy(factors).sum() + single)


def _log_sum(scores: Floats) -> Floats:
    """Return log sum exp of each row; scipy's is several times slower on small tables."""
    top = scores.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) + top)


def _normalized(logs: Floats, owners: Ints, starts: Ints) -> Floats:
    if not len(starts):
        return np.empty(0)
    top = np.maximum.reduceat(logs, starts)
    if not np.isfinite(top).all():
        raise InfeasibleError(INFEASIBLE)
    p = np.exp(logs - top[owners])
    return np.asarray(p / np.add.reduceat(p, starts)[owners])


def _entropy(p: Floats) -> Floats:
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0)
