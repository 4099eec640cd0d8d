"""Chains on a device: what fits there, in how many batches, and evaluators over them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cliquewise.errors import MissingDependencyError, TooLargeError, UnsupportedError
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.rounding import SUM, UNIT, Bound, lowered
from cliquewise.ragged import Floats
from cliquewise.torch._device_chains import Batch, Evaluator, table_of
from cliquewise.torch._vectors import Vectors

#: Share of the free memory that is taken.
SHARE = 0.9
#: How many times the roundings that `ChainProblem` counts, which are those of its own kernels.
MORE = 4.0


def device_of(name: Any) -> torch.device:
    """Return a device after checking that it exists."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise UnsupportedError(f'device is "cuda", "cuda:1" or "cpu", not {name!r}') from error
    if device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f'device is "cuda", "cuda:1" or "cpu", not {name!r}')
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UnsupportedError(
                f"device={name!r}: PyTorch sees no GPU here; leave device out to train on the CPU"
            )
        if (device.index or 0) >= torch.cuda.device_count():
            raise UnsupportedError(
                f"device={name!r}: there are {torch.cuda.device_count()} GPUs, counted from 0"
            )
        from cliquewise.torch._products import has_triton

        if not has_triton():
            raise MissingDependencyError(
                "training on a GPU needs Triton, which comes with PyTorch on Linux: "
                "pip install triton"
            )
    return device


class Needs(NamedTuple):
    """Bytes that training needs on a device."""

    vectors: float  # independent of the number of batches
    data: float  # all chains
    scratch: float  # all chains at once

    @classmethod
    def of(cls, problem: ChainProblem, history: int, padded: bool) -> Needs:
        """Estimate an upper bound before anything is allocated."""
        model, chains = problem.model, problem.chains
        k, n, entries = model.n_labels, problem.data.n_tokens, len(chains.indices)
        size = (model.n_attributes + k) * k
        spare = 2.0 * (entries / 64 + 64) * k
        # In float32, and twice as much for certificates, two vectors of which are in float64.
        vectors = Vectors.memory(size, history, 4) + 16.0 * size + 2 * 8.0 * (size + spare)
        values = 2 * 8.0 if len(chains.values) else 0.0
        allowed = float(len(chains.allowed) > 0) * k
        data = entries * (2 * 4.0 + values) + n * (60.0 + allowed) + 60.0 * problem.n_examples
        # Transposing needs several copies of the features, before scores are allocated.
        scratch = max(40.0 * entries, 8.0 * (4 * n * k + spare + (n / 128 + 256) * k * k))
        if padded:
            scratch += 8.0 * 12 * 1.5 * n * k
        return cls(vectors, data, scratch)


class Plan(NamedTuple):
    """The number of batches, and whether all stay on the device."""

    batches: int
    resident: bool

    @classmethod
    def of(cls, needs: Needs, free: float, n_examples: int) -> Plan:
        """Return the smallest number of batches that fits, or raise."""
        room = free - needs.vectors
        batches = 1
        while batches <= max(n_examples, 1):
            if needs.data + 1.2 * needs.scratch / batches <= room:
                return cls(batches, True)
            if batches > 1 and 1.2 * (2 * needs.data + needs.scratch) / batches <= room:
                return cls(batches, False)
            batches *= 2
        least = needs.vectors + 1.2 * (2 * needs.data + needs.scratch) / max(n_examples, 1)
        raise TooLargeError(
            f"training needs at least {least / 2**30:.3g} GiB on the device ({free / 2**30:.3g} "
            'are free): take feature_pairs="seen" with min_count or n_hash for fewer weights, or '
            "leave device out to train in main memory",
            least,
        )


