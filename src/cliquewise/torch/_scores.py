"""Checked scores of a batch of chains, and the operations that every backend needs."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cliquewise.errors import DataError
from cliquewise.torch._transforms import can_read, is_capturing, is_transformed

#: The tag of positions to leave out, as in transformers.
IGNORED = -100


class Scores(NamedTuple):
    """Scores of B chains of at most T positions with K labels.

    Attributes
    ----------
    nodes : Tensor of shape (B, T, K)
    trans : Tensor of shape (K, K) or (B, T - 1, K, K)
    begin, end : Tensor of shape (K,) or None
    mask : bool Tensor of shape (B, T) or None
        True at existing positions. `make_scores` allows gaps. All backends except Triton need
        the result of `remove_gaps`, in which the existing positions come first.
    """

    nodes: Tensor
    trans: Tensor
    begin: Tensor | None
    end: Tensor | None
    mask: Tensor | None

    @property
    def is_shared(self) -> bool:
        """Whether all positions share one transition table."""
        return self.trans.dim() == 2

    @property
    def needs_gradient(self) -> bool:
        """Whether autograd records operations on these scores."""
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in self[:4])

    def each(self, change: Callable[[Tensor], Tensor]) -> Scores:
        """Apply a function to all scores and keep the mask."""
        nodes, trans, *ends, mask = self
        begin, end = (None if x is None else change(x) for x in ends)
        return Scores(change(nodes), change(trans), begin, end, mask)

    def lengths(self) -> Tensor:
        """Return the number of positions of every chain, shape (B,)."""
        if self.mask is None:
            size, length = self.nodes.shape[:2]
            return torch.full((size,), length, device=self.nodes.device)
        return self.mask.sum(1)

    def full_nodes(self) -> Tensor:
        """Return node scores that include the begin and end scores (differentiable).

        Masked positions become zero, so their values cannot spread.
        """
        nodes = self.nodes
        if self.mask is not None:
            nodes = nodes.masked_fill(~self.mask.unsqueeze(-1), 0.0)
        if nodes.shape[1] == 0 or (self.begin is None and self.end is None):
            return nodes
        at = torch.arange(nodes.shape[1], device=nodes.device)
        if self.begin is not None:
            nodes = torch.where((at == 0)[None, :, None], nodes + self.begin, nodes)
        if self.end is not None:
            last = at == (self.lengths() - 1)[:, None]
            nodes = torch.where(last[:, :, None], nodes + self.end, nodes)
        return nodes


class GapMap(NamedTuple):
    """Positions of the original rows, in the order of the rows without gaps.

    Attributes
    ----------
    order : Tensor of shape (B, T) or None
        Original positions, existing ones first; None if nothing was moved.
    """

    order: Tensor | None = None

    def compact(self, rows: Tensor) -> Tensor:
        """Move the existing positions of rows (B, T, ...) to the front."""
        if self.order is None:
            return rows
        if is_transformed():
            return rows.gather(1, _index(self.order, rows))
        return _Permute.apply(rows, self.order, False)

    def restore(self, rows: Tensor) -> Tensor:
        """Move compacted rows (B, T, ...) back to their original positions."""
        if self.order is None:
            return rows
        if is_transformed():
            return torch.zeros_like(rows).scatter(1, _index(self.order, rows), rows)
        return _Permute.apply(rows, self.order, True)

    def restore_labels(self, labels: Tensor) -> Tensor:
        """Move compacted labels (..., B, T) back to their original positions."""
        if self.order is None:
            return labels
        return torch.zeros_like(labels).scatter(-1, self.order.expand_as(labels), labels)

    def compact_tables(self, tables: Tensor) -> Tensor:
        """Select the table into every existing position from tables (B, T - 1, K, K)."""
        return tables if self.order is None else tables.gather(1, self._into(tables))

    def restore_tables(self, tables: Tensor) -> Tensor:
        """Move compacted tables (B, T - 1, K, K) back to their original positions."""
        if self.order is None:
            return tables
        # Tables of missing positions may share an index with others; they are zeros.
        return torch.zeros_like(tables).scatter_add(1, self._into(tables), tables)

    def _into(self, tables: Tensor) -> Tensor:
        assert self.order is not None
        return (self.order[:, 1:] - 1).clamp(min=0)[:, :, None, None].expand_as(tables)


def _index(order: Tensor, rows: Tensor) -> Tensor:
    return order.view(*order.shape, *[1] * (rows.dim() - 2)).expand_as(rows)


class _Permute(torch.autograd.Function):
    """Permute rows along the second axis; the gradient applies the inverse permutation.

    Faster than the gradient of gather, which has to add up entries.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, inverse: bool) -> Tensor:
        ctx.save_for_backward(order)
        ctx.inverse = inverse
        index = _index(order, rows)
        if inverse:
            return rows.new_empty(rows.shape).scatter_(1, index, rows)
        return rows.gather(1, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _Permute.apply(grad, *ctx.saved_tensors, not ctx.inverse), None, None


#: For chains without gaps.
NO_GAPS = GapMap()


def sort_mask(mask: Tensor) -> tuple[Tensor, GapMap]:
    """Return the mask with existing positions first, and the map back."""
    # One sort instead of a dozen cumulative sums: the host often limits the speed of a GPU.
    numbers = mask.to(torch.uint8) if is_transformed() else mask.view(torch.uint8)
    ones, order = numbers.sort(dim=1, descending=True, stable=True)
    return ones.bool() if is_transformed() else ones.view(torch.bool), GapMap(order)


def _has_gaps(mask: Tensor) -> bool:
    """Whether any chain has a gap; waits for a GPU. True if the values cannot be read."""
    if mask.shape[1] < 2:
        return False
    if is_capturing(mask) or is_transformed():
        return True
    return bool((mask[:, 1:] > mask[:, :-1]).any())


def remove_gaps(scores: Scores) -> tuple[Scores, GapMap]:
    """Return the same chains with existing positions first, and the map back."""
    if scores.mask is None or not _has_gaps(scores.mask):
        return scores, NO_GAPS
    mask, gaps = sort_mask(scores.mask)
    trans = scores.trans if scores.is_shared else gaps.compact_tables(scores.trans)
    nodes = gaps.compact(scores.nodes)
    return scores._replace(nodes=nodes, trans=trans, mask=mask), gaps


def remove_untagged(
    scores: Scores, tags: Tensor, *, wait: bool = False
) -> tuple[Scores, Tensor, GapMap]:
    """Remove gaps and positions tagged -100; return scores, checked tags and the map back.

    The range of the tags is checked on the CPU, and on a GPU only with ``wait``, because reading
    values waits for the GPU.
    """
    check_tags(scores, tags)
    scores, gaps = remove_gaps(scores._replace(mask=mask_ignored(tags, scores.mask)))
    tags = gaps.compact(tags.long())
    if is_transformed():
        # Only positions outside the mask may have other numbers; they are never looked up.
        tags = tags if scores.mask is None else tags.masked_fill(~scores.mask, 0)
    elif (wait or tags.device.type == "cpu") and tags.numel():
        low, high = tags.aminmax()
        if int(low) < 0 or int(high) >= scores.nodes.shape[2]:
            _refuse_tags(tags, scores.mask, scores.nodes.shape[2], gaps)
    return scores, tags, gaps


def check_tensor(name: str, value: object, like: Tensor | None = None) -> None:
    """Raise unless the value is a tensor on the device of ``like``."""
    if not isinstance(value, Tensor):
        raise DataError(
            f"{name} must be a tensor, not {type(value).__name__}: use torch.as_tensor({name})"
        )
    if like is not None and value.device != like.device:
        raise DataError(
            f"{name} and the node scores are on different devices, {value.device} and "
            f"{like.device}: move one of them with .to(...)"
        )


def check_count(name: str, value: Any, least: int) -> int:
    """Return an integer that is at least ``least``, or raise."""
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise DataError(f"{name} = {value!r:.60}; it must be a whole number, at least {least}")
    return number


def make_scores(
    nodes: Tensor,
    transitions: Tensor,
    begin: Tensor | None = None,
    end: Tensor | None = None,
    mask: Tensor | None = None,
) -> Scores:
    """Check shapes, types and devices, and convert half precision to float32."""
    check_tensor("nodes", nodes)
    if nodes.dim() != 3:
        raise DataError(f"node scores must have shape (B, T, K), not {tuple(nodes.shape)}")
    if not nodes.is_floating_point():
        raise DataError(f"node scores must be floating-point numbers, not {nodes.dtype}")
    size, length, k = nodes.shape
    if k == 0:
        raise DataError("node scores of shape (B, T, 0): there must be at least one label")
    check_tensor("transitions", transitions, nodes)
    steps = max(length - 1, 0)
    shapes = {(k, k), (size, k, k), (size, steps, k, k)}
    if tuple(transitions.shape) not in shapes:
        raise DataError(
            f"transitions must have shape (K, K) = {(k, k)}, (B, K, K) = {(size, k, k)} or "
            f"(B, T - 1, K, K) = {(size, steps, k, k)}, not {tuple(transitions.shape)}"
        )
    for name, vector in (("begin", begin), ("end", end)):
        if vector is not None:
            check_tensor(name, vector, nodes)
            if tuple(vector.shape) not in {(k,), (size, k)}:
                raise DataError(
                    f"{name} scores must have shape (K,) = {(k,)} or (B, K) = {(size, k)}, not "
                    f"{tuple(vector.shape)}"
                )
    if mask is not None:
        mask = _check_mask(mask, nodes)
    wide = torch.float64 if nodes.dtype == torch.float64 else torch.float32
    scores = Scores(nodes, transitions, begin, end, mask)
    scores = scores.each(lambda x: x if x.dtype == wide else x.to(wide))
    return _expand_rows(scores)


def _expand_rows(scores: Scores) -> Scores:
    """Replace scores with one row per chain: tables (B, K, K), begin and end scores (B, K)."""
    nodes, trans, begin, end, mask = scores
    size, length, k = nodes.shape
    if trans.dim() == 3:
        trans = trans.unsqueeze(1).expand(size, max(length - 1, 0), k, k)
    at = torch.arange(length, device=nodes.device)
    some = at.new_ones((size, length)) if mask is None else mask.long()
    if begin is not None and begin.dim() == 2:
        first = (some.cumsum(1) == 1) & (some == 1)
        nodes = torch.where(first.unsqueeze(-1), nodes + begin.unsqueeze(1), nodes)
        begin = None
    if end is not None and end.dim() == 2:
        last = (some.flip(1).cumsum(1).flip(1) == 1) & (some == 1)
        nodes = torch.where(last.unsqueeze(-1), nodes + end.unsqueeze(1), nodes)
        end = None
    return Scores(nodes, trans, begin, end, mask)


def _check_mask(mask: Tensor, nodes: Tensor) -> Tensor:
    check_tensor("mask", mask, nodes)
    if mask.shape != nodes.shape[:2]:
        raise DataError(f"mask must have shape {tuple(nodes.shape[:2])}, not {tuple(mask.shape)}")
    if mask.dtype == torch.bool:
        return mask
    on = mask.bool()
    # An additive attention mask has 0 at existing positions. Checking is worth a GPU wait.
    if (
        mask.is_floating_point()
        and not (is_capturing(mask) or is_transformed())
        and not torch.equal(on.to(mask.dtype), mask)
    ):
        raise DataError(
            "mask must be 1 at existing positions and 0 elsewhere, but has other numbers (convert "
            "an additive mask of 0 and -inf with mask == 0)"
        )
    return on


def mask_ignored(tags: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return the mask without the positions tagged `IGNORED`; does not wait for a GPU."""
    if can_read(tags) and not (tags.numel() and int(tags.min()) < 0):
        return mask
    known = tags != IGNORED
    return known if mask is None else known & mask.bool()


def check_nonempty(count: int) -> None:
    """Raise if there are no examples to average over."""
    if count == 0:
        raise DataError(
            'the mean loss of an empty batch is undefined: skip the batch, or use reduction="sum", '
            "which gives 0"
        )


def check_best_scores(value: Tensor) -> None:
    """Raise if a best score is NaN, or -inf because no labeling is possible."""
    wrong = value.isnan()
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0, 0])
        raise DataError(
            f"the scores of sequence {row} contain NaN, so it has no best labels (check the "
            "emissions and the weights; a diverged training step can make them NaN)"
        )
    never = value == -torch.inf
    if bool(never.any()):
        raise_infeasible(int(never.nonzero()[0, 0]))


def raise_infeasible(row: int) -> None:
    """Raise the error for a chain without a possible labeling."""
    raise DataError(
        f"sequence {row} has no possible labeling: emissions of -inf, or forbidden labels and "
        "transitions, rule out all of them"
    )


def check_tags(scores: Scores, tags: Tensor) -> None:
    """Raise if tags have another shape, type or device than they should."""
    check_tensor("tags", tags, scores.nodes)
    size, length = scores.nodes.shape[:2]
    if tags.shape != (size, length):
        raise DataError(
            f"tags must have the shape (B, T) = {(size, length)} of the node scores, not "
            f"{tuple(tags.shape)}"
        )
    if tags.dtype == torch.bool or tags.is_floating_point() or tags.is_complex():
        raise DataError(f"tags must be integers, not {tags.dtype}: use tags.long()")


def _refuse_tags(tags: Tensor, mask: Tensor | None, k: int, gaps: GapMap) -> None:
    """Raise if a tag at an existing position is not a label, and name it."""
    bad = (tags < 0) | (tags >= k)
    bad = bad if mask is None else bad & mask
    if bool(bad.any()):
        row, at = bad.nonzero()[0].tolist()
        tag = int(tags[row, at])
        at = at if gaps.order is None else int(gaps.order[row, at])
        example = f" (mask=(tags != {tag}))" if tag < 0 else ""
        raise DataError(
            f"tags[{row}, {at}] = {tag}, but the labels are 0..{k - 1}; mark missing positions "
            f"with the mask{example} or with tags of {IGNORED}"
        )


def path_score(scores: Scores, labels: Tensor) -> Tensor:
    """Return the score of one labeling per chain, shape (B,), by differentiable lookups.

    ``labels`` may have more rows than one per chain: shape (..., B, T).
    """
    nodes, trans, begin, end, mask = scores
    length = nodes.shape[1]
    lead = labels.shape[:-2]
    if length == 0:
        return nodes.new_zeros((*lead, nodes.shape[0]))
    if mask is not None:
        labels = labels.masked_fill(~mask, 0)
    nodes = nodes.expand(*lead, *nodes.shape)
    picked = nodes.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    left, right = labels[..., :-1], labels[..., 1:]
    if scores.is_shared:
        steps = trans[left, right]
    else:
        rows = torch.arange(trans.shape[0], device=labels.device)[:, None]
        steps = trans[rows, torch.arange(length - 1, device=labels.device), left, right]
    if mask is None:
        total = picked.sum(-1) + steps.sum(-1)
    else:
        # Not a product with the mask: masked scores may be infinite.
        zero = nodes.new_zeros(())
        total = torch.where(mask, picked, zero).sum(-1)
        total = total + torch.where(mask[:, 1:], steps, zero).sum(-1)
    if begin is not None:
        total = total + _where_nonempty(mask, begin[labels[..., 0]])
    if end is not None:
        last = (scores.lengths() - 1).clamp(min=0).expand(labels.shape[:-1]).unsqueeze(-1)
        total = total + _where_nonempty(mask, end[labels.gather(-1, last).squeeze(-1)])
    return total


def _where_nonempty(mask: Tensor | None, value: Tensor) -> Tensor:
    """Return the value for chains with at least one position, and 0 for the others."""
    return value if mask is None else torch.where(mask[:, 0], value, value.new_zeros(()))
