"""GraphLabeler: label the nodes of graphs with a pairwise conditional random field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.graphs import GraphDataset
from cliquewise.data.labels import Labelings, Labels
from cliquewise.errors import DataError
from cliquewise.estimators._base import rollback_on_error
from cliquewise.estimators._costs import costs_of, saved_cost
from cliquewise.estimators._graphs import GraphEstimator, as_lists
from cliquewise.estimators._inputs import (
    check_sample_weight,
    class_weights,
    listed,
    mean_by_example,
)
from cliquewise.estimators._stored import (
    Arrays,
    Header,
    listed_classes,
    listed_weights,
    plain_classes,
    saved_weights,
)
from cliquewise.estimators.parameters import GraphLabelerParameters
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.oracles.batch_planner import quick_map
from cliquewise.ragged import Floats, gather, offsets_of


@dataclass(eq=False, repr=False)
class GraphLabeler(GraphLabelerParameters, GraphEstimator):
    """Pairwise model of the labels of a graph's nodes.

    Parameters
    ----------
    loss : {"log", "softmax_margin", "hinge"}, default="log"
        Likelihood; the same with the costs of wrong labels added to the scores; structural SVM.
    C : float, default=1.0
        Weight of the sum of the losses against the penalty, ``1/2 ||w||^2`` or, with
        ``l1_ratio``, an elastic net as in :class:`SequenceTagger`.
    gamma : float, default=1.0
        Temperature: weight of the entropy. From small (max-margin) to large (likelihood).
    pairwise : {"table", "symmetric", "potts"}, default="table"
        What an edge scores: a full table, in which the order of the ends counts; a symmetric
        one; or one weight for equal labels.
    entropy : {"gini", "gini-otrw"}, default="gini"
        Entropy of the relaxed problem that cliquewise solvers minimize.
    epsilon : float, default=0.9
        See :class:`~cliquewise.problems.graph.GraphProblem`.
    class_weight : dict or "balanced", optional
        Weight of each class; an example's loss is multiplied by the mean over its nodes.
    cost : dict or (K, K) array, optional
        What a wrong label costs in ``softmax_margin`` and ``hinge``, as in
        :class:`SequenceTagger`; ``fit(node_weight=)`` multiplies the costs of a node.
    solver : str or Solver, default="auto"
        ``idal``, ``relaxed_lbfgs``, ``gdmm``, ``soft_sdca``, ``soft_bcfw``: cliquewise, any
        graph. ``sdca``, ``lbfgs``: by exact inference, for graphs of small treewidth.
        ``bcfw``, ``subgradient``: structural SVMs (``loss="hinge"``) through MAP calls;
        ``casimir``, ``svrg``: through the K best labelings, where an exact method finds them.
        ``auto`` compares costs: it is ``bcfw`` for most structural SVMs, ``lbfgs`` where exact
        inference is cheap (on trees always, on narrow graphs), and elsewhere ``idal``
        (structural SVMs: ``relaxed_lbfgs``).
    inference : str, default="auto"
        ``relaxed``: the relaxation that cliquewise training uses; or the name of a method of
        :meth:`FactorGraph.map`. ``auto`` takes, graph by graph, the best labeling where it is
        proved at little cost (trees, narrow graphs, or wherever the messages of ``trw-s`` prove
        it) and the relaxation otherwise; probabilities are relaxed after cliquewise training and
        exact otherwise.
    tol, max_epochs, max_seconds, max_memory, random_state, verbose
        As in :class:`~cliquewise.SequenceTagger`.
    intercept : bool, default=True
        A constant feature on nodes, and on edges beside their features.

    Attributes
    ----------
    classes_ : list, or dict of lists
        The labels; by node type if the nodes have types.
    certificate_, trace_, coef_
        What was proved, how it went, and the weights; ``trace_.disagreement`` is ``||A mu||^2``.

    Examples
    --------
    >>> import cliquewise as cw
    >>> X = [([[2.0], [1.5], [-1.0]], [(0, 1), (1, 2)]), ([[-2.0], [3.0]], [(0, 1)])]
    >>> y = [["in", "in", "out"], ["out", "in"]]
    >>> labeler = cw.GraphLabeler(random_state=0).fit(X, y)
    >>> [labels.tolist() for labels in labeler.predict(X)]
    [['in', 'in', 'out'], ['out', 'in']]
    """

    @rollback_on_error
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, node_weight: Any = None
    ) -> GraphLabeler:
        """Train.

        Parameters
        ----------
        X : list of examples
            ``(node_features, edges[, edge_features[, types]])`` each, or dicts with the keys
            ``features``, ``edges``, ``edge_features``, ``types``. :mod:`cliquewise.data.images`
            makes them from images.
        y : list of sequences of labels
            One label per node; H x W arrays for the pixels of images.
        sample_weight : (n_examples,), optional
            Weight of each example's loss.
        node_weight : list of sequences of numbers, optional
            What the costs of wrong labels are multiplied by, node by node (losses
            ``softmax_margin`` and ``hinge``).
        """
        data = self._data(X)
        if len(data) == 0 or data.n_nodes == 0:
            raise DataError("training needs at least one example with a node")
        flat = self._flat(y, data)
        types = data.node_types
        n_types = int(types.max()) + 1
        self.labels_ = [Labels.fit([flat[types == t]]) for t in range(n_types)]
        missing = [t for t in range(n_types) if not len(self.labels_[t])]
        if missing:
            raise DataError(f"no node has type {missing[0]}; number the types without gaps")
        numbers = self._encode(flat, data)
        width = 0 if data.edge_features is None else data.edge_features.shape[1]
        sizes = [len(labels) for labels in self.labels_]
        model = PairwiseModel(sizes, data.features.shape[1], width, self.pairwise, self.intercept)
        weights = self._weights(sample_weight, numbers, data)
        costs = self._costs(node_weight, numbers, data)
        self._fit_graphs(model, data.with_labels(numbers), weights, costs)
        self._name_classes()
        return self

    def _weights(self, given: Any, numbers: NDArray[np.int64], data: GraphDataset) -> Floats:
        """Weights of the examples: those given, times the mean class weight of the nodes."""
        weights = check_sample_weight(given, len(data))
        if self.class_weight is None:
            return weights
        if len(self.labels_) > 1:
            raise DataError("class_weight does not work with node types; use sample_weight")
        per_class = class_weights(self.class_weight, self.labels_[0].classes, numbers)
        return weights * mean_by_example(per_class[numbers], data.node_offsets)

    def _costs(self, given: Any, numbers: NDArray[np.int64], data: GraphDataset) -> Floats | None:
        """What every label costs every node, flat; None if a wrong label costs 1."""
        if given is not None and not isinstance(given, str):
            given = [_in_line(np.asarray(part)) for part in listed(given, "node_weight")]
        if len(self.labels_) > 1 and not (self.cost is None and given is None):
            raise DataError("cost and node_weight do not work with node types; use sample_weight")
        offsets = data.node_offsets
        costs = costs_of(
            self.loss, self.cost, given, self.labels_[0].classes, numbers, offsets, "node_weight"
        )
        return None if costs is None else costs.ravel()

    def _plain_parameters(self) -> dict[str, Any]:
        classes = self.labels_[0].classes
        return super()._plain_parameters() | saved_cost(self.cost, classes)

    def _name_classes(self) -> None:
        classes = [labels.classes for labels in self.labels_]
        self.classes_: Any = classes[0] if len(classes) == 1 else dict(enumerate(classes))

    def _data(self, X: Any) -> GraphDataset:
        if isinstance(X, GraphDataset):
            return X
        if isinstance(X, np.ndarray):
            raise DataError(
                "X must be a list of examples, each (node_features, edges[, edge_features[, "
                "types]]) or a dict"
            )
        return GraphDataset.from_examples(listed(X, "X"))

    def _new_data(self, X: Any) -> GraphDataset:
        check_is_fitted(self, "coef_")
        return self._data(X)

    def _flat(self, y: Any, data: GraphDataset) -> NDArray[Any]:
        """The labels of all nodes in one array of objects."""
        try:
            lists = [list(_in_line(labels)) for labels in listed(y, "y")]
        except TypeError:
            raise DataError("y must be a list of sequences of labels, one per example") from None
        lengths, nodes = [len(labels) for labels in lists], np.diff(data.node_offsets).tolist()
        if len(lists) != len(data):
            raise DataError(f"{len(lists)} lists of labels for {len(data)} examples")
        wrong = [i for i in range(len(data)) if lengths[i] != nodes[i]]
        if wrong:
            i = wrong[0]
            raise DataError(f"example {i} has {nodes[i]} nodes and {lengths[i]} labels")
        flat = np.empty(data.n_nodes, dtype=object)
        flat[:] = [label for labels in lists for label in labels]
        unknown = np.flatnonzero([label is None for label in flat])
        if len(unknown):
            raise DataError(f"{data.place(int(unknown[0]))}: training needs every label, not None")
        return flat

    def _encode(self, flat: NDArray[Any], data: GraphDataset) -> NDArray[np.int64]:
        numbers = np.empty(data.n_nodes, dtype=np.int64)
        for t, labels in enumerate(self.labels_):
            mine = np.flatnonzero(data.node_types == t)
            numbers[mine] = labels.encode([flat[mine].tolist()], [0, len(mine)], unknown=-1)[0]
        if len(numbers) and numbers.min() < 0:
            at = int(np.argmin(numbers))
            raise DataError(f"{data.place(at)}: label {flat[at]!r} was never seen in training")
        return numbers

    def _decode(self, numbers: NDArray[np.int64], data: GraphDataset) -> NDArray[Any]:
        every = [label for labels in self.labels_ for label in labels.classes]
        table = np.array(every) if len({type(c) for c in every}) == 1 else None
        if table is None:
            table = np.empty(len(every), dtype=object)
            table[:] = every
        starts = offsets_of([len(labels) for labels in self.labels_])
        return np.asarray(table[starts[data.node_types] + numbers])

    def predict(self, X: Any, method: str | None = None, **options: Any) -> list[NDArray[Any]]:
        """The labels of the nodes of every example.

        Parameters
        ----------
        X : list of examples
        method : str, optional
            In place of ``inference``.
        **options
            For the method.
        """
        data = self._new_data(X)
        labels = self._decode(self._labels(data, method, **options), data)
        return Labelings(as_lists(labels, data.node_offsets))

    def _labels(self, data: GraphDataset, method: str | None, **options: Any) -> Any:
        """The proved optimum of each graph where it is cheap, and the relaxation otherwise."""
        chosen = self.inference if method is None else method
        if chosen != "auto" or options:
            return super()._labels(data, method, **options)
        found = [quick_map(graph) for graph in self._graphs(data)]
        labels = np.concatenate([np.empty(0, dtype=np.int64), *(f.labels for f in found)])
        open_ones = np.flatnonzero([not f.exact for f in found])
        if len(open_ones):
            nodes, _ = gather(data.node_offsets, open_ones)
            labels[nodes] = super()._labels(data.subset(open_ones), "relaxed")
        return labels

    def graph(self, x: Any) -> FactorGraph:
        """One example as a factor graph under the trained weights, to be asked anything.

        Its variables are the nodes, its states the numbers of ``classes_`` (of the node's
        type); ``names`` among the keys of a dict name the variables. Scores are divided by
        ``gamma``, so that its marginals are the model's.

        Parameters
        ----------
        x : example
            As in :meth:`fit`: a tuple or a dict.

        Examples
        --------
        >>> import cliquewise as cw
        >>> X = [([[2.0], [1.5], [-1.0]], [(0, 1), (1, 2)]), ([[-2.0], [3.0]], [(0, 1)])]
        >>> labeler = cw.GraphLabeler().fit(X, [["in", "in", "out"], ["out", "in"]])
        >>> graph = labeler.graph({"features": X[1][0], "edges": X[1][1], "names": ["a", "b"]})
        >>> graph.condition({"a": 0}).map().labels
        array([0, 0])
        """
        names = x.get("names") if isinstance(x, dict) else None
        graph: FactorGraph = next(self._graphs(self._new_data([x])))
        scale = 1.0 if self.loss == "hinge" else float(self.gamma)
        return FactorGraph.from_structure(graph.structure, graph.tables / scale).with_names(names)

    def predict_marginals(self, X: Any, method: str | None = None, **options: Any) -> list[Any]:
        """Probabilities (or relaxed beliefs) of the labels of every node.

        Returns
        -------
        list of arrays (nodes, labels)
            With node types: lists of arrays, as types may differ in their labels.
        """
        data = self._new_data(X)
        beliefs = self._beliefs(data, method, **options)
        cards = np.asarray(self.model_.cardinalities, dtype=np.int64)[data.node_types]
        starts = offsets_of(cards)
        parts = as_lists(beliefs, starts[data.node_offsets])
        if len(self.labels_) == 1:
            return [part.reshape(-1, len(self.labels_[0])) for part in parts]
        ends = [starts[a : b + 1] - starts[a] for a, b in _pairs(data.node_offsets)]
        return [as_lists(part, end) for part, end in zip(parts, ends, strict=True)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of nodes with the right label, each with the weight of its example."""
        data = self._new_data(X)
        flat = self._flat(y, data)
        given = self._decode(self._labels(data, None), data)
        weights = check_sample_weight(sample_weight, len(data))
        right = [a == b for a, b in zip(flat, given, strict=True)]
        return float(np.average(right, weights=np.repeat(weights, np.diff(data.node_offsets))))

    def unary(self, node_type: int = 0) -> Floats:
        """(features, labels) weights of the nodes; the last row is the intercept."""
        return self.model_.unary(self.coef_, node_type)

    def tables(self, pair: int = 0) -> Floats:
        """(edge features, labels, labels) weights of the edges."""
        return self.model_.tables(self.coef_, pair)

    def _sections(self, X: Any, y: Any) -> list[Any]:
        from cliquewise.estimators._output_reports import node_sections

        return node_sections(self, X, y)

    def _to_file(self) -> tuple[Arrays, Header]:
        arrays, header = super()._to_file()
        classes = [plain_classes(labels.classes) for labels in self.labels_]
        header = {**header, "state": {"classes": classes}}
        return arrays, header | saved_weights(self.class_weight, classes[0])

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        super()._from_file(arrays, header)
        self.labels_ = [listed_classes(classes) for classes in header["state"]["classes"]]
        if [len(labels) for labels in self.labels_] != list(self.model_.cardinalities):
            raise DataError("its classes do not fit the model")
        n = len(self.labels_)
        if n == 0 or len(self.model_.pair_list) != n * (n + 1) // 2:
            raise DataError("its pairs of node types are not all there are")
        self._name_classes()
        if "class_weight" in header:
            given = listed_weights(header["class_weight"], self.labels_[0].classes)
            self.class_weight = given


def _in_line(labels: Any) -> Any:
    """Labels of the pixels of an image, row by row."""
    is_image = isinstance(labels, np.ndarray) and labels.ndim == 2
    return labels.ravel() if is_image else labels


def _pairs(offsets: Any) -> list[tuple[int, int]]:
    return list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
