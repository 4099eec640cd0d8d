"""Scores of any size, up to 1e300 and mixed in one graph, against exact arithmetic.

What is claimed must be true of the numbers as they are: an exact labeling is best up to the stated
rounding, a certified bound holds without any tolerance, and what float64 cannot hold is refused.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from exact_answers import ExactAnswers
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import FAMILIES, Recipe

from cliquewise.errors import GraphError, InfeasibleError, PrecisionError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import Oracle, registered
from cliquewise.oracles._rescaling import PLAIN, RESOLVED
from cliquewise.oracles.planner import why_not

SCALES = ("mixed", "one", "soft rules", "by table", "around the limit")
#: Labelings of a drawn graph at most, and graphs for each oracle.
SMALL, EXAMPLES = 100, 40
#: Barrier-FW is asked for a few calls: its bounds hold at every moment.
OPTIONS: dict[str, dict[str, Any]] = {"barrier-fw": {"max_calls": 6, "rho_updates": 1}}


def rescaled(graph: FactorGraph, mode: str, seed: int) -> FactorGraph:
    """The same structure and rules with numbers of other sizes."""
    rng = np.random.default_rng(seed)
    tables = np.array(graph.tables)
    possible = np.isfinite(tables)
    exponents = rng.uniform(-3.0, 299.0, tables.shape)
    if mode == "one":
        exponents[:] = rng.choice([15.0, 30.0, 100.0, 299.0])
    elif mode == "soft rules":
        far = rng.choice([9.0, 15.0, 30.0, 100.0, 299.0])
        exponents = np.where(rng.random(tables.shape) < 0.3, far, 0.0)
    elif mode == "by table":
        sizes = np.diff(graph.structure.table_offsets)
        exponents = np.repeat(rng.choice([-3, 0, 3, 15, 16, 30, 299], len(sizes)), sizes)
    elif mode == "around the limit":
        exponents = rng.uniform(5.0, 17.0, tables.shape)
    numbers = np.clip(rng.standard_normal(tables.shape), -9.0, 9.0) * 10.0**exponents
    if mode == "soft rules":
        numbers = np.where(exponents > 0, -np.abs(numbers), numbers)
    new = FactorGraph.from_structure(graph.structure, np.where(possible, numbers, -np.inf))
    return new.condition(graph.evidence) if graph.evidence else new


def check_map(oracle: Oracle, graph: FactorGraph, truth: ExactAnswers) -> None:
    result = graph.map(oracle.name)
    score = truth.scores[tuple(result.labels.tolist())]
    assert abs(Fraction(result.score) - score) <= Fraction(result.rounding)
    if result.exact:
        allowed = Fraction(result.rounding) + Fraction(2e-9) * _scale(graph, truth)
        assert truth.best - score <= allowed
    else:
        assert Fraction(result.upper_bound) >= truth.best
    if oracle.only_adds:
        assert result.exact and truth.best - score <= Fraction(1e-12) * _scale(graph, truth)


def check_top_k(oracle: Oracle, graph: FactorGraph, truth: ExactAnswers) -> None:
    results = graph.top_k(4, oracle.name)
    expected = sorted(truth.scores.values(), reverse=True)[:4]
    assert len(results) == len(expected)
    assert len({tuple(one.labels.tolist()) for one in results}) == len(results)
    for one, score in zip(results, expected, strict=True):
        loss = abs(score - truth.peaks) + _scale(graph, truth)
        if one.exact:
            found = truth.scores[tuple(one.labels.tolist())]
            assert abs(found - score) <= Fraction(one.rounding) + Fraction(1e-12) * loss


def check_max_marginals(oracle: Oracle, graph: FactorGraph, truth: ExactAnswers) -> None:
    result = graph.max_marginals(oracle.name)
    for found, score in zip(result.nodes.flat.tolist(), truth.max_marginals(), strict=True):
        if score is None:
            assert found == -np.inf
            continue
        loss = abs(score - truth.peaks) + _scale(graph, truth)
        error = Fraction(result.rounding) + Fraction(1e-12) * loss
        assert math.isfinite(found) and abs(Fraction(found) - score) <= error


def check_sample(oracle: Oracle, graph: FactorGraph, truth: ExactAnswers) -> None:
    for row in graph.sample(5, random_state=0, method=oracle.name).tolist():
        loss = truth.best - truth.scores[tuple(row)]  # a forbidden one has no score
        assert not oracle.exact or loss < 60


def check_marginals(oracle: Oracle, graph: FactorGraph, truth: ExactAnswers) -> None:
    result = graph.marginals(oracle.name, **OPTIONS.get(oracle.name, {}))
    (lower, upper), log_z = result.log_z_bounds, truth.log_z()
    assert all(math.isfinite(x) for x in (lower, upper, result.log_z))
    assert not result.bounds_certified[0] or Fraction(lower) <= log_z
    assert not result.bounds_certified[1] or Fraction(upper) >= log_z
    allowed = 1e-9 + 10 * min(result.rounding, 0.01)
    for v, node in enumerate(result.nodes):
        assert np.all(node >= 0.0) and abs(node.sum() - 1.0) <= 1e-9
        for f in np.flatnonzero(graph.structure.scopes == v).tolist():
            owner = int(np.searchsorted(graph.structure.scope_offsets, f, side="right")) - 1
            scope = graph.structure.scope(owner).tolist()
            others = tuple(axis for axis in range(len(scope)) if scope[axis] != v)
            assert np.abs(result.factors[owner].sum(axis=others) - node).max() <= allowed
    if result.exact:
        assert abs(Fraction(result.log_z) - log_z) <= Fraction(result.rounding)
        assert np.abs(result.nodes.flat - truth.nodes()).max(initial=0.0) <= allowed


def _scale(graph: FactorGraph, truth: ExactAnswers) -> Fraction:
    if graph.core.graph.largest > PLAIN:
        return truth.scale
    return Fraction(max(1.0, graph.core.graph.largest * graph.n_factors))


CHECKS = {
    "map": check_map,
    "top_k": check_top_k,
    "max_marginals": check_max_marginals,
    "sample": check_sample,
    "marginals": check_marginals,
}


def ask_and_check(oracle: Oracle, want: str, graph: FactorGraph, truth: ExactAnswers) -> None:
    try:
        CHECKS[want](oracle, graph, truth)
    except InfeasibleError:
        assert not truth.feasible
    except PrecisionError:
        assert want in ("marginals", "sample")
        assert truth.feasible and truth.scale > Fraction(RESOLVED / 2)
    except UnsupportedError as error:
        assert not oracle.exact or oracle.name in ("graph-cut", "bmmf")
        assert "found no labeling" in str(error) or oracle.name in ("graph-cut", "bmmf")
    else:
        assert truth.feasible


@pytest.mark.parametrize("name", [oracle.name for oracle in registered()])
def test_no_answer_claims_more_than_holds_whatever_the_size_of_the_scores(name: str) -> None:
    oracle = next(o for o in registered() if o.name == name)

    @settings(max_examples=EXAMPLES)
    @given(
        recipe=st.builds(
            Recipe,
            family=st.sampled_from(sorted(FAMILIES)),
            size=st.sampled_from((1, 2, 3, 4)),
            states=st.sampled_from((2, 3)),
            forbid=st.sampled_from(("nothing", "nothing", "some")),
            seed=st.integers(0, 999),
        ),
        mode=st.sampled_from(SCALES),
        seed=st.integers(0, 2**31),
    )
    def run(recipe: Recipe, mode: str, seed: int) -> None:
        graph = recipe.build()
        if np.prod(graph.cardinalities.astype(float)) > SMALL:
            return
        graph = rescaled(graph, mode, seed)
        asked = [q for q in oracle.provides if why_not(oracle, graph.core.graph, q) is None]
        if graph.core.constant == -np.inf or not asked:
            return
        truth = ExactAnswers(graph)
        for want in sorted(asked):
            ask_and_check(oracle, want, graph, truth)

    run()


# ---- one by one, what went wrong


@pytest.mark.parametrize("size", [1e15, 1e30, 1e100, 1e299])
def test_max_marginals_of_a_cut_are_right_at_any_size(size: float) -> None:
    attract = size * np.array([[0.5, 0.0], [0.0, 0.25]])
    unary = [((v,), size * np.array([0.0, 0.1 * (v - 1.5)])) for v in range(4)]
    ring = [((v, (v + 1) % 4), attract) for v in range(4)]
    graph = FactorGraph([2] * 4, [*unary, *ring])
    check_max_marginals(next(o for o in registered() if o.name == "graph-cut"), graph,
                        ExactAnswers(graph))  # fmt: skip


@pytest.mark.parametrize("method", ["chain", "tree", "junction-tree", "brute-force"])
@pytest.mark.parametrize("size", [1e15, 1e30, 1e100, 1e299])
def test_soft_rules_of_any_weight_leave_the_other_probabilities_alone(
    method: str, size: float
) -> None:
    rng = np.random.default_rng(0)
    nodes, links = rng.standard_normal((5, 3)), rng.standard_normal((4, 3, 3))
    links[:, 0, 1] = -size
    hard = np.where(links == -size, -np.inf, links)
    soft, ruled = (FactorGraph.chain(nodes, table) for table in (links, hard))
    got, expected = soft.marginals(method), ruled.marginals(method)
    assert got.log_z == pytest.approx(expected.log_z, abs=1e-12)
    assert np.abs(got.nodes.flat - expected.nodes.flat).max() <= 1e-12
    draws = soft.sample(50, random_state=0, method=method)
    assert np.isfinite(ruled.score(draws)).all()


@pytest.mark.parametrize("method", ["chain", "junction-tree", "trw-bp", "barrier-fw", "relaxed",
                                    "perturb-and-map"])  # fmt: skip
def test_probabilities_that_hang_on_lost_digits_are_rejected(method: str) -> None:
    against = FactorGraph([2, 2], [((0,), [0.0, 1e15]), ((0,), [1e15, 0.3]), ((0, 1), np.eye(2))])
    with pytest.raises(PrecisionError, match="1e\\+15 against the tables"):
        against.marginals(method)
    assert against.map().score == 1e15 + 1.3


def test_a_shift_of_all_scores_by_1e300_changes_no_probability() -> None:
    rng = np.random.default_rng(1)
    nodes, links = 4.0 * rng.integers(-2, 3, (3, 2)), 2.0 * rng.integers(-2, 3, (2, 2, 2))
    graph = FactorGraph.chain(nodes, links)
    # Where float64 has no digits for the differences they are gone before we see them; 1e15 has.
    shifted = FactorGraph.from_structure(graph.structure, graph.tables + 1e15)
    got, expected = shifted.marginals(), graph.marginals()
    assert np.abs(got.nodes.flat - expected.nodes.flat).max() <= 1e-12
    assert got.log_z == expected.log_z + 5e15
    big = FactorGraph.from_structure(graph.structure, np.full(len(graph.tables), 1e300))
    assert np.all(big.marginals().nodes.flat == 0.5)
    assert big.marginals().log_z == pytest.approx(5e300)


def test_sums_that_could_overflow_are_refused_where_the_graph_is_made() -> None:
    for number in (1e301, -1e301, np.inf, np.nan):
        with pytest.raises(GraphError, match="up to 1e\\+300, or -inf"):
            FactorGraph([2], [((0,), [0.0, number])])
    assert FactorGraph([2], [((0,), [-np.inf, -1e300])]).map().score == -1e300


@pytest.mark.parametrize("method", ["icm", "expansion", "trw-s", "portfolio"])
def test_a_search_that_finds_only_forbidden_labelings_says_so(method: str) -> None:
    apart = [[-np.inf, 0.0], [0.0, -np.inf]]
    triangle = FactorGraph([2] * 3, [((i, j), apart) for i, j in ((0, 1), (1, 2), (0, 2))])
    with pytest.raises(UnsupportedError, match=f"{method!r} found no labeling.*junction-tree"):
        triangle.map(method)


def test_an_answer_states_its_rounding() -> None:
    rng = np.random.default_rng(2)
    graph = FactorGraph.chain(rng.standard_normal((9, 3)), rng.standard_normal((8, 3, 3)))
    for answer in (graph.map(), graph.marginals(), graph.max_marginals(), graph.map("trw-s")):
        assert 0.0 < answer.rounding < 1e-10
    lower, upper = graph.marginals().log_z_bounds
    assert lower < graph.marginals().log_z < upper
