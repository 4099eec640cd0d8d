"""Names of attributes in model files: packed, with their hash table, decoded on demand.

Prediction only needs the hash table. The strings are made when they are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import DataError, FormatError
from cliquewise.ragged import freeze_arrays, read_only

# The hash of ``_kernels.common.attributes``, which files depend on: FNV-1a, and the last step of
# MurmurHash3.
_START, _PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
_MIX, _SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(33)

#: Bits of a byte that are set.
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)

Arrays = dict[str, NDArray[Any]]

#: Encoding of names, for str.encode and bytes.decode.
UTF8 = ("utf-8", "surrogatepass")
#: Names that shrink more than this are stored uncompressed, so small files need little memory.
_MOST_SHRINKING = 100


def table_size(count: int) -> int:
    """Return the number of slots for ``count`` names: a power of two, at least twice as many."""
    return 1 << max(2 * count, 1).bit_length()


def hashes_of(strings: list[bytes]) -> NDArray[np.uint64]:
    """Compute the hashes of ``_kernels.common.attributes`` for a few strings, in NumPy."""
    out = np.empty(len(strings), dtype=np.uint64)
    lengths = np.array([len(s) for s in strings], dtype=np.int64)
    data = np.frombuffer(b"".join(strings) + b"\0", dtype=np.uint8).astype(np.uint64)
    order = np.argsort(-lengths, kind="stable")  # those that go on are the first ones
    starts, left = (np.cumsum(lengths) - lengths)[order], -lengths[order]
    hashes = np.full(len(strings), _START, dtype=np.uint64)
    for place in range(int(lengths.max(initial=0))):
        on = slice(0, int(np.searchsorted(left, -place)))
        hashes[on] = (hashes[on] ^ data[starts[on] + place]) * _PRIME
    hashes = (hashes ^ (hashes >> _SHIFT)) * _MIX
    out[order] = hashes ^ (hashes >> _SHIFT)
    return out


@dataclass(frozen=True)
class NamesIndex:
    """The used slots of a hash table, with their hashes and the numbers of their names."""

    slots: NDArray[np.uint8]  # a bit each
    hashes: NDArray[np.uint64]
    numbers: NDArray[np.int32]

    def __post_init__(self) -> None:
        self.__dict__.update(freeze_arrays(self.__dict__))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(freeze_arrays(state))

    def table(self) -> NDArray[np.uint64]:
        """Return the hash table that ``_kernels.common.attributes.build_table`` would fill."""
        size, count = table_size(len(self.numbers)), len(self.numbers)
        taken = np.flatnonzero(np.unpackbits(self.slots, count=size).view(np.bool_))
        if len(taken) != count or not self.is_sound(count):
            raise FormatError("the hash table of its names is damaged")
        table = np.zeros((size, 2), dtype=np.uint64)
        table[taken, 0] = self.hashes
        table[taken, 1] = self.numbers
        table[taken, 1] += np.uint64(1)
        return table

    @cached_property
    def _before(self) -> NDArray[np.int64]:
        """Number of used slots before each byte of slots."""
        counts = _ONES[self.slots]
        return read_only(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))

    def find(self, strings: list[bytes]) -> NDArray[np.int32]:
        """Return the numbers of a few names, -1 for unknown ones, without unpacking the table."""
        mask, count = table_size(len(self.numbers)) - 1, len(self.numbers)
        hashes = hashes_of(strings)
        found = np.full(len(strings), -1, dtype=np.int32)
        slots, asked = (hashes & np.uint64(mask)).astype(np.int64), np.arange(len(strings))
        while len(asked):
            byte, bit = self.slots[slots[asked] // 8].astype(np.int64), slots[asked] % 8
            taken = (byte >> (7 - bit)) & 1 == 1
            byte, bit, asked = byte[taken], bit[taken], asked[taken]
            rank = self._before[slots[asked] // 8] + _ONES[byte >> (8 - bit)]
            same = self.hashes[rank] == hashes[asked]
            found[asked[same]] = self.numbers[rank[same]]
            asked = asked[~same]
            slots[asked] = (slots[asked] + 1) & mask
        if found.min(initial=0) < -1 or found.max(initial=-1) >= count:  # changed under our hands
            raise FormatError("the hash table of its names is damaged")
        return found

    def is_sound(self, count: int) -> bool:
        """Return whether the table fits ``count`` names; kernels do not check it again."""
        kinds = [part.dtype.name for part in (self.slots, self.hashes, self.numbers)]
        if kinds != ["uint8", "uint64", "int32"] or self.numbers.shape != (count,):
            return False
        if self.hashes.shape != (count,) or self.slots.shape != (-(-table_size(count) // 8),):
            return False
        taken = int(_ONES[self.slots].sum(dtype=np.int64))
        in_range = self.numbers.min(initial=0) >= 0 and self.numbers.max(initial=-1) < count
        return taken == count and bool(in_range)


class Names(Sequence[str]):
    """A list of names that is decoded when one is read.

    Examples
    --------
    >>> names = unpack_names("words", pack_names("words", ["b", "é"]))
    >>> len(names), names[1], names == ["b", "é"]
    (2, 'é', True)
    """

    def __init__(self, arrays: Arrays, count: int, size: int, index: NamesIndex | None):
        self.arrays, self._count, self._size, self.lookup = arrays, count, size, index

    @cached_property
    def _decoded(self) -> list[str]:
        packed = self.arrays["names"].tobytes()
        whole, broken = 4 * self._count + self._size, FormatError("the names are damaged")
        reader = zlib.decompressobj()
        try:
            raw = reader.decompress(packed, whole + 1)
        except zlib.error as error:
            raise broken from error
        if len(raw) != whole:
            raise broken
        lengths = np.frombuffer(raw[: 4 * self._count], dtype="<u4").astype(np.int64)
        if int(lengths.sum()) != self._size:
            raise broken
        data = raw[4 * self._count :]
        ends = pairwise(accumulate(lengths.tolist(), initial=0))
        try:
            text = data.decode(*UTF8)
            if len(text) == len(data):  # a letter is a byte
                names = [text[a:b] for a, b in ends]
            else:
                names = [data[a:b].decode(*UTF8) for a, b in ends]
        except UnicodeDecodeError as error:
            raise broken from error
        if len(set(names)) < len(names):
            raise FormatError("the file names an attribute twice")
        return names

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._decoded[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return self._decoded == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Names of {len(self)} attributes"


def listed_names(names: Sequence[str] | None) -> list[str] | None:
    """Return names as a list; None for None."""
    return None if names is None else list(names)


def pack_names(part: str, names: Sequence[str], table: NDArray[np.uint64] | None = None) -> Arrays:
    """Pack names and their hash table (`AttributeTable.table`) into arrays."""
    if isinstance(names, Names):
        return {f"{part}.{kind}": array for kind, array in names.arrays.items()}
    encoded = [name.encode(*UTF8) for name in names]
    lengths, joined = np.array([len(e) for e in encoded], dtype="<u4"), b"".join(encoded)
    raw = lengths.tobytes() + joined
    packed = zlib.compress(raw)
    if len(raw) > _MOST_SHRINKING * len(packed):
        packed = zlib.compress(raw, 0)
    arrays = {
        f"{part}.names": np.frombuffer(packed, dtype=np.uint8),
        f"{part}.sizes": np.array([len(encoded), len(joined)]),
    }
    if table is not None:
        taken = table[:, 1] != 0
        arrays[f"{part}.slots"], arrays[f"{part}.hashes"] = np.packbits(taken), table[taken, 0]
        arrays[f"{part}.numbers"] = (table[taken, 1] - np.uint64(1)).astype(np.int32)
    return arrays


def unpack_names(part: str, arrays: Arrays) -> Names:
    """Unpack the arrays of :func:`pack_names`; check sizes now and names when they are read."""
    kinds = [k for k in ("names", "sizes", "slots", "hashes", "numbers") if f"{part}.{k}" in arrays]
    own = {kind: arrays[f"{part}.{kind}"] for kind in kinds}
    sizes = own["sizes"]
    if sizes.dtype != np.int64 or sizes.shape != (2,) or own["names"].dtype != np.uint8:
        raise DataError("its names are damaged")
    count, size = sizes.tolist()
    most = 2 * _MOST_SHRINKING * len(own["names"])
    if count < 0 or size < 0 or 4 * count + size > most or own["names"].ndim != 1:
        raise DataError("its names are damaged")
    index = None
    if "numbers" in own:
        index = NamesIndex(own["slots"], own["hashes"], own["numbers"])
        if not index.is_sound(count):
            raise DataError("the hash table of its names does not fit them")
    return Names(own, count, size, index)
