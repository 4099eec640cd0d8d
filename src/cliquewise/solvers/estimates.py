"""Estimated CPU seconds of training to a relative gap of 1e-3, for the planner.

All constants are rounded measurements on one core; only their ratios matter. On chains, passes
are those of 1,500 sentences of CoNLL-2000 at ``C=0.5``, and include the cost of the solver's own
updates in units of one pass of marginal inference. On graphs they hold for problems of all sizes
within a factor of three. No estimate (NaN) means that the planner falls back to
``Capabilities.rank``.
"""

from __future__ import annotations

import numpy as np

from cliquewise.graph.structure import Structure
from cliquewise.oracles.batch_planner import elimination_entries
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.graph import GraphProblem

# ---- chains

#: Passes to a gap of 1e-3, by loss and solver.
CHAIN_PASSES: dict[str, dict[str, float]] = {
    "log": {"sdca": 18, "oeg": 21, "lbfgs": 65, "sag": 65, "owlqn": 84},
    "softmax_margin": {"sdca": 20, "lbfgs": 87, "owlqn": 110},
    "smooth_hinge": {"lbfgs": 78, "casimir": 82, "svrg": 110},
}
#: Seconds of marginal inference per token and pair of labels, and per attribute and label.
PAIR_SECONDS, ATTRIBUTE_SECONDS = 1e-9, 1e-9

# ---- graphs

#: Seconds of a call of an oracle, regardless of the size of the graph.
CALL_SECONDS = 5e-4
#: Seconds per table entry: of TRW-S until it stops, and of elimination for marginals.
TRW_SECONDS, MARGINAL_SECONDS = 4e-7, 18e-9
#: Seconds per table entry and per feature of a state in a pass over cliques.
ENTRY_SECONDS, FEATURE_SECONDS = 3e-7, 6e-9
#: Seconds per entry of an output that exchanges mass with others between two oracle calls.
OUTPUT_SECONDS = 3e-7
#: Passes over cliques by loss; passes of BCFW; evaluations of L-BFGS.
CLIQUE_PASSES = {"log": 150, "softmax_margin": 150, "hinge": 700}
BCFW_PASSES, LBFGS_PASSES = 30, 60
#: Time that exact training may take relative to training clique by clique: exact marginals are
#: worth twice the time; the estimate of the hinge loss, with its working sets, is the least
#: certain.
EXACT_WORTH = {"log": 2.0, "hinge": 0.5}
#: The clique solver that is preferred for each loss.
CLIQUE_SOLVERS = {"log": "idal", "softmax_margin": "idal", "hinge": "relaxed_lbfgs"}
#: The solver that is preferred where whole graphs are affordable.
EXACT_SOLVERS = {"log": "lbfgs", "hinge": "bcfw"}


def estimated_seconds(name: str, problem: Problem) -> float:
    """Return the estimated CPU seconds that a solver needs; NaN if there is no estimate."""
    if isinstance(problem, ChainProblem):
        return _chain_seconds(name, problem)
    if isinstance(problem, GraphProblem):
        return _graph_seconds(name, problem)
    return np.nan


def _chain_seconds(name: str, problem: ChainProblem) -> float:
    k = problem.model.n_labels
    passes = CHAIN_PASSES.get(problem.loss, {}).get(name, np.nan)
    work = PAIR_SECONDS * problem.data.n_tokens * k**2
    return passes * (work + ATTRIBUTE_SECONDS * len(problem.chains.indices) * k)


def _graph_seconds(name: str, problem: GraphProblem) -> float:
    if name == CLIQUE_SOLVERS[problem.loss]:
        return clique_seconds(problem)
    if name == EXACT_SOLVERS.get(problem.loss):
        if problem.loss == "log" and problem.forest is not None:
            return 0.0  # a pass over all trees costs less than one over their cliques
        limit = EXACT_WORTH[problem.loss] * clique_seconds(problem)
        return exact_seconds(problem, limit) / EXACT_WORTH[problem.loss]
    return np.nan


def clique_seconds(problem: GraphProblem) -> float:
    """Return the seconds of training clique by clique."""
    g = problem.cliques
    states = np.diff(g.offsets)
    features = float(states @ np.diff(g.indptr)[g.row])
    each = ENTRY_SECONDS * float(states.sum()) + FEATURE_SECONDS * features
    return CLIQUE_PASSES[problem.loss] * each


def exact_seconds(problem: GraphProblem, limit: float) -> float:
    """Return the seconds of training by inference in whole graphs.

    Beyond ``limit`` the estimate ends early: analyzing more structures would only take time.
    """
    hinge = problem.loss == "hinge"
    passes, cost = (BCFW_PASSES, _map_seconds) if hinge else (LBFGS_PASSES, _marginal_seconds)
    seconds = passes * CALL_SECONDS * problem.n_examples
    if hinge:
        seconds += passes * OUTPUT_SECONDS * problem.row_entries * problem.n_examples
    if seconds > limit:
        return seconds
    for structure in problem.structures:
        seconds += passes * cost(structure)
        if seconds > limit:
            break
    return seconds


def _map_seconds(structure: Structure) -> float:
    """Return the seconds of MAP; elimination is used only where it costs less than messages."""
    return TRW_SECONDS * float(structure.table_offsets[-1])


def _marginal_seconds(structure: Structure) -> float:
    """Return the seconds of exact marginals."""
    operations = float(structure.table_offsets[-1])
    if not structure.is_forest:
        operations += elimination_entries(structure)
    return MARGINAL_SECONDS * operations
