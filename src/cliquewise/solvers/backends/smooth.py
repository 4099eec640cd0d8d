"""What SVRG and Casimir ask of a problem: full gradients, and epochs of steps between them.

A backend keeps the weights in the form that suits it, and the distributions over outputs at the
anchor, the point of the last full gradient: a step then needs one oracle call, not two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.examples import ExampleProblem
from cliquewise.problems.graph import GraphProblem
from cliquewise.smoothers import get_smoother

#: Amounts of smoothing below this count as none.
LEAST = 1e-12

#: Most work (tokens times squared labels) in one call of a kernel: about two seconds.
WORK = 400_000_000


@dataclass
class Pass:
    """What a full gradient found; means over the examples, weighted with c_i.

    The distributions u_i behind it are a point of the dual: ``cost - ||gradient||^2 / (2 lam)``
    is a lower bound of the objective with the hinge loss, and with ``cost - omega`` for ``cost``
    of that with the smoothed one.
    """

    loss: float
    cost: float  # expected task loss
    omega: float  # mu omega(u): never positive
    gradient: Floats
    calls: int
    exact: float  # share of the calls whose k outputs gave what all would


class Backend(Protocol):
    """A problem as these solvers see it."""

    def zeros(self) -> Floats:
        """A vector of weights, in the backend's own form."""

    def full_gradient(self, w: Floats, mu: float) -> Pass:
        """The mean gradient of the smoothed losses at ``w``, which becomes the anchor."""

    def epoch(
        self, w: Floats, c: Floats, mu: float, order: Ints, step: float, shrink: float,
        average: bool,
    ) -> tuple[Floats, int]:  # fmt: skip
        """Steps on the examples of ``order``; the last iterate or their average, and calls."""

    def kind(self, mu: float) -> str:
        """What a call asks for: ``max``, ``top_k`` or ``exp``."""

    @property
    def truth_cost(self) -> float:
        """Mean cost of the true outputs: with all mass there, the dual point of zero weights."""

    def forget(self) -> None:
        """Make the truth the anchor, with gradients of zero: steps are then plain ones."""

    def smooth_loss(self, w: Floats, mu: float) -> float:
        """Mean of the smoothed losses."""

    def losses(self, w: Floats) -> Floats:
        """The losses that the problem is about, without smoothing of the solver's own."""

    @property
    def curvature(self) -> float:
        """Squared norm by which gradients may differ where mass moves between neighbors."""

    def unpacked(self, w: Floats) -> Floats:
        """The weights in the problem's form."""

    def packed(self, w: Floats) -> Floats:
        """Back from :meth:`unpacked`."""


def kind_of_call(smoother: str, k: int, mu: float) -> str:
    """What an oracle is asked for: ``max``, ``top_k`` or ``exp``.

    Examples
    --------
    >>> kind_of_call("l2", 5, 1.0), kind_of_call("l2", 5, 0.0), kind_of_call("entropy", 5, 1.0)
    ('top_k', 'max', 'exp')
    """
    if mu == 0 or (smoother != "entropy" and k == 1):
        return "max"
    return "exp" if smoother == "entropy" else "top_k"


