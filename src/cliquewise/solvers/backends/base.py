"""What the algorithms ask of a kind of problem: small protocols.

A backend keeps the weights in the form that suits its kind, and never loops over passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.rounding import Bound
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.base import Arrays, Info
from cliquewise.solvers.sampling import Order

#: Amounts of smoothing below this count as none.
LEAST = 1e-12


class Blocks(Protocol):
    """Dual variables of all examples, for `bcfw` and `sdca`; the weights follow from them."""

    draws: ClassVar[bool]  # whether `visit` draws examples by their gaps where it finds `DRAW`
    w: Floats

    @property
    def gaps(self) -> Floats:
        """What each example's gap was when it was last visited."""

    @property
    def resume_paths(self) -> tuple[str, ...]:
        """See `Solver.resume_paths`."""

    def continue_from(self, warm: Any) -> None:
        """Take up the dual variables of the examples that ``warm`` has; refuse those of others."""

    def pack(self) -> Arrays:
        """The dual variables as named arrays."""

    def unpack(self, arrays: Arrays) -> None:
        """Back from :meth:`pack`; refuse those of others."""

    def primal(self, w: Floats) -> tuple[float, bool]:
        """An upper bound of the objective at ``w``, and whether it is the objective itself."""

    def unpacked(self, w: Floats) -> Floats:
        """Weights in the problem's form, a copy."""


class Combinations(Blocks, Protocol):
    """Convex combinations of outputs, one per example: what `bcfw` moves."""

    cached_passes: ClassVar[int]
    inner_rounds: ClassVar[int]
    max_outputs: ClassVar[int]
    average: ClassVar[bool]

    @property
    def max_step_examples(self) -> int:
        """Examples to visit between two looks at the clock, about two seconds."""

    def refresh(self) -> float:
        """The weights from the outputs afresh; returns the mean of their costs."""

    def visit(self, order: Ints, uniforms: Floats) -> tuple[int, float]:
        """Ask for outputs and improve; the oracle calls, and the rise of n duals."""

    def cached_pass(self, order: Ints) -> float:
        """Improve with the outputs at hand; the rise of n duals."""

    def bound(self) -> Bound:
        """The dual value right after :meth:`refresh`, less what rounding may have added."""

    def end_pass(self) -> bool:
        """Tidy up; whether an inexact oracle will find no new output any more."""

    @property
    def unproved(self) -> float:
        """The part of all gaps that an inexact oracle leaves between its values and its bounds."""


class Distributions(Blocks, Protocol):
    """Dual distributions, one per example: what `sdca` moves.

    With an L1 penalty ``w`` holds the weights before they are shrunk (`problems/penalty.py`), as
    all vectors here do; ``primal`` and ``unpacked`` are those of the shrunk ones.

    ``gamma`` weights an entropy that is not part of the loss: all is kept for the objective over
    gamma, so that the weights are ``gamma w``.
    """

    gamma: float

    def order(self) -> Order:
        """The order of visits of a run."""

    def infer(self) -> None:
        """Marginals and log partitions from the scores, which alone say what a distribution is."""

    def refresh(self) -> None:
        """The weights from the distributions afresh."""

    def visit(self, order: Ints, uniforms: Floats, step: float) -> int:
        """Move the distributions of the examples, by ``step`` or (0) a line search; calls."""

    def gap(self) -> float:
        """Mean of the examples' gaps when they were last visited."""

    def dual(self) -> tuple[float, float]:
        """The dual value, and what the entropy would add to it where it does not count."""

    def watch(self, dual: float) -> None:
        """Hear of the dual value after a step; where threads have made it fall, use fewer."""

    def bound(self) -> Bound:
        """The dual value, less what rounding may have added."""


def scaled(blocks: Distributions) -> Floats:
    """The weights of the problem itself: ``gamma w``. Not to be changed."""
    return blocks.w if blocks.gamma == 1.0 else blocks.gamma * blocks.w


class Factors(Protocol):
    """Beliefs of factors and multipliers that make them agree: what `gdmm` moves."""

    check_cost: float  # of a certificate, in passes
    resume_paths: ClassVar[tuple[str, ...]]  # see `Solver.resume_paths`

    def sweep(self, rng: np.random.Generator) -> Info:
        """One pass over all examples."""

    def certify(self) -> Certificate:
        """The primal of the weights, and the dual of beliefs that were made to agree."""

    def weights(self) -> Floats:
        """Weights in the problem's form."""

    def extras(self) -> dict[str, float]:
        """Columns of the trace."""

    def continue_from(self, warm: Any) -> None:
        """Take up what ``warm`` has, or refuse it."""

    def pack(self) -> Arrays:
        """The state as named arrays."""

    def unpack(self, arrays: Arrays) -> None:
        """Back from :meth:`pack`; refuse those of others."""


