"""Select C, the label graph and the decision threshold of label sets on held-out rows.

1. Independent labels are fitted to part of the rows along a path of increasing C, each fit from the
   previous one. The strongest penalty whose held-out loss is within one standard error of the best
   one wins (the one-standard-error rule of Breiman et al., 1984, with paired differences).
2. Where two labels depend on each other beyond the features, their errors on held-out rows are
   correlated. One matrix product tests all pairs; the strongest that keep exact inference cheap
   are the candidate graph. It is trained as well, and kept only if the held-out loss decreases by
   more than noise.
3. A label is predicted if its probability exceeds a threshold. The threshold 1/2 gets most labels
   right but misses rare labels. Of all thresholds that do as well up to noise, the one that
   predicts about as many labels as there are is taken.
4. On request, a factor and an offset of all scores are fitted to the held-out rows (calibration).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from cliquewise.oracles.label_rows import LabelRows
from cliquewise.problems.label_graph import LabelGraphProblem
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.base import Start
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.newton import Newton
from cliquewise.solvers.run import run

#: Fewer rows than this say nothing about held-out performance.
MIN_ROWS = 20
#: Below this number of rows, each row is held out once, in three folds; above, a third of them is.
MIN_ROWS_SINGLE_SPLIT = 500
#: With fewer rows, thresholds differ by noise only, and the threshold is 1/2.
MIN_ROWS_THRESHOLD = 100
#: At most this number of rows is used.
MAX_ROWS = 12_000
#: At most this number of labels is used to select C.
MAX_LABELS = 32
#: C where nothing is selected, and the path that is tried otherwise: powers of 4.
DEFAULT_C, PATH = 1.0, tuple(4.0**k for k in range(-6, 7))
#: The path ends after this number of values that are worse than the best by two standard errors.
WORSE_VALUES, WORSE_ERRORS = 2, 2.0
#: Relative gap of fits that are only compared.
SELECTION_TOL = 1e-2
#: Largest table of exact inference with a candidate graph, in entries (five labels).
MAX_TABLE = 32
#: At most this number of pairs beyond a spanning forest is tried.
MAX_EXTRA_PAIRS = 200
#: Pairs must decrease the held-out loss by this number of standard errors, and by this share.
SIGNIFICANT_ERRORS, SIGNIFICANT_SHARE = 2.0, 0.01
#: Thresholds that are tried, and the share of a standard error that one may cost.
THRESHOLDS, THRESHOLD_ERRORS = np.round(np.arange(0.1, 0.61, 0.02), 2), 0.5

#: Builds the problem of some rows and labels, from pairs and C.
ProblemFactory = Callable[[Ints, "Ints | slice", Ints, float], LabelGraphProblem]
NO_PAIRS: Ints = np.empty((0, 2), dtype=np.int64)
UNCALIBRATED = (1.0, 0.0, 1.0)


class PathPoint(NamedTuple):
    """One value of C, the mean loss on held-out rows, and its standard error."""

    C: float
    loss: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class Selection:
    """The selected model, and why it was selected.

    Attributes
    ----------
    C : float
    pairs : ndarray (n_pairs, 2)
        Pairs of labels that have a table.
    threshold : float
        A label is predicted if its probability is above it.
    calibration : (float, float, float)
        Factor and offset of all scores, and factor of the tables.
    start : ndarray or None
        Weights to start training from.
    path : tuple of PathPoint
        Values of C that were tried.
    description : str
        The reasons in one sentence; empty if nothing was selected.
    """

    C: float
    pairs: Ints
    threshold: float = 0.5
    calibration: tuple[float, float, float] = UNCALIBRATED
    start: Floats | None = None
    path: tuple[PathPoint, ...] = ()
    description: str = ""


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Scores of held-out rows under weights that were fitted to other rows."""

    on: Floats
    Y: Floats
    weights: Floats
    rows: LabelRows
    tables: list[Floats]  # by fold
    folds: list[Ints]  # positions of each fold's rows
    start: Floats
    has_intercept: bool

    def evaluate(self, calibration: Floats | tuple[float, ...]) -> tuple[Floats, Floats, Floats]:
        """Return the loss of every row, the probabilities of the labels, and the gradient.

        The gradient is that of the weighted sum of the losses in the calibration.
        """
        scale, shift, of_tables = calibration
        losses, p = np.empty(len(self.on)), np.empty(self.on.shape)
        gradient = np.zeros(3)
        for tables, at in zip(self.tables, self.folds, strict=True):
            on, Y, c = scale * self.on[at] + shift, self.Y[at], self.weights[at]
            log_z, p[at], pairs = self.rows.marginals(on, of_tables * tables, c)
            left, right = self.rows.pairs.T
            state = (2 * Y[:, left] + Y[:, right]).astype(np.int64)
            truth = tables[np.arange(len(tables)), state]
            losses[at] = log_z - (on * Y).sum(axis=1) - of_tables * truth.sum(axis=1)
            residual = c[:, None] * (p[at] - Y)
            gradient += [
                float((residual * self.on[at]).sum()),
                float(residual.sum()) if self.has_intercept else 0.0,
                float((pairs * tables).sum() - c @ truth.sum(axis=1)),
            ]
        return losses, p, gradient

    def fit_calibration(self) -> tuple[float, float, float]:
        """Return the factor, the offset and the factor of tables with the least held-out loss.

        A weak quadratic prior, worth one row, keeps them near no calibration.
        """
        plain = np.array(UNCALIBRATED)

        def objective(x: Floats) -> tuple[float, Floats]:
            losses, _, gradient = self.evaluate(x)
            away = x - plain
            return float(self.weights @ losses) + 0.5 * float(away @ away), gradient + away

        found = minimize(
            objective, plain, jac=True, method="L-BFGS-B",
            bounds=[(0.01, 100.0), (-10.0, 10.0), (0.0, 10.0)], options={"maxiter": 30},
        )  # fmt: skip
        scale, shift, of_tables = found.x.tolist()
        return scale, shift, of_tables

    def mean(self, losses: Floats) -> float:
        """Return the weighted mean of the losses of the rows."""
        return float(np.average(losses, weights=self.weights))


