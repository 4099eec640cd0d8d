"""What the tagging commands share: options, reading files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import chain, islice
from typing import Any, NoReturn

import click

from cliquewise.data.formats.column_format import ColumnFormat
from cliquewise.errors import DataError, FormatError

FORMATS = ("conll", "crfsuite")
#: Sentences that are tagged at once when a stream is tagged.
BATCH = 256


def reading_options(default: str) -> Callable[[Any], Any]:
    """Add the options that describe a column file, as a dict of changes named ``layout``."""

    def add(function: Any) -> Any:
        @wraps(function)
        def gathered(
            *, tabs: bool, comment: str | None, encoding: str | None, **others: Any
        ) -> None:
            separator = "\t" if tabs else None
            layout = {"encoding": encoding, "separator": separator, "comment": comment}
            function(layout=layout, **others)

        for option in (
            click.option("--encoding", metavar="NAME", help=f"Text encoding. [default: {default}]"),
            click.option(
                "--comment", metavar="TEXT", help="Skip lines starting with TEXT, e.g. '#'."
            ),
            click.option("--tabs", is_flag=True, help="Columns are separated by tabs only."),
        ):
            gathered = option(gathered)
        return gathered

    return add


def file_format(layout: dict[str, str | None], tagger: Any = None) -> ColumnFormat:
    """Return the format that options describe; the rest as in the tagger's training file."""
    trained = None if tagger is None else tagger.encoder_.file_format
    return (trained or ColumnFormat()).override(**layout)


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
    """The file format that a model was trained on."""
    return "crfsuite" if tagger.encoder_.n_columns is None else "conll"


def check_columns(tagger: Any, X: Any, path: str) -> None:
    """Refuse a labeled file whose columns are not those of the training file."""
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
        f"the model is a {kind} of arrays of numbers; the command line tags column files and "
        "CRFsuite's files",
        path,
    )


def lines_of(path: str, encoding: str | None) -> Iterator[str]:
    """Lines of a file, compressed or not, or of the standard input (``-``)."""
    from cliquewise.data.formats.text import read_lines, stream_lines

    encoding = encoding or "utf-8"
    if path != "-":
        return read_lines(path, encoding)
    if sys.stdin is None or sys.stdin.closed:
        raise FormatError("the standard input is closed; name a file, or pipe text in", "stdin")
    return stream_lines(sys.stdin.buffer, encoding, "stdin")


def conll_batches(
    lines: Iterator[str], name: str, layout: ColumnFormat, size: int
) -> Iterator[list[Any]]:
    """Yield sentences (lists of rows) in batches."""
    from cliquewise.data.formats.conll import SentenceReader

    sentences = iter(SentenceReader(lines, layout, name))
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
