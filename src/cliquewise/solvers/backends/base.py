"""What each algorithm needs from one kind of problem: a protocol per algorithm.

A backend is built from a problem and the settings of its algorithm. It keeps the weights in the
form that suits its kind, and performs steps in compiled kernels where possible. It has no loop
over epochs. Its class also estimates its memory before it is built (:class:`BackendClass`). A
solver finds the backend of a problem in its :class:`BackendTable`.

To support a new kind of problem in an algorithm, write a class with the methods of the
algorithm's protocol and add it to the table of the solver. The protocol of `gdmm` is in
``backends/factors.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, cast

from cliquewise.problems.base import Problem
from cliquewise.problems.rounding import Bound
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.base import Arrays
from cliquewise.solvers.sampling import Order

#: Amounts of smoothing below this count as none.
MIN_SMOOTHING = 1e-12

P = TypeVar("P", bound=Problem)
Settings = TypeVar("Settings")
B = TypeVar("B")
P_contra = TypeVar("P_contra", bound=Problem, contravariant=True)
Settings_contra = TypeVar("Settings_contra", contravariant=True)
B_co = TypeVar("B_co", covariant=True)


# ---- finding a backend


class BackendClass(Protocol[P_contra, Settings_contra, B_co]):
    """A class of backends: its constructor, and the memory of an instance."""

    def __call__(self, problem: P_contra, settings: Settings_contra) -> B_co:
        """Build a backend."""

    def memory(self, problem: P_contra, settings: Settings_contra) -> float:
        """Return the bytes of a backend, estimated."""


class BackendTable(Generic[Settings, B]):
    """The backends of an algorithm, by kind of problem."""

    def __init__(self) -> None:
        self._classes: dict[str, BackendClass[Problem, Settings, B]] = {}

    def add(self, problem: type[P], backend: BackendClass[P, Settings, B], *kinds: str) -> Self:
        """Use a backend for problems of a class; ``kinds`` are those of its subclasses."""
        for kind in kinds or (problem.kind,):
            # Problems of this kind are instances of the class that the backend takes.
            self._classes[kind] = cast(BackendClass[Problem, Settings, B], backend)
        return self

    def __getitem__(self, problem: Problem) -> BackendClass[Problem, Settings, B]:
        return self._classes[problem.kind]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of problems that have a backend."""
        return tuple(self._classes)


# ---- parts of several protocols


class Saved(Protocol):
    """The part of a backend that warm starts and checkpoints need."""

    def continue_from(self, warm: Self) -> None:
        """Copy the variables of the examples that ``warm`` has; raise DataError for others."""

    def pack(self) -> Arrays:
        """Return the variables as named arrays."""

    def unpack(self, arrays: Arrays) -> None:
        """Take variables from :meth:`pack`, after checks; raise DataError for others."""


class Weights(Protocol):
    """The part of a backend that evaluates weights."""

    def primal(self, w: Floats) -> tuple[float, bool]:
        """Return an upper bound of the objective at ``w``, and whether it is the objective."""

    def unpacked(self, w: Floats) -> Floats:
        """Return weights in the problem's form."""


# ---- sdca, oeg


class DualSettings(NamedTuple):
    """Settings of `sdca` and `oeg`."""

    start: float  # score of the true labels in the first distributions
    gamma: float  # weight of the entropy that smooths the hinge loss; 1 for other losses
    by_gap: bool  # whether examples are sampled in proportion to their gaps
    step_length: float = 0.5  # the first step size of `oeg`


class Distributions(Saved, Weights, Protocol):
    """Dual distributions, one per example.

    With an L1 penalty ``w`` holds the weights before soft thresholding (`problems/penalty.py`), as
    all vectors here do; ``primal`` and ``unpacked`` refer to the thresholded ones.

    ``gamma`` weights an entropy that is not part of the loss. All is stored for the objective
    divided by gamma, so the weights of the problem are ``gamma w``.
    """

    samples_by_gap: ClassVar[bool]  # whether `visit` samples examples where it finds `BY_GAP`
    gamma: float
    w: Floats

    @property
    def gaps(self) -> Floats:
        """The gap of each example when it was last visited."""

    def order(self) -> Order:
        """Return the order of visits of a run."""

    def infer(self) -> None:
        """Compute marginals and log partition functions from the scores."""

    def refresh(self) -> None:
        """Recompute the weights from the distributions."""

    def visit(self, order: Ints, uniforms: Floats, step: float) -> int:
        """Move the distributions of the examples, by ``step`` or (0) a line search.

        Returns the number of inferences. ``uniforms`` are random numbers, one per visit.
        """

    def gap(self) -> float:
        """Return the mean of the examples' gaps when they were last visited."""

    def dual(self) -> tuple[float, float]:
        """Return the dual value, and the entropy term that the loss does not have."""

    def watch(self, dual: float) -> None:
        """Observe the dual value after a step; use fewer threads if it decreased."""

    def bound(self) -> Bound:
        """Return the dual value less its rounding errors."""


def scaled(duals: Distributions) -> Floats:
    """Return the weights of the problem, ``gamma w``; they must not be changed."""
    return duals.w if duals.gamma == 1.0 else duals.gamma * duals.w


# ---- bcfw


class MapSettings(NamedTuple):
    """How MAP oracles are called, by `bcfw` and `subgradient`."""

    method: str = "auto"
    options: tuple[tuple[str, object], ...] = ()