class ChainBackend:
    """Chains: everything in kernels, full gradients in ``n_jobs`` threads."""

    truth_cost = 0.0

    def __init__(self, problem: ChainProblem, smoother: str, k: int):
        from cliquewise._kernels.chain.smooth import Anchor

        self.problem, self.form, self.chains = problem, problem.form, problem.chains
        n, labels = problem.n_examples, problem.model.n_labels
        self.k = 0 if smoother == "entropy" else k
        entropy, tokens = self.k == 0, problem.data.n_tokens
        self.anchor = Anchor(
            np.zeros((0 if entropy else tokens, self.k), dtype=np.int32),
            np.zeros((0 if entropy else n, self.k)),
            np.zeros((tokens if entropy else 0, labels)),
            np.zeros((n if entropy else 0, labels, labels)),
        )

    def _k(self, mu: float) -> int:
        """Labelings to ask for: without smoothing, one."""
        return self.k if mu > 0 else 1

    def kind(self, mu: float) -> str:
        return kind_of_call("l2" if self.k else "entropy", self.k, mu)

    def _sparse_anchor(self, mu: float) -> Any:
        """Room for labelings where the smoothing has vanished, but was an entropy."""
        if mu == 0 and self.k == 0 and not len(self.anchor.shares):
            n, tokens = self.problem.n_examples, self.problem.data.n_tokens
            self.anchor = self.anchor._replace(
                labels=np.zeros((tokens, 1), dtype=np.int32), shares=np.zeros((n, 1))
            )
        return self.anchor

    def zeros(self) -> Floats:
        return self.form.zeros()

    def full_gradient(self, w: Floats, mu: float) -> Pass:
        from cliquewise._kernels.chain.smooth import full_gradient

        problem, k, anchor = self.problem, self._k(mu), self._sparse_anchor(mu)
        parts: dict[int, tuple[Floats, Any]] = {}

        def part(first: int, last: int) -> None:
            out = self.zeros()
            parts[first] = out, full_gradient(self.chains, w, mu, k, anchor, first, last, out)

        problem.over_examples(part)
        # In the order of the examples, whichever thread was first: the same bits every time.
        results = [parts[first] for first in sorted(parts)]
        n = max(problem.n_examples, 1)
        gradient = results[0][0]
        for out, _ in results[1:]:
            gradient += out
        gradient /= n
        loss, cost, omega, calls, exact = np.sum([totals for _, totals in results], axis=0)
        share = exact / calls if calls else 1.0
        return Pass(loss / n, cost / n, omega / n, gradient, int(calls), share)

    def epoch(
        self, w: Floats, c: Floats, mu: float, order: Ints, step: float, shrink: float,
        average: bool,
    ) -> tuple[Floats, int]:  # fmt: skip
        from cliquewise._kernels.chain.smooth import svrg_epoch

        n = max(len(order), 1)
        work = self.problem.data.n_tokens * self.problem.model.n_labels**2
        pieces = min(n, 1 + int(work // WORK))
        # The scale falls by ``shrink`` a step, and must not vanish within one call.
        count = min(-(-n // pieces), max(1, int(200 / max(-np.log(max(shrink, 1e-80)), 1e-300))))
        calls, total = 0, np.zeros_like(w)
        sums = np.zeros_like(w) if average else np.empty(0)
        for at in range(0, len(order), count):
            visits = order[at : at + count]
            v = w - c
            sums[:] = 0.0
            asked, scale, scales = svrg_epoch(
                self.chains, c, v, sums, mu, self._k(mu), self.anchor, visits, step, shrink
            )
            calls += asked
            if average:
                total += len(visits) * c + scales * v - sums
            w = c + scale * v
        return (total / n if average and len(order) else w), calls

    def forget(self) -> None:
        problem, anchor, chains = self.problem, self._sparse_anchor(0.0), self.chains
        if len(anchor.shares):
            anchor.shares[:] = 0.0
            anchor.shares[:, 0] = 1.0
            anchor.labels[:, 0] = chains.labels
        if len(anchor.nodes):
            anchor.nodes[:] = 0.0
            anchor.nodes[np.arange(len(chains.labels)), chains.labels] = 1.0
            anchor.edges[:] = 0.0
            inside = np.ones(len(chains.labels), dtype=bool)
            inside[chains.offsets[:-1][problem.data.lengths > 0]] = False
            at = np.flatnonzero(inside)
            example = np.repeat(np.arange(problem.n_examples), problem.data.lengths)[at]
            np.add.at(anchor.edges, (example, chains.labels[at - 1], chains.labels[at]), 1.0)

    def smooth_loss(self, w: Floats, mu: float) -> float:
        from cliquewise._kernels.chain.smooth import smooth_losses

        problem, out = self.problem, np.zeros(self.problem.n_examples)

        def part(first: int, last: int) -> None:
            smooth_losses(self.chains, w, mu, self._k(mu), first, last, out)

        problem.over_examples(part)
        return float(problem.chains.weights @ out) / max(problem.n_examples, 1)

    def losses(self, w: Floats) -> Floats:
        return self.problem.packed_losses(w)

    @cached_property
    def curvature(self) -> float:
        chains = self.chains
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


class ExampleBackend:
    """Any problem that answers for one example at a time; the same formulas, in numpy."""

    truth_cost = 0.0

    def __init__(self, problem: ExampleProblem, smoother: str, k: int):
        self.problem, self.k = problem, k
        self.smoother = get_smoother(smoother)
        self.anchor: list[tuple[Floats, Any]] = []

    def zeros(self) -> Floats:
        return np.zeros(self.problem.dimension)

    def _k(self, mu: float) -> int:
        return self.k if mu > 0 else 1

    def kind(self, mu: float) -> str:
        return kind_of_call("l2", self.k, mu)

    def full_gradient(self, w: Floats, mu: float) -> Pass:
        n, k = self.problem.n_examples, self._k(mu)
        found = self.problem.top_k_all(w, k + 1 if mu > 0 else k)
        loss = cost = omega = 0.0
        exact, gradient, self.anchor = 0, self.zeros(), []
        for psi, rows in found:
            best = psi[:k]
            u = self.smoother.gradient(best, mu)
            loss += self.smoother.value(best, mu)
            omega += mu * self.smoother.omega(u)
            cost += float(u @ (best - rows.dot(w)[:k]))
            exact += _is_exact(self.smoother, psi, k, mu)
            _add_rows(gradient, rows, u, 1.0)
            self.anchor.append((u, rows))
        n = max(n, 1)
        share = exact / n if found else 1.0
        return Pass(loss / n, cost / n, omega / n, gradient / n, len(found), share)

    def epoch(
        self, w: Floats, c: Floats, mu: float, order: Ints, step: float, shrink: float,
        average: bool,
    ) -> tuple[Floats, int]:  # fmt: skip
        w, k, total = w.copy(), self._k(mu), self.zeros()
        for i in order.tolist():
            psi, rows = self.problem.top_k(w, i, k)
            u = self.smoother.gradient(psi[:k], mu)
            w += (1.0 - shrink) * (c - w)
            _add_rows(w, rows, u, -step)
            _add_rows(w, self.anchor[i][1], self.anchor[i][0], step)
            if average:
                total += w
        return (total / len(order) if average and len(order) else w), len(order)

    def forget(self) -> None:
        self.anchor = [(np.empty(0), None)] * self.problem.n_examples

    def smooth_loss(self, w: Floats, mu: float) -> float:
        k = self._k(mu)
        found = self.problem.top_k_all(w, k)
        return sum(self.smoother.value(psi, mu) for psi, _ in found) / max(len(found), 1)

    def losses(self, w: Floats) -> Floats:
        return self.problem.losses(w)

    @cached_property
    def curvature(self) -> float:
        """The mean over some examples of the greatest squared norm among a few outputs."""
        n = self.problem.n_examples
        some = range(0, n, max(1, n // 50))
        norms = []
        for i in some:
            _, rows = self.problem.top_k(self.zeros(), i, max(self.k, 2))
            squares = np.append(rows.values**2, 0.0)
            sums = np.add.reduceat(squares, rows.indptr[:-1]) * (np.diff(rows.indptr) > 0)
            norms.append(sums.max(initial=0.0))
        return float(np.mean(norms)) if norms else 0.0

    def unpacked(self, w: Floats) -> Floats:
        return w.copy()

    packed = unpacked


def _is_exact(smoother: Any, psi: Floats, k: int, mu: float) -> bool:
    if len(psi) <= k or mu == 0 or smoother.name == "none":
        return True
    return smoother.name == "l2" and bool(smoother.is_exact(psi[:k], float(psi[k]), mu))


def _add_rows(out: Floats, rows: Any, u: Floats, factor: float) -> None:
    for r in np.flatnonzero(u):
        rows.add_to(out, int(r), factor * float(u[r]))


def backend_of(problem: Any, smoother: str, k: int) -> Backend:
    """The backend that suits a problem."""
    if isinstance(problem, ChainProblem):
        outputs = problem.model.n_labels ** float(min(problem.data.lengths.max(initial=1), 60))
        return ChainBackend(problem, smoother, int(min(k, max(outputs, 1))))
    if isinstance(problem, GraphProblem):
        from cliquewise.solvers.backends.smooth_graphs import GraphBackend

        return GraphBackend(problem, smoother, k)
    return ExampleBackend(problem, smoother, k)
