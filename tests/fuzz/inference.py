"""Inference: every oracle's answers against a list of all labelings, in extended precision."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from strategies import FAMILIES, FORBID_WEIGHTED, SIZES, STATES, TRIVIAL, VALUES, Recipe

from cliquewise.errors import (
    CliquewiseError,
    GraphError,
    InfeasibleError,
    TooLargeError,
    UnsupportedError,
)
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.sizes import LARGEST
from cliquewise.oracles.planner import ANYTIME
from cliquewise.oracles.registry import registered

from .drawing import Rng, chance, pick
from .findings import Report, Trouble
from .objective import EPS, Long

#: What values may be off by, in parts of the largest sum of scores (oracles close gaps at 1e-9).
CLOSE = 2e-9
#: Scores from which on a refusal is an answer.
HUGE = 1e10
DOUBLE = float(np.finfo(float).eps)


# ---- drawing


def draw(rng: Rng) -> dict[str, Any]:
    """A graph, and questions to some of the oracles."""
    families = [f for f in FAMILIES if f not in TRIVIAL or chance(rng, 0.3)]
    graph = Recipe(
        pick(rng, *families), pick(rng, *SIZES), pick(rng, *STATES), pick(rng, *VALUES, "normal"),
        pick(rng, *FORBID_WEIGHTED), pick(rng, 0, 0, 0, 1, 2), int(rng.integers(2**32)),
    ).build()  # fmt: skip
    scale = pick(rng, 1e6, 1e12, 1e15, 1e16, 1e30, 1e100, 1e300) if chance(rng, 0.3) else 1.0
    factors = []
    for scope, values in graph.factors:
        # Larger ones are refused at once.
        table = np.where(np.isfinite(values), np.clip(values * scale, -1e300, 1e300), values)
        factors.append({"scope": list(scope), "table": table.ravel().tolist()})
    methods = [ANYTIME, *registered()]
    asks = [(o.name, question) for o in methods for question in sorted(o.provides)]
    asks += [
        ("auto", question) for question in ("map", "marginals", "max_marginals", "top_k", "sample")
    ]
    chosen = [asks[i] for i in rng.permutation(len(asks))[:10]]
    return {
        "cards": graph.cardinalities.tolist(),
        "factors": factors,
        "evidence": {str(v): s for v, s in graph.evidence.items()},
        "asks": [{"method": m, "question": q, "k": pick(rng, 1, 3, 10, 70),
                  "seed": int(rng.integers(100))} for m, q in chosen],
    }  # fmt: skip


def build(case: dict[str, Any]) -> FactorGraph:
    """The graph of a case."""
    cards = case["cards"]
    graph = FactorGraph(cards, [
        (tuple(f["scope"]), np.array(f["table"]).reshape([cards[v] for v in f["scope"]]))
        for f in case["factors"]
    ])  # fmt: skip
    evidence = case.get("evidence")
    return graph.condition({int(v): s for v, s in evidence.items()}) if evidence else graph


# ---- the truth


class Listed:
    """The score of every labeling, one axis per variable, in long doubles."""

    def __init__(self, case: dict[str, Any]):
        self.cards = case["cards"]
        joint = np.zeros(self.cards, dtype=Long)
        self.scale = 0.0
        for factor in case["factors"]:
            scope = factor["scope"]
            values = np.array(factor["table"], dtype=Long).reshape([self.cards[v] for v in scope])
            shape = [1] * len(self.cards)
            for v in scope:
                shape[v] = self.cards[v]
            joint = joint + np.transpose(values, np.argsort(scope).astype(int)).reshape(shape)
            finite = np.abs(values[np.isfinite(values)])
            self.scale += float(finite.max(initial=0))
        for v, state in case.get("evidence", {}).items():
            other = np.arange(self.cards[int(v)]) != state
            joint[(slice(None),) * int(v) + (other,)] = -np.inf
        self.joint = joint
        self.best = joint.max() if joint.size else Long(-np.inf)

    @property
    def slack(self) -> float:
        """What values may be off by."""
        return CLOSE * max(1.0, self.scale)

    @property
    def blur(self) -> float:
        """What logarithms of probabilities may be off by, from the rounding of doubles."""
        return 200 * DOUBLE * self.scale

    @cached_property
    def log_z(self) -> Any:
        return self.best + np.log(np.exp(self.joint - self.best).sum())

    def beliefs(self, scope: list[int]) -> np.ndarray:
        """Marginals of some variables, in the order of the scope."""
        p = np.exp(self.joint - self.log_z)
        others = tuple(v for v in range(len(self.cards)) if v not in scope)
        return np.transpose(p.sum(axis=others), np.argsort(np.argsort(scope)).astype(int))

    def maxima(self, v: int) -> np.ndarray:
        """The best score with a variable in each of its states."""
        return self.joint.max(axis=tuple(u for u in range(len(self.cards)) if u != v))


# ---- checking


def check(case: dict[str, Any]) -> Report:
    """Ask all questions of a case."""
    truth, done = Listed(case), 0
    try:
        graph = build(case)
    except GraphError:
        if truth.scale <= LARGEST:
            raise
        return Report(1)  # more than can be added up is refused
    for asked in case["asks"]:
        trouble = _ask(graph, truth, case, asked)
        done += 1
        if trouble is not None:
            title = f"{asked['question']} by {asked['method']}: {trouble.what}"
            return Report(done, Trouble(title, trouble.detail))
    return Report(done)


def answer(graph: FactorGraph, asked: dict[str, Any]) -> Any:
    """What an oracle says."""
    method, question = asked["method"], asked["question"]
    if question == "top_k":
        return graph.top_k(asked["k"], method)
    if question == "sample":
        return graph.sample(6, random_state=asked["seed"], method=method)
    options = {"random_state": asked["seed"]} if method == "perturb-and-map" else {}
    return getattr(graph, question)(method, **options)


def _ask(graph: FactorGraph, truth: Listed, case: Any, asked: Any) -> Trouble | None:
    feasible = bool(truth.best > -np.inf)
    try:
        found = answer(graph, asked)
    except InfeasibleError as error:
        return Trouble("a possible graph is called impossible", str(error)) if feasible else None
    except (UnsupportedError, TooLargeError):
        return None
    except CliquewiseError as error:
        if truth.scale >= HUGE:
            return None
        return Trouble(f"{type(error).__name__} on an ordinary graph", str(error))
    question = asked["question"]
    if not feasible:
        fine = question == "map" and found.score == -np.inf and not found.exact
        return None if fine else Trouble("an impossible graph has an answer", repr(found)[:500])
    with np.errstate(all="ignore"):
        wrong = CHECKS[question](found, truth, case, asked)
    return None if wrong is None else Trouble(*wrong)


Wrong = tuple[str, str] | None


def _check_map(found: Any, truth: Listed, case: Any, asked: Any) -> Wrong:
    said = f"score {found.score!r}, bound {found.upper_bound!r}, exact {found.exact}; "
    said += f"the best is {truth.best!r}"
    if found.labels.shape != (len(truth.cards),):
        return "labels of a wrong shape", said
    real = truth.joint[tuple(found.labels)]
    if not _close(found.score, real, truth.slack):
        return "the score is not that of the labels", f"{said}, that of the labels {real!r}"
    if not found.upper_bound >= truth.best - truth.slack:
        return "the bound is below the best", said
    if found.exact and not _close(found.score, truth.best, truth.slack):
        return "the labels are not the best though exact", said
    return None


def _close(a: Any, b: Any, slack: float) -> bool:
    return bool(a == b or abs(a - b) <= slack)


def _check_top_k(found: Any, truth: Listed, case: Any, asked: Any) -> Wrong:
    for one in found:
        wrong = _check_labeling(one, truth)
        if wrong is not None:
            return wrong
    scores = [one.score for one in found]
    said = f"scores {scores}"
    if any(b > a + truth.slack for a, b in pairwise(scores)):
        return "not in order", said
    if len({tuple(one.labels.tolist()) for one in found}) < len(found):
        return "a labeling is listed twice", said
    possible = np.sort(truth.joint[truth.joint > -np.inf].ravel())[::-1][: asked["k"]]
    if all(one.exact for one in found):
        if len(found) != len(possible):
            return "too few or too many labelings", f"{len(found)} of {len(possible)}"
        if not all(_close(a, b, truth.slack) for a, b in zip(scores, possible)):
            return "not the best labelings though exact", f"{said}; they are {possible.tolist()}"
    return None


def _check_labeling(one: Any, truth: Listed) -> Wrong:
    real = truth.joint[tuple(one.labels)]
    if not real > -np.inf:
        return "a forbidden labeling", f"{one.labels.tolist()}"
    if not _close(one.score, real, truth.slack):
        return "the score is not that of the labels", f"{one.score!r}, not {real!r}"
    return None


def _check_sample(found: Any, truth: Listed, case: Any, asked: Any) -> Wrong:
    if found.shape != (6, len(truth.cards)):
        return "draws of a wrong shape", f"{found.shape}"
    scores = truth.joint[tuple(found.T)] if len(truth.cards) else np.full(6, truth.best)
    if not np.all(scores > -np.inf):
        return "a forbidden labeling is drawn", f"{found.tolist()}"
    # One draw in e^50 at most may be worse than the best by more than 50 and the number of outputs.
    # Perturbations promise less, and a Gibbs chain may never leave the mode where it started.
    least = truth.best - 50 - np.log(truth.joint.size) - truth.blur
    if asked["method"] not in ("perturb-and-map", "gibbs") and np.any(scores < least):
        return "a draw that has no probability", f"{scores.tolist()}; the best is {truth.best!r}"
    return None


def _check_max_marginals(found: Any, truth: Listed, case: Any, asked: Any) -> Wrong:
    if not found.exact:
        return None
    for v in range(len(truth.cards)):
        expected = truth.maxima(v)
        if not all(_close(a, b, truth.slack) for a, b in zip(found.nodes[v], expected)):
            return "wrong though exact", f"variable {v}: {found.nodes[v]}, not {expected}"
    if not _close(found.value, truth.best, truth.slack):
        return "wrong value though exact", f"{found.value!r}, not {truth.best!r}"
    return None


def _check_marginals(found: Any, truth: Listed, case: Any, asked: Any) -> Wrong:
    lower, upper = found.log_z_bounds
    said = f"log Z {found.log_z!r} in {found.log_z_bounds}, certified {found.bounds_certified}, "
    said += f"exact {found.exact}; it is {truth.log_z!r}"
    certified = found.bounds_certified
    if (certified[0] and np.isnan(lower)) or (certified[1] and np.isnan(upper)):
        return "a certified bound is NaN", said
    if certified[0] and lower > truth.log_z + truth.slack:
        return "the certified lower bound is false", said
    if certified[1] and upper < truth.log_z - truth.slack:
        return "the certified upper bound is false", said
    if found.exact and not _close(found.log_z, truth.log_z, truth.slack):
        return "a wrong log Z though exact", said
    parts = [([v], found.nodes[v]) for v in range(len(truth.cards))]
    parts += [(f["scope"], found.factors[i]) for i, f in enumerate(case["factors"])]
    for scope, table in parts:
        table = np.asarray(table)
        where = f"of {scope}: {table.tolist()}"
        # Beyond double precision a method that promises nothing may fail, but not pretend.
        if not np.all((table >= -1e-12) & (table <= 1 + 1e-9)) or abs(table.sum() - 1) > 1e-9:
            return "marginals that are no distribution", where
        if found.exact:
            wrong = _compare(table, truth, scope)
            if wrong:
                return wrong, f"{where}, not {truth.beliefs(scope).astype(float).tolist()}"
    return None


def _compare(table: np.ndarray, truth: Listed, scope: list[int]) -> str | None:
    """Exact marginals, as far as doubles can know them."""
    expected = truth.beliefs(scope)
    slack = 1e-9 + 1e3 * EPS + truth.blur
    if slack < 0.1:
        return "wrong marginals though exact" if np.any(np.abs(table - expected) > slack) else None
    # Only what is decided by more than the rounding of the scores is known.
    least = 50 + np.log(truth.joint.size) + truth.blur
    with np.errstate(all="ignore"):
        decided = expected < np.exp(-least)
    return "wrong marginals though exact" if np.any(table[decided] > 1e-6) else None


CHECKS = {
    "map": _check_map,
    "top_k": _check_top_k,
    "sample": _check_sample,
    "max_marginals": _check_max_marginals,
    "marginals": _check_marginals,
}
