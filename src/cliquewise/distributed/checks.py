"""Workers are looked at before work starts: the same software, enough memory, files in reach."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cliquewise.errors import DataError, MissingDependencyError, TooLargeError, UnsupportedError

#: Software whose versions must be the same everywhere; of Python the first two numbers.
PACKAGES = ("numpy", "scipy", "numba", "scikit-learn")
#: Share of a worker's memory that Dask fills before it stops working on new tasks.
USABLE = 0.8


def software() -> dict[str, str]:
    """Versions of what results depend on.

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
    """Versions, and bytes that the process holds when all that training needs is imported."""
    import psutil

    import cliquewise.estimators.tagger.sequence_tagger  # noqa: F401

    return software(), int(psutil.Process().memory_info().rss)


def check_workers(client: Any) -> dict[str, int]:
    """Refuse a cluster that cannot work; by worker, the bytes that are taken before any data."""
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
    """The answers of all workers; of those that die meanwhile there are none."""
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
        raise TooLargeError(
            memory_advice("all workers died when they were first looked at"), float("nan")
        )
    return there


def check_versions(mine: Mapping[str, str], theirs: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse workers with other software than the client.

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
            f"the workers do not have the client's software: {shown}. Install the same versions "
            "everywhere"
        )


def check_limits(limits: Mapping[str, int], taken: Mapping[str, int]) -> None:
    """Refuse workers whose memory is gone before any data arrive; a limit of 0 is none.

    Examples
    --------
    >>> check_limits({"tcp://a": 0, "tcp://b": 4 * 2**30}, {"tcp://a": 2**28, "tcp://b": 2**28})
    """
    for worker, limit in limits.items():
        if limit and taken.get(worker, 0) >= USABLE * limit:
            raise TooLargeError(
                memory_advice(
                    f"worker {worker} has a memory_limit of {_mib(limit)}, and "
                    f"{_mib(taken[worker])} are taken before any data arrive"
                ),
                float(taken[worker]),
            )  # fmt: skip


def check_memory(
    nbytes: Iterable[int], working: Iterable[int], limits: Mapping[str, int],
    taken: Mapping[str, int],
) -> None:  # fmt: skip
    """Refuse partitions that the workers cannot hold, before a round is started.

    Parameters
    ----------
    nbytes, working : iterables of int
        By partition: what it takes, and what a round takes beside.
    limits, taken : dicts
        By worker: its memory_limit (0 for none), and what was taken before any data.

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
    """Those that are no files here."""
    return [path for path in paths if not Path(path).is_file()]


def check_paths(client: Any, paths: list[str]) -> None:
    """Refuse files that some worker does not see."""
    for worker, missing in _asked(client, missing_paths, paths).items():
        if missing:
            raise DataError(
                f"{missing[0]}: worker {worker} finds no such file; put the files where all "
                "workers find them under the same path"
            )


def is_paused(about: Mapping[str, Any]) -> bool:
    """Whether a worker, as the scheduler describes it, takes no tasks."""
    return str(about.get("status", "running")) != "running"


def no_workers() -> UnsupportedError:
    """Nobody is there to work."""
    return UnsupportedError("the cluster has no workers; start some, and fit again")


def paused_workers(workers: Mapping[str, Any]) -> TooLargeError:
    """All workers have stopped for want of memory."""
    limits = ", ".join(
        f"{worker}: {_mib(about['memory_limit'] or 0)}" for worker, about in workers.items()
    )
    return TooLargeError(
        memory_advice(f"all workers have stopped, their memory being full ({limits})"),
        float("nan"),
    )


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"
