"""The process that runs toulbar2 for ``toulbar2.py``, one network after another.

It runs as a script of its own and imports nothing of the library, so that it starts at once. A
question is a line of JSON and the arrays that it announces; the answer is a line of JSON.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any, BinaryIO

import numpy as np


def limit(name: str, value: float) -> None:
    """Set a limit of this process, where the operating system supports it."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    kind = getattr(resource, name)
    hard = resource.getrlimit(kind)[1]
    value = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
    resource.setrlimit(kind, (value, hard))


def processor_seconds() -> float:
    """Return the processor time of this process."""
    used = os.times()
    return used.user + used.system


def search(
    pytoulbar2: Any, question: dict[str, Any], arrays: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return labels (or None), a bound of the cost, and whether the search completed."""
    known = question["known"]
    network = pytoulbar2.CFN(ubinit=known)
    try:
        post(network, **arrays)
        if question["backtracks"] is not None:
            network.Option.backtrackLimit = question["backtracks"]
        answer = network.Solve(timeLimit=question["seconds"])
    except network.Contradiction:
        return {"labels": None, "dual": known, "ended": True}
    except network.SolverOut:
        return {"labels": None, "dual": None, "ended": False}
    finally:
        network.CFN.timerStop()
    labels = None if answer is None else [int(x) for x in answer[0]]
    dual = float(network.GetDDualBound())
    return {
        "labels": labels,
        "dual": dual if math.isfinite(dual) else None,
        "ended": not network.Option.limited,
    }


def post(
    network: Any,
    cards: np.ndarray,
    scopes: np.ndarray,
    scope_offsets: np.ndarray,
    costs: np.ndarray,
    table_offsets: np.ndarray,
) -> None:
    """Pass variables and tables to the solver."""
    for v, k in enumerate(cards.tolist()):
        network.AddVariable(f"v{v}", range(k))
    if np.isinf(costs).any():
        peaks = np.maximum.reduceat(np.where(np.isinf(costs), -1.0, costs), table_offsets[:-1])
        if peaks.min() < 0.0:
            raise network.Contradiction
    for f in range(len(table_offsets) - 1):
        table = costs[table_offsets[f] : table_offsets[f + 1]].tolist()
        network.AddFunction(scopes[scope_offsets[f] : scope_offsets[f + 1]].tolist(), table)


def receive(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Read the next question; None at the end."""
    line = stream.readline()
    if not line:
        return None
    question = json.loads(line)
    arrays = {}
    for name, kind, length in question["arrays"]:
        size = np.dtype(kind).itemsize * length
        arrays[name] = np.frombuffer(stream.read(size), dtype=kind)
    return question, arrays


def main() -> None:
    """Answer questions until the pipe is closed."""
    # The solver prints what it likes; answers go to what was standard output.
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    import pytoulbar2

    os.dup2(nowhere, 2)  # until here it tells why it cannot start
    pytoulbar2.tb2.init()
    answers.write(b"ready\n")
    answers.flush()
    while (received := receive(sys.stdin.buffer)) is not None:
        question, arrays = received
        limit("RLIMIT_AS", question["memory"])
        # If the other side is gone and the search does not end, the system ends it.
        limit("RLIMIT_CPU", processor_seconds() + 2 * question["seconds"] + 60)
        try:
            answer = search(pytoulbar2, question, arrays)
        except KeyboardInterrupt:  # before the search began
            answer = {"labels": None, "dual": None, "ended": False}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
