"""MultiLabelCRF: dependent yes/no labels on top of any encoder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from cliquewise.errors import DataError, warn_user
from cliquewise.graph.structure import Structure
from cliquewise.torch._transforms import is_exporting, read_constant
from cliquewise.torch.graphs import graph_loss, graph_map, graph_marginals
from cliquewise.torch.losses import check_loss
from cliquewise.torch.smoothing import check_gamma

#: With all pairs, the largest table has 2 ** n_labels entries.
MAX_ALL_PAIRS = 12


class MultiLabelCRF(nn.Module):
    """Exact inference with label scores from an encoder and learned scores of label pairs.

    Parameters
    ----------
    n_labels : int
    edges : sequence of pairs, optional
        The pairs of labels that depend on each other: a tree, or any graph of small treewidth.
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
        check_loss(loss)
        check_gamma(gamma)
        if edges is None and n_labels > MAX_ALL_PAIRS:
            raise DataError(
                f"{n_labels} labels: all pairs are exact for up to {MAX_ALL_PAIRS}; pass the "
                "edges of a tree or another graph of small treewidth"
            )
        if edges is None:
            edges = list(itertools.combinations(range(n_labels), 2))
        scopes = [(v,) for v in range(n_labels)] + [tuple(edge) for edge in edges]
        self.structure = Structure([2] * n_labels, scopes)
        self.n_labels, self.loss, self.gamma, self.k = n_labels, loss, gamma, k
        self.pairs = nn.Parameter(torch.zeros(len(edges), 2, 2))

    def potentials(self, scores: Tensor) -> Tensor:
        """Return flat tables (B, n) from scores (B, L) of yes against no."""
        if scores.dim() != 2 or scores.shape[1] != self.n_labels:
            raise DataError(f"scores must have shape (B, {self.n_labels})")
        nodes = torch.stack([torch.zeros_like(scores), scores], -1).flatten(1)
        return torch.cat([nodes, self.pairs.flatten().expand(len(scores), -1)], 1)

    def forward(self, scores: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """Compute the loss of scores (B, L) for true labels (B, L), each 0 or 1."""
        return graph_loss(
            self.loss, self.structure, self.potentials(scores), _check_labels(labels),
            gamma=self.gamma, k=self.k, reduction=reduction,
        )  # fmt: skip

    def decode(self, scores: Tensor) -> Tensor:
        """Compute the best labels, (B, L)."""
        with torch.no_grad():
            return graph_map(self.structure, self.potentials(scores))[1]

    def marginals(self, scores: Tensor) -> Tensor:
        """Compute the probability of yes for every label, (B, L); differentiable."""
        return self.yes_probabilities(self.potentials(scores))

    def yes_probabilities(self, potentials: Tensor) -> Tensor:
        """Compute the probability of yes for every label, (B, L), from flat tables (B, n)."""
        return graph_marginals(self.structure, potentials)[:, 1 : 2 * self.n_labels : 2]

    def chances(self, potentials: Tensor) -> Tensor:
        """Compute `yes_probabilities` under its old name."""
        warn_user("MultiLabelCRF.chances is now called yes_probabilities", FutureWarning)
        return self.yes_probabilities(potentials)


def _check_labels(labels: Tensor) -> Tensor:
    """Return labels as integers; float and bool labels of 0 and 1 are accepted."""
    if not isinstance(labels, Tensor):
        raise DataError(f"labels must be a tensor, not {type(labels).__name__}")
    if is_exporting():
        return labels
    values = read_constant("labels", labels.float() if labels.is_floating_point() else labels)
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        raise DataError(f"labels must be 0 or 1, not {values[wrong][0]:g}")
    return torch.from_numpy(values.astype(np.int64)).to(labels.device)
