"""GraphLabeler: label the nodes of graphs with a pairwise conditional random field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.graphs import GraphDataset
from cliquewise.data.labels import Labelings, Labels
from cliquewise.data.node_labels import flat_labels, warn_of_negative_labels
from cliquewise.errors import DataError
from cliquewise.estimators._base import Estimator, rollback_on_error
from cliquewise.estimators._costs import costs_of, saved_cost
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
from cliquewise.estimators.graph_predictor import GraphPredictor, split_flat
from cliquewise.estimators.parameters import GraphLabelerParameters
from cliquewise.estimators.results import (
    Labeling,
    NodeMarginals,
    standard_errors,
    warn_of_inexact,
)
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.oracles.results import MarginalResult
from cliquewise.problems.graph import GraphProblem
from cliquewise.ragged import Floats, Ints, offsets_of
from cliquewise.report.blocks import Block
from cliquewise.solvers.registry import get


@dataclass(eq=False, repr=False)
class GraphLabeler(GraphLabelerParameters, Estimator):
    """Label the nodes of graphs with a pairwise model.

    Parameters
    ----------
    loss : {"log", "softmax_margin", "hinge"}, default="log"
        Negative log-likelihood; the same with the costs of wrong labels added to the scores; or
        the structural hinge loss.
    C : float, default=1.0
        Weight of the sum of the losses relative to the penalty, ``1/2 ||w||^2`` or, with
        ``l1_ratio``, an elastic net as in :class:`SequenceTagger`.
    gamma : float, default=1.0
        Temperature: the weight of the entropy. Small values approach max-margin training.
    pairwise : {"table", "symmetric", "potts"}, default="table"
        Weights of an edge: a full table, in which the order of the ends matters; a symmetric
        table; or one weight for equal labels.
    entropy : {"gini", "gini-otrw"}, default="gini"
        Entropy of the relaxed problem that solvers on the local polytope minimize.
    epsilon : float, default=0.9
        See :class:`~cliquewise.problems.graph.GraphProblem`.
    class_weight : dict or "balanced", optional
        Weight of each class. The loss of an example is multiplied by the mean over its nodes. To
        weight single nodes, use ``cost`` or ``fit(node_weight=)`` with ``loss="hinge"`` or
        ``"softmax_margin"``.
    cost : dict or (K, K) array, optional
        Cost of a wrong label in ``softmax_margin`` and ``hinge``, as in
        :class:`SequenceTagger`; ``fit(node_weight=)`` multiplies the costs of a node.
    solver : str or Solver, default="auto"
        ``idal``, ``relaxed_lbfgs``, ``gdmm``, ``soft_sdca``, ``soft_bcfw``: relaxed training on
        the local polytope, for any graph. ``sdca``, ``lbfgs``: exact inference, for graphs of
        small treewidth. ``bcfw``, ``subgradient``: structural SVMs (``loss="hinge"``) through MAP
        calls; ``casimir``, ``svrg``: through the K best labelings, where an exact method finds
        them. ``auto`` compares estimated costs: ``bcfw`` for most structural SVMs, ``lbfgs`` where
        exact inference is cheap (trees and narrow graphs), and elsewhere ``idal`` (structural
        SVMs: ``relaxed_lbfgs``).
    inference : str, default="auto"
        How ``map`` and ``predict`` find labelings. ``auto`` tries inexpensive methods in order of
        cost until one proves its labeling, and otherwise returns the best labeling that any of
        them found. ``relaxed`` rounds the relaxation; other names are methods of
        :meth:`FactorGraph.map`. For marginals, see :meth:`marginals`.
    ignore_label : optional
        Label that marks nodes without a label, such as -1. None, NaN and masked entries of ``y``
        always do.
    tol, max_epochs, max_seconds, max_memory, random_state, verbose
        As in :class:`~cliquewise.SequenceTagger`.
    intercept : bool, default=True
        Adds a constant feature to nodes, and to edges that have features.

    Attributes
    ----------
    classes_ : list, or dict of lists
        The labels; by node type if the nodes have types.
    certificate_, trace_, coef_
        The certificate of training, its course, and the weights; ``trace_.disagreement`` is
        ``||A mu||^2``.
    predictor_ : GraphPredictor
        The trained model, which predicts without scikit-learn.

    Examples
    --------
    >>> import cliquewise as cw
    >>> X = [([[2.0], [1.5], [-1.0]], [(0, 1), (1, 2)]), ([[-2.0], [3.0]], [(0, 1)])]
    >>> y = [["in", "in", "out"], ["out", "in"]]
    >>> labeler = cw.GraphLabeler(random_state=0).fit(X, y)
    >>> [labels.tolist() for labels in labeler.predict(X)]
    [['in', 'in', 'out'], ['out', 'in']]
    >>> [result.exact for result in labeler.map(X)]
    [True, True]
    """

    # ---- training

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
            One label per node; H x W arrays for the pixels of images. Nodes may be unlabeled: None,
            NaN, a masked entry of a masked array, or ``ignore_label``. The loss of an example is
            then that of the subgraph on its labeled nodes, which stays convex.
        sample_weight : (n_examples,), optional
            Weight of each example's loss.
        node_weight : list of sequences of numbers, optional
            Factors of the costs of wrong labels, node by node (losses ``softmax_margin`` and
            ``hinge``).
        """
        self._check_parameters()
        data, labels, labeled = self._encode_training(X, y)
        model = PairwiseModel(
            [len(one) for one in labels], data.features.shape[1],
            0 if data.edge_features is None else data.edge_features.shape[1],
            self.pairwise, self.intercept,
        )  # fmt: skip
        weights = self._example_weights(sample_weight, data, labels)
        costs = self._costs(node_weight, data, labels, labeled)
        problem = GraphProblem(
            model, data, self.C, self.loss, self.gamma, self.entropy, self.epsilon, costs, weights
        )
        fit = self._train(problem)
        relaxed = problem.kind in get(self.solver_, problem.kind).capabilities.relaxed_on
        self._set_fitted(labels, GraphPredictor(model, fit.weights, relaxed=relaxed, **self._view))
        return self

    @property
    def _view(self) -> dict[str, Any]:
        """The parameters that a :class:`GraphPredictor` needs."""
        names = ("loss", "gamma", "entropy", "epsilon")
        return {name: getattr(self, name) for name in names}

    def _set_fitted(self, labels: list[Labels], predictor: GraphPredictor) -> None:
        self.labels_, self.predictor_ = labels, predictor
        self.n_features_in_ = predictor.model.n_features
        classes = [one.classes for one in labels]
        self.classes_: Any = classes[0] if len(classes) == 1 else dict(enumerate(classes))

    def _encode_training(
        self, X: Any, y: Any
    ) -> tuple[GraphDataset, list[Labels], NDArray[np.bool_]]:
        """Return the labeled subgraphs, the labels by node type, and which nodes are labeled."""
        data = self._dataset(X)
        if len(data) == 0 or data.n_nodes == 0:
            raise DataError("training needs at least one example with a node")
        flat, labeled = flat_labels(listed(y, "y"), data, self.ignore_label)
        types = data.node_types
        n_types = int(types.max()) + 1
        labels = [Labels.fit([flat[(types == t) & labeled]]) for t in range(n_types)]
        for t, one in enumerate(labels):
            if not len(one):
                message = "no node has a label" if n_types == 1 else f"no labeled node has type {t}"
                raise DataError(f"{message}; number node types without gaps, and label some nodes")
            warn_of_negative_labels(one.classes)
        if not labeled.all():
            data, flat = data.induced(labeled), flat[labeled]
        return data.with_labels(_encode(flat, data, labels)), labels, labeled

    def _example_weights(
        self, sample_weight: Any, data: GraphDataset, labels: list[Labels]
    ) -> Floats:
        """Return ``sample_weight`` times the mean class weight of the nodes of each example."""
        weights = check_sample_weight(sample_weight, len(data))
        if self.class_weight is None:
            return weights
        if len(labels) > 1:
            raise DataError("class_weight does not work with node types; use sample_weight")
        assert data.labels is not None
        per_class = class_weights(self.class_weight, labels[0].classes, data.labels)
        return weights * mean_by_example(per_class[data.labels], data.node_offsets)

    def _costs(
        self,
        node_weight: Any,
        data: GraphDataset,
        labels: list[Labels],
        labeled: NDArray[np.bool_],
    ) -> Floats | None:
        """Return the cost of every label at every node, flat; None if a wrong label costs 1."""
        if len(labels) > 1 and not (self.cost is None and node_weight is None):
            raise DataError("cost and node_weight do not work with node types; use sample_weight")
        if node_weight is not None and not isinstance(node_weight, str):
            node_weight = _labeled_parts(listed(node_weight, "node_weight"), labeled)
        costs = costs_of(
            self.loss, self.cost, node_weight, labels[0].classes, data.labels, data.node_offsets,
            "node_weight",
        )  # fmt: skip
        return None if costs is None else costs.ravel()

    # ---- the fitted model

    @property
    def coef_(self) -> Floats:
        """All weights; ``unary()`` and ``tables()`` return them in shape."""
        return self._fitted.weights

    @property
    def model_(self) -> PairwiseModel:
        """The layout of the weights."""
        return self._fitted.model

    @property
    def relaxed_(self) -> bool:
        """Whether training minimized the relaxed objective, on the local polytope."""
        return self._fitted.relaxed

    @property
    def _fitted(self) -> GraphPredictor:
        try:
            found: GraphPredictor = self.__dict__["predictor_"]
        except KeyError:
            raise AttributeError("the labeler is not fitted") from None
        return found

    def _dataset(self, X: Any) -> GraphDataset:
        if isinstance(X, GraphDataset):
            return X
        if isinstance(X, np.ndarray):
            raise DataError(
                "X must be a list of examples, each (node_features, edges[, edge_features[, "
                "types]]) or a dict"
            )
        return GraphDataset.from_examples(listed(X, "X"))

    def _new_data(self, X: Any) -> GraphDataset:
        check_is_fitted(self, "predictor_")
        return self._dataset(X)

    # ---- prediction

    def map(self, X: Any, method: str | None = None, **options: Any) -> list[Labeling]:
        """Return the best labeling of every example with its score, upper bound and proof.

        Parameters
        ----------
        X : list of examples
        method : str, optional
            Overrides ``inference``.
        **options
            Of the method.

        Returns
        -------
        list of Labeling
            With the attributes ``labels``, ``score``, ``bound``, ``exact`` and ``method``.

        Examples
        --------
        >>> import cliquewise as cw
        >>> X = [([[2.0], [1.5], [-1.0]], [(0, 1), (1, 2)])]
        >>> labeler = cw.GraphLabeler(random_state=0).fit(X, [["in", "in", "out"]])
        >>> result = labeler.map(X)[0]
        >>> result.labels.tolist(), result.exact, result.gap
        (['in', 'in', 'out'], True, 0.0)
        """
        data = self._new_data(X)
        found = self.predictor_.map(data, self.inference if method is None else method, **options)
        numbers = np.concatenate([np.empty(0, dtype=np.int64), *(one.labels for one in found)])
        parts = split_flat(_decode(numbers, data, self.labels_), data.node_offsets)
        return [
            Labeling(labels, one.score, one.upper_bound, one.exact, one.method)
            for labels, one in zip(parts, found, strict=True)
        ]

    def predict(self, X: Any, method: str | None = None, **options: Any) -> list[NDArray[Any]]:
        """Return the labels of the nodes of every example.

        :meth:`map` also returns scores, bounds, and whether each labeling is proven optimal.

        Parameters
        ----------
        X : list of examples
        method : str, optional
            Overrides ``inference``.
        **options
            Of the method.
        """
        return Labelings([result.labels for result in self.map(X, method, **options)])

    def graph(self, x: Any) -> FactorGraph:
        """Return one example as a factor graph with the distribution of the trained model.

        Its variables are the nodes, its states the positions in ``classes_`` (of the node's
        type); the key ``names`` of a dict names the variables. Scores are divided by ``gamma``,
        so its marginals are those of the model.

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
        graph: FactorGraph = next(self.predictor_.distributions(self._new_data([x])))
        return graph.with_names(names)

    def marginals(self, X: Any, method: str | None = None, **options: Any) -> list[NodeMarginals]:
        """Return the marginal probabilities of every example's nodes, with flags and bounds.

        Parameters
        ----------
        X : list of examples
        method : str, optional
            A method of :meth:`FactorGraph.marginals`; ``auto`` (the default) is exact where that
            is inexpensive, and otherwise an estimate with bounds. ``relaxed`` gives the beliefs of
            the relaxation, which are not probabilities of the model.
        **options
            Of the method.

        Returns
        -------
        list of NodeMarginals
            With the attributes ``probabilities``, ``exact``, ``method``, ``log_z``,
            ``log_z_bounds`` and ``standard_errors``.

        Examples
        --------
        >>> import cliquewise as cw
        >>> X = [([[2.0], [1.5], [-1.0]], [(0, 1), (1, 2)])]
        >>> labeler = cw.GraphLabeler(random_state=0).fit(X, [["in", "in", "out"]])
        >>> result = labeler.marginals(X)[0]
        >>> result.probabilities.shape, result.exact
        ((3, 2), True)
        """
        data = self._new_data(X)
        chosen = "auto" if method is None else method
        found = self.predictor_.marginals(data, chosen, **options)
        cards = np.asarray(self.model_.cardinalities, dtype=np.int64)[data.node_types]
        ends = [cards[a:b] for a, b in zip(data.node_offsets, data.node_offsets[1:], strict=False)]
        return [self._node_marginals(one, sizes) for one, sizes in zip(found, ends, strict=True)]

    def _node_marginals(self, found: MarginalResult, cards: Ints) -> NodeMarginals:
        errors = standard_errors(found)
        return NodeMarginals(
            self._in_shape(found.nodes.flat, cards),
            found.exact,
            found.method,
            found.log_z,
            found.log_z_bounds,
            None if errors is None else self._in_shape(errors, cards),
        )

    def _in_shape(self, flat: Floats, cards: Ints) -> Any:
        """Numbers of all states of all nodes as an array (nodes, labels), or a list with types."""
        if len(self.labels_) == 1:
            return flat.reshape(-1, len(self.labels_[0]))
        return split_flat(flat, offsets_of(cards))

    def predict_marginals(self, X: Any, method: str | None = None, **options: Any) -> list[Any]:
        """Return the probabilities of the labels of every node.

        :meth:`marginals` also returns flags and bounds. If probabilities are not exact, and
        ``method`` is not given, an :class:`~cliquewise.errors.InexactWarning` is issued.

        Returns
        -------
        list of arrays (nodes, labels)
            With node types: lists of arrays, because the types may have different labels.
        """
        found = self.marginals(X, method, **options)
        if method is None:
            exact = np.array([one.exact for one in found], dtype=bool)
            methods = {one.method for one in found if not one.exact}
            warn_of_inexact(exact, methods, "marginals(X)")
        return [one.probabilities for one in found]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of labeled nodes with the right label, weighted by example."""
        data = self._new_data(X)
        flat, labeled = flat_labels(listed(y, "y"), data, self.ignore_label)
        predicted = np.concatenate([np.empty(0, dtype=object), *self.predict(data)])
        weights = check_sample_weight(sample_weight, len(data))
        by_node = np.repeat(weights, np.diff(data.node_offsets)) * labeled
        right = [a == b for a, b in zip(flat, predicted, strict=True)]
        return float(np.average(right, weights=by_node))

    def unary(self, node_type: int = 0) -> Floats:
        """Return the (features, labels) weights of nodes; the last row is the intercept."""
        return self.model_.unary(self.coef_, node_type)

    def tables(self, pair: int = 0) -> Floats:
        """Return the (edge features, labels, labels) weights of edges."""
        return self.model_.tables(self.coef_, pair)

    # ---- reports and files

    def _sections(self, X: Any, y: Any) -> list[Block]:
        from cliquewise.estimators._output_reports import node_sections

        return node_sections(self, X, y)

    def _parameters_to_save(self) -> dict[str, Any]:
        classes = self.labels_[0].classes
        return super()._parameters_to_save() | saved_cost(self.cost, classes)

    def _to_file(self) -> tuple[Arrays, Header]:
        arrays, header = self.predictor_.to_file()
        classes = [plain_classes(labels.classes) for labels in self.labels_]
        header = {**header, "state": {"classes": classes}}
        return arrays, header | saved_weights(self.class_weight, classes[0])

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        predictor = GraphPredictor.from_file(arrays, header, self.solver_, **self._view)
        labels = [listed_classes(classes) for classes in header["state"]["classes"]]
        if [len(one) for one in labels] != list(predictor.model.cardinalities):
            raise DataError("its classes do not fit the model")
        n = len(labels)
        if n == 0 or len(predictor.model.pair_list) != n * (n + 1) // 2:
            raise DataError("some pairs of its node types are missing")
        self._set_fitted(labels, predictor)
        if "class_weight" in header:
            self.class_weight = listed_weights(header["class_weight"], labels[0].classes)


