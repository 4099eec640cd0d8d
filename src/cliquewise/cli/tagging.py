"""What the tagging commands share: options, reading files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import chain, islice
from typing import Any, NoReturn

import click

FORMATS = ("conll", "crfsuite")
#: Sentences that are tagged at once when a stream is tagged.
BATCH = 256


@dataclass(frozen=True)
class Writing:
    """How a file is written: its encoding, what separates columns, and how comments begin."""

    encoding: str | None = None
    tabs: bool = False
    comment: str | None = None

    def of(self, model: Any = None) -> Writing:
        """As given; for the rest as the training file of a model was."""
        known = {} if model is None else model.encoder_.writing
        tabs = self.tabs or (self.encoding is None and known.get("tabs") == "yes")
        encoding = self.encoding or known.get("encoding", "utf-8")
        return Writing(encoding, tabs, self.comment or known.get("comment"))

    @property
    def options(self) -> dict[str, Any]:
        """What readers of column files are told."""
        return {"separator": "\t" if self.tabs else None, "comment": self.comment}


def reading_options(default: str) -> Callable[[Any], Any]:
    """Add the options that say how column files are written, for a parameter ``writing``."""

    def add(function: Any) -> Any:
        @wraps(function)
        def gathered(
            *, tabs: bool, comment: str | None, encoding: str | None, **others: Any
        ) -> None:
            function(writing=Writing(encoding, tabs, comment), **others)

        for option in (
            click.option(
                "--encoding", metavar="NAME", help=f"Of the characters. [default: {default}]"
            ),
            click.option("--comment", metavar="TEXT", help="Skip lines that begin so: '#'."),
            click.option("--tabs", is_flag=True, help="Tabs alone separate columns."),
        ):
            gathered = option(gathered)
        return gathered

    return add


def separator_of(line: str) -> str | None:
    """What stands between the columns of a line: a tab or a space; None if there is one column."""
    inside = line.strip(" \t")
    return "\t" if "\t" in inside else " " if " " in inside else None


@dataclass
class Examples:
    """Sequences as the estimator takes them, and their labels."""

    X: Any
    y: list[list[str]]
    weights: Any = None

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return sum(map(len, self.y))

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of sequences and of tokens."""
        return len(self.y), self.n_tokens


def read_labeled(path: str, form: str, writing: Writing) -> Examples:
    """A training or test file: the label is the last column (conll) or the first (crfsuite)."""
    from cliquewise.errors import FormatError

    encoding = writing.encoding or "utf-8"
    if form == "crfsuite":
        from cliquewise.data.formats.crfsuite import read_crfsuite

        data = read_crfsuite(path, encoding=encoding)
        examples = Examples(data.X, data.y, data.weights)
    else:
        from cliquewise.data.formats.conll import Columns, iter_conll, read_conll

        if path == "-":
            lines = lines_of(path, encoding)
            text = Columns.from_rows(iter_conll(lines, name="stdin", **writing.options))
        else:
            text = read_conll(path, encoding=encoding, **writing.options)
        if text.n_tokens and text.n_columns < 2:
            raise FormatError(
                "one column only; a labeled file needs a word and a label on each line, "
                "separated by spaces or tabs",
                path,
            )
        examples = Examples(*text.split_labels()) if text.n_tokens else Examples(text, [])
    if not examples.n_tokens:
        raise FormatError("the file holds no tokens", path)
    return examples


def format_of(tagger: Any) -> str:
    """The file format that a model was trained on."""
    return "crfsuite" if tagger.encoder_.n_columns is None else "conll"


def check_columns(tagger: Any, X: Any, path: str) -> None:
    """Refuse a labeled file whose columns are not those of the training file."""
    from cliquewise.errors import FormatError

    known = tagger.encoder_.n_columns
    if known is not None and X.n_columns != known:
        raise FormatError(
            f"{X.n_columns} columns before the label; the model was trained on {known}", path
        )


def load_tagger(path: str) -> Any:
    """A model that works on files; others are refused."""
    from cliquewise.estimators.files import load
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

    model = load(path)
    if not isinstance(model, SequenceTagger):
        _refuse(type(model).__name__, path)
    return _of_files(model, path)


def load_predictor(path: str, jobs: int) -> Any:
    """The same to predict with, which is quicker to load."""
    from cliquewise.estimators.files import load
    from cliquewise.estimators.tagger.predictor import Predictor

    model = load(path, predict_only=True)
    if not isinstance(model, Predictor):
        _refuse(type(model).__name__, path)
    model.n_jobs = jobs
    return _of_files(model, path)


def _of_files(model: Any, path: str) -> Any:
    if model.encoder_.n_features_in is not None:
        _refuse("SequenceTagger", path)
    return model


def _refuse(kind: str, path: str) -> NoReturn:
    from cliquewise.errors import FormatError

    raise FormatError(
        f"the model is a {kind} of arrays of numbers; the command line tags column files and "
        "CRFsuite's files",
        path,
    )


def lines_of(path: str, encoding: str | None) -> Iterator[str]:
    """Lines of a file, compressed or not, or of the standard input (``-``)."""
    from cliquewise.data.formats.text import read_lines, stream_lines
    from cliquewise.errors import FormatError

    encoding = encoding or "utf-8"
    if path != "-":
        return read_lines(path, encoding)
    if sys.stdin is None or sys.stdin.closed:
        raise FormatError("the standard input is closed; name a file, or pipe text in", "stdin")
    return stream_lines(sys.stdin.buffer, encoding, "stdin")


def conll_batches(
    lines: Iterator[str], name: str, writing: Writing, size: int
) -> Iterator[list[Any]]:
    """Sentences (lists of rows) in batches."""
    from cliquewise.data.formats.conll import iter_conll

    sentences = iter_conll(lines, name=name, **writing.options)
    while batch := list(islice(sentences, size)):
        yield batch


def crfsuite_batches(lines: Iterator[str], name: str, size: int) -> Iterator[list[Any]]:
    """Sequences (lists of lists of attributes) in batches."""
    from cliquewise.data.formats.crfsuite import parse_lines
    from cliquewise.data.formats.text import numbered

    with numbered(lines, name) as counted:
        for line in counted:
            yield parse_lines(_up_to_blanks(chain([line], counted), size)).X


def _up_to_blanks(lines: Iterator[str], count: int) -> Iterator[str]:
    """Lines until ``count`` of them were blank."""
    for line in lines:
        yield line
        count -= not line
        if count == 0:
            return
