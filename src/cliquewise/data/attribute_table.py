"""AttributeTable: numbers of the attributes that a model knows, by hashing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.names import UTF8, Names, NamesIndex, table_size
from cliquewise.errors import DataError
from cliquewise.ragged import kernel_view, read_only

#: Separators of the joined strings that kernels read: after an attribute, and after a token.
UNIT, RECORD = "\x1f", "\x1e"
# An attribute that holds a separator gets a noncharacter of Unicode instead.
_ESCAPE = str.maketrans({UNIT: "\uffff", RECORD: "\ufffe"})
#: Number of strings (a few sentences) up to which the table of a model file stays packed.
FEW = 1 << 14


class AttributeTable:
    """Numbers of known attributes by a hash table, or of all attributes by hashing only.

    Strings are compared by a 64-bit hash. Two attributes of a vocabulary never share one (this
    is checked). An unseen attribute is taken for a known one with probability
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
        self._n_looked_up = 0
        # Names from a model file come with their table, which a few lookups need not unpack.
        self._packed = self._names.lookup if isinstance(self._names, Names) else None
        if self._packed is None:
            self.table  # noqa: B018  (fail early on duplicate attribute names)

    @cached_property
    def table(self) -> NDArray[np.uint64]:
        """Hashes, and numbers plus 1, by slot; model files hold it."""
        from cliquewise._kernels.common.attributes import build_table

        if self._packed is not None:
            return read_only(self._packed.table())
        names = self._names
        table = np.zeros((table_size(len(names)), 2), dtype=np.uint64)
        if len(names):
            joined = UNIT.join([*names, ""])
            if joined.count(UNIT) != len(names) or RECORD in joined:
                joined = UNIT.join([*(name.translate(_ESCAPE) for name in names), ""])
            if build_table(as_bytes(joined), len(names), table) != len(names):
                raise DataError("the vocabulary names an attribute twice")
        return read_only(table)

    def numbers(self, strings: Sequence[str]) -> NDArray[np.int32]:
        """Return the number of each string, -1 for unknown strings."""
        return self.numbers_of_tokens([strings], np.array([len(strings)]))

    def numbers_of_tokens(
        self, tokens: Sequence[Iterable[str]], lengths: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the numbers of the strings of all tokens; `TypeError` if one is not a string."""
        from cliquewise._kernels.common.attributes import look_up

        ids = np.empty(int(lengths.sum()), dtype=np.int32)
        packed = self._packed_for(len(ids))
        if packed is not None:
            strings = list(chain.from_iterable(tokens))
            joined = UNIT.join(strings)
            if joined.count(UNIT) >= max(len(strings), 1) or RECORD in joined:
                strings = [s.translate(_ESCAPE) for s in strings]
            return packed.find([s.encode(*UTF8) for s in strings])
        joined = RECORD.join([*map(UNIT.join, tokens), ""])
        if not look_up(as_bytes(joined), lengths, kernel_view(self.table), self.n_hash, ids):
            escaped = ([s.translate(_ESCAPE) for s in token] for token in tokens)
            joined = RECORD.join([*map(UNIT.join, escaped), ""])
            look_up(as_bytes(joined), lengths, kernel_view(self.table), self.n_hash, ids)
        return ids

    def numbers_of_pairs(self, keys: str, values: str, count: int) -> NDArray[np.int32] | None:
        """Return the numbers of ``key:value``, from `UNIT`-terminated keys and values.

        None if a key or a value holds a separator.
        """
        from cliquewise._kernels.common.attributes import look_up_pairs

        if any(text.count(UNIT) != count or RECORD in text for text in (keys, values)):
            return None
        ids = np.empty(count, dtype=np.int32)
        look_up_pairs(as_bytes(keys), as_bytes(values), kernel_view(self.table), self.n_hash, ids)
        return ids

    def _packed_for(self, count: int) -> NamesIndex | None:
        """Return the packed table while only few strings have been looked up; then None."""
        self._n_looked_up += count
        is_few = self._n_looked_up <= FEW and "table" not in self.__dict__
        return self._packed if is_few else None


def hash_table_of(names: Sequence[str]) -> NDArray[np.uint64] | None:
    """Return the hash table of names, for a file; None if hashes collide, or if it is packed."""
    if isinstance(names, Names):
        return None
    try:
        return AttributeTable(names).table
    except DataError:  # prediction raises the error
        return None


def as_bytes(text: str) -> NDArray[np.uint8]:
    """Return text as an array of UTF-8 bytes."""
    return np.frombuffer(text.encode(*UTF8), dtype=np.uint8)


def check_counts(n_hash: Any, min_count: Any) -> None:
    """Raise `DataError` for sizes that no encoder can have."""
    if n_hash is not None and not (isinstance(n_hash, Integral) and 0 < int(n_hash) < 2**31):
        raise DataError(f"n_hash={n_hash!r}; it must be between 1 and 2**31 - 1, or None")
    if not (isinstance(min_count, Integral) and int(min_count) >= 1):
        raise DataError(f"min_count={min_count!r}; it must be an integer of at least 1")
