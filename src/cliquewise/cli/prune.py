"""``cliquewise prune``: a smaller model, and what that costs."""

from __future__ import annotations

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


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--model", required=True, type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, writable=True),
    help="File to write; it may be the model's own.",
)
@click.option("--threshold", type=float, metavar="W", help="Drop weights up to this size.")
@click.option("--keep", type=float, metavar="N", help="Keep so many, or this share.")
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32", "float16"]),
    default="float64",
    show_default=True,
    help="What weights are rounded to in the file.",
)
@reading_options("as of the training file")
@debug_option
def command(
    file: str,
    model: str,
    out: str,
    threshold: float | None,
    keep: float | None,
    dtype: str,
    layout: dict[str, str | None],
) -> None:
    """Write a model with fewer weights, in fewer bytes each.

    FILE is labeled, such as the training file: what pruning costs in the objective is computed
    on it. Transitions are kept always.
    """
    from cliquewise.persistence import check_target

    standard_output()
    if threshold is not None and keep is not None:
        raise click.UsageError("choose one of --threshold and --keep")
    if threshold is None and keep is None:
        threshold = 0.0
    check_target(out, "the model")
    tagger = load_tagger(model)
    data = read_labeled(file, format_of(tagger), file_format(layout, tagger))
    check_columns(tagger, data.X, file)
    before = size_of(model)
    tagger.prune(threshold, keep=keep, dtype=dtype, X=data.X, y=data.y, sample_weight=data.weights)
    tagger.save(out, dtype=dtype)
    told = tagger.pruned_
    click.echo(f"weights      {told.weights} of {told.weights_before}")
    click.echo(f"attributes   {told.attributes} of {told.attributes_before}")
    costs = f"{told.objective:.8g} per sequence of {file}, before {told.objective_before:.8g}"
    click.echo(f"objective    {costs}")
    click.echo(f"model        {out} ({size_of(out)}, before {before})")
