"""``cliquewise report``: a page to look at."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cliquewise.cli import debug_option
from cliquewise.cli.infer import given_option, read_graph
from cliquewise.cli.progress import waiting
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
@click.option("--live", is_flag=True, help="Put the tagger into the page, to try it there.")
@click.option("--title", help="What the page calls itself. [default: the name of FILE]")
@click.option(
    "--evid",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Evidence for a graphical model.",
)
@given_option
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    help="Time for each question about a graphical model that has no quick answer.",
)
@click.option("--jobs", default=1, show_default=True, help="Threads; -1 for all processors.")
@reading_options("as of the training file")
@debug_option
def command(
    file: str,
    model: str | None,
    out: str,
    live: bool,
    title: str | None,
    evid: str | None,
    given: tuple[str, ...],
    seconds: float | None,
    jobs: int,
    layout: dict[str, str | None],
) -> None:
    """Write one HTML file that shows a model: it needs no network and no server.

    With --model, FILE is a labeled file (as for evaluate): what is proved of the model, its
    scores, its errors one by one with their reasons, and its weights.

    Without, FILE is a graphical model in UAI, BIF or XMLBIF format (as for infer): the graph, its
    marginals, the best labeling, and what is proved of them.
    """
    from cliquewise.report.page import check_report

    check_report(out)
    title = title or Path(file).name
    if model is None and live:
        raise click.UsageError("--live needs --model: a tagger to try")
    if model is None:
        _report_graph(file, out, title, seconds, evid, given)
    elif evid is not None or given or seconds is not None:
        raise click.UsageError(
            "--evid, --given and --seconds belong to a graphical model, not to a tagger"
        )
    else:
        tagger = load_tagger(model).set_params(n_jobs=jobs)
        with waiting(f"reading {file}"):
            data = read_labeled(file, format_of(tagger), file_format(layout, tagger))
        check_columns(tagger, data.X, file)
        about = f"{Path(model).name}, tried on {Path(file).name}"
        with waiting(f"writing {out}"):
            tagger.report(data.X, data.y, out, title=title, subtitle=about, live=live)
    click.echo(f"{out} ({os.path.getsize(out) / 1e6:.1f} MB): open it in a browser", err=True)


def _report_graph(
    file: str,
    out: str,
    title: str,
    seconds: float | None,
    evidence: str | None,
    given: tuple[str, ...],
) -> None:
    from cliquewise.errors import FormatError

    with waiting(f"reading {file}"):
        try:
            graph = read_graph(file, evidence, given)
        except FormatError as error:
            if {".uai", ".bif", ".xml", ".xmlbif"} & set(Path(file.lower()).suffixes):
                raise
            raise FormatError(f"{error}. To report on a tagger, name it by --model") from None
    limits = {} if seconds is None else {"seconds": seconds}
    known = [*([] if evidence is None else [Path(evidence).name]), *given]
    observed = f", given {', '.join(known)}" if known else ""
    with waiting(f"asking {file}"):
        graph.report(out, title, f"{repr(graph)[1:-1]}{observed}", **limits)
