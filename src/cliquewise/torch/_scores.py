"""Scores of a batch of chains, checked once, and what every path needs of them."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cliquewise.errors import DataError

#: A tag that says, as in transformers, that a position is to be left out.
IGNORED = -100


class Scores(NamedTuple):
    """A batch of B chains of at most T positions with K labels.

    Attributes
    ----------
    nodes : Tensor of shape (B, T, K)
    trans : Tensor of shape (K, K) or (B, T - 1, K, K)
    begin, end : Tensor of shape (K,) or None
    mask : bool Tensor of shape (B, T) or None
        True at the positions that exist. As `make_scores` leaves them these may be any; `close`
        makes them the first ones of every chain, which all but the Triton kernels want.
    """

    nodes: Tensor
    trans: Tensor
    begin: Tensor | None
    end: Tensor | None
    mask: Tensor | None

    @property
    def is_shared(self) -> bool:
        """Whether one table of transitions serves all positions."""
        return self.trans.dim() == 2

    def each(self, change: Callable[[Tensor], Tensor]) -> Scores:
        """The same with all scores changed, and the same mask."""
        nodes, trans, *ends, mask = self
        begin, end = (None if x is None else change(x) for x in ends)
        return Scores(change(nodes), change(trans), begin, end, mask)

    def lengths(self) -> Tensor:
        """Number of positions of every chain, shape (B,)."""
        if self.mask is None:
            size, length = self.nodes.shape[:2]
            return torch.full((size,), length, device=self.nodes.device)
        return self.mask.sum(1)

    def full_nodes(self) -> Tensor:
        """Node scores with the begin and end scores added at their places (differentiable).

        Zeros where there is no position: what stands there must not spread.
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


class Places(NamedTuple):
    """Where the positions of chains without gaps stand in the rows that were given.

    Attributes
    ----------
    order : Tensor of shape (B, T) or None
        The place of every position, those that exist first; None where nothing was moved.
    """

    order: Tensor | None = None

    def take(self, rows: Tensor) -> Tensor:
        """Rows (B, T, ...) as they were given, without gaps."""
        return rows if self.order is None else _Moved.apply(rows, self.order, False)

    def put(self, rows: Tensor) -> Tensor:
        """Rows (B, T, ...) without gaps, back at their places."""
        return rows if self.order is None else _Moved.apply(rows, self.order, True)

    def put_labels(self, labels: Tensor) -> Tensor:
        """Labels (..., B, T) without gaps, back at their places."""
        if self.order is None:
            return labels
        return torch.empty_like(labels).scatter_(-1, self.order.expand_as(labels), labels)

    def take_tables(self, tables: Tensor) -> Tensor:
        """Tables (B, T - 1, K, K) as given: that into a position counts, gap or no gap before."""
        return tables if self.order is None else tables.gather(1, self._into(tables))

    def put_tables(self, tables: Tensor) -> Tensor:
        """Tables (B, T - 1, K, K) without gaps, back at their places."""
        if self.order is None:
            return tables
        # Places that do not exist may coincide with others; they have zeros.
        return torch.zeros_like(tables).scatter_add(1, self._into(tables), tables)

    def _into(self, tables: Tensor) -> Tensor:
        assert self.order is not None
        return (self.order[:, 1:] - 1).clamp(min=0)[:, :, None, None].expand_as(tables)


class _Moved(torch.autograd.Function):
    """Rows along the second axis at the front of their order, or back; the gradient the other way.

    The order is a permutation: nothing is added up, as the gradient of a lookup would be.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: bool) -> Tensor:
        ctx.save_for_backward(order)
        ctx.back = back
        index = order.view(*order.shape, *[1] * (rows.dim() - 2)).expand_as(rows)
        return (
            rows.new_empty(rows.shape).scatter_(1, index, rows) if back else rows.gather(1, index)
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _Moved.apply(grad, *ctx.saved_tensors, not ctx.back), None, None


#: Of chains that have no gaps.
NOTHING_MOVED = Places()


def close_gaps(mask: Tensor) -> tuple[Tensor, Places]:
    """The mask with its positions moved to the front, and where they stood."""
    # One call, not the dozen of cumulative sums: a GPU is often done before the host.
    ones, order = mask.view(torch.uint8).sort(dim=1, descending=True, stable=True)
    return ones.view(torch.bool), Places(order)


def _captured(tensor: Tensor) -> bool:
    """Whether a GPU only notes down what it is asked, so that there is nothing to look at."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _has_gaps(mask: Tensor) -> bool:
    """Whether chains must be moved together; a GPU is waited for."""
    if mask.shape[1] < 2:
        return False
    return _captured(mask) or bool((mask[:, 1:] > mask[:, :-1]).any())


