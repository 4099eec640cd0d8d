"""Variable elimination by batched PyTorch operations, which autograd and torch.func record.

The compiled junction tree computes log Z and its gradient faster, but example by example and
without higher derivatives.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cliquewise.errors import UnsupportedError
from cliquewise.graph.structure import Structure
from cliquewise.oracles.mini_buckets import elimination_order
from cliquewise.torch._plain import FORBIDDEN

#: Entries of the largest table of all examples together: 1 GiB in float64.
MAX_ENTRIES = 2**27


class Bucket(NamedTuple):
    """One elimination step.

    Attributes
    ----------
    operands : list of (int, tuple of bool)
        The tables to add up, and which variables of the bucket each has. Numbers from
        ``n_factors`` on are messages.
    axes : list of tuple of int
        How to permute the variables of each operand.
    shape : tuple of int
        States of the variables of the bucket; the last one is eliminated.
    """

    operands: list[tuple[int, tuple[bool, ...]]]
    axes: list[tuple[int, ...]]
    shape: tuple[int, ...]


class Plan(NamedTuple):
    """All elimination steps, and the tables without variables that are left at the end."""

    buckets: list[Bucket]
    constants: list[int]
    largest: float


def make_plan(structure: Structure) -> Plan:
    """Plan the elimination of all variables of a structure; kept with the structure."""
    found = structure.memo.get("torch elimination")
    if found is None:
        found = structure.memo["torch elimination"] = _make_plan(structure)
    return found  # type: ignore[no-any-return]


def _make_plan(structure: Structure) -> Plan:
    order = [int(v) for v in elimination_order(structure)]
    place = {v: i for i, v in enumerate(order)}
    cards = structure.cardinalities.tolist()
    scopes = {f: tuple(structure.scope(f).tolist()) for f in range(structure.n_factors)}
    waiting: dict[int, list[int]] = {v: [] for v in order}
    constants, buckets, largest = [], [], 1.0
    for f, scope in scopes.items():
        if scope:
            waiting[min(scope, key=place.__getitem__)].append(f)
        else:
            constants.append(f)
    number = structure.n_factors
    for v in order:
        inside = waiting[v]
        others = sorted({u for f in inside for u in scopes[f]} - {v}, key=place.__getitem__)
        scope = (*others, v)
        shape = tuple(cards[u] for u in scope)
        largest = max(largest, math.prod(map(float, shape)))
        operands, axes = [], []
        for f in inside:
            own = scopes[f]
            axes.append(tuple(sorted(range(len(own)), key=lambda i: scope.index(own[i]))))
            operands.append((f, tuple(u in own for u in scope)))
        buckets.append(Bucket(operands, axes, shape))
        scopes[number] = tuple(others)
        if others:
            waiting[others[0]].append(number)
        else:
            constants.append(number)
        number += 1
    return Plan(buckets, constants, largest)


def check_size(structure: Structure, examples: int) -> Plan:
    """Return the plan, or raise if its tables are too large."""
    plan = make_plan(structure)
    if plan.largest * max(examples, 1) > MAX_ENTRIES:
        raise UnsupportedError(
            f"a table of {plan.largest:.3g} entries per example is too large for derivatives of "
            "gradients, torch.func and torch.export; they need a graph of smaller treewidth"
        )
    return plan


def log_partition(structure: Structure, rows: Tensor) -> Tensor:
    """Return log Z, shape (B,), of potentials (B, n); all operations are recorded."""
    return _eliminate(structure, rows)[0]


def _eliminate(structure: Structure, rows: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return log Z, and for every bucket the conditional probabilities of its variable."""
    size = rows.shape[0]
    plan = check_size(structure, size)
    # Messages are shifted by their maxima, so only their sums can reach this bound.
    finite = rows.clamp(min=FORBIDDEN)
    offsets = structure.table_offsets.tolist()
    tables: dict[int, Tensor] = {
        f: finite[:, offsets[f] : offsets[f + 1]].reshape(size, *structure.shape(f))
        for f in range(structure.n_factors)
    }
    total, conditionals = rows.new_zeros(size), []
    for number, (operands, axes, shape) in enumerate(plan.buckets, structure.n_factors):
        table = rows.new_zeros((size, *shape))
        for (f, uses), order in zip(operands, axes):
            part = tables.pop(f).permute(0, *(i + 1 for i in order))
            own = (n if used else 1 for n, used in zip(shape, uses))
            table = table + part.reshape(size, *own)
        conditionals.append(torch.softmax(table, -1))
        message = torch.logsumexp(table, -1)
        high = message.reshape(size, math.prod(shape[:-1])).amax(1).detach()
        total = total + high
        tables[number] = message - high.view(size, *[1] * (message.dim() - 1))
    for f in plan.constants:
        total = total + tables[f].reshape(size)
    infeasible = total < FORBIDDEN / 2
    return torch.where(infeasible, torch.full_like(total, -torch.inf), total), conditionals


def marginals(structure: Structure, rows: Tensor) -> Tensor:
    """Return factor marginals (B, n) of potentials (B, n); all operations are recorded."""
    size = rows.shape[0]
    plan = check_size(structure, size)
    log_z, conditionals = _eliminate(structure, rows)
    feasible = (log_z > -torch.inf).to(rows.dtype)
    # The adjoint of every table, from the last bucket to the first.
    adjoints: dict[int, Tensor] = dict.fromkeys(plan.constants, feasible)
    numbers = range(structure.n_factors, structure.n_factors + len(plan.buckets))
    for number, bucket, conditional in zip(
        reversed(numbers), reversed(plan.buckets), reversed(conditionals)
    ):
        own = adjoints.pop(number).reshape(size, *bucket.shape[:-1], 1) * conditional
        for (f, uses), order in zip(bucket.operands, bucket.axes):
            unused = [i + 1 for i, used in enumerate(uses) if not used]
            part = own.sum(unused) if unused else own
            inverse = sorted(range(len(order)), key=order.__getitem__)
            adjoints[f] = part.permute(0, *(i + 1 for i in inverse))
    flat = [adjoints[f].reshape(size, -1) for f in range(structure.n_factors)]
    return torch.cat(flat, 1) if flat else torch.zeros_like(rows)
