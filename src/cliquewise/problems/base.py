"""Problem: the regularized objective of one data set. Only it knows the objective.

    P(w) = R(w) + 1/n sum_i c_i loss_i(w),   lam = 1 / (C n)
    R(w) = lam (l1_ratio ||w||_1 + (1 - l1_ratio) / 2 ||w||^2)

Values are per example; ``C`` multiplies the sum of the losses, as in scikit-learn, where l1_ratio
comes from, too. What a solver
may want to know of a problem is an attribute here, so that nobody has to ask whether it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from cliquewise.certificate import EPSILON, Certificate
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.problems.fingerprint import Fingerprint
from cliquewise.problems.penalty import Penalty
from cliquewise.problems.rounding import SUM, UNIT, Bound, ScoreProfile, lowered
from cliquewise.ragged import Floats

T = TypeVar("T")
#: Rounding errors below this share of the gap need no tighter bound.
HARMLESS = 1e-3


class Problem:
    """What problems of all kinds share.

    Parameters
    ----------
    C : float
        Weight of the sum of the losses against the penalty; infinity leaves the penalty out,
        which only solver ``casimir`` allows.
    loss : str
        One of ``losses_known``.
    n_jobs : int, default=1
        Threads for passes over all examples.

    Attributes
    ----------
    kind : str
        ``chain``, ``graph``, ``label_sets``, ``candidates``, ``matching``, ``examples`` or
        ``deep``: solvers say which kinds they work on.
    is_convex : bool
        Whether a dual value bounds the objective from below.
    blas_threads : int or None
        Threads that BLAS may use; as many as it likes if None.
    has_pair_attributes : bool
        Whether chains have attributes of token pairs.
    has_exp : bool
        Whether marginals can be had, so that losses can be smoothed by an entropy.
    l1_ratio : float
        Share of the L1 norm in the penalty; see :meth:`elastic`.
    gamma, smoother, top
        How loss ``smooth_hinge`` is smoothed; ``gamma`` is also the temperature of graphs.
    lower_bound : float
        The mean cost of the true outputs: the dual value with all mass on them, so that no
        objective is below it.
    portion : int
        Examples that a step may visit so that it takes seconds at most.
    """

    kind: ClassVar[str]
    losses_known: ClassVar[tuple[str, ...]]
    has_exp: ClassVar[bool] = True
    blas_threads: ClassVar[int | None] = None
    has_pair_attributes: bool = False
    l1_ratio: float = 0.0
    gamma: float = 0.0
    smoother: str = "l2"
    top: int = 0
    _fingerprint: Fingerprint | None = None

    def __init__(self, C: float, loss: str, n_jobs: int = 1):
        if loss not in self.losses_known:
            raise UnsupportedError(
                f"loss {loss!r} is not available for a {self.kind} problem; "
                f"the losses are: {', '.join(self.losses_known)}"
            )
        if not C > 0:
            raise DataError(f"C = {C}; it must be positive (or infinite: no penalty)")
        self.C, self.loss, self.n_jobs = float(C), loss, n_jobs

    def elastic(self, l1_ratio: float) -> Self:
        """Make a share of the penalty the L1 norm of the weights; returns the problem itself."""
        if not 0 <= l1_ratio <= 1:
            raise DataError(f"l1_ratio = {l1_ratio}; it must be in [0, 1]")
        self.l1_ratio, self._fingerprint = float(l1_ratio), None
        return self

    # ---- sizes

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        raise NotImplementedError

    @property
    def vector_size(self) -> int:
        """Length of a weight vector in the form that passes over the data work on."""
        return self.dimension

    @property
    def is_convex(self) -> bool:
        """Whether a dual value bounds the objective from below."""
        return True

    @property
    def max_step_examples(self) -> int:
        """Examples that a step may visit so that it takes seconds at most."""
        return 256

    # ---- values

    @property
    def lam(self) -> float:
        """Weight of the penalty in the per-example objective; 0 if there is none."""
        return 1.0 / (self.C * max(self.n_examples, 1))

    @property
    def penalty(self) -> Penalty:
        """The penalty in the per-example objective."""
        return Penalty(self.lam, self.l1_ratio)

    @property
    def has_penalty(self) -> bool:
        """Whether C is finite."""
        return self.lam > 0

    @property
    def lower_bound(self) -> float:
        """Mean cost of the true outputs."""
        return 0.0

    def per_example(self, total: float) -> float:
        """Divide a weighted sum over the examples by their number."""
        return total / max(self.n_examples, 1)

    def ridge_objective(self, squared_norm: float, total_loss: float) -> float:
        """Return the objective without its L1 part.

        Parameters
        ----------
        squared_norm : float
            ``||w||^2``.
        total_loss : float
            The weighted sum of the losses.
        """
        return 0.5 * self.lam * squared_norm + self.per_example(total_loss)

    def penalized(self, w: Floats, total_loss: float) -> float:
        """The objective from the weights (in any form) and the weighted sum of the losses."""
        return self.penalty.value(w) + total_loss / max(self.n_examples, 1)

    def primal(self, w: Floats) -> float:
        """The objective."""
        return self.primal_and_gradient(w)[0]

    def primal_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The objective and the gradient of all of it but the L1 norm.

        Of the hinge loss it is a subgradient.
        """
        loss, slope = self.losses_and_gradient(w)
        gradient = self.penalty.ridge * w + slope / max(self.n_examples, 1)
        return self.penalized(w, loss), gradient

    def losses_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The weighted sum of the losses and its (sub)gradient: what parts of the data add up."""
        raise NotImplementedError

    def certificate(self, w: Floats) -> Certificate:
        """Primal and dual at ``w``: strong convexity gives ``P* >= P - ||grad||^2 / (2 lam)``.

        That is the dual value of the distributions ``p(. | x_i; w)``, or of the outputs that a
        subgradient of the hinge loss is made of: true, but then very loose.
        """
        return self.certified(w, *self.primal_and_gradient(w))

    def certified(self, w: Floats, value: float, gradient: Floats) -> Certificate:
        """Return the certificate of a known objective and its gradient at ``w``."""
        if not self.is_convex:
            return Certificate(value)
        primal, exact = self.upper_bound(w, value)
        status = "exact" if exact else "bound"
        if not self.has_penalty:
            return Certificate(primal, self.lower_bound, status)
        bound = self._gradient_bound(w, value, gradient, self.gradient_error_scale(w))
        if bound.rounding > HARMLESS * max(value - bound.value, 0.0):
            tight = self.gradient_error_scale(w, tight=True)
            bound = max(bound, self._gradient_bound(w, value, gradient, tight))
        return Certificate(primal, bound.value, status, bound.rounding)

    def upper_bound(self, w: Floats, value: float, exact: bool = True) -> tuple[float, bool]:
        """Return a computed objective as an upper bound, and whether it is the objective.

        Parameters
        ----------
        w : array
            The weights, in any form.
        value : float
            The objective at ``w`` in float64, or an upper bound of it.
        exact : bool
            Whether ``value`` is the objective.

        Returns
        -------
        value : float
            Raised by its rounding error, if that is larger than certificates tolerate.
        exact : bool
        """
        return self.raised(value, self.rounding_error(w), exact)

    def raised(self, value: float, error: float, exact: bool = True) -> tuple[float, bool]:
        """Return :meth:`upper_bound` of a value with a known bound of its rounding error."""
        if error <= EPSILON * max(1.0, abs(value)):
            return value, exact
        return (value + error if np.isfinite(value + error) else np.inf), False

    def _gradient_bound(self, w: Floats, value: float, gradient: Floats, scale: Floats) -> Bound:
        """Return the dual value of the distributions behind a gradient with errors of ``scale``."""
        error = self.rounding_error(w)
        if self.l1_ratio == 0:
            # The weights of the dual point are w - gradient / lam, which the penalty takes with w.
            return self.bound(value, gradient / self.lam, error, scale)
        penalty, slope = self.penalty, gradient - self.penalty.ridge * w
        # The loss of a distribution is <w, slope> plus its costs and its entropy.
        first, terms = penalty.value(w), w * slope
        with np.errstate(over="ignore", invalid="ignore"):
            linear = value - first - float(terms.sum())
            error += self.lam * UNIT * float(self.largest_by_row(w) @ scale)
            error += SUM * UNIT * (abs(value) + first + float(np.abs(terms).sum()))
            v = slope / (-self.lam * penalty.scale)
        return self.bound(linear, v, error, scale)

    # ---- rounding

    def largest_by_row(self, w: Floats) -> Floats:
        """The largest ``|w|`` of each row of weights; a row is what features are counted by."""
        return np.abs(w)

    @property
    def weight_error_scale(self) -> Floats:
        """By row: C times all features that weights may be the sum of, each times its roundings."""
        raise NotImplementedError

    @property
    def score_profile(self) -> ScoreProfile | None:
        """Bounds of the errors of marginals in the log domain; None if marginals have none."""
        return None

    def gradient_error_scale(self, w: Floats, tight: bool = False) -> Floats:
        """Return, by row, C n times the rounding error of the gradient at ``w``, over the roundoff.

        Unlike :attr:`weight_error_scale` it includes errors of marginals that grow with the
        scores at ``w``. ``tight`` allows a pass over the data for a smaller bound.
        """
        profile = self.score_profile
        if profile is None:
            return self.weight_error_scale
        roundings = profile.roundings(self.largest_by_row(w))
        if roundings == 0:
            return self.weight_error_scale
        with np.errstate(over="ignore", invalid="ignore"):
            return self.weight_error_scale + self.C * roundings * profile.total

    @property
    def rounding_terms(self) -> tuple[Floats, float]:
        """Roundings of the sum of the losses: by row, for each unit of its largest weight; others.

        Like :attr:`weight_error_scale`, they add up over parts of the data.
        """
        return self.weight_error_scale / self.C, 0.0

    def rounding_error(self, w: Floats) -> float:
        """Return a bound of the rounding error of the objective at ``w``."""
        return self.row_rounding_error(self.largest_by_row(w))

    def row_rounding_error(self, largest: Floats) -> float:
        """Return :meth:`rounding_error` from the largest weight of each row."""
        by_row, others = self.rounding_terms
        with np.errstate(over="ignore", invalid="ignore"):
            return UNIT * self.per_example(float(largest @ by_row) + others)

    def bound(
        self,
        linear: float,
        w: Floats,
        rounding_error: float = 0.0,
        weight_error_scale: Floats | None = None,
    ) -> Bound:
        """The dual value ``linear - R*`` as a lower bound in exact arithmetic.

        Parameters
        ----------
        linear : float
            Expected costs and entropies of the dual point, per example.
        w : array
            Its weights before they are shrunk (see ``problems.penalty``), in the problem's form
            or in that which passes over the data work on.
        doubt : float
            By how much ``linear`` may be wrong.
        summands : array, optional
            As ``self.weight_error_scale``, where more is known of the point than that it is one.
        """
        sizes, penalty = (
            self.weight_error_scale if weight_error_scale is None else weight_error_scale,
            self.penalty,
        )
        if self.l1_ratio > 0:
            largest, sizes = self.largest_by_row(w), sizes / penalty.scale
            share = penalty.share(linear - self.lower_bound, w, largest, UNIT * sizes)
            linear, rounding_error = (
                share * linear + (1.0 - share) * self.lower_bound,
                share * rounding_error,
            )
            # Shrinking moves no two numbers apart; the share and the threshold are rounded.
            sizes = share * sizes + 2.0 * largest + 4.0 * penalty.threshold
            w = penalty.shrunk(share * w)
        if penalty.ridge == 0:
            return lowered(linear, rounding_error, 0.0, 0.0, np.zeros(0), np.zeros(0))
        return lowered(
            linear, rounding_error, penalty.square(w), penalty.ridge, self.largest_by_row(w), sizes
        )

    # ---- who it is

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """What the losses of the first ``n`` examples depend on: arrays, each a part of it."""
        yield "features", np.array([n, self.dimension])

    @property
    def settings(self) -> tuple[Any, ...]:
        """What makes the loss, beside its name."""
        return (self.gamma, self.smoother, self.top)

    def fingerprint(self, n: int | None = None) -> Fingerprint:
        """Who the problem is, or would be if it had its first ``n`` examples only."""
        if n is None:
            if self._fingerprint is None:
                self._fingerprint = self.fingerprint(self.n_examples)
            return self._fingerprint
        loss = repr((self.kind, self.loss, *self.settings))
        parts = [("loss", np.frombuffer(loss.encode(), dtype=np.uint8)), *self.fingerprint_parts(n)]
        return Fingerprint.of(n, self.C, parts, self.l1_ratio)

    # ---- what may be asked of it

    def refuses_method(self, method: str, options: dict[str, Any]) -> str | None:
        """Why the best outputs cannot be found by a method, as the end of a sentence; or None."""
        if method != "auto" or options:
            return f"has no choice of a map_method on a {self.kind} problem"
        return None

    def refuses_call(self, call: str) -> str | None:
        """Why calls for ``max``, ``top_k`` or ``exp`` are out of reach; None if they are not."""
        if call == "exp" and not self.has_exp:
            return 'needs marginals for smoother="entropy", which this problem has not; use "l2"'
        return None

    # ---- passes

    def cuts(self, parts: int) -> list[int]:
        """Where examples are to be cut into ``parts`` of about equal work."""
        return np.linspace(0, self.n_examples, parts + 1).astype(int).tolist()  # type: ignore[no-any-return]

    def over_examples(self, part: Callable[[int, int], T]) -> list[T]:
        """``part(first, last)`` over all examples, in ``n_jobs`` threads; the results in order.

        In the order of the examples whichever thread was first: sums have the same bits always.
        """
        n, jobs = self.n_examples, max(1, self.n_jobs)
        return between([0, n] if jobs == 1 or n < 2 * jobs else self.cuts(jobs), part)


def between(cuts: list[int], part: Callable[[int, int], T]) -> list[T]:
    """``part(first, last)`` from each cut to the next, in a thread each; the results in order."""
    if len(cuts) == 2:
        return [part(*cuts)]
    with ThreadPoolExecutor(len(cuts) - 1) as pool:
        return list(pool.map(part, cuts[:-1], cuts[1:]))


def check_weights(weights: Any, n: int) -> Floats:
    """One finite weight per example, none negative; ones if there are none."""
    if weights is None:
        return np.ones(n)
    c = np.asarray(weights, dtype=np.float64)
    if c.shape != (n,) or not np.all(np.isfinite(c)) or (c < 0).any():
        raise DataError(f"weights must be {n} finite numbers, none negative")
    return c