def close(scores: Scores) -> tuple[Scores, Places]:
    """The same chains without gaps, and where their positions stood."""
    if scores.mask is None or not _has_gaps(scores.mask):
        return scores, NOTHING_MOVED
    mask, places = close_gaps(scores.mask)
    trans = scores.trans if scores.is_shared else places.take_tables(scores.trans)
    nodes = places.take(scores.nodes)
    return scores._replace(nodes=nodes, trans=trans, mask=mask), places


def close_tagged(
    scores: Scores, tags: Tensor, *, wait: bool = False
) -> tuple[Scores, Tensor, Places]:
    """`close` without the positions whose tag is -100; the tags as well, checked.

    That they are labels at all is looked at on the CPU, and with ``wait`` on a GPU, too, which
    has to wait for it.
    """
    check_tags(scores, tags)
    scores, places = close(scores._replace(mask=without_ignored(tags, scores.mask)))
    tags = places.take(tags.long())
    if (wait or tags.device.type == "cpu") and tags.numel():
        low, high = tags.aminmax()
        if int(low) < 0 or int(high) >= scores.nodes.shape[2]:
            _refuse_tags(tags, scores.mask, scores.nodes.shape[2], places)
    return scores, tags, places


def check_tensor(name: str, value: Any, like: Tensor | None = None) -> None:
    """Refuse what is no tensor, or is on another device than the node scores."""
    if not isinstance(value, Tensor):
        raise DataError(
            f"{name} must be a tensor, not {type(value).__name__}: take torch.as_tensor({name})"
        )
    if like is not None and value.device != like.device:
        raise DataError(
            f"{name} and the node scores are on different devices, {value.device} and "
            f"{like.device}: move one of them with .to(...)"
        )


def check_count(name: str, value: Any, least: int) -> int:
    """A whole number that is large enough."""
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
    """Check shapes, types and devices; half precision becomes float32, here and nowhere else."""
    check_tensor("nodes", nodes)
    if nodes.dim() != 3:
        raise DataError(f"node scores must have shape (B, T, K), not {tuple(nodes.shape)}")
    if not nodes.is_floating_point():
        raise DataError(f"node scores must be floating-point numbers, not {nodes.dtype}")
    size, length, k = nodes.shape
    if k == 0:
        raise DataError("node scores of shape (B, T, 0): there must be at least one label")
    check_tensor("transitions", transitions, nodes)
    shapes = {(k, k), (size, max(length - 1, 0), k, k)}
    if tuple(transitions.shape) not in shapes:
        raise DataError(
            f"transitions must have shape (K, K) = {(k, k)} or (B, T - 1, K, K) = "
            f"{(size, max(length - 1, 0), k, k)}, not {tuple(transitions.shape)}"
        )
    for name, vector in (("begin", begin), ("end", end)):
        if vector is not None:
            check_tensor(name, vector, nodes)
            if vector.shape != (k,):
                raise DataError(f"{name} scores must have shape {(k,)}, not {tuple(vector.shape)}")
    if mask is not None:
        mask = _check_mask(mask, nodes)
    wide = torch.float64 if nodes.dtype == torch.float64 else torch.float32
    scores = Scores(nodes, transitions, begin, end, mask)
    return scores.each(lambda x: x if x.dtype == wide else x.to(wide))


