"""Loaders of public data sets from a folder: CoNLL-2000, CoNLL-2003 and OCR.

The folder is given, or named by the environment variable ``CLIQUEWISE_DATA``. Nothing is
downloaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.data.columns import Columns
from cliquewise.data.formats.conll import read_conll
from cliquewise.errors import DataError, FormatError

VARIABLE = "CLIQUEWISE_DATA"


@dataclass(frozen=True, eq=False)
class Split:
    """Sequences and labels, for training and for testing, as the estimators take them.

    Parameters
    ----------
    X_train, X_test : Columns or list of arrays
    y_train, y_test : list of lists of labels
    template : str or None
        Built-in template that suits the columns.
    """

    X_train: Any
    y_train: list[list[Any]]
    X_test: Any
    y_test: list[list[Any]]
    template: str | None = None

    def __repr__(self) -> str:
        return f"Split({len(self.y_train)} sequences to train on, {len(self.y_test)} to test on)"


def data_folder(folder: str | Path | None = None) -> Path:
    """The folder of data sets: the given one, or that of ``CLIQUEWISE_DATA``.

    Examples
    --------
    >>> data_folder(".").is_dir()
    True
    """
    named = folder if folder is not None else os.environ.get(VARIABLE)
    if not named:
        raise DataError(f"no data folder: give one, or set {VARIABLE}")
    path = Path(named)
    if not path.is_dir():
        raise DataError(f"the data folder {path} does not exist; give another, or set {VARIABLE}")
    return path


def load_conll2000(folder: str | Path | None = None) -> Split:
    """CoNLL-2000 chunking: columns word and part of speech, labels of chunks (IOB2).

    Reads ``conll2000/train.txt`` and ``test.txt`` (or .gz, .xz) of the folder.
    """
    base = data_folder(folder)
    train, test = (_columns(base, f"conll2000/{part}.txt") for part in ("train", "test"))
    return Split(*train, *test, "chunking")


def load_conll2003(folder: str | Path | None = None, test: str = "testb") -> Split:
    """CoNLL-2003 English names: columns word, part of speech and chunk; labels IOB1.

    Parameters
    ----------
    folder : path, optional
        Holds ``conll2003/eng.train``, ``eng.testa`` and ``eng.testb`` (or .gz, .xz).
    test : {"testb", "testa"}, default="testb"
        Which of the two is the test part.
    """
    if test not in ("testa", "testb"):
        raise DataError(f"test is 'testa' or 'testb', not {test!r}")
    base = data_folder(folder)
    parts = [_columns(base, f"conll2003/eng.{part}") for part in ("train", test)]
    return Split(*parts[0], *parts[1], "ner")


def load_ocr(folder: str | Path | None = None, test_fold: int = 0) -> Split:
    """Handwritten words, a 16 x 8 picture per letter, labels ``a`` to ``z``.

    Parameters
    ----------
    folder : path, optional
        Holds ``ocr/ocr.mat`` with ``X`` (0/1 pixels), ``y`` (1..26, 0 ends a word) and
        ``fold`` (0..9).
    test_fold : int, default=0
        The fold to test on; the others are for training.
    """
    from scipy.io import loadmat

    path = _find(data_folder(folder), "ocr/ocr.mat")
    try:
        raw = loadmat(path)
        pixels = np.asarray(raw["X"], dtype=np.float64)
        y, fold = raw["y"].ravel().astype(int), raw["fold"].ravel().astype(int)
    except (KeyError, ValueError, TypeError, NotImplementedError) as error:
        raise FormatError(f"not the OCR data: {error}", path) from error
    ends = np.flatnonzero(y == 0)
    begins = np.concatenate(([0], ends[:-1] + 1))
    letters = np.array([*"?abcdefghijklmnopqrstuvwxyz"], dtype=object)
    parts: dict[bool, tuple[list[Any], list[Any]]] = {True: ([], []), False: ([], [])}
    for a, b in zip(begins.tolist(), ends.tolist(), strict=True):
        X, labels = parts[bool(fold[a] == test_fold)]
        X.append(pixels[a:b])
        labels.append(letters[y[a:b]].tolist())
    if not parts[True][0] or not parts[False][0]:
        raise DataError(f"test_fold = {test_fold}; the folds are {np.unique(fold[y > 0]).tolist()}")
    return Split(*parts[False], *parts[True])


def _find(folder: Path, name: str) -> Path:
    for suffix in ("", ".gz", ".xz", ".bz2"):
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return path
    raise DataError(f"{folder} lacks {name} (or {name}.gz, {name}.xz)")


def _columns(folder: Path, name: str) -> tuple[Columns, list[list[str]]]:
    return read_conll(_find(folder, name)).split_labels()
