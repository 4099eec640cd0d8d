"""Small chain problems for tests, and their optimum by listing every labeling.

Hypothesis draws a :class:`ChainRecipe`; the numbers come from NumPy's generator under its
seed. :class:`Enumeration` shares no code with the library: it lists the labelings of every
sequence, writes down the joint feature vector of each, and minimizes by Newton's method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

import numpy as np
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax

from cliquewise.data.dataset import Dataset
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem

#: Most labelings of one drawn sequence.
MAX_LABELLINGS = 256

N_FEATURES = 5


@dataclass(frozen=True)
class ChainRecipe:
    """Everything that makes a problem."""

    seed: int
    examples: int = 4
    labels: int = 3
    feature_pairs: str = "all"
    values: bool = False
    weights: bool = False
    forbid: str = "nothing"
    transitions_seen: bool = False
    intercept: bool = True
    boundaries: bool = True
    C: float = 1.0
    scale: float = 1.0
    bare: bool = False  # tokens without attributes, and an attribute that never occurs
    pairs: int = 0  # attributes of pairs of tokens

    def lengths(self, rng: np.random.Generator) -> np.ndarray:
        """0 and 1 often: these are the cases that break."""
        longest = 8 if self.labels == 1 else int(np.log(MAX_LABELLINGS) / np.log(self.labels))
        drawn = rng.integers(0, min(longest, 5) + 1, self.examples)
        return np.where(rng.random(self.examples) < 0.2, 1, drawn)

    def build(self) -> ChainProblem:
        """The problem."""
        rng = np.random.default_rng(self.seed)
        lengths = self.lengths(rng)
        offsets, tokens = np.concatenate(([0], np.cumsum(lengths))), int(lengths.sum())
        present = rng.random((tokens, N_FEATURES)) < 0.5
        if self.bare:
            present[np.random.default_rng(self.seed).random(tokens) < 0.4] = False
            present[:, 0] = False
        values = np.where(present, 1.0, 0.0)
        if self.values:
            values *= self.scale * rng.normal(size=values.shape)
        labels = rng.integers(0, self.labels, tokens)
        allowed = None
        if self.forbid in ("labels", "both"):
            allowed = rng.random((tokens, self.labels)) < 0.6
            allowed[np.arange(tokens), labels] = True
        weights = None
        if self.weights:
            weights = rng.choice([0.0, 0.3, 1.0, 2.5], self.examples)
        data = Dataset.from_matrix(
            values.reshape(tokens, N_FEATURES), offsets,
            labels=labels, allowed=allowed, weights=weights,
        )  # fmt: skip
        if self.pairs:
            data = replace(data, edges=self._edges(data))
        transitions: str | np.ndarray = "seen" if self.transitions_seen else "all"
        if self.forbid in ("transitions", "both"):
            transitions = rng.random((self.labels, self.labels)) < 0.5
            for y in np.split(labels, offsets[1:-1]):
                transitions[y[:-1], y[1:]] = True
        model = ChainModel.build(
            data, self.labels, feature_pairs=self.feature_pairs, transitions=transitions,
            intercept=self.intercept, boundaries=self.boundaries,
        )  # fmt: skip
        return ChainProblem(model, data, self.C)

    def _edges(self, data: Dataset) -> Dataset:
        """Attributes of pairs, at the later token; the first of a sequence has none."""
        rng = np.random.default_rng((self.seed, 1))
        drawn = rng.normal(size=(data.n_tokens, self.pairs)) if self.values else 1.0
        values = np.zeros((data.n_tokens, self.pairs))
        values[data.followers] = 1.0
        values *= (rng.random(values.shape) < 0.6) * drawn
        return Dataset.from_matrix(values, data.offsets)


def chain_recipes(min_log_c: float = -3, max_log_c: float = 2) -> st.SearchStrategy[ChainRecipe]:
    """Recipes of all kinds."""
    return st.builds(
        ChainRecipe,
        seed=st.integers(0, 2**31),
        examples=st.integers(1, 6),
        labels=st.integers(1, 4),
        feature_pairs=st.sampled_from(["all", "seen"]),
        values=st.booleans(),
        weights=st.booleans(),
        forbid=st.sampled_from(["nothing", "nothing", "labels", "transitions", "both"]),
        transitions_seen=st.booleans(),
        intercept=st.booleans(),
        boundaries=st.booleans(),
        C=st.floats(min_log_c, max_log_c).map(lambda x: float(10**x)),
        scale=st.sampled_from([1.0, 1.0, 0.01, 10.0]),
        bare=st.booleans(),
    )


def random_problem(
    seed: int, n: int, k: int, longest: int, *, C: float = 1.0, scale: float = 1.0,
    pairs: str = "all", n_features: int = 60,
) -> ChainProblem:  # fmt: skip
    """Problems too large to list: labels that follow the features in seven of ten cases."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, n)
    tokens = int(lengths.sum())
    drawn = np.argsort(rng.random((tokens, n_features)), axis=1)[:, :4]
    labels = np.where(rng.random(tokens) < 0.7, drawn.min(axis=1) % k, rng.integers(0, k, tokens))
    data = Dataset(
        np.concatenate(([0], np.cumsum(lengths))), 4 * np.arange(tokens + 1),
        np.sort(drawn, axis=1).ravel(), scale * rng.normal(size=4 * tokens), n_features,
        labels=labels,
    )  # fmt: skip
    return ChainProblem(ChainModel.build(data, k, feature_pairs=pairs), data, C)


