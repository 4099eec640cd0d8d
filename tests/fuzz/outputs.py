"""Candidates, matchings, and problems of a user's own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np

from cliquewise.problems.examples import ExampleProblem, Rows, stacked

from .drawing import (
    Kind,
    Problem,
    Rng,
    chance,
    dense,
    draw_size,
    elastic,
    pick,
    row,
    weighted,
    weights_of,
)
from .objective import Long, Objective, Outputs


class Candidates(Kind):
    """Lists of candidates."""

    name, estimator, registered = "candidates", "CandidateRanker", "candidates"

    def draw(self, rng: Rng) -> Problem:
        size, width, costs = draw_size(rng), int(rng.integers(1, 4)), chance(rng, 0.3)
        loss = pick(rng, "log", "hinge", "hinge")
        examples: list[dict[str, Any]] = []
        for _ in range(int(rng.integers(1, 5))):
            listed = [{"x": row(rng, width, size["scale"])} for _ in range(int(rng.integers(1, 5)))]
            if costs and loss == "hinge":
                for one in listed:
                    one["cost"] = float(f"{rng.random():.3g}")
            examples.append({"candidates": listed, "y": int(rng.integers(len(listed)))})
        weighted(rng, examples)
        params = {"C": size["C"], "loss": loss, "n_jobs": pick(rng, 1, 1, 2)}
        elastic(rng, params)
        return {"kind": self.name, "width": width, "params": params, "examples": examples}

    def arguments(self, problem: Problem) -> dict[str, Any]:
        examples = problem["examples"]
        X = [dense([c["x"] for c in e["candidates"]], problem["width"]) for e in examples]
        more: dict[str, Any] = {}
        if any("cost" in c for e in examples for c in e["candidates"]):
            more["costs"] = [[c.get("cost", 0.0) for c in e["candidates"]] for e in examples]
        return {"X": X, "y": [e["y"] for e in examples], "sample_weight": weights_of(problem),
                **more}  # fmt: skip

    def objective(self, problem: Problem) -> Objective:
        given = self.arguments(problem)
        made = []
        for i, e in enumerate(problem["examples"]):
            x, t = given["X"][i].astype(Long), e["y"]
            cost = given["costs"][i] if "costs" in given else np.arange(len(x)) != t
            cost = np.array(cost, dtype=Long)
            cost = (cost - cost[t]) * (problem["params"]["loss"] != "log")
            made.append(Outputs(e.get("weight", 1.0), cost, x - x[t]))
        p = problem["params"]
        smoother = "none" if p["loss"] == "hinge" else "entropy"
        l1_ratio = p.get("l1_ratio", 0.0)
        return Objective(p["C"], problem["width"], made, smoother, l1_ratio=l1_ratio)


class Matching(Kind):
    """Matchings of rows and columns."""

    name, estimator, registered = "matching", "Matcher", "matching"

    def draw(self, rng: Rng) -> Problem:
        size, width, partial = draw_size(rng), int(rng.integers(1, 3)), chance(rng, 0.5)
        examples = []
        for _ in range(int(rng.integers(1, 4))):
            p, q = rng.integers(1, 4, 2).tolist()
            matched = int(rng.integers(min(p, q) + 1)) if partial else min(p, q)
            columns = np.full(p, -1)
            columns[rng.permutation(p)[:matched]] = rng.permutation(q)[:matched]
            pairs = [[row(rng, width, size["scale"]) for _ in range(q)] for _ in range(p)]
            examples.append({"pairs": pairs, "y": columns.tolist()})
        weighted(rng, examples)
        intercept = chance(rng, 0.6)
        params = {"C": size["C"], "loss": "hinge", "partial": partial, "intercept": intercept}
        if chance(rng, 0.4):
            params |= {"cost_missing": 1.5, "cost_wrong": 0.5}
        params["n_jobs"] = pick(rng, 1, 1, 2)
        return {"kind": self.name, "width": width, "params": params, "examples": examples}

    def arguments(self, problem: Problem) -> dict[str, Any]:
        X = [np.array([dense(line, problem["width"]) for line in e["pairs"]])
             for e in problem["examples"]]  # fmt: skip
        y = [e["y"] for e in problem["examples"]]
        return {"X": X, "y": y, "sample_weight": weights_of(problem)}

    def objective(self, problem: Problem) -> Objective:
        params, given = problem["params"], self.arguments(problem)
        missing, wrong = params.get("cost_missing", 1.0), params.get("cost_wrong", 1.0)
        constant, made = int(params["intercept"]), []
        for x, e in zip(given["X"], problem["examples"], strict=True):
            p, q = x.shape[:2]
            true = {(r, c) for r, c in enumerate(e["y"]) if c >= 0}
            every = {tuple(c if c < q else -1 for c in found)
                     for found in permutations(range(q + p), p)}  # fmt: skip
            costs, rows = [], []
            for columns in sorted(every):
                own = {(r, c) for r, c in enumerate(columns) if c >= 0}
                if not params["partial"] and len(own) < min(p, q):
                    continue
                costs.append(missing * len(true - own) + wrong * len(own - true))
                total = np.zeros(problem["width"], dtype=Long)
                for sign, pairs in ((1, own), (-1, true)):
                    for pair in pairs:
                        total = total + sign * x[pair].astype(Long)
                rows.append([*total, *([len(own) - len(true)] * constant)])
            made.append(Outputs(e.get("weight", 1.0), np.array(costs, dtype=Long),
                                np.array(rows, dtype=Long)))  # fmt: skip
        return Objective(params["C"], problem["width"] + constant, made)


class OwnProblem(ExampleProblem):
    """A problem of a user's own: outputs with costs and features of no particular structure."""

    def __init__(self, outputs: list[tuple[np.ndarray, np.ndarray]], C: float, n_jobs: int):
        super().__init__(len(outputs), outputs[0][1].shape[1], C, n_jobs=n_jobs)
        self.outputs = outputs
        self.truth_costs = np.array([costs[0] for costs, _ in outputs])

    def top_k(self, w: np.ndarray, i: int, k: int) -> tuple[np.ndarray, Rows]:
        """The k best of the list."""
        costs, rows = self.outputs[i]
        psi = costs + rows @ w
        best = np.argsort(-psi, kind="stable")[:k]
        return psi[best], stacked([(np.arange(len(w)), rows[b]) for b in best])

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """The lists."""
        for costs, rows in self.outputs[:n]:
            yield from (("costs", costs), ("features", rows))


