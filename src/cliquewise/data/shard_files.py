"""The files of a shard cache: flat arrays, names of attributes, and a manifest.

The manifest says how much of each file counts. Blocks are appended to the files and then entered in
it, and it is replaced as a whole: whatever lies beyond it is what an interruption left behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.errors import FormatError

MANIFEST, LOCK, VERSION = "manifest.json", "lock", 1
#: Files by what is in them: of tokens, and of pairs of tokens where a template has such rules.
TYPES: dict[str, type] = {
    "offsets": np.int64, "indptr": np.int64, "indices": np.int32, "values": np.float64,
    "labels": np.int32, "weights": np.float64, "edge_indptr": np.int64, "edge_indices": np.int32,
}  # fmt: skip
#: Arrays of places, each in another array.
POINTERS = {"offsets": "labels", "indptr": "indices", "edge_indptr": "edge_indices"}


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder; None without one."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        manifest = json.loads(path.read_text("utf-8"))
        if manifest["cliquewise-shards"] != VERSION:
            raise FormatError("it is of another version; delete the folder", path)
        sizes = {name: int(size) for name, size in manifest["sizes"].items()}
        files = {name: Path(file).name for name, file in manifest["files"].items()}
        manifest |= {"sizes": sizes, "files": files}
        for name, size in sizes.items():
            needed = size * np.dtype(TYPES[name]).itemsize
            file = folder / files.get(name, name)
            if size < 0 or file.stat().st_size < needed:
                raise FormatError(f"{file.name} is shorter than it says; delete the folder", path)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"it is damaged ({error}); delete the folder", path) from None
    return manifest  # type: ignore[no-any-return]


def write_names(path: Path, names: list[str], mode: str) -> None:
    """Write names, one JSON string per line."""
    if names or mode == "w":
        with open(path, mode, encoding="ascii", newline="\n") as file:
            file.writelines(json.dumps(name) + "\n" for name in names)


def read_names(path: Path, count: int) -> Iterator[str]:
    """Yield the first names of a file."""
    if not count:
        return
    with open(path, encoding="ascii") as file:
        for _, line in zip(range(count), file):
            yield json.loads(line)
