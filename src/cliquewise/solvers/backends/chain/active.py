"""What GDMM knows about a problem: active lists, sparse weights, and their growth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats, kernel_view, stretches
from cliquewise.solvers.array_checks import check, check_sums, checked, count_of

#: Rows are padded to a multiple of this (see ``_kernels.simd``).
LANES = 8


@dataclass
class ActiveSets:
    """Masses of active labels and pairs, multipliers, and the weights that the masses give."""

    chains: Any  # the data, without repeated attributes within a token
    masses: Floats  # C c_i
    rows: Any  # unigram weights
    table: Any  # bigram weights
    support: Any  # lists of labels
    pairs: Any  # lists of pairs
    schedule: Any  # when tokens and edges are visited and searched next
    rho: float
    passes: int = 0
    work: float = 0.0  # cost of a pass (a running mean), and of the last certificate
    check_work: float = 0.0
    disagreement: float = 0.0
    primal: float = np.nan  # of the last certificate
    violations: Floats = field(default_factory=lambda: np.zeros(2))


def without_repeats(chains: Any, n_attributes: int) -> Any:
    """The same data with one entry per token and attribute."""
    owner = np.repeat(np.arange(len(chains.indptr) - 1), np.diff(chains.indptr))
    codes = owner * np.int64(max(n_attributes, 1)) + chains.indices
    if len(codes) == 0 or np.all(np.diff(codes) > 0) or len(np.unique(codes)) == len(codes):
        return chains
    values = chains.values if len(chains.values) else np.ones(len(chains.indices))
    shape = (len(chains.indptr) - 1, n_attributes)
    parts = values.copy(), chains.indices.copy(), chains.indptr.copy()
    matrix = sparse.csr_matrix(parts, shape=shape)
    matrix.sum_duplicates()
    return chains._replace(
        indptr=matrix.indptr.astype(np.int64), indices=matrix.indices.astype(np.int32),
        values=matrix.data.astype(np.float64),
    )  # fmt: skip


# ---- empty structures


def empty_rows(chains: Any, model: Any) -> Any:
    """No weight yet. Attributes of many tokens get rows of all labels at once.

    What is not written to is not resident, so that room costs nothing before it is used.
    """
    from cliquewise._kernels.gdmm.rows import BRIEF, DENSE, Rows

    k, n = model.n_labels, model.n_attributes
    width = -(-k // LANES) * LANES
    tokens = np.bincount(chains.indices, minlength=n)
    seen = len(model.pair_start) > 0
    if seen:
        sizes, dense = np.diff(model.pair_start), np.zeros(n, dtype=bool)
        room = int(8 * sizes.sum() + 8 * n + 64)
    else:
        dense = 3 * DENSE * tokens >= k
        lists = np.minimum(8 * tokens + 16, 4 * k // DENSE + 16)
        room = int(width * dense.sum() + lists[~dense].sum())
    start = np.where(dense, np.cumsum(dense) - 1, 0) * width
    size = np.where(dense, k, 0)
    return Rows(
        start.astype(np.int64), size.astype(np.int64), size.astype(np.int64),
        dense.astype(np.uint8), np.zeros(room, dtype=np.int32), np.zeros(room),
        np.zeros(2 * room, dtype=np.int32), np.array([width * int(dense.sum())]),
        np.zeros(1, dtype=np.int64),
        np.zeros(room if k > BRIEF and not seen else 0, dtype=np.float32),
    )  # fmt: skip


def empty_table(free: Any, room: int) -> Any:
    """A table of zeros."""
    from cliquewise._kernels.gdmm.pairs import Table

    k = len(free)
    leaves = 1 << max(k - 1, 1).bit_length()
    start, count, capacity = (np.zeros(2 * k, dtype=np.int64) for _ in range(3))
    return Table(
        np.zeros(k * k), free.astype(np.uint8).ravel(), np.zeros(k * k, dtype=np.uint8), start,
        count, capacity, np.zeros(room, dtype=np.int32), np.zeros(room), np.full(2 * k, -np.inf),
        np.full(2 * k, -1, dtype=np.int64), np.ones(2 * k, dtype=np.uint8),
        np.full(2 * leaves, -np.inf), np.zeros(2, dtype=np.int64),
    )  # fmt: skip


def empty_support(n_tokens: int, room: int) -> Any:
    """No labels."""
    from cliquewise._kernels.gdmm.lists import Support

    start, count, capacity = (np.zeros(n_tokens, dtype=np.int64) for _ in range(3))
    return Support(
        start, count, capacity, np.zeros(room, dtype=np.int32), np.zeros((room, 6)),
        np.zeros(1, dtype=np.int64),
    )  # fmt: skip


def empty_pairs(n_tokens: int, room: int) -> Any:
    """No pairs."""
    from cliquewise._kernels.gdmm.lists import Pairs

    start, count, capacity = (np.zeros(n_tokens, dtype=np.int64) for _ in range(3))
    return Pairs(
        start, count, capacity, np.zeros(room, dtype=np.int32), np.zeros(room, dtype=np.int32),
        np.zeros((room, 4)), np.zeros(1, dtype=np.int64),
    )  # fmt: skip


# ---- growth


def _longer(array: Any, size: int) -> Any:
    if len(array) >= size:
        return array
    out = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    out[: len(array)] = array
    return out


def _grown(pool: Any, used: int, margin: int, names: dict[str, int]) -> Any:
    """A pool with half as much room again, if it has less than ``margin`` left."""
    have = len(getattr(pool, next(iter(names))))
    if have - used >= margin:
        return pool
    size = max(used + 2 * margin, 3 * have // 2)
    return pool._replace(**{n: _longer(getattr(pool, n), f * size) for n, f in names.items()})


def grow(state: ActiveSets, longest: int, most_attributes: int) -> None:
    """Make room for any one sequence in every pool that lacks it."""
    rows, table, support, pairs = state.rows, state.table, state.support, state.pairs
    k = len(table.start) // 2
    deepest = 0 if rows.fixed[0] else int(rows.capacity[rows.dense == 0].max(initial=4))
    most = most_attributes * (6 * (deepest + 8) + k // 4) + 2 * k if deepest else 0
    names = {"label": 1, "value": 1, "index": 2} | (
        {"values_f32": 1} if len(rows.values_f32) else {}
    )
    state.rows = _grown(rows, int(rows.used[0]), most, names)
    most = 16 * int(table.used[1]) + 1024
    state.table = _grown(table, int(table.used[0]), most, {"label": 1, "value": 1})
    most = 3 * (longest + 1) * (int(support.capacity.max(initial=4)) + 4)
    state.support = _grown(support, int(support.used[0]), most, {"label": 1, "cell": 1})
    most = 3 * (longest + 1) * (int(pairs.capacity.max(initial=2)) + 2)
    state.pairs = _grown(pairs, int(pairs.used[0]), most, {"left": 1, "right": 1, "cell": 1})


def sequence_limits(chains: Any) -> tuple[int, int]:
    """The longest sequence, and the most attributes that one has."""
    lengths = np.diff(chains.offsets)
    ends = chains.indptr[chains.offsets]
    return int(lengths.max(initial=1)), int(np.diff(ends).max(initial=1))


def begin(problem: ChainProblem, rho: float) -> ActiveSets:
    """The truth alone."""
    from cliquewise._kernels.gdmm.rows import add_seen_pairs
    from cliquewise._kernels.gdmm.sweep import Schedule

    model = problem.model
    chains = without_repeats(problem.chains, model.n_attributes)
    n_tokens = len(chains.labels)
    masses, calm = problem.C * chains.weights, (n_tokens, 3)
    state = ActiveSets(
        chains, masses, empty_rows(chains, model),
        empty_table(model.edge_free, 64), empty_support(n_tokens, 4 * n_tokens + 64),
        empty_pairs(n_tokens, 2 * n_tokens + 64),
        Schedule(*(np.zeros(shape, dtype=np.int64) for shape in (n_tokens, n_tokens, calm, calm))),
        rho,
    )  # fmt: skip
    if len(model.pair_start):
        pairs = kernel_view(model.pair_start), kernel_view(model.pair_label)
        add_seen_pairs(*pairs, model.n_labels, state.rows)
    grow(state, *sequence_limits(chains))
    return state


def fill(problem: ChainProblem, state: ActiveSets) -> None:
    """Lists of the truth for tokens that have none, and the weights of all masses afresh."""
    from cliquewise._kernels.gdmm.lists import begin_lists
    from cliquewise._kernels.gdmm.pairs import clear_table
    from cliquewise._kernels.gdmm.rows import clear_rows
    from cliquewise._kernels.gdmm.sweep import rebuild_weights

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
        grow(state, *limits)


# ---- to and from named arrays


def pack(state: ActiveSets) -> dict[str, np.ndarray[Any, Any]]:
    """Lists, masses and multipliers without the gaps between them."""
    support, pairs = state.support, state.pairs
    own, both = _entries(support), _entries(pairs)
    return {
        "offsets": state.chains.offsets, "truth": state.chains.labels, "masses": state.masses,
        "label_count": support.count, "label": support.label[own],
        "cell": support.cell[own][:, [0, 3, 4]],
        "pair_count": pairs.count, "left": pairs.left[both], "right": pairs.right[both],
        "pair_mass": pairs.cell[both, 0],
        "rho": np.array([state.rho]), "counts": np.array([state.passes]),
    }  # fmt: skip


def token_masses(state: ActiveSets) -> Floats:
    """The sum of the masses of each token's labels."""
    support = state.support
    owners = np.repeat(np.arange(len(support.count)), support.count)
    masses = support.cell[_entries(support), 0]
    return np.bincount(owners, masses, minlength=len(support.count)).astype(np.float64)


