"""Casimir: SVRG on decreasingly smoothed losses, accelerated by prox centers.

Algorithm 4 of Pillutla et al. 2019 (casimir), Catalyst with smoothing::

    repeat, for k = 1, 2, ...:
        w_k     <- about argmin F(w; mu_k) + kappa_k/2 ||w - z_{k-1}||^2           (Eq. 25)
        alpha_k <- root of alpha^2 (kappa_{k+1} + lam) = (1 - alpha) alpha_{k-1}^2 (kappa_k + lam)
                                                          + alpha lam              (Eq. 27)
        beta_k  <- the momentum of alpha_{k-1} and alpha_k                         (Eq. 29)
        z_k     <- w_k + beta_k (w_k - w_{k-1})                                    (Eq. 28)

``mu_k`` never increases and ``kappa_k`` never decreases (Theorem 16). The subproblems are solved by
epochs of `svrg`. ``Casimir.as_published`` is this algorithm and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats
from cliquewise.solvers.base import Capabilities
from cliquewise.solvers.iterates import Iterates
from cliquewise.solvers.parameters import one_of, positive
from cliquewise.solvers.registry import register
from cliquewise.solvers.svrg import SVRG

#: The first alpha without a penalty (Corollaries 19 and 20).
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
#: Largest number of epochs on one subproblem.
MAX_ROUNDS = 20


@register
@dataclass(frozen=True)
class Casimir(SVRG):
    """Catalyst with smoothing (Pillutla et al. 2019), with SVRG inside.

    An outer step minimizes the smoothed objective plus ``kappa/2 ||w - z||^2`` approximately,
    and then moves the prox center ``z`` beyond its solution. It is the one solver that does
    without a penalty (``C = inf``): ``kappa`` and the smoothing are then those of Corollaries 19
    (constant) and 20 (adaptive: ``kappa k`` and ``mu / k`` in outer step k).

    Parameters
    ----------
    smoothing : {"adaptive", "constant"}, default="adaptive"
        Whether the amount of smoothing decreases, as in Corollary 18, or is constant (Corollary
        17). The loss ``smooth_hinge`` always has its constant amount.
    kappa : float or "lam", optional
        Weight of the proximal term; ``"lam"`` is the weight of the penalty. By default ``L / n -
        lam`` if that is above ``3 lam``, and else ``lam`` (Proposition 29), for ``L = 1 /
        learning_rate``; without a penalty ``L / (n + 1)``.
    warm_start : {"prox_center", "extrapolation", "previous"}, default="prox_center"
        Where the steps on a subproblem start.
    inner : {"budget", "gradient"}, default="budget"
        Solve a subproblem by one epoch; or until ``||gradient||^2 <= (lam + kappa) delta kappa
        ||w - z||^2``, in at most 20 epochs.
    restart : bool, default=True
        Reset the prox center to the iterate when the momentum points uphill.
    cooling : bool, default=True
        Also halve the smoothing when a full gradient shows that it is the larger part of the
        error.
    rescaling : bool, default=True
        Scale all weights down when the losses pull much less than the penalty.
    anchor : {"visits", "full"}, optional
        As in :class:`~cliquewise.solvers.svrg.SVRG`. By default ``visits`` if few outputs are
        stored (smoothers ``l2`` and ``none``) and no subproblem needs its gradient (``inner``).
    smoother, mu, k, learning_rate, average, warm_up
        As in :class:`~cliquewise.solvers.svrg.SVRG`; ``mu`` is the first amount of smoothing.

    Examples
    --------
    >>> from cliquewise.data.dataset import Dataset
    >>> from cliquewise.models.chain import ChainModel
    >>> from cliquewise.problems.chain import ChainProblem
    >>> from cliquewise.solvers.run import run
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> problem = ChainProblem(ChainModel.build(data, 2), data, loss="hinge")
    >>> bool(run(problem, Casimir(), tol=0.02, max_epochs=500, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "casimir"
    capabilities: ClassVar[Capabilities] = replace(
        SVRG.capabilities, rank=30, precision=0.01, no_penalty=True
    )
    mu: float = 0.5
    smoothing: str = "adaptive"
    kappa: float | str | None = None
    warm_start: str = "prox_center"
    inner: str = "budget"
    restart: bool = True
    cooling: bool = True
    rescaling: bool = True
    anchor: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "smoothing", "adaptive", "constant")
        one_of(self, "warm_start", "prox_center", "extrapolation", "previous")
        one_of(self, "inner", "budget", "gradient")
        positive(self, "kappa", None, "lam")
        if self.inner == "gradient" and self.anchor == "visits":
            raise DataError('inner="gradient" asks for full gradients: take anchor="full"')

    @classmethod
    def as_published(
        cls,
        variant: str = "adaptive",
        *,
        learning_rate: float,
        mu: float = 2.0,
        kappa: float | None = None,
        smoother: str = "l2",
        k: int = 5,
    ) -> Casimir:
        """Return Algorithm 4 of the paper, without the extensions of this class.

        Each subproblem is solved by one epoch of SVRG with a fixed learning rate, from the prox
        center, with the average of its iterates as the result (Section 6 of the paper).

        Parameters
        ----------
        variant : {"adaptive", "constant"}
            ``adaptive``: decreasing smoothing and ``kappa = lam`` (Corollary 18); ``constant``:
            constant smoothing, and ``kappa = L / n - lam`` for ``L = 1 / learning_rate`` unless
            ``kappa`` is given (Corollary 17). For a target accuracy eps, Proposition 29 takes
            ``mu = eps / (10 D)``, where D bounds minus the smoothing function.
        learning_rate, mu, kappa, smoother, k
            As in :class:`Casimir`.

        Examples
        --------
        >>> solver = Casimir.as_published("adaptive", learning_rate=0.02)
        >>> solver.kappa, solver.anchor, solver.restart
        ('lam', 'full', False)
        """
        if variant not in ("adaptive", "constant"):
            raise DataError(f"variant is adaptive or constant, not {variant!r}")
        adaptive = variant == "adaptive"
        return cls(
            smoother=smoother, mu=mu, k=k, learning_rate=learning_rate, anchor="full", warm_up=0,
            smoothing=variant, kappa="lam" if adaptive and kappa is None else kappa,
            restart=False, cooling=False, rescaling=False,
        )  # fmt: skip

    def unsuitable(self, problem: Problem) -> str | None:
        """Reject the hinge loss with a penalty, which dual solvers minimize faster."""
        if not problem.has_penalty or problem.loss == "smooth_hinge":
            return None
        return "is slower than dual solvers if there is a penalty"

    def _renews(self, problem: Problem) -> bool:
        if self.anchor is None:
            return self._smoother(problem) != "entropy" and self.inner == "budget"
        return super()._renews(problem)

    # ---- the sequences of Corollaries 17 to 20

    def _kappa(self, problem: Problem, state: Iterates, outer: int) -> float:
        lam, rate = float(problem.lam), state.rate
        if lam == 0:
            growth = outer if self.smoothing == "adaptive" else 1
            given = None if isinstance(self.kappa, str) else self.kappa
            first = given or 1.0 / (self._rate(problem, state) * (problem.n_examples + 1))
            return growth * first
        if isinstance(self.kappa, str):
            return lam
        if self.kappa is not None:
            return self.kappa
        if rate == 0.0:
            return lam
        best = 1.0 / (rate * max(problem.n_examples, 1)) - lam
        return best if best > 3 * lam else lam

    def _schedule(self, problem: Problem, state: Iterates, outer: int) -> float:
        if self.smoothing == "constant":
            return self.mu
        if problem.lam == 0:
            return self.mu / outer
        kappa = self._kappa(problem, state, outer)
        root = np.sqrt(problem.lam / (problem.lam + kappa))
        return float(self.mu * (1.0 - root / 2.0) ** (outer / 2.0))

    def _cools(self, state: Iterates, slack: float, smoothed: float) -> bool:
        return self.cooling and self.smoothing == "adaptive" and slack < smoothed

    def _rescales(self) -> bool:
        return self.rescaling

    def _start(self, problem: Problem, state: Iterates) -> Floats:
        if self.warm_start == "prox_center":
            return state.z
        if self.warm_start == "previous":
            return state.w
        kappa = self._kappa(problem, state, state.outer + 1)
        ahead = kappa / (kappa + problem.lam)
        return np.asarray(state.w + ahead * (state.z - state.z_before))

    def _is_last(self, state: Iterates) -> bool:
        return self.inner == "budget" or state.rounds + 1 >= MAX_ROUNDS

    def _is_solved(
        self, problem: Problem, state: Iterates, w: Floats, gradient: Floats, kappa: float
    ) -> bool:
        if self.inner == "budget" or not len(state.inner):
            return False
        away = w - state.z
        slope = gradient + problem.lam * w + kappa * away
        root = np.sqrt(problem.lam / (problem.lam + kappa))
        delta = root / (2.0 - root) if problem.lam > 0 else 1.0 / (state.outer + 2.0) ** 2
        limit = (problem.lam + kappa) * delta * kappa * float(away @ away)
        return bool(float(slope @ slope) <= limit)

    def _move(self, problem: Problem, state: Iterates, new: Floats, kappa: float) -> None:
        """The next prox center, by Equations 27 to 29."""
        lam = problem.lam
        if state.outer == 0:
            state.alpha = _first_alpha(lam, lam + kappa)
        before = state.alpha
        old, following = kappa + lam, self._kappa(problem, state, state.outer + 2) + lam
        state.alpha = next_alpha(before, old, following, lam)
        beta = before * (1.0 - before) * old / (before**2 * old + state.alpha * following)
        ahead = new - state.w
        if self.restart and float((state.z - new) @ ahead) > 0.0:
            beta, state.alpha = 0.0, _first_alpha(lam, following)
        state.z_before, state.z = state.z, new + beta * ahead
        state.w = new
        self._close(state)


def _first_alpha(lam: float, strong: float) -> float:
    """Where the sequence of Equation 27 begins, and begins again."""
    return float(np.sqrt(lam / strong) if lam > 0 else GOLDEN)


def next_alpha(alpha: float, old: float, new: float, lam: float) -> float:
    """The positive root of Equation 27: ``a^2 new = (1 - a) alpha^2 old + a lam``.

    Parameters
    ----------
    alpha : float
        The one before.
    old, new : float
        ``kappa + lam`` of this outer step and of the next.
    lam : float

    Examples
    --------
    >>> round(next_alpha(0.5, 4.0, 4.0, 1.0), 12)  # constant kappa, alpha = sqrt(lam / 4)
    0.5
    """
    linear = alpha**2 * old - lam
    constant = alpha**2 * old
    return float((-linear + np.sqrt(linear**2 + 4.0 * new * constant)) / (2.0 * new))
