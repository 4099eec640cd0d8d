"""Copies of some weights of a chain model, a set for each thread, behind the weights themselves.

To the kernels a copy is a row like any other: the attributes of a thread's sequences are numbered
anew, so that those with a copy mean that copy, and its transitions begin elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.models.chain_form import PADDING, ChainForm
from cliquewise.ragged import Floats, Ints

#: Numbers between the copies of two threads, so that no line of a cache holds some of both.
APART = 16


class Copies:
    """Room for weights and for copies of the rows of some attributes and of the transitions.

    Parameters
    ----------
    form : ChainForm
        With data.
    attributes : int array
        Those whose rows have copies.
    members : list of int arrays
        For each set of copies the sequences that work on it; every sequence is in one.
    number : type
        Of the weights.

    Attributes
    ----------
    everything : array
        Weights and copies.
    w : array
        The weights, a view.
    places : int array
        Where in ``w`` the numbers are that have copies.
    begins : int array
        Where among the copies of a set those of each attribute begin; the transitions come last.
    starts : int array
        Where the copies of each set begin.
    chains : list of Chains
        The data as each set's sequences see them.
    """

    def __init__(
        self, form: ChainForm, attributes: Ints, members: list[Ints], number: Any = np.float64
    ):
        k, chains, sets = form.model.n_labels, form.chains, len(members)
        begin, size = self._cells(chains, attributes, k)
        last = np.cumsum(size)
        cells = np.repeat(begin - last + size, size) + np.arange(size.sum())
        self.begins = last - size
        self.places = np.concatenate([cells, form.edge_start + np.arange(k * k)])
        # Whole rows, so that rows of copies have numbers, too.
        first, room = -(-form.size // k), -(-(len(self.places) + APART) // k)
        self.starts = k * (first + room * np.arange(sets))
        self.everything: Floats = np.zeros(k * (first + room * sets) + PADDING, number)
        self.w = self.everything[: form.size]
        if len(chains.pair_start):
            edges = np.append(0, last)
            starts = [chains.pair_start, *(start + edges for start in self.starts)]
            chains = chains._replace(
                pair_start=np.concatenate(starts), pair_label=self._copied(chains.pair_label, cells)
            )
            numbers = form.model.n_attributes + 1 + (len(attributes) + 1) * np.arange(sets)
        else:
            numbers = self.starts // k
            if len(chains.row_mask):
                mask = np.zeros(len(self.everything) // k, dtype=np.uint64)
                mask[: len(chains.row_mask)] = chains.row_mask
                for number in numbers:
                    mask[number : number + len(attributes)] = chains.row_mask[attributes]
                chains = chains._replace(row_mask=mask)
        self.chains = self._numbered(form, chains, attributes, members, numbers, len(cells))

    @staticmethod
    def _cells(chains: Any, attributes: Ints, k: int) -> tuple[Ints, Ints]:
        """Return the positions and the numbers of the weights of attributes."""
        if not len(chains.pair_start):
            return attributes * k, np.full(len(attributes), k)
        begin = chains.pair_start[attributes]
        return begin, chains.pair_start[attributes + 1] - begin

    def _copied(self, labels: NDArray[np.int32], cells: Ints) -> NDArray[np.int32]:
        """Labels of weights and copies."""
        out = np.zeros(len(self.everything), dtype=np.int32)
        out[: len(labels)] = labels
        for start in self.starts:
            out[start : start + len(cells)] = labels[cells]
        return out

    def _numbered(
        self, form: ChainForm, chains: Any, attributes: Ints, members: list[Ints], numbers: Ints,
        n_cells: int,
    ) -> list[Any]:  # fmt: skip
        """The data with attributes renumbered, and with each set's own transitions."""
        from cliquewise._kernels.chain.threads import own_rows

        rank = np.full(form.model.n_attributes, -1, dtype=np.int32)
        rank[attributes] = np.arange(len(attributes))
        indices = np.empty_like(chains.indices)
        for own, number in zip(members, numbers.tolist(), strict=True):
            own_rows(form.chains, own, rank, number, indices)
        chains = chains._replace(indices=indices)
        return [chains._replace(edge_start=int(start) + n_cells) for start in self.starts]

    def spread(self) -> Floats:
        """Set all copies to the current weights, and return these."""
        now: Floats = self.w[self.places]
        for start in self.starts:
            self.everything[start : start + len(now)] = now
        return now