class Examples(Kind):
    """Problems of a user's own, which no estimator fits; the first output is the truth."""

    name, estimator, registered = "examples", "", "examples"

    def draw(self, rng: Rng) -> Problem:
        size, width = draw_size(rng), int(rng.integers(1, 4))
        examples = []
        for _ in range(int(rng.integers(1, 5))):
            outputs = [{"cost": 0.0, "x": {}}]
            for _ in range(int(rng.integers(0, 5))):
                cost = float(f"{rng.random():.3g}")
                outputs.append({"cost": cost, "x": row(rng, width, size["scale"])})
            examples.append({"outputs": outputs})
        params = {"C": size["C"], "n_jobs": pick(rng, 1, 1, 2)}
        return {"kind": self.name, "width": width, "params": params, "examples": examples}

    def arguments(self, problem: Problem) -> dict[str, Any]:
        lists = [
            (np.array([o["cost"] for o in e["outputs"]], dtype=float),
             dense([o["x"] for o in e["outputs"]], problem["width"]))
            for e in problem["examples"]
        ]  # fmt: skip
        return {"outputs": lists, "C": problem["params"]["C"],
                "n_jobs": problem["params"].get("n_jobs", 1)}  # fmt: skip

    def objective(self, problem: Problem) -> Objective:
        made = [Outputs(1.0, costs.astype(Long), rows.astype(Long))
                for costs, rows in self.arguments(problem)["outputs"]]  # fmt: skip
        return Objective(problem["params"]["C"], problem["width"], made)
