"""Prediction with a fitted chain on a device: scores, best labels and marginals, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cliquewise.data.dataset import Dataset
from cliquewise.models.chain import ChainModel
from cliquewise.ragged import Floats, Ints
from cliquewise.torch import chain
from cliquewise.torch._device_chains import current, padded_groups, table_of
from cliquewise.torch._products import Product, RawFeatures
from cliquewise.torch._scores import Scores

#: Numbers in one block of scores, by kind of device.
BLOCK = {"cpu": 8_000_000, "cuda": 64_000_000}


class DevicePredictor:
    """Predict new sequences with the weights of a model on a device."""

    def __init__(self, model: ChainModel, coef: Floats, device: torch.device) -> None:
        self.model, self.device, self.k = model, device, model.n_labels
        self.table = table_of(model.emissions(coef), device, torch.float64)
        trans = model.transitions(coef).copy()
        if len(model.edge_allowed):
            trans[~model.edge_allowed] = -np.inf
        self.trans = table_of(trans, device, torch.float64)

    def _blocks(self, offsets: Ints) -> Iterator[tuple[int, int]]:
        """Yield ranges of sequences whose scores fit into one block, at least one sequence each."""
        room, first, n = max(BLOCK[self.device.type] // self.k, 1), 0, len(offsets) - 1
        while first < n:
            last = int(np.searchsorted(offsets, offsets[first] + room, side="right")) - 1
            last = min(max(last, first + 1), n)
            yield first, last
            first = last

    def _scores(self, data: Dataset, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Return the scores (tokens, K) of some sequences, and their offsets."""
        chains = self.model.form(data, learn=False).chains
        begin, end = int(data.offsets[first]), int(data.offsets[last])
        span = slice(int(chains.indptr[begin]), int(chains.indptr[end]))
        starts = table_of(chains.indptr[begin : end + 1] - chains.indptr[begin], self.device)
        values = table_of(chains.values[span], self.device) if len(chains.values) else None
        ids = table_of(chains.indices[span], self.device, torch.int32)
        product = Product(RawFeatures(starts, ids, values, len(self.table)))
        shape = (product.n_rows + product.spare, self.k)
        nodes = torch.zeros(shape, dtype=torch.float64, device=self.device)
        product(self.table, nodes)
        nodes = nodes[: product.n_rows]
        if len(chains.allowed):
            nodes.masked_fill_(~table_of(chains.allowed[begin:end], self.device), -torch.inf)
        return nodes, table_of(data.offsets[first : last + 1] - begin, self.device)

    def _groups(self, data: Dataset) -> Iterator[tuple[Any, ...]]:
        for first, last in self._blocks(data.offsets):
            nodes, offsets = self._scores(data, first, last)
            begin = int(data.offsets[first])
            for chains, places, mask in padded_groups(offsets):
                scores = Scores(nodes[places], self.trans, None, None, mask)
                at = (places[mask] + begin).cpu().numpy()
                yield scores, mask, (chains + first).cpu().numpy(), at

    def best(self, data: Dataset) -> tuple[Ints, Floats]:
        """Return the best label of every token and the score of every sequence."""
        labels, values = np.zeros(data.n_tokens, dtype=np.int64), np.zeros(len(data))
        with current(self.device):
            for scores, mask, chains, at in self._groups(data):
                value, found = chain.decode(scores)
                labels[at], values[chains] = found[mask].cpu().numpy(), value.cpu().numpy()
        return labels, values

    def marginals(self, data: Dataset) -> tuple[Floats, Floats]:
        """Return probabilities (tokens, K) and log Z of every sequence."""
        out, values = np.zeros((data.n_tokens, self.k)), np.zeros(len(data))
        with current(self.device):
            for scores, mask, chains, at in self._groups(data):
                found = chain.marginals(scores.nodes, scores.trans, mask=mask)
                values[chains] = found.log_z.cpu().numpy()
                out[at] = found.nodes[mask].cpu().numpy()
        return out, values
