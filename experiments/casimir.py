"""Smoothing and acceleration for structural SVMs (casimir, section 7: Figures 2, 3 and 5).

    python -m experiments.casimir [--data DIR] [--out DIR] [--quick] [--seeds N] [--c C ...] TASK

TASK is one of:

* ``ner``: CoNLL-2003; word, part of speech and chunk of five positions, hashed to 2^16; lam = c/n.
* ``localization``: windows of generated images (textured objects on cluttered backgrounds) as
  candidates with histograms of words, cost 1 - IoU.
* ``hyperparameters``: the effect of K, of the smoothing and of the warm start.

Protocol: 50 passes of stochastic oracle calls, as the paper counts them; the full gradients of
SVRG and Casimir, which it leaves out, are in the column of all passes and in the seconds. The
learning rate of each tuned method is the best of a grid of powers of two by the training
objective after all passes, with one seed (SGD: the time lead ``delay``, which sets its first step
to ``1 / (c delay)``). Then ten seeds where a run is cheap, three for BCFW with segments. The
seconds are CPU seconds of the solver's steps; the objective is evaluated outside of the clock.
The whole of ``ner`` takes more than an hour; ``--c`` does one part of it.
``--quick`` takes 1,500 sentences, 15 passes, two seeds and a small grid.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.solvers.bcfw import BCFW
from cliquewise.solvers.casimir import Casimir
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.sdca import SDCA
from cliquewise.solvers.subgradient import Subgradient
from cliquewise.solvers.svrg import SVRG

TEMPLATE = "\n".join(f"U{c}{i}:%x[{i},{c}]" for c in range(3) for i in range(-2, 3)) + "\nB\n"
Score = Callable[[Any, np.ndarray], dict[str, float]]


@dataclass
class Plan:
    """How much of everything."""

    passes: int = 50
    seeds: int = 10
    slow_seeds: int = 3
    rates: tuple[float, ...] = tuple(2.0**-e for e in range(4, 10))
    delays: tuple[float, ...] = tuple(2.0**e for e in range(2, 13, 2))
    sentences: int | None = None
    every: int = 5
    strengths: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)

    @classmethod
    def quick(cls) -> Plan:
        return cls(15, 2, 1, (2.0**-5, 2.0**-6), (2.0**4, 2.0**8), 1500, 5)


@dataclass
class Course:
    """One run: a row at every check."""

    name: str
    rows: list[dict[str, float]] = field(default_factory=list)

    def column(self, name: str) -> np.ndarray:
        return np.array([row[name] for row in self.rows])

    @property
    def best(self) -> float:
        """Least objective met."""
        return float(np.min(self.column("primal")))


def follow(problem: Any, name: str, solver: Any, plan: Plan, seed: int, score: Score) -> Course:
    """Run for so many passes of stochastic calls; check every few of them."""
    rng, state, course = np.random.default_rng(seed), solver.init(problem), Course(name)
    passes, stochastic, seconds = 0.0, 0.0, 0.0
    while stochastic < plan.passes - 1e-9:
        begin = time.process_time()
        state, info = solver.step(problem, state, rng)
        seconds += time.process_time() - begin
        passes += info.epochs
        stochastic += 1.0 if isinstance(solver, SVRG | Casimir) else info.epochs
        if stochastic % plan.every < 1e-9 or stochastic in (1.0, 2.0):
            proof = solver.certify(problem, state)
            row = {"passes": passes, "stochastic": stochastic, "seconds": seconds,
                   "primal": proof.primal, "dual": proof.dual}  # fmt: skip
            course.rows.append(row | score(problem, solver.weights(problem, state)))
    return course


def tuned(problem: Any, make: Callable[[float], Any], grid: tuple[float, ...], plan: Plan) -> Any:
    """The solver of a grid with the least objective after all passes."""
    nothing: Score = lambda problem, w: {}  # noqa: E731
    ends = [follow(problem, "", make(value), plan, 0, nothing).best for value in grid]
    best = grid[int(np.argmin(ends))]
    print(f"    grid: {', '.join(f'{v:.3g}: {e:.5g}' for v, e in zip(grid, ends, strict=True))}",
          file=sys.stderr, flush=True)  # fmt: skip
    return make(best)


# ---- named entities


def load_ner(folder: Path, sentences: int | None) -> tuple[Any, Score, Any]:
    """Training data, a function for test scores, and the labels."""
    from cliquewise._kernels.chain_decode import batch_viterbi
    from cliquewise.data import Labels, Template, TemplateEncoder, read_conll
    from cliquewise.metrics import span_f1

    train, y = read_conll(folder / "conll2003" / "eng.train.gz").split_labels()
    test, y_test = read_conll(folder / "conll2003" / "eng.testb.gz").split_labels()
    encoder = TemplateEncoder(Template.parse(TEMPLATE), 2**16)
    data, held = encoder.fit_transform(train), encoder.transform(test)
    labels = Labels.fit(y)
    data = data.with_labels(labels.encode(y, data.offsets)[0])
    if sentences is not None:
        data = data.subset(np.arange(sentences))
    truth, outside = labels.encode(y_test, held.offsets)[0], labels.classes.index("O")
    cuts = held.offsets.tolist()

    def score(problem: Any, w: np.ndarray) -> dict[str, float]:
        scores, offsets = problem.model.node_scores(w, held)
        found, best = np.empty(held.n_tokens, dtype=np.int64), np.empty(len(held))
        batch_viterbi(scores, offsets, problem.model.shared_transitions(w), found, best)
        right = np.sum((found == truth) & (truth != outside))
        total = np.sum(found != outside) + np.sum(truth != outside)
        names = [labels.classes[j] for j in found.tolist()]
        spans = [names[a:b] for a, b in pairwise(cuts)]
        return {"tag_f1": 200.0 * right / total, "entity_f1": 100.0 * span_f1(y_test, spans)}

    return data, score, labels


def ner(folder: Path, out: Path, plan: Plan) -> list[tuple[bool, str]]:
    """Figure 2."""
    from cliquewise.models.chain import ChainModel
    from cliquewise.problem import ChainProblem
    from cliquewise.solvers.run import run

    data, score, labels = load_ner(folder, plan.sentences)
    model, n = ChainModel.build(data, len(labels)), len(data)
    found, everything = [], {}
    for c in plan.strengths:
        problem = ChainProblem(model, data, 1.0 / c, loss="hinge")
        courses = compare(problem, plan, score, {
            "SGD": (lambda v: Subgradient(delay=v), plan.delays, plan.seeds),
            "BCFW (Frank-Wolfe)": (
                lambda v: BCFW(step_rule="fw", cached_passes=0), (0.0,), plan.slow_seeds
            ),
            "BCFW (segments)": (lambda v: BCFW(), (0.0,), plan.slow_seeds),
            "SDCA, vanishing entropy": (lambda v: SDCA(), (0.0,), plan.slow_seeds),
            "SVRG": (lambda v: SVRG(mu=0.5, learning_rate=v), plan.rates, plan.seeds),
            "Casimir constant": (
                lambda v: Casimir(smoothing="constant", mu=0.5, learning_rate=v), plan.rates,
                plan.seeds,
            ),
            "Casimir adaptive": (lambda v: Casimir(learning_rate=v), plan.rates, plan.seeds),
            "Casimir untuned": (lambda v: Casimir(), (0.0,), plan.seeds),
        })  # fmt: skip
        crf = run(
            ChainProblem(model, data, 1.0 / c), SDCA(), tol=1e-3, max_epochs=300, random_state=0,
            fallback=LBFGS(),
        )  # fmt: skip
        likelihood = score(problem, crf.weights)["entity_f1"]
        print(f"\nlam = {c:g}/n, n = {n}; CRF with the same features: entity F1 {likelihood:.2f}")
        print(table(courses, ("tag_f1", "entity_f1")))
        everything[f"lam = {c:g}/n"] = courses
        if c <= 1.0:
            found += ner_verdicts(c, courses, likelihood)
    figure(everything, out / "casimir_ner.png", "entity_f1")
    return found


def ner_verdicts(
    c: float, courses: dict[str, list[Course]], likelihood: float
) -> list[tuple[bool, str]]:
    """What is claimed or asked for at one lam."""
    ends = {name: float(np.mean([r.best for r in runs])) for name, runs in courses.items()}
    bound = max(float(np.max(r.column("dual"))) for runs in courses.values() for r in runs)
    best = min(ends["Casimir constant"], ends["Casimir adaptive"])
    f1 = max(r.rows[-1]["entity_f1"] for r in courses["Casimir untuned"])
    out = [
        (best <= ends[name] * 1.0001, f"c = {c:g}: Casimir ({best:.5g}) not above {name} "
                                      f"({ends[name]:.5g})")
        for name in ("SGD", "BCFW (Frank-Wolfe)", "BCFW (segments)", "SDCA, vanishing entropy")
    ]  # fmt: skip
    untuned, least = ends["Casimir untuned"], min(ends.values())
    return [
        *out,
        (untuned <= 1.02 * best, f"c = {c:g}: untuned Casimir ({untuned:.5g}) within 2 % of tuned"),
        (least <= bound * 1.01, f"c = {c:g}: least objective {least:.5g} within 1 % of the "
                                f"certified bound {bound:.5g}"),
        (f1 >= likelihood - 1, f"c = {c:g}: entity F1 {f1:.2f} within a point of the CRF's "
                               f"{likelihood:.2f}"),
    ]  # fmt: skip


# ---- windows of images


def images(n: int, seed: int, side: int = 40, words: int = 16, windows: int = 150) -> Any:
    """Grids of words with one textured box each; windows, their histograms and their IoU."""
    from cliquewise.output_metrics import iou

    rng = np.random.default_rng(seed)
    # The textures are those of the task, whatever the images drawn.
    taste = np.random.default_rng(1)
    texture, clutter = taste.dirichlet(np.full(words, 0.5)), taste.dirichlet(np.ones(words), 4)
    texture = 0.5 * texture + 0.5 * clutter.mean(axis=0)
    features, overlaps, boxes = [], [], []
    for _ in range(n):
        picture = rng.choice(words, (side, side), p=clutter[0])
        for patch in clutter[1:]:
            top, left = rng.integers(0, side - 10, 2)
            picture[top : top + 12, left : left + 12] = rng.choice(words, (12, 12), p=patch)[
                : side - top, : side - left
            ]
        high, wide = rng.integers(10, 20, 2)
        top, left = rng.integers(0, side - high), rng.integers(0, side - wide)
        picture[top : top + high, left : left + wide] = rng.choice(words, (high, wide), p=texture)
        truth = np.array([left, top, left + wide, top + high], dtype=float)
        corner = rng.integers(0, side - 8, (windows, 2))
        size = rng.integers(8, 24, (windows, 2))
        some = np.hstack([corner, np.minimum(corner + size, side)]).astype(float)
        near = np.clip(truth + rng.integers(-3, 4, (10, 4)), 0, side)
        near[:, 2:] = np.minimum(np.maximum(near[:, 2:], near[:, :2] + 4), side)
        near[:, :2] = np.minimum(near[:, :2], near[:, 2:] - 4)
        every = np.vstack([some, near])
        features.append(histograms(picture, every, words))
        overlaps.append(np.array([iou(truth, b) for b in every]))
        boxes.append(every)
    return features, overlaps, boxes


def histograms(picture: np.ndarray, boxes: np.ndarray, words: int) -> np.ndarray:
    """Shares of the words inside each box, and in the frame of three pixels around it."""
    sums = np.zeros((picture.shape[0] + 1, picture.shape[1] + 1, words))
    sums[1:, 1:] = np.cumsum(np.cumsum(picture[..., None] == np.arange(words), axis=0), axis=1)

    def counts(b: np.ndarray) -> np.ndarray:
        x0, y0, x1, y1 = b.astype(int).T
        return sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0]

    wider = np.clip(boxes + np.array([-3, -3, 3, 3]), 0, picture.shape[0])
    inside, outer = counts(boxes), counts(wider)
    frame = outer - inside
    return np.hstack([
        inside / np.maximum(inside.sum(axis=1, keepdims=True), 1),
        frame / np.maximum(frame.sum(axis=1, keepdims=True), 1), inside.sum(axis=1)[:, None] / 400,
    ])  # fmt: skip


def localization(folder: Path, out: Path, plan: Plan) -> list[tuple[bool, str]]:
    """Figure 3, on generated images."""
    from cliquewise.candidate_problem import CandidateProblem
    from cliquewise.models.candidates import CandidateSets
    from cliquewise.output_metrics import average_precision

    n = 60 if plan.sentences else 200
    (X, overlap, _), (Z, held, _) = images(n, 0), images(n, 7)
    test = CandidateSets.from_examples(Z)

    def score(problem: Any, w: np.ndarray) -> dict[str, float]:
        scores = test.split(problem.model.potentials(w, test))
        chosen = [int(np.argmax(s)) for s in scores]
        right = [float(o[a]) > 0.5 for o, a in zip(held, chosen, strict=True)]
        sure = [float(s[a]) for s, a in zip(scores, chosen, strict=True)]
        return {
            "corloc": 100.0 * float(np.mean(right)),
            "ap": 100.0 * average_precision(np.array(right), np.array(sure), n),
        }

    truth, everything, found = [int(np.argmax(o)) for o in overlap], {}, []
    data, cost = CandidateSets.from_examples(X), 1.0 - np.concatenate(overlap)
    rates = tuple(64.0 * r for r in plan.rates)
    seeds, plan = min(plan.seeds, 3), replace(plan, passes=min(plan.passes, 30))
    for c in (0.01, 0.1, 1.0):
        problem = CandidateProblem(data, truth, cost, 1.0 / c)
        bcfw = problem.resolve("bcfw")
        from cliquewise.solvers.base import get

        courses = compare(problem, plan, score, {
            "SGD": (lambda v: SVRG(smoother="none", warm_up=10**9, learning_rate=v), rates, seeds),
            "BCFW": (lambda v, name=bcfw: get(name), (0.0,), seeds),
            "SVRG": (lambda v: SVRG(mu=0.1, k=10, learning_rate=v), rates, seeds),
            "Casimir constant": (
                lambda v: Casimir(smoothing="constant", mu=0.1, k=10, learning_rate=v), rates, seeds
            ),
            "Casimir adaptive": (lambda v: Casimir(k=10, learning_rate=v), rates, seeds),
            "Casimir untuned": (lambda v: Casimir(k=10), (0.0,), seeds),
        })  # fmt: skip
        print(f"\nlam = {c:g}/n, {n} images")
        print(table(courses, ("corloc", "ap")))
        everything[f"lam = {c:g}/n"] = courses
        ends = {name: float(np.mean([r.best for r in runs])) for name, runs in courses.items()}
        best = min(ends["Casimir constant"], ends["Casimir adaptive"])
        found += [
            (best <= ends[name] * 1.0001, f"c = {c:g}: Casimir ({best:.5g}) not above {name} "
                                          f"({ends[name]:.5g})") for name in ("SGD", "BCFW")
        ]  # fmt: skip
    figure(everything, out / "casimir_localization.png", "corloc")
    return found


# ---- hyper-parameters


def hyperparameters(folder: Path, out: Path, plan: Plan) -> list[tuple[bool, str]]:
    """Figure 5, at lam = 0.01/n."""
    from cliquewise.models.chain import ChainModel
    from cliquewise.problem import ChainProblem

    data, score, labels = load_ner(folder, plan.sentences)
    problem = ChainProblem(ChainModel.build(data, len(labels)), data, 100.0, loss="hinge")
    groups: dict[str, dict[str, Any]] = {
        "outputs": {f"K = {k}": Casimir(k=k) for k in (1, 2, 5, 10)},
        "adaptive smoothing": {f"mu = {m:g}": Casimir(mu=m) for m in (0.0, 0.1, 0.5, 2.0, 8.0)},
        "constant smoothing": {
            f"mu = {m:g}": Casimir(smoothing="constant", mu=m) for m in (0.0, 0.1, 0.5, 2.0, 8.0)
        },
        "warm start": {
            name: Casimir(warm_start=name) for name in ("prox_center", "extrapolation", "previous")
        },
    }
    everything, spread = {}, {}
    seeds = min(plan.seeds, 3)
    for title, solvers in groups.items():
        courses = compare(
            problem, plan, score,
            {name: ((lambda v, s=s: s), (0.0,), seeds) for name, s in solvers.items()},
        )  # fmt: skip
        print(f"\n{title}")
        print(table(courses, ("tag_f1", "entity_f1")))
        everything[title] = courses
        ends = [np.mean([r.best for r in runs]) for runs in courses.values()]
        spread[title] = float(max(ends) / min(ends))
    figure(everything, out / "casimir_hyperparameters.png", "entity_f1")
    return [
        (spread["outputs"] < 1.1, f"robust in K: the worst is {spread['outputs']:.3f} of the best"),
        (spread["adaptive smoothing"] < spread["constant smoothing"],
         f"adaptive smoothing is more robust in mu ({spread['adaptive smoothing']:.3f}) than "
         f"constant ({spread['constant smoothing']:.3f})"),
    ]  # fmt: skip


# ---- what comes out


def compare(
    problem: Any, plan: Plan, score: Score, methods: dict[str, Any]
) -> dict[str, list[Course]]:
    """Tune each method, then run it with several seeds."""
    out = {}
    for name, (make, grid, seeds) in methods.items():
        solver = tuned(problem, make, grid, plan) if len(grid) > 1 else make(grid[0])
        out[name] = [follow(problem, name, solver, plan, seed, score) for seed in range(seeds)]
        print(f"  {name}: {out[name][0].best:.5g}", file=sys.stderr, flush=True)
    return out


def table(courses: dict[str, list[Course]], scores: tuple[str, str]) -> str:
    """Objective in the course of the passes, and the scores at the end; means over the seeds."""
    marks = [1, 5, 10, 20, 30, 50]
    lines = [f"{'objective after pass':22s}" + "".join(f"{m:>9d}" for m in marks)
             + f"{'sd':>9s}{'dual':>9s}{scores[0]:>10s}{scores[1]:>10s}"
             + f"{'passes':>8s}{'s':>7s}"]  # fmt: skip
    for name, runs in courses.items():
        cells = []
        for m in marks:
            values = [r["primal"] for run in runs for r in run.rows if r["stochastic"] == m]
            cells.append(f"{np.mean(values):9.4f}" if values else f"{'':9s}")
        last = [run.rows[-1] for run in runs]
        dual = max(float(np.max(run.column("dual"))) for run in runs)
        mean = {k: float(np.mean([row[k] for row in last])) for k in last[0]}
        sd = float(np.std([row["primal"] for row in last]))
        scored = "".join(f"{mean[name]:10.2f}" for name in scores)
        rest = f"{mean['passes']:8.0f}{mean['seconds']:7.1f}"
        lines.append(f"{name:22s}{''.join(cells)}{sd:9.1e}{dual:9.4f}{scored}{rest}")
    return "\n".join(lines)


def figure(everything: dict[str, dict[str, list[Course]]], path: Path, score: str) -> None:
    """Objective against passes and seconds and the score against passes, with bands."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(
        len(everything), 3, figsize=(15, 3.6 * len(everything)), squeeze=False
    )
    for row, (title, courses) in zip(axes, everything.items(), strict=True):
        for name, runs in courses.items():
            for axis, x, y in zip(row, ("stochastic", "seconds", "stochastic"),
                                  ("primal", "primal", score), strict=True):  # fmt: skip
                values = np.array([run.column(y) for run in runs])
                at, mean, sd = (
                    np.mean([r.column(x) for r in runs], axis=0),
                    values.mean(0),
                    values.std(0),
                )
                (line,) = axis.plot(at, mean, label=name)
                axis.fill_between(at, mean - sd, mean + sd, alpha=0.2, color=line.get_color())
                axis.set(xlabel={"stochastic": "passes of oracle calls"}.get(x, "CPU seconds"),
                         ylabel={"primal": "objective"}.get(y, y), title=title)  # fmt: skip
        row[0].set_yscale("log")
        row[1].set(yscale="log", xscale="log")
        row[0].legend(fontsize=7)
    fig.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=120)
    pyplot.close(fig)
    print(f"figure: {path}")


def main(arguments: list[str] | None = None) -> int:
    """Run one experiment; the exit status is 0 if everything agrees."""
    import os

    parser = argparse.ArgumentParser(
        "experiments.casimir", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    tasks = {"ner": ner, "localization": localization, "hyperparameters": hyperparameters}
    parser.add_argument("task", choices=tasks)
    parser.add_argument("--data", help="folder of data sets (default: CLIQUEWISE_DATA)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the figure")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--seeds", type=int, help="at most so many")
    parser.add_argument("--c", type=float, nargs="+", help="strengths of the penalty, for ner")
    given = parser.parse_args(arguments)
    folder = Path(given.data or os.environ.get("CLIQUEWISE_DATA", "."))
    plan = Plan.quick() if given.quick else Plan()
    if given.seeds:
        slow = min(plan.slow_seeds, given.seeds)
        plan = replace(plan, seeds=given.seeds, slow_seeds=slow)
    if given.c:
        plan = replace(plan, strengths=tuple(given.c))
    found = tasks[given.task](folder, given.out, plan)
    print()
    for agrees, sentence in found:
        print(f"{'agrees:      ' if agrees else 'does NOT agree: '}{sentence}")
    return 0 if all(agrees for agrees, _ in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
