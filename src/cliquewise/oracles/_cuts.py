"""Two-state problems as minimum cuts, and moves built from them.

A problem offers each variable two labels, ``first`` and ``second``. Its energy is brought to
the form ``constant + sum linear[i] x[i] + sum coupling[e] [x[i] != x[j]]``; it is submodular
where no coupling is negative, and then a minimum cut is its optimum. Otherwise roof duality
(Boros and Hammer; Kolmogorov and Rother 2007) gives a bound and the part of an optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from cliquewise.oracles._pairwise import Pairwise, Topology
from cliquewise.ragged import Floats, Ints

#: Couplings below this part of their table's largest entry are rounding.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Ising:
    """Energy ``constant + sum linear[i] x[i] + sum coupling[e] [x[i] != x[j]]``."""

    topology: Topology
    constant: float
    linear: Floats
    coupling: Floats

    @property
    def is_submodular(self) -> bool:
        """Whether a minimum cut solves it."""
        return bool((self.coupling >= 0.0).all())


def ising(pairwise: Pairwise, first: Ints, second: Ints, penalty: float) -> Ising:
    """Build the problem of choosing between two labels for every variable.

    Parameters
    ----------
    pairwise : Pairwise
    first, second : ndarray of int, shape (n,)
        Equal labels leave a variable no choice.
    penalty : float
        What a forbidden entry costs.
    """
    t = pairwise.topology
    offsets = t.node_offsets[:-1]
    stay, move = pairwise.nodes[offsets + first], pairwise.nodes[offsets + second]
    forbidden_stay, forbidden_move = stay == -np.inf, move == -np.inf
    stay, move = np.maximum(stay, -penalty), np.maximum(move, -penalty)
    i, j = t.edges[:, 0], t.edges[:, 1]
    width, base = t.cards[j], t.edge_offsets[:-1]
    corners = np.stack(
        [
            pairwise.tables[base + a[i] * width + b[j]]
            for a, b in ((first, first), (first, second), (second, first), (second, second))
        ]
    )
    if np.isneginf(corners).any():
        rules = _unary_rules(corners)
        for at, end, states in ((0, i, forbidden_stay), (1, i, forbidden_move),
                                (2, j, forbidden_stay), (3, j, forbidden_move)):  # fmt: skip
            states[end[rules[at]]] = True
        stay[forbidden_stay], move[forbidden_move] = -penalty, -penalty
        np.maximum(corners, -penalty, out=corners)
    s00, s01, s10, s11 = corners
    coupling = 0.5 * (s00 + s11 - s01 - s10)
    coupling[np.abs(coupling) <= ROUNDING * np.abs(corners).max(axis=0, initial=0.0)] = 0.0
    linear = stay - move
    n = t.n_nodes
    linear += np.bincount(i, weights=0.5 * (s00 + s01 - s10 - s11), minlength=n)
    linear += np.bincount(j, weights=0.5 * (s00 + s10 - s01 - s11), minlength=n)
    # At x = 0 the energy is minus the score of ``first``.
    return Ising(t, -float(stay.sum() + s00.sum()), linear, coupling)


def _unary_rules(corners: Floats) -> NDArray[np.bool_]:
    """Find rows and columns that are entirely forbidden; overwrite them by their neighbor.

    Such a row forbids a state of one variable and says nothing about the pair; left in place
    it would look like a coupling. Returns masks for (row 0, row 1, column 0, column 1).
    """
    table = corners.reshape(2, 2, -1)
    rules = np.zeros((4, table.shape[2]), dtype=bool)
    for axis in (0, 1):
        view = table if axis == 0 else table.swapaxes(0, 1)
        for state in (0, 1):
            gone = np.isneginf(view[state]).all(axis=0)
            rules[2 * axis + state] |= gone
            view[state][:, gone] = view[1 - state][:, gone]
    everything = np.isneginf(table).all(axis=(0, 1))
    table[:, :, everything] = 0.0
    return rules


@dataclass(frozen=True)
class Cut:
    """Result of a minimum cut: labels, a bound, and the residual network of the flow."""

    labels: Ints
    energy: float
    network: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
    residual: Floats
    terminal: Floats


def minimum_cut(problem: Ising) -> Cut:
    """Solve a submodular problem; ``labels`` are 0 (first) and 1 (second)."""
    from cliquewise._kernels.graphs.maxflow import arcs_of, max_flow

    t = problem.topology
    network = t.memo.get("cut")
    if network is None:
        network = t.memo["cut"] = arcs_of(t.n_nodes, t.edges[:, 0].copy(), t.edges[:, 1].copy())
    first, head, sister, arc = network
    residual = np.empty(2 * t.n_edges)
    residual[arc] = np.repeat(problem.coupling, 2)
    terminal = problem.linear.copy()
    in_source = np.empty(t.n_nodes, dtype=bool)
    flow = max_flow(first, head, sister, residual, terminal, in_source)
    energy = problem.constant + float(np.minimum(problem.linear, 0.0).sum()) + flow
    return Cut((~in_source).astype(np.int64), energy, (first, head, sister), residual, terminal)


def roof_dual(problem: Ising) -> tuple[Ints, float]:
    """Return labels of some optimum (-1 where unknown), and a lower bound of the energy."""
    from cliquewise._kernels.graphs.maxflow import arcs_of, max_flow

    t, n = problem.topology, problem.topology.n_nodes
    i, j = t.edges[:, 0], t.edges[:, 1]
    flipped = np.where(problem.coupling < 0.0, n, 0)
    # Node v + n stands for "not v"; every term appears once for each, at half its size.
    left, right = np.concatenate([i, i + n]), np.concatenate([j + flipped, j + n - flipped])
    first, head, sister, arc = arcs_of(2 * n, left, right)
    residual = np.empty(len(head))
    residual[arc] = np.repeat(np.tile(0.5 * np.abs(problem.coupling), 2), 2)
    terminal = 0.5 * np.concatenate([problem.linear, -problem.linear])
    in_source = np.empty(2 * n, dtype=bool)
    flow = max_flow(first, head, sister, residual, terminal, in_source)
    labels = np.full(n, -1, dtype=np.int64)
    labels[in_source[:n]], labels[in_source[n:]] = 0, 1
    bound = (
        problem.constant
        + float(np.minimum(problem.linear, 0.0).sum())
        + float(np.minimum(problem.coupling, 0.0).sum())
        + flow
    )
    return labels, bound


def fuse(pairwise: Pairwise, first: Ints, second: Ints, current: Ints, penalty: float) -> Ints:
    """Choose the better of two labels for all variables jointly; never worse than ``current``.

    ``current`` must pick one of the two labels everywhere. Where roof duality leaves a
    variable open, its connected part of the open question is answered as a whole: by
    ``first``, ``second`` or ``current``, whichever is best (fusion moves of Lempitsky et al.
    2010, with the parts added).
    """
    problem = ising(pairwise, first, second, penalty)
    if problem.is_submodular:
        labels = minimum_cut(problem).labels
    else:
        labels, _ = roof_dual(problem)
        if (labels < 0).any():
            parts = _best_by_part(problem, first != second, (current != first).astype(np.int64))
            labels = np.where(labels < 0, parts, labels)
    return np.where(labels == 0, first, second)


def _best_by_part(problem: Ising, differs: NDArray[np.bool_], current: Ints) -> Ints:
    """Set each connected component to all 0, all 1 or as in ``current``.

    No term joins two such sets, so each may be decided alone; and within one the couplings
    vanish when all its variables are alike.
    """
    t = problem.topology
    n, i, j = t.n_nodes, t.edges[:, 0], t.edges[:, 1]
    joined = differs[i] & differs[j]
    links = csr_array((np.ones(joined.sum()), (i[joined], j[joined])), shape=(n, n))
    count, part = connected_components(links, directed=False)
    split = np.where(current[i] != current[j], problem.coupling, 0.0)
    ones = np.bincount(part, weights=problem.linear, minlength=count)
    mixed = np.bincount(part, weights=problem.linear * current, minlength=count)
    mixed += np.bincount(part[i], weights=np.where(joined, split, 0.0), minlength=count)
    best = np.minimum(0.0, np.minimum(ones, mixed))[part]
    return np.where(mixed[part] <= best, current, np.where(ones[part] <= best, 1, 0))


def pair_score(pairwise: Pairwise, labels: Ints, penalty: float = np.inf) -> float:
    """Return the score of a labeling, with ``-penalty`` for each forbidden entry."""
    t = pairwise.topology
    i, j = t.edges[:, 0], t.edges[:, 1]
    nodes = pairwise.nodes[t.node_offsets[:-1] + labels]
    tables = pairwise.tables[t.edge_offsets[:-1] + labels[i] * t.cards[j] + labels[j]]
    return float(np.maximum(nodes, -penalty).sum() + np.maximum(tables, -penalty).sum())
