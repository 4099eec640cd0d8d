"""Parsing of tag names and forbidden tags from users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cliquewise.errors import DataError


def label_names(labels: Sequence[str] | Mapping[int, str]) -> list[str]:
    """Return the names of the tags in order.

    Examples
    --------
    >>> label_names({1: "B-PER", 0: "O"})
    ['O', 'B-PER']
    """
    if isinstance(labels, (int, str, set, frozenset)):
        raise DataError(f"labels must be a list of the names of all tags, not {labels!r:.80}")
    if not isinstance(labels, Mapping):
        return list(labels)
    if set(labels) != set(range(len(labels))):
        raise DataError(
            f"the keys of labels must be the numbers 0..{len(labels) - 1}, as in a config's "
            f"id2label, not {list(labels)!r:.80}"
        )
    return [labels[tag] for tag in range(len(labels))]


def parse_tag_mask(name: str, tags: Any, k: int) -> Tensor | None:
    """Return forbidden tags, a mask or a list of tags, as a mask."""
    if tags is None:
        return None
    given = torch.as_tensor(tags)
    if given.dtype == torch.bool and given.shape == (k,):
        return given
    whole = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
    if given.numel() and (given.dim() != 1 or not whole):
        raise DataError(f"{name} must have shape {(k,)} and be of bool, or be a list of tags")
    if bool(((given < 0) | (given >= k)).any()):
        raise DataError(f"{name} contains an unknown tag; the tags are 0..{k - 1}")
    mask = torch.zeros(k, dtype=torch.bool, device=given.device)
    mask[given.long()] = True
    return mask


def parse_transition_mask(forbidden: Any, k: int) -> Tensor | None:
    """Return forbidden transitions, a mask or pairs of tags, as a mask."""
    if forbidden is None:
        return None
    try:
        given = torch.as_tensor(forbidden)
    except (TypeError, ValueError, RuntimeError):
        given = torch.empty(())
    if given.dtype == torch.bool and given.shape == (k, k):
        return given
    mask = torch.zeros(k, k, dtype=torch.bool, device=given.device)
    if given.shape == (0,):
        return mask
    whole = not (given.is_floating_point() or given.is_complex() or given.dtype == torch.bool)
    if not whole or given.dim() != 2 or given.shape[1] != 2:
        raise DataError(
            f"forbidden must have shape {(k, k)} and be of bool, or be a list of pairs (tag, next "
            "tag)"
        )
    if bool(((given < 0) | (given >= k)).any()):
        raise DataError(f"forbidden contains an unknown tag; the tags are 0..{k - 1}")
    mask[given[:, 0].long(), given[:, 1].long()] = True
    return mask
