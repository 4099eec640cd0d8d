"""Chain oracles in plain PyTorch: on any device, and differentiable where that is wanted.

Two ways to the marginals. ``scaled`` works in the linear domain by products of matrices,
rescaled at every position, and says whether its answer may be believed: what underflowed is
without weight as long as ``beta`` (scaled so that ``sum alpha beta = 1``) stays below a limit.
``log_domain`` is always right, and its operations can be differentiated again.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cliquewise.torch._scores import Scores, path_score

#: Stands for -inf in the log domain, so that no gradient becomes NaN.
FORBIDDEN = -1e30


class Gradient(NamedTuple):
    """Weighted sums of marginals: the gradients by all scores."""

    nodes: Tensor
    trans: Tensor
    begin: Tensor | None
    end: Tensor | None


def evaluate(scores: Scores) -> tuple[Tensor, tuple[Tensor, ...]]:
    """log Z of every chain; a second pass is made when the gradient is asked for."""
    with torch.no_grad():
        value, _, ok = scaled(scores, None)
        if not ok:
            value, _ = log_domain(scores, None)
    return value, ()


def gradient(scores: Scores, weights: Tensor) -> Gradient:
    """Marginals, those of chain b times ``weights[b]``."""
    with torch.no_grad():
        _, result, ok = scaled(scores, weights)
        if not ok:
            _, result = log_domain(scores, weights)
    assert result is not None
    return result


def _end_gradients(scores: Scores, nodes: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Gradients by begin and end scores, from those by the node scores."""
    if not nodes.shape[1]:
        return scores.each(torch.zeros_like)[2:4]
    begin = None if scores.begin is None else nodes[:, 0].sum(0)
    end = None
    if scores.end is not None:
        last = (scores.lengths() - 1).clamp(min=0)
        # A chain without positions has a row of zeros.
        end = nodes[torch.arange(len(last), device=last.device), last].sum(0)
    return begin, end


def _empty(scores: Scores) -> tuple[Tensor, Gradient]:
    grad = Gradient(*scores.each(torch.zeros_like)[:4])
    return scores.nodes.new_zeros(scores.nodes.shape[0]), grad


# ---- the linear domain


def scaled(scores: Scores, weights: Tensor | None) -> tuple[Tensor, Gradient | None, bool]:
    """log Z, weighted marginals if there are weights, and whether both may be believed."""
    # Under autocast the products below would be taken in half precision.
    with torch.autocast(scores.nodes.device.type, enabled=False):
        return _scaled(scores, weights)


def _scaled(scores: Scores, weights: Tensor | None) -> tuple[Tensor, Gradient | None, bool]:
    size, length, _ = scores.nodes.shape
    if length == 0 or size == 0:
        return *_empty(scores), True
    nodes = scores.full_nodes().transpose(0, 1)
    tiny = torch.finfo(nodes.dtype).min
    high = nodes.amax(-1, keepdim=True).clamp(min=tiny)
    psi = (nodes - high).exp_()
    shift = scores.trans.amax((-2, -1), keepdim=True).clamp(min=tiny)
    table = (scores.trans - shift).exp_()
    inside = None if scores.mask is None else scores.mask.t().unsqueeze(-1)
    alpha, c = _forward(psi, table, scores.is_shared, inside)
    high, shift = high.squeeze(-1).double(), shift.double().reshape(shift.shape[:-2])
    shifts = shift.expand(length - 1, size) if scores.is_shared else shift.t()
    if inside is not None:
        zero = high.new_zeros(())
        high = torch.where(inside.squeeze(-1), high, zero)
        shifts = torch.where(inside[1:].squeeze(-1), shifts, zero)
    value = high.sum(0) + c.double().log().sum(0) + shifts.sum(0)
    result, bound = _backward(scores, psi, table, alpha, c, inside, weights)
    limit = 1e18 if nodes.dtype == torch.float32 else 1e200
    ok = bool((c.min() > 0) & (bound < limit) & torch.isfinite(value).all())
    return value.to(nodes.dtype), result, ok


