"""Bit-reproducible products of sparse matrices with rows of labels, on a device."""

from __future__ import annotations

import os
import warnings
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: Entries that one row of a launch adds up; longer rows are split and added up in steps.
PIECE = 64
#: Numbers in one tile of a launch.
_TILE = 256


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    from importlib.util import find_spec

    return find_spec("triton") is not None


def uses_triton(device: torch.device) -> bool:
    """Whether Triton kernels run on this device; on a CPU only interpreted, for tests."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return has_triton() and (device.type == "cuda" or interpreted)


class RawFeatures(NamedTuple):
    """A sparse matrix in CSR format, on a device.

    Attributes
    ----------
    starts : int64 Tensor (rows + 1,)
    ids : int32 Tensor
        Columns of the entries.
    values : Tensor or None
        None if all are 1.
    n_columns : int
    """

    starts: Tensor
    ids: Tensor
    values: Tensor | None
    n_columns: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    def transposed(self) -> RawFeatures:
        """Return the transpose; entries of a column keep the order of their rows."""
        counts = self.starts.diff()
        rows = torch.arange(self.n_rows, dtype=torch.int32, device=self.ids.device)
        rows = torch.repeat_interleave(rows, counts)
        order = torch.sort(self.ids, stable=True).indices
        sizes = torch.bincount(self.ids, minlength=self.n_columns)
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        values = None if self.values is None else self.values[order]
        return RawFeatures(starts, rows[order], values, self.n_rows)


class Launch(NamedTuple):
    """Sums over rows: start, number and target of the entries."""

    starts: Tensor
    lengths: Tensor
    targets: Tensor

    @classmethod
    def of(cls, starts: Tensor, lengths: Tensor, targets: Tensor, in_order: bool) -> Launch:
        """Sort rows by length, unless their order matters more for memory access."""
        if not in_order:
            order = torch.sort(lengths, descending=True, stable=True).indices
            starts, lengths, targets = starts[order], lengths[order], targets[order]
        kinds = (torch.int64, torch.int32, torch.int32)
        return cls(*(x.to(k).contiguous() for x, k in zip((starts, lengths, targets), kinds)))


def launches(starts: Tensor, first_spare: int) -> tuple[list[Launch], int]:
    """Plan the sums of all nonempty rows, long ones through spare rows; return the number of those.

    Spare rows start at ``first_spare`` in the array of results. The first launch adds up entries
    of the matrix, each later one the spare rows of the previous launch.
    """
    lengths = starts.diff()
    targets = torch.arange(len(lengths), device=starts.device)
    starts, found, spare = starts[:-1], [], 0
    some = lengths > 0
    starts, lengths, targets = starts[some], lengths[some], targets[some]
    in_order = bool((lengths <= PIECE).all()) and len(lengths) > 0
    if in_order:
        in_order = float(lengths.double().std(correction=0)) < 0.25 * float(lengths.double().mean())
    while len(lengths):
        long = lengths > PIECE
        pieces = (lengths[long] + PIECE - 1) // PIECE
        n = int(pieces.sum())
        owner = torch.repeat_interleave(torch.arange(len(pieces), device=starts.device), pieces)
        begin = pieces.cumsum(0) - pieces
        number = torch.arange(n, device=starts.device) - begin[owner]
        part_starts = starts[long][owner] + PIECE * number
        part_lengths = (lengths[long][owner] - PIECE * number).clamp(max=PIECE)
        part_targets = first_spare + spare + torch.arange(n, device=starts.device)
        found.append(
            Launch.of(
                torch.cat([starts[~long], part_starts]),
                torch.cat([lengths[~long], part_lengths]),
                torch.cat([targets[~long], part_targets]),
                in_order,
            )
        )
        starts, lengths, targets = first_spare + spare + begin, pieces, targets[long]
        spare += n
    return found, spare


class Product:
    """A sparse matrix to multiply with many dense matrices of few columns."""

    def __init__(self, entries: RawFeatures, first_spare: int | None = None) -> None:
        self.entries = entries
        self.n_rows = entries.n_rows
        self.spare = 0
        self.is_triton = uses_triton(entries.ids.device)
        self._matrices: dict[torch.dtype, Tensor] = {}
        if self.is_triton:
            first = self.n_rows if first_spare is None else first_spare
            self.launches, self.spare = launches(entries.starts, first)

    def __call__(self, source: Tensor, out: Tensor) -> None:
        """Write the product with ``source`` to ``out``, which includes the spare rows.

        Rows without entries are not changed.
        """
        if not self.is_triton:
            out[: self.n_rows] = self._matrix(source.dtype) @ source[: self.entries.n_columns]
            return
        for number, launch in enumerate(self.launches):
            self._launch(launch, source if number == 0 else out, out, number == 0)

    def _launch(self, launch: Launch, source: Tensor, out: Tensor, entries: bool) -> None:
        import triton.language as tl

        from cliquewise.torch._triton_ragged import gather_sums

        n, k = len(launch.starts), source.shape[1]
        padded = max(8, 1 << (k - 1).bit_length())
        rows = max(_TILE // padded, 1)
        ids, values = self.entries.ids, self.entries.values if entries else None
        gather_sums[(-(-n // rows),)](
            *launch, ids, ids if values is None else values, source, out, n, k,
            KP=padded, ROWS=rows, F=tl.float64 if out.dtype == torch.float64 else tl.float32,
            UNROLL=4, HAS_IDS=entries, HAS_VALUES=values is not None, num_warps=1,
        )  # fmt: skip

    def _matrix(self, dtype: torch.dtype) -> Any:
        if dtype not in self._matrices:
            starts, ids, values, n_columns = self.entries
            if values is None:
                values = torch.ones(len(ids), dtype=dtype, device=ids.device)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch calls these matrices beta
                self._matrices[dtype] = torch.sparse_csr_tensor(
                    starts, ids.long(), values.to(dtype), (self.n_rows, n_columns)
                )
        return self._matrices[dtype]
