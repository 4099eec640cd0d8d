"""Entropy, cross entropy, divergence and expectations of distributions over labelings.

All are computed in float64, whatever the type of the scores, because they are small differences
of large numbers. On the CPU one pair of passes gives a value, and one pair its gradient
(`cliquewise._kernels.chain.covariance`). Elsewhere, and for derivatives of gradients, PyTorch
operations are recorded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cliquewise.errors import DataError
from cliquewise.torch import _plain
from cliquewise.torch._backends import choose_backend
from cliquewise.torch._scores import GapMap, Scores, make_scores, remove_gaps
from cliquewise.torch._transforms import graph_break, is_transformed
from cliquewise.torch.chain import log_likelihood, marginals_of

#: The parameters (nodes, transitions, begin, end, mask) of `log_partition`.
Parameters = tuple[Tensor | None, ...]


class _Entropy(torch.autograd.Function):
    """Entropy of every chain; its gradient is minus the covariance of labels and score."""

    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, trans: Tensor, begin: Tensor | None, end: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:  # fmt: skip
        from cliquewise.torch import _numba

        ctx.save_for_backward(nodes, trans, begin, end, mask)
        return _numba.entropy(Scores(nodes, trans, begin, end, mask))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores = Scores(*ctx.saved_tensors)
        if torch.is_grad_enabled():
            own, _ = _plain.pull_back(scores, None, lambda s, _: [_plain.entropy(s)], [grad])
            return (*own, None)
        from cliquewise.torch import _numba

        direction = scores.each(_plain.drop_infinite)
        _, found = _numba.covariances(scores, direction, -grad)
        assert found is not None
        return (*found, None)


class _Expectation(torch.autograd.Function):
    """``E <direction, y>`` of every chain."""

    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, trans: Tensor, mask: Tensor | None, by_nodes: Tensor,
        by_trans: Tensor,
    ) -> Tensor:  # fmt: skip
        from cliquewise.torch import _numba

        ctx.save_for_backward(nodes, trans, mask, by_nodes, by_trans)
        scores = Scores(nodes, trans, None, None, mask)
        direction = Scores(by_nodes, by_trans, None, None, mask)
        weights = nodes.new_ones(len(nodes))
        return _numba.covariances(scores, direction, weights, needs_gradient=False)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        nodes, trans, mask, by_nodes, by_trans = ctx.saved_tensors
        scores = Scores(nodes, trans, None, None, mask)
        direction = Scores(by_nodes, by_trans, None, None, mask)
        needed = ctx.needs_input_grad
        own: list[Tensor | None] = [None, None]
        other: list[Tensor | None] = [None, None]
        if any(needed[:2]):
            if torch.is_grad_enabled():
                found, _ = _plain.pull_back(
                    scores, None, lambda s, _: [_plain.expectation(s, direction)], [grad]
                )
                own = found[:2]
            else:
                from cliquewise.torch import _numba

                _, covariances = _numba.covariances(scores, direction, grad)
                assert covariances is not None
                own = [covariances.nodes, covariances.trans]
        if any(needed[3:]):
            other = _weighted_marginals(scores, grad)
        return (*own, None, *other)


def _weighted_marginals(scores: Scores, weights: Tensor) -> list[Tensor | None]:
    """Return the gradient of the weighted sum of log Z; recorded if autograd records."""
    again = torch.is_grad_enabled()
    nodes, trans = scores[:2] if again else (scores.nodes.detach(), scores.trans.detach())
    with torch.enable_grad():
        leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in (nodes, trans)]
        log_z = log_likelihood(Scores(leaves[0], leaves[1], None, None, scores.mask))
        return list(torch.autograd.grad(log_z, leaves, weights, create_graph=again))


def _wide(scores: Scores) -> Scores:
    """Convert scores to float64 where the device has it."""
    return scores if scores.nodes.device.type == "mps" else scores.each(Tensor.double)


def _narrow(value: Tensor, scores: Scores) -> Tensor:
    return value.to(scores.nodes.dtype)


def _uses_kernels(scores: Scores) -> bool:
    return choose_backend(scores, question="covariance").name == "numba"


@graph_break
def entropy(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Compute the entropy of the distribution over labelings, in nats, shape (B,).

    Parameters are those of :func:`cliquewise.torch.log_partition`. The result is differentiable,
    and NaN where no labeling is feasible. Float32 scores are processed in float64.

    Examples
    --------
    >>> import torch
    >>> entropy(torch.zeros(1, 2, 2), torch.zeros(2, 2)) / torch.tensor(2.0).log()
    tensor([2.])
    """
    return entropy_of(make_scores(nodes, transitions, begin, end, mask))


