"""MultiLabelCRF: dependent yes-or-no labels on top of any encoder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cliquewise.errors import DataError
from cliquewise.graph.structure import Structure
from cliquewise.torch.graphs import graph_log_partition, graph_loss, graph_map

#: With all pairs the largest table has 2 ** n_labels entries.
MAX_ALL_PAIRS = 12


class MultiLabelCRF(nn.Module):
    """Scores of single labels from an encoder, learnt scores of pairs, exact inference.

    Parameters
    ----------
    n_labels : int
    edges : sequence of pairs, optional
        The pairs of labels that depend on each other; a tree, or any graph of small treewidth.
        All pairs by default, for up to 12 labels.
    loss : {"log", "hinge", "smooth_hinge", "softmax_margin"}
    gamma, k
        As in :func:`cliquewise.torch.chain_loss`.

    Attributes
    ----------
    pairs : Parameter of shape (n_edges, 2, 2)
        Scores of (first label, second label), each no or yes.

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch import MultiLabelCRF
    >>> crf = MultiLabelCRF(3)
    >>> scores = torch.tensor([[2.0, -1.0, 0.5]])
    >>> crf(scores, torch.tensor([[1, 0, 1]])).backward()
    >>> crf.decode(scores)
    tensor([[1, 0, 1]])
    """

    def __init__(
        self,
        n_labels: int,
        edges: Sequence[tuple[int, int]] | None = None,
        loss: str = "log",
        gamma: float = 1.0,
        k: int = 5,
    ) -> None:
        super().__init__()
        if edges is None and n_labels > MAX_ALL_PAIRS:
            raise DataError(
                f"{n_labels} labels: all pairs are exact for up to {MAX_ALL_PAIRS}; name the "
                "edges of a tree or another graph of small treewidth"
            )
        if edges is None:
            edges = list(itertools.combinations(range(n_labels), 2))
        scopes = [(v,) for v in range(n_labels)] + [tuple(edge) for edge in edges]
        self.structure = Structure([2] * n_labels, scopes)
        self.n_labels, self.loss, self.gamma, self.k = n_labels, loss, gamma, k
        self.pairs = nn.Parameter(torch.zeros(len(edges), 2, 2))

    def potentials(self, scores: Tensor) -> Tensor:
        """Flat tables (B, n) from scores (B, L) of yes against no."""
        if scores.dim() != 2 or scores.shape[1] != self.n_labels:
            raise DataError(f"scores must have shape (B, {self.n_labels})")
        nodes = torch.stack([torch.zeros_like(scores), scores], -1).flatten(1)
        return torch.cat([nodes, self.pairs.flatten().expand(len(scores), -1)], 1)

    def forward(self, scores: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """The loss of scores (B, L) for true labels (B, L) of 0 and 1."""
        return graph_loss(
            self.loss, self.structure, self.potentials(scores), labels.long(),
            gamma=self.gamma, k=self.k, reduction=reduction,
        )  # fmt: skip

    def decode(self, scores: Tensor) -> Tensor:
        """Best labels, (B, L)."""
        with torch.no_grad():
            return graph_map(self.structure, self.potentials(scores))[1]

    def marginals(self, scores: Tensor) -> Tensor:
        """Probability of yes for every label, (B, L)."""
        return self.chances(self.potentials(scores))

    def chances(self, potentials: Tensor) -> Tensor:
        """Probability of yes for every label, (B, L), from flat tables (B, n)."""
        leaf = potentials.detach().requires_grad_()
        with torch.enable_grad():
            value = graph_log_partition(self.structure, leaf).sum()
        (grad,) = torch.autograd.grad(value, leaf)
        return grad[:, 1 : 2 * self.n_labels : 2]
