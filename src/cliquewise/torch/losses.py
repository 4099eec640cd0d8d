"""Fenchel-Young losses of chains and of candidates.

``log``             log Z(scores) - score of the truth
``hinge``           max over y of [score(y) + cost(y)] - score of the truth
``smooth_hinge``    the same with the maximum smoothed by l2 (top-K)
``softmax_margin``  the same with the maximum smoothed by the entropy, temperature gamma
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cliquewise.data.dataset import MOST_COST
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.torch import chain
from cliquewise.torch._scores import (
    GapMap,
    Scores,
    check_nonempty,
    make_scores,
    path_score,
    remove_untagged,
)
from cliquewise.torch._transforms import can_read, graph_break
from cliquewise.torch.smoothing import check_gamma, l2_smoothed_max, smoothed_max_of

#: Names of the losses, as in the rest of the package.
LOSSES = ("log", "hinge", "smooth_hinge", "softmax_margin")


def check_loss(loss: str) -> None:
    """Raise unless the loss is known."""
    if loss not in LOSSES:
        raise UnsupportedError(f"unknown loss {loss!r}; choose from {', '.join(LOSSES)}")


def reduce(values: Tensor, reduction: str) -> Tensor:
    """Reduce losses over examples: ``none``, ``sum`` or ``mean``."""
    if reduction == "none":
        return values
    if reduction == "mean":
        check_nonempty(len(values))
        return values.mean()
    if reduction == "sum":
        return values.sum()
    raise UnsupportedError(f"unknown reduction {reduction!r}; choose from none, sum, mean")


def _costs(cost: Any, tags: Tensor, scores: Scores, gaps: GapMap) -> Tensor:
    """Return the cost of every label at every position, (B, T, K) without gaps; 0 if true."""
    nodes, mask = scores.nodes, scores.mask
    size, length, k = nodes.shape
    try:
        given = torch.as_tensor(cost)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"cost is a number or a tensor of numbers ({error})") from None
    if given.dim() and isinstance(cost, Tensor) and given.device != nodes.device:
        raise DataError(f"cost is on {given.device}, and the node scores on {nodes.device}")
    given = given.to(nodes)
    if mask is not None:
        tags = tags.masked_fill(~mask, 0)
    if given.dim() == 0:
        own = given.expand(nodes.shape)
    elif given.shape == (k, k):
        if can_read(given) and bool(given.diagonal().any()):
            raise DataError("the costs of true labels, the diagonal of the table, must be 0")
        own = given[tags]
    elif given.dim() == 3 and all(n in (1, m) for n, m in zip(given.shape, nodes.shape)):
        own = gaps.compact(given.expand(nodes.shape))
    else:
        raise DataError(
            f"cost has shape {tuple(given.shape)}; it must be a number, a table (K, K) = {(k, k)} "
            f"with a row per true label, or (B, T, K) = {(size, length, k)}, any of these 1"
        )
    if mask is not None:
        own = own.masked_fill(~mask.unsqueeze(-1), 0.0)
    own = own.scatter(-1, tags.unsqueeze(-1), 0.0)
    # Not checked on a GPU, which would have to be waited for: there the loss becomes NaN or inf.
    if can_read(own) and not bool(((own >= 0) & (own <= MOST_COST)).all()):
        raise DataError(f"cost must be numbers between 0 and {MOST_COST:g}")
    return own


def uniform_score(scores: Scores) -> Tensor:
    """Return the expected score (B,) of labels that are uniform over all allowed ones.

    Labels and transitions of score -inf are not allowed; chains have no gaps.
    """
    mask = scores.mask
    nodes, steps = _finite_mean(scores.nodes, 1), _finite_mean(scores.trans, 2)
    if mask is None:
        total = nodes.sum(1)
        total = total + (steps * (nodes.shape[1] - 1) if scores.is_shared else steps.sum(1))
    else:
        total = (nodes * mask).sum(1) + (steps * mask[:, 1:]).sum(1)
    for end in (scores.begin, scores.end):
        if end is not None:
            mean = _finite_mean(end, 1)
            total = total + (mean if mask is None else mean * mask[:, 0])
    return total


def _finite_mean(x: Tensor, dims: int) -> Tensor:
    """Return the mean of the finite entries along the last axes."""
    finite = torch.isfinite(x)
    axes = tuple(range(-dims, 0))
    total = torch.where(finite, x, torch.zeros_like(x)).sum(axes)
    return total / finite.sum(axes).clamp(min=1)


def smoothed_log_likelihood(scores: Scores, tags: Tensor, label_smoothing: float) -> Tensor:
    """Return the log-likelihood (B,) of tags that are mixed with uniform labels.

    That is minus the cross entropy between ``(1 - s) * [tags] + s * uniform`` and the model, up
    to forbidden labelings. With ``s = 0`` it is the log-likelihood.
    """
    if not 0 <= label_smoothing < 1:
        raise DataError(f"label_smoothing = {label_smoothing}; it must be at least 0 and below 1")
    value = chain.log_likelihood(scores, tags)
    if not label_smoothing:
        return value
    closed, tags, _ = remove_untagged(scores, tags)
    change = uniform_score(closed) - path_score(closed, tags)
    return value + label_smoothing * change


@graph_break
def chain_loss(
    loss: str,
    tags: Tensor,
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    cost: float | Tensor = 1.0,
    gamma: float = 1.0,
    k: int = 5,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Compute a structured loss of a batch of chains.

    Parameters
    ----------
    loss : {"log", "hinge", "smooth_hinge", "softmax_margin"}
    tags : integer Tensor of shape (B, T)
        The true labels. Masked positions may hold any value, and positions tagged -100 are left
        out as well. Invalid labels raise an error on the CPU; on a GPU the loss is NaN, or
        PyTorch raises an error later.
    nodes, transitions, begin, end, mask
        As in :func:`cliquewise.torch.log_partition`.
    cost : float or Tensor, default=1.0
        The cost of wrong labels, for all losses except ``log``. A number is the cost of each
        wrong label (Hamming). A table (K, K) has ``cost[true, predicted]``, as in
        ``SequenceTagger(cost=...)``. A tensor that broadcasts to (B, T, K) has the cost of each
        label at each position; (B, T, 1) weights tokens. True labels always cost 0.
    gamma : float
        Smoothing of ``smooth_hinge`` and ``softmax_margin``.
    k : int
        Number of labelings that may have weight in ``smooth_hinge``.
    reduction : {"mean", "sum", "none"}
    label_smoothing : float, default=0.0
        For ``log``: how much of the true labels is replaced by uniform ones.

    Examples
    --------
    >>> import torch
    >>> nodes = torch.tensor([[[0.0, 1.0], [3.0, 0.0]]])
    >>> chain_loss("hinge", torch.tensor([[0, 0]]), nodes, torch.zeros(2, 2))
    tensor(2.)
    >>> table = torch.tensor([[0.0, 5.0], [1.0, 0.0]])  # 1 is expensive where 0 is true
    >>> chain_loss("hinge", torch.tensor([[0, 0]]), nodes, torch.zeros(2, 2), cost=table)
    tensor(8.)
    """
    check_loss(loss)
    check_gamma(gamma)
    scores = make_scores(nodes, transitions, begin, end, mask)
    if loss == "log":
        if not (isinstance(cost, (int, float)) and cost == 1):
            raise UnsupportedError(
                'loss="log" has no cost; loss="softmax_margin" is the likelihood with costs added '
                "to the scores of wrong labels"
            )
        return reduce(-smoothed_log_likelihood(scores, tags, label_smoothing), reduction)
    if label_smoothing:
        raise UnsupportedError(f'label_smoothing needs loss="log", not {loss!r}')
    scores, tags, gaps = remove_untagged(scores, tags)
    padded = scores._replace(nodes=scores.nodes + _costs(cost, tags, scores, gaps))
    if loss == "hinge":
        worst, _ = chain.viterbi_of(padded)
    else:
        worst = smoothed_max_of(padded, "l2" if loss == "smooth_hinge" else "entropy", gamma, k)
    return reduce(worst - path_score(scores, tags), reduction)


