"""``cliquewise fit``: from a labeled file to a model with a certificate."""

from __future__ import annotations

import time
import warnings
from typing import Any

import click

from cliquewise.cli import debug_option
from cliquewise.cli.formatting import GroupedCommand, counted, size_of
from cliquewise.cli.options import option_groups, parameter_options
from cliquewise.cli.progress import waiting
from cliquewise.cli.tagging import (
    FORMATS,
    file_format,
    read_labeled,
    reading_options,
)
from cliquewise.estimators.parameters import SequenceTaggerParameters

_GROUPS = option_groups(SequenceTaggerParameters)


@click.command(
    cls=GroupedCommand,
    groups={
        "Files": ["model", "with_state", "form", *_GROUPS["Files"], "tabs", "comment", "encoding"],
        "Model": _GROUPS["Model"],
        "Training": _GROUPS["Training"],
        "Long runs": ["cache", *_GROUPS["Long runs"]],
    },
)
@click.argument("train", type=click.Path())
@click.option(
    "--model",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write the model to this file.",
)
@click.option(
    "--with-state", is_flag=True, help="Store the sentences in the model, for cliquewise update."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="conll",
    show_default=True,
    help="Read TRAIN in this format.",
)
@parameter_options(SequenceTaggerParameters)
@click.option("--c1", type=float, hidden=True)  # names of CRFsuite, for the error message
@click.option("--c2", type=float, hidden=True)
@click.option(
    "--cache",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Store data that exceed --max-memory in this directory.",
)
@reading_options("utf-8")
@debug_option
def command(
    train: str,
    model: str,
    with_state: bool,
    form: str,
    template: str | None,
    layout: dict[str, str | None],
    cache: str | None,
    **parameters: Any,
) -> None:
    """Train a tagger on TRAIN (.gz, .xz and .bz2 too) and write it to a file.

    A column file has a token on each line, with the label in the last column, and a blank
    line after each sentence; columns are separated by white space. In CRFsuite's format the
    label comes first, then attributes, separated by tabs. A template FILE is one of CRF++ or
    Wapiti. The transitions BIO and BIOES forbid what is impossible in these schemes. Ctrl-C
    ends training early and keeps the model so far. With --cache, data and dual variables
    beyond --max-memory stay on disk. A model --with-state takes more sentences later, by
    cliquewise update.
    """
    from sklearn.exceptions import ConvergenceWarning

    from cliquewise.data import Shards
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger
    from cliquewise.persistence import check_target

    _translate({name: parameters.pop(name) for name in ("c1", "c2")})
    if parameters["resume"] and not (parameters["checkpoint"] or cache):
        raise click.UsageError("--resume needs --checkpoint FILE or --cache DIR")
    if form == "crfsuite" and template is not None:
        raise click.UsageError("CRFsuite's files hold attributes already; --template has no use")
    if with_state and (cache or parameters["device"]):
        raise click.UsageError("--with-state keeps no sentences of a --cache or a --device")
    check_target(model, "the model")
    written = file_format(layout)
    data: Any
    if cache is not None:  # TRAIN may be a pattern then
        data = Shards(train, cache, form=form, **_shard_options(layout))
    else:
        click.Path(exists=True, dir_okay=False).convert(train, _argument("train"), None)
        with waiting(f"reading {train}"):
            data = read_labeled(train, form, written)
    tagger = SequenceTagger(template=template, **parameters)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if cache is not None:
            tagger.fit(data)
        else:
            tagger.fit(data.X, data.y, data.weights)
    seconds = time.perf_counter() - start
    if tagger.encoder_.file_format is None:  # CRFsuite's files have no columns
        tagger.encoder_.file_format = written
    tagger.save(model, with_state=with_state)
    sequences, tokens = data.counts
    click.echo(f"sequences    {sequences} with {counted(tokens, 'token')}")
    report(tagger, template or tagger.encoder_.builtin_template, model, seconds)
    if len(tagger.classes_) == 1:
        click.echo(
            f"warning: every label is {tagger.classes_[0]!r}: there is nothing to learn; "
            "see --help for what a training file looks like",
            err=True,
        )
    for warning in caught:
        if not issubclass(warning.category, ConvergenceWarning):
            click.echo(f"warning: {warning.message}", err=True)
        elif parameters["tol"]:
            click.echo(f"warning: {_convergence_warning(tagger)}", err=True)


def _convergence_warning(tagger: Any) -> str:
    """Describe how far training is from its tolerance, and which options help."""
    c = tagger.certificate_
    if c.status == "none":
        return "training stopped without a certificate, because the problem is not convex"
    text = f"training stopped at relative gap {c.gap:.3g} (--tol {tagger.tol:g}); "
    if c.rounding > tagger.tol * abs(c.primal):
        return text + (
            f"rounding errors may reach {c.rounding:.3g} of the objective {c.primal:.3g}: "
            "scale the features, or lower --C"
        )
    return text + "raise --max-epochs or --max-seconds, lower --C, or try another --solver"


def _argument(name: str) -> click.Parameter:
    return next(p for p in command.params if p.name == name)


def _shard_options(layout: dict[str, str | None]) -> dict[str, Any]:
    return {name: value for name, value in layout.items() if value is not None}


def report(tagger: Any, template: str | None, path: str, seconds: float) -> None:
    """What was trained and what is proved about it."""
    c, m = tagger.certificate_, tagger.model_
    click.echo(f"labels       {len(tagger.classes_)}: {_some(tagger.classes_)}")
    features = f"{tagger.encoder_.n_features} attributes, {m.dimension} weights"
    if tagger.l1_ratio > 0:
        features += f", {tagger.n_nonzero_} not zero"
    click.echo(f"features     {features}" + (f" (template {template})" if template else ""))
    passes = counted(float(f"{tagger.n_iter_:.3g}"), "pass", "passes")
    click.echo(f"solver       {tagger.solver_}, {passes}, {seconds:.1f} s")
    click.echo(f"objective    {c.primal:.8g} per sequence")
    if c.status == "none":
        click.echo("certificate  none")
    else:
        click.echo(
            f"certificate  no weights reach less than {c.dual:.8g}: relative gap {c.gap:.2e}"
        )
    click.echo(f"model        {path} ({size_of(path)})")


def _some(names: list[Any], room: int = 60) -> str:
    """The first names that fit on a line."""
    shown: list[str] = []
    for name in map(str, names):
        room -= len(name) + 1
        if room < 0 and shown:
            return " ".join([*shown, "..."])
        shown.append(name[:60])
    return " ".join(shown)


def _translate(given: dict[str, float | None]) -> None:
    """Say what CRFsuite's penalty is here, if that is what was given."""
    names = {name: value for name, value in given.items() if value is not None}
    if not names:
        return
    from cliquewise.estimators.tagger.crfsuite_names import penalty

    here = penalty(names.get("c1", 0.0), names.get("c2", 1.0))
    flags = " and ".join(f"--{name}" for name in names)
    here = here.replace("l1_ratio=", "--l1-ratio ").replace("C=", "--C ").replace(", --", " --")
    raise click.UsageError(f"{flags} of CRFsuite: here {here}")
