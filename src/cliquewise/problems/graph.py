"""GraphProblem: the saddle point for a data set of pairwise graphs, exact and relaxed.

    P(w) = lam / 2 ||w||^2 + 1/n sum_i max over mu <theta_i(w) + cost_i, mu> + gamma H(mu)
                                       - <theta_i(w), y_i>,        lam = 1 / (C n)

Exact: mu in the marginal polytope, H Shannon's entropy; values and gradients come from exact
inference on each graph, on trees in one call for all of them. Relaxed: mu in the local polytope, H
a Gini entropy; only cliques are ever looked at. Which of the two is solved depends on the solver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import Question
from cliquewise.oracles.batch_planner import quick_map
from cliquewise.oracles.planner import has_exact_method, why_not_structure
from cliquewise.problems.cliques import CliqueProblem
from cliquewise.problems.examples import Best, Rows, stacked
from cliquewise.problems.forests import forest_of
from cliquewise.ragged import Floats

#: What to do where no exact method is within reach.
REMEDY = "use solver bcfw or subgradient, which make do with bounds"
#: Exact marginals are taken whatever they cost, within the memory that there is.
EXACT = math.inf
#: Roundings of a message of a junction tree per clique, in units of the sum of all scores.
MESSAGE = 8.0
#: What each call asks of an oracle.
QUESTIONS: dict[str, Question] = {"max": "map", "top_k": "top_k", "exp": "marginals"}


class GraphProblem(CliqueProblem):
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
    >>> from cliquewise.data.graphs import GraphDataset
    >>> from cliquewise.models.pairwise import PairwiseModel
    >>> data = GraphDataset.from_examples([([[0.5], [-1.0]], [(0, 1)])], [[0, 1]])
    >>> problem = GraphProblem(PairwiseModel([2], 1), data)
    >>> round(problem.primal(np.zeros(problem.dimension)), 4)      # log 4
    1.3863
    """

    # ---- all examples

    @cached_property
    def structures(self) -> list[Structure]:
        """Topology of every example."""
        return self.model.structures(self.data)

    @cached_property
    def forest(self) -> Any | None:
        """All examples as rooted trees, whose marginals are quick; None if one has a cycle."""
        return forest_of(self.cliques, self.owners[: self.data.n_nodes])

    def graph(self, i: int, potentials: Floats) -> FactorGraph:
        """Example ``i`` with the given scores of all cliques."""
        return FactorGraph.from_structure(self.structures[i], potentials[self.entries(i)])

    def inference(self, scores: Floats) -> tuple[Floats, Floats]:
        """Exact mean parameters of all cliques and the value of each example's maximum.

        With ``gamma = 0`` the best labeling, else marginals at temperature gamma.
        """
        if self.gamma > 0 and self.forest is not None:
            return self._on_trees(scores)
        mu, values = np.zeros(len(scores)), np.zeros(self.n_examples)
        for i in range(self.n_examples):
            at = self.entries(i)
            if self.gamma == 0:
                graph = FactorGraph.from_structure(self.structures[i], scores[at])
                with _named_example(i):
                    best = graph.map()
                    _demand_exact(best)
                values[i] = best.score
                for entry in graph._entries(best.labels[None]):
                    mu[at[entry[0]]] = 1.0
                continue
            temperature = float(self.temperatures[i])
            if temperature == 0:
                continue
            graph = FactorGraph.from_structure(self.structures[i], scores[at] / temperature)
            with _named_example(i):
                answer = graph.marginals(seconds=EXACT)
                _demand_exact(answer)
            values[i] = temperature * answer.log_z
            mu[at] = answer.factors.flat
        return mu, values

    def _on_trees(self, scores: Floats) -> tuple[Floats, Floats]:
        """:meth:`inference` on trees, all of them at once."""
        from cliquewise._kernels.graphs.forest import all_marginals

        # Whatever an example without weight says, it has no features.
        heat = np.where(self.temperatures > 0, self.temperatures, 1.0)
        mu, log_z = np.empty(len(scores)), np.empty(self.n_examples)
        beliefs = np.empty(int(self.cliques.offsets[self.data.n_nodes]))
        scaled = scores / heat[self.state_owners]
        all_marginals(self.forest, self.data.node_offsets, scaled, beliefs, mu, log_z)
        return mu, self.temperatures * log_z

    def gradient_error_scale(self, w: Floats, tight: bool = False) -> Floats:
        """Return the error scale of the gradient, with errors of marginals on loopy graphs.

        On trees, marginals are products of conditional distributions that are computed once. The
        messages of a junction tree add up scores of many cliques, in both directions.
        """
        if self.forest is not None or self.gamma == 0:
            return self.weight_error_scale
        absolute = self.cliques._replace(values=np.abs(self.cliques.values))
        with np.errstate(over="ignore", invalid="ignore"):
            states = self.model.potentials(np.abs(w), absolute) + np.abs(self.costs)
            largest = np.maximum.reduceat(states, self.cliques.offsets[:-1])
            scores = np.bincount(self.owners, largest, minlength=self.n_examples)
            cliques = np.bincount(self.owners, minlength=self.n_examples)
            heat = np.where(self.temperatures > 0, self.temperatures, np.inf)
            roundings = MESSAGE * float((cliques * scores / heat).max(initial=0.0))
            return self.weight_error_scale + self.C * roundings * self.reach

    def primal(self, w: Floats) -> float:
        """The exact objective."""
        return self.primal_and_gradient(w)[0]

    def losses_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The sum of the exact losses and a (sub)gradient, by inference on every graph."""
        scores = self.potentials(w)
        mu, values = self.inference(scores + self.costs)
        grad = np.zeros(self.dimension)
        self.accumulate(mu - self.truth, grad)
        # A product with the truth would wake all threads of the linear algebra.
        true = scores[self.cliques.offsets[:-1] + self.cliques.truth]
        return float(values.sum() - true.sum()), grad

    # ---- one example

    def marginals(self, i: int, tables: Floats) -> tuple[Floats, float]:
        """Exact marginals of example ``i``'s states under given scores, and their log Z."""
        if self.forest is not None:
            from cliquewise._kernels.graphs.forest import marginals

            (a, b), (c, _), o = *self.ranges(i), self.cliques.offsets
            nodes, mu = int(o[b] - o[a]), np.empty(len(tables))
            edges = int(o[self.data.n_nodes + c]) - nodes
            log_z = marginals(self.forest, a, b, int(o[a]), edges, tables, np.empty(nodes), mu)
            return mu, float(log_z)
        graph = FactorGraph.from_structure(self.structures[i], tables)
        with _named_example(i):
            answer = graph.marginals(seconds=EXACT)
            _demand_exact(answer)
        return answer.factors.flat, answer.log_z

    def _asked(self, w: Floats, i: int) -> tuple[FactorGraph, float]:
        """Example ``i`` with its costs, and the score of its truth without them."""
        at, plain = self.entries(i), self.scores(w, i)
        graph = FactorGraph.from_structure(self.structures[i], plain + self.costs[at])
        # A product with the mean parameters would wake all threads of the linear algebra.
        return graph, float(plain[self.truth[at] > 0].sum())

    def best(
        self, w: Floats, i: int, method: str = "auto", options: Any = (), enough: float = 0.0
    ) -> Best:
        """The best labeling by any MAP method; where it proves nothing, with a bound.

        ``auto`` is what the structure makes cheap; see ``oracles.quick``.
        """
        from cliquewise.oracles._pairwise import table_bound

        graph, start = self._asked(w, i)
        asked = method != "auto" or options
        found = graph.map(method, **dict(options)) if asked else quick_map(graph, enough)
        bound = found.upper_bound if found.exact else min(found.upper_bound, table_bound(graph))
        row = stacked([self._row(i, _mean(graph, [found], np.ones(1)))])
        return Best(found.score - start, row, float(bound) - start, bool(found.exact))

    def top_k(self, w: Floats, i: int, k: int) -> tuple[Floats, Rows]:
        """The k best labelings, by an exact method."""
        graph, start = self._asked(w, i)
        with _named_example(i):
            found = [graph.map()] if k == 1 else graph.top_k(k)
            _demand_exact(found[0])
        rows = [self._row(i, _mean(graph, [one], np.ones(1))) for one in found]
        return np.array([one.score for one in found]) - start, stacked(rows)

    def exp(self, w: Floats, i: int, mu: float = 1.0) -> tuple[float, float, Rows]:
        """``mu log sum_y exp(psi / mu)``, the mean of psi, and the mean of its gradients."""
        graph, start = self._asked(w, i)
        with _named_example(i):
            cooled = FactorGraph.from_structure(graph.structure, graph.tables / mu)
            found = cooled.marginals(seconds=EXACT)
            _demand_exact(found)
        mean = np.asarray(found.factors.flat)
        value, psi = mu * float(found.value) - start, float(graph.tables @ mean) - start
        return value, psi, stacked([self._row(i, mean)])

    def losses(self, w: Floats) -> Floats:
        """Exact hinge loss of every example."""
        return np.array([self.top_k(w, i, 1)[0][0] for i in range(self.n_examples)])

    def bounds(self, w: Floats, method: str = "auto", options: Any = ()) -> tuple[Floats, bool]:
        """An upper bound of every loss, and whether all are exact."""
        found = [self.best(w, i, method, options) for i in range(self.n_examples)]
        return np.array([one.bound for one in found]), all(one.exact for one in found)

    # ---- what is out of reach

    def refuses_method(self, method: str, options: dict[str, Any]) -> str | None:
        """What a MAP method refuses of one of the graphs."""
        if method == "auto":
            return None
        for structure in {id(s): s for s in self.structures}.values():
            why = why_not_structure(method, structure, "map")
            if why is not None:
                return f"asks the method {method!r}, which {why}"
        return None

    def refuses_call(self, call: str) -> str | None:
        """Why no exact method answers calls of a kind on some of the graphs; None if one may.

        What depends on the scores (whether they are submodular) is only known in the course of it.
        """
        if call == "exp" and self.forest is not None:
            return None
        for structure in {id(s): s for s in self.structures}.values():
            if not has_exact_method(structure, [QUESTIONS[call]]):
                what = {"max": "best labelings", "top_k": "k best labelings", "exp": "marginals"}
                return (
                    f"needs the exact {what[call]} of every graph, and a graph of "
                    f"{structure.n_variables} nodes and {len(structure.edges)} edges is too much "
                    f"for every exact method; {REMEDY}"
                )
        return None


def _mean(graph: FactorGraph, labelings: list[Any], shares: Floats) -> Floats:
    """Mean parameters of labelings in their shares."""
    mean = np.zeros(len(graph.tables))
    for entries in graph._entries(np.array([one.labels for one in labelings])):
        np.add.at(mean, entries, shares[:, None])
    return mean


def _demand_exact(found: Any) -> None:
    """Raise an error if an answer is not exact: its gradient would not belong to its bound."""
    if not found.exact:
        raise UnsupportedError(f"method {found.method!r} did not find an exact answer")


@contextmanager
def _named_example(i: int) -> Iterator[None]:
    """What an oracle refuses is said with the example and the remedy."""
    try:
        yield
    except UnsupportedError as error:
        raise UnsupportedError(f"example {i}, at these weights: {error}; {REMEDY}") from error
