"""The vectors of L-BFGS on a device: the next weights to try, and all dot products at once.

Per evaluation, the host reads a few dozen dot products and returns the coefficients of the next
direction in the span of the stored vectors (Chen, Wang and Zhou 2014). No long vector is
copied, and the host waits once.

Steps are measured in ``weights = scale * point``; the scale is 0 where there is no weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cliquewise.torch._lbfgs_messages import (
    ACCEPT,
    COEFFICIENTS,
    GRADIENT,
    LAM,
    LAST,
    NUMBERS,
    SHARE,
    SLOT,
    STEP,
)
from cliquewise.torch._products import uses_triton

#: Block size of `advance`; columns per program of `measure`.
_BLOCK, _COLUMNS = 1024, 128


class Vectors:
    """All vectors of the length of the weights.

    Parameters
    ----------
    scale : Tensor (d,)
    weights, sums : Tensors (d,)
        Shared with the evaluation of the losses, which reads the first and writes the second.
    history : int
    share, lam : float
        The gradient is ``share * sums + lam * weights``.
    """

    def __init__(
        self, scale: Tensor, weights: Tensor, sums: Tensor, history: int, share: float, lam: float
    ) -> None:
        self.scale, self.weights, self.sums = scale, weights, sums
        self.history = history
        self.point, self.direction, self.before, self.gradient = (
            torch.zeros_like(weights) for _ in range(4)
        )
        self.basis = weights.new_zeros((2 * history, len(weights)))
        self.control = torch.zeros(
            COEFFICIENTS + 2 * history, dtype=torch.float64, device=weights.device
        )
        self.control[SHARE], self.control[LAM] = share, lam
        self.is_triton = uses_triton(weights.device)
        self.padded = max(16, 1 << (2 * history - 1).bit_length())
        if weights.device.type == "cuda":
            programs = 4 * torch.cuda.get_device_properties(weights.device).multi_processor_count
        else:
            programs = 2
        columns = _COLUMNS if weights.dtype == torch.float32 else _COLUMNS // 2
        if self.padded > 32:
            columns //= 2
        self.columns = columns
        per_program = -(-len(weights) // programs)
        self.per_program = -(-per_program // columns) * columns
        self.programs = -(-len(weights) // self.per_program)
        width = len(NUMBERS) + 2 * (self.padded if self.is_triton else 2 * history)
        self.parts = torch.zeros((self.programs, width), dtype=torch.float64, device=weights.device)

    @staticmethod
    def memory(size: int, history: int, width: int) -> float:
        """Return the bytes of all vectors for numbers of this width."""
        return float(width * size * (2 * history + 7))

    # ---- the next weights

    def advance(self) -> None:
        """Accept the last step if requested, and compute the next weights."""
        if not self.is_triton:
            self._advance()
            return
        import triton.language as tl

        from cliquewise.torch._triton_vectors import advance

        n = len(self.weights)
        advance[(-(-n // _BLOCK),)](
            self.control, self.point, self.direction, self.before, self.gradient, self.basis,
            self.scale, self.weights, n, HISTORY=self.history,
            F=tl.float64 if self.weights.dtype == torch.float64 else tl.float32,
            BLOCK=_BLOCK, num_warps=4,
        )  # fmt: skip

    def _advance(self) -> None:
        control = self.control.tolist()
        if control[ACCEPT] > 0:
            moved = control[LAST] * self.direction
            self.point += moved
            slot = int(control[SLOT])
            if slot >= 0:
                self.basis[slot] = moved
                self.basis[self.history + slot] = self.gradient - self.before
            self.before.copy_(self.gradient)
            coefficients = self.control[COEFFICIENTS:].to(self.basis.dtype)
            torch.mv(self.basis.t(), coefficients, out=self.direction)
            self.direction.add_(self.gradient, alpha=control[GRADIENT])
        torch.add(self.point, self.direction, alpha=control[STEP], out=self.weights)
        self.weights *= self.scale

    # ---- dot products for the host

    def measure(self) -> Tensor:
        """Compute the gradient; return scalars, then dot products with it and with its change."""
        if self.is_triton:
            return self._measured()
        w, d = self.weights, self.direction
        share, lam = self.control[[SHARE, LAM]].tolist()
        own = torch.where(self.scale > 0, share * self.sums + lam * w, 0.0)
        torch.mul(self.scale, own, out=self.gradient)
        g = self.gradient
        y = g - self.before
        pairs = ((w, w), (own, own), (g, g), (g, d), (y, d), (y, y), (y, g))
        numbers = torch.stack([torch.dot(a, b) for a, b in pairs])
        return torch.cat([numbers, self.basis @ g, self.basis @ y]).double()

    def _measured(self) -> Tensor:
        import triton.language as tl

        from cliquewise.torch._triton_vectors import measure

        measure[(self.programs,)](
            self.control, self.sums, self.weights, self.direction, self.before, self.gradient,
            self.basis, self.scale, self.parts, len(self.weights), self.per_program,
            HISTORY=self.history, RP=self.padded,
            F=tl.float64 if self.weights.dtype == torch.float64 else tl.float32,
            COLUMNS=self.columns, num_warps=4,
        )  # fmt: skip
        total = self.parts.sum(0)
        n, two = len(NUMBERS), 2 * self.history
        rest = total[n:].view(2, self.padded)[:, :two].reshape(-1)
        return torch.cat([total[:n], rest])
