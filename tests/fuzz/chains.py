"""Sequences of labels, and single ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset

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

LOSSES = ("log", "hinge", "smooth_hinge", "softmax_margin", "pseudo_likelihood")
#: Attributes of two tokens that follow each other, where there are any.
PAIR_WIDTH = 2


class Chain(Kind):
    """Sequences, with constraints, partial labels and attributes of pairs of tokens."""

    name, estimator, registered = "chain", "SequenceTagger", "chain"

    def draw(self, rng: Rng) -> Problem:
        size, width, k = draw_size(rng), int(rng.integers(1, 4)), int(rng.integers(1, 4))
        examples = []
        for _ in range(int(rng.integers(1, 5))):
            length = int(rng.integers(0, 4)) if chance(rng, 0.9) else 1
            labels = rng.integers(0, k, length).tolist()
            examples.append({"tokens": [{"x": row(rng, width, size["scale"]), "y": y}
                                        for y in labels]})  # fmt: skip
        tokens = [t for e in examples for t in e["tokens"]]
        if not tokens:
            examples.append({"tokens": [{"x": row(rng, width, size["scale"]), "y": 0}]})
            tokens = examples[-1]["tokens"]
        weighted(rng, examples)
        params: dict[str, Any] = {"C": size["C"], "loss": pick(rng, *LOSSES)}
        elastic(rng, params)
        for name in ("intercept", "boundary_weights"):
            if chance(rng, 0.35):
                params[name] = False
        if chance(rng, 0.35):
            params["feature_pairs"] = "seen"
        if params["loss"] == "smooth_hinge":
            params |= {
                "gamma": number_near(rng, 1e-2, 10.0, 0.1, 1.0),
                "smoother": pick(rng, "l2", "entropy"),
            }
        if chance(rng, 0.3):
            params["n_jobs"] = pick(rng, 2, 4, 8)
        number = {c: i for i, c in enumerate(labels_in_order([t["y"] for t in tokens]))}
        for token in tokens:
            token["y"] = number[token["y"]]
        if params["loss"] == "log" and chance(rng, 0.15):
            for token in tokens:
                token["pair"] = row(rng, PAIR_WIDTH, size["scale"])
        self._constrain(rng, params, examples, len(number))
        self._weigh(rng, params, tokens)
        return {"kind": self.name, "width": width, "params": params, "examples": examples}

    def _weigh(self, rng: Rng, params: Any, tokens: Any) -> None:
        """Weights of tokens, and costs of wrong labels, where a loss has them."""
        if params["loss"] == "log":
            return
        if chance(rng, 0.3):
            for t in tokens:
                t["weight"] = pick(rng, 0.0, 0.5, 1.0, 3.0, 1e3)
        if params["loss"] != "pseudo_likelihood" and chance(rng, 0.3):
            k = len(labels_in_order([t["y"] for t in tokens]))
            table = rng.choice([0.0, 0.25, 1.0, 2.0, 50.0], (k, k))
            np.fill_diagonal(table, 0.0)
            params["cost"] = table.tolist()

    def _constrain(self, rng: Rng, params: Any, examples: Any, k: int) -> None:
        drawn = rng.random()
        tokens = [t for e in examples for t in e["tokens"]]
        if drawn < 0.15:
            params["transitions"] = "seen"
        elif drawn < 0.3:
            mask = rng.random((k, k)) < 0.5
            for e in examples:
                for a, b in pairwise(e["tokens"]):
                    mask[a["y"], b["y"]] = True
            params["transitions"] = mask.tolist()
        elif drawn < 0.5:
            params["transitions"] = "BIO"
            for e in examples:
                before = "O"
                for t in e["tokens"]:
                    kind = before[2:]
                    t["y"] = pick(rng, "O", "B-X", *([f"I-{kind}"] * 2 if kind else ["B-Y"]))
                    before = t["y"]
        classes = labels_in_order([t["y"] for t in tokens])
        if chance(rng, 0.25):
            for t in tokens:
                if chance(rng, 0.7):
                    t["allowed"] = [c for c in classes if c == t["y"] or chance(rng, 0.5)]
        if params["loss"] == "log" and chance(rng, 0.15):
            for t in tokens:
                # The first token of each class keeps its label, so that all classes are seen.
                if chance(rng, 0.5) and sum(o["y"] == t["y"] for o in tokens) > 1:
                    others = [c for c in classes if chance(rng, 0.4)]
                    t["y"] = pick(rng, None, labels_in_order([t["y"], *others]))

    def arguments(self, problem: Problem) -> dict[str, Any]:
        tokens = [e["tokens"] for e in problem["examples"]]
        X = [dense([t["x"] for t in ts], problem["width"]) for ts in tokens]
        y = [[set(t["y"]) if isinstance(t["y"], list) else t["y"] for t in ts] for ts in tokens]
        given: dict[str, Any] = {"X": X, "y": y, "sample_weight": weights_of(problem)}
        if any("allowed" in t for ts in tokens for t in ts):
            given["allowed"] = [[t.get("allowed") for t in ts] for ts in tokens]
        if any("weight" in t for ts in tokens for t in ts):
            given["token_weight"] = [[t.get("weight", 1.0) for t in ts] for ts in tokens]
        if _has_pairs(problem):
            offsets = np.cumsum([0, *map(len, tokens)])
            pairs = dense([t.get("pair", {}) for ts in tokens for t in ts], PAIR_WIDTH)
            edges = Dataset.from_matrix(pairs, offsets)
            given["X"] = replace(Dataset.from_matrix(np.concatenate(X), offsets), edges=edges)
        return given

    def places(self, problem: Problem) -> np.ndarray:
        """Which weights there are: of all attributes and labels, transitions, and pairs."""
        examples = problem["examples"]
        classes = labels_in_order([t["y"] for e in examples for t in e["tokens"]])
        rows = [self._attributes(problem, e["tokens"]) for e in examples]
        columns = self._columns(problem, rows, {c: i for i, c in enumerate(classes)})
        pairs = PAIR_WIDTH * len(classes) ** 2 if _has_pairs(problem) else 0
        return np.append(columns, np.ones(pairs, dtype=bool))

    def objective(self, problem: Problem) -> Objective:
        p, examples = problem["params"], problem["examples"]
        tokens = [t for e in examples for t in e["tokens"]]
        classes = labels_in_order([t["y"] for t in tokens])
        number = {c: i for i, c in enumerate(classes)}
        rows = [self._attributes(problem, e["tokens"]) for e in examples]
        columns, with_pairs = self.places(problem), _has_pairs(problem)
        free, possible, first = self._transitions(problem, number)
        made = []
        table = p.get("cost", (1 - np.eye(len(classes))).tolist())
        for e, X in zip(examples, rows, strict=True):
            truth = [t["y"] for t in e["tokens"]]
            partial = any(_known(label) is None for label in truth)
            listed, joint, costs, agreeing = [], [], [], []
            for y in product(range(len(classes)), repeat=len(truth)):
                if not self._is_possible(y, e["tokens"], classes, possible, first):
                    continue
                listed.append(y)
                features = _chain_features(y, X, len(classes), free)
                if with_pairs:
                    features = np.append(features, _pair_features(y, e["tokens"], len(classes)))
                joint.append(features[columns])
                agreeing.append(all(t is None or classes[a] in (t if isinstance(t, list) else [t])
                                    for a, t in zip(y, truth, strict=True)))  # fmt: skip
                if p["loss"] in ("log", "pseudo_likelihood"):
                    costs.append(0)
                else:
                    costs.append(sum(Long(table[number[t["y"]]][a]) * Long(t.get("weight", 1.0))
                                     for a, t in zip(y, e["tokens"], strict=True)))  # fmt: skip
            phi = np.array(joint, dtype=Long).reshape(len(joint), int(columns.sum()))
            if not partial:
                phi = phi - phi[agreeing.index(True)]
            if p["loss"] == "pseudo_likelihood":
                made += _token_by_token(e, listed, phi, agreeing.index(True))
                continue
            made.append(Outputs(e.get("weight", 1.0), np.array(costs, dtype=Long), phi,
                                np.array(agreeing) if partial else None))  # fmt: skip
        smoothers = {"hinge": "none", "smooth_hinge": p.get("smoother", "l2")}
        smoother = smoothers.get(p["loss"], "entropy")
        gamma = p.get("gamma", 1.0) if p["loss"] == "smooth_hinge" else 1.0
        top = 5 if smoother == "l2" else None
        ratio = p.get("l1_ratio", 0.0)
        return Objective(p["C"], int(columns.sum()), made, smoother, gamma, top, ratio)

    @staticmethod
    def _attributes(problem: Problem, tokens: list[Any]) -> np.ndarray:
        """Features, then intercept, first and last, one row per token."""
        X, p = dense([t["x"] for t in tokens], problem["width"]), problem["params"]
        parts = [X]
        if p.get("intercept", True):
            parts.append(np.ones((len(X), 1)))
        if p.get("boundary_weights", True):
            ends = np.zeros((len(X), 2))
            if len(X):
                ends[0, 0] = ends[-1, 1] = 1
            parts.append(ends)
        return np.hstack(parts).astype(Long)

    @staticmethod
    def _columns(problem: Problem, rows: list[np.ndarray], number: dict[Any, int]) -> np.ndarray:
        """Which (attribute, label) and (label, label) pairs have a weight."""
        k = len(number)
        pairs = np.ones((rows[0].shape[1], k), dtype=bool)
        if problem["params"].get("feature_pairs") == "seen":
            pairs[:] = False
            for e, X in zip(problem["examples"], rows, strict=True):
                for t, x in zip(e["tokens"], X, strict=True):
                    if _known(t["y"]) is not None:
                        pairs[x != 0, number[_known(t["y"])]] = True
        return np.concatenate([pairs.ravel(), np.ones(k * k, dtype=bool)])

    @staticmethod
    def _transitions(problem: Problem, number: dict[Any, int]) -> tuple[Any, Any, Any]:
        """Which transitions have a weight, which are possible, and which labels may come first."""
        k, given = len(number), problem["params"].get("transitions", "all")
        every, first = np.ones((k, k), dtype=bool), np.ones(k, dtype=bool)
        if given == "all":
            return every, every, first
        if given == "seen":
            seen = ~every
            for e in problem["examples"]:
                for a, b in pairwise(_known(t["y"]) for t in e["tokens"]):
                    if a is not None and b is not None:
                        seen[number[a], number[b]] = True
            return seen, every, first
        if given == "BIO":
            mask = every.copy()
            for b, j in number.items():
                if b.startswith("I-"):
                    first[j] = False
                    mask[:, j] = [a != "O" and a[2:] == b[2:] for a in number]
            return mask, mask, first
        mask = np.array(given, dtype=bool).reshape(k, k)
        return mask, mask, first

    @staticmethod
    def _is_possible(y: Any, tokens: Any, classes: Any, possible: Any, first: Any) -> bool:
        fine = all(possible[a, b] for a, b in pairwise(y)) and (not y or first[y[0]])
        return fine and all(
            t.get("allowed") is None or classes[a] in t["allowed"]
            for a, t in zip(y, tokens, strict=True)
        )


def _chain_features(y: Any, X: np.ndarray, k: int, free: np.ndarray) -> np.ndarray:
    nodes, edges = np.zeros((X.shape[1], k), dtype=Long), np.zeros((k, k), dtype=Long)
    for x, label in zip(X, y, strict=True):
        nodes[:, label] += x
    for a, b in pairwise(y):
        edges[a, b] += free[a, b]
    return np.concatenate([nodes.ravel(), edges.ravel()])


def _known(label: Any) -> Any:
    """A label, or None where it is one of several."""
    if isinstance(label, list):
        return label[0] if len(set(label)) == 1 else None
    return label


def _has_pairs(problem: Problem) -> bool:
    return any("pair" in t for e in problem["examples"] for t in e["tokens"])


def _pair_features(y: Any, tokens: list[Any], k: int) -> np.ndarray:
    out = np.zeros((PAIR_WIDTH, k, k), dtype=Long)
    rows = dense([t.get("pair", {}) for t in tokens], PAIR_WIDTH).astype(Long)
    for x, (a, b) in zip(rows[1:], pairwise(y), strict=True):
        out[:, a, b] += x
    return out.ravel()


def _token_by_token(example: Any, listed: list[Any], phi: np.ndarray, at: int) -> list[Outputs]:
    """Of every token the labelings that are wrong there alone."""
    made, truth = [], listed[at]
    for t, token in enumerate(example["tokens"]):
        own = [i for i, y in enumerate(listed) if (*y[:t], *y[t + 1 :]) ==
               (*truth[:t], *truth[t + 1 :])]  # fmt: skip
        weight = example.get("weight", 1.0) * token.get("weight", 1.0)
        made.append(Outputs(weight, np.zeros(len(own), dtype=Long), phi[own]))
    return made


class Multiclass(Kind):
    """One label per row."""

    name, estimator, registered = "multiclass", "MulticlassClassifier", "chain"

    def draw(self, rng: Rng) -> Problem:
        size, width, k = draw_size(rng), int(rng.integers(1, 4)), int(rng.integers(2, 5))
        examples = [{"x": row(rng, width, size["scale"]), "y": int(y)}
                    for y in [*range(k), *rng.integers(0, k, int(rng.integers(0, 4)))]]  # fmt: skip
        weighted(rng, examples)
        params = {"C": size["C"]}
        elastic(rng, params)
        if chance(rng, 0.4):
            params["intercept"] = False
        return {"kind": self.name, "width": width, "params": params, "examples": examples}

    def arguments(self, problem: Problem) -> dict[str, Any]:
        examples = problem["examples"]
        return {"X": dense([e["x"] for e in examples], problem["width"]),
                "y": [e["y"] for e in examples], "sample_weight": weights_of(problem)}  # fmt: skip

    def objective(self, problem: Problem) -> Objective:
        examples = problem["examples"]
        X = dense([e["x"] for e in examples], problem["width"]).astype(Long)
        if problem["params"].get("intercept", True):
            X = np.hstack([X, np.ones((len(X), 1), dtype=Long)])
        classes = labels_in_order([e["y"] for e in examples])
        made = []
        for e, x in zip(examples, X, strict=True):
            rows = np.kron(np.eye(len(classes), dtype=Long), x)
            rows = rows - rows[classes.index(e["y"])]
            made.append(Outputs(e.get("weight", 1.0), np.zeros(len(rows), dtype=Long), rows))
        p = problem["params"]
        ratio = p.get("l1_ratio", 0.0)
        return Objective(p["C"], X.shape[1] * len(classes), made, "entropy", l1_ratio=ratio)

    def weights(self, problem: Problem, found: np.ndarray) -> np.ndarray:
        # A chain's, whose transitions are never used.
        width = problem["width"] + int(problem["params"].get("intercept", True))
        k = len(labels_in_order([e["y"] for e in problem["examples"]]))
        return np.asarray(found)[: width * k].reshape(width, k).T.ravel()
