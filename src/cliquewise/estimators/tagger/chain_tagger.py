"""ChainTagger: a fitted linear chain that predicts, without scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import InitVar, dataclass, replace
from typing import Any

import numpy as np

from cliquewise.data.conversion import SequenceEncoder, allowed_mask
from cliquewise.data.dataset import Dataset
from cliquewise.data.labels import Labels
from cliquewise.data.raw_features import RawFeatures
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._inputs import bounded_k, check_sample_weight, threads
from cliquewise.estimators.tagger import spans
from cliquewise.estimators.tagger.prepared_weights import DecodingTables, PreparedWeights
from cliquewise.estimators.tagger.tables import (
    as_labels,
    as_probabilities,
    as_spans,
    one_sequence,
    takes_tables,
    unchanged,
)
from cliquewise.graph.sizes import largest_finite
from cliquewise.metrics import token_accuracy
from cliquewise.models.chain import ChainModel
from cliquewise.oracles._rescaling import PLAIN, check_chains_resolved, level_chains
from cliquewise.ragged import Floats, Ints, offsets_of

#: Largest number of scores in one block. Bounds the memory of prediction (64 MB in float64).
BLOCK = 8_000_000

#: Losses whose scores define a probability distribution.
PROBABILISTIC = ("log", "pseudo_likelihood", "softmax_margin")


@dataclass(eq=False)
class ChainTagger:
    """A fitted linear-chain model that predicts labels, marginals, spans and the best labelings.

    :class:`~cliquewise.SequenceTagger` trains one and predicts with it.
    ``cliquewise.load(path, predict_only=True)`` returns one: unlike the estimator, this class does
    not import scikit-learn, which takes most of the start-up time of a new process.

    Parameters
    ----------
    encoder_ : SequenceEncoder
        Maps sequences to attribute numbers.
    labels_ : Labels
    model_ : ChainModel
        Which weights there are, and which transitions are allowed.
    coef_ : ndarray
        The weights.
    loss : str, default="log"
        The training loss; it determines whether the model has probabilities.
    sequence_column : str, optional
        The column of a table that identifies the sequence of each row.
    n_jobs : int, default=1
        Number of threads.
    max_memory : float, default=8.0
        Limit for :meth:`predict_top_k` and :meth:`predict_spans`, in GiB.
    device : str, optional
        A PyTorch device.
    prepared_weights : PreparedWeights, optional
        Derived forms of the same weights, to share with another chain.

    See Also
    --------
    cliquewise.SequenceTagger : Trains a chain.

    Examples
    --------
    >>> import cliquewise as cw, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "model.cw")
    >>> cw.SequenceTagger().fit([[["a"], ["b"]]], [["A", "B"]]).save(path)
    >>> chain = cw.load(path, predict_only=True)
    >>> chain.predict([[["a"], ["b"]]])
    [['A', 'B']]
    """

    encoder_: SequenceEncoder
    labels_: Labels
    model_: ChainModel
    coef_: Floats
    loss: str = "log"
    sequence_column: str | None = None
    n_jobs: int | None = 1
    max_memory: float = 8.0
    device: str | None = None
    prepared_weights: InitVar[PreparedWeights | None] = None

    def __post_init__(self, prepared_weights: PreparedWeights | None) -> None:
        self.prepared = prepared_weights or PreparedWeights(self.model_, self.coef_)

    @property
    def classes_(self) -> list[Any]:
        """The labels."""
        return self.labels_.classes

    @property
    def has_probabilities(self) -> bool:
        """Whether the training loss defines probabilities (the hinge losses do not)."""
        return self.loss in PROBABILISTIC

    def with_weights(self, weights: Floats) -> ChainTagger:
        """Return the same chain with other weights."""
        return replace(self, coef_=weights)

    # ---- labels

    @takes_tables(as_labels)
    def predict(self, X: Any, allowed: Any = None, *, decoding: str = "viterbi") -> list[list[Any]]:
        """Return the best label sequence of every input.

        Parameters
        ----------
        X : sequences or a table, as in :meth:`SequenceTagger.fit <cliquewise.SequenceTagger.fit>`
        allowed : list of lists of (None or collections of labels), optional
            The labels that each token may have; a set of one label clamps the token.
        decoding : {"viterbi", "marginal"}, default="viterbi"
            ``"viterbi"`` returns the most probable label sequence, ``"marginal"`` the most probable
            label of each token. The latter minimizes the expected number of wrong labels, but may
            violate transition constraints.

        Returns
        -------
        list of lists of labels
            For a table: a column of the same library, with a label (or a list of labels) per row.

        Examples
        --------
        >>> from cliquewise import SequenceTagger
        >>> X, y = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]], [["D", "N"], ["D", "N"]]
        >>> SequenceTagger(random_state=0).fit(X, y).predict([[["w=the"], ["w=cat"]]])
        [['D', 'N']]
        """
        if decoding == "marginal":
            best = [m.argmax(axis=1) for m in self.predict_marginals(X, allowed)]
            flat = np.concatenate([np.empty(0, dtype=np.int64), *best])
            return self.labels_.decode(flat, offsets_of([len(b) for b in best]))
        if decoding != "viterbi":
            raise DataError(f'decoding is "viterbi" or "marginal", not {decoding!r}')
        tables = self.fast_tables() if allowed is None else None
        if tables is not None:
            return self.decode_features(self.encoder_.entries(X), tables)
        return self.decode(self.encode(X, allowed))

    def predict_single(self, x: Any) -> list[Any]:
        """Return the best labels of one sequence; the same as ``predict([x])[0]``."""
        labels: list[Any] = self.predict([one_sequence(self, x)])[0]
        return labels

    def encode(self, X: Any, allowed: Any = None) -> Dataset:
        """Return the sequences as a Dataset, without labels."""
        data = self.encoder_.transform(X)
        if allowed is None:
            return data
        return data.with_labels(None, allowed_mask(allowed, self.labels_, data.offsets))

    def fast_tables(self) -> DecodingTables | None:
        """Return what :meth:`decode_features` needs; None if it does not support this chain."""
        return self.prepared.tables if self.device is None else None

    def decode_features(self, features: RawFeatures, tables: DecodingTables) -> list[list[Any]]:
        """Return the best labels, computed from attributes in one fused kernel."""
        from cliquewise._kernels.chain.decode import tag

        values, size = np.empty(0), 1.0
        if features.values is not None:
            values = features.values
            size = max(-values.min(initial=-1.0), values.max(initial=1.0))
        most = PLAIN / (size * tables.largest)
        if not len(features.indices) + 3 <= most and not features.lengths.max() + 3 <= most:
            return self.decode(features.compact())  # large scores need rescaling
        offsets, lengths = features.offsets, features.lengths
        labels = np.empty(len(lengths), dtype=np.int64)
        rows, indices = self.prepared.rows(features.indices)
        args = (offsets, lengths, indices, values, rows, tables.constants, tables.trans)

        def work(first: int, last: int) -> None:
            infeasible = int(tag(*args, first, last, labels))
            if infeasible >= 0:
                self._check_feasible(np.array([-np.inf]), infeasible)

        self._in_threads(features, work)
        return self.labels_.decode(labels, offsets)

    def decode(self, data: Dataset) -> list[list[Any]]:
        """Return the best labels of encoded sequences."""
        on_device = self._on_device(data)
        if on_device is not None:
            labels, scores = on_device.best(data)
            self._check_feasible(scores)
            return self.labels_.decode(labels, data.offsets)
        labels = np.empty(data.n_tokens, dtype=np.int64)

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            part = labels[data.offsets[first] : data.offsets[last]]
            self.decode_block(nodes, offsets, trans, part, first)

        self.for_each_block(data, work)
        return self.labels_.decode(labels, data.offsets)

    def decode_block(
        self, nodes: Floats, offsets: Ints, trans: Floats, labels: Ints, first: int
    ) -> None:
        """Write the best labels of one block of scores into ``labels``."""
        from cliquewise._kernels.chain.decode import batch_viterbi
        from cliquewise._kernels.chain.sparse import batch_sparse_viterbi

        scores, lists = np.empty(len(offsets) - 1), self.prepared.sparse_transitions
        if lists is None:
            batch_viterbi(nodes, offsets, trans, labels, scores)
        else:
            batch_sparse_viterbi(nodes, offsets, *lists, labels, scores)
        self._check_feasible(scores, first)

    # ---- probabilities

    @takes_tables(as_probabilities)
    def predict_marginals(
        self, X: Any, allowed: Any = None, *, pairwise: bool = False, as_dicts: bool = False
    ) -> list[Any]:
        """Return the probabilities of the labels of every token.

        Parameters
        ----------
        X, allowed
            As in :meth:`predict`.
        pairwise : bool, default=False
            Also return the joint probabilities of adjacent labels.
        as_dicts : bool, default=False
            Return lists of dicts (label to probability) instead of arrays, as sklearn-crfsuite
            does.

        Returns
        -------
        list of arrays (T, K), or of pairs ``(nodes (T, K), edges (T - 1, K, K))``
            Columns are in the order of ``classes_``. For a table: a table of the same library,
            with a column per label.

        Examples
        --------
        >>> from cliquewise import SequenceTagger
        >>> X, y = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]], [["D", "N"], ["D", "N"]]
        >>> tagger = SequenceTagger(random_state=0).fit(X, y)
        >>> tagger.predict_marginals([[["w=the"], ["w=cat"]]])[0].round(2)
        array([[0.8..., 0.1...],
               [0.1..., 0.8...]])
        """
        if pairwise and as_dicts:
            raise DataError("as_dicts=True and pairwise=True cannot be combined; choose one")
        from cliquewise._kernels.chain.sums import batch_forward_backward

        self._check_probabilistic()
        data = self.encode(X, allowed)
        k = len(self.classes_)
        nodes_out = np.empty((data.n_tokens, k))
        edge_offsets = offsets_of(np.maximum(data.lengths - 1, 0))
        edges_out = np.empty((int(edge_offsets[-1]) if pairwise else 0, k, k))

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            log_z = np.empty(last - first)
            edges = edges_out
            if pairwise:
                edges = edges_out[edge_offsets[first] : edge_offsets[last]]
            part = nodes_out[data.offsets[first] : data.offsets[last]]
            batch_forward_backward(nodes, offsets, trans, part, edges, np.empty((0, k)), log_z)
            self.check_resolved(log_z, first)

        on_device = None if pairwise else self._on_device(data)
        if on_device is None:
            self.for_each_block(data, work)
        else:
            nodes_out, log_z = on_device.marginals(data)
            self._check_feasible(log_z)
        parts = np.split(nodes_out, data.offsets[1:-1])[: len(data)]
        if as_dicts:
            return [[dict(zip(self.classes_, row)) for row in part.tolist()] for part in parts]
        if not pairwise:
            return parts
        return list(zip(parts, np.split(edges_out, edge_offsets[1:-1])[: len(data)], strict=True))

    def predict_marginals_single(self, x: Any) -> list[dict[Any, float]]:
        """Return the label probabilities of one sequence, a dict (label to number) per token."""
        found: list[dict[Any, float]] = self.predict_marginals(
            [one_sequence(self, x)], as_dicts=True
        )[0]
        return found

    @takes_tables(unchanged)
    def predict_top_k(self, X: Any, k: int, allowed: Any = None) -> list[list[tuple[float, Any]]]:
        """Return the ``k`` most probable label sequences of every input, best first.

        Parameters
        ----------
        X, allowed
            As in :meth:`predict`.
        k : int

        Returns
        -------
        list of lists of (probability, labels)
            Fewer than ``k`` if fewer are possible.

        Examples
        --------
        >>> from cliquewise import SequenceTagger
        >>> X, y = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]], [["D", "N"], ["D", "N"]]
        >>> tagger = SequenceTagger(random_state=0).fit(X, y)
        >>> tagger.predict_top_k([[["w=the"], ["w=cat"]]], 1)
        [[(0.7..., ['D', 'N'])]]
        """
        from cliquewise._kernels.chain.sums import batch_log_partition
        from cliquewise._kernels.chain.top_k import batch_top_k

        self._check_probabilistic()
        data = self.encode(X, allowed)
        # Bytes of one labeling of all sequences, which is held as numbers and as a list of labels.
        size, longest = 16.0 * data.n_tokens + 100.0 * len(data), int(data.lengths.max(initial=0))
        k = bounded_k(k, len(self.classes_), longest, size, self.max_memory)
        out: list[list[tuple[float, Any]]] = [[] for _ in range(len(data))]

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            n = last - first
            labels = np.empty((k, len(nodes)), dtype=np.int64)
            scores, counts = np.empty((n, k)), np.empty(n, dtype=np.int64)
            log_z = np.empty(n)
            batch_top_k(nodes, offsets, trans, labels, scores, counts)
            batch_log_partition(nodes, offsets, trans, log_z)
            self.check_resolved(log_z, first)
            for i in range(n):
                begin, end = offsets[i], offsets[i + 1]
                for r in range(counts[i]):
                    tags = self.labels_.decode(labels[r, begin:end], [0, end - begin])[0]
                    out[first + i].append((float(np.exp(scores[i, r] - log_z[i])), tags))

        self.for_each_block(data, work)
        return out

    @takes_tables(unchanged)
    def log_likelihood(self, X: Any, y: Any) -> Floats:
        """Return ``log p(y | x)`` of every sequence.

        Examples
        --------
        >>> from cliquewise import SequenceTagger
        >>> X, y = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]], [["D", "N"], ["D", "N"]]
        >>> SequenceTagger(random_state=0).fit(X, y).log_likelihood(X, y).round(1)
        array([-0.3, -0.3])
        """
        from cliquewise._kernels.chain.decode import path_score
        from cliquewise._kernels.chain.sums import batch_log_partition

        self._check_probabilistic()
        data = self.encode(X)
        numbers, _ = self.labels_.encode(y, data.offsets)
        if np.any(numbers < 0):
            raise DataError("log_likelihood needs a label for every token")
        numbers = numbers.astype(np.int64)
        out = np.zeros(len(data))

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            log_z = np.empty(last - first)
            batch_log_partition(nodes, offsets, trans, log_z)
            self.check_resolved(log_z, first)
            labels = numbers[data.offsets[first] : data.offsets[last]]
            at = 0
            for i in range(last - first):
                begin, end = offsets[i], offsets[i + 1]
                n_pairs = max(end - begin - 1, 0)
                own = trans if data.edges is None else trans[at : at + n_pairs]
                out[first + i] = path_score(nodes[begin:end], own, labels[begin:end]) - log_z[i]
                at += n_pairs

        self.for_each_block(data, work)
        return out

    # ---- spans and scores

    @takes_tables(as_spans)
    def predict_spans(
        self,
        X: Any,
        allowed: Any = None,
        *,
        proba: bool = False,
        candidates: str = "best",
        threshold: float | None = None,
        k: int | None = None,
    ) -> list[list[Any]]:
        """Return the spans (entities, chunks) of every input.

        Labels are O or ``<prefix>-<type>`` with the prefixes of BIO, BIOES, BILOU, IO or IOB1.
        They are read as :func:`cliquewise.metrics.span_scores` reads them.

        Parameters
        ----------
        X, allowed
            As in :meth:`predict`.
        proba : bool, default=False
            Add the probability that exactly this span with this type occurs: the sum over all
            labelings that contain it. ``threshold``, ``k`` and ``candidates="all"`` imply it.
        candidates : {"best", "all"}, default="best"
            ``"best"`` returns the spans of the best labeling, ``"all"`` all possible spans. The
            latter may overlap, and need a ``threshold`` or a ``k``.
        threshold : float, optional
            Leave out spans with a smaller probability.
        k : int, optional
            Return only the k most probable spans of each sequence, most probable first.

        Returns
        -------
        list of lists of (start, end, type) or (start, end, type, probability)
            Named tuples; ``end`` is exclusive. In text order, or by decreasing probability if ``k``
            is given. For a table: a table of the same library, with a row per span; the
            column that identifies the sequence is called ``sequence`` if its name is taken.

        Examples
        --------
        >>> from cliquewise import SequenceTagger
        >>> X = [[["w=Anna"], ["w=sees"], ["w=Rome"]]] * 3
        >>> tagger = SequenceTagger(random_state=0).fit(X, [["B-PER", "O", "B-LOC"]] * 3)
        >>> tagger.predict_spans(X[:1])
        [[Span(start=0, end=1, type='PER'), Span(start=2, end=3, type='LOC')]]
        >>> [(s.type, s.probability > 0.5) for s in tagger.predict_spans(X, proba=True)[0]]
        [('PER', True), ('LOC', True)]
        """
        spans.check_choice(candidates, threshold, k)
        labels = spans.span_labels(tuple(self.classes_))
        if not (proba or candidates == "all" or threshold is not None or k is not None):
            return spans.read_spans(self.predict(X, allowed))
        self._check_probabilistic()
        data = self.encode(X, allowed)
        if candidates == "best":
            found = spans.score_best(self, data)
        else:
            found = spans.search(self, data, 0.0 if threshold is None else threshold, k)
        if threshold is not None:
            found = found.only(found.probabilities >= threshold)
        return spans.listed(found, data.offsets, labels.types, k)

    @takes_tables(unchanged)
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of tokens with the right label, weighted by ``sample_weight``."""
        predicted = self.predict(X)
        weights = check_sample_weight(sample_weight, len(predicted))
        return token_accuracy(y, predicted, weights)

    # ---- blocks of scores

    def for_each_block(self, data: Dataset, work: Callable[..., None]) -> None:
        """Call ``work(nodes, offsets, trans, first, last)`` for blocks of sequences, in threads."""
        form = self.model_.form(data, learn=False)

        def score_and_work(first: int, last: int) -> None:
            nodes, trans = level_chains(*form.potentials(self.prepared.packed, first, last))
            offsets = data.offsets[first : last + 1] - data.offsets[first]
            work(nodes, offsets, trans, first, last)

        self._in_threads(data, score_and_work)

    def _in_threads(self, data: Dataset | RawFeatures, work: Callable[[int, int], None]) -> None:
        """Call ``work(first, last)`` for all blocks."""
        blocks = list(self._blocks(data))
        jobs = threads(self.n_jobs)
        if jobs == 1:
            for block in blocks:
                work(*block)
            return
        smaller = [piece for first, last in blocks for piece in _cut(first, last, jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda block: work(*block), smaller))

    def _blocks(self, data: Dataset | RawFeatures) -> Iterator[tuple[int, int]]:
        """Yield ranges of sequences with at most BLOCK scores each, or a single sequence."""
        k = len(self.classes_)
        n_tokens = max(BLOCK // (k * k if self.model_.n_edge_attributes else k), 1)
        first, n = 0, len(data)
        if data.offsets[-1] <= n_tokens:
            if n:
                yield 0, n
            return
        while first < n:
            limit = data.offsets[first] + n_tokens
            last = int(np.searchsorted(data.offsets, limit, side="right")) - 1
            last = min(max(last, first + 1), n)
            yield first, last
            first = last

    def _on_device(self, data: Dataset) -> Any:
        """Return the device's predictor; None without a device or if scores need rescaling."""
        if self.device is None:
            return None
        size = 1.0 if data.values is None else np.abs(data.values).max(initial=1.0)
        most = float(np.diff(data.indptr).max(initial=0)) + 3.0
        if most * size * largest_finite(self.prepared.packed) > PLAIN:
            return None
        return self.prepared.on_device(self.device)

    # ---- checks

    def _check_probabilistic(self) -> None:
        if not self.has_probabilities:
            raise UnsupportedError(
                "the hinge loss defines scores, not probabilities: use predict, or train with "
                'loss="log" for marginals, top-k probabilities and likelihoods'
            )

    def _check_feasible(self, scores: Floats, first: int = 0) -> None:
        if np.any(scores == -np.inf):
            i = first + int(np.argmax(scores == -np.inf))
            raise DataError(
                f"sequence {i} has no possible labeling: its allowed labels contradict the "
                "allowed transitions"
            )

    def check_resolved(self, log_z: Floats, first: int) -> None:
        """Raise an error for infeasible sequences, and for scores that float64 cannot resolve."""
        self._check_feasible(log_z, first)
        check_chains_resolved(log_z, first)


def _cut(first: int, last: int, pieces: int) -> list[tuple[int, int]]:
    marks = np.unique(np.linspace(first, last, pieces + 1).astype(int))
    return list(zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True))
