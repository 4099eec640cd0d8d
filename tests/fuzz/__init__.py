"""Fuzzing: random problems, operations and damaged files, checked against independent references.

    python -m tests.fuzz --minutes 60 [--seed N] [--only operations] [--case I] [--replay FILE]
    python -m tests.fuzz.faults                 which of thirty planted faults are found, and when

A *part* is a module here with ``draw(rng)``, which makes a case of plain data, and ``check(case)``,
which tries it. Cases run in a worker process, so a crash or an endless loop is a finding as well
(``worker.py``). A case that shows a trouble is made small (``findings.py``) and printed as a line
of JSON, which ``--replay`` checks again. References are lists of all labelings, an interior point
method and extended precision, never our own solvers.
"""

from __future__ import annotations

import sys
from pathlib import Path

#: In the order in which they run; each has a share of the time.
PARTS = {
    "operations": 0.3,
    "certificates": 0.25,
    "inference": 0.15,
    "rows": 0.05,
    "files": 0.15,
    "interrupts": 0.1,
}

# The references are those of the tests.
_TESTS = str(Path(__file__).parents[1])
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)
