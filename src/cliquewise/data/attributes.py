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
from functools import cached_property
from itertools import chain, count, islice
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.blocks import PLAIN, RECORD, SETS, UNIT, Block, Parts, as_bytes, cut
from cliquewise.data.dataset import Dataset, token_place
from cliquewise.data.flatten import flatten_into, in_order
from cliquewise.data.names import UTF8, Names, NamesIndex, table_size
from cliquewise.data.token_items import ItemTables, encode_items
from cliquewise.data.unsorted_features import RawFeatures
from cliquewise.errors import DataError

# The separators themselves, should they occur in an attribute, become noncharacters of Unicode.
_ESCAPE = str.maketrans({UNIT: "\uffff", RECORD: "\ufffe"})
# Strings up to which the table of a model file is not unpacked: a few sentences.
FEW = 1 << 14
# What items raise that are not one attribute each.
_ODD = (TypeError, IndexError, OverflowError, DataError)


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
        self._names: Sequence[str] = [] if vocabulary is None else vocabulary
        self.n_hash = n_hash
        self.n_features = n_hash or len(self._names)
        self._items = ItemTables.make(self.numbers)
        self._asked = 0  # strings so far
        #: Names of a model file bring their table, which a few look-ups need not be unpacked for.
        self._index = self._names.lookup if isinstance(self._names, Names) else None
        if self._index is None:
            self.table  # noqa: B018  (whoever names an attribute twice is to hear of it now)

    @cached_property
    def table(self) -> NDArray[np.uint64]:
        """Hashes, and numbers plus 1, by slot; model files hold it."""
        from cliquewise._kernels.common.attributes import build_table

        if self._index is not None:
            return self._index.table()
        names = self._names
        table = np.zeros((table_size(len(names)), 2), dtype=np.uint64)
        if len(names):
            joined = UNIT.join([*names, ""])
            if joined.count(UNIT) != len(names) or RECORD in joined:
                joined = UNIT.join([*(name.translate(_ESCAPE) for name in names), ""])
            if build_table(as_bytes(joined), len(names), table) != len(names):
                raise DataError("the vocabulary names an attribute twice")
        return table

    def _few(self, count: int) -> NamesIndex | None:
        """What answers the first few questions; None once there are more."""
        self._asked += count
        return None if self._asked > FEW or "table" in self.__dict__ else self._index

    def numbers(self, strings: Sequence[str]) -> NDArray[np.int32]:
        """Return the number of each string, -1 where it is not known."""
        return self.encode_block(Block([strings], np.array([len(strings)]), None))

    def encode_items(self, tokens: list[Any]) -> Parts:
        """Number the items of dicts, or of pairs; `TypeError` if they need a closer look."""
        return encode_items(tokens, self._items, self.numbers, self._join)

    def _join(self, keys: str, values: str, count: int) -> NDArray[np.int32]:
        """The numbers of ``key:value``, from keys and values that end with a separator each."""
        from cliquewise._kernels.common.attributes import look_up_pairs

        for text in (keys, values):
            if text.count(UNIT) != count or RECORD in text:
                raise TypeError
        ids = np.empty(count, dtype=np.int32)
        look_up_pairs(as_bytes(keys), as_bytes(values), self.table, self.n_hash, ids)
        return ids

    def encode_block(self, block: Block) -> NDArray[np.int32]:
        """Return the numbers of all attributes of a block; `TypeError` if one is no string."""
        from cliquewise._kernels.common.attributes import look_up

        ids = np.empty(int(block.lengths.sum()), dtype=np.int32)
        index = self._few(len(ids))
        if index is not None:
            strings = list(chain.from_iterable(block.tokens))
            joined = UNIT.join(strings)
            if joined.count(UNIT) >= max(len(strings), 1) or RECORD in joined:
                strings = [s.translate(_ESCAPE) for s in strings]
            return index.find([s.encode(*UTF8) for s in strings])
        joined = RECORD.join([*map(UNIT.join, block.tokens), ""])
        if not look_up(as_bytes(joined), block.lengths, self.table, self.n_hash, ids):
            escaped = ([s.translate(_ESCAPE) for s in token] for token in block.tokens)
            joined = RECORD.join([*map(UNIT.join, escaped), ""])
            look_up(as_bytes(joined), block.lengths, self.table, self.n_hash, ids)
        return ids


