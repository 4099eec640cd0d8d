"""Prediction with a fitted chain: labels, marginals, the k best, likelihood. In threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.conversion import SequenceEncoder, allowed_mask
from cliquewise.data.dataset import Dataset
from cliquewise.data.labels import Labels
from cliquewise.data.raw_features import RawFeatures
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._inputs import bounded_k, check_sample_weight, threads
from cliquewise.estimators.tagger.device import on_device
from cliquewise.estimators.tagger.tables import (
    as_it_is,
    as_labels,
    as_probabilities,
    one_sequence,
    takes_tables,
)
from cliquewise.graph.sizes import largest_finite
from cliquewise.metrics import token_accuracy
from cliquewise.models.chain import ChainModel
from cliquewise.models.chain_form import PADDING
from cliquewise.models.sparse_transitions import is_sparse, may_be_sparse, transition_lists
from cliquewise.oracles._rescaling import PLAIN, check_chains_resolved, level_chains
from cliquewise.ragged import Floats, Ints, offsets_of

#: Numbers in one block of scores: bounds the memory of prediction (64 MB).
BLOCK = 8_000_000

#: What prediction keeps of the weights.
CACHED = (
    "_packed", "_sparse_transitions", "_tables", "_predictor", "_span_labels", "_span_rules",
    "_looked_up",
)  # fmt: skip

#: While all attributes that were looked up are fewer than this part of the model's, only their
#: weights are read.
FEW_ROWS = 20


class Tables(NamedTuple):
    """Weights as ``_kernels.chain.decode.tag`` takes them, and the largest of all."""

    constants: Floats
    trans: Floats
    largest: float


class ChainPrediction:
    """What a fitted tagger answers about new sequences."""

    model_: ChainModel
    coef_: Floats
    encoder_: SequenceEncoder
    labels_: Labels
    classes_: list[Any]
    loss: str
    by: str | None
    n_jobs: int | None
    device: str | None
    max_memory: float
    #: Attributes of tokens that were tagged before the weights were packed.
    _looked_up: int = 0

    @cached_property
    def _packed(self) -> Floats:
        """The weights in the form that scores fastest."""
        return self.model_.form(learn=False).pack(self.coef_)

    @cached_property
    def _sparse_transitions(self) -> tuple[Any, ...] | None:
        """Nonzero transitions by row, where they are few of many; None elsewhere."""
        if not may_be_sparse(self.model_):
            return None
        trans = self.model_.transitions(self.coef_)
        return transition_lists(trans) if is_sparse(trans) else None

    @cached_property
    def _tables(self) -> Tables | None:
        """What the fastest way to the best labels reads; None where it does not lead there."""
        model = self.model_
        form = model.form(learn=False)
        trans = model.transitions(self.coef_)[None].copy()
        largest = max(largest_finite(self.coef_), 1.0)
        pairs_alone = bool(len(model.pair_start)) and not form.rows
        if model.n_edge_attributes or pairs_alone or self._sparse_transitions or largest > PLAIN:
            return None
        if len(model.edge_allowed):
            trans[0, ~model.edge_allowed] = -np.inf
        k, fixed = model.n_labels, model.intercept + 2 * model.boundaries
        constants = np.zeros((3, -(-k // PADDING) * PADDING))
        there = np.array([model.intercept, model.boundaries, model.boundaries])
        last = np.arange(model.n_attributes - fixed, model.n_attributes)
        constants[there, :k] = model.rows(self.coef_, last)
        constants[1, :k][~model.begin_allowed] = -np.inf
        constants[2, :k][~model.end_allowed] = -np.inf
        return Tables(constants, trans, largest)

    @cached_property
    def _predictor(self) -> Any:
        """The weights on the device; None for models that it does not know."""
        return on_device().predictor_on(self.device, self.model_, self.coef_)

    def _predictor_of(self, data: Dataset) -> Any:
        """What predicts on the device; None without one, and for scores that need care."""
        if self.device is None:
            return None
        size = 1.0 if data.values is None else np.abs(data.values).max(initial=1.0)
        most = float(np.diff(data.indptr).max(initial=0)) + 3.0
        return self._predictor if most * size * largest_finite(self._packed) <= PLAIN else None

    def _check_fitted(self) -> None:
        if "coef_" not in self.__dict__:
            from sklearn.utils.validation import check_is_fitted

            check_is_fitted(self, "coef_")

    def _encode(self, X: Any, allowed: Any = None) -> Dataset:
        self._check_fitted()
        data = self.encoder_.transform(X)
        if allowed is None:
            return data
        return data.with_labels(None, allowed_mask(allowed, self.labels_, data.offsets))

    def _blocks(self, data: Dataset | RawFeatures) -> Iterator[tuple[int, int]]:
        """Ranges of sequences whose scores fit into one block, at least one sequence each."""
        k = len(self.classes_)
        room = max(BLOCK // (k * k if self.model_.n_edge_attributes else k), 1)
        first, n = 0, len(data)
        if data.offsets[-1] <= room:
            if n:
                yield 0, n
            return
        while first < n:
            last = int(np.searchsorted(data.offsets, data.offsets[first] + room, side="right")) - 1
            last = min(max(last, first + 1), n)
            yield first, last
            first = last

    def _each_block(self, data: Dataset, work: Callable[..., None]) -> None:
        """Call ``work(nodes, offsets, trans, first, last)`` for all blocks, in threads."""
        form = self.model_.form(data, learn=False)

        def one(first: int, last: int) -> None:
            nodes, trans = level_chains(*form.potentials(self._packed, first, last))
            offsets = data.offsets[first : last + 1] - data.offsets[first]
            work(nodes, offsets, trans, first, last)

        self._in_threads(data, one)

    def _in_threads(self, data: Dataset | RawFeatures, work: Callable[[int, int], None]) -> None:
        """Call ``work(first, last)`` for all blocks."""
        blocks = list(self._blocks(data))
        jobs = threads(self.n_jobs)
        if jobs > 1:
            blocks = [
                (int(a), int(b)) for first, last in blocks for a, b in _cut(first, last, jobs)
            ]

        if jobs == 1:
            for block in blocks:
                work(*block)
        else:
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(lambda block: work(*block), blocks))

    @property
    def has_probabilities(self) -> bool:
        """Whether it was trained with a loss that makes probabilities of scores."""
        return self.loss in ("log", "pseudo_likelihood", "softmax_margin")

    def _need_probabilities(self) -> None:
        if not self.has_probabilities:
            raise UnsupportedError(
                "the hinge loss gives scores, not probabilities: predict works, marginals, "
                'top-k probabilities and likelihoods do not; train with loss="log"'
            )

    def _check_feasible(self, scores: Floats, first: int = 0) -> None:
        if np.any(scores == -np.inf):
            i = first + int(np.argmax(scores == -np.inf))
            raise DataError(
                f"sequence {i} has no possible labeling: its allowed labels contradict the "
                "transitions"
            )

    def _check_probable(self, log_z: Floats, first: int) -> None:
        """Refuse what is impossible, and what float64 cannot tell apart."""
        self._check_feasible(log_z, first)
        check_chains_resolved(log_z, first)

    @takes_tables(as_labels)
    def predict(self, X: Any, allowed: Any = None, *, decoding: str = "viterbi") -> list[list[Any]]:
        """The best label sequence of every input.

        Parameters
        ----------
        X : sequences or a table, as in :meth:`fit`
        allowed : list of lists of (None or collections of labels), optional
            What each token may be; a set of one clamps the token.
        decoding : {"viterbi", "marginal"}, default="viterbi"
            The most probable sequence, or the most probable label of each token: the latter
            makes the fewest wrong labels on average, but may break transition rules.

        Returns
        -------
        list of lists of labels
            For a table a column of its library: a label, or a list of them, for each of its rows.
        """
        if decoding == "marginal":
            best = [m.argmax(axis=1) for m in self.predict_marginals(X, allowed)]
            flat = np.concatenate([np.empty(0, dtype=np.int64), *best])
            ends = offsets_of([len(b) for b in best])
            return self.labels_.decode(flat, ends)
        if decoding != "viterbi":
            raise DataError(f'decoding is "viterbi" or "marginal", not {decoding!r}')

        self._check_fitted()
        if self.device is not None:
            return self._best(self._encode(X, allowed))
        if allowed is None and self._tables is not None:
            return self._tag(self.encoder_.entries(X), self._tables)
        return self._best(self._encode(X, allowed))

    def _tag(self, entries: RawFeatures, tables: Tables) -> list[list[Any]]:
        """The best labels, straight from attributes to labels."""
        from cliquewise._kernels.chain.decode import tag

        values, size = np.empty(0), 1.0
        if entries.values is not None:
            values = entries.values
            size = max(-values.min(initial=-1.0), values.max(initial=1.0))
        most = PLAIN / (size * tables.largest)
        if not len(entries.indices) + 3 <= most and not entries.lengths.max() + 3 <= most:
            return self._best(entries.compact())  # scores that need care
        offsets, lengths, indices = entries.offsets, entries.lengths, entries.indices
        labels = np.empty(len(lengths), dtype=np.int64)
        w, indices = self._rows(indices)
        args = (offsets, lengths, indices, values, w, tables.constants, tables.trans)

        def work(first: int, last: int) -> None:
            stuck = int(tag(*args, first, last, labels))
            if stuck >= 0:
                self._check_feasible(np.array([-np.inf]), stuck)

        self._in_threads(entries, work)
        return self.labels_.decode(labels, offsets)

    def _rows(self, indices: NDArray[np.int32]) -> tuple[Floats, NDArray[np.int32]]:
        """Rows of weights that indices point into, and these: of a few attributes, or of all.

        A model just loaded tags its first sentences from the rows that these need, to the bit as
        from all of them, which take longer to lay out.
        """
        if "_packed" in self.__dict__:
            return self._packed, indices
        self._looked_up += len(indices)
        if FEW_ROWS * self._looked_up > self.model_.n_attributes:
            return self._packed, indices
        own, places = np.unique(np.maximum(indices, 0), return_inverse=True)
        rows = self.model_.rows(self.coef_, own.astype(np.int64)).ravel()
        numbers = np.where(indices < 0, indices, places.astype(np.int32))
        return np.concatenate([rows, np.zeros(PADDING)]), numbers

    def _best(self, data: Dataset) -> list[list[Any]]:
        """The best labels, by way of scores."""
        predictor = self._predictor_of(data)
        if predictor is not None:
            labels, scores = predictor.best(data)
            self._check_feasible(scores)
            return self.labels_.decode(labels, data.offsets)
        labels = np.empty(data.n_tokens, dtype=np.int64)

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            part = labels[data.offsets[first] : data.offsets[last]]
            self._best_of_block(nodes, offsets, trans, part, first)

        self._each_block(data, work)
        return self.labels_.decode(labels, data.offsets)

    def _best_of_block(
        self, nodes: Floats, offsets: Ints, trans: Floats, labels: Ints, first: int
    ) -> None:
        """Write the best labels of one block of scores."""
        from cliquewise._kernels.chain.decode import batch_viterbi
        from cliquewise._kernels.chain.sparse import batch_sparse_viterbi

        scores, lists = np.empty(len(offsets) - 1), self._sparse_transitions
        if lists is None:
            batch_viterbi(nodes, offsets, trans, labels, scores)
        else:
            batch_sparse_viterbi(nodes, offsets, *lists, labels, scores)
        self._check_feasible(scores, first)

    def predict_single(self, x: Any) -> list[Any]:
        """The best labels of one sequence; ``predict([x])[0]``."""
        return self.predict([one_sequence(self, x)])[0]

    def predict_marginals_single(self, x: Any) -> list[dict[Any, float]]:
        """Probabilities of the labels of one sequence, a dict of label to number per token."""
        found: list[dict[Any, float]] = self.predict_marginals(
            [one_sequence(self, x)], as_dicts=True
        )[0]
        return found

    @takes_tables(as_probabilities)
    def predict_marginals(
        self, X: Any, allowed: Any = None, *, pairwise: bool = False, as_dicts: bool = False
    ) -> list[Any]:
        """Probabilities of the labels of every token.

        Parameters
        ----------
        X, allowed
            As in :meth:`predict`.
        pairwise : bool, default=False
            Also the joint probabilities of neighboring labels.
        as_dicts : bool, default=False
            Lists of dicts of label to probability in place of arrays, as in sklearn-crfsuite.

        Returns
        -------
        list of arrays (T, K), or of pairs ``(nodes (T, K), edges (T - 1, K, K))``
            Columns are in the order of ``classes_``. For a table one of its library, with a
            column per label.
        """
        if pairwise and as_dicts:
            raise DataError("marginals are dicts of labels, or pairwise, but not both")
        from cliquewise._kernels.chain.sums import batch_forward_backward

        self._need_probabilities()
        data = self._encode(X, allowed)
        k = len(self.classes_)
        nodes_out = np.empty((data.n_tokens, k))
        links = np.maximum(data.lengths - 1, 0)
        edge_offsets = offsets_of(links)
        edges_out = np.empty((int(edge_offsets[-1]) if pairwise else 0, k, k))

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            log_z = np.empty(last - first)
            edges = edges_out
            if pairwise:
                edges = edges_out[edge_offsets[first] : edge_offsets[last]]
            part = nodes_out[data.offsets[first] : data.offsets[last]]
            batch_forward_backward(nodes, offsets, trans, part, edges, np.empty((0, k)), log_z)
            self._check_probable(log_z, first)

        predictor = None if pairwise else self._predictor_of(data)
        if predictor is None:
            self._each_block(data, work)
        else:
            nodes_out, log_z = predictor.marginals(data)
            self._check_feasible(log_z)
        parts = np.split(nodes_out, data.offsets[1:-1])[: len(data)]
        if as_dicts:
            return [[dict(zip(self.classes_, row)) for row in part.tolist()] for part in parts]
        if not pairwise:
            return parts
        return list(zip(parts, np.split(edges_out, edge_offsets[1:-1])[: len(data)], strict=True))

    @takes_tables(as_it_is)
    def predict_top_k(self, X: Any, k: int, allowed: Any = None) -> list[list[tuple[float, Any]]]:
        """The ``k`` best label sequences of every input, best first.

        Returns
        -------
        list of lists of (probability, labels)
            Fewer than ``k`` where fewer are possible.
        """
        from cliquewise._kernels.chain.sums import batch_log_partition
        from cliquewise._kernels.chain.top_k import batch_top_k

        self._need_probabilities()
        data = self._encode(X, allowed)
        # A labeling is kept as numbers and as a list of labels.
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
            self._check_probable(log_z, first)
            for i in range(n):
                begin, end = offsets[i], offsets[i + 1]
                for r in range(counts[i]):
                    tags = self.labels_.decode(labels[r, begin:end], [0, end - begin])[0]
                    out[first + i].append((float(np.exp(scores[i, r] - log_z[i])), tags))

        self._each_block(data, work)
        return out

    @takes_tables(as_it_is)
    def log_likelihood(self, X: Any, y: Any) -> Floats:
        """``log p(y | x)`` of every sequence."""
        from cliquewise._kernels.chain.decode import path_score
        from cliquewise._kernels.chain.sums import batch_log_partition

        self._need_probabilities()
        data = self._encode(X)
        numbers, _ = self.labels_.encode(y, data.offsets)
        if np.any(numbers < 0):
            raise DataError("log_likelihood needs every label to be known")
        numbers = numbers.astype(np.int64)
        out = np.zeros(len(data))

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            log_z = np.empty(last - first)
            batch_log_partition(nodes, offsets, trans, log_z)
            self._check_probable(log_z, first)
            labels = numbers[data.offsets[first] : data.offsets[last]]
            at = 0
            for i in range(last - first):
                begin, end = offsets[i], offsets[i + 1]
                own = trans if data.edges is None else trans[at : at + max(end - begin - 1, 0)]
                truth = path_score(nodes[begin:end], own, labels[begin:end])
                out[first + i] = truth - log_z[i]
                at += max(end - begin - 1, 0)

        self._each_block(data, work)
        return out

    @takes_tables(as_it_is)
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of tokens with the right label, each with the weight of its sequence."""
        predicted = self.predict(X)
        weights = check_sample_weight(sample_weight, len(predicted))
        return token_accuracy(y, predicted, weights)


def _cut(first: int, last: int, pieces: int) -> list[tuple[int, int]]:
    marks = np.unique(np.linspace(first, last, pieces + 1).astype(int))
    return list(zip(marks[:-1].tolist(), marks[1:].tolist(), strict=True))
