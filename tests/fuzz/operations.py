"""Random sequences of operations on one tagger, checked against a list of all labelings.

A case has the parameters of a `SequenceTagger` and operations: fit, warm fit, partial fit, changes
of parameters, saving and loading, pruning, cloning, copying. After each one the model of what must
be true (`Expected`) is compared with the tagger: predictions, marginals and best labelings follow
from its weights; the certificate encloses the optimum; the user's data are as they were; and an
operation that raises changes nothing.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import logsumexp
from sklearn.base import clone

import cliquewise as cw
from cliquewise.errors import CliquewiseError

from .certificates import judge_exact
from .drawing import Rng, chance, number_near, pick
from .findings import Report, Trouble
from .objective import Long, Objective, Outputs

#: Attributes, the last of which is constant where it is used.
NAMES, CONSTANT = ("f", "g", "h"), "one"
LABELS = ("a", "b", "c")
#: Most tokens of a sequence: three labels then have 27 labelings.
LONGEST = 3
#: Scores above which rounding decides between labelings.
LARGEST_SCORE = 1e8

Example = dict[str, Any]


# ---- drawing


def draw(rng: Rng) -> dict[str, Any]:
    """Parameters, a first fit, and up to six further operations."""
    form = pick(rng, "dicts", "dicts", "pairs", "csr")
    params = {"loss": pick(rng, "log", "log", "hinge", "softmax_margin"), **_draw_run(rng)}
    for name in ("intercept", "boundary_weights"):
        if chance(rng, 0.5):
            params[name] = False
    operations = [{"do": "fit", "examples": _draw_examples(rng, True)}]
    for _ in range(int(rng.integers(1, 7))):
        what = pick(rng, "fit", "warm fit", "warm fit", "partial fit", "partial fit", "parameters",
                    "file", "prune", "clone", "copy")  # fmt: skip
        operation: dict[str, Any] = {"do": what}
        if what in ("fit", "partial fit") or (what == "warm fit" and chance(rng, 0.5)):
            operation["examples"] = _draw_examples(rng, what == "fit")
        elif what == "parameters":
            operation["params"] = _draw_run(rng)
        elif what == "file":
            operation["with_state"] = chance(rng, 0.7)
        elif what == "prune":
            operation["how"] = pick(rng, {"threshold": 0.0}, {"threshold": 0.1}, {"keep": 0.5})
        operations.append(operation)
    return {"form": form, "params": params, "operations": operations}


def _draw_run(rng: Rng) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "C": number_near(rng, 1e-4, 1e5, 1e-12, 1e12), "tol": number_near(rng, 1e-9, 1e-1, 0.0),
        "max_epochs": pick(rng, 1, 2, 5, 30, 100), "random_state": int(rng.integers(100)),
    }  # fmt: skip
    if chance(rng, 0.3):
        drawn["l1_ratio"] = number_near(rng, 1e-3, 1.0, 0.0, 1.0)
    drawn["solver"] = pick(rng, "auto", "auto", "sdca", "lbfgs", "owlqn", "bcfw")
    return drawn


def _draw_examples(rng: Rng, first: bool) -> list[Example]:
    scale = number_near(rng, 1e-2, 1e2, 1e-6, 1e4)
    names, labels = NAMES[: int(rng.integers(1, 4))], LABELS[: int(rng.integers(1, 4))]
    constant, examples = chance(rng, 0.3), []
    for _ in range(int(rng.integers(1, 5))):
        tokens = []
        for _ in range(int(rng.integers(0, LONGEST + 1))):
            x = [[name, _draw_value(rng, scale)] for name in names if chance(rng, 0.6)]
            x += [[CONSTANT, 1.0]] * constant
            tokens.append({"x": x, "y": pick(rng, *labels)})
        examples.append({"tokens": tokens})
        if chance(rng, 0.2):
            examples.append(copy.deepcopy(pick(rng, *examples)))  # a duplicate
    if first and not any(e["tokens"] for e in examples):
        examples.append({"tokens": [{"x": [[names[0], 1.0]], "y": labels[0]}]})
    if chance(rng, 0.3):
        for example in examples:
            example["weight"] = pick(rng, 0.0, 0.3, 1.0, 100.0)
    return examples


def _draw_value(rng: Rng, scale: float) -> Any:
    if chance(rng, 0.25):
        return pick(rng, 0.0, False, True, 0, -0.0)
    return float(f"{scale * rng.normal():.3g}")


# ---- data for the tagger


def inputs_of(examples: list[Example], form: str) -> tuple[list[Any], list[list[str]]]:
    """Sequences in one of the forms that a tagger takes, and their labels."""
    X: list[Any] = []
    for example in examples:
        rows = [token["x"] for token in example["tokens"]]
        if form == "csr":
            # Every value as two entries: zeros and duplicates are stored.
            order = (*NAMES, CONSTANT)
            indices = [order.index(name) for row in rows for name, _ in row for _ in (0, 1)]
            data = [half for row in rows for _, v in row for half in (0.5 * v, 0.5 * v)]
            indptr = np.cumsum([0, *(2 * len(row) for row in rows)])
            X.append(csr_matrix((data, indices, indptr), shape=(len(rows), len(order))))
        elif form == "pairs":
            X.append([[(name, float(value)) for name, value in row] for row in rows])
        else:
            X.append([dict(row) for row in rows])
    return X, [[token["y"] for token in example["tokens"]] for example in examples]


def weights_of(examples: list[Example]) -> list[float] | None:
    """Weights of the examples, or None."""
    weights = [example.get("weight", 1.0) for example in examples]
    return None if all(w == 1.0 for w in weights) else weights


def _contents(X: list[Any]) -> Any:
    return [
        (x.data.tobytes(), x.indices.tobytes(), x.indptr.tobytes()) if hasattr(x, "indptr")
        else pickle.dumps(x) for x in X
    ]  # fmt: skip


# ---- what must be true


class Expected:
    """The examples a tagger was trained on, and what follows from its weights."""

    def __init__(self, form: str):
        self.form = form
        self.examples: list[Example] = []
        self.params: dict[str, Any] = {}  # at the last training
        self.may_be_unproven = False  # after pruning, and in a file of another C
        self.has_state = False  # from which a warm start continues

    def names(self) -> list[str]:
        extra = ["(intercept)"] * self.params["intercept"]
        extra += ["(begin)", "(end)"] * self.params["boundary_weights"]
        return [*NAMES, CONSTANT, *extra]

    def features(self, tokens: list[Any]) -> np.ndarray:
        """Attributes of tokens, in the order of `names`."""
        names = self.names()
        X = np.zeros((len(tokens), len(names)), dtype=Long)
        for t, token in enumerate(tokens):
            for name, value in token["x"]:
                X[t, names.index(name)] = Long(float(value))
            if "(intercept)" in names:
                X[t, names.index("(intercept)")] = 1
        if "(begin)" in names and len(tokens):
            X[0, names.index("(begin)")] = X[-1, names.index("(end)")] = 1
        return X

    def weights(self, tagger: Any) -> np.ndarray:
        """The tagger's weights by name, as one vector."""
        places = {name: i for i, name in enumerate(self.names())}
        if self.form == "csr":
            places |= {f"x{i}": i for i in range(len(NAMES) + 1)}
        labels = list(tagger.classes_)
        nodes = np.zeros((len(self.names()), len(labels)))
        for (name, label), value in tagger.state_features_.items():
            nodes[places[name], labels.index(label)] = value
        edges = np.zeros((len(labels), len(labels)))
        for (a, b), value in tagger.transition_features_.items():
            edges[labels.index(a), labels.index(b)] = value
        return np.concatenate([nodes.ravel(), edges.ravel()])

    def joint(self, tokens: list[Any], labels: list[str]) -> tuple[list[Any], np.ndarray]:
        """All labelings of a sequence, and their feature vectors."""
        X, k = self.features(tokens), len(labels)
        listed = list(product(range(k), repeat=len(tokens)))
        rows = []
        for y in listed:
            nodes, edges = np.zeros((X.shape[1], k), dtype=Long), np.zeros((k, k), dtype=Long)
            for x, label in zip(X, y, strict=True):
                nodes[:, label] += x
            for a, b in pairwise(y):
                edges[a, b] += 1
            rows.append(np.concatenate([nodes.ravel(), edges.ravel()]))
        return listed, np.array(rows)

    def objective(self, labels: list[str]) -> Objective:
        """What training minimizes."""
        made = []
        for example in self.examples:
            tokens = example["tokens"]
            listed, phi = self.joint(tokens, labels)
            true = tuple(labels.index(token["y"]) for token in tokens)
            cost = [0 if self.params["loss"] == "log" else sum(map(int.__ne__, y, true))
                    for y in listed]  # fmt: skip
            made.append(Outputs(example.get("weight", 1.0), np.array(cost, dtype=Long),
                                phi - phi[listed.index(true)]))  # fmt: skip
        smoother = "none" if self.params["loss"] == "hinge" else "entropy"
        size = phi.shape[1]
        return Objective(self.params["C"], size, made, smoother, l1_ratio=self.params["l1_ratio"])

    @property
    def is_ordinary(self) -> bool:
        """Whether a certificate must be found, and nothing be refused."""
        values = [abs(float(v)) for e in self.examples for t in e["tokens"] for _, v in t["x"]]
        return 1e-4 <= self.params["C"] <= 1e4 and all(v == 0 or 1e-3 < v < 1e3 for v in values)


