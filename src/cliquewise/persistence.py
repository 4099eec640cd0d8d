"""Model files: safetensors with a versioned JSON header. Loading runs no code."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cliquewise.atomic_files import replace_file
from cliquewise.errors import DataError, FormatError
from cliquewise.ragged import offsets_of

#: Version of the file layout. Files of a later version are refused. Version 1 has no trace and
#: fewer parameters. Up to version 2 the checksum is a cryptographic hash, and chain models store
#: names uncompressed and all weights, including zeros.
VERSION = 3
#: The only entry of the metadata: a checksum, then JSON. The order of several entries would vary.
_KEY, _SUM_LENGTH = "cliquewise", 32
#: The checksum of an array adds up 8-byte words this far apart. It is a prime number.
_APART = 1021
#: NumPy types by their names in safetensors.
_KINDS = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4",
    "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip
#: Longest header in characters. Parsed JSON takes many times the memory of its text.
_MOST_TEXT = 1 << 25
#: Longest header in bytes: a character takes at most six in JSON.
_MOST_BYTES = 6 * _MOST_TEXT + (1 << 20)


def write_arrays(path: str | Path, arrays: dict[str, NDArray[Any]], header: dict[str, Any]) -> None:
    """Write named arrays and a JSON header to one file, atomically.

    Equal arrays and headers give equal bytes. See :func:`cliquewise.atomic_files.replace_file`.

    Examples
    --------
    >>> import numpy as np, tempfile, os
    >>> p = os.path.join(tempfile.mkdtemp(), "a.cw")
    >>> write_arrays(p, {"x": np.arange(3)}, {"kind": "test"})
    >>> read_arrays(p)[0]["x"]
    array([0, 1, 2])
    """
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header = {"version": VERSION, **header}
    text = json.dumps(header)
    if len(text) > _MOST_TEXT:
        raise DataError("the names of classes and features are too long to be saved")
    replace_file(
        path, save(arrays, metadata={_KEY: _digest(text, arrays, header["version"]) + text})
    )


def _digest(text: str, arrays: dict[str, NDArray[Any]], version: Any) -> str:
    """Return a checksum of the header and all arrays.

    It detects damage, not manipulation: anyone who can modify the file can also recompute the
    checksum. It is chosen for speed.
    """
    quick = isinstance(version, int) and version >= 3
    total = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        if quick and array.size:
            total.update(_sums(array))
        else:
            total.update(array.tobytes() if array.size == 0 else array.data)
    return total.hexdigest()


def _sums(array: NDArray[Any]) -> bytes:
    """Return sums of words that are a prime number of positions apart.

    This is ten times faster than a CRC. Every change of a single word changes a sum. Exchanged
    blocks change many sums, because no disk has blocks of a multiple of this size.
    """
    data = array.reshape(-1).view(np.uint8)
    row = 8 * _APART
    whole = len(data) // row * row
    sums: NDArray[Any] = np.add.reduce(data[:whole].view("<u8").reshape(-1, _APART), axis=0)
    return b"".join([sums.tobytes(), data[whole:].tobytes()])


def read_arrays(
    path: str | Path, *, mapped: bool = False
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the header of a file that :func:`write_arrays` wrote.

    The file is opened once, so another process may replace it at the same time.

    Parameters
    ----------
    path : path
    mapped : bool, default=False
        Map the file into memory instead of reading it. It must then not be modified in place
        (:func:`~cliquewise.atomic_files.replace_file` does not).

    Raises
    ------
    FormatError
        If the file is damaged, foreign, or of a later version.
    """
    if not Path(path).is_file():
        raise FormatError("no such file", path)
    try:
        with open(path, "rb") as file:  # once: another process may replace it at any time
            raw = _content(file, mapped)
        arrays, metadata = _tensors(raw)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(
            _foreign(path) or f"damaged, or not a cliquewise file ({error})", path
        ) from error
    if _KEY not in metadata:
        raise FormatError("this is a safetensors file, but not one of cliquewise", path)
    digest, text = metadata[_KEY][:_SUM_LENGTH], metadata[_KEY][_SUM_LENGTH:]
    header = _header(text, path)
    if digest != _digest(text, arrays, header["version"]):
        raise FormatError("damaged: its contents do not match its checksum", path)
    return arrays, header


