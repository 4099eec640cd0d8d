"""SequenceTagger: label the tokens of sequences with a linear-chain CRF."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from cliquewise.certificate import Certificate
from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.dataset import Dataset
from cliquewise.data.labels import Labels
from cliquewise.data.shard_cache import ShardCache
from cliquewise.data.shards import Shards
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.deprecation import renamed_keywords
from cliquewise.errors import DataError, ForbiddenLabelError, UnsupportedError
from cliquewise.estimators._base import Estimator, rollback_on_error
from cliquewise.estimators._costs import PSEUDO, saved_cost
from cliquewise.estimators._inputs import (
    threads,
)
from cliquewise.estimators._stored import (
    Arrays,
    Header,
    listed_weights,
    plain_classes,
    rounded,
    saved_weights,
)
from cliquewise.estimators.parameters import SequenceTaggerParameters, old_names, table_of
from cliquewise.estimators.tagger import inspection
from cliquewise.estimators.tagger.c_selection import CSelection, PathPoint, select_C
from cliquewise.estimators.tagger.chain_tagger import PROBABILISTIC, ChainTagger
from cliquewise.estimators.tagger.crfsuite_names import check_loss, translates_crfsuite
from cliquewise.estimators.tagger.device import torch_device
from cliquewise.estimators.tagger.early_stopping import EarlyStopping
from cliquewise.estimators.tagger.encoding import encode_examples, encode_with_known_names
from cliquewise.estimators.tagger.files import pack_chain, unpack_chain
from cliquewise.estimators.tagger.incremental import (
    PartialWarmStart,
    WarmStart,
    add_examples,
    adopt_duals,
    check_same_settings,
    reuse_dual_variables,
    training_record,
)
from cliquewise.estimators.tagger.prepared_weights import PreparedWeights
from cliquewise.estimators.tagger.pruning import (
    Pruned,
    count_weights,
    without_zeros,
    zero_small_weights,
)
from cliquewise.estimators.tagger.shards import encode_shards, problem_on_disk
from cliquewise.estimators.tagger.tables import SampleInputs
from cliquewise.estimators.tagger.training_record import (
    Examples,
    StoredRecord,
    TrainingRecord,
    pack_record,
    stored_record,
)
from cliquewise.models.chain import ChainModel
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.pseudo_likelihood import token_by_token
from cliquewise.ragged import Floats
from cliquewise.report.blocks import Block
from cliquewise.report.notebook import MarkedText
from cliquewise.solvers.base import AnySolver, Start
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.owlqn import OWLQN
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import Fit
from cliquewise.solvers.sdca import SDCA

#: Called with every row of the trace.
Callback = Callable[[dict[str, float]], Any]
P = ParamSpec("P")
R = TypeVar("R")


def on_chain(
    method: Callable[Concatenate[ChainTagger, P], R],
) -> Callable[Concatenate[SequenceTagger, P], R]:
    """Return a method of `SequenceTagger` that calls ``method`` on its fitted chain."""

    @wraps(method)
    def call(self: SequenceTagger, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self._fitted_chain(), *args, **kwargs)

    call.__qualname__ = f"SequenceTagger.{method.__name__}"
    return call  # type: ignore[return-value]


@renamed_keywords(**old_names(SequenceTaggerParameters))
@translates_crfsuite
@dataclass(eq=False, repr=False)
class SequenceTagger(SequenceTaggerParameters, Estimator):
    r"""Linear-chain conditional random field with a certificate of optimality.

    Labels every token of a sequence, for example words with parts of speech or with the BIO labels
    of named entities. Training stops when the weights are proven to be within ``tol`` of the
    optimum: no weights can have an objective below ``certificate_.dual``.

    Parameters
    ----------
    loss : {"log", "pseudo_likelihood", "softmax_margin", "hinge", "smooth_hinge"}, default="log"
        ``"log"`` is the negative log-likelihood of the label sequence.
        ``"pseudo_likelihood"`` sums the negative log-likelihood of each label given the true labels
        of its neighbors, and supports a weight per token.
        ``"softmax_margin"`` is the likelihood with the cost of each wrong label added to its score.
        ``"hinge"`` is the structured hinge loss with these costs as margin (a structural support
        vector machine, without probabilities). ``"smooth_hinge"`` smooths its maximum by
        ``gamma`` and ``smoother``.
    C : float or "auto", default=1.0
        Weight of the sum of the losses relative to the penalty
        ``l1_ratio ||w||_1 + (1 - l1_ratio) / 2 ||w||^2``. CRFsuite's ``c1`` and ``c2`` correspond
        to ``C = 1 / (c1 + 2 c2)`` and ``l1_ratio = c1 C``.
        ``"auto"`` trains with up to eight values from 0.03 to 100 on 80 % of the sequences, scores
        them on the others (F1 of the spans if labels begin with ``B-``, otherwise token accuracy),
        and takes the smallest value within one standard error of the best. It then trains with
        that value on all sequences. ``tol``, ``max_epochs`` and ``max_seconds`` apply to each
        training. Ctrl-C before the last training leaves the tagger unchanged.
    l1_ratio : float, default=0.0
        Share of the L1 norm in the penalty, from 0 to 1. A larger share sets more weights to zero
        (see ``n_nonzero_``). Supported by the solvers ``sdca`` and ``owlqn``.
    solver : str or Solver, default="auto"
        ``"auto"``, a name or an instance. For ``log`` and ``pseudo_likelihood``: ``sdca``,
        ``lbfgs``, ``owlqn`` (with an L1 penalty), ``sag`` or ``oeg``. For ``softmax_margin``: the
        first three. For ``hinge``: ``sdca``, ``bcfw``, ``gdmm`` (for thousands of labels),
        ``subgradient``, ``svrg`` or ``casimir``. For ``smooth_hinge``: ``lbfgs``, ``svrg`` or
        ``casimir``.
    tol : float, default=1e-3
        Training stops when the relative duality gap is at most ``tol``.
    max_epochs : float, default=100
        Maximum number of passes over the training data. If left at 100, ``lbfgs``, ``owlqn`` and
        training on a ``device`` may take 1000, because their epochs are cheaper but tighten the
        bound less (only if every label is known).
    max_seconds : float, optional
        Time limit. Training that ends before ``tol`` is reached issues a ``ConvergenceWarning``
        that states the gap.
    feature_pairs : {"all", "seen"}, default="all"
        Use weights for all (attribute, label) pairs, or only for the pairs that occur in the
        training data.
    transitions : {"all", "seen", "BIO", "BIOES"} or bool array, default="all"
        ``"seen"`` uses weights only for transitions that occur in the training data. ``"BIO"``,
        ``"BIOES"`` or a (K, K) mask forbids all other transitions.
    forbidden_transitions : list of pairs of labels, optional
        Further transitions (label, next label) to forbid.
    intercept, boundary_weights : bool, default=True
        Use a weight per label for every token, and weights for the first and the last token.
    template : Template, str or path, optional
        CRF++ / Wapiti template, its path, or the name of a built-in template (``"columns"``,
        ``"chunking"``, ``"ner"``). ``X`` then holds rows of strings per token, or columns as
        :func:`cliquewise.data.read_conll` returns them (for these, ``"columns"`` is the default).
    sequence_column : str, optional
        For tables with a row per token: the column that identifies the sequence of each row.
    n_hash : int, optional
        Hash the attributes into this number of features instead of storing a vocabulary.
    min_count : int, default=1
        Ignore attributes that occur in fewer tokens.
    class_weight : dict or "balanced", optional
        Weight of each label. A sequence has the mean weight of its labels; with
        ``pseudo_likelihood``, every token has the weight of its label.
    cost : dict or (K, K) array, optional
        Cost of wrong labels in ``softmax_margin`` and the hinge losses: the margin by which the
        true label must beat them. A dict maps pairs (true, predicted), or true labels, to costs;
        others cost 1. An array has a row per true label, in the order of ``classes_``.
        ``fit(token_weight=)`` multiplies the costs of a token.
    n_jobs : int or None, default=1
        Number of threads; None means 1, and -1 all processors. Certificates and prediction use all
        of them, training with ``sdca`` up to four. With more than one thread, results are not
        bit-reproducible; the certificate stays valid.
    device : {"cuda", "cuda:1", ..., "cpu"}, optional
        Train and predict with PyTorch (extra ``torch``) on this device: loss ``log``, at most 128
        labels, solver ``lbfgs``. Data that do not fit into the free memory of a GPU are processed
        in batches. By default, compiled code runs on the CPU.
    dtype : {"float64", "float32"}, default="float64"
        Type of the state of ``sdca``. ``"float32"`` halves its memory. Certificates are always
        computed in float64, for the weights in ``coef_``.
    max_memory : float, default=8.0
        Limit for the state of the solver, in GiB; ``"auto"`` chooses a leaner solver if necessary.
    checkpoint : path, optional
        Save the state of training to this file.
    checkpoint_seconds : float, default=60
        Time between two checkpoints.
    resume : bool, default=False
        Resume from the checkpoint if it exists.
    gamma : float, default=1.0
        Amount of smoothing of ``smooth_hinge``, in units of wrong labels.
    smoother : {"l2", "entropy"}, default="l2"
        ``"l2"`` smooths over the five best labelings, ``"entropy"`` over all labelings.
    random_state : int or Generator, optional
        Seed. Results are reproducible for a fixed seed with ``n_jobs=1``.
    verbose : int, default=0
        1 shows a progress bar with the current gap, or a line every five seconds if the output is
        not a terminal.

    Attributes
    ----------
    classes_ : list
        The labels.
    C_ : float
        The value of ``C`` that was used.
    C_path_ : list of PathPoint
        With ``C="auto"``, the values that were compared: ``C``, ``score``, ``standard_error``,
        ``difference_error``, ``gap``, ``n_nonzero``, ``epochs``.
    certificate_ : Certificate
        ``primal`` (the objective), ``dual`` (a proven lower bound of it) and ``gap``, per example.
    stop_reason_ : {"converged", "limit", "interrupted", "validation"}
        Why training ended.
    trace_ : Trace
        ``seconds``, ``epochs``, ``oracle_calls``, ``primal``, ``dual`` and ``gap`` of every
        certificate that was computed during training.
    coef_ : ndarray
        Weights: one per attribute and label, then the (K, K) transitions. See ``top_features`` and
        ``top_transitions`` for their names.
    n_nonzero_ : int
        Number of nonzero weights.
    state_features_, transition_features_ : dict
        The same weights by (attribute, label) and by (label, label), as in sklearn-crfsuite.
    solver_ : str
        The solver that was used.
    n_iter_ : int
        Number of epochs, rounded up.
    chain_ : ChainTagger
        The fitted chain, which predicts without scikit-learn.
    validation_scores_ : list of (epochs, score)
        Scores on held-out sequences, after ``fit(validation=)``.
    pruned_ : Pruned
        Number of weights and objective before and after ``prune``.

    See Also
    --------
    regularization_path : Train with several values of ``C``, with warm starts.
    load : Read a tagger from a file.
    GraphLabeler : Label the nodes of arbitrary graphs.
    cliquewise.metrics.span_scores : Precision, recall and F1 of predicted spans.

    Notes
    -----
    Training minimizes ``(R(w) / C + sum_i loss_i(w)) / n`` over the weights ``w``, where ``R`` is
    the penalty and ``loss_i`` the loss of sequence ``i``. ``certificate_`` refers to this
    objective, rounding errors included.

    References
    ----------
    .. [1] J. Lafferty, A. McCallum, F. Pereira. "Conditional random fields: Probabilistic models
       for segmenting and labeling sequence data", ICML 2001.
    .. [2] R. Le Priol, A. Piché, S. Lacoste-Julien. "Adaptive stochastic dual coordinate ascent
       for conditional random fields", UAI 2018.
    .. [3] S. Lacoste-Julien, M. Jaggi, M. Schmidt, P. Pletscher. "Block-coordinate Frank-Wolfe
       optimization for structural SVMs", ICML 2013.

    Examples
    --------
    >>> from cliquewise import SequenceTagger
    >>> X = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]]
    >>> y = [["D", "N"], ["D", "N"]]
    >>> tagger = SequenceTagger(random_state=0).fit(X, y)
    >>> tagger.predict([[["w=the"], ["w=cat"]]])
    [['D', 'N']]

    The certificate proves that no weights have an objective more than 0.1 % lower:

    >>> tagger.certificate_
    Certificate(primal=0.613189..., dual=0.613189..., status='exact', rounding=...)
    >>> bool(tagger.certificate_.gap <= 1e-3)
    True
    """

    # Of the fitted instance. (Annotations would make them fields of the dataclass.)
    _chain = cast("ChainTagger | None", None)
    _selection = cast("CSelection | None", None)
    _record = cast("TrainingRecord | StoredRecord | None", None)

    # ---- training

    @rollback_on_error
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        token_weight: Any = None,
        allowed: Any = None,
        callback: Callback | None = None,
        warm_start: bool = False,
        validation: Any = None,
        patience: int = 5,
    ) -> Self:
        """Train the weights.

        Parameters
        ----------
        X : sequences
            Per sequence: a list of feature dicts, of lists of strings or of (string, value)
            pairs; a 2-D array or CSR matrix. All sequences at once: a 3-D array or a Dataset.
            A table (pandas, polars, pyarrow, or a mapping of names to columns) with a row per
            token, in which ``sequence_column`` identifies the sequence, or with a row per sequence
            and lists as cells; tables of strings use the template ``"columns"``. Or
            :class:`~cliquewise.data.Shards`, which include the labels and need not fit into
            memory: above ``max_memory``, data and dual variables stay on disk.
        y : list of lists of labels
            For a table: the name of the label column, or a column. None (an empty cell) marks an
            unknown label, and a set of labels a partly known one. The loss is then that of all
            labelings that agree (``solver`` must be ``"auto"`` or ``"lbfgs"``).
        sample_weight : array-like (n_sequences,), optional
            Weight of each sequence's loss.
        token_weight : list of lists of numbers, optional
            With ``pseudo_likelihood``: weight of each token's loss. With ``softmax_margin`` and the
            hinge losses: factor of the costs of wrong labels at each token. Not supported by
            ``log``, which is not a sum over tokens. For a table: a column.
        allowed : list of lists of (None or collections of labels), optional
            The labels that each token may have.
        callback : callable, optional
            Called with every row of the trace.
        warm_start : bool, default=False
            Start from the state of the previous training, or from that in the file the tagger was
            loaded from (``save(path, with_state=True)``). Sequences that were part of it start with
            their dual variables. New attributes and labels are added after the existing ones.
        validation : (X, y), optional
            Held-out sequences for early stopping. They are labeled after every epoch, and training
            ends after ``patience`` epochs without a better score (F1 of the spans if labels begin
            with ``B-``, otherwise token accuracy). ``coef_`` and ``certificate_`` are those of the
            best epoch, and ``validation_scores_`` lists (epochs, score).
        patience : int, default=5
            See ``validation``.

        Returns
        -------
        self
        """
        self._check_parameters()
        inputs = SampleInputs(sample_weight, token_weight, allowed)
        start: WarmStart = None
        if isinstance(X, Shards):
            examples = encode_shards(self, X, y, inputs)
        elif warm_start and self.__sklearn_is_fitted__():
            examples, start = reuse_dual_variables(self, X, y, inputs)
        else:
            examples = encode_examples(self, X, y, inputs)
        start = self._choose_C(examples, start)
        return self._fit_examples(examples, start, callback, validation, patience)

    @rollback_on_error
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        token_weight: Any = None,
    ) -> Self:
        """Add examples, and continue training on all examples from the previous state.

        New attributes and labels are added to the model. A tagger that was loaded needs a file with
        the examples and their dual variables: ``save(path, with_state=True)``.

        Parameters
        ----------
        X, y
            New sequences and their labels.
        classes : sequence, optional
            Labels that later calls will add; naming them in the first call makes these cheaper.
        sample_weight : array-like, optional
        token_weight : list of lists of numbers, optional
            As in :meth:`fit`. With ``min_count``, new attributes are counted in ``X`` only, and
            earlier examples do not get them, because attributes below ``min_count`` were discarded.

        Returns
        -------
        self

        Examples
        --------
        >>> from cliquewise import SequenceTagger
        >>> tagger = SequenceTagger(random_state=0).fit([[["a"], ["b"]]], [["A", "B"]])
        >>> tagger.partial_fit([[["c"]]], [["C"]]).classes_
        ['A', 'B', 'C']
        """
        self._check_parameters()
        inputs = SampleInputs(sample_weight, token_weight)
        if not self.__sklearn_is_fitted__():
            examples = encode_examples(self, X, y, inputs, classes)
            return self._fit_examples(examples, self._choose_C(examples, None))
        return self._fit_examples(*add_examples(self, X, y, inputs, classes))

    def _choose_C(self, examples: Examples, start: WarmStart) -> WarmStart:
        """Choose ``C`` if it is ``"auto"``; return a start for training on all examples."""
        self._selection = None
        if self.C != "auto":
            return start
        self._selection, suggested = select_C(self, examples)
        return suggested if start is None else start

    def _fit_examples(
        self,
        examples: Examples,
        start: WarmStart = None,
        callback: Callback | None = None,
        validation: Any = None,
        patience: int = 5,
    ) -> Self:
        """Build the model and the problem, solve it, and record the result."""
        labels, forbidden = examples.labels, self.forbidden_transitions
        model = ChainModel.build(
            examples.data, len(labels), feature_pairs=self.feature_pairs,
            transitions=self.transitions, classes=labels.classes, intercept=self.intercept,
            forbidden=() if forbidden is None else forbidden, boundaries=self.boundary_weights,
        )  # fmt: skip
        chain = self._make_chain(examples.encoder, labels, model, np.zeros(model.dimension))
        monitor = None if validation is None else EarlyStopping(chain, validation, patience)
        try:
            fit = self._solve(examples, model, start, callback, monitor)
        except ForbiddenLabelError as error:
            raise error.named(labels.classes) from None
        self._keep(fit, examples, chain.with_weights(fit.weights))
        if monitor is not None and monitor.best is not None:
            self.certificate_ = self._certificate_of(monitor.best)
            self._chain = chain.with_weights(monitor.best)
            self.validation_scores_ = monitor.scores
        return self

    def _solve(
        self,
        examples: Examples,
        model: ChainModel,
        start: WarmStart,
        callback: Callback | None,
        monitor: EarlyStopping | None,
    ) -> Fit:
        """Build the problem, in memory or on disk, and solve it."""
        data = examples.data
        if isinstance(data, ShardCache):
            if monitor is not None:
                raise DataError("validation is not supported with shards on disk: leave it out")
            with data.locked():
                return self._train(problem_on_disk(self, model, data), callback, warm=start)
        problem = self._problem(model, data, examples.partial)
        if isinstance(start, PartialWarmStart):
            solver = choose(problem, self._requested_solver(), self.max_memory * 2**30).solver
            # The examples of the pseudo-likelihood are tokens, whose duals are not matched.
            start = None if self.loss == PSEUDO else adopt_duals(problem, solver, start)
        return self._train(
            problem,
            callback,
            warm=start,
            checkpoint=self.checkpoint,
            checkpoint_seconds=self.checkpoint_seconds,
            resume=bool(self.resume),
            monitor=monitor,
        )

    def _keep(self, fit: Fit, examples: Examples, chain: ChainTagger) -> None:
        """Replace the fitted chain and the training record."""
        for name in ("pruned_", "validation_scores_"):  # of the previous training
            if hasattr(self, name):
                delattr(self, name)
        self._chain = chain
        # The state of a device solver would keep the device's memory allocated.
        state = fit.state if self.device is None else Start(fit.weights)
        self._record = TrainingRecord(examples.data, examples.partial, state)

    def _fit_examples_of(self, other: SequenceTagger, **options: Any) -> None:
        """Train on the examples of another tagger, from its final state."""
        self._check_parameters()
        record, chain = other._record, other.chain_
        assert isinstance(record, TrainingRecord)
        examples = Examples(chain.encoder_, chain.labels_, record.data, record.partial)
        self._fit_examples(examples, record.state, **options)

    # ---- problem and solver

    def _problem(
        self, model: ChainModel, data: Dataset, partial: NDArray[np.bool_] | None = None
    ) -> ChainProblem:
        """Return the training problem for data in memory."""
        jobs, loss = threads(self.n_jobs), self.loss
        if loss == PSEUDO:
            (model, data), loss = token_by_token(model, data), "log"
        problem = ChainProblem(
            model, data, self._number_C(), partial, jobs, loss, self.gamma, self.smoother
        )
        return problem.elastic(self.l1_ratio)

    def _number_C(self) -> float:
        """Return ``C``, or the value chosen for ``"auto"``."""
        if self.C != "auto":
            return float(self.C)
        if self._selection is None:
            raise DataError('C was set to "auto" after training: call fit, which chooses a value')
        return self._selection.C

    def _check_parameters(self) -> None:
        check_loss(self.loss, table_of(SequenceTaggerParameters)["loss"].rule.words)
        super()._check_parameters()

    def _requested_solver(self) -> str | AnySolver:
        """Return the requested solver; a device and single precision have one solver each."""
        if self.dtype == "float32":
            return self._single_precision_solver()
        if self.device is not None:
            on_device: AnySolver = torch_device().solver_on(self.device, self.solver)
            return on_device
        wanted: str | AnySolver = self.solver
        return wanted

    def _single_precision_solver(self) -> SDCA:
        given = SDCA() if self.solver in ("auto", "sdca") else self.solver
        if self.device is not None or not isinstance(given, SDCA):
            raise UnsupportedError(
                'dtype="float32" is supported only by solver="sdca" without a device'
            )
        return replace(given, dtype="float32")

    def _epoch_limit(self, solver: AnySolver, problem: Problem) -> float:
        """Return ``max_epochs``, or ten times its default for solvers with cheap epochs."""
        is_default = self.max_epochs == SequenceTagger.max_epochs
        is_cheap = self.device is not None or isinstance(solver, LBFGS | OWLQN)
        return (
            10 * self.max_epochs
            if is_default and is_cheap and problem.is_convex
            else (self.max_epochs)
        )

    # ---- the fitted chain

    def __sklearn_is_fitted__(self) -> bool:
        return self._chain is not None

    @property
    def chain_(self) -> ChainTagger:
        """The fitted chain, with the tagger's current ``n_jobs``, ``device`` and so on."""
        return self._fitted_chain()

    def _fitted_chain(self) -> ChainTagger:
        """Return the fitted chain; raise a NotFittedError if there is none.

        (``chain_`` cannot: a property that raises an AttributeError ends in ``__getattr__``.)
        """
        chain = self._chain
        if chain is None:
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with "
                "appropriate arguments before using this estimator."
            )
        return self._make_chain(
            chain.encoder_, chain.labels_, chain.model_, chain.coef_, prepared=chain.prepared
        )

    def _make_chain(
        self,
        encoder: SequenceEncoder,
        labels: Labels,
        model: ChainModel,
        weights: Floats,
        prepared: PreparedWeights | None = None,
    ) -> ChainTagger:
        """Return a chain that predicts with the tagger's parameters."""
        return ChainTagger(
            encoder, labels, model, weights, loss=self.loss, n_jobs=self.n_jobs,
            sequence_column=self.sequence_column, max_memory=self.max_memory, device=self.device,
            prepared_weights=prepared,
        )  # fmt: skip

    @property
    def encoder_(self) -> SequenceEncoder:
        """The encoder of sequences."""
        return self.chain_.encoder_

    @property
    def labels_(self) -> Labels:
        """The labels and their numbers."""
        return self.chain_.labels_

    @property
    def classes_(self) -> list[Any]:
        """The labels."""
        return self.chain_.classes_

    @property
    def model_(self) -> ChainModel:
        """The linear model: which weights there are, and which transitions are allowed."""
        return self.chain_.model_

    @property
    def coef_(self) -> Floats:
        """The weights."""
        return self.chain_.coef_

    @property
    def C_(self) -> float:
        """The value of ``C`` that the weights were trained with."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("C_ is only defined after fit")
        used = self._objective["C"]
        return self._selection.C if self._selection is not None and used == "auto" else float(used)

    @property
    def C_path_(self) -> list[PathPoint]:
        """The values of ``C`` that were compared, with scores and gaps."""
        if self._selection is None:
            raise AttributeError('C_path_ is only defined after fit with C="auto"')
        return self._selection.path

    @property
    def n_features_in_(self) -> int:
        """The number of features, if the input is numeric."""
        number = self.chain_.encoder_.n_features_in
        if number is None:
            raise AttributeError("n_features_in_ is only defined for arrays of numbers")
        return number

    @property
    def has_probabilities(self) -> bool:
        """Whether the loss defines probabilities (the hinge losses do not)."""
        return self.loss in PROBABILISTIC

    # ---- prediction and inspection

    predict = on_chain(ChainTagger.predict)
    predict_single = on_chain(ChainTagger.predict_single)
    predict_marginals = on_chain(ChainTagger.predict_marginals)
    predict_marginals_single = on_chain(ChainTagger.predict_marginals_single)
    predict_spans = on_chain(ChainTagger.predict_spans)
    predict_top_k = on_chain(ChainTagger.predict_top_k)
    log_likelihood = on_chain(ChainTagger.log_likelihood)
    score = on_chain(ChainTagger.score)
    explain = on_chain(inspection.explain)
    feature_names = on_chain(inspection.feature_names)
    top_features = on_chain(inspection.top_features)
    top_transitions = on_chain(inspection.top_transitions)

    @property
    def state_features_(self) -> dict[tuple[str, Any], float]:
        """Weight of every (attribute, label) whose weight is not zero."""
        return inspection.state_features(self.chain_)

    @property
    def transition_features_(self) -> dict[tuple[Any, Any], float]:
        """Weight of every (label, next label) that is allowed and has a weight."""
        return inspection.transition_features(self.chain_)

    def show(self, X: Any, *, tokens: Any = None) -> MarkedText:
        """Return the predictions as marked-up text: boxes in a notebook, brackets in a terminal.

        Parameters
        ----------
        X : sequences, as in :meth:`fit`
        tokens : list of lists of str, optional
            The text of the tokens; by default the first column, or a feature that names a word.

        Examples
        --------
        >>> from cliquewise import SequenceTagger
        >>> X = [[["w=Anna"], ["w=sees"], ["w=Rome"]]] * 3
        >>> tagger = SequenceTagger(random_state=0).fit(X, [["B-PER", "O", "B-LOC"]] * 3)
        >>> tagger.show(X[:1])
        [Anna]PER:0... sees [Rome]LOC:0...
        """
        from cliquewise.estimators.tagger.tagged_text import mark_up

        return mark_up(self._fitted_chain(), X, tokens)

    def _sections(self, X: Any, y: Any, tokens: Any = None, live: bool = False) -> list[Block]:
        from cliquewise.estimators.tagger.report import tagger_sections

        return tagger_sections(self, X, y, tokens, live)

    # ---- pruning

    def prune(
        self, threshold: float | None = None, *, keep: float | None = None,
        dtype: str = "float64", X: Any = None, y: Any = None, sample_weight: Any = None,
        token_weight: Any = None,
    ) -> Self:  # fmt: skip
        """Set small weights to zero, and drop attributes without other weights.

        ``pruned_`` reports the weights, attributes and objective before and after. If any weight
        changes, ``certificate_`` becomes that of the remaining weights. Transitions are kept.

        Parameters
        ----------
        threshold : float, optional
            Set weights up to this size to zero.
        keep : int or float, optional
            Or: keep this number of weights, the largest ones; up to 1.0, this share of them.
        dtype : {"float64", "float32", "float16"}, default="float64"
            Also round the remaining weights. ``save`` with the same ``dtype`` then changes none of
            them, so the certificate in the file is valid.
        X, y, sample_weight, token_weight : optional
            Data to compute the objective on, as in :meth:`fit`. By default, the data of the
            training in this process. The certificate is then one for these data and for the
            attributes that the tagger still has.

        Returns
        -------
        self

        Examples
        --------
        >>> import cliquewise as cw
        >>> X, y = [[["a", "x"], ["b", "x"]], [["b"], ["c"]]], [["A", "B"], ["B", "A"]]
        >>> tagger = cw.SequenceTagger(random_state=0).fit(X, y).prune(keep=0.5)
        >>> tagger.pruned_.weights_before, tagger.pruned_.weights
        (14, 7)
        >>> tagger.predict(X) == y
        True
        """
        chain = self._fitted_chain()
        weights = rounded(zero_small_weights(chain, threshold, keep), dtype).astype(np.float64)
        if X is not None:
            inputs = SampleInputs(sample_weight, token_weight)
            data, partial = encode_with_known_names(self, X, y, inputs)
            problem = self._problem(chain.model_, data, partial)
            before, certificate = problem.primal(chain.coef_), problem.certificate(weights)
        else:
            if self._training_problem() is None:
                raise DataError(
                    "prune computes the objective on the training data, which this tagger does not "
                    "have (it was loaded, pruned, sent to another process, trained on shards, or "
                    "its objective was changed): give X and y"
                )
            before, certificate = self.certificate_.primal, self._certificate_of(weights)
        is_changed = not np.array_equal(weights, chain.coef_) or not self._has_own_certificate
        pruned = without_zeros(chain.with_weights(weights))
        self._record = None  # its dual variables refer to the old attributes
        self._chain = pruned
        old, new = count_weights(chain), count_weights(pruned)
        self.pruned_ = Pruned(old[0], new[0], old[1], new[1], before, certificate.primal)
        if is_changed:
            self.certificate_, self._objective = certificate, self._parameters_with_role()
        return self

    # ---- the training record

    @property
    def has_state(self) -> bool:
        """Whether ``partial_fit`` can continue: the examples and the solver state are available."""
        record = self._record
        return isinstance(record, StoredRecord) or (record is not None and record.is_in_memory)

    def _recorded_problem(self, data: Dataset) -> ChainProblem:
        """Return the problem that was solved on data in a file, with the parameters of then."""
        used = {**self.get_params(deep=False), **self._objective, "C": self.C_}
        trained = type(self)(**used)
        return trained._problem(self.model_, data)

    def _training_problem(self) -> ChainProblem | None:
        """Return the problem that was solved; None if the data or its parameters are gone."""
        record = self._record
        if not isinstance(record, TrainingRecord) or not isinstance(record.data, Dataset):
            return None
        if getattr(self, "_objective", None) != self._parameters_with_role():
            return None
        return self._problem(self.model_, record.data, record.partial)

    def _certificate_of(self, weights: Floats) -> Certificate:
        """Return a certificate of other weights; the dual value bounds the objective of all."""
        problem, known = self._training_problem(), self.certificate_
        if problem is None:
            return Certificate(math.nan)
        bound = problem.lower_bound if problem.is_convex else -math.inf
        primal = max(problem.primal(weights), bound)
        return Certificate(primal, known.dual, known.status, known.rounding)

    # ---- files

    def save(
        self,
        path: str | Path,
        *,
        dtype: str = "float64",
        metadata: dict[str, Any] | None = None,
        with_state: bool = False,
    ) -> None:
        """Write the model to a file; see :func:`cliquewise.load`.

        Equal models give equal bytes, so the file holds no times: in the loaded tagger
        ``trace_.seconds`` is NaN.

        Parameters
        ----------
        path : path
        dtype : {"float64", "float32", "float16"}, default="float64"
            Type of the weights in the file; they are float64 again after loading. If rounding
            changes the weights, the file has a certificate of the rounded weights if the tagger
            was trained in this process, and otherwise none. It has none either if parameters of the
            objective, such as ``C``, were changed after training. Parameters of the model, such as
            ``intercept``, are saved with the values used in training.
        metadata : dict, optional
            Notes to store in the file, with string keys and plain values; the loaded tagger has
            them in ``metadata_``.
        with_state : bool, default=False
            Also save the encoded training examples and the state of the solver. The loaded tagger
            can then continue with ``partial_fit`` or ``fit(..., warm_start=True)``. Note that the
            file contains the training examples.
        """
        arrays, header = self._to_file()
        if with_state:
            record = training_record(self, "with_state=True")
            state_arrays, state_header = pack_record(record, self.solver_)
            check_same_settings(self)
            # The dual variables refer to all weights, including those that are zero.
            arrays, all_weights = pack_chain(self.chain_, whole=True)
            arrays |= state_arrays
            header |= all_weights | {"state": state_header}
        self._write(path, dtype, arrays, header, metadata=metadata)

    def _to_file(self) -> tuple[Arrays, Header]:
        arrays, header = pack_chain(self._fitted_chain())
        own: Header = {"classes": plain_classes(self.classes_)}
        if self._selection is not None:
            own["selection"] = self._selection.to_header()
        return arrays, own | header | saved_weights(self.class_weight, self.classes_)

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        self._chain = chain = unpack_chain(arrays, header)
        self._record = stored_record(arrays, header)
        if self.C == "auto":
            self._selection = CSelection.from_header(header["selection"])
        if isinstance(chain.encoder_.inner, TemplateEncoder):
            self.template = chain.encoder_.inner.template
        if "class_weight" in header:
            self.class_weight = listed_weights(header["class_weight"], self.classes_)

    def _parameters_to_save(self) -> dict[str, Any]:
        return super()._parameters_to_save() | saved_cost(self.cost, self.classes_)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_record", None)
        return state