def maximum(loss: str, gamma: float) -> Callable[[Tensor], Tensor]:
    """Return the (smoothed) maximum over the last axis for a loss with a cost."""
    if loss == "hinge":
        return lambda scores: scores.amax(-1)
    if loss == "smooth_hinge":
        return lambda scores: l2_smoothed_max(scores, gamma)
    return lambda scores: gamma * torch.logsumexp(scores / gamma, -1)


class CandidateLoss(nn.Module):
    """Loss for choosing one of many candidates (windows of an image, answers, parses).

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
        """Describe the loss for ``print``."""
        return f"{self.loss!r}, gamma={self.gamma}"

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        costs: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of scores (B, M) for true candidates (B,).

        ``costs`` (B, M) is the task loss of every candidate (0 or 1 by default; not used by
        ``log``); ``mask`` (B, M) is False where there is no candidate. A masked target raises an
        error on the CPU; on a GPU the loss is infinite.
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
    """Return true candidates as int64; their range is checked on the CPU."""
    count = scores.shape[1]
    if target.dtype == torch.bool or target.is_floating_point() or target.is_complex():
        raise DataError(f"target must be integers, not {target.dtype}: use target.long()")
    if mask is not None and mask.shape != scores.shape:
        raise DataError(f"mask must have shape {tuple(scores.shape)}, not {tuple(mask.shape)}")
    target = target.long()
    if not can_read(target):
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
                f"target[{row}] = {int(target[row])} is masked out: the true candidate must exist"
            )
    return target
