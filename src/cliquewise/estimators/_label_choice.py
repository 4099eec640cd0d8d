"""How strong the penalty, and which pairs of labels: decided on rows that were held out.

1. Independent labels are fitted to a part of the rows for growing C, each from the one before; the
   others tell which C predicts best.
2. Weights that a penalty has shrunk say too little of new rows, and of rare labels it is too often
   "no". A scale and a shift of all scores, fitted to the held-out rows, make up for that.
3. Where two labels depend on each other beyond what the features say, their errors on held-out
   rows do. One product of matrices tests all pairs; the strongest that keep exact inference cheap
   become the candidate. It is trained, too, and kept only if the held-out rows gain by it beyond
   noise.
4. A label is predicted if its chance is above a cut. One half gets most labels right, but of rare
   labels it finds too few. Of all cuts that do as well up to noise, the one that predicts about as
   many labels as there are is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from cliquewise.oracles.label_rows import LabelRows
from cliquewise.problems.label_graph import LabelGraphProblem
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.base import Start
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.newton import Newton
from cliquewise.solvers.run import run

#: Rows below which nothing can be told.
FEWEST = 20
#: Rows below which each is held out once, in three parts; above, a third of them is.
FEW = 500
#: Rows that are looked at, at most.
MOST = 12_000
#: Where the search for C begins, its factor, and its limits.
FIRST, FACTOR, LEAST, LARGEST = 1.0, 4.0, 4.0**-5, 4.0**6
#: Relative gap of the fits that are only compared.
LOOSE = 1e-2
#: Entries of a bucket's table, at most: five labels.
WIDEST = 32
#: Pairs beyond a forest that are tried, at most.
TRIED = 200
#: Standard errors that count as more than noise.
SIGNIFICANT = 2.0

#: Cuts that are tried.
CUTS = np.round(np.arange(0.1, 0.61, 0.02), 2)

#: Share of the loss that pairs must save to be worth their while.
WORTH = 0.01
#: Labels that the search for C looks at, at most.
LABELS = 32
#: Share of a standard error that a cut may cost.
SLACK = 0.5

#: A problem of some rows and labels, from its pairs and C.
Make = Callable[[Any, Any, Ints, float], LabelGraphProblem]
NO_PAIRS: Ints = np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Choice:
    """What was decided.

    Attributes
    ----------
    C : float
    pairs : (n_pairs, 2)
    calibration : (scale, shift, scale of the tables)
    cut : float
        Chance from which on a label is predicted.
    start : array or None
        Weights to start from.
    reason : str
    """

    C: float
    pairs: Ints
    calibration: tuple[float, float, float] = (1.0, 0.0, 1.0)
    cut: float = 0.5
    start: Floats | None = None
    reason: str = ""


@dataclass(frozen=True)
class HeldOut:
    """Scores of rows by weights that have not seen them."""

    on: Floats
    Y: Floats
    weights: Floats
    rows: LabelRows
    tables: list[Floats]  # by part
    parts: list[Ints]  # positions of each part's rows
    start: Floats
    shifts: bool

    def at(self, x: Any) -> tuple[Floats, Floats, Floats]:
        """Loss of every row and chances of the labels, calibrated so; and the loss's gradient."""
        a, b, t = x
        losses, chances, slope = np.empty(len(self.on)), np.empty(self.on.shape), np.zeros(3)
        for tables, at in zip(self.tables, self.parts, strict=True):
            on, Y, c = a * self.on[at] + b, self.Y[at], self.weights[at]
            log_z, p, pairs = self.rows.marginals(on, t * tables, c)
            left, right = self.rows.pairs.T
            state = (2 * Y[:, left] + Y[:, right]).astype(np.int64)
            truth = tables[np.arange(len(tables)), state]
            losses[at] = log_z - (on * Y).sum(axis=1) - t * truth.sum(axis=1)
            chances[at] = p
            rest = c[:, None] * (p - Y)
            slope += [
                float((rest * self.on[at]).sum()),
                float(rest.sum()) if self.shifts else 0.0,
                float((pairs * tables).sum() - c @ truth.sum(axis=1)),
            ]
        return losses, chances, slope

    def calibrated(self) -> tuple[Any, Floats, Floats]:
        """The best scale and shift (held back by one row's worth), losses and chances."""
        plain = np.array([1.0, 0.0, 1.0])

        def objective(x: Floats) -> tuple[float, Floats]:
            losses, _, slope = self.at(x)
            away = x - plain
            return float(self.weights @ losses) + 0.5 * float(away @ away), slope + away

        found = minimize(
            objective, plain, jac=True, method="L-BFGS-B",
            bounds=[(0.01, 100.0), (-10.0, 10.0), (0.0, 10.0)], options={"maxiter": 30},
        )  # fmt: skip
        losses, chances, _ = self.at(found.x)
        return found.x, losses, chances


