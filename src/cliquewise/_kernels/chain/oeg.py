"""Online exponentiated gradient on chains (Collins et al. 2008): whole passes in one call.

A step of length eta along the exponentiated gradient of the dual takes the scores theta of an
example's distribution to ``theta + eta (s - theta)``, where s are the scores under the present
weights: `sdca` moves along the same path. What differs is how long a step is. Here every example
has its own length, which is halved until the dual does not fall, and grows a little after
every step. That needs one inference and not two, for the marginals at s are never asked for.
"""

from __future__ import annotations

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.features import assign_slots, node_scores, shrunk_transitions
from cliquewise._kernels.chain.sdca import ascend, block_of, dot_difference, make_room

#: No step is shorter.
LEAST = 1e-12


@kernel(inline=True)
def _along(room, block):
    """Return <s - theta, mu>, the slope of log Z along the path from theta to s."""
    edges, mu_edges = room.trans.ravel(), block.mu_edges
    x, _ = dot_difference(room.scores, block.theta, block.mu, block.mu)
    y, _ = dot_difference(edges, block.theta_edges, mu_edges, mu_edges)
    return x + y


@kernel
def epoch(chains, duals, steps, w, strength, growth, order):
    """Visit examples, one step each.

    Parameters
    ----------
    chains, duals, w, strength
        See `sdca.epoch`.
    steps : array
        Length of the next step of every example, at most 1; changed in place.
    growth : float
        Factor of that after a step.
    order : int array
        Examples to visit.

    Returns
    -------
    calls : int
        Inferences made.
    """
    room, calls = make_room(chains, w), 0
    for i in order:
        block, weight = block_of(chains, duals, i), chains.weights[i]
        first, last = block.first, block.last
        if first == last or weight == 0.0:
            duals.gaps[i] = 0.0
            continue
        shape = last - first, room.trans.shape[0]
        node_scores(chains, w, first, last, room.scores[: block.mu.size].reshape(shape))
        shrunk_transitions(chains, w, room.trans.ravel())
        count, used = assign_slots(chains, first, last, room.compact)
        before, slope = duals.log_z[i], _along(room, block)
        tries = ascend(
            chains, duals, i, block, w, room, count, used, slope, steps[i], weight * strength, 0.0
        )
        calls += tries
        eta = max(steps[i] * 0.5 ** (tries - 1), LEAST)
        steps[i] = min(growth * eta, 1.0)
        # The gap before the step is A(s) - A(theta) - slope. The log partition A beyond the step
        # goes on as it began, to second order.
        rest = _along(room, block)
        gap = duals.log_z[i] + rest - before - slope
        if eta < 1.0:
            gap += 0.5 * (1.0 - eta) * (rest - (1.0 - eta) * slope) / eta
        duals.gaps[i] = weight * max(gap, 0.0)
    return calls
