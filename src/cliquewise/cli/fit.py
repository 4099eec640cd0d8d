"""``cliquewise fit``: train a tagger on a labeled file."""

from __future__ import annotations

import json
import shlex
import sys
import time
import warnings
from collections import Counter
from typing import Any

import click

from cliquewise.cli import debug_option, exit_codes
from cliquewise.cli.formatting import GroupedCommand, counted, size_of
from cliquewise.cli.options import option_groups, parameter_options
from cliquewise.cli.progress import waiting
from cliquewise.cli.tagging import (
    FORMATS,
    column_options,
    file_format,
    read_labeled,
    reading_options,
)
from cliquewise.estimators.parameters import SequenceTaggerParameters

_GROUPS = option_groups(SequenceTaggerParameters)
#: A column with more labels than this, most of them seen once, is probably text.
_MANY_LABELS = 200


@click.command(
    cls=GroupedCommand,
    groups={
        "Files": [
            "model", "with_state", "metadata", "form", "label", "columns", "header",
            *_GROUPS["Files"], "tabs", "comment", "encoding",
        ],
        "Model": _GROUPS["Model"],
        "Training": _GROUPS["Training"],
        "Long runs": ["cache", *_GROUPS["Long runs"]],
    },
    epilog="""\b
    Example: cliquewise fit train.conll --model ner.cw --transitions BIO""",
)  # fmt: skip
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
    "--metadata",
    multiple=True,
    metavar="NAME=VALUE",
    help="Store this note in the model; may be repeated.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="conll",
    show_default=True,
    help="Read TRAIN in this format; CoNLL-U is detected.",
)
@column_options
@parameter_options(SequenceTaggerParameters)
@click.option("--c1", type=float, hidden=True)  # names of CRFsuite, for the error message
@click.option("--c2", type=float, hidden=True)
@click.option(
    "--cache",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Store data that exceed --max-memory in this directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@reading_options("utf-8")
@debug_option
def command(
    train: str,
    model: str,
    with_state: bool,
    metadata: tuple[str, ...],
    form: str,
    template: str | None,
    layout: dict[str, Any],
    cache: str | None,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Train a tagger on TRAIN and write it to a model file.

    TRAIN is a column file, CoNLL-U, or a CRFsuite file, plain or compressed (.gz, .xz, .bz2). A
    column file has one token on each line and a blank line after each sentence. The label is the
    last column unless --label names another one; in CoNLL-U, --label is required. In CRFsuite
    files the label comes first, followed by attributes, separated by tabs.

    Ctrl-C or SIGTERM ends training early and writes the model so far.
    """
    from cliquewise.atomic_files import check_target
    from cliquewise.data import Shards
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

    _check_options(form, template, layout, with_state, cache, parameters)
    notes = {"command": shlex.join(["cliquewise", *sys.argv[1:]]), **_notes(metadata)}
    check_target(model, "the model")
    written = file_format(layout)
    data: Any
    if cache is not None:  # TRAIN may be a pattern then
        data = Shards(train, cache, form=form, **_given(layout))
    else:
        click.Path(exists=True, dir_okay=False).convert(train, _argument("train"), None)
        with waiting(f"reading {train}"):
            data = read_labeled(train, form, written)
        _warn_of_free_text(data.y)
    tagger = SequenceTagger(template=template, **parameters)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if cache is not None:
            tagger.fit(data)
        else:
            tagger.fit(data.X, data.y, data.weights)
    seconds = time.perf_counter() - start
    if tagger.encoder_.file_format is None:  # a CRFsuite file
        tagger.encoder_.file_format = written
    tagger.save(model, with_state=with_state, metadata=notes)
    finish(tagger, data.counts, model, seconds, caught, as_json=as_json)


def finish(
    tagger: Any,
    counts: tuple[int, int],
    path: str,
    seconds: float,
    caught: list[warnings.WarningMessage],
    *,
    as_json: bool = False,
    more: dict[str, Any] | None = None,
) -> None:
    """Print the result of training and its warnings, and exit with the code of the result."""
    from sklearn.exceptions import ConvergenceWarning

    texts = [str(w.message) for w in caught if not issubclass(w.category, ConvergenceWarning)]
    if len(tagger.classes_) == 1:
        texts.append(f"every label is {tagger.classes_[0]!r}, so there is nothing to learn")
    reached = tagger.stop_reason_ in ("converged", "validation") or not tagger.tol
    if not reached:
        texts.append(_convergence_warning(tagger))
    if as_json:
        found = summary(tagger, counts, path, seconds) | (more or {}) | {"warnings": texts}
        click.echo(json.dumps(found))
    else:
        click.echo(f"sequences    {counts[0]} with {counted(counts[1], 'token')}")
        _print_summary(tagger, path, seconds)
        for name, value in (more or {}).items():
            click.echo(f"{name.replace('_', ' '):12} {' '.join(value)}")
    for text in texts:
        click.echo(f"warning: {text}", err=True)
    if tagger.stop_reason_ == "interrupted":
        click.get_current_context().exit(exit_codes.INTERRUPTED)
    if not reached:
        click.get_current_context().exit(exit_codes.NOT_CONVERGED)


def summary(tagger: Any, counts: tuple[int, int], path: str, seconds: float) -> dict[str, Any]:
    """Return the result of training as values that JSON can hold."""
    c = tagger.certificate_
    has_proof = c.status != "none"
    return {
        "model": path,
        "sequences": counts[0],
        "tokens": counts[1],
        "labels": [str(name) for name in tagger.classes_],
        "attributes": tagger.encoder_.n_features,
        "weights": tagger.model_.dimension,
        "nonzero_weights": tagger.n_nonzero_,
        "solver": tagger.solver_,
        "epochs": tagger.n_iter_,
        "seconds": round(seconds, 3),
        "stop_reason": tagger.stop_reason_,
        "objective": c.primal,
        "lower_bound": c.dual if has_proof else None,
        "gap": c.gap if has_proof else None,
        "status": c.status,
    }


def _print_summary(tagger: Any, path: str, seconds: float) -> None:
    c, m, encoder = tagger.certificate_, tagger.model_, tagger.encoder_
    click.echo(f"labels       {len(tagger.classes_)}: {_first_names(tagger.classes_)}")
    features = f"{encoder.n_features} attributes, {m.dimension} weights"
    if tagger.l1_ratio > 0:
        features += f", {tagger.n_nonzero_} not zero"
    template = tagger.template if isinstance(tagger.template, str) else encoder.builtin_template
    click.echo(f"features     {features}" + (f" (template {template})" if template else ""))
    epochs = counted(float(f"{tagger.n_iter_:.3g}"), "epoch")
    click.echo(f"solver       {tagger.solver_}, {epochs}, {seconds:.1f} s")
    click.echo(f"objective    {c.primal:.8g} per sequence")
    if c.status == "none":
        click.echo("certificate  none")
    else:
        click.echo(
            f"certificate  no weights reach less than {c.dual:.8g}: relative gap {c.gap:.2e}"
        )
    click.echo(f"model        {path} ({size_of(path)})")


def _convergence_warning(tagger: Any) -> str:
    """Describe how far training is from its tolerance, and which options help."""
    c = tagger.certificate_
    why = "was interrupted" if tagger.stop_reason_ == "interrupted" else "stopped"
    if c.status == "none":
        return f"training {why} without a certificate, because the problem is not convex"
    text = f"training {why} at relative gap {c.gap:.3g} (--tol {tagger.tol:g}); "
    if c.rounding > tagger.tol * abs(c.primal):
        return text + (
            f"rounding errors may reach {c.rounding:.3g} of the objective {c.primal:.3g}: "
            "scale the features, or lower --C"
        )
    if tagger.stop_reason_ == "interrupted":
        return text + "the model so far was written"
    return text + "raise --max-epochs or --max-seconds, lower --C, or try another --solver"


def _check_options(
    form: str,
    template: str | None,
    layout: dict[str, Any],
    with_state: bool,
    cache: str | None,
    parameters: dict[str, Any],
) -> None:
    """Raise a UsageError for options that exclude each other."""
    _translate_penalty({name: parameters.pop(name) for name in ("c1", "c2")})
    if parameters["resume"] and not (parameters["checkpoint"] or cache):
        raise click.UsageError("--resume needs --checkpoint FILE or --cache DIR")
    if form == "crfsuite" and template is not None:
        raise click.UsageError("CRFsuite files contain attributes; --template has no effect")
    if form == "crfsuite" and any(layout[name] for name in ("label", "features", "header")):
        raise click.UsageError(
            "CRFsuite files have no columns; --label, --columns and --header have no effect"
        )
    if with_state and (cache or parameters["device"]):
        raise click.UsageError("--with-state does not work with --cache or --device")


def _notes(metadata: tuple[str, ...]) -> dict[str, str]:
    """Parse NAME=VALUE."""
    notes = {}
    for note in metadata:
        name, equals, value = note.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--metadata takes NAME=VALUE, not {note!r}")
        notes[name] = value
    return notes


def _warn_of_free_text(labels: list[list[str]]) -> None:
    """Warn if the labels look like words rather than like classes."""
    counts = Counter(label for sequence in labels for label in sequence)
    once = sum(count == 1 for count in counts.values())
    if len(counts) > _MANY_LABELS and 2 * once > len(counts):
        click.echo(
            f"warning: the label column has {len(counts)} different values, and {once} of them "
            "occur once: it looks like text rather than labels; choose another column with --label",
            err=True,
        )


def _argument(name: str) -> click.Parameter:
    return next(p for p in command.params if p.name == name)


def _given(layout: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in layout.items() if value is not None}


def _first_names(names: list[Any], width: int = 60) -> str:
    """Return the first names that fit on a line."""
    shown: list[str] = []
    for name in map(str, names):
        width -= len(name) + 1
        if width < 0 and shown:
            return " ".join([*shown, "..."])
        shown.append(name[:60])
    return " ".join(shown)


def _translate_penalty(given: dict[str, float | None]) -> None:
    """Raise an error that translates the penalty of CRFsuite, if that was given."""
    names = {name: value for name, value in given.items() if value is not None}
    if not names:
        return
    from cliquewise.estimators.tagger.crfsuite_names import penalty

    here = penalty(names.get("c1", 0.0), names.get("c2", 1.0))
    flags = " and ".join(f"--{name}" for name in names)
    here = here.replace("l1_ratio=", "--l1-ratio ").replace("C=", "--C ").replace(", --", " --")
    raise click.UsageError(f"{flags} of CRFsuite: here {here}")