def entropy_of(scores: Scores) -> Tensor:
    """Compute `entropy` of checked scores."""
    closed, _ = remove_gaps(scores)
    wide = _wide(closed)
    if _uses_kernels(closed):
        return _narrow(_Entropy.apply(*wide), scores)
    return _narrow(_plain.entropy(wide), scores)


def _expectation(scores: Scores, direction: Scores) -> Tensor:
    """Return ``E <direction, y>`` of chains without gaps; both in float64."""
    nodes, trans = scores.full_nodes(), scores.trans
    by_nodes, by_trans = direction.full_nodes(), direction.trans
    if trans.dim() != by_trans.dim():
        shape = (len(nodes), max(nodes.shape[1] - 1, 0), *trans.shape[-2:])
        trans = trans.expand(shape)
        by_trans = by_trans.expand(shape)
    mask = scores.mask
    if _uses_kernels(scores):
        return _Expectation.apply(nodes, trans, mask, by_nodes, by_trans)
    own = Scores(nodes, trans, None, None, mask)
    return _plain.expectation(own, Scores(by_nodes, by_trans, None, None, mask))


@graph_break
def expectation(p: Parameters, values: Parameters) -> Tensor:
    """Compute the expected score, under other scores, of a random labeling, shape (B,).

    Parameters
    ----------
    p : tuple (nodes, transitions, begin, end, mask)
        The distribution: parameters of :func:`cliquewise.torch.log_partition`; trailing ones may
        be left out.
    values : tuple (nodes, transitions, begin, end)
        The scores to average, finite wherever p has probability.

    Returns
    -------
    Tensor of shape (B,)
        Differentiable by both.

    Examples
    --------
    >>> import torch
    >>> p = torch.zeros(1, 2, 2), torch.zeros(2, 2)
    >>> ones_are_counted = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]]), torch.zeros(2, 2)
    >>> expectation(p, ones_are_counted)
    tensor([1.])
    """
    mask = p[4] if len(p) > 4 else None
    own, other, _ = _pair(p, (*values[:4], *(None,) * (4 - len(values)), mask))
    return _narrow(_expectation(_wide(own), _wide(other).each(_plain.drop_infinite)), own)


@graph_break
def cross_entropy(p: Parameters, q: Parameters) -> Tensor:
    """Compute the cross entropy ``-E_p log q(y)`` of two batches of chains, shape (B,).

    Parameters
    ----------
    p, q : tuples (nodes, transitions, begin, end, mask)
        As in :func:`kl_divergence`.

    Examples
    --------
    >>> import torch
    >>> p = torch.zeros(1, 2, 2), torch.zeros(2, 2)
    >>> cross_entropy(p, p) / torch.tensor(2.0).log()
    tensor([2.])
    """
    own, other, kind = _pair(p, q)
    own, other = _wide(own), _wide(other)
    direction = other.each(_plain.drop_infinite)
    value = log_likelihood(other) - _expectation(own, direction)
    return _infinite_outside(value, own, other).to(kind)


