"""Conversion of inputs (bags, arrays, delayed objects, paths) to partitions on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dask.base import is_dask_collection
from dask.delayed import Delayed
from distributed import Future

from cliquewise.distributed.checks import check_paths
from cliquewise.distributed.cluster import Cluster
from cliquewise.errors import DataError

#: Reads a file and returns inputs and labels.
Reader = Callable[[str], tuple[Any, Any]]


def is_distributed(X: Any) -> bool:
    """Return whether data are partitions rather than examples.

    Examples
    --------
    >>> is_distributed([["a"], ["b"]]), is_distributed([Path("train.conll")])
    (False, True)
    """
    if is_dask_collection(X) or isinstance(X, Future):
        return True
    if not isinstance(X, list | tuple) or not X:
        return False
    return all(is_dask_collection(x) or isinstance(x, Future | Path | str) for x in X)


def partitions(X: Any, name: str) -> list[Any]:
    """Return a collection as a list of delayed objects, futures or paths.

    Examples
    --------
    >>> partitions(["a.conll", Path("b.conll")], "X")
    ['a.conll', 'b.conll']
    """
    if isinstance(X, Future | Delayed):
        return [X]
    if is_dask_collection(X):
        if getattr(X, "ndim", 1) > 1 and getattr(X, "numblocks", (1, 1))[1] > 1:
            X = X.rechunk({1: -1})
        delayed = X.to_delayed()
        return list(delayed.ravel() if hasattr(delayed, "ravel") else delayed)
    if isinstance(X, str | Path):
        X = [X]
    if not is_distributed(X):
        raise DataError(
            f"{name} must be a dask collection, a list of delayed objects or futures, or a list of "
            f"paths, one per partition, not {type(X).__name__}; for data in this "
            "process, use the local estimator or dask.bag.from_sequence"
        )
    return [str(x) if isinstance(x, Path) else x for x in X]


def in_pairs(X: Any, y: Any, weights: Any) -> list[tuple[Any, ...]]:
    """Return tuples of corresponding partitions; of only X for files without ``y``."""
    columns = [partitions(X, "X")]
    for given, name in ((y, "y"), (weights, "sample_weight")):
        if given is not None:
            columns.append(partitions(given, name))
            if len(columns[-1]) != len(columns[0]):
                raise DataError(
                    f"{name} has {len(columns[-1])} partitions and X has {len(columns[0])}; both "
                    "need the same partitioning"
                )
    if y is None and not _are_paths(columns[0]):
        raise DataError("training requires y to be passed, but the target y is None")
    return list(zip(*columns, strict=True))


def _are_paths(parts: list[Any]) -> bool:
    return all(isinstance(part, str) for part in parts)


def on_cluster(cluster: Cluster, parts: list[Any]) -> list[Any]:
    """Compute delayed objects into futures; check that all workers can read paths."""
    if _are_paths(parts):
        check_paths(cluster.client, parts)
        return parts
    if any(isinstance(part, str) for part in parts):
        raise DataError("some partitions are paths and some are not; use one kind")
    delayed = [part for part in parts if not isinstance(part, Future)]
    made = iter(cluster.client.compute(delayed))
    return [part if isinstance(part, Future) else next(made) for part in parts]
