"""Why the converged hinge tagger of casimir's section 7 names fewer entities right than a CRF.

A hinge loss whose cost is multiplied by ``s`` has the taggers of the plain one with ``C / s``: the
choice of C is that of the scale. Smoothed with the entropy it runs from the hinge loss
(``gamma`` = 0) through the softmax margin (1) to the likelihood, as the cost vanishes beside gamma.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import run
from experiments._entities import Corpus, decoded, entity_f1, load
from experiments._rows import Result, Row, Verdict, Work

#: Grids of C, in which testa chooses: what is best differs by a factor of thirty.
LOSSES = {
    "CRF": (np.inf, (1.0, 3.0, 10.0, 30.0)),
    "softmax margin": (1.0, (1.0, 3.0)),
    "hinge": (0.0, (0.1, 0.3, 1.0)),
}


def converged(corpus: Corpus, data: Any, C: float, gamma: float) -> dict[str, float]:
    """The tagger at the optimum: of the hinge loss (0), smoothed (> 0), of the likelihood (inf)."""
    loss = "hinge" if gamma == 0 else "log" if np.isinf(gamma) else "smooth_hinge"
    more = {"gamma": gamma, "smoother": "entropy"} if loss == "smooth_hinge" else {}
    model = ChainModel.build(data, len(corpus.labels))
    problem = ChainProblem(model, data, C, loss=loss, **more)
    tol, other = (1e-2, None) if loss == "hinge" else (3e-3, LBFGS())
    solver = choose(problem).solver
    fit = run(problem, solver, tol=tol, max_epochs=500, random_state=0, fallback=other)
    proof = fit.certificate
    f1 = entity_f1(corpus, lambda held: model.potentials(fit.weights, held))
    return {"gap": proof.gap, "passes": fit.epochs, **f1}


def costs(corpus: Corpus, data: Any, kind: str) -> np.ndarray:
    """A cost of every label of every token.

    ``hamming``: 1 for each wrong one. ``span``: a wrong label costs its part of the entities
    that it breaks: 1 / length for each token of an entity missed, and as much again for
    naming another.
    """
    n = len(corpus.labels)
    out = 1.0 - np.eye(n)[data.labels]
    if kind == "hamming":
        return out
    outside = corpus.labels.classes.index("O")
    names = [corpus.labels.classes[j] for j in data.labels.tolist()]
    share = np.ones(len(names))
    for a, b in pairwise(data.offsets.tolist()):
        begin = a
        for t in range(a, b + 1):
            if t in (b, begin) or not _goes_on(names[t - 1], names[t]):
                share[begin:t] = 1.0 / max(t - begin, 1) if names[begin] != "O" else 1.0
                begin = t
    missed = (data.labels != outside)[:, None]
    named = np.arange(n) != outside
    return out * np.where(missed, share[:, None] * (1.0 + named), 1.0)


def _goes_on(before: str, here: str) -> bool:
    """Whether two neighbors belong to one entity (IOB1), or to none."""
    return before[1:] == here[1:] and not here.startswith("B") and here != "O"


def stochastic(
    corpus: Corpus,
    data: Any,
    C: float,
    cost: np.ndarray,
    passes: int,
    size: int = 20,
) -> dict[str, dict[str, float]]:
    """Subgradients of few sentences at a time (Pegasos); the last weights, and their average."""
    from scipy.sparse import csr_array

    def rows(some: Any) -> Any:
        values = np.ones(len(some.indices)) if some.values is None else some.values
        return csr_array((values, some.indices, some.indptr), (some.n_tokens, some.n_features))

    def scores(w: np.ndarray, matrix: Any) -> tuple[np.ndarray, np.ndarray]:
        return matrix @ w[k:], w[None, :k].copy()

    rng, n, k = np.random.default_rng(0), len(data), len(corpus.labels)
    lam, eye, step = 1.0 / (C * n), np.eye(k), 0
    total = np.zeros((k + data.n_features, k))
    w, mean = total.copy(), total.copy()
    batches = max(n // size, 1)
    for _ in range(passes):
        for some in np.array_split(rng.permutation(n), batches):
            step, part = step + 1, data.subset(some)
            tokens = np.concatenate([np.arange(*data.offsets[[i, i + 1]]) for i in some])
            matrix = rows(part)
            nodes, edges = scores(w, matrix)
            found = np.array(decoded(nodes + cost[tokens], edges, part.offsets))
            total[k:] += matrix.T @ (eye[part.labels] - eye[found]) / len(some)
            at = part.followers
            np.add.at(total, (part.labels[at - 1], part.labels[at]), 1.0 / len(some))
            np.add.at(total, (found[at - 1], found[at]), -1.0 / len(some))
            w = total / (lam * (step + batches))
            mean += 2.0 / (step + 1) * (w - mean)
    both = {"last": w, "average": mean}
    return {
        name: entity_f1(corpus, lambda held, v=v: scores(v, rows(held))) for name, v in both.items()
    }


def run_losses(work: Work) -> Result:
    """Converged taggers, C chosen on testa; then cost and averaging, by subgradients."""
    corpus = load(work.folder("conll2003"))
    n, seeds, passes = (40, 1, (1,)) if work.quick else (1500, 2, (4, 20))
    found: dict[str, Any] = {name: [] for name in LOSSES}
    few: dict[str, Any] = {}
    for seed in range(seeds):
        some = np.random.default_rng(seed).permutation(len(corpus.train))[:n]
        data = corpus.train.subset(np.sort(some))
        for name, (gamma, grid) in LOSSES.items():
            grid = grid[:1] if work.quick else grid
            for C in grid:
                key = f"{name} {C:g} {seed}"
                fit = work.kept(key, lambda C=C, g=gamma, d=data: converged(corpus, d, C, g))
                found[name].append({"seed": seed, "C": C, **fit})
        if seed > 0:
            continue
        for kind in ("hamming", "span"):
            cost = costs(corpus, data, kind)
            for count in passes:
                make = partial(stochastic, corpus, data, 0.1, cost, count)
                few[f"{kind}, {count} passes"] = work.kept(f"{kind} {count}", make)
    return {"sentences": n, "seeds": seeds, "converged": found, "subgradients": few}


def judge_losses(result: Result) -> Verdict:
    test: dict[str, list[float]] = {}
    at_one: dict[str, list[float]] = {}
    for name, fits in result["converged"].items():
        for seed in range(result["seeds"]):
            own = [fit for fit in fits if fit["seed"] == seed]
            best = max(own, key=lambda fit: fit["testa"])
            test.setdefault(name, []).append(best["testb"])
            near = min(own, key=lambda fit: abs(np.log(fit["C"])))
            at_one.setdefault(name, []).append(near["testb"])
    mean = {name: float(np.mean(values)) for name, values in test.items()}
    same = {name: float(np.mean(values)) for name, values in at_one.items()}
    # The rest of the claim: the loss as such is no reason.
    agrees = mean["hinge"] >= mean["CRF"] - 0.5
    cells = ", ".join(f"{name} {value:.1f}" for name, value in mean.items())
    few = "; ".join(
        f"{name}: last {both['last']['testb']:.1f}, average {both['average']['testb']:.1f}"
        for name, both in result["subgradients"].items()
    )
    return ("agrees" if agrees else "differs"), (
        f"Entity F1 on testb, {result['sentences']} sentences, {result['seeds']} subsamples, C "
        f"chosen on testa: {cells}; at the C nearest to 1: CRF {same['CRF']:.1f}, hinge "
        f"{same['hinge']:.1f}; by subgradients at C = .1, {few}."
    )


ROWS = [
    Row("casimir/losses", "casimir", ("Section 7.4 (F1)",),
        "A competitive F1; the objective and F1 are only weakly related.",
        run_losses, judge_losses, data=("conll2003",)),
]  # fmt: skip
