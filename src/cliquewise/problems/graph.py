"""GraphProblem: the saddle point for a data set of pairwise graphs, exact and relaxed.

    P(w) = lam / 2 ||w||^2 + 1/n sum_i max over mu <theta_i(w) + cost_i, mu> + gamma H(mu)
                                       - <theta_i(w), y_i>,        lam = 1 / (C n)

Exact: mu in the marginal polytope, H Shannon's entropy; values and gradients come from exact
inference on each graph. Relaxed: mu in the local polytope, H a Gini entropy; only cliques are
ever looked at. Which of the two is solved depends on the solver.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError, TooLargeError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph, Floats
from cliquewise.graph.structure import Ints, Structure
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.ragged import offsets_of

LOSSES = ("log", "softmax_margin", "hinge")
ENTROPIES = ("gini", "gini-otrw")
#: What names of solvers mean on graphs.
ON_GRAPHS = {
    "auto": "idal",
    "sdca": "sdca_graph",
    "bcfw": "bcfw_graph",
    "subgradient": "subgradient_graph",
    "gdmm": "gdmm_graph",
}


class GraphProblem:
    """Regularized loss of labeled graphs.

    Parameters
    ----------
    model : PairwiseModel
    data : GraphDataset
        With labels.
    C : float, default=1.0
        Weight of the sum of the losses against ``1/2 ||w||^2``; infinity leaves the penalty
        out, which only solver ``casimir`` can do with.
    loss : {"log", "softmax_margin", "hinge"}, default="log"
        No cost; the Hamming cost with temperature `gamma`; the Hamming cost and ``gamma = 0``.
    gamma : float, default=1.0
        Weight of the entropy.
    entropy : {"gini", "gini-otrw"}, default="gini"
        Of the relaxed problem.
    epsilon : float, default=0.9
        Share of the nodes' entropies that "gini-otrw" takes off (Appendix C of idal).
    cost : float array, optional
        Another cost than Hamming's: one number per node and label, flat.
    weights : float array (n_examples), optional
        Weight of each example's loss; 1 by default.

    Notes
    -----
    A weighted loss is that of scaled features, costs and entropy: ``c (max <theta + cost, mu> +
    gamma H(mu) - <theta, y>) = max <c theta + c cost, mu> + c gamma H(mu) - <c theta, y>``. The
    cliques hold the scaled numbers, so that solvers need not know of weights; exact inference
    on example i runs at the temperature ``temperatures[i] = gamma c_i``.

    Examples
    --------
    >>> data = GraphDataset.from_examples([([[0.5], [-1.0]], [(0, 1)])], [[0, 1]])
    >>> problem = GraphProblem(PairwiseModel([2], 1), data)
    >>> import numpy as np
    >>> round(problem.primal(np.zeros(problem.dimension)), 4)      # log 4
    1.3863
    """

    kind = "graph"
    is_convex = True

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
        if not C > 0:
            raise DataError(f"C = {C}; it must be positive (or infinite: no penalty)")
        if not (np.isfinite(gamma) and gamma > 0):
            raise DataError(f'gamma = {gamma}; it must be positive (loss="hinge" has none)')
        if loss not in LOSSES:
            raise UnsupportedError(f"loss {loss!r}; the losses of graphs are: {', '.join(LOSSES)}")
        if entropy not in ENTROPIES:
            raise UnsupportedError(f"entropy is one of {', '.join(ENTROPIES)}, not {entropy!r}")
        if not 0 <= epsilon <= 1:
            raise DataError(f"epsilon = {epsilon}; it must be in [0, 1]")
        if data.labels is None:
            raise DataError("training needs labels")
        self.model, self.data, self.C, self.loss = model, data, float(C), loss
        self.gamma = 0.0 if loss == "hinge" else float(gamma)
        self.entropy, self.epsilon = entropy, float(epsilon)
        self._check_truth()
        if loss != "log" and cost is None:
            cost = self._hamming()
        self.cliques = model.cliques(data, None if loss == "log" else cost)
        self.weights = np.ones(len(data)) if weights is None else np.asarray(weights, np.float64)
        self._check_weights()
        if not np.all(self.weights == 1.0):
            self.cliques = _weighted(self.cliques, self.clique_weights, self.owners)

    def _check_weights(self) -> None:
        c = self.weights
        if c.shape != (len(self.data),) or not np.all(np.isfinite(c)) or (c < 0).any():
            raise DataError(f"weights must be {len(self.data)} finite numbers, none negative")

    @cached_property
    def owners(self) -> Ints:
        """The example of every clique."""
        d, each = self.data, np.arange(len(self.data))
        return np.concatenate(
            [np.repeat(each, np.diff(o)) for o in (d.node_offsets, d.edge_offsets)]
        )

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
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.data)

    @property
    def n_cliques(self) -> int:
        """Nodes and edges of all examples."""
        return len(self.cliques.type)

    @property
    def lam(self) -> float:
        """Weight of the penalty in the per-example objective."""
        return 1.0 / (self.C * max(self.n_examples, 1))

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return self.model.dimension

    def value(self, penalty_norm: float, total_loss: float) -> float:
        """The objective from ``||w||^2`` and the sum of the losses."""
        return 0.5 * self.lam * penalty_norm + total_loss / max(self.n_examples, 1)

    # ---- the relaxed problem

    @cached_property
    def terms(self) -> Any:
        """Curvatures of the entropy, C and gamma, for the kernels."""
        from cliquewise._kernels.cliques.ascent import Terms

        if self.entropy == "gini":
            curvature, slack = np.ones(self.n_cliques), np.empty((0, 2))
        else:
            curvature, slack = self._oriented_trees()
        c = self.clique_weights
        slack = slack * c[self.data.n_nodes :, None] if len(slack) else slack
        return Terms(curvature * c, slack, self.C, self.gamma)

    def _oriented_trees(self) -> tuple[Floats, Floats]:
        """Curvatures of the Gini-OTRW entropy (Eq. 10 of idal), from each example's graph."""
        from cliquewise.graph.oriented_trees import oriented_tree_probabilities

        g, data = self.cliques, self.data
        cards = np.diff(g.offsets[: data.n_nodes + 1]).astype(float)
        nodes, left, right = np.zeros(data.n_nodes), np.zeros(data.n_edges), np.zeros(data.n_edges)
        seen: dict[int, Any] = {}
        for i, structure in enumerate(self.structures):
            v = slice(int(data.node_offsets[i]), int(data.node_offsets[i + 1]))
            e = slice(int(data.edge_offsets[i]), int(data.edge_offsets[i + 1]))
            if id(structure) not in seen:
                local = np.stack([g.left[e], g.right[e]], axis=1) - v.start
                seen[id(structure)] = oriented_tree_probabilities(v.stop - v.start, local)
            nodes[v], left[e], right[e] = seen[id(structure)]
        ki, kj = cards[g.left], cards[g.right]
        # left[e]: probability of left -> right, whose entropy is H(edge) - H(left).
        curvature = np.concatenate([cards * nodes, ki * kj * (left + right)])
        return curvature, self.epsilon * np.stack([ki * left, kj * right], axis=1)

    # ---- exact inference

    @cached_property
    def structures(self) -> list[Structure]:
        """Topology of every example."""
        return self.model.structures(self.data)

    def too_large(self) -> TooLargeError | None:
        """Why exact inference is out of reach, if it is."""
        from cliquewise.oracles.base import get

        oracle = get("junction-tree")
        for structure in {id(s): s for s in self.structures}.values():
            refusal = oracle.too_large(structure, "marginals", {})
            if refusal is not None:
                return refusal
        return None

    def potentials(self, w: Floats) -> Floats:
        """Scores of all states of all cliques, costs not included."""
        from cliquewise._kernels.cliques.features import all_scores

        out = np.empty(int(self.cliques.offsets[-1]))
        all_scores(self.cliques, w, out)
        return out

    def accumulate(self, mu: Floats, out: Floats) -> None:
        """``out += sum_c B_c mu_c``, the adjoint of :meth:`potentials`."""
        from cliquewise._kernels.cliques.features import accumulate

        accumulate(self.cliques, mu, out)

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

    def graph(self, i: int, potentials: Floats) -> FactorGraph:
        """Example ``i`` with the given scores of all cliques."""
        return FactorGraph.from_structure(self.structures[i], potentials[self.entries(i)])

    def inference(self, scores: Floats) -> tuple[Floats, Floats]:
        """Exact mean parameters of all cliques and the value of each example's maximum.

        With ``gamma = 0`` the best labeling, else marginals at temperature gamma.
        """
        mu, values = np.zeros(len(scores)), np.zeros(self.n_examples)
        for i in range(self.n_examples):
            at = self.entries(i)
            if self.gamma == 0:
                graph = FactorGraph.from_structure(self.structures[i], scores[at])
                best = graph.map()
                values[i] = best.upper_bound
                for entry in graph._entries(best.labels[None]):
                    mu[at[entry[0]]] = 1.0
                continue
            temperature = float(self.temperatures[i])
            if temperature == 0:
                continue
            graph = FactorGraph.from_structure(self.structures[i], scores[at] / temperature)
            answer = graph.marginals()
            values[i] = temperature * answer.bound
            mu[at] = answer.factors.flat
        return mu, values

    def primal(self, w: Floats) -> float:
        """The exact objective."""
        return self.primal_and_gradient(w)[0]

    def primal_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The exact objective and a (sub)gradient, by inference on every graph."""
        scores = self.potentials(w)
        mu, values = self.inference(scores + self.costs)
        grad = np.zeros(self.dimension)
        self.accumulate(mu - self.truth, grad)
        grad = self.lam * w + grad / max(self.n_examples, 1)
        return self.value(float(w @ w), float(values.sum() - scores @ self.truth)), grad

    def certificate(self, w: Floats) -> Certificate:
        """Exact primal and dual at ``w``: ``P* >= P - ||grad||^2 / (2 lam)``.

        That is the dual value at the distributions of ``w``; it holds for any gamma.
        """
        value, grad = self.primal_and_gradient(w)
        if self.lam == 0:
            # All mass on the truth: its cost, and no weights.
            lower = float(self.costs @ self.truth) / max(self.n_examples, 1)
            return Certificate(value, lower, "exact")
        return Certificate(value, value - float(grad @ grad) / (2 * self.lam), "exact")

    # ---- which solver

    def resolve(self, solver: Any) -> Any:
        """What ``auto`` and the names of solvers for chains mean on graphs."""
        if isinstance(solver, str):
            return ON_GRAPHS.get(solver, solver)
        if solver.name == "gdmm":
            from cliquewise.solvers.gdmm_graph import GraphGDMM

            return GraphGDMM.like(solver)
        return solver


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
