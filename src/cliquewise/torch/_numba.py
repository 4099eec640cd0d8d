"""The numba backend: answers about chains on the CPU, by the kernels of the package."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cliquewise._kernels.chain.covariance import batch_covariances, batch_entropy
from cliquewise._kernels.chain.decode import batch_viterbi
from cliquewise._kernels.chain.sums import batch_forward_backward, batch_log_partition
from cliquewise._kernels.chain.weighted import weighted_expectation
from cliquewise.ragged import Ints, offsets_of
from cliquewise.torch._plain import Gradient, end_gradients
from cliquewise.torch._scores import Scores

Array = NDArray[Any]
Mask = NDArray[np.bool_]


class FlatChains(NamedTuple):
    """Chains one after the other, as the kernels take them.

    Attributes
    ----------
    nodes : array of shape (N, K)
        Node scores, begin and end scores included.
    offsets : int array of shape (B + 1,)
    trans : array of shape (1, K, K) or (E, K, K)
    """

    nodes: Array
    offsets: Ints
    trans: Array


def flatten(scores: Scores) -> FlatChains:
    """Return all chains one after the other, without padding."""
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
    return FlatChains(array, offsets, _flatten_tables(scores))


def _flatten_tables(scores: Scores) -> Array:
    trans, mask = scores.trans.detach(), scores.mask
    if scores.is_shared:
        return np.ascontiguousarray(trans.numpy())[None]
    k = trans.shape[-1]
    own = trans.reshape(-1, k, k) if mask is None else trans[mask[:, 1:]]
    return np.ascontiguousarray(own.numpy())


def _unflatten(scores: Scores, flat: Array) -> Tensor:
    """Return rows of all chains in shape (B, T, ...), zeros at masked positions."""
    rows = torch.from_numpy(flat)
    shape = (*scores.nodes.shape[:2], *rows.shape[1:])
    if scores.mask is None:
        return rows.view(shape)
    out = rows.new_zeros(shape)
    out[scores.mask] = rows
    return out


def _unflatten_tables(scores: Scores, tables: Tensor) -> Tensor:
    """Return tables of all edges in shape (B, T - 1, K, K), zeros at masked positions."""
    if scores.mask is None:
        return tables.view(scores.trans.shape)
    out = tables.new_zeros(scores.trans.shape)
    out[scores.mask[:, 1:]] = tables
    return out


def find_invalid_chains(chains: FlatChains) -> Mask | None:
    """Return which chains have a score that is NaN or +inf; None if none has.

    The maxima of the kernels ignore NaN; a sum does not, and is cheap.
    """
    nodes, offsets, trans = chains
    with np.errstate(all="ignore"):
        total = nodes.sum() + trans.sum()
    if total < np.inf:
        return None
    lengths = np.diff(offsets)
    bad = _any_by_chain(~np.asarray((nodes < np.inf).all(1)), offsets)
    tables = ~np.asarray((trans < np.inf).all((1, 2)))
    if len(tables) == 1:
        bad |= bool(tables[0]) & (lengths > 1)
    else:
        bad |= _any_by_chain(tables, offsets_of(np.maximum(lengths - 1, 0)))
    return bad if bad.any() else None


def _any_by_chain(rows: Mask, offsets: Ints) -> Mask:
    count = offsets_of(rows)
    return count[offsets[1:]] > count[offsets[:-1]]


def _set_nan(rows: Array, bad: Mask, counts: Ints) -> None:
    """Fill all rows of the invalid chains with NaN."""
    if len(rows):
        rows[np.repeat(bad, counts)] = np.nan


# ---- sums


def evaluate(scores: Scores, needs_gradient: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return log Z of every chain and, from the same passes, the marginals for `gradient`."""
    chains = flatten(scores)
    array, offsets, trans = chains
    k = array.shape[1]
    bad = find_invalid_chains(chains)
    log_z = np.empty(len(offsets) - 1)
    if not needs_gradient:
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
        _set_nan(marginals, bad, lengths)
        _set_nan(edges, bad, np.maximum(lengths - 1, 0))
        if (lengths[bad] > 1).any():
            summed[:] = np.nan
    value = torch.from_numpy(log_z).to(scores.nodes.dtype)
    return value, tuple(torch.from_numpy(x) for x in (marginals, edges, summed))


