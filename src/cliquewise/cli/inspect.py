"""``cliquewise inspect``: what a model has learned."""

from __future__ import annotations

import math
from typing import Any

import click

from cliquewise.cli import debug_option, standard_output


@click.command()
@click.option("--model", required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--label", help="Only this label.")
@debug_option
def command(model: str, top: int, label: str | None) -> None:
    """Show the certificate, the largest weights of each label, and the transitions."""
    from cliquewise.errors import FormatError
    from cliquewise.estimators.files import load
    from cliquewise.estimators.multiclass import MulticlassClassifier
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

    standard_output()
    loaded = load(model)
    tagger = loaded.tagger_ if isinstance(loaded, MulticlassClassifier) else loaded
    if not isinstance(tagger, SequenceTagger):
        raise FormatError(f"the weights of a {type(loaded).__name__} have no names to show", model)
    names = dict(zip(tagger.classes_, map(str, loaded.classes_), strict=True))
    c = loaded.certificate_
    click.echo(
        f"{type(loaded).__name__} of {len(names)} labels, {tagger.encoder_.n_features} features"
    )
    if loaded.l1_ratio > 0:
        left = f"{tagger.n_nonzero_} of {len(tagger.coef_)} weights are not zero"
        click.echo(f"l1_ratio = {loaded.l1_ratio:g}: {left}")
    proved = f"relative gap {c.gap:.2e} ({c.status})"
    if c.status == "none":
        proved = "nothing is proved of these weights"
    known = "" if math.isnan(c.primal) else f"objective {c.primal:.8g}, "
    click.echo(f"C = {loaded.C:g}, {known}{proved}")
    chosen = None if label is None else _find(label, names)
    for y, features in tagger.top_features(chosen, top).items():
        click.echo(f"\n{names[y]}")
        for name, weight in features:
            click.echo(f"  {weight:+9.4f}  {name}")
    if tagger is not loaded:
        return
    pairs = [t for t in tagger.top_transitions() if label is None or chosen in t[:2]]
    click.echo("\ntransitions")
    for a, b, weight in pairs[:top]:
        click.echo(f"  {weight:+9.4f}  {names[a]} -> {names[b]}")


def _find(label: str, names: dict[Any, str]) -> Any:
    """The class that is written like this."""
    from cliquewise.errors import DataError

    for c, name in names.items():
        if name == label:
            return c
    raise DataError(f"{label!r} is no label of this model; they are {', '.join(names.values())}")
