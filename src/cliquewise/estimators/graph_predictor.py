"""A trained pairwise model of graphs: inference and its form in files, without scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._stored import Arrays, Header, checked_weights
from cliquewise.estimators.parameters import check_integer
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles.best_map import best_map
from cliquewise.oracles.results import MapResult, MarginalResult
from cliquewise.ragged import Floats, first_best

#: Largest number of entries of tables with tied weights that a model file may describe.
_MAX_TIED_ENTRIES = 1 << 26
#: Solvers on the local polytope. Files of version 1 do not say whether training was relaxed.
_RELAXED_SOLVERS_1 = {"idal", "soft_sdca", "soft_bcfw", "gdmm_graph", "gdmm_multilabel"}


@dataclass(frozen=True, eq=False)
class GraphPredictor:
    """A pairwise model, its weights, and the temperature of its distribution.

    Attributes
    ----------
    model : PairwiseModel
    weights : ndarray
    loss : str
        The loss of training; structural SVMs (``hinge``) have no probabilities.
    gamma : float
        Temperature: probabilities are proportional to ``exp(score / gamma)``.
    entropy, epsilon
        The entropy of the relaxation; see :class:`~cliquewise.problems.graph.GraphProblem`.
    relaxed : bool
        Whether training minimized the relaxed objective, on the local polytope.

    Examples
    --------
    >>> data = GraphDataset.from_examples([([[2.0], [-1.0]], [(0, 1)])])
    >>> model = PairwiseModel([2], 1, pairwise="potts", intercept=False)
    >>> predictor = GraphPredictor(model, np.array([0.0, 1.0, 0.5]))
    >>> predictor.map(data)[0].labels
    array([1, 0])
    """

    model: PairwiseModel
    weights: Floats
    loss: str = "log"
    gamma: float = 1.0
    entropy: str = "gini"
    epsilon: float = 0.9
    relaxed: bool = False

    def graphs(self, data: GraphDataset) -> Iterator[FactorGraph]:
        """Yield every example as a factor graph with the scores of the model."""
        cliques = self.model.cliques(data)
        scores = self.model.potentials(self.weights, cliques)
        o, n = cliques.offsets, data.n_nodes
        for i, structure in enumerate(self.model.structures(data)):
            v, e = data.node_offsets[i : i + 2], data.edge_offsets[i : i + 2] + n
            parts = [scores[o[v[0]] : o[v[1]]], scores[o[e[0]] : o[e[1]]]]
            yield FactorGraph.from_structure(structure, np.concatenate(parts))

    def distributions(self, data: GraphDataset) -> Iterator[FactorGraph]:
        """Yield every example as a factor graph with the distribution of the model.

        Its scores are divided by the temperature. Structural SVMs have no temperature.
        """
        scale = 1.0 if self.loss == "hinge" else float(self.gamma)
        for graph in self.graphs(data):
            yield FactorGraph.from_structure(graph.structure, graph.tables / scale)

    def map(self, data: GraphDataset, method: str = "auto", **options: Any) -> list[MapResult]:
        """Return the best labeling found for each example, its score and an upper bound.

        ``auto`` is :func:`cliquewise.oracles.best_map.best_map`. ``relaxed`` rounds the beliefs of
        the relaxation. Other methods are those of :meth:`FactorGraph.map`.
        """
        if method == "auto" and not options:
            return [best_map(graph) for graph in self.graphs(data)]
        if method == "relaxed" and not options:
            pairs = zip(self.graphs(data), self.marginals(data, "relaxed"), strict=True)
            return [_rounded(graph, beliefs) for graph, beliefs in pairs]
        return [graph.map(method, **options) for graph in self.graphs(data)]

    def marginals(
        self, data: GraphDataset, method: str = "auto", **options: Any
    ) -> list[MarginalResult]:
        """Return marginals of each example, with flags and bounds.

        ``relaxed`` gives beliefs of the relaxation that training minimized. Other methods are those
        of :meth:`FactorGraph.marginals`.

        Raises
        ------
        UnsupportedError
            For probabilities of a structural SVM.
        """
        if method == "relaxed":
            relaxation = {
                "gamma": 0.0 if self.loss == "hinge" else 1.0,
                "entropy": self.entropy,
                "epsilon": self.epsilon,
            } | options
            return [graph.marginals("relaxed", **relaxation) for graph in self.distributions(data)]
        if self.loss == "hinge":
            raise UnsupportedError(
                'a structural SVM (loss="hinge") has no probabilities; train with loss="log", or '
                'use method="relaxed" for the beliefs of the relaxation'
            )
        return [graph.marginals(method, **options) for graph in self.distributions(data)]

    # ---- files

    def to_file(self) -> tuple[Arrays, Header]:
        """Return the arrays and the header of a model file."""
        model = self.model
        description = {
            "cardinalities": [int(k) for k in model.cardinalities],
            "n_features": model.n_features,
            "n_edge_features": model.n_edge_features,
            "pairwise": model.pairwise,
            "intercept": bool(model.intercept),
        }
        arrays = {"coef": self.weights, "pairs": model.pair_list}
        return arrays, {"model": description, "relaxed": self.relaxed}

    @classmethod
    def from_file(
        cls, arrays: Arrays, header: Header, solver: str, **settings: Any
    ) -> GraphPredictor:
        """Restore a predictor; check sizes and types before any of them is used."""
        if not settings["gamma"] > 0:
            raise DataError(f"gamma = {settings['gamma']}; it must be positive")
        description, most = header["model"], arrays["coef"].size
        pairs = np.array(arrays["pairs"])
        cards = [
            check_integer(k, "a number of labels", 1, most) for k in description["cardinalities"]
        ]
        _check_pairs(pairs, cards, most)
        model = PairwiseModel(
            cards,
            check_integer(description["n_features"], "its number of features", 0, most),
            check_integer(description["n_edge_features"], "its number of edge features", 0, most),
            description["pairwise"],
            bool(description["intercept"]),
            pairs,
        )
        relaxed = bool(header.get("relaxed", solver in _RELAXED_SOLVERS_1))
        weights = checked_weights(arrays, model.dimension)
        return cls(model, weights, relaxed=relaxed, **settings)


def _rounded(graph: FactorGraph, beliefs: MarginalResult) -> MapResult:
    """Return the labeling of largest beliefs, with a bound from the tables alone."""
    labels = first_best(beliefs.nodes.flat, graph.structure.node_offsets)
    score = float(graph.score(labels))
    bound = max(float(table_bound(graph)), score)
    return MapResult(labels, score, bound, score == bound, "relaxed", rounding=graph.rounding)


def _check_pairs(pairs: NDArray[Any], cards: list[int], n_weights: int) -> None:
    """Raise an error if pairs of node types do not exist, repeat, or need enormous tables."""
    if pairs.dtype != np.int64 or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise DataError("its pairs of node types are not pairs of integers")
    if len(pairs) and not (pairs.min() >= 0 and pairs.max() < len(cards)):
        raise DataError("its pairs name node types that it does not have")
    if (pairs[:, 0] > pairs[:, 1]).any() or len(np.unique(pairs, axis=0)) != len(pairs):
        raise DataError("a pair of node types occurs twice")
    sizes = np.asarray(cards, dtype=np.float64)
    # A tied table is larger than its weights, as in training, but not without limit.
    if (sizes[pairs[:, 0]] * sizes[pairs[:, 1]]).sum() > 4 * n_weights + _MAX_TIED_ENTRIES:
        raise DataError("its tables would be far larger than its weights")


def split_flat(flat: NDArray[Any], offsets: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Split a flat array into one part per example."""
    if len(offsets) < 2:
        return []
    return list(np.split(flat, offsets[1:-1]))