def _entries(pool: Any) -> Any:
    """Places of all entries in order of their owners."""
    return stretches(pool.start, pool.count)


def unpack(problem: ChainProblem, arrays: dict[str, Any], rho: float) -> ActiveSets:
    """Back from :func:`pack`; examples that are not there start at the truth.

    Masses are scaled to those of the problem, so that ``C`` and the weights may differ.
    """
    from cliquewise._kernels.gdmm.lists import restore_lists

    state = begin(problem, rho)
    tokens = len(arrays["truth"])
    owner = np.repeat(np.arange(len(arrays["masses"])), np.diff(arrays["offsets"]))
    old, new = arrays["masses"][owner], state.masses[: len(arrays["masses"])][owner]
    share = np.divide(new, old, out=np.zeros(tokens), where=old > 0)
    usable = (old > 0) & (new > 0)
    counts = arrays["label_count"] * usable, arrays["pair_count"] * usable
    keep = np.repeat(usable, arrays["label_count"]), np.repeat(usable, arrays["pair_count"])
    support, pairs = state.support, state.pairs
    for pool, count in ((support, counts[0]), (pairs, counts[1])):
        pool.count[:tokens] = pool.capacity[:tokens] = count
        pool.start[:tokens] = np.cumsum(count) - count
        pool.used[0] = int(count.sum())
    n_labels, n_pairs = int(support.used[0]), int(pairs.used[0])
    support = support._replace(
        label=_longer(support.label, n_labels), cell=_longer(support.cell, n_labels)
    )
    pairs = pairs._replace(
        left=_longer(pairs.left, n_pairs), right=_longer(pairs.right, n_pairs),
        cell=_longer(pairs.cell, n_pairs),
    )  # fmt: skip
    cell = arrays["cell"][keep[0]]
    support.label[:n_labels] = arrays["label"][keep[0]]
    support.cell[:n_labels, 0] = cell[:, 0] * np.repeat(share, counts[0])
    support.cell[:n_labels, 3:5] = cell[:, 1:]
    pairs.left[:n_pairs], pairs.right[:n_pairs] = arrays["left"][keep[1]], arrays["right"][keep[1]]
    pairs.cell[:n_pairs, 0] = arrays["pair_mass"][keep[1]] * np.repeat(share, counts[1])
    state.support, state.pairs = support, pairs
    restore_lists(state.chains, state.rows, support, pairs)
    state.passes = int(arrays["counts"][0])
    grow(state, *sequence_limits(state.chains))
    return state


