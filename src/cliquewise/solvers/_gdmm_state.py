"""What GDMM knows about a problem: active lists, sparse weights, and their growth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from cliquewise.errors import DataError
from cliquewise.graph import Floats
from cliquewise.problem import ChainProblem


@dataclass
class ActiveSets:
    """Masses of active labels and pairs, multipliers, and the weights that the masses give."""

    chains: Any  # the data, without repeated attributes within a token
    masses: Floats  # C c_i
    rows: Any  # unigram weights
    table: Any  # bigram weights
    support: Any  # lists of labels
    pairs: Any  # lists of pairs
    wait: Any  # visits until the next search, per token
    delay: Any
    rho: float
    passes: int = 0
    work: float = 0.0  # numbers read in the last pass, and in the last certificate
    check_work: float = 0.0
    residual: float = np.nan
    stats: Floats = field(default_factory=lambda: np.zeros(0))


def without_repeats(chains: Any, n_attributes: int) -> Any:
    """The same data with one entry per token and attribute."""
    owner = np.repeat(np.arange(len(chains.indptr) - 1), np.diff(chains.indptr))
    codes = owner * np.int64(max(n_attributes, 1)) + chains.indices
    if len(codes) == 0 or np.all(np.diff(codes) > 0) or len(np.unique(codes)) == len(codes):
        return chains
    values = chains.values if len(chains.values) else np.ones(len(chains.indices))
    shape = (len(chains.indptr) - 1, n_attributes)
    matrix = sparse.csr_matrix((values, chains.indices, chains.indptr), shape=shape)
    matrix.sum_duplicates()
    return chains._replace(
        indptr=matrix.indptr.astype(np.int64), indices=matrix.indices.astype(np.int32),
        values=matrix.data.astype(np.float64),
    )  # fmt: skip


# ---- empty structures


def empty_rows(n_attributes: int, room: int) -> Any:
    """No weight, and room for ``room``."""
    from cliquewise._kernels.gdmm_rows import Rows

    return Rows(
        np.zeros(n_attributes, dtype=np.int64), np.zeros(n_attributes, dtype=np.int64),
        np.zeros(n_attributes, dtype=np.int64), np.zeros(n_attributes, dtype=np.uint8),
        np.zeros(room, dtype=np.int32), np.zeros(room), np.zeros(2 * room, dtype=np.int32),
        np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64),
    )  # fmt: skip


def empty_table(free: Any, room: int) -> Any:
    """A table of zeros."""
    from cliquewise._kernels.gdmm_pairs import Table

    k = len(free)
    leaves = 1 << max(k - 1, 1).bit_length()
    whole = [np.zeros(2 * k, dtype=np.int64) for _ in range(3)]
    return Table(
        np.zeros(k * k), free.astype(np.uint8).ravel(), np.zeros(k * k, dtype=np.uint8), *whole,
        np.zeros(room, dtype=np.int32), np.zeros(room), np.full(2 * k, -np.inf),
        np.full(2 * k, -1, dtype=np.int64), np.ones(2 * k, dtype=np.uint8),
        np.full(2 * leaves, -np.inf), np.zeros(2, dtype=np.int64),
    )  # fmt: skip


def empty_support(n_tokens: int, room: int) -> Any:
    """No labels."""
    from cliquewise._kernels.gdmm_lists import Support

    three = [np.zeros(n_tokens, dtype=np.int64) for _ in range(3)]
    return Support(
        *three, np.zeros(room, dtype=np.int32), np.zeros((room, 6)), np.zeros(1, dtype=np.int64)
    )


def empty_pairs(n_tokens: int, room: int) -> Any:
    """No pairs."""
    from cliquewise._kernels.gdmm_lists import Pairs

    three = [np.zeros(n_tokens, dtype=np.int64) for _ in range(3)]
    return Pairs(
        *three, np.zeros(room, dtype=np.int32), np.zeros(room, dtype=np.int32),
        np.zeros((room, 4)), np.zeros(1, dtype=np.int64),
    )  # fmt: skip


# ---- growth


def _longer(array: Any, size: int) -> Any:
    if len(array) >= size:
        return array
    out = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    out[: len(array)] = array
    return out


def grow(state: ActiveSets, longest: int, most_attributes: int) -> None:
    """Half as much room again in every pool that is nearly full, at least a sequence's worth."""
    rows, table, support, pairs = state.rows, state.table, state.support, state.pairs
    k = len(table.start) // 2
    deepest = int(rows.capacity.max(initial=4))
    need = int(rows.used[0]) + 4 * most_attributes * (deepest + 4) + 2 * k
    if len(rows.value) < need:
        size = max(need, 3 * len(rows.value) // 2)
        state.rows = rows._replace(
            label=_longer(rows.label, size), value=_longer(rows.value, size),
            index=_longer(rows.index, 2 * size),
        )  # fmt: skip
    need = int(table.used[0]) + 64 * int(table.used[1]) + 1024
    if len(table.label) < need:
        size = max(need, 3 * len(table.label) // 2)
        state.table = table._replace(
            label=_longer(table.label, size), value=_longer(table.value, size)
        )
    need = int(support.used[0]) + 4 * (longest + 1) * (int(support.capacity.max(initial=4)) + 4)
    if len(support.label) < need:
        size = max(need, 3 * len(support.label) // 2)
        state.support = support._replace(
            label=_longer(support.label, size), cell=_longer(support.cell, size)
        )
    need = int(pairs.used[0]) + 4 * (longest + 1) * (int(pairs.capacity.max(initial=2)) + 2)
    if len(pairs.left) < need:
        size = max(need, 3 * len(pairs.left) // 2)
        state.pairs = pairs._replace(
            left=_longer(pairs.left, size), right=_longer(pairs.right, size),
            cell=_longer(pairs.cell, size),
        )  # fmt: skip


def sequence_limits(chains: Any) -> tuple[int, int]:
    """The longest sequence, and the most attributes that one has."""
    lengths = np.diff(chains.offsets)
    ends = chains.indptr[chains.offsets]
    return int(lengths.max(initial=1)), int(np.diff(ends).max(initial=1))


def begin(problem: ChainProblem, rho: float) -> ActiveSets:
    """The truth alone."""
    from cliquewise._kernels.gdmm_rows import add_seen_pairs

    model = problem.model
    chains = without_repeats(problem.chains, model.n_attributes)
    n_tokens = len(chains.labels)
    masses = problem.C * chains.weights
    seen = len(model.pair_start) > 0
    room = 0
    if seen:
        sizes = np.diff(model.pair_start)
        room = int(8 * sizes.sum() + 8 * len(sizes) + model.n_labels * int((sizes > 0).sum()))
        room = min(room, int(8 * sizes.sum() + 8 * len(sizes)) * 2 + model.n_labels)
    state = ActiveSets(
        chains, masses, empty_rows(model.n_attributes, room),
        empty_table(model.edge_free, 64), empty_support(n_tokens, 4 * n_tokens + 64),
        empty_pairs(n_tokens, 2 * n_tokens + 64),
        np.zeros(n_tokens, dtype=np.int64), np.zeros(n_tokens, dtype=np.int64), rho,
    )  # fmt: skip
    if seen:
        add_seen_pairs(model.pair_start, model.pair_label, model.n_labels, state.rows)
    grow(state, *sequence_limits(chains))
    return state


def fill(problem: ChainProblem, state: ActiveSets) -> None:
    """Lists of the truth for tokens that have none, and the weights of all masses afresh."""
    from cliquewise._kernels.gdmm_lists import begin_lists
    from cliquewise._kernels.gdmm_pairs import clear_table
    from cliquewise._kernels.gdmm_pass import rebuild_weights
    from cliquewise._kernels.gdmm_rows import clear_rows

    limits = sequence_limits(state.chains)
    while not begin_lists(state.chains, state.rows, state.masses, state.support, state.pairs):
        grow(state, *limits)
    while True:
        clear_rows(state.rows)
        clear_table(state.table)
        if rebuild_weights(
            state.chains, state.rows, state.table, state.support, state.pairs, state.masses,
            problem.model.n_labels,
        ):  # fmt: skip
            return
        enlarge(state, *limits)


def enlarge(state: ActiveSets, longest: int, most_attributes: int) -> None:
    """Grow although the pools have the least room asked for: half as much again at once."""
    rows, table = state.rows, state.table
    size = 3 * len(rows.value) // 2 + 1024
    state.rows = rows._replace(
        label=_longer(rows.label, size), value=_longer(rows.value, size),
        index=_longer(rows.index, 2 * size),
    )  # fmt: skip
    size = 3 * len(table.label) // 2 + 1024
    state.table = table._replace(
        label=_longer(table.label, size), value=_longer(table.value, size)
    )
    grow(state, longest, most_attributes)


def check_same(old: ActiveSets, problem: ChainProblem) -> None:
    """A warm start must be of the first examples of the problem."""
    chains = problem.chains
    n, tokens = len(old.chains.offsets), len(old.chains.labels)
    if not (
        np.array_equal(old.chains.offsets, chains.offsets[:n])
        and np.array_equal(old.chains.labels, chains.labels[:tokens])
        and len(old.table.start) <= 2 * problem.model.n_labels
    ):
        raise DataError("a warm start needs the same labels and at least the same examples")
