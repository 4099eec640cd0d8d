"""Chain oracles on the CPU by the package's compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cliquewise._kernels.chain.decode import batch_viterbi
from cliquewise._kernels.chain.sums import batch_forward_backward, batch_log_partition
from cliquewise._kernels.chain.weighted import weighted_expectation
from cliquewise.ragged import offsets_of
from cliquewise.torch._plain import Gradient, _end_gradients
from cliquewise.torch._scores import Scores

Arrays = tuple[Any, Any, Any]


def _flat(scores: Scores) -> Arrays:
    """(nodes (N, K), offsets, transitions (1 or E, K, K)) of all chains, one after the other."""
    nodes, _, begin, end, mask = scores
    size, length, k = nodes.shape
    lengths = np.full(size, length) if mask is None else mask.sum(1).numpy()
    offsets = offsets_of(lengths)
    flat = nodes.detach()
    flat = flat.reshape(-1, k) if mask is None else flat[mask]
    array = flat.numpy()
    if begin is not None or end is not None or not array.flags.c_contiguous:
        array = array.copy(order="C")
    some = lengths > 0
    if begin is not None:
        array[offsets[:-1][some]] += begin.detach().numpy()
    if end is not None:
        array[offsets[1:][some] - 1] += end.detach().numpy()
    return array, offsets, _tables(scores)


def _without_number(arrays: Arrays) -> Any:
    """Which chains have a score that is NaN or +inf; None where all scores are fine.

    The kernels' maxima pass over NaN. A sum does not, and costs next to nothing beside them.
    """
    nodes, offsets, trans = arrays
    with np.errstate(all="ignore"):
        total = nodes.sum() + trans.sum()
    if total < np.inf:
        return None
    lengths = np.diff(offsets)
    bad = _any_by_chain(~(nodes < np.inf).all(1), offsets)
    tables = ~(trans < np.inf).all((1, 2))
    if len(tables) == 1:
        bad |= tables[0] & (lengths > 1)
    else:
        bad |= _any_by_chain(tables, offsets_of(np.maximum(lengths - 1, 0)))
    return bad if bad.any() else None


def _any_by_chain(rows: Any, offsets: Any) -> Any:
    count = offsets_of(rows)
    return count[offsets[1:]] > count[offsets[:-1]]


def _spoil(rows: Any, bad: Any, counts: Any) -> None:
    """NaN in all rows of the bad chains."""
    if len(rows):
        rows[np.repeat(bad, counts)] = np.nan


def _tables(scores: Scores) -> Any:
    trans, mask = scores.trans.detach(), scores.mask
    if scores.is_shared:
        return np.ascontiguousarray(trans.numpy())[None]
    k = trans.shape[-1]
    own = trans.reshape(-1, k, k) if mask is None else trans[mask[:, 1:]]
    return np.ascontiguousarray(own.numpy())


def _unflat(scores: Scores, flat: Any) -> Tensor:
    """Rows of all chains back to shape (B, T, ...), zeros where there is no position."""
    rows = torch.from_numpy(flat)
    shape = (*scores.nodes.shape[:2], *rows.shape[1:])
    if scores.mask is None:
        return rows.view(shape)
    out = rows.new_zeros(shape)
    out[scores.mask] = rows
    return out


def evaluate(scores: Scores, need_gradient: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    """log Z of every chain; with it, in the same pass, what equal weights will need."""
    array, offsets, trans = _flat(scores)
    k = array.shape[1]
    bad = _without_number((array, offsets, trans))
    log_z = np.empty(len(offsets) - 1)
    if not need_gradient:
        batch_log_partition(array, offsets, trans, log_z)
        if bad is not None:
            log_z[bad] = np.nan
        return torch.from_numpy(log_z).to(scores.nodes.dtype), ()
    marginals = np.empty_like(array)
    edges = np.empty((0 if scores.is_shared else len(trans), k, k), dtype=array.dtype)
    summed = np.zeros((k if scores.is_shared else 0, k), dtype=array.dtype)
    batch_forward_backward(array, offsets, trans, marginals, edges, summed, log_z)
    if bad is not None:
        lengths = np.diff(offsets)
        log_z[bad] = np.nan
        _spoil(marginals, bad, lengths)
        _spoil(edges, bad, np.maximum(lengths - 1, 0))
        if (lengths[bad] > 1).any():
            summed[:] = np.nan
    # Chains of one position have no tables: then a single table is not a shared one.
    value = torch.from_numpy(log_z).to(scores.nodes.dtype)
    return value, tuple(torch.from_numpy(x) for x in (marginals, edges, summed))


def gradient(scores: Scores, saved: tuple[Tensor, ...], weights: Tensor) -> Gradient:
    """Marginals, those of chain b times ``weights[b]``, from what `evaluate` has kept."""
    marginals, edges, summed = saved
    g = weights.detach()
    nodes = _unflat(scores, marginals.numpy()) * g.view(-1, 1, 1)
    if not scores.is_shared:
        trans = _edges(scores, edges) * g.view(-1, 1, 1, 1)
    elif len(g) and bool((g == g[0]).all()):
        trans = summed * g[0]
    else:
        trans = _weighted(scores, g)
    return Gradient(nodes, trans, *_end_gradients(scores, nodes))


def _edges(scores: Scores, edges: Tensor) -> Tensor:
    if scores.mask is None:
        return edges.view(scores.trans.shape)
    out = torch.zeros_like(scores.trans)
    out[scores.mask[:, 1:]] = edges
    return out


def _weighted(scores: Scores, weights: Tensor) -> Tensor:
    """Summed edge marginals under unequal weights: another pass."""
    array, offsets, trans = _flat(scores)
    total = np.zeros((array.shape[1], array.shape[1]), dtype=array.dtype)
    g = weights.numpy().astype(array.dtype)
    weighted_expectation(array, offsets, trans, g, np.empty_like(array), total)
    bad = _without_number((array, offsets, trans))
    if bad is not None and (np.diff(offsets)[bad] > 1).any():
        total[:] = np.nan
    return torch.from_numpy(total)


def viterbi(scores: Scores) -> tuple[Tensor, Tensor]:
    """Best score (B,) and labeling (B, T)."""
    array, offsets, trans = _flat(scores)
    labels = np.zeros(len(array), dtype=np.int64)
    values = np.empty(len(offsets) - 1)
    batch_viterbi(array, offsets, trans, labels, values)
    bad = _without_number((array, offsets, trans))
    if bad is not None:
        values[bad] = np.nan
    value = torch.from_numpy(values).to(scores.nodes.dtype)
    return value, _unflat(scores, labels)
