"""CandidateProblem: choose one of the candidates that each example lists."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.errors import DataError
from cliquewise.models.candidates import CandidateModel, CandidateSets
from cliquewise.oracles.candidates import candidate_marginals, top_k_candidates
from cliquewise.problems.base import check_weights
from cliquewise.problems.examples import ExampleProblem, Rows, stacked
from cliquewise.ragged import Floats, Ints, first_best


class CandidateProblem(ExampleProblem):
    """Hinge or log loss over lists of candidates, with an L2 penalty.

    Parameters
    ----------
    data : CandidateSets
    truth : int array (n,)
        Number of the true candidate of each example.
    cost : array over all candidates, optional
        What choosing each costs (1 - IoU, say), counted from the cost of the true one; 1 for
        all others if not given. The log loss has none.
    C, loss, n_jobs
        As in :class:`ExampleProblem`.
    sample_weight : array (n,), optional

    Examples
    --------
    >>> data = CandidateSets.from_examples([[[1.0, 0.0], [0.0, 1.0]]])
    >>> problem = CandidateProblem(data, [0])
    >>> problem.losses(np.array([0.25, 0.0]))
    array([0.75])
    """

    kind = "candidates"
    losses_known = ("hinge", "log")
    has_exp = True

    def __init__(
        self,
        data: CandidateSets,
        truth: Any,
        cost: Any = None,
        C: float = 1.0,
        loss: str = "hinge",
        n_jobs: int = 1,
        sample_weight: Any = None,
    ):
        self.model = CandidateModel(data.features.n_features)
        super().__init__(len(data), self.model.dimension, C, loss, n_jobs)
        self.data, self.truth = data, np.asarray(truth, dtype=np.int64)
        sizes = np.diff(data.offsets)
        if self.truth.shape != (len(data),):
            raise DataError(f"{len(data)} examples and {self.truth.shape} true candidates")
        bad = np.flatnonzero((self.truth < 0) | (self.truth >= sizes))
        if len(bad):
            i = int(bad[0])
            raise DataError(
                f"example {i}: the true candidate is number {self.truth[i]}, "
                f"but there are {sizes[i]}"
            )
        self.true_rows = data.offsets[:-1] + self.truth
        self.cost = self._cost(cost)
        self.weights = check_weights(sample_weight, len(data))

    def _cost(self, cost: Any) -> Floats:
        total = int(self.data.offsets[-1])
        if self.loss == "log":
            return np.zeros(total)
        if cost is None:
            out = np.ones(total)
            out[self.true_rows] = 0.0
            return out
        out = np.asarray(cost, dtype=np.float64)
        if out.shape != (total,) or not np.all(np.isfinite(out)):
            raise DataError(f"cost must be {total} finite numbers, one per candidate")
        return np.asarray(out - np.repeat(out[self.true_rows], np.diff(self.data.offsets)))

    # ---- the oracles

    def _psi(self, scores: Floats, i: int) -> Floats:
        """Psi of the candidates of example i, from their scores."""
        first, last = self.data.offsets[i], self.data.offsets[i + 1]
        return np.asarray(
            self.weights[i] * (scores - scores[self.truth[i]] + self.cost[first:last])
        )

    def _scores(self, w: Floats, i: int) -> Floats:
        return self.data.features.scores(
            w, int(self.data.offsets[i]), int(self.data.offsets[i + 1])
        )

    def _rows(self, i: int, chosen: Ints) -> Rows:
        first, truth, c = int(self.data.offsets[i]), int(self.true_rows[i]), self.weights[i]
        factors = np.array([c, -c])
        parts = [
            self.data.features.combination(np.array([first + a, truth]), factors)
            if first + a != truth
            else (np.empty(0, dtype=np.int64), np.empty(0))
            for a in chosen.tolist()
        ]
        return stacked(parts)

    def top_k(self, w: Floats, i: int, k: int) -> tuple[Floats, Rows]:
        """The k best candidates."""
        return self._top_k(self._scores(w, i), i, k)

    def _top_k(self, scores: Floats, i: int, k: int) -> tuple[Floats, Rows]:
        psi = self._psi(scores, i)
        chosen = top_k_candidates(psi, k)
        return psi[chosen], self._rows(i, chosen)

    def top_k_all(self, w: Floats, k: int) -> list[tuple[Floats, Rows]]:
        """The k best candidates of every example; the scores are made all at once."""
        parts = self.data.split(self.model.potentials(w, self.data))

        def part(first: int, last: int) -> list[tuple[Floats, Rows]]:
            return [self._top_k(parts[i], i, k) for i in range(first, last)]

        return [found for several in self.over_examples(part) for found in several]

    def exp(self, w: Floats, i: int, mu: float = 1.0) -> tuple[float, float, Rows]:
        """``mu log sum_y exp(psi / mu)``, the mean of psi, and the mean of its gradients."""
        psi = self._psi(self._scores(w, i), i)
        p, value = candidate_marginals(psi, mu)
        first, c = int(self.data.offsets[i]), self.weights[i]
        factors = c * p
        factors[self.truth[i]] -= c
        rows = np.arange(first, first + len(p))
        return value, float(p @ psi), stacked([self.data.features.combination(rows, factors)])

    @property
    def row_entries(self) -> float:
        """Estimate the entries of a row, which is the difference of two candidates."""
        return min(2 * self.data.features.row_entries, float(self.dimension))

    @cached_property
    def reach(self) -> Floats:
        """By weight: the sum of all candidates' |features|, twice."""
        each = np.repeat(self.weights, np.diff(self.data.offsets))
        return 2.0 * self.data.features.sizes(each)

    @property
    def roundings(self) -> float:
        """Also those of a sum over the candidates of an example."""
        return super().roundings + 2.0 * float(np.diff(self.data.offsets).max(initial=0))

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """Candidates (by a random projection), costs, truths and weights."""
        end = int(self.data.offsets[n])
        yield "features", self.data.offsets[: n + 1]
        probe = np.random.default_rng(0).normal(size=self.dimension)
        yield "features", self.data.features.scores(probe, 0, end)
        yield "labels", self.truth[:n]
        yield "weights", self.weights[:n]
        yield "costs", self.cost[:end]

    # ---- all examples at once

    def _pass(self, w: Floats) -> tuple[Floats, Floats]:
        """Loss of every example, and the weight of every candidate in the gradient."""
        offsets, sizes = self.data.offsets, np.diff(self.data.offsets)
        if self.n_examples == 0:
            return np.empty(0), np.empty(0)
        scores = self.model.potentials(w, self.data)
        psi = scores - np.repeat(scores[self.true_rows], sizes) + self.cost
        high = np.maximum.reduceat(psi, offsets[:-1])
        if self.loss == "log":
            mu = np.exp(psi - np.repeat(high, sizes))
            total = np.add.reduceat(mu, offsets[:-1])
            mu /= np.repeat(total, sizes)
            high = high + np.log(total)
        else:
            mu = np.zeros(len(psi))
            mu[offsets[:-1] + first_best(psi, offsets)] = 1.0
        mu[self.true_rows] -= 1.0
        return self.weights * high, mu * np.repeat(self.weights, sizes)

    def losses(self, w: Floats) -> Floats:
        """Exact loss of every example."""
        return self._pass(w)[0]

    def losses_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The weighted sum of the losses and a (sub)gradient."""
        losses, mu = self._pass(w)
        gradient = np.zeros(self.dimension)
        self.model.accumulate(mu, self.data, gradient)
        return float(losses.sum()), gradient