class HoldOut:
    """Folds of rows: weights are fitted without a fold and evaluated on it.

    Parameters
    ----------
    make_problem : callable
        Builds the problem of some rows and labels.
    Y : (n, L) of 0 and 1
    weights : (n,)
    rng : Generator
    has_intercept : bool
    """

    def __init__(
        self,
        make_problem: ProblemFactory,
        Y: NDArray[np.int64],
        weights: Floats,
        rng: np.random.Generator,
        has_intercept: bool,
    ):
        self.make_problem, self.Y, self.weights = make_problem, Y, weights
        self.has_intercept = has_intercept
        order = rng.permutation(len(Y))[:MAX_ROWS]
        thirds = np.array_split(order, 3)
        held = thirds if len(Y) < MIN_ROWS_SINGLE_SPLIT else thirds[:1]
        self.folds = [(np.setdiff1d(order, part), np.sort(part)) for part in held]
        self.positions = np.concatenate([part for _, part in self.folds])
        few = Y.shape[1] <= 2 * MAX_LABELS
        self.labels_for_C = (
            slice(None) if few else np.sort(rng.permutation(Y.shape[1])[:MAX_LABELS])
        )

    def fit(
        self,
        pairs: Ints,
        C: float,
        starts: list[Floats] | None = None,
        labels: Ints | slice = slice(None),
    ) -> tuple[HeldOutScores, list[Floats]]:
        """Fit each fold's weights; return the scores of the held-out rows, and the weights."""
        on, tables, folds, weights, at = [], [], [], [], 0
        for k, (seen, held) in enumerate(self.folds):
            problem = self.make_problem(seen, labels, pairs, C)
            start = None if starts is None else _padded(starts[k], problem)
            solver = LBFGS() if len(pairs) else Newton()
            w = run(problem, solver, tol=SELECTION_TOL, max_epochs=500, warm=start).weights
            held_problem = self.make_problem(held, labels, pairs, C)
            V, T = held_problem.unpack(w)
            on.append(held_problem.features.scores(V) / held_problem.gamma)
            tables.append(T / held_problem.gamma)
            folds.append(np.arange(at, at + len(held)))
            weights.append(w)
            at += len(held)
        Y = self.Y[self.positions][:, labels].astype(np.float64)
        scores = HeldOutScores(
            np.concatenate(on), Y, self.weights[self.positions], LabelRows(Y.shape[1], pairs),
            tables, folds, weights[0], self.has_intercept,
        )  # fmt: skip
        return scores, weights


