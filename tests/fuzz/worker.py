"""A process that draws and checks cases: whatever it does to itself is seen from outside."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .findings import Report, Trouble

#: CPU seconds that no case may take.
LIMIT = 10.0
#: Seconds more for kernels that are compiled on the way: then it is tried again.
COMPILING = 600.0
#: Bytes of address space: a case that wants more meets a MemoryError.
MEMORY = 12 * 2**30


class Answer(NamedTuple):
    """A case (where it was drawn and shows trouble), and what it showed."""

    case: Any
    report: Report


class Worker:
    """Asks a child process, and starts another one when that has died or hangs."""

    def __init__(self) -> None:
        self.process: Any = None
        self.pipe: Any = None

    def drawn(self, part: str, seed: list[int]) -> Answer:
        """Draw a case and check it."""
        answer = self._patiently("drawn", part, seed)
        if answer.case is None and answer.report.trouble is not None:
            return Answer(self._ask("draw", part, seed, LIMIT).case, answer.report)
        return answer

    def check(self, part: str, case: Any, seconds: float = LIMIT) -> Report:
        """Check a case."""
        return self._ask("check", part, case, seconds).report

    def close(self) -> None:
        """End the child."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None

    def _patiently(self, task: str, part: str, content: Any) -> Answer:
        """A slow answer counts if it is slow again, once everything is compiled."""
        started = self._seconds()
        answer = self._ask(task, part, content, LIMIT + COMPILING)
        if self._seconds() - started <= LIMIT or self.process is None:
            return answer
        started = self._seconds()
        answer = self._ask(task, part, content, LIMIT + COMPILING)
        seconds = self._seconds() - started
        if seconds <= LIMIT or answer.report.trouble is not None:
            return answer
        return Answer(answer.case, Report(1, Trouble("hang", f"it takes {seconds:.0f} seconds")))

    def _seconds(self) -> float:
        """CPU seconds of the child (0 if there is none): a busy machine makes nothing hang."""
        if self.process is None:
            return 0.0
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.monotonic()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def _ask(self, task: str, part: str, content: Any, seconds: float) -> Answer:
        if self.process is None:
            context = multiprocessing.get_context("fork")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=_serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
        try:
            self.pipe.send((task, part, content))
            if self.pipe.poll(seconds):
                return self.pipe.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            self.process = None
            return Answer(None, Report(1, Trouble(f"crash: {name}")))
        self.close()
        return Answer(None, Report(1, Trouble("hang", f"no answer after {seconds:.0f} seconds")))


def _serve(pipe: Any) -> None:
    """The child: answer until the pipe is closed."""
    from cliquewise.solvers.backends.chain import parallel

    parallel.MIN_SEQUENCES = parallel.MIN_WORK = 1  # use threads on small problems, too
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    faulthandler.disable()
    sys.stdin = open(os.devnull)  # noqa: SIM115
    warnings.simplefilter("ignore")
    with contextlib.suppress(EOFError, OSError):
        while True:
            task, part, content = pipe.recv()
            pipe.send(_answer(task, part, content))


def _answer(task: str, part: str, content: Any) -> Answer:
    module = importlib.import_module(f".{part}", __package__)
    case = content
    try:
        if task in ("drawn", "draw"):
            case = module.draw(np.random.default_rng(content))
        if task == "draw":
            return Answer(case, Report(0))
    except Exception as error:  # a defect of the fuzzer, which must not pass for silence
        return Answer(case, Report(0, unexpected(error)))
    report = examined(module, case)
    return Answer(case if report.trouble else None, report)


def examined(module: Any, case: Any) -> Report:
    """Check a case; an exception that the check did not expect is a trouble."""
    try:
        with np.errstate(all="ignore"):
            return module.check(case)  # type: ignore[no-any-return]
    except Exception as error:
        return Report(1, unexpected(error))


def unexpected(error: BaseException) -> Trouble:
    """An exception as a trouble, named by the place in the library that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f"{os.sep}cliquewise{os.sep}" in f.filename]
    kind = type(error).__name__
    text = "".join(traceback.format_exception(error)[-4:])
    if not ours:
        return Trouble(f"the fuzzer itself failed with {kind}: {error}", text)
    path = ours[-1].filename.rsplit(f"{os.sep}cliquewise{os.sep}", 1)[1]
    return Trouble(f"{kind} out of {path}, {ours[-1].name}", text)
