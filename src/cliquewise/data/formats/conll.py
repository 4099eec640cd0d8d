"""Column files: one token per line, columns separated by white space, blank lines in between."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import ArrayLike

from cliquewise.data.columns import Columns
from cliquewise.data.formats.column_format import CONLLU, Column, ColumnFormat
from cliquewise.data.formats.conllu_lines import CONLLU_COLUMNS, is_conllu_line, is_word
from cliquewise.data.formats.text import Progress, decoded, open_writer, read_lines
from cliquewise.errors import DataError, FormatError

DOCSTART = "-DOCSTART-"
_BLANKS = re.compile(r"[ \t]+")


def read_conll(
    path: str | Path,
    columns: Sequence[Column] | None = None,
    *,
    separator: str | None = None,
    docstart: bool = False,
    comment: str | None = None,
    encoding: str = "utf-8",
    header: bool = False,
    progress: Progress | None = None,
) -> Columns:
    """Read a column file, plain or compressed (gzip, xz, bzip2), in one pass.

    CoNLL-U is recognized by its ten columns. Its comments, ranges (``2-3``) and empty nodes
    (``3.1``) are skipped, and its columns have names; see `read_conllu` to write such a file.

    Parameters
    ----------
    path : str or Path
        The file.
    columns : sequence of int or str, optional
        Columns to keep, by number or name, in this order; all by default. -1 is the last one.
    separator : str, optional
        Text between columns, such as a tab; any run of spaces and tabs by default.
    docstart : bool, default=False
        Keep ``-DOCSTART-`` lines, which separate documents, as tokens.
    comment : str, optional
        Skip lines that start with this text. Off by default, since ``#`` may be a word. A line
        with the right number of columns whose first column is exactly this text is a token if
        tabs separate the columns, or if it is inside a sentence.
    encoding : str, default="utf-8"
        Text encoding.
    header : bool, default=False
        Whether the first line holds the names of the columns.
    progress : callable, optional
        Called as ``progress(bytes_done, bytes_total)`` now and then.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = path.write_text("word pos tag\\nRome NNP B-LOC\\n. . O\\n\\nYes UH O\\n")
    >>> text = read_conll(path, header=True)
    >>> text.n_sentences, text.sentences("word")
    (2, [['Rome', '.'], ['Yes']])
    """
    layout = ColumnFormat(encoding=encoding, separator=separator, comment=comment, header=header)
    text = read_columns(read_lines(path, encoding, progress), layout, path, docstart)
    if columns is None or not text.columns:
        return text
    try:
        return text.select(columns)
    except DataError as error:
        raise FormatError(str(error), path) from None


def read_columns(
    lines: Iterable[str],
    layout: ColumnFormat,
    name: str | Path | None = None,
    docstart: bool = False,
) -> Columns:
    """Read all columns from lines without their ends; the result describes the format it found.

    Examples
    --------
    >>> text = read_columns(["the\\tDT", "", "yes\\tUH"], ColumnFormat())
    >>> text.columns, text.format
    ([['the', 'yes'], ['DT', 'UH']], ColumnFormat(output_separator='\\t'))
    """
    reader = SentenceReader(lines, layout, name, docstart)
    kept: list[list[str]] = []
    offsets = [0]
    interned: dict[str, str] = {}
    for sentence in reader:
        transposed = list(zip(*sentence))
        if not kept:
            kept = [[] for _ in transposed]
        for column, values in zip(kept, transposed):
            column.extend(map(interned.setdefault, values, values))
        offsets.append(offsets[-1] + len(sentence))
    return Columns(kept, np.array(offsets), reader.names, reader.format)


def iter_conll(
    stream: Iterable[str | bytes],
    *,
    separator: str | None = None,
    docstart: bool = False,
    comment: str | None = None,
    encoding: str = "utf-8",
    header: bool = False,
    name: str | None = None,
) -> Iterator[list[list[str]]]:
    """Yield one sentence at a time from a stream, as soon as its blank line is read.

    Parameters
    ----------
    stream : iterable of str or bytes
        Lines, such as an open file or ``sys.stdin.buffer``.
    separator, docstart, comment, encoding, header
        As in `read_conll`.
    name : str, optional
        The stream's name in error messages.

    Yields
    ------
    list of list of str
        The rows of a sentence: for each token, its columns.

    Examples
    --------
    >>> list(iter_conll(["the DT", "cat NN", "", "yes UH"]))
    [[['the', 'DT'], ['cat', 'NN']], [['yes', 'UH']]]
    """
    layout = ColumnFormat(separator=separator, comment=comment, header=header)
    return iter(SentenceReader(decoded(stream, encoding, name), layout, name, docstart))


class SentenceReader:
    """Group lines into sentences of rows, and check that all rows have the same columns.

    Attributes
    ----------
    names : tuple of str or None
        Names of the columns, once the first sentence has been read.
    format : ColumnFormat
        The given format, completed by the dialect and the separator of the first line.
    """

    def __init__(
        self,
        lines: Iterable[str],
        layout: ColumnFormat,
        name: str | Path | None = None,
        docstart: bool = False,
    ):
        self.names: tuple[str, ...] | None = None
        self.format = layout
        self._lines = lines
        self._path = name
        self._docstart = docstart
        self._width = 0
        self._first = ""
        self._first_number = 0

    def __iter__(self) -> Iterator[list[list[str]]]:
        """Yield the sentences."""
        lines = iter(self._lines)
        head: list[str] = []
        for line in lines:
            head.append(line)
            if line.strip() and not line.startswith("#"):
                break
        lines = chain(head, lines)
        if head and self.format.separator in (None, "\t") and is_conllu_line(head[-1]):
            return self._conllu_sentences(lines)
        return self._sentences(lines)

    def _conllu_sentences(self, lines: Iterable[str]) -> Iterator[list[list[str]]]:
        self.names, self._width = CONLLU_COLUMNS, len(CONLLU_COLUMNS)
        self.format = ColumnFormat(CONLLU, self.format.encoding, output_separator="\t")
        sentence: list[list[str]] = []
        for number, line in enumerate(lines, 1):
            fields = line.split("\t")
            if is_word(fields[0]):
                self._check_width(line, fields, number)
                sentence.append(fields)
            elif sentence and not line.strip():
                yield sentence
                sentence = []
        if sentence:
            yield sentence

    def _sentences(self, lines: Iterable[str]) -> Iterator[list[list[str]]]:
        separator, comment = self.format.separator, self.format.comment
        sentence: list[list[str]] = []
        for number, line in enumerate(lines, 1):
            fields = split_fields(line, separator)
            if not fields:
                if sentence:
                    yield sentence
                    sentence = []
                continue
            if comment is not None and self._is_comment(line, fields, bool(sentence)):
                continue
            if fields[0] == DOCSTART and not self._docstart:
                continue
            if len(fields) != self._width:
                self._check_width(line, fields, number)
                if self.format.header:
                    continue
            sentence.append(fields)
        if sentence:
            yield sentence

    def _check_width(self, line: str, fields: list[str], number: int) -> None:
        """Refuse a line with another number of columns; the first line sets that number."""
        if self._width and len(fields) != self._width:
            where = f"line {self._first_number}" if self._first_number else "a CoNLL-U line"
            error = FormatError(
                f"{len(fields)} columns, but {where} has {self._width}; all lines need the same "
                "number",
                self._path,
                number,
            )
            raise _with_remedy(error, line, self._first, self.format.separator)
        if self._width:
            return
        self._width, self._first, self._first_number = len(fields), line, number
        if self.format.header:
            self.names = tuple(fields)
            if len(set(fields)) < len(fields):
                raise FormatError("two columns have the same name", self._path, number)
        found = self.format.separator or separator_of(line)
        self.format = self.format.override(output_separator=found)

    def _is_comment(self, line: str, fields: list[str], inside: bool) -> bool:
        comment = self.format.comment
        assert comment is not None
        if not line.startswith(comment):
            return False
        is_row = len(fields) == self._width and fields[0] == comment.strip()
        return not (is_row and (inside or "\t" in line))


def separator_of(line: str) -> str | None:
    """Return the separator in a line: a tab or a space; None if there is only one column."""
    inside = line.strip(" \t")
    return "\t" if "\t" in inside else " " if " " in inside else None


def _with_remedy(error: FormatError, line: str, first: str, separator: str | None) -> FormatError:
    """Add a suggestion to an error about two lines that differ in their number of columns."""
    if line.startswith("#") or first.startswith("#"):
        return error.suggesting("if lines that start with # are comments, set", "comment", "#")
    if separator is None and "\t" in line and "\t" in first:
        return error.suggesting("if only tabs separate the columns, set", "separator", "\t")
    return error


def split_fields(line: str, separator: str | None) -> list[str]:
    """Split a line into its columns; an empty list for a blank line."""
    if separator is None:
        # str.split() would also split at the no-break space and similar characters.
        if line.isascii():
            return line.split()
        stripped = line.strip(" \t")
        return _BLANKS.split(stripped) if stripped else []
    return line.split(separator) if line.strip(" \t" + separator) else []


def write_conll(
    target: str | Path | IO[str],
    columns: Sequence[Sequence[str]],
    offsets: ArrayLike,
    *,
    separator: str = " ",
) -> None:
    """Write columns to a file (compressed if its suffix says so) or to a text stream.

    Parameters
    ----------
    target : str, Path or text stream
        Where to write; a file appears once it is complete.
    columns : sequence of sequences of str
        Each over all tokens.
    offsets : array of int
        Where sentences begin, and the number of tokens.
    separator : str, default=" "
        Text between columns.

    Examples
    --------
    >>> import sys
    >>> write_conll(sys.stdout, [["the", "cat"], ["DT", "NN"]], [0, 2])
    the DT
    cat NN
    <BLANKLINE>
    """
    text = Columns([list(column) for column in columns], np.asarray(offsets))
    bad = re.compile(r"[\s]" if separator.isspace() and separator != "\t" else r"[\t\r\n]")
    for j, column in enumerate(text.columns):
        for value in dict.fromkeys(column):
            if not value or bad.search(value) or (not separator.isspace() and separator in value):
                raise FormatError(
                    f"column {j} holds {value!r}, which could not be read back; "
                    "choose another separator or replace the value"
                )
    bounds = text.offsets.tolist()
    lines = list(map(separator.join, zip(*text.columns)))
    with open_writer(target) as stream:
        for a, b in pairwise(bounds):
            stream.write("\n".join([*lines[a:b], "", ""]))
