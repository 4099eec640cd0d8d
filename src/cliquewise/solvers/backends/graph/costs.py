"""What training on graphs costs: whole graphs example by example, or clique by clique.

Seconds of one core, rounded from measurements; only their ratios count. Passes are those to a gap
of 1e-3 on problems of all sizes, within a factor of three.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.graph.structure import Structure
from cliquewise.oracles.batch_planner import elimination_entries

#: A question about a graph, whatever its size.
CALL = 5e-4
#: A table entry: read by TRW-S until it ends; filled by elimination, for marginals.
MESSAGES, SUM = 4e-7, 18e-9
#: A table entry in a cliquewise pass, and a feature of a state.
ENTRY, FEATURE = 3e-7, 6e-9
#: An entry of an output that exchanges weight with others between two calls.
OUTPUT = 3e-7
#: Passes of cliquewise training, of BCFW, and evaluations of L-BFGS.
CLIQUEWISE = {"log": 150, "softmax_margin": 150, "hinge": 700}
BCFW, LBFGS = 30, 60
#: What whole graphs may cost, relative to cliques: exact probabilities are worth the double, and
#: the exchange of outputs has the least certain estimate.
WORTH = {"log": 2.0, "hinge": 0.5}


def prefers_cliques(problem: Any) -> bool:
    """Whether a graph problem is better trained clique by clique than by asking whole graphs."""
    if problem.loss == "softmax_margin":
        return True  # no solver of whole graphs is quick
    if problem.loss == "log" and problem.forest is not None:
        return False  # a pass over all trees costs less than one over their cliques
    limit = WORTH[problem.loss] * _cliques(problem)
    passes, cost = (BCFW, _maximum) if problem.loss == "hinge" else (LBFGS, _marginals)
    spent = passes * CALL * problem.n_examples
    if problem.loss == "hinge":
        spent += passes * OUTPUT * problem.row_entries * problem.n_examples
    if spent > limit:
        return True  # without a look at the structures
    for structure in problem.structures:
        spent += passes * cost(structure)
        if spent > limit:
            return True
    return False


def _cliques(problem: Any) -> float:
    g = problem.cliques
    states = np.diff(g.offsets)
    features = float(states @ np.diff(g.indptr)[g.row])
    return CLIQUEWISE[str(problem.loss)] * (ENTRY * float(states.sum()) + FEATURE * features)


def _maximum(structure: Structure) -> float:
    """MAP; elimination is planned only where it costs even less than messages."""
    return MESSAGES * float(structure.table_offsets[-1])


def _marginals(structure: Structure) -> float:
    """Exact marginals."""
    operations = float(structure.table_offsets[-1])
    if not structure.is_forest:
        operations += elimination_entries(structure)
    return SUM * operations
