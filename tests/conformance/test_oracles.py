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
from oracle_checks import ask, bits, check_question
from reference import Reference
from scipy.stats import chi2
from strategies import FAMILIES, Recipe, recipes

from cliquewise.errors import TooLargeError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import Oracle, registered
from cliquewise.oracles.base import QUESTIONS
from cliquewise.oracles.planner import find_method, method_names, why_not

#: Drawn graphs per oracle are this many times the hypothesis profile's own number:
#: 360 under ``ci``, always the same; the fuzzer draws new ones.
EXAMPLES_FACTOR = 6

#: Oracles that cost milliseconds per call, with the share of the examples that they get.
FEWER_EXAMPLES = {
    "toulbar2": (0.1, "every question starts an external solver"),
    "barrier-fw": (0.1, "makes hundreds of MAP calls per question"),
    "anytime": (0.1, "asks the others, which are tried themselves"),
    "cutset": (0.3, "asks the junction tree, which is tried itself"),
    "sparse": (0.1, "plans every graph anew; its own tests draw two hundred graphs"),
    "mini-buckets": (0.2, "eliminates over and over; its own tests draw two hundred graphs"),
    "gibbs": (0.2, "draws every variable thousands of times"),
    "perturb-and-map": (0.3, "makes a hundred MAP calls per question"),
}

METHODS = method_names()


# ---- what an oracle can be asked


@cache
def accepted_families(name: str) -> tuple[str, ...]:
    """Families of which the oracle accepts at least one graph, for at least one question."""
    oracle = find_method(name)
    accepted = []
    for family in FAMILIES:
        probes = (Recipe(family, size, states) for size in (1, 4) for states in (2, 3))
        if any(questions(oracle, probe.build()) for probe in probes):
            accepted.append(family)
    return tuple(accepted)


def questions(oracle: Oracle, graph: FactorGraph) -> list[str]:
    return [q for q in QUESTIONS if why_not(oracle, graph.core.graph, q) is None]


def families_or_skip(name: str) -> tuple[str, ...]:
    families = accepted_families(name)
    if not families:
        reason = why_not(find_method(name), Recipe("chain").build(), "map") or ""
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
        asked += bool(check(find_method(name), recipe))

    run()
    return asked


# ---- the tests


@pytest.mark.parametrize("name", METHODS)
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


@pytest.mark.parametrize("name", METHODS)
def test_a_refused_graph_is_an_error_that_says_why(name: str) -> None:
    oracle = find_method(name)

    @settings(max_examples=settings().max_examples)
    @given(recipe=recipes())
    def run(recipe: Recipe) -> None:
        graph = recipe.build()
        for question in QUESTIONS:
            reason = why_not(oracle, graph.core.graph, question)
            if reason is None:
                continue
            assert " " in reason and not reason.endswith(".")  # it ends a sentence of ours
            if graph.core.constant == -np.inf:
                continue
            with pytest.raises((UnsupportedError, TooLargeError), match=name) as caught:
                ask(graph, question, name)
            assert reason in str(caught.value)

    run()


def outcome(graph: FactorGraph, question: str, name: str) -> bytes:
    """The bits of an answer, or what a search says that has found forbidden labelings only."""
    try:
        return bits(ask(graph, question, name))
    except UnsupportedError as error:
        assert "no labeling of positive probability" in str(error)
        return str(error).encode()


@pytest.mark.parametrize("name", METHODS)
def test_the_same_question_twice_gives_the_same_bits(name: str) -> None:
    def check(oracle: Oracle, recipe: Recipe) -> bool:
        first, second = recipe.build(), pickle.loads(pickle.dumps(recipe.build()))
        if not Reference(first).feasible:
            return False
        for question in questions(oracle, first):
            answer = outcome(first, question, name)
            assert answer == outcome(first, question, name)
            assert answer == outcome(second, question, name)
        return True

    each_graph(name, check, factor=0.5)