class Sums(Protocol):
    """What `subgradient` asks."""

    sizes: Floats  # sums of |gradients| of all visits; empty if known beforehand

    def weight_error_scale(self, visits: int) -> Floats:
        """What the sum of all gradients is made of, times its roundings, by row of weights."""

    def zeros(self) -> Floats:
        """A vector of weights, in the backend's own form."""

    def visit(
        self, order: Ints, z: Floats, sums: Floats, visits: int, delay: float
    ) -> tuple[int, float]:
        """Steps on ``z``, and on the ``sums`` of the average; oracle calls and costs met."""

    def primal(self, w: Floats) -> tuple[float, bool]:
        """An upper bound of the objective at ``w``, and whether it is the objective itself."""

    def unpacked(self, w: Floats) -> Floats:
        """Weights in the problem's form."""


@dataclass
class Pass:
    """What a full gradient, or an epoch, found; means over the examples, weighted with c_i.

    The distributions u_i behind it are a point of the dual: ``cost - ||gradient||^2 / (2 lam)``
    is a lower bound of the objective with the hinge loss, and with ``cost - omega`` for ``cost``
    of that with the smoothed one.
    """

    loss: float
    cost: float  # expected task loss
    omega: float  # mu omega(u): never positive
    gradient: Floats
    calls: int
    exact: float  # share of the calls whose k outputs gave what all would
    rounding_error: float  # by how much rounding may have made cost and omega wrong


class Smoothing(Protocol):
    """What `svrg` and `casimir` ask: full gradients, and epochs of steps between them.

    The distributions over outputs at the anchor, the point of the last full gradient, are kept: a
    step then needs one oracle call, not two.
    """

    #: Where the distributions are that an epoch with ``renew`` keeps.
    resume_paths: ClassVar[tuple[str, ...]]
    sizes: Floats  # sums of |gradients| of all examples, the largest met; empty if known beforehand

    def zeros(self) -> Floats:
        """A vector of weights, in the backend's own form."""

    def full_gradient(self, w: Floats, mu: float) -> Pass:
        """The mean gradient of the smoothed losses at ``w``, which becomes the anchor."""

    def epoch(
        self, w: Floats, c: Floats, mu: float, order: Ints, step: float, shrink: float,
        average: bool, renew: bool = False,
    ) -> tuple[Floats, int]:  # fmt: skip
        """Steps on the examples of ``order``; the last iterate or their average, and calls.

        With ``renew`` the few outputs that a visit finds replace the example's at the anchor.
        """

    def kept(self) -> Pass:
        """What an epoch with ``renew`` on all examples has kept, without a call.

        The losses are those that the visits met, each at weights of its own.
        """

    def kind(self, mu: float) -> str:
        """What a call asks for: ``max``, ``top_k`` or ``exp``."""

    def forget(self) -> None:
        """Make the truth the anchor, with gradients of zero: steps are then plain ones."""

    def smooth_loss(self, w: Floats, mu: float) -> float:
        """Mean of the smoothed losses."""

    def total_loss(self, w: Floats) -> float:
        """Weighted sum of the losses that the problem is about, not smoothed by the solver."""

    @property
    def weight_error_scale(self) -> Floats:
        """What full gradients over lam are the sum of, times its roundings, by row of weights."""

    @property
    def curvature(self) -> float:
        """Squared norm by which gradients may differ where mass moves between neighbors."""

    def unpacked(self, w: Floats) -> Floats:
        """The weights in the problem's form."""

    def packed(self, w: Floats) -> Floats:
        """Back from :meth:`unpacked`."""


def kind_of_call(smoother: str, k: int, mu: float) -> str:
    """What an oracle is asked for: ``max``, ``top_k`` or ``exp``.

    Examples
    --------
    >>> kind_of_call("l2", 5, 1.0), kind_of_call("l2", 5, 0.0), kind_of_call("entropy", 5, 1.0)
    ('top_k', 'max', 'exp')
    """
    if mu == 0 or (smoother != "entropy" and k == 1):
        return "max"
    return "exp" if smoother == "entropy" else "top_k"
