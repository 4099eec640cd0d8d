"""``cliquewise inspect``: show what a model has learned."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from cliquewise.cli import debug_option, standard_output


@click.command(
    epilog="""\b
    Example: cliquewise inspect --model ner.cw --label B-LOC --top 10"""
)
@click.option(
    "--model",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Inspect this model.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show this number of weights for each label.",
)
@click.option("--label", help="Show only this label.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Print the result in this format.",
)
@click.option("--json", "form", flag_value="json", help="Print the result as JSON.")
@debug_option
def command(model: str, top: int, label: str | None, form: str) -> None:
    """Show the certificate, the training record, and the largest weights of each label."""
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
    chosen = None if label is None else _find(label, names)
    features = {names[y]: found for y, found in tagger.top_features(chosen, top).items()}
    transitions = [
        (names[a], names[b], weight)
        for a, b, weight in ([] if tagger is not loaded else tagger.top_transitions())
        if label is None or chosen in (a, b)
    ][:top]
    if form == "json":
        found = _facts(loaded, tagger) | {"features": features, "transitions": transitions}
        click.echo(json.dumps(found))
    else:
        _print(loaded, tagger, features, transitions)


def _facts(loaded: Any, tagger: Any) -> dict[str, Any]:
    """Return what JSON holds of a model, without its weights."""
    c = loaded.certificate_
    has_proof = c.status != "none"
    return {
        "kind": type(loaded).__name__,
        "labels": [str(name) for name in loaded.classes_],
        "attributes": tagger.encoder_.n_features,
        "weights": len(tagger.coef_),
        "nonzero_weights": tagger.n_nonzero_,
        "parameters": loaded._parameters_to_save(),
        "objective": None if math.isnan(c.primal) else c.primal,
        "lower_bound": c.dual if has_proof else None,
        "gap": c.gap if has_proof else None,
        "status": c.status,
        "solver": loaded.solver_,
        "epochs": loaded.n_iter_,
        "stop_reason": loaded.stop_reason_,
        "provenance": loaded.provenance_,
        "metadata": loaded.metadata_,
    }


def _print(
    loaded: Any,
    tagger: Any,
    features: dict[str, Any],
    transitions: list[tuple[str, str, float]],
) -> None:
    c = loaded.certificate_
    kind, n_labels = type(loaded).__name__, len(loaded.classes_)
    click.echo(f"{kind} of {n_labels} labels, {tagger.encoder_.n_features} features")
    if loaded.l1_ratio > 0:
        left = f"{tagger.n_nonzero_} of {len(tagger.coef_)} weights are not zero"
        click.echo(f"l1_ratio = {loaded.l1_ratio:g}: {left}")
    proven = f"relative gap {c.gap:.2e} ({c.status})"
    if c.status == "none":
        proven = "no certificate for these weights"
    known = "" if math.isnan(c.primal) else f"objective {c.primal:.8g}, "
    click.echo(f"C = {getattr(loaded, 'C_', loaded.C):g}, {known}{proven}")
    if loaded.provenance_:
        p = loaded.provenance_
        click.echo(
            f"trained by cliquewise {p.get('cliquewise')} on {p.get('examples')} examples "
            f"(data {str(p.get('data'))[:12]})"
        )
    for name, value in loaded.metadata_.items():
        click.echo(f"{name}: {value}")
    for label, weights in features.items():
        click.echo(f"\n{label}")
        for name, weight in weights:
            click.echo(f"  {weight:+9.4f}  {name}")
    if tagger is loaded:
        click.echo("\ntransitions")
        for before, after, weight in transitions:
            click.echo(f"  {weight:+9.4f}  {before} -> {after}")


def _find(label: str, names: dict[Any, str]) -> Any:
    """Return the class with a name."""
    from cliquewise.errors import DataError

    for c, name in names.items():
        if name == label:
            return c
    raise DataError(
        f"{label!r} is not a label of this model; its labels: {', '.join(names.values())}"
    )
