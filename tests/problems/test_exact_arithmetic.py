"""Certificates compared with 60-digit arithmetic, for data and weights of extreme sizes.

The reference lists all labelings and evaluates objectives with mpmath. It shares no code with the
library. A certificate is true if its primal value is at least the objective at its weights, and if
its dual value is at most the objective at any weights at all.
"""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from cliquewise.certificate import EPSILON, Certificate
from cliquewise.data.dataset import Dataset
from cliquewise.data.graphs import GraphDataset
from cliquewise.models.candidates import CandidateSets
from cliquewise.models.chain import ChainModel
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.base import Problem
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.label_graph import LabelGraphProblem, LabelsProblem
from cliquewise.solvers import registered
from cliquewise.solvers.run import run

DIGITS = 60
MP = mpmath.mpf


class Exact:
    """The objective of a problem, from joint features and costs of all outputs of all examples."""

    def __init__(self, problem: Problem, outputs: list[tuple[Any, Any, float, float]]):
        self.problem, self.outputs = problem, outputs  # features - true ones, costs, c_i, gamma

    def value(self, w: Any) -> Any:
        with mpmath.workdps(DIGITS):
            v = [MP(float(x)) for x in w]
            n, ratio = len(self.outputs), MP(self.problem.l1_ratio)
            lam = 1 / (MP(self.problem.C) * n)
            total = lam * sum(ratio * abs(x) + (1 - ratio) / 2 * x * x for x in v)
            for features, costs, weight, gamma in self.outputs:
                scores = [
                    sum((MP(f) * v[j] for j, f in row), MP(float(cost)))
                    for row, cost in zip(features, costs, strict=True)
                ]
                top = max(scores)
                loss = top
                if gamma > 0:
                    g = MP(gamma)
                    loss = top + g * mpmath.log(sum(mpmath.exp((s - top) / g) for s in scores))
                total += MP(weight) * loss / n
            return total


def sparse_rows(features: Any) -> list[list[tuple[int, float]]]:
    return [[(int(j), float(row[j])) for j in np.flatnonzero(row)] for row in features]


def magnitudes(rng: np.random.Generator, shape: Any, low: float, high: float) -> Any:
    """Random numbers of both signs with magnitudes between powers of ten."""
    return rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(low, high, shape)


