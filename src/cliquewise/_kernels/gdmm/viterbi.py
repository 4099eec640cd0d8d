"""Structured hinge losses by exact Viterbi on the sparse weights of GDMM; see `chain.sparse`."""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.sparse import LEADERS, best_predecessors
from cliquewise._kernels.common.simd import padded
from cliquewise._kernels.gdmm.rows import score_all


@kernel
def sparse_losses(chains, rows, table, n_labels, first, last, out):
    """Structured hinge losses of examples ``first`` to ``last``; the cost in about nanoseconds."""
    alpha, best, scores = np.zeros(n_labels), np.zeros(n_labels), np.zeros(padded(n_labels))
    leaders = np.zeros(LEADERS, np.int64)
    masked = chains.allowed.shape[0] > 0
    work = 0
    for s in range(first, last):
        begin, end = chains.offsets[s], chains.offsets[s + 1]
        total, truth = 0.0, 0.0
        for t in range(begin, end):
            work += score_all(chains, rows, t, n_labels, scores)
            y = np.int64(chains.labels[t])
            truth += scores[y]
            if t == begin:
                for j in range(n_labels):
                    best[j] = 0.0
            else:
                before = np.int64(chains.labels[t - 1])
                truth += table.values[before * n_labels + y]
                work += best_predecessors(
                    table.values, table.start, table.count, table.label, table.value, table.top,
                    n_labels, alpha, best, leaders,
                ) + 20 * n_labels  # fmt: skip
            high = -np.inf
            scores[y] -= 1.0
            for j in range(n_labels):
                alpha[j] = best[j] + scores[j] + 1.0
            if masked:
                for j in range(n_labels):
                    if not chains.allowed[t, j]:
                        alpha[j] = -np.inf
            for j in range(n_labels):
                high = max(high, alpha[j])
            for j in range(n_labels):
                alpha[j] -= high
            total += high
        out[s] = max(total - truth, 0.0)
    return work
