"""Whether bounds could spare a token's search of all labels (gdmm, Section 3.2).

A token's search asks for the best label outside of its list. The scores of the last search, plus
how far weights have moved since, bound what all labels score now; so do the positive weights alone.
Where such a bound stays below the best score at hand, the search is not needed. Here all tokens
are searched in every pass, and each search is compared with what the bounds would have said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import stretches
from cliquewise.solvers.gdmm import GDMM
from experiments._chain_data import chain_problem, generated_chains
from experiments._follow import column
from experiments._pictures import Panel, panels
from experiments._rows import Result, Row, Verdict, Work

#: Labels whose scores would be kept up to date for every token, beside those of its list.
RESERVE = 32


class Scores:
    """Scores of all labels at all tokens, and the best one that a token's own labels have."""

    def __init__(self, problem: ChainProblem, solver: GDMM, state: Any, features: csr_matrix):
        k, sets = problem.model.n_labels, state.sets
        support, chains = sets.support, sets.chains
        self.weights = solver.weights(problem, state)[: problem.model.n_emissions].reshape(-1, k)
        self.scores = np.asarray(features @ self.weights)
        token = np.repeat(np.arange(len(support.count)), support.count)
        at = stretches(support.start, support.count)
        label, cell = support.label[at], support.cell[at]
        own = self.scores[token, label] + (label != chains.labels[token])
        ends = np.zeros((2, len(support.count)), dtype=bool)
        ends[0, chains.offsets[:-1]] = ends[1, chains.offsets[1:] - 1] = True
        for side in range(2):
            message = cell[:, 3 + side] + sets.rho * (cell[:, 1 + side] - cell[:, 0])
            own += np.where(ends[side, token], 0.0, message)
        #: A label outside is worth adding if its score is above this.
        self.level = np.full(len(support.count), -np.inf)
        np.maximum.at(self.level, token, own)
        self.level -= 1.0
        self.outside = np.ones(self.scores.shape, dtype=bool)
        self.outside[token, label] = False

    def best_outside(self) -> np.ndarray:
        """Greatest score outside of each token's list."""
        return np.asarray(np.where(self.outside, self.scores, -np.inf).max(axis=1))


def compare(old: Scores, new: Scores, features: csr_matrix) -> dict[str, float]:
    """What the bounds say of the searches of a pass."""
    lengths = np.sqrt(np.asarray(features.multiply(features).sum(axis=1))).ravel()
    before = np.where(new.outside, old.scores, -np.inf)
    order = np.argpartition(before, -RESERVE, axis=1)
    reserve, rest = order[:, -RESERVE:], order[:, :-RESERVE]
    kept = np.take_along_axis(np.where(new.outside, new.scores, -np.inf), reserve, axis=1)
    at_hand = np.maximum(new.level, kept.max(axis=1))
    moved = np.sqrt(((new.weights - old.weights) ** 2).sum(axis=0))
    far = np.take_along_axis(before, rest, axis=1)
    by_norm = (far + moved[rest] * lengths[:, None]).max(axis=1)
    positive = np.asarray(features @ np.maximum(new.weights, 0.0))
    change = new.scores - old.scores
    best = new.best_outside()
    return {
        "violated": float(np.mean(best > new.level)),
        "skipped": float(np.mean(by_norm <= at_hand)),
        "in_reserve": float(np.mean(np.take_along_axis(
            np.where(new.outside, new.scores, -np.inf), rest, axis=1).max(axis=1) <= at_hand)),
        "left_by_positive": float(np.mean((positive > new.level[:, None]) & new.outside)),
        "looseness": float(np.median(moved) * lengths.mean() / max(change.std(), 1e-12)),
        "margin": float(np.median(np.abs(new.level - best))),
        "nonzero": float(np.mean(new.weights != 0.0)),
    }  # fmt: skip


def run_skipping(work: Work) -> Result:
    k, n, passes = (60, 8, 4) if work.quick else (800, 300, 24)
    problem, solver = chain_problem(generated_chains(k, n), k), GDMM(shrink_below=0.0)

    def studied() -> list[dict[str, float]]:
        state, rng = solver.init(problem), np.random.default_rng(0)
        c = state.sets.chains
        shape = (len(c.labels), problem.model.n_attributes)
        features = csr_matrix((np.ones(len(c.indices)), c.indices, c.indptr), shape=shape)
        rows: list[dict[str, float]] = []
        old = None
        for done in range(1, passes + 1):
            for array in state.sets.schedule:
                array[...] = 0
            solver.step(problem, state, rng)
            new = Scores(problem, solver, state, features)
            if old is not None:
                rows.append({"passes": done, **compare(old, new, features)})
            old = new
        return rows

    return {"labels": k, "tokens": problem.data.n_tokens, "rows": work.kept("rows", studied)}


def judge_skipping(result: Result) -> Verdict:
    rows = result["rows"]
    skipped, early = column(rows, "skipped"), column(rows, "passes") <= 12
    agrees = float(skipped[early].mean()) >= 0.5
    return ("agrees" if agrees else "differs"), (
        f"No bound spares exact searches of generated chains ({result['labels']} labels): "
        f"{rows[-1]['nonzero']:.0%} of the weights are nonzero at the end, "
        f"{column(rows, 'violated')[early].mean():.0%} of the tokens have a label to add in the "
        f"first passes, drift bounds (with {RESERVE} labels in reserve) spare "
        f"{skipped[early].mean():.0%} of their searches and {skipped[-1]:.0%} of the last pass's, "
        f"being {column(rows, 'looseness').mean():.0f} times the usual change; positive weights "
        f"alone leave {column(rows, 'left_by_positive').mean():.0%} of the labels."
    )


def draw_skipping(result: Result, path: Path) -> None:
    """Shares against passes."""
    rows = result["rows"]
    names = {"violated": "tokens with a label to add", "skipped": "spared by the drift of norms",
             "in_reserve": "spared by a perfect bound",
             "left_by_positive": "labels left by positive weights"}  # fmt: skip
    lines = {words: (column(rows, "passes"), column(rows, n)) for n, words in names.items()}
    panels(path, [Panel("searches", "passes", "share", lines)])


ROWS = [
    Row("gdmm/skipping", "gdmm", ("Section 3.2",),
        "An exact search may cost less than reading all labels (ours: the paper samples them).",
        run_skipping, judge_skipping, draw_skipping,
        why="bounds add up the sizes of changes, most of which cancel in the scores themselves"),
]  # fmt: skip
