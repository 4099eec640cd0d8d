"""Probabilities of labeled spans in a chain.

A span (start, end, type) is there if the label at ``start`` is of the type and does not continue
the one before it, each label up to ``end`` continues the one before, and the label at ``end`` (if
there is one) does not. Which label continues which is a list of pairs, so all labelings that have
the span are a product over positions: with the marginals of edges

    starts[t, b] = P(y_t = b, b does not continue y_{t-1})
    steps[t, p]  = P(y_{t+1} = b | y_t = a)    of the p-th continuing pair (a, b)
    stops[t, a]  = P(y_{t+1} does not continue a | y_t = a)

a span's probability is a sum over paths of ``starts``, ``steps`` and ``stops``. All are sums of
terms that are not negative: small probabilities have small relative errors.

The probability that a span of a type continues only shrinks as the span gets longer. So the search
for all spans above a probability stops once it falls below, and misses none.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.chain.log_domain import forward_backward_log
from cliquewise._kernels.chain.sums import (
    edge_marginals,
    edge_rows,
    longest,
    prepare_transitions,
    scaled_passes,
    transition_tables,
    workspace,
)

#: Continuing pairs of labels (sources, targets) and labels, both type by type.
SpanRules = namedtuple("SpanRules", ["sources", "targets", "pair_offsets", "labels", "offsets"])
#: Spans: the chain of each, its first position, the one after its last, its type.
Spans = namedtuple("Spans", ["chains", "starts", "ends", "types", "probabilities"])
#: Starts, steps and stops of one chain, and scratch.
Room = namedtuple("Room", ["starts", "steps", "stops", "edges", "now", "later", "tables", "work"])

#: Rounding of products of conditional probabilities stays below this share of them.
SLACK = 1e-9


@kernel(inline=True)
def _room(length, n_labels, n_pairs, like):
    return Room(
        np.empty((length, n_labels)), np.empty((length, n_pairs)), np.empty((length, n_labels)),
        np.empty((1, n_labels, n_labels)), np.zeros(n_labels), np.zeros(n_labels),
        transition_tables(n_labels, like), workspace(length, n_labels, like),
    )  # fmt: skip


@kernel(helper=True, fastmath=REASSOCIATE)
def _take_apart(edge, t, rules, room):
    """Compute the steps and stops of position t and the starts of t + 1 from edge marginals."""
    n_labels = edge.shape[0]
    steps, stops, starts, total = room.steps[t], room.stops[t], room.starts[t + 1], room.now
    for p in range(rules.sources.shape[0]):
        a, b = rules.sources[p], rules.targets[p]
        steps[p] = edge[a, b]
        edge[a, b] = 0.0
    for b in range(n_labels):
        starts[b] = 0.0
    for a in range(n_labels):
        others = 0.0
        for b in range(n_labels):
            others += edge[a, b]
        for b in range(n_labels):
            starts[b] += edge[a, b]
        stops[a] = others
        total[a] = others
    for p in range(rules.sources.shape[0]):
        total[rules.sources[p]] += steps[p]
    for a in range(n_labels):
        stops[a] = stops[a] / total[a] if total[a] > 0.0 else 0.0
    for p in range(rules.sources.shape[0]):
        whole = total[rules.sources[p]]
        steps[p] = steps[p] / whole if whole > 0.0 else 0.0


@kernel(helper=True)
def _fill(nodes, trans, rules, room):
    """Fill the starts, steps and stops of one chain of at least one position; return log Z."""
    length, n_labels = nodes.shape
    # The first row of starts is that of the marginals; the others are written over.
    marginals = room.starts[:length]
    log_z = scaled_passes(nodes, trans, room.tables, marginals, room.edges[:0], room.work)
    if log_z == -np.inf:
        return log_z
    if np.isnan(log_z):
        edges = np.empty((length - 1, n_labels, n_labels))
        log_z = forward_backward_log(
            nodes, trans, room.tables, marginals, edges, room.edges[0][:0], room.work
        )
        for t in range(length - 1):
            _take_apart(edges[t], t, rules, room)
    else:
        for t in range(length - 1):
            edge_marginals(trans, room.tables, room.work, length, t, room.edges)
            _take_apart(room.edges[0], t, rules, room)
    for a in range(n_labels):
        room.stops[length - 1, a] = 1.0
    return log_z


@kernel(helper=True)
def _begin(t, kind, rules, room):
    """Return P(a span of the type begins at t); its labels' shares go to ``now``."""
    mass = 0.0
    for at in range(rules.offsets[kind], rules.offsets[kind + 1]):
        label = rules.labels[at]
        room.now[label] = room.starts[t, label]
        mass += room.now[label]
    return mass


