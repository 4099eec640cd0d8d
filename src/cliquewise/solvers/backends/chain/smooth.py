"""Smoothed losses on chains, for `svrg` and `casimir`: in kernels; full gradients in threads."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.rounding import UNIT
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.backends.base import Pass, SmoothingSettings, kind_of_call


class ChainSmoothing:
    """Full gradients and epochs in kernels; see ``_kernels/chain/smooth.py``."""

    def __init__(self, problem: ChainProblem, settings: SmoothingSettings):
        from cliquewise._kernels.chain.smooth import Anchor

        smoother, k = settings

        self.seen, self.roundings = np.zeros(4), 0.0
        self.problem, self.form, self.sizes = problem, problem.form, np.empty(0)
        n, labels = problem.n_examples, problem.model.n_labels
        most = labels ** float(min(problem.data.lengths.max(initial=1), 60))
        self.k = 0 if smoother == "entropy" else int(min(k, max(most, 1)))
        entropy, tokens = self.k == 0, problem.data.n_tokens
        self.anchor = Anchor(
            np.zeros((0 if entropy else tokens, self.k), dtype=np.int32),
            np.zeros((0 if entropy else n, self.k)),
            np.zeros((tokens if entropy else 0, labels)),
            np.zeros((n if entropy else 0, labels, labels)),
        )

    @classmethod
    def memory(cls, problem: ChainProblem, settings: SmoothingSettings) -> float:
        """Return the bytes of ten weight vectors, and of the distributions at the anchor."""
        smoother, k = settings
        n, tokens, labels = problem.n_examples, problem.data.n_tokens, problem.model.n_labels
        anchor = 4.0 * k * tokens + 8.0 * k * n
        if smoother == "entropy":
            anchor = 8.0 * tokens * labels + 8.0 * n * labels**2 + 4 * tokens
        return float(8.0 * (10 * problem.form.size + 16 * 10 + n) + anchor)

    def _k(self, mu: float) -> int:
        """Return the number of labelings per call: one without smoothing."""
        return self.k if mu > 0 else 1

    def kind(self, mu: float) -> str:
        return kind_of_call("l2" if self.k else "entropy", self.k, mu)

    def _sparse_anchor(self, mu: float) -> Any:
        """Allocate the anchor for labelings if the smoothing has vanished, but was an entropy."""
        if mu == 0 and self.k == 0 and not len(self.anchor.shares):
            n, tokens = self.problem.n_examples, self.problem.data.n_tokens
            self.anchor = self.anchor._replace(
                labels=np.zeros((tokens, 1), dtype=np.int32), shares=np.zeros((n, 1))
            )
        return self.anchor

    def zeros(self) -> Floats:
        return self.form.zeros()

    def full_gradient(self, w: Floats, mu: float) -> Pass:
        from cliquewise._kernels.chain.smooth import ROUNDING, full_gradient

        anchor, n = self._sparse_anchor(mu), max(self.problem.n_examples, 1)
        self._note_scores(w, mu)

        def part(first: int, last: int) -> tuple[Floats, Any]:
            out = self.zeros()
            return out, full_gradient(
                self.form.chains, w, mu, self._k(mu), anchor, first, last, out
            )

        results = self.problem.over_examples(part)
        gradient = results[0][0]
        for out, _ in results[1:]:
            gradient += out
        gradient /= n
        loss, cost, omega, calls, exact = np.sum([totals for _, totals in results], axis=0)
        share = exact / calls if calls else 1.0
        rounding_error = self.problem.rounding_error(w) + ROUNDING * (abs(loss) + cost) / n
        return Pass(loss / n, cost / n, omega / n, gradient, int(calls), share, rounding_error)

    def epoch(
        self, w: Floats, c: Floats, mu: float, order: Ints, step: float, shrink: float,
        average: bool, renew: bool = False,
    ) -> tuple[Floats, int]:  # fmt: skip
        from cliquewise._kernels.chain.smooth import svrg_epoch

        n = max(len(order), 1)
        # The scale is multiplied by ``shrink`` in every step, and must not underflow in one call.
        most = max(1, int(200 / max(-np.log(max(shrink, 1e-80)), 1e-300)))
        count = min(self.problem.max_step_examples, most)
        self.seen, total = np.zeros(4), np.zeros_like(w)
        sums = np.zeros_like(w) if average else np.empty(0)
        for at in range(0, len(order), count):
            visits = order[at : at + count]
            v = w - c
            sums[:] = 0.0
            scale, scales, *found = svrg_epoch(
                self.form.chains, c, v, sums, mu, self._k(mu), self.anchor, visits, step, shrink,
                renew,
            )  # fmt: skip
            self.seen += found
            if average:
                total += len(visits) * c + scales * v - sums
            w = c + scale * v
        return (total / n if average and len(order) else w), int(self.seen[2])

    def kept(self) -> Pass:
        from cliquewise._kernels.chain.smooth import ROUNDING, kept_gradient

        n, chains = max(self.problem.n_examples, 1), self.form.chains

        def part(first: int, last: int) -> tuple[Floats, float]:
            out = self.zeros()
            return out, kept_gradient(chains, self.anchor, first, last, out)

        parts = self.problem.over_examples(part)
        gradient, cost = parts[0][0], sum(total for _, total in parts) / n
        for out, _ in parts[1:]:
            gradient += out
        gradient /= n
        loss, omega, calls, exact = self.seen
        # Shares of labelings have a true cost and true features, even if scores were rounded.
        rounding_error = self.problem.rounding_error(self.zeros()) + (ROUNDING + UNIT * n) * (
            cost - omega / n
        )
        share = exact / calls if calls else 1.0
        return Pass(loss / n, cost, omega / n, gradient, int(calls), share, rounding_error)

    def forget(self) -> None:
        problem, anchor, chains = self.problem, self._sparse_anchor(0.0), self.form.chains
        if len(anchor.shares):
            anchor.shares[:] = 0.0
            anchor.shares[:, 0] = 1.0
            anchor.labels[:, 0] = chains.labels
        if len(anchor.nodes):
            anchor.nodes[:] = 0.0
            anchor.nodes[np.arange(len(chains.labels)), chains.labels] = 1.0
            anchor.edges[:] = 0.0
            at = problem.data.followers
            example = np.repeat(np.arange(problem.n_examples), problem.data.lengths)[at]
            np.add.at(anchor.edges, (example, chains.labels[at - 1], chains.labels[at]), 1.0)

    def smooth_loss(self, w: Floats, mu: float) -> float:
        from cliquewise._kernels.chain.smooth import smooth_losses

        problem, out = self.problem, np.zeros(self.problem.n_examples)

        def part(first: int, last: int) -> None:
            smooth_losses(self.form.chains, w, mu, self._k(mu), first, last, out)

        problem.over_examples(part)
        return float(problem.chains.weights @ out) / max(problem.n_examples, 1)

    def total_loss(self, w: Floats) -> float:
        return float(self.problem.chains.weights @ self.problem.packed_losses(w))

    @property
    def weight_error_scale(self) -> Floats:
        scale = self.problem.smoothed_summands
        if self.roundings:
            scale = scale + self.problem.C * self.roundings * self.problem.features.total
        return scale

    def _note_scores(self, w: Floats, mu: float) -> None:
        """Remember the errors of marginals at the weights."""
        if self.kind(mu) == "exp":
            profile = self.problem.score_profile
            own = profile._replace(entries=profile.entries / mu).roundings(
                self.problem.largest_by_row(w)
            )
            self.roundings = max(self.roundings, own)

    @cached_property
    def curvature(self) -> float:
        chains = self.form.chains
        square = np.diff(chains.indptr).astype(np.float64)
        if len(chains.values):
            total = np.concatenate(([0.0], np.cumsum(chains.values**2)))
            square = np.diff(total[chains.indptr])
        weights = np.repeat(chains.weights, np.diff(chains.offsets))
        return float(np.max(weights * square, initial=0.0))

    def unpacked(self, w: Floats) -> Floats:
        return self.form.unpack(w)

    def packed(self, w: Floats) -> Floats:
        return self.form.pack(w)
