"""Smoothed maxima over labelings, entropy and divergence of chains.

    max over distributions p of  E_p[score] + gamma * H(p)               (entropy)
    max over u in the simplex of  <scores, u> - gamma (||u||^2 - 1) / 2   (l2)

The first is ``gamma log Z(scores / gamma)``; the second is a projection onto the simplex of
the scores divided by gamma, in which only the best labelings have weight (Section 3 of
casimir): it is computed from the ``k`` best.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.torch import _plain
from cliquewise.torch._scores import Places, Scores, close, make_scores
from cliquewise.torch.chain import log_likelihood
from cliquewise.torch.draws import best_k

SMOOTHERS = ("entropy", "l2")


def project_to_simplex(rows: Tensor) -> Tensor:
    """Euclidean projection of every row (last axis) onto the simplex; -inf gets nothing.

    Examples
    --------
    >>> import torch
    >>> project_to_simplex(torch.tensor([1.0, 0.5, -torch.inf]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    high = rows.amax(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).min)
    # A row below the best by more than 1 has no weight, however far below it is.
    shifted = (rows - high).clamp(min=-2.0)
    ordered = shifted.sort(-1, descending=True).values
    count = torch.arange(1, rows.shape[-1] + 1, device=rows.device, dtype=rows.dtype)
    excess = (ordered.cumsum(-1) - 1.0) / count
    used = (ordered > excess).sum(-1, keepdim=True).clamp(min=1)  # 0 where there is a NaN
    return (shifted - excess.gather(-1, used - 1)).clamp(min=0.0)


def l2_smoothed_max(scores: Tensor, gamma: float) -> Tensor:
    """``max over u of <scores, u> - gamma (||u||^2 - 1) / 2`` along the last axis.

    Its gradient is the maximizer u.

    Examples
    --------
    >>> import torch
    >>> l2_smoothed_max(torch.tensor([1.0, 1.0]), gamma=2.0)
    tensor(1.5000)
    """
    with torch.no_grad():
        u = project_to_simplex(scores / gamma)
    kept = torch.where(u > 0, scores, torch.zeros_like(scores))
    return (u * kept).sum(-1) - gamma * (u.square().sum(-1) - 1.0) / 2.0


def check_gamma(gamma: float) -> None:
    """A temperature must be positive."""
    if not (gamma > 0 and gamma < float("inf")):
        raise DataError(f"gamma = {gamma}; it must be a positive number")


def smoothed_max(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    smoother: str = "entropy",
    gamma: float = 1.0,
    k: int = 5,
) -> Tensor:
    """Smoothed best score of every chain, shape (B,).

    Parameters
    ----------
    nodes, transitions, begin, end, mask
        As in :func:`cliquewise.torch.log_partition`.
    smoother : {"entropy", "l2"}
    gamma : float
        How much smoothing; the value is above the maximum by at most ``gamma`` times the log
        of the number of labelings (entropy) or half of ``gamma`` (l2).
    k : int
        For ``l2``: labelings that may have weight; exact as soon as one of them has none.

    Examples
    --------
    >>> import torch
    >>> nodes = torch.tensor([[[0.0, 1.0], [3.0, 0.0]]])
    >>> smoothed_max(nodes, torch.zeros(2, 2), smoother="l2", gamma=0.5)
    tensor([4.])
    """
    scores = make_scores(nodes, transitions, begin, end, mask)
    return smoothed_best(scores, smoother, gamma, k)


def smoothed_best(scores: Scores, smoother: str, gamma: float, k: int) -> Tensor:
    """`smoothed_max` of checked scores."""
    check_gamma(gamma)
    if smoother == "l2":
        return l2_smoothed_max(best_k(scores, k)[0], gamma)
    if smoother != "entropy":
        raise UnsupportedError(f"unknown smoother {smoother!r}; they are: {', '.join(SMOOTHERS)}")
    if gamma == 1.0:
        return log_likelihood(scores)
    return gamma * log_likelihood(scores.each(lambda x: x / gamma))


def _expected(scores: Scores, by: Scores) -> tuple[Tensor, Tensor]:
    """log Z under ``by``, and the expected ``scores`` under it, both (B,); differentiable.

    The expected score is the derivative of log Z(by + s * scores) by s at 0.
    """
    nodes, trans = (_drop_infinite(x) for x in (scores.full_nodes(), scores.trans))
    base_nodes, base_trans = by.full_nodes(), by.trans
    with torch.enable_grad():
        s = torch.zeros(len(nodes), dtype=nodes.dtype, device=nodes.device, requires_grad=True)
        # One s per chain: shared tables become tables of the chain.
        length = nodes.shape[1]
        own = trans if trans.dim() == 4 else trans.expand(len(nodes), max(length - 1, 0), -1, -1)
        moved = Scores(
            base_nodes + s[:, None, None] * nodes,
            base_trans + s[:, None, None, None] * own,
            None, None, by.mask,
        )  # fmt: skip
        log_z, _ = _plain.log_domain(moved, None)
        if length == 0 or len(nodes) == 0:
            return log_z, torch.zeros_like(log_z)
        keep = any(x.requires_grad for x in (nodes, trans, base_nodes, base_trans))
        (expected,) = torch.autograd.grad(log_z.sum(), s, create_graph=keep)
    return (log_z, expected) if keep else (log_z.detach(), expected.detach())


def _drop_infinite(x: Tensor) -> Tensor:
    return torch.where(torch.isinf(x), torch.zeros_like(x), x)


def entropy(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Entropy of the distribution over labelings, in nats, shape (B,); differentiable.

    Arguments as in :func:`cliquewise.torch.log_partition`.

    Examples
    --------
    >>> import torch
    >>> entropy(torch.zeros(1, 2, 2), torch.zeros(2, 2)) / torch.tensor(2.0).log()
    tensor([2.])
    """
    scores, _ = close(make_scores(nodes, transitions, begin, end, mask))
    log_z, expected = _expected(scores, scores)
    return log_z - expected


def kl_divergence(p: tuple[Tensor | None, ...], q: tuple[Tensor | None, ...]) -> Tensor:
    """Kullback-Leibler divergence KL(p || q) of two batches of chains, (B,); differentiable.

    Parameters
    ----------
    p, q : tuples (nodes, transitions, begin, end, mask)
        The arguments of :func:`cliquewise.torch.log_partition`, of which the last may be
        left out. Both need the same mask. What q forbids, p should forbid too: the divergence
        is infinite otherwise.

    Examples
    --------
    >>> import torch
    >>> p = torch.zeros(1, 2, 2), torch.zeros(2, 2)
    >>> q = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]), torch.zeros(2, 2)
    >>> kl_divergence(p, q)
    tensor([0.1201])
    """
    (own, places), (other, others) = (close(make_scores(*x)) for x in (p, q))  # type: ignore[arg-type]
    if own.nodes.shape != other.nodes.shape:
        raise DataError(
            f"p and q have different shapes, {tuple(own.nodes.shape)} and "
            f"{tuple(other.nodes.shape)}"
        )
    lengths = own.lengths(), other.lengths()
    if not torch.equal(*lengths):
        row = int((lengths[0] != lengths[1]).nonzero()[0, 0])
        raise DataError(
            f"row {row} has {int(lengths[0][row])} positions by the mask of p and "
            f"{int(lengths[1][row])} by that of q: give both the same mask"
        )
    if not _same_places(places, others, own):
        raise DataError("the masks of p and q leave out different positions: give both the same")
    log_p, expected_p = _expected(own, own)
    log_q = log_likelihood(other)
    _, expected_q = _expected(other, own)
    outside = _mass_on_forbidden(other, own)
    value = log_q - log_p + expected_p - expected_q
    return torch.where(outside > 0, torch.full_like(value, torch.inf), value)


def _same_places(p: Places, q: Places, scores: Scores) -> bool:
    """Whether two batches of equal lengths have their positions at the same places."""
    whole = torch.arange(scores.nodes.shape[1], device=scores.nodes.device)
    whole = whole.expand(scores.nodes.shape[:2])
    return torch.equal(*(whole if x.order is None else x.order for x in (p, q)))


def _mass_on_forbidden(other: Scores, by: Scores) -> Tensor:
    """Expected number of forbidden labels and pairs of ``other`` under ``by``."""
    nodes, trans = other.full_nodes(), other.trans
    if not bool(torch.isinf(nodes).any()) and not bool(torch.isinf(trans).any()):
        return torch.zeros(len(nodes), dtype=nodes.dtype, device=nodes.device)
    with torch.no_grad():
        flags = Scores(
            torch.isinf(nodes).to(nodes.dtype), torch.isinf(trans).to(nodes.dtype),
            None, None, other.mask,
        )  # fmt: skip
        return _expected(flags, by)[1]