def _padded(w: Floats, problem: LabelGraphProblem) -> Start:
    """Weights of independent labels as the start of training with pairs."""
    return Start(np.concatenate([w, np.zeros(problem.dimension)])[: problem.dimension])


def select(
    holdout: HoldOut,
    C: float | None,
    pairs: Ints | None,
    *,
    exact: bool = True,
    calibrate: bool = False,
) -> Selection:
    """Select C where it is None, and the pairs where they are None; then the threshold.

    Without exact inference (``exact=False``), C is selected for independent labels, and there is no
    calibration and no threshold.
    """
    if len(holdout.Y) < MIN_ROWS:
        return Selection(
            DEFAULT_C if C is None else C,
            NO_PAIRS if pairs is None else pairs,
            description=f"{len(holdout.Y)} rows are too few to hold some out",
        )
    path: tuple[PathPoint, ...] = ()
    if C is None:
        C, path, starts = select_C(holdout)
        words = f"C = {C:g} has the strongest penalty within one standard error of the best"
        words += f" held-out loss, of {', '.join(f'{point.C:g}' for point in path)}"
    else:
        starts, words = None, f"C = {C:g}, as given"
    if pairs is not None and not exact:
        return Selection(C, pairs, path=path, description=f"{words}, for independent labels")
    held, weights = holdout.fit(NO_PAIRS, C, starts)
    if pairs is None:
        held, reason = _select_pairs(holdout, C, held, weights)
        words += f"; {reason}"
    elif len(pairs):
        held, _ = holdout.fit(pairs, C, weights)
    calibration = held.fit_calibration() if calibrate else UNCALIBRATED
    threshold = best_threshold(held.Y, held.evaluate(calibration)[1], held.weights)
    return Selection(C, held.rows.pairs, threshold, calibration, held.start, path, words)


def select_C(holdout: HoldOut) -> tuple[float, tuple[PathPoint, ...], list[Floats] | None]:
    """Return C by the one-standard-error rule, the path, and weights to start from if they fit.

    Fits along the path start from each other. The path ends early once the loss is clearly worse.
    """
    labels = holdout.labels_for_C
    tried: list[tuple[float, Floats, list[Floats]]] = []
    weights: list[Floats] | None = None
    best = worse = 0
    for C in PATH:
        held, weights = holdout.fit(NO_PAIRS, C, weights, labels)
        tried.append((C, held.weights * held.evaluate(UNCALIBRATED)[0], weights))
        loss, least = tried[-1][1], tried[best][1]
        if loss.sum() < least.sum():
            best, worse = len(tried) - 1, 0
        elif (loss - least).sum() > WORSE_ERRORS * _error_of_sum(loss - least):
            worse += 1
        if worse >= WORSE_VALUES:
            break
    least = tried[best][1]
    excess = [loss - least for _, loss, _ in tried]
    chosen = next(k for k, e in enumerate(excess) if k == best or e.sum() <= _error_of_sum(e))
    total = float(holdout.weights[holdout.positions].sum())
    path = tuple(
        PathPoint(C, float(loss.sum()) / total, _error_of_sum(loss) / total) for C, loss, _ in tried
    )
    return tried[chosen][0], path, tried[chosen][2] if isinstance(labels, slice) else None


def _select_pairs(
    holdout: HoldOut, C: float, alone: HeldOutScores, weights: list[Floats]
) -> tuple[HeldOutScores, str]:
    """Return the scores with pairs if these help, else those without, and the reason."""
    losses, p, _ = alone.evaluate(UNCALIBRATED)
    candidates = strongest_pairs(alone.Y, p, alone.weights)
    if len(candidates) == 0:
        return alone, "no pairs: the errors of labels on held-out rows are independent"
    joint, _ = holdout.fit(candidates, C, weights)
    joint_losses, joint_p, _ = joint.evaluate(UNCALIBRATED)
    change = f"from {alone.mean(losses):.4g} to {joint.mean(joint_losses):.4g}"
    words = f"{len(candidates)} pairs change the loss on held-out rows {change}"
    if _is_better(alone, (losses, p), (joint_losses, joint_p)):
        return joint, words
    return alone, f"{words}, which is noise, too little, or costs right labels: no pairs"


