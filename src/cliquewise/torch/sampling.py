"""The k best labelings of chains, and random labelings, for batches on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from cliquewise.errors import DataError
from cliquewise.torch import _plain
from cliquewise.torch._scores import Scores, check_count, make_scores, path_score, remove_gaps
from cliquewise.torch._transforms import graph_break, is_transformed


@graph_break
def top_k(
    nodes: Tensor,
    transitions: Tensor,
    k: int,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the k best labelings of every chain, best first, all different.

    Parameters
    ----------
    nodes, transitions, begin, end, mask
        As in :func:`cliquewise.torch.log_partition`.
    k : int
        Number of labelings.

    Returns
    -------
    scores : Tensor of shape (B, k)
        ``-inf`` beyond the number of feasible labelings. Differentiable.
    labels : Tensor of shape (B, k, T)

    Examples
    --------
    >>> import torch
    >>> scores, labels = top_k(torch.tensor([[[0.0, 1.0], [3.0, 0.0]]]), torch.zeros(2, 2), 2)
    >>> scores.tolist(), labels.tolist()
    ([[4.0, 3.0]], [[[1, 0], [0, 0]]])
    """
    return top_k_of(make_scores(nodes, transitions, begin, end, mask), k)


def top_k_of(scores: Scores, k: int) -> tuple[Tensor, Tensor]:
    """Compute `top_k` of checked scores."""
    check_count("k", k, 1)
    scores, gaps = remove_gaps(scores)
    with torch.no_grad():
        best, labels = _best_lists(scores, k)
    found = path_score(scores, labels.transpose(0, 1)).transpose(0, 1)
    # The best paths may avoid the NaN that spoiled their scores.
    found = torch.where(best.isnan(), torch.full_like(found, torch.nan), found)
    found = torch.where(best == -torch.inf, torch.full_like(found, -torch.inf), found)
    return found, gaps.restore_labels(labels.transpose(0, 1)).transpose(0, 1)


def _best_lists(scores: Scores, k: int) -> tuple[Tensor, Tensor]:
    """Return scores up to a constant (B, k), and labelings (B, k, T), of the best labelings.

    Scores are ``-inf`` beyond the number of feasible labelings.
    """
    size, length, n = scores.nodes.shape
    device = scores.nodes.device
    if length == 0 or size == 0:
        first = torch.full((size, k), -torch.inf, dtype=scores.nodes.dtype, device=device)
        first[:, 0] = 0.0
        return first, torch.zeros(size, k, length, dtype=torch.long, device=device)
    nodes = scores.full_nodes().transpose(0, 1)
    # lists[b, j * k + r] is the r-th best prefix that ends in label j.
    lists = nodes.new_full((size, n, k), -torch.inf)
    lists[:, :, 0] = nodes[0]
    lists = lists.flatten(1)
    own = torch.arange(n * k, device=device).expand(size, -1)
    back = []
    for t in range(1, length):
        table = _plain.table_at(scores.trans, t).repeat_interleave(k, dim=-2)
        best, origin = (lists.unsqueeze(-1) + table).topk(k, dim=1)
        new = (best + nodes[t].unsqueeze(1)).transpose(1, 2).flatten(1)
        # Shifted to keep the digits that matter in long chains.
        new = new - new.amax(1, keepdim=True).clamp(min=torch.finfo(new.dtype).min)
        origin = origin.transpose(1, 2).flatten(1)
        if scores.mask is not None:
            new = torch.where(scores.mask[:, t, None], new, lists)
            origin = torch.where(scores.mask[:, t, None], origin, own)
        lists = new
        back.append(origin)
    if scores.mask is not None:
        # A chain without positions has one labeling, the empty one.
        only = torch.where(own == 0, 0.0, -torch.inf).to(lists.dtype)
        lists = torch.where(scores.mask[:, 0, None], lists, only)
    best, at = lists.topk(min(k, n * k), dim=1)
    labels = [at // k]
    for origin in reversed(back):
        at = origin.gather(1, at)
        labels.append(at // k)
    out = torch.stack(labels[::-1], 2)
    out = out.masked_fill((best == -torch.inf).unsqueeze(-1), 0)
    if scores.mask is not None:
        out = out.masked_fill(~scores.mask.unsqueeze(1), 0)
    return best, out


@graph_break
def sample(
    nodes: Tensor,
    transitions: Tensor,
    n: int = 1,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Sample n independent labelings from the exact distribution, shape (n, B, T).

    Parameters are those of :func:`cliquewise.torch.log_partition`; a ``generator`` makes the
    samples reproducible. Labels are 0 at masked positions and in infeasible chains.

    Examples
    --------
    >>> import torch
    >>> nodes = torch.tensor([[[0.0, -torch.inf], [0.0, 0.0]]])
    >>> draws = sample(nodes, torch.tensor([[-torch.inf, 0.0], [0.0, 0.0]]), 3)
    >>> draws.shape, draws[0].tolist()
    (torch.Size([3, 1, 2]), [[0, 1]])
    """
    return sample_from(make_scores(nodes, transitions, begin, end, mask), n, generator)


def sample_from(scores: Scores, n: int, generator: torch.Generator | None) -> Tensor:
    """Sample from checked scores."""
    scores, gaps = remove_gaps(scores)
    size, length, k = scores.nodes.shape
    device = scores.nodes.device
    check_count("n", n, 0)
    if length == 0 or size == 0 or n == 0:
        return torch.zeros(n, size, length, dtype=torch.long, device=device)
    with torch.no_grad():
        _, trans, alphas, total = _plain.log_messages(scores)
        if not is_transformed() and bool(total.isnan().any()):
            row = int(total.isnan().nonzero()[0, 0])
            raise DataError(f"the scores of chain {row} contain NaN: cannot sample labelings")
        y = _sample_rows(alphas[-1].expand(n, -1, -1), generator)
        labels = [y]
        for t in range(length - 1, 0, -1):
            table = _plain.table_at(trans, t)
            columns = table.mT.expand(size, k, k)[torch.arange(size, device=device), y]
            new = _sample_rows(alphas[t - 1] + columns, generator)
            y = new if scores.mask is None else torch.where(scores.mask[:, t], new, y)
            labels.append(y)
        out = torch.stack(labels[::-1], 2)
        out = out.masked_fill((total < _plain.FORBIDDEN / 2)[None, :, None], 0)
    return gaps.restore_labels(out if scores.mask is None else out.masked_fill(~scores.mask, 0))


def _sample_rows(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """Sample one index per row of the last axis."""
    rows = torch.softmax(logits, -1).reshape(-1, logits.shape[-1])
    return torch.multinomial(rows, 1, generator=generator).view(logits.shape[:-1])
