"""Saving and loading: one safetensors file, a versioned header, no code run on loading."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import DataError, FormatError
from cliquewise.ragged import offsets_of

#: Version of the file layout; files of a later version are refused. Models of version 1 lack the
#: trace and some parameters; they load without them. Up to version 2 the check sum is one of
#: cryptography, and chains hold their names as they are and their weights with zeros.
VERSION = 3
#: The one entry of the metadata: a check sum, then JSON. (Of several, the order would vary.)
_KEY, _SUM_LENGTH = "cliquewise", 32
#: Words of eight bytes whose sums make the check sum of an array: a prime number.
_APART = 1021
#: Types of numbers by their names in safetensors.
_KINDS = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4",
    "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip
#: Longest header, in characters: JSON takes many times its length when it is read.
_MOST_TEXT = 1 << 25


def write_arrays(path: str | Path, arrays: dict[str, NDArray[Any]], header: dict[str, Any]) -> None:
    """Write named arrays and a JSON header to one file, atomically.

    A reader sees the old file or the new one, never a part: the data go to a temporary
    file in the same folder, which then takes the name.

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


def replace_file(path: str | Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.resolve().parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_target(path: str | Path, what: str) -> None:
    """Refuse a path at which no file could be written, before hours of work depend on it.

    Parameters
    ----------
    path : path
    what : str
        What errors call the file.

    Raises
    ------
    FormatError

    Examples
    --------
    >>> check_target("no/such/folder/model.cw", "the model")
    Traceback (most recent call last):
    cliquewise.errors.FormatError: no/such/folder/model.cw: the model cannot be written there...
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder")
        # As it will be written; permissions alone know nothing of read-only file systems.
        with tempfile.TemporaryFile(dir=target.resolve().parent):
            pass
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FormatError(f"{what} cannot be written there ({reason})", path) from None


def _digest(text: str, arrays: dict[str, NDArray[Any]], version: Any) -> str:
    """A sum over the header and all arrays, so that no flipped bit goes unnoticed.

    It finds damage, not malice: whoever alters a file can make it anew. So it is to be fast.
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
    """Sums over words a prime number of places apart: ten times as fast as a CRC.

    Any change of one word changes its sum, and blocks that trade places change many: no disk has
    blocks of a multiple of this size.
    """
    data = array.reshape(-1).view(np.uint8)
    row = 8 * _APART
    whole = len(data) // row * row
    sums: NDArray[Any] = np.add.reduce(data[:whole].view("<u8").reshape(-1, _APART), axis=0)
    return b"".join([sums.tobytes(), data[whole:].tobytes()])


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_arrays(
    path: str | Path, *, mapped: bool = False
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read a file of :func:`write_arrays`: the arrays and the header.

    ``mapped``: arrays lie in the file itself, which nobody may change in place from then on
    (:func:`replace_file` does not).

    Raises
    ------
    FormatError
        If the file is damaged, foreign, or of a later version.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FormatError("no such file", path)
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            if _KEY not in metadata:
                raise FormatError("this is a safetensors file, but not one of cliquewise", path)
            digest, text = metadata[_KEY][:_SUM_LENGTH], metadata[_KEY][_SUM_LENGTH:]
            header = _header(text, path)
        arrays = _tensors(path, mapped)
    except FormatError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(
            _foreign(path) or f"damaged, or not a cliquewise file ({error})", path
        ) from error
    if digest != _digest(text, arrays, header["version"]):
        raise FormatError("damaged: its contents do not fit its check sum", path)
    return arrays, header


def _foreign(path: str | Path) -> str | None:
    """What a file is that cannot be read here, if its first bytes tell."""
    with suppress(OSError), open(path, "rb") as file:
        if file.read(2) in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            return (
                "not a cliquewise file, but a pickle: joblib.load or pickle.load opens it, if you "
                "trust it; cliquewise.load opens what save(path) has written"
            )
    return None


def _tensors(path: str | Path, mapped: bool) -> dict[str, NDArray[Any]]:
    """The arrays of a file that safetensors has found to be sound, as views of one buffer."""
    if mapped:  # of this process alone: whoever writes to an array gets a page of his own
        raw = np.asarray(np.memmap(path, dtype=np.uint8, mode="c"))
    else:
        raw = np.fromfile(path, dtype=np.uint8)
    start = 8 + int(raw[:8].view("<u8")[0])
    parts = json.loads(raw[8:start].tobytes())
    parts.pop("__metadata__", None)
    arrays = {}
    for name, part in parts.items():
        first, last = part["data_offsets"]
        data = raw[start + first : start + last].view(_KINDS[part["dtype"]])
        arrays[name] = (data if data.flags.aligned else data.copy()).reshape(part["shape"])
    return arrays


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
    """Strings as two arrays: their UTF-8 bytes and where each begins.

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
    """Back from :func:`pack_strings`."""
    data, offsets = arrays[f"{name}.bytes"].tobytes(), arrays[f"{name}.offsets"].tolist()
    if offsets[0] != 0 or offsets[-1] != len(data) or any(np.diff(offsets) < 0):
        raise FormatError(f"the names {name!r} are damaged")
    try:
        return [data[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(offsets)]
    except UnicodeDecodeError as error:
        raise FormatError(f"the names {name!r} are damaged") from error