class Validation:
    """Parts of the rows to fit, and those that are held out."""

    def __init__(self, make: Make, Y: Floats, weights: Floats, rng: Any, shifts: bool):
        self.make, self.Y, self.weights, self.shifts = make, Y, weights, shifts
        order = rng.permutation(len(Y))[:MOST]
        thirds = np.array_split(order, 3)
        held = thirds if len(Y) < FEW else thirds[:1]
        self.folds = [(np.setdiff1d(order, part), np.sort(part)) for part in held]
        self.positions = np.concatenate([part for _, part in self.folds])
        few = Y.shape[1] <= 2 * LABELS
        self.some = slice(None) if few else np.sort(rng.permutation(Y.shape[1])[:LABELS])

    def fit(
        self, pairs: Ints, C: float, starts: Any, labels: Any = slice(None)
    ) -> tuple[HeldOut, list[Floats]]:
        """Weights of every fold, and what they say of the rows that it holds out."""
        on, tables, parts, weights, at = [], [], [], [], 0
        for k, (seen, held) in enumerate(self.folds):
            problem = self.make(seen, labels, pairs, C)
            start = None if starts is None else _padded(starts[k], problem)
            solver = LBFGS() if len(pairs) else Newton()
            w = run(problem, solver, tol=LOOSE, max_epochs=500, warm=start).weights
            other = self.make(held, labels, pairs, C)
            V, T = other.unpack(w)
            on.append(other.features.scores(V) / other.gamma)
            tables.append(T / other.gamma)
            parts.append(np.arange(at, at + len(held)))
            weights.append(w)
            at += len(held)
        Y = self.Y[self.positions][:, labels].astype(np.float64)
        c, rows = self.weights[self.positions], LabelRows(Y.shape[1], pairs)
        scores = np.concatenate(on)
        return HeldOut(scores, Y, c, rows, tables, parts, weights[0], self.shifts), weights


def _padded(w: Floats, problem: LabelGraphProblem) -> Start:
    """Weights of independent labels as a start with pairs."""
    return Start(np.concatenate([w, np.zeros(problem.dimension)])[: problem.dimension])


def decide(
    validation: Validation, C: float | None, pairs: Ints | None, exact: bool = True
) -> Choice:
    """C where it is None, and the pairs where they are; if all is exact, with a calibration."""
    if len(validation.Y) < FEWEST:
        few = f"{len(validation.Y)} rows are too few to hold some out"
        return Choice(FIRST if C is None else C, NO_PAIRS if pairs is None else pairs, reason=few)
    C, alone, starts, said = _penalty(validation, C)
    if pairs is not None and not exact:
        return Choice(C, pairs, reason=f"{said}, by independent labels")
    x, losses, chances = alone.calibrated()
    wanted = strongest_pairs(alone.Y, chances, alone.weights) if pairs is None else pairs
    if len(wanted) == 0:
        said += "; no pairs: the labels' errors on held-out rows do not depend on each other"
        return _choice(C, alone, x, chances, said)
    together, _ = validation.fit(wanted, C, starts)
    y, after, joint = together.calibrated()
    change = f"from {_mean(losses, alone):.4g} to {_mean(after, together):.4g}"
    said += f"; {len(wanted)} pairs change the loss on held-out rows {change}"
    if pairs is None and not _is_better(alone, losses, chances, after, joint):
        said += ", which is noise, too little or costs right labels: no pairs"
        return _choice(C, alone, x, chances, said)
    return _choice(C, together, y, joint, said)


def _choice(C: float, held: HeldOut, x: Any, chances: Floats, said: str) -> Choice:
    a, b, t = x.tolist()
    cut = best_cut(held.Y, chances, held.weights)
    return Choice(C, held.rows.pairs, (a, b, t), cut, held.start, said)