def _check_mask(mask: Tensor, nodes: Tensor) -> Tensor:
    check_tensor("mask", mask, nodes)
    if mask.shape != nodes.shape[:2]:
        raise DataError(f"mask must have shape {tuple(nodes.shape[:2])}, not {tuple(mask.shape)}")
    if mask.dtype == torch.bool:
        return mask
    on = mask.bool()
    # A mask to be added to attention has 0 where this one has 1: better to wait for the GPU.
    if (
        mask.is_floating_point()
        and not _captured(mask)
        and not torch.equal(on.to(mask.dtype), mask)
    ):
        raise DataError(
            "mask must be 1 where there is a position and 0 where there is none, and it has other "
            "numbers (one that is added to scores, 0 and -inf, becomes mask == 0)"
        )
    return on


def without_ignored(tags: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask, less the positions whose tag is `IGNORED`; a GPU is not waited for."""
    if tags.device.type == "cpu" and not (tags.numel() and int(tags.min()) < 0):
        return mask
    known = tags != IGNORED
    return known if mask is None else known & mask.bool()


def check_examples(count: int) -> None:
    """Refuse the mean of nothing."""
    if count == 0:
        raise DataError(
            "the mean loss of an empty batch is no number: leave the batch out, or take "
            'reduction="sum", which is 0'
        )


def check_numbers(value: Tensor) -> None:
    """Refuse best scores that are no numbers, or those of labelings that cannot be."""
    wrong = value.isnan()
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0, 0])
        raise DataError(
            f"the scores of sequence {row} contain NaN: nothing is best (look at the "
            "emissions, or at the weights, which a step that diverged leaves so)"
        )
    never = value == -torch.inf
    if bool(never.any()):
        row = int(never.nonzero()[0, 0])
        raise DataError(
            f"sequence {row} has no possible labeling: emissions of -inf, or what is forbidden, "
            "leave none"
        )


def check_tags(scores: Scores, tags: Tensor) -> None:
    """Refuse tags of another shape, type or device."""
    check_tensor("tags", tags, scores.nodes)
    size, length = scores.nodes.shape[:2]
    if tags.shape != (size, length):
        raise DataError(
            f"tags must have the shape (B, T) = {(size, length)} of the node scores, not "
            f"{tuple(tags.shape)}"
        )
    if tags.dtype == torch.bool or tags.is_floating_point() or tags.is_complex():
        raise DataError(f"tags must be integers, not {tags.dtype}: take tags.long()")


def _refuse_tags(tags: Tensor, mask: Tensor | None, k: int, places: Places) -> None:
    """Name the first label that there is not; where there is no position any number will do."""
    bad = (tags < 0) | (tags >= k)
    bad = bad if mask is None else bad & mask
    if bool(bad.any()):
        row, at = bad.nonzero()[0].tolist()
        tag = int(tags[row, at])
        at = at if places.order is None else int(places.order[row, at])
        example = f" (mask=(tags != {tag}))" if tag < 0 else ""
        raise DataError(
            f"tags[{row}, {at}] = {tag}, but the labels are 0..{k - 1}; positions that do not "
            f"exist are told by the mask{example} or by tags of {IGNORED}"
        )


def path_score(scores: Scores, labels: Tensor) -> Tensor:
    """Score of one labeling per chain, shape (B,); differentiable, by lookups alone.

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
        # where, not a product: a score that does not count may be infinite
        zero = nodes.new_zeros(())
        total = torch.where(mask, picked, zero).sum(-1)
        total = total + torch.where(mask[:, 1:], steps, zero).sum(-1)
    if begin is not None:
        total = total + _where_any(mask, begin[labels[..., 0]])
    if end is not None:
        last = (scores.lengths() - 1).clamp(min=0).expand(labels.shape[:-1]).unsqueeze(-1)
        total = total + _where_any(mask, end[labels.gather(-1, last).squeeze(-1)])
    return total


def _where_any(mask: Tensor | None, value: Tensor) -> Tensor:
    """The value where the chain has a position at all."""
    return value if mask is None else torch.where(mask[:, 0], value, value.new_zeros(()))
