"""L-BFGS with all vectors on a device and all decisions on the host.

An evaluation is a fixed list of launches, captured once as a CUDA graph. The host sends a few
dozen numbers, reads back a few dozen dot products, and waits once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cliquewise.ragged import Floats
from cliquewise.torch._device_chains import Evaluator
from cliquewise.torch._lbfgs_messages import (
    ACCEPT,
    COEFFICIENTS,
    GRADIENT,
    LAST,
    NUMBERS,
    SLOT,
    STEP,
)
from cliquewise.torch._vectors import Vectors

#: Constants of the Wolfe conditions, and the maximal number of trials of a line search.
ARMIJO, CURVATURE, TRIALS = 1e-4, 0.9, 12
#: Relative noise of objectives by type; below it, slopes decide about steps.
NOISE = {torch.float32: 1e-6, torch.float64: 1e-14}


class Measured(NamedTuple):
    """Results of an evaluation that the host reads: the objective and dot products.

    w: weights; raw: their gradient; g, d, y: gradient, direction and change of the gradient of the
    scaled point.
    """

    value: float
    ww: float
    raw: float
    gg: float
    gd: float
    yd: float
    yy: float
    yg: float
    with_gradient: Floats
    with_change: Floats


class Memory:
    """Dot products of the L-BFGS corrections; directions are computed as coefficients."""

    def __init__(self, history: int) -> None:
        self.history = history
        self.slots: list[int] = []  # oldest first
        self.sy, self.yy = np.zeros((2, history, history))
        self.sg, self.yg = np.zeros((2, history))
        self.gg = 0.0

    def accept(self, step: float, m: Measured) -> int:
        """Store the correction of a step; return its slot, or -1 without positive curvature."""
        h = self.history
        self.sg, self.yg = m.with_gradient[:h].copy(), m.with_gradient[h:].copy()
        self.gg = m.gg
        bend = step * m.yd
        if not bend > 1e-10 * step * np.sqrt(max(m.yy, 0.0) * max(self.dd, 0.0)):
            return -1
        if len(self.slots) < h:
            slot = len(self.slots)
        else:
            slot = self.slots.pop(0)
        self.slots.append(slot)
        self.sy[:, slot], self.yy[:, slot] = m.with_change[:h], m.with_change[h:]
        self.yy[slot] = self.yy[:, slot]
        self.sy[slot, slot], self.yy[slot, slot] = bend, m.yy
        self.sg[slot], self.yg[slot] = step * m.gd, m.yg
        return slot

    #: Lower bound of the squared length of the last direction, to separate noise from curvature.
    dd = 0.0

    def direction(self) -> tuple[float, Floats, float]:
        """Return the coefficients of the gradient and the stored vectors, and the slope."""
        h = self.history
        of_g, of_s, of_y, alphas = 1.0, np.zeros(h), np.zeros(h), {}
        for i in reversed(self.slots):
            alphas[i] = (self.sg[i] + float(of_y @ self.sy[i])) / self.sy[i, i]
            of_y[i] -= alphas[i]
        if self.slots:
            i = self.slots[-1]
            gamma = self.sy[i, i] / self.yy[i, i]
            of_g, of_y = gamma * of_g, gamma * of_y
        for i in self.slots:
            along = of_g * self.yg[i] + float(of_y @ self.yy[i]) + float(of_s @ self.sy[:, i])
            of_s[i] += alphas[i] - along / self.sy[i, i]
        slope = of_g * self.gg + float(of_s @ self.sg) + float(of_y @ self.yg)
        return -of_g, -np.concatenate([of_s, of_y]), -slope


class Descent:
    """One run of L-BFGS in one floating-point type.

    Parameters
    ----------
    evaluator : Evaluator
    scale : Tensor (d,)
    history : int
    n_examples : int
    lam : float
    graph : bool
        Whether to capture an evaluation as a CUDA graph.
    """

    def __init__(
        self, evaluator: Evaluator, scale: Tensor, history: int, n_examples: int, lam: float,
        graph: bool,
    ) -> None:  # fmt: skip
        self.evaluator, self.lam, self.n = evaluator, lam, n_examples
        self.vectors = Vectors(
            scale, evaluator.weights, evaluator.sums, history, 1.0 / n_examples, lam
        )
        self.memory = Memory(history)
        self.noise = NOISE[evaluator.dtype]
        self.evaluations = 0
        on_gpu = scale.device.type == "cuda"
        size = 1 + len(NUMBERS) + 4 * history
        self.orders = torch.zeros(len(self.vectors.control), dtype=torch.float64, pin_memory=on_gpu)
        self.orders.copy_(self.vectors.control)
        self.answers = torch.zeros(size, dtype=torch.float64, pin_memory=on_gpu)
        self.results = torch.zeros(size, dtype=torch.float64, device=scale.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.wants_graph = graph and on_gpu

    # ---- one evaluation

    def _enqueue(self) -> None:
        self.vectors.advance()
        self.evaluator()
        self.results[:1] = self.evaluator.total
        self.results[1:] = self.vectors.measure()

    def _capture(self) -> None:
        """Compile the kernels, then capture the launches as a CUDA graph."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._enqueue()  # harmless: no step is accepted, and the step length is 0
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._enqueue()

    def _evaluate(self) -> Measured:
        self.vectors.control.copy_(self.orders, non_blocking=True)
        if self.wants_graph and self.graph is None:
            self._capture()
        if self.graph is not None:
            self.graph.replay()
        else:
            self._enqueue()
        self.answers.copy_(self.results, non_blocking=True)
        if self.results.is_cuda:
            torch.cuda.current_stream().synchronize()
        self.orders[ACCEPT] = 0.0
        self.evaluations += 1
        numbers = dict(zip(("total", *NUMBERS), self.answers.tolist(), strict=False))
        total = numbers.pop("total")
        value = 0.5 * self.lam * numbers["ww"] + total / self.n
        rest = self.answers[1 + len(NUMBERS) :].numpy().copy()
        half = len(rest) // 2
        return Measured(value, **numbers, with_gradient=rest[:half], with_change=rest[half:])

    # ---- the algorithm

    def start(self, point: Tensor) -> Measured:
        """Start at a (scaled) point."""
        self.vectors.point.copy_(point)
        self.orders[STEP] = self.orders[ACCEPT] = 0.0
        self.now = self._evaluate()
        self.memory.sg, self.memory.yg = np.zeros((2, self.memory.history))
        self.memory.gg = self.now.gg
        self.last, self.slot = 0.0, -1
        return self.now

    def step(self) -> bool:
        """Perform one iteration; return whether a step was accepted."""
        of_gradient, coefficients, slope = self.memory.direction()
        if not slope < 0:
            return False
        first = 1.0
        if not self.memory.slots:
            first = min(1.0, 1.0 / np.sqrt(self.memory.gg))
        self.memory.dd = slope * slope / max(self.memory.gg, 1e-300)
        self.orders[ACCEPT], self.orders[LAST], self.orders[SLOT] = 1.0, self.last, self.slot
        self.orders[GRADIENT] = of_gradient
        self.orders[COEFFICIENTS:] = torch.from_numpy(coefficients)
        found = self._search(first, slope)
        if found is None:
            # A step of length 0 restores the point.
            self.orders[STEP] = 0.0
            self.now = self._evaluate()
            self.last, self.slot = 0.0, -1
            return False
        self.last, self.now = found
        self.slot = self.memory.accept(self.last, self.now)
        return True

    def _search(self, step: float, slope: float) -> tuple[float, Measured] | None:
        """Find a step that satisfies the Wolfe conditions, approximately where values are noise."""
        before, low, high = self.now.value, 0.0, np.inf
        slack = self.noise * abs(before)
        for _ in range(TRIALS):
            self.orders[STEP] = step
            m = self._evaluate()
            enough = m.value <= before + ARMIJO * step * slope
            near = m.value <= before + slack and m.gd <= (2 * ARMIJO - 1) * slope
            if not np.isfinite(m.value) or not (enough or near):
                high, bent = step, m.value - before - step * slope
                guess = -0.5 * slope * step * step / bent if low == 0 and bent > 0 else np.nan
                middle = 0.5 * (low + high)
                step = float(np.clip(guess, 0.1 * high, middle)) if np.isfinite(guess) else middle
            elif m.gd < CURVATURE * slope:
                low = step
                step = 0.5 * (low + high) if np.isfinite(high) else 4.0 * step
            else:
                return step, m
        return None