@kernel(helper=True)
def _go_on(t, kind, rules, room):
    """Extend a span by one token, from t to t + 1; return the probability of what began."""
    first, last = rules.offsets[kind], rules.offsets[kind + 1]
    for at in range(first, last):
        room.later[rules.labels[at]] = 0.0
    for p in range(rules.pair_offsets[kind], rules.pair_offsets[kind + 1]):
        room.later[rules.targets[p]] += room.now[rules.sources[p]] * room.steps[t, p]
    mass = 0.0
    for at in range(first, last):
        label = rules.labels[at]
        room.now[label] = room.later[label]
        mass += room.now[label]
    return mass


@kernel(helper=True)
def _end(t, kind, rules, room):
    """Return P(the span that began ends with t)."""
    total = 0.0
    for at in range(rules.offsets[kind], rules.offsets[kind + 1]):
        label = rules.labels[at]
        total += room.now[label] * room.stops[t, label]
    return min(total, 1.0)


@kernel
def batch_span_probabilities(nodes, offsets, trans, rules, spans, log_z):
    """Compute the probabilities of given spans of many chains.

    Parameters
    ----------
    nodes, offsets, trans, log_z
        As in `batch_forward_backward`.
    rules : SpanRules
    spans : Spans
        In the order of their chains; positions count from the first of all chains.
        ``probabilities`` is overwritten.
    """
    n_labels = nodes.shape[1]
    room = _room(longest(offsets), n_labels, rules.sources.shape[0], nodes)
    prepare_transitions(trans, room.tables)
    start, at = 0, 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        own = edge_rows(trans, start, last - first)
        start += max(last - first - 1, 0)
        log_z[s] = 0.0
        if at == spans.chains.shape[0] or spans.chains[at] != s:
            continue
        if trans.shape[0] != 1:
            prepare_transitions(own, room.tables)
        log_z[s] = _fill(nodes[first:last], own, rules, room)
        while at < spans.chains.shape[0] and spans.chains[at] == s:
            kind, end = spans.types[at], spans.ends[at] - first
            if log_z[s] > -np.inf:
                _begin(spans.starts[at] - first, kind, rules, room)
                for t in range(spans.starts[at] - first, end - 1):
                    _go_on(t, kind, rules, room)
                spans.probabilities[at] = _end(end - 1, kind, rules, room)
            at += 1


@kernel(helper=True)
def _search(first, length, s, least, rules, room, spans, count):
    """Write the spans of one chain from place ``count`` on; return the place after the last."""
    for start in range(length):
        for kind in range(rules.offsets.shape[0] - 1):
            mass = _begin(start, kind, rules, room)
            t = start
            while mass > 0.0 and mass * (1.0 + SLACK) >= least:
                probability = _end(t, kind, rules, room)
                if probability >= least and probability > 0.0:
                    if count < spans.chains.shape[0]:
                        spans.chains[count], spans.types[count] = s, kind
                        spans.starts[count], spans.ends[count] = first + start, first + t + 1
                        spans.probabilities[count] = probability
                    count += 1
                if t + 1 == length:
                    break
                mass = _go_on(t, kind, rules, room)
                t += 1
    return count


@kernel
def batch_spans_above(nodes, offsets, trans, rules, least, spans, log_z):
    """Find all spans of many chains whose probability is at least ``least``.

    Parameters
    ----------
    nodes, offsets, trans, rules, log_z
        As in `batch_span_probabilities`.
    least : array (chains,)
        What a span of each chain must have; above 1 the chain is passed over.
    spans : Spans
        Space for the expected number of spans; overwritten.

    Returns
    -------
    int
        Number of spans. If it exceeds the space, the last ones were not written.
    """
    n_labels = nodes.shape[1]
    room = _room(longest(offsets), n_labels, rules.sources.shape[0], nodes)
    prepare_transitions(trans, room.tables)
    start, count = 0, 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        own = edge_rows(trans, start, last - first)
        start += max(last - first - 1, 0)
        log_z[s] = 0.0
        if last == first or least[s] > 1.0:
            continue
        if trans.shape[0] != 1:
            prepare_transitions(own, room.tables)
        log_z[s] = _fill(nodes[first:last], own, rules, room)
        if log_z[s] > -np.inf:
            count = _search(first, last - first, s, least[s], rules, room, spans, count)
    return count
