"""Lines of text files: unpacked, decoded, counted, with errors that name the place."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

from cliquewise.data.formats._packed import CHUNK, SUFFIXES, opened, packer, packing_of, unpacked
from cliquewise.errors import FormatError

Progress = Callable[[int, int], None]

#: Lines longer than this many characters are refused: no format here has such.
MAX_LINE = 1 << 26


def read_lines(
    path: str | Path, encoding: str = "utf-8", progress: Progress | None = None
) -> Iterator[str]:
    """Yield the lines of a file, without their ends.

    gzip, xz and bzip2 are recognized by their first bytes. Lines end with ``\\n``, ``\\r\\n`` or
    ``\\r``; other separators of Unicode may be part of a word.

    Parameters
    ----------
    path : str or Path
        File to read, in one pass.
    encoding : str, default="utf-8"
        How characters are written; a byte order mark is skipped.
    progress : callable, optional
        Called as ``progress(bytes_done, bytes_total)``, in bytes of the file as it is on disk.
    """
    return chain.from_iterable(_groups(Path(path), encoding, progress))


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Return the text of a file, line ends included; compression is recognized."""
    source = Path(path)
    with opened(source) as raw:
        return "".join(_decode(unpacked(raw, source), source, encoding))


def _groups(path: Path, encoding: str, progress: Progress | None) -> Iterator[list[str]]:
    with opened(path) as raw:
        total = os.fstat(raw.fileno()).st_size
        expected = SUFFIXES.get(path.suffix)
        if expected and total and not packing_of(raw):
            raise FormatError(
                f"the name says {expected} but the content is not; rename it or fetch it again",
                path,
            )
        for lines in _cut(_decode(unpacked(raw, path), path, encoding), path):
            yield lines
            if progress is not None:
                progress(min(raw.tell(), total) if total else 0, total)
        if progress is not None:
            progress(total, total)


def _cut(texts: Iterable[str], path: str | Path | None) -> Iterator[list[str]]:
    """Cut pieces of text into lines; a long line is joined only once, at its end."""
    pieces: list[str] = []
    length, done = 0, 0
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    for text in chain(texts, [None]):
        translated = newlines.decode(text or "", final=text is None)
        first, *others = translated.split("\n")
        pieces.append(first)
        length += len(first)
        if length > MAX_LINE:
            raise FormatError(
                f"the line is longer than {MAX_LINE:,} characters, which is the limit; is this a "
                "text file?",
                path,
                done + 1,
            )
        if others:
            lines = ["".join(pieces), *others[:-1]]
            pieces, length = [others[-1]], len(others[-1])
            done += len(lines)
            yield lines
    if length:
        yield ["".join(pieces)]


@contextmanager
def numbered(lines: Iterable[str], path: str | Path | None) -> Iterator[Iterator[str]]:
    """Count lines, and add the file and the line to a `FormatError` that names no file.

    Examples
    --------
    >>> with numbered(["1", "x"], "a.txt") as lines:
    ...     for line in lines:
    ...         if not line.isdigit():
    ...             raise FormatError(f"{line!r} is not a number")
    Traceback (most recent call last):
    cliquewise.errors.FormatError: a.txt, line 2: 'x' is not a number
    """
    number = 0

    def counted() -> Iterator[str]:
        nonlocal number
        for line in lines:
            number += 1
            yield line

    try:
        yield counted()
    except FormatError as error:
        if error.path is not None:
            raise
        raise FormatError(str(error), path, number) from None


def stream_lines(raw: Any, encoding: str = "utf-8", name: str | None = None) -> Iterator[str]:
    """Yield the lines of an open binary stream as they come, such as ``sys.stdin.buffer``."""
    chunks = iter(lambda: raw.read1(CHUNK), b"")
    return chain.from_iterable(_cut(_decode(chunks, name, encoding), name))


def decoded(
    stream: Iterable[str | bytes], encoding: str = "utf-8", name: str | None = None
) -> Iterator[str]:
    """Yield lines of text or bytes, without their ends; ``name`` is for messages."""
    _decoder(encoding, name)
    for number, raw in enumerate(stream, 1):
        try:
            line = raw if isinstance(raw, str) else raw.decode(encoding)
        except UnicodeError as error:
            raise FormatError(
                f"a line of bytes is not {encoding} ({error}); name the right encoding, or open "
                "the stream as text",
                name,
                number,
            ) from None
        line = line.rstrip("\r\n")
        if "\r" in line:  # a file whose lines end with \r
            yield from line.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        else:
            yield line


def _decoder(encoding: str, path: str | Path | None) -> codecs.IncrementalDecoder:
    try:
        if codecs.lookup(encoding)._is_text_encoding:
            return codecs.getincrementaldecoder(encoding)()
    except (LookupError, ValueError):
        pass
    raise FormatError(f"there is no encoding {encoding!r} of text", path)


def _decode(chunks: Iterable[bytes], path: str | Path | None, encoding: str) -> Iterator[str]:
    decoder = _decoder(encoding, path)
    done, line, first = 0, 1, True

    def step(chunk: bytes, final: bool) -> str:
        pending = decoder.getstate()[0]
        try:
            return decoder.decode(chunk, final)
        except UnicodeDecodeError as error:
            good = error.object[: error.start].decode(encoding, "ignore").count("\n")
            byte = error.object[error.start]
            marked = done == 0 and error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            likely = "utf-16" if marked else "latin-1"
            raise FormatError(
                f"byte {done - len(pending) + error.start} (0x{byte:02x}) is not {encoding}",
                path,
                line + good,
            ).suggesting("set the file's encoding, for example", "encoding", likely) from None
        except UnicodeError as error:  # of codecs that say no more
            raise FormatError(f"the file is not {encoding} ({error})", path) from None

    for chunk in chunks:
        text = step(chunk, False)
        done += len(chunk)
        line += text.count("\n")
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        yield text
    yield step(b"", True)


@contextmanager
def open_writer(
    target: str | os.PathLike[str] | IO[str], encoding: str = "utf-8"
) -> Iterator[IO[str]]:
    """Open a file for writing text, packed if its suffix says so.

    A file is first written beside its place and then renamed: it is never half there. A
    stream is used as it is and left open.
    """
    if not isinstance(target, (str, os.PathLike)):
        yield target
        return
    path = Path(target)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with (
            part.open("wb") as raw,
            packer(raw, path.suffix) as packed,
            io.TextIOWrapper(packed, encoding=encoding, newline="\n") as stream,
        ):
            yield stream
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
