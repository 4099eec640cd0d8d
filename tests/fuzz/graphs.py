"""Graphs whose nodes have labels, and sets of labels."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from .drawing import (
    Kind,
    Problem,
    Rng,
    chance,
    dense,
    draw_size,
    elastic,
    labels_in_order,
    number_near,
    pick,
    row,
    weighted,
    weights_of,
)
from .objective import Long, Objective, Outputs


class Graph(Kind):
    """Graphs whose nodes have one label each."""

    name, estimator, registered = "graph", "GraphLabeler", "graph"

    def draw(self, rng: Rng) -> Problem:
        size, width, k = draw_size(rng), int(rng.integers(1, 3)), int(rng.integers(2, 4))
        on_edges = chance(rng, 0.3)
        examples = []
        for _ in range(int(rng.integers(1, 4))):
            n = int(rng.integers(1, 5 if k < 3 else 4))
            edges = []
            for v in range(1, n):
                for u in range(v):
                    if chance(rng, 0.5):
                        edge = {"ends": [u, v] if chance(rng, 0.7) else [v, u]}
                        if on_edges:
                            edge["x"] = [
                                float(f"{size['scale'] * z:.3g}") for z in rng.normal(size=2)
                            ]
                        edges.append(edge)
            nodes = [{"x": row(rng, width, size["scale"]), "y": int(y)}
                     for y in rng.integers(0, k, n)]  # fmt: skip
            examples.append({"nodes": nodes, "edges": edges})
        weighted(rng, examples)
        params = {"C": size["C"], "loss": pick(rng, "log", "softmax_margin", "hinge")}
        params["pairwise"] = pick(rng, "table", "symmetric", "potts")
        if chance(rng, 0.35):
            params["intercept"] = False
        if chance(rng, 0.3):
            params["gamma"] = number_near(rng, 1e-2, 10.0, 0.3, 2.0)
        if chance(rng, 0.3):
            params["entropy"] = "gini-otrw"
        elastic(rng, params)
        return {"kind": self.name, "width": width, "on_edges": 2 if on_edges else 0,
                "params": params, "examples": examples}  # fmt: skip

    def arguments(self, problem: Problem) -> dict[str, Any]:
        X = []
        for e in problem["examples"]:
            nodes = dense([n["x"] for n in e["nodes"]], problem["width"])
            ends = np.array([g["ends"] for g in e["edges"]], dtype=int).reshape(-1, 2)
            pairs = np.array([g["x"] for g in e["edges"]] if problem["on_edges"] else [])
            more = (pairs.reshape(-1, problem["on_edges"]),) if problem["on_edges"] else ()
            X.append((nodes, ends, *more))
        y = [[n["y"] for n in e["nodes"]] for e in problem["examples"]]
        return {"X": X, "y": y, "sample_weight": weights_of(problem)}

    def objective(self, problem: Problem) -> Objective:
        p, examples = problem["params"], problem["examples"]
        classes = labels_in_order([n["y"] for e in examples for n in e["nodes"]])
        k, constant = len(classes), [1.0] if p.get("intercept", True) else []
        ties, n_ties = _ties(p.get("pairwise", "table"), k)
        columns = problem["width"] + len(constant)
        edge_columns = problem["on_edges"] + len(constant) if problem["on_edges"] else 1
        made = []
        for e in examples:
            X = dense([n["x"] for n in e["nodes"]], problem["width"])
            X = np.hstack([X, np.tile(constant, (len(X), 1))]).astype(Long)
            truth = tuple(classes.index(n["y"]) for n in e["nodes"])
            costs, rows = [], []
            for y in product(range(k), repeat=len(truth)):
                nodes = np.zeros((columns, k), dtype=Long)
                edges = np.zeros((edge_columns, n_ties), dtype=Long)
                for x, label in zip(X, y, strict=True):
                    nodes[:, label] += x
                for g in e["edges"]:
                    tie = ties[y[g["ends"][0]], y[g["ends"][1]]]
                    if tie >= 0:
                        own = [*g["x"], *constant] if problem["on_edges"] else [1.0]
                        edges[:, tie] += np.array(own, dtype=Long)
                rows.append(np.concatenate([nodes.ravel(), edges.ravel()]))
                costs.append(0 if p["loss"] == "log" else sum(a != b for a, b in zip(y, truth)))
            at = list(product(range(k), repeat=len(truth))).index(truth)
            table = np.array(rows)
            made.append(Outputs(e.get("weight", 1.0), np.array(costs, dtype=Long),
                                table - table[at]))  # fmt: skip
        smoother = "none" if p["loss"] == "hinge" else "entropy"
        return Objective(p["C"], columns * k + edge_columns * n_ties, made, smoother,
                         p.get("gamma", 1.0) if smoother == "entropy" else 1.0,
                         l1_ratio=p.get("l1_ratio", 0.0))  # fmt: skip


def _ties(pairwise_: str, k: int) -> tuple[np.ndarray, int]:
    """The number of the weight of every pair of labels, -1 for none."""
    if pairwise_ == "table":
        return np.arange(k * k).reshape(k, k), k * k
    if pairwise_ == "potts":
        return np.where(np.eye(k, dtype=bool), 0, -1), 1
    if pairwise_ == "co-occurrence":
        ties = np.full((k, k), -1)
        ties[-1, -1] = 0
        return ties, 1
    ties, count = np.zeros((k, k), dtype=int), 0
    for a in range(k):
        for b in range(a, k):
            ties[a, b] = ties[b, a] = count
            count += 1
    return ties, count


class LabelSets(Kind):
    """Sets of labels."""

    name, estimator, registered = "label_sets", "MultiLabelClassifier", "graph"

    def draw(self, rng: Rng) -> Problem:
        size, width, n = draw_size(rng), int(rng.integers(1, 3)), int(rng.integers(1, 4))
        examples: list[dict[str, Any]] = []
        for _ in range(int(rng.integers(1, 5))):
            labels = (rng.random(n) < 0.4).astype(int).tolist()
            examples.append({"x": row(rng, width, size["scale"]), "y": labels})
        params = {"C": size["C"], "loss": pick(rng, "log", "hinge", "hinge", "softmax_margin")}
        params["pairs"] = pick(rng, "table", "co-occurrence")
        if params["pairs"] == "table":
            weighted(rng, examples)
        if chance(rng, 0.35):
            params["intercept"] = False
        if params["loss"] != "hinge" and chance(rng, 0.4):
            params["gamma"] = number_near(rng, 1e-3, 10.0, 1e-3, 1e-2)
        params["label_graph"] = "complete"
        if chance(rng, 0.3):
            params["label_graph"] = [[a, b] for b in range(n) for a in range(b) if chance(rng, 0.5)]
        elastic(rng, params)
        return {"kind": self.name, "width": width, "params": params, "examples": examples}

    def arguments(self, problem: Problem) -> dict[str, Any]:
        examples = problem["examples"]
        return {"X": dense([e["x"] for e in examples], problem["width"]),
                "y": np.array([e["y"] for e in examples]).reshape(len(examples), -1),
                "sample_weight": weights_of(problem)}  # fmt: skip

    def objective(self, problem: Problem) -> Objective:
        p, examples = problem["params"], problem["examples"]
        X = dense([e["x"] for e in examples], problem["width"]).astype(Long)
        if p.get("intercept", True):
            X = np.hstack([X, np.ones((len(X), 1), dtype=Long)])
        n = len(examples[0]["y"])
        pairs = p["label_graph"]
        if pairs == "complete":
            pairs = [[a, b] for a in range(n) for b in range(a + 1, n)]
        ties, n_ties = _ties(p["pairs"], 2)
        made = []
        for e, x in zip(examples, X, strict=True):
            costs, rows, every = [], [], list(product((0, 1), repeat=n))
            for y in every:
                nodes = np.zeros((n, len(x), 2), dtype=Long)
                for label, on in enumerate(y):
                    nodes[label, :, on] += x
                edges = np.zeros((len(pairs), n_ties), dtype=Long)
                for at, (a, b) in enumerate(pairs):
                    tie = ties[y[a], y[b]]
                    if tie >= 0:
                        edges[at, tie] += 1
                rows.append(np.concatenate([nodes.ravel(), edges.ravel()]))
                costs.append(0 if p["loss"] == "log" else sum(a != b for a, b in zip(y, e["y"])))
            table = np.array(rows)
            made.append(Outputs(e.get("weight", 1.0), np.array(costs, dtype=Long),
                                table - table[every.index(tuple(e["y"]))]))  # fmt: skip
        smoother = "none" if p["loss"] == "hinge" else "entropy"
        return Objective(p["C"], 2 * n * X.shape[1] + len(pairs) * n_ties, made, smoother,
                         p.get("gamma", 1.0), l1_ratio=p.get("l1_ratio", 0.0))  # fmt: skip