def chains(rng: np.random.Generator, loss: str, C: float, l1: float, spread: float) -> Exact:
    k, n, d = 2, 3, 2
    lengths = rng.integers(1, 5, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = int(offsets[-1])
    scale = 10.0 ** rng.uniform(-spread, spread)
    X = csr_matrix(scale * magnitudes(rng, (tokens, d), -1, 0.1))
    labels = rng.integers(0, k, tokens).astype(np.int32)
    weights = 10.0 ** rng.uniform(-2, 2, n)
    data = Dataset.from_matrix(X, offsets, labels=labels, weights=weights)
    model = ChainModel.build(data, k, intercept=False, boundaries=False)
    problem = ChainProblem(model, data, C, loss=loss, smoother="entropy").elastic(l1)
    outputs, dense = [], X.toarray()
    for i, (a, b) in enumerate(pairwise(offsets)):
        rows, costs = [], []
        for y in product(range(k), repeat=int(b - a)):
            row = np.zeros((d + k, k), dtype=object)
            row[:] = MP(0)
            for t in range(a, b):
                for j in range(d):
                    row[j, y[t - a]] += MP(float(dense[t, j]))
                    row[j, labels[t]] -= MP(float(dense[t, j]))
            for p, q in pairwise(y):
                row[d + p, q] += 1
            for p, q in pairwise(labels[a:b]):
                row[d + p, q] -= 1
            rows.append([(j, x) for j, x in enumerate(row.ravel()) if x != 0])
            wrong = sum(u != v for u, v in zip(y, labels[a:b]))
            costs.append(0.0 if loss == "log" else float(wrong))
        gamma = {"log": 1.0, "softmax_margin": 1.0, "hinge": 0.0}[loss]
        outputs.append((rows, costs, float(weights[i]), gamma))
    return Exact(problem, outputs)


def candidates(rng: np.random.Generator, loss: str, C: float, l1: float, spread: float) -> Exact:
    n, m, d = 4, 3, 2
    scale = 10.0 ** rng.uniform(-spread, spread)
    X = [scale * magnitudes(rng, (m, d), -1, 0.1) for _ in range(n)]
    truth = rng.integers(0, m, n)
    weights = 10.0 ** rng.uniform(-2, 2, n)
    data = CandidateSets.from_examples([x.tolist() for x in X])
    problem = CandidateProblem(data, truth, None, C, loss, sample_weight=weights).elastic(l1)
    outputs = []
    for i in range(n):
        rows = [
            [(j, MP(float(x[j])) - MP(float(X[i][truth[i], j]))) for j in range(d)] for x in X[i]
        ]
        costs = [float(loss == "hinge" and a != truth[i]) for a in range(m)]
        outputs.append((rows, costs, float(weights[i]), float(loss == "log")))
    return Exact(problem, outputs)


def label_sets(rng: np.random.Generator, loss: str, C: float, l1: float, spread: float) -> Exact:
    n, d, labels = 4, 2, 3
    pairs = np.array([[0, 1], [1, 2]]) if rng.random() < 0.6 else np.zeros((0, 2), dtype=int)
    scale = 10.0 ** rng.uniform(-spread, spread)
    X, Y = scale * magnitudes(rng, (n, d), -1, 0.1), rng.integers(0, 2, (n, labels))
    weights, gamma = 10.0 ** rng.uniform(-2, 2, n), float(10.0 ** rng.uniform(-2, 1))
    kind = LabelGraphProblem if len(pairs) else LabelsProblem
    problem = kind(X, Y, pairs, C, loss, gamma, False, "table", weights).elastic(l1)
    outputs = []
    for i in range(n):
        rows, costs = [], []

        def features(y: Any, i: int = i) -> Any:
            out = np.zeros(2 * labels * d + 4 * len(pairs), dtype=object)
            out[:] = MP(0)
            for a in range(labels):
                for j in range(d):
                    out[(a * d + j) * 2 + y[a]] += MP(float(X[i, j]))
            for p, (a, b) in enumerate(pairs):
                out[2 * labels * d + 4 * p + 2 * y[a] + y[b]] += 1
            return out

        for y in product((0, 1), repeat=labels):
            row = features(y) - features(Y[i])
            rows.append([(j, x) for j, x in enumerate(row) if x != 0])
            wrong = sum(u != v for u, v in zip(y, Y[i]))
            costs.append(0.0 if loss == "log" else float(wrong))
        outputs.append((rows, costs, float(weights[i]), gamma))
    return Exact(problem, outputs)


def graphs(rng: np.random.Generator, loss: str, C: float, l1: float, spread: float) -> Exact:
    n, k, d, size = 3, 2, 2, 3
    edges = [(0, 1), (1, 2)] + ([(0, 2)] if rng.random() < 0.5 else [])
    scale = 10.0 ** rng.uniform(-spread, spread)
    X = [scale * magnitudes(rng, (size, d), -1, 0.1) for _ in range(n)]
    Y = [rng.integers(0, k, size) for _ in range(n)]
    weights, gamma = 10.0 ** rng.uniform(-2, 2, n), float(10.0 ** rng.uniform(-2, 1))
    data = GraphDataset.from_examples([(x, edges) for x in X], Y)
    model = PairwiseModel([k], d)
    problem = GraphProblem(model, data, C, loss, gamma, weights=weights).elastic(l1)
    outputs = []
    unit = np.eye(problem.dimension)
    tables = [problem.potentials(e) / 1.0 for e in unit]  # 0, 1, or features: exact, but weighted
    for i in range(n):
        rows, costs = [], []
        at, structure = problem.entries(i), problem.structures[i]
        truth = problem.truth[at]
        for y in product(range(k), repeat=size):
            graph = problem.graph(i, np.zeros(len(problem.truth)))
            mean = np.zeros(len(at))
            for entry in graph._entries(np.array([y])):
                mean[entry[0]] = 1.0
            change = np.flatnonzero(mean != truth)
            row = [
                (j, sum(MP(float(t[at[s]])) * MP(float(mean[s] - truth[s])) for s in change))
                for j, t in enumerate(tables)
            ]
            rows.append([(j, x) for j, x in row if x != 0])
            wrong = sum(u != v for u, v in zip(y, Y[i]))
            # The tables are multiplied by the weight of the example; so are its costs.
            costs.append(0.0 if loss == "log" else float(weights[i]) * wrong)
        assert structure.n_variables == size
        outputs.append((rows, costs, 1.0, 0.0 if loss == "hinge" else gamma * float(weights[i])))
    return Exact(problem, outputs)


KINDS = {
    "chain": (chains, ("log", "softmax_margin", "hinge")),
    "candidates": (candidates, ("log", "hinge")),
    "label_graph": (label_sets, ("log", "softmax_margin")),
    "graph": (graphs, ("log", "hinge")),
}


def check(proof: Certificate, at: Any, others: list[Any]) -> None:
    """Both values are true; ``at`` is the objective at the weights, ``others`` at any weights."""
    if proof.status == "none":
        return
    # `Certificate` documents this tolerance of primal values.
    assert proof.primal >= at - EPSILON * max(1.0, abs(float(at)))
    assert MP(proof.dual) <= min([at, *others])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(25))