def _error_of_sum(differences: Floats) -> float:
    """Standard error of the sum of differences."""
    return float(np.sqrt(len(differences)) * differences.std())


def _is_better(
    held: HeldOutScores, before: tuple[Floats, Floats], after: tuple[Floats, Floats]
) -> bool:
    """Whether the loss falls by more than noise, without more wrong labels beyond noise."""
    c = held.weights
    gain = c * (before[0] - after[0])
    wrong = [((p > 0.5) != held.Y).sum(axis=1) for _, p in (before, after)]
    more_wrong = c * (wrong[1] - wrong[0])
    least_gain = SIGNIFICANT_SHARE * float(c @ before[0])
    is_gain = gain.sum() > max(SIGNIFICANT_ERRORS * _error_of_sum(gain), least_gain)
    return bool(is_gain and more_wrong.sum() <= _error_of_sum(more_wrong))


def best_threshold(Y: Floats, p: Floats, weights: Floats) -> float:
    """Return a threshold with few wrong labels and sets that predicts about as many as there are.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(0.3, 2.0, (500, 10))
    >>> 0.2 < best_threshold(rng.random((500, 10)) < p, p, np.ones(500)) <= 0.52
    True
    """
    if len(Y) < MIN_ROWS_THRESHOLD:
        return 0.5
    wrong = [weights * ((p > cut) != Y).sum(axis=1) for cut in THRESHOLDS]
    sets = [weights * ((p > cut) != Y).any(axis=1) for cut in THRESHOLDS]
    best = int(np.argmin([one.sum() for one in wrong]))
    as_good = [
        all(
            d.sum() <= THRESHOLD_ERRORS * _error_of_sum(d)
            for d in (wrong[k] - wrong[best], sets[k] - sets[best])
        )
        for k in range(len(THRESHOLDS))
    ]
    true = float((weights @ Y).sum())
    off = [abs(float((weights @ (p > cut)).sum()) - true) for cut in THRESHOLDS]
    return float(THRESHOLDS[int(np.argmin(np.where(as_good, off, np.inf)))])


def strongest_pairs(Y: Floats, p: Floats, weights: Floats) -> Ints:
    """Return pairs of labels with correlated errors, as many as keep exact inference cheap.

    The derivative of the log-likelihood in a weight for both labels being on is the sum of the
    products of their errors. Its square over twice its variance (as observed, because
    probabilities may be wrong) is about the gain of the pair. It must exceed the apparent gain of
    the best of as many independent pairs, plus the cost of a parameter.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(0, 2, 200)
    >>> Y = np.stack([first, rng.integers(0, 2, 200), first], axis=1).astype(float)
    >>> strongest_pairs(Y, np.full(Y.shape, 0.5), np.ones(200)).tolist()
    [[0, 2]]
    """
    errors = (Y - p) * np.sqrt(weights)[:, None]
    total, spread = errors.T @ errors, np.square(errors).T @ np.square(errors)
    n_labels = Y.shape[1]
    left, right = np.triu_indices(n_labels, 1)
    gain = 0.5 * total[left, right] ** 2 / np.maximum(spread[left, right], 1e-300)
    least = 0.5 * np.log(len(Y)) + np.log(max(len(left), 1))
    good = np.flatnonzero(gain > least)
    good = good[np.argsort(-gain[good], kind="stable")]
    forest: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    component = np.arange(n_labels)  # the tree of the forest that contains each label
    for i, j in zip(left[good].tolist(), right[good].tolist(), strict=True):
        if component[i] == component[j]:
            others.append((i, j))
            continue
        forest.append((i, j))
        component[component == component[j]] = component[i]
    for pair in others[:MAX_EXTRA_PAIRS]:
        if LabelRows(n_labels, np.array([*forest, pair])).widest <= MAX_TABLE:
            forest.append(pair)
    return np.array(sorted(forest), dtype=np.int64).reshape(-1, 2)
