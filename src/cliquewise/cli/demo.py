"""``cliquewise demo``: read handwritten numbers, one digit at a time and as sequences."""

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


@click.command()
@click.option("--seed", default=0, show_default=True, help="Of the data and of training.")
@debug_option
def command(seed: int) -> None:
    """Train on handwritten numbers (nothing is downloaded) and show what is proved."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    with waiting("compiling, once, and training", patience=1.0):
        result = _train(seed)
    train, test, tagger, alone = (result[k] for k in ("train", "test", "tagger", "alone"))
    console.print(
        f"[bold]Reading handwritten numbers[/]: {len(train)} sequences of digits to learn from, "
        f"{len(test)} to test on.\n"
        "Each picture is smudged. Most numbers count upwards, so neighbors help to read a digit.\n"
    )
    _show_example(console, test, tagger, alone)
    console.print(
        f"{'Right on the test part':44} {'digits':>9} {'sequences':>11}\n"
        + _row("MulticlassClassifier, each digit on its own", alone, test)
        + _row("SequenceTagger, sequences", tagger, test)
    )
    _show_certificate(console, result)
    console.print(NEXT, end="")


def _train(seed: int) -> dict[str, Any]:
    """Both models, on the same digits: the second one sees no neighbors."""
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
    """A classifier of single digits that answers for sequences."""

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
    """The short sequence where neighbors helped most, with its pictures."""
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
    console.print("written       " + "".join(f"{d:^10}" for d in truth))
    console.print("on its own    " + _marked(single[best], truth))
    console.print("as a sequence " + _marked(ours[best], truth))
    chances = [sure[t, tagger.classes_.index(d)] for t, d in enumerate(ours[best])]
    console.print("how sure      " + "".join(f"{f'{p:.0%}':^10}" for p in chances) + "\n")


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
        f"[bold]Certificate[/]: {tagger.solver_} took {tagger.n_iter_:.0f} passes and "
        f"{result['seconds']:.1f} s, loading or compiling included\n"
        f"  objective of these weights     {c.primal:.6f}\n"
        f"  no weights can do better than  {c.dual:.6f}   (a proved bound, not a guess)\n"
        f"  relative gap                   {c.gap:.1e}\n"
    )


def _draw(images: NDArray[np.float64]) -> list[str]:
    """8 x 8 pictures side by side, as shades."""
    import numpy as np

    level = np.clip(images * len(SHADES), 0, len(SHADES) - 1).astype(int).reshape(-1, 8, 8)
    return [
        "  ".join("".join(SHADES[v] for v in picture[row]) for picture in level) for row in range(8)
    ]
