"""ChainDistribution: the distribution over labelings of chains, as a torch.distributions object."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl

from cliquewise.errors import DataError
from cliquewise.torch import chain, information, sampling
from cliquewise.torch._scores import Scores, check_tensor, make_scores, path_score, remove_gaps
from cliquewise.torch._transforms import can_read, graph_break


class ChainDistribution(Distribution):  # type: ignore[misc]
    """Distribution over the labelings of a batch of chains.

    The probability of a labeling is proportional to the exponential of its score. Follows the
    conventions of ``torch.distributions``: the batch shape is (B,), the event shape (T,), and
    ``torch.distributions.kl_divergence`` works. All results are exact.

    Parameters
    ----------
    nodes, transitions, begin, end, mask
        As in :func:`cliquewise.torch.log_partition`.

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch import ChainDistribution
    >>> p = ChainDistribution(torch.tensor([[[0.0, 1.0], [3.0, 0.0]]]), torch.zeros(2, 2))
    >>> p.mode, p.log_prob(p.mode)
    (tensor([[1, 0]]), tensor([-0.3618]))
    >>> p.sample((5,)).shape
    torch.Size([5, 1, 2])
    >>> torch.distributions.kl_divergence(p, p)
    tensor([0.])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_enumerate_support = False

    def __init__(
        self,
        nodes: Tensor,
        transitions: Tensor,
        begin: Tensor | None = None,
        end: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        self.scores: Scores = make_scores(nodes, transitions, begin, end, mask)
        size, length, self.n_labels = self.scores.nodes.shape
        super().__init__(torch.Size([size]), torch.Size([length]), validate_args=False)

    @property
    def support(self) -> constraints.Constraint:
        """Labels 0..K-1 at every position."""
        return constraints.independent(constraints.integer_interval(0, self.n_labels - 1), 1)

    @property
    @graph_break
    def log_z(self) -> Tensor:
        """The log partition function, shape (B,)."""
        return chain.log_likelihood(self.scores)

    @graph_break
    def log_prob(self, value: Tensor) -> Tensor:
        """Compute log-probabilities of labelings (..., B, T); masked positions are ignored.

        Returns a tensor of shape (..., B).
        """
        check_tensor("value", value, self.scores.nodes)
        shape = (*self.batch_shape, *self.event_shape)
        if tuple(value.shape[-2:]) != shape or value.is_floating_point():
            raise DataError(
                f"value must be integer labels of shape (..., B, T) with (B, T) = {shape}, not "
                f"{value.dtype} of shape {tuple(value.shape)}"
            )
        scores, gaps = remove_gaps(self.scores)
        labels = value.long()
        if gaps.order is not None:
            labels = labels.gather(-1, gaps.order.expand_as(labels))
        if scores.mask is not None:
            labels = labels.masked_fill(~scores.mask, 0)
        if can_read(labels) and labels.numel():
            low, high = labels.aminmax()
            if int(low) < 0 or int(high) >= self.n_labels:
                raise DataError(
                    f"the labels are 0..{self.n_labels - 1}, not {int(low)}..{int(high)}"
                )
        return path_score(scores, labels) - chain.log_likelihood(scores)

    def sample(
        self,
        sample_shape: torch.Size | list[int] | tuple[int, ...] = (),
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Sample labelings, ``(*sample_shape, B, T)``; labels are 0 at masked positions."""
        n = torch.Size(sample_shape).numel()
        found = sampling.sample_from(self.scores, n, generator)
        return found.view(*sample_shape, *self.batch_shape, *self.event_shape)

    @graph_break
    def entropy(self) -> Tensor:
        """Compute the entropy in nats, shape (B,)."""
        return information.entropy_of(self.scores)

    @graph_break
    def marginals(self) -> chain.ChainMarginals:
        """Compute log Z and the probabilities of labels and of pairs of adjacent labels."""
        return chain.marginals_of(self.scores)

    @property
    def mode(self) -> Tensor:
        """The most probable labeling, (B, T)."""
        return self.argmax()

    @graph_break
    def argmax(self) -> Tensor:
        """Compute the most probable labeling, (B, T)."""
        return chain.decode(self.scores)[1]

    @graph_break
    def top_k(self, k: int) -> tuple[Tensor, Tensor]:
        """Compute log-probabilities (B, k) and labels (B, k, T) of the k best labelings."""
        scores, labels = sampling.top_k_of(self.scores, k)
        return scores - chain.log_likelihood(self.scores).unsqueeze(1), labels

    def parameters(self) -> tuple[Tensor | None, ...]:
        """Return (nodes, transitions, begin, end, mask), as for :func:`kl_divergence`."""
        return tuple(self.scores)


@register_kl(ChainDistribution, ChainDistribution)
def _kl(p: ChainDistribution, q: ChainDistribution) -> Tensor:
    return information.kl_divergence(p.parameters(), q.parameters())
