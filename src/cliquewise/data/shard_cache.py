"""Encoded sequences in a folder: arrays that are written once and read part by part."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.dataset import Dataset
from cliquewise.data.encode import FeatureEncoder
from cliquewise.data.formats.column_format import ColumnFormat
from cliquewise.data.labels import Labels
from cliquewise.data.shard_files import LOCK, MANIFEST, TYPES, VERSION, read_manifest, read_names
from cliquewise.data.shard_writer import Writer, digest_of, explained
from cliquewise.data.shards import Shards
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.errors import DataError, TooLargeError
from cliquewise.ragged import offsets_of

#: Tokens of a part that is looked at as a whole.
PART = 1 << 17


class ShardCache:
    """The encoded sequences of a source.

    Parameters
    ----------
    folder : path
    manifest : dict
        As read from the folder, and complete.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]):
        self.folder, self.manifest = folder, manifest
        self.encoder = _encoder(folder, manifest)
        order = np.argsort(_class_order(manifest["classes"]), kind="stable")
        self.labels = Labels([manifest["classes"][i] for i in order])
        self._renumbered = np.empty(len(order), dtype=np.int32)
        self._renumbered[order] = np.arange(len(order), dtype=np.int32)
        self.offsets = self._mapped("offsets")

    @property
    def n_examples(self) -> int:
        """Number of sequences."""
        return len(self.offsets) - 1

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return int(self.offsets[-1])

    @property
    def n_entries(self) -> int:
        """Number of attributes of all tokens."""
        return int(self.manifest["sizes"].get("indices", 0))

    @property
    def digest(self) -> str:
        """Return the identity of the data."""
        known = {k: self.manifest[k] for k in ("identity", "settings", "sizes", "first")}
        return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"ShardCache({self.n_examples} examples, {self.n_tokens} tokens)"

    def _has(self, name: str) -> bool:
        return bool(self.manifest["sizes"].get(name, 0) > 0)

    def _mapped(self, name: str) -> NDArray[Any]:
        size = self.manifest["sizes"].get(name, 0)
        if not size:
            return np.empty(0, dtype=TYPES[name])
        path = self.folder / self.manifest["files"].get(name, name)
        # Kernels are compiled for arrays that may be written to; nobody writes to these.
        return np.asarray(np.memmap(path, dtype=TYPES[name], mode="c", shape=(size,)))

    def __iter__(self) -> Iterator[Dataset]:
        """Yield all examples, in parts of about `PART` tokens."""
        marks = np.arange(0, self.n_tokens + PART, PART)
        cuts = np.unique(np.searchsorted(self.offsets, marks, side="left")).clip(0, self.n_examples)
        for first, last in pairwise(np.unique(np.append(cuts, (0, self.n_examples))).tolist()):
            yield self.part(first, last)

    def part(self, first: int, last: int) -> Dataset:
        """Return the examples ``first : last``; features are read from disk on access."""
        return self.read([(first, last)])

    def read(self, ranges: Sequence[tuple[int, int]]) -> Dataset:
        """Return the examples of some ranges, one after the other."""
        own = self._features("", self.encoder.n_features, ranges)
        edges, inner = None, self.encoder.inner
        if isinstance(inner, TemplateEncoder) and self._has("edge_indptr"):
            edges = Dataset.trusted(*self._features("edge_", inner.n_edge_features, ranges))
        tokens = [(int(self.offsets[a]), int(self.offsets[b])) for a, b in ranges]
        labels = self._renumbered[_joined(self._mapped("labels"), tokens)]
        weights = None
        if self._has("weights"):
            weights = np.array(_joined(self._mapped("weights"), ranges))
        return Dataset.trusted(*own, labels, None, weights, edges)

    def _features(
        self, kind: str, n_features: int, ranges: Sequence[tuple[int, int]]
    ) -> tuple[Any, ...]:
        tokens = [(int(self.offsets[a]), int(self.offsets[b])) for a, b in ranges]
        indptr = self._mapped(f"{kind}indptr")
        entries = [(int(indptr[a]), int(indptr[b])) for a, b in tokens]
        lengths = [np.diff(self.offsets[a : b + 1]) for a, b in ranges]
        counts = [np.diff(indptr[a : b + 1]) for a, b in tokens]
        values = None
        if kind == "" and self._has("values"):
            values = _joined(self._mapped("values"), entries)
        indices = _joined(self._mapped(f"{kind}indices"), entries)
        offsets = offsets_of(np.concatenate(lengths)), offsets_of(np.concatenate(counts))
        return *offsets, indices, values, n_features

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        sizes = self.manifest["sizes"]
        return sum(
            int(sizes.get(name, 0)) * np.dtype(kind).itemsize for name, kind in TYPES.items()
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, which also holds the dual variables, against other training runs."""
        with open(self.folder / LOCK, "ab") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # a system without such locks
                pass
            except OSError:
                raise DataError(
                    f"another training uses {self.folder}; wait until it ends, or encode into "
                    "another folder"
                ) from None
            yield

    def check_disk(self, needed: float, what: str) -> None:
        """Raise an error before writing if the disk has too little space."""
        stat = os.statvfs(self.folder)
        free = stat.f_bavail * stat.f_frsize
        if needed > free:
            raise TooLargeError(
                f"{what} take {needed / 2**30:.3g} GiB and the disk of {self.folder} has "
                f"{free / 2**30:.3g} GiB left; free some, or name a folder on a larger disk",
                needed,
            )


def open_cache(
    shards: Shards,
    template: Any,
    n_hash: int | None,
    min_count: int,
    max_bytes: float,
    progress: Callable[[int], None] | None = None,
) -> ShardCache:
    """Open the encoded form of a source, or encode it now.

    Parameters
    ----------
    shards : Shards
    template, n_hash, min_count
        As `SequenceEncoder` takes them.
    max_bytes : float
        What the dictionary of attributes may take.
    progress : callable, optional
        Called with the number of tokens that are encoded.
    """
    try:
        shards.cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the cache folder {shards.cache} cannot be made ({error})") from None
    settings = _settings(template, n_hash, min_count)
    manifest = read_manifest(shards.cache)
    if manifest is None:
        _refuse_foreign(shards.cache)
        manifest = {
            "cliquewise-shards": VERSION, "identity": shards.identity(), "settings": settings,
            "sizes": {}, "files": {}, "classes": [], "first": "", "names": 0, "edge_names": 0,
            "inner": None, "n_columns": None, "complete": False,
        }  # fmt: skip
    _check_same(shards, manifest, settings)
    if not manifest["complete"]:
        with explained(shards.cache):
            writer = Writer(shards, manifest, (template, n_hash), max_bytes)
            writer.write(min_count, progress)
    return ShardCache(shards.cache, manifest)


def _settings(template: Any, n_hash: int | None, min_count: int) -> list[Any]:
    known = template
    if template is not None:
        inner = SequenceEncoder(template, n_hash, min_count).inner
        assert isinstance(inner, TemplateEncoder)
        known = inner.template.to_state()
    return json.loads(json.dumps([known, n_hash, min_count]))  # type: ignore[no-any-return]


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds other files."""
    strange = next((p.name for p in folder.iterdir() if p.name not in TYPES and p.is_file()), None)
    if strange is not None and not strange.startswith(("names", "edge_names", f".{MANIFEST}")):
        raise DataError(
            f"the cache folder {folder} holds other files ({strange}); name an empty folder, or "
            "one that does not exist"
        )


def _check_same(shards: Shards, manifest: dict[str, Any], settings: list[Any]) -> None:
    """Raise an error if the cache was built from other data or with other settings."""
    identity = json.loads(json.dumps(shards.identity()))
    differs = None
    if manifest["identity"] != identity:
        differs = "of other files (or these have changed since)"
    elif manifest["settings"] != settings:
        differs = "with another template, n_hash or min_count"
    elif manifest["first"] and shards.make is not None:
        first = next(shards.blocks(), None)
        if first is None or digest_of(first) != manifest["first"]:
            differs = "of other sequences"
    if differs:
        raise DataError(
            f"the cache folder {shards.cache} holds arrays {differs}; name another folder, or "
            "delete this one"
        )


def _joined(array: NDArray[Any], ranges: Sequence[tuple[int, int]]) -> NDArray[Any]:
    """Return ranges of an array, joined; a single range is not copied."""
    parts = [array[a:b] for a, b in ranges]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _class_order(classes: list[Any]) -> NDArray[np.int64]:
    """Return the rank of each class, or its position if classes cannot be sorted."""
    order = list(range(len(classes)))
    with suppress(TypeError):
        order.sort(key=lambda i: classes[i])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place


def _encoder(folder: Path, manifest: dict[str, Any]) -> SequenceEncoder:
    """Return the encoder of the cache, for new sequences."""
    kind: Any = {"FeatureEncoder": FeatureEncoder, "TemplateEncoder": TemplateEncoder}
    state = {"vocabulary": None, "edge_vocabulary": None, **manifest["inner"]}
    state["min_count"] = manifest["settings"][2]
    if state.pop("named"):
        for name, target in (("names", "vocabulary"), ("edge_names", "edge_vocabulary")):
            path = folder / manifest["files"].get(name, name)
            state[target] = list(read_names(path, manifest[name]))
        state["n_features"] = len(state["vocabulary"])
    inner = kind[state["type"]].from_state(state)
    written = manifest.get("file_format")
    file_format = None if written is None else ColumnFormat.from_dict(written)
    return SequenceEncoder.from_fitted(inner, manifest["n_columns"], file_format)