def _encode(flat: NDArray[Any], data: GraphDataset, labels: Sequence[Labels]) -> Ints:
    """Return the numbers of the labels of all nodes."""
    numbers = np.empty(data.n_nodes, dtype=np.int64)
    for t, one in enumerate(labels):
        at = np.flatnonzero(data.node_types == t)
        numbers[at] = one.encode([flat[at].tolist()], [0, len(at)], unknown=-1)[0]
    if len(numbers) and numbers.min() < 0:
        first = int(np.argmin(numbers))
        raise DataError(
            f"{data.place(first)}: label {flat[first]!r} is not a single class; a node has one "
            "label or none"
        )
    return numbers


def _decode(numbers: Ints, data: GraphDataset, labels: Sequence[Labels]) -> NDArray[Any]:
    """Return the labels of all nodes from their numbers."""
    classes = [label for one in labels for label in one.classes]
    if len({type(c) for c in classes}) == 1:
        table = np.array(classes)
    else:
        table = np.empty(len(classes), dtype=object)
        table[:] = classes
    starts = offsets_of([len(one) for one in labels])
    return np.asarray(table[starts[data.node_types] + numbers])


def _labeled_parts(parts: Iterable[Any], labeled: NDArray[np.bool_]) -> list[NDArray[Any]]:
    """Return the numbers of the labeled nodes of each example; images row by row."""
    arrays = [np.asarray(part).ravel() for part in parts]
    sizes = [len(array) for array in arrays]
    if sum(sizes) != len(labeled):  # the check of the costs reports which example is wrong
        return arrays
    return [a[m] for a, m in zip(arrays, split_flat(labeled, offsets_of(sizes)), strict=True)]
