"""Tokens that are dicts or lists of pairs to numbers of attributes, without a function per item."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.blocks import BLOCK, PLAIN, SETS, UNIT, Block, Parts, cut
from cliquewise.data.flatten import flatten_token
from cliquewise.data.items import Items, Number
from cliquewise.data.matrices import first_beyond

#: Numbers of attributes from keys and values, each joined, and how many there are.
Join = Callable[[str, str, int], NDArray[np.int32]]
#: What stands for 1 and for 0 among joined strings, if none of these holds it.
MARKS: dict[Any, Any] = {1: "\x02", 0: "\x03"}
_NUMBERS = {float, int, bool, np.float64, np.float32}


def encode_items(
    tokens: list[Any], items: ItemTables, number: Number, join: Join | None = None
) -> Parts:
    """Number the items of tokens that are all dicts, or all lists of pairs; else `TypeError`.

    Few tokens are joined: what they hold may be new. In many, the same items come again and again.
    """
    kinds = set(map(type, tokens))
    few = len(tokens) <= BLOCK
    if kinds != {dict}:
        if not PLAIN.issuperset(kinds) or not SETS.isdisjoint(kinds):
            raise TypeError
        if few or not {0, 1}.issuperset(map(itemgetter(1), tokens[0])):
            return [_encode_pairs(part, number) for part in cut(tokens)]
        return [_encode_known(tokens, tokens, items.entries)]
    if _are_numbers(tokens[0].values()):
        with suppress(TypeError):
            return [_encode_numbers(part, number) for part in cut(tokens)]
    if few and join is not None:
        with suppress(TypeError):
            return [_encode_joined(tokens, join)]
    return [_encode_known(tokens, map(dict.items, tokens), items.pairs)]


class ItemTables(NamedTuple):
    """What is known of the items of dicts, and of those of lists."""

    pairs: Items
    entries: Items

    @classmethod
    def make(cls, number: Number, zeros: bool = False) -> ItemTables:
        """Empty ones."""
        return cls(Items(rendered, number, zeros), Items(_rendered_entry, number, zeros))


def _encode_known(
    tokens: list[Any], items: Iterable[Iterable[Any]], table: Items
) -> tuple[NDArray[np.int32], Block]:
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    ids, values = table.encode(chain.from_iterable(items), int(lengths.sum()))
    return ids, Block((), lengths, values)


def _encode_joined(tokens: list[Any], join: Join) -> tuple[NDArray[np.int32], Block]:
    """Of dicts of strings, and of numbers that are 0 or 1, which marks stand for."""
    values = list(chain.from_iterable(map(dict.values, tokens)))
    strings = list(map(type, values)).count(str)
    texts: Iterable[Any] = values if strings == len(values) else map(MARKS.get, values, values)
    keys = UNIT.join(chain(chain.from_iterable(tokens), ("",)))
    joined = UNIT.join(chain(texts, ("",)))
    marks = sum(map(joined.count, MARKS.values()))
    if marks != len(values) - strings:  # a string holds one
        raise TypeError
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    return join(keys, joined, len(values)), Block((), lengths, None)


def _encode_pairs(tokens: list[Any], number: Number) -> tuple[NDArray[np.int32], Block]:
    """Of lists of pairs (name, number)."""
    names: list[Any] = []
    values: list[Any] = []
    try:
        for token in filter(None, tokens):
            some, numbers = zip(*token, strict=True)
            names += some
            values += numbers
    except ValueError:
        raise TypeError from None
    return _numbered(tokens, names, values, number)


def _encode_numbers(tokens: list[Any], number: Number) -> tuple[NDArray[np.int32], Block]:
    """Of dicts of numbers alone."""
    names, values = chain.from_iterable(tokens), chain.from_iterable(map(dict.values, tokens))
    return _numbered(tokens, list(names), list(values), number)


def _numbered(
    tokens: list[Any], names: list[Any], values: list[Any], number: Number
) -> tuple[NDArray[np.int32], Block]:
    if not _are_numbers(values):
        raise TypeError
    numbers = np.fromiter(values, np.float64, len(values))
    if first_beyond(numbers) is not None:
        raise TypeError
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    return number(names), Block((), lengths, None if (numbers == 1.0).all() else numbers)


def _are_numbers(values: Iterable[Any]) -> bool:
    return set(map(type, values)) <= _NUMBERS


def rendered(pair: Any) -> tuple[str, float]:
    """Name and value of one item of a dict; `TypeError` if these are several."""
    key, value = pair
    if type(key) is str and type(value) is str:  # by far the most frequent case
        return f"{key}:{value}", 1.0
    names, values = flatten_token({key: value})
    if len(names) != 1:
        raise TypeError
    return names[0], values[0]


def _rendered_entry(entry: Any) -> tuple[str, float]:
    """The same of one item of a list."""
    if type(entry) is tuple and len(entry) == 2 and type(entry[0]) is str and entry[1] == 1.0:
        return entry[0], 1.0
    (name,), (value,) = flatten_token([entry])
    return name, value