class Enumeration:
    """The objective of a problem from a list of all labelings."""

    def __init__(self, problem: ChainProblem):
        self.data, self.model = problem.data, problem.model
        self.n, self.C = max(len(problem.data), 1), problem.C
        self.lam = 1.0 / (self.C * self.n)
        weights = problem.data.weights
        self.weights = np.ones(len(problem.data)) if weights is None else weights
        self.attributes = self._attributes()
        if problem.has_pair_attributes:
            self.pair_attributes = self.data.edges.features().toarray()
        self.columns = self._columns()
        self.labelings = [self._possible(i) for i in range(len(self.data))]
        self.features = [
            np.array([self._joint(i, y) for y in ys]) for i, ys in enumerate(self.labelings)
        ]
        self.truth = [
            int(np.flatnonzero([y == self._labels(i) for y in ys])[0])
            for i, ys in enumerate(self.labelings)
        ]

    def _range(self, i: int) -> tuple[int, int]:
        return int(self.data.offsets[i]), int(self.data.offsets[i + 1])

    def _labels(self, i: int) -> tuple[int, ...]:
        first, last = self._range(i)
        return tuple(self.data.labels[first:last].tolist())

    def _attributes(self) -> np.ndarray:
        """Data features, then intercept, first, last, one row per token."""
        rows = [self.data.features().toarray()]
        tokens = self.data.n_tokens
        if self.model.intercept:
            rows.append(np.ones((tokens, 1)))
        if self.model.boundaries:
            ends = np.zeros((tokens, 2))
            for i in range(len(self.data)):
                first, last = self._range(i)
                if last > first:
                    ends[first, 0] = ends[last - 1, 1] = 1
            rows.append(ends)
        return np.hstack(rows)

    def _columns(self) -> np.ndarray:
        """Which of all (attribute, label) and (label, label) columns are weights."""
        k, tokens = self.model.n_labels, self.data.n_tokens
        pairs = np.ones((self.attributes.shape[1], k), dtype=bool)
        if len(self.model.pair_start):
            pairs[:] = False
            stored = self.data.features()
            for t in range(tokens):
                own = stored.indices[stored.indptr[t] : stored.indptr[t + 1]]
                pairs[own, self.data.labels[t]] = True
            constant = np.arange(self.data.n_features, self.attributes.shape[1])
            for a, t in product(constant, range(tokens)):
                pairs[a, self.data.labels[t]] |= self.attributes[t, a] != 0
        more = k * k * (1 + self.model.n_edge_attributes)
        return np.concatenate([pairs.ravel(), np.ones(more, dtype=bool)])

    def _possible(self, i: int) -> list[tuple[int, ...]]:
        first, last = self._range(i)
        k, edges = self.model.n_labels, self.model.edge_allowed
        out = []
        for y in product(range(k), repeat=last - first):
            fine = all(edges[a, b] for a, b in pairwise(y)) if len(edges) else True
            if self.data.allowed is not None:
                fine = fine and all(self.data.allowed[first + t, a] for t, a in enumerate(y))
            if fine:
                out.append(y)
        return out

    def _joint(self, i: int, y: tuple[int, ...]) -> np.ndarray:
        first, _ = self._range(i)
        k = self.model.n_labels
        nodes, edges = np.zeros((self.attributes.shape[1], k)), np.zeros((k, k))
        pairs = np.zeros((self.model.n_edge_attributes, k, k))
        for t, label in enumerate(y):
            nodes[:, label] += self.attributes[first + t]
            if t > 0 and self.model.edge_free[y[t - 1], label]:
                edges[y[t - 1], label] += 1
            if t > 0 and len(pairs):
                pairs[:, y[t - 1], label] += self.pair_attributes[first + t]
        return np.concatenate([nodes.ravel(), edges.ravel(), pairs.ravel()])[self.columns]

    # ---- the objective and its dual

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return int(self.columns.sum())

    def losses(self, w: np.ndarray) -> np.ndarray:
        """Loss of every example."""
        scores = [phi @ w for phi in self.features]
        return np.array([logsumexp(s) - s[t] for s, t in zip(scores, self.truth, strict=True)])

    def value(self, w: np.ndarray) -> float:
        """The primal objective."""
        return float(0.5 * self.lam * w @ w + self.weights @ self.losses(w) / self.n)

    def dual(self, distributions: list[np.ndarray]) -> float:
        """Eq. 9 of sdca_crf, of explicit distributions over the labelings."""
        w, entropy = np.zeros(self.dimension), 0.0
        for c, phi, t, q in zip(
            self.weights, self.features, self.truth, distributions, strict=True
        ):
            w += self.C * c * (phi[t] - q @ phi)
            inside = q[q > 0]
            entropy -= c * float(inside @ np.log(inside))
        return float(entropy / self.n - 0.5 * self.lam * w @ w)

    def derivatives(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and Hessian."""
        gradient, hessian = self.lam * w, self.lam * np.eye(len(w))
        for c, phi, t in zip(self.weights, self.features, self.truth, strict=True):
            q = softmax(phi @ w)
            mean = q @ phi
            gradient = gradient + c * (mean - phi[t]) / self.n
            hessian = hessian + c * ((phi.T * q) @ phi - np.outer(mean, mean)) / self.n
        return gradient, hessian

    @cached_property
    def solution(self) -> np.ndarray:
        """Weights of the optimum: Newton's method, halving steps that do not descend."""
        w = np.zeros(self.dimension)
        for _ in range(200):
            gradient, hessian = self.derivatives(w)
            step = np.linalg.solve(hessian, gradient)
            decrement, size, here = float(gradient @ step), 1.0, self.value(w)
            if decrement <= 1e-15 * (1.0 + here):
                return w - step
            while self.value(w - size * step) > here - 0.1 * size * decrement and size > 1e-6:
                size *= 0.5
            w = w - size * step
        raise AssertionError("Newton's method did not converge")

    @cached_property
    def optimum(self) -> float:
        """The least value of the objective."""
        return self.value(self.solution)
