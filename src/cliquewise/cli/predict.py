"""``cliquewise predict``: tag a file or a stream, a batch of sentences at a time."""

from __future__ import annotations

from collections.abc import Iterator
from io import TextIOWrapper
from itertools import chain
from typing import Any

import click

from cliquewise.cli import debug_option, standard_output
from cliquewise.cli.formatting import counted
from cliquewise.cli.spans import SpanWriter
from cliquewise.cli.tagging import (
    BATCH,
    conll_batches,
    crfsuite_batches,
    file_format,
    format_of,
    lines_of,
    load_predictor,
    reading_options,
)
from cliquewise.data.formats.column_format import ColumnFormat
from cliquewise.data.formats.conll import separator_of

Rows = list[list[str]]


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option("--model", required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--marginals", is_flag=True, help="Add the probability of every label.")
@click.option(
    "--top-k",
    type=click.IntRange(min=1),
    metavar="K",
    help="The K best labelings; with --spans the K most probable spans.",
)
@click.option(
    "--spans",
    type=click.Choice(["best", "all"]),
    help="Write spans with their probabilities: those of the tags, or all (these may overlap).",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0.0, 1.0),
    metavar="P",
    help="With --spans: leave out less probable ones.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="With --spans: of what is written.",
)
@click.option("--out", type=click.Path(dir_okay=False, writable=True), help="File to write.")
@click.option("--jobs", default=1, show_default=True, help="Threads; -1 for all processors.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=BATCH,
    show_default=True,
    help="Sentences that are read before their tags are written.",
)
@reading_options("as of the training file")
@debug_option
def command(
    file: str,
    model: str,
    marginals: bool,
    top_k: int | None,
    spans: str | None,
    threshold: float | None,
    form: str,
    out: str | None,
    jobs: int,
    batch: int,
    layout: dict[str, str | None],
) -> None:
    """Tag FILE (.gz, .xz and .bz2 too), or the standard input.

    A column file may have a label column or not; the output is its columns and the tag.
    --marginals adds a column LABEL/PROBABILITY for each label. With --top-k each sentence
    comes K times, best first, after a line "# RANK PROBABILITY". --spans writes a line for
    each span instead: the number of the sentence, the first token, the token after the last
    (all counted from 0), type, probability and words, separated by tabs; or one JSON object
    for each sentence. -DOCSTART- lines are left out. For CRFsuite's format (the label,
    which is not read, comes first) only the tag is written. A blank line ends each sentence.
    The output has the encoding and the separators of the input.
    """
    from cliquewise.data.formats.text import open_writer
    from cliquewise.errors import DataError
    from cliquewise.persistence import check_target

    if out is not None:
        check_target(out, "the output")
    if marginals and top_k is not None:
        raise click.UsageError("choose one of --marginals and --top-k")
    writer = SpanWriter.of(spans, threshold, top_k, form, marginals)
    tagger = load_predictor(model, jobs)
    written = file_format(layout, tagger)
    encoding = written.encoding
    name = "stdin" if file == "-" else file
    separator, lines = _separator(lines_of(file, encoding), written)
    if format_of(tagger) == "conll":
        batches: Iterator[list[Any]] = conll_batches(lines, name, written, batch)
    else:
        batches = crfsuite_batches(lines, name, batch)
    with open_writer(out or standard_output(), encoding) as stream:
        if out is None and isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=encoding)
        try:
            for sentences in batches:
                X, shown = _inputs(tagger, sentences, name)
                if writer is None:
                    for rows in _tag(tagger, X, shown, marginals, top_k):
                        stream.write("\n".join([*map(separator.join, rows), "", ""]))
                else:
                    stream.writelines(f"{line}\n" for line in writer.lines(tagger, X, shown))
                stream.flush()
        except UnicodeEncodeError as error:
            letters = error.object[error.start : error.end]
            raise DataError(f"{letters!r} cannot be written in {encoding}") from None


def _separator(lines: Iterator[str], layout: ColumnFormat) -> tuple[str, Iterator[str]]:
    """Return the separator of the output, as in the first line of the input, and all lines."""
    seen = []
    for line in lines:
        seen.append(line)
        if line.strip() and not (layout.comment and line.startswith(layout.comment)):
            break
    found = layout.separator or (separator_of(seen[-1]) if seen else None)
    return found or layout.output_separator, chain(seen, lines)


def _tag(
    tagger: Any, X: Any, shown: list[Rows], marginals: bool, top_k: int | None
) -> Iterator[Rows]:
    """For each sentence (or each of its labelings) the rows to write."""
    if top_k is not None:
        for rows, best in zip(shown, tagger.predict_top_k(X, top_k), strict=True):
            for rank, (probability, tags) in enumerate(best, 1):
                yield [["#", str(rank), f"{probability:.6f}"], *_with(rows, tags)]
        return
    tagged = [_with(r, tags) for r, tags in zip(shown, tagger.predict(X), strict=True)]
    if not marginals:
        yield from tagged
        return
    for rows, table in zip(tagged, tagger.predict_marginals(X), strict=True):
        yield [
            [*row, *(f"{c}/{p:.6f}" for c, p in zip(tagger.classes_, line, strict=True))]
            for row, line in zip(rows, table.tolist(), strict=True)
        ]


def _with(rows: Rows, tags: list[Any]) -> Rows:
    return [[*row, str(tag)] for row, tag in zip(rows, tags, strict=True)]


def _inputs(tagger: Any, sentences: list[Any], name: str) -> tuple[Any, list[Rows]]:
    """The columns that the model knows, without the label if it is there; and rows to show."""
    from cliquewise.data.columns import Columns
    from cliquewise.errors import FormatError

    if format_of(tagger) != "conll":
        return sentences, [[[] for _ in s] for s in sentences]
    text, known = Columns.from_rows(sentences), tagger.encoder_.n_columns
    if text.n_columns not in (known, known + 1):
        raise FormatError(
            f"a line has {counted(text.n_columns, 'column')}; the model was trained on "
            f"{counted(known, 'column')} and a label",
            name,
        )
    return text.select(range(known)), sentences
