"""How large scores may be, and what rounding does to their sums."""

from __future__ import annotations

import numpy as np

from cliquewise.errors import GraphError
from cliquewise.graph.structure import Structure
from cliquewise.ragged import Floats, owner_of

#: Log-potentials are no larger than this, so that no sum of them overflows.
LARGEST = 1e300
EPSILON = float(np.finfo(np.float64).eps)


def rounding_of(structure: Structure, total: float) -> float:
    """What rounding may add to a sum over a structure whose summands have this total size."""
    steps = 4.0 * structure.n_factors + structure.max_cardinality + 256.0
    return steps * EPSILON * max(total, float(structure.n_factors + structure.n_variables))


def largest_finite(scores: Floats) -> float:
    """The largest absolute value of those that are not -inf; NaN or inf where there is one."""
    high = np.maximum.reduce(scores, None, initial=0.0)
    low = np.minimum.reduce(scores, None, initial=0.0)
    if low == -np.inf:
        low = np.minimum.reduce(scores[scores > -np.inf], initial=0.0)
    return float(np.maximum(high, -low))


def refuse_size(structure: Structure, tables: Floats) -> None:
    """Say which log-potential is NaN, infinite or too large to be added up."""
    entry = int(np.argmax((tables != -np.inf) & ~(np.abs(tables) <= LARGEST)))
    f, _ = owner_of(structure.table_offsets, entry)
    raise GraphError(
        f"the table of factor {f} contains {tables[entry]}; log-potentials are finite "
        f"numbers up to {LARGEST:g}, or -inf for a forbidden combination"
    )
