"""What every answer of an oracle must satisfy, given the list of all labelings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import Reference
from strategies import Recipe

from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import Oracle
from cliquewise.oracles.results import MapResult

EPS = np.finfo(float).eps


def ask(graph: FactorGraph, question: str, method: str, k: int = 4, seed: int = 0) -> Any:
    if question == "top_k":
        return graph.top_k(k, method)
    if question == "sample":
        return graph.sample(8, random_state=seed, method=method)
    return getattr(graph, question)(method)


def bits(answer: Any) -> bytes:
    """All numbers of an answer, as bytes."""
    if isinstance(answer, list):
        return b"".join(bits(a) for a in answer)
    if isinstance(answer, np.ndarray):
        return answer.tobytes()
    if isinstance(answer, MapResult):
        return answer.labels.tobytes() + np.float64([answer.score, answer.upper_bound]).tobytes()
    factors = answer.factors.flat.tobytes() if hasattr(answer, "factors") else b""
    return answer.nodes.flat.tobytes() + factors + np.float64(answer.value).tobytes()


def close(a: Any, b: Any, scale: float, tolerance: float = 1e-9) -> bool:
    """Equal up to a tolerance relative to the size of the summands; infinities alike."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.shape != b.shape or np.any(np.isnan(a)) or np.any(np.isinf(a) != np.isinf(b)):
        return False
    finite = np.isfinite(a)
    return bool(np.all(a[~finite] == b[~finite])) and bool(
        np.all(np.abs(a[finite] - b[finite]) <= tolerance * scale)
    )


def check_labeling(result: MapResult, graph: FactorGraph, truth: Reference) -> None:
    labels = result.labels
    assert labels.shape == (graph.n_variables,)
    assert np.issubdtype(labels.dtype, np.integer)
    assert close(graph.score(labels), result.score, truth.scale)
    assert close(truth.joint[tuple(labels)], result.score, truth.scale)
    assert isinstance(result.exact, bool)
    assert result.gap >= 0.0


def check_map(oracle: Oracle, graph: FactorGraph, truth: Reference) -> None:
    try:
        result = graph.map(oracle.name)
    except UnsupportedError as error:  # a local search may end where everything is forbidden
        assert not oracle.exact and "found no labeling" in str(error)
        return
    slack = 1e-9 * truth.scale
    check_labeling(result, graph, truth)
    assert result.score <= truth.best + slack
    assert result.upper_bound >= truth.best - slack
    if oracle.exact:
        assert result.exact
        assert result.upper_bound <= truth.best + slack
    if result.exact:
        assert close(result.score, truth.best, truth.scale)


def check_marginals(oracle: Oracle, graph: FactorGraph, truth: Reference) -> None:
    result = graph.marginals(oracle.name)
    lower, upper = result.log_z_bounds
    slack = 1e-9 * truth.scale
    assert lower <= upper + slack
    assert not result.bounds_certified[0] or lower <= truth.log_z + slack
    assert not result.bounds_certified[1] or upper >= truth.log_z - slack
    if oracle.exact:
        assert result.exact
    if result.exact:
        assert close(result.log_z, truth.log_z, truth.scale)
        assert close(lower, truth.log_z, truth.scale) and close(upper, truth.log_z, truth.scale)
        assert close(result.nodes.flat, truth.node_marginals, 1.0)
        assert close(result.factors.flat, truth.factor_marginals, 1.0)
    check_consistent(result, graph, 1e-12 if result.exact else 1e-9, truth.scale)


def check_consistent(result: Any, graph: FactorGraph, tolerance: float, scale: float) -> None:
    """Each marginal sums to one, and a factor's agrees with those of its variables."""
    assert len(result.nodes) == graph.n_variables
    assert len(result.factors) == graph.n_factors
    # A log-potential of 1e4 is known to 1e-12 only, and its exponential inherits that.
    tolerance = max(tolerance, 2 * EPS * scale)
    assert np.all(result.nodes.flat >= 0.0) and np.all(result.factors.flat >= 0.0)
    for node in result.nodes:
        assert abs(node.sum() - 1.0) <= 1e-12
    for f, table in enumerate(result.factors):
        assert table.shape == graph.structure.shape(f)
        assert abs(table.sum() - 1.0) <= 1e-12
        for axis, v in enumerate(graph.structure.scope(f).tolist()):
            others = tuple(a for a in range(table.ndim) if a != axis)
            assert np.abs(table.sum(axis=others) - result.nodes[v]).max() <= tolerance


def check_max_marginals(oracle: Oracle, graph: FactorGraph, truth: Reference) -> None:
    result = graph.max_marginals(oracle.name)
    assert len(result.nodes) == graph.n_variables
    assert result.exact or not oracle.exact
    if result.exact:
        assert close(result.value, truth.best, truth.scale)
        assert close(result.nodes.flat, truth.node_max_marginals, truth.scale)


def check_top_k(oracle: Oracle, graph: FactorGraph, truth: Reference, k: int) -> None:
    results = graph.top_k(k, oracle.name)
    scores = [r.score for r in results]
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(r.labels.tolist()) for r in results}) == len(results)
    for result in results:
        check_labeling(result, graph, truth)
        assert result.score > -np.inf
    expected = truth.sorted_scores[:k]
    assert len(results) <= len(expected)
    if oracle.exact:
        assert all(r.exact for r in results)
        assert close(scores, expected, truth.scale)


def check_sample(oracle: Oracle, graph: FactorGraph, truth: Reference, seed: int) -> None:
    draws = graph.sample(6, random_state=seed, method=oracle.name)
    assert draws.shape == (6, graph.n_variables)
    assert np.issubdtype(draws.dtype, np.integer)
    assert np.all(graph.score(draws) > -np.inf)
    again = graph.sample(6, random_state=seed, method=oracle.name)
    assert np.array_equal(draws, again)
    assert graph.sample(0, random_state=seed, method=oracle.name).shape == (0, graph.n_variables)


def check_question(
    oracle: Oracle, question: str, graph: FactorGraph, truth: Reference, recipe: Recipe
) -> None:
    if not truth.feasible:
        check_infeasible(oracle, question, graph)
    elif question == "top_k":
        count = truth.joint.size
        check_top_k(oracle, graph, truth, (1, 3, 10, min(count, 60) + 5)[recipe.seed % 4])
    elif question == "sample":
        check_sample(oracle, graph, truth, recipe.seed)
    else:
        checks = {
            "map": check_map,
            "marginals": check_marginals,
            "max_marginals": check_max_marginals,
        }
        checks[question](oracle, graph, truth)


def check_infeasible(oracle: Oracle, question: str, graph: FactorGraph) -> None:
    """An exact oracle says that nothing is possible; another may say that it found nothing."""
    with pytest.raises((InfeasibleError, UnsupportedError)) as caught:
        ask(graph, question, oracle.name)
    if isinstance(caught.value, InfeasibleError):
        assert "probability zero" in str(caught.value)
    else:
        assert not oracle.exact and question == "map"
        assert "found no labeling" in str(caught.value)
