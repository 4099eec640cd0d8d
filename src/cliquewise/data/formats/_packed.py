"""Compressed files: gzip, xz and bzip2, recognized by their first bytes."""

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
#: A compressed file may expand to `FREE_BYTES`; beyond them to this many times its size. Text
#: expands less than 30 times; only files made to exhaust memory expand more than 500 times.
MAX_EXPANSION = 500
FREE_BYTES = 1 << 26
_XZ_MEMORY = 1 << 30  # a damaged header may ask for more


def opened(path: str | Path) -> BufferedReader:
    """Open a file for reading; raise `FormatError` if it is missing or not readable."""
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"cannot be opened: {reason}", path) from None


def bounded(pieces: Iterable[bytes], name: str | Path) -> Iterator[bytes]:
    """Pass on pieces of a file, up to `MAX_TEXT` bytes."""
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
    """Return the compression of a file at its start; an empty string without one."""
    if isinstance(raw, BufferedReader):
        start = raw.peek(6)[:6]  # a pipe cannot go back
    else:
        start = raw.read(6)
        raw.seek(0)
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")


def unpacked(raw: IO[bytes], name: str | Path) -> Iterator[bytes]:
    """Yield the content in pieces of up to `CHUNK` bytes; refuse damaged and expanding files."""
    return bounded(_unpacked(raw, name), name)


def _unpacked(raw: IO[bytes], name: str | Path) -> Iterator[bytes]:
    kind = ""
    try:
        kind = packing_of(raw)
        if kind == "xz":
            yield from _plausible(_unpacked_xz(raw), raw, name)
        elif kind:
            stream = _opened(raw, "rb", kind)
            yield from _plausible(iter(lambda: stream.read(CHUNK), b""), raw, name)
        else:
            yield from iter(lambda: raw.read(CHUNK), b"")
    except EOFError:
        raise FormatError(
            f"the {kind} data ends early (truncated file): fetch it again", name
        ) from None
    except (OSError, zlib.error, ValueError) as error:
        raise FormatError(f"damaged {kind or 'file'}: {error}; fetch it again", name) from None


def _plausible(pieces: Iterable[bytes], raw: IO[bytes], name: str | Path) -> Iterator[bytes]:
    """Pass on unpacked pieces until they are implausibly many for the bytes that were read."""
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > FREE_BYTES and raw.seekable() and total > MAX_EXPANSION * raw.tell():
            raise FormatError(
                f"the compressed file expands more than {MAX_EXPANSION} times, as no text does; "
                "unpack it first if you trust it",
                name,
            )
        yield piece


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
    """Return a compressing or expanding stream over a file; imports only the library needed."""
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
    """Return a stream that compresses into an open file, by the suffix of its name."""
    return _opened(raw, "wb", SUFFIXES[suffix]) if suffix in SUFFIXES else raw
