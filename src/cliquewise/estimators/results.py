"""Results of prediction with their proofs: labelings with bounds, marginals with flags."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import InexactWarning, warn_user
from cliquewise.oracles.results import MarginalResult
from cliquewise.ragged import Floats, Ragged


@dataclass(frozen=True, eq=False)
class Labeling:
    """The predicted output of one example, its score, and an upper bound of the best score.

    Attributes
    ----------
    labels : ndarray
        What ``predict`` returns for the example.
    score : float
        Score of ``labels`` under the trained weights.
    bound : float
        No output scores higher, except for rounding errors.
    exact : bool
        Whether ``labels`` is proven to have the highest score.
    method : str
        The inference method that found ``labels``.

    Examples
    --------
    >>> Labeling(np.array([0, 1]), 2.0, 2.5, False, "trw-s").gap
    0.5
    """

    labels: NDArray[Any]
    score: float
    bound: float
    exact: bool
    method: str

    @property
    def gap(self) -> float:
        """The most by which another output could score higher."""
        return max(0.0, self.bound - self.score)


@dataclass(frozen=True, eq=False)
class NodeMarginals:
    """Marginal probabilities of the labels of one graph's nodes, and their accuracy.

    Attributes
    ----------
    probabilities : ndarray (nodes, labels), or list of ndarray
        What ``predict_marginals`` returns for the example.
    exact : bool
        Whether the probabilities are those of the model, up to rounding errors.
    method : str
        The inference method. ``relaxed`` gives beliefs of the relaxed training problem, which
        are not probabilities of the model.
    log_z : float
        Logarithm of the partition function (an estimate unless ``exact``).
    log_z_bounds : (float, float)
        Lower and upper bound of the true ``log_z``.
    standard_errors : array or list of arrays like ``probabilities``, or None
        For estimates from samples.
    """

    probabilities: Any
    exact: bool
    method: str
    log_z: float = math.nan
    log_z_bounds: tuple[float, float] = (-math.inf, math.inf)
    standard_errors: Any = None


@dataclass(frozen=True, eq=False)
class LabelSetResult:
    """Predicted label sets of all rows, their scores, and upper bounds of the best scores.

    Attributes
    ----------
    labels : ndarray (n, L), or lists of names
        The most probable set of each row, in the form of ``y``.
    score, bound : ndarray (n,)
        Score of each set, and an upper bound of the scores of all sets of the row.
    exact : ndarray of bool (n,)
        Whether the set of each row is proven to have the highest score.
    method : str
        The inference method that was requested.
    """

    labels: Any
    score: Floats
    bound: Floats
    exact: NDArray[np.bool_]
    method: str

    @property
    def gap(self) -> Floats:
        """By row, the most by which another set could score higher."""
        return np.maximum(0.0, self.bound - self.score)


@dataclass(frozen=True, eq=False)
class LabelSetMarginals:
    """Probability of every label of every row, and its accuracy.

    Attributes
    ----------
    probabilities : ndarray (n, L)
    exact : ndarray of bool (n,)
        Whether the probabilities of a row are those of the model, up to rounding errors.
    log_z : ndarray (n,)
        Logarithms of the partition functions; NaN where the method has none.
    log_z_bounds : ndarray (n, 2)
        Lower and upper bounds of the true ``log_z``.
    method : str
    """

    probabilities: Floats
    exact: NDArray[np.bool_]
    log_z: Floats
    log_z_bounds: Floats
    method: str


def standard_errors(found: MarginalResult) -> Floats | None:
    """Return the standard errors of node marginals, flat; None if they are not from samples."""
    errors = found.info.get("standard_errors")
    if errors is None:
        return None
    return np.asarray(errors.flat if isinstance(errors, Ragged) else errors, dtype=np.float64)


def warn_of_inexact(exact: NDArray[np.bool_], methods: set[str], full_result: str) -> None:
    """Warn that some of the returned probabilities are approximate."""
    n = int(np.count_nonzero(~exact))
    if n:
        warn_user(
            f"the probabilities of {n} of {len(exact)} examples are approximate (method "
            f"{', '.join(sorted(methods))}); {full_result} also returns flags and bounds",
            InexactWarning,
        )
