"""Every registered oracle against a list of all labelings.

Nothing here names an oracle that has to pass: they are found through the registry, and
the families of graphs that each accepts are found by asking it. A new oracle is tried as
soon as its file exists.
"""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from reference import Reference
from scipy.stats import chi2
from strategies import FAMILIES, Recipe, recipes

from cliquewise.errors import InfeasibleError, TooLargeError, UnsupportedError
from cliquewise.graph import FactorGraph
from cliquewise.oracles import Oracle, get, registered
from cliquewise.oracles.base import QUESTIONS, MapResult

#: Drawn graphs per oracle are this many times the hypothesis profile's own number:
#: 2,000 under ``ci``.
EXAMPLES_FACTOR = 20

#: Oracles that cost milliseconds per call, with the share of the examples that they get.
FEWER_EXAMPLES = {
    "milp": (0.1, "HiGHS builds and solves an integer program per question"),
    "toulbar2": (0.1, "every question starts an external solver"),
    "portfolio": (0.1, "runs several of the others"),
    "barrier-fw": (0.1, "makes hundreds of MAP calls per question"),
}

ORACLES = [oracle.name for oracle in registered()]
EPS = np.finfo(float).eps


# ---- what an oracle can be asked


@cache
def accepted_families(name: str) -> tuple[str, ...]:
    """Families of which the oracle accepts at least one graph, for at least one question."""
    oracle = get(name)
    accepted = []
    for family in FAMILIES:
        probes = (Recipe(family, size, states) for size in (1, 4) for states in (2, 3))
        if any(questions(oracle, probe.build()) for probe in probes):
            accepted.append(family)
    return tuple(accepted)


def questions(oracle: Oracle, graph: FactorGraph) -> list[str]:
    return [q for q in QUESTIONS if oracle.refusal(graph.core.graph, q) is None]


def families_or_skip(name: str) -> tuple[str, ...]:
    families = accepted_families(name)
    if not families:
        reason = get(name).refusal(Recipe("chain").build(), "map") or ""
        if "install" in reason:
            pytest.skip(f"{name} {reason}")
        pytest.fail(f"{name} accepts no drawn graph: add a family to strategies.py that it takes")
    return families


def examples_for(name: str, factor: float = EXAMPLES_FACTOR) -> int:
    share, _ = FEWER_EXAMPLES.get(name, (1.0, ""))
    return max(10, int(settings().max_examples * factor * share))


def each_graph(name: str, check: Any, factor: float = EXAMPLES_FACTOR) -> int:
    """Run ``check(oracle, recipe)`` on drawn graphs; how many had a question to ask."""
    families, asked = families_or_skip(name), 0

    @settings(max_examples=examples_for(name, factor))
    @given(recipe=recipes(families))
    def run(recipe: Recipe) -> None:
        nonlocal asked
        asked += bool(check(get(name), recipe))

    run()
    return asked


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


# ---- what an answer must satisfy


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
    result = graph.map(oracle.name)
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
    """An exact oracle says that nothing is possible; another may only fail to find it."""
    try:
        answer = ask(graph, question, oracle.name)
    except InfeasibleError as error:
        assert "probability zero" in str(error)
        return
    assert not oracle.exact, "an exact method must raise InfeasibleError"
    assert question == "map" and answer.score == -np.inf and not answer.exact


# ---- the tests


@pytest.mark.parametrize("name", ORACLES)
def test_every_answer_agrees_with_the_list_of_all_labelings(name: str) -> None:
    def check(oracle: Oracle, recipe: Recipe) -> bool:
        graph = recipe.build()
        truth = Reference(graph)
        asked = questions(oracle, graph)
        for question in asked:
            check_question(oracle, question, graph, truth, recipe)
        return bool(asked)

    asked = each_graph(name, check)
    assert asked >= examples_for(name) / 4, f"only {asked} graphs were accepted"


