"""Remove small weights from a fitted chain."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.errors import DataError
from cliquewise.estimators.tagger.chain_tagger import ChainTagger
from cliquewise.ragged import Floats


class Pruned(NamedTuple):
    """The result of pruning a tagger.

    Attributes
    ----------
    weights_before, weights : int
        Number of nonzero weights of attributes.
    attributes_before, attributes : int
        Number of attributes with a nonzero weight.
    objective_before, objective : float
        The objective per example.
    """

    weights_before: int
    weights: int
    attributes_before: int
    attributes: int
    objective_before: float
    objective: float

    @property
    def loss(self) -> float:
        """The increase of the objective, relative to its value before pruning."""
        return (self.objective - self.objective_before) / max(abs(self.objective_before), 1e-12)


def zero_small_weights(chain: ChainTagger, threshold: float | None, keep: float | None) -> Floats:
    """Return the weights with small ones set to zero; transitions are kept.

    Parameters
    ----------
    chain : ChainTagger
    threshold : float, optional
        Set weights up to this size to zero.
    keep : int or float, optional
        Or: keep this number of weights, or (up to 1.0) this share of them.
    """
    if (threshold is None) == (keep is None):
        raise DataError("prune needs either a threshold or keep, the number of weights to keep")
    weights, model = chain.coef_.copy(), chain.model_
    is_prunable = np.ones(len(weights), dtype=bool)
    n_transitions = model.n_labels**2
    is_prunable[model.n_emissions : model.n_emissions + n_transitions] = False
    sizes = np.where(is_prunable, np.abs(weights), np.inf)
    given = threshold if keep is None else keep
    if not isinstance(given, int | float | np.number) or not 0 <= given < math.inf:
        raise DataError(f"prune needs a number that is not negative, not {given!r}")
    if keep is not None and keep >= 1 and keep != int(keep):
        raise DataError(f"keep = {keep!r}; it must be a share up to 1 or an integer")
    if keep is None:
        weights[sizes <= threshold] = 0.0
        return weights
    n_nonzero = np.count_nonzero(sizes) - n_transitions
    is_share = keep < 1 or (isinstance(keep, float) and keep == 1)
    n_kept = int(keep * n_nonzero) if is_share else int(keep)
    if n_kept < n_nonzero:
        order = np.argsort(sizes, kind="stable")
        weights[order[: len(sizes) - n_transitions - n_kept]] = 0.0
    return weights


def without_zeros(chain: ChainTagger) -> ChainTagger:
    """Return an equivalent chain without the weights that are zero and unused attributes."""
    model, encoder = chain.model_, chain.encoder_
    inner = encoder.inner
    has_names = inner.vocabulary is not None
    has_pair_names = isinstance(inner, TemplateEncoder) and inner.n_hash is None
    smaller, weights, *kept = model.without_zeros(chain.coef_, has_names, has_pair_names)
    return replace(chain, encoder_=encoder.keeping(*kept), model_=smaller, coef_=weights)


def count_weights(chain: ChainTagger) -> tuple[int, int]:
    """Return the number of nonzero weights of attributes, and of attributes that have one."""
    model, k, weights = chain.model_, chain.model_.n_labels, chain.coef_
    emissions = np.flatnonzero(weights[: model.n_emissions])
    if len(model.pair_start):
        rows = np.searchsorted(model.pair_start, emissions, side="right")
    else:
        rows = emissions // k
    n_pairs = np.count_nonzero(weights[model.n_emissions + k * k :])
    return len(emissions) + int(n_pairs), len(np.unique(rows))
