"""Limits of the magnitude of scores, and rounding errors of their sums."""

from __future__ import annotations

import numpy as np

from cliquewise.errors import GraphError
from cliquewise.graph.structure import Structure
from cliquewise.ragged import Floats, owner_of

#: Log-potentials are no larger than this, so that no sum of them overflows.
LARGEST = 1e300
EPSILON = float(np.finfo(np.float64).eps)


def rounding_of(structure: Structure, total: float) -> float:
    """Return the rounding error of a sum over a structure with summands of this total size."""
    steps = 4.0 * structure.n_factors + structure.max_cardinality + 256.0
    return steps * EPSILON * max(total, float(structure.n_factors + structure.n_variables))


def largest_finite(scores: Floats) -> float:
    """Return the largest absolute value except -inf; NaN or inf if there is one."""
    high = np.maximum.reduce(scores, None, initial=0.0)
    low = np.minimum.reduce(scores, None, initial=0.0)
    if low == -np.inf:
        low = np.minimum.reduce(scores[scores > -np.inf], initial=0.0)
    return float(np.maximum(high, -low))


def refuse_size(structure: Structure, tables: Floats) -> None:
    """Raise an error that names the log-potential that is NaN, infinite or too large."""
    entry = int(np.argmax((tables != -np.inf) & ~(np.abs(tables) <= LARGEST)))
    f, _ = owner_of(structure.table_offsets, entry)
    raise GraphError(
        f"the table of factor {f} contains {tables[entry]}; log-potentials are finite "
        f"numbers up to {LARGEST:g}, or -inf for a forbidden combination"
    )
