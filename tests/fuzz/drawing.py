"""What kinds of problems share: numbers that are drawn, and features as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np

from .objective import Objective

Problem = dict[str, Any]
Rng = np.random.Generator


# ---- drawing numbers


def chance(rng: Rng, share: float) -> bool:
    """True in a share of the cases."""
    return bool(rng.random() < share)


def pick(rng: Rng, *values: Any) -> Any:
    """One of the values."""
    return values[int(rng.integers(len(values)))]


def number_near(rng: Rng, low: float, high: float, *limits: float) -> float:
    """A number on a log scale; one of the limits in a fifth of the cases."""
    if limits and chance(rng, 0.2):
        return pick(rng, *limits)
    return float(f"{10 ** rng.uniform(np.log10(low), np.log10(high)):.3g}")


def draw_size(rng: Rng) -> dict[str, Any]:
    """C and the scale of the features: ordinary ones mostly."""
    size = {"C": number_near(rng, 1e-4, 1e6, 1e20, 1e-20, 1e12, 8560.0), "scale": 1.0}
    if chance(rng, 0.5):
        size["scale"] = number_near(rng, 1e-3, 1e3, 4e3, 1e8, 1e200, 1e-100)
    return size


def row(rng: Rng, width: int, scale: float) -> dict[str, float]:
    """Features by column, few of them and sometimes none."""
    if chance(rng, 0.15):
        return {}
    values = rng.normal(size=width) if chance(rng, 0.6) else rng.choice([1.0, 1.0, -1.0], width)
    kept = rng.random(width) < 0.6
    values[rng.random(width) < 0.1] = 0.0  # stored zeros
    return {str(j): float(f"{scale * values[j]:.3g}") for j in np.flatnonzero(kept)}


def weighted(rng: Rng, examples: list[dict[str, Any]]) -> None:
    """Weights of the examples, zeros among them; not all of them."""
    if chance(rng, 0.3):
        for example in examples:
            example["weight"] = float(rng.choice([0.0, 0.3, 1.0, 2.5]))
        if all(example["weight"] == 0 for example in examples):
            examples[0]["weight"] = 1.0


def elastic(rng: Rng, params: dict[str, Any]) -> None:
    """Make a share of the penalty an L1 norm, sometimes."""
    if chance(rng, 0.3):
        params["l1_ratio"] = pick(rng, 0.1, 0.5, 0.9, 1.0, 1.0, 1e-9, 1 - 1e-6)


def dense(rows: list[dict[str, float]], width: int) -> np.ndarray:
    """Rows by column as a matrix."""
    out = np.zeros((len(rows), width))
    for r, values in enumerate(rows):
        for column, value in values.items():
            out[r, int(column)] = value
    return out


def weights_of(problem: Problem) -> list[float] | None:
    """Weights of the examples, or None."""
    weights = [example.get("weight", 1.0) for example in problem["examples"]]
    return None if all(w == 1.0 for w in weights) else weights


# ---- kinds


class Kind:
    """A kind of problem; ``estimator`` is the name of the class that fits it."""

    name: str
    estimator: str
    #: Kind of the library's problem, by which solvers are registered.
    registered: str

    def draw(self, rng: Rng) -> Problem:
        """A problem."""
        raise NotImplementedError

    def arguments(self, problem: Problem) -> dict[str, Any]:
        """Of ``fit``."""
        raise NotImplementedError

    def objective(self, problem: Problem) -> Objective:
        """What is to be minimized, from a list of all outputs."""
        raise NotImplementedError

    def weights(self, problem: Problem, found: np.ndarray) -> np.ndarray:
        """The weights that a solver found, in the order of the objective's."""
        return np.asarray(found)


def labels_in_order(labels: list[Any]) -> list[Any]:
    """The classes, sorted, None left out."""
    found = set()
    for label in labels:
        found |= set(label) if isinstance(label, list) else {label}
    return sorted(found - {None})