# ---- checking


def check(case: dict[str, Any]) -> Report:
    """Do the operations of a case, and compare after each one."""
    tagger, expected = cw.SequenceTagger(**case["params"]), Expected(case["form"])
    for done, operation in enumerate(case["operations"], 1):
        if not (expected.examples or operation["do"] in ("fit", "warm fit", "partial fit")):
            continue  # the first fit was refused
        before = _answers(tagger) if expected.examples else None
        new = operation.get("examples", expected.examples)
        data = inputs_of(new, case["form"])
        contents = _contents(data[0])
        title = operation["do"]
        try:
            tagger = _do(tagger, operation, expected, data, weights_of(new))
        except CliquewiseError as error:
            if title in ("fit", "warm fit") and _must_work(tagger, operation, expected, new):
                what = f"{title}: {type(error).__name__} on an ordinary problem"
                return Report(done, Trouble(what, str(error)))
            if before is not None and _answers(tagger) != before:
                return Report(done, Trouble(f"{title}: an error changes the tagger", str(error)))
            continue
        if _contents(data[0]) != contents:
            return Report(done, Trouble(f"{title}: it changes the data"))
        after = _answers(tagger)
        if title == "file" and expected.may_be_unproven and before is not None:
            before, after = before[:2], after[:2]
        if title in ("parameters", "file", "copy") and after != before:
            return Report(done, Trouble(f"{title}: it changes the model"))
        trouble = _compare(tagger, expected)
        if trouble is not None:
            return Report(done, Trouble(f"{title}: {trouble.what}", trouble.detail))
    return Report(len(case["operations"]))


