"""Encode a source into the files of a shard cache, block by block.

Attributes are numbered as they come, so that one pass over the source is enough; rare ones are left
out at the end.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.atomic_files import replace_file
from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.dataset import Dataset
from cliquewise.data.labels import Labels
from cliquewise.data.raw_features import RawFeatures
from cliquewise.data.shard_files import MANIFEST, POINTERS, TYPES, read_names, write_names
from cliquewise.data.shards import Block, Shards
from cliquewise.data.value_index import ValueIndex
from cliquewise.errors import DataError, TooLargeError

#: Bytes that a name takes in the dictionary of attributes, about.
NAME_BYTES = 200
#: Entries that are looked at together when rare attributes are left out.
CHUNK = 1 << 22


def digest_of(block: Block) -> str:
    """Return a digest of the labels, the lengths, and the first sequences of a block."""
    text = repr((block.y, [repr(x) for x in list(block.X)[:8]] if isinstance(block.X, list) else 0))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Explain errors of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise DataError(
            f"{folder}: the disk is full ({error.strerror}). What was encoded so far is kept: free "
            "some space and call again, or name a folder on a larger disk"
        ) from None


class Writer:
    """Appends blocks to a cache."""

    def __init__(self, shards: Shards, manifest: dict[str, Any], encoder: Any, max_bytes: float):
        self.shards, self.manifest, self.folder = shards, manifest, shards.cache
        self.template, self.n_hash = encoder
        self.max_bytes = max_bytes
        self.names, self.edge_names, self.classes = ValueIndex(), ValueIndex(), ValueIndex()
        self.classes.numbers(manifest["classes"])
        for name, index in (("names", self.names), ("edge_names", self.edge_names)):
            index.numbers(read_names(self.folder / name, manifest[name]))

    def write(self, min_count: int, progress: Callable[[int], None] | None) -> None:
        """Encode all missing blocks, then remove rare attributes."""
        self._truncate()
        done = max(self.manifest["sizes"].get("offsets", 0) - 1, 0)
        for block in self.shards.blocks(skip=done):
            self._append(block)
            if progress is not None:
                progress(self.manifest["sizes"].get("labels", 0))
        if not self.manifest["sizes"].get("labels", 0):
            raise DataError("the source holds no labeled tokens")
        if min_count > 1 and self.n_hash is None and self.manifest["names"]:
            self._without_rare("", "names", min_count)
            if self.manifest["edge_names"]:
                self._without_rare("edge_", "edge_names", min_count)
        self.manifest["complete"] = True
        self._commit()

    def _truncate(self) -> None:
        """Cut off what an interrupted block left behind."""
        for name, kind in TYPES.items():
            path = self.folder / name
            size = self.manifest["sizes"].get(name, 0) * np.dtype(kind).itemsize
            if path.exists() and path.stat().st_size > size:
                os.truncate(path, size)
        for name in ("names", "edge_names"):
            path, known = self.folder / name, self.manifest[name]
            if path.exists():
                write_names(path, list(read_names(path, known)), "w")

    def _commit(self) -> None:
        replace_file(self.folder / MANIFEST, json.dumps(self.manifest).encode())

    def _append(self, block: Block) -> None:
        encoder = SequenceEncoder(self.template, self.n_hash, 1)
        data = encoder.fit_transform(block.X)
        self._check_inner(encoder, data)
        own = encoder.inner.vocabulary
        edge_own = getattr(encoder.inner, "edge_vocabulary", None)
        labels = Labels.fit(block.y)
        numbers, partial = labels.encode(block.y, data.offsets)
        if partial is not None or (len(numbers) and numbers.min() < 0):
            raise DataError(
                "Shards need every label to be known; leave sequences with unknown labels out, or "
                "fit on lists"
            )
        arrays: dict[str, Any] = {
            "offsets": data.offsets, "indptr": data.indptr,
            "indices": self._merge(data.indices, own, "names", self.names),
            "labels": self.classes.numbers(labels.classes)[numbers],
        }  # fmt: skip
        if data.edges is not None:
            arrays["edge_indptr"] = data.edges.indptr
            indices = data.edges.indices
            arrays["edge_indices"] = self._merge(indices, edge_own, "edge_names", self.edge_names)
        sizes = self.manifest["sizes"]
        self._late("values", data.values, sizes.get("indices", 0), len(data.indices), arrays)
        self._late("weights", block.weights, sizes.get("offsets", 1) - 1, len(data), arrays)
        for name, target in POINTERS.items():  # go on where those of the last block ended
            if name in arrays and name in sizes:
                arrays[name] = sizes.get(target, 0) + arrays[name][1:]
        for name, array in arrays.items():
            self._add(name, array)
            sizes[name] = sizes.get(name, 0) + len(array)
        self.manifest["classes"] = list(self.classes)
        if not self.manifest["first"]:
            self.manifest["first"] = digest_of(block)
        self._commit()

    def _add(self, name: str, array: Any, file: str | None = None) -> None:
        with open(self.folder / (file or name), "ab") as target:
            np.ascontiguousarray(array, dtype=TYPES[name]).tofile(target)

    def _late(self, name: str, given: Any, before: int, count: int, arrays: dict[str, Any]) -> None:
        """Add values or weights that only some blocks have; the others get ones."""
        there = self.manifest["sizes"].get(name, 0)
        if given is None and not there:
            return
        ones = np.ones(before - there)
        arrays[name] = np.concatenate([ones, np.ones(count) if given is None else given])

    def _merge(
        self, indices: Any, own: list[str] | None, name: str, index: ValueIndex
    ) -> NDArray[np.int32]:
        """Number the attributes of a block among all; append new names to the file."""
        if own is None:
            return np.asarray(indices, dtype=np.int32)
        before = len(index)
        numbers = index.numbers(own)
        if len(index) * NAME_BYTES > self.max_bytes:
            raise TooLargeError(
                f"the dictionary of {len(index)} attributes takes more than the "
                f"{self.max_bytes / 2**30:.3g} GiB that max_memory leaves for it; raise "
                "max_memory, or hash attributes (n_hash)",
                len(index) * NAME_BYTES,
            )
        new = [n for n, number in zip(own, numbers.tolist(), strict=True) if number >= before]
        new.sort(key=index.__getitem__)
        write_names(self.folder / name, new, "a")
        self.manifest[name] = len(index)
        return numbers[indices]  # type: ignore[no-any-return]

    def _check_inner(self, encoder: SequenceEncoder, data: Dataset) -> None:
        """Raise an error unless all blocks are of one kind."""
        inner = encoder.inner
        state = {k: v for k, v in inner.to_state().items() if "vocabulary" not in k}
        if inner.vocabulary is not None:
            state.pop("n_features", None)
        kind = {"type": type(inner).__name__, "named": inner.vocabulary is not None}
        state = json.loads(json.dumps({**state, **kind}))
        known, columns = self.manifest["inner"], self.manifest["n_columns"]
        if known is not None and (known, columns) != (state, encoder.n_columns):
            raise DataError(
                "the sequences are not all of one kind: some blocks differ in their columns, their "
                "number of features, or in being names or numbers"
            )
        self.manifest["inner"], self.manifest["n_columns"] = state, encoder.n_columns
        if encoder.file_format is not None:
            self.manifest.setdefault("file_format", encoder.file_format.to_dict())

    def _without_rare(self, kind: str, names: str, min_count: int) -> None:
        """Remove attributes seen fewer than ``min_count`` times; write new files."""
        sizes, count = self.manifest["sizes"], self.manifest[names]
        indices = self._read(f"{kind}indices")
        seen = np.zeros(count, dtype=np.int64)
        for at in range(0, len(indices), CHUNK):
            seen += np.bincount(indices[at : at + CHUNK], minlength=count)
        keep = seen >= min_count
        new = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
        offsets = self._read(f"{kind}indptr")
        values = self._read("values") if kind == "" and sizes.get("values") else None
        files = [f"{kind}indptr", f"{kind}indices", *(["values"] if values is not None else [])]
        written = dict.fromkeys(files, 0)
        for name in files:
            (self.folder / f"{name}.kept").unlink(missing_ok=True)
        for a, b in _token_chunks(offsets):
            entries = slice(int(offsets[a]), int(offsets[b]))
            part = RawFeatures(
                np.array([0, b - a]), np.diff(offsets[a : b + 1]), new[indices[entries]],
                None if values is None else values[entries], int(keep.sum()),
            ).compact()  # fmt: skip
            full = np.ones(len(part.indices)) if part.values is None else part.values
            ends = part.indptr[1 if a else 0 :] + written[files[1]]
            kept: tuple[NDArray[Any], ...] = (ends, part.indices, full)
            for name, array in zip(files, kept):
                self._add(name, array, f"{name}.kept")
                written[name] += len(array)
        listed = [n for n, kept in zip(read_names(self.folder / names, count), keep) if kept]
        write_names(self.folder / f"{names}.kept", listed, "w")
        self.manifest["files"] |= {name: f"{name}.kept" for name in (*files, names)}
        sizes |= written
        self.manifest[names] = len(listed)

    def _read(self, name: str) -> NDArray[Any]:
        size = self.manifest["sizes"].get(name, 0)
        if not size:
            return np.empty(0, dtype=TYPES[name])
        return np.asarray(np.memmap(self.folder / name, dtype=TYPES[name], mode="r", shape=(size,)))


def _token_chunks(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of tokens with about `CHUNK` entries each."""
    a, n = 0, len(offsets) - 1
    while a < n:
        b = int(np.searchsorted(offsets, offsets[a] + CHUNK, side="right")) - 1
        b = min(max(b, a + 1), n)
        yield a, b
        a = b
