"""The triton backend: launches of the chain kernels on a GPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from cliquewise.errors import DataError
from cliquewise.torch._plain import Gradient
from cliquewise.torch._scores import Scores

#: Greatest number of labels that fits into the registers of one program.
MAX_LABELS = {torch.float32: 128, torch.float64: 64}
_WARPS = {16: 1, 32: 1, 64: 4, 128: 8}
_FINISH_WARPS = {16: 1, 32: 4, 64: 4, 128: 8}
#: Positions that are exponentiated or summed at once.
_ROWS = {16: 64, 32: 32, 64: 32, 128: 32}
#: Greatest padded number of labels for which one kernel does the scan and its follow-up.
_MERGED = 16
_BLOCK, _CHAINS, _COLUMNS = 1024, 128, 32


def refuses(scores: Scores) -> str | None:
    """Return why the kernels do not support these scores, as the end of a sentence, or None."""
    nodes = scores.nodes
    if nodes.shape[2] > MAX_LABELS[nodes.dtype]:
        return f"takes at most {MAX_LABELS[nodes.dtype]} labels of type {nodes.dtype}"
    return None


@cache
def fault_word(device: torch.device) -> Tensor:
    """Return a word of host memory that kernels set if a tag is not a label."""
    # Pinned memory: the device can write it, and the host reads it without waiting.
    return torch.zeros(1, dtype=torch.int32, pin_memory=device.type == "cuda")


def check_faults(device: torch.device) -> None:
    """Raise if a finished kernel found a tag that is not a label."""
    word = fault_word(device)
    if int(word.item()):
        word.zero_()
        raise DataError(
            "tags of this or an earlier call are not labels: at existing positions they must be at "
            "least 0 and below the number of labels, or -100"
        )


def _kernels() -> tuple[Any, Any]:
    from cliquewise.torch._triton_kernels import finish, scan
    from cliquewise.torch._triton_sums import weighted_sums

    return (scan, finish), weighted_sums


def _common(scores: Scores) -> tuple[Scores, int, int, dict[str, Any]]:
    """Return scores with contiguous last axes, transition strides, and compile-time arguments."""
    import triton.language as tl

    nodes, trans, begin, end, mask = scores
    k = nodes.shape[2]
    if nodes.stride(2) != 1 and k > 1:
        nodes = nodes.contiguous()
    if not trans.is_contiguous():
        trans = trans.contiguous()
    if begin is not None:
        begin = begin.contiguous()
    if end is not None:
        end = end.contiguous()
    padded = max(16, 1 << (k - 1).bit_length())
    shared = trans.dim() == 2
    options = {
        "KP": padded,
        "TB": 128,
        "F": tl.float64 if nodes.dtype == torch.float64 else tl.float32,
        "HAS_BEGIN": begin is not None,
        "HAS_END": end is not None,
        "HAS_MASK": mask is not None,
        "SHARED": shared,
        "num_warps": _WARPS[padded],
    }
    stride_b, stride_t = (0, 0) if shared else (trans.stride(0), trans.stride(1))
    return Scores(nodes, trans, begin, end, mask), stride_b, stride_t, options


def evaluate(
    scores: Scores, tags: Tensor | None, needs_gradient: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return log Z or the log-likelihood of tags, and the marginals minus the tags."""
    check_faults(scores.nodes.device)
    size, length, k = scores.nodes.shape
    device = scores.nodes.device
    values = torch.empty(size, dtype=scores.nodes.dtype, device=device)
    if size == 0 or length == 0:
        return values.zero_(), (values, values)
    # Rounded only once, after the score of the tags is subtracted.
    exact = torch.empty(size, dtype=torch.float64, device=device)
    scores, trans_b, trans_t, options = _common(scores)
    nodes, trans, begin, end, mask = scores
    shared = trans.dim() == 2
    # One allocation for scratch and results.
    tables = 1 if shared else length - 1
    room = torch.empty(size * (3 * length * k + tables * k * k), dtype=nodes.dtype, device=device)
    # Masks and tags may have gaps, which the kernels remove themselves.
    may_gap = mask is not None or tags is not None
    numbers = 3 * size + (2 * size * length if may_gap else 0)
    lengths = torch.empty(numbers, dtype=torch.int32, device=device)
    mask_b, mask_t = (0, 0) if mask is None else mask.stride()
    tags_b, tags_t = (0, 0) if tags is None else tags.stride()
    arguments = (
        nodes, trans, nodes if begin is None else begin, nodes if end is None else end,
        lengths if mask is None else mask, fault_word(device),
        lengths if tags is None else tags,
        values, exact, lengths, room, size, length, k, nodes.stride(0), nodes.stride(1),
        trans_b, trans_t, mask_b, mask_t, tags_b, tags_t,
    )  # fmt: skip
    padded = options["KP"]
    merged = padded <= _MERGED
    options |= {
        "MERGED": merged,
        "LIMIT": 1e18 if nodes.dtype == torch.float32 else 1e200,
        "ROWS": _ROWS[padded], "HAS_TAGS": tags is not None, "GRADIENT": needs_gradient,
        "MAY_GAP": may_gap,
    }  # fmt: skip
    (scan, finish), _ = _kernels()
    if shared:
        scan[(size,)](*arguments, **options)
    if not (shared and merged):
        finish[(size,)](*arguments, **(options | {"num_warps": _FINISH_WARPS[padded]}))
    return values, (room, lengths)


