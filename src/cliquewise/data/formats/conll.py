"""CoNLL column files: one token a line, columns apart by white space, blank lines between."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cliquewise.data.formats.text import Progress, decoded, open_writer, read_lines
from cliquewise.errors import DataError, FormatError
from cliquewise.ragged import offsets_of

DOCSTART = "-DOCSTART-"
_BLANKS = re.compile(r"[ \t]+")


class Sentence(list[list[str]]):
    """The rows of a sentence of `Columns`: lists of these are columns as well.

    scikit-learn's folds are such lists.
    """


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a file, each a list over all tokens, and where sentences begin.

    Parameters
    ----------
    columns : list of list of str
        ``columns[j][t]`` is column ``j`` of token ``t``.
    offsets : int64 array (n_sentences + 1)
        Tokens ``offsets[i]:offsets[i + 1]`` are sentence ``i``.

    Examples
    --------
    >>> text = Columns([["a", "b", "c"], ["X", "Y", "Z"]], [0, 2, 3])
    >>> text.sentences(1)
    [['X', 'Y'], ['Z']]
    >>> text.n_sentences, text.n_tokens, text.n_columns
    (2, 3, 2)
    >>> text[0], text[1:].columns
    ([['a', 'X'], ['b', 'Y']], [['c'], ['Z']])
    """

    columns: list[list[str]]
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", np.asarray(self.offsets, dtype=np.int64))
        n = int(self.offsets[-1])
        for j, column in enumerate(self.columns):
            if len(column) != n:
                raise DataError(f"column {j} has {len(column)} tokens, the offsets end at {n}")

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.columns)

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return int(self.offsets[-1])

    @property
    def n_sentences(self) -> int:
        """Number of sentences."""
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return self.n_sentences

    @overload
    def __getitem__(self, at: int) -> Sentence: ...
    @overload
    def __getitem__(self, at: slice) -> Columns: ...

    def __getitem__(self, at: int | slice) -> Sentence | Columns:
        """One sentence, as a list of rows; or some of them, as columns."""
        if isinstance(at, slice):
            return self.take(range(len(self))[at])
        i = range(len(self))[at]
        a, b = int(self.offsets[i]), int(self.offsets[i + 1])
        return Sentence(list(row) for row in zip(*(column[a:b] for column in self.columns)))

    def take(self, chosen: Iterable[int]) -> Columns:
        """Some of the sentences, by their numbers."""
        parts = [slice(int(self.offsets[i]), int(self.offsets[i + 1])) for i in chosen]
        columns = [list(chain.from_iterable(c[p] for p in parts)) for c in self.columns]
        return Columns(columns, offsets_of([p.stop - p.start for p in parts]))

    def __repr__(self) -> str:
        counts = f"{self.n_sentences} sentences, {self.n_tokens} tokens"
        return f"Columns({counts}, {self.n_columns} columns)"

    def sentences(self, column: int = 0) -> list[list[str]]:
        """Return one column as a list of sentences."""
        values, bounds = self.columns[column], self.offsets.tolist()
        return [values[a:b] for a, b in pairwise(bounds)]

    def select(self, columns: Sequence[int]) -> Columns:
        """Return some of the columns (numbers below zero count from the end)."""
        wrong = [j for j in columns if not -self.n_columns <= j < self.n_columns]
        if wrong:
            raise DataError(f"there is no column {wrong[0]}: the file has {self.n_columns}")
        return Columns([self.columns[j] for j in columns], self.offsets)

    def split_labels(self, column: int = -1) -> tuple[Columns, list[list[str]]]:
        """Take one column out as labels; return the other columns and the labels."""
        labels = self.select([column]).sentences()
        rest = [j for j in range(self.n_columns) if j != column % self.n_columns]
        return self.select(rest), labels

    @classmethod
    def from_rows(cls, sentences: Iterable[Sequence[Sequence[str]]]) -> Columns:
        """Build from sentences of rows, as `iter_conll` yields them."""
        rows: list[Sequence[str]] = []
        offsets = [0]
        for sentence in sentences:
            rows.extend(sentence)
            offsets.append(len(rows))
        return cls([list(column) for column in zip(*rows)], np.array(offsets))


