"""Section 6 and Figures 4, 6 and 7 of casimir: networks trained through structured oracles.

    python -m experiments.deep localization [--passes 120] [--scenes 200] [--out FOLDER]
    python -m experiments.deep tagging [--minutes 12] [--linear] [--out FOLDER]

* localization: scenes of scikit-learn's digits on clutter; the wanted digit is to be found among
  81 windows (hinge loss, cost 1 - IoU, a convolutional score with ELU, lam = 1/n). PL-Casimir
  against SGD with three schedules and Adam, each at its best rate of a grid, at equal oracle
  calls (the passes for anchors and for the acceptance test count); then the effect of eta, of
  the inner budget, and of the smoothing.
* tagging: CoNLL-2003, embeddings and a convolution under a chain, beside the linear tagger;
  needs CLIQUEWISE_DATA.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cliquewise.solvers.run import run
from cliquewise.torch import SGD, Adam, DeepProblem, ProxLinear, StructuredClassifier
from cliquewise.torch.heads import Scorer, make_head
from experiments.deep_scenes import make_network, make_scenes


class Localization:
    """The scenes, and training on them from the same start."""

    def __init__(self, n: int, passes: float, seed: int) -> None:
        self.train, self.test = make_scenes(n, seed), make_scenes(n, seed + 1, test=True)
        self.passes, self.seed, self.n = passes, seed, n

    def fit(self, solver: Any) -> dict[str, Any]:
        """Course of the objective, and the held-out IoU and hit rate."""
        torch.manual_seed(self.seed)
        scorer = Scorer(make_network(), make_head("candidates", 0))
        problem = DeepProblem(scorer, *self.train, loss="hinge", lam=1 / self.n, batch_size=20)
        start = problem.value(problem.weights())
        fit = run(problem, solver, max_epochs=self.passes, random_state=self.seed)
        problem.set_weights(torch.as_tensor(fit.weights, dtype=torch.float32))
        x, _, costs = self.test
        with torch.no_grad():
            chosen = problem.scorer(x)[0].argmax(1)
        overlap = 1.0 - costs[torch.arange(len(x)), chosen]
        return {
            "calls": np.r_[0.0, fit.trace.oracle_calls],
            "primal": np.r_[start, fit.trace.primal],
            "overlap": float(overlap.mean()),
            "hits": float((overlap > 0.5).float().mean()),
            "accepted": fit.trace[-1].get("accepted", float("nan")),
        }

    def best(self, solvers: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The one with the lowest final objective."""
        found = {name: self.fit(solver) for name, solver in solvers.items()}
        name = min(found, key=lambda n: found[n]["primal"][-1])
        return name, found[name]


def localization(given: argparse.Namespace) -> None:
    """Figures 4, 6 and 7 on digit scenes."""
    rates = (0.03, 0.1, 0.3)
    groups: dict[str, dict[str, Any]] = {
        "PL-Casimir adaptive": {
            f"eta={eta:g}": ProxLinear(eta=eta, mu=3.0) for eta in (1.0, 10.0, 100.0)
        },
        "PL-Casimir constant": {
            f"eta={eta:g}": ProxLinear(eta=eta, mu=0.3, smoothing="constant")
            for eta in (1.0, 10.0, 100.0)
        },
    }
    for schedule in ("constant", "sqrt", "inverse"):
        groups[f"SGD {schedule}"] = {f"rate={r:g}": SGD(r, schedule) for r in rates}
    groups["Adam"] = {f"rate={r:g}": Adam(r) for r in (1e-3, 3e-3, 1e-2)}
    task = Localization(given.scenes, given.passes, given.seed)
    courses = {}
    for group, solvers in groups.items():
        name, course = task.best(solvers)
        courses[f"{group} {name}"] = course
        print(
            f"{group:22} best {name:10} objective {course['primal'][-1]:.4f}  "
            f"held-out IoU {course['overlap']:.3f}  hits {course['hits']:.3f}",
            flush=True,
        )
    rises = [np.diff(c["primal"]).max() for n, c in courses.items() if n.startswith("PL")]
    print(f"greatest rise of the objective across outer steps of PL-Casimir: {max(rises):.2e}")
    ours = min(c["primal"][-1] for n, c in courses.items() if n.startswith("PL"))
    theirs = min(c["primal"][-1] for n, c in courses.items() if n.startswith("SGD"))
    word = "agrees" if ours <= theirs else "does not agree"
    print(f"PL-Casimir {ours:.4f}, best SGD {theirs:.4f}: {word} with Figure 4")
    effects = {
        f"{name}={value:g}": task.fit(ProxLinear(**({"eta": 10.0, "mu": 3.0} | {name: value})))
        for name, values in {"eta": (1.0, 100.0), "budget": (1, 8), "mu": (0.3, 10.0)}.items()
        for value in values
    }
    for name, course in effects.items():
        print(f"effect of {name:11} objective {course['primal'][-1]:.4f}")
    if given.out:
        plot({"methods": courses, "PL-Casimir: eta, budget, mu": effects}, Path(given.out))


