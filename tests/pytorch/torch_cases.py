"""Random batches of chains, and answers about them by enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from hypothesis import strategies as st


class Batch:
    """Scores of chains of unequal lengths, as keyword arguments and one by one."""

    def __init__(
        self, seed, size, length, k, *, dtype=torch.float64, scale=1.0, shared=True, ends=True,
        masked=True, forbidden=0.0,
    ):  # fmt: skip
        rng = np.random.default_rng(seed)
        table = (k, k) if shared else (size, max(length - 1, 0), k, k)
        trans = scale * rng.normal(size=table)
        trans[rng.random(table) < forbidden] = -np.inf
        self.shape, self.lengths = (size, length, k), np.full(size, length)
        self.nodes = torch.tensor(scale * rng.normal(size=self.shape), dtype=dtype)
        self.transitions = torch.tensor(trans, dtype=dtype)
        self.begin = torch.tensor(rng.normal(size=k), dtype=dtype) if ends else None
        self.end = torch.tensor(rng.normal(size=k), dtype=dtype) if ends else None
        self.mask = None
        if masked:
            self.lengths = rng.integers(0, length + 1, size)
            self.mask = torch.arange(length) < torch.tensor(self.lengths)[:, None]
        self.tags = torch.tensor(rng.integers(0, k, (size, length)))

    @property
    def scores(self):
        names = ("nodes", "transitions", "begin", "end", "mask")
        return {name: getattr(self, name) for name in names}

    def chain(self, b):
        """Node scores with begin and end added, and a table per step, of chain b (float64)."""
        n = self.lengths[b]
        nodes = self.nodes[b, :n].double().numpy().copy()
        if n and self.begin is not None:
            nodes[0] += self.begin.double().numpy()
            nodes[-1] += self.end.double().numpy()
        trans = self.transitions.double().numpy()
        steps = np.broadcast_to(trans, (max(n - 1, 0), *trans.shape)) if trans.ndim == 2 else None
        return nodes, trans[b, : max(n - 1, 0)] if steps is None else steps

    def paths(self, b):
        """All labelings of chain b and their scores."""
        nodes, steps = self.chain(b)
        n, k = len(nodes), self.shape[2]
        labels = np.array(list(itertools.product(range(k), repeat=n)), dtype=int)
        labels = labels.reshape(k**n, n)
        score = nodes[np.arange(n), labels].sum(1)
        for t in range(1, n):
            score = score + steps[t - 1][labels[:, t - 1], labels[:, t]]
        return labels, score


@st.composite
def batches(draw, **fixed):
    """Small batches of every kind."""
    options = {
        "shared": draw(st.booleans()),
        "ends": draw(st.booleans()),
        "masked": draw(st.booleans()),
        "forbidden": draw(st.sampled_from([0.0, 0.3])),
    }
    return Batch(
        draw(st.integers(0, 10**6)), draw(st.integers(1, 3)), draw(st.integers(1, 4)),
        draw(st.integers(1, 3)), **(options | fixed),
    )  # fmt: skip


def log_sum(scores):
    """log of the sum of exponentials, -inf where all are."""
    high = scores.max(initial=-np.inf)
    return -np.inf if high == -np.inf else high + np.log(np.exp(scores - high).sum())
