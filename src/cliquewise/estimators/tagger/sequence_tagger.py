"""SequenceTagger: label the tokens of sequences with a linear-chain CRF."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.conversion import SequenceEncoder, allowed_mask
from cliquewise.data.dataset import Dataset
from cliquewise.data.labels import Labels
from cliquewise.data.shard_cache import ShardCache
from cliquewise.data.shards import Shards
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.deprecation import renamed_keywords
from cliquewise.errors import DataError, ForbiddenLabelError, UnsupportedError
from cliquewise.estimators._base import Estimator, rollback_on_error
from cliquewise.estimators._costs import PSEUDO, costs_of, saved_cost, token_weights
from cliquewise.estimators._inputs import (
    check_sample_weight,
    class_weights,
    mean_by_example,
    threads,
)
from cliquewise.estimators._stored import (
    Arrays,
    Header,
    listed_weights,
    plain_classes,
    saved_weights,
)
from cliquewise.estimators.parameters import SequenceTaggerParameters, old_names
from cliquewise.estimators.tagger.chain_tagger import CACHED
from cliquewise.estimators.tagger.crfsuite_names import translates_crfsuite
from cliquewise.estimators.tagger.device import on_device
from cliquewise.estimators.tagger.early_stopping import EarlyStopping
from cliquewise.estimators.tagger.files import pack_chain, restored_chain
from cliquewise.estimators.tagger.incremental import ChainTraining, PartialWarmStart
from cliquewise.estimators.tagger.shards import encoded, kept, problem_on_disk
from cliquewise.estimators.tagger.tables import SampleInputs, read_training_table
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.pseudo_likelihood import token_by_token
from cliquewise.ragged import Floats
from cliquewise.solvers.base import Start, choose
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.owlqn import OWLQN
from cliquewise.solvers.sdca import SDCA


@renamed_keywords(**old_names(SequenceTaggerParameters))
@translates_crfsuite
@dataclass(eq=False, repr=False)
class SequenceTagger(ChainTraining, SequenceTaggerParameters, Estimator):
    """Linear-chain conditional random field with a certificate of optimality.

    Parameters
    ----------
    loss : {"log", "pseudo_likelihood", "softmax_margin", "hinge", "smooth_hinge"}, default="log"
        Negative log-likelihood; the sum over the tokens of the same given the true labels of their
        neighbors, with a weight for each; the likelihood with the costs of wrong labels added to
        their scores; the structured hinge loss with these costs as margin (a structural support
        vector machine, which has no probabilities); that loss with its maximum smoothed by
        ``gamma`` and ``smoother``.
    C : float, default=1.0
        Weight of the sum of the losses against the penalty,
        ``l1_ratio ||w||_1 + (1 - l1_ratio) / 2 ||w||^2``. CRFsuite's ``c1`` and ``c2`` are
        ``C = 1 / (c1 + 2 c2)`` and ``l1_ratio = c1 C``.
    l1_ratio : float, default=0.0
        Share of the L1 norm in the penalty, from 0 to 1: the more, the fewer weights are not zero
        (``n_nonzero_`` says how many). For solvers ``sdca`` and ``owlqn``.
    solver : str or Solver, default="auto"
        ``auto``, a name or an instance. For ``log`` and ``pseudo_likelihood``: ``sdca``, ``lbfgs``,
        ``owlqn`` (with an L1 penalty), ``sag``, ``oeg``; for ``softmax_margin`` the first three;
        for ``hinge``:
        ``sdca``, ``bcfw``, ``gdmm`` (thousands of labels), ``subgradient``, ``svrg``, ``casimir``;
        for ``smooth_hinge``: ``lbfgs``, ``svrg``, ``casimir``.
    tol : float, default=1e-3
        Stop at this relative duality gap.
    max_epochs : float, default=100
        With a ``device``, and by ``lbfgs`` and ``owlqn``, to which ``auto`` may turn, the default
        is 1000 (if every label is known): passes are quick, and prove less.
    max_seconds : float, optional
        Stop earlier, with a ``ConvergenceWarning`` that states the gap.
    feature_pairs : {"all", "seen"}, default="all"
        Weights for all (attribute, label) pairs, or only for those seen in training.
    transitions : {"all", "seen", "BIO", "BIOES"} or bool array, default="all"
        ``seen``: weights only for seen transitions. ``BIO``, ``BIOES`` or a (K, K) mask:
        other transitions are impossible.
    forbidden_transitions : list of pairs of labels, optional
        Further transitions (label, next label) that are impossible.
    intercept, boundary_weights : bool, default=True
        A weight per label on every token; one on the first and one on the last.
    template : Template, str or path, optional
        CRF++ / Wapiti template (or "columns", "chunking", "ner"): ``X`` then holds columns, as
        :func:`cliquewise.data.read_conll` gives them (they need none: "columns" is the default),
        or rows of strings per token.
    sequence_column : str, optional
        For tables with a row per token: the column that identifies the sequence of each row.
    n_hash : int, optional
        Hash attributes into so many instead of keeping a vocabulary.
    min_count : int, default=1
        Leave out attributes of fewer tokens.
    class_weight : dict or "balanced", optional
        Weight of an example: the mean weight of its labels. With ``pseudo_likelihood``, weight of
        every token of this label.
    cost : dict or (K, K) array, optional
        What a wrong label costs in ``softmax_margin`` and the hinge losses: by how much more the
        true label's score is to exceed its score. A dict of pairs (true, predicted), or
        of true labels whatever was predicted, others cost 1; or a table with a row per true label,
        in the order of ``classes_``. ``fit(token_weight=)`` multiplies the costs of a token.
    n_jobs : int or None, default=1
        Threads; None is 1, and -1 takes all processors. ``sdca`` trains in up to four of them, all
        solvers make certificates in them, and prediction runs in them. With several, training
        gives other bits each time (its certificate is true all the same); with one it never does.
    device : {"cuda", "cuda:1", ..., "cpu"}, optional
        Train, predict and find marginals there by PyTorch (extra ``torch``): loss ``log``, at most
        128 labels, by ``lbfgs``. On a GPU what is free bounds the memory: data that do not fit come
        in batches. Without it everything runs on the CPU, compiled.
    dtype : {"float64", "float32"}, default="float64"
        What ``sdca`` keeps its state in. ``float32`` halves its memory; certificates are computed
        in float64 all the same, and ``coef_`` holds the weights that they are of.
    max_memory : float, default=8.0
        GiB that the solver's state may take; ``auto`` chooses a leaner solver beyond it.
    checkpoint : path, optional
        Keep the state of training in this file.
    checkpoint_seconds : float, default=60
        How often that file is renewed.
    resume : bool, default=False
        Go on from that file if it exists.
    gamma : float, default=1.0
        Amount of smoothing of ``smooth_hinge``, in wrong labels.
    smoother : {"l2", "entropy"}, default="l2"
        ``l2`` shares the maximum among the five best labelings, ``entropy`` among all.
    random_state : int or Generator, optional
        The same seed gives the same bits (``n_jobs`` above 1: about the same).
    verbose : int, default=0
        1 shows one live bar with the gap so far; on a pipe, a line every five seconds.

    Attributes
    ----------
    classes_ : list
        The labels.
    certificate_ : Certificate
        ``primal``, ``dual`` and ``gap``, per example.
    trace_ : Trace
        ``seconds``, ``epochs``, ``oracle_calls``, ``primal``, ``dual``, ``gap`` of every check.
    n_nonzero_ : int
        How many weights are not zero.
    coef_ : ndarray
        Weights: one per attribute and label, then the (K, K) transitions; ``top_features``
        and ``top_transitions`` name them.
    state_features_, transition_features_ : dict
        The same weights by (attribute, label) and by (label, label), as in sklearn-crfsuite.

    Examples
    --------
    >>> from cliquewise import SequenceTagger
    >>> X = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]]
    >>> y = [["D", "N"], ["D", "N"]]
    >>> tagger = SequenceTagger(random_state=0).fit(X, y)
    >>> tagger.predict([[["w=the"], ["w=cat"]]])
    [['D', 'N']]
    >>> bool(tagger.certificate_.gap <= 1e-3)
    True
    """

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
        callback: Callable[..., Any] | None = None,
        warm_start: bool = False,
        validation: Any = None,
        patience: int = 5,
    ) -> SequenceTagger:
        """Train.

        Parameters
        ----------
        X : sequences
            Per sequence: a list of feature dicts, of lists of strings or of (string, value)
            pairs; a 2-D array or CSR matrix; or, all at once, a 3-D array or a Dataset. Or
            :class:`~cliquewise.data.Shards`, which hold the labels, too, and need not fit into
            memory: beyond ``max_memory`` data and dual variables stay on disk (``resume=True``
            goes on from these). Or a table of pandas, polars or pyarrow, or a mapping of names to
            columns: with a row per token, and ``sequence_column`` naming the column that
            identifies the sequence, or with a row per sequence, and lists in its columns. If all
            is text, its template is "columns" by default.
        y : list of lists of labels
            For a table the name of its column of labels, or such a column. None (an empty cell)
            or a set of labels where a label is not, or partly, known: the loss is then that of
            all labelings that agree (``solver`` must be ``auto`` or ``lbfgs``).
        sample_weight : array-like (n_sequences,), optional
        token_weight : list of lists of numbers, optional
            With ``pseudo_likelihood`` the weight of each token's loss; in ``softmax_margin`` and
            the hinge losses, what the costs of wrong labels are multiplied by there. For a table,
            a column. (``log`` has none: it is no sum over tokens.)
        allowed : list of lists of (None or collections of labels), optional
            The labels that each token may take at all.
        callback : callable, optional
            Called with every row of the trace.
        warm_start : bool, default=False
            Begin from the state of the training before, or of the file that the tagger was loaded
            from (``save(path, with_state=True)``): sequences that it knows begin with their dual
            variables, and new attributes and labels come after the old ones.
        validation : (X, y), optional
            Stop early, beside the certificate: after every pass these sequences are labeled, and
            training ends after ``patience`` passes without a better score (F1 of spans where
            labels begin with ``B-``, otherwise the share of right labels). ``coef_`` holds the
            best weights, ``certificate_`` is theirs, ``validation_scores_`` has (passes, score).
        patience : int, default=5

        Returns
        -------
        self
        """
        given = SampleInputs(sample_weight, token_weight, allowed)
        with self._watching(validation, patience):
            return self._fit_on(X, y, given, callback, warm_start)

    @contextmanager
    def _watching(self, validation: Any = None, patience: int = 5) -> Iterator[None]:
        """Hold sequences out for what is trained within."""
        self._held_out = None if validation is None else (validation, patience)
        try:
            yield
        finally:
            del self._held_out

    def _fit_on(
        self, X: Any, y: Any, given: SampleInputs, callback: Any, warm_start: bool
    ) -> SequenceTagger:
        if warm_start and "coef_" in self.__dict__ and not isinstance(X, Shards):
            return self._fit_known(X, y, given, callback)
        if isinstance(X, Shards):
            self._check_parameters()
            cache = encoded(self, X, y=y, **given._asdict())
            return self._fit(cache.encoder, cache.labels, (kept(self, cache), None), None, callback)
        return self._begin(X, y, None, given, callback)

    def _begin(
        self, X: Any, y: Any, classes: Any, given: SampleInputs, callback: Any = None
    ) -> SequenceTagger:
        """Train from nothing."""
        self._check_parameters()
        X, y, given, schema = read_training_table(self, X, y, given)
        encoder = SequenceEncoder(self.template, self.n_hash, self.min_count, schema)
        data = encoder.fit_transform(X)
        labels = Labels.fit(y) if classes is None else Labels(classes)
        labeled = self._labeled(data, labels, y, given)
        return self._fit(encoder, labels, labeled, callback=callback)

    def _labeled(
        self, data: Dataset, labels: Labels, y: Any, given: SampleInputs
    ) -> tuple[Dataset, NDArray[np.bool_] | None]:
        if len(labels) == 0:
            raise DataError("y has no labels; training needs at least one labeled token")
        numbers, partial = labels.encode(y, data.offsets)
        if partial is None and np.any(numbers < 0):
            partial = np.ones((data.n_tokens, len(labels)), dtype=bool)
        if partial is not None:
            known = np.flatnonzero(numbers >= 0)
            partial[known] = False
            partial[known, numbers[known]] = True
        weights = check_sample_weight(given.sample_weight, len(data))
        per_token, pseudo = np.ones(data.n_tokens), self.loss == PSEUDO
        if self.class_weight is not None:
            per_class = class_weights(self.class_weight, labels.classes, numbers)
            per_token = np.where(numbers >= 0, per_class[numbers], 1.0)
        if not pseudo:
            weights = weights * mean_by_example(per_token, data.offsets)
        elif given.token_weight is not None:
            per_token = per_token * token_weights(given.token_weight, data.offsets)
        mask = None
        if given.allowed is not None:
            mask = allowed_mask(given.allowed, labels, data.offsets)
        weight = None if pseudo else given.token_weight
        costs = costs_of(self.loss, self.cost, weight, labels.classes, numbers, data.offsets)
        labeled = data.with_labels(numbers, mask, weights, costs)
        return replace(labeled, token_weights=per_token if pseudo else None), partial

    def _fit(
        self,
        encoder: SequenceEncoder,
        labels: Labels,
        labeled: tuple[Dataset | ShardCache, NDArray[np.bool_] | None],
        warm: Any = None,
        callback: Callable[..., Any] | None = None,
    ) -> SequenceTagger:
        data, partial = labeled
        model = ChainModel.build(
            data, len(labels), feature_pairs=self.feature_pairs, transitions=self.transitions,
            forbidden=() if self.forbidden_transitions is None else self.forbidden_transitions,
            classes=labels.classes,
            intercept=self.intercept, boundaries=self.boundary_weights,
        )  # fmt: skip
        early = self._early_stopping(encoder, labels, model)
        try:
            fit = self._trained(model, labeled, early, warm, callback)
        except ForbiddenLabelError as error:
            raise error.named(labels.classes) from None
        for name in ("n_features_in_", "pruned_", "validation_scores_"):  # of another training
            self.__dict__.pop(name, None)
        self._set(encoder, labels, model, fit.weights)
        # A state on a device would keep its memory.
        state = fit.state if self.device is None else Start(fit.weights)
        self._training = data, partial, state
        self.__dict__.pop("_stored", None)
        if early is not None and early.best is not None:
            self.certificate_ = self._certificate_of(early.best)
            self._set(encoder, labels, model, early.best)
            self.validation_scores_ = early.scores
        return self

    def _trained(
        self,
        model: ChainModel,
        labeled: tuple[Dataset | ShardCache, NDArray[np.bool_] | None],
        early: EarlyStopping | None,
        warm: Any,
        callback: Callable[..., Any] | None,
    ) -> Any:
        """Make the problem, in memory or on disk, and solve it."""
        data, partial = labeled
        if isinstance(data, ShardCache):
            if early is not None:
                raise DataError("validation is not known for shards: leave it out")
            with data.locked():
                on_disk = problem_on_disk(self, model, data, threads(self.n_jobs))
                return self._train(on_disk, callback, warm=warm)
        problem = self._chain_problem(model, data, partial)
        if isinstance(warm, PartialWarmStart):
            most = self.max_memory * 2**30
            warm = self._adopted(problem, choose(problem, self._wanted(), most).solver, warm)
        return self._train(
            problem,
            callback,
            warm=warm,
            checkpoint=self.checkpoint,
            checkpoint_seconds=self.checkpoint_seconds,
            resume=bool(self.resume),
            monitor=early,
        )

    def _early_stopping(
        self, encoder: SequenceEncoder, labels: Labels, model: ChainModel
    ) -> EarlyStopping | None:
        """What ends training early, if held-out sequences were given."""
        given = self.__dict__.get("_held_out")
        if given is None:
            return None
        probe = SequenceTagger(**self.get_params(deep=False))
        probe._set(encoder, labels, model, np.zeros(model.dimension))
        return EarlyStopping(probe, *given)

    def _chain_problem(
        self, model: ChainModel, data: Dataset, partial: NDArray[np.bool_] | None
    ) -> ChainProblem:
        """What training minimizes."""
        jobs, loss = threads(self.n_jobs), self.loss
        if loss == PSEUDO:
            (model, data), loss = token_by_token(model, data), "log"
        problem = ChainProblem(model, data, self.C, partial, jobs, loss, self.gamma, self.smoother)
        return problem.elastic(self.l1_ratio)

    def _wanted(self) -> Any:
        """On a device, and in single precision, one solver works."""
        if self.dtype == "float32":
            return self._single()
        return (
            self.solver if self.device is None else on_device().solver_on(self.device, self.solver)
        )

    def _single(self) -> SDCA:
        """The solver with a state in float32."""
        given = SDCA() if self.solver in ("auto", "sdca") else self.solver
        if self.device is not None or not isinstance(given, SDCA):
            raise UnsupportedError(
                'dtype = "float32" is for solver "sdca" without a device; leave it out, or use that'
            )
        return replace(given, dtype="float32")

    def _most_epochs(self, solver: Any, problem: Any) -> float:
        """The default is that of the dual solvers, which prove more in a pass."""
        is_default = self.max_epochs == SequenceTagger.max_epochs
        proves_less = self.device is not None or isinstance(solver, LBFGS | OWLQN)
        more = proves_less and is_default and problem.is_convex
        return 10 * self.max_epochs if more else self.max_epochs

    def _fit_like(
        self, other: SequenceTagger, callback: Callable[..., Any] | None, **held_out: Any
    ) -> None:
        """Train on the examples of another tagger, from where its training ended."""
        self._check_parameters()
        data, partial, state = other._training
        with self._watching(**held_out):
            self._fit(other.encoder_, other.labels_, (data, partial), state, callback)

    def _set(
        self, encoder: SequenceEncoder, labels: Labels, model: ChainModel, weights: Floats
    ) -> None:
        self.encoder_, self.labels_, self.model_, self.coef_ = encoder, labels, model, weights
        self.classes_ = labels.classes
        if encoder.n_features_in is not None:
            self.n_features_in_ = encoder.n_features_in
        for name in CACHED:
            self.__dict__.pop(name, None)

    def _sections(self, X: Any, y: Any, tokens: Any = None, live: bool = False) -> list[Any]:
        from cliquewise.estimators.tagger.report import tagger_sections

        return tagger_sections(self, X, y, tokens, live)

    # ---- files

    def _to_file(self) -> tuple[Arrays, Header]:
        arrays, header = pack_chain(self.model_, self.encoder_, self.coef_)
        own = {"classes": plain_classes(self.classes_)}
        return arrays, own | header | saved_weights(self.class_weight, self.classes_)

    def _plain_parameters(self) -> dict[str, Any]:
        return super()._plain_parameters() | saved_cost(self.cost, self.classes_)

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        parts = restored_chain(arrays, header)
        if isinstance(parts[0].inner, TemplateEncoder):
            self.template = parts[0].inner.template
        self._set(*parts)
        if "class_weight" in header:
            self.class_weight = listed_weights(header["class_weight"], self.classes_)
        if "state" in header:
            own = ("data.", "edges.", "duals.")
            kept = {name: part for name, part in arrays.items() if name.startswith(own)}
            self._stored = kept, header["state"]

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        for name in ("_training", "_stored", *CACHED):
            state.pop(name, None)
        return state