@pytest.mark.parametrize("name", METHODS)
def test_graphs_that_share_a_structure_do_not_share_answers(name: str) -> None:
    def check(oracle: Oracle, recipe: Recipe) -> bool:
        graph = recipe.build()
        if not Reference(graph).feasible:
            return False
        for question in questions(oracle, graph):
            outcome(graph, question, name)
        # Same sign pattern of second differences, so that submodular stays submodular.
        shifted = FactorGraph.from_structure(graph.structure, graph.tables * 2.0 + 0.25)
        shifted = shifted.condition(graph.evidence) if graph.evidence else shifted
        truth = Reference(shifted)
        for question in questions(oracle, shifted):
            check_question(oracle, question, shifted, truth, recipe)
        return True

    each_graph(name, check, factor=0.5)


@pytest.mark.parametrize("name", METHODS)
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


@pytest.mark.parametrize("name", METHODS)
def test_all_variables_observed_leaves_one_labeling(name: str) -> None:
    oracle = find_method(name)
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


@pytest.mark.parametrize("name", METHODS)
def test_answers_survive_pickling_and_copying(name: str) -> None:
    oracle = find_method(name)
    graph = Recipe(families_or_skip(name)[0], 4, 2, seed=5).build()
    for question in questions(oracle, graph):
        answer = ask(graph, question, name)
        assert bits(pickle.loads(pickle.dumps(answer))) == bits(answer)
        assert bits(copy.deepcopy(answer)) == bits(answer)


@pytest.mark.parametrize("name", METHODS)
def test_four_threads_give_the_same_answer_as_one(name: str) -> None:
    oracle = find_method(name)
    for family in families_or_skip(name):
        recipe = Recipe(family, 6, 2, seed=11)
        graph = recipe.build()
        asked = questions(oracle, graph)
        expected = [outcome(recipe.build(), q, name) for q in asked]
        together = Barrier(4)

        def work(graph=graph, asked=asked, together=together) -> list[bytes]:
            together.wait()
            return [outcome(graph, q, name) for q in asked]

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
        if not truth.feasible or "sample" not in questions(find_method(name), graph):
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


@pytest.mark.parametrize("name", METHODS)
def test_more_variables_than_numpy_has_axes_are_handled(name: str) -> None:
    """Arrays end at 64 axes; a labeling may be longer, above all where most have one state."""
    graph = FactorGraph([1] * 70 + [2], [((70,), [0.0, 1.0]), ((0, 70), [[0.0, 0.5]])])
    for question in questions(find_method(name), graph):
        answer = ask(graph, question, name)
        if question == "map":
            assert answer.labels.tolist() == [0] * 70 + [1]
        elif question == "marginals" and answer.exact:
            assert answer.log_z == pytest.approx(np.logaddexp(0.0, 1.5))


def test_the_families_contain_every_shape_that_the_suite_promises() -> None:
    """The families really contain the cases that their names promise."""
    graphs = {
        family: [
            Recipe(family, n, k, seed=s).build() for n in (2, 5) for k in (1, 3) for s in (0, 1)
        ]
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


def test_most_drawn_graphs_are_hard_enough_to_tell_methods_apart() -> None:
    """A graph on which every table's best entries fit together is solved by anything."""
    drawn = conflicting = cyclic = infeasible = 0

    @settings(max_examples=1000)
    @given(recipe=recipes())
    def run(recipe: Recipe) -> None:
        nonlocal drawn, conflicting, cyclic, infeasible
        graph = recipe.build()
        truth = Reference(graph)
        drawn += 1
        infeasible += not truth.feasible
        if not truth.feasible:
            return
        core = graph.core.graph
        tops = sum(float(table.max()) for _, table in core.factors) + graph.core.constant
        conflict = tops > truth.best + 1e-6
        wide = core.condition({int(v): 0 for v in np.flatnonzero(core.cardinalities == 1)})
        conflicting += conflict
        cyclic += conflict and not wide.core.graph.structure.is_forest

    run()
    shares = conflicting / drawn, cyclic / drawn, infeasible / drawn
    assert shares[0] >= 0.4 and shares[1] >= 0.12 and 0.02 <= shares[2] <= 0.3, shares
