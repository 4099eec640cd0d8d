"""Files that are a word and then numbers: unpacking, parsing, and naming the place of trouble."""

from __future__ import annotations

import io
import os
import re
from decimal import Decimal, DecimalException
from functools import cached_property
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.formats._packed import bounded, opened, unpacked
from cliquewise.errors import FormatError

Source = str | os.PathLike[str] | BinaryIO

#: Numbers are parsed in pieces of about this many bytes, to bound the memory of tokens.
PIECE = 1 << 22
_COMMENT_LINE = re.compile(rb"^c[ \t]", re.MULTILINE)
_COMMENT = re.compile(rb"(#|//|^c[ \t]).*$", re.MULTILINE)
_BLANK = np.zeros(256, dtype=bool)
_BLANK[list(b" \t\n\r\x0b\x0c")] = True


def read_bytes(source: Source) -> tuple[bytes, str]:
    """Content of a file, unpacked if its first bytes say gzip, xz or bzip2, and its name."""
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        with opened(name) as file:
            text = b"".join(unpacked(file, name))
    else:
        name = str(getattr(source, "name", "<stream>"))
        raw = b"".join(bounded(iter(lambda: source.read(PIECE), b""), name))
        text = b"".join(unpacked(io.BytesIO(raw), name))
    return text.removeprefix(b"\xef\xbb\xbf"), name


def read_numbers_text(source: Source) -> tuple[bytes, str]:
    """Return the content of a file of numbers without comments, and its name.

    A comment goes from ``#`` or ``//`` to the end of the line, or is a line that begins with ``c``
    and a blank. Lines keep their numbers.
    """
    text, name = read_bytes(source)
    if b"#" in text or b"//" in text or _COMMENT_LINE.search(text):
        text = _COMMENT.sub(b"", text)
    return text, name


def _has_tiny_decimals(text: bytes) -> bool:
    """Whether some number that float() makes zero may not be zero."""
    # Literal prefixes, not [eE]: these are searched ten times faster.
    return bool(re.search(rb"e-\d{3}", text) or re.search(rb"E-\d{3}", text) or b"0" * 300 in text)


def first_word(text: bytes, name: str, *words: str) -> int:
    """Check that the text begins with one of the words; return where it ends."""
    found = re.match(rb"\s*(\S{1,40})", text)
    if found is None or found[1].upper() not in [word.encode() for word in words]:
        shown = "is empty" if found is None else f"begins with '{repr(found[1][:20])[2:-1]}'"
        line = 1 if found is None else text.count(b"\n", 0, found.start(1)) + 1
        wanted = " or ".join(words)
        if found is not None:
            wanted += _other_format(text, found[1].lower())
        raise FormatError(f"the file {shown}; it should begin with {wanted}", name, line)
    return found.end()


def _other_format(text: bytes, word: bytes) -> str:
    """Return a hint if the text is in another format of graphical models."""
    if word in (b"network", b"variable", b"<?xml", b"<bif>"):
        return ". It looks like BIF, which cliquewise.read_bif reads (name it .bif or .xml)"
    other = ""
    if word in (b"net", b"net{", b"node", b"class"):
        other = "a Hugin NET file; convert it to BIF"
    elif re.match(rb"\s*\{\s*\"?problem", text):
        other = "a toulbar2 cfn file; convert it to UAI"
    elif re.match(rb"\s*\S+([ \t]+\d+){4}\s", text):
        other = "a wcsp file; convert it to UAI"
    return other and f". It looks like {other}, because this format is not supported"


