"""Packed files: gzip, xz and bzip2, known by their first bytes and named by their endings."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from cliquewise.errors import FormatError

CHUNK = 1 << 20
#: Files of text larger than this, packed or unpacked, are refused, whatever their format.
MAX_TEXT = 1 << 30
SUFFIXES = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2"}
_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}
_XZ_MEMORY = 1 << 30  # a damaged header may ask for more


def opened(path: str | Path) -> BufferedReader:
    """A file for reading; that it is not there, or may not be read, is a `FormatError`."""
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"cannot be opened: {reason}", path) from None


def bounded(pieces: Iterable[bytes], name: str | Path) -> Iterator[bytes]:
    """Pass on pieces of a file until there are too many."""
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_TEXT:
            raise FormatError(
                f"the file holds more than {MAX_TEXT >> 30} GiB of text, which is the limit; split "
                "it, or build the data from arrays",
                name,
            )
        yield piece


def packing_of(raw: Any) -> str:
    """How the content of a file at its start is packed; empty if it is not."""
    if isinstance(raw, BufferedReader):
        start = raw.peek(6)[:6]  # a pipe cannot go back
    else:
        start = raw.read(6)
        raw.seek(0)
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")


def unpacked(raw: IO[bytes], name: str | Path) -> Iterator[bytes]:
    """Yield the content in pieces of up to `CHUNK` bytes; damage and bombs are a `FormatError`."""
    return bounded(_unpacked(raw, name), name)


def _unpacked(raw: IO[bytes], name: str | Path) -> Iterator[bytes]:
    kind = ""
    try:
        kind = packing_of(raw)
        if kind == "xz":
            yield from _unpacked_xz(raw)
            return
        stream = _opened(raw, "rb", kind) if kind else raw
        while chunk := stream.read(CHUNK):
            yield chunk
    except EOFError:
        raise FormatError(
            f"the {kind} data ends early (truncated file): fetch it again", name
        ) from None
    except (OSError, zlib.error, ValueError) as error:
        raise FormatError(f"damaged {kind or 'file'}: {error}; fetch it again", name) from None


def _unpacked_xz(raw: IO[bytes]) -> Iterator[bytes]:
    from lzma import LZMADecompressor, LZMAError

    data = raw.read(CHUNK)
    while data:
        stream = LZMADecompressor(memlimit=_XZ_MEMORY)
        try:
            while not stream.eof:
                piece = stream.decompress(data, CHUNK)
                data = raw.read(CHUNK) if stream.needs_input else b""
                if stream.needs_input and not data:
                    raise EOFError
                yield piece
        except LZMAError as error:
            raise OSError(str(error)) from None
        data = stream.unused_data.lstrip(b"\0") or raw.read(CHUNK).lstrip(b"\0")


def _opened(file: Any, mode: Any, kind: str) -> Any:
    """A packed stream over a file; the libraries are imported only where they are needed."""
    if kind == "gzip":
        from gzip import GzipFile

        # without a name and a time, equal contents give equal files
        return GzipFile("", mode, fileobj=file, mtime=0)
    if kind == "xz":
        from lzma import LZMAFile

        return LZMAFile(file, mode)
    from bz2 import BZ2File

    return BZ2File(file, mode)


def packer(raw: IO[bytes], suffix: str) -> Any:
    """A stream that packs into an open file as the ending of its name says."""
    return _opened(raw, "wb", SUFFIXES[suffix]) if suffix in SUFFIXES else raw
