"""Attributes of tokens, as strings with values, and their numbers.

A token is a dict, a list, tuple or set of strings, or a list of (string, number) pairs. The names
are python-crfsuite's, so a feature function written for it gives the same attributes here:

======================  ===========================  =================
in a dict               attributes                   values
======================  ===========================  =================
``"k": "v"``            ``k:v``                      1
``"k": 2.5``            ``k``                        2.5
``"k": True``           ``k``                        1 (False: 0)
``"k": ["a", "b"]``     ``k:a``, ``k:b`` (sets too)  1
``"k": {"s": ...}``     ``k:`` + those of the dict   those of the dict
======================  ===========================  =================

Each of the `METHODS` numbers all tokens of one shape without a Python function call per item.
`flatten_token` handles all shapes, one token at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.attribute_table import UNIT, AttributeTable
from cliquewise.data.dataset import Dataset, token_place
from cliquewise.data.flatten import flatten_into, flatten_token, in_order
from cliquewise.data.item_cache import ItemCache, NotOneAttribute
from cliquewise.data.matrices import first_beyond
from cliquewise.data.raw_features import RawFeatures
from cliquewise.data.value_index import ValueIndex, drop_rare
from cliquewise.errors import DataError

#: Tokens encoded at once: their strings fit into the processor's cache.
BATCH = 1024
_LISTS, _SETS = {list, tuple}, {set, frozenset}
_NUMBERS = {float, int, bool, np.float64, np.float32}
#: Characters that stand for the values 1 and 0 among joined strings, if no string contains them.
_MARKS: dict[Any, Any] = {1: "\x02", 0: "\x03"}


class Encoded(NamedTuple):
    """Numbers of the attributes of some tokens, and their values; None if all are 1."""

    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]
    values: NDArray[np.float64] | None


class Numbering(Protocol):
    """Numbers names: those that a model knows, or new ones in order of their first occurrence."""

    pairs: ItemCache  # items of dicts
    entries: ItemCache  # items of lists

    def of_names(self, names: list[Any]) -> NDArray[np.int32]:
        """Return the numbers of names; -1 for unknown names."""

    def of_tokens(
        self, tokens: Sequence[Iterable[str]], lengths: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the numbers of the names of all tokens; `TypeError` if one is not a string."""

    def of_joined(self, keys: str, values: str, count: int) -> NDArray[np.int32] | None:
        """Return the numbers of ``key:value`` from joined keys and values; None if impossible."""

    def has_only_strings(self) -> bool:
        """Return whether all names so far are strings."""

    def reset(self) -> None:
        """Forget the names of an attempt that failed."""


