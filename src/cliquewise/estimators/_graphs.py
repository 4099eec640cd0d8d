"""What GraphLabeler and MultiLabelClassifier share: training, prediction, files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cliquewise.certificate import Certificate
from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError, FormatError, UnsupportedError
from cliquewise.estimators import _training
from cliquewise.graph.factor_graph import FactorGraph, Floats
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.oracles.relaxed import relaxed_beliefs
from cliquewise.persistence import write_arrays
from cliquewise.problems.graph import GraphProblem

#: Solvers that train on the local polytope; prediction then uses the same relaxation.
RELAXED = ("idal", "soft_sdca", "soft_bcfw", "gdmm_graph", "gdmm_multilabel")
_NOT_SAVED = {"verbose", "solver", "random_state", "label_graph", "node_types", "class_weight"}


class GraphEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators over pairwise graphs; ``model_``, ``coef_`` are the fitted state."""

    def _train(self, model: PairwiseModel, data: GraphDataset, weights: Floats) -> None:
        _training.check_parameters(self)
        problem = GraphProblem(
            model, data, self.C, self.loss, self.gamma, self.entropy, self.epsilon, weights=weights
        )
        fit = _training.train(self, problem)
        self.model_, self.coef_ = model, fit.weights

    def _method(self, method: str | None) -> str:
        """The inference to use: the relaxation that training used, or exact."""
        chosen = self.inference if method is None else method
        if chosen == "auto" and self.solver_ in RELAXED:
            return "relaxed"
        return str(chosen)

    def _relaxed(self, data: GraphDataset) -> Floats:
        gamma = 0.0 if self.loss == "hinge" else float(self.gamma)
        return relaxed_beliefs(
            self.model_, data, self.coef_, gamma=gamma, entropy=self.entropy, epsilon=self.epsilon
        )[0]

    def _graphs(self, data: GraphDataset) -> Any:
        """Every example as a factor graph, scores from the weights."""
        from cliquewise._kernels.cliques.features import all_scores

        cliques = self.model_.cliques(data)
        scores = np.empty(int(cliques.offsets[-1]))
        all_scores(cliques, self.coef_, scores)
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
            cards = np.asarray(self.model_.cardinalities, dtype=np.int64)[data.node_types]
            return _argmax(beliefs, np.concatenate(([0], np.cumsum(cards))).astype(np.int64))
        found = [graph.map(chosen, **options).labels for graph in self._graphs(data)]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    # ---- files

    def save(self, path: Any) -> None:
        """Write the model to one file; see :func:`cliquewise.load`."""
        check_is_fitted(self, "coef_")
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in _NOT_SAVED}
        model = self.model_
        header = {
            "kind": type(self).__name__,
            "params": {k: v.item() if isinstance(v, np.generic) else v for k, v in params.items()},
            "certificate": asdict(self.certificate_),
            "solver": self.solver_,
            "model": {
                "cardinalities": [int(k) for k in model.cardinalities],
                "n_features": model.n_features,
                "n_edge_features": model.n_edge_features,
                "pairwise": model.pairwise,
                "intercept": bool(model.intercept),
            },
            "state": self._saved_state(),
        }
        write_arrays(path, {"coef": self.coef_, "pairs": model.pair_list}, header)

    def _saved_state(self) -> dict[str, Any]:
        """What a kind of estimator needs beside the model, as JSON; each says its own."""
        raise NotImplementedError

    def _restore_state(self, state: dict[str, Any]) -> None:
        """Back from :meth:`_saved_state`."""
        raise NotImplementedError


def restore(cls: type[GraphEstimator], arrays: Any, header: dict[str, Any], path: Any) -> Any:
    """An estimator from a file that :meth:`GraphEstimator.save` wrote."""
    estimator = cls(**header["params"])
    model = PairwiseModel(**header["model"], pairs=np.asarray(arrays["pairs"], dtype=np.int64))
    coef = np.asarray(arrays["coef"], dtype=np.float64)
    pairs = model.pair_list
    inside = not len(pairs) or (pairs.min() >= 0 and pairs.max() < model.n_node_types)
    if not inside or coef.shape != (model.dimension,) or not np.all(np.isfinite(coef)):
        raise FormatError("the model is damaged: its arrays do not fit together", path)
    estimator.model_, estimator.coef_ = model, coef
    estimator.certificate_ = Certificate(**header["certificate"])
    estimator.solver_ = header["solver"]
    estimator._restore_state(header["state"])
    return estimator


def _argmax(beliefs: Floats, starts: Any) -> Any:
    """The largest entry of every range."""
    n = len(starts) - 1
    if n == 0:
        return np.empty(0, dtype=np.int64)
    sizes = np.diff(starts)
    width = int(sizes.max())
    padded = np.full((n, width), -np.inf)
    column = np.arange(int(starts[-1])) - np.repeat(starts[:-1], sizes)
    padded[np.repeat(np.arange(n), sizes), column] = beliefs
    return np.argmax(padded, axis=1)


def as_lists(flat: Any, offsets: Any) -> list[Any]:
    """Cut a flat array into one part per example."""
    if len(offsets) < 2:
        return []
    return list(np.split(flat, offsets[1:-1]))


def check_examples(X: Any) -> None:
    """A list of examples, and not a matrix."""
    if isinstance(X, np.ndarray | str | dict):
        raise DataError(
            "X must be a list of examples, each (node_features, edges[, edge_features[, types]]) "
            "or a dict"
        )
