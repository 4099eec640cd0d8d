"""``cliquewise report``: write an HTML page about a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from cliquewise.cli import debug_option
from cliquewise.cli.infer import given_option, read_graph
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
    Example: cliquewise report test.conll --model ner.cw --out report.html"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--model",
    metavar="MODEL",
    type=click.Path(exists=True, dir_okay=False),
    help="Report on this trained tagger; FILE is then a labeled file.",
)
@click.option(
    "--out",
    metavar="PAGE",
    required=True,
    type=click.Path(dir_okay=False),
    help="Write the page to this file, such as report.html.",
)
@click.option(
    "--live", is_flag=True, help="Include the tagger in the page, so that readers can try it."
)
@click.option("--title", help="Use this title. [default: the name of FILE]")
@click.option(
    "--evid",
    metavar="EVIDENCE",
    type=click.Path(exists=True, dir_okay=False),
    help="Read the observed variables of a graphical model from this file.",
)
@given_option
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    help="Limit the time of each query to a graphical model.",
)
@parameter_options(SequenceTaggerParameters, "n_jobs")
@reading_options("as in the training file")
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
    n_jobs: int,
    layout: dict[str, Any],
) -> None:
    """Write a self-contained HTML page about a model; it makes no network requests.

    With --model, FILE is a labeled file, as for evaluate. The page shows the certificate, the
    scores, the errors with their reasons, and the weights.

    Without --model, FILE is a graphical model in UAI, BIF or XMLBIF format, as for infer. The page
    shows the graph, its marginals, the best labeling and their certificates.
    """
    from cliquewise.report.page import check_report

    check_report(out)
    title = title or Path(file).name
    if model is None and live:
        raise click.UsageError("--live needs --model with a tagger")
    if model is None:
        _report_graph(file, out, title, seconds, evid, given)
    elif evid is not None or given or seconds is not None:
        raise click.UsageError(
            "--evid, --given and --seconds are options for graphical models, not for taggers"
        )
    else:
        tagger = load_tagger(model).set_params(n_jobs=n_jobs)
        with waiting(f"reading {file}"):
            data = read_labeled(file, format_of(tagger), file_format(layout, tagger))
        check_columns(tagger, data.X, file)
        about = f"{Path(model).name}, evaluated on {Path(file).name}"
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
            raise FormatError(f"{error}. For a report on a tagger, use --model") from None
    limits = {} if seconds is None else {"seconds": seconds}
    known = [*([] if evidence is None else [Path(evidence).name]), *given]
    observed = f", given {', '.join(known)}" if known else ""
    with waiting(f"running inference on {file}"):
        graph.report(out, title, f"{repr(graph)[1:-1]}{observed}", **limits)
