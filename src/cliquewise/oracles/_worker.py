"""A separate process for external solvers, so crashes do not affect the user's program."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class WorkerError(Exception):
    """The worker ended without an answer."""


class Worker:
    """Run a script that answers questions, and restart it after a crash.

    Questions of several threads wait for one another. After a fork the child has its own.

    Parameters
    ----------
    script : Path
        Reads a line of JSON and the arrays that it announces, writes a line of JSON. Its first
        line says that it is ready. SIGINT asks it for what it has found so far.
    """

    def __init__(self, script: Path):
        self.script = script
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_ready = False
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.stop)

    def ask(
        self, question: dict[str, Any], arrays: dict[str, NDArray[Any]], seconds: float
    ) -> tuple[dict[str, Any], bool]:
        """Return the answer, and whether it was interrupted after ``seconds``.

        A worker that was cut short, crashed or did not stop is replaced.
        """
        with self._lock:
            process = self._ready()
            cut = threading.Event()
            timers = [
                threading.Timer(seconds, _interrupt, (process, cut)),
                threading.Timer(1.1 * seconds + 1.0, process.kill),
            ]
            for timer in timers:
                timer.daemon = True
                timer.start()
            try:
                line = _exchange(process, question, arrays)
            except BaseException:  # Ctrl-C too: nobody waits for what the worker is doing
                self.stop()
                raise
            finally:
                for timer in timers:
                    timer.cancel()
            if cut.is_set() or not line:
                self.stop()
                self._launch()  # the next question finds it warm
            if not line:
                late = "did not stop in time" if cut.is_set() else "crashed"
                raise WorkerError(f"{late}, exit code {process.returncode}")
            answer: dict[str, Any] = json.loads(line)
            return answer, cut.is_set()

    def launch(self) -> None:
        """Start the process if there is none, without waiting for it."""
        with self._lock:
            self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.stop()
            # -P: the modules beside the script must not shadow those of the standard library.
            # A session of its own: Ctrl-C in a terminal is for the user's program alone.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(self.script)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
            self._is_ready = False
        return self._process

    def _ready(self) -> subprocess.Popen[bytes]:
        """Return the process once it is ready for questions."""
        process = self._launch()
        if not self._is_ready:
            assert process.stdout is not None and process.stderr is not None
            try:
                line = process.stdout.readline()
            except BaseException:
                self.stop()
                raise
            if not line:
                lines = process.stderr.read().decode(errors="replace").strip().splitlines()
                self.stop()
                raise WorkerError(f"did not start: {lines[-1] if lines else 'no reason given'}")
            self._is_ready = True
        return process

    def stop(self) -> None:
        """End the worker; the next question starts another one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError):  # what was not sent yet need not be
                    pipe.close()  # type: ignore[union-attr]

    def _forget(self) -> None:
        """Forget the worker in a forked child: it belongs to the parent."""
        self._process, self._lock = None, threading.Lock()


def _interrupt(process: subprocess.Popen[bytes], cut: threading.Event) -> None:
    cut.set()
    if sys.platform != "win32":
        process.send_signal(signal.SIGINT)


def _exchange(
    process: subprocess.Popen[bytes], question: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    listed = [(name, a.dtype.str, len(a)) for name, a in arrays.items()]
    try:
        process.stdin.write(json.dumps(question | {"arrays": listed}).encode() + b"\n")
        for a in arrays.values():
            process.stdin.write(np.ascontiguousarray(a).data)
        process.stdin.flush()
    except BrokenPipeError:
        return b""
    return process.stdout.readline()
