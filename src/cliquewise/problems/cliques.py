"""CliqueProblem: labeled graphs as the cliques of all examples, which relaxed training looks at.

What does not need a whole graph: features, costs and weights of single nodes and edges, the
curvatures of their entropies, and what rounding does to sums over them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError
from cliquewise.graph.oriented_trees import check_entropy, gini_curvatures
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.base import check_weights
from cliquewise.problems.examples import ExampleProblem
from cliquewise.problems.rounding import EXP, SUM
from cliquewise.ragged import Floats, Ints, offsets_of

LOSSES = ("log", "softmax_margin", "hinge")


class CliqueProblem(ExampleProblem):
    """Base of :class:`~cliquewise.problems.graph.GraphProblem`, which says what is given."""

    kind = "graph"
    losses_known = LOSSES
    has_exp = True

    def __init__(
        self,
        model: PairwiseModel,
        data: GraphDataset,
        C: float = 1.0,
        loss: str = "log",
        gamma: float = 1.0,
        entropy: str = "gini",
        epsilon: float = 0.9,
        cost: Floats | None = None,
        weights: Floats | None = None,
    ):
        super().__init__(len(data), model.dimension, C, loss)
        if not (np.isfinite(gamma) and gamma > 0):
            raise DataError(f'gamma = {gamma}; it must be positive (loss="hinge" has none)')
        check_entropy(entropy, epsilon)
        if data.labels is None:
            raise DataError("training needs labels")
        self.model, self.data = model, data
        self.gamma = 0.0 if loss == "hinge" else float(gamma)
        self.entropy, self.epsilon = entropy, float(epsilon)
        self._check_truth()
        if loss != "log" and cost is None:
            cost = self._hamming()
        self.cliques = model.cliques(data, None if loss == "log" else cost)
        self.weights = check_weights(weights, len(data))
        if not np.all(self.weights == 1.0):
            self.cliques = _weighted(self.cliques, self.clique_weights, self.owners)
        paid = self.costs * self.truth
        costs = np.bincount(self.state_owners, paid, minlength=len(data))
        self.truth_costs = np.asarray(costs, dtype=np.float64)
        self._room: tuple[Floats, NDArray[np.bool_]] | None = None

    @cached_property
    def owners(self) -> Ints:
        """The example of every clique."""
        d, each = self.data, np.arange(len(self.data))
        return np.concatenate(
            [np.repeat(each, np.diff(o)) for o in (d.node_offsets, d.edge_offsets)]
        )

    @cached_property
    def state_owners(self) -> Ints:
        """The example of every state of every clique."""
        return np.repeat(self.owners, np.diff(self.cliques.offsets))

    @property
    def clique_weights(self) -> Floats:
        """Weight of the example of every clique."""
        return self.weights[self.owners]

    @property
    def temperatures(self) -> Floats:
        """Weight of the entropy of every example."""
        return self.gamma * self.weights

    def _check_truth(self) -> None:
        labels = self.data.labels
        assert labels is not None
        self.model.oriented(self.data)  # knows all types, or says which it does not
        cards = np.asarray(self.model.cardinalities)[self.data.node_types]
        bad = (labels < 0) | (labels >= cards)
        if bad.any():
            at = int(np.argmax(bad))
            raise DataError(
                f"{self.data.place(at)}: label number {labels[at]} is not in 0..{cards[at] - 1}"
            )

    def _hamming(self) -> Floats:
        cards = np.asarray(self.model.cardinalities, dtype=np.int64)[self.data.node_types]
        starts = offsets_of(cards)
        cost = np.ones(int(starts[-1]))
        cost[starts[:-1] + np.asarray(self.data.labels)] = 0.0
        return cost

    # ---- sizes

    @property
    def n_cliques(self) -> int:
        """Nodes and edges of all examples."""
        return len(self.cliques.type)

    def potentials(self, w: Floats) -> Floats:
        """Scores of all states of all cliques, costs not included."""
        return self.model.potentials(w, self.cliques)

    def accumulate(self, mu: Floats, out: Floats) -> None:
        """``out += sum_c B_c mu_c``, the adjoint of :meth:`potentials`."""
        self.model.accumulate(mu, self.cliques, out)

    @cached_property
    def truth(self) -> Floats:
        """Mean parameters of the true labels."""
        out = np.zeros(int(self.cliques.offsets[-1]))
        out[self.cliques.offsets[:-1] + self.cliques.truth] = 1.0
        return out

    @cached_property
    def costs(self) -> Floats:
        """Cost of every state of every clique."""
        out = np.zeros(int(self.cliques.offsets[-1]))
        out[: len(self.cliques.cost)] = self.cliques.cost
        return out

    def entries(self, i: int) -> Ints:
        """Positions of example ``i``'s states in flat arrays over all cliques."""
        o, d = self.cliques.offsets, self.data
        v, e = d.node_offsets[i : i + 2], d.edge_offsets[i : i + 2] + d.n_nodes
        return np.concatenate([np.arange(o[v[0]], o[v[1]]), np.arange(o[e[0]], o[e[1]])])

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """All arrays of the cliques; the first examples alone are not told apart from all."""
        g = self.cliques
        names = {"truth": "labels", "cost": "costs"} | dict.fromkeys(
            ("base", "params", "tie_start", "plain", "tie"), "model"
        )
        yield "features", np.array([n, self.n_examples])
        for name in g._fields:
            yield names.get(name, "features"), getattr(g, name)
        yield "weights", self.weights

    @property
    def settings(self) -> tuple[Any, ...]:
        """Temperature and entropy."""
        return (self.gamma, self.entropy, self.epsilon)

    # ---- the relaxed problem

    @cached_property
    def terms(self) -> Any:
        """Curvatures of the entropy, C and gamma, for the kernels."""
        from cliquewise._kernels.cliques.ascent import Terms

        g, d = self.cliques, self.data
        curvature, slack = gini_curvatures(
            np.diff(g.offsets[: d.n_nodes + 1]),
            np.stack([g.left, g.right], axis=1),
            d.node_offsets,
            d.edge_offsets,
            self.entropy,
            self.epsilon,
        )
        c = self.clique_weights
        slack = slack * c[d.n_nodes :, None] if len(slack) else slack
        return Terms(curvature * c, slack, self.C, self.gamma)

    # ---- one example

    def ranges(self, i: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """First and last node, first and last edge of example ``i``."""
        v, e = self.data.node_offsets, self.data.edge_offsets
        return (int(v[i]), int(v[i + 1])), (int(e[i]), int(e[i + 1]))

    def scores(self, w: Floats, i: int) -> Floats:
        """Scores of the states of example ``i``, costs not included."""
        from cliquewise._kernels.cliques.features import example_scores

        (a, b), (c, d), o = *self.ranges(i), self.cliques.offsets
        n = self.data.n_nodes
        out = np.empty(int(o[b] - o[a] + o[n + d] - o[n + c]))
        example_scores(self.cliques, w, *self.ranges(i), out)
        return out

    def image(self, i: int, d: Floats) -> Floats:
        """``B_i d``: the weights' part in a change of example ``i``'s mean parameters."""
        from cliquewise._kernels.cliques.features import add_example

        out = np.zeros(self.dimension)
        add_example(self.cliques, d, *self.ranges(i), out)
        return out

    def _row(self, i: int, mean: Floats) -> tuple[Ints, Floats]:
        """``B_i (mean - truth)`` without its zeros."""
        from cliquewise._kernels.cliques.features import collect_example

        # Taken away and put back clean: a call that Ctrl-C ends must not leave its sums behind.
        room, self._room = self._room, None
        sums, seen = room or (np.zeros(self.dimension), np.zeros(self.dimension, dtype=bool))
        d = mean - self.truth[self.entries(i)]
        at = np.empty(self.dimension, dtype=np.int64)
        at = at[: collect_example(self.cliques, d, *self.ranges(i), sums, seen, at)].copy()
        values = sums[at]
        sums[at], seen[at] = 0.0, False
        self._room = sums, seen
        return at, values

    # ---- sizes of gradients, and of features

    def sizes(self, d: Floats) -> Floats:
        """``sum_c |B_c| |d_c|``: the sum of the sizes of what :meth:`accumulate` adds up."""
        out = np.zeros(self.dimension)
        absolute = self.cliques._replace(values=np.abs(self.cliques.values))
        self.model.accumulate(np.abs(d), absolute, out)
        return out

    @cached_property
    def reach(self) -> Floats:
        """By weight: the sum of the ``|features|`` of all states, twice."""
        return 2.0 * self.sizes(np.ones(int(self.cliques.offsets[-1])))

    @cached_property
    def roundings(self) -> float:
        """Those of exact inference: a product over all cliques, and sums over their states."""
        states = float(np.diff(self.cliques.offsets).max(initial=1))
        largest = float(np.bincount(self.owners, minlength=1).max(initial=1))
        features = float(np.diff(self.cliques.indptr).max(initial=0))
        return 4.0 * SUM + 8.0 * (largest * (states + EXP) + features)

    @property
    def rounding_terms(self) -> tuple[Floats, float]:
        """Also what exponentials and logarithms do to log partition functions."""
        each = 2.0 * self.temperatures @ np.bincount(self.owners, minlength=self.n_examples)
        return super().rounding_terms[0], self.roundings * float(each)

    @property
    def row_entries(self) -> float:
        """Half of the features of an example's states, at most all weights."""
        g = self.cliques
        states, features = np.diff(g.offsets), np.diff(g.indptr)[g.row]
        each = float(states @ features) / max(self.n_examples, 1) / 2
        return min(each, float(self.dimension))

    def curvature(self, k: int) -> float:
        """Between what one node moves and what all nodes of an example do: their geometric mean.

        Where features are sparse few labels share weights, and one node counts; with a handful
        of weights for all nodes the others count as well.
        """
        g = self.cliques
        total = np.concatenate(([0.0], np.cumsum(g.values**2)))
        squares = (total[g.indptr[1:]] - total[g.indptr[:-1]])[g.row]
        nodes, edges = squares[: len(g.degree)].copy(), squares[len(g.degree) :]
        np.add.at(nodes, g.left, edges)
        np.add.at(nodes, g.right, edges)
        whole = np.bincount(self.owners, squares, minlength=1).mean()
        return float(np.sqrt(nodes.max(initial=0.0) * whole))


def _weighted(g: Any, c: Floats, owners: Ints) -> Any:
    """Cliques whose features and costs are multiplied by ``c``, one number per clique."""
    # Rows that several examples share (a constant feature of edges) become one per example.
    codes = g.row * (int(owners.max(initial=0)) + 1) + owners
    _, first, row = np.unique(codes, return_index=True, return_inverse=True)
    old, factor = g.row[first], c[first]
    sizes = np.diff(g.indptr)[old]
    indptr = offsets_of(sizes)
    entries = np.arange(int(indptr[-1])) + np.repeat(g.indptr[old] - indptr[:-1], sizes)
    cost = g.cost
    if len(cost):
        cost = cost * np.repeat(c[: len(g.degree)], np.diff(g.offsets[: len(g.degree) + 1]))
    return g._replace(
        row=row.astype(np.int64), indptr=indptr, indices=g.indices[entries],
        values=g.values[entries] * np.repeat(factor, sizes), cost=cost,
    )  # fmt: skip
