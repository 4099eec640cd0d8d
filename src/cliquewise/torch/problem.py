"""DeepProblem: the regularized objective of a network on one data set.

    F(w) = lam / 2 ||w||^2 + 1/n sum_i h_i(g_i(w))            (Eq. 59 of casimir)

``g_i`` are the scores that the network gives example i; ``h_i`` is convex. The solvers see a
flat vector ``w`` of all weights that require a gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.torch.heads import Scorer, Scores
from cliquewise.torch.losses import LOSSES
from cliquewise.torch.smoothing import check_gamma


class Batch(NamedTuple):
    """Some examples."""

    inputs: tuple[Tensor, ...]
    target: Tensor
    extra: Tensor | None


class DeepProblem(Problem):
    """Structured loss of a network, with an L2 penalty on all its weights.

    Parameters
    ----------
    scorer : Scorer
        The network with its head. Values, and the linear models of ``ProxLinear``, are taken
        in evaluation mode; the gradients of SGD and Adam in training mode, with dropout.
    inputs : Tensor or sequence of Tensors
        Inputs of the network; the first axis of each counts the examples.
    target : Tensor
    extra : Tensor, optional
        Mask of a chain, costs of candidates.
    loss : {"log", "hinge", "smooth_hinge", "softmax_margin"}
    lam : float
        Weight of the penalty, per example.
    gamma : float
        Smoothing that belongs to the loss.
    batch_size : int

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch.heads import Scorer, make_head
    >>> scorer = Scorer(torch.nn.Linear(2, 3), make_head("candidates", 3))
    >>> x, y = torch.eye(2), torch.tensor([0, 2])
    >>> problem = DeepProblem(scorer, x, y, loss="log", lam=0.1)
    >>> problem.n_examples, problem.dimension
    (2, 9)
    """

    kind = "deep"
    losses_known = LOSSES

    def __init__(
        self,
        scorer: Scorer,
        inputs: Tensor | Sequence[Tensor],
        target: Tensor,
        extra: Tensor | None = None,
        *,
        loss: str = "hinge",
        lam: float = 1e-3,
        gamma: float = 1.0,
        batch_size: int = 32,
    ) -> None:
        check_gamma(gamma)
        if not lam >= 0:
            raise DataError(f"lam = {lam}; it must not be negative")
        if batch_size < 1:
            raise DataError(f"batch_size = {batch_size}; it must be at least 1")
        self.scorer = scorer.eval()
        self.inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
        self.target, self.extra = target, extra
        given = (*self.inputs, target) if extra is None else (*self.inputs, target, extra)
        lengths = {len(x) for x in given}
        if len(lengths) != 1 or len(target) == 0:
            raise DataError(f"inputs, target and extra have unequal or no examples: {lengths}")
        super().__init__(1.0 / (lam * len(target)) if lam > 0 else np.inf, loss)
        self.gamma, self.batch_size = gamma, batch_size
        named = [(n, p) for n, p in scorer.named_parameters() if p.requires_grad]
        self.names = [n for n, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.sizes = [p.numel() for _, p in named]

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.target)

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return sum(self.sizes)

    @property
    def is_convex(self) -> bool:
        """Return False: nothing is proven about a network."""
        return False

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """Return the targets; inputs may be too large to hash."""
        yield from super().fingerprint_parts(n)
        yield "labels", self.target[:n].cpu().numpy()

    # ---- weights

    def weights(self) -> Tensor:
        """Return the current weights of the network as one vector."""
        return torch.cat([self.scorer.get_parameter(n).detach().flatten() for n in self.names])

    def set_weights(self, w: Tensor) -> None:
        """Set the weights of the network."""
        with torch.no_grad():
            for name, value in self.unflatten(w).items():
                self.scorer.get_parameter(name).copy_(value)

    def unflatten(self, w: Tensor) -> dict[str, Tensor]:
        """Return the vector as named tensors (views)."""
        parts = w.split(self.sizes)
        return {n: p.view(s) for n, p, s in zip(self.names, parts, self.shapes)}

    # ---- batches

    def batch(self, index: Tensor | slice) -> Batch:
        """Return the examples of an index."""
        extra = None if self.extra is None else self.extra[index]
        inputs, target = [x[index] for x in self.inputs], self.target[index]
        if extra is not None and extra.dtype == torch.bool and extra.dim() == 2:
            # A mask: cut the batch to its longest chain.
            whole = extra.shape[1]
            longest = max(int((extra * torch.arange(1, whole + 1).to(extra.device)).max()), 1)
            cut = [x.dim() > 1 and x.shape[1] == whole for x in inputs]
            inputs = [x[:, :longest] if c else x for x, c in zip(inputs, cut)]
            target, extra = target[:, :longest], extra[:, :longest]
        return Batch(tuple(inputs), target, extra)

    def batches(self, order: Tensor | None = None) -> list[Batch]:
        """Yield all examples in mini-batches, in order or in a given order."""
        if order is None:
            starts = range(0, self.n_examples, self.batch_size)
            return [self.batch(slice(s, s + self.batch_size)) for s in starts]
        return [self.batch(part) for part in order.to(self.target.device).split(self.batch_size)]

    # ---- values

    def scores(self, w: Tensor, batch: Batch) -> Scores:
        """Compute g(w) of a batch; differentiable in forward and reverse mode."""
        return functional_call(self.scorer, self.unflatten(w), batch.inputs)

    def losses(
        self, scores: Scores, batch: Batch, smoothing: tuple[str, float] | None = None
    ) -> Tensor:
        """Compute h of every example, optionally smoothed by another (loss, gamma)."""
        loss, gamma = smoothing or (self.loss, self.gamma)
        return self.scorer.head.losses(scores, batch.target, batch.extra, loss, gamma)

    def objective(self, w: Tensor) -> float:
        """Compute the objective F(w) in one pass over the data."""
        total = 0.5 * self.lam * float(w.double().square().sum())
        with torch.no_grad():
            for batch in self.batches():
                losses = self.losses(self.scores(w, batch), batch)
                total += float(losses.double().sum()) / self.n_examples
        return total

    def gradient(self, w: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """Compute the gradient of the mean loss of a batch (without penalty), and the loss.

        In training mode: for a network with dropout it is a stochastic gradient.
        """
        leaf = w.detach().requires_grad_()
        self.scorer.train()
        try:
            with torch.enable_grad():
                loss = self.losses(self.scores(leaf, batch), batch).mean()
        finally:
            self.scorer.eval()
        (grad,) = torch.autograd.grad(loss, leaf)
        return grad, float(loss.detach())

    def certificate(self, w: Any) -> Certificate:
        """Return the objective; nothing is proven about a network."""
        vector = torch.as_tensor(w, dtype=self.weights().dtype, device=self.target.device)
        return Certificate(self.objective(vector), status="none")