def check_lists(arrays: dict[str, Any], problem: ChainProblem) -> None:
    """Refuse lists that are not of this problem, or that no pass could have left."""
    c, k = problem.chains, problem.model.n_labels
    n, tokens = problem.n_examples, len(c.labels)
    offsets = checked(arrays, "offsets", (n + 1,), np.int64)
    truth = checked(arrays, "truth", (tokens,), np.int32)
    same = np.array_equal(offsets, c.offsets) and np.array_equal(truth, c.labels)
    check(same, "its arrays have other shapes")
    per_token = np.repeat(checked(arrays, "masses", (n,), low=0.0), np.diff(offsets))
    count_of(arrays, "counts")
    has_edge = np.ones(tokens, dtype=np.int64)
    has_edge[offsets[:-1][np.diff(offsets) > 0]] = 0
    count = checked(arrays, "label_count", (tokens,), np.int64, 1, k)
    pair_count = checked(arrays, "pair_count", (tokens,), np.int64, 0, k * k)
    check((pair_count > 0) == (has_edge > 0), "its pairs are of other edges")
    total, pairs = int(count.sum()), int(pair_count.sum())
    label = checked(arrays, "label", (total,), np.int32, 0, k - 1)
    cell = checked(arrays, "cell", (total, 3), low=-1e150, high=1e150)
    start = np.cumsum(count) - count
    check(label[start] == truth, "its lists do not begin with the truth")
    owner = np.repeat(np.arange(tokens), count)
    check(len(np.unique(owner * k + label)) == total, "its lists have a label twice")
    if len(c.allowed):
        check(c.allowed[owner, label], "its labels are not allowed")
    check(cell[:, 0] >= 0, "its masses are negative")
    check_sums(cell[:, 0], count, per_token)
    left = checked(arrays, "left", (pairs,), np.int32, 0)
    right = checked(arrays, "right", (pairs,), np.int32, 0)
    edge = np.repeat(np.arange(tokens), pair_count)
    check((left < count[edge - 1]) & (right < count[edge]), "its pairs point outside")
    codes = (edge * np.int64(k) + left) * k + right
    check(len(np.unique(codes)) == pairs, "its lists have a pair twice")
    mass = checked(arrays, "pair_mass", (pairs,), low=0.0)
    check_sums(mass, pair_count, per_token * has_edge)


def continues(arrays: dict[str, Any], problem: ChainProblem) -> bool:
    """Whether packed arrays are of the first examples of a problem."""
    n, tokens = len(arrays["offsets"]), len(arrays["truth"])
    return bool(
        np.array_equal(arrays["offsets"], problem.chains.offsets[:n])
        and np.array_equal(arrays["truth"], problem.chains.labels[:tokens])
        and arrays["label"].max(initial=0) < problem.model.n_labels
    )
