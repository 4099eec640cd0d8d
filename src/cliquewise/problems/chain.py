"""Problem: the regularized objective of one data set. Only it knows the objective.

    P(w) = lam / 2 ||w||^2 + 1/n sum_i c_i loss_i(w),   lam = 1 / (C n)

Values are per example; ``C`` multiplies the sum of the losses, as in scikit-learn.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.graph.factor_graph import Floats
from cliquewise.models.chain import ChainModel, Mask

#: The losses of chains.
LOSSES = ("log", "hinge", "smooth_hinge")


class ChainProblem:
    """Likelihood or structured hinge loss of chains, with an L2 penalty.

    Parameters
    ----------
    model : ChainModel
    data : Dataset
        With labels; -1 where a label is not known.
    C : float, default=1.0
        Weight of the sum of the losses against ``1/2 ||w||^2``; infinity leaves the penalty
        out, which only solver ``casimir`` accepts.
    partial : bool array (tokens, K), optional
        For tokens whose label is not known: what it may be. Such losses are not convex.
    n_jobs : int, default=1
        Threads for passes over all examples.
    loss : {"log", "hinge", "smooth_hinge"}, default="log"
        ``hinge`` is ``max_y [Hamming(y, y_i) + <w, F(x_i, y) - F(x_i, y_i)>]``, the number of
        wrong labels not divided by the length; ``smooth_hinge`` smooths that maximum.
    gamma : float, default=1.0
        Amount of smoothing of ``smooth_hinge``.
    smoother : {"l2", "entropy"}, default="l2"
        ``l2``: over distributions of at most ``top`` labelings; ``entropy``: over all.
    top : int, default=5
    """

    def __init__(
        self,
        model: ChainModel,
        data: Dataset,
        C: float = 1.0,
        partial: Mask | None = None,
        n_jobs: int = 1,
        loss: str = "log",
        gamma: float = 1.0,
        smoother: str = "l2",
        top: int = 5,
    ):
        if loss not in LOSSES:
            raise UnsupportedError(
                f"loss {loss!r} is not available for chains; the losses are: {', '.join(LOSSES)}"
            )
        if not C > 0:
            raise DataError(f"C = {C}; it must be positive (or infinite: no penalty)")
        if loss == "smooth_hinge":
            _check_smoothing(gamma, smoother, top)
        if data.labels is None:
            raise DataError("training needs labels")
        self.model = model
        self.data = data
        self.C = float(C)
        self.n_jobs = n_jobs
        self.partial = partial
        self.form = model.form(data)
        self.chains = self.form.chains
        self.loss = loss
        self.gamma, self.smoother, self.top = float(gamma), smoother, int(top)
        self._check_truth()
        self.edge_chains: Any = None
        if model.n_edge_attributes:
            if data.edges is None:
                raise DataError("the model has attributes of token pairs; the data have none")
            self.edge_chains = self.form.edge_chains
        if loss != "log" and not self.is_convex:
            raise UnsupportedError(
                f'loss "{loss}" needs every label to be known; loss "log" accepts partial labels'
            )

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.data)

    @property
    def lam(self) -> float:
        """Weight of the penalty in the per-example objective."""
        return 1.0 / (self.C * max(self.n_examples, 1))

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return self.model.dimension

    @cached_property
    def is_convex(self) -> bool:
        """Whether every label is known."""
        return bool(np.all(self.chains.labels >= 0))

    def _check_truth(self) -> None:
        """The given labels must be possible under the model's own constraints."""
        labels, allowed = self.chains.labels, self.chains.allowed
        known = np.flatnonzero(labels >= 0)
        if len(allowed):
            bad = known[~allowed[known, labels[known]]]
            if len(bad):
                raise DataError(
                    f"{self.data.place(int(bad[0]))}: its label (number {labels[bad[0]]}) is not "
                    "allowed there by the transition scheme or the allowed labels; convert the "
                    'labels or use transitions="all"'
                )
        edges = self.model.edge_allowed
        if len(edges):
            inside = np.ones(len(labels), dtype=bool)
            inside[self.data.offsets[:-1][self.data.lengths > 0]] = False
            at = np.flatnonzero(inside)
            at = at[(labels[at] >= 0) & (labels[at - 1] >= 0)]
            bad = at[~edges[labels[at - 1], labels[at]]]
            if len(bad):
                raise DataError(
                    f"{self.data.place(int(bad[0]))}: label number {labels[bad[0]]} follows "
                    f"{labels[bad[0] - 1]}, which the transition scheme forbids; convert the "
                    'labels or use transitions="all"'
                )

    # ---- values

    def value(self, penalty_norm: float, total_loss: float) -> float:
        """The objective from ``||w||^2`` and the weighted sum of the losses."""
        return 0.5 * self.lam * penalty_norm + total_loss / max(self.n_examples, 1)

    def losses(self, w: Floats) -> Floats:
        """Loss of every example (all labels known)."""
        return self.packed_losses(self.form.pack(w))

    def packed_losses(self, w: Floats) -> Floats:
        """:meth:`losses` for a solver that keeps its weights packed."""
        from cliquewise._kernels.chain import hinge, sdca, smooth

        out = np.zeros(self.n_examples)

        def part(first: int, last: int) -> None:
            if self.loss == "smooth_hinge":
                smooth.smooth_losses(self.chains, w, self.gamma, self._outputs, first, last, out)
            elif self.loss == "hinge":
                hinge.losses(self.chains, w, first, last, out)
            else:
                sdca.losses(self.chains, w, first, last, out)

        self.over_examples(part)
        return out

    def packed_primal(self, w: Floats) -> float:
        """:meth:`primal` for a solver that keeps its weights packed."""
        total = float(self.chains.weights @ self.packed_losses(w))
        return self.value(float(w @ w), total)

    @property
    def _outputs(self) -> int:
        """Labelings that share the smoothed maximum; 0 for all of them."""
        return 0 if self.smoother == "entropy" else self.top

    def primal(self, w: Floats) -> float:
        """The objective."""
        if not self.is_convex or self.edge_chains is not None:
            return self.primal_and_gradient(w)[0]
        return self.value(float(w @ w), float(self.chains.weights @ self.losses(w)))

    def primal_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The objective and its gradient (of the hinge loss: a subgradient)."""
        from cliquewise._kernels.chain import edges as chain_edges
        from cliquewise._kernels.chain.gradient import gradient
        from cliquewise._kernels.chain.hinge import subgradient
        from cliquewise._kernels.chain.smooth import full_gradient, no_anchor

        form, chains, packed = self.form, self.chains, self.form.pack(w)
        partial = self.partial
        if partial is None:
            partial = np.empty((0, self.model.n_labels), dtype=bool)
        parts: dict[int, tuple[float, Floats]] = {}

        def part(first: int, last: int) -> None:
            out = form.zeros()
            if self.loss == "hinge":
                loss = subgradient(chains, packed, first, last, out)
            elif self.loss == "smooth_hinge":
                smooth = self.gamma, self._outputs, no_anchor(self.model.n_labels)
                loss = full_gradient(chains, packed, *smooth, first, last, out).loss
            elif self.edge_chains is not None:
                loss = chain_edges.gradient(
                    chains, self.edge_chains, partial, packed, first, last, out
                )
            else:
                loss = gradient(chains, partial, packed, first, last, out)
            parts[first] = loss, form.unpack(out)

        self.over_examples(part)
        n, total = max(self.n_examples, 1), 0.0
        grad = self.lam * w
        # In the order of the examples, whichever thread was first: the same bits every time.
        for first in sorted(parts):
            total += parts[first][0]
            grad += parts[first][1] / n
        return self.value(float(w @ w), total), grad

    def certificate(self, w: Floats) -> Certificate:
        """Primal and dual at ``w``: strong convexity gives ``P* >= P - ||grad||^2 / (2 lam)``.

        That is the dual value of the distributions ``p(. | x_i; w)``, or of the labelings
        that a subgradient of the hinge loss is made of: true, but very loose.
        """
        value, grad = self.primal_and_gradient(w)
        if not self.is_convex:
            return Certificate(value)
        if self.lam == 0:
            return Certificate(value, 0.0, "exact")  # no loss is negative
        return Certificate(value, value - float(grad @ grad) / (2 * self.lam), "exact")

    def over_examples(self, part: Any) -> None:
        """Run ``part(first, last)`` over all examples, in ``n_jobs`` threads of equal tokens."""
        n, jobs = self.n_examples, max(1, self.n_jobs)
        if jobs == 1 or n < 2 * jobs:
            part(0, n)
            return
        marks = np.linspace(0, self.data.n_tokens, jobs + 1)
        cuts = np.searchsorted(self.data.offsets, marks)
        cuts[0], cuts[-1] = 0, n
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(part, cuts[:-1].tolist(), cuts[1:].tolist()))


def _check_smoothing(gamma: float, smoother: str, top: int) -> None:
    if not (np.isfinite(gamma) and gamma > 0):
        raise DataError(f'gamma = {gamma}; it must be positive (loss="hinge" has none)')
    if smoother not in ("l2", "entropy"):
        raise DataError(f"smoother is l2 or entropy, not {smoother!r}")
    if top < 1:
        raise DataError(f"top = {top}; at least one labeling is needed")
