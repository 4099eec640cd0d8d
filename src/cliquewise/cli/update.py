"""``cliquewise update``: more sentences for a model, which goes on from where training stood."""

from __future__ import annotations

import time

import click

from cliquewise.cli import debug_option
from cliquewise.cli.fit import report
from cliquewise.cli.formatting import counted
from cliquewise.cli.tagging import (
    check_columns,
    file_format,
    format_of,
    load_tagger,
    read_labeled,
    reading_options,
)


@click.command()
@click.argument("more", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--model",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Written by fit --with-state.",
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="File to write. [default: the model's own]",
)
@click.option("--jobs", default=1, show_default=True, help="Threads; -1: all processors.")
@click.option("--quiet", is_flag=True, help="No progress line.")
@reading_options("as of the training file")
@debug_option
def command(
    more: str, model: str, out: str | None, jobs: int, quiet: bool, layout: dict[str, str | None]
) -> None:
    """Add the sentences of MORE to those that a model was trained on, and train on all of them.

    The model is the same as if it had been trained on all at once, with a certificate over all;
    training goes on from where it stood. New labels and new attributes are taken in. The file
    keeps all sentences for the next update.
    """
    from cliquewise.errors import DataError
    from cliquewise.persistence import check_target

    target = model if out is None else out
    check_target(target, "the model")
    tagger = load_tagger(model)
    if not tagger.has_state:
        raise DataError(
            f"{model} has not kept the sentences that it was trained on: train it by "
            "cliquewise fit --with-state"
        )
    data = read_labeled(more, format_of(tagger), file_format(layout, tagger))
    check_columns(tagger, data.X, more)
    known = set(tagger.classes_)
    tagger.set_params(n_jobs=jobs, verbose=0 if quiet else 1)
    start = time.perf_counter()
    tagger.partial_fit(data.X, data.y, sample_weight=data.weights)
    seconds = time.perf_counter() - start
    tagger.save(target, with_state=True)
    sequences, tokens = data.counts
    click.echo(f"added        {sequences} with {counted(tokens, 'token')}")
    report(tagger, None, target, seconds)
    new = [str(name) for name in tagger.classes_ if name not in known]
    if new:
        click.echo(f"new labels   {' '.join(new)}")
