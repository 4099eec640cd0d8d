"""The weights of a chain in the forms that prediction reads, computed when first needed."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise.estimators.tagger.device import torch_device
from cliquewise.graph.sizes import largest_finite
from cliquewise.models.chain import ChainModel
from cliquewise.models.chain_form import PADDING
from cliquewise.models.sparse_transitions import is_sparse, may_be_sparse, transition_lists
from cliquewise.oracles._rescaling import PLAIN
from cliquewise.ragged import Floats

#: Prediction gathers single rows of weights until the attributes it has looked up number more
#: than 1 / FEW_ROWS of the model's attributes. After that it packs the whole matrix once.
FEW_ROWS = 20


class DecodingTables(NamedTuple):
    """Weights in the layout of ``_kernels.chain.decode.tag``, and the largest absolute weight."""

    constants: Floats
    trans: Floats
    largest: float


class PreparedWeights:
    """Derived forms of a chain's weights, each computed once.

    Several :class:`ChainTagger` objects with the same model and weights share one instance.

    Parameters
    ----------
    model : ChainModel
    weights : ndarray
    """

    def __init__(self, model: ChainModel, weights: Floats):
        self.model, self.weights = model, weights
        self._rows_read = 0  # attributes of the tokens that were tagged before packing
        self._on_devices: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the inputs only; the derived forms are computed again."""
        return PreparedWeights, (self.model, self.weights)

    @cached_property
    def packed(self) -> Floats:
        """The weights in the form that computes scores fastest."""
        return self.model.form(learn=False).pack(self.weights)

    @cached_property
    def sparse_transitions(self) -> tuple[Any, ...] | None:
        """Lists of the nonzero transitions by row; None if the transitions are not sparse."""
        if not may_be_sparse(self.model):
            return None
        trans = self.model.transitions(self.weights)
        return transition_lists(trans) if is_sparse(trans) else None

    @cached_property
    def tables(self) -> DecodingTables | None:
        """The tables of the fused decoding kernel; None if the kernel does not support the model.

        The kernel requires weights for all (attribute, label) pairs, dense transitions, no
        attributes of token pairs, and scores of moderate size.
        """
        model = self.model
        form = model.form(learn=False)
        trans = model.transitions(self.weights)[None].copy()
        largest = max(largest_finite(self.weights), 1.0)
        pairs_only = bool(len(model.pair_start)) and not form.rows
        if model.n_edge_attributes or pairs_only or self.sparse_transitions or largest > PLAIN:
            return None
        if len(model.edge_allowed):
            trans[0, ~model.edge_allowed] = -np.inf
        k, n_constant = model.n_labels, model.intercept + 2 * model.boundaries
        constants = np.zeros((3, -(-k // PADDING) * PADDING))
        present = np.array([model.intercept, model.boundaries, model.boundaries])
        last = np.arange(model.n_attributes - n_constant, model.n_attributes)
        constants[present, :k] = model.rows(self.weights, last)
        constants[1, :k][~model.begin_allowed] = -np.inf
        constants[2, :k][~model.end_allowed] = -np.inf
        return DecodingTables(constants, trans, largest)

    def on_device(self, device: str) -> Any:
        """Return the predictor on a PyTorch device; None if the device does not support the model.

        (``Any``: the type belongs to the torch extra, a higher layer.)
        """
        if device not in self._on_devices:
            made = torch_device().predictor_on(device, self.model, self.weights)
            self._on_devices[device] = made
        return self._on_devices[device]

    def rows(self, indices: NDArray[np.int32]) -> tuple[Floats, NDArray[np.int32]]:
        """Return rows of weights, and ``indices`` renumbered to point into these rows.

        A model that was just loaded tags its first sentences from the rows that they need, since
        packing all weights takes longer. The results are bit-identical.
        """
        if "packed" in vars(self):
            return self.packed, indices
        self._rows_read += len(indices)
        if FEW_ROWS * self._rows_read > self.model.n_attributes:
            return self.packed, indices
        used, positions = np.unique(np.maximum(indices, 0), return_inverse=True)
        rows = self.model.rows(self.weights, used.astype(np.int64)).ravel()
        renumbered = np.where(indices < 0, indices, positions.astype(np.int32))
        return np.concatenate([rows, np.zeros(PADDING)]), renumbered
