"""``cliquewise demo``: recognize handwritten numbers, digit by digit and as sequences."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from cliquewise.cli import debug_option
from cliquewise.cli.progress import waiting

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHADES = " ░▒▓█"
NEXT = """\
What to do next
  your own files:  cliquewise fit train.conll --model m.cw; cliquewise predict --model m.cw
  from Python:     cw.SequenceTagger().fit(X, y), with X as dicts, strings, arrays or columns
  any graph:       cliquewise infer model.uai --task MAP
"""


@click.command(
    epilog="""\b
    Example: cliquewise demo --seed 1"""
)
@click.option(
    "--seed", default=0, show_default=True, help="Set the random seed for the data and training."
)
@debug_option
def command(seed: int) -> None:
    """Train on handwritten numbers, which come with the library, and explain the certificate."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    with waiting("compiling (only the first time) and training", patience=1.0):
        result = _train(seed)
    train, test, tagger, alone = (result[k] for k in ("train", "test", "tagger", "alone"))
    console.print(
        f"[bold]Handwritten numbers[/]: {len(train)} training sequences of digits, "
        f"{len(test)} test sequences.\n"
        "The images are blurred. Most numbers count upwards, so neighboring digits help.\n"
    )
    _show_example(console, test, tagger, alone)
    console.print(
        f"{'Accuracy on the test set':44} {'digits':>9} {'sequences':>11}\n"
        + _row("MulticlassClassifier, each digit alone", alone, test)
        + _row("SequenceTagger, whole sequences", tagger, test)
    )
    _show_certificate(console, result)
    console.print(NEXT, end="")


def _train(seed: int) -> dict[str, Any]:
    """Train a sequence model, and a classifier that sees each digit without its neighbors."""
    import numpy as np

    from cliquewise.data.embedded import handwritten_numbers
    from cliquewise.estimators.multiclass import MulticlassClassifier
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

    train, test = handwritten_numbers(random_state=seed)
    start = time.perf_counter()
    tagger = SequenceTagger(tol=1e-4, random_state=seed).fit(train.X, train.y)
    seconds = time.perf_counter() - start
    alone = MulticlassClassifier(tol=1e-4, random_state=seed)
    alone.fit(np.concatenate(train.X), [digit for y in train.y for digit in y])
    return {"train": train, "test": test, "tagger": tagger, "seconds": seconds,
            "alone": _Alone(alone)}  # fmt: skip


class _Alone:
    """Adapter: a classifier of digits with the interface of a sequence model."""

    def __init__(self, classifier: Any):
        self.classifier = classifier

    def predict(self, X: Any) -> list[list[int]]:
        import numpy as np

        found = iter(self.classifier.predict(np.concatenate(X)).tolist())
        return [[next(found) for _ in x] for x in X]


def _row(name: str, model: Any, test: Any) -> str:
    from cliquewise.metrics import exact_match_accuracy, token_accuracy

    y = model.predict(test.X)
    digits, whole = token_accuracy(test.y, y), exact_match_accuracy(test.y, y)
    return f"  {name:44} {100 * digits:5.1f} % {100 * whole:9.1f} %\n"


def _show_example(console: Any, test: Any, tagger: Any, alone: Any) -> None:
    """Print the short sequence in which neighbors helped most, with its images."""
    ours, single = tagger.predict(test.X), alone.predict(test.X)
    best = max(
        (i for i, y in enumerate(test.y) if len(y) <= 6),
        key=lambda i: _agreement(ours[i], test.y[i]) - _agreement(single[i], test.y[i]),
    )
    console.print("The short test sequence where neighbors help most:\n")
    sure = tagger.predict_marginals([test.X[best]])[0]
    truth = test.y[best]
    for line in _draw(test.X[best]):
        console.print(f"               {line}")
    console.print("gold          " + "".join(f"{d:^10}" for d in truth))
    console.print("digit alone   " + _marked(single[best], truth))
    console.print("as a sequence " + _marked(ours[best], truth))
    chances = [sure[t, tagger.classes_.index(d)] for t, d in enumerate(ours[best])]
    console.print("probability   " + "".join(f"{f'{p:.0%}':^10}" for p in chances) + "\n")


def _agreement(found: list[int], truth: list[int]) -> int:
    return sum(a == b for a, b in zip(found, truth, strict=True))


def _marked(found: list[int], truth: list[int]) -> str:
    return "".join(
        f"{d:^10}" if d == t else f"[red]{f'({d})':^10}[/]"
        for d, t in zip(found, truth, strict=True)
    )


def _show_certificate(console: Any, result: dict[str, Any]) -> None:
    tagger = result["tagger"]
    c = tagger.certificate_
    console.print(
        f"[bold]Certificate[/]: {tagger.solver_} took {tagger.n_iter_:.0f} epochs and "
        f"{result['seconds']:.1f} s, including loading and compiling\n"
        f"  objective of these weights     {c.primal:.6f}\n"
        f"  no weights can do better than  {c.dual:.6f}   (a proven lower bound)\n"
        f"  relative gap                   {c.gap:.1e}\n"
    )


def _draw(images: NDArray[np.float64]) -> list[str]:
    """Draw 8 x 8 images side by side, in shades."""
    import numpy as np

    level = np.clip(images * len(SHADES), 0, len(SHADES) - 1).astype(int).reshape(-1, 8, 8)
    return [
        "  ".join("".join(SHADES[v] for v in picture[row]) for picture in level) for row in range(8)
    ]
