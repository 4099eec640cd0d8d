"""Shared parts of the tagging commands: options, and reading files and models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from typing import Any, NoReturn

import click

from cliquewise.data.formats.column_format import ColumnFormat
from cliquewise.errors import DataError, FormatError

FORMATS = ("conll", "crfsuite")
#: Number of sentences of a stream that are tagged together.
BATCH = 256


class ColumnParameter(click.ParamType):  # type: ignore[type-arg]
    """A column of a file: a name, or a number that counts from 1 (-1 is the last column)."""

    name = "column"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        """Return the name, or the number that counts from 0 as in Python."""
        try:
            number = int(value)
        except ValueError:
            return str(value)
        if number == 0:
            self.fail("columns are numbered from 1; -1 is the last one", param, ctx)
        return number - 1 if number > 0 else number


COLUMN = ColumnParameter()


def column_options(function: Any) -> Any:
    """Add the options that choose columns of a training file; use before reading_options."""

    def split(_ctx: click.Context, option: click.Parameter, text: str | None) -> Any:
        if text is None:
            return None
        return tuple(COLUMN.convert(name.strip(), option, _ctx) for name in text.split(","))

    for option in (
        click.option("--header", is_flag=True, help="Read column names from the first line."),
        click.option(
            "--columns",
            metavar="LIST",
            callback=split,
            help="Use only these columns as features: names or numbers, separated by commas.",
        ),
        click.option(
            "--label",
            type=COLUMN,
            metavar="COLUMN",
            help="Learn this column, given by name (upos, xpos, feats, deprel in CoNLL-U) or by "
            "number from 1. [default: the last one]",
        ),
    ):
        function = option(function)
    return function


def reading_options(default: str) -> Callable[[Any], Any]:
    """Add options that describe a column file; the function gets them as a dict ``layout``."""

    def add(function: Any) -> Any:
        @wraps(function)
        def gathered(
            *,
            tabs: bool,
            comment: str | None,
            encoding: str | None,
            label: int | str | None = None,
            columns: tuple[int | str, ...] | None = None,
            header: bool = False,
            **others: Any,
        ) -> None:
            layout = {
                "encoding": encoding,
                "separator": "\t" if tabs else None,
                "comment": comment,
                "label": label,
                "features": columns,
                "header": header or None,
            }
            function(layout=layout, **others)

        for option in (
            click.option(
                "--encoding", metavar="NAME", help=f"Use this text encoding. [default: {default}]"
            ),
            click.option(
                "--comment", metavar="TEXT", help="Skip lines that start with TEXT, e.g. '#'."
            ),
            click.option("--tabs", is_flag=True, help="Separate columns at tabs only."),
        ):
            gathered = option(gathered)
        return gathered

    return add


def file_format(layout: dict[str, Any], tagger: Any = None) -> ColumnFormat:
    """Return the format that options describe; the rest as in the tagger's training file."""
    trained = None if tagger is None else tagger.encoder_.file_format
    return (trained or ColumnFormat()).override(**layout)


@dataclass
class Examples:
    """Sequences in the form that the estimator takes, and their labels."""

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


def read_labeled(path: str, form: str, layout: ColumnFormat) -> Examples:
    """Read a training or test file."""
    if form == "crfsuite":
        from cliquewise.data.formats.crfsuite import read_crfsuite

        data = read_crfsuite(path, encoding=layout.encoding)
        examples = Examples(data.X, data.y, data.weights)
    else:
        from cliquewise.data.formats.conll import read_columns

        name = "stdin" if path == "-" else path
        text = read_columns(lines_of(path, layout.encoding), layout, name)
        if text.n_tokens and text.n_columns < 2:
            raise FormatError(
                "one column only; a labeled file needs a word and a label on each line, "
                "separated by spaces or tabs",
                path,
            )
        try:
            split = (
                text.split_labels(layout.label, layout.features) if text.n_tokens else (text, [])
            )
        except DataError as error:
            raise FormatError(str(error), path) from None
        examples = Examples(*split)
    if not examples.n_tokens:
        raise FormatError("the file holds no tokens", path)
    return examples


def format_of(tagger: Any) -> str:
    """Return the file format that a model was trained on."""
    return "crfsuite" if tagger.encoder_.n_columns is None else "conll"


def check_columns(tagger: Any, X: Any, path: str) -> None:
    """Raise a FormatError if a labeled file has other columns than the training file."""
    known = tagger.encoder_.n_columns
    if known is not None and X.n_columns != known:
        raise FormatError(
            f"{X.n_columns} columns before the label; the model was trained on {known}", path
        )


def load_tagger(path: str) -> Any:
    """Load a tagger that was trained on a file; raise a FormatError for other models."""
    from cliquewise.estimators.files import load
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

    model = load(path)
    if not isinstance(model, SequenceTagger):
        _refuse(type(model).__name__, path)
    return _of_files(model, path)


def load_predictor(path: str, jobs: int) -> Any:
    """Load a tagger for prediction only, which is faster."""
    from cliquewise.estimators.files import load
    from cliquewise.estimators.tagger.chain_tagger import ChainTagger

    model = load(path, predict_only=True)
    if not isinstance(model, ChainTagger):
        _refuse(type(model).__name__, path)
    model.n_jobs = jobs
    return _of_files(model, path)


def _of_files(model: Any, path: str) -> Any:
    if model.encoder_.n_features_in is not None:
        _refuse("SequenceTagger", path)
    return model


def _refuse(kind: str, path: str) -> NoReturn:
    raise FormatError(
        f"the model is a {kind} for arrays of numbers; the command line tags column files, "
        "CoNLL-U and CRFsuite files",
        path,
    )


def lines_of(path: str, encoding: str | None) -> Iterator[str]:
    """Return the lines of a file, compressed or not, or of the standard input (``-``)."""
    from cliquewise.data.formats.text import read_lines, stream_lines

    encoding = encoding or "utf-8"
    if path != "-":
        return read_lines(path, encoding)
    if sys.stdin is None or sys.stdin.closed:
        raise FormatError("the standard input is closed; name a file, or pipe text in", "stdin")
    return stream_lines(sys.stdin.buffer, encoding, "stdin")


def crfsuite_batches(lines: Iterator[str], name: str, size: int) -> Iterator[list[Any]]:
    """Yield sequences (lists of lists of attributes) in batches."""
    from cliquewise.data.formats.crfsuite import parse_lines
    from cliquewise.data.formats.text import numbered

    with numbered(lines, name) as counted:
        for line in counted:
            yield parse_lines(_up_to_blanks(chain([line], counted), size)).X


def _up_to_blanks(lines: Iterator[str], count: int) -> Iterator[str]:
    """Yield lines until ``count`` of them were blank."""
    for line in lines:
        yield line
        count -= not line
        if count == 0:
            return
