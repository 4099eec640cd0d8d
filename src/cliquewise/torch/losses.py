"""Fenchel-Young losses of chains and of candidates.

``log``             log Z(scores) - score of the truth
``hinge``           max over y of [score(y) + cost(y)] - score of the truth
``smooth_hinge``    the same with the maximum smoothed by l2 (top-K)
``softmax_margin``  the same with the maximum smoothed by the entropy, temperature gamma
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.torch import chain
from cliquewise.torch._scores import (
    check_examples,
    check_tags,
    make_scores,
    path_score,
    without_ignored,
)
from cliquewise.torch.smoothing import check_gamma, l2_smoothed_max, smoothed_best

#: The losses, in the words of the package.
LOSSES = ("log", "hinge", "smooth_hinge", "softmax_margin")


def check_loss(loss: str) -> None:
    """Refuse a loss that there is not."""
    if loss not in LOSSES:
        raise UnsupportedError(f"unknown loss {loss!r}; the losses are: {', '.join(LOSSES)}")


def reduce(values: Tensor, reduction: str) -> Tensor:
    """``none``, ``sum`` or ``mean`` over examples."""
    if reduction == "none":
        return values
    if reduction == "mean":
        check_examples(len(values))
        return values.mean()
    if reduction == "sum":
        return values.sum()
    raise UnsupportedError(f"unknown reduction {reduction!r}; they are: none, sum, mean")


def hamming_cost(tags: Tensor, n_labels: int, like: Tensor, mask: Tensor | None) -> Tensor:
    """1 for every label but the true one, (B, T, K); 0 where there is no position."""
    if mask is not None:
        tags = tags.masked_fill(~mask.bool(), 0)
    cost = torch.ones((*tags.shape, n_labels), dtype=like.dtype, device=like.device)
    return cost.scatter(-1, tags.unsqueeze(-1), 0.0)


def chain_loss(
    loss: str,
    tags: Tensor,
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    cost: float = 1.0,
    gamma: float = 1.0,
    k: int = 5,
    reduction: str = "mean",
) -> Tensor:
    """A structured loss of a batch of chains.

    Parameters
    ----------
    loss : {"log", "hinge", "smooth_hinge", "softmax_margin"}
    tags : integer Tensor of shape (B, T)
        The true labels. Any number will do where the mask is False, and a position with -100 is
        left out like these. That the others are labels is looked at on the CPU; on a GPU the
        kernels find it out, and the loss is NaN or PyTorch says so.
    nodes, transitions, begin, end, mask
        As in :func:`cliquewise.torch.log_partition`.
    cost : float
        Cost of one wrong label (Hamming), where the loss has a cost.
    gamma : float
        Smoothing of ``smooth_hinge`` and ``softmax_margin``.
    k : int
        Labelings that ``smooth_hinge`` may weigh.
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> import torch
    >>> nodes = torch.tensor([[[0.0, 1.0], [3.0, 0.0]]])
    >>> chain_loss("hinge", torch.tensor([[0, 0]]), nodes, torch.zeros(2, 2))
    tensor(2.)
    """
    check_loss(loss)
    check_gamma(gamma)
    mask = without_ignored(tags, mask)
    scores, places = make_scores(nodes, transitions, begin, end, mask)
    if loss == "log":
        return reduce(-chain.log_likelihood(scores, tags, places), reduction)
    tags = check_tags(scores, tags, places)
    own = hamming_cost(tags, scores.nodes.shape[2], scores.nodes, scores.mask)
    padded = scores._replace(nodes=scores.nodes + cost * own)
    if loss == "hinge":
        worst, _ = chain.best(padded)
    else:
        worst = smoothed_best(padded, "l2" if loss == "smooth_hinge" else "entropy", gamma, k)
    return reduce(worst - path_score(scores, tags), reduction)


def maximum(loss: str, gamma: float) -> Callable[[Tensor], Tensor]:
    """The (smoothed) maximum over the last axis that belongs to a loss with a cost."""
    if loss == "hinge":
        return lambda scores: scores.amax(-1)
    if loss == "smooth_hinge":
        return lambda scores: l2_smoothed_max(scores, gamma)
    return lambda scores: gamma * torch.logsumexp(scores / gamma, -1)


class CandidateLoss(nn.Module):
    """Loss of choosing one of many candidates (windows of an image, answers, parses).

    Parameters
    ----------
    loss : {"log", "hinge", "smooth_hinge", "softmax_margin"}
    gamma : float
        Smoothing of the last two.
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch import CandidateLoss
    >>> scores = torch.tensor([[2.0, 1.0, 0.0]])
    >>> costs = torch.tensor([[0.0, 0.5, 1.0]])
    >>> CandidateLoss("softmax_margin")(scores, torch.tensor([0]), costs)
    tensor(0.6803)
    """

    def __init__(self, loss: str = "hinge", gamma: float = 1.0, reduction: str = "mean") -> None:
        super().__init__()
        check_loss(loss)
        check_gamma(gamma)
        self.loss, self.gamma, self.reduction = loss, gamma, reduction

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"{self.loss!r}, gamma={self.gamma}"

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        costs: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The loss of scores (B, M) for true candidates (B,).

        ``costs`` (B, M) is the task loss of every candidate (0 or 1 by default; log has none);
        ``mask`` (B, M) is False where there is no candidate. A target where there is none is an
        error (on a GPU, which is not waited for, the loss is infinite).
        """
        if scores.dim() != 2 or target.shape != scores.shape[:1]:
            raise DataError(
                f"scores must have shape (B, M) and target (B,), not {tuple(scores.shape)} "
                f"and {tuple(target.shape)}"
            )
        target = _check_target(target, scores, mask)
        if mask is not None:
            scores = scores.masked_fill(~mask.bool(), -torch.inf)
        truth = scores.gather(1, target.unsqueeze(1)).squeeze(1)
        if self.loss == "log":
            return reduce(torch.logsumexp(scores, 1) - truth, self.reduction)
        if costs is None:
            costs = torch.ones_like(scores).scatter(1, target.unsqueeze(1), 0.0)
        if costs.shape != scores.shape:
            raise DataError(f"costs must have shape {tuple(scores.shape)}")
        return reduce(maximum(self.loss, self.gamma)(scores + costs) - truth, self.reduction)


def _check_target(target: Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
    """True candidates as 64-bit integers; that they are candidates is looked at on the CPU."""
    count = scores.shape[1]
    if target.dtype == torch.bool or target.is_floating_point() or target.is_complex():
        raise DataError(f"target must be integers, not {target.dtype}: take target.long()")
    if mask is not None and mask.shape != scores.shape:
        raise DataError(f"mask must have shape {tuple(scores.shape)}, not {tuple(mask.shape)}")
    target = target.long()
    if target.device.type != "cpu":
        return target
    wrong = (target < 0) | (target >= count)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0, 0])
        raise DataError(
            f"target[{row}] = {int(target[row])}, but the candidates are 0..{count - 1}"
        )
    if mask is not None:
        there = mask.bool().gather(1, target.unsqueeze(1)).squeeze(1)
        if not bool(there.all()):
            row = int((~there).nonzero()[0, 0])
            raise DataError(
                f"target[{row}] = {int(target[row])} is not there: the mask is False at the true "
                "candidate"
            )
    return target
