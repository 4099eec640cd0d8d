"""``cliquewise report``: a page to look at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from cliquewise.cli import debug_option
from cliquewise.cli.progress import waiting
from cliquewise.cli.tagging import (
    check_columns,
    format_of,
    load_tagger,
    read_labeled,
    reading_options,
    writing_of,
)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--model",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A trained tagger; FILE is then a labeled file to try it on.",
)
@click.option(
    "--out",
    metavar="FILE",
    required=True,
    type=click.Path(dir_okay=False, writable=True),
    help="The page to write, such as report.html.",
)
@click.option("--title", help="What the page calls itself. [default: the name of FILE]")
@click.option("--jobs", default=1, show_default=True, help="Threads; -1 for all processors.")
@reading_options("as of the training file")
@debug_option
def command(
    file: str,
    model: str | None,
    out: str,
    title: str | None,
    jobs: int,
    tabs: bool,
    encoding: str | None,
) -> None:
    """Write one HTML file that shows a model: it needs no network and no server.

    With --model, FILE is a labeled file (as for evaluate): what is proved of the model, its
    scores, its errors one by one with their reasons, and its weights.
    """
    if model is None:
        raise click.UsageError("--model is needed: the tagger that is tried on FILE.")
    tagger = load_tagger(model).set_params(n_jobs=jobs)
    encoding, tabs = writing_of(tagger, encoding, tabs)
    with waiting(f"reading {file}"):
        data = read_labeled(file, format_of(tagger), tabs, encoding)
    check_columns(tagger, data.X, file)
    about = f"{Path(model).name}, tried on {Path(file).name}"
    with waiting(f"writing {out}"):
        tagger.report(data.X, data.y, out, title=title or Path(file).name, subtitle=about)
    _say(out)


def _say(out: str) -> None:
    size: Any = os.path.getsize(out) / 1e6
    click.echo(f"{out} ({size:.1f} MB): open it in a browser", err=True)