def moved(value: Any, device: torch.device, seen: dict[int, Any] | None = None) -> Any:
    """Copy tensors, and objects that contain them, to another device."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, Tensor):
        to_gpu = device.type == "cuda"
        new: Any = value.to(device, non_blocking=to_gpu)
        if not to_gpu and value.is_cuda:
            new = new.pin_memory()
    elif isinstance(value, tuple):
        parts = [moved(x, device, seen) for x in value]
        new = tuple(parts) if type(value) is tuple else type(value)(*parts)
    elif isinstance(value, list):
        new = [moved(x, device, seen) for x in value]
    elif hasattr(value, "__dict__") and type(value).__module__.startswith("cliquewise.torch"):
        new = object.__new__(type(value))
        new.__dict__.update({n: moved(x, device, seen) for n, x in value.__dict__.items()})
    else:
        return value
    seen[id(value)] = new
    return new


class Streamed:
    """Batches in main memory that are copied to the device one by one in every pass."""

    def __init__(self, batches: list[Batch], device: torch.device) -> None:
        self.batches, self.device = batches, device

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            yield moved(batch, self.device)


class DeviceData:
    """The chains of a problem on a device.

    Parameters
    ----------
    problem : ChainProblem
    device : torch.device
    history : int
        Corrections of L-BFGS, for the estimate of memory.
    free : float, optional
        Bytes that may be taken; on a GPU what is free.
    """

    def __init__(
        self, problem: ChainProblem, device: torch.device, history: int, free: float | None = None
    ) -> None:
        model = problem.model
        self.problem, self.device, self.k = problem, device, model.n_labels
        if free is None:
            on_gpu = device.type == "cuda"
            free = SHARE * torch.cuda.mem_get_info(device)[0] if on_gpu else np.inf
        padded = device.type == "cpu" or self.k > 64
        needs = Needs.of(problem, history, padded)
        self.plan = Plan.of(needs, free, problem.n_examples)
        self.estimate = needs
        cuts = problem.cuts(self.plan.batches) if self.plan.batches > 1 else [0, problem.n_examples]
        batches = []
        for first, last in pairwise(cuts):
            if last > first or self.plan.batches == 1:
                batch = Batch(problem.chains, first, last, device)
                batch.prepare(model.n_attributes, self.k)
                batches.append(batch if self.plan.resident else moved(batch, torch.device("cpu")))
        self._prepared = batches
        self.batches: Any = batches if self.plan.resident else Streamed(batches, device)
        size = max((self._scratch(b) for b in batches), default=0)
        self.room = torch.empty(size + 16, dtype=torch.float64, device=device)
        self._evaluators: dict[torch.dtype, Evaluator] = {}
        # Computed before training, because it takes a pass over the data in main memory.
        self._sizes = problem.features.deep, problem.weight_error_scale, problem.data_rounding_error

    def _scratch(self, batch: Batch) -> int:
        """Count the numbers in scratch: scores and three arrays of intermediate results."""
        return max(4 * batch.n_tokens, batch.n_tokens + batch.product.spare) * self.k

    def evaluator(self, dtype: torch.dtype) -> Evaluator:
        """Return the evaluator of a type."""
        if dtype not in self._evaluators:
            spare = max((b.adjoint.spare for b in self._prepared), default=0)
            model = self.problem.model
            self._evaluators[dtype] = Evaluator(model, self.batches, dtype, self.room, spare)
        return self._evaluators[dtype]

    # ---- weights, here and there

    @cached_property
    def cells(self) -> Tensor | None:
        """Positions of the weights in rows of all labels; None if every position has a weight."""
        model = self.problem.model
        if not len(model.pair_start):
            return None
        attributes = np.repeat(np.arange(model.n_attributes), np.diff(model.pair_start))
        square = model.n_attributes * self.k + np.arange(self.k**2)
        places = np.concatenate([attributes * self.k + model.pair_label, square])
        return table_of(places, self.device)

    def upload(self, w: Floats | None) -> Tensor:
        """Return weights as float64 rows; zeros without weights."""
        size = (self.problem.model.n_attributes + self.k) * self.k
        rows = torch.zeros(size, dtype=torch.float64, device=self.device)
        if w is not None:
            rows[slice(None) if self.cells is None else self.cells] = table_of(w, self.device)
        return rows

    def download(self, rows: Tensor) -> Floats:
        """Return the weights of a tensor of rows."""
        own = rows if self.cells is None else rows[self.cells]
        return own.cpu().double().numpy().copy()

    @cached_property
    def free(self) -> Tensor:
        """Mask of the entries of the rows that are trainable weights."""
        model = self.problem.model
        size = (model.n_attributes + self.k) * self.k
        free = torch.zeros(size, dtype=torch.bool, device=self.device)
        free[slice(None) if self.cells is None else self.cells] = True
        free[model.n_attributes * self.k :] &= table_of(model.edge_free, self.device).view(-1)
        return free

    @cached_property
    def squares(self) -> Tensor:
        """Sums of squared values, by attribute."""
        if len(self.problem.chains.values):
            chains, n = self.problem.chains, self.problem.model.n_attributes
            return table_of(np.bincount(chains.indices, chains.values**2, n), self.device)
        counts = [b.adjoint.entries.starts.diff().to(self.device) for b in self._prepared]
        return torch.stack(counts).sum(0).double()

    # ---- proofs

    def _largest(self, rows: Tensor) -> Floats:
        """Return the largest absolute value of each attribute, and of the transitions."""
        split = self.problem.model.n_attributes * self.k
        own = rows[:split].abs().view(-1, self.k).amax(1)
        edges = rows[split:].abs().amax()
        return torch.cat([own, edges[None]]).cpu().numpy()

    def prove(self, weights: Tensor) -> tuple[float, Bound]:
        """Compute the objective and a lower bound of its minimum, in float64.

        As in `Problem.certified`: strong convexity makes the gradient a proof. Roundings are
        counted as there, times a factor for kernels that round more often.
        """
        problem, evaluator = self.problem, self.evaluator(torch.float64)
        n, lam = max(problem.n_examples, 1), problem.lam
        evaluator.weights.copy_(weights)
        evaluator()
        w = evaluator.weights
        gradient = torch.where(self.free, evaluator.sums / n + lam * w, 0.0)
        squares = torch.stack([torch.dot(w, w), torch.dot(gradient, gradient), evaluator.total])
        ww, raw, total = squares.tolist()
        value, penalty = problem.ridge_objective(ww, total), raw / (2.0 * lam)
        deep, weight_error_scale, own = self._sizes
        rounding_error = UNIT * (float(self._largest(w) @ deep) + own) / n
        rounding_error = MORE * (rounding_error + SUM * UNIT * (abs(value) + penalty))
        largest = self._largest(gradient) / lam
        return value, lowered(
            value, rounding_error, penalty, lam, largest, MORE * weight_error_scale
        )
