"""Checks of the workers before training: same software, enough memory, readable files."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cliquewise.errors import (
    ClusterError,
    DataError,
    MissingDependencyError,
    TooLargeError,
    UnsupportedError,
)

#: Packages whose versions must match; of Python, the minor version must.
PACKAGES = ("numpy", "scipy", "numba", "scikit-learn")
#: Fraction of a worker's memory that Dask fills before it pauses the worker.
USABLE = 0.8


def software() -> dict[str, str]:
    """Return the versions of the software that results depend on.

    Examples
    --------
    >>> sorted(software())
    ['cliquewise', 'numba', 'numpy', 'python', 'scikit-learn', 'scipy']
    """
    import cliquewise

    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    found["cliquewise"] = cliquewise.__version__
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def look_around() -> tuple[dict[str, str], int]:
    """Return versions, and the memory of the process after the imports for training."""
    import psutil

    import cliquewise.estimators.tagger.sequence_tagger  # noqa: F401

    return software(), int(psutil.Process().memory_info().rss)


def check_workers(client: Any) -> dict[str, int]:
    """Raise if a cluster cannot train; return the memory in use before any data, by worker."""
    if not client.scheduler_info(n_workers=-1)["workers"]:
        try:
            client.wait_for_workers(1, timeout=30)
        except TimeoutError:
            raise no_workers() from None
    answers = _asked(client, look_around)
    check_versions(software(), {worker: found for worker, (found, _) in answers.items()})
    taken = {worker: rss for worker, (_, rss) in answers.items()}
    workers = client.scheduler_info(n_workers=-1)["workers"]
    check_limits({w: about["memory_limit"] or 0 for w, about in workers.items()}, taken)
    return taken


def _asked(client: Any, function: Any, *arguments: Any) -> dict[str, Any]:
    """Run a function on all workers; workers that die are left out."""
    found = client.run(function, *arguments, on_error="return")
    for worker, answer in found.items():
        if isinstance(answer, ModuleNotFoundError):
            raise MissingDependencyError(
                f"worker {worker} cannot import what training needs ({answer}); install "
                "cliquewise, of the same version, on all workers"
            )
        if isinstance(answer, Exception) and not isinstance(answer, OSError):
            raise answer
    there = {w: answer for w, answer in found.items() if not isinstance(answer, Exception)}
    if not there:
        raise TooLargeError(memory_advice("all workers died during the first check"), float("nan"))
    return there


def check_versions(mine: Mapping[str, str], theirs: Mapping[str, Mapping[str, str]]) -> None:
    """Raise if workers have other software than the client.

    Examples
    --------
    >>> check_versions({"numpy": "2.1"}, {"tcp://a": {"numpy": "2.1"}})
    """
    apart = [
        f"{worker} has {name} {found.get(name, 'none')}, the client {wanted}"
        for worker, found in theirs.items()
        for name, wanted in mine.items()
        if found.get(name) != wanted
    ]
    if apart:
        shown = "; ".join(apart[:5]) + ("; ..." if len(apart) > 5 else "")
        raise UnsupportedError(
            f"the workers and the client have different software: {shown}. Install the same "
            "versions everywhere"
        )


def check_limits(limits: Mapping[str, int], taken: Mapping[str, int]) -> None:
    """Raise if memory is exhausted before any data arrive; a limit of 0 means no limit.

    Examples
    --------
    >>> check_limits({"tcp://a": 0, "tcp://b": 4 * 2**30}, {"tcp://a": 2**28, "tcp://b": 2**28})
    """
    for worker, limit in limits.items():
        if limit and taken.get(worker, 0) >= USABLE * limit:
            raise TooLargeError(
                memory_advice(
                    f"worker {worker} has a memory_limit of {_mib(limit)}, and "
                    f"{_mib(taken[worker])} are in use before any data arrive"
                ),
                float(taken[worker]),
            )  # fmt: skip


def check_memory(
    nbytes: Iterable[int], working: Iterable[int], limits: Mapping[str, int],
    taken: Mapping[str, int],
) -> None:  # fmt: skip
    """Raise before training if the partitions do not fit into the workers.

    Parameters
    ----------
    nbytes, working : iterables of int
        By partition: its memory, and the additional memory of a round.
    limits, taken : dicts
        By worker: its memory_limit (0: no limit), and the memory in use before any data.

    Examples
    --------
    >>> check_memory([2**20], [2**20], {"tcp://a": 2**30}, {"tcp://a": 2**28})
    """
    sizes, beside = list(nbytes), list(working)
    usual = min(taken.values(), default=0)  # workers that came later are like the others
    free = {w: USABLE * limit - taken.get(w, usual) for w, limit in limits.items() if limit}
    if not free or len(free) < len(limits) or not sizes:
        return
    needs = [a + b for a, b in zip(sizes, beside, strict=True)]
    largest = max(range(len(needs)), key=needs.__getitem__)
    if needs[largest] > max(free.values()):
        raise TooLargeError(
            memory_advice(
                f"partition {largest} needs {_mib(needs[largest])}, and no worker has more than "
                f"{_mib(max(free.values()))} left of its memory_limit"
            ),
            float(needs[largest]),
        )
    total = sum(sizes) + len(free) * max(beside)
    if total > sum(free.values()):
        raise TooLargeError(
            memory_advice(
                f"the partitions need {_mib(total)}, and the {len(free)} workers have "
                f"{_mib(sum(free.values()))} left of their memory_limits"
            ),
            float(total),
        )


def memory_advice(what: str) -> str:
    """What to do about too little memory."""
    return (
        f"{what}. Give the workers more memory, take more of them, cut the data into more "
        "partitions, or use min_count, n_hash or feature_pairs='seen' for fewer weights"
    )


def missing_paths(paths: list[str]) -> list[str]:
    """Return the paths that are not files on this machine."""
    return [path for path in paths if not Path(path).is_file()]


def check_paths(client: Any, paths: list[str]) -> None:
    """Raise if a worker cannot read a file."""
    for worker, missing in _asked(client, missing_paths, paths).items():
        if missing:
            raise DataError(
                f"{missing[0]}: worker {worker} has no such file; all workers need the files "
                "under the same path"
            )


def is_paused(about: Mapping[str, Any]) -> bool:
    """Whether a worker, as described by the scheduler, accepts no tasks."""
    return str(about.get("status", "running")) != "running"


def no_workers() -> ClusterError:
    """Return the error for a cluster without workers."""
    return ClusterError("the cluster has no workers; start some, and fit again")


def paused_workers(workers: Mapping[str, Any]) -> TooLargeError:
    """Return the error for workers that are all paused for lack of memory."""
    limits = ", ".join(
        f"{worker}: {_mib(about['memory_limit'] or 0)}" for worker, about in workers.items()
    )
    return TooLargeError(
        memory_advice(f"all workers are paused because their memory is full ({limits})"),
        float("nan"),
    )


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"
