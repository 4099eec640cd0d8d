"""Labeled chains on a device: the sum of their losses and its gradient, asynchronously.

Weights have one row of all labels per attribute, then the K rows of the transitions. Chains are
concatenated, as in the data. With Triton nothing is padded and one launch does all
chains of a batch; plain PyTorch takes groups of chains of similar length.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cliquewise.torch import _plain
from cliquewise.torch._products import Product, RawFeatures, uses_triton
from cliquewise.torch._scores import Scores

#: Greatest number of labels with a GPU kernel.
MAX_LABELS = 128
#: Number of groups by length when chains are padded.
GROUPS = 3
#: Slots for transposed transitions, shared by all chains.
SLOTS = 128
#: By number of labels, rounded up: positions exponentiated at once, and warps of the kernels.
_ROWS = {16: 16, 32: 8, 64: 16, 128: 16}
_SCAN_WARPS = {16: 1, 32: 1, 64: 4, 128: 8}
_SUM_WARPS = {16: 1, 32: 4, 64: 4, 128: 8}
#: Blocks to prefetch, limited by shared memory.
_SUM_STAGES = {16: 3, 32: 3, 64: 3, 128: 1}
#: Registers per thread of the scan; more registers mean fewer concurrent chains.
_REGISTERS = {16: 128, 32: 128, 64: 128, 128: None}
#: Tokens per step and steps per program in sums over tokens; chains examined together.
_TOKENS, _STEPS, _TOGETHER = 32, 8, 128


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which launches use this device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def table_of(values: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Copy an array to the device."""
    return torch.from_numpy(np.ascontiguousarray(values)).to(device=device, dtype=dtype)


