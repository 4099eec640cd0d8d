"""Shards: labeled sequences that need not fit into memory, read in blocks and encoded on disk."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.columns import Columns
from cliquewise.data.formats.column_format import Column, ColumnFormat
from cliquewise.data.formats.conll import SentenceReader
from cliquewise.data.formats.crfsuite import parse_lines
from cliquewise.data.formats.parquet import iter_parquet
from cliquewise.data.formats.text import numbered, read_lines
from cliquewise.data.shard_files import read_manifest
from cliquewise.errors import DataError, FormatError

#: Tokens of a block, about: what is in memory at once as lists.
BLOCK = 1 << 16
FORMATS = ("auto", "conll", "crfsuite", "parquet")
#: How names end by which a format is known; all others are column files.
_ENDINGS = {".parquet": "parquet", ".arrow": "parquet", ".feather": "parquet"}
_ENDINGS |= {".crfsuite": "crfsuite"}
_COMPRESSED = (".gz", ".xz", ".bz2")


class Block(NamedTuple):
    """Some sequences, as estimators take them."""

    X: Any
    y: list[list[Any]]
    weights: NDArray[np.float64] | None = None


class Shards:
    """Labeled sequences from files, or from a function, with a folder to encode them into.

    ``SequenceTagger.fit(shards)`` encodes them once, into arrays in that folder, and trains on
    these part by part: what is in memory stays below ``max_memory``, however large the data
    are. A second fit with the same template, hashing and counts finds the arrays there; an
    encoding that was interrupted goes on where it stopped.

    Parameters
    ----------
    source : path, list of paths, or callable
        Column files, CRFsuite's files (compressed or not), or Parquet and Arrow files whose
        columns are lists. A path may be a pattern (``"train/*.conll"``). Or a function
        without arguments that returns an iterable of (sequence, labels) or of (sequence, labels,
        weight), the same ones at every call.
    cache : path
        The folder for the arrays; it is made if it does not exist.
    form : {"auto", "conll", "crfsuite", "parquet"}, default="auto"
        ``auto`` goes by how the names end; files of unknown ending are column files.
    label : int or str, default=-1
        Column of the labels, by number or name (of Parquet files, CoNLL-U, or a ``header``).
    features : sequence of int or str, optional
        Columns of the features in column files; by default all but the label, or ``form`` in
        CoNLL-U.
    header : bool, default=False
        Whether the first line of each column file holds the names of the columns.
    separator : str, optional
        What stands between the columns of a column file; any white space by default.
    comment : str, optional
        Skip lines of a column file that start so.
    encoding : str, default="utf-8"

    Examples
    --------
    >>> import tempfile
    >>> from cliquewise import SequenceTagger
    >>> from cliquewise.data import Shards
    >>> def sentences():
    ...     for word, tag in [("dog", "N"), ("runs", "V")] * 50:
    ...         yield [["w=the"], [f"w={word}"]], ["D", tag]
    >>> shards = Shards(sentences, tempfile.mkdtemp())
    >>> tagger = SequenceTagger(random_state=0).fit(shards)
    >>> tagger.predict([[["w=the"], ["w=runs"]]])
    [['D', 'V']]
    """

    def __init__(
        self,
        source: str | Path | Sequence[str | Path] | Callable[[], Iterable[Any]],
        cache: str | Path,
        *,
        form: str = "auto",
        label: int | str = -1,
        separator: str | None = None,
        comment: str | None = None,
        encoding: str = "utf-8",
        features: Sequence[Column] | None = None,
        header: bool = False,
    ):
        if form not in FORMATS:
            raise DataError(f"form is one of {', '.join(FORMATS)}, not {form!r}")
        self.cache, self.form, self.label = Path(cache), form, label
        self.format = ColumnFormat(
            encoding=encoding, separator=separator, comment=comment, header=header
        )
        self.features = features
        self.make = source if callable(source) else None
        self.paths = [] if callable(source) else _paths(source)

    def __repr__(self) -> str:
        what = "a function" if self.make else f"{len(self.paths)} files"
        return f"Shards({what}, cache={str(self.cache)!r})"

    def identity(self) -> list[Any]:
        """Return files, sizes and times, which identify the source without reading it."""
        known: list[Any] = [self.form, self.label, self.format.separator, self.format.encoding]
        # Older folders have no entries for what was added later.
        known += [] if self.format.comment is None else [self.format.comment]
        if self.features is not None or self.format.header:
            known.append([self.features and list(self.features), self.format.header])
        for path in self.paths:
            stat = path.stat()
            known.append([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
        return known

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of sequences and of tokens, once they are encoded; zeros before."""
        sizes = (read_manifest(self.cache) or {"sizes": {}})["sizes"]
        return max(sizes.get("offsets", 1) - 1, 0), sizes.get("labels", 0)

    def blocks(self, skip: int = 0) -> Iterator[Block]:
        """Yield the sequences after the first ``skip``, some thousand tokens at a time.

        Examples
        --------
        >>> shards = Shards(lambda: [([["a"]], ["X"]), ([["b"]], ["Y"])], "unused")
        >>> [block.y for block in shards.blocks(skip=1)]
        [[['Y']]]
        """
        if self.make is not None:
            yield from _from_items(islice(self._items(), skip, None))
            return
        for path in self.paths:
            items = self._read(path)
            for block in items:
                if skip >= len(block.y):
                    skip -= len(block.y)
                    continue
                yield block if skip == 0 else _without_first(block, skip)
                skip = 0

    def _items(self) -> Iterator[Any]:
        assert self.make is not None
        items = self.make()
        if isinstance(items, str | bytes | dict) or not isinstance(items, Iterable):
            raise DataError(
                f"the function returned a {type(items).__name__}, not an iterable of "
                "(sequence, labels)"
            )
        for i, item in enumerate(items):
            if not isinstance(item, tuple) or len(item) not in (2, 3):
                raise DataError(
                    f"example {i}: the function gives (sequence, labels) or (sequence, labels, "
                    f"weight), not {item!r:.60}"
                )
            yield item

    def _form(self, path: Path) -> str:
        if self.form != "auto":
            return self.form
        name = path.with_suffix("") if path.suffix in _COMPRESSED else path
        return _ENDINGS.get(name.suffix, "conll")

    def _read(self, path: Path) -> Iterator[Block]:
        form = self._form(path)
        if form == "parquet":
            return map(_as_columns, _from_items(iter_parquet(path, self.label)))
        lines = read_lines(path, self.format.encoding)
        if form == "crfsuite":
            return self._crfsuite(lines, path)
        return self._columns(lines, path)

    def _columns(self, lines: Iterator[str], path: Path) -> Iterator[Block]:
        reader = SentenceReader(lines, self.format, path)
        label = None if self.label == -1 else self.label
        for rows in _limited(iter(reader), len):
            text = replace(Columns.from_rows(rows, reader.names), format=reader.format)
            if text.n_columns < 2:
                raise FormatError(
                    "one column only; a labeled file needs a word and a label on each line", path
                )
            try:
                yield Block(*text.split_labels(label, self.features))
            except DataError as error:
                raise FormatError(str(error), path) from None

    def _crfsuite(self, lines: Iterator[str], path: Path) -> Iterator[Block]:
        with numbered(lines, path) as counted:
            for line in counted:
                data = parse_lines(_up_to_blank(line, counted))
                if data.y:
                    yield Block(data.X, data.y, data.weights)


