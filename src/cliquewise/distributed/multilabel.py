"""DaskMultiLabelClassifier: label sets, trained on the partitions of a cluster."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import dask.array
import dask.bag
import numpy as np

from cliquewise.distributed import rows
from cliquewise.distributed.estimator import ClusterEstimator
from cliquewise.distributed.inputs import in_pairs, is_distributed, on_cluster
from cliquewise.distributed.partition import named
from cliquewise.distributed.problem import ClusterProblem
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._base import rollback_on_error
from cliquewise.estimators.multilabel import MultiLabelClassifier, Rows
from cliquewise.estimators.parameters import cluster_client
from cliquewise.models.label_sets import multilabel_model
from cliquewise.oracles.label_rows import is_narrow

#: Number of rows used to choose C, label pairs and threshold.
CHOICE_ROWS = 10_000


@dataclass(eq=False, repr=False)
class DaskMultiLabelClassifier(ClusterEstimator, MultiLabelClassifier):
    """:class:`~cliquewise.MultiLabelClassifier` on a Dask cluster.

    Training uses L-BFGS with exact inference, so the label pairs must keep exact inference cheap.
    ``C="auto"`` and ``label_graph="auto"`` are chosen on up to 10,000 rows from all partitions.

    Parameters
    ----------
    client : distributed.Client, optional
        By default the current client.
    loss, C, label_graph, pairs, ...
        As in :class:`~cliquewise.MultiLabelClassifier`; ``solver`` is ``auto`` or ``lbfgs``, and
        ``loss`` is ``log`` or ``softmax_margin``.

    Attributes
    ----------
    client_, traffic_
        As in :class:`DaskSequenceTagger`.
    certificate_, trace_, coef_, ...
        As in :class:`~cliquewise.MultiLabelClassifier`.

    Examples
    --------
    >>> import dask.array, distributed
    >>> from cliquewise.distributed import DaskMultiLabelClassifier
    >>> client = distributed.Client(processes=False, n_workers=1, dashboard_address=None)
    >>> X = dask.array.from_array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]], chunks=(2, 2))
    >>> y = dask.array.from_array([[1, 0], [0, 1], [1, 1], [0, 0]], chunks=(2, 2))
    >>> classifier = DaskMultiLabelClassifier(C=10.0, label_graph="none").fit(X, y)
    >>> classifier.predict(X).compute().tolist()
    [[1, 0], [0, 1], [1, 1], [0, 0]]
    >>> client.close()
    """

    _: KW_ONLY
    client: Any = cluster_client()

    _kind: ClassVar[str] = "label_graph"
    _local: ClassVar[type[MultiLabelClassifier]] = MultiLabelClassifier

    @rollback_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DaskMultiLabelClassifier:
        """Train.

        Parameters
        ----------
        X : dask array, data frame or bag, or list of delayed objects or futures
            Every partition has rows as for :class:`~cliquewise.MultiLabelClassifier`.
        y, sample_weight : the same types
            With the same partitioning.
        """
        cluster = self._cluster()
        if self.entropy != "gini" or self.pairs not in ("table", "co-occurrence"):
            raise UnsupportedError(f"entropy={self.entropy!r}, pairs={self.pairs!r}: not here")
        columns = zip(*in_pairs(X, y, sample_weight), strict=True)
        given = [on_cluster(cluster, list(column)) for column in columns]
        parts = [
            cluster.submit(named, p, rows.encode_rows, *own)
            for p, own in enumerate(zip(*given, strict=True))
        ]
        del given
        each = -(-CHOICE_ROWS // len(parts))
        found = cluster.each(rows.found_rows, parts, each)
        labels = rows.merged_labels(found)
        n_labels = labels.n_labels
        choice = self._select(labels, Rows(*rows.sample(found, labels)))
        if not is_narrow(n_labels, choice.pairs):
            raise UnsupportedError(
                f"{len(choice.pairs)} pairs of {n_labels} labels make exact inference too "
                'expensive for training on a cluster; use fewer: label_graph="tree", or "auto"'
            )
        n_columns = next(f.n_columns for f in found if f.n_rows)
        task = rows.Task(
            choice.pairs, choice.C, self.loss, float(self.gamma), bool(self.intercept), self.pairs
        )
        model = multilabel_model(n_labels, n_columns, choice.pairs, self.intercept, self.pairs)
        made = [cluster.submit(rows.assemble_rows, part, labels, n_columns, task) for part in parts]
        places, along = zip(*cluster.each(rows.places_in, made), strict=True)
        like = rows.without_rows(n_columns, n_labels, task)
        problem = ClusterProblem(cluster, made, places, along, like)
        fit = self._train_on(problem, choice.start)
        self._set_fitted(labels, model, fit.weights, False, choice)
        self.intercept_is_penalized_ = bool(self.intercept)
        return self

    @property
    def _has_free_intercept(self) -> bool:
        """Training on a cluster penalizes intercepts."""
        if self.penalize_intercept is False:
            raise UnsupportedError("penalize_intercept=False is not supported on a cluster")
        return False

    def _over_rows(self, name: str, X: Any, kind: Any, arguments: Any, options: Any) -> Any:
        empty: Any = [] if kind is None else np.zeros((0, self.n_labels_), dtype=kind)
        answers = self._over(name, X, empty, *arguments, **options)
        if kind is None:
            return dask.bag.from_delayed(answers)
        shape = (float("nan"), self.n_labels_)
        return dask.array.concatenate(
            [dask.array.from_delayed(a, shape=shape, dtype=kind) for a in answers]
        )

    def predict(self, X: Any, method: str | None = None, **options: Any) -> Any:
        """Predict labels: a dask array (a bag for lists of names) for partitions."""
        if not _is_on_cluster(X):
            return super().predict(X, method, **options)
        kind = None if self._label_sets.as_lists else np.int64
        return self._over_rows("predict", X, kind, (method,), options)

    def predict_proba(self, X: Any, method: str | None = None, **options: Any) -> Any:
        """Predict label probabilities: a dask array for partitions, an array for rows."""
        if not _is_on_cluster(X):
            return super().predict_proba(X, method, **options)
        return self._over_rows("predict_proba", X, np.float64, (method,), options)


def _is_on_cluster(X: Any) -> bool:
    if is_distributed(X) and isinstance(X, list | tuple) and isinstance(X[0], str):
        raise DataError("rows cannot be read from paths; pass delayed objects that read them")
    return is_distributed(X)
