"""``cliquewise predict``: tag a file or a stream, one batch of sentences at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import TextIOWrapper
from itertools import chain, islice
from typing import Any

import click

from cliquewise.cli import debug_option, standard_output
from cliquewise.cli.formatting import counted
from cliquewise.cli.options import parameter_options
from cliquewise.cli.spans import SpanWriter
from cliquewise.cli.tagging import (
    BATCH,
    crfsuite_batches,
    file_format,
    format_of,
    lines_of,
    load_predictor,
    reading_options,
)
from cliquewise.data.formats.column_format import CONLLU, ColumnFormat
from cliquewise.data.formats.conll import SentenceReader, separator_of
from cliquewise.data.formats.conllu_lines import CONLLU_COLUMNS
from cliquewise.errors import DataError, FormatError
from cliquewise.estimators.parameters import SequenceTaggerParameters

Rows = list[list[str]]


@click.command(
    epilog="""\b
    Example: cliquewise predict new.conll --model ner.cw --out tagged.conll"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option(
    "--model",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Tag with this model.",
)
@click.option("--marginals", is_flag=True, help="Add a column with the probability of each label.")
@click.option(
    "--top-k",
    type=click.IntRange(min=1),
    metavar="K",
    help="Write the K best labelings; with --spans, the K most probable spans.",
)
@click.option(
    "--spans",
    type=click.Choice(["best", "all"]),
    help="Write spans with their probabilities: those of the tags, or all, which may overlap.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0.0, 1.0),
    metavar="P",
    help="With --spans, leave out spans less probable than P.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="With --spans, write in this format.",
)
@click.option("--out", metavar="FILE", type=click.Path(dir_okay=False), help="Write to this file.")
@parameter_options(SequenceTaggerParameters, "n_jobs")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=BATCH,
    show_default=True,
    metavar="N",
    help="Tag this number of sentences at a time.",
)
@reading_options("as in the training file")
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
    n_jobs: int,
    batch: int,
    layout: dict[str, Any],
) -> None:
    """Tag FILE (plain, .gz, .xz or .bz2), or the standard input.

    A column file may have a label column or not; the output has its columns and the tag. In
    CoNLL-U the tags replace the label column, and everything else stays as it is. For CRFsuite
    files, whose first column is the label, only the tag is written.

    --marginals adds a column LABEL/PROBABILITY for each label. With --top-k each sentence is
    written K times, best first, after a line "# RANK PROBABILITY". --spans writes one line per
    span: the number of the sentence, the first token, the token after the last one (all counted
    from 0), the type, the probability and the words, separated by tabs; or one JSON object per
    sentence. -DOCSTART- lines are left out.
    """
    from cliquewise.atomic_files import check_target
    from cliquewise.data.formats.text import open_writer

    if out is not None:
        check_target(out, "the output")
    if marginals and top_k is not None:
        raise click.UsageError("choose one of --marginals and --top-k")
    writer = SpanWriter.of(spans, threshold, top_k, form, marginals)
    tagger = load_predictor(model, n_jobs)
    written = file_format(layout, tagger)
    name = "stdin" if file == "-" else file
    if written.dialect == CONLLU and writer is None and not marginals and top_k is None:
        texts = _conllu_texts(tagger, file, name, written, batch)
    else:
        lines = lines_of(file, written.encoding)
        texts = _texts(tagger, lines, name, written, batch, writer, marginals, top_k)
    with open_writer(out or standard_output(), written.encoding) as stream:
        if out is None and isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=written.encoding, newline="\n")
        try:
            for text in texts:
                stream.write(text)
                stream.flush()
        except UnicodeEncodeError as error:
            letters = error.object[error.start : error.end]
            raise DataError(f"{letters!r} cannot be written in {written.encoding}") from None


def _texts(
    tagger: Any,
    lines: Iterator[str],
    name: str,
    layout: ColumnFormat,
    batch: int,
    writer: SpanWriter | None,
    marginals: bool,
    top_k: int | None,
) -> Iterator[str]:
    """Yield the output of each batch of sentences."""
    separator, lines = _separator(lines, layout)
    if format_of(tagger) == "conll":
        reader = SentenceReader(lines, layout, name)
        sentences = iter(reader)
        batches = iter(lambda: list(islice(sentences, batch)), [])
    else:
        reader, batches = None, crfsuite_batches(lines, name, batch)
    has_header = layout.header and writer is None
    for rows in batches:
        names = None if reader is None else reader.names
        X = _inputs(tagger, rows, names, layout, name)
        if has_header and names is not None:
            yield separator.join([*names, "predicted"]) + "\n"
            has_header = False
        if writer is not None:
            yield "".join(f"{line}\n" for line in writer.lines(tagger, X, rows))
        else:
            shown = rows if reader is not None else [[[] for _ in s] for s in rows]
            tagged = _tag(tagger, X, shown, marginals, top_k)
            yield "".join("\n".join([*map(separator.join, s), "", ""]) for s in tagged)


def _conllu_texts(
    tagger: Any, file: str, name: str, layout: ColumnFormat, batch: int
) -> Iterator[str]:
    """Yield the text of a CoNLL-U file with the tags in the label column."""
    from cliquewise.data.formats.conllu import iter_conllu
    from cliquewise.data.formats.text import read_text

    label = layout.label
    label = CONLLU_COLUMNS[label] if isinstance(label, int) else str(label)
    if file == "-":
        lines, is_terminated = lines_of(file, layout.encoding), True
    else:  # with line ends, so that they stay as they are
        text = read_text(file, layout.encoding)
        is_terminated = text.endswith("\n")
        lines = iter(text.split("\n")[: -1 if is_terminated else None])
    documents = iter_conllu(lines, name)
    before = ""
    while part := list(islice(documents, batch)):
        sentences = [list(zip(*document.columns().columns)) for document in part]
        full = [s for s in sentences if s]
        tags: Iterator[list[str]] = iter(())
        if full:
            tags = iter(tagger.predict(_inputs(tagger, full, CONLLU_COLUMNS, layout, name)))
        yield before
        before = ""
        for document, sentence in zip(part, sentences, strict=True):
            tagged = document.with_column(label, [next(tags)]) if sentence else document
            before += "\n".join(tagged.lines)
    yield before if is_terminated else before.removesuffix("\n")


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
    """Yield the rows to write for each sentence, or for each of its labelings."""
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


def _inputs(
    tagger: Any,
    sentences: list[Any],
    names: tuple[str, ...] | None,
    layout: ColumnFormat,
    name: str,
) -> Any:
    """Return the columns that the model uses; a label column may be present or not."""
    from cliquewise.data.columns import Columns

    if format_of(tagger) != "conll":
        return sentences
    text, known = Columns.from_rows(sentences, names), tagger.encoder_.n_columns
    text = replace(text, format=layout)
    if layout.features is not None or layout.dialect == CONLLU:
        try:
            return text.select(layout.features or ("form",))
        except DataError as error:
            raise FormatError(str(error), name) from None
    label = layout.label
    if label is None or text.n_columns == known:
        if text.n_columns not in (known, known + 1):
            raise FormatError(
                f"a line has {counted(text.n_columns, 'column')}; the model was trained on "
                f"{counted(known, 'column')} and a label",
                name,
            )
        return text.select(range(known))
    return text.split_labels(label)[0]