class KnownAttributes:
    """Numbers of the attributes of a table, for prediction."""

    def __init__(self, table: AttributeTable):
        self.table = table
        self.pairs, self.entries = ItemCache(render_pair), ItemCache(render_entry)

    def of_names(self, names: list[Any]) -> NDArray[np.int32]:
        """Return the numbers of names; -1 for unknown names."""
        return self.table.numbers(names)

    def of_tokens(
        self, tokens: Sequence[Iterable[str]], lengths: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the numbers of the names of all tokens; `TypeError` if one is not a string."""
        return self.table.numbers_of_tokens(tokens, lengths)

    def of_joined(self, keys: str, values: str, count: int) -> NDArray[np.int32] | None:
        """Return the numbers of ``key:value``; None if a string contains a separator."""
        return self.table.numbers_of_pairs(keys, values, count)

    def has_only_strings(self) -> bool:
        """Return True: looking up anything else raises `TypeError`."""
        return True

    def reset(self) -> None:
        """Do nothing: looking up a name does not change the table."""


class NewAttributes:
    """Numbers of attributes in order of their first occurrence, for fitting."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all names."""
        self.index = ValueIndex()
        self.pairs, self.entries = ItemCache(render_pair, True), ItemCache(render_entry, True)

    def of_names(self, names: list[Any]) -> NDArray[np.int32]:
        """Return the numbers of names."""
        return self.index.numbers(names)

    def of_tokens(
        self, tokens: Sequence[Iterable[str]], lengths: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the numbers of the names of all tokens."""
        return self.index.numbers(chain.from_iterable(tokens))

    def of_joined(self, keys: str, values: str, count: int) -> None:
        """Return None: only known names can be looked up without making their strings."""

    def has_only_strings(self) -> bool:
        """Return whether all names so far are strings."""
        return all(isinstance(name, str) for name in self.index)


def encode_tokens(
    tokens: list[Any], offsets: NDArray[np.int64], known: KnownAttributes
) -> RawFeatures:
    """Return the known attributes of all tokens; attributes with the value 0 may be left out."""
    return _assemble(_number_all(tokens, offsets, known), offsets, known.table.n_features)


def learn_tokens(
    tokens: list[Any], offsets: NDArray[np.int64], min_count: int = 1
) -> tuple[Dataset, list[str]]:
    """Number the attributes of all tokens in order of first occurrence; return names as well."""
    new = NewAttributes()
    raw = _assemble(_number_all(tokens, offsets, new), offsets, 0)
    names = [str(name) for name in new.index]
    raw.indices, names = drop_rare(raw.indices, names, min_count, raw.lengths)
    raw.n_features = len(names)
    return raw.compact(), names


def _number_all(
    tokens: list[Any], offsets: NDArray[np.int64], numbering: Numbering
) -> list[Encoded]:
    """Number all tokens by the first method that handles their shape."""
    for method in METHODS:
        parts = method(tokens, numbering)
        if parts is not None and numbering.has_only_strings():
            return parts
        numbering.reset()
    return _number_any(tokens, offsets, numbering)


# ---- one method per shape of tokens; None means that the tokens have another shape


def _number_strings(tokens: list[Any], numbering: Numbering) -> list[Encoded] | None:
    """Number tokens that are lists or sets of strings."""
    kinds = set(map(type, tokens))
    if not kinds <= _LISTS | _SETS or not all(isinstance(s, str) for s in chain(*tokens[:1])):
        return None
    parts = []
    for part in _batches(tokens):
        if not _SETS.isdisjoint(kinds):
            part = [in_order(token) for token in part]
        lengths = _lengths(part)
        try:  # joining strings is the fastest test of their types
            ids = numbering.of_tokens(part, lengths)
        except TypeError:
            return None
        parts.append(Encoded(ids, lengths, None))
    return parts


def _number_pairs(tokens: list[Any], numbering: Numbering) -> list[Encoded] | None:
    """Number tokens that are lists of (name, number)."""
    if not set(map(type, tokens)) <= _LISTS:
        return None
    if len(tokens) > BATCH and _has_flags(tokens[0]):  # few distinct items: cache them
        return _number_items(tokens, tokens, numbering.entries, numbering)
    parts = []
    for part in _batches(tokens):
        names: list[Any] = []
        values: list[Any] = []
        try:
            for token in filter(None, part):
                own_names, own_values = zip(*token, strict=True)
                names += own_names
                values += own_values
        except (TypeError, ValueError):  # not pairs
            return None
        encoded = _number_values(part, names, values, numbering)
        if encoded is None:
            return None
        parts.append(encoded)
    return parts


def _number_numeric_dicts(tokens: list[Any], numbering: Numbering) -> list[Encoded] | None:
    """Number tokens that are dicts of numbers."""
    if set(map(type, tokens)) != {dict} or not _are_numbers(tokens[0].values()):
        return None
    parts = []
    for part in _batches(tokens):
        names = list(chain.from_iterable(part))
        values = list(chain.from_iterable(map(dict.values, part)))
        encoded = _number_values(part, names, values, numbering)
        if encoded is None:
            return None
        parts.append(encoded)
    return parts


def _number_joined_dicts(tokens: list[Any], numbering: Numbering) -> list[Encoded] | None:
    """Number a few tokens that are dicts of strings and of the numbers 0 and 1.

    The items of few tokens are often new, so joining them is faster than caching each one.
    """
    if len(tokens) > BATCH or set(map(type, tokens)) != {dict}:
        return None
    values = list(chain.from_iterable(map(dict.values, tokens)))
    n_strings = list(map(type, values)).count(str)
    try:
        texts: Iterable[Any] = values
        if n_strings < len(values):
            texts = map(_MARKS.get, values, values)
        keys = UNIT.join(chain(chain.from_iterable(tokens), ("",)))
        joined = UNIT.join(chain(texts, ("",)))
    except TypeError:  # another kind of value, or a key that is not a string
        return None
    if sum(map(joined.count, _MARKS.values())) != len(values) - n_strings:
        return None  # a string contains a mark
    ids = numbering.of_joined(keys, joined, len(values))
    return None if ids is None else [Encoded(ids, _lengths(tokens), None)]


def _number_dicts(tokens: list[Any], numbering: Numbering) -> list[Encoded] | None:
    """Number tokens that are dicts, each item of which is one attribute."""
    if set(map(type, tokens)) != {dict}:
        return None
    return _number_items(tokens, map(dict.items, tokens), numbering.pairs, numbering)


#: Methods for one shape of tokens each, in the order in which they are tried.
METHODS: tuple[Callable[[list[Any], Numbering], list[Encoded] | None], ...] = (
    _number_strings,
    _number_pairs,
    _number_numeric_dicts,
    _number_joined_dicts,
    _number_dicts,
)


def _number_any(
    tokens: list[Any], offsets: NDArray[np.int64], numbering: Numbering
) -> list[Encoded]:
    """Number tokens of all shapes, one by one."""
    parts = []
    numbered = enumerate(tokens)
    for part in _batches(tokens):
        strings: list[list[str]] = []
        values: list[float] = []
        for number, token in islice(numbered, len(part)):
            names: list[str] = []
            try:
                flatten_into(token, names, values)
            except DataError as error:
                raise DataError(f"{token_place(offsets, number)}: {error}") from None
            strings.append(names)
        array = np.array(values, dtype=np.float64)
        lengths = _lengths(strings)
        ids = numbering.of_tokens(strings, lengths)
        parts.append(Encoded(ids, lengths, None if (array == 1.0).all() else array))
    return parts


# ---- parts


def _number_items(
    tokens: list[Any], items: Iterable[Iterable[Any]], cache: ItemCache, numbering: Numbering
) -> list[Encoded] | None:
    lengths = _lengths(tokens)
    flat = chain.from_iterable(items)
    encoded = cache.encode(flat, int(lengths.sum()), numbering.of_names)
    return None if encoded is None else [Encoded(encoded[0], lengths, encoded[1])]


def _number_values(
    tokens: list[Any], names: list[Any], values: list[Any], numbering: Numbering
) -> Encoded | None:
    """Number names with numeric values; None if a value is no number, or a name no string."""
    if not _are_numbers(values):
        return None
    try:
        numbers = np.fromiter(values, np.float64, len(values))
        ids = numbering.of_names(names)
    except (TypeError, OverflowError):
        return None
    if first_beyond(numbers) is not None:
        return None
    return Encoded(ids, _lengths(tokens), None if (numbers == 1.0).all() else numbers)


def render_pair(pair: Any) -> tuple[str, float]:
    """Return name and value of one item of a dict."""
    key, value = pair
    if type(key) is str and type(value) is str:  # by far the most frequent case
        return f"{key}:{value}", 1.0
    names, values = flatten_token({key: value})
    if len(names) != 1:
        raise NotOneAttribute
    return names[0], values[0]


def render_entry(entry: Any) -> tuple[str, float]:
    """Return name and value of one item of a list."""
    if type(entry) is tuple and len(entry) == 2 and type(entry[0]) is str and entry[1] == 1.0:
        return entry[0], 1.0
    (name,), (value,) = flatten_token([entry])
    return name, value


def _batches(tokens: list[Any]) -> Iterator[list[Any]]:
    return (tokens[start : start + BATCH] for start in range(0, len(tokens), BATCH))


def _lengths(tokens: Sequence[Any]) -> NDArray[np.int64]:
    return np.fromiter(map(len, tokens), np.int64, len(tokens))


def _are_numbers(values: Iterable[Any]) -> bool:
    return set(map(type, values)) <= _NUMBERS


def _has_flags(token: Sequence[Any]) -> bool:
    """Return whether the items of a token are pairs with the values 0 and 1 only."""
    return all(
        type(item) is tuple and len(item) == 2 and type(item[1]) in _NUMBERS and item[1] in (0, 1)
        for item in token
    )


def _assemble(parts: list[Encoded], offsets: NDArray[np.int64], n_features: int) -> RawFeatures:
    if len(parts) == 1:
        return RawFeatures(offsets, parts[0].lengths, parts[0].ids, parts[0].values, n_features)
    values = None
    if any(part.values is not None for part in parts):
        ones = (np.ones(len(part.ids)) if part.values is None else part.values for part in parts)
        values = np.concatenate([*ones])
    lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
    ids = np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)])
    return RawFeatures(offsets, lengths, ids, values, n_features)