@graph_break
def kl_divergence(p: Parameters, q: Parameters) -> Tensor:
    """Compute the Kullback-Leibler divergence KL(p || q) of two batches of chains, shape (B,).

    Parameters
    ----------
    p, q : tuples (nodes, transitions, begin, end, mask)
        The parameters of :func:`cliquewise.torch.log_partition`; trailing ones may be left out.
        Both need the same mask. The divergence is infinite if p has labelings that q forbids.

    Returns
    -------
    Tensor of shape (B,)
        Differentiable by both.

    Examples
    --------
    >>> import torch
    >>> p = torch.zeros(1, 2, 2), torch.zeros(2, 2)
    >>> q = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]), torch.zeros(2, 2)
    >>> kl_divergence(p, q)
    tensor([0.1201])
    """
    own, other, kind = _pair(p, q)
    own, other = _wide(own), _wide(other)
    shared = own.is_shared and other.is_shared
    trans, by_trans = own.trans, other.trans
    if not shared:
        shape = (len(own.nodes), max(own.nodes.shape[1] - 1, 0), *trans.shape[-2:])
        trans, by_trans = trans.expand(shape), by_trans.expand(shape)
    # The difference of the scores, not of their expectations, which are larger.
    direction = Scores(
        _difference(own.full_nodes(), other.full_nodes()), _difference(trans, by_trans),
        None, None, own.mask,
    )  # fmt: skip
    value = log_likelihood(other) - log_likelihood(own) + _expectation(own, direction)
    # Rounding must not make a divergence negative; the gradient stays that of the value.
    value = value + (value.clamp(min=0) - value).detach()
    return _infinite_outside(value, own, other).to(kind)


def _difference(left: Tensor, right: Tensor) -> Tensor:
    return _plain.drop_infinite(left) - _plain.drop_infinite(right)


def _pair(p: Parameters, q: Parameters) -> tuple[Scores, Scores, torch.dtype]:
    """Return two batches without gaps, after checking that they have the same positions."""
    (own, gaps), (other, others) = (remove_gaps(make_scores(*x)) for x in (p, q))  # type: ignore[arg-type]
    if own.nodes.shape != other.nodes.shape:
        raise DataError(
            f"p and q have different shapes, {tuple(own.nodes.shape)} and "
            f"{tuple(other.nodes.shape)}"
        )
    kind = torch.promote_types(own.nodes.dtype, other.nodes.dtype)
    if is_transformed():
        return own, other, kind
    lengths = own.lengths(), other.lengths()
    if not torch.equal(*lengths):
        row = int((lengths[0] != lengths[1]).nonzero()[0, 0])
        raise DataError(
            f"row {row} has {int(lengths[0][row])} positions by the mask of p and "
            f"{int(lengths[1][row])} by that of q: both need the same mask"
        )
    if not _have_same_positions(gaps, others, own):
        raise DataError("the masks of p and q differ: both need the same mask")
    return own, other, kind


def _have_same_positions(p: GapMap, q: GapMap, scores: Scores) -> bool:
    """Whether two batches of equal lengths have the same existing positions."""
    whole = torch.arange(scores.nodes.shape[1], device=scores.nodes.device)
    whole = whole.expand(scores.nodes.shape[:2])
    return torch.equal(*(whole if x.order is None else x.order for x in (p, q)))


def _infinite_outside(value: Tensor, own: Scores, other: Scores) -> Tensor:
    """Replace values by infinity where ``own`` has labelings that ``other`` forbids."""
    nodes, trans = (torch.isinf(x) for x in (other.full_nodes(), other.trans))
    if not is_transformed() and not bool(nodes.any()) and not bool(trans.any()):
        return value
    with torch.no_grad():
        found = marginals_of(_tables_by_edge(own).each(Tensor.detach))
        outside = torch.where(nodes, found.nodes, 0.0).flatten(1).sum(1)
        outside = outside + torch.where(trans, found.edges, 0.0).flatten(1).sum(1)
    return torch.where(outside > 0, torch.full_like(value, torch.inf), value)


def _tables_by_edge(scores: Scores) -> Scores:
    """Return scores with one transition table per edge."""
    nodes, trans = scores.nodes, scores.trans
    shape = (len(nodes), max(nodes.shape[1] - 1, 0), *trans.shape[-2:])
    return scores._replace(trans=trans.expand(shape))