def _penalty(validation: Validation, C: float | None) -> tuple[float, HeldOut, Any, str]:
    """Upwards from 1 as long as the held-out rows gain, else downwards."""
    if C is not None:
        return C, *validation.fit(NO_PAIRS, C, None), f"C = {C:g}, as given"
    some = validation.some
    best, tried = FIRST, {FIRST: validation.fit(NO_PAIRS, FIRST, None, some)}
    losses = {FIRST: tried[FIRST][0].calibrated()[1]}
    for factor in (FACTOR, 1.0 / FACTOR):
        while LEAST <= (following := best * factor) <= LARGEST:
            tried[following] = validation.fit(NO_PAIRS, following, tried[best][1], some)
            held = tried[following][0]
            losses[following] = held.calibrated()[1]
            gain = held.weights * (losses[best] - losses[following])
            if gain.sum() <= _noise(gain):
                break
            best = following
        if best != FIRST:
            break
    listed = ", ".join(f"{c:g}" for c in sorted(tried))
    said = f"C = {best:g} predicts held-out rows best, of {listed}"
    if isinstance(some, slice):
        return best, *tried[best], said
    return best, *validation.fit(NO_PAIRS, best, None), said


def _noise(differences: Floats) -> float:
    """Standard error of their sum."""
    return float(np.sqrt(len(differences)) * differences.std())


def _mean(losses: Floats, held: HeldOut) -> float:
    return float(np.average(losses, weights=held.weights))


def _is_better(
    held: HeldOut, losses: Floats, chances: Floats, after: Floats, joint: Floats
) -> bool:
    """Whether the loss falls by more than noise, and no more labels are wrong than by noise."""
    c = held.weights
    gain = c * (losses - after)
    wrong = c * (((joint > 0.5) != held.Y).sum(axis=1) - ((chances > 0.5) != held.Y).sum(axis=1))
    worth = WORTH * float(c @ losses)
    is_gain = gain.sum() > max(SIGNIFICANT * _noise(gain), worth)
    return bool(is_gain and wrong.sum() <= _noise(wrong))


def best_cut(Y: Floats, chances: Floats, weights: Floats) -> float:
    """Where to cut chances: few wrong labels and sets, and about as many labels as there are.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> chances = rng.beta(0.3, 2.0, (500, 10))
    >>> 0.2 < best_cut(rng.random((500, 10)) < chances, chances, np.ones(500)) <= 0.52
    True
    """
    wrong = [weights * ((chances > cut) != Y).sum(axis=1) for cut in CUTS]
    sets = [weights * ((chances > cut) != Y).any(axis=1) for cut in CUTS]
    best = int(np.argmin([one.sum() for one in wrong]))
    as_good = [
        all(d.sum() <= SLACK * _noise(d) for d in (wrong[k] - wrong[best], sets[k] - sets[best]))
        for k in range(len(CUTS))
    ]
    true = float((weights @ Y).sum())
    off = [abs(float((weights @ (chances > cut)).sum()) - true) for cut in CUTS]
    return float(CUTS[int(np.argmin(np.where(as_good, off, np.inf)))])


def strongest_pairs(Y: Floats, chances: Floats, weights: Floats) -> Ints:
    """Pairs of labels whose errors go together, as many as leave exact inference cheap.

    The derivative of the likelihood in a weight for both labels being on is the sum of products
    of their errors. Its square over twice its variance (as observed: chances may be wrong) is about
    what the pair would gain; it has to be more than what the best of as many independent pairs
    would seem to gain, and a parameter costs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(0, 2, 200)
    >>> Y = np.stack([first, rng.integers(0, 2, 200), first], axis=1).astype(float)
    >>> strongest_pairs(Y, np.full(Y.shape, 0.5), np.ones(200)).tolist()
    [[0, 2]]
    """
    errors = (Y - chances) * np.sqrt(weights)[:, None]
    total, spread = errors.T @ errors, np.square(errors).T @ np.square(errors)
    n_labels = Y.shape[1]
    left, right = np.triu_indices(n_labels, 1)
    gain = 0.5 * total[left, right] ** 2 / np.maximum(spread[left, right], 1e-300)
    bar = 0.5 * np.log(len(Y)) + np.log(max(len(left), 1))
    good = np.flatnonzero(gain > bar)
    good = good[np.argsort(-gain[good], kind="stable")]
    found: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    part = np.arange(n_labels)  # which tree of the forest a label is in
    for i, j in zip(left[good].tolist(), right[good].tolist(), strict=True):
        if part[i] == part[j]:
            others.append((i, j))
            continue
        found.append((i, j))
        part[part == part[j]] = part[i]
    for pair in others[:TRIED]:
        if LabelRows(n_labels, np.array([*found, pair])).widest <= WIDEST:
            found.append(pair)
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
