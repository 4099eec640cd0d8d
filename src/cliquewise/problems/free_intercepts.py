"""Intercepts without a penalty: a lower bound of the objective that stays true without one.

At weights ``w`` and intercepts ``b``, let ``g`` be the gradient in the weights and ``h_l`` the
derivative in the intercept of label l. The losses are convex, so for all ``w'``, ``b'``

    P(w', b') >= P(w, b) + <g, w' - w> + lam/2 ||w' - w||^2 + sum_l h_l (b'_l - b_l).

The last sum needs a bound of ``b'`` at the optimum. The loss of a row is at least the score of any
other label set less that of the true one. For rows where label l is on, take the set without l:
the loss is at least ``-s_i``, where ``s_i = b'_l + <z_i, w'>`` is the score of l given the true
values of the other labels. The weighted sum of all losses at the optimum is at most ``S``, its
value for constant predictions. With the total weight ``W`` and the mean ``z`` of these rows,

    b'_l >= -S / W - <z, w'>,        and from rows where l is off:  b'_l <= S / W - <z, w'>.

Use the first for ``h_l > 0`` and the second for ``h_l < 0``. What remains is a quadratic function
of ``w'``, whose minimum is the bound

    P - sum_l |h_l| S / W_l - sum_l h_l (<z_l, w> + b_l) - ||g - sum_l h_l z_l||^2 / (2 lam).

A label that is always on, or always off, has no finite optimum; its intercept is penalized.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cliquewise.ragged import Floats, Ints


class Side(NamedTuple):
    """The rows where a label is on (or off), for each label.

    Attributes
    ----------
    weight : (L,)
        Total weight of the rows.
    features, sizes : (columns, L)
        Means of the features, and of their absolute values.
    tables : (pairs, 4, 2)
        Change of a pair's table entries by its first, and by its second label being on, averaged
        over the rows of that label.
    """

    weight: Floats
    features: Floats
    sizes: Floats
    tables: Floats


def table_changes(Y: Floats, pairs: Ints, weights: Floats, weight: Floats) -> Floats:
    """Return the mean change of table entries by a label being on, (pairs, 4, 2).

    ``weights`` (rows, L) select the rows of each label; ``weight`` has their sums.

    Examples
    --------
    >>> Y = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> table_changes(Y, np.array([[0, 1]]), Y, Y.sum(axis=0))[0].T.tolist()
    [[-0.5, -0.5, 0.5, 0.5], [0.0, 0.0, -1.0, 1.0]]
    """
    out = np.zeros((len(pairs), 4, 2))
    left, right = pairs.T
    total = np.maximum(weight, 1e-300)
    other = (weights[:, left] * Y[:, right]).sum(axis=0) / total[left]
    out[:, :, 0] = np.stack([other - 1.0, -other, 1.0 - other, other], axis=1)
    other = (weights[:, right] * Y[:, left]).sum(axis=0) / total[right]
    out[:, :, 1] = np.stack([other - 1.0, 1.0 - other, -other, other], axis=1)
    return out


def constant_losses(on: Floats, off: Floats, gamma: float, cost: float) -> Floats:
    """Return each label's least loss, up to rounding, when all rows have the same score.

    Parameters
    ----------
    on, off : (L,)
        Total weights of the rows where the label is on, and off.
    gamma, cost : float
        Temperature, and the cost of a wrong label.

    Examples
    --------
    >>> constant_losses(np.array([1.0]), np.array([1.0]), 1.0, 0.0).round(4).tolist()
    [1.3863]
    """
    ratio = np.where((on > 0) & (off > 0), np.maximum(on, 1e-300) / np.maximum(off, 1e-300), 1.0)
    fair = gamma * np.log(ratio)  # intercepts of constant labels are penalized, and stay at 0
    losses = [
        gamma * (on * np.logaddexp(0.0, (cost - b) / gamma))
        + gamma * (off * np.logaddexp(0.0, (cost + b) / gamma))
        for b in (np.zeros_like(on), fair)
    ]
    return np.asarray(np.minimum(*losses) * (1.0 + 1e-12))
