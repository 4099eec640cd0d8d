"""What visits of tokens and edges share in GDMM: counters, rules, messages.

The augmented Lagrangian (Eq. 12 of gdmm), with ``a`` for the masses of tokens, ``b`` for those of
edges and ``n = M b`` for the marginals of an edge:

    1/2 ||w(a, b)||^2 - sum of a over wrong labels + sum <lam, n - a> + rho/2 ||n - a||^2

A token's scores are ``<w, x> + cost + sum over its edges of m``, an edge's ``v - m - m`` with
``m = lam + rho (n - a)``; what is greatest is what the gradient falls along.
"""

from collections import namedtuple

from cliquewise._kernels import kernel
from cliquewise._kernels.gdmm.lists import LAM_LEFT, LEFT, MASS

#: Counts of an epoch: gaps of tokens (at searches) and edges, squared residual, squared change of
#: the tokens' masses, <m, n - a>, work (about nanoseconds), searches at tokens, 1 if a pool was too
#: small, squared masses of wrong labels, squared multipliers, mass of the tokens searched and of
#: the edges visited.
(
    GAP_NODES, GAP_EDGES, RESIDUAL, CHANGE, COUPLING, WORK, SEARCHES, FULL, SQUARES, LAMS,
    MASS_NODES, MASS_EDGES, N_STATS,
) = range(13)  # fmt: skip
#: Gaps and masses of tokens and of edges.
GAPS = (GAP_NODES, MASS_NODES), (GAP_EDGES, MASS_EDGES)

#: Settings of an epoch: penalty rho, step of the multipliers in units of it, step rule, factor
#: search, parts of the labels and which of them is read, labels that one search may add, and the
#: gaps per mass (tokens, edges) below which a factor rests.
Pass = namedtuple(
    "Pass", ["n_labels", "rho", "eta", "rule", "search", "groups", "salt", "admit", "quiet"]
)

#: Scratch for one visit. Tokens: ``scores`` of all labels, those of a part in single precision
#: (``values_f32``), the labels ``found``; then per label looked at its place, name, old mass,
#: score, curvature and new mass. Edges: ``messages`` and ``marks`` of both sides, the ``spans`` of
#: their lists, the ``stack`` of a search.
Desk = namedtuple(
    "Desk",
    ["scores", "values_f32", "found", "places", "names", "old", "score", "bend", "new",
     "messages", "marks", "spans", "stack"],
)  # fmt: skip

#: Step rules; LOOK measures the gap of a factor and moves nothing.
BLOCK, AWAY, GREEDY, LOOK = range(4)
#: Factor searches.
SUBLINEAR, WHOLE, SAMPLED = range(3)


@kernel(helper=True)
def message(cell, p, side, rho):
    """Message between a token and its left (0) or right (1) edge at one label."""
    return cell[p, LAM_LEFT + side] + rho * (cell[p, LEFT + side] - cell[p, MASS])