def padded_groups(offsets: Tensor, groups: int = GROUPS) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Group chains of similar length: (chains, token positions (B, T), mask)."""
    lengths = offsets.diff()
    order = torch.sort(lengths, stable=True).indices
    order = order[lengths[order] > 0]
    found = []
    for part in torch.tensor_split(order, groups):
        if not len(part):
            continue
        own = lengths[part]
        at = torch.arange(int(own.max()), device=offsets.device)
        mask = at < own[:, None]
        places = torch.where(mask, offsets[part][:, None] + at, offsets[part][:, None])
        found.append((part, places, mask))
    return found


class Batch:
    """Features (with their transpose), labels and weights of some chains."""

    def __init__(self, chains: Any, first: int, last: int, device: torch.device) -> None:
        begin, end = int(chains.offsets[first]), int(chains.offsets[last])
        entries = slice(int(chains.indptr[begin]), int(chains.indptr[end]))
        self.first, self.last = first, last
        self.offsets = table_of(chains.offsets[first : last + 1] - begin, device)
        self.tags = table_of(chains.labels[begin:end], device, torch.int64)
        starts = table_of(chains.indptr[begin : end + 1] - chains.indptr[begin], device)
        values = chains.values[entries] if len(chains.values) else None
        self.entries = RawFeatures(
            starts,
            table_of(chains.indices[entries], device, torch.int32),
            None if values is None else table_of(values, device),
            0,
        )
        self.allowed = None
        if len(chains.allowed):
            self.allowed = table_of(chains.allowed[begin:end], device)
        weights = chains.weights[first:last]
        self.weights = None if np.all(weights == 1.0) else table_of(weights, device)

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return len(self.tags)

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return len(self.offsets) - 1

    def prepare(self, n_attributes: int, n_labels: int) -> Batch:
        """Compute everything that depends on the data only, and return the batch."""
        self.entries = self.entries._replace(n_columns=n_attributes)
        self.product = Product(self.entries)
        self.adjoint = Product(self.entries.transposed(), n_attributes + n_labels)
        lengths = self.offsets.diff()
        self.order = torch.sort(lengths, descending=True, stable=True).indices.to(torch.int32)
        self.token_weights = None
        if self.weights is not None:
            self.token_weights = torch.repeat_interleave(self.weights, lengths)
        if not uses_triton(self.tags.device):
            self.groups = padded_groups(self.offsets)
        self.follows = torch.ones(self.n_tokens, dtype=torch.int8, device=self.tags.device)
        self.follows[self.offsets[:-1][lengths > 0]] = 0
        at = self.follows.nonzero()[:, 0]
        codes = self.tags[at - 1] * n_labels + self.tags[at]
        weights = None if self.token_weights is None else self.token_weights[at]
        # On the CPU, because parallel sums on a GPU are not reproducible.
        counts = np.bincount(
            codes.cpu().numpy(), None if weights is None else weights.cpu().numpy(), n_labels**2
        )
        self.pairs = table_of(counts, self.tags.device, torch.float64).view(n_labels, n_labels)
        return self


class Evaluator:
    """Compute the weighted sum of the losses of all chains, and its gradient, in one type.

    Parameters
    ----------
    model : ChainModel
    batches : Batches, prepared
    dtype : torch.dtype
    room : Tensor of float64
        Scratch, shared with other evaluators.
    spare : int
        Rows that the adjoint needs beside those of the weights.

    Attributes
    ----------
    weights : Tensor (d,)
        Where they are read from.
    sums : Tensor (d,)
        Where the gradient of the sum of the losses is left; not zero where there is no weight.
    total : float64 Tensor ()
        Where the sum is left.
    """

    def __init__(
        self, model: Any, batches: Any, dtype: torch.dtype, room: Tensor, spare: int
    ) -> None:
        self.k, self.n_attributes = model.n_labels, model.n_attributes
        self.batches, self.dtype, self.room = batches, dtype, room.view(dtype)
        rows = self.n_attributes + self.k
        device = room.device
        self.weights = torch.zeros(rows * self.k, dtype=dtype, device=device)
        self.rows = torch.zeros((rows + spare, self.k), dtype=dtype, device=device)
        self.sums = self.rows[:rows].view(-1)
        self.total = torch.zeros((), dtype=torch.float64, device=device)
        self.part = self.rows if len(batches) == 1 else torch.zeros_like(self.rows)
        self.possible = None
        if len(model.edge_allowed):
            self.possible = table_of(model.edge_allowed, device)

    def __call__(self) -> None:
        """Enqueue the computation of losses and gradient at the weights."""
        table = self.weights.view(-1, self.k)
        trans = table[self.n_attributes :]
        if self.possible is not None:
            trans = trans.masked_fill(~self.possible, -torch.inf)
        if len(self.batches) != 1:
            self.total.zero_()
            self.rows.zero_()
        for batch in self.batches:
            if len(self.batches) != 1:
                self.part.zero_()
            marginals, edges, total = self._chains(batch, table, trans)
            self.part[self.n_attributes : self.n_attributes + self.k] = edges
            batch.adjoint(marginals, self.part)
            if len(self.batches) == 1:
                self.total.copy_(total)
            else:
                self.rows += self.part
                self.total += total

    def _chains(self, batch: Batch, table: Tensor, trans: Tensor) -> tuple[Tensor, ...]:
        """Return marginals minus the truth, the same for pairs (summed), and the summed loss."""
        n, k = batch.n_tokens, self.k
        # Spare rows of the product share memory with the scratch of the chains.
        scores = self.room[: (n + batch.product.spare) * k].view(-1, k)
        nodes = scores[:n]
        nodes.zero_()
        batch.product(table, scores)
        if batch.allowed is not None:
            nodes.masked_fill_(~batch.allowed, -torch.inf)
        rest = self.room[n * k : 4 * n * k]
        if n and uses_triton(nodes.device) and fits(k, self.dtype):
            return self._by_triton(batch, nodes, trans.contiguous(), rest)
        return self._by_groups(batch, nodes, trans, rest)

    def _by_triton(self, batch: Batch, nodes: Tensor, trans: Tensor, room: Tensor) -> Any:
        import triton.language as tl

        from cliquewise.torch._triton_ragged import ragged_logs, ragged_scan, token_sums

        n, k, b = batch.n_tokens, self.k, batch.n_chains
        padded = max(16, 1 << (k - 1).bit_length())
        wide = self.dtype == torch.float64
        number = tl.float64 if wide else tl.float32
        registers = None if wide else _REGISTERS[padded]
        values = torch.empty(b, dtype=torch.float64, device=nodes.device)
        trusts = torch.empty(b, dtype=torch.int32, device=nodes.device)
        scratch = nodes.new_empty((SLOTS, k, k))
        ragged_scan[(b,)](
            nodes, trans, batch.offsets, batch.order, values, trusts, room, scratch, n, b, k,
            KP=padded, TB=_TOGETHER, F=number, LIMIT=1e200 if wide else 1e18, ROWS=_ROWS[padded],
            SLOTS=SLOTS, num_warps=_SCAN_WARPS[padded], maxnreg=registers,
        )  # fmt: skip
        few = -(-b // _TOGETHER)
        tables = nodes.new_empty((few, 2, k, k))
        weights, own = batch.weights, batch.token_weights
        ragged_logs[(few,)](
            nodes, trans, batch.offsets, values if weights is None else weights, values, trusts,
            room, tables, n, b, k, KP=padded, TB=_TOGETHER, F=number,
            HAS_WEIGHTS=weights is not None, num_warps=_SUM_WARPS[padded],
        )  # fmt: skip
        parts = -(-n // (_STEPS * _TOKENS))
        sums, scores = nodes.new_empty((parts, k, k)), values.new_empty(parts)
        token_sums[(parts,)](
            nodes, batch.tags, batch.follows, values if own is None else own, room, sums, scores,
            n, k, KP=padded, F=number, ROWS=_TOKENS, STEPS=_STEPS, HAS_WEIGHTS=own is not None,
            num_warps=_SUM_WARPS[padded], num_stages=_SUM_STAGES[padded],
        )  # fmt: skip
        # As in the kernels, transitions are relative to the largest of them.
        shift = trans.max().clamp(min=-3e38)
        edges = sums.sum(0) * torch.exp(trans - shift) + tables[:, 1].sum(0)
        edges = (edges.double() - batch.pairs).to(self.dtype)
        gold = scores.sum() + _where(batch.pairs, trans).sum()
        total = values.sum() if weights is None else weights @ values
        return room[2 * n * k : 3 * n * k].view(n, k), edges, total - gold

    def _by_groups(self, batch: Batch, nodes: Tensor, trans: Tensor, rest: Tensor) -> Any:
        n, k = batch.n_tokens, self.k
        marginals = rest[2 * n * k : 3 * n * k].view(n, k)
        edges = torch.zeros_like(trans)
        total = torch.zeros((), dtype=torch.float64, device=nodes.device)
        one = torch.ones((), dtype=torch.float64, device=nodes.device)
        for chains, places, mask in padded_groups_of(batch):
            weights = one.expand(len(chains)) if batch.weights is None else batch.weights[chains]
            scores = Scores(nodes[places], trans, None, None, mask)
            value, found, fine = _plain.scaled(scores, weights.to(self.dtype))
            if not fine:
                value, found = _plain.log_domain(scores, weights.to(self.dtype))
            assert found is not None
            marginals[places[mask]] = found.nodes[mask]
            edges += found.trans
            total += weights @ value.double()
        tokens = torch.arange(n, device=nodes.device)
        own = one.expand(n) if batch.token_weights is None else batch.token_weights
        marginals[tokens, batch.tags] -= own.to(self.dtype)
        edges = (edges.double() - batch.pairs).to(self.dtype)
        gold = own @ nodes[tokens, batch.tags].double() + _where(batch.pairs, trans).sum()
        return marginals, edges, total - gold


def _where(counts: Tensor, trans: Tensor) -> Tensor:
    """Multiply counts by transitions, ignoring transitions with count 0, which may be -inf."""
    return torch.where(counts != 0, counts * trans.double(), 0.0)


def padded_groups_of(batch: Batch) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return the groups of a batch, computed on first use."""
    if not hasattr(batch, "groups"):
        batch.groups = padded_groups(batch.offsets)
    return batch.groups


def fits(k: int, dtype: torch.dtype) -> bool:
    """Whether the kernels support this number of labels of a type."""
    from cliquewise.torch._triton import MAX_LABELS as by_type

    return k <= by_type[dtype]
