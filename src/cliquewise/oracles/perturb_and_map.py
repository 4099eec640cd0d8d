"""Perturb-and-MAP: draws as the best labelings of randomly perturbed graphs.

Gumbel noise on every labeling would make the draws exact and the mean of the maxima log Z.
Noise on the states of single variables is what one can afford: the draws are approximate, and
the mean of the maxima is, in expectation, an upper bound (Hazan and Jaakkola 2012).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._trw import log_sum_of
from cliquewise.oracles.base import ESTIMATE, Limits, Oracle, Question, Verdict
from cliquewise.oracles.batch_planner import repeated_map
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, MarginalResult
from cliquewise.ragged import Floats, Ints


@register
class PerturbAndMAP(Oracle):
    """Perturb-and-MAP: marginals and draws from the best labelings of perturbed graphs."""

    name = "perturb-and-map"
    provides: ClassVar[frozenset[Question]] = frozenset({"marginals", "sample"})
    exact = False
    guarantee = ESTIMATE
    rank = 300

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Accept every graph; the cost is that of the MAP calls."""
        return Verdict.accept(math.inf, 16.0 * graph.structure.table_offsets[-1])

    def marginals(
        self,
        graph: FactorGraph,
        n_samples: int = 100,
        map_method: str = "auto",
        random_state: Any = 0,
    ) -> MarginalResult:
        """Frequencies among the draws, and the mean of the perturbed maxima.

        Parameters
        ----------
        graph : FactorGraph
        n_samples : int, default=100
            MAP calls.
        map_method : str, default="auto"
        random_state : int or Generator, default=0

        Returns
        -------
        MarginalResult
            ``log_z`` is the mean of the perturbed maxima: its expectation is an upper bound,
            the mean itself only an estimate of one (``bounds_certified`` says so). The lower
            bound sums over the labelings drawn, and is certified.

        Examples
        --------
        >>> from cliquewise.graph.builders import complete
        >>> import numpy as np
        >>> g = complete(np.zeros((3, 2)), [[1.0, 0.0], [0.0, 1.0]])
        >>> round(float(g.marginals("perturb-and-map").nodes[0].sum()), 12)
        1.0
        """
        if n_samples < 1:
            raise UnsupportedError(f"n_samples = {n_samples}; it must be at least 1")
        rng = np.random.default_rng(random_state)
        rows, maxima = draw(graph, n_samples, rng, map_method)
        s = graph.structure
        nodes = np.zeros(int(s.node_offsets[-1]))
        np.add.at(nodes, s.node_offsets[:-1] + rows, 1.0 / n_samples)
        factors = np.zeros(int(s.table_offsets[-1]))
        for entries in graph._entries(rows):
            np.add.at(factors, entries, 1.0 / n_samples)
        lower = log_sum_of([float(v) for v in graph.score(np.unique(rows, axis=0))])
        estimate = max(float(maxima.mean()), lower)
        spread = float(maxima.std(ddof=1)) / math.sqrt(n_samples) if n_samples > 1 else math.inf
        more = {
            "bounds_certified": (True, False),
            "info": {"map_calls": n_samples, "standard_error": spread},
        }
        return MarginalResult.from_flat(
            graph, nodes, factors, estimate, self.name, (lower, estimate), **more
        )

    def sample(
        self,
        graph: FactorGraph,
        n: int,
        rng: np.random.Generator,
        map_method: str = "auto",
    ) -> Ints:
        """Best labelings of ``n`` perturbed graphs, one per row."""
        return draw(graph, n, rng, map_method)[0]


def draw(
    graph: FactorGraph, n: int, rng: np.random.Generator, map_method: str = "auto"
) -> tuple[Ints, Floats]:
    """Best labelings of perturbed graphs, and their perturbed scores.

    Every state of every variable gets independent Gumbel noise of mean zero.
    """
    s = graph.structure
    rows = np.zeros((n, s.n_variables), dtype=np.int64)
    maxima = np.zeros(n)
    for k in range(n):
        noise = rng.gumbel(-np.euler_gamma, 1.0, int(s.node_offsets[-1]))
        perturbed = FactorGraph.from_structure(s.with_unaries, np.append(graph.tables, noise))
        answer = _best(perturbed, map_method)
        if answer.score == -math.inf:
            if answer.exact:
                raise InfeasibleError(INFEASIBLE)
            raise UnsupportedError(
                f"{answer.method} found no labeling of positive probability; name an exact "
                "map_method (junction-tree, toulbar2)"
            )
        rows[k], maxima[k] = answer.labels, answer.score
    return rows, maxima


def _best(graph: FactorGraph, map_method: str) -> MapResult:
    if map_method == "auto" and graph.structure.is_pairwise:
        oracle = repeated_map(graph.structure)
        if oracle is not None:
            return oracle.map(graph)
    return graph.map(map_method)
