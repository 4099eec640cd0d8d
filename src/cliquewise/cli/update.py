"""``cliquewise update``: continue training a model with more sentences."""

from __future__ import annotations

import time
import warnings
from typing import Any

import click

from cliquewise.cli import debug_option
from cliquewise.cli.fit import finish
from cliquewise.cli.options import parameter_options
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
    Example: cliquewise update more.conll --model ner.cw"""
)
@click.argument("more", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--model",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Continue with this model, which cliquewise fit --with-state wrote.",
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write the new model to this file. [default: the file of the old one]",
)
@parameter_options(SequenceTaggerParameters, "n_jobs", "verbose")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@reading_options("as in the training file")
@debug_option
def command(
    more: str,
    model: str,
    out: str | None,
    n_jobs: int,
    verbose: int,
    as_json: bool,
    layout: dict[str, Any],
) -> None:
    """Add the sentences of MORE to those of a model, and train on all of them.

    Training continues from the state in the model, and the result is the same as if all sentences
    had been used from the start; the certificate covers all of them. New labels and attributes
    are added. The new model stores all sentences for the next update.
    """
    from cliquewise.atomic_files import check_target
    from cliquewise.errors import DataError

    target = model if out is None else out
    check_target(target, "the model")
    tagger = load_tagger(model)
    if not tagger.has_state:
        raise DataError(
            f"{model} does not contain its training sentences: train it with "
            "cliquewise fit --with-state"
        )
    data = read_labeled(more, format_of(tagger), file_format(layout, tagger))
    check_columns(tagger, data.X, more)
    known = set(tagger.classes_)
    tagger.set_params(n_jobs=n_jobs, verbose=verbose)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tagger.partial_fit(data.X, data.y, sample_weight=data.weights)
    seconds = time.perf_counter() - start
    tagger.save(target, with_state=True)
    new = [str(name) for name in tagger.classes_ if name not in known]
    more_facts = {"new_labels": new} if new else {}
    finish(tagger, data.counts, target, seconds, caught, as_json=as_json, more=more_facts)
