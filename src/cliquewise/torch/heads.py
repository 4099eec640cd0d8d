"""Structured losses and predictions on top of a network: chain, candidates, label sets.

A head combines the output of a module with its own weights (transitions of a chain, pairs of
labels) to *scores*: a tuple of tensors, the map ``g(w)`` of Section 6 of casimir. Losses are
convex functions of the scores.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.torch.chain import marginals, viterbi
from cliquewise.torch.crf import ChainCRF
from cliquewise.torch.graphs import graph_loss, graph_map
from cliquewise.torch.losses import CandidateLoss, chain_loss
from cliquewise.torch.multilabel import MultiLabelCRF

Scores = tuple[Tensor, ...]


class Head(nn.Module):
    """Base class of heads. ``extra`` is data of an example besides its target (mask, costs)."""

    def scores(self, output: Tensor) -> Scores:
        """Compute scores from the output of the module."""
        raise NotImplementedError

    def losses(
        self, scores: Scores, target: Tensor, extra: Tensor | None, loss: str, gamma: float
    ) -> Tensor:
        """Compute the loss of every example, (B,)."""
        raise NotImplementedError

    def predict(self, scores: Scores, extra: Tensor | None) -> Tensor:
        """Compute the best labels."""
        raise NotImplementedError

    def probabilities(self, scores: Scores, extra: Tensor | None) -> Tensor:
        """Compute marginal probabilities."""
        raise NotImplementedError


class ChainHead(Head):
    """Output (B, T, K), target (B, T), extra: a mask (B, T)."""

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        self.crf = ChainCRF(n_labels, batch_first=True)

    def scores(self, output: Tensor) -> Scores:
        """Return node scores, transitions, begin and end scores."""
        crf = self.crf
        # Copies: views would alias the parameters.
        own = (crf.transitions, crf.start_transitions, crf.end_transitions)
        return (output, *(x * 1.0 for x in own))

    def losses(
        self, scores: Scores, target: Tensor, extra: Tensor | None, loss: str, gamma: float
    ) -> Tensor:
        """Compute :func:`cliquewise.torch.chain_loss`."""
        nodes, trans, begin, end = scores
        return chain_loss(
            loss, target, nodes, trans, begin, end, extra, gamma=gamma, reduction="none"
        )

    def predict(self, scores: Scores, extra: Tensor | None) -> Tensor:
        """Compute the best labels, (B, T)."""
        nodes, trans, begin, end = scores
        return viterbi(nodes, trans, begin, end, extra)[1]

    def probabilities(self, scores: Scores, extra: Tensor | None) -> Tensor:
        """Compute marginal probabilities, (B, T, K)."""
        nodes, trans, begin, end = scores
        return marginals(nodes, trans, begin, end, extra).nodes


class CandidateHead(Head):
    """Output (B, M), target (B,), extra: costs (B, M), infinite where there is no candidate."""

    def scores(self, output: Tensor) -> Scores:
        """Return the output itself."""
        if output.dim() != 2:
            raise DataError(f"scores of candidates have shape (B, M), not {tuple(output.shape)}")
        return (output,)

    @staticmethod
    def _mask(extra: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if extra is None or not bool(torch.isinf(extra).any()):
            return extra, None
        mask = torch.isfinite(extra)
        return extra.masked_fill(~mask, 0.0), mask

    def losses(
        self, scores: Scores, target: Tensor, extra: Tensor | None, loss: str, gamma: float
    ) -> Tensor:
        """Compute :class:`cliquewise.torch.CandidateLoss`."""
        costs, mask = self._mask(extra)
        return CandidateLoss(loss, gamma, "none")(scores[0], target, costs, mask)

    def _allowed(self, scores: Scores, extra: Tensor | None) -> Tensor:
        _, mask = self._mask(extra)
        return scores[0] if mask is None else scores[0].masked_fill(~mask, -torch.inf)

    def predict(self, scores: Scores, extra: Tensor | None) -> Tensor:
        """Compute the best candidates, (B,)."""
        return self._allowed(scores, extra).argmax(1)

    def probabilities(self, scores: Scores, extra: Tensor | None) -> Tensor:
        """Compute probabilities of candidates, (B, M)."""
        return torch.softmax(self._allowed(scores, extra), 1)


class MultiLabelHead(Head):
    """Output (B, L), target (B, L) of 0 and 1; all pairs, or the given edges."""

    def __init__(self, n_labels: int, edges: Any = None) -> None:
        super().__init__()
        self.crf = MultiLabelCRF(n_labels, edges)

    def scores(self, output: Tensor) -> Scores:
        """Return flat tables (B, n)."""
        return (self.crf.potentials(output),)

    def losses(
        self, scores: Scores, target: Tensor, extra: Tensor | None, loss: str, gamma: float
    ) -> Tensor:
        """Compute :func:`cliquewise.torch.graph_loss`."""
        structure = self.crf.structure
        return graph_loss(loss, structure, scores[0], target, gamma=gamma, reduction="none")

    def predict(self, scores: Scores, extra: Tensor | None) -> Tensor:
        """Compute the best label sets, (B, L)."""
        return graph_map(self.crf.structure, scores[0])[1]

    def probabilities(self, scores: Scores, extra: Tensor | None) -> Tensor:
        """Compute the probabilities of yes, (B, L)."""
        return self.crf.yes_probabilities(scores[0])


def make_head(structure: str, n_labels: int, edges: Any = None) -> Head:
    """Create the head of a structure from its name.

    Examples
    --------
    >>> make_head("candidates", 0)
    CandidateHead()
    """
    if structure == "chain":
        return ChainHead(n_labels)
    if structure == "candidates":
        return CandidateHead()
    if structure == "multilabel":
        return MultiLabelHead(n_labels, edges)
    raise UnsupportedError(
        f"unknown structure {structure!r}; choose from chain, candidates, multilabel"
    )


class Scorer(nn.Module):
    """A module with its head, which maps inputs to scores."""

    def __init__(self, module: nn.Module, head: Head) -> None:
        super().__init__()
        self.module, self.head = module, head

    def forward(self, *inputs: Tensor) -> Scores:
        """Compute the scores of a batch."""
        return self.head.scores(self.module(*inputs))
