"""A campaign against the library: problems drawn as an attacker would, held against references.

    python -m tests.campaign --minutes 10 [--seed N] [--only certificates] [--case I]

A *part* is a module here with ``draw(rng)``, which makes a case of plain data, ``check(case)``,
which tries it, and ``script(case)``, which writes it as a program of its own. Cases run in a worker
process, so that a crash or an endless loop is a finding as well (``worker.py``); what is found is
made small before it is printed (``findings.py``).
"""

from __future__ import annotations

import sys
from pathlib import Path

#: In the order in which they run; each has a share of the time.
PARTS = {"certificates": 0.45, "inference": 0.25, "files": 0.2, "interrupts": 0.1}

# The references are those of the tests.
_TESTS = str(Path(__file__).parents[1])
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)