def _foreign(path: str | Path) -> str | None:
    """Describe a file of another kind, if its first bytes identify it."""
    with suppress(OSError), open(path, "rb") as file:
        start = file.read(4)
        if start == b"lCRF":
            return (
                "not a cliquewise file, but a CRFsuite model: train a SequenceTagger on the same "
                "data, or open the model with pycrfsuite.Tagger"
            )
        if start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            return (
                "not a cliquewise file, but a pickle: open it with joblib.load or pickle.load if "
                "you trust it; cliquewise.load opens files that save(path) wrote"
            )
    return None


def _content(file: BinaryIO, mapped: bool) -> NDArray[np.uint8]:
    """Return the bytes of an open file, in memory or mapped copy-on-write."""
    if mapped and os.fstat(file.fileno()).st_size:
        return np.asarray(np.memmap(file, dtype=np.uint8, mode="c"))
    return np.fromfile(file, dtype=np.uint8)


def _tensors(raw: NDArray[np.uint8]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays of a safetensors file as views, and its metadata.

    Raises
    ------
    ValueError, TypeError, KeyError
        If the file is not valid: the arrays must cover the bytes after the header, in order and
        without gaps.
    """
    length = int(raw[:8].view("<u8")[0]) if len(raw) >= 8 else -1
    if not 0 < length <= min(len(raw) - 8, _MOST_BYTES):
        raise ValueError("the header is cut off")
    parts = json.loads(raw[8 : 8 + length].tobytes())
    metadata = parts.pop("__metadata__", {})
    if not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata are not strings")
    data, arrays, end = raw[8 + length :], {}, 0
    for name, part in sorted(parts.items(), key=lambda item: item[1]["data_offsets"]):
        dtype = np.dtype(_KINDS[part["dtype"]])
        first, last = part["data_offsets"]
        shape = part["shape"]
        if not all(type(n) is int and n >= 0 for n in (first, last, *shape)):
            raise ValueError(f"the sizes of {name!r:.40} are not integers")
        if first != end or last > len(data) or last - first != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"the size of {name!r:.40} does not match its bytes")
        cells = data[first:last].view(dtype)
        arrays[name] = (cells if cells.flags.aligned else cells.copy()).reshape(shape)
        end = last
    if end != len(data):
        raise ValueError("bytes follow the last array")
    return arrays, metadata


def _header(text: str, path: str | Path) -> dict[str, Any]:
    if len(text) > _MOST_TEXT:
        raise FormatError("damaged: the header is too long", path)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"damaged: the header is not JSON ({error})", path) from error
    version = header.get("version") if isinstance(header, dict) else None
    if not isinstance(version, int) or version > VERSION:
        raise FormatError(
            f"the file has version {version}, this library reads up to {VERSION}; "
            "update cliquewise",
            path,
        )
    return header  # type: ignore[no-any-return]


# ---- names


def pack_strings(name: str, strings: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return strings as two arrays: their UTF-8 bytes, and the offset of each string.

    Examples
    --------
    >>> unpack_strings("names", pack_strings("names", ["a", "bc"]))
    ['a', 'bc']
    """
    encoded = [s.encode("utf-8", "surrogatepass") for s in strings]
    offsets = offsets_of([len(e) for e in encoded])
    return {
        f"{name}.bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8).copy(),
        f"{name}.offsets": offsets.astype(np.int64),
    }


def unpack_strings(name: str, arrays: dict[str, NDArray[Any]]) -> list[str]:
    """Return the strings that :func:`pack_strings` packed."""
    data, offsets = arrays[f"{name}.bytes"].tobytes(), arrays[f"{name}.offsets"].tolist()
    if offsets[0] != 0 or offsets[-1] != len(data) or any(np.diff(offsets) < 0):
        raise FormatError(f"the names {name!r} are damaged")
    try:
        return [data[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(offsets)]
    except UnicodeDecodeError as error:
        raise FormatError(f"the names {name!r} are damaged") from error
