"""Fewer weights in a fitted chain, and what that costs in the objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cliquewise.certificate import Certificate
from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.estimators._stored import rounded
from cliquewise.estimators.tagger.files import without_zeros
from cliquewise.estimators.tagger.inspection import ChainInspection
from cliquewise.estimators.tagger.tables import SampleInputs, laid_out
from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats


class Pruned(NamedTuple):
    """What pruning did.

    Attributes
    ----------
    weights_before, weights : int
        Weights of attributes that are not zero.
    attributes_before, attributes : int
        Attributes that have one.
    objective_before, objective : float
        The objective, per example, on the data that it was computed on.
    """

    weights_before: int
    weights: int
    attributes_before: int
    attributes: int
    objective_before: float
    objective: float

    @property
    def loss(self) -> float:
        """By how much the objective rose, relative to what it was."""
        return (self.objective - self.objective_before) / max(abs(self.objective_before), 1e-12)


class ChainPruning(ChainInspection):
    """Small models, with their price."""

    pruned_: Pruned
    certificate_: Certificate
    _objective: dict[str, Any]
    _has_own_certificate: bool
    _settings: Callable[..., dict[str, Any]]
    _labeled: Callable[..., Any]
    _chain_problem: Callable[..., ChainProblem]
    _set: Callable[..., None]

    def prune(
        self, threshold: float | None = None, *, keep: float | None = None,
        dtype: str = "float64", X: Any = None, y: Any = None, sample_weight: Any = None,
        token_weight: Any = None,
    ) -> Self:  # fmt: skip
        """Set small weights to zero, and drop attributes without any other.

        What this costs is in ``pruned_`` (weights, attributes and objective, before and after), and
        ``certificate_`` becomes that of the weights that are left; where none of them changes it
        stays as it was. Transitions stay.

        Parameters
        ----------
        threshold : float, optional
            Weights up to this size go.
        keep : int or float, optional
            Or: so many weights stay, the largest ones; up to 1.0, this share of them.
        dtype : {"float64", "float32", "float16"}, default="float64"
            Round those that stay, too: ``save`` with the same ``dtype`` then changes none of them,
            so that the file has the certificate.
        X, y, sample_weight, token_weight : optional
            Data that the objective is computed on, as in ``fit``; a tagger that was trained in this
            process has its own. The certificate is then one for these data and for the attributes
            that the tagger has: what was dropped before is no part of the problem.

        Examples
        --------
        >>> import cliquewise as cw
        >>> X, y = [[["a", "x"], ["b", "x"]], [["b"], ["c"]]], [["A", "B"], ["B", "A"]]
        >>> tagger = cw.SequenceTagger(random_state=0).fit(X, y).prune(keep=0.5)
        >>> tagger.pruned_.weights < tagger.pruned_.weights_before
        True
        >>> tagger.predict(X) == y
        True
        """
        check_is_fitted(self, "coef_")
        weights = rounded(self._without_small(threshold, keep), dtype).astype(np.float64)
        if X is not None:
            problem = self._problem_on(X, y, SampleInputs(sample_weight, token_weight))
            before, certificate = problem.primal(self.coef_), problem.certificate(weights)
        else:
            if self._trained_problem() is None:
                raise DataError(
                    "what pruning costs is computed on the training data, which a tagger that was "
                    "loaded, pruned or sent to another process does not have (nor one whose "
                    "objective was changed, or that was trained on shards): give X and y"
                )
            before, certificate = self.certificate_.primal, self._certificate_of(weights)
        old = self._sizes(self.coef_)
        changes = not np.array_equal(weights, self.coef_) or not self._has_own_certificate
        parts = without_zeros(self.model_, self.encoder_, weights)
        for name in ("_training", "_stored"):  # whose numbers of attributes are others
            self.__dict__.pop(name, None)
        model, encoder, left = parts
        self._set(encoder, self.labels_, model, left)
        new = self._sizes(left)
        self.pruned_ = Pruned(old[0], new[0], old[1], new[1], before, certificate.primal)
        if changes:
            self.certificate_, self._objective = certificate, self._settings()
        return self

    def _problem_on(self, X: Any, y: Any, given: SampleInputs) -> ChainProblem:
        """What training on other data would minimize, over the weights that there are."""
        layout, X = laid_out(self, X)
        y = y if layout is None else layout.labels(y)
        given = given.by_sequence(layout)
        data, partial = self._labeled(self._encode(X), self.labels_, y, given)
        return self._chain_problem(self.model_, data, partial)

    def _without_small(self, threshold: float | None, keep: float | None) -> Floats:
        """The weights, small ones set to zero."""
        if (threshold is None) == (keep is None):
            raise DataError("prune needs a threshold, or how many weights to keep")
        weights, model = self.coef_.copy(), self.model_
        free = np.ones(len(weights), dtype=bool)
        square = model.n_labels**2
        free[model.n_emissions : model.n_emissions + square] = False
        sizes = np.where(free, np.abs(weights), np.inf)
        given = threshold if keep is None else keep
        if not isinstance(given, int | float | np.number) or not 0 <= given < math.inf:
            raise DataError(f"prune takes a number that is not negative, not {given!r}")
        if keep is not None and keep >= 1 and keep != int(keep):
            raise DataError(f"keep = {keep!r}; it is a share up to 1, or a whole number of weights")
        if keep is not None:
            there = np.count_nonzero(sizes) - square
            is_share = keep < 1 or (isinstance(keep, float) and keep == 1)
            wanted = int(keep * there) if is_share else int(keep)
            if wanted >= there:
                return weights
            small = np.argsort(sizes, kind="stable")[: len(sizes) - square - wanted]
        else:
            small = np.flatnonzero(sizes <= threshold)
        weights[small] = 0.0
        return weights

    def _sizes(self, weights: Floats) -> tuple[int, int]:
        """Weights that are not zero, and attributes of tokens that have one."""
        model, k = self.model_, self.model_.n_labels
        own = np.flatnonzero(weights[: model.n_emissions])
        if len(model.pair_start):
            rows = np.searchsorted(model.pair_start, own, side="right")
        else:
            rows = own // k
        pairs = np.count_nonzero(weights[model.n_emissions + k * k :])
        return len(own) + int(pairs), len(np.unique(rows))

    # ---- the objective

    def _trained_problem(self) -> ChainProblem | None:
        """The problem that was solved, if everything of it is still here."""
        data, partial, *_ = self.__dict__.get("_training", (None, None))
        if not isinstance(data, Dataset) or self.__dict__.get("_objective") != self._settings():
            return None
        return self._chain_problem(self.model_, data, partial)

    def _certificate_of(self, weights: Floats) -> Certificate:
        """The dual value bounds the objective, whatever the weights are."""
        problem, known = self._trained_problem(), self.certificate_
        if problem is None:
            return Certificate(math.nan)
        primal = max(
            problem.primal(weights), problem.lower_bound if problem.is_convex else -math.inf
        )
        return Certificate(primal, known.dual, known.status, known.rounding)
