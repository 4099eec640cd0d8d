"""What GraphLabeler and MultiLabelClassifier share: training, prediction, files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._base import Estimator
from cliquewise.estimators._stored import Arrays, Header, checked_weights
from cliquewise.estimators.parameters import GraphParameters, check_integer
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.oracles.relaxed import relaxed_beliefs
from cliquewise.problems.graph import GraphProblem
from cliquewise.ragged import Floats, first_best, offsets_of
from cliquewise.solvers.base import Start, get

#: Entries of tables whose weights are shared, in files.
_FREE_TABLES = 1 << 26
#: Solvers on the local polytope, in files of version 1, which do not say whether theirs is one.
_RELAXED_1 = {"idal", "soft_sdca", "soft_bcfw", "gdmm_graph", "gdmm_multilabel"}


@dataclass(eq=False, repr=False)
class GraphEstimator(GraphParameters, Estimator):
    """Base of the estimators over pairwise graphs; ``model_``, ``coef_`` are the fitted state."""

    def _fit_graphs(
        self, model: PairwiseModel, data: GraphDataset, weights: Floats, cost: Floats | None
    ) -> None:
        self._check_parameters()
        problem = GraphProblem(
            model, data, self.C, self.loss, self.gamma, self.entropy, self.epsilon, cost, weights
        )
        self._fit_problem(problem, model)

    def _fit_problem(self, problem: Any, model: PairwiseModel, start: Floats | None = None) -> None:
        warm = None if start is None else Start(start)
        self.coef_ = self._train(problem, warm=warm).weights
        trained = get(self.solver_, problem.kind)
        self.model_, self.relaxed_ = model, problem.kind in trained.relaxed_on
        self.n_features_in_ = model.n_features

    @property
    def _calibrated(self) -> Floats:
        """The weights that predict."""
        return self.coef_

    def _method(self, method: str | None) -> str:
        """The inference to use: the relaxation that training used, or exact."""
        chosen = self.inference if method is None else method
        if chosen == "auto" and self.relaxed_:
            return "relaxed"
        return str(chosen)

    def _relaxed(self, data: GraphDataset) -> Floats:
        model = self.model_
        edges, _ = model.oriented(data)
        found = relaxed_beliefs(
            model.potentials(self._calibrated, data),
            model.states(data),
            edges,
            data.node_offsets,
            data.edge_offsets,
            gamma=0.0 if self.loss == "hinge" else float(self.gamma),
            entropy=self.entropy,
            epsilon=self.epsilon,
        )
        return found.nodes

    def _graphs(self, data: GraphDataset) -> Any:
        """Every example as a factor graph, scores from the weights."""
        cliques = self.model_.cliques(data)
        scores = self.model_.potentials(self._calibrated, cliques)
        o, n = cliques.offsets, data.n_nodes
        for i, structure in enumerate(self.model_.structures(data)):
            v, e = data.node_offsets[i : i + 2], data.edge_offsets[i : i + 2] + n
            parts = [scores[o[v[0]] : o[v[1]]], scores[o[e[0]] : o[e[1]]]]
            yield FactorGraph.from_structure(structure, np.concatenate(parts))

    def _beliefs(self, data: GraphDataset, method: str | None, **options: Any) -> Floats:
        """Probabilities of the labels of all nodes, flat."""
        check_is_fitted(self, "coef_")
        chosen = self._method(method)
        if chosen == "relaxed":
            return self._relaxed(data)
        if self.loss == "hinge":
            raise UnsupportedError(
                'a structural SVM (loss="hinge") has no probabilities; train with loss="log", or '
                'ask for method="relaxed"'
            )
        # The model at temperature gamma has the scores divided by it.
        answers = []
        for graph in self._graphs(data):
            scaled = FactorGraph.from_structure(graph.structure, graph.tables / self.gamma)
            answers.append(scaled.marginals(chosen, **options).nodes.flat)
        return np.concatenate([np.empty(0), *answers])

    def _labels(self, data: GraphDataset, method: str | None, **options: Any) -> Any:
        """The best label of every node, flat."""
        check_is_fitted(self, "coef_")
        chosen = self._method(method)
        if chosen == "relaxed":
            beliefs = self._relaxed(data)
            return first_best(beliefs, offsets_of(self.model_.states(data)))
        found = [graph.map(chosen, **options).labels for graph in self._graphs(data)]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    # ---- files

    def _to_file(self) -> tuple[Arrays, Header]:
        model = self.model_
        about = {
            "cardinalities": [int(k) for k in model.cardinalities],
            "n_features": model.n_features,
            "n_edge_features": model.n_edge_features,
            "pairwise": model.pairwise,
            "intercept": bool(model.intercept),
        }
        arrays = {"coef": self.coef_, "pairs": model.pair_list}
        return arrays, {"model": about, "relaxed": self.relaxed_}

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        if not self.gamma > 0:
            raise DataError(f"gamma = {self.gamma}; it must be positive")
        about, pairs, most = header["model"], np.array(arrays["pairs"]), arrays["coef"].size
        cards = [check_integer(k, "a number of labels", 1, most) for k in about["cardinalities"]]
        _check_pairs(pairs, cards, most)
        self.model_ = PairwiseModel(
            cards,
            check_integer(about["n_features"], "its number of features", 0, most),
            check_integer(about["n_edge_features"], "its number of edge features", 0, most),
            about["pairwise"],
            bool(about["intercept"]),
            pairs,
        )
        self.coef_ = checked_weights(arrays, self.model_.dimension)
        self.relaxed_ = bool(header.get("relaxed", self.solver_ in _RELAXED_1))
        self.n_features_in_ = self.model_.n_features


def _check_pairs(pairs: Any, cards: list[int], n_weights: int) -> None:
    """Refuse pairs of node types that do not exist, come twice, or would need absurd tables."""
    if pairs.dtype != np.int64 or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise DataError("its pairs are no pairs of numbers")
    if len(pairs) and not (pairs.min() >= 0 and pairs.max() < len(cards)):
        raise DataError("its pairs name node types that it does not have")
    if (pairs[:, 0] > pairs[:, 1]).any() or len(np.unique(pairs, axis=0)) != len(pairs):
        raise DataError("its pairs of node types are there twice")
    sizes = np.asarray(cards, dtype=np.float64)
    # A tied table is larger than its weights, in training, too; but not without a limit.
    if (sizes[pairs[:, 0]] * sizes[pairs[:, 1]]).sum() > 4 * n_weights + _FREE_TABLES:
        raise DataError("its tables would be far larger than its weights")


def as_lists(flat: Any, offsets: Any) -> list[Any]:
    """Cut a flat array into one part per example."""
    if len(offsets) < 2:
        return []
    return list(np.split(flat, offsets[1:-1]))
