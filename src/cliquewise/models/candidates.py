"""CandidateModel: one score per candidate, linear in its features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from cliquewise.data.feature_rows import FeatureRows
from cliquewise.errors import DataError
from cliquewise.ragged import Floats, Ints, offsets_of


@dataclass(frozen=True)
class CandidateSets:
    """Candidates of all examples; example i has the rows ``offsets[i] : offsets[i + 1]``."""

    features: FeatureRows
    offsets: Ints

    @classmethod
    def from_examples(cls, X: Any, n_features: int | None = None) -> CandidateSets:
        """Build from one (m_i, d) array or CSR matrix per example.

        Examples
        --------
        >>> len(CandidateSets.from_examples([[[1.0], [2.0]], [[0.5]]]))
        2
        """
        if issparse(X) or isinstance(X, str | dict):
            raise DataError("X must be a list with one (candidates, features) matrix per example")
        parts = list(X)
        features = FeatureRows.stack(parts, n_features)
        sizes = [p.shape[0] if issparse(p) else len(p) for p in parts]
        empty = [i for i, size in enumerate(sizes) if size == 0]
        if empty:
            raise DataError(f"example {empty[0]} has no candidates; remove it")
        return cls(features, offsets_of(sizes))

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.offsets) - 1

    def split(self, flat: Any) -> list[Any]:
        """Split an array over all candidates into one array per example."""
        return list(np.split(flat, self.offsets[1:-1])) if len(self) else []


class CandidateModel:
    """The linear map from weights to the scores of candidates, and its adjoint.

    Examples
    --------
    >>> data = CandidateSets.from_examples([[[1.0, 0.0], [0.0, 1.0]]])
    >>> CandidateModel(2).potentials(np.array([3.0, 4.0]), data)
    array([3., 4.])
    """

    def __init__(self, n_features: int):
        self.n_features = self.dimension = n_features

    def potentials(self, w: Floats, data: CandidateSets) -> Floats:
        """Return the scores of all candidates."""
        return data.features.scores(w)

    def accumulate(self, mu: Floats, data: CandidateSets, out: Floats) -> None:
        """Add ``sum_c mu_c phi_c`` to ``out``."""
        out += data.features.accumulate(mu)