@pytest.mark.parametrize("name", ORACLES)
def test_a_refused_graph_is_an_error_that_says_why(name: str) -> None:
    oracle = get(name)

    @settings(max_examples=settings().max_examples)
    @given(recipe=recipes())
    def run(recipe: Recipe) -> None:
        graph = recipe.build()
        for question in QUESTIONS:
            reason = oracle.refusal(graph.core.graph, question)
            if reason is None:
                continue
            assert isinstance(reason, str) and len(reason) > 5
            assert not oracle.accepts(graph.core.graph.structure, question) or (
                oracle.refuses_tables(graph.core.graph, question) == reason
            )
            if graph.core.constant == -np.inf:
                continue
            with pytest.raises((UnsupportedError, TooLargeError), match=name) as caught:
                ask(graph, question, name)
            assert reason in str(caught.value)

    run()


@pytest.mark.parametrize("name", ORACLES)
def test_the_same_question_twice_gives_the_same_bits(name: str) -> None:
    def check(oracle: Oracle, recipe: Recipe) -> bool:
        first, second = recipe.build(), pickle.loads(pickle.dumps(recipe.build()))
        if not Reference(first).feasible:
            return False
        for question in questions(oracle, first):
            answer = bits(ask(first, question, name))
            assert answer == bits(ask(first, question, name))
            assert answer == bits(ask(second, question, name))
        return True

    each_graph(name, check, factor=0.5)


@pytest.mark.parametrize("name", ORACLES)
def test_graphs_that_share_a_structure_do_not_share_answers(name: str) -> None:
    def check(oracle: Oracle, recipe: Recipe) -> bool:
        graph = recipe.build()
        if not Reference(graph).feasible:
            return False
        for question in questions(oracle, graph):
            ask(graph, question, name)
        # Same sign pattern of second differences, so that submodular stays submodular.
        shifted = FactorGraph.from_structure(graph.structure, graph.tables * 2.0 + 0.25)
        shifted = shifted.condition(graph.evidence) if graph.evidence else shifted
        truth = Reference(shifted)
        for question in questions(oracle, shifted):
            check_question(oracle, question, shifted, truth, recipe)
        return True

    each_graph(name, check, factor=0.5)


@pytest.mark.parametrize("name", ORACLES)
def test_evidence_fixes_variables_and_contradictions_are_noticed(name: str) -> None:
    def check(oracle: Oracle, recipe: Recipe) -> bool:
        graph = recipe.build()
        truth = Reference(graph)
        if not truth.feasible or graph.n_variables == 0:
            return False
        variable = recipe.seed % graph.n_variables
        for state in range(int(graph.cardinalities[variable])):
            if graph.evidence.get(variable, state) != state:
                continue
            observed = graph.condition({variable: state})
            seen = Reference(observed)
            for question in questions(oracle, observed):
                check_question(oracle, question, observed, seen, recipe)
        return True

    each_graph(name, check, factor=0.5)


@pytest.mark.parametrize("name", ORACLES)
def test_all_variables_observed_leaves_one_labeling(name: str) -> None:
    oracle = get(name)
    graph = Recipe("chain", 3, 2, seed=3).build().condition({0: 1, 1: 0, 2: 1})
    for question in questions(oracle, graph):
        answer = ask(graph, question, name)
        if question == "map":
            assert answer.labels.tolist() == [1, 0, 1]
            assert answer.score == pytest.approx(graph.score([1, 0, 1]))
        elif question == "top_k":
            assert [a.labels.tolist() for a in answer] == [[1, 0, 1]]
        elif question == "sample":
            assert answer.tolist() == [[1, 0, 1]] * 8
        elif question == "marginals":
            assert answer.log_z == pytest.approx(graph.score([1, 0, 1]))
            assert answer.nodes.flat.tolist() == [0, 1, 1, 0, 0, 1]


@pytest.mark.parametrize("name", ORACLES)
def test_answers_survive_pickling_and_copying(name: str) -> None:
    oracle = get(name)
    graph = Recipe(families_or_skip(name)[0], 4, 2, seed=5).build()
    for question in questions(oracle, graph):
        answer = ask(graph, question, name)
        assert bits(pickle.loads(pickle.dumps(answer))) == bits(answer)
        assert bits(copy.deepcopy(answer)) == bits(answer)


