"""What certificates cost: the share of a run's CPU time in which something is proved.

    python -m benchmarks.certificate_cost [--seconds S] [--kind chain] [--only SOLVER ...] [--quick]

Every registered solver, on every kind of problem and loss that it minimizes, runs as an estimator
would run it (``tol=1e-3``, 100 passes), for a few CPU seconds at most. Counted are all calls whose
only purpose is a proof: certificates, and dual values that are computed on the way. Data: the first
sentences of CoNLL-2000 (chunking template, seen pairs) and Mulan's yeast where ``CLIQUEWISE_DATA``
has them, drawn ones otherwise; drawn grids, trees, candidates and matchings.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from benchmarks.common import print_json, print_table
from cliquewise.data.dataset import Dataset
from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import CliquewiseError
from cliquewise.models.candidates import CandidateSets
from cliquewise.models.chain import ChainModel
from cliquewise.models.matching import MatchingModel, PairTables
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.label_graph import LabelGraphProblem, LabelsProblem
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.problems.matching import MatchingProblem
from cliquewise.solvers import Solver, registered
from cliquewise.solvers.backends.chain.duals import ChainDuals
from cliquewise.solvers.backends.graph.cliques import CliqueAscent
from cliquewise.solvers.backends.graph.duals import GraphDuals
from cliquewise.solvers.backends.label_sets import LabelSetFactors
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.run import run
from cliquewise.solvers.subgradient import Subgradient
from cliquewise.solvers.svrg import SVRG

#: Proofs that solvers make within their steps.
WITHIN: list[tuple[type, str]] = [
    (ChainDuals, "dual"), (GraphDuals, "dual"), (CliqueAscent, "certify"), (LBFGS, "certify"),
    (LabelSetFactors, "_prove"), (Subgradient, "_dual"), (SVRG, "_bound"),
]  # fmt: skip

# ---- data


@cache
def chunks(n: int) -> tuple[Dataset, int]:
    """The first sentences of CoNLL-2000."""
    from cliquewise.data import Labels, Template, TemplateEncoder
    from cliquewise.data.loaders import load_conll2000

    try:
        split = load_conll2000()
    except (CliquewiseError, OSError):
        return drawn_chains(n)
    encoder = TemplateEncoder(Template.builtin("chunking", n_columns=split.X_train.n_columns))
    labels = Labels.fit(split.y_train)
    data = encoder.fit_transform(split.X_train)
    data = data.with_labels(labels.encode(split.y_train, data.offsets)[0])
    part = data.subset(np.arange(n))
    seen, indices = np.unique(part.indices, return_inverse=True)  # a vocabulary of its own
    return replace(part, indices=indices.astype(np.int32), n_features=len(seen)), len(labels)


def drawn_chains(n: int, k: int = 12) -> tuple[Dataset, int]:
    """Sequences whose tokens have eight of 2,000 attributes."""
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(5, 40, n))])
    tokens = int(offsets[-1])
    y = rng.integers(0, k, tokens).astype(np.int32)
    columns = (y[:, None] * 40 + rng.integers(0, 160, (tokens, 8))) % 2000
    matrix = csr_matrix((np.ones(8 * tokens), columns.ravel(), np.arange(tokens + 1) * 8))
    return Dataset.from_matrix(matrix, offsets, labels=y), k


def chain(loss: str, n: int) -> ChainProblem:
    """Chunking."""
    data, k = chunks(n)
    model = ChainModel.build(data, k, feature_pairs="seen", intercept=False, boundaries=False)
    return ChainProblem(model, data, C=0.5, loss=loss, smoother="entropy")


def _labeled(edges: Any, size: int, k: int, rng: np.random.Generator) -> Any:
    """Labels that neighbors often share, and noisy features of them."""
    labels = rng.integers(0, k, size)
    for u, v in edges:
        if rng.random() < 0.6:
            labels[v] = labels[u]
    return (np.eye(k)[labels] + 1.5 * rng.normal(size=(size, k)), np.array(edges)), labels


def grids(loss: str, n: int, side: int = 6, k: int = 3) -> GraphProblem:
    """Square grids."""
    rng, at = np.random.default_rng(0), np.arange(side * side).reshape(side, side)
    edges = [*zip(at[:, :-1].ravel(), at[:, 1:].ravel()), *zip(at[:-1].ravel(), at[1:].ravel())]
    X, y = zip(*(_labeled(edges, side * side, k, rng) for _ in range(n // 10)))
    data = GraphDataset.from_examples(list(X), list(y))
    return GraphProblem(PairwiseModel([k], k), data, 0.3, loss)


def trees(loss: str, n: int, k: int = 4) -> GraphProblem:
    """Random trees of 15 nodes."""
    rng, examples = np.random.default_rng(0), []
    for _ in range(n // 2):
        edges = [(int(rng.integers(0, v)), v) for v in range(1, 15)]
        examples.append(_labeled(edges, 15, k, rng))
    X, y = zip(*examples)
    data = GraphDataset.from_examples(list(X), list(y))
    return GraphProblem(PairwiseModel([k], k), data, 1.0, loss)


@cache
def yeast(n: int) -> tuple[Any, Any]:
    """Rows and labels of yeast."""
    from cliquewise.data.formats.arff import read_arff
    from cliquewise.data.loaders import data_folder

    try:
        at = data_folder() / "mulan" / "yeast"
        found = read_arff(at / "yeast-train.arff.xz", at / "yeast.xml")
        return csr_matrix(found.X)[:n], np.asarray(found.Y)[:n].astype(int)
    except (CliquewiseError, OSError):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, 40))
        return csr_matrix(X), (X @ rng.normal(size=(40, 14)) > 2).astype(int)


def label_sets(loss: str, n: int) -> MultiLabelProblem:
    """All pairs of labels."""
    return MultiLabelProblem(*yeast(n), 0.1)


def label_graph(loss: str, n: int) -> LabelGraphProblem:
    """A path of labels."""
    X, Y = yeast(n)
    pairs = np.stack([np.arange(Y.shape[1] - 1), np.arange(1, Y.shape[1])], axis=1)
    return LabelGraphProblem(X, Y, pairs, 0.1, loss)


def labels(loss: str, n: int) -> LabelGraphProblem:
    """No pairs."""
    X, Y = yeast(n)
    return LabelsProblem(X, Y, np.empty((0, 2), dtype=np.int64), 0.1, loss)


def candidates(loss: str, n: int) -> CandidateProblem:
    """Ten candidates, of which the first is the best but for noise."""
    rng, n = np.random.default_rng(0), n // 4
    X = [rng.normal(size=(10, 30)) + np.eye(10, 1) * np.linspace(-1, 1, 30) for _ in range(n)]
    return CandidateProblem(CandidateSets.from_examples(X, 30), [0] * n, None, 0.3, loss)


def matching(loss: str, n: int) -> MatchingProblem:
    """Six rows and columns; pairs of equal numbers belong together."""
    rng, n = np.random.default_rng(0), n // 8
    X = [rng.normal(size=(6, 6, 20)) + 0.5 * np.eye(6)[:, :, None] for _ in range(n)]
    return MatchingProblem(
        MatchingModel(20), PairTables.from_examples(X, 20), [np.arange(6)] * n, 0.1, loss
    )


KINDS: dict[str, tuple[str, Callable[[str, int], Any]]] = {
    "chain": ("chain", chain), "grids": ("graph", grids), "trees": ("graph", trees),
    "label_sets": ("label_sets", label_sets), "label_graph": ("label_graph", label_graph),
    "labels": ("labels", labels), "candidates": ("candidates", candidates),
    "matching": ("matching", matching),
}  # fmt: skip


# ---- what it costs


class Clock:
    """CPU seconds within the methods that it was given, the outermost of nested calls alone."""

    def __init__(self) -> None:
        self.seconds, self.depth = 0.0, 0

    def timed(self, function: Any) -> Any:
        def inner(*args: Any, **kwargs: Any) -> Any:
            self.depth, start = self.depth + 1, time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.depth -= 1
                if self.depth == 0:
                    self.seconds += time.process_time() - start

        return inner


@contextmanager
def counted(solver: Solver) -> Iterator[Clock]:
    """Count what the solver proves."""
    clock, before = Clock(), []
    for cls, name in [*WITHIN, (type(solver), "certify")]:
        before.append((cls, name, cls.__dict__.get(name)))
        setattr(cls, name, clock.timed(getattr(cls, name)))
    try:
        yield clock
    finally:
        for cls, name, method in reversed(before):
            delattr(cls, name) if method is None else setattr(cls, name, method)


def measure(problem: Any, solver: Solver, seconds: float) -> dict[str, float]:
    """One run, after a short one that compiles."""
    run(problem, solver, tol=-np.inf, max_epochs=2, random_state=0)
    with counted(solver) as clock:
        start = time.process_time()
        fit = run(problem, solver, tol=1e-3, max_seconds=seconds, random_state=0)
        spent = time.process_time() - start
    return {
        "passes": fit.epochs, "seconds": spent, "checks": len(fit.trace),
        "gap": fit.certificate.gap, "share": clock.seconds / spent,
    }  # fmt: skip


def cases(arguments: argparse.Namespace) -> Iterator[tuple[str, str, Solver, Any]]:
    """Every kind, loss and solver that goes with it."""
    for name, (kind, make) in KINDS.items():
        if arguments.kind not in (None, name):
            continue
        for cls in registered(kind):
            if arguments.only and cls.name not in arguments.only:
                continue
            for loss in sorted(cls.capabilities.losses[kind]):
                problem, solver = make(loss, 60 if arguments.quick else arguments.examples), cls()
                if cls.name == "owlqn" and loss == "log":
                    problem = problem.elastic(0.3)
                if solver.refuses(problem) is None:
                    yield name, loss, solver, problem


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="most of a run")
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--only", nargs="*", help="names of solvers")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    seconds = 0.2 if arguments.quick else arguments.seconds
    found: dict[str, dict[str, float]] = {}
    with threadpool_limits(1):
        for name, loss, solver, problem in cases(arguments):
            key = f"{name} {loss} {solver.name}"
            found[key] = measure(problem, solver, seconds)
            print(key, {k: round(v, 4) for k, v in found[key].items()}, flush=True)
    columns = ("passes", "seconds", "checks", "gap", "share")
    rows = [(key, *(float(row[c]) for c in columns)) for key, row in found.items()]
    print_table("Share of CPU time that proves something", ("problem and solver", *columns), rows)
    print_json(found)


if __name__ == "__main__":
    main()
