"""MultiLabelClassifier: sets of labels per row, with a table for every pair of labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.graphs import GraphDataset
from cliquewise.data.label_sets import LabelSets, restored
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._base import rollback_on_error
from cliquewise.estimators._graphs import GraphEstimator
from cliquewise.estimators._inputs import check_sample_weight, checked_rows, threads
from cliquewise.estimators._label_choice import Choice, Validation, decide
from cliquewise.estimators._stored import Arrays, Header
from cliquewise.estimators.parameters import MultiLabelParameters, check_integer
from cliquewise.models.label_sets import (
    check_size,
    label_pairs,
    multilabel_data,
    multilabel_model,
    row_bytes,
)
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.oracles.label_rows import LabelRows, is_narrow
from cliquewise.oracles.relaxed_label_sets import relaxed_labels
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.label_graph import Features, LabelGraphProblem, LabelsProblem
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.base import accepts


class Rows(NamedTuple):
    """What is learned from."""

    X: Any
    Y: Any
    weights: Floats


@dataclass(eq=False, repr=False)
class MultiLabelClassifier(ClassifierMixin, MultiLabelParameters, GraphEstimator):  # type: ignore[misc]
    """Multilabel classification with dependent labels, after Finley and Joachims (2008).

    Parameters
    ----------
    loss, gamma, entropy, epsilon, solver, inference
        As in :class:`~cliquewise.GraphLabeler`. Where the pairs leave exact inference cheap (a
        tree, some cycles, no pairs at all), training is exact unless ``solver`` says otherwise.
    C : float or "auto", default="auto"
        Weight of the sum of the losses against the penalty, ``1/2 ||w||^2`` or, with
        ``l1_ratio``, an elastic net as in :class:`SequenceTagger`. ``auto`` takes what predicts
        rows best that are held out for it (without an L1 part).
    label_graph : {"auto", "none", "tree", "complete"}, int or pairs of labels, default="auto"
        The pairs of labels that have a table. ``auto`` takes those whose errors go together on
        held-out rows, if these then gain beyond noise, else none. ``none`` makes the labels
        independent: one logistic regression each. ``tree`` is the spanning tree of largest mutual
        information between labels, a number that many pairs of largest mutual information.
        ``complete`` has all pairs, and is trained on the local polytope; with hundreds of labels
        it is refused for want of memory. Pairs of labels are numbers or names.
    pairs : {"table", "co-occurrence"}, default="table"
        What a pair of labels has: a 2 x 2 table, or one weight for both being on. The second
        says as much with fewer weights, and ``loss="hinge"`` with ``solver="gdmm"`` then trains
        on hundreds of labels, all of them interacting, in memory and time that do not grow with
        the pairs.
    tol, max_epochs, max_seconds, max_memory, random_state, verbose
        As in :class:`~cliquewise.SequenceTagger`.
    intercept : bool, default=True
    n_jobs : int, default=-1
        Threads; -1 are all there are.

    Attributes
    ----------
    n_labels_ : int
    C_ : float
        C, given or chosen.
    label_graph_ : list of pairs
        The pairs that have a table, by name where labels have names.
    label_choice_ : str
        What held-out rows said about C and the pairs, in a sentence; empty if both were given.
    calibration_ : (float, float, float)
        A scale and a shift of all labels' scores and a scale of the tables that held-out rows
        asked for; prediction uses them, ``coef_`` is without.
    threshold_ : float
        A label is predicted from this chance on.
    label_names_ : list of str or None
        Their names, where ``y`` had some.
    coef_ : ndarray
        All weights; ``unary(l)`` and ``table(i, j)`` pick out those of labels, by number or name.
    certificate_, trace_
        What was proved, and how it went.

    Examples
    --------
    >>> import cliquewise as cw
    >>> X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    >>> Y = [[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]]
    >>> classifier = cw.MultiLabelClassifier(C=10.0, random_state=0).fit(X, Y)
    >>> classifier.predict([[1.0, 0.1]]).tolist()
    [[1, 0, 1]]
    """

    @rollback_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MultiLabelClassifier:
        """Train.

        Parameters
        ----------
        X : (n, d), dense or sparse
        y : (n, L) of 0 and 1, or a list with the names of the labels of every row
            A data frame's columns are the names. From lists of names, ``predict`` gives such
            lists.
        sample_weight : array (n,), optional
            One weight per row for its loss.
        """
        self._check_parameters()
        X = checked_rows(self, X, True)
        labels, targets = LabelSets.fit(y)
        if targets.shape[0] != X.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and y has {targets.shape[0]}")
        self.n_labels_ = labels.n_labels
        self._set_labels(labels)
        self.classes_ = [np.array([0, 1])] * self.n_labels_
        if self.pairs not in ("table", "co-occurrence"):
            raise DataError(f'pairs is "table" or "co-occurrence", not {self.pairs!r}')
        weights = check_sample_weight(sample_weight, X.shape[0])
        rows = Rows(X, targets, weights)
        choice = self._choose(rows)
        self.C_, self.calibration_, self.threshold_ = choice.C, choice.calibration, choice.cut
        self.label_choice_ = choice.reason
        pairs = choice.pairs
        model = multilabel_model(self.n_labels_, X.shape[1], pairs, self.intercept, self.pairs)
        problem = self._exact_problem(rows, pairs, choice.C)
        if problem is None:
            problem = self._graph_problem(rows, pairs, choice.C, model)
        self._fit_problem(problem, model, choice.start)
        return self

    # ---- which problem

    def _choose(self, rows: Rows) -> Choice:
        """C and the pairs, given or by what held-out rows say."""
        C = None if isinstance(self.C, str) else float(self.C)
        pairs, n = None, self.n_labels_
        graph = self._labels_of_rows.numbers(self.label_graph)
        if isinstance(graph, str) and graph == "auto":
            # What gdmm never lists it need not be spared.
            everything = self.loss == "hinge" and self.pairs == "co-occurrence"
            pairs = label_pairs(n) if everything else None
        else:
            pairs = label_pairs(n, graph, rows.Y)
        if C is not None and pairs is not None:
            return Choice(C, pairs)
        if pairs is not None:
            exact = self._exact_problem(rows, pairs, 1.0) is not None
        else:
            exact = self.loss != "hinge"
        rng = np.random.default_rng(0 if self.random_state is None else self.random_state)
        validation = Validation(self._part_of(rows), rows.Y, rows.weights, rng, self.intercept)
        choice = decide(validation, C, pairs, exact)
        return choice if exact else Choice(choice.C, choice.pairs, reason=choice.reason)

    def _part_of(self, rows: Rows) -> Any:
        """Problems of some rows and labels, for the choice; structural SVMs by their likelihood."""
        loss = "log" if self.loss == "hinge" else self.loss

        def make(at: Any, labels: Any, pairs: Any, C: float) -> LabelGraphProblem:
            kind = LabelGraphProblem if len(pairs) else LabelsProblem
            return kind(
                rows.X[at], rows.Y[at][:, labels], pairs, C, loss, self.gamma, self.intercept,
                self.pairs, rows.weights[at], threads(self.n_jobs),
            )  # fmt: skip

        return make

    def _exact_problem(self, rows: Rows, pairs: Any, C: float) -> LabelGraphProblem | None:
        """Where the graph is narrow, and the solver agrees: one plan for all rows."""
        complete = isinstance(self.label_graph, str) and self.label_graph == "complete"
        automatic = isinstance(self.solver, str) and self.solver == "auto"
        relaxes = self.entropy != "gini" or (complete and automatic)
        if self.loss == "hinge" or relaxes or not is_narrow(self.n_labels_, pairs):
            return None
        for kind in (LabelGraphProblem,) if len(pairs) else (LabelsProblem, LabelGraphProblem):
            problem = kind(
                rows.X, rows.Y, pairs, C, self.loss, self.gamma, self.intercept, self.pairs,
                rows.weights, threads(self.n_jobs),
            )  # fmt: skip
            if accepts(problem.elastic(self.l1_ratio), self.solver):
                return problem
        return None

    def _graph_problem(self, rows: Rows, pairs: Any, C: float, model: PairwiseModel) -> Any:
        """All others: the pairs of every row listed, unless gdmm can do without."""
        problem = self._sparse_problem(rows, pairs, C)
        if problem is not None:
            if np.ptp(rows.weights) > 0 or rows.weights.max(initial=1.0) != 1.0:
                raise UnsupportedError(
                    'pairs="co-occurrence" with gdmm takes no sample_weight; use pairs="table"'
                )
            return problem
        check_size(rows.X.shape[0], self.n_labels_, pairs, self.max_memory)
        data = multilabel_data(csr_matrix(rows.X), self.n_labels_, pairs, rows.Y)
        return GraphProblem(
            model, data, C, self.loss, self.gamma, self.entropy, self.epsilon,
            weights=rows.weights,
        )  # fmt: skip

    def _set_labels(self, labels: LabelSets) -> None:
        self._labels_of_rows = labels
        self.label_names_ = None if labels.names is None else list(labels.names)

    def _sparse_problem(self, rows: Rows, pairs: Any, C: float) -> MultiLabelProblem | None:
        """The problem that never lists the pairs of a row, where model and solver allow it."""
        n = self.n_labels_
        if self.loss != "hinge" or self.pairs == "table" or len(pairs) != n * (n - 1) // 2:
            return None
        problem = MultiLabelProblem(csr_matrix(rows.X), rows.Y, C, self.intercept)
        return problem if accepts(problem, self.solver) else None

    @property
    def label_graph_(self) -> list[tuple[Any, Any]]:
        """The pairs of labels that have a table."""
        check_is_fitted(self, "coef_")
        names = self.label_names_ or range(self.n_labels_)
        return [(names[i], names[j]) for i, j in self.model_.pair_list.tolist()]

    # ---- prediction

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self, "coef_")
        return checked_rows(self, X, False)

    @property
    def _calibrated(self) -> Floats:
        """The trained weights, calibrated."""
        scale, shift, tables = self.calibration_
        columns = self.model_.node_columns
        w = tables * self.coef_
        unary = w[: 2 * self.n_labels_ * columns].reshape(self.n_labels_, columns, 2)
        unary[:] = scale * self.coef_[: unary.size].reshape(unary.shape)
        if self.model_.intercept:
            unary[:, -1] += [-0.5 * shift, 0.5 * shift]
        return w

    def _scores(self, X: Any) -> tuple[LabelRows, Floats, Floats]:
        """Inference for all rows, their scores of being on, and the tables of the pairs."""
        model, w = self.model_, self._calibrated
        unary = w[: 2 * self.n_labels_ * model.node_columns].reshape(self.n_labels_, -1, 2)
        on = Features(X, model.intercept).scores((unary[:, :, 1] - unary[:, :, 0]).T)
        tables = [model.tables(w, k).reshape(-1) for k in range(len(model.pair_list))]
        stacked = np.array(tables).reshape(-1, 4)
        return LabelRows(self.n_labels_, model.pair_list), on, stacked

    def _at_once(self, method: str | None, options: dict[str, Any]) -> bool:
        """Whether the rows can be done together."""
        named = self._method(method) in ("auto", "tree", "junction-tree")
        return named and not options and is_narrow(self.n_labels_, self.model_.pair_list)

    def _chances(self, rows: LabelRows, on: Floats, tables: Floats) -> Floats:
        gamma = float(self.gamma)
        return rows.marginals(on / gamma, tables / gamma, np.ones(len(on)))[1]

    def _together(self, matrix: Any, method: str | None) -> Any:
        """Labels by their chances, or the best sets where a method was named."""
        rows, on, tables = self._scores(matrix)
        if self._method(method) != "auto" or self.loss == "hinge":
            return rows.best(on, tables)
        return (self._chances(rows, on, tables) > self.threshold_).astype(np.int64)

    def _parts(self, X: csr_matrix) -> Iterator[GraphDataset]:
        """The rows as graphs, in as many parts as ``max_memory`` asks for."""
        pairs = self.model_.pair_list
        size = max(1, int(self.max_memory * 2**30 / row_bytes(self.n_labels_, pairs)))
        for first in range(0, X.shape[0], size):
            yield multilabel_data(X[first : first + size], self.n_labels_, pairs)

    def _sparse_beliefs(self, X: csr_matrix, method: str | None) -> Floats | None:
        """Beliefs without a list of pairs, where the model allows that."""
        n = self.n_labels_
        if self._method(method) != "relaxed" or self.loss != "hinge":
            return None
        if self.model_.pairwise != "co-occurrence":
            return None
        if not np.array_equal(self.model_.pair_list, label_pairs(n)):
            return None
        return relaxed_labels(X, self.coef_, n, intercept=self.model_.intercept)[0]

    def predict(self, X: Any, method: str | None = None, **options: Any) -> Any:
        """The labels of every row: (n, L) of 0 and 1, or lists of names if ``fit`` had such.

        Each label by its own chance: that gets most labels right, and the more the better the
        chances are. The most probable set of labels, which gets most sets right, is what any
        exact ``method`` gives.

        Parameters
        ----------
        X : (n, d)
        method : str, optional
            In place of ``inference``; ``"junction-tree"``, say, for the most probable sets.
        **options
            For the method.
        """
        matrix = self._checked(X)
        if self._at_once(method, options):
            return self._labels_of_rows.decode(self._together(matrix, method))
        rows = csr_matrix(matrix)
        beliefs = self._sparse_beliefs(rows, method)
        if beliefs is not None:
            return self._labels_of_rows.decode((beliefs > 0.5).astype(np.int64))
        found = [self._labels(part, method, **options) for part in self._parts(rows)]
        return self._labels_of_rows.decode(np.concatenate(found).reshape(-1, self.n_labels_))

    def predict_proba(self, X: Any, method: str | None = None, **options: Any) -> Floats:
        """Probability (or relaxed belief) of every label, (n, L)."""
        matrix = self._checked(X)
        if self.loss != "hinge" and self._at_once(method, options):
            return self._chances(*self._scores(matrix))
        rows = csr_matrix(matrix)
        sparse = self._sparse_beliefs(rows, method)
        if sparse is not None:
            return sparse
        beliefs = [self._beliefs(part, method, **options) for part in self._parts(rows)]
        return np.asarray(np.concatenate(beliefs).reshape(-1, self.n_labels_, 2)[:, :, 1])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows whose set of labels is right."""
        right = self._labels_of_rows.right(y, self.predict(X))
        return float(np.average(right, weights=check_sample_weight(sample_weight, len(right))))

    def unary(self, label: int | str) -> Floats:
        """(features, 2) weights of a label (a number or a name); the last row is the intercept."""
        check_is_fitted(self, "coef_")
        return self.model_.unary(self.coef_, self._labels_of_rows.number(label))

    def table(self, i: int | str, j: int | str) -> Floats:
        """(2, 2) scores of a pair of labels (numbers or names)."""
        check_is_fitted(self, "coef_")
        i, j = self._labels_of_rows.number(i), self._labels_of_rows.number(j)
        low, high = min(i, j), max(i, j)
        found = np.flatnonzero((self.model_.pair_list == [low, high]).all(axis=1))
        if not len(found):
            raise DataError(f"labels {i} and {j} have no table in the label graph")
        table = self.model_.tables(self.coef_, int(found[0]))[0]
        return np.asarray(table if i <= j else table.T)

    def _sections(self, X: Any, y: Any) -> list[Any]:
        from cliquewise.estimators._output_reports import set_sections

        return set_sections(self, X, y)

    def _to_file(self) -> tuple[Arrays, Header]:
        arrays, header = super()._to_file()
        labels = self._labels_of_rows
        state = {
            "n_labels": self.n_labels_,
            "names": self.label_names_,
            "as_lists": labels.as_lists,
            "C": self.C_,
            "calibration": list(self.calibration_),
            "threshold": self.threshold_,
            "choice": self.label_choice_,
        }
        return arrays, {**header, "state": state}

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        super()._from_file(arrays, header)
        model = self.model_
        state = header["state"]
        self.n_labels_ = check_integer(state["n_labels"], "its number of labels", 1)
        self._set_labels(restored(self.n_labels_, state.get("names"), state.get("as_lists")))
        if len(model.cardinalities) != self.n_labels_ or set(model.cardinalities) != {2}:
            raise DataError("its labels do not fit the model")
        if (model.pair_list[:, 0] == model.pair_list[:, 1]).any() or model.n_edge_features:
            raise DataError("its pairs of labels do not fit the model")
        self.classes_ = [np.array([0, 1])] * self.n_labels_
        self._set_choice(state)

    def _set_choice(self, state: dict[str, Any]) -> None:
        """What a file says of the choice; files of version 1 say nothing."""
        given = 1.0 if isinstance(self.C, str) else float(self.C)
        scale, shift, tables = (float(x) for x in state.get("calibration", (1.0, 0.0, 1.0)))
        self.C_, cut = float(state.get("C", given)), float(state.get("threshold", 0.5))
        sound = 0 < self.C_ < np.inf and 0 <= cut <= 1 and 0 <= scale <= 1e3 and 0 <= tables <= 1e3
        if not (sound and abs(shift) <= 1e3):
            raise DataError("its calibration is out of range")
        self.calibration_, self.threshold_ = (scale, shift, tables), cut
        self.label_choice_ = str(state.get("choice", ""))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags
