"""Blocks of tokens, and their strings joined for the kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1024  # tokens that are encoded at once: their strings stay in the processor's cache
UNIT, RECORD = "\x1f", "\x1e"
PLAIN = {list, tuple, set, frozenset}
SETS = {set, frozenset}


@dataclass
class Block:
    """Some tokens as lists of attribute strings, with values unless all are 1."""

    tokens: Sequence[Iterable[str]]
    lengths: NDArray[np.int64]
    values: NDArray[np.float64] | None


Parts = list[tuple[NDArray[np.int32], Block]]  # numbers of attributes, and the tokens they are of


def cut(tokens: list[Any]) -> Iterator[list[Any]]:
    """The tokens of each block."""
    return (tokens[start : start + BLOCK] for start in range(0, len(tokens), BLOCK))


def as_bytes(text: str) -> NDArray[np.uint8]:
    """UTF-8, as an array."""
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
