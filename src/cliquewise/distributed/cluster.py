"""Rounds of work on the partitions of a Dask cluster, robust to losses of workers.

Every task is a pure function of a partition and of the data sent with it, and is not pinned to a
worker. When a worker dies, Dask recomputes results that have inputs; weights, which have none, are
sent again here. Losing all workers or the scheduler is an error that names the checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from distributed import Client, KilledWorker, get_client, wait

from cliquewise.distributed.checks import (
    check_workers,
    is_paused,
    memory_advice,
    paused_workers,
)
from cliquewise.errors import (
    CliquewiseError,
    ClusterError,
    DataError,
    TooLargeError,
    UnsupportedError,
)
from cliquewise.ragged import Floats

logger = logging.getLogger("cliquewise.distributed")

#: A future of Dask, which is generic in some versions.
Task = Any
#: Attempts at one round before repeated losses of workers become an error.
MAX_ATTEMPTS = 20
#: Retries of partitions whose workers all died, by accident or for lack of memory.
MAX_RETRIES = 3
#: Seconds between checks of the workers, and without any worker before an error.
CHECK_SECONDS, PATIENCE_SECONDS = 5.0, 60.0
#: Seconds to reach a worker with weights.
SEND_SECONDS = 10.0


def client_of(client: Any) -> Client:
    """Return the given client, or the current one."""
    if client is not None:
        if not isinstance(client, Client):
            raise UnsupportedError(f"client is a dask.distributed.Client, not {client!r:.60}")
        return client
    try:
        return get_client()
    except ValueError:
        raise UnsupportedError(
            "there is no Dask client; create one (`dask.distributed.Client()` starts workers on "
            "this machine, `Client(address)` connects to a cluster) or pass client=..."
        ) from None


class Cluster:
    """Run rounds over partitions with a client.

    Parameters
    ----------
    client : Client

    Attributes
    ----------
    sent, received : int
        Bytes of weights sent by the client, and of results received.
    checkpoint : Path or None
        Named in errors about a lost cluster.
    """

    def __init__(self, client: Client, checkpoint: str | Path | None = None):
        self.client = client
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self._idle_since: float | None = None
        self.name = f"cliquewise-{uuid4().hex[:8]}"  # two runs on one client share no task
        self.sent = self.received = self.tasks = 0
        self.baseline = check_workers(client)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Task:
        """Submit a task with a key that no other run shares."""
        self.tasks += 1
        key = f"{self.name}-{function.__name__}-{self.tasks}"
        with self._explain_losses():
            return self.client.submit(function, *arguments, key=key, pure=False)

    def result(self, future: Task) -> Any:
        """Return the result of one task."""
        return self.results([future])[0]

    def results(self, futures: Sequence[Task]) -> list[Any]:
        """Return the results of tasks that Dask can recompute by itself."""
        with self._explain_losses():
            found = self._gather(dict(enumerate(futures)))
            lost = [p for p in range(len(futures)) if p not in found]
            if lost:
                self._workers()  # a lost scheduler explains it better
                raise _unrecoverable(lost[0])
        return [found[p] for p in range(len(futures))]

    # ---- rounds

    def each(
        self, function: Callable[..., Any], parts: Sequence[Task], *more: Any
    ) -> list[Any]:  # fmt: skip
        """Return ``function(part, *more)`` of every part, in order."""
        return self.results([self.submit(function, part, *more) for part in parts])

    def each_with(
        self,
        function: Callable[..., Any],
        parts: Sequence[Task],
        whole: Floats,
        own: Callable[[int], Floats] | None,
    ) -> list[Any]:
        """Return ``function(part, w, is_whole)`` of every part.

        ``own(part)`` returns the weights of a part. Without it, all weights are sent to every
        worker, which can be less.
        """
        answers: dict[int, Any] = {}
        with self._explain_losses():
            for _ in range(MAX_ATTEMPTS):
                todo = [p for p in range(len(parts)) if p not in answers]
                if not todo:
                    return [answers[p] for p in range(len(parts))]
                sent = self._send(todo, parts, whole, own)
                futures = {
                    p: self.submit(function, parts[p], sent[p], own is None)
                    for p in todo
                    if p in sent
                }
                answers |= self._gather(futures)
                lost = [p for p in todo if parts[p].cancelled()]
                if lost:
                    self._workers()  # a lost scheduler explains it better
                    raise _unrecoverable(lost[0])
        raise ClusterError(
            f"workers died in {MAX_ATTEMPTS} consecutive attempts at one round; see their logs"
            + self._advice()
        )

    def _send(
        self, todo: list[int], parts: Sequence[Task], whole: Floats, own: Any
    ) -> dict[int, Task]:
        """Send weights to the workers of the parts; some are missing if workers died."""
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
                    arrays, workers=workers, broadcast=broadcast, hash=False, timeout=SEND_SECONDS
                )
            )
        except (OSError, TimeoutError, KeyError, ValueError):  # the worker is gone
            while not self._check_workers():
                time.sleep(0.2 * CHECK_SECONDS)
            return []

    # ---- waiting

    def _gather(self, futures: dict[int, Task]) -> dict[int, Any]:
        """Wait for all tasks and return their results; some may be lost with a worker."""
        found: dict[int, Any] = {}
        for _ in range(MAX_RETRIES + 1):
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
        while True:
            try:
                wait(futures, timeout=CHECK_SECONDS)
                self._idle_since = None
                return
            except CancelledError:
                pending = [f for f in futures if f.status == "pending"]
                if not pending:
                    return
                futures = pending
            except TimeoutError:
                self._check_workers()

    # ---- losses

    def _workers(self) -> Mapping[str, Any]:
        """Return the workers by address, or raise if the scheduler is lost."""
        try:
            if self.client.status == "running":
                workers = self.client.scheduler_info(n_workers=-1).get("workers")
                if workers is not None:
                    return workers  # type: ignore[no-any-return]
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self._lost_scheduler() from error
        raise self._lost_scheduler()

    def _check_workers(self) -> bool:
        """Return whether a worker is available; raise if none has been for too long."""
        workers = self._workers()
        if workers and not all(map(is_paused, workers.values())):
            self._idle_since = None
            return True
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
            logger.warning(
                "the cluster has no available workers; waiting %.0f seconds for one",
                PATIENCE_SECONDS,
            )
        if now - self._idle_since >= PATIENCE_SECONDS:
            if workers:
                raise paused_workers(workers)
            raise ClusterError("all workers of the cluster are gone" + self._advice())
        return False

    @contextmanager
    def _explain_losses(self) -> Iterator[None]:
        """Replace errors of Dask about a lost scheduler."""
        try:
            yield
        except CliquewiseError:
            raise
        except Exception:
            self._workers()  # raises the better error if the scheduler is lost
            raise

    def _lost_scheduler(self) -> ClusterError:
        return ClusterError(
            "the connection to the scheduler of the cluster was lost" + self._advice()
        )

    def _advice(self) -> str:
        """Return how to continue, as the end of a sentence."""
        if self.checkpoint is None:
            return "; training has to start again (checkpoint=PATH would have kept its state)"
        if not self.checkpoint.exists():
            return f"; the checkpoint {self.checkpoint} was not written yet"
        return f"; start the cluster again and continue from {self.checkpoint} with resume=True"


def _explained(error: BaseException | None) -> BaseException:
    """Return the error to raise for an error of a worker."""
    if isinstance(error, CliquewiseError) or error is None:
        return error or DataError(
            "a task failed without an error message; see the logs of the workers"
        )
    if isinstance(error, MemoryError):
        return TooLargeError(memory_advice("a worker has no memory left"), float("nan"))
    return error


def _unrecoverable(number: int) -> DataError:
    return DataError(
        f"partition {number} was lost with its worker and cannot be recomputed, because its input "
        "was scattered data or a released future. Pass paths, bags or delayed objects, which read "
        "the data themselves"
    )
