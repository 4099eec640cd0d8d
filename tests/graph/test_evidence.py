"""Core: what oracles see of a graph with evidence, and the way back."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from reference import Reference
from strategies import Recipe, recipes

from cliquewise.errors import GraphError
from cliquewise.graph.builders import from_networkx, to_networkx
from cliquewise.graph.factor_graph import FactorGraph


@pytest.fixture
def graph() -> FactorGraph:
    rng = np.random.default_rng(4)
    return FactorGraph(
        [2, 3, 2, 2],
        [
            ((), 0.5),
            ((1,), rng.standard_normal(3)),
            ((0, 1, 2), rng.standard_normal((2, 3, 2))),
            ((2, 1), rng.standard_normal((2, 3))),
            ((3, 2), rng.standard_normal((2, 2))),
        ],
    )


def test_without_evidence_and_constants_the_core_is_the_graph_itself() -> None:
    graph = FactorGraph([2, 2], [((0, 1), np.eye(2))])
    assert graph.core.is_whole
    assert graph.core.graph is graph
    assert graph.core is graph.core


def test_observed_variables_are_sliced_out_and_the_rest_renumbered(graph: FactorGraph) -> None:
    core = graph.condition({1: 2}).core
    assert core.free.tolist() == [0, 2, 3]
    assert core.kept.tolist() == [2, 3, 4]
    assert [s for s, _ in core.graph.factors] == [(0, 1), (1,), (2, 1)]
    assert np.array_equal(core.graph.table(0), graph.table(2)[:, 2, :])
    assert core.constant == pytest.approx(0.5 + graph.table(1)[2])
    assert core.graph.evidence == {}


def test_constants_alone_are_taken_out_too(graph: FactorGraph) -> None:
    assert not graph.core.is_whole
    assert graph.core.constant == 0.5
    assert graph.core.graph.n_variables == 4
    assert graph.core.graph.n_factors == 4


def test_everything_observed_leaves_only_a_constant(graph: FactorGraph) -> None:
    seen = graph.condition({0: 1, 1: 0, 2: 1, 3: 0})
    assert seen.core.graph.n_variables == seen.core.graph.n_factors == 0
    assert seen.core.constant == pytest.approx(graph.score([1, 0, 1, 0]))
    assert seen.marginals("brute-force").log_z == pytest.approx(graph.score([1, 0, 1, 0]))


def test_log_z_adds_up_over_the_states_of_a_variable(graph: FactorGraph) -> None:
    parts = [graph.condition({1: s}).marginals("brute-force") for s in range(3)]
    whole = graph.marginals("brute-force")
    assert np.logaddexp.reduce([p.log_z for p in parts]) == pytest.approx(whole.log_z)
    weights = np.exp([p.log_z - whole.log_z for p in parts])
    assert weights == pytest.approx(whole.nodes[1])
    mixed = sum(w * p.factors.flat for w, p in zip(weights, parts, strict=True))
    assert mixed == pytest.approx(whole.factors.flat)


def test_answers_speak_of_all_variables_and_factors(graph: FactorGraph) -> None:
    seen = graph.condition({2: 1})
    marginals = seen.marginals("brute-force")
    assert marginals.nodes[2].tolist() == [0.0, 1.0]
    assert marginals.factors[0].shape == () and marginals.factors[0] == 1.0
    assert np.all(marginals.factors[4][:, 0] == 0.0)
    assert marginals.factors[4].sum() == pytest.approx(1.0)
    assert seen.map("brute-force").labels[2] == 1
    assert np.all(seen.sample(5, random_state=0, method="brute-force")[:, 2] == 1)
    assert [r.labels[2] for r in seen.top_k(3, "brute-force")] == [1, 1, 1]


def test_max_marginals_of_other_states_of_an_observed_variable_are_minus_infinity(
    graph: FactorGraph,
) -> None:
    seen = graph.condition({1: 1})
    result = seen.max_marginals("brute-force")
    assert result.nodes[1].tolist() == [-np.inf, seen.map("brute-force").score, -np.inf]


@given(recipes())
def test_the_core_scores_as_the_original_less_the_constant(recipe: Recipe) -> None:
    graph = recipe.build()
    truth = Reference(graph)
    core = graph.core
    rng = np.random.default_rng(recipe.seed)
    rows = rng.integers(0, core.graph.cardinalities, size=(4, core.graph.n_variables))
    full = core._labels(rows)
    assert np.array_equal(full[:, core.free], rows)
    for inner, outer in zip(core.graph.score(rows), graph.score(full), strict=True):
        expected = float(inner) + core.constant
        assert outer == expected or abs(outer - expected) <= 1e-12 * truth.scale


def test_evidence_by_name_is_evidence_by_number(graph: FactorGraph) -> None:
    named = graph.with_names(["Cloudy", "Sprinkler", "Rain", "Wet"])
    assert named.condition({"Rain": 1, 0: True}).evidence == {0: 1, 2: 1}
    assert named.condition({"Rain": 1}).names == named.names == graph.with_names(named.names).names
    assert named.variable("Wet") == named.variable(3) == 3
    assert pickle.loads(pickle.dumps(named)).names == named.names
    tables = [(("Cloudy", "Rain"), np.eye(2)), ("Rain", [0.0, 1.0]), ((0,), [1.0, 0.0])]
    by_name = FactorGraph([2, 2], tables, names=["Cloudy", "Rain"])
    assert [scope for scope, _ in by_name.factors] == [(0, 1), (1,), (0,)]


def test_networkx_keeps_the_names() -> None:
    networkx = pytest.importorskip("networkx")
    drawn = networkx.Graph()
    drawn.add_node("Rain", table=[0.0, 1.0])
    drawn.add_node("Wet", table=[0.0, 0.0])
    drawn.add_edge("Rain", "Wet", table=np.eye(2))
    graph = from_networkx(drawn)
    assert graph.condition({"Wet": 0}).evidence == {1: 0}
    assert from_networkx(to_networkx(graph)).names == ("Rain", "Wet")


@pytest.mark.parametrize("method", ["auto", "brute-force"])
def test_soft_evidence_multiplies_the_distribution(graph: FactorGraph, method: str) -> None:
    likelihoods = {0: [0.3, 0.9], 1: [0.0, 2.0, 1.0], 2: [1.0, 5.0]}
    labelings = list(itertools.product(*(range(k) for k in graph.cardinalities)))
    weights = np.exp(graph.score(labelings))
    for variable, table in likelihoods.items():
        weights = weights * [table[x[variable]] for x in labelings]
    seen = graph.condition(likelihoods)
    answer = seen.marginals(method)
    assert answer.exact and answer.log_z == pytest.approx(np.log(weights.sum()))
    for v, k in enumerate(graph.cardinalities):
        own = [sum(w for w, x in zip(weights, labelings) if x[v] == s) for s in range(k)]
        np.testing.assert_allclose(answer.nodes[v], own / weights.sum(), atol=1e-12)
    best = seen.map(method)
    assert tuple(best.labels) == labelings[int(np.argmax(weights))]
    # hard evidence on top, before or after, and soft evidence in two steps
    both = seen.condition({3: 1}).marginals(method)
    other = graph.condition({3: 1}).condition({0: [0.3, 0.9]})
    again = other.condition({1: [0.0, 2.0, 1.0], 2: [1.0, 5.0]}).marginals(method)
    assert both.log_z == pytest.approx(again.log_z)
    kept = [w for w, x in zip(weights, labelings) if x[3] == 1]
    assert both.log_z == pytest.approx(np.log(sum(kept)))


def test_a_likelihood_with_one_possible_state_equals_hard_evidence(graph: FactorGraph) -> None:
    soft, hard = graph.condition({1: [0, 1, 0]}), graph.condition({1: 1})
    assert soft.marginals().log_z == pytest.approx(hard.marginals().log_z)
    assert soft.evidence == {} and soft.n_factors == graph.n_factors + 1


@pytest.mark.parametrize(
    ("names", "evidence", "message"),
    [
        (None, {"Rain": 1}, "no names: use the numbers 0..1, or give it some"),
        (["Rain", "Wet"], {"Snow": 1}, "'Snow'; the variables are Rain, Wet"),
        (["Rain", "Wet"], {"Rain": 2}, "variable Rain state 2, but its states are 0..1"),
        (["Rain", "Wet"], {"Rain": "yes"}, "state yes, but its states are 0..1"),
        (None, {0.5: 1}, "names variable 0.5"),
        (None, {0: [0.5]}, "2 numbers, one per state"),
        (None, {0: [0.5, -0.5]}, "none negative"),
        (None, {0: [0.0, 0.0]}, "not all zero"),
        (None, {0: [np.nan, 0.0]}, "none negative"),
        (None, {0: ["a", "b"]}, "2 numbers, one per state"),
        (None, [(0, 1)], "a dict from variables to states, not list"),
        (None, "Rain=1", "a dict from variables to states, not str"),
    ],
)
def test_evidence_that_makes_no_sense_says_how_it_would(names, evidence, message) -> None:
    graph = FactorGraph([2, 2], [((0, 1), np.eye(2))], names=names)
    with pytest.raises(GraphError, match=message):
        graph.condition(evidence)


def test_a_truth_value_is_the_name_of_a_state_and_never_a_number_of_another() -> None:
    rain = {"Rain": [0.8, 0.2]}
    for states, number in ((["true", "false"], 0), (["False", "True"], 1), (["0", "1"], 1)):
        seen = FactorGraph.from_cpts(rain, states={"Rain": states}).condition({"Rain": True})
        assert seen.evidence == {0: number}
    assert FactorGraph.from_cpts(rain).condition({"Rain": np.True_}).evidence == {0: 1}
    with pytest.raises(GraphError, match="state 'True'; they are yes, no"):
        FactorGraph.from_cpts(rain, states={"Rain": ["yes", "no"]}).condition({"Rain": True})


def test_a_number_that_is_the_name_of_another_state_is_rejected() -> None:
    dice = FactorGraph.from_cpts({"Die": [0.5, 0.3, 0.2]}, states={"Die": ["1", "2", "4"]})
    with pytest.raises(GraphError, match="for the one named so give '2'"):
        dice.condition({"Die": 2})
    assert dice.condition({"Die": "2"}).evidence == {0: 1}
    assert dice.condition({"Die": 0}).evidence == {0: 0}


@pytest.mark.parametrize("names", [["a"], ["a", "a"], [0, 1], "ab"])
def test_names_are_one_string_per_variable(names) -> None:
    with pytest.raises(GraphError, match="name"):
        FactorGraph([2, 2], names=names)
