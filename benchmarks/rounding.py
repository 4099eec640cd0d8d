"""What it costs, and what it leaves, that dual values are bounds in exact arithmetic.

    python -m benchmarks.rounding --data DIR

Each row is a training run, its data already read. "share of time" is that of all dual bounds, the
plain dual values among them, so that the rounding term alone costs less; "left" is the term over
the primal value at the end: no gap gets below it.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table


@contextmanager
def watched() -> Iterator[list[float]]:
    """CPU seconds of every call of a dual bound, outermost calls only."""
    from cliquewise.problems.base import Problem
    from cliquewise.solvers.backends.chain.duals import ChainDuals
    from cliquewise.solvers.backends.chain.segments import ChainSegments
    from cliquewise.solvers.backends.examples import WorkingSets
    from cliquewise.solvers.backends.graph import cliques
    from cliquewise.solvers.backends.graph.duals import GraphDuals

    spent: list[float] = []
    inside = [False]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if inside[0]:
                return function(*args, **options)
            inside[0], begin = True, time.process_time()
            try:
                return function(*args, **options)
            finally:
                inside[0] = False
                spent.append(time.process_time() - begin)

        return call

    places = [
        (ChainDuals, "bound"), (ChainSegments, "bound"), (WorkingSets, "bound"),
        (GraphDuals, "bound"), (cliques, "dual_value"), (Problem, "bound"),
    ]  # fmt: skip
    kept = [(owner, name, getattr(owner, name)) for owner, name in places]
    for owner, name, function in kept:
        setattr(owner, name, timed(function))
    try:
        yield spent
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def cases(data: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names and fits; the second fit of each is measured, so that nothing is compiled."""
    import cliquewise as cw
    from cliquewise.data import read_conll

    for name, files, template in (
        ("CoNLL-2000", "conll2000/train.txt.gz", "chunking"),
        ("CoNLL-2003", "conll2003/eng.train.gz", "ner"),
    ):
        X, y = read_conll(data / files).split_labels()
        for loss, solver in (("log", "sdca"), ("hinge", "bcfw"), ("log", "lbfgs")):
            tagger = cw.SequenceTagger(
                loss, C=0.5 if loss == "log" else 0.01, template=template, solver=solver,
                random_state=0, max_epochs=100 if solver != "lbfgs" else 30,
            )  # fmt: skip
            yield f"{name}, {loss}, {solver}", lambda t=tagger, X=X, y=y: t.fit(X, y)
    rng = np.random.default_rng(0)
    graphs, labels = [], []
    for _ in range(50):
        truth = np.kron(rng.integers(0, 2, (3, 3)), np.ones((3, 3), dtype=int)).ravel()
        at = np.arange(81).reshape(9, 9)
        edges = np.concatenate(
            [np.stack([at[:, :-1], at[:, 1:]], -1), np.stack([at[:-1].T, at[1:].T], -1)]
        ).reshape(-1, 2)
        graphs.append((truth[:, None] + rng.normal(size=(81, 3)), edges))
        labels.append(truth)
    labeler = cw.GraphLabeler(random_state=0)
    yield "50 grids, auto", lambda: labeler.fit(graphs, labels)


def main() -> None:
    """Print the table, and the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("CLIQUEWISE_DATA"))
    data = parser.parse_args().data
    rows, result = [], {}
    warnings.simplefilter("ignore")
    for name, fit in cases(data):
        fit()
        with watched() as spent:
            begin = time.process_time()
            model = fit()
            total = time.process_time() - begin
        c = model.certificate_
        row = (total, sum(spent) / total, c.rounding / abs(c.primal), c.gap)
        rows.append((name, *row))
        result[name] = dict(zip(("seconds", "time", "left", "gap"), row, strict=True))
        print(name, row, flush=True)
    print_table("Rounding", ("training", "seconds", "share of time", "left", "gap"), rows)
    print_json(result)


if __name__ == "__main__":
    main()