def _up_to_blank(first: str, lines: Iterator[str]) -> Iterator[str]:
    """Yield lines up to the blank line that completes a block."""
    yield first
    for count, line in enumerate(lines, 2):
        yield line
        if not line and count >= BLOCK:
            return


def _limited(sequences: Iterator[Any], size: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Yield sequences in lists of about `BLOCK` tokens."""
    block, tokens = [], 0
    for sequence in sequences:
        block.append(sequence)
        tokens += size(sequence)
        if tokens >= BLOCK:
            yield block
            block, tokens = [], 0
    if block:
        yield block


def _from_items(items: Iterator[Any]) -> Iterator[Block]:
    for block in _limited(items, lambda item: len(item[1])):
        weights = None
        if any(len(item) == 3 for item in block):
            weights = np.array([item[2] if len(item) == 3 else 1.0 for item in block])
        yield Block([item[0] for item in block], [item[1] for item in block], weights)


def _as_columns(block: Block) -> Block:
    """Convert tokens that are tuples, as Parquet files give them, to columns."""
    tokens: Any = next((tokens for tokens in block.X if tokens), [])
    if tokens and isinstance(tokens[0], tuple):
        return block._replace(X=Columns.from_rows(block.X))
    return block


def _without_first(block: Block, skip: int) -> Block:
    X = block.X
    if isinstance(X, Columns):
        start = int(X.offsets[skip])
        columns = [column[start:] for column in X.columns]
        X = replace(X, columns=columns, offsets=X.offsets[skip:] - start)
    else:
        X = X[skip:]
    return Block(X, block.y[skip:], None if block.weights is None else block.weights[skip:])


def _paths(source: Any) -> list[Path]:
    """Return all files in the given order; those of a pattern sorted by name."""
    given = [source] if isinstance(source, str | Path) else list(source)
    paths: list[Path] = []
    for one in given:
        path = Path(one)
        if path.is_file():
            paths.append(path)
            continue
        found = [Path(p) for p in sorted(glob.glob(str(one), recursive=True))]
        found = [p for p in found if p.is_file()]
        if not found:
            hint = " (a folder: give a pattern, such as folder/*.conll)" if path.is_dir() else ""
            raise DataError(f"there is no file {str(one)!r}{hint}")
        paths.extend(found)
    if not paths:
        raise DataError("Shards needs at least one file, or a function")
    return paths