def read_conll(
    path: str | Path,
    columns: Sequence[int] | None = None,
    *,
    separator: str | None = None,
    docstart: bool = False,
    comment: str | None = None,
    encoding: str = "utf-8",
    progress: Progress | None = None,
) -> Columns:
    """Read a column file, plain or compressed (gzip, xz, bzip2), in one pass.

    Parameters
    ----------
    path : str or Path
        The file.
    columns : sequence of int, optional
        Columns to keep, in this order; all by default. -1 is the last one.
    separator : str, optional
        What stands between columns, such as a tab; any run of spaces and tabs by default.
    docstart : bool, default=False
        Keep ``-DOCSTART-`` lines, which separate documents, as tokens.
    comment : str, optional
        Skip lines that start so. Off by default, since ``#`` may be a word.
    encoding : str, default="utf-8"
        How characters are written.
    progress : callable, optional
        Called as ``progress(bytes_done, bytes_total)`` now and then.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = path.write_text("Rome NNP B-LOC\\n. . O\\n\\nYes UH O\\n")
    >>> text = read_conll(path)
    >>> text.n_sentences, text.columns[0]
    (2, ['Rome', '.', 'Yes'])
    """
    lines = read_lines(path, encoding, progress)
    parsed = _sentences(lines, separator, docstart, comment, path)
    kept: list[list[str]] = []
    offsets = [0]
    one_copy: dict[str, str] = {}  # of each distinct string
    for sentence in parsed:
        transposed = list(zip(*sentence))
        if not kept:
            kept = [[] for _ in transposed]
        for column, values in zip(kept, transposed):
            column.extend(map(one_copy.setdefault, values, values))
        offsets.append(offsets[-1] + len(sentence))
    text = Columns(kept, np.array(offsets))
    if columns is None or not kept:
        return text
    try:
        return text.select(columns)
    except DataError as error:
        raise FormatError(str(error), path) from None


def iter_conll(
    stream: Iterable[str | bytes],
    *,
    separator: str | None = None,
    docstart: bool = False,
    comment: str | None = None,
    encoding: str = "utf-8",
    name: str | None = None,
) -> Iterator[list[list[str]]]:
    """Yield one sentence at a time from a stream, as soon as its blank line is read.

    Parameters
    ----------
    stream : iterable of str or bytes
        Lines, such as an open file or ``sys.stdin.buffer``.
    separator, docstart, comment, encoding
        As in `read_conll`.
    name : str, optional
        What errors call the stream.

    Yields
    ------
    list of list of str
        The rows of a sentence: for each token, its columns.

    Examples
    --------
    >>> list(iter_conll(["the DT", "cat NN", "", "yes UH"]))
    [[['the', 'DT'], ['cat', 'NN']], [['yes', 'UH']]]
    """
    lines = decoded(stream, encoding, name)
    return _sentences(lines, separator, docstart, comment, name)


def _sentences(
    lines: Iterable[str],
    separator: str | None,
    docstart: bool,
    comment: str | None,
    path: str | Path | None,
) -> Iterator[list[list[str]]]:
    """Group lines into sentences of rows; check that all rows have the same columns."""
    width, width_line, first = 0, 0, ""
    sentence: list[list[str]] = []
    for number, line in enumerate(lines, 1):
        fields = _fields(line, separator)
        if not fields:
            if sentence:
                yield sentence
                sentence = []
            continue
        if comment is not None and line.startswith(comment):
            continue
        if fields[0] == DOCSTART and not docstart:
            continue
        if len(fields) != width:
            if width:
                raise FormatError(
                    f"{len(fields)} columns, but line {width_line} has {width}; all lines need "
                    f"the same number{_remedy(line, first, separator)}",
                    path,
                    number,
                )
            width, width_line, first = len(fields), number, line
        sentence.append(fields)
    if sentence:
        yield sentence


def _remedy(line: str, first: str, separator: str | None) -> str:
    """What may help where two lines differ in columns."""
    if line.startswith("#") or first.startswith("#"):
        return "; if # begins a comment, say comment='#'"
    if separator is None and "\t" in line and "\t" in first:
        return "; if tabs alone separate the columns, say separator='\\t'"
    return "; add what is missing, or take out what is too much"


def _fields(line: str, separator: str | None) -> list[str]:
    if separator is None:
        # str.split() would also split at the no-break space and its relatives
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
        Where to write; a file appears when it is complete.
    columns : sequence of sequences of str
        Each over all tokens.
    offsets : array of int
        Where sentences begin, and the number of tokens.
    separator : str, default=" "
        What to put between columns.

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
                    f"column {j} holds {value!r}, which would not be read back; "
                    "choose another separator or replace the value"
                )
    bounds = text.offsets.tolist()
    lines = list(map(separator.join, zip(*text.columns)))
    with open_writer(target) as stream:
        for a, b in pairwise(bounds):
            stream.write("\n".join([*lines[a:b], "", ""]))
