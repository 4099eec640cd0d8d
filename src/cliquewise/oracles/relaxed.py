"""Inference on the local polytope with a Gini entropy: what cliquewise training optimizes.

The same kernels as in training, with the weights held fixed: multipliers make the cliques of
each graph agree, and the gap between the messages' bound and the repaired beliefs says when.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.data.graphs import GraphDataset
from cliquewise.graph.factor_graph import Floats
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.ragged import first_best

#: Sweeps between two looks at the gap.
SWEEPS = 8


def relaxed_beliefs(
    model: PairwiseModel,
    data: GraphDataset,
    w: Floats,
    *,
    gamma: float = 1.0,
    entropy: str = "gini",
    epsilon: float = 0.9,
    tol: float = 1e-3,
    max_sweeps: int = 400,
    random_state: Any = 0,
) -> tuple[Floats, float]:
    """Node beliefs that maximize ``<theta(w), mu> + gamma H(mu)`` on the local polytope.

    Parameters
    ----------
    model, data, w
        Labels of the data are not looked at.
    gamma, entropy, epsilon
        As in training; ``gamma = 0`` is the linear programming relaxation of MAP.
    tol : float, default=1e-3
        Stop at this gap, relative to the sum of the absolute scores.
    max_sweeps : int, default=400

    Returns
    -------
    beliefs : flat array over the labels of all nodes
    gap : float
        The relative gap that was reached.

    Examples
    --------
    >>> data = GraphDataset.from_examples([([[1.0], [-1.0]], [(0, 1)])])
    >>> model = PairwiseModel([2], 1, intercept=False)
    >>> w = np.array([2.0, -2.0, 0.0, 0.0, 0.0, 0.0])
    >>> relaxed_beliefs(model, data, w)[0].round(2)
    array([0.99, 0.01, 0.01, 0.99])
    """
    from cliquewise._kernels.cliques.ascent import MultiplierStep, Tour, sweep
    from cliquewise._kernels.cliques.local_polytope import repair, upper_bound
    from cliquewise.solvers.idal import IDAL

    problem = _Fixed(model, data, w, gamma, entropy, epsilon)
    g, terms = problem.cliques, problem.terms
    states = int(g.offsets[data.n_nodes])
    if data.n_edges == 0 and gamma == 0:
        return _best_states(problem.potentials(w), g.offsets[: data.n_nodes + 1]), 0.0
    solver = IDAL(rho=problem.rho())
    state = solver.init(problem)
    state.point.w[:] = w
    rng = np.random.default_rng(random_state)
    scale = max(float(np.abs(problem.potentials(w)).sum()), 1e-12)
    repaired = np.empty_like(state.point.mu)
    gap, length = np.inf, 0.0
    examples = np.arange(len(data))
    tour = Tour(data.node_offsets, data.edge_offsets, examples, state.order, state.place)
    for done in range(1, max_sweeps + 1):
        sweep(
            g, terms, state.point, state.rho, state.steps, 0, state.gaps, tour, 1.0,
            MultiplierStep(length, 0.0, state.previous), rng.integers(0, 2**63, 1, dtype=np.uint64),
        )  # fmt: skip
        length = 1.0 / state.rho
        if done % SWEEPS == 0 or done == max_sweeps:
            upper, _, _ = upper_bound(g, terms, state.point, state.rho)
            repair(g, state.point.mu, repaired)
            gap = (upper - problem.reward(repaired)) / scale
            if gap <= tol:
                break
    if not np.isfinite(gap):
        repaired = state.point.mu
    return repaired[:states].copy(), float(gap)


def _best_states(scores: Floats, offsets: Any) -> Floats:
    out = np.zeros(int(offsets[-1]))
    out[offsets[:-1] + first_best(scores[: len(out)], offsets)] = 1.0
    return out


class _Fixed(GraphProblem):
    """The inner maximum alone: C = 0 keeps the weights where they are."""

    def __init__(
        self, model: PairwiseModel, data: GraphDataset, w: Floats, gamma: float, entropy: str,
        epsilon: float,
    ):  # fmt: skip
        unlabeled = data.with_labels(np.zeros(data.n_nodes, dtype=np.int64))
        super().__init__(
            model, unlabeled, 1.0, "log", gamma if gamma > 0 else 1.0, entropy, epsilon
        )
        self.gamma, self.C, self.w = float(gamma), 0.0, w

    @property
    def lam(self) -> float:
        """No penalty."""
        return 0.0

    def reward(self, mu: Floats) -> float:
        """Value of consistent beliefs, relative to the first labels as the bound is."""
        from cliquewise._kernels.cliques.local_polytope import entropy

        scores = self.potentials(self.w)
        spread = float(entropy(self.cliques, self.terms, mu))
        return float(scores @ (mu - self.truth)) + self.gamma * spread

    def rho(self) -> float:
        """Balance the penalty with the entropy; without one, with the size of the scores."""
        k = float(np.max(self.model.cardinalities, initial=1))
        size = float(np.abs(self.potentials(self.w)).mean()) if self.n_cliques else 1.0
        return k / max(2.0 * self.gamma * float(self.terms.curvature.mean()), size, 1e-3)
