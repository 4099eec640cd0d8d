"""The best MAP labeling of several inexpensive methods, with the tightest of their bounds."""

from __future__ import annotations

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.batch_planner import quick_map
from cliquewise.oracles.planner import ask
from cliquewise.oracles.results import MapResult, tolerance


def best_map(graph: FactorGraph) -> MapResult:
    """Return the best labeling that TRW-S and expansion moves find on a pairwise graph.

    Methods run in order of cost, and the first proven labeling ends the search. Otherwise the
    result has the highest score and the lowest upper bound of all methods. So its score is never
    lower than the score of ``trw-s`` or ``expansion`` called by name.

    Examples
    --------
    >>> ring = [((v, (v + 1) % 4), [[0.0, 1.0], [2.0, 0.0]]) for v in range(4)]
    >>> answer = best_map(FactorGraph([2] * 4, ring))
    >>> answer.score, answer.exact
    (6.0, True)
    """
    first = quick_map(graph)
    if first.exact:
        return first
    found: list[MapResult] = [first]
    # From the best state of each variable, as by name; then from the labeling that the messages
    # suggest, which no move can make worse.
    found.append(ask(graph, "map", "expansion"))
    found.append(ask(graph, "map", "expansion", init=first.labels))
    best = max(found, key=lambda result: result.score)
    bound = min(result.upper_bound for result in found)
    steps = [(r.method, r.score, r.upper_bound) for r in found]
    return MapResult(
        best.labels,
        best.score,
        max(bound, best.score),
        bound - best.score <= tolerance(best.score, bound),
        best.method,
        {"steps": steps},
        best.rounding,
    )
