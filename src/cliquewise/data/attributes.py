"""Attributes: named features of a token, as strings with values.

A token is a dict, a list / tuple / set of strings, or a list of (string, number) pairs. The
names are python-crfsuite's, so that a feature function written for it gives the same
attributes here:

======================  ===========================  =================
in a dict               attributes                   values
======================  ===========================  =================
``"k": "v"``            ``k:v``                      1
``"k": 2.5``            ``k``                        2.5
``"k": True``           ``k``                        1 (False: 0)
``"k": ["a", "b"]``     ``k:a``, ``k:b`` (sets too)  1
``"k": {"s": ...}``     ``k:`` + those of the dict   those of the dict
======================  ===========================  =================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from numbers import Integral, Real
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import Dataset, token_place
from cliquewise.data.entries import Entries
from cliquewise.data.items import Items, Number
from cliquewise.data.matrices import LARGEST, first_beyond, remedy
from cliquewise.errors import DataError

BLOCK = 1024  # tokens that are encoded at once: their strings stay in the processor's cache

_UNIT, _RECORD = "\x1f", "\x1e"
# The separators themselves, should they occur in an attribute, become noncharacters of Unicode.
_ESCAPE = str.maketrans({_UNIT: "\uffff", _RECORD: "\ufffe"})
_PLAIN = {list, tuple, set, frozenset}
_SETS = {set, frozenset}
_NUMBERS = {float, int, bool, np.float64, np.float32}
_ODD = (TypeError, OverflowError, DataError)  # what items raise that are not one attribute each


@dataclass
class Block:
    """Some tokens as lists of attribute strings, with values unless all are 1."""

    tokens: Sequence[Iterable[str]]
    lengths: NDArray[np.int64]
    values: NDArray[np.float64] | None


Parts = list[tuple[NDArray[np.int32], Block]]  # numbers of attributes, and the tokens they are of


class AttributeTable:
    """Numbers of known attributes by a hash table; or of all attributes by hashing alone.

    Strings are compared by a 64-bit hash. Two attributes of a vocabulary never share one (that
    is checked); an attribute never seen before is taken for a known one with probability
    ``len(vocabulary) / 2**64``.

    Parameters
    ----------
    vocabulary : sequence of str, or None
        Attribute ``vocabulary[j]`` gets number ``j``.
    n_hash : int, default=0
        If positive, an attribute's number is its hash modulo `n_hash`.

    Examples
    --------
    >>> AttributeTable(["a", "b"]).numbers(["b", "c"])
    array([ 1, -1], dtype=int32)
    """

    def __init__(self, vocabulary: Sequence[str] | None, n_hash: int = 0):
        from cliquewise._kernels.common.attributes import build_table

        names = [] if vocabulary is None else vocabulary
        self.n_hash = n_hash
        self.n_features = n_hash or len(names)
        size = 1 << max(2 * len(names), 1).bit_length()
        self._table = np.zeros((size, 2), dtype=np.uint64)
        self._items = item_tables(self.numbers)
        if names:
            joined = _UNIT.join([*names, ""])
            if joined.count(_UNIT) != len(names) or _RECORD in joined:
                joined = _UNIT.join([*(name.translate(_ESCAPE) for name in names), ""])
            if build_table(_bytes(joined), len(names), self._table) != len(names):
                raise DataError("the vocabulary names an attribute twice")

    def numbers(self, strings: Sequence[str]) -> NDArray[np.int32]:
        """Return the number of each string, -1 where it is not known."""
        return self.encode_block(Block([strings], np.array([len(strings)]), None))

    def encode_items(self, tokens: list[Any]) -> Parts:
        """Number the items of dicts, or of lists; `TypeError` if they need a closer look."""
        return _encode_items(tokens, *self._items)

    def encode_block(self, block: Block) -> NDArray[np.int32]:
        """Return the numbers of all attributes of a block; `TypeError` if one is no string."""
        from cliquewise._kernels.common.attributes import look_up

        ids = np.empty(int(block.lengths.sum()), dtype=np.int32)
        joined = _RECORD.join([*map(_UNIT.join, block.tokens), ""])
        if not look_up(_bytes(joined), block.lengths, self._table, self.n_hash, ids):
            escaped = ([s.translate(_ESCAPE) for s in token] for token in block.tokens)
            joined = _RECORD.join([*map(_UNIT.join, escaped), ""])
            look_up(_bytes(joined), block.lengths, self._table, self.n_hash, ids)
        return ids


def check_counts(n_hash: Any, min_count: Any) -> None:
    """Refuse sizes that no encoder can have."""
    if n_hash is not None and not (isinstance(n_hash, Integral) and 0 < int(n_hash) < 2**31):
        raise DataError(f"n_hash={n_hash!r}; it must be between 1 and 2**31 - 1, or None")
    if not (isinstance(min_count, Integral) and int(min_count) >= 1):
        raise DataError(f"min_count={min_count!r}; it must be a whole number, at least 1")


def encode_attributes(
    tokens: list[Any], offsets: NDArray[np.int64], table: AttributeTable
) -> Entries:
    """Number the attributes of all tokens."""
    parts: Parts
    try:
        parts = [(table.encode_block(b), b) for b in _plain_blocks(tokens)]
    except TypeError:
        try:
            parts = table.encode_items(tokens)
        except _ODD:
            parts = [(table.encode_block(b), b) for b in _general_blocks(tokens, offsets)]
    if len(parts) == 1:
        ((ids, block),) = parts
        return Entries(offsets, block.lengths, ids, block.values, table.n_features)
    return _assemble(parts, _flat(parts), offsets, table.n_features)


def learn_attributes(
    tokens: list[Any], offsets: NDArray[np.int64], min_count: int = 1
) -> tuple[Dataset, list[str]]:
    """Number all attributes of all tokens in order of first sight; return the names too."""
    index = FirstSight()
    try:
        parts = [(index.numbers(chain.from_iterable(b.tokens)), b) for b in _plain_blocks(tokens)]
        if not all(isinstance(name, str) for name in index):
            raise TypeError
    except TypeError:
        index = FirstSight()
        try:
            parts = _encode_items(tokens, *item_tables(index.numbers))
        except _ODD:
            index = FirstSight()
            blocks = _general_blocks(tokens, offsets)
            parts = [(index.numbers(chain.from_iterable(b.tokens)), b) for b in blocks]
    ids, names = without_rare(_flat(parts), [str(name) for name in index], min_count)
    return _assemble(parts, ids, offsets, len(names)).compact(), names


class FirstSight(defaultdict[Any, int]):
    """Numbers values in the order in which they are first seen.

    Examples
    --------
    >>> FirstSight().numbers(["b", "a", "b"])
    array([0, 1, 0], dtype=int32)
    """

    def __init__(self) -> None:
        super().__init__(count().__next__)

    def numbers(self, values: Iterable[Any]) -> NDArray[np.int32]:
        """Return the number of each value."""
        return np.fromiter(map(self.__getitem__, values), np.int32)


def without_rare(
    ids: NDArray[np.int32], names: list[str], min_count: int
) -> tuple[NDArray[np.int32], list[str]]:
    """Drop the names seen fewer than `min_count` times; their numbers become -1.

    Examples
    --------
    >>> without_rare(np.array([0, 1, 1, -1]), ["a", "b"], 2)
    (array([-1,  0,  0, -1], dtype=int32), ['b'])
    """
    if min_count <= 1:
        return ids, names
    keep = np.bincount(ids[ids >= 0], minlength=len(names)) >= min_count
    new = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1).astype(np.int32)
    return new[ids], [name for name, kept in zip(names, keep.tolist()) if kept]


def _flat(parts: Parts) -> NDArray[np.int32]:
    return np.concatenate([np.empty(0, np.int32), *(ids for ids, _ in parts)])


def _assemble(
    parts: Parts, ids: NDArray[np.int32], offsets: NDArray[np.int64], n_features: int
) -> Entries:
    lengths = np.concatenate([np.empty(0, np.int64), *(block.lengths for _, block in parts)])
    values = None
    if any(block.values is not None for _, block in parts):
        values = np.concatenate(
            [np.ones(len(i)) if b.values is None else b.values for i, b in parts]
        )
    return Entries(offsets, lengths, ids, values, n_features)


def _bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)


def _plain_blocks(tokens: list[Any]) -> Iterator[Block]:
    """Blocks of tokens that are lists or sets (of strings, it is hoped); else `TypeError`."""
    kinds = set(map(type, tokens))
    first = chain.from_iterable(tokens[:1])
    if not _PLAIN.issuperset(kinds) or not all(isinstance(item, str) for item in first):
        raise TypeError
    for start in range(0, len(tokens), BLOCK):
        part = tokens[start : start + BLOCK]
        if not _SETS.isdisjoint(kinds):
            part = [in_order(token) for token in part]
        yield Block(part, np.fromiter(map(len, part), np.int64, len(part)), None)


def item_tables(number: Number) -> tuple[Items, Items, Items]:
    """Tables of the pairs of dicts, of the entries of lists, and of names that have numbers."""
    return (
        Items(lambda pair: flatten_token(dict([pair])), number),
        Items(lambda entry: flatten_token([entry]), number),
        Items(lambda name: ([_text(name)], [1.0]), number),
    )


def _encode_items(tokens: list[Any], of_dicts: Items, of_lists: Items, of_names: Items) -> Parts:
    """Number the items of tokens that are all dicts, or all lists of strings and pairs."""
    kinds = set(map(type, tokens))
    if kinds != {dict} and not _PLAIN.issuperset(kinds):
        raise TypeError
    if not _SETS.isdisjoint(kinds):
        tokens = [in_order(token) for token in tokens]
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    count = int(lengths.sum())
    found = None
    if kinds == {dict}:
        if _has_numbers(tokens[0].values()):
            numbers = list(chain.from_iterable(map(dict.values, tokens)))
            found = _numbers(chain.from_iterable(tokens), numbers, count, of_names)
        items, table = chain.from_iterable(map(dict.items, tokens)), of_dicts
    else:
        items, table = chain.from_iterable(tokens), of_lists
        if all(type(item) is tuple and _has_numbers(item[1:]) for item in tokens[0]):
            found = _number_pairs(list(items), count, of_names)
            items = chain.from_iterable(tokens)
    ids, values = table.encode(items, count) if found is None else found
    return [(ids, Block(tokens, lengths, values))]


def _has_numbers(values: Iterable[Any]) -> bool:
    """Whether all are numbers, and some other than 0 and 1 (which are items like strings)."""
    given = list(values)
    return _NUMBERS.issuperset(map(type, given)) and not {0, 1}.issuperset(given)


def _number_pairs(pairs: list[Any], count: int, table: Items) -> Any:
    if set(map(type, pairs)) != {tuple} or set(map(len, pairs)) != {2}:
        return None
    return _numbers(map(itemgetter(0), pairs), list(map(itemgetter(1), pairs)), count, table)


def _numbers(names: Iterable[Any], values: list[Any], count: int, table: Items) -> Any:
    """Numbers of names and their values as they are; None if some value is no number."""
    if not _NUMBERS.issuperset(map(type, values)):
        return None
    numbers = np.fromiter(values, np.float64, count)
    if first_beyond(numbers) is not None:
        return None
    return table.encode(names, count)[0], numbers


def _general_blocks(tokens: list[Any], offsets: NDArray[np.int64]) -> Iterator[Block]:
    """Blocks of tokens of any kind, read one by one."""
    for start in range(0, len(tokens), BLOCK):
        strings: list[list[str]] = []
        values: list[float] = []
        for number, token in enumerate(tokens[start : start + BLOCK], start):
            names: list[str] = []
            try:
                _flatten(token, names, values)
            except DataError as error:
                raise DataError(f"{token_place(offsets, number)}: {error}") from None
            strings.append(names)
        array = np.array(values, dtype=np.float64)
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        yield Block(strings, lengths, None if (array == 1.0).all() else array)


def in_order(token: Any) -> Any:
    """A set's items sorted: its own order changes with every process. Others as they are.

    Examples
    --------
    >>> in_order({"b", "a"}), in_order(["b", "a"])
    (['a', 'b'], ['b', 'a'])
    """
    if not isinstance(token, (set, frozenset)):
        return token
    try:
        return sorted(token)
    except TypeError:
        return sorted(token, key=repr)


def flatten_token(token: Any) -> tuple[list[str], list[float]]:
    """Return the attributes of one token and their values.

    Examples
    --------
    >>> flatten_token({"word": "Rome", "length": 4, "in": ["places", "names"]})
    (['word:Rome', 'length', 'in:places', 'in:names'], [1.0, 4.0, 1.0, 1.0])
    """
    names: list[str] = []
    values: list[float] = []
    _flatten(token, names, values)
    return names, values


def _flatten(token: Any, names: list[str], values: list[float]) -> None:
    if isinstance(token, dict):
        for key, value in token.items():
            if type(key) is str and type(value) is str:  # by far the most frequent case
                names.append(f"{key}:{value}")
                values.append(1.0)
            else:
                _flatten_value(_text(key), value, names, values)
    elif isinstance(token, (list, tuple, set, frozenset)):
        for item in in_order(token):
            if type(item) is str:
                names.append(item)
                values.append(1.0)
            elif isinstance(item, tuple) and len(item) == 2:
                names.append(_text(item[0]))
                values.append(_number(item[0], item[1]))
            else:
                names.append(_text(item))
                values.append(1.0)
    else:
        raise DataError(_not_a_token(token))


def _flatten_value(key: str, value: Any, names: list[str], values: list[float]) -> None:
    if isinstance(value, (str, bytes)):
        names.append(f"{key}:{_text(value)}")
        values.append(1.0)
    elif isinstance(value, (dict, list, set, frozenset)):
        start = len(names)
        _flatten(value, names, values)
        names[start:] = [f"{key}:{name}" for name in names[start:]]
    else:
        names.append(key)
        values.append(_number(key, value))


def _text(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    if isinstance(key, bytes):
        try:
            return key.decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"the attribute {key!r} is not UTF-8; decode it first") from None
    raise DataError(f"an attribute must be a string, not {type(key).__name__} {key!r:.80}")


def _number(key: Any, value: Any) -> float:
    if isinstance(value, (Real, np.bool_)):
        try:
            number = float(value)
        except OverflowError:
            number = np.inf
        if not -LARGEST <= number <= LARGEST:
            raise DataError(f"attribute {key!r} is {number}; {remedy(number)}")
        return number
    raise DataError(
        f"attribute {key!r} has a value of type {type(value).__name__}; "
        "a value is a number, a bool, a string, a list or set of strings, or a dict of these"
    )


def _not_a_token(token: Any) -> str:
    if isinstance(token, (str, bytes)):
        return (
            f"the token is the string {token!r:.80}; give a list of attributes, [{token!r:.80}], "
            "or a dict"
        )
    remedy = "give a dict, a list of strings, or a 2-D array for the whole sequence"
    return f"a token cannot be a {type(token).__name__}; {remedy}"
