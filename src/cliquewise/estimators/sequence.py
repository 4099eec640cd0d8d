"""SequenceTagger: label the tokens of sequences with a linear-chain CRF."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.conversion import SequenceEncoder, allowed_mask
from cliquewise.data.dataset import Dataset
from cliquewise.data.labels import Labels
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators import _training
from cliquewise.graph import Floats
from cliquewise.models.chain import DENSE_CELLS, ChainModel
from cliquewise.problem import ChainProblem
from cliquewise.structure import Ints

#: Numbers in one block of scores: bounds the memory of prediction (64 MB).
BLOCK = 8_000_000


class SequenceTagger(BaseEstimator):  # type: ignore[misc]
    """Linear-chain conditional random field with a certificate of optimality.

    Parameters
    ----------
    loss : {"log"}, default="log"
        Negative log-likelihood.
    C : float, default=1.0
        Weight of the sum of the losses against ``1/2 ||w||^2`` (CRFsuite's ``c2`` is
        ``1 / (2 C)``).
    solver : str or Solver, default="auto"
        ``sdca``, ``lbfgs``, ``sag``, an instance of one, or ``auto``.
    tol : float, default=1e-3
        Stop at this relative duality gap.
    max_epochs : float, default=100
    max_seconds : float, optional
        Stop earlier, with a ``ConvergenceWarning`` that states the gap.
    feature_pairs : {"all", "seen"}, default="all"
        Weights for all (attribute, label) pairs, or only for those seen in training.
    transitions : {"all", "seen", "BIO", "BIOES"} or bool array, default="all"
        ``seen``: weights only for seen transitions. ``BIO``, ``BIOES`` or a (K, K) mask:
        other transitions are impossible.
    intercept, boundaries : bool, default=True
        A weight per label on every token; one on the first and one on the last.
    template : Template, str or path, optional
        CRF++ / Wapiti template (or "chunking", "ner"): ``X`` then holds columns, as
        :func:`cliquewise.data.read_conll` gives them, or rows of strings per token.
    n_hash : int, optional
        Hash attributes into so many instead of keeping a vocabulary.
    min_count : int, default=1
        Leave out attributes seen fewer times.
    class_weight : dict or "balanced", optional
        Weight of an example: the mean weight of its labels.
    n_jobs : int, default=1
        Threads for prediction and for passes over all examples.
    max_memory : float, default=8.0
        GiB that the solver's state may take; ``auto`` chooses a leaner solver beyond it.
    checkpoint : path, optional
        Keep the state of training in this file, renewed every minute.
    resume : bool, default=False
        Go on from that file if it exists.
    random_state : int or Generator, optional
        The same seed gives the same bits.
    verbose : int, default=0
        1 shows a live line with the certificate.

    Attributes
    ----------
    classes_ : list
        The labels.
    certificate_ : Certificate
        ``primal``, ``dual`` and ``gap``, per example.
    trace_ : Trace
        ``seconds``, ``epochs``, ``oracle_calls``, ``primal``, ``dual``, ``gap`` of every check.
    coef_ : ndarray
        Weights; ``weights_for`` names them.

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

    def __init__(
        self,
        loss: str = "log",
        C: float = 1.0,
        *,
        solver: Any = "auto",
        tol: float = 1e-3,
        max_epochs: float = 100,
        max_seconds: float | None = None,
        feature_pairs: str = "all",
        transitions: Any = "all",
        intercept: bool = True,
        boundaries: bool = True,
        template: Any = None,
        n_hash: int | None = None,
        min_count: int = 1,
        class_weight: Any = None,
        n_jobs: int = 1,
        max_memory: float = 8.0,
        checkpoint: Any = None,
        resume: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.loss = loss
        self.C = C
        self.solver = solver
        self.tol = tol
        self.max_epochs = max_epochs
        self.max_seconds = max_seconds
        self.feature_pairs = feature_pairs
        self.transitions = transitions
        self.intercept = intercept
        self.boundaries = boundaries
        self.template = template
        self.n_hash = n_hash
        self.min_count = min_count
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.max_memory = max_memory
        self.checkpoint = checkpoint
        self.resume = resume
        self.random_state = random_state
        self.verbose = verbose

    # ---- training

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        allowed: Any = None,
        callback: Callable[..., Any] | None = None,
    ) -> SequenceTagger:
        """Train.

        Parameters
        ----------
        X : sequences
            Per sequence: a list of feature dicts, of lists of strings or of (string, value)
            pairs; a 2-D array or CSR matrix; or, all at once, a 3-D array or a Dataset.
        y : list of lists of labels
            None or a set of labels where a label is not, or partly, known: the loss is then
            that of all labelings that agree (``solver`` must be ``auto`` or ``lbfgs``).
        sample_weight : array-like (n_sequences,), optional
        allowed : list of lists of (None or collections of labels), optional
            The labels that each token may take at all.
        callback : callable, optional
            Called with every row of the trace.

        Returns
        -------
        self
        """
        if self.loss != "log":
            raise UnsupportedError(f"loss {self.loss!r} is not available; the losses are: log")
        encoder = SequenceEncoder(self.template, self.n_hash, self.min_count)
        data = encoder.fit_transform(X)
        labels = Labels.fit(y)
        self._fit(encoder, labels, self._labelled(data, labels, y, sample_weight, allowed),
                  callback=callback)  # fmt: skip
        return self

    def _labelled(
        self, data: Dataset, labels: Labels, y: Any, sample_weight: Any, allowed: Any
    ) -> tuple[Dataset, NDArray[np.bool_] | None]:
        if len(labels) == 0:
            raise DataError("y has no labels; training needs at least one labelled token")
        numbers, partial = labels.encode(y, data.offsets)
        if partial is None and np.any(numbers < 0):
            partial = np.ones((data.n_tokens, len(labels)), dtype=bool)
        if partial is not None:
            known = np.flatnonzero(numbers >= 0)
            partial[known] = False
            partial[known, numbers[known]] = True
        weights = _training.check_sample_weight(sample_weight, len(data))
        if self.class_weight is not None:
            per_class = _training.class_weights(self.class_weight, labels.classes, numbers)
            per_token = np.where(numbers >= 0, per_class[numbers], 1.0)
            sums = np.add.reduceat(np.append(per_token, 0.0), data.offsets[:-1])
            weights = weights * np.where(data.lengths > 0, sums / np.maximum(data.lengths, 1), 1.0)
        mask = None if allowed is None else allowed_mask(allowed, labels, data.offsets)
        return data.with_labels(numbers, mask, weights), partial

    def _fit(
        self,
        encoder: SequenceEncoder,
        labels: Labels,
        labelled: tuple[Dataset, NDArray[np.bool_] | None],
        warm: Any = None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        data, partial = labelled
        model = ChainModel.build(
            data, len(labels), feature_pairs=self.feature_pairs, transitions=self.transitions,
            classes=labels.classes, intercept=self.intercept, boundaries=self.boundaries,
        )  # fmt: skip
        problem = ChainProblem(model, data, self.C, partial, self.n_jobs)
        fit = _training.train(self, problem, warm, callback)
        self._set(encoder, labels, model, fit.weights)
        self._training = (data, partial, fit.state)

    def _set(
        self, encoder: SequenceEncoder, labels: Labels, model: ChainModel, weights: Floats
    ) -> None:
        self.encoder_, self.labels_, self.model_, self.coef_ = encoder, labels, model, weights
        self.classes_ = labels.classes
        if encoder.n_features_in is not None:
            self.n_features_in_ = encoder.n_features_in
        self.__dict__.pop("_prediction", None)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> SequenceTagger:
        """Add examples to the dual and train on all of them, from where training stood.

        Parameters
        ----------
        X, y
            New sequences and their labels.
        classes : sequence, optional
            All labels that will ever come; needed in the first call if it lacks some.
        sample_weight : array-like, optional
        """
        if not hasattr(self, "_training"):
            encoder = SequenceEncoder(self.template, self.n_hash, self.min_count)
            data = encoder.fit_transform(X)
            labels = Labels.fit(y) if classes is None else Labels(classes)
            self._fit(encoder, labels, self._labelled(data, labels, y, sample_weight, None))
            return self
        old, partial, state = self._training
        encoder = self.encoder_.extended(X)
        new, new_partial = self._labelled(
            encoder.transform(X), self.labels_, y, sample_weight, None
        )
        if partial is not None or new_partial is not None:
            raise DataError("partial_fit needs every label to be known")
        if encoder.n_features != self.encoder_.n_features:
            old = encoder.widened(old)
        warm = state if self.solver_ == "sdca" else None
        self._fit(encoder, self.labels_, (Dataset.concat([old, new]), None), warm)
        return self

    # ---- prediction

    @cached_property
    def _prediction(self) -> tuple[ChainModel, Floats]:
        """Model and padded weights in the form that scores fastest."""
        model = self.model_
        if len(model.pair_start) and model.n_attributes * model.n_labels <= DENSE_CELLS:
            dense = np.concatenate(
                [model.emissions(self.coef_).ravel(), self.coef_[model.n_emissions :]]
            )
            model = model.as_dense()
            return model, model.padded(dense)
        return model, model.padded(self.coef_)

    def _encode(self, X: Any, allowed: Any = None) -> Dataset:
        check_is_fitted(self, "coef_")
        data = self.encoder_.transform(X)
        if allowed is None:
            return data
        return data.with_labels(None, allowed_mask(allowed, self.labels_, data.offsets))

    def _blocks(self, data: Dataset) -> Iterator[tuple[int, int]]:
        """Ranges of sequences whose scores fit into one block, at least one sequence each."""
        room = max(BLOCK // len(self.classes_), 1)
        first, n = 0, len(data)
        while first < n:
            last = int(np.searchsorted(data.offsets, data.offsets[first] + room, side="right")) - 1
            last = min(max(last, first + 1), n)
            yield first, last
            first = last

    def _each_block(self, data: Dataset, work: Callable[..., None]) -> None:
        """Call ``work(node_scores, offsets, trans, first, last)`` for all blocks, in threads."""
        from cliquewise._kernels.chain_features import node_scores

        model, w = self._prediction
        chains = model.chains(data)
        trans = model.shared_transitions(w)
        blocks = list(self._blocks(data))
        jobs = max(1, self.n_jobs)
        if jobs > 1:
            blocks = [
                (int(a), int(b))
                for first, last in blocks
                for a, b in _cut(first, last, jobs)
            ]

        def one(block: tuple[int, int]) -> None:
            first, last = block
            begin, end = int(data.offsets[first]), int(data.offsets[last])
            scores = np.empty((end - begin, model.n_labels))
            node_scores(chains, w, begin, end, model.n_labels, scores)
            if len(chains.allowed):
                scores[~chains.allowed[begin:end]] = -np.inf
            work(scores, data.offsets[first : last + 1] - begin, trans, first, last)

        if jobs == 1:
            for block in blocks:
                one(block)
        else:
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(one, blocks))

    def _check_feasible(self, scores: Floats, first: int = 0) -> None:
        if np.any(scores == -np.inf):
            i = first + int(np.argmax(scores == -np.inf))
            raise DataError(
                f"sequence {i} has no possible labeling: its allowed labels contradict the "
                "transitions"
            )

    def predict(self, X: Any, allowed: Any = None) -> list[list[Any]]:
        """The best label sequence of every input.

        Parameters
        ----------
        X : sequences, as in :meth:`fit`
        allowed : list of lists of (None or collections of labels), optional
            What each token may be; a set of one clamps the token.
        """
        from cliquewise._kernels.chain_decode import batch_viterbi

        data = self._encode(X, allowed)
        labels = np.empty(data.n_tokens, dtype=np.int64)

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            scores = np.empty(last - first)
            part = labels[data.offsets[first] : data.offsets[last]]
            batch_viterbi(nodes, offsets, trans, part, scores)
            self._check_feasible(scores, first)

        self._each_block(data, work)
        return self.labels_.decode(labels, data.offsets)

    def predict_marginals(
        self, X: Any, allowed: Any = None, *, pairwise: bool = False
    ) -> list[Any]:
        """Probabilities of the labels of every token.

        Parameters
        ----------
        X, allowed
            As in :meth:`predict`.
        pairwise : bool, default=False
            Also the joint probabilities of neighbouring labels.

        Returns
        -------
        list of arrays (T, K), or of pairs ``(nodes (T, K), edges (T - 1, K, K))``
            Columns are in the order of ``classes_``.
        """
        from cliquewise._kernels.chain import batch_forward_backward

        data = self._encode(X, allowed)
        k = len(self.classes_)
        nodes_out = np.empty((data.n_tokens, k))
        links = np.maximum(data.lengths - 1, 0)
        edge_offsets = np.concatenate(([0], np.cumsum(links)))
        edges_out = np.empty((int(edge_offsets[-1]) if pairwise else 0, k, k))

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            log_z = np.empty(last - first)
            edges = edges_out
            if pairwise:
                edges = edges_out[edge_offsets[first] : edge_offsets[last]]
            part = nodes_out[data.offsets[first] : data.offsets[last]]
            batch_forward_backward(nodes, offsets, trans, part, edges, np.empty((0, k)), log_z)
            self._check_feasible(log_z, first)

        self._each_block(data, work)
        parts = np.split(nodes_out, data.offsets[1:-1])[: len(data)]
        if not pairwise:
            return parts
        return list(zip(parts, np.split(edges_out, edge_offsets[1:-1])[: len(data)], strict=True))

    def predict_top_k(self, X: Any, k: int, allowed: Any = None) -> list[list[tuple[float, Any]]]:
        """The ``k`` best label sequences of every input, best first.

        Returns
        -------
        list of lists of (probability, labels)
            Fewer than ``k`` where fewer are possible.
        """
        from cliquewise._kernels.chain import batch_log_partition
        from cliquewise._kernels.chain_decode import batch_top_k

        if k < 1:
            raise DataError(f"k = {k}; it must be at least 1")
        data = self._encode(X, allowed)
        out: list[list[tuple[float, Any]]] = [[] for _ in range(len(data))]

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            n = last - first
            labels = np.empty((k, len(nodes)), dtype=np.int64)
            scores, counts = np.empty((n, k)), np.empty(n, dtype=np.int64)
            log_z = np.empty(n)
            batch_top_k(nodes, offsets, trans, labels, scores, counts)
            batch_log_partition(nodes, offsets, trans, log_z)
            self._check_feasible(log_z, first)
            for i in range(n):
                begin, end = offsets[i], offsets[i + 1]
                for r in range(counts[i]):
                    tags = self.labels_.decode(labels[r, begin:end], [0, end - begin])[0]
                    out[first + i].append((float(np.exp(scores[i, r] - log_z[i])), tags))

        self._each_block(data, work)
        return out

    def log_likelihood(self, X: Any, y: Any) -> Floats:
        """``log p(y | x)`` of every sequence."""
        from cliquewise._kernels.chain import batch_log_partition
        from cliquewise._kernels.chain_decode import path_score

        data = self._encode(X)
        numbers, _ = self.labels_.encode(y, data.offsets)
        if np.any(numbers < 0):
            raise DataError("log_likelihood needs every label to be known")
        numbers = numbers.astype(np.int64)
        out = np.zeros(len(data))

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            log_z = np.empty(last - first)
            batch_log_partition(nodes, offsets, trans, log_z)
            labels = numbers[data.offsets[first] : data.offsets[last]]
            for i in range(last - first):
                begin, end = offsets[i], offsets[i + 1]
                truth = path_score(nodes[begin:end], trans, labels[begin:end])
                out[first + i] = truth - log_z[i]

        self._each_block(data, work)
        return out

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of tokens with the right label."""
        from cliquewise.metrics import token_accuracy

        return float(token_accuracy(y, self.predict(X)))

    # ---- looking inside

    def explain(self, x: Any, n: int = 5) -> list[dict[str, Any]]:
        """Which features speak for the tags of one sequence.

        Returns
        -------
        list of dicts, one per token
            ``tag``, ``probability``, ``features`` (the ``n`` largest contributions for the tag,
            as (name, contribution)) and ``transition`` (from the tag before it).
        """
        tags = self.predict([x])[0]
        marginals = self.predict_marginals([x])[0]
        model = self.model_
        chains = model.chains(self._encode([x]))
        names = self.feature_names()
        emissions = _Emissions(model, self.coef_)
        trans = model.transitions(self.coef_)
        index = {c: i for i, c in enumerate(self.classes_)}
        out = []
        for t, tag in enumerate(tags):
            y = index[tag]
            span = slice(int(chains.indptr[t]), int(chains.indptr[t + 1]))
            values = np.ones(span.stop - span.start) if not len(chains.values) else chains.values[span]
            parts = [
                (names[a], float(v * emissions.weight(a, y)))
                for a, v in zip(chains.indices[span].tolist(), values.tolist(), strict=True)
            ]
            parts.sort(key=lambda item: -abs(item[1]))
            out.append(
                {
                    "tag": tag,
                    "probability": float(marginals[t, y]),
                    "features": parts[:n],
                    "transition": float(trans[index[tags[t - 1]], y]) if t else 0.0,
                }
            )
        return out

    def feature_names(self) -> list[str]:
        """Names of the attributes, in the order of the weights."""
        check_is_fitted(self, "coef_")
        names = self.encoder_.names()
        extra = (["(intercept)"] if self.intercept else []) + (
            ["(begin)", "(end)"] if self.boundaries else []
        )
        return names + extra

    # ---- files

    def save(self, path: str | Path) -> None:
        """Write the model to one file; see :func:`cliquewise.load`."""
        from cliquewise.estimators.files import save_tagger

        check_is_fitted(self, "coef_")
        save_tagger(self, path)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        for name in ("_training", "_prediction"):
            state.pop(name, None)
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


class _Emissions:
    """Look up one emission weight, whatever the layout."""

    def __init__(self, model: ChainModel, w: Floats):
        self.model, self.w = model, w

    def weight(self, attribute: int, label: int) -> float:
        m = self.model
        if not len(m.pair_start):
            return float(self.w[attribute * m.n_labels + label])
        begin, end = int(m.pair_start[attribute]), int(m.pair_start[attribute + 1])
        at = begin + int(np.searchsorted(m.pair_label[begin:end], label))
        return float(self.w[at]) if at < end and m.pair_label[at] == label else 0.0


def _cut(first: int, last: int, pieces: int) -> list[tuple[int, int]]:
    marks = np.unique(np.linspace(first, last, pieces + 1).astype(int))
    return list(zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True))