def _must_work(tagger: Any, operation: Any, expected: Expected, new: list[Example]) -> bool:
    """Whether ``auto`` has to solve a problem, which is an ordinary one."""
    probe = Expected(expected.form)
    probe.examples, probe.params = new, tagger.get_params(deep=False)
    used = [e for e in new if e["tokens"] and e.get("weight", 1.0) > 0]
    continues = operation["do"] == "fit" or expected.has_state or not expected.examples
    return continues and bool(used) and probe.params["solver"] == "auto" and probe.is_ordinary


def _do(tagger: Any, operation: Any, expected: Expected, data: Any, weights: Any) -> Any:
    """Do one operation on the tagger, and on the model of it."""
    what, (X, y) = operation["do"], data
    if what == "fit":
        tagger.fit(X, y, sample_weight=weights)
    elif what == "warm fit":
        tagger.fit(X, y, sample_weight=weights, warm_start=True)
    elif what == "partial fit":
        tagger.partial_fit(X, y, sample_weight=weights)
    elif what == "parameters":
        # The default of l1_ratio, if none is drawn.
        tagger.set_params(**({"l1_ratio": 0.0} | operation["params"]))
        expected.may_be_unproven = True
    elif what == "prune":
        tagger.prune(**operation["how"])
        expected.may_be_unproven, expected.has_state = True, False
    elif what == "clone":
        params = tagger.get_params(deep=False)
        copied = clone(tagger)
        if hasattr(copied, "coef_") or copied.get_params(deep=False) != params:
            raise AssertionError("a clone is fitted or has other parameters")
    elif what == "copy":
        tagger, expected.has_state = pickle.loads(pickle.dumps(tagger)), False
    else:
        with tempfile.TemporaryDirectory() as folder:
            params = tagger.get_params(deep=False)
            tagger.save(Path(folder) / "model", with_state=operation["with_state"])
            tagger = cw.load(Path(folder) / "model")
            expected.has_state &= operation["with_state"]
            tagger.set_params(**{name: params[name] for name in ("solver", "random_state")})
    if what in ("fit", "warm fit", "partial fit"):
        known = expected.examples if what == "partial fit" else []
        expected.examples = known + operation.get("examples", [] if known else expected.examples)
        expected.params = tagger.get_params(deep=False)
        expected.may_be_unproven, expected.has_state = False, True
    return tagger


