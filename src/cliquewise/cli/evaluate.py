"""``cliquewise evaluate``: how good a model's tags are on a labeled file."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from cliquewise.cli import debug_option, standard_output
from cliquewise.cli.progress import waiting
from cliquewise.cli.tagging import format_of, load_tagger, read_labeled, reading_options


@click.command()
@click.argument("test", type=click.Path(exists=True, dir_okay=False))
@click.option("--model", required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--jobs", default=1, show_default=True, help="Threads.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@reading_options
@debug_option
def command(test: str, model: str, jobs: int, as_json: bool, tabs: bool, encoding: str) -> None:
    """Tag TEST (.gz, .xz and .bz2 too) and compare with its labels.

    Spans are counted as the CoNLL evaluation script does, if the labels are span labels
    (O, B-X, I-X and so on).
    """
    standard_output()
    tagger = load_tagger(model).set_params(n_jobs=jobs)
    with waiting(f"reading {test}"):
        data = read_labeled(test, format_of(tagger), tabs, encoding)
    _check_columns(tagger, data.X, test)
    start = time.perf_counter()
    predicted = tagger.predict(data.X)
    result = _measure(tagger, data, predicted) | {"seconds": time.perf_counter() - start}
    if as_json:
        click.echo(json.dumps(result))
    else:
        _show(result)


def _check_columns(tagger: Any, X: Any, path: str) -> None:
    from cliquewise.errors import FormatError

    known = tagger.encoder_.n_columns
    if known is not None and X.n_columns != known:
        raise FormatError(
            f"{X.n_columns} columns before the label; the model was trained on {known}", path
        )


def _measure(tagger: Any, data: Any, predicted: Any) -> dict[str, Any]:
    from cliquewise import metrics
    from cliquewise.errors import DataError

    known = set(tagger.classes_)
    result: dict[str, Any] = {
        "sequences": len(data.y),
        "tokens": data.n_tokens,
        "token_accuracy": metrics.token_accuracy(data.y, predicted),
        "exact_match": metrics.exact_match_accuracy(data.y, predicted),
        "unknown_labels": sorted({c for y in data.y for c in y} - known),
    }
    try:
        spans = metrics.span_scores(data.y, predicted)
    except DataError:  # the labels name no spans
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
        click.echo(f"labels that training did not see, counted as wrong: {names}")
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
