"""Smoothing and acceleration for structural SVMs (casimir, section 7: Figures 2, 3 and 5).

    python -m experiments.casimir TASK [--data DIR] [--out DIR] [--quick] [--seeds N] [--c C ...]

TASK is one of:

* ``ner``: CoNLL-2003; word, part of speech and chunk of five positions, hashed to 2^16; lam = c/n.
* ``localization``: windows of generated images (textured objects on cluttered backgrounds) as
  candidates with histograms of words, cost 1 - IoU.
* ``hyperparameters``: the effect of K, of the smoothing and of the warm start.

Protocol: 50 passes of stochastic oracle calls, as the paper counts them; the full gradients of
SVRG and Casimir, which it leaves out, are in the column of all passes and in the seconds. The
learning rate of each tuned method is the best of a grid of powers of two by the training
objective after all passes, with one seed (SGD: the time lead ``delay``, which sets its first step
to ``1 / (c delay)``). Then ten seeds where a run is cheap, three for BCFW and SDCA. The
seconds are CPU seconds of the solver's steps; the objective is evaluated outside of the clock.
Beside the courses of 50 passes, the solver that ``auto`` takes for the hinge loss runs until its
duality gap is below 1e-2, and that for the likelihood until 1e-3, a thousand passes at most.
The whole of ``ner`` takes more than an hour; ``--c`` does a part of it, ``--again`` some methods.
``--quick`` takes 1,500 sentences, 15 passes, two seeds and a small grid.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.data.loaders import data_folder
from cliquewise.solvers.base import choose, get
from cliquewise.solvers.bcfw import BCFW
from cliquewise.solvers.casimir import Casimir
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.sdca import SDCA
from cliquewise.solvers.subgradient import Subgradient
from cliquewise.solvers.svrg import SVRG
from experiments._courses import (
    Course,
    Plan,
    Score,
    Store,
    best_dual,
    compare,
    end_of,
    figure,
    table,
)
from experiments._windows import images

TEMPLATE = "\n".join(f"U{c}{i}:%x[{i},{c}]" for c in range(3) for i in range(-2, 3)) + "\nB\n"

# ---- named entities


def load_ner(folder: str | None, sentences: int | None) -> tuple[Any, Score, Any]:
    """Training data, a function for test scores, and the labels."""
    from cliquewise._kernels.chain.decode import batch_viterbi
    from cliquewise.data import Labels, Template, TemplateEncoder, read_conll
    from cliquewise.metrics import span_f1

    base = data_folder(folder)
    train, y = read_conll(base / "conll2003" / "eng.train.gz").split_labels()
    test, y_test = read_conll(base / "conll2003" / "eng.testb.gz").split_labels()
    encoder = TemplateEncoder(Template.parse(TEMPLATE), 2**16)
    data, held = encoder.fit_transform(train), encoder.transform(test)
    labels = Labels.fit(y)
    data = data.with_labels(labels.encode(y, data.offsets)[0])
    if sentences is not None:
        data = data.subset(np.arange(sentences))
    truth, outside = labels.encode(y_test, held.offsets)[0], labels.classes.index("O")
    cuts = held.offsets.tolist()

    def score(problem: Any, w: np.ndarray) -> dict[str, float]:
        nodes, edges = problem.model.potentials(w, held)
        found, best = np.empty(held.n_tokens, dtype=np.int64), np.empty(len(held))
        batch_viterbi(nodes, held.offsets, edges, found, best)
        right = np.sum((found == truth) & (truth != outside))
        total = np.sum(found != outside) + np.sum(truth != outside)
        names = [labels.classes[j] for j in found.tolist()]
        spans = [names[a:b] for a, b in pairwise(cuts)]
        return {"tag_f1": 200.0 * right / total, "entity_f1": 100.0 * span_f1(y_test, spans)}

    return data, score, labels


def ner(folder: str | None, out: Path, plan: Plan) -> list[tuple[bool, str]]:
    """Figure 2."""
    from cliquewise.models.chain import ChainModel
    from cliquewise.problems.chain import ChainProblem

    data, score, labels = load_ner(folder, plan.sentences)
    model, n, found = ChainModel.build(data, len(labels)), len(data), []
    for c in plan.strengths:
        problem = ChainProblem(model, data, 1.0 / c, loss="hinge")
        store = Store(out / f"casimir_ner_{c:g}.json", plan)
        courses = compare(problem, plan, score, store, {
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
        final = store.get("final", lambda p=problem: to_the_end(p, score))
        likelihood = ChainProblem(model, data, 1.0 / c)
        crf = store.get("CRF", lambda p=likelihood: to_the_end(p, score, 1e-3))
        print(f"\nlam = {c:g}/n, n = {n}")
        print(table(courses, ("tag_f1", "entity_f1")))
        for name, end in (("auto, hinge loss", final), ("CRF, same features", crf)):
            print(f"{name}: {summary(end)}")
        figure({f"lam = {c:g}/n": courses}, out / f"casimir_ner_{c:g}.png",
               ("tag_f1", "entity_f1"))  # fmt: skip
        if c <= 1.0:
            found += ner_verdicts(c, courses, final, crf)
    return found


def to_the_end(
    problem: Any, score: Score, tol: float = 1e-2, passes: float = 1000
) -> dict[str, Any]:
    """What ``auto`` makes of a problem, run until its gap is closed: proof, scores and cost."""
    from cliquewise.solvers.run import run

    begin, hinge = time.process_time(), problem.loss == "hinge"
    fit = run(
        problem, choose(problem), tol=tol, max_epochs=passes, random_state=0,
        fallback=None if hinge else LBFGS(),
    )  # fmt: skip
    proof = fit.certificate
    return {"solver": fit.solver, "passes": fit.epochs, "seconds": time.process_time() - begin,
            "primal": proof.primal, "dual": proof.dual, "gap": proof.gap,
            } | score(problem, fit.weights)  # fmt: skip


def summary(end: dict[str, Any]) -> str:
    """One line about a run to the end."""
    return (
        f"{end['solver']}, {end['passes']:.0f} passes, {end['seconds']:.0f} CPU s: objective "
        f"{end['primal']:.5g}, bound {end['dual']:.5g}, gap {end['gap']:.1e}; "
        f"tag F1 {end['tag_f1']:.2f}, entity F1 {end['entity_f1']:.2f}"
    )


def ner_verdicts(
    c: float, courses: dict[str, list[Course]], final: dict[str, Any], crf: dict[str, Any]
) -> list[tuple[bool, str]]:
    """What is claimed or asked for at one lam."""
    ends = {name: end_of(runs) for name, runs in courses.items()}
    bound = max(best_dual(courses), final["dual"])
    best, untuned = min(ends["Casimir constant"], ends["Casimir adaptive"]), ends["Casimir untuned"]
    f1 = float(np.mean([r.rows[-1]["entity_f1"] for r in courses["Casimir untuned"]]))
    least, truth = final["primal"], f"{crf['entity_f1']:.2f} (gap {crf['gap']:.0e})"
    return [
        *[(best <= ends[name] * 1.0001, f"c = {c:g}: Casimir ({best:.5g}) not above {name} "
                                        f"({ends[name]:.5g})")
          for name in ("SGD", "BCFW (Frank-Wolfe)", "BCFW (segments)", "SDCA, vanishing entropy")],
        (untuned <= 1.02 * best, f"c = {c:g}: untuned Casimir ({untuned:.5g}) within 2 % of tuned"),
        (least <= bound / 0.99, f"c = {c:g}: the objective of {final['solver']}, which auto takes, "
                                f"{least:.5g}, within 1 % of the best certified bound {bound:.5g} "
                                f"in {final['seconds']:.0f} CPU s"),
        *[(f >= crf["entity_f1"] - 1, f"c = {c:g}: entity F1 {f:.2f} of {name} within a point of "
                                      f"the CRF's {truth}")
          for name, f in ((final["solver"], final["entity_f1"]), ("untuned Casimir", f1))],
    ]  # fmt: skip


# ---- windows of images


def localization(folder: str | None, out: Path, plan: Plan) -> list[tuple[bool, str]]:
    """Figure 3, on generated images."""
    from cliquewise.metrics import average_precision
    from cliquewise.models.candidates import CandidateSets
    from cliquewise.problems.candidates import CandidateProblem

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
        store = Store(out / f"casimir_localization_{c:g}.json", plan)
        courses = compare(problem, plan, score, store, {
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
        ends = {name: end_of(runs) for name, runs in courses.items()}
        best = min(ends["Casimir constant"], ends["Casimir adaptive"])
        found += [
            (best <= ends[name] * 1.0001, f"c = {c:g}: Casimir ({best:.5g}) not above {name} "
                                          f"({ends[name]:.5g})") for name in ("SGD", "BCFW")
        ]  # fmt: skip
    figure(everything, out / "casimir_localization.png", ("corloc", "ap"), above_bound=True)
    return found


# ---- hyper-parameters


def hyperparameters(folder: str | None, out: Path, plan: Plan) -> list[tuple[bool, str]]:
    """Figure 5, at lam = 0.01/n."""
    from cliquewise.models.chain import ChainModel
    from cliquewise.problems.chain import ChainProblem

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
        store = Store(out / f"casimir_{title.replace(' ', '_')}.json", plan)
        courses = compare(
            problem, plan, score, store,
            {name: ((lambda v, s=s: s), (0.0,), seeds) for name, s in solvers.items()},
        )  # fmt: skip
        print(f"\n{title}")
        print(table(courses, ("tag_f1", "entity_f1")))
        everything[title] = courses
        ends = [end_of(runs) for runs in courses.values()]
        spread[title] = float(max(ends) / min(ends))
    figure(everything, out / "casimir_hyperparameters.png", ("tag_f1", "entity_f1"))
    return [
        (spread["outputs"] < 1.1, f"robust in K: the worst is {spread['outputs']:.3f} of the best"),
        (spread["adaptive smoothing"] < spread["constant smoothing"],
         f"adaptive smoothing is more robust in mu ({spread['adaptive smoothing']:.3f}) than "
         f"constant ({spread['constant smoothing']:.3f})"),
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run one experiment; the exit status is 0 if everything agrees."""

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
    parser.add_argument(
        "--again",
        nargs="*",
        help="run these methods alone (or final, CRF), "
        "and take the others from the files of an earlier run in --out",
    )
    parser.add_argument("--c", type=float, nargs="+", help="strengths of the penalty, for ner")
    given = parser.parse_args(arguments)
    plan = Plan.quick() if given.quick else Plan()
    if given.seeds:
        slow = min(plan.slow_seeds, given.seeds)
        plan = replace(plan, seeds=given.seeds, slow_seeds=slow)
    if given.c:
        plan = replace(plan, strengths=tuple(given.c))
    if given.again is not None:
        plan = replace(plan, again=tuple(given.again))
    found = tasks[given.task](given.data, given.out, plan)
    print()
    for agrees, sentence in found:
        print(f"{'agrees:      ' if agrees else 'does NOT agree: '}{sentence}")
    return 0 if all(agrees for agrees, _ in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
