"""CoNLL-U: words with ten columns, next to comments, ranges of words and empty nodes.

A document keeps its lines as they are, so writing changes nothing but the columns that were set.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.columns import Columns
from cliquewise.data.formats.column_format import CONLLU, Column, ColumnFormat
from cliquewise.data.formats.conllu_lines import CONLLU_COLUMNS, is_word
from cliquewise.data.formats.text import open_writer, read_text
from cliquewise.errors import DataError, FormatError

#: Columns that hold ``Key=Value|Key=Value``.
KEYED = ("feats", "misc")


@dataclass(frozen=True, eq=False)
class ConlluDocument:
    """The lines of a CoNLL-U file, and which of them are words.

    Parameters
    ----------
    lines : list of str
        All lines in order, as they are in the file.
    word_lines : int64 array (n_words)
        Numbers of the lines that are words: no comments, ranges (``2-3``) or empty nodes (``3.1``).
    offsets : int64 array (n_sentences + 1)
        Words ``offsets[i]:offsets[i + 1]`` are sentence ``i``.

    Examples
    --------
    >>> text = "# text = Yes!\\n1\\tYes\\tyes\\tINTJ\\t_\\t_\\t0\\troot\\t_\\t_\\n"
    >>> document = ConlluDocument.from_lines(text.split("\\n"))
    >>> document.columns(["form", "upos"]).columns
    [['Yes'], ['INTJ']]
    >>> document.with_column("upos", [["X"]]).lines[1]
    '1\\tYes\\tyes\\tX\\t_\\t_\\t0\\troot\\t_\\t_'
    """

    lines: list[str]
    word_lines: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def from_lines(cls, lines: Iterable[str], name: str | Path | None = None) -> ConlluDocument:
        """Find the words and the sentences in the lines of a file."""
        kept = list(lines)
        words: list[int] = []
        offsets = [0]
        for number, line in enumerate(kept):
            if line.startswith("#"):
                continue
            if not line.strip():
                if len(words) > offsets[-1]:
                    offsets.append(len(words))
                continue
            fields = line.split("\t")
            if len(fields) != len(CONLLU_COLUMNS):
                raise FormatError(
                    f"{len(fields)} columns; CoNLL-U has {len(CONLLU_COLUMNS)}, separated by tabs",
                    name,
                    number + 1,
                )
            if is_word(fields[0]):
                words.append(number)
        if len(words) > offsets[-1]:
            offsets.append(len(words))
        return cls(kept, np.array(words, dtype=np.int64), np.array(offsets, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"ConlluDocument({len(self)} sentences, {len(self.word_lines)} words)"

    def columns(self, columns: Sequence[Column] | None = None) -> Columns:
        """Return columns of the words, by name or number; all ten by default.

        ``feats.Case`` is the value of ``Case`` in the column ``feats``, or ``_``.
        """
        rows = [self.lines[i].rstrip("\r").split("\t") for i in self.word_lines.tolist()]
        cells = [list(column) for column in zip(*rows)] or [[] for _ in CONLLU_COLUMNS]
        written = ColumnFormat(CONLLU, output_separator="\t")
        text = Columns(cells, self.offsets, CONLLU_COLUMNS, written)
        return text if columns is None else text.select(columns)

    def tokens(self, columns: Sequence[str] = ("form",)) -> list[list[dict[str, str | list[str]]]]:
        """Return the words as dicts; ``feats`` and ``misc`` become lists, an attribute per value.

        Examples
        --------
        >>> line = "1\\tdogs\\tdog\\tNOUN\\t_\\tCase=Nom|Number=Plur\\t0\\troot\\t_\\t_"
        >>> ConlluDocument.from_lines([line]).tokens(["form", "feats"])
        [[{'form': 'dogs', 'feats': ['Case=Nom', 'Number=Plur']}]]
        """
        text = self.columns(columns)
        cells: list[list[str | list[str]]] = [
            list(map(_split_values, column)) if name in KEYED else [*column]
            for name, column in zip(columns, text.columns, strict=True)
        ]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]
        return [rows[a:b] for a, b in pairwise(self.offsets.tolist())]

    def with_column(self, column: str, values: Sequence[Sequence[str]]) -> ConlluDocument:
        """Return a document with other values in a column, one for each word of each sentence.

        A column such as ``feats.Case`` sets one key and keeps the others; ``_`` removes it.
        """
        name, _, key = column.partition(".")
        if name not in CONLLU_COLUMNS or (key and name not in KEYED):
            raise DataError(f"there is no column {column!r} in CoNLL-U")
        if name == "id":
            raise DataError("the column 'id' numbers the words and cannot be set")
        lengths = np.diff(self.offsets).tolist()
        if [len(sentence) for sentence in values] != lengths:
            raise DataError("values need one list per sentence, with one value per word")
        lines, place = list(self.lines), CONLLU_COLUMNS.index(name)
        flat = (str(value) for sentence in values for value in sentence)
        for number, value in zip(self.word_lines.tolist(), flat, strict=True):
            if not value or not {"\t", "\n", "\r"}.isdisjoint(value):
                raise DataError(f"{value!r} cannot be written to a column of CoNLL-U")
            body = lines[number].rstrip("\r")
            fields = body.split("\t")
            fields[place] = _with_key(fields[place], key, value) if key else value
            lines[number] = "\t".join(fields) + lines[number][len(body) :]
        return replace(self, lines=lines)


def read_conllu(path: str | Path, *, encoding: str = "utf-8") -> ConlluDocument:
    """Read a CoNLL-U file, plain or compressed (gzip, xz, bzip2).

    See Also
    --------
    read_conll : Reads the words of such a file only.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.conllu"
    >>> _ = path.write_text("1-2\\tdel\\t_\\t_\\t_\\t_\\t_\\t_\\t_\\t_\\n"
    ...                     "1\\tde\\t_\\tADP\\t_\\t_\\t0\\troot\\t_\\t_\\n"
    ...                     "2\\tel\\t_\\tDET\\t_\\t_\\t1\\tdet\\t_\\t_\\n\\n")
    >>> document = read_conllu(path)
    >>> document, document.columns(["form"]).sentences()
    (ConlluDocument(1 sentences, 2 words), [['de', 'el']])
    """
    return ConlluDocument.from_lines(read_text(path, encoding).split("\n"), path)


def iter_conllu(lines: Iterable[str], name: str | None = None) -> Iterator[ConlluDocument]:
    """Yield a document for each sentence of a stream of lines, as soon as its blank line is read.

    Written one after the other, the documents give the lines of the stream again.

    Examples
    --------
    >>> line = "1\\tYes\\tyes\\tINTJ\\t_\\t_\\t0\\troot\\t_\\t_"
    >>> [len(document.lines) for document in iter_conllu([line, "", line, ""])]
    [3, 3]
    """
    kept: list[str] = []
    for line in lines:
        kept.append(line)
        if not line.strip():
            yield ConlluDocument.from_lines([*kept, ""], name)
            kept = []
    if kept:
        yield ConlluDocument.from_lines([*kept, ""], name)


def write_conllu(
    target: str | Path | IO[str], document: ConlluDocument, *, encoding: str = "utf-8"
) -> None:
    """Write a document to a file (compressed if its suffix says so) or to a text stream.

    Examples
    --------
    >>> import sys
    >>> line = "1\\tYes\\tyes\\tINTJ\\t_\\t_\\t0\\troot\\t_\\t_"
    >>> document = ConlluDocument.from_lines([line, "", ""])
    >>> write_conllu(sys.stdout, document.with_column("feats.Polarity", [["Pos"]]))
    ... # doctest: +NORMALIZE_WHITESPACE
    1   Yes yes INTJ    _   Polarity=Pos    0   root    _   _
    <BLANKLINE>
    """
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise FormatError(f"there is no encoding {encoding!r} of text") from None
    with open_writer(target, encoding) as stream:
        stream.write("\n".join(document.lines))


def _split_values(cell: str) -> list[str]:
    return [] if cell == "_" else cell.split("|")


def _with_key(cell: str, key: str, value: str) -> str:
    """Set one key of ``Key=Value|Key=Value``; keys are sorted without regard to case."""
    pairs = [pair for pair in cell.split("|") if cell != "_" and pair.partition("=")[0] != key]
    if value != "_":
        pairs.append(f"{key}={value}")
        pairs.sort(key=str.lower)
    return "|".join(pairs) or "_"