class Numbers:
    """The numbers of a text and a cursor; errors name the file, the line and the number.

    Parameters
    ----------
    text : bytes
    path : str
        Name of the file, for messages.
    start, stop : int
        The part of ``text`` to read.
    """

    def __init__(self, text: bytes, path: str, start: int = 0, stop: int | None = None):
        self.text = text
        self.path = path
        self.start = start
        self.stop = len(text) if stop is None else stop
        self.at = 0
        self.values = self._parse()

    def _parse(self) -> NDArray[np.float64]:
        pieces, at, count = [np.empty(0)], self.start, 0
        blank = re.compile(rb"\s")
        while at < self.stop:
            found = blank.search(self.text, min(at + PIECE, self.stop), self.stop)
            end = self.stop if found is None else found.start() + 1
            tokens = self.text[at:end].split()
            try:
                if b"_" in self.text[at:end]:  # float() would take 1_000 for a number
                    raise ValueError
                piece = np.fromiter(map(float, tokens), np.float64, len(tokens))
            except ValueError:
                self._refuse_word(tokens, count, at)
            pieces.append(piece)
            count += len(tokens)
            at = end
        return np.concatenate(pieces)

    def _refuse_word(self, tokens: list[bytes], count: int, at: int) -> None:
        """Raise for the first of the tokens that is no number; their text begins at ``at``."""
        for i, token in enumerate(tokens):
            try:
                if b"_" not in token:
                    float(token)
                    continue
            except ValueError:
                pass
            shown = repr(token[:20])[2:-1]
            line = self._line(self._starts(at)[i])
            raise FormatError(
                f"'{shown}' (number {count + i + 1} of its part) is not a number; "
                "is the file damaged, or of another format?",
                self.path,
                line,
            )

    # ---- places

    def _starts(self, begin: int) -> NDArray[np.int64]:
        """Where each token after ``begin`` starts."""
        bytes_ = np.frombuffer(self.text, np.uint8)[begin : self.stop]
        blank = _BLANK[bytes_]
        first = ~blank
        first[1:] &= blank[:-1]
        return np.flatnonzero(first) + begin

    def _line(self, offset: int) -> int:
        return self.text.count(b"\n", 0, offset) + 1

    def error(self, message: str, index: int | None = None) -> FormatError:
        """An error about number ``index`` (by default the next one), with file and line."""
        index = self.at if index is None else index
        if index < len(self.values):
            line = self._line(int(self._all_starts[index]))
        else:
            line = self._line(self.stop)
        return FormatError(message, self.path, line)

    # ---- reading

    @property
    def left(self) -> int:
        """How many numbers are still to be read."""
        return len(self.values) - self.at

    def integer(self, what: str, low: int = 0, high: float = 2**53) -> int:
        """The next number, which has to be an integer within the limits."""
        return int(self.integers(1, what, low, high)[0])

    def integers(
        self, count: int, what: str, low: int = 0, high: float = 2**53
    ) -> NDArray[np.int64]:
        """The next ``count`` numbers; ``what`` is their name, ``{}`` being the position."""
        if count > self.left:
            raise self.error(
                f"the file ends before {what.format(self.left)}; it is truncated or a count is "
                "wrong",
                len(self.values),
            )
        block = self.values[self.at : self.at + count]
        bad = ~((block >= low) & (block <= high) & (np.floor(block) == block))
        if bad.any():
            i = int(np.argmax(bad))
            limit = f"{low}..{high:.16g}" if high < 2**53 else f"at least {low}"
            raise self.error(
                f"{what.format(i)} is {block[i]:.16g}; it must be an integer, {limit}",
                self.at + i,
            )
        self.at += count
        return block.astype(np.int64)

    def count(self, what: str, each: int = 1) -> int:
        """The next number, which counts things that take ``each`` numbers at least."""
        at = self.at
        n = self.integer(what)
        if n * each > self.left:
            raise self.error(
                f"{what} is {n}, but only {self.left} numbers follow in the file; it is "
                "truncated, or the count is wrong",
                at,
            )
        return n

    def finish(self) -> None:
        """Raise if numbers are left."""
        if self.left:
            raise self.error(
                f"{self.left} numbers are left after the last one that belongs to the file; "
                "a count is wrong, or two files were joined"
            )

    def logs(self, where: NDArray[np.int64]) -> NDArray[np.float64]:
        """Natural logarithms of the numbers at ``where``; zero becomes ``-inf``.

        Numbers that float64 cannot hold (1e-400) still get their true logarithm.
        """
        values = self.values[where]
        out = np.full(len(values), -np.inf)
        np.log(values, out=out, where=values > 0)
        beyond = (values == np.inf) | ((values > 0) & (values < np.finfo(float).tiny))
        if _has_tiny_decimals(self.text):
            beyond |= values == 0
        for i in np.flatnonzero(beyond):
            out[i] = self._log_of_text(int(where[i]))
        return out

    def _log_of_text(self, index: int) -> float:
        found = re.compile(rb"\S+").match(self.text, int(self._all_starts[index]))
        token = found[0].decode("ascii") if found else ""
        try:
            number = Decimal(token)
            if number.is_finite() and number >= 0:
                return float(number.ln()) if number else -np.inf
        except DecimalException:
            pass
        raise self.error(f"'{token[:20]}' is not a potential: it must be finite and >= 0", index)

    @cached_property
    def _all_starts(self) -> NDArray[np.int64]:
        return self._starts(self.start)
