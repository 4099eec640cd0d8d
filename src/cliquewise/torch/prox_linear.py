"""Prox-linear training of networks (Algorithm 5 of casimir), with Casimir-SVRG inside.

Outer step k minimizes, inexactly, the convex model

    1/n sum_i h_i(g_i(w_k) + J_i (w - w_k)) + lam/2 ||w||^2 + 1/(2 eta) ||w - w_k||^2   (Eq. 61)

in which the network is replaced by its linearization. ``J_i v`` and ``J_i^T u`` are forward-
and reverse-mode products of ``torch.func``; no Jacobian is ever formed. The result is taken
only if it does not raise the objective (line 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from cliquewise.certificate import Certificate
from cliquewise.solvers.array_checks import check, checked
from cliquewise.solvers.base import Capabilities, Info, Solver, State, Warm
from cliquewise.solvers.parameters import at_least, one_of, positive
from cliquewise.solvers.registry import register
from cliquewise.torch.heads import Scores
from cliquewise.torch.losses import LOSSES
from cliquewise.torch.problem import Batch, DeepProblem
from cliquewise.torch.stochastic import start_of

# PyTorch types them by their rarest form.
jvp: Any = torch.func.jvp
vjp: Any = torch.func.vjp

#: Share of the worst-case curvature to begin with; factors after a good and a bad inner pass,
#: and after an accepted and a refused outer step.
START, EASE, TIGHTEN, EASE_OUTER = 0.01, 0.7, 4.0, 0.8
#: Factors of the step length after an accepted and a refused step.
LENGTHEN, SHORTEN = 1.5, 0.5
#: Losses with a maximum to smooth, and the loss that smooths it.
_SMOOTH = {"l2": "smooth_hinge", "entropy": "softmax_margin"}


@dataclass
class Held:
    """Mini-batches and their scores at the weights, from the pass that computed the objective.

    One top-K call per example serves the maximum, which the acceptance test needs, and the
    smoothed maximum, which the first anchor of the next inner problem does.
    """

    batches: list[Batch]
    scores: list[Scores]


@dataclass
class ProxLinearState(State):
    """Weights, progress, and results of the last outer step."""

    w: Tensor
    step: int
    eta: float
    value: float
    prox_gradient: float = float("nan")
    accepted: int = 0
    lipschitz: float = float("nan")
    inner: float = 0.0
    held: Held | None = None


class LinearModel:
    """The objective (61) with the scores linearized at ``center``, smoothed."""

    def __init__(
        self, problem: DeepProblem, center: Tensor, strength: float,
        smoothing: tuple[str, float] | None, held: Held,
    ) -> None:  # fmt: skip
        self.problem, self.center, self.strength = problem, center, strength
        self.smoothing, self.batches, self.scores = smoothing, held.batches, held.scores
        self.shares = [len(b.target) / problem.n_examples for b in self.batches]

    def score_gradient(self, w: Tensor, b: int) -> tuple[Scores, float]:
        """Compute the gradient of a batch's mean loss by the linearized scores at w, and the loss.

        One oracle call per example; none at the center, whose scores are held.
        """
        batch, scores = self.batches[b], self.scores[b]
        if w is not self.center:
            _, moved = jvp(
                lambda v: self.problem.scores(v, batch), (self.center,), (w - self.center,)
            )
            scores = tuple(s + m for s, m in zip(scores, moved))
        leaves = [s.detach().requires_grad_() for s in scores]
        with torch.enable_grad():
            value = self.problem.losses(tuple(leaves), batch, self.smoothing).mean()
        found = torch.autograd.grad(value, leaves, allow_unused=True)
        by_scores = (torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found))
        return tuple(by_scores), float(value.detach())

    def pull_back(self, batch: Batch, by_scores: Scores) -> Tensor:
        """J^T u."""
        _, pull = vjp(lambda v: self.problem.scores(v, batch), self.center)
        return pull(by_scores)[0].detach()

    def quadratic_gradient(self, w: Tensor) -> Tensor:
        """Compute the gradient of the penalty and the proximal term."""
        return self.problem.lam * w + self.strength * (w - self.center)

    def full_gradient(self, w: Tensor) -> tuple[Tensor, list[Scores], float]:
        """Compute the gradient of the loss part, the gradients by all scores, and the value."""
        kept, total = [], torch.zeros_like(w)
        apart = (w - self.center).double().square().sum()
        value = 0.5 * float(self.problem.lam * w.double().square().sum() + self.strength * apart)
        for b, (share, batch) in enumerate(zip(self.shares, self.batches)):
            by_scores, loss = self.score_gradient(w, b)
            kept.append(by_scores)
            value += share * loss
            total += share * self.pull_back(batch, by_scores)
        return total, kept, value

    def curvature(self, batch: Batch, rounds: int, generator: torch.Generator) -> float:
        """Estimate the greatest eigenvalue of J^T J / B of a batch by the power method."""
        v = torch.randn(self.center.shape, generator=generator).to(self.center)
        size = 0.0
        for _ in range(rounds):
            v = v / v.norm().clamp(min=1e-30)
            _, moved = jvp(lambda x: self.problem.scores(x, batch), (self.center,), (v,))
            v = self.pull_back(batch, tuple(moved))
            size = float(v.norm())
        return size / len(batch.target)


def hold(problem: DeepProblem, w: Tensor, rng: np.random.Generator) -> tuple[float, Held]:
    """Compute the objective at w and the scores of random mini-batches in one pass."""
    batches = problem.batches(torch.from_numpy(rng.permutation(problem.n_examples)))
    total = 0.5 * problem.lam * float(w.double().square().sum())
    kept = []
    with torch.no_grad():
        for batch in batches:
            scores = problem.scores(w, batch)
            total += float(problem.losses(scores, batch).double().sum()) / problem.n_examples
            kept.append(tuple(s.detach() for s in scores))
    return total, Held(batches, kept)


@register
@dataclass(frozen=True)
class ProxLinear(Solver[DeepProblem, ProxLinearState]):
    """Prox-linear algorithm for networks, with Casimir-SVRG as inner solver.

    Parameters
    ----------
    eta : float
        Step length to begin with: how far to trust the linearization. It grows by half with
        a step that is accepted, and is halved by one that is refused.
    mu : float
        Smoothing of the maximum in the inner problem (losses without smoothing of their own).
    smoothing : {"adaptive", "constant"}
        ``mu / k`` in outer step k, or ``mu``.
    smoother : {"l2", "entropy"}
    budget : int
        Inner iterations of the first outer step, each one pass of SVRG over the data (and,
        but for the first one, a pass for its anchor).
    growth : float
        How many more in each later outer step: the further, the more precise, as the
        convergence of Algorithm 5 asks for. 0 for a fixed budget.
    tolerance : float, optional
        End the inner loop early once ``||v||^2 / (lam + 1/eta) <= tolerance / k`` for the
        gradient v of the (smoothed) inner problem.
    lipschitz : float, optional
        Curvature of the inner loss for ``mu = 1`` to begin with; it is adapted to the progress
        of the inner solver. By default a share of the greatest squared singular value of the
        Jacobian of a few batches, from the power method.

    Examples
    --------
    >>> import torch
    >>> from cliquewise.solvers.run import run
    >>> from cliquewise.torch.heads import Scorer, make_head
    >>> from cliquewise.torch.problem import DeepProblem
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ELU(), torch.nn.Linear(8, 3))
    >>> x, y = torch.randn(60, 2), torch.randint(0, 3, (60,))
    >>> problem = DeepProblem(Scorer(network, make_head("candidates", 3)), x, y, lam=0.01)
    >>> fit = run(problem, ProxLinear(eta=1.0), max_epochs=30, random_state=0)
    >>> bool((fit.trace.primal[1:] <= fit.trace.primal[:-1]).all()), fit.certificate.status
    (True, 'none')
    """

    eta: float = 10.0
    mu: float = 1.0
    smoothing: str = "adaptive"
    smoother: str = "l2"
    budget: int = 1
    growth: float = 0.5
    tolerance: float | None = None
    lipschitz: float | None = None

    name: ClassVar[str] = "prox_linear"
    capabilities: ClassVar[Capabilities] = Capabilities(
        {"deep": frozenset(LOSSES)}, no_penalty=True, precision=float("inf")
    )
    columns: ClassVar[tuple[str, ...]] = ("prox_gradient", "eta", "accepted", "inner")

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "eta")
        positive(self, "mu")
        at_least(self, 1, "budget")
        at_least(self, 0, "growth")
        one_of(self, "smoothing", "adaptive", "constant")
        one_of(self, "smoother", *_SMOOTH)
        positive(self, "tolerance", None)
        positive(self, "lipschitz", None)

    def init(self, problem: DeepProblem, warm: Warm = None) -> ProxLinearState:
        """Start from the network's weights, or those of another state."""
        w = start_of(problem, warm)
        return ProxLinearState(w.clone(), 0, self.eta, problem.objective(w))

    def step(self, problem: DeepProblem, state: ProxLinearState, rng: np.random.Generator) -> Info:
        """Perform one outer step: solve the model inexactly, accept it if it is no worse."""
        k = state.step + 1
        mu = self.mu / k if self.smoothing == "adaptive" else self.mu
        smoothing = (_SMOOTH[self.smoother], mu) if problem.loss == "hinge" else None
        if smoothing is None:
            mu = 1.0 if problem.loss == "log" else problem.gamma
        held, passes = state.held, 0.0
        if held is None:
            held, passes = hold(problem, state.w, rng)[1], 1.0
        model = LinearModel(problem, state.w, 1.0 / state.eta, smoothing, held)
        bound = state.lipschitz
        if math.isnan(bound):
            bound = self._lipschitz(model, rng)
        w, anchors, inner, found = self._solve(model, bound / mu, k, rng)
        value, there = hold(problem, w, rng)
        passes += anchors + inner + 1.0
        moved = float((state.w - w).norm()) / state.eta
        state.inner += inner
        state.step, state.prox_gradient = k, moved
        if value <= state.value:
            state.w, state.value, state.held = w, value, there
            state.eta, state.lipschitz = state.eta * LENGTHEN, found * mu * EASE_OUTER
            state.accepted += 1
        else:
            state.held = held
            state.eta, state.lipschitz = state.eta * SHORTEN, found * mu * TIGHTEN
        calls = round(passes * problem.n_examples)
        return Info(passes, calls, certificate=self.certify(problem, state))

    def _lipschitz(self, model: LinearModel, rng: np.random.Generator) -> float:
        if self.lipschitz is not None:
            return self.lipschitz
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        worst = max(model.curvature(b, 8, generator) for b in model.batches[:3])
        return START * worst + 1e-12

    def _solve(
        self, model: LinearModel, bound: float, k: int, rng: np.random.Generator
    ) -> tuple[Tensor, float, float, float]:
        """Run Casimir-SVRG with constant smoothing; return weights, passes and curvature.

        The worst-case curvature is far from the typical one. The value of the model at the
        anchors, which costs nothing extra, decides whether to try a smaller or larger one.
        """
        lam = model.problem.lam + model.strength
        n = len(model.batches)
        best = before = center = model.center
        least, anchors, made = float("inf"), 0.0, 0
        budget = self.budget + int(self.growth * (k - 1))
        while True:
            full, kept, value = model.full_gradient(center)
            anchors += float(center is not model.center)
            if value <= least:
                least, best = value, center
                anchor = center, full, kept
                bound = bound if made == 0 else bound * EASE
            else:
                bound *= TIGHTEN
                before, (center, full, kept) = best, anchor
            size = float((full + model.quadratic_gradient(center)).square().sum()) / lam
            if self.tolerance is not None and size <= self.tolerance / k:
                return best, anchors, float(made), bound
            # An extra proximal term pays where the condition is worse than n (Prop. 29).
            kappa = max(bound / (n + 1) - lam, 0.0)
            root = (lam / (lam + kappa)) ** 0.5
            w = self._svrg_pass(model, center, full, kept, bound, kappa, rng)
            made += 1
            if made == budget:
                # The acceptance test of the outer step evaluates the objective itself.
                return w, anchors, float(made), bound
            center = w + (1.0 - root) / (1.0 + root) * (w - before)
            before = w

    @staticmethod
    def _svrg_pass(
        model: LinearModel, center: Tensor, full: Tensor, kept: list[Scores],
        bound: float, kappa: float, rng: np.random.Generator,
    ) -> Tensor:  # fmt: skip
        """Run one pass from the anchor ``center``; return the mean of its second half."""
        lam = model.problem.lam + model.strength
        rate = 1.0 / (2.0 * (bound + lam + kappa))
        w, total = center.clone(), torch.zeros_like(center)
        n = len(kept)
        for i, b in enumerate(rng.permutation(n).tolist()):
            now, _ = model.score_gradient(w, b)
            # Both gradients go through the same Jacobian, so one product serves.
            change = tuple(x - y for x, y in zip(now, kept[b]))
            weight = model.shares[b] * n
            grad = full + weight * model.pull_back(model.batches[b], change)
            grad += model.quadratic_gradient(w) + kappa * (w - center)
            w = w - rate * grad
            if i >= n // 2:
                total += w
        return total / (n - n // 2)

    def weights(self, problem: DeepProblem, state: ProxLinearState) -> Any:
        """Return the weights as a NumPy vector."""
        return state.w.cpu().double().numpy()

    def certify(self, problem: DeepProblem, state: ProxLinearState) -> Any:
        """Return the objective, known from the acceptance test."""
        return Certificate(state.value, status="none")

    def extras(self, problem: DeepProblem, state: ProxLinearState) -> dict[str, float]:
        """Return the prox-gradient norm (Eq. 63) at the last center, step length, acceptances.

        ``inner`` counts only the passes of SVRG, as the figures of the paper do.
        """
        return {
            "prox_gradient": state.prox_gradient,
            "eta": state.eta,
            "accepted": float(state.accepted),
            "inner": state.inner,
        }

    def pack(self, state: ProxLinearState) -> dict[str, Any]:
        """Return the arrays of a checkpoint."""
        numbers = [
            state.step, state.eta, state.value, state.prox_gradient, state.accepted,
            state.lipschitz, state.inner,
        ]  # fmt: skip
        return {"w": state.w.cpu().numpy(), "numbers": np.array(numbers, dtype=float)}

    def unpack(self, problem: DeepProblem, arrays: dict[str, Any]) -> ProxLinearState:
        """Restore a state; the objective is recomputed, because C may have changed."""
        like = problem.weights()
        w = torch.as_tensor(checked(arrays, "w", tuple(like.shape), like.cpu().numpy().dtype)).to(
            like
        )
        numbers = arrays.get("numbers", np.empty(0))
        check(numbers.shape == (7,) and numbers.dtype == np.float64, "its arrays have other shapes")
        step, eta, _, norm, accepted, bound, inner = numbers.tolist()
        # Two of them are undefined before the first step.
        known = np.array([step, eta, accepted, inner])
        check((known >= 0) & (known <= 1e150) & (known[1] > 0), "its numbers are not in range")
        check(np.isnan(bound) or 0 < bound <= 1e150, "its numbers are not in range")
        value = problem.objective(w)
        return ProxLinearState(w, int(step), eta, value, norm, int(accepted), bound, inner)
