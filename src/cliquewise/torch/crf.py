"""ChainCRF: a layer that drops in for pytorch-crf's, on the oracles of this package."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cliquewise.errors import DataError
from cliquewise.torch import _scores
from cliquewise.torch.chain import ChainMarginals, decode, log_likelihood, marginals

_REDUCTIONS = ("none", "sum", "mean", "token_mean")


class ChainCRF(nn.Module):
    """Conditional random field over chains, on top of any encoder.

    Constructor, call, ``decode`` and parameter names are those of pytorch-crf's ``CRF``: it
    drops in, and old weights load.

    Parameters
    ----------
    num_tags : int
        Number of labels.
    batch_first : bool, default=False
        Whether emissions are (batch, time, labels) rather than (time, batch, labels).
    forbidden : bool Tensor of shape (num_tags, num_tags) or list of pairs of tags, optional
        Transitions that cannot be: a mask, or pairs (tag, next tag).

    Attributes
    ----------
    start_transitions, end_transitions : Parameter of shape (num_tags,)
    transitions : Parameter of shape (num_tags, num_tags)

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch import ChainCRF
    >>> crf = ChainCRF(3, batch_first=True)
    >>> emissions = torch.zeros(2, 4, 3)
    >>> tags = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    >>> loss = -crf(emissions, tags, reduction="mean")
    >>> loss.backward()
    >>> crf.transitions.grad.shape
    torch.Size([3, 3])
    >>> [len(labels) for labels in crf.decode(emissions)]
    [4, 4]
    """

    forbidden: Tensor | None

    def __init__(self, num_tags: int, batch_first: bool = False, *, forbidden: Any = None) -> None:
        if num_tags <= 0:
            raise DataError(f"invalid number of tags: {num_tags}")
        super().__init__()
        self.num_tags = num_tags
        self.batch_first = batch_first
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        # Not in the state_dict: old weights have no such entry.
        self.register_buffer("forbidden", _mask_of(forbidden, num_tags), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights from a uniform distribution between -0.1 and 0.1."""
        for weight in (self.start_transitions, self.end_transitions, self.transitions):
            nn.init.uniform_(weight, -0.1, 0.1)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"num_tags={self.num_tags}, batch_first={self.batch_first}"

    def scores(self, emissions: Tensor, mask: Tensor | None = None) -> _scores.Scores:
        """The scores of a batch, checked."""
        if emissions.dim() != 3 or emissions.shape[2] != self.num_tags:
            order = "batch, time" if self.batch_first else "time, batch"
            raise DataError(
                f"emissions must have shape ({order}, {self.num_tags}), not "
                f"{tuple(emissions.shape)}"
            )
        if not self.batch_first:
            emissions = emissions.transpose(0, 1)
            mask = None if mask is None else mask.transpose(0, 1)
        trans: Tensor = self.transitions
        if self.forbidden is not None:
            trans = trans.masked_fill(self.forbidden, -torch.inf)
        if mask is not None and mask.device.type == "cpu" and not bool(mask[:, :1].all()):
            raise DataError("mask of the first timestep must all be on")
        return _scores.make_scores(
            emissions, trans, self.start_transitions, self.end_transitions, mask
        )

    def forward(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        reduction: str = "sum",
    ) -> Tensor:
        """Log-likelihood of the tags.

        Parameters
        ----------
        emissions : Tensor of shape (T, B, K), or (B, T, K) with ``batch_first``
        tags : integer Tensor of shape (T, B) or (B, T)
        mask : Tensor of the shape of tags, optional
            True or 1 at the positions that exist: the first ones of every sequence.
        reduction : {"none", "sum", "mean", "token_mean"}
            Over sequences; ``token_mean`` divides by the number of positions.
        """
        if reduction not in _REDUCTIONS:
            raise DataError(f"invalid reduction: {reduction}; they are {', '.join(_REDUCTIONS)}")
        if tags.shape != emissions.shape[:2]:
            raise DataError(
                f"tags must have shape {tuple(emissions.shape[:2])}, not {tuple(tags.shape)}"
            )
        scores = self.scores(emissions, mask)
        if not self.batch_first:
            tags = tags.transpose(0, 1)
        if reduction != "token_mean":
            return log_likelihood(scores, tags, reduction=reduction)
        _scores.check_examples(tags.numel())
        count = tags.numel() if scores.mask is None else scores.mask.sum()
        return log_likelihood(scores, tags, reduction="sum") / count

    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> list[list[int]]:
        """Best labels of every sequence, as lists of their lengths."""
        scores = self.scores(emissions, mask)
        value, labels = decode(scores)
        rows: list[list[int]] = labels.tolist()
        if labels.is_cuda and scores.mask is not None:
            from cliquewise.torch import _triton

            _triton.check_faults(labels.device)
        wrong = value.isnan()
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0, 0])
            raise DataError(
                f"the scores of sequence {row} contain NaN: nothing is best (look at the "
                "emissions, or at the weights, which a step that diverged leaves so)"
            )
        if scores.mask is None:
            return rows
        lengths: list[int] = scores.mask.sum(1).tolist()
        return [row[:n] for row, n in zip(rows, lengths)]

    def marginals(self, emissions: Tensor, mask: Tensor | None = None) -> ChainMarginals:
        """Probabilities of the labels, (B, T, K) whatever ``batch_first``; and log Z, edges."""
        return marginals(*self.scores(emissions, mask))

    def top_k(self, emissions: Tensor, k: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The k best labelings (B, k, T) and their scores (B, k), best first."""
        from cliquewise.torch.draws import top_k

        scores = self.scores(emissions, mask)
        return top_k(*scores[:2], k, *scores[2:])

    def sample(
        self,
        emissions: Tensor,
        n: int = 1,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Independent draws, (n, B, T)."""
        from cliquewise.torch.draws import sample

        scores = self.scores(emissions, mask)
        return sample(*scores[:2], n, *scores[2:], generator=generator)


def _mask_of(forbidden: Any, k: int) -> Tensor | None:
    """Forbidden transitions as a mask; they may be pairs of tags."""
    if forbidden is None:
        return None
    try:
        given = torch.as_tensor(forbidden)
    except (TypeError, ValueError, RuntimeError):
        given = torch.empty(())
    if given.dtype == torch.bool and given.shape == (k, k):
        return given
    mask = torch.zeros(k, k, dtype=torch.bool, device=given.device)
    if given.shape == (0,):
        return mask
    whole = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
    if not whole or given.dim() != 2 or given.shape[1] != 2:
        raise DataError(
            f"forbidden must have shape {(k, k)} and be of bool, or be a list of pairs (tag, next "
            "tag)"
        )
    if bool(((given < 0) | (given >= k)).any()):
        raise DataError(f"forbidden names a tag that there is not; the tags are 0..{k - 1}")
    mask[given[:, 0].long(), given[:, 1].long()] = True
    return mask
