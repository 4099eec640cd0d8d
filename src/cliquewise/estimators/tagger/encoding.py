"""Encode the training data of a tagger: attributes, labels, weights and costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.conversion import SequenceEncoder, allowed_mask
from cliquewise.data.dataset import Dataset
from cliquewise.data.labels import Labels
from cliquewise.errors import DataError
from cliquewise.estimators._costs import PSEUDO, costs_of, token_weights
from cliquewise.estimators._inputs import check_sample_weight, class_weights, mean_by_example
from cliquewise.estimators.tagger.tables import SampleInputs, read_table, read_training_table
from cliquewise.estimators.tagger.training_record import Examples

if TYPE_CHECKING:
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger


def encode_examples(
    tagger: SequenceTagger, X: Any, y: Any, inputs: SampleInputs, classes: Any = None
) -> Examples:
    """Learn the attributes and labels of the training data, and encode it."""
    has_template = tagger.template is not None
    X, y, inputs, schema = read_training_table(X, y, inputs, tagger.sequence_column, has_template)
    encoder = SequenceEncoder(tagger.template, tagger.n_hash, tagger.min_count, schema)
    data = encoder.fit_transform(X)
    labels = Labels.fit(y) if classes is None else Labels(classes)
    return Examples(encoder, labels, *add_labels(tagger, data, labels, y, inputs))


def encode_with_new_names(
    tagger: SequenceTagger, X: Any, y: Any, inputs: SampleInputs, classes: Any = None
) -> Examples:
    """Encode data for a fitted tagger, with new attributes and labels after the existing ones."""
    chain = tagger.chain_
    layout, X = read_table(chain, X)
    y = y if layout is None else layout.labels(y)
    given = [*Labels.fit(y).classes, *(() if classes is None else Labels(classes).classes)]
    new = dict.fromkeys(c for c in given if c not in chain.classes_)
    labels = Labels([*chain.classes_, *new]) if new else chain.labels_
    encoder = chain.encoder_.extended(X)
    labeled = add_labels(tagger, encoder.transform(X), labels, y, inputs.by_sequence(layout))
    return Examples(encoder, labels, *labeled)


def encode_with_known_names(
    tagger: SequenceTagger, X: Any, y: Any, inputs: SampleInputs
) -> tuple[Dataset, NDArray[np.bool_] | None]:
    """Encode data for a fitted tagger, without its unknown attributes."""
    chain = tagger.chain_
    layout, X = read_table(chain, X)
    y = y if layout is None else layout.labels(y)
    return add_labels(tagger, chain.encode(X), chain.labels_, y, inputs.by_sequence(layout))


def add_labels(
    tagger: SequenceTagger, data: Dataset, labels: Labels, y: Any, inputs: SampleInputs
) -> tuple[Dataset, NDArray[np.bool_] | None]:
    """Return the data with labels, weights and costs, and the mask of partial labels.

    The mask is None if every label is known.
    """
    if len(labels) == 0:
        raise DataError("y has no labels; training needs at least one labeled token")
    numbers, partial = labels.encode(y, data.offsets)
    if partial is None and np.any(numbers < 0):
        partial = np.ones((data.n_tokens, len(labels)), dtype=bool)
    if partial is not None:
        known = np.flatnonzero(numbers >= 0)
        partial[known] = False
        partial[known, numbers[known]] = True
    weights = check_sample_weight(inputs.sample_weight, len(data))
    per_token, is_pseudo = np.ones(data.n_tokens), tagger.loss == PSEUDO
    if tagger.class_weight is not None:
        per_class = class_weights(tagger.class_weight, labels.classes, numbers)
        per_token = np.where(numbers >= 0, per_class[numbers], 1.0)
    if not is_pseudo:
        weights = weights * mean_by_example(per_token, data.offsets)
    elif inputs.token_weight is not None:
        per_token = per_token * token_weights(inputs.token_weight, data.offsets)
    mask = None
    if inputs.allowed is not None:
        mask = allowed_mask(inputs.allowed, labels, data.offsets)
    factors = None if is_pseudo else inputs.token_weight
    costs = costs_of(tagger.loss, tagger.cost, factors, labels.classes, numbers, data.offsets)
    labeled = data.with_labels(numbers, mask, weights, costs)
    return replace(labeled, token_weights=per_token if is_pseudo else None), partial
