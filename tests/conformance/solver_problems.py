"""Small problems of every kind and loss, and their optima from lists of all outputs.

Hypothesis draws a :class:`Recipe`; the numbers come from NumPy's generator under its seed. A
*family* makes a problem of one kind and loss from it. The optimum shares no code with the solvers:
:class:`Listed` has the cost and the features of every output, and minimizes by Newton's method
(smooth losses) or by cutting planes; ``relaxed_program.py`` writes out the relaxed problems. Both
give a bracket whose ends are the values of a point and of a dual point, true whatever the
precision.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import permutations, product
from typing import Any, NamedTuple, Protocol

import numpy as np
from chain_problems import ChainRecipe, Enumeration
from hypothesis import strategies as st
from quadratic_program import minimize_quadratic
from relaxed_program import RelaxedProgram, feature_matrix
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import softmax

from cliquewise.data.graphs import GraphDataset
from cliquewise.models.candidates import CandidateSets
from cliquewise.models.matching import MatchingModel, PairTables
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.base import Problem
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.examples import ExampleProblem, Rows, stacked
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.label_graph import LabelGraphProblem, LabelsProblem
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.problems.matching import MatchingProblem
from cliquewise.smoothers import get_smoother

HAS_TORCH = importlib.util.find_spec("torch") is not None
if HAS_TORCH:  # which registers the solvers of networks
    import torch

    import cliquewise.torch.prox_linear
    import cliquewise.torch.stochastic  # noqa: F401
    from cliquewise.torch import DeepProblem
    from cliquewise.torch.heads import Scorer, make_head

#: Of chains and graphs.
GAMMA = 0.7


class Recipe(NamedTuple):
    """Everything that makes a problem; what a kind has not got, it leaves out."""

    seed: int
    examples: int = 4
    size: int = 3  # labels, candidates, rows to match: at most so many
    C: float = 1.0
    weights: bool = False
    sparse: bool = False
    seen: bool = False  # weights only for what occurs
    forbid: bool = False  # labels and transitions
    bare: bool = False  # some of everything without features, and a feature that never occurs
    variant: int = 0  # ties of pair weights, smoothers, costs, partial matchings
    threads: int = 1
    first: int | None = None  # only so many of the examples
    pairs: int = 0  # attributes of pairs of tokens in chains, for who knows them
    l1: float = 0.0  # share of the L1 norm in the penalty, for who knows it
    costs: bool = False  # of single labels of chains, for losses and solvers that know them

    @property
    def rng(self) -> np.random.Generator:
        """The same numbers whatever C, threads and the part of the examples are."""
        return np.random.default_rng(self.seed)

    @property
    def kept(self) -> int:
        """How many examples there are."""
        return self.examples if self.first is None else min(self.first, self.examples)

    def weight(self, rng: np.random.Generator) -> np.ndarray:
        """Weights of the examples."""
        drawn = rng.choice([0.0, 0.3, 1.0, 2.5], self.examples)
        return drawn if self.weights else np.ones(self.examples)

    def stripped(self, features: np.ndarray, number: int = 0) -> np.ndarray:
        """Features of nodes, pairs or candidates of one example, less those of the bare ones."""
        if not self.bare:
            return features
        kept = np.random.default_rng((self.seed, number)).random(features.shape[:-1]) < 0.6
        out = features * kept[..., None]
        out[..., 0] = 0.0
        return out


def recipes(fewest: int = 0) -> st.SearchStrategy[Recipe]:
    """Recipes of all sorts."""
    return st.builds(
        Recipe,
        seed=st.integers(0, 2**31),
        examples=st.integers(fewest, 5),
        size=st.integers(1, 4),
        C=st.floats(-2, 2).map(lambda x: float(10**x)),
        weights=st.booleans(),
        sparse=st.booleans(),
        seen=st.booleans(),
        forbid=st.booleans(),
        bare=st.booleans(),
        variant=st.integers(0, 2),
        threads=st.sampled_from([1, 1, 2]),
        pairs=st.sampled_from([0, 0, 2]),
        first=st.none(),
        l1=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
        costs=st.booleans(),
    )


# ---- references


class Reference(Protocol):
    """What is known of a problem without its solvers."""

    @property
    def bracket(self) -> tuple[float, float]:
        """A lower and an upper bound of the optimum."""

    def value(self, w: np.ndarray) -> float:
        """The objective at weights."""


class Outputs(NamedTuple):
    """Cost and features, less those of the truth, of every output of an example."""

    costs: np.ndarray
    rows: np.ndarray


class Listed:
    """The objective of listed outputs: ``R(w) + 1/n sum_i c_i f(costs + rows w)``.

    ``R(w) = l1 ||w||_1 + ridge / 2 ||w||^2``, and ``f`` is a maximum that is smoothed by
    ``gamma``, over the ``top`` best outputs.
    """

    def __init__(
        self, problem: Problem, outputs: list[Outputs], weights: np.ndarray,
        smoother: str = "none", gamma: float = 0.0, top: int | None = None,
    ):  # fmt: skip
        self.l1, self.ridge = problem.lam * problem.l1_ratio, problem.lam * (1 - problem.l1_ratio)
        self.n, self.dimension = max(len(outputs), 1), problem.dimension
        self.outputs, self.weights = outputs, np.asarray(weights, dtype=float)
        self.smoother, self.gamma, self.top = get_smoother(smoother), gamma, top

    def planes(self, w: np.ndarray) -> Iterator[tuple[float, Outputs]]:
        """The loss of every example, and the affine function of w that touches it there."""
        for costs, rows in self.outputs:
            psi = costs + rows @ w
            best = np.argsort(-psi, kind="stable")[: self.top]
            u = self.smoother.gradient(psi[best], self.gamma)
            value, row = self.smoother.value(psi[best], self.gamma), u @ rows[best]
            yield value, Outputs(np.array([value - row @ w]), row[None])

    def value(self, w: np.ndarray) -> float:
        """The objective."""
        losses = np.array([loss for loss, _ in self.planes(w)])
        return float(self.penalty(w) + self.weights @ losses / self.n)

    def penalty(self, w: np.ndarray) -> float:
        return float(self.l1 * np.abs(w).sum() + 0.5 * self.ridge * w @ w)

    def dual(self, linear: float, slope: np.ndarray) -> float:
        """The best dual value of a dual point, and of its mixtures with the truth (cost >= 0)."""
        over = max(np.abs(slope).max(initial=0.0), 1e-300)
        if self.ridge == 0:
            return linear * min(1.0, self.l1 / over)
        shares = np.array([1.0, 0.9999, 0.999, 0.99, 0.9, 0.5, 0.0]) if self.l1 else np.ones(1)
        left = np.maximum(np.outer(shares, np.abs(slope)) - self.l1, 0.0)
        return float(np.max(shares * linear - np.square(left).sum(axis=1) / (2 * self.ridge)))

    @cached_property
    def bracket(self) -> tuple[float, float]:
        """Bounds of the optimum."""
        if self.smoother.name == "entropy":
            return self._by_halves() if self.l1 else self._by_newton()
        if self.gamma == 0:
            w, low = self._program(self.outputs)
            return low, self.value(w)
        return self._by_cutting_planes()

    def _program(self, outputs: list[Outputs]) -> tuple[np.ndarray, float]:
        """Weights of the structural SVM over some outputs, and the value of its dual point."""
        n, d = len(outputs), self.dimension
        if self.l1:
            return self._split_program(outputs)
        count = [len(costs) for costs, _ in outputs]
        owner = np.repeat(np.arange(n), count)
        a = np.concatenate([np.empty(0), *(costs for costs, _ in outputs)])
        G = np.concatenate([np.empty((0, d)), *(rows for _, rows in outputs)])
        share = self.weights / self.n
        P, p = np.diag([self.ridge] * d + [0.0] * n), np.concatenate([np.zeros(d), share])
        start = np.concatenate([np.zeros(d), np.maximum.reduceat(a, np.cumsum([0, *count[:-1]]))
                                if n else []])  # fmt: skip
        z, y = minimize_quadratic(P, p, np.hstack([-G, np.eye(n)[owner]]), a, start)
        return z[:d], self._proved(y, owner, count, a, G)

    def _proved(
        self, y: np.ndarray, owner: np.ndarray, count: list[int], a: np.ndarray, G: np.ndarray
    ) -> float:
        """The dual value of multipliers that are made distributions."""
        n, share = len(count), self.weights / self.n
        total = np.bincount(owner, y, minlength=n)
        q = np.where(total[owner] > 0, y / np.where(total > 0, total, 1.0)[owner], 0.0)
        q[np.cumsum([0, *count[:-1]])[total <= 0] if n else []] = 1.0
        q *= share[owner]
        return self.dual(float(q @ a), q @ G)

    def _split_program(self, outputs: list[Outputs]) -> tuple[np.ndarray, float]:
        """The same with an L1 part: weights are the difference of two parts, neither negative."""
        n, d = len(outputs), self.dimension
        count = [len(costs) for costs, _ in outputs]
        owner = np.repeat(np.arange(n), count)
        a = np.concatenate([np.empty(0), *(costs for costs, _ in outputs)])
        G = np.concatenate([np.empty((0, d)), *(rows for _, rows in outputs)])
        P = np.diag([self.ridge] * (2 * d) + [0.0] * n)
        p = np.concatenate([np.full(2 * d, self.l1), self.weights / self.n])
        A = np.vstack([np.hstack([-G, G, np.eye(n)[owner]]), np.eye(2 * d, 2 * d + n)])
        z, y = minimize_quadratic(P, p, A, np.append(a, np.zeros(2 * d)), np.ones(2 * d + n))
        return z[:d] - z[d : 2 * d], self._proved(y[: len(a)], owner, count, a, G)

    def _by_halves(self) -> tuple[float, float]:
        """Positive and negative parts by scipy's L-BFGS-B, then Newton's method where not zero."""
        d = self.dimension

        def at(z: np.ndarray) -> tuple[float, np.ndarray]:
            loss, slope = 0.0, np.zeros(d)
            for c, (value, plane) in zip(self.weights / self.n, self.planes(z[:d] - z[d:])):
                loss, slope = loss + c * value, slope + c * plane.rows[0]
            penalty = 0.5 * self.ridge * z @ z + self.l1 * z.sum()
            return loss + penalty, np.append(slope, -slope) + self.ridge * z + self.l1

        options = {"maxiter": 1000, "ftol": 0.0, "gtol": 1e-9}
        z = minimize(
            at, np.zeros(2 * d), jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * d),
            options=options,
        ).x  # fmt: skip
        w = z[:d] - z[d:]
        for _ in range(5):
            kept = np.abs(w) > 1e-9
            gradient, hessian = self._derivatives(w)
            some = np.ix_(kept, kept)
            step = np.linalg.lstsq(
                hessian[some], gradient[kept] + self.l1 * np.sign(w[kept]), rcond=None
            )[0]
            moved = np.zeros(d)
            moved[kept] = w[kept] - step
            if self.value(moved) > self.value(w) or (moved * w < 0).any():
                break
            w = moved
        here = self.value(w)
        slope = self._derivatives(w)[0] - self.ridge * w
        return self.dual(here - self.penalty(w) - w @ slope, slope), here

    def _by_cutting_planes(self) -> tuple[float, float]:
        """Each program over the planes met so far gives new weights, and a lower bound."""
        w, low, high = np.zeros(self.dimension), -np.inf, np.inf
        planes = [Outputs(np.empty(0), np.empty((0, self.dimension))) for _ in self.outputs]
        for _ in range(100):
            high = min(high, self.value(w))
            if high - low <= 1e-7 * (1 + abs(high)):
                break
            for i, (_, new) in enumerate(self.planes(w)):
                planes[i] = Outputs(*(np.concatenate(pair) for pair in zip(planes[i], new)))
            w, value = self._program(planes)
            low = max(low, value)
        return low, high

    def _by_newton(self) -> tuple[float, float]:
        w = np.zeros(self.dimension)
        for _ in range(200):
            gradient, hessian = self._derivatives(w)
            step = np.linalg.solve(hessian, gradient)
            fall, length, here = float(gradient @ step), 1.0, self.value(w)
            if fall <= 1e-15 * (1 + abs(here)):
                break
            while self.value(w - length * step) > here - 0.1 * length * fall and length > 1e-9:
                length *= 0.5
            w = w - length * step
        here, gradient = self.value(w), self._derivatives(w)[0]
        return here - float(gradient @ gradient) / (2 * self.ridge), here

    def _derivatives(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gradient, hessian = self.ridge * w, self.ridge * np.eye(len(w))
        for c, (costs, rows) in zip(self.weights / self.n, self.outputs, strict=True):
            q = softmax((costs + rows @ w) / self.gamma)
            mean = q @ rows
            gradient = gradient + c * mean
            spread = (rows.T * q) @ rows - np.outer(mean, mean)
            hessian = hessian + c / self.gamma * spread
        return gradient, hessian


class Unproved:
    """Of a network nothing is known but its objective, and that no loss is negative."""

    bracket = (0.0, np.inf)

    def __init__(self, problem: Any):
        self.problem = problem

    def value(self, w: np.ndarray) -> float:
        """The objective, from the losses of all examples at once."""
        p, vector = self.problem, torch.as_tensor(w)
        with torch.no_grad():
            batch = p.batch(slice(None))
            losses = p.losses(p.scores(vector.to(p.weights()), batch), batch)
        return 0.5 * p.lam * float(vector.square().sum()) + float(losses.mean())


# ---- chains


def _chain(recipe: Recipe, loss: str) -> ChainProblem:
    forbid = ("labels", "transitions", "both")[recipe.variant] if recipe.forbid else "nothing"
    whole = ChainRecipe(
        recipe.seed, recipe.examples, recipe.size, "seen" if recipe.seen else "all",
        not recipe.sparse, recipe.weights, forbid, transitions_seen=recipe.variant == 1,
        intercept=recipe.seed % 4 > 0, boundaries=recipe.seed % 3 > 0, bare=recipe.bare,
        pairs=recipe.pairs if loss == "log" else 0,
    ).build()  # fmt: skip
    if recipe.costs and loss != "log":
        whole.data = replace(whole.data, costs=_costs_of_labels(recipe, whole))
    return ChainProblem(
        whole.model, whole.data.subset(np.arange(recipe.kept)), recipe.C, n_jobs=recipe.threads,
        loss=loss, gamma=GAMMA, smoother=("l2", "entropy", "l2")[recipe.variant],
        top=(3, 5, 300)[recipe.variant],
    )  # fmt: skip


def _costs_of_labels(recipe: Recipe, problem: ChainProblem) -> np.ndarray:
    """By token and label; some wrong labels cost nothing, and some much."""
    rng, labels = np.random.default_rng((recipe.seed, 2)), problem.data.labels
    costs = rng.choice([0.0, 0.2, 1.0, 3.0, 20.0], (len(labels), problem.model.n_labels))
    costs[np.arange(len(labels)), labels] = 0.0
    return costs


def _listed_chain(problem: ChainProblem, recipe: Recipe) -> Listed:
    every = Enumeration(problem)
    outputs = []
    for i, (ys, phi, t) in enumerate(zip(every.labelings, every.features, every.truth)):
        labels, (first, last) = np.array(ys).reshape(len(ys), -1), every._range(i)
        wrong = (labels != np.array(every._labels(i))).astype(float)
        if problem.data.costs is not None:
            wrong = problem.data.costs[np.arange(first, last), labels.astype(int)]
        costs = 0.0 if problem.loss == "log" else wrong.sum(axis=1)
        outputs.append(Outputs(costs + np.zeros(len(ys)), phi - phi[t]))
    if problem.loss == "hinge":
        return Listed(problem, outputs, every.weights)
    if problem.loss in ("log", "softmax_margin"):
        return Listed(problem, outputs, every.weights, "entropy", 1.0)
    top = problem.top if problem.smoother == "l2" else None
    return Listed(problem, outputs, every.weights, problem.smoother, problem.gamma, top)


# ---- graphs


def _graph(recipe: Recipe, loss: str) -> GraphProblem:
    rng, k = recipe.rng, min(recipe.size, 3)
    trees, on_edges = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    X, y = [], []
    for i in range(recipe.examples):
        n = int(rng.integers(1, 5 if k < 3 else 4))
        if trees:
            edges = [(int(rng.integers(0, v)), v) for v in range(1, n)]
        else:
            edges = [(u, v) for v in range(n) for u in range(v) if rng.random() < 0.7]
        labels = rng.integers(0, k, n)
        features = np.eye(k)[labels] + rng.normal(size=(n, k))
        if recipe.sparse:
            features *= rng.random(features.shape) < 0.5
        pairs = rng.normal(size=(len(edges), 2)) if on_edges else None
        features = recipe.stripped(features, i)
        pairs = None if pairs is None else recipe.stripped(pairs, i)
        X.append((features, np.array(edges, dtype=int).reshape(-1, 2), pairs))
        y.append(labels)
    model = PairwiseModel([k], k, 2 if on_edges else 0, _ties(recipe))
    weights = recipe.weight(rng)[: recipe.kept]
    if recipe.kept:
        data = GraphDataset.from_examples(X[: recipe.kept], y[: recipe.kept])
    else:
        none = np.empty(0, dtype=np.int64)
        rows = csr_matrix((0, 2)) if on_edges else None
        data = GraphDataset(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64),
                            none.reshape(0, 2), csr_matrix((0, k)), rows, labels=none)  # fmt: skip
    entropy = "gini-otrw" if recipe.seen else "gini"
    return GraphProblem(
        model, data, recipe.C, loss, gamma=1.0 if loss == "log" else GAMMA, entropy=entropy,
        weights=weights if recipe.weights else None,
    )  # fmt: skip


def _ties(recipe: Recipe) -> str:
    return ("table", "symmetric", "potts")[recipe.variant]


def _listed_graph(problem: GraphProblem, recipe: Recipe) -> Listed:
    plain = GraphProblem(problem.model, problem.data, problem.C, problem.loss)  # for its features
    B, g, d = feature_matrix(plain), plain.cliques, plain.data
    outputs = []
    for i in range(problem.n_examples):
        (first, last), (begin, end) = plain.ranges(i)
        cards = np.diff(g.offsets)[first:last]
        costs, rows = [], []
        for labels in product(*(range(k) for k in cards)):
            mu, own = np.zeros(B.shape[1]), dict(zip(range(first, last), labels))
            for v, label in own.items():
                mu[g.offsets[v] + label] = 1.0
            for e in range(begin, end):
                u, v = int(g.left[e]), int(g.right[e])
                k = int(g.offsets[v + 1] - g.offsets[v])
                mu[g.offsets[d.n_nodes + e] + own[u] * k + own[v]] = 1.0
            truth = np.where(plain.state_owners == i, plain.truth, 0.0)
            costs.append(float(plain.costs @ mu))
            rows.append(B @ (mu - truth))
        outputs.append(Outputs(np.array(costs), np.array(rows)))
    smoother = "none" if problem.loss == "hinge" else "entropy"
    return Listed(problem, outputs, problem.weights, smoother, problem.gamma)


# ---- label sets


def _label_sets(recipe: Recipe, loss: str) -> MultiLabelProblem:
    rng, d = recipe.rng, 1 + recipe.variant
    X = recipe.stripped(rng.normal(size=(recipe.examples, d)))
    if recipe.sparse:
        X *= rng.random(X.shape) < 0.5
    Y = (rng.random((recipe.examples, recipe.size)) < 0.4).astype(int)
    kept = slice(0, recipe.kept)
    return MultiLabelProblem(csr_matrix(X[kept]), Y[kept], recipe.C, not recipe.forbid)


def _label_graph(recipe: Recipe, loss: str, pairs: bool = True) -> LabelGraphProblem:
    rng, d = recipe.rng, 1 + recipe.variant
    X = recipe.stripped(rng.normal(size=(recipe.examples, d)))
    X *= rng.random(X.shape) < (0.5 if recipe.sparse else 1.1)
    Y = (rng.random((recipe.examples, recipe.size)) < 0.4).astype(int)
    all_pairs = np.stack(np.triu_indices(recipe.size, 1), axis=1)
    chosen = all_pairs[rng.random(len(all_pairs)) < 0.7] if pairs else all_pairs[:0]
    kept = slice(0, recipe.kept)
    return (LabelGraphProblem if pairs else LabelsProblem)(
        csr_matrix(X[kept]) if recipe.sparse else X[kept], Y[kept], chosen, recipe.C, loss, GAMMA,
        not recipe.forbid, ("table", "co-occurrence", "table")[recipe.variant],
        recipe.weight(rng)[kept], recipe.threads,
    )  # fmt: skip


def _labels(recipe: Recipe, loss: str) -> LabelGraphProblem:
    return _label_graph(recipe, loss, False)


def _listed_label_graph(problem: LabelGraphProblem, recipe: Recipe) -> Listed:
    return _listed_graph(problem.as_graphs(), recipe)


# ---- candidates


def _candidate_lists(recipe: Recipe) -> tuple[list[np.ndarray], list[int], np.ndarray]:
    rng, d = recipe.rng, recipe.size + 1
    X = [rng.normal(size=(rng.integers(1, d + 1), d)) for _ in range(recipe.examples)]
    if recipe.sparse:
        X = [x * (rng.random(x.shape) < 0.5) for x in X]
    X = [recipe.stripped(x, i) for i, x in enumerate(X)]
    truth = [int(rng.integers(len(x))) for x in X]
    return X[: recipe.kept], truth[: recipe.kept], recipe.weight(rng)[: recipe.kept]


def _candidate_costs(recipe: Recipe, X: list[np.ndarray]) -> list[np.ndarray] | None:
    rng = np.random.default_rng(recipe.seed + 1)
    return [rng.random(len(x)) for x in X] if recipe.variant else None


def _candidates(recipe: Recipe, loss: str) -> CandidateProblem:
    X, truth, weights = _candidate_lists(recipe)
    costs = _candidate_costs(recipe, X)
    given = [csr_matrix(x) if recipe.sparse else x for x in X]
    data = CandidateSets.from_examples(given, recipe.size + 1)
    return CandidateProblem(
        data, truth, None if costs is None else np.concatenate([np.empty(0), *costs]), recipe.C,
        loss, recipe.threads, weights if recipe.weights else None,
    )  # fmt: skip


def _listed_candidates(problem: CandidateProblem, recipe: Recipe) -> Listed:
    X, truth, weights = _candidate_lists(recipe)
    costs = _candidate_costs(recipe, X) or [1.0 - np.eye(len(x))[t] for x, t in zip(X, truth)]
    zero = 0.0 if problem.loss == "log" else 1.0
    outputs = [Outputs(zero * (c - c[t]), x - x[t]) for x, t, c in zip(X, truth, costs)]
    if problem.loss == "log":
        return Listed(problem, outputs, weights, "entropy", 1.0)
    return Listed(problem, outputs, weights)


# ---- matchings


class _Tables(NamedTuple):
    X: list[np.ndarray]
    truth: list[np.ndarray]
    weights: np.ndarray
    partial: bool
    intercept: bool
    costs: tuple[float, float]


def _tables(recipe: Recipe) -> _Tables:
    rng, d = recipe.rng, recipe.size
    shapes = rng.integers(1, min(d, 3) + 1, (recipe.examples, 2))
    X = [recipe.stripped(rng.normal(size=(*s, d)), i) for i, s in enumerate(shapes)]
    partial, truth = recipe.variant > 0, []
    for x in X:
        p, q = x.shape[:2]
        matched = int(rng.integers(min(p, q) + 1)) if partial else min(p, q)
        columns = np.full(p, -1)
        columns[rng.permutation(p)[:matched]] = rng.permutation(q)[:matched]
        truth.append(columns)
    costs = (1.5, 0.5) if recipe.variant == 2 else (1.0, 1.0)
    kept = recipe.kept
    return _Tables(
        X[:kept], truth[:kept], recipe.weight(rng)[:kept], partial, not recipe.forbid, costs
    )


def _matching(recipe: Recipe, loss: str) -> MatchingProblem:
    t, d = _tables(recipe), recipe.size
    return MatchingProblem(
        MatchingModel(d, t.intercept, t.partial), PairTables.from_examples(t.X, d), t.truth,
        recipe.C, loss, recipe.threads, *t.costs, t.weights if recipe.weights else None,
    )  # fmt: skip


def _listed_matching(problem: MatchingProblem, recipe: Recipe) -> Listed:
    t = _tables(recipe)
    outputs = []
    for x, truth in zip(t.X, t.truth):
        p, q = x.shape[:2]
        true = {(r, int(c)) for r, c in enumerate(truth) if c >= 0}
        # A column that is not there stands for no partner.
        every = {tuple(c if c < q else -1 for c in found)
                 for found in permutations(range(q + p), p)}  # fmt: skip
        costs, rows = [], []
        for columns in sorted(every):
            own = {(r, c) for r, c in enumerate(columns) if c >= 0}
            if not t.partial and len(own) < min(p, q):
                continue
            costs.append(t.costs[0] * len(true - own) + t.costs[1] * len(own - true))
            sums = sum((x[pair] for pair in own), np.zeros(recipe.size))
            sums = sums - sum((x[pair] for pair in true), np.zeros(recipe.size))
            rows.append([*sums, *([len(own) - len(true)] if t.intercept else [])])
        outputs.append(Outputs(np.array(costs), np.array(rows, dtype=float)))
    return Listed(problem, outputs, t.weights)


# ---- a problem of one's own


class OwnProblem(ExampleProblem):
    """Examples with a few outputs that have features of no particular structure."""

    def __init__(self, outputs: list[Outputs], dimension: int, C: float, n_jobs: int):
        super().__init__(len(outputs), dimension, C, n_jobs=n_jobs)
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


def _own_outputs(recipe: Recipe) -> list[Outputs]:
    rng, made = recipe.rng, []
    for _ in range(recipe.examples):
        rows = rng.normal(size=(int(rng.integers(1, 2 * recipe.size + 1)), recipe.size))
        costs = rng.random(len(rows))
        rows[0] = 0.0  # the truth, which may cost something
        costs[0] = 0.2 if recipe.forbid else 0.0
        made.append(Outputs(costs, rows))
    return made[: recipe.kept]


def _examples(recipe: Recipe, loss: str) -> OwnProblem:
    return OwnProblem(_own_outputs(recipe), recipe.size, recipe.C, recipe.threads)


def _listed_examples(problem: OwnProblem, recipe: Recipe) -> Listed:
    return Listed(problem, _own_outputs(recipe), np.ones(recipe.kept))


# ---- networks


def _deep(recipe: Recipe, loss: str) -> Any:
    torch.manual_seed(recipe.seed % 1000)
    k, n = recipe.size, recipe.examples
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ELU(), torch.nn.Linear(4, k))
    chain = recipe.variant > 0
    head = make_head("chain" if chain else "candidates", k)
    shape = (n, 3) if chain else (n,)
    x = torch.as_tensor(recipe.rng.normal(size=(*shape, 3)))
    y = torch.as_tensor(recipe.rng.integers(0, k, shape))
    kept = recipe.kept
    return DeepProblem(
        Scorer(network, head).double(), x[:kept], y[:kept], loss=loss,
        lam=1.0 / (recipe.C * max(kept, 1)), gamma=GAMMA, batch_size=2,
    )  # fmt: skip


# ---- all of them


@dataclass(frozen=True)
class Family:
    """Problems of one kind and loss."""

    kind: str
    loss: str
    make: Callable[[Recipe, str], Any]
    listed: Callable[[Any, Recipe], Reference] | None = None
    takes_threads: bool = False
    fewest: int = 0

    def __str__(self) -> str:
        return f"{self.kind}-{self.loss}"

    def build(self, recipe: Recipe, **changes: Any) -> Any:
        """The problem of a recipe."""
        recipe = recipe._replace(**changes)
        return self.make(recipe, self.loss).elastic(recipe.l1)

    @cache  # noqa: B019  (families live as long as the tests)
    def reference(self, recipe: Recipe, relaxed: bool) -> Reference:
        """What the exact or the relaxed problem of a recipe is worth."""
        problem = self.build(recipe)
        if relaxed:
            graphs = problem if self.kind == "graph" else problem.as_graphs()
            return RelaxedProgram(graphs)
        assert self.listed is not None
        return self.listed(problem, recipe)


FAMILIES = [
    *(Family("chain", loss, _chain, _listed_chain, True) for loss in ChainProblem.losses_known),
    *(Family("graph", loss, _graph, _listed_graph) for loss in GraphProblem.losses_known),
    Family("label_sets", "hinge", _label_sets),
    *(
        Family(kind, loss, make, _listed_label_graph, True)
        for kind, make in (("label_graph", _label_graph), ("labels", _labels))
        for loss in LabelGraphProblem.losses_known
    ),
    *(
        Family("candidates", loss, _candidates, _listed_candidates, True)
        for loss in CandidateProblem.losses_known
    ),
    Family("matching", "hinge", _matching, _listed_matching, True),
    Family("examples", "hinge", _examples, _listed_examples, True),
]
if HAS_TORCH:
    FAMILIES += [
        Family("deep", loss, _deep, lambda problem, recipe: Unproved(problem), fewest=1)
        for loss in DeepProblem.losses_known
    ]