def test_certificates_at_any_weights_are_true_in_exact_arithmetic(kind: str, seed: int) -> None:
    make, losses = KINDS[kind]
    rng = np.random.default_rng(1000 + seed)
    loss = losses[seed % len(losses)]
    C, l1 = 10.0 ** rng.uniform(-3, 12), float(rng.choice([0.0, 0.3, 0.9]))
    exact = make(rng, loss, C, l1, spread=8.0)
    problem, values = exact.problem, []
    points = [magnitudes(rng, problem.dimension, *size) for size in ((-6, -2), (-2, 2), (2, 6))]
    points.append(np.zeros(problem.dimension))
    values = [exact.value(w) for w in points]
    for w, value in zip(points, values, strict=True):
        check(problem.certificate(w), value, values)


def solvers_of(problem: Problem) -> list[Any]:
    relaxed = [cls() for cls in registered(problem.kind) if not cls.capabilities.relaxed_on]
    return [solver for solver in relaxed if solver.refuses(problem) is None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_certificates_of_all_solvers_are_true_in_exact_arithmetic(kind: str, seed: int) -> None:
    make, losses = KINDS[kind]
    for loss in losses:
        rng = np.random.default_rng([2000, seed])
        C, l1 = 10.0 ** rng.uniform(0, 12), float(rng.choice([0.0, 0.3]))
        exact = make(rng, loss, C, l1, spread=3.0)
        fits = [
            run(exact.problem, s, tol=1e-9, max_epochs=60, max_seconds=2.0, random_state=0)
            for s in solvers_of(exact.problem)
        ]
        values = [exact.value(fit.weights) for fit in fits]
        for fit, value in zip(fits, values, strict=True):
            check(fit.certificate, value, values)


@pytest.mark.parametrize("seed", range(12))
def test_elastic_net_with_a_weak_penalty_has_no_dual_above_the_optimum(seed: int) -> None:
    rng = np.random.default_rng([3000, seed])
    C = 10.0 ** rng.uniform(7, 10)
    exact = chains(rng, "log", C, float(rng.uniform(0.05, 0.95)), spread=0.1)
    values, proofs = [], []
    for solver in solvers_of(exact.problem):
        for epochs in (10, 100, 1000):
            fit = run(exact.problem, solver, tol=1e-9, max_epochs=epochs, random_state=0)
            values.append(exact.value(fit.weights))
            proofs.append(fit.certificate)
    for proof, value in zip(proofs, values, strict=True):
        check(proof, value, values)


def test_claimed_rounding_errors_are_not_many_orders_above_true_ones() -> None:
    ratios = []
    for seed in range(40):
        rng = np.random.default_rng([4000, seed])
        exact = chains(rng, "log", 10.0 ** rng.uniform(-1, 3), 0.0, spread=0.5)
        problem = exact.problem
        w = magnitudes(rng, problem.dimension, -1, 0.5)
        value, gradient = problem.primal_and_gradient(w)
        proof = problem.certified(w, value, gradient)
        with mpmath.workdps(DIGITS):
            at = exact.value(w)
            step = MP(10) ** -25
            slope = []
            for j in range(len(w)):
                moved = [MP(float(x)) for x in w]
                moved[j] += step
                slope.append((_value(exact, moved) - at) / step)
            lam = 1 / (MP(problem.C) * problem.n_examples)
            true_dual = at - sum(g * g for g in slope) / (2 * lam)
            computed = MP(proof.dual) + MP(proof.rounding)
            error = abs(computed - true_dual)
            ratios.append(float(MP(proof.rounding) / max(error, MP(10) ** -40)))
    print(f"median ratio of claimed to true rounding error: {np.median(ratios):.3g}")
    assert min(ratios) >= 1.0
    assert np.median(ratios) < 1e5


def _value(exact: Exact, w: list[Any]) -> Any:
    """The objective at weights that are not float64 numbers."""
    lam = 1 / (MP(exact.problem.C) * len(exact.outputs))
    total = lam / 2 * sum(x * x for x in w)
    for features, costs, weight, _ in exact.outputs:
        scores = [
            sum((MP(f) * w[j] for j, f in row), MP(float(c))) for row, c in zip(features, costs)
        ]
        top = max(scores)
        loss = top + mpmath.log(sum(mpmath.exp(s - top) for s in scores))
        total += MP(weight) * loss / len(exact.outputs)
    return total