class Defaults(NamedTuple):
    """Parameters of `bcfw` that depend on the kind of problem."""

    cached_passes: int
    inner_rounds: int
    max_outputs: int
    average: bool


class CombinationSettings(NamedTuple):
    """Settings of `bcfw`."""

    segments: bool  # whether single segments move (on chains)
    by_gap: bool
    inner_rounds: int
    max_outputs: int
    map_call: MapSettings


class Combinations(Saved, Weights, Protocol):
    """Convex combinations of outputs, one per example."""

    samples_by_gap: ClassVar[bool]
    defaults: ClassVar[Defaults]
    w: Floats

    @property
    def gaps(self) -> Floats:
        """The gap of each example when it was last visited."""

    @property
    def max_step_examples(self) -> int:
        """Number of examples whose visits take about two seconds."""

    @property
    def unproven(self) -> float:
        """Part of all gaps that an inexact oracle leaves between its values and its bounds."""

    def refresh(self) -> float:
        """Recompute the weights from the outputs; return the mean of the outputs' costs."""

    def visit(self, order: Ints, uniforms: Floats) -> tuple[int, float]:
        """Call oracles and improve; return the number of calls, and n times the dual's increase."""

    def cached_pass(self, order: Ints) -> float:
        """Improve with the stored outputs; return n times the dual's increase."""

    def bound(self) -> Bound:
        """Return the dual value right after :meth:`refresh`, less its rounding errors."""

    def end_epoch(self) -> bool:
        """Remove unused outputs; return whether an inexact oracle will not find new ones."""


# ---- subgradient


class Subgradients(Weights, Protocol):
    """Steps along subgradients."""

    sizes: Floats  # sums of |subgradients| of all visits; empty if known beforehand

    def weight_error_scale(self, visits: int) -> Floats:
        """Return the absolute sum of all subgradients times their roundings, by row of weights."""

    def zeros(self) -> Floats:
        """Return a vector of weights, in the backend's form."""

    def visit(
        self, order: Ints, z: Floats, sums: Floats, visits: int, delay: float
    ) -> tuple[int, float]:
        """Make steps on ``z``, and on the ``sums`` of the average; return calls and costs."""


# ---- svrg, casimir


class SmoothingSettings(NamedTuple):
    """Settings of `svrg` and `casimir`."""

    smoother: str  # "l2" or "entropy"
    k: int  # outputs per oracle call, at most


@dataclass
class Pass:
    """The result of a full gradient or an epoch: means over the examples, weighted with c_i.

    The distributions u_i behind it are a point of the dual. ``cost - ||gradient||^2 / (2 lam)`` is
    a lower bound of the objective with the hinge loss; with ``cost - omega`` in place of ``cost``
    it is one of the objective with the smoothed loss.
    """

    loss: float
    cost: float  # expected task loss
    omega: float  # mu omega(u): never positive
    gradient: Floats
    calls: int
    exact: float  # share of the calls in which k outputs were enough
    rounding_error: float  # rounding error of cost and omega


class Smoothing(Protocol):
    """Full gradients of smoothed losses, and epochs of steps between them.

    The distributions over outputs at the anchor, the point of the last full gradient, are stored.
    A step then needs one oracle call instead of two.
    """

    sizes: Floats  # sums of |gradients| of all examples, the largest met; empty if known beforehand

    def zeros(self) -> Floats:
        """Return a vector of weights, in the backend's form."""

    def full_gradient(self, w: Floats, mu: float) -> Pass:
        """Return the mean gradient of the smoothed losses at ``w``, which becomes the anchor."""

    def epoch(
        self, w: Floats, c: Floats, mu: float, order: Ints, step: float, shrink: float,
        average: bool, renew: bool = False,
    ) -> tuple[Floats, int]:  # fmt: skip
        """Make steps on the examples of ``order``; return the last iterate or the mean, and calls.

        With ``renew`` the outputs that a visit finds replace the example's at the anchor.
        """

    def kept(self) -> Pass:
        """Return the mean gradient that an epoch with ``renew`` has stored, without a call.

        The losses are those of the visits, each at the weights of its time.
        """

    def kind(self, mu: float) -> str:
        """Return the question of a call: ``max``, ``top_k`` or ``exp``."""

    def forget(self) -> None:
        """Make the truth the anchor, with gradients of zero: steps are then plain SGD."""

    def smooth_loss(self, w: Floats, mu: float) -> float:
        """Return the mean of the smoothed losses."""

    def total_loss(self, w: Floats) -> float:
        """Return the weighted sum of the problem's losses, which the solver does not smooth."""

    @property
    def weight_error_scale(self) -> Floats:
        """Absolute sum of full gradients over lam, times its roundings, by row of weights."""

    @property
    def curvature(self) -> float:
        """Squared norm by which gradients may differ when mass moves between similar outputs."""

    def unpacked(self, w: Floats) -> Floats:
        """Return weights in the problem's form."""

    def packed(self, w: Floats) -> Floats:
        """Return weights in the backend's form."""


def kind_of_call(smoother: str, k: int, mu: float) -> str:
    """Return the question of an oracle call: ``max``, ``top_k`` or ``exp``.

    Examples
    --------
    >>> kind_of_call("l2", 5, 1.0), kind_of_call("l2", 5, 0.0), kind_of_call("entropy", 5, 1.0)
    ('top_k', 'max', 'exp')
    """
    if mu == 0 or (smoother != "entropy" and k == 1):
        return "max"
    return "exp" if smoother == "entropy" else "top_k"
