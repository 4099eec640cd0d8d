"""The plain backend: answers about chains by PyTorch operations, on any device.

`scaled` computes marginals in the linear domain by matrix products, rescaled at every position.
It also returns whether the result is reliable: underflow is negligible as long as ``beta``
(scaled so that ``sum alpha beta = 1``) stays below a limit. `log_domain` is always reliable,
and autograd, torch.func and torch.export can record its operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cliquewise.torch._scores import Scores

#: Replaces -inf in the log domain to keep gradients finite.
FORBIDDEN = -1e30


class Gradient(NamedTuple):
    """Gradients with respect to all scores: weighted sums of marginals."""

    nodes: Tensor
    trans: Tensor
    begin: Tensor | None
    end: Tensor | None


def evaluate(scores: Scores) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return log Z of every chain; `gradient` repeats the pass if it is needed."""
    with torch.no_grad():
        value, _, ok = scaled(scores, None)
        if not ok:
            value, _ = log_domain(scores, None)
    return value, ()


def gradient(scores: Scores, weights: Tensor) -> Gradient:
    """Return the marginals of chain b times ``weights[b]``."""
    with torch.no_grad():
        _, result, ok = scaled(scores, weights)
        if not ok:
            _, result = log_domain(scores, weights)
    assert result is not None
    return result


