"""``cliquewise evaluate``: compare predicted labels, of a model or in a file, with gold ones."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from cliquewise.cli import debug_option, standard_output
from cliquewise.cli.options import parameter_options
from cliquewise.cli.progress import waiting
from cliquewise.cli.tagging import (
    check_columns,
    file_format,
    format_of,
    load_tagger,
    read_labeled,
    reading_options,
)
from cliquewise.estimators.parameters import SequenceTaggerParameters


@click.command(
    epilog="""\b
    Example: cliquewise evaluate test.conll --model ner.cw"""
)
@click.argument("test", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--model",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Evaluate this model. [default: compare the last two columns of TEST]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "latex"]),
    default="text",
    show_default=True,
    help="Print the result in this format.",
)
@click.option("--json", "form", flag_value="json", help="Print the result as JSON.")
@parameter_options(SequenceTaggerParameters, "n_jobs")
@reading_options("as in the training file")
@debug_option
def command(test: str, model: str | None, form: str, n_jobs: int, layout: dict[str, Any]) -> None:
    """Tag TEST (plain, .gz, .xz or .bz2) and compare the tags with its labels.

    Without --model, the last two columns of TEST are compared: the gold label and the predicted
    one, as "cliquewise predict" writes them for a labeled file. TEST may be - to read column files
    from the standard input.

    Span labels (O, B-X, I-X and so on) are scored as in the CoNLL evaluation script.
    """
    standard_output()
    tagger = None if model is None else load_tagger(model).set_params(n_jobs=n_jobs)
    kind = "conll" if tagger is None else format_of(tagger)
    with waiting(f"reading {test}"):
        data = read_labeled(test, kind, file_format(layout, tagger))
    start = time.perf_counter()
    if tagger is None:
        truth, predicted = _two_columns(data, test), data.y
        known = {c for y in truth for c in y}
    else:
        check_columns(tagger, data.X, test)
        truth, predicted, known = data.y, tagger.predict(data.X), set(tagger.classes_)
    result = _measure(truth, predicted, known) | {"seconds": time.perf_counter() - start}
    if form == "json":
        click.echo(json.dumps(result))
    elif form == "latex":
        _show_latex(result)
    else:
        if tagger is None:
            n = data.X.n_columns
            words = f"column {n} as gold labels, column {n + 1} as predicted ones"
            click.echo(f"note: no --model; using {words}", err=True)
        _show(result)


def _two_columns(data: Any, path: str) -> list[list[str]]:
    """Return the gold labels of a file whose last column holds predicted labels."""
    from cliquewise.errors import FormatError

    if data.X.n_columns < 1:
        raise FormatError(
            "only one column; without --model a line needs the gold label and the predicted one",
            path,
        )
    truth: list[list[str]] = data.X.sentences(-1)
    return truth


def _measure(truth: list[list[str]], predicted: Any, known: set[str]) -> dict[str, Any]:
    from cliquewise import metrics
    from cliquewise.errors import DataError

    result: dict[str, Any] = {
        "sequences": len(truth),
        "tokens": sum(map(len, truth)),
        "token_accuracy": metrics.token_accuracy(truth, predicted),
        "exact_match": metrics.exact_match_accuracy(truth, predicted),
        "unknown_labels": sorted({c for y in truth for c in y} - known),
    }
    try:
        spans = metrics.span_scores(truth, predicted)
    except DataError:  # these are not span labels
        return result
    result["spans"] = _counts(spans)
    result["types"] = {name: _counts(s) for name, s in spans.by_type.items()}
    return result


def _counts(s: Any) -> dict[str, float]:
    return {
        "precision": s.precision, "recall": s.recall, "f1": s.f1,
        "true": s.n_true, "predicted": s.n_predicted, "correct": s.n_correct,
    }  # fmt: skip


def _show(result: dict[str, Any]) -> None:
    click.echo(f"{result['sequences']} sequences, {result['tokens']} tokens")
    click.echo(f"token accuracy  {100 * result['token_accuracy']:6.2f} %")
    click.echo(f"exact match     {100 * result['exact_match']:6.2f} %")
    if result["unknown_labels"]:
        names = ", ".join(result["unknown_labels"])
        click.echo(f"labels that are not in the training data, counted as wrong: {names}")
    if "spans" not in result:
        return
    rows = {**result["types"], "all": result["spans"]}
    width = max(4, *map(len, rows))
    click.echo(f"\n{'span':{width}}  precision  recall      F1    true")
    for name, s in rows.items():
        click.echo(
            f"{name:{width}}  {100 * s['precision']:9.2f} {100 * s['recall']:7.2f} "
            f"{100 * s['f1']:7.2f} {s['true']:7d}"
        )


def _show_latex(result: dict[str, Any]) -> None:
    """Print the table of spans as LaTeX, or of accuracies if the labels are not span labels."""
    if "spans" in result:
        head = ["span", "precision", "recall", "F1", "true"]
        measures = ("precision", "recall", "f1")
        rows = [
            [name, *(f"{100 * s[measure]:.2f}" for measure in measures), str(s["true"])]
            for name, s in {**result["types"], "all": result["spans"]}.items()
        ]
        rows[-1:] = [["\\hline"], rows[-1]]
    else:
        head = ["token accuracy", "exact match"]
        rows = [[f"{100 * result[key]:.2f}" for key in ("token_accuracy", "exact_match")]]
    click.echo(f"\\begin{{tabular}}{{{'l' if 'spans' in result else 'r'}{'r' * (len(head) - 1)}}}")
    for row in [head, ["\\hline"], *rows]:
        cells = [cell if cell == "\\hline" else _escaped(cell) for cell in row]
        click.echo(" & ".join(cells) + ("" if cells == ["\\hline"] else r" \\"))
    click.echo("\\end{tabular}")


def _escaped(text: str) -> str:
    """Escape the special characters of TeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
