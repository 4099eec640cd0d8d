"""SDCA on chains in several threads: the partition of the sequences, and copies of weights.

See ``_kernels/chain/threads.py``. Only rare weights are updated without locks (Hogwild). An update
may be lost; the weights are recomputed from the duals every few epochs and for every certificate,
so certificates are as valid as with one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from cliquewise.models.thread_local_weights import Copies
from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats, Ints

#: Minimum sequences of a thread, and minimum multiplications per epoch (some milliseconds): with
#: less work, threads would not pay off.
MIN_SEQUENCES, MIN_WORK = 16, 2e6
#: Bytes of a thread's copies of weights; they fit into the L2 cache.
COPY_BYTES = 1 << 18
#: Rows of weights are copied if they occur, on average, once in this many sequences.
FREQUENT = 50
#: Visits of a row by a thread, about, between two exchanges of its copies.
MEETINGS = 2
#: Maximum number of threads. With more, the copies are too old: on 16 cores, 8 threads need 12
#: epochs where one needs 9 (CoNLL-2000; 26 on CoNLL-2003), and 16 are slower than one
#: (`benchmarks.threads`).
MAX_THREADS = 4
#: Epochs after which the weights are recomputed from the duals, which takes half an epoch.
REFRESH_EPOCHS = 8
#: Relative decrease of the dual value that is not a rounding error, by bytes per number.
DECREASE = {4: 1e-5, 8: 1e-11}


def threads_of(problem: ChainProblem) -> int:
    """Return the number of threads that have enough work."""
    k = problem.model.n_labels
    work = k * len(problem.chains.indices) + k * k * problem.data.n_tokens
    enough = min(problem.n_examples // MIN_SEQUENCES, int(work / MIN_WORK))
    return max(1, min(problem.n_jobs, enough, MAX_THREADS))


def bytes_of(problem: ChainProblem) -> float:
    """Return the bytes that threads take: the attributes again, and three sets of copies each."""
    jobs = threads_of(problem)
    copies = COPY_BYTES + 8.0 * problem.model.n_labels**2
    return 0.0 if jobs == 1 else problem.chains.indices.nbytes + 3.0 * jobs * copies


def single_part(problem: ChainProblem) -> Any:
    """Return the part of a single thread, which has all sequences."""
    from cliquewise._kernels.chain.threads import Part

    none = np.empty(0, dtype=np.int64)
    return Part(
        none, none, np.empty((0, 0)), np.empty(0), none, 0, 0, 0, problem.form.token_pair_offset
    )


class ThreadPartition:
    """The sequences, distributed among threads, and the threads' copies of weights.

    Attributes
    ----------
    w : array
        The weights in the problem's form.
    members : list of int arrays
        The sequences of each thread.
    visits : int
        Visits since the weights were recomputed.
    """

    def __init__(self, problem: ChainProblem, jobs: int, dtype: type[np.floating] = np.float64):
        from cliquewise._kernels.chain.threads import Part

        self.problem = problem
        self.owner = distribute(problem.data.lengths, jobs)
        self.members = [np.flatnonzero(self.owner == part) for part in range(jobs)]
        rows, tier = frequent_rows(problem)
        self.copies = Copies(problem.form, rows, self.members, dtype)
        self.w = self.copies.w
        place = np.empty(problem.n_examples, dtype=np.int64)
        for members in self.members:
            place[members] = np.arange(len(members))
        size = len(self.copies.places)
        self.added, self.others = np.zeros((jobs, size)), np.zeros((jobs, size))
        tiers = np.searchsorted(-np.append(tier, 0), -np.arange(tier.max(initial=0) + 1))
        tiers = np.append(self.copies.begins, size - problem.model.n_labels**2)[tiers]
        self.visits, self.reached = 0, (0.0, -np.inf)
        self.parts = [
            Part(
                self.members[at], place, self.added, self.others[at], tiers, at,
                int(self.copies.starts[at]), MEETINGS, problem.form.token_pair_offset,
            )
            for at in range(jobs)
        ]  # fmt: skip

    def visit(
        self, order: Ints, uniforms: Floats, work: Callable[[Any, Any, Any, Any, Any], int]
    ) -> int:
        """Run ``work(number, chains, order, uniforms, part)`` in every thread; add the results.

        Visits whose sequence the kernel samples (-1) are divided equally.
        """
        owner = np.where(order < 0, 0, self.owner[order])
        sampled = np.flatnonzero(order < 0)
        owner[sampled] = np.arange(len(sampled)) % len(self.parts)
        now = self.copies.spread()
        self.added[:] = 0.0
        self.added[0] = now
        self.others[:] = now
        self.others[0] = 0.0

        def one(at: int) -> int:
            own = owner == at
            return work(at, self.copies.chains[at], order[own], uniforms[own], self.parts[at])

        with ThreadPoolExecutor(len(self.parts)) as pool:
            calls = sum(pool.map(one, range(len(self.parts))))
        self.w[self.copies.places] = self.added.sum(axis=0)
        self.visits += len(order)
        return calls

    @property
    def needs_refresh(self) -> bool:
        """Whether lost updates have to be repaired now."""
        return bool(self.visits >= REFRESH_EPOCHS * self.problem.n_examples)

    def should_drop_threads(self, dual: float, gamma: float) -> bool:
        """Return whether the dual value decreased although threads exchange copies at every visit.

        Each time it decreases, threads exchange copies twice as often: only outdated copies can
        make it decrease.
        """
        before, self.reached = self.reached, (gamma, dual)
        decrease = DECREASE[self.w.itemsize] * (1.0 + abs(dual))
        if gamma != before[0] or dual >= before[1] - decrease:
            return False
        every = self.parts[0].every
        self.parts = [part._replace(every=max(every // 2, 1)) for part in self.parts]
        return bool(every == 1)


def distribute(lengths: Ints, jobs: int) -> Ints:
    """Return a thread for each sequence; all get as many sequences of about the same lengths.

    The distribution is random, so that difficult regions of the data are shared as well.

    Examples
    --------
    >>> float(np.bincount(distribute(np.array([9, 1, 9, 1, 5]), 2), [9, 1, 9, 1, 5]).max())
    15.0
    """
    rng, n = np.random.default_rng(0), len(lengths)
    order = rng.permutation(n)
    order = order[np.argsort(-lengths[order], kind="stable")]
    hands = np.argsort(rng.random((-(-n // jobs), jobs)), axis=1)
    owner = np.empty(n, dtype=np.int64)
    owner[order] = hands.ravel()[:n]
    return owner


def frequent_rows(problem: ChainProblem) -> tuple[Ints, Ints]:
    """Return the most frequent attributes, the rarest first, and the tier of each.

    There are as many as COPY_BYTES can hold. A sequence has an attribute of tier t with
    probability at least 2^-t.
    """
    counts = problem.features.counts[: problem.model.n_attributes] / problem.n_examples
    often = np.flatnonzero(counts * FREQUENT > 1)
    often = often[np.argsort(counts[often], kind="stable")]
    k = problem.model.n_labels
    often = often[max(len(often) - max(COPY_BYTES // (8 * k) - k, 0), 0) :]
    return often, np.ceil(-np.log2(np.minimum(counts[often], 1.0))).astype(np.int64)
