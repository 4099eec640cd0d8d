"""Convex combinations of outputs, one per example, and steps that improve them.

    dual = 1/n sum_i sum_a alpha_a cost_a - lam / 2 ||w||^2,   w = -C sum_i sum_a alpha_a g_a

An atom is an output that an oracle once gave: its cost and its features less the truth's, g,
in sparse rows. The atoms of an example are a linked list; the truth (cost 0, g = 0) has what
the others leave of the total 1, and is no atom.
"""

from typing import NamedTuple

import numpy as np

from cliquewise._kernels import kernel


class Atoms(NamedTuple):
    """All atoms; ``head[i]`` is example i's first and ``rest[i]`` the share of its truth."""

    head: np.ndarray
    rest: np.ndarray
    next: np.ndarray
    cost: np.ndarray
    alpha: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray


@kernel
def total_shares(atoms, out):
    """out[i] = the sum of the shares of example i's atoms."""
    for i in range(len(out)):
        a = atoms.head[i]
        while a >= 0:
            out[i] += atoms.alpha[a]
            a = atoms.next[a]


@kernel(helper=True)
def _score(atoms, a, w):
    """Psi of an atom."""
    total = atoms.cost[a]
    for e in range(atoms.indptr[a], atoms.indptr[a + 1]):
        total += atoms.values[e] * w[atoms.indices[e]]
    return total


@kernel(helper=True)
def _norm(atoms, a, scratch, sign):
    """``||g_a - s||^2 - ||s||^2`` for the scratch s, or (sign > 0) put g_a there; 0 if a < 0."""
    total = 0.0
    if a < 0:
        return total
    for e in range(atoms.indptr[a], atoms.indptr[a + 1]):
        at, value = atoms.indices[e], atoms.values[e]
        if sign > 0:
            scratch[at] = value
            total += value * value
        else:
            total += value * (value - 2.0 * scratch[at])
    return total


@kernel(helper=True)
def _move(atoms, a, i, amount, C, w, scratch):
    """Give atom ``a`` (-1: the truth) more weight; w follows. Clears its scratch."""
    if a < 0:
        atoms.rest[i] += amount
        return
    atoms.alpha[a] += amount
    for e in range(atoms.indptr[a], atoms.indptr[a + 1]):
        w[atoms.indices[e]] -= C * amount * atoms.values[e]
        scratch[atoms.indices[e]] = 0.0


@kernel(helper=True)
def _improve(atoms, i, C, rounds, w, scratch):
    """Pairwise steps: from the worst atom that has weight to the best; the rise of n * dual."""
    rise = 0.0
    for _ in range(rounds):
        up, high = -1, 0.0
        down, low = (-1, 0.0) if atoms.rest[i] > 0 else (-2, np.inf)
        a = atoms.head[i]
        while a >= 0:
            score = _score(atoms, a, w)
            if score > high:
                up, high = a, score
            if atoms.alpha[a] > 0 and score < low:
                down, low = a, score
            a = atoms.next[a]
        if down == -2 or not high - low > 1e-14 * (1.0 + abs(high)):
            break
        norm = _norm(atoms, up, scratch, 1) + _norm(atoms, down, scratch, -1)
        most = atoms.rest[i] if down < 0 else atoms.alpha[down]
        step = most
        if norm > 0 and (high - low) < C * norm * most:
            step = (high - low) / (C * norm)
        _move(atoms, up, i, step, C, w, scratch)
        _move(atoms, down, i, -step, C, w, scratch)
        if step == most:
            # The rest of a full step is rounding error.
            if down < 0:
                atoms.rest[i] = 0.0
            else:
                atoms.alpha[down] = 0.0
        rise += step * (high - low) - 0.5 * C * step * step * norm
    return rise


@kernel
def visit(atoms, i, new, C, rounds, w, scratch):
    """Take atom ``new`` into example ``i``'s list, if nothing there is as good, and improve.

    Returns
    -------
    taken : bool
    rise : float
        Of n times the dual value.
    gap : float
        Of the example, before: the new atom's score less the mean score.
    """
    best, mean = 0.0, 0.0
    a = atoms.head[i]
    while a >= 0:
        score = _score(atoms, a, w)
        best = max(best, score)
        mean += atoms.alpha[a] * score
        a = atoms.next[a]
    score = _score(atoms, new, w)
    taken = score > best + 1e-12 * (1.0 + abs(best))
    if taken:
        atoms.next[new] = atoms.head[i]
        atoms.head[i] = new
    rise = _improve(atoms, i, C, rounds, w, scratch)
    return taken, rise, max(score - mean, 0.0)


@kernel
def cached_pass(atoms, order, C, rounds, w, scratch):
    """Reweight the stored atoms of the examples in order; return the increase of n D."""
    rise = 0.0
    for i in order:
        rise += _improve(atoms, i, C, rounds, w, scratch)
    return rise


@kernel
def weights_of_atoms(atoms, C, w):
    """Recompute ``w`` from the atoms; return the weighted sum of their costs."""
    total = 0.0
    for j in range(w.shape[0]):
        w[j] = 0.0
    for i in range(atoms.head.shape[0]):
        a = atoms.head[i]
        while a >= 0:
            total += atoms.alpha[a] * atoms.cost[a]
            for e in range(atoms.indptr[a], atoms.indptr[a + 1]):
                w[atoms.indices[e]] -= C * atoms.alpha[a] * atoms.values[e]
            a = atoms.next[a]
    return total


@kernel
def limit(atoms, most, C, w):
    """Give the lightest atoms beyond ``most`` of an example up; their weight goes to the truth."""
    for i in range(atoms.head.shape[0]):
        while True:
            count, lightest, a = 0, -1, atoms.head[i]
            while a >= 0:
                if atoms.alpha[a] > 0:
                    count += 1
                    if lightest < 0 or atoms.alpha[a] < atoms.alpha[lightest]:
                        lightest = a
                a = atoms.next[a]
            if count <= most:
                break
            share = atoms.alpha[lightest]
            for e in range(atoms.indptr[lightest], atoms.indptr[lightest + 1]):
                w[atoms.indices[e]] += C * share * atoms.values[e]
            atoms.alpha[lightest] = 0.0
            atoms.rest[i] += share


@kernel(helper=True)
def _unlink(atoms):
    """Take the atoms without weight out of the lists."""
    for i in range(atoms.head.shape[0]):
        before, a = -1, atoms.head[i]
        while a >= 0:
            after = atoms.next[a]
            if atoms.alpha[a] > 0:
                before = a
            elif before < 0:
                atoms.head[i] = after
            else:
                atoms.next[before] = after
            a = after


@kernel
def compact(atoms, used):
    """Move the atoms that have weight to the front, in order; how many there are."""
    _unlink(atoms)
    number = np.empty(used, np.int64)
    count, end = 0, 0
    for a in range(used):
        number[a] = count
        if not atoms.alpha[a] > 0:
            continue
        # Nothing behind the place that is written has still to be read.
        for e in range(atoms.indptr[a], atoms.indptr[a + 1]):
            atoms.indices[end], atoms.values[end] = atoms.indices[e], atoms.values[e]
            end += 1
        atoms.next[count], atoms.cost[count] = atoms.next[a], atoms.cost[a]
        atoms.alpha[count] = atoms.alpha[a]
        atoms.indptr[count + 1] = end
        count += 1
    for a in range(count):
        if atoms.next[a] >= 0:
            atoms.next[a] = number[atoms.next[a]]
    for i in range(atoms.head.shape[0]):
        if atoms.head[i] >= 0:
            atoms.head[i] = number[atoms.head[i]]
    return count