def gradient(scores: Scores, saved: tuple[Tensor, ...], weights: Tensor, scale: float) -> Gradient:
    """Return the saved marginals times the weights (per chain, or one for all) and the scale."""
    room, lengths = saved
    nodes, trans, begin, end, _ = scores
    check_faults(nodes.device)
    size, length, k = nodes.shape
    new: dict[str, Any] = {"dtype": nodes.dtype, "device": nodes.device}
    out_nodes = torch.empty((size, length, k), **new)
    out_trans = torch.empty(trans.shape, **new)
    out_begin = None if begin is None else torch.empty(k, **new)
    out_end = None if end is None else torch.empty(k, **new)
    if size == 0 or length == 0:
        for out in (out_trans, out_begin, out_end):
            if out is not None:
                out.zero_()
        return Gradient(out_nodes, out_trans, out_begin, out_end)
    shared = trans.dim() == 2
    if not shared:
        table = room[3 * size * length * k :].view(trans.shape)
        out_trans = table * (scale * weights).reshape(-1, 1, 1, 1)
    n_nodes = -(-size * length * k // _BLOCK)
    n_columns = -(-(k * k + 2 * k) // _COLUMNS)
    _, kernel = _kernels()
    arguments = (
        weights, lengths, room, out_nodes, out_trans,
        out_nodes if out_begin is None else out_begin, out_nodes if out_end is None else out_end,
        size, length, k, weights.stride(0) if weights.dim() else 0, n_nodes, scale,
    )  # fmt: skip
    options = {
        "HAS_BEGIN": begin is not None, "HAS_END": end is not None, "SHARED": shared,
        "BLOCK": _BLOCK, "ROWS": _CHAINS, "COLUMNS": _COLUMNS, "num_warps": 4,
        "MAY_GAP": len(lengths) > 3 * size,
    }  # fmt: skip
    kernel[(n_nodes + n_columns,)](*arguments, **options)
    return Gradient(out_nodes, out_trans, out_begin, out_end)


def viterbi(scores: Scores, keep_gaps: bool = True) -> tuple[Tensor, Tensor]:
    """Return the best score (B,) and labeling (B, T), with or without gaps, from one launch."""
    from cliquewise.torch._triton_decode import viterbi as kernel

    check_faults(scores.nodes.device)
    size, length, k = scores.nodes.shape
    device = scores.nodes.device
    labels = torch.empty((size, length), dtype=torch.int64, device=device)
    values = torch.zeros(size, dtype=scores.nodes.dtype, device=device)
    if size == 0 or length == 0:
        return values, labels
    scores, trans_b, trans_t, options = _common(scores)
    nodes, trans, begin, end, mask = scores
    bests = torch.empty((size, length, k), dtype=nodes.dtype, device=device)
    orders = labels
    mask_b, mask_t = 0, 0
    if mask is not None:
        mask_b, mask_t = mask.stride()
        orders = torch.empty(2 * size * length, dtype=torch.int32, device=device)
    arguments = (
        nodes, trans, nodes if begin is None else begin, nodes if end is None else end,
        labels if mask is None else mask, values, labels, bests, orders,
        size, length, k, nodes.stride(0), nodes.stride(1), trans_b, trans_t, mask_b, mask_t,
    )  # fmt: skip
    kernel[(size,)](*arguments, **options, PLACED=keep_gaps)
    return values, labels
