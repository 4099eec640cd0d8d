"""SDCA on chains: a distribution per sequence, stored as scores and marginals.

See ``_kernels/chain/sdca.py``, and ``sdca_pairs.py`` where pairs of tokens have attributes.
"""

from __future__ import annotations

from math import fsum
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.rounding import SUM, UNIT, Bound, log_roundings
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import checked, number_of
from cliquewise.solvers.backends.base import DualSettings, scaled
from cliquewise.solvers.backends.chain.parallel import (
    ThreadPartition,
    bytes_of,
    single_part,
    threads_of,
)
from cliquewise.solvers.base import Arrays
from cliquewise.solvers.sampling import Order

#: The arrays that define a state, and their least values; marginals follow from the scores.
STORED = {"theta": -np.inf, "theta_edges": -np.inf, "gaps": 0.0}


class Totals(NamedTuple):
    """Weighted sums over sequences."""

    entropy: float  # times gamma
    rounding_error: float  # of the entropy
    wrong: float  # expected number of wrong labels
    cost: float  # their task loss
    gaps: float


class ChainDuals:
    """Dual distributions of all sequences and the weights they give."""

    samples_by_gap: ClassVar[bool] = True
    #: Type of the distributions and the weights.
    dtype: ClassVar[type[np.floating]] = np.float64
    threads = staticmethod(threads_of)

    def __init__(self, problem: ChainProblem, settings: DualSettings):
        self.problem, self.form, self.gamma = problem, problem.form, settings.gamma
        jobs = self.threads(problem)
        self.parts = ThreadPartition(problem, jobs, self.dtype) if jobs > 1 else None
        zeros = np.zeros(self.form.size, self.dtype)
        self.w: Floats = zeros if self.parts is None else self.parts.w
        self.arrays = self._empty(settings.by_gap)
        self.begin(settings.start)

    @classmethod
    def over(cls, problem: ChainProblem, arrays: Any, w: Floats, gamma: float) -> Self:
        """Return a view of arrays that are stored elsewhere, and of weights of more sequences."""
        duals = cls.__new__(cls)
        duals.problem, duals.form, duals.gamma = problem, problem.form, gamma
        duals.arrays, duals.w, duals.parts = arrays, w, None
        return duals

    def begin(self, start: float) -> None:
        """Set the distributions close to the truth."""
        data, labels = self.problem.data, self.problem.chains.labels
        self.arrays.theta[np.arange(data.n_tokens), labels] = start
        self.infer()
        self.arrays.gaps[:] = data.lengths * np.log(max(self.problem.model.n_labels, 2))

    def totals(self, depths: Floats | None = None) -> Totals:
        """Return the sums over these sequences."""
        n = self.problem.n_examples
        mean, rounding_error = self._entropy(
            self.problem.sequence_depths if depths is None else depths
        )
        return Totals(n * mean, n * rounding_error, *self._wrong(), float(self.arrays.gaps.sum()))

    @classmethod
    def memory(cls, problem: ChainProblem, settings: DualSettings) -> float:
        """Return two numbers per token and label, and per sequence (or edge) and label pair."""
        k = problem.model.n_labels
        edges = int(_tables(problem).sum())
        numbers = 2 * problem.data.n_tokens * k + 2 * edges * k * k + problem.form.size
        return float(np.dtype(cls.dtype).itemsize * numbers + bytes_of(problem))

    def _empty(self, by_gap: bool) -> Any:
        from cliquewise._kernels.chain.sdca import Duals

        n, k, data = self.problem.n_examples, self.problem.model.n_labels, self.problem.data
        linked = _tables(self.problem)
        rows = np.where(linked > 0, np.cumsum(linked) - linked, -1).astype(np.int64)
        tokens, edges = (data.n_tokens, k), (int(linked.sum()), k, k)
        zeros, number = np.zeros, self.dtype
        return Duals(
            zeros(tokens, number), zeros(edges, number), zeros(tokens, number),
            zeros(edges, number), zeros(n), zeros(n),
            zeros(sum(self._tree_sizes) if by_gap else 0), rows,
        )  # fmt: skip

    def order(self) -> Order:
        """Return the order of visits of a run."""
        return Order()

    @property
    def _tree_sizes(self) -> list[int]:
        """Sizes of the sum trees of the threads."""
        n, parts = self.problem.n_examples, self.parts
        sizes = [n] if parts is None else [len(part) for part in parts.members]
        return [_tree_size(size) for size in sizes]

    @property
    def gaps(self) -> Floats:
        """The gap of each example when it was last visited."""
        return self.arrays.gaps  # type: ignore[no-any-return]

    # ---- warm starts and checkpoints

    def continue_from(self, warm: Self) -> None:
        for name in (*STORED, "mu", "mu_edges", "log_z"):
            source, target = getattr(warm.arrays, name), getattr(self.arrays, name)
            if source.shape[1:] != target.shape[1:] or len(source) > len(target):
                raise DataError("a warm start needs the same labels and at least the same examples")
            target[: len(source)] = source
        if self.problem.loss == "hinge":
            self.gamma = warm.gamma

    def adopt(self, other: ChainDuals, own: Ints, old: Ints, start: float) -> None:
        """Copy the scores of sequences ``old`` of other duals to the sequences ``own``.

        New labels come after the old ones; their scores are ``start`` below the best of those.
        """
        k, mine, theirs = other.problem.model.n_labels, self.arrays, other.arrays
        for i, j in zip(own.tolist(), old.tolist()):
            a, b = self.problem.data.offsets[i : i + 2]
            c, d = other.problem.data.offsets[j : j + 2]
            mine.theta[a:b, :k] = theirs.theta[c:d]
            if self.problem.model.n_labels > k:
                mine.theta[a:b, k:] = theirs.theta[c:d].max(axis=1, keepdims=True) - start
            if b - a > 1:
                tables = b - a - 1 if self.problem.has_pair_attributes else 1
                row, source = mine.edge_row[i], theirs.edge_row[j]
                edges = theirs.theta_edges[source : source + tables]
                mine.theta_edges[row : row + tables, :k, :k] = edges
        # Smoothing of the hinge loss starts again: with little of it, changes would be slow.
        self.infer()
        mine.gaps[own] = theirs.gaps[old]

    def pack(self) -> Arrays:
        arrays = {name: getattr(self.arrays, name) for name in STORED}
        return {**arrays, "gamma": np.array([self.gamma])}

    def unpack(self, arrays: Arrays) -> None:
        for name, least in STORED.items():
            target = getattr(self.arrays, name)
            target[:] = checked(arrays, name, target.shape, target.dtype, least)
        # Marginals that are nearly right would prove what is nearly true: they are not stored.
        self.infer()
        if self.problem.loss == "hinge":
            self.gamma = number_of(arrays, "gamma")

    def infer(self) -> None:
        """Compute marginals and log partition functions from the scores."""
        from cliquewise._kernels.chain import sdca, sdca_pairs

        def part(first: int, last: int) -> None:
            chains, duals = self._between(first, last)
            if self.problem.edge_chains is None:
                sdca.infer_all(chains, duals)
            else:
                sdca_pairs.infer_all(chains, self.problem.edge_chains, duals)

        self.problem.over_examples(part)

    def _between(self, first: int, last: int) -> tuple[Any, Any]:
        """Return sequences ``first`` to ``last - 1`` and their dual variables."""
        return between(self.problem.chains, self.arrays, first, last)

    def _trees(self) -> list[Any]:
        """Return the sum tree of each thread."""
        sizes = self._tree_sizes if len(self.arrays.tree) else [0] * len(self._tree_sizes)
        return np.split(self.arrays.tree, np.cumsum(sizes)[:-1])

    # ---- steps

    def _rebuild_trees(self) -> None:
        """Rebuild the sum trees from the gaps."""
        from cliquewise._kernels.common.sum_tree import rebuild_tree

        gaps, parts = self.arrays.gaps, self.parts
        own = [gaps] if parts is None else [gaps[members] for members in parts.members]
        if parts is not None:
            parts.visits = 0
        for tree, leaves in zip(self._trees(), own, strict=True):
            if len(tree):
                rebuild_tree(tree, leaves)

    def refresh(self) -> None:
        from cliquewise._kernels.chain import sdca, sdca_pairs

        self._rebuild_trees()
        chains, pairs, strength = self.form.chains, self.problem.edge_chains, self._strength
        if pairs is None:
            given = chains, self.arrays, strength, self.w
            self.w[:] = 0.0
            self.problem.over_attributes(lambda *part: sdca.weights_of_duals(*given, *part))
        else:
            sdca_pairs.weights_of_duals(chains, pairs, self.arrays, strength, self.w)

    @property
    def _strength(self) -> float:
        return self.problem.C / self.problem.penalty.scale / self.gamma

    def visit(self, order: Ints, uniforms: Floats, step: float) -> int:
        from cliquewise._kernels.chain import sdca, sdca_pairs

        pairs, strength, trees = self.problem.edge_chains, self._strength, self._trees()
        margin = 0.0 if self.problem.loss == "log" else 1 / self.gamma
        w = self.w if self.parts is None else self.parts.copies.everything
        threshold = self.problem.penalty.threshold / self.gamma
        pairs = None if pairs is None else pairs._replace(threshold=threshold)

        def work(at: int, chains: Any, order: Ints, uniforms: Floats, part: Any) -> int:
            duals = self.arrays._replace(tree=trees[at])
            chains = chains._replace(threshold=threshold)
            given = order, uniforms, step, part
            if pairs is not None:
                return int(sdca_pairs.epoch(chains, pairs, duals, w, strength, *given))
            return int(sdca.epoch(chains, duals, w, strength, margin, *given))

        if self.parts is None:
            return work(0, self.form.chains, order, uniforms, single_part(self.problem))
        if self.parts.needs_refresh:  # before and not after visits: a certificate refreshes as well
            self.refresh()
        return self.parts.visit(order, uniforms, work)

    def watch(self, dual: float) -> None:
        if self.parts is not None and self.parts.should_drop_threads(dual, self.gamma):
            tree = np.zeros(_tree_size(self.problem.n_examples) if len(self.arrays.tree) else 0)
            self.parts, self.arrays = None, self.arrays._replace(tree=tree)
            self.refresh()

    def gap(self) -> float:
        return self.gamma * float(self.arrays.gaps.sum()) / self.problem.n_examples

    def _entropy(self, depths: Floats, measured: Any = None) -> tuple[float, float]:
        """Return the mean entropy, times gamma, and its rounding error."""
        entropy, sizes = self._entropies() if measured is None else measured
        if self.problem.edge_chains is not None:
            depths = depths + self.problem.model.n_labels**2  # terms in the sum of an edge
        weights = self.gamma * self.problem.chains.weights / max(self.problem.n_examples, 1)
        return fsum(weights * entropy), UNIT * float((weights * depths) @ (1.0 + sizes))

    def _entropies(self) -> tuple[Floats, Floats]:
        """Return the entropy of every distribution, and the sum of the sizes of its terms."""
        from cliquewise._kernels.chain import sdca, sdca_pairs

        problem = self.problem
        entropy, sizes, largest = np.zeros((3, problem.n_examples))

        def part(first: int, last: int) -> None:
            sdca.entropies(*self._between(first, last), entropy[first:last], sizes[first:last])

        if problem.edge_chains is None:
            problem.over_examples(part)
        else:
            sdca_pairs.entropies(problem.chains, self.arrays, entropy, sizes, largest)
        return entropy, sizes

    def _depths(self, largest: Floats | None = None) -> Floats:
        """Return the roundings of a marginal by sequence: more if scores exceed the exp range."""
        # In the log domain the scores' own roundings are absolute errors of an exponent.
        largest = self._largest() if largest is None else largest
        return self.problem.sequence_depths + log_roundings(largest, self.problem.data.lengths)

    def _largest(self) -> Floats:
        """Return the largest score of each sequence."""
        from cliquewise._kernels.chain import sdca, sdca_pairs

        problem = self.problem
        entropy, sizes, largest = np.zeros((3, problem.n_examples))

        def part(first: int, last: int) -> None:
            sdca.largest_scores(*self._between(first, last), largest[first:last])

        if problem.edge_chains is None:
            problem.over_examples(part)
        else:
            sdca_pairs.entropies(problem.chains, self.arrays, entropy, sizes, largest)
        return largest

    def _wrong(self) -> tuple[float, float]:
        """Return the weighted expected number of wrong labels, and their cost."""
        from cliquewise._kernels.chain.sdca import wrong_mass

        def part(first: int, last: int) -> tuple[float, float]:
            return wrong_mass(self._between(first, last)[0], self.arrays.mu)  # type: ignore[no-any-return]

        mass, cost = np.sum(self.problem.over_examples(part), axis=0)
        return float(mass), float(cost)

    def dual(self) -> tuple[float, float]:
        problem, (mean, _) = self.problem, self._entropy(self.problem.sequence_depths)
        penalty = problem.penalty.conjugate(self.w, self.gamma)
        if problem.loss == "log":
            return mean - penalty, 0.0
        cost = self._wrong()[1] / max(problem.n_examples, 1)
        if problem.loss == "softmax_margin":
            return mean + cost - penalty, 0.0
        return cost - penalty, mean

    def bound(self) -> Bound:
        return self._bound(self._largest(), self._entropies(), self._wrong(), scaled(self))

    def _bound(
        self, largest: Floats, measured: Any, mistakes: tuple[float, float], w: Floats
    ) -> Bound:
        """Return the bound from the largest scores, the entropies, the costs and the weights."""
        problem, n, depths = self.problem, max(self.problem.n_examples, 1), self._depths(largest)
        (wrong, cost), linear, rounding_error = mistakes, 0.0, 0.0
        if problem.loss != "hinge":
            linear, rounding_error = self._entropy(depths, measured)
        if problem.loss != "log":
            depth = problem.data.n_tokens + float(depths.max(initial=0.0)) + SUM
            linear, rounding_error = linear + cost / n, rounding_error + UNIT * depth * cost / n
        # Transitions are added up within each sequence first.
        additions = problem.features.counts.copy()
        additions[problem.model.n_attributes] = n + 2.0 * problem.data.lengths.max(initial=0)
        weight_error_scale = problem.weight_error_scale_for(wrong, additions)
        if np.any(depths > problem.sequence_depths):
            more = problem.feature_sizes(depths).deep - problem.features.deep
            weight_error_scale += problem.C * np.maximum(more, 0.0)
        return problem.bound(linear, w, rounding_error, weight_error_scale)

    def primal(self, w: Floats) -> tuple[float, bool]:
        w = self._shrunk(w)
        return self.problem.upper_bound(w, self.problem.packed_primal(w))

    def unpacked(self, w: Floats) -> Floats:
        return self.form.unpack(self._shrunk(w))

    def _shrunk(self, w: Floats) -> Floats:
        return self.problem.penalty.shrunk(np.asarray(w, dtype=np.float64))


def between(chains: Any, duals: Any, first: int, last: int) -> tuple[Any, Any]:
    """Return some of the sequences, and their duals."""
    own = {name: getattr(duals, name)[first:last] for name in ("log_z", "gaps", "edge_row")}
    chains = chains._replace(
        offsets=chains.offsets[first : last + 1], weights=chains.weights[first:last]
    )
    return chains, duals._replace(**own)


def _tree_size(n: int) -> int:
    """Return the size of a sum tree of ``n`` leaves."""
    return 2 << max(n - 1, 1).bit_length()


def _tables(problem: ChainProblem) -> Ints:
    """Return the number of label-pair tables of each sequence: one, or one per edge."""
    links = np.maximum(problem.data.lengths - 1, 0)
    return links if problem.has_pair_attributes else np.minimum(links, 1)
