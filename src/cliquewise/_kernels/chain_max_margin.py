"""Block-coordinate Frank-Wolfe on chains: whole passes in one call.

The dual variable of example ``i`` is a convex combination of labellings, its *atoms*. They are
kept as they are (T labels and a weight each), never as T x K marginals: memory grows with the
number of labellings that matter, and a step between two of them touches only the weights of
the tokens on which they are wrong. Their values relative to the truth

    H_a = Hamming(y_a, y_i) + <w, F(x_i, y_a) - F(x_i, y_i)>

and the direction ``d = sum_a beta_a (F(y_a) - F(y_i))`` give a step in closed form:
``gamma = sum_a beta_a H_a / (pull ||d||^2)``, at most what leaves all weights non-negative.

* pairwise: weight moves from the worst atom that has any to the best;
* away: the better of the Frank-Wolfe direction and away from the worst atom;
* fw: towards the best atom (Lacoste-Julien et al. 2013).

An exact visit asks Viterbi for a new best atom; a cached one takes the best of those there
are (Shah et al. 2015), at the cost of a few tokens.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain import longest
from cliquewise._kernels.chain_decode import decode_workspace
from cliquewise._kernels.chain_features import mask_rows
from cliquewise._kernels.chain_hinge import (
    add_path,
    count_mistakes,
    most_violating,
    place,
    possible_transitions,
)
from cliquewise._kernels.chain_sdca import draw_leaf, set_leaf

#: Atoms of all examples: linked lists over one pool. ``head`` and ``size`` are per example;
#: ``next``, ``start`` (of its labels in ``labels``), ``alpha``, ``loss`` and ``idle`` (exact
#: visits since it last had weight) are per atom; ``used`` counts atoms and labels in the pool.
Atoms = namedtuple(
    "Atoms",
    ["head", "size", "next", "start", "alpha", "loss", "idle", "labels", "used", "gaps", "tree"],
)

PAIRWISE, AWAY, FRANK_WOLFE = 0, 1, 2


@kernel
def start(chains, atoms, first_example):
    """Give every example from ``first_example`` on one atom, the truth."""
    for i in range(first_example, chains.offsets.shape[0] - 1):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        a, begin = atoms.used[0], atoms.used[1]
        atoms.head[i], atoms.size[i] = a, 1
        atoms.next[a], atoms.start[a], atoms.alpha[a] = -1, begin, 1.0
        atoms.loss[a], atoms.idle[a] = 0.0, 0
        for t in range(first, last):
            atoms.labels[begin + t - first] = chains.labels[t]
        atoms.used[0] += 1
        atoms.used[1] += last - first


@kernel(helper=True)
def _weight(chains, w, attribute, label, n_labels):
    at = place(chains, attribute, label, n_labels)
    return w[at] if at >= 0 else 0.0


@kernel(helper=True)
def _path_score(chains, w, edge_start, n_labels, first, labels, start, size):
    """<w, F(y) - F(y_i)> of one labelling."""
    ones = chains.values.shape[0] == 0
    total = 0.0
    for t in range(size):
        new, truth = labels[start + t], chains.labels[first + t]
        if new != truth:
            for e in range(chains.indptr[first + t], chains.indptr[first + t + 1]):
                a = chains.indices[e]
                x = 1.0 if ones else chains.values[e]
                total += x * (
                    _weight(chains, w, a, new, n_labels) - _weight(chains, w, a, truth, n_labels)
                )
        if t > 0:
            before, true_before = labels[start + t - 1], chains.labels[first + t - 1]
            if new != truth or before != true_before:
                total += w[edge_start + before * n_labels + new]
                total -= w[edge_start + true_before * n_labels + truth]
    return total


@kernel(helper=True)
def _move_at(w, direction, at, factor):
    """w += factor * direction at one place, once: the direction is zero there afterwards."""
    if at >= 0:
        w[at] += factor * direction[at]
        direction[at] = 0.0


@kernel(helper=True)
def _move_path(chains, first, labels, start, size, factor, edge_start, n_labels, w, direction):
    """w += factor * direction on all places that one labelling touches."""
    for t in range(size):
        new, truth = labels[start + t], chains.labels[first + t]
        if new != truth:
            for e in range(chains.indptr[first + t], chains.indptr[first + t + 1]):
                a = chains.indices[e]
                _move_at(w, direction, place(chains, a, new, n_labels), factor)
                _move_at(w, direction, place(chains, a, truth, n_labels), factor)
        if t > 0:
            before, true_before = labels[start + t - 1], chains.labels[first + t - 1]
            if new != truth or before != true_before:
                _move_at(w, direction, edge_start + before * n_labels + new, factor)
                _move_at(w, direction, edge_start + true_before * n_labels + truth, factor)


@kernel(helper=True)
def _gather(atoms, i, ids):
    """The atoms of one example into ``ids``; how many."""
    count, a = 0, atoms.head[i]
    while a >= 0:
        ids[count] = a
        count += 1
        a = atoms.next[a]
    return count


@kernel(helper=True)
def _find(atoms, ids, count, labels, size):
    """Number of the atom with these labels, -1 if there is none."""
    for k in range(count):
        begin = atoms.start[ids[k]]
        same = True
        for t in range(size):
            if atoms.labels[begin + t] != labels[t]:
                same = False
                break
        if same:
            return k
    return -1


@kernel(helper=True)
def _insert(atoms, i, ids, count, labels, size, patience):
    """Give a new labelling an atom without weight; (its number, the new count).

    It takes the place of the atom that has been without weight for longest, if that is more
    than ``patience`` visits, or if there is no room for another.
    """
    oldest, age = -1, -1
    for k in range(count):
        a = ids[k]
        if atoms.alpha[a] == 0.0 and atoms.idle[a] > age:
            oldest, age = k, atoms.idle[a]
    if count < ids.shape[0] and age <= patience:
        a, oldest = atoms.used[0], count
        atoms.start[a] = atoms.used[1]
        atoms.used[0] += 1
        atoms.used[1] += size
        atoms.next[a] = atoms.head[i]
        atoms.head[i] = a
        atoms.size[i] += 1
        ids[count] = a
        count += 1
    a = ids[oldest]
    atoms.alpha[a], atoms.idle[a] = 0.0, 0
    for t in range(size):
        atoms.labels[atoms.start[a] + t] = labels[t]
    return oldest, count


@kernel(helper=True)
def _direction(method, value, alpha, count, beta):
    """Fill ``beta``, the change of the weights per unit of step; (slope, longest step)."""
    best, worst, mean = 0, -1, 0.0
    for k in range(count):
        mean += alpha[k] * value[k]
        if value[k] > value[best]:
            best = k
        if alpha[k] > 0.0 and (worst < 0 or value[k] < value[worst]):
            worst = k
    if method == PAIRWISE:
        for k in range(count):
            beta[k] = 0.0
        beta[best] += 1.0
        beta[worst] -= 1.0
        return value[best] - value[worst], alpha[worst]
    towards, away = value[best] - mean, mean - value[worst]
    if method == AWAY and away > towards and alpha[worst] < 1.0:
        for k in range(count):
            beta[k] = alpha[k]
        beta[worst] -= 1.0
        return away, alpha[worst] / (1.0 - alpha[worst])
    for k in range(count):
        beta[k] = -alpha[k]
    beta[best] += 1.0
    return towards, 1.0


@kernel(helper=True)
def _values(chains, atoms, ids, count, w, edge_start, n_labels, first, size, value):
    """H_a of all atoms of one example."""
    for k in range(count):
        a = ids[k]
        value[k] = atoms.loss[a] + _path_score(
            chains, w, edge_start, n_labels, first, atoms.labels, atoms.start[a], size
        )


@kernel(helper=True)
def _move(chains, atoms, ids, count, alpha, beta, slope, least, most, first, size, pull, edge_start,
          edge_free, w, direction):  # fmt: skip
    """The best step along ``beta`` in [least, most]; the rise of the dual, in units of c_i / n."""
    norm, mass = 0.0, 0.0
    for k in range(count):
        if beta[k] != 0.0:
            change = add_path(
                chains, first, atoms.labels, atoms.start[ids[k]], size, beta[k], edge_start,
                edge_free, direction,
            )  # fmt: skip
            norm += change
            mass += abs(change)
    gamma = most
    if norm > 1e-14 * mass:
        gamma = max(min(most, slope / (pull * norm)), least)
    for k in range(count):
        if beta[k] != 0.0:
            _move_path(
                chains, first, atoms.labels, atoms.start[ids[k]], size, -pull * gamma, edge_start,
                edge_free.shape[0], w, direction,
            )  # fmt: skip
            new = alpha[k] + gamma * beta[k]
            if gamma == most and beta[k] < 0.0 and new < 1e-15:
                new = 0.0
            alpha[k] = max(new, 0.0)
            atoms.alpha[ids[k]] = alpha[k]
    return gamma * (slope - 0.5 * pull * gamma * max(norm, 0.0))


@kernel(helper=True)
def _lightest_to_best(alpha, value, count, beta):
    """``beta`` of moving the weight of the lightest atom to the best other; (slope, weight)."""
    lightest = 0
    for k in range(count):
        beta[k] = 0.0
        if alpha[k] < alpha[lightest]:
            lightest = k
    best = 1 if lightest == 0 else 0
    for k in range(count):
        if k != lightest and value[k] > value[best]:
            best = k
    beta[best], beta[lightest] = 1.0, -1.0
    return value[best] - value[lightest], alpha[lightest]


@kernel(helper=True)
def _is_crowded(alpha, count, most_atoms):
    """Whether there is no room for another atom, and none without weight."""
    if count < most_atoms:
        return False
    for k in range(count):
        if alpha[k] == 0.0:
            return False
    return True


@kernel
def epoch(chains, atoms, w, direction, edge_start, edge_free, edge_allowed, strength, order,
          uniforms, exact, method, most_atoms, most_steps, patience):  # fmt: skip
    """Visit examples; each visit improves the weights of one example's atoms.

    Parameters
    ----------
    chains : Chains
    atoms : Atoms
        Changed in place.
    w : array
        Weights ``strength * sum_i c_i (F_i - sum_a alpha_a F(y_a))``, changed in place.
    direction : array
        Zeros, as many as ``w``; zeros again afterwards.
    strength : float
        1 / (lam n).
    order : int array
        Examples to visit; -1 to draw one by its last seen gap.
    exact : bool
        Ask Viterbi for a labelling; otherwise make do with the atoms there are.
    method : int
        PAIRWISE, AWAY or FRANK_WOLFE.
    most_atoms, most_steps, patience : int
        Atoms per example (at least 2), steps per visit, and visits until an atom without
        weight may be replaced.

    Returns
    -------
    (done, calls, rise)
        Visits made (fewer than asked for where the pool is full), Viterbi passes, and the
        rise of ``n`` times the dual objective.
    """
    n_labels, n = edge_free.shape[0], chains.offsets.shape[0] - 1
    length = longest(chains.offsets)
    scores = np.empty((length, n_labels), w.dtype)
    work = decode_workspace(length, n_labels, w)
    labels, ids = np.empty(length, np.int64), np.empty(most_atoms, np.int64)
    value, alpha, beta = np.empty(most_atoms), np.empty(most_atoms), np.empty(most_atoms)
    trans = w[edge_start : edge_start + n_labels * n_labels].reshape(n_labels, n_labels)
    masked = np.empty_like(trans) if edge_allowed.shape[0] > 0 else trans
    calls, rise = 0, 0.0
    for visit in range(order.shape[0]):
        if exact and (
            atoms.used[0] == atoms.next.shape[0] or atoms.used[1] + length > atoms.labels.shape[0]
        ):
            return visit, calls, rise
        i = order[visit]
        if i < 0:
            i = draw_leaf(atoms.tree, uniforms[visit], n)
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size, weight = last - first, chains.weights[i]
        if size == 0 or weight == 0.0 or (atoms.size[i] < 2 and not exact):
            continue
        pull = weight * strength
        count = _gather(atoms, i, ids)
        for k in range(count):
            alpha[k] = atoms.alpha[ids[k]]
        _values(chains, atoms, ids, count, w, edge_start, n_labels, first, size, value)
        fresh = True
        if exact:
            possible = possible_transitions(trans, edge_allowed, masked)
            best = most_violating(chains, w, possible, first, last, 1.0, scores, work, labels)
            calls += 1
            gap = best
            for k in range(count):
                gap -= alpha[k] * value[k]
            gap = weight * max(gap, 0.0)
            atoms.gaps[i] = gap
            if atoms.tree.shape[0] > 0:
                set_leaf(atoms.tree, i, gap)
            if gap > 0.0 and _find(atoms, ids, count, labels, size) < 0:
                if _is_crowded(alpha, count, most_atoms):
                    slope, moved = _lightest_to_best(alpha, value, count, beta)
                    rise += weight * _move(
                        chains, atoms, ids, count, alpha, beta, slope, moved, moved, first, size,
                        pull, edge_start, edge_free, w, direction,
                    )  # fmt: skip
                    fresh = False
                k, count = _insert(atoms, i, ids, count, labels, size, patience)
                atoms.loss[ids[k]] = count_mistakes(chains, first, labels, 0, size)
                alpha[k], value[k] = 0.0, best
        top = 0.0
        for _step in range(most_steps):
            if not fresh:
                _values(chains, atoms, ids, count, w, edge_start, n_labels, first, size, value)
            fresh = False
            slope, most = _direction(method, value, alpha, count, beta)
            top = max(top, slope)
            if not slope > 1e-14 * (1.0 + abs(value[0])) or slope < 0.1 * top:
                break
            rise += weight * _move(
                chains, atoms, ids, count, alpha, beta, slope, 0.0, most, first, size, pull,
                edge_start, edge_free, w, direction,
            )  # fmt: skip
        if exact:
            for k in range(count):
                atoms.idle[ids[k]] = 0 if alpha[k] > 0.0 else atoms.idle[ids[k]] + 1
    return order.shape[0], calls, rise


@kernel
def weights_of_atoms(chains, atoms, edge_start, edge_free, strength, w):
    """Make the weights of all atoms sum to one and compute w afresh; sum of ``c_i`` x loss."""
    w[:] = 0.0
    total = 0.0
    for i in range(chains.offsets.shape[0] - 1):
        first, size = chains.offsets[i], chains.offsets[i + 1] - chains.offsets[i]
        mass, a = 0.0, atoms.head[i]
        while a >= 0:
            mass += atoms.alpha[a]
            a = atoms.next[a]
        a = atoms.head[i]
        while a >= 0:
            atoms.alpha[a] /= mass
            if atoms.alpha[a] > 0.0:
                share = chains.weights[i] * atoms.alpha[a]
                total += share * atoms.loss[a]
                add_path(
                    chains, first, atoms.labels, atoms.start[a], size, -strength * share,
                    edge_start, edge_free, w,
                )  # fmt: skip
            a = atoms.next[a]
    mask_rows(chains, edge_free.shape[0], w)
    return total
