"""DaskSequenceTagger: a linear-chain CRF, trained on all partitions of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import dask.bag
import numpy as np

from cliquewise.data.conversion import SequenceEncoder
from cliquewise.deprecation import renamed_keywords
from cliquewise.distributed import chains
from cliquewise.distributed.cluster import Cluster
from cliquewise.distributed.estimator import ClusterEstimator
from cliquewise.distributed.inputs import in_pairs, is_distributed, on_cluster
from cliquewise.distributed.partition import named
from cliquewise.distributed.problem import ClusterProblem
from cliquewise.errors import UnsupportedError
from cliquewise.estimators._base import rollback_on_error
from cliquewise.estimators._inputs import class_weights
from cliquewise.estimators.parameters import cluster_client, old_names
from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger
from cliquewise.models.chain import ChainModel
from cliquewise.ragged import Floats


@renamed_keywords(**old_names(SequenceTagger))
@dataclass(eq=False, repr=False)
class DaskSequenceTagger(ClusterEstimator, SequenceTagger):
    """:class:`~cliquewise.SequenceTagger` on a Dask cluster.

    The same objective, the same optimum and the same certificate as on one machine, by L-BFGS:
    every round sends each partition the weights of its own attributes and adds up the gradients.
    A worker that dies costs the time to compute its partitions again, and nothing else.

    Parameters
    ----------
    client : distributed.Client, optional
        The one that is there, if none is given.
    loss, C, solver, tol, ...
        As in :class:`~cliquewise.SequenceTagger`. ``solver`` is ``auto`` or ``lbfgs``, ``loss``
        is ``log``, ``softmax_margin`` or ``smooth_hinge``, without ``cost``. ``n_jobs`` is for
        prediction alone: workers have a thread for each task.

    Attributes
    ----------
    client_ : distributed.Client
    traffic_ : dict
        ``rounds``, and the bytes that the client has ``bytes_sent`` and ``bytes_received``.
    certificate_, trace_, coef_, classes_, ...
        As in :class:`~cliquewise.SequenceTagger`.

    Examples
    --------
    >>> import dask.bag, distributed
    >>> from cliquewise.distributed import DaskSequenceTagger
    >>> client = distributed.Client(processes=False, n_workers=1, dashboard_address=None)
    >>> X = dask.bag.from_sequence([[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]], npartitions=2)
    >>> y = dask.bag.from_sequence([["D", "N"], ["D", "N"]], npartitions=2)
    >>> tagger = DaskSequenceTagger().fit(X, y)
    >>> tagger.predict(X).compute()
    [['D', 'N'], ['D', 'N']]
    >>> bool(tagger.certificate_.gap <= 1e-3)
    True
    >>> tagger.to_local().predict([[["w=the"], ["w=cat"]]])
    [['D', 'N']]
    >>> client.close()
    """

    _: KW_ONLY
    client: Any = cluster_client()
    max_epochs: float = 1000

    _kind: ClassVar[str] = "chain"
    _local: ClassVar[type[SequenceTagger]] = SequenceTagger  # type: ignore[assignment]

    # ---- training

    @rollback_on_error
    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        callback: Callable[..., Any] | None = None,
    ) -> DaskSequenceTagger:
        """Train the tagger on the partitions of a cluster.

        Parameters
        ----------
        X : dask bag, list of delayed objects or futures, or list of paths
            Every partition holds sequences as :class:`~cliquewise.SequenceTagger` takes them; a
            path is that of a column file with the label last, which all workers can read.
        y : the same, optional
            Labels, cut at the same places; of files, their last columns.
        sample_weight : the same, optional
            Arrays with a weight for every sequence.
        callback : callable, optional
            Called with every row of the trace.
        """
        cluster = self._cluster()
        parts = in_pairs(X, y, sample_weight)
        encoder = SequenceEncoder(self.template, self.n_hash, 1)
        columns = [on_cluster(cluster, list(column)) for column in zip(*parts, strict=True)]
        encoded = [
            cluster.submit(named, p, chains.encode, encoder, *given)
            for p, given in enumerate(zip(*columns, strict=True))
        ]
        del columns  # Dask keeps how to read the input, not what was read
        found = [cluster.submit(chains.found, part) for part in encoded]
        merged = cluster.submit(chains.merge, found, self.min_count)
        dictionary: chains.Dictionary = cluster.result(merged)
        problem, model = self._cluster_problem(cluster, encoded, merged, dictionary)
        fit = self._train_on(
            problem,
            callback=callback,
            checkpoint=self.checkpoint,
            checkpoint_seconds=self.checkpoint_seconds,
            resume=bool(self.resume),
        )
        self._chain = self._make_chain(dictionary.encoder, dictionary.labels, model, fit.weights)
        return self

    def _cluster_problem(
        self, cluster: Cluster, encoded: list[Any], merged: Any, dictionary: chains.Dictionary
    ) -> tuple[ClusterProblem, ChainModel]:
        """The objective on all partitions; what holds no examples takes no part in rounds."""
        submit, n_labels = cluster.submit, len(dictionary.labels)
        weights = self._class_weights(dictionary)
        pieces = [submit(chains.piece, merged, p) for p in range(len(encoded))]
        labeled = [
            submit(chains.label, part, own, n_labels, weights)
            for part, own in zip(encoded, pieces, strict=True)
        ]
        weighted = chains.Settings(
            self.feature_pairs, self.transitions, self.forbidden_transitions, bool(self.intercept),
            bool(self.boundary_weights),
        )  # fmt: skip
        seen = []
        if weighted.by_data:
            sizes = dictionary.encoder.n_features, n_labels, weighted[-2:]
            seen = [submit(chains.seen, part, *sizes) for part in labeled]
        shared = submit(chains.model_of, merged, seen, weighted)
        model: ChainModel = cluster.result(shared)
        settings = float(self.C), self.loss, float(self.gamma), self.smoother
        parts = [
            submit(named, p, chains.assemble, part, shared, *settings)
            for p, part in enumerate(labeled)
        ]
        where = [chains.placed(model, chains.kept(own))[1:] for own in dictionary.pieces]
        places, rows = zip(*where, strict=True)
        like = chains.without_examples(model, *settings)
        return ClusterProblem(cluster, parts, places, rows, like), model

    def _class_weights(self, dictionary: chains.Dictionary) -> Floats | None:
        if self.class_weight is None:
            return None
        counts, classes = dictionary.label_counts, dictionary.labels.classes
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            there = counts > 0  # as scikit-learn has it, from the counts of all partitions
            weights = counts.sum() / (there.sum() * np.maximum(counts, 1))
            return np.where(there, weights, 1.0)
        return class_weights(self.class_weight, classes, np.empty(0, dtype=np.int64))

    def _epoch_limit(self, solver: Any, problem: Any) -> float:
        return self.max_epochs

    def partial_fit(self, *data: Any, **more: Any) -> DaskSequenceTagger:
        """Refused: a cluster keeps no examples between fits."""
        raise UnsupportedError(
            "a cluster keeps no examples between fits; fit on the old and new partitions together"
        )

    # ---- prediction

    def predict(self, X: Any, allowed: Any = None, *, decoding: str = "viterbi") -> Any:
        """Labels: of partitions as a dask bag, of sequences as a list.

        Parameters
        ----------
        X : as in :meth:`fit`, or as in :class:`~cliquewise.SequenceTagger`
        allowed, decoding
            As in :class:`~cliquewise.SequenceTagger`; ``allowed`` is not for partitions.
        """
        if not is_distributed(X):
            return super().predict(X, allowed, decoding=decoding)
        _refuse(allowed)
        return dask.bag.from_delayed(self._over("predict", X, [], decoding=decoding))

    def predict_marginals(self, X: Any, allowed: Any = None, **options: Any) -> Any:
        """Chances of labels: of partitions as a dask bag, of sequences as a list."""
        if not is_distributed(X):
            return super().predict_marginals(X, allowed, **options)
        _refuse(allowed)
        return dask.bag.from_delayed(self._over("predict_marginals", X, [], **options))


def _refuse(allowed: Any) -> None:
    if allowed is not None:
        raise UnsupportedError(
            "allowed is for sequences of this process, not for partitions; map "
            "tagger.to_local().predict over them"
        )
