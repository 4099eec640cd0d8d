"""Sequences in partitions, and when two taggers have found the same optimum."""

from __future__ import annotations

import dask.bag
import numpy as np
import pytest

TOL = 1e-6


def sequences(seed: int, n: int = 40, labels: str = "ABC"):
    rng = np.random.default_rng(seed)
    X = [
        [[f"w{rng.zipf(1.5) % 60}" for _ in range(3)] for _ in range(rng.integers(0, 7))]
        for _ in range(n)
    ]
    return X, [[str(rng.choice(list(labels))) for _ in x] for x in X]


def bags(X, y, parts):
    return [dask.bag.from_sequence(part, npartitions=parts) for part in (X, y)]


def agree(one, other):
    """Both prove their gap, and each is between the other's bounds: the same optimum."""
    a, b = one.certificate_, other.certificate_
    assert a.status == b.status == "exact"
    assert max(a.gap, b.gap) <= TOL
    assert a.dual <= b.primal and b.dual <= a.primal
    assert one.coef_ == pytest.approx(other.coef_, abs=1e-2)