def table_of(names: Sequence[str]) -> NDArray[np.uint64] | None:
    """The hash table of names, for a file; None if two look alike to it, or if they have theirs."""
    if isinstance(names, Names):
        return None
    try:
        return AttributeTable(names).table
    except DataError:  # whoever predicts will hear of it
        return None


def check_counts(n_hash: Any, min_count: Any) -> None:
    """Refuse sizes that no encoder can have."""
    if n_hash is not None and not (isinstance(n_hash, Integral) and 0 < int(n_hash) < 2**31):
        raise DataError(f"n_hash={n_hash!r}; it must be between 1 and 2**31 - 1, or None")
    if not (isinstance(min_count, Integral) and int(min_count) >= 1):
        raise DataError(f"min_count={min_count!r}; it must be a whole number, at least 1")


def encode_attributes(
    tokens: list[Any], offsets: NDArray[np.int64], table: AttributeTable
) -> RawFeatures:
    """Number the attributes of all tokens; those that are 0 may be left out."""
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
        return RawFeatures(offsets, block.lengths, ids, block.values, table.n_features)
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
            parts = encode_items(tokens, ItemTables.make(index.numbers, zeros=True), index.numbers)
            if not all(isinstance(name, str) for name in index):
                raise TypeError
        except _ODD:
            index = FirstSight()
            blocks = _general_blocks(tokens, offsets)
            parts = [(index.numbers(chain.from_iterable(b.tokens)), b) for b in blocks]
    ids, names = _flat(parts), [str(name) for name in index]
    ids, names = without_rare(ids, names, min_count, _lengths(parts))
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
    ids: NDArray[np.int32],
    names: list[str],
    min_count: int,
    lengths: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int32], list[str]]:
    """Drop the names of fewer than `min_count` tokens; their numbers become -1.

    ``lengths`` says how many of the numbers are of each token, if one may have a name twice.

    Examples
    --------
    >>> without_rare(np.array([0, 1, 1, -1]), ["a", "b"], 2)
    (array([-1,  0,  0, -1], dtype=int32), ['b'])
    """
    if min_count <= 1:
        return ids, names
    seen = ids
    if lengths is not None:
        tokens = np.repeat(np.arange(len(lengths)), lengths)
        seen = ids[np.unique(tokens * (len(names) + 1) + ids, return_index=True)[1]]
    keep = np.bincount(seen[seen >= 0], minlength=len(names)) >= min_count
    new = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1).astype(np.int32)
    return new[ids], [name for name, kept in zip(names, keep.tolist()) if kept]


def _lengths(parts: Parts) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(block.lengths for _, block in parts)])


def _flat(parts: Parts) -> NDArray[np.int32]:
    return np.concatenate([np.empty(0, np.int32), *(ids for ids, _ in parts)])


def _assemble(
    parts: Parts, ids: NDArray[np.int32], offsets: NDArray[np.int64], n_features: int
) -> RawFeatures:
    lengths = _lengths(parts)
    values = None
    if any(block.values is not None for _, block in parts):
        values = np.concatenate(
            [np.ones(len(i)) if b.values is None else b.values for i, b in parts]
        )
    return RawFeatures(offsets, lengths, ids, values, n_features)


def _plain_blocks(tokens: list[Any]) -> Iterator[Block]:
    """Blocks of tokens that are lists or sets (of strings, it is hoped); else `TypeError`."""
    kinds = set(map(type, tokens))
    first = chain.from_iterable(tokens[:1])
    if not PLAIN.issuperset(kinds) or not all(isinstance(item, str) for item in first):
        raise TypeError
    for part in cut(tokens):
        if not SETS.isdisjoint(kinds):
            part = [in_order(token) for token in part]
        yield Block(part, np.fromiter(map(len, part), np.int64, len(part)), None)


def _general_blocks(tokens: list[Any], offsets: NDArray[np.int64]) -> Iterator[Block]:
    """Blocks of tokens of any kind, read one by one."""
    numbered = enumerate(tokens)
    for part in cut(tokens):
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
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        yield Block(strings, lengths, None if (array == 1.0).all() else array)
