"""Lines of text files: decompressed, decoded, counted, with errors that name the place."""

from __future__ import annotations

import codecs
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cliquewise.errors import FormatError

Progress = Callable[[int, int], None]

CHUNK = 1 << 20
_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}
_SUFFIX = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2"}


def read_lines(
    path: str | Path, encoding: str = "utf-8", progress: Progress | None = None
) -> Iterator[list[str]]:
    """Yield the lines of a file in large groups, without their ends.

    gzip, xz and bzip2 are recognized by their first bytes. Only ``\\n`` (with ``\\r`` before
    it or not) ends a line: other separators of Unicode may be part of a word.

    Parameters
    ----------
    path : str or Path
        File to read, in one pass.
    encoding : str, default="utf-8"
        How characters are written; a byte order mark is skipped.
    progress : callable, optional
        Called as ``progress(bytes_done, bytes_total)``, in bytes of the file as it is on disk.
    """
    path = Path(path)
    with _open_raw(path) as raw:
        total = os.fstat(raw.fileno()).st_size
        decoded = _decode(_chunks(raw, path), path, encoding)
        rest = ""
        for text in decoded:
            lines = (rest + text).split("\n")
            rest = lines.pop()
            yield _strip_returns(lines)
            if progress is not None:
                progress(min(raw.tell(), total), total)
        if rest:
            yield _strip_returns([rest])
        if progress is not None:
            progress(total, total)


def _strip_returns(lines: list[str]) -> list[str]:
    if any("\r" in line for line in lines):
        return [line.removesuffix("\r") for line in lines]
    return lines


@contextmanager
def _open_raw(path: Path) -> Iterator[IO[bytes]]:
    try:
        raw = path.open("rb")
    except OSError as error:
        raise FormatError(f"cannot be opened: {error.strerror}", path) from error
    with raw:
        yield raw


def _chunks(raw: IO[bytes], path: Path) -> Iterator[bytes]:
    """Decompressed bytes in chunks."""
    start = raw.read(6)
    raw.seek(0)
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), "")
    if not kind and path.suffix in _SUFFIX and start:
        expected = _SUFFIX[path.suffix]
        raise FormatError(
            f"the name says {expected} but the content is not; rename it or fetch it again", path
        )
    stream = _decompressor(raw, kind)
    try:
        while chunk := stream.read(CHUNK):
            yield chunk
    except EOFError:
        raise FormatError(
            f"the {kind} data ends early (truncated file): fetch it again", path
        ) from None
    except (OSError, zlib.error, ValueError) as error:
        raise FormatError(f"damaged {kind or 'file'}: {error}; fetch it again", path) from None
    except Exception as error:  # lzma.LZMAError, without importing lzma for every file
        if type(error).__name__ != "LZMAError":
            raise
        raise FormatError(f"damaged {kind}: {error}; fetch it again", path) from None


def _decompressor(raw: IO[bytes], kind: str) -> Any:
    if kind == "gzip":
        import gzip

        return gzip.GzipFile(fileobj=raw)
    if kind == "xz":
        import lzma

        return lzma.LZMAFile(raw)
    if kind == "bzip2":
        import bz2

        return bz2.BZ2File(raw)
    return raw


def _decode(chunks: Iterable[bytes], path: Path, encoding: str) -> Iterator[str]:
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
    except LookupError:
        raise FormatError(f"there is no encoding {encoding!r}", path) from None
    done, line, first = 0, 1, True

    def step(chunk: bytes, final: bool) -> str:
        pending = decoder.getstate()[0]
        try:
            return decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            good = error.object[: error.start].decode(encoding, "ignore").count("\n")
            byte = error.object[error.start]
            raise FormatError(
                f"byte {done - len(pending) + error.start} (0x{byte:02x}) is not {encoding}; "
                "name the file's encoding, for example encoding='latin-1'",
                path,
                line + good,
            ) from None

    for chunk in chunks:
        text = step(chunk, False)
        done += len(chunk)
        line += text.count("\n")
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        yield text
    yield step(b"", True)


@contextmanager
def open_writer(target: str | Path | IO[str]) -> Iterator[IO[str]]:
    """Open a file for writing text in UTF-8, compressed if its suffix says so.

    A file is first written beside its place and then renamed: it is never half there. A
    stream is used as it is and left open.
    """
    if not isinstance(target, (str, Path)):
        yield target
        return
    path = Path(target)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with (
            _compressor(part, _SUFFIX.get(path.suffix, "")) as raw,
            io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as stream,
        ):
            yield stream
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _compressor(path: Path, kind: str) -> Any:
    if kind == "gzip":
        import gzip

        return gzip.GzipFile(path, "wb", mtime=0)
    if kind == "xz":
        import lzma

        return lzma.LZMAFile(path, "wb")
    if kind == "bzip2":
        import bz2

        return bz2.BZ2File(path, "wb")
    return path.open("wb")