def plot(panels: dict[str, dict[str, Any]], folder: Path) -> None:
    """Objective over oracle calls."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 4.5), squeeze=False)
    for axis, (title, courses) in zip(axes[0], panels.items(), strict=True):
        for name, course in courses.items():
            axis.plot(course["calls"], course["primal"], label=name)
        axis.set(xlabel="oracle calls", ylabel="objective", title=title, yscale="log")
        axis.legend(fontsize=7)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "deep_localization.png", dpi=120)
    print(f"curves in {folder / 'deep_localization.png'}")


def tagging(given: argparse.Namespace) -> None:
    """The neural tagger beside the linear one on CoNLL-2003."""
    from cliquewise.data.loaders import load_conll2003
    from cliquewise.metrics import span_f1
    from experiments.deep_tagger import Encoder, Tagger

    dev, test = load_conll2003(test="testa"), load_conll2003()

    def tokens(columns: Any) -> list[list[tuple[str, str]]]:
        pairs = zip(columns.sentences(0), columns.sentences(1), strict=True)
        return [list(zip(words, tags, strict=True)) for words, tags in pairs]

    train_x, dev_x, test_x = (tokens(x) for x in (test.X_train, dev.X_test, test.X_test))
    classes = sorted({tag for row in test.y_train for tag in row})
    number = {tag: i for i, tag in enumerate(classes)}
    encoder = Encoder(train_x)

    def data(x: Any, y: Any) -> tuple[Any, Any, Any]:
        numbers, mask = encoder.encode(x)
        target = torch.zeros(mask.shape, dtype=torch.long)
        for row, tags in enumerate(y):
            target[row, : len(tags)] = torch.tensor([number[tag] for tag in tags])
        return numbers, target, mask

    torch.manual_seed(given.seed)
    tagger = StructuredClassifier(
        Tagger(encoder, len(classes)), "chain", "log", Adam(2e-3), n_labels=len(classes),
        lam=1e-6, batch_size=32, max_epochs=given.epochs, max_seconds=60 * given.minutes,
        random_state=given.seed, verbose=1, device="cpu", patience=4,
    )  # fmt: skip
    start = time.perf_counter()
    train = data(train_x, test.y_train)
    tagger.fit(*train, validation=data(dev_x, dev.y_test))
    seconds = time.perf_counter() - start
    for name, x, y in (("testa", dev_x, dev.y_test), ("testb", test_x, test.y_test)):
        numbers, mask = encoder.encode(x)
        found = tagger.predict(numbers, mask)
        tags = [[classes[i] for i in row[: len(s)]] for row, s in zip(found, x, strict=True)]
        print(f"neural tagger, {name}: entity F1 {100 * span_f1(y, tags):.2f}")
    print(f"training: {seconds:.0f} s, {tagger.trace_.epochs[-1]:.0f} passes")
    if given.linear:
        linear(test, dev, span_f1)


def linear(test: Any, dev: Any, span_f1: Any) -> None:
    """The linear tagger with the built-in template."""
    from cliquewise import SequenceTagger

    start = time.perf_counter()
    tagger = SequenceTagger(template="ner", random_state=0)
    tagger.fit(test.X_train, test.y_train)
    print(f"linear tagger: {time.perf_counter() - start:.0f} s")
    for name, split in (("testa", dev), ("testb", test)):
        print(
            f"  {name}: entity F1 {100 * span_f1(split.y_test, tagger.predict(split.X_test)):.2f}"
        )


def main() -> None:
    """Run one task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("localization", "tagging"))
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--passes", type=float, default=120)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--epochs", type=float, default=30)
    parser.add_argument("--linear", action="store_true", help="train the linear tagger too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    given = parser.parse_args()
    {"localization": localization, "tagging": tagging}[given.task](given)


if __name__ == "__main__":
    main()
