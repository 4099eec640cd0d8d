"""Smoothed maxima over the labelings of chains.

    max over distributions p of  E_p[score] + gamma * H(p)               (entropy)
    max over u in the simplex of  <scores, u> - gamma (||u||^2 - 1) / 2   (l2)

The first is ``gamma log Z(scores / gamma)``. The second projects the scores divided by gamma
onto the simplex, where only the best labelings have weight (Section 3 of casimir), so it is
computed from the ``k`` best labelings.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.torch._scores import Scores, make_scores
from cliquewise.torch._transforms import graph_break
from cliquewise.torch.chain import log_likelihood
from cliquewise.torch.sampling import top_k_of

SMOOTHERS = ("entropy", "l2")


def project_to_simplex(rows: Tensor) -> Tensor:
    """Project every row (last axis) onto the simplex; entries of -inf become 0.

    Examples
    --------
    >>> import torch
    >>> project_to_simplex(torch.tensor([1.0, 0.5, -torch.inf]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    high = rows.amax(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).min)
    # Entries more than 1 below the maximum have no weight.
    shifted = (rows - high).clamp(min=-2.0)
    ordered = shifted.sort(-1, descending=True).values
    count = torch.arange(1, rows.shape[-1] + 1, device=rows.device, dtype=rows.dtype)
    excess = (ordered.cumsum(-1) - 1.0) / count
    used = (ordered > excess).sum(-1, keepdim=True).clamp(min=1)  # 0 where there is a NaN
    return (shifted - excess.gather(-1, used - 1)).clamp(min=0.0)


def l2_smoothed_max(scores: Tensor, gamma: float) -> Tensor:
    """Compute ``max over u of <scores, u> - gamma (||u||^2 - 1) / 2`` along the last axis.

    The gradient is the maximizer u.

    Examples
    --------
    >>> import torch
    >>> l2_smoothed_max(torch.tensor([1.0, 1.0]), gamma=2.0)
    tensor(1.5000)
    """
    # Recorded for second derivatives; the first derivative by u is 0 where u is feasible.
    u = project_to_simplex(scores / gamma)
    kept = torch.where(u > 0, scores, torch.zeros_like(scores))
    return (u * kept).sum(-1) - gamma * (u.square().sum(-1) - 1.0) / 2.0


def check_gamma(gamma: float) -> None:
    """Raise unless the temperature is a positive number."""
    if not (gamma > 0 and gamma < float("inf")):
        raise DataError(f"gamma = {gamma}; it must be a positive number")


@graph_break
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
    """Compute the smoothed best score of every chain, shape (B,).

    Parameters
    ----------
    nodes, transitions, begin, end, mask
        As in :func:`cliquewise.torch.log_partition`.
    smoother : {"entropy", "l2"}
    gamma : float
        Temperature. The value exceeds the maximum by at most ``gamma`` times the log of the
        number of labelings (entropy) or ``gamma / 2`` (l2).
    k : int
        For ``l2``: number of labelings that may have weight. The result is exact if one of them
        has none.

    Examples
    --------
    >>> import torch
    >>> nodes = torch.tensor([[[0.0, 1.0], [3.0, 0.0]]])
    >>> smoothed_max(nodes, torch.zeros(2, 2), smoother="l2", gamma=0.5)
    tensor([4.])
    """
    scores = make_scores(nodes, transitions, begin, end, mask)
    return smoothed_max_of(scores, smoother, gamma, k)


def smoothed_max_of(scores: Scores, smoother: str, gamma: float, k: int) -> Tensor:
    """Compute `smoothed_max` of checked scores."""
    check_gamma(gamma)
    if smoother == "l2":
        return l2_smoothed_max(top_k_of(scores, k)[0], gamma)
    if smoother != "entropy":
        raise UnsupportedError(f"unknown smoother {smoother!r}; choose from {', '.join(SMOOTHERS)}")
    if gamma == 1.0:
        return log_likelihood(scores)
    return gamma * log_likelihood(scores.each(lambda x: x / gamma))
