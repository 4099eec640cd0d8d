"""SDCA on chains in several threads: who visits which sequences, and who has copies of what.

See ``_kernels/chain/threads.py``. Threads race for rare weights alone. An update of one may be
lost, and the weights then are not quite those of the duals; these give them afresh every few
passes and for every certificate, which is as true as that of one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from cliquewise.models.thread_local_weights import Copies
from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats, Ints

#: Fewest sequences of a thread, and least work (products of numbers) in its part of a pass, some
#: milliseconds: it would have done all before the others have begun.
LEAST, LEAST_WORK = 16, 2e6
#: Bytes of a thread's copies: they stay in the cache next to its processor.
COPIES = 1 << 18
#: Rows are copied if they occur, on average, once in this many sequences.
FREQUENT = 50
#: How often, about, a thread meets a row from one exchange of its copies to the next.
MEETINGS = 2
#: More threads know too little of each other: on 16 processors 8 of them need 12 passes where one
#: needs 9 (CoNLL-2000; 26 on CoNLL-2003), and 16 are slower than one (`benchmarks.threads`).
MOST = 4
#: Passes after which the weights are made afresh from the duals, which takes half a pass.
FRESH = 8
#: A dual value that is lower by this much, by bytes of its numbers, is no matter of rounding.
FALL = {4: 1e-5, 8: 1e-11}


def threads_of(problem: ChainProblem) -> int:
    """How many threads have enough to do."""
    k = problem.model.n_labels
    work = k * len(problem.chains.indices) + k * k * problem.data.n_tokens
    enough = min(problem.n_examples // LEAST, int(work / LEAST_WORK))
    return max(1, min(problem.n_jobs, enough, MOST))


def bytes_of(problem: ChainProblem) -> float:
    """Memory that threads take: the attributes once more, and three sets of copies for each."""
    jobs = threads_of(problem)
    copies = COPIES + 8.0 * problem.model.n_labels**2
    return 0.0 if jobs == 1 else problem.chains.indices.nbytes + 3.0 * jobs * copies


def alone(problem: ChainProblem) -> Any:
    """The part of a thread that is the only one."""
    from cliquewise._kernels.chain.threads import Part

    none = np.empty(0, dtype=np.int64)
    return Part(
        none, none, np.empty((0, 0)), np.empty(0), none, 0, 0, 0, problem.form.token_pair_offset
    )


class ThreadPartition:
    """The sequences, dealt to threads, and their copies of weights.

    Attributes
    ----------
    w : array
        The weights in the problem's form.
    members : list of int arrays
        The sequences of each thread.
    visits : int
        Since the weights were made afresh.
    """

    def __init__(self, problem: ChainProblem, jobs: int, number: Any = np.float64):
        from cliquewise._kernels.chain.threads import Part

        self.problem = problem
        self.owner = dealt(problem.data.lengths, jobs)
        self.members = [np.flatnonzero(self.owner == part) for part in range(jobs)]
        rows, tier = frequent(problem)
        self.copies = Copies(problem.form, rows, self.members, number)
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
        """Have every thread do ``work(number, chains, order, uniforms, part)``; sums what it says.

        Sequences that are to be drawn (-1) are shared equally.
        """
        owner = np.where(order < 0, 0, self.owner[order])
        drawn = np.flatnonzero(order < 0)
        owner[drawn] = np.arange(len(drawn)) % len(self.parts)
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
        """Whether, every few passes, lost updates are to be made up for."""
        return bool(self.visits >= FRESH * self.problem.n_examples)

    def should_drop_threads(self, dual: float, gamma: float) -> bool:
        """Whether the dual value has fallen though threads exchange copies at every visit.

        They do so twice as often whenever it falls, which only a thread that does not know what
        the others do can make it.
        """
        before, self.reached = self.reached, (gamma, dual)
        fall = FALL[self.w.itemsize] * (1.0 + abs(dual))
        if gamma != before[0] or dual >= before[1] - fall:
            return False
        every = self.parts[0].every
        self.parts = [part._replace(every=max(every // 2, 1)) for part in self.parts]
        return bool(every == 1)


def dealt(lengths: Ints, jobs: int) -> Ints:
    """A thread for each sequence: each gets as many, and as long ones, as any other.

    By chance and not in order, so that what is hard in the data is shared, too.

    Examples
    --------
    >>> float(np.bincount(dealt(np.array([9, 1, 9, 1, 5]), 2), [9, 1, 9, 1, 5]).max())
    15.0
    """
    rng, n = np.random.default_rng(0), len(lengths)
    order = rng.permutation(n)
    order = order[np.argsort(-lengths[order], kind="stable")]
    hands = np.argsort(rng.random((-(-n // jobs), jobs)), axis=1)
    owner = np.empty(n, dtype=np.int64)
    owner[order] = hands.ravel()[:n]
    return owner


def frequent(problem: ChainProblem) -> tuple[Ints, Ints]:
    """The attributes that most visits meet, the rarest first, and the tier of each.

    As many as copies of their weights have room. A sequence has those of tier t with a chance of
    at least two to the power of -t.
    """
    counts = problem.features.counts[: problem.model.n_attributes] / problem.n_examples
    often = np.flatnonzero(counts * FREQUENT > 1)
    often = often[np.argsort(counts[often], kind="stable")]
    k = problem.model.n_labels
    often = often[max(len(often) - max(COPIES // (8 * k) - k, 0), 0) :]
    return often, np.ceil(-np.log2(np.minimum(counts[often], 1.0))).astype(np.int64)
