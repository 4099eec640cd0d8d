"""Columns: the text of a corpus, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.formats.column_format import CONLLU, Column, ColumnFormat
from cliquewise.errors import DataError
from cliquewise.ragged import offsets_of


class Sentence(list[list[str]]):
    """The rows of one sentence of `Columns`.

    A list of these is converted back to `Columns`; scikit-learn's folds are such lists.
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
    names : tuple of str, optional
        Names of the columns.
    format : ColumnFormat, optional
        Format of the file that the columns were read from.

    Examples
    --------
    >>> text = Columns([["a", "b", "c"], ["X", "Y", "Z"]], [0, 2, 3], ("word", "tag"))
    >>> text.sentences("tag")
    [['X', 'Y'], ['Z']]
    >>> text.n_sentences, text.n_tokens, text.n_columns
    (2, 3, 2)
    >>> text[0], text[1:].columns
    ([['a', 'X'], ['b', 'Y']], [['c'], ['Z']])
    """

    columns: list[list[str]]
    offsets: NDArray[np.int64]
    names: tuple[str, ...] | None = None
    format: ColumnFormat | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", np.asarray(self.offsets, dtype=np.int64))
        n = int(self.offsets[-1])
        for j, column in enumerate(self.columns):
            if len(column) != n:
                raise DataError(f"column {j} has {len(column)} tokens, the offsets end at {n}")
        if self.names is not None and self.columns and len(self.names) != len(self.columns):
            raise DataError(f"{len(self.names)} names for {len(self.columns)} columns")

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
        """Return one sentence as a list of rows, or a range of sentences as `Columns`."""
        if isinstance(at, slice):
            return self.take(range(len(self))[at])
        i = range(len(self))[at]
        a, b = int(self.offsets[i]), int(self.offsets[i + 1])
        return Sentence(list(row) for row in zip(*(column[a:b] for column in self.columns)))

    def take(self, chosen: Iterable[int]) -> Columns:
        """Return the sentences with these numbers."""
        parts = [slice(int(self.offsets[i]), int(self.offsets[i + 1])) for i in chosen]
        columns = [list(chain.from_iterable(c[p] for p in parts)) for c in self.columns]
        return replace(self, columns=columns, offsets=offsets_of([p.stop - p.start for p in parts]))

    def __repr__(self) -> str:
        counts = f"{self.n_sentences} sentences, {self.n_tokens} tokens"
        return f"Columns({counts}, {self.n_columns} columns)"

    @property
    def _is_conllu(self) -> bool:
        return self.format is not None and self.format.dialect == CONLLU

    def _number(self, column: Column) -> int:
        """Return the number of a column, given by name or number (-1 is the last one)."""
        if isinstance(column, str):
            if self.names is None:
                raise DataError(f"there is no column {column!r}: the columns have no names")
            if column not in self.names:
                raise DataError(
                    f"there is no column {column!r}; the columns are {', '.join(self.names)}"
                )
            return self.names.index(column)
        if not -self.n_columns <= column < self.n_columns:
            raise DataError(f"there is no column {column}: the file has {self.n_columns}")
        return column % self.n_columns

    def column(self, column: Column) -> list[str]:
        """Return the values of a column, given by number or name.

        In CoNLL-U ``feats.Case`` is the value of ``Case`` in the column ``feats``, or ``_``.
        """
        if self._is_conllu and isinstance(column, str) and column not in (self.names or ()):
            name, dot, key = column.partition(".")
            if dot:
                return _values_of_key(self.columns[self._number(name)], key)
        return self.columns[self._number(column)]

    def sentences(self, column: Column = 0) -> list[list[str]]:
        """Return one column as a list of sentences."""
        values, bounds = self.column(column), self.offsets.tolist()
        return [values[a:b] for a, b in pairwise(bounds)]

    def select(self, columns: Sequence[Column]) -> Columns:
        """Return some of the columns, given by number or name."""
        names = None
        if self.names is not None:
            names = tuple(c if isinstance(c, str) else self.names[self._number(c)] for c in columns)
        return replace(self, columns=[self.column(column) for column in columns], names=names)

    def split_labels(
        self, column: Column | None = None, features: Sequence[Column] | None = None
    ) -> tuple[Columns, list[list[str]]]:
        """Split the columns into features and labels.

        Parameters
        ----------
        column : int or str, optional
            The column of the labels, by number or name; the last one by default. A complete
            CoNLL-U file has no default, because its last column is not a label.
        features : sequence of int or str, optional
            The columns of the features; by default all but the label, or ``form`` in CoNLL-U.

        Returns
        -------
        X : Columns
        y : list of lists of str

        Examples
        --------
        >>> text = Columns([["a"], ["D"], ["O"]], [0, 1], ("word", "pos", "tag"))
        >>> X, y = text.split_labels("tag", features=["word"])
        >>> X.names, y
        (('word',), [['O']])
        """
        is_whole = self._is_conllu and self.names is not None and self.names[-1:] == ("misc",)
        if column is None and is_whole:
            raise DataError(
                "the file is CoNLL-U: name the column of the labels (upos, xpos, feats, deprel, "
                "or another one)"
            )
        labels = self.sentences(-1 if column is None else column)
        chosen: Sequence[Column]
        if features is not None:
            chosen = features
        elif is_whole:
            chosen = ("form",)
        else:
            label = self._number(-1 if column is None else column)
            chosen = [j for j in range(self.n_columns) if j != label]
        X = self.select(chosen)
        if self.format is not None:
            kept = None if features is None else tuple(features)
            X = replace(X, format=replace(self.format, label=column, features=kept))
        return X, labels

    @classmethod
    def from_rows(
        cls, sentences: Iterable[Sequence[Sequence[str]]], names: tuple[str, ...] | None = None
    ) -> Columns:
        """Build columns from sentences of rows, as `iter_conll` yields them."""
        rows: list[Sequence[str]] = []
        offsets = [0]
        for sentence in sentences:
            rows.extend(sentence)
            offsets.append(len(rows))
        return cls([list(column) for column in zip(*rows)], np.array(offsets), names)


def _values_of_key(column: list[str], key: str) -> list[str]:
    """Return the value of a key in each cell of ``Key=Value|Key=Value``; ``_`` if it is absent."""
    found = {}
    for cell in dict.fromkeys(column):
        pairs = (pair.partition("=") for pair in cell.split("|"))
        found[cell] = next((value for name, _, value in pairs if name == key), "_")
    return [found[cell] for cell in column]
