"""Forward-backward beside CRFsuite's C: ``python -m benchmarks.forward_backward``.

CRFsuite offers no forward-backward of its own to call, but its L-BFGS trainer is little else
when features cost nothing: with one attribute per token, one evaluation of the objective is
a lookup of K scores per token, the scaled forward and backward passes, log Z, node marginals,
summed edge expectations, and adding K numbers per token to the gradient. Its time is the wall
time between two progress messages of the trainer divided by the line search trials (one
evaluation each); L-BFGS's own vectors have about 50 K + K^2 entries against a hundred
thousand tokens, so that they do not count.

Ours is measured twice: the batch kernel alone (log Z, node marginals, summed edge
expectations), and the same evaluation as CRFsuite's, with lookup and gradient (as products
with a sparse one-hot matrix). Both libraries use one thread. The two take turns, and the best
turn of each counts. Before the times are believed, the objective value that our kernel gives for
CRFsuite's final weights must equal the loss that CRFsuite printed.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pycrfsuite
from scipy.sparse import csr_matrix

from benchmarks.common import print_json, print_table, seconds
from cliquewise._kernels.chain.sums import batch_forward_backward

N_ATTRIBUTES = 50
C2 = 1.0


class Chains:
    """Labeled sequences with one attribute per token, lengths as in chunking data."""

    def __init__(self, n_labels: int, n_tokens: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(5, 45, n_tokens // 24)
        self.n_labels = n_labels
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        size = int(self.offsets[-1])
        self.labels = np.cumsum(rng.integers(0, 3, size)) % n_labels
        noise = rng.integers(0, N_ATTRIBUTES, size)
        self.attributes = np.where(rng.random(size) < 0.5, self.labels % N_ATTRIBUTES, noise)
        self.one_hot = csr_matrix(
            (np.ones(size), self.attributes, np.arange(size + 1)), shape=(size, N_ATTRIBUTES)
        )


class TimedTrainer(pycrfsuite.Trainer):
    """Records when each iteration began, its loss and its line search trials."""

    def __init__(self) -> None:
        super().__init__(verbose=False)
        self.starts: list[float] = []
        self.trials: list[int] = []
        self.losses: list[float] = []

    def message(self, text: str) -> None:
        if text.startswith("***** Iteration"):
            self.starts.append(time.perf_counter())
        elif text.startswith("Loss:"):
            self.losses.append(float(text.split()[1]))
        elif text.startswith("Line search trials:"):
            self.trials.append(int(text.split()[-1]))


def train_crfsuite(chains: Chains, model: Path, iterations: int) -> tuple[float, float]:
    """(seconds per evaluation, final loss) of CRFsuite's L-BFGS."""
    trainer = TimedTrainer()
    for first, last in zip(chains.offsets, chains.offsets[1:], strict=False):
        trainer.append(
            [[f"a{a}"] for a in chains.attributes[first:last]],
            [f"y{y}" for y in chains.labels[first:last]],
        )
    trainer.select("lbfgs")
    trainer.set_params(
        {
            "c1": 0.0,
            "c2": C2,
            "max_iterations": iterations,
            "feature.possible_states": True,
            "feature.possible_transitions": True,
        }
    )
    trainer.train(str(model))
    # A message comes at the end of its iteration, so the trials it names precede it.
    spans = np.diff(trainer.starts) / np.array(trainer.trials[1:])
    return float(spans.min()), trainer.losses[-1]


def read_weights(model: Path, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """State (attribute, label) and transition weights of a CRFsuite model."""
    tagger = pycrfsuite.Tagger()
    tagger.open(str(model))
    info = tagger.info()
    states = np.zeros((N_ATTRIBUTES, n_labels))
    trans = np.zeros((1, n_labels, n_labels))
    for (attribute, label), weight in info.state_features.items():
        states[int(attribute[1:]), int(label[1:])] = weight
    for (left, right), weight in info.transitions.items():
        trans[0, int(left[1:]), int(right[1:])] = weight
    return states, trans


class Ours:
    """One evaluation of the same objective with our kernel."""

    def __init__(self, chains: Chains, states: np.ndarray, trans: np.ndarray) -> None:
        k = chains.n_labels
        self.chains, self.states, self.trans = chains, states, trans
        self.nodes = chains.one_hot @ states
        self.marginals = np.empty_like(self.nodes)
        self.edges = np.empty((0, k, k))
        self.expectation = np.zeros((k, k))
        self.log_z = np.empty(len(chains.offsets) - 1)
        self.transposed = chains.one_hot.T.tocsr()

    def kernel(self) -> None:
        self.expectation[:] = 0
        batch_forward_backward(
            self.nodes,
            self.chains.offsets,
            self.trans,
            self.marginals,
            self.edges,
            self.expectation,
            self.log_z,
        )

    def evaluation(self) -> np.ndarray:
        self.nodes = self.chains.one_hot @ self.states
        self.kernel()
        return self.transposed @ self.marginals

    def loss(self) -> float:
        """CRFsuite's objective: sum of log-losses + c2 |w|^2."""
        chains = self.chains
        score = self.nodes[np.arange(len(chains.labels)), chains.labels].sum()
        inner = np.ones(len(chains.labels), bool)
        inner[chains.offsets[:-1]] = False
        right = np.flatnonzero(inner)
        score += self.trans[0, chains.labels[right - 1], chains.labels[right]].sum()
        norm = np.sum(self.states**2) + np.sum(self.trans**2)
        return float(self.log_z.sum() - score + C2 * norm)


def compare(n_labels: int, n_tokens: int, turns: int = 5) -> dict[str, Any]:
    """Best times of both at one number of labels."""
    chains = Chains(n_labels, n_tokens)
    size = len(chains.labels)
    peer, kernel, evaluation = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.crfsuite"
        for _ in range(turns):
            peer_seconds, loss = train_crfsuite(chains, model, iterations=8)
            peer.append(peer_seconds)
            ours = Ours(chains, *read_weights(model, n_labels))
            kernel.append(seconds(ours.kernel, repeats=8))
            evaluation.append(seconds(ours.evaluation, repeats=8))
    if abs(ours.loss() - loss) > 1e-4 * abs(loss):
        raise AssertionError(f"objective {ours.loss():.6f}, CRFsuite printed {loss:.6f}")
    return {
        "labels": n_labels,
        "tokens": size,
        "crfsuite": size / min(peer),
        "kernel": size / min(kernel),
        "evaluation": size / min(evaluation),
    }


def main() -> None:
    results = [compare(k, n) for k, n in ((10, 100_000), (23, 60_000), (45, 30_000))]
    print_table(
        "Forward-backward, million tokens per second, one thread",
        ["labels", "tokens", "CRFsuite", "kernel", "ratio", "same evaluation", "ratio"],
        [
            (
                r["labels"],
                r["tokens"],
                r["crfsuite"] / 1e6,
                r["kernel"] / 1e6,
                r["kernel"] / r["crfsuite"],
                r["evaluation"] / 1e6,
                r["evaluation"] / r["crfsuite"],
            )
            for r in results
        ],
    )
    print_json(
        {
            "kernel_over_crfsuite": {
                str(r["labels"]): round(r["kernel"] / r["crfsuite"], 2) for r in results
            },
            "evaluation_over_crfsuite": {
                str(r["labels"]): round(r["evaluation"] / r["crfsuite"], 2) for r in results
            },
        }
    )


if __name__ == "__main__":
    main()
