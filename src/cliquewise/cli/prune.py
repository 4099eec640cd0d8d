"""``cliquewise prune``: write a smaller model and show how the objective changes."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from cliquewise.cli import debug_option, standard_output
from cliquewise.cli.formatting import size_of
from cliquewise.cli.tagging import (
    check_columns,
    file_format,
    format_of,
    load_tagger,
    read_labeled,
    reading_options,
)


@click.command(
    epilog="""\b
    Example: cliquewise prune train.conll --model ner.cw --out small.cw --keep 0.1"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--model",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Prune this model.",
)
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write the smaller model to this file, which may be that of the model.",
)
@click.option(
    "--threshold", type=float, metavar="W", help="Drop weights whose absolute value is at most W."
)
@click.option(
    "--keep",
    type=float,
    metavar="N",
    help="Keep the N largest weights, or this share of them if N is below 1.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32", "float16"]),
    default="float64",
    show_default=True,
    help="Round the weights to this type in the file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@reading_options("as in the training file")
@debug_option
def command(
    file: str,
    model: str,
    out: str,
    threshold: float | None,
    keep: float | None,
    dtype: str,
    as_json: bool,
    layout: dict[str, Any],
) -> None:
    """Write a model with fewer weights, or with less precise ones.

    FILE is a labeled file, such as the training file. The objective before and after pruning is
    computed on it. Weights of transitions are always kept.
    """
    from cliquewise.atomic_files import check_target

    standard_output()
    if threshold is not None and keep is not None:
        raise click.UsageError("choose one of --threshold and --keep")
    if threshold is None and keep is None:
        if dtype == "float64":
            raise click.UsageError("choose what to prune: --threshold W, --keep N or --dtype")
        threshold = 0.0
    check_target(out, "the model")
    tagger = load_tagger(model)
    data = read_labeled(file, format_of(tagger), file_format(layout, tagger))
    check_columns(tagger, data.X, file)
    before = size_of(model)
    tagger.prune(threshold, keep=keep, dtype=dtype, X=data.X, y=data.y, sample_weight=data.weights)
    tagger.save(out, dtype=dtype)
    found = tagger.pruned_
    if as_json:
        click.echo(json.dumps({"model": out, "bytes": os.path.getsize(out)} | found._asdict()))
        return
    click.echo(f"weights      {found.weights} of {found.weights_before}")
    click.echo(f"attributes   {found.attributes} of {found.attributes_before}")
    costs = f"{found.objective:.8g} per sequence of {file}, before {found.objective_before:.8g}"
    click.echo(f"objective    {costs}")
    click.echo(f"model        {out} ({size_of(out)}, before {before})")