def _forward(
    psi: Tensor, table: Tensor, shared: bool, inside: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Rescaled forward messages (T, B, K) and their scales (T, B)."""
    alpha, c = torch.empty_like(psi), psi.new_empty(psi.shape[:2])
    before = psi[0]
    for t in range(len(psi)):
        if t > 0:
            if shared:
                before = before @ table
            else:
                before = torch.bmm(before.unsqueeze(1), table[:, t - 1]).squeeze(1)
            before = before * psi[t]
        s = before.sum(-1, keepdim=True)
        before = before / s
        if inside is not None:
            if t > 0:
                before = torch.where(inside[t], before, alpha[t - 1])
            else:
                before = torch.where(inside[0], before, torch.ones_like(before) / len(before[0]))
            s = torch.where(inside[t], s, torch.ones_like(s))
        alpha[t], c[t] = before, s.squeeze(-1)
    return alpha, c


def _backward(
    scores: Scores,
    psi: Tensor,
    table: Tensor,
    alpha: Tensor,
    c: Tensor,
    inside: Tensor | None,
    weights: Tensor | None,
) -> tuple[Gradient | None, Tensor]:
    """Weighted marginals, and the greatest beta that was met."""
    shared, (length, size, _) = scores.is_shared, psi.shape
    beta = torch.ones_like(psi[0])
    bound = beta.amax()
    # From here on psi holds the right-hand sides q of the edges, alpha becomes the marginals.
    marginals = alpha if weights is None else torch.empty_like(alpha)
    marginals[-1] = alpha[-1]
    transposed = table.t() if shared else table
    for t in range(length - 1, 0, -1):
        q = psi[t] * beta
        if shared:
            new = q @ transposed
        else:
            new = torch.bmm(table[:, t - 1], q.unsqueeze(-1)).squeeze(-1)
        joint = alpha[t - 1] * new
        z = joint.sum(-1, keepdim=True)
        new = new / z
        if inside is not None:
            q = torch.where(inside[t], q / z, torch.zeros_like(q))
            new = torch.where(inside[t], new, beta)
        else:
            q = q / z
        beta = new
        bound = torch.maximum(bound, beta.amax())
        if weights is not None:
            psi[t] = q
            marginals[t - 1] = alpha[t - 1] * beta
    if weights is None:
        return None, bound
    g = weights.view(1, size, 1)
    nodes = marginals * g
    if inside is not None:
        nodes = nodes.masked_fill(~inside, 0)
    left, right = alpha[:-1], psi[1:] * g
    if shared:
        k = table.shape[0]
        trans = table * (left.reshape(-1, k).t() @ right.reshape(-1, k))
    else:
        trans = table * left.transpose(0, 1).unsqueeze(-1) * right.transpose(0, 1).unsqueeze(-2)
    nodes = nodes.transpose(0, 1)
    return Gradient(nodes, trans, *_end_gradients(scores, nodes)), bound


# ---- the log domain


def _finite(scores: Tensor) -> Tensor:
    return scores.clamp(min=FORBIDDEN)


def _table(trans: Tensor, t: int) -> Tensor:
    """Transitions into position t, broadcastable to (B, K, K)."""
    return trans if trans.dim() == 2 else trans[:, t - 1]


def log_messages(scores: Scores) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(nodes, transitions, forward messages (T, B, K), log Z), every row's maximum at 0."""
    nodes, trans = _finite(scores.full_nodes()).transpose(0, 1), _finite(scores.trans)
    inside = None if scores.mask is None else scores.mask.t().unsqueeze(-1)
    alphas: list[Tensor] = []
    row = nodes[0]
    total = nodes.new_zeros(nodes.shape[1], dtype=torch.float64)
    for t in range(len(nodes)):
        if t > 0:
            row = torch.logsumexp(alphas[-1].unsqueeze(-1) + _table(trans, t), 1) + nodes[t]
        high = row.amax(-1, keepdim=True)
        row = row - high
        if inside is not None:
            row = torch.where(inside[t], row, alphas[-1] if t else torch.zeros_like(row))
            high = torch.where(inside[t], high, torch.zeros_like(high))
        alphas.append(row)
        total = total + high.squeeze(-1).double()
    total = total + torch.logsumexp(alphas[-1], -1).double()
    if inside is not None:
        total = torch.where(inside[0].squeeze(-1), total, torch.zeros_like(total))
    return nodes, trans, torch.stack(alphas), total


def log_domain(scores: Scores, weights: Tensor | None) -> tuple[Tensor, Gradient | None]:
    """log Z and weighted marginals; both can be differentiated by the scores and weights."""
    size, length, k = scores.nodes.shape
    if length == 0 or size == 0:
        return _empty(scores)
    nodes, trans, alphas, total = log_messages(scores)
    infeasible = total < FORBIDDEN / 2
    value = torch.where(infeasible, torch.full_like(total, -torch.inf), total)
    value = value.to(scores.nodes.dtype)
    if weights is None:
        return value, None
    weights = torch.where(infeasible, torch.zeros_like(weights), weights)
    inside = None if scores.mask is None else scores.mask.t().unsqueeze(-1)
    beta = torch.zeros_like(nodes[0])
    marginals = [torch.softmax(alphas[-1], -1)]
    edges: list[Tensor] = []
    summed = torch.zeros_like(trans) if scores.is_shared else None
    for t in range(length - 1, 0, -1):
        joint = _table(trans, t) + (nodes[t] + beta).unsqueeze(-2)
        new = torch.logsumexp(joint, -1)
        new = new - new.amax(-1, keepdim=True)
        share = torch.softmax((alphas[t - 1].unsqueeze(-1) + joint).flatten(1), -1)
        g = weights if inside is None else weights * inside[t].squeeze(-1)
        if inside is not None:
            new = torch.where(inside[t], new, beta)
        share = (share * g.unsqueeze(-1)).view(size, k, k)
        if summed is not None:
            summed = summed + share.sum(0)
        else:
            edges.append(share)
        beta = new
        marginals.append(torch.softmax(alphas[t - 1] + beta, -1))
    grad = torch.stack(marginals[::-1], 1) * weights.view(size, 1, 1)
    if scores.mask is not None:
        grad = grad * scores.mask.unsqueeze(-1)
    if summed is None:
        summed = torch.stack(edges[::-1], 1) if edges else torch.zeros_like(trans)
    return value, Gradient(grad, summed, *_end_gradients(scores, grad))


def gold_gradient(scores: Scores, tags: Tensor, weights: Tensor) -> Gradient:
    """Gradient of ``sum_b weights[b] path_score_b``; differentiable by the weights."""
    size, length, k = scores.nodes.shape
    inside = torch.ones_like(tags, dtype=torch.bool) if scores.mask is None else scores.mask
    tags = tags.masked_fill(~inside, 0)
    g = weights.unsqueeze(-1) * inside
    nodes = torch.zeros_like(scores.nodes).scatter(-1, tags.unsqueeze(-1), g.unsqueeze(-1))
    pairs = tags[:, :-1] * k + tags[:, 1:]
    if scores.is_shared:
        flat = scores.trans.new_zeros(k * k)
        trans = flat.scatter_add(0, pairs.reshape(-1), g[:, 1:].reshape(-1)).view(k, k)
    else:
        zero = scores.trans.new_zeros(size, max(length - 1, 0), k * k)
        trans = zero.scatter(-1, pairs.unsqueeze(-1), g[:, 1:].unsqueeze(-1))
        trans = trans.view(scores.trans.shape)
    return Gradient(nodes, trans, *_end_gradients(scores, nodes))


# ---- maximum


def viterbi(scores: Scores) -> tuple[Tensor, Tensor]:
    """Best score (B,) and labeling (B, T); zeros where there is no position."""
    size, length, _ = scores.nodes.shape
    device = scores.nodes.device
    if length == 0 or size == 0:
        return scores.nodes.new_zeros(size), torch.zeros(size, length, dtype=torch.long).to(device)
    nodes, trans = scores.full_nodes().transpose(0, 1), scores.trans
    inside = None if scores.mask is None else scores.mask.t().unsqueeze(-1)
    best, back = nodes[0], []
    own = torch.arange(nodes.shape[-1], device=device).expand_as(best)
    for t in range(1, length):
        high, origin = (best.unsqueeze(-1) + _table(trans, t)).max(1)
        # Shifted to keep the digits that matter in long chains.
        new = high + nodes[t]
        new = new - new.amax(-1, keepdim=True).clamp(min=torch.finfo(new.dtype).min)
        best = new if inside is None else torch.where(inside[t], new, best)
        back.append(origin if inside is None else torch.where(inside[t], origin, own))
    last = best.argmax(-1)
    labels = [last]
    for origin in reversed(back):
        labels.append(origin.gather(1, labels[-1].unsqueeze(1)).squeeze(1))
    out = torch.stack(labels[::-1], 1)
    if scores.mask is not None:
        out = out.masked_fill(~scores.mask, 0)
    value = path_score(scores.each(Tensor.double), out).to(scores.nodes.dtype)
    # The path of maxima need not pass the NaN that spoiled them.
    spoiled = best.isnan().any(-1)
    spoiled = spoiled if scores.mask is None else spoiled & scores.mask[:, 0]
    return value.masked_fill(spoiled, torch.nan), out