@pytest.mark.parametrize("name", ORACLES)
def test_four_threads_get_the_answer_of_one(name: str) -> None:
    oracle = get(name)
    for family in families_or_skip(name):
        recipe = Recipe(family, 6, 2, seed=11)
        graph = recipe.build()
        asked = questions(oracle, graph)
        expected = [bits(ask(recipe.build(), q, name)) for q in asked]
        together = Barrier(4)

        def work(graph=graph, asked=asked, together=together) -> list[bytes]:
            together.wait()
            return [bits(ask(graph, q, name)) for q in asked]

        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(work) for _ in range(4)]:
                assert future.result() == expected


def _samplers() -> list[str]:
    return [o.name for o in registered() if o.exact and "sample" in o.provides]


@pytest.mark.parametrize("name", _samplers())
def test_draws_are_independent_and_follow_the_distribution(name: str) -> None:
    """Pearson's test of the draws, and of pairs of successive ones; 20,000 draws, p > 1e-4."""
    tried = 0
    for family in families_or_skip(name):
        graph = Recipe(family, 3, 2, seed=8, forbid="some").build()
        truth = Reference(graph)
        if not truth.feasible or "sample" not in questions(get(name), graph):
            continue
        tried += 1
        shape = tuple(graph.cardinalities)
        p = truth.probabilities.ravel()
        draws = graph.sample(20_000, random_state=1, method=name)
        cells = np.ravel_multi_index(tuple(draws.T), shape) if shape else np.zeros(20_000, int)
        _assert_fits(np.bincount(cells, minlength=p.size), p, family)
        if p.size <= 32:
            pairs = cells[0::2] * p.size + cells[1::2]
            both = np.outer(p, p).ravel()
            _assert_fits(np.bincount(pairs, minlength=both.size), both, family)
        other = graph.sample(20_000, random_state=2, method=name)
        assert np.count_nonzero(p > 1e-3) == 1 or not np.array_equal(draws, other)
    assert tried


def _assert_fits(counts: np.ndarray, p: np.ndarray, family: str) -> None:
    n = counts.sum()
    assert not counts[p == 0.0].any()
    rare = p * n < 8
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(p[~rare], p[rare].sum()) * n
    used = expected > 0.5
    statistic = float(((observed - expected)[used] ** 2 / expected[used]).sum())
    freedom = max(int(used.sum()) - 1, 1)
    assert chi2.sf(statistic, freedom) > 1e-4, (family, statistic, freedom)


def test_brute_force_lists_graphs_of_more_than_64_variables() -> None:
    """NumPy's arrays end at 64 axes; a labeling may be longer where most have one state."""
    graph = FactorGraph([1] * 70 + [2], [((70,), [0.0, 1.0])])
    for name in ORACLES:
        if "map" in questions(get(name), graph):
            assert graph.map(name).labels.tolist() == [0] * 70 + [1]


def test_the_families_contain_every_shape_that_the_suite_promises() -> None:
    """The families really contain the cases that their names promise."""
    graphs = {
        family: [Recipe(family, n, k, seed=s).build() for n in (2, 5) for k in (1, 3) for s in (0, 1)]
        for family in FAMILIES
    }
    assert all(g.structure.path is not None for g in graphs["chain"] + graphs["shuffled_chain"])
    assert all(g.structure.is_forest for g in graphs["forest"] + graphs["repeated_scopes"])
    assert not any(g.structure.is_forest for g in graphs["cycle"] + graphs["grid"])
    assert any(g.structure.max_order >= 3 for g in graphs["higher_order"])
    assert all(g.structure.components[0] >= 3 for g in graphs["disconnected"])
    assert all(g.n_variables == 0 for g in graphs["no_variable"])
    assert all(g.n_factors == 0 for g in graphs["no_factor"])
    assert all(Reference(g).joint.size <= 3000 for several in graphs.values() for g in several)
    assert any((g.cardinalities == 1).any() for g in graphs["forest"])
