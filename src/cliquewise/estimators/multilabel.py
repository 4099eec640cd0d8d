"""MultiLabelClassifier: sets of labels per row, with a table for every pair of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.label_sets import LabelSets, restored
from cliquewise.errors import DataError, UnsupportedError, warn_user
from cliquewise.estimators._base import Estimator, rollback_on_error
from cliquewise.estimators._inputs import check_sample_weight, checked_rows, threads
from cliquewise.estimators._stored import Arrays, Header
from cliquewise.estimators.graph_predictor import GraphPredictor
from cliquewise.estimators.label_set_predictor import LabelSetPredictor
from cliquewise.estimators.label_set_selection import HoldOut, ProblemFactory, Selection, select
from cliquewise.estimators.parameters import MultiLabelParameters, check_integer
from cliquewise.estimators.results import LabelSetMarginals, LabelSetResult, warn_of_inexact
from cliquewise.models.label_sets import (
    check_size,
    label_pairs,
    multilabel_data,
    multilabel_model,
)
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.oracles.label_rows import is_narrow
from cliquewise.problems.base import Problem
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.label_graph import LabelGraphProblem, LabelsProblem
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.ragged import Floats, Ints
from cliquewise.report.blocks import Block
from cliquewise.solvers.base import Start
from cliquewise.solvers.planner import accepts
from cliquewise.solvers.registry import get


class Rows(NamedTuple):
    """Encoded training data: features, label sets as 0/1 matrix, and weights of the rows."""

    X: Any
    Y: NDArray[np.int64]
    weights: Floats


@dataclass(eq=False, repr=False)
class MultiLabelClassifier(ClassifierMixin, MultiLabelParameters, Estimator):  # type: ignore[misc]
    """Multilabel classification with dependent labels (Finley and Joachims, 2008).

    Parameters
    ----------
    loss, gamma, entropy, epsilon, solver, inference
        As in :class:`~cliquewise.GraphLabeler`. Where the pairs keep exact inference cheap (a
        tree, few cycles, no pairs at all), training is exact unless ``solver`` says otherwise.
    C : float or "auto", default="auto"
        Weight of the sum of the losses relative to the penalty, ``1/2 ||w||^2`` or, with
        ``l1_ratio``, an elastic net as in :class:`SequenceTagger`. ``auto`` selects C on held-out
        rows, by the one-standard-error rule (without an L1 part).
    label_graph : {"auto", "none", "tree", "complete"}, int or pairs of labels, default="auto"
        The pairs of labels that have a table. ``auto`` selects pairs with correlated errors on
        held-out rows, if they decrease the held-out loss by more than noise, and otherwise none.
        ``none`` makes the labels independent: one logistic regression each. ``tree`` is the
        spanning tree of largest mutual information between labels; a number is that many pairs of
        largest mutual information. ``complete`` has all pairs and is trained on the local
        polytope; with hundreds of labels it needs too much memory and is refused. Labels are
        numbers or names.
    pairs : {"table", "co-occurrence"}, default="table"
        Weights of a pair of labels: a 2 x 2 table, or one weight for both labels being on. The
        second expresses the same with fewer weights. With ``loss="hinge"`` and ``solver="gdmm"``
        it allows hundreds of labels that all interact, in memory and time that do not grow with
        the number of pairs.
    penalize_intercept : bool or "auto", default="auto"
        Whether intercepts are part of the penalty. ``auto`` leaves them out, as scikit-learn does,
        where training is exact by ``newton`` or ``lbfgs`` (not with ``l1_ratio``, with relaxed
        training, or on a cluster); ``intercept_is_penalized_`` tells. The certificate is that of
        the objective without these terms. A label that is always on, or always off, in training
        has no finite optimum without a penalty: its intercept is always penalized.
    calibrate : bool, default=False
        Fit a factor and an offset of all scores to held-out rows (``calibration_``) where C or
        the label graph is selected. Predictions use the calibrated scores; ``certificate_`` is
        that of the weights without calibration.
    tol, max_epochs, max_seconds, max_memory, random_state, verbose
        As in :class:`~cliquewise.SequenceTagger`.
    intercept : bool, default=True
    n_jobs : int, optional
        Number of threads; -1 uses all cores.

    Attributes
    ----------
    n_labels_ : int
    C_ : float
        C, given or selected.
    label_graph_ : list of pairs
        The pairs that have a table, by name where labels have names.
    selection_ : Selection
        What was selected on held-out rows and why: ``path`` has the values of C with their losses
        and standard errors, ``description`` the reasons.
    calibration_ : (float, float, float)
        Factor and offset of all scores, and factor of the tables; (1, 0, 1) without calibration.
    threshold_ : float
        A label is predicted if its probability is above it.
    intercept_is_penalized_ : bool
        Whether the penalty of the objective includes intercepts.
    label_names_ : list of str or None
        Names of the labels, if ``y`` has names.
    coef_ : ndarray (n_labels, n_features)
        Log-odds per unit of each feature, when other labels are ignored, as in scikit-learn.
    intercept_ : ndarray (n_labels,)
    weights_ : ndarray
        All weights; ``unary(l)`` and ``table(i, j)`` return those of labels, by number or name.
    certificate_, trace_
        The certificate of ``weights_``, and the course of training.
    predictor_ : LabelSetPredictor
        The trained model, which predicts without scikit-learn.

    Examples
    --------
    >>> import cliquewise as cw
    >>> X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    >>> Y = [[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]]
    >>> classifier = cw.MultiLabelClassifier(C=10.0, random_state=0).fit(X, Y)
    >>> classifier.predict([[1.0, 0.1]]).tolist()
    [[1, 0, 1]]
    """

    # ---- training

    @rollback_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MultiLabelClassifier:
        """Train.

        Parameters
        ----------
        X : (n, d), dense or sparse
        y : (n, L) of 0 and 1, or a list with the names of the labels of every row
            A data frame's columns are the names. From lists of names, ``predict`` returns such
            lists.
        sample_weight : array (n,), optional
            Weight of each row's loss.
        """
        self._check_parameters()
        labels, rows = self._encode(X, y, sample_weight)
        selection = self._select(labels, rows)
        model, problem = self._problem(rows, selection)
        start = None if selection.start is None else Start(selection.start)
        penalized = not isinstance(problem, LabelGraphProblem) or problem.penalize_intercept
        if self.penalize_intercept is False and self.intercept and penalized:
            raise UnsupportedError(
                "penalize_intercept=False needs exact training by newton or lbfgs without an L1 "
                'part: loss "log" or "softmax_margin", few pairs of labels, l1_ratio=0'
            )
        fit = self._train(problem, warm=start)
        self.intercept_is_penalized_ = bool(self.intercept and penalized)
        relaxed = problem.kind in get(self.solver_, problem.kind).capabilities.relaxed_on
        self._set_fitted(labels, model, fit.weights, relaxed, selection)
        return self

    @property
    def _has_free_intercept(self) -> bool:
        """Whether intercepts are left out of the penalty where the solver allows it."""
        return self.intercept and self.penalize_intercept in (False, "auto") and self.l1_ratio == 0

    def _encode(self, X: Any, y: Any, sample_weight: Any) -> tuple[LabelSets, Rows]:
        """Check and encode the training data."""
        X = checked_rows(self, X, True)
        labels, Y = LabelSets.fit(y)
        if Y.shape[0] != X.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and y has {Y.shape[0]}")
        if self.pairs not in ("table", "co-occurrence"):
            raise DataError(f'pairs is "table" or "co-occurrence", not {self.pairs!r}')
        return labels, Rows(X, Y, check_sample_weight(sample_weight, X.shape[0]))

    def _select(self, labels: LabelSets, rows: Rows) -> Selection:
        """Return C and the pairs: those given, and the others as selected on held-out rows."""
        C = None if isinstance(self.C, str) else float(self.C)
        pairs = self._given_pairs(labels, rows)
        if C is not None and pairs is not None:
            return Selection(C, pairs)
        if pairs is None:
            exact = self.loss != "hinge"
        else:
            exact = self._exact_problem(rows, pairs, 1.0) is not None
        rng = np.random.default_rng(0 if self.random_state is None else self.random_state)
        holdout = HoldOut(self._problem_factory(rows), rows.Y, rows.weights, rng, self.intercept)
        return select(holdout, C, pairs, exact=exact, calibrate=self.calibrate and exact)

    def _given_pairs(self, labels: LabelSets, rows: Rows) -> Ints | None:
        """Return the pairs of ``label_graph``; None if they are to be selected."""
        graph = labels.numbers(self.label_graph)
        if not (isinstance(graph, str) and graph == "auto"):
            return label_pairs(labels.n_labels, graph, rows.Y)
        # Solver gdmm never lists the pairs of a row, so that it can have them all.
        has_all = self.loss == "hinge" and self.pairs == "co-occurrence"
        return label_pairs(labels.n_labels) if has_all else None

    def _problem_factory(self, rows: Rows) -> ProblemFactory:
        """Return a function that builds problems of some rows and labels, for the selection.

        Structural SVMs are selected by their likelihood.
        """
        loss = "log" if self.loss == "hinge" else self.loss

        def make(at: Ints, labels: Ints | slice, pairs: Ints, C: float) -> LabelGraphProblem:
            kind = LabelGraphProblem if len(pairs) else LabelsProblem
            return kind(
                rows.X[at], rows.Y[at][:, labels], pairs, C, loss, self.gamma, self.intercept,
                self.pairs, rows.weights[at], threads(self.n_jobs), not self._has_free_intercept,
            )  # fmt: skip

        return make

    def _problem(self, rows: Rows, selection: Selection) -> tuple[PairwiseModel, Problem]:
        """Return the model and the first problem that the pairs and the solver allow.

        One exact plan for all rows if the graph is narrow; the hinge problem that never lists the
        pairs of a row; or the pairs of every row listed as a graph.
        """
        pairs, C = selection.pairs, selection.C
        n_labels = rows.Y.shape[1]
        model = multilabel_model(n_labels, rows.X.shape[1], pairs, self.intercept, self.pairs)
        problem = self._exact_problem(rows, pairs, C) or self._unlisted_problem(rows, pairs, C)
        if problem is not None:
            return model, problem
        check_size(rows.X.shape[0], n_labels, pairs, self.max_memory)
        data = multilabel_data(csr_matrix(rows.X), n_labels, pairs, rows.Y)
        return model, GraphProblem(
            model, data, C, self.loss, self.gamma, self.entropy, self.epsilon,
            weights=rows.weights,
        )  # fmt: skip

    def _exact_problem(self, rows: Rows, pairs: Ints, C: float) -> LabelGraphProblem | None:
        """Return the exact problem; None if the graph is not narrow or the solver differs."""
        complete = isinstance(self.label_graph, str) and self.label_graph == "complete"
        automatic = isinstance(self.solver, str) and self.solver == "auto"
        relaxes = self.entropy != "gini" or (complete and automatic)
        if self.loss == "hinge" or relaxes or not is_narrow(rows.Y.shape[1], pairs):
            return None
        for kind in (LabelGraphProblem,) if len(pairs) else (LabelsProblem, LabelGraphProblem):
            problem = kind(
                rows.X, rows.Y, pairs, C, self.loss, self.gamma, self.intercept, self.pairs,
                rows.weights, threads(self.n_jobs), not self._has_free_intercept,
            )  # fmt: skip
            if accepts(problem.elastic(self.l1_ratio), self.solver):
                return problem
        return None

    def _unlisted_problem(self, rows: Rows, pairs: Ints, C: float) -> MultiLabelProblem | None:
        """Return the problem that never lists the pairs of a row; None if it does not apply."""
        n = rows.Y.shape[1]
        if self.loss != "hinge" or self.pairs == "table" or len(pairs) != n * (n - 1) // 2:
            return None
        problem = MultiLabelProblem(csr_matrix(rows.X), rows.Y, C, self.intercept)
        if not accepts(problem, self.solver):
            return None
        if np.ptp(rows.weights) > 0 or rows.weights.max(initial=1.0) != 1.0:
            raise UnsupportedError(
                'pairs="co-occurrence" with gdmm takes no sample_weight; use pairs="table"'
            )
        return problem

    def _set_fitted(
        self,
        labels: LabelSets,
        model: PairwiseModel,
        weights: Floats,
        relaxed: bool,
        selection: Selection,
    ) -> None:
        names = ("loss", "gamma", "entropy", "epsilon")
        view: dict[str, Any] = {name: getattr(self, name) for name in names}
        trained = GraphPredictor(model, weights, relaxed=relaxed, **view)
        self._set_predictor(labels, trained, selection)

    def _set_predictor(
        self, labels: LabelSets, trained: GraphPredictor, selection: Selection
    ) -> None:
        self._label_sets, self.selection_ = labels, selection
        self.predictor_ = LabelSetPredictor(
            trained, selection.calibration, selection.threshold, float(self.max_memory)
        )
        self.n_labels_ = labels.n_labels
        self.n_features_in_ = trained.model.n_features
        self.label_names_ = None if labels.names is None else list(labels.names)
        # As in scikit-learn's OneVsRestClassifier: one entry per label.
        self.classes_ = np.arange(labels.n_labels)
        self.coef_, self.intercept_ = self.predictor_.coefficients()

    # ---- the fitted model

    @property
    def weights_(self) -> Floats:
        """All weights, which the certificate refers to."""
        return self._fitted.trained.weights

    @property
    def model_(self) -> PairwiseModel:
        """The layout of the weights."""
        return self._fitted.trained.model

    @property
    def relaxed_(self) -> bool:
        """Whether training minimized the relaxed objective, on the local polytope."""
        return self._fitted.trained.relaxed

    @property
    def C_(self) -> float:
        """C, given or selected."""
        self._fitted  # noqa: B018 - raises AttributeError where it should
        return self.selection_.C

    @property
    def calibration_(self) -> tuple[float, float, float]:
        """Factor and offset of all scores, and factor of the tables."""
        return self._fitted.calibration

    @property
    def threshold_(self) -> float:
        """A label is predicted if its probability is above it."""
        return self._fitted.threshold

    @property
    def label_choice_(self) -> str:
        """Deprecated: ``selection_.description``."""
        self._fitted  # noqa: B018 - raises AttributeError where it should
        warn_user("label_choice_ is deprecated; use selection_.description", FutureWarning)
        return self.selection_.description

    @property
    def label_graph_(self) -> list[tuple[Any, Any]]:
        """The pairs of labels that have a table."""
        names = self.label_names_ or range(self.n_labels_)
        return [(names[i], names[j]) for i, j in self.model_.pair_list.tolist()]

    @property
    def _fitted(self) -> LabelSetPredictor:
        try:
            found: LabelSetPredictor = self.__dict__["predictor_"]
        except KeyError:
            raise AttributeError("the classifier is not fitted") from None
        return found

    @property
    def n_nonzero_(self) -> int:
        """Number of weights that are not zero."""
        return int(np.count_nonzero(self.weights_))

    # ---- prediction

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self, "predictor_")
        return checked_rows(self, X, False)

    def _chosen(self, method: str | None) -> str:
        return str(self.inference) if method is None else method

    def map(self, X: Any, method: str | None = None, **options: Any) -> LabelSetResult:
        """Return the most probable set of labels of every row with its score, bound and proof.

        Parameters
        ----------
        X : (n, d)
        method : str, optional
            Overrides ``inference``.
        **options
            Of the method.

        Examples
        --------
        >>> import cliquewise as cw
        >>> X, Y = [[1.0], [-1.0]], [[1, 0], [0, 1]]
        >>> classifier = cw.MultiLabelClassifier(C=10.0, label_graph="none").fit(X, Y)
        >>> result = classifier.map([[2.0]])
        >>> result.labels.tolist(), result.exact.tolist()
        ([[1, 0]], [True])
        """
        matrix = self._checked(X)
        found = self.predictor_.map(matrix, self._chosen(method), **options)
        labels = self._label_sets.decode(np.asarray(found.labels))
        return LabelSetResult(labels, found.score, found.bound, found.exact, found.method)

    def predict(self, X: Any, method: str | None = None, **options: Any) -> Any:
        """Return the labels of every row: (n, L) of 0 and 1, or lists of names as in ``fit``.

        Each label is decided by its own probability, which gets most labels right. Any exact
        ``method`` gives the most probable set of labels, which gets most sets right; :meth:`map`
        returns it with its score and proof.

        Parameters
        ----------
        X : (n, d)
        method : str, optional
            Overrides ``inference``; ``"junction-tree"``, for example, for the most probable sets.
        **options
            Of the method.
        """
        matrix = self._checked(X)
        return self._label_sets.decode(
            self.predictor_.predict(matrix, self._chosen(method), **options)
        )

    def marginals(self, X: Any, method: str | None = None, **options: Any) -> LabelSetMarginals:
        """Return the probability of every label of every row, with flags and bounds.

        Parameters
        ----------
        X : (n, d)
        method : str, optional
            Overrides ``inference``.
        **options
            Of the method.

        Examples
        --------
        >>> import cliquewise as cw
        >>> X, Y = [[1.0], [-1.0]], [[1, 0], [0, 1]]
        >>> classifier = cw.MultiLabelClassifier(C=10.0, label_graph="none").fit(X, Y)
        >>> result = classifier.marginals(X)
        >>> result.probabilities.shape, result.exact.tolist()
        ((2, 2), [True, True])
        """
        matrix = self._checked(X)
        return self.predictor_.marginals(matrix, self._chosen(method), **options)

    def predict_proba(self, X: Any, method: str | None = None, **options: Any) -> Floats:
        """Return the probability of every label, (n, L).

        :meth:`marginals` also returns flags and bounds. If probabilities are not exact, and
        ``method`` is not given, an :class:`~cliquewise.errors.InexactWarning` is issued.
        """
        found = self.marginals(X, method, **options)
        if method is None:
            warn_of_inexact(found.exact, {found.method}, "marginals(X)")
        return found.probabilities

    def decision_function(self, X: Any) -> Floats:
        """Return a score per label, (n, L), that is positive where the label is predicted.

        The log-odds of the label less those of ``threshold_``; for structural SVMs the gain in
        score by the label being on when the others are as predicted.
        """
        matrix = self._checked(X)
        return self.predictor_.decision_function(matrix)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose predicted set of labels is right."""
        right = self._label_sets.right(y, self.predict(X))
        return float(np.average(right, weights=check_sample_weight(sample_weight, len(right))))

    def unary(self, label: int | str) -> Floats:
        """Return the (features, 2) weights of a label; the last row is the intercept."""
        check_is_fitted(self, "predictor_")
        return self.model_.unary(self.weights_, self._label_sets.number(label))

    def table(self, i: int | str, j: int | str) -> Floats:
        """Return the (2, 2) scores of a pair of labels (numbers or names)."""
        check_is_fitted(self, "predictor_")
        i, j = self._label_sets.number(i), self._label_sets.number(j)
        low, high = min(i, j), max(i, j)
        found = np.flatnonzero((self.model_.pair_list == [low, high]).all(axis=1))
        if not len(found):
            raise DataError(f"labels {i} and {j} have no table in the label graph")
        table = self.model_.tables(self.weights_, int(found[0]))[0]
        return np.asarray(table if i <= j else table.T)

    # ---- reports and files

    def _sections(self, X: Any, y: Any) -> list[Block]:
        from cliquewise.estimators._output_reports import set_sections

        return set_sections(self, X, y)

    def _to_file(self) -> tuple[Arrays, Header]:
        arrays, header = self.predictor_.trained.to_file()
        state = {
            "n_labels": self.n_labels_,
            "names": self.label_names_,
            "as_lists": self._label_sets.as_lists,
            "C": self.C_,
            "calibration": list(self.calibration_),
            "threshold": self.threshold_,
            "choice": self.selection_.description,
            "penalizes_intercept": self.intercept_is_penalized_,
        }
        return arrays, {**header, "state": state}

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        names = ("loss", "gamma", "entropy", "epsilon")
        view: dict[str, Any] = {name: getattr(self, name) for name in names}
        trained = GraphPredictor.from_file(arrays, header, self.solver_, **view)
        model, state = trained.model, header["state"]
        n_labels = check_integer(state["n_labels"], "its number of labels", 1)
        labels = restored(n_labels, state.get("names"), state.get("as_lists"))
        if len(model.cardinalities) != n_labels or set(model.cardinalities) != {2}:
            raise DataError("its labels do not fit the model")
        if (model.pair_list[:, 0] == model.pair_list[:, 1]).any() or model.n_edge_features:
            raise DataError("its pairs of labels do not fit the model")
        self._set_predictor(labels, trained, _restored_selection(state, self.C, model.pair_list))
        self.intercept_is_penalized_ = bool(state.get("penalizes_intercept", model.intercept))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags


def _restored_selection(state: dict[str, Any], C: float | str, pairs: Ints) -> Selection:
    """Return the selection that a file describes; files of version 1 have none."""
    scale, shift, tables = (float(x) for x in state.get("calibration", (1.0, 0.0, 1.0)))
    selected = float(state.get("C", 1.0 if isinstance(C, str) else float(C)))
    threshold = float(state.get("threshold", 0.5))
    valid = 0 < selected < np.inf and 0 <= threshold <= 1
    if not (valid and 0 <= scale <= 1e3 and 0 <= tables <= 1e3 and abs(shift) <= 1e3):
        raise DataError("its calibration is out of range")
    return Selection(
        selected, pairs, threshold, (scale, shift, tables),
        description=str(state.get("choice", "")),
    )  # fmt: skip