def end_gradients(scores: Scores, nodes: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return gradients of begin and end scores from those of the node scores."""
    if not nodes.shape[1]:
        return scores.each(torch.zeros_like)[2:4]
    begin = None if scores.begin is None else nodes[:, 0].sum(0)
    end = None
    if scores.end is not None:
        last = (scores.lengths() - 1).clamp(min=0)
        # Rows of chains without positions are zero.
        end = nodes[torch.arange(len(last), device=last.device), last].sum(0)
    return begin, end


def _empty(scores: Scores) -> tuple[Tensor, Gradient]:
    grad = Gradient(*scores.each(torch.zeros_like)[:4])
    return scores.nodes.new_zeros(scores.nodes.shape[0]), grad


# ---- the linear domain


def scaled(scores: Scores, weights: Tensor | None) -> tuple[Tensor, Gradient | None, bool]:
    """Return log Z, marginals if weights are given, and whether both are reliable."""
    # Autocast would compute the products below in half precision.
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
    """Return rescaled forward messages (T, B, K) and their scales (T, B)."""
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
    """Return weighted marginals and the greatest beta."""
    shared, (length, size, _) = scores.is_shared, psi.shape
    beta = torch.ones_like(psi[0])
    bound = beta.amax()
    # psi is overwritten by the right-hand factors q of the edges, alpha by the marginals.
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
    return Gradient(nodes, trans, *end_gradients(scores, nodes)), bound


# ---- the log domain


def _finite(scores: Tensor) -> Tensor:
    return scores.clamp(min=FORBIDDEN)


def table_at(trans: Tensor, t: int) -> Tensor:
    """Return the transitions into position t, broadcastable to (B, K, K)."""
    return trans if trans.dim() == 2 else trans[:, t - 1]


def log_messages(scores: Scores) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (nodes, transitions, forward messages (T, B, K), log Z); row maxima are 0."""
    nodes, trans = _finite(scores.full_nodes()).transpose(0, 1), _finite(scores.trans)
    inside = None if scores.mask is None else scores.mask.t().unsqueeze(-1)
    alphas: list[Tensor] = []
    row = nodes[0]
    total = nodes.new_zeros(nodes.shape[1], dtype=torch.float64)
    for t in range(len(nodes)):
        if t > 0:
            row = torch.logsumexp(alphas[-1].unsqueeze(-1) + table_at(trans, t), 1) + nodes[t]
        # The maximum cancels in the result, so its gradient does as well.
        high = row.amax(-1, keepdim=True).detach()
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


def log_domain(
    scores: Scores, weights: Tensor | None, *, by_chain: bool = False
) -> tuple[Tensor, Gradient | None]:
    """Return log Z and weighted marginals, both differentiable by the scores and weights.

    With ``by_chain``, sums of edge marginals are those of every chain, (B, K, K).
    """
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
    summed = None
    if scores.is_shared:
        summed = trans.new_zeros((size, k, k)) if by_chain else torch.zeros_like(trans)
    for t in range(length - 1, 0, -1):
        joint = table_at(trans, t) + (nodes[t] + beta).unsqueeze(-2)
        new = torch.logsumexp(joint, -1)
        new = new - new.amax(-1, keepdim=True).detach()
        share = torch.softmax((alphas[t - 1].unsqueeze(-1) + joint).flatten(1), -1)
        g = weights if inside is None else weights * inside[t].squeeze(-1)
        if inside is not None:
            new = torch.where(inside[t], new, beta)
        share = (share * g.unsqueeze(-1)).reshape(size, k, k)
        if summed is not None:
            summed = summed + (share if by_chain else share.sum(0))
        else:
            edges.append(share)
        beta = new
        marginals.append(torch.softmax(alphas[t - 1] + beta, -1))
    grad = torch.stack(marginals[::-1], 1) * weights.view(size, 1, 1)
    if scores.mask is not None:
        grad = grad * scores.mask.unsqueeze(-1)
    if summed is None:
        summed = torch.stack(edges[::-1], 1) if edges else torch.zeros_like(trans)
    return value, Gradient(grad, summed, *end_gradients(scores, grad))


def gold_gradient(scores: Scores, tags: Tensor, weights: Tensor) -> Gradient:
    """Return the gradient of ``sum_b weights[b] path_score_b``; differentiable by the weights."""
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
    return Gradient(nodes, trans, *end_gradients(scores, nodes))


# ---- second derivatives


def entropy(scores: Scores) -> Tensor:
    """Return the entropy of every chain, shape (B,), by recorded operations."""
    weights = scores.nodes.new_ones(len(scores.nodes))
    log_z, marginals = log_domain(scores, weights, by_chain=True)
    assert marginals is not None
    value = log_z - _inner(marginals, scores.each(drop_infinite))
    value = torch.where(log_z == -torch.inf, torch.full_like(value, torch.nan), value)
    # Rounding must not make an entropy negative; the gradient stays that of the value.
    return value + (value.clamp(min=0) - value).detach()


def expectation(scores: Scores, direction: Scores) -> Tensor:
    """Return ``E <direction, y>`` of every chain, shape (B,), by recorded operations."""
    weights = scores.nodes.new_ones(len(scores.nodes))
    log_z, marginals = log_domain(scores, weights, by_chain=True)
    assert marginals is not None
    value = _inner(marginals, direction)
    return torch.where(log_z == -torch.inf, torch.full_like(value, torch.nan), value)


def _inner(marginals: Gradient, direction: Scores) -> Tensor:
    """Return ``<marginals, direction>`` of every chain; the tables are those of the chains."""
    nodes = direction.full_nodes()
    if not nodes.numel():
        return nodes.new_zeros(len(nodes))
    total = (marginals.nodes * nodes).flatten(1).sum(1)
    return total + (marginals.trans * direction.trans).flatten(1).sum(1)


def drop_infinite(x: Tensor) -> Tensor:
    """Replace infinite scores, whose labels have probability 0, by 0."""
    return torch.where(torch.isinf(x), torch.zeros_like(x), x)


def pull_back(
    scores: Scores, weights: Tensor | None, function: Callable[..., Any], cotangents: Any
) -> tuple[list[Tensor | None], Tensor | None]:
    """Return the gradients of recorded operations by scores and weights, as recorded operations.

    ``function(scores, weights)`` returns tensors; ``cotangents`` has one for each.
    """
    with torch.enable_grad():
        # Views: the same tensor may be passed as two scores, and each needs its own gradient.
        own = scores.each(lambda x: x.view_as(x) if x.requires_grad else x)
        g = None if weights is None else weights.view_as(weights)
        inputs = [x for x in (*own[:4], g) if x is not None and x.requires_grad]
        outputs = function(own, g)
        pairs = [
            (y, v) for y, v in zip(outputs, cotangents) if y is not None and y.requires_grad
            and v is not None
        ]  # fmt: skip
        if not inputs or not pairs:
            return [None] * 4, None
        found = torch.autograd.grad(
            [y for y, _ in pairs], inputs, [v for _, v in pairs],
            create_graph=True, allow_unused=True,
        )  # fmt: skip
    gradients = {id(x): grad for x, grad in zip(inputs, found)}
    by_scores = [None if x is None else gradients.get(id(x)) for x in own[:4]]
    return by_scores, None if g is None else gradients.get(id(g))


# ---- maximum


def viterbi(scores: Scores) -> tuple[Tensor, Tensor]:
    """Return the best score (B,) and labeling (B, T); the mask may have gaps.

    Labels are 0 at masked positions. All operations can be exported.
    """
    nodes, trans, begin, end, mask = scores
    length, device = nodes.shape[1], nodes.device
    if mask is None:
        mask = torch.ones_like(nodes[:, :, 0], dtype=torch.bool)
    if length == 0:
        return nodes.new_zeros(nodes.shape[0]), mask.long()
    own = torch.arange(nodes.shape[2], device=device)
    least = torch.finfo(nodes.dtype).min
    first = torch.zeros_like(nodes[0, 0]) if begin is None else begin
    some = mask[:, 0]  # chains that have a position so far
    best, back = first + nodes[:, 0], []
    for t in range(1, length):
        here, x = mask[:, t, None], nodes[:, t]
        high, origin = (best.unsqueeze(-1) + table_at(trans, t)).max(1)
        new = torch.where(some[:, None], high, first) + x
        # Subtracting the maximum keeps the significant digits in long chains.
        new = new - new.amax(-1, keepdim=True).clamp(min=least)
        best = torch.where(here, new, best)
        back.append(torch.where(here, origin, own))
        some = some | mask[:, t]
    spoiled = best.isnan().any(-1) & some
    best = best if end is None else best + end
    label = best.argmax(-1, keepdim=True)
    labels = [label]
    for origin in reversed(back):
        label = origin.gather(1, label)
        labels.append(label)
    found = torch.cat(labels[::-1], 1)
    value = torch.where(some, _gapped_score(scores, found, mask), 0.0).to(nodes.dtype)
    # The best path may avoid the NaN that spoiled the maxima.
    value = value.masked_fill(spoiled, torch.nan)
    return value, found.masked_fill(~mask, 0)


def _gapped_score(scores: Scores, labels: Tensor, mask: Tensor) -> Tensor:
    """Return float64 scores (B,) of labelings that repeat each label through the gap after it."""
    nodes, trans, begin, end, _ = scores
    zero = torch.zeros((), dtype=torch.float64, device=nodes.device)
    started = mask.cumsum(1) > 0
    picked = nodes.gather(2, labels.unsqueeze(-1)).squeeze(-1).double()
    total = torch.where(mask, picked, zero).sum(1)
    left, right = labels[:, :-1], labels[:, 1:]
    if scores.is_shared:
        steps = trans.double()[left, right]
    else:
        rows = torch.arange(trans.shape[0], device=labels.device)[:, None]
        steps = trans[rows, torch.arange(trans.shape[1], device=labels.device), left, right]
    total = total + torch.where(started[:, :-1] & mask[:, 1:], steps.double(), zero).sum(1)
    if begin is not None:
        # Before the first position, backtracking repeats the label of that position.
        first = (~started).sum(1, keepdim=True).clamp(max=nodes.shape[1] - 1)
        total = total + begin.double()[labels.gather(1, first).squeeze(1)]
    return total if end is None else total + end.double()[labels[:, -1]]
