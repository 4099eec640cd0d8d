"""Work on the partitions of a Dask cluster, whatever happens to its workers.

Every task is a pure function of a partition and of what is sent along, pinned to no worker. What
Dask can compute again from its inputs it does by itself when a worker dies; weights that were on
their way, which nobody can compute again, are sent again here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any
from uuid import uuid4

from distributed import Client, KilledWorker, get_client, wait

from cliquewise.distributed.checks import (
    check_workers,
    is_paused,
    memory_advice,
    no_workers,
    paused_workers,
)
from cliquewise.errors import CliquewiseError, DataError, TooLargeError, UnsupportedError
from cliquewise.ragged import Floats

#: A future of Dask's, which is generic in some versions.
Task = Any
#: How often work is sent again that was lost with workers, one after the other.
TRIES = 20
#: How often partitions are computed again whose workers all died: by chance, or for want of memory.
SECOND_CHANCES = 3
#: Seconds between looks at workers while work is being done, and those without any before an error.
LOOK, PATIENCE = 5.0, 60.0
#: Seconds to reach a worker with weights.
REACH = 10.0


def client_of(client: Any) -> Client:
    """The given client, or the one that is there."""
    if client is not None:
        if not isinstance(client, Client):
            raise UnsupportedError(f"client is a dask.distributed.Client, not {client!r:.60}")
        return client
    try:
        return get_client()
    except ValueError:
        raise UnsupportedError(
            "there is no Dask client; make one before (`dask.distributed.Client()` starts workers "
            "on this machine, `Client(address)` finds those of a cluster) or give client=..."
        ) from None


class Cluster:
    """A client, and how rounds over partitions are run by it.

    Parameters
    ----------
    client : Client

    Attributes
    ----------
    sent, received : int
        Bytes of weights that left the client, and of answers that came.
    """

    def __init__(self, client: Client):
        self.client = client
        self.name = f"cliquewise-{uuid4().hex[:8]}"  # two runs on one client share no task
        self.sent = self.received = self.tasks = 0
        self.baseline = check_workers(client)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Task:
        """A task that no other run shares."""
        self.tasks += 1
        key = f"{self.name}-{function.__name__}-{self.tasks}"
        return self.client.submit(function, *arguments, key=key, pure=False)

    def result(self, future: Task) -> Any:
        """The answer of one task."""
        return self.results([future])[0]

    def results(self, futures: Sequence[Task]) -> list[Any]:
        """The answers of tasks that Dask can compute again by itself."""
        found = self._gathered(dict(enumerate(futures)))
        lost = [p for p in range(len(futures)) if p not in found]
        if lost:
            raise _unrecoverable(lost[0])
        return [found[p] for p in range(len(futures))]

    # ---- rounds

    def each(
        self, function: Callable[..., Any], parts: Sequence[Task], *more: Any
    ) -> list[Any]:  # fmt: skip
        """``function(part, *more)`` of every part, in their order."""
        return self.results([self.submit(function, part, *more) for part in parts])

    def each_with(
        self,
        function: Callable[..., Any],
        parts: Sequence[Task],
        whole: Floats,
        own: Callable[[int], Floats] | None,
    ) -> list[Any]:
        """``function(part, w, is_whole)`` of every part.

        The weights are those that ``own`` gives of each part, where these are fewer than all
        ``whole`` ones at every worker; else the whole.
        """
        answers: dict[int, Any] = {}
        for _ in range(TRIES):
            todo = [p for p in range(len(parts)) if p not in answers]
            if not todo:
                return [answers[p] for p in range(len(parts))]
            sent = self._send(todo, parts, whole, own)
            futures = {
                p: self.submit(function, parts[p], sent[p], own is None) for p in todo if p in sent
            }
            answers |= self._gathered(futures)
            lost = [p for p in todo if parts[p].cancelled()]
            if lost:
                raise _unrecoverable(lost[0])
        raise UnsupportedError(
            f"workers died in {TRIES} attempts at one round, one after the other; see their logs"
        )

    def _send(
        self, todo: list[int], parts: Sequence[Task], whole: Floats, own: Any
    ) -> dict[int, Task]:
        """Weights to where the parts are; fewer than were asked for if workers died meanwhile."""
        if own is None:
            weights = self._scattered([whole], None, broadcast=True)
            self.sent += whole.nbytes
            return dict.fromkeys(todo, weights[0]) if weights else {}
        at: dict[Any, list[int]] = {}
        holders = self.client.who_has([parts[p] for p in todo])
        for p in todo:
            workers = sorted(holders.get(parts[p].key, ()))
            at.setdefault(workers[0] if workers else None, []).append(p)
        sent: dict[int, Task] = {}
        for worker, here in at.items():
            arrays = [own(p) for p in here]
            self.sent += sum(array.nbytes for array in arrays)
            sent |= dict(zip(here, self._scattered(arrays, worker, broadcast=False), strict=False))
        return sent

    def _scattered(self, arrays: list[Any], worker: Any, broadcast: bool) -> list[Task]:
        workers = None if worker is None else [worker]
        try:
            return list(
                self.client.scatter(
                    arrays, workers=workers, broadcast=broadcast, hash=False, timeout=REACH
                )
            )
        except (OSError, TimeoutError, KeyError, ValueError):  # the worker is gone
            self._look(time.monotonic())
            return []

    # ---- waiting

    def _gathered(self, futures: dict[int, Task]) -> dict[int, Any]:
        """The answers that are there when none is on its way; some may be lost with a worker."""
        found: dict[int, Any] = {}
        for _ in range(SECOND_CHANCES + 1):
            missing = {p: f for p, f in futures.items() if p not in found}
            self._wait(list(missing.values()))
            answers = self.client.gather(missing, errors="skip")
            found |= {p: a for p, a in answers.items() if a is not None}
            killed = []
            for p, future in missing.items():
                if p not in found and future.status == "error":
                    error = future.exception()
                    if not isinstance(error, KilledWorker):
                        raise _explained(error)
                    killed.append(future)
            if not killed:
                return found
            self.client.retry(killed)
        raise TooLargeError(memory_advice(f"{error}"), float("nan"))

    def _wait(self, futures: list[Task]) -> None:
        since = time.monotonic()
        while True:
            try:
                wait(futures, timeout=LOOK)
                return
            except CancelledError:
                pending = [f for f in futures if f.status == "pending"]
                if not pending:
                    return
                futures = pending
            except TimeoutError:
                if not self._look(since):
                    since = time.monotonic()

    def _look(self, since: float) -> bool:
        """Whether there is nobody to work; for too long, that is an error."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        idle = not workers or all(map(is_paused, workers.values()))
        if idle and time.monotonic() - since > PATIENCE:
            raise paused_workers(workers) if workers else no_workers()
        return idle


def _explained(error: BaseException | None) -> BaseException:
    """An error of a worker as it is raised here."""
    if isinstance(error, CliquewiseError) or error is None:
        return error or DataError("a task failed without a reason; see the logs of the workers")
    if isinstance(error, MemoryError):
        return TooLargeError(memory_advice("a worker has no memory left"), float("nan"))
    return error


def _unrecoverable(number: int) -> DataError:
    return DataError(
        f"partition {number} was lost with its worker, and nothing says how to compute it again: "
        "its input was scattered data or a future that is gone. Give paths, bags or delayed "
        "objects that read the data themselves"
    )