def _answers(tagger: Any) -> Any:
    """What a tagger would do, for comparisons to the bit."""
    if not hasattr(tagger, "coef_"):
        return None
    proof = tagger.certificate_
    weights = {**tagger.state_features_, **tagger.transition_features_}  # files drop zeros
    weights = {name: float(value) for name, value in weights.items() if value}
    return weights, list(tagger.classes_), repr((proof.primal, proof.dual))


def _compare(tagger: Any, expected: Expected) -> Trouble | None:
    if not np.all(np.isfinite(tagger.coef_)):
        return Trouble("weights that are not finite")
    w, labels = expected.weights(tagger), list(tagger.classes_)
    trouble = _compare_predictions(tagger, expected, w, labels)
    if trouble is not None:
        return trouble
    objective = expected.objective(labels)
    objective.minimize()
    trace = getattr(tagger, "trace_", None)
    rows = [] if trace is None or expected.may_be_unproven else list(trace)
    ordinary = expected.is_ordinary and not expected.may_be_unproven
    return judge_exact(objective, tagger.certificate_, rows, w, ordinary)


def _compare_predictions(
    tagger: Any, expected: Expected, w: np.ndarray, labels: list[str]
) -> Trouble | None:
    examples = expected.examples
    X, _ = inputs_of(examples, expected.form)
    predicted, is_probabilistic = tagger.predict(X), tagger.has_probabilities
    best = tagger.predict_top_k(X, 3) if is_probabilistic else None
    marginals = tagger.predict_marginals(X) if is_probabilistic else None
    for i, example in enumerate(examples):
        listed, phi = expected.joint(example["tokens"], labels)
        scores = (phi @ w.astype(Long)).astype(float)
        size = float((np.abs(phi) @ np.abs(w)).max())
        if size > LARGEST_SCORE:
            continue
        slack = 1e-9 + 1e-13 * size
        y = tuple(labels.index(label) for label in predicted[i])
        if scores[listed.index(y)] < scores.max() - slack:
            return Trouble("a labeling that is not the best", f"sequence {i}: {predicted[i]}")
        if best is None or marginals is None:
            continue
        ranked = np.sort(scores)[::-1][: len(best[i])]
        found = [scores[listed.index(tuple(map(labels.index, tags)))] for _, tags in best[i]]
        if len(best[i]) != min(3, len(listed)) or np.any(np.abs(found - ranked) > slack):
            return Trouble("not the best labelings", f"sequence {i}: {best[i]}")
        p, own = np.exp(scores - logsumexp(scores)), np.asarray(marginals[i])
        for t in range(len(example["tokens"])):
            true = np.bincount([y[t] for y in listed], weights=p, minlength=len(labels))
            if np.any(np.abs(own[t] - true) > 1e-9 + 1e-12 * size):
                return Trouble("wrong marginals", f"sequence {i}, token {t}: {own[t]}, not {true}")
    return None
