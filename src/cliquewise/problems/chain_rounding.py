"""Rounding of chain problems: rows of weights are the attributes, the transitions, those of pairs.

What a chain problem adds up over its sequences, wherever these are kept, and what follows for the
errors of weights and objective; see ``problems/rounding.py``.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from cliquewise.models.chain import ChainModel
from cliquewise.models.chain_form import ChainForm
from cliquewise.problems.base import Problem
from cliquewise.problems.rounding import ScoreProfile
from cliquewise.ragged import Floats


class FeatureSizes(NamedTuple):
    """Sizes of all features, by row of weights; see ``problems/rounding.py``."""

    total: Floats  # sum of |features| of all tokens
    deep: Floats  # the same, each times the roundings of a marginal
    most: Floats  # the largest of them
    counts: Floats  # how many there are


class ChainRounding(Problem):
    """A problem of chains, by the sums over its sequences.

    Attributes
    ----------
    model : ChainModel
    form : ChainForm
        How weights are packed.
    features : FeatureSizes
    longest : int
        Tokens of the longest sequence.
    heaviest : float
        The largest weight of a sequence.
    own_doubt : float
        Roundings of log partition functions, and of their sum over the sequences.
    """

    model: ChainModel
    form: ChainForm

    # BLAS has but norms to compute here, and its threads spin for a tenth of a second after each:
    # time that is taken from ours.
    blas_threads = 1

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        raise NotImplementedError

    @property
    def heaviest(self) -> float:
        """The largest weight of a sequence."""
        raise NotImplementedError

    @cached_property
    def features(self) -> FeatureSizes:
        """Sizes of the features of all tokens, by row."""
        raise NotImplementedError

    @cached_property
    def data_rounding_error(self) -> float:
        """Roundings of log partition functions, and of their sum over the sequences."""
        raise NotImplementedError

    @property
    def most_entries(self) -> int:
        """The largest number of attributes of a token and of the pair that ends there."""
        raise NotImplementedError

    @cached_property
    def score_profile(self) -> ScoreProfile:
        """Bounds of the errors of marginals: a token has its attributes and a transition."""
        most = np.where(self.features.counts > 0, self.features.most, 0.0)
        entries = float(self.most_entries + 1)
        return ScoreProfile(float(self.longest), entries, most, self.features.total)

    def largest_by_row(self, w: Floats) -> Floats:
        """The largest weight of each attribute, of the transitions, of each pair attribute."""
        from cliquewise._kernels.chain.features import largest_weights

        model, square = self.model, self.model.n_labels**2
        if len(w) == model.dimension:  # which a packed vector is longer than
            first, own = model.n_emissions, self._largest_emissions(w)
            own = np.append(own, np.abs(w[first : first + square]).max(initial=0.0))
        else:
            first, own = self.form.edge_start, np.empty(model.n_attributes + 1)
            largest_weights(self.form.chains, w, own)
        first += square
        pairs = w[first : first + model.n_edge_attributes * square]
        return np.append(own, np.abs(pairs).reshape(-1, square).max(axis=1, initial=0.0))

    def _largest_emissions(self, w: Floats) -> Floats:
        """The largest weight of each attribute, of weights that are not packed."""
        model, sizes = self.model, np.abs(w[: self.model.n_emissions])
        if not len(model.pair_start):
            rows = sizes.reshape(model.n_attributes, model.n_labels)
            return np.asarray(rows.max(axis=1, initial=0.0))
        out, has_some = np.zeros(model.n_attributes), np.diff(model.pair_start) > 0
        out[has_some] = np.maximum.reduceat(sizes, model.pair_start[:-1][has_some])
        return out

    def weight_error_scale_for(self, moved: float, additions: Floats | None = None) -> Floats:
        """:attr:`weight_error_scale` of a dual point that expects so many wrong labels, weighted.

        Half of what a token's label distribution moves, seen from the truth, is its wrong mass; its
        edges move by no more than both of their tokens do. ``additions`` are, by row, how many
        numbers were added up, if not one per token and edge.
        """
        f, longest = self.features, float(self.longest)
        with np.errstate(over="ignore", invalid="ignore"):
            # Of attributes that never occur the product is NaN where nothing is known.
            sizes = np.fmin(f.total, 2.0 * moved * f.most)
            # Within a sequence true transitions are not yet balanced by expected ones.
            most = 2.0 * longest * self.heaviest
            sizes[self.model.n_attributes] += most
            added = f.counts if additions is None else additions
            return np.asarray(self.C * (f.deep + added * sizes))

    def additions(self, most: float, total: float) -> Floats:
        """By row: numbers added up where a token has at most ``most``, and all have ``total``."""
        return np.minimum(most * self.features.counts, total) + 8.0

    @property
    def weight_error_scale(self) -> Floats:
        """By row: C times all features, each times its roundings and those of the sum."""
        return self._summands

    @cached_property
    def _summands(self) -> Floats:
        return self.weight_error_scale_for(np.inf)

    @property
    def rounding_terms(self) -> tuple[Floats, float]:
        """Errors of scores and log partition functions, and of their sum over the sequences."""
        return self.features.deep, self.data_rounding_error