def gradient(scores: Scores, saved: tuple[Tensor, ...], weights: Tensor) -> Gradient:
    """Return the marginals of chain b times ``weights[b]``, from the result of `evaluate`."""
    marginals, edges, summed = saved
    g = weights.detach()
    nodes = _unflatten(scores, marginals.numpy()) * g.view(-1, 1, 1)
    if not scores.is_shared:
        trans = _unflatten_tables(scores, edges) * g.view(-1, 1, 1, 1)
    elif len(g) and bool((g == g[0]).all()):
        trans = summed * g[0]
    else:
        trans = _weighted_edges(scores, g)
    return Gradient(nodes, trans, *end_gradients(scores, nodes))


def _weighted_edges(scores: Scores, weights: Tensor) -> Tensor:
    """Return summed edge marginals under unequal weights, which takes another pass."""
    chains = flatten(scores)
    array, offsets, trans = chains
    total = np.zeros((array.shape[1], array.shape[1]), dtype=array.dtype)
    g = weights.numpy().astype(array.dtype)
    weighted_expectation(array, offsets, trans, g, np.empty_like(array), total)
    bad = find_invalid_chains(chains)
    if bad is not None and (np.diff(offsets)[bad] > 1).any():
        total[:] = np.nan
    return torch.from_numpy(total)


# ---- entropies and covariances, in float64


def entropy(scores: Scores) -> Tensor:
    """Return the entropy of every chain, float64; NaN if its scores are invalid or infeasible."""
    chains = flatten(scores.each(Tensor.double))
    out = np.empty(len(chains.offsets) - 1)
    batch_entropy(*chains, out)
    bad = find_invalid_chains(chains)
    if bad is not None:
        out[bad] = np.nan
    return torch.from_numpy(out)


def covariances(
    scores: Scores, direction: Scores, weights: Tensor, *, needs_gradient: bool = True
) -> tuple[Tensor, Gradient | None]:
    """Return expectations of a direction, and its covariances with all labels and pairs.

    The covariances of chain b, times ``weights[b]``, are the gradient of
    ``sum_b weights[b] E_b <direction, y>``. They have the type of the scores; the expectations
    (B,) are float64.
    """
    chains, own = flatten(scores.each(Tensor.double)), flatten(direction.each(Tensor.double))
    k, size = chains.nodes.shape[1], len(chains.offsets) - 1
    means, nodes = np.empty(size), np.empty(chains.nodes.shape)
    has_edges = bool(own.trans.any())
    edges = np.zeros((len(chains.trans) if needs_gradient else 0, k, k))
    batch_covariances(
        *chains, own.nodes, own.trans if has_edges else own.trans[:0],
        weights.detach().double().numpy(), means, nodes, edges,
    )  # fmt: skip
    bad = find_invalid_chains(chains)
    if bad is not None:
        lengths = np.diff(chains.offsets)
        means[bad] = np.nan
        _set_nan(nodes, bad, lengths)
        if scores.is_shared and (lengths[bad] > 1).any():
            edges[:] = np.nan
        elif not scores.is_shared:
            _set_nan(edges, bad, np.maximum(lengths - 1, 0))
    if not needs_gradient:
        return torch.from_numpy(means), None
    kind = scores.nodes.dtype
    rows = _unflatten(scores, nodes).to(kind)
    tables = torch.from_numpy(edges).to(kind)
    trans = tables[0] if scores.is_shared else _unflatten_tables(scores, tables)
    return torch.from_numpy(means), Gradient(rows, trans, *end_gradients(scores, rows))


# ---- maxima


def viterbi(scores: Scores) -> tuple[Tensor, Tensor]:
    """Return the best score (B,) and labeling (B, T) of every chain."""
    chains = flatten(scores)
    labels = np.zeros(len(chains.nodes), dtype=np.int64)
    values = np.empty(len(chains.offsets) - 1)
    batch_viterbi(*chains, labels, values)
    bad = find_invalid_chains(chains)
    if bad is not None:
        values[bad] = np.nan
    value = torch.from_numpy(values).to(scores.nodes.dtype)
    return value, _unflatten(scores, labels)
