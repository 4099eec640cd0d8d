"""FactorGraph: scores, access, evidence, and bad input."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from reference import Reference
from strategies import Recipe, recipes

from cliquewise.errors import GraphError, InfeasibleError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure


@given(recipes())
def test_scores_are_sums_of_table_entries(recipe: Recipe) -> None:
    graph = recipe.build()
    truth = Reference(graph)
    rng = np.random.default_rng(recipe.seed)
    rows = rng.integers(0, graph.cardinalities, size=(5, graph.n_variables))
    scores = graph.score(rows)
    assert scores.shape == (5,)
    for row, score in zip(rows, scores, strict=True):
        expected = float(truth.joint[tuple(row)])
        assert score == expected or abs(score - expected) <= 1e-13 * truth.scale
        assert graph.score(row) == score


def test_a_graph_keeps_its_own_copy_of_the_tables() -> None:
    table = np.zeros((2, 2))
    graph = FactorGraph([2, 2], [((0, 1), table)])
    table[0, 0] = 9.0
    assert graph.table(0)[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        graph.table(0)[0, 0] = 1.0


def test_factors_are_listed_in_order_with_their_tables() -> None:
    factors = [((1,), np.array([1.0, 2.0, 3.0])), ((1, 0), np.arange(6.0).reshape(3, 2)), ((), 5.0)]
    graph = FactorGraph([2, 3], factors)
    listed = list(graph.factors)
    assert [s for s, _ in listed] == [(1,), (1, 0), ()]
    assert all(np.array_equal(t, given) for (_, t), (_, given) in zip(listed, factors, strict=True))
    assert graph.score([1, 2]) == 3.0 + 5.0 + 5.0


def test_a_single_variable_may_be_named_without_a_list() -> None:
    assert FactorGraph([2], [(0, [0.0, 1.0])]).score([1]) == 1.0


def test_new_tables_on_one_structure_share_it() -> None:
    graph = FactorGraph([2, 2], [((0, 1), np.eye(2))])
    other = FactorGraph.from_structure(graph.structure, [0.0, 1.0, 2.0, 3.0])
    assert other.structure is graph.structure
    assert other.score([1, 0]) == 2.0


def test_from_structure_copies_what_it_is_given() -> None:
    tables = np.zeros(2)
    graph = FactorGraph.from_structure(Structure([2], [(0,)]), tables)
    tables[0] = 3.0
    assert graph.tables[0] == 0.0


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([((0,), [0.0, np.nan])], "factor 0 contains nan"),
        ([((0,), [0.0, 1.0]), ((1,), [0.0, np.inf, 0.0])], "factor 1 contains inf"),
        ([((0, 1), np.zeros((3, 2)))], r"factor 0 has shape \(3, 2\).*needs \(2, 3\)"),
        ([((0,), [[0.0, 1.0]])], "shape"),
        ([((0,), 1.0)], "shape"),
        ([((0,), ["a", "b"])], "factor 0 is not an array of numbers"),
        ([((0,), [[0.0], [1.0, 2.0]])], "factor 0 is not an array of numbers"),
        ([((0,), None)], "factor 0"),
        ([((0, 0), np.zeros((2, 2)))], "twice"),
        ([((2,), [0.0, 0.0])], "variables are 0..1"),
        ([((0.5,), [0.0, 0.0])], "factor 0"),
        ([(("a",), [0.0, 0.0])], r"factor 0.*names=\[...\]"),
    ],
)
def test_bad_factors_are_refused_with_the_place(factors: list, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        FactorGraph([2, 3], factors)


@pytest.mark.parametrize("cards", [[2.5, 2], [0], [-1], "ab", [[2, 2]], 3, [10**9]])
def test_bad_cardinalities_are_rejected(cards: object) -> None:
    with pytest.raises(GraphError):
        FactorGraph(cards)  # type: ignore[arg-type]


def test_too_few_table_entries_are_counted_in_the_message() -> None:
    with pytest.raises(GraphError, match=r"3 table entries.*has 4"):
        FactorGraph.from_structure(Structure([2, 2], [(0, 1)]), [0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    "labels", [[0], [0, 0, 0], [0, 3], [-1, 0], [[0, 0], [0, 9]], [0.5, 0.0], [np.nan, 0.0]]
)
def test_labels_that_do_not_fit_are_rejected(labels: list) -> None:
    graph = FactorGraph([2, 3], [((0, 1), np.zeros((2, 3)))])
    with pytest.raises(GraphError, match="labeling"):
        graph.score(labels)


def test_evidence_accumulates_and_is_listed() -> None:
    graph = FactorGraph([2, 3, 2], [((0, 1), np.arange(6.0).reshape(2, 3))])
    seen = graph.condition({1: 2}).condition({0: 1, 1: 2})
    assert seen.evidence == {0: 1, 1: 2}
    assert graph.evidence == {}
    assert seen.structure is graph.structure
    assert seen.score([1, 2, 0]) == 5.0
    assert seen.score([0, 2, 0]) == -np.inf
    assert "2 observed" in repr(seen)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({3: 0}, "variable 3"),
        ({-1: 0}, "variable -1"),
        ({1: 3}, "variable 1 state 3"),
        ({0: -1}, "variable 0 state -1"),
        ({2: 1}, "two states"),
        ({0: 0.5}, "variable 0"),
    ],
)
def test_bad_evidence_is_refused_with_the_place(evidence: dict, message: str) -> None:
    graph = FactorGraph([2, 3, 2]).condition({2: 0})
    with pytest.raises(GraphError, match=message):
        graph.condition(evidence)


def test_evidence_on_a_forbidden_state_is_infeasible_for_every_question() -> None:
    graph = FactorGraph([2, 2], [((0,), [0.0, -np.inf]), ((0, 1), np.zeros((2, 2)))])
    seen = graph.condition({0: 1})
    for ask in (seen.map, seen.marginals, seen.max_marginals, lambda: seen.top_k(2), seen.sample):
        with pytest.raises(InfeasibleError, match="Z = 0"):
            ask()


@given(recipes())
def test_pickling_and_copying_keep_numbers_and_evidence(recipe: Recipe) -> None:
    graph = recipe.build()
    for again in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph), copy.copy(graph)):
        assert np.array_equal(again.tables, graph.tables)
        assert again.evidence == graph.evidence
        assert np.array_equal(again.structure.scopes, graph.structure.scopes)
        assert not again.tables.flags.writeable


@pytest.mark.parametrize("k", [0, -2])
def test_k_must_be_positive(k: int) -> None:
    with pytest.raises(GraphError, match=f"k = {k}"):
        FactorGraph([2]).top_k(k)


def test_a_negative_number_of_draws_is_rejected() -> None:
    with pytest.raises(GraphError, match="n = -1"):
        FactorGraph([2]).sample(-1)


def test_factors_may_be_a_dict_of_tables_by_scope() -> None:
    likes = np.eye(2)
    graph = FactorGraph([2, 2], {0: [0.0, 1.0], (0, 1): likes})
    same = FactorGraph([2, 2], [((0,), [0.0, 1.0]), ((0, 1), likes)])
    assert np.array_equal(graph.tables, same.tables)


@pytest.mark.parametrize("options", [{}, {"over": [0]}])
def test_evidence_that_is_given_with_the_question_is_told_where_it_goes(options: dict) -> None:
    with pytest.raises(TypeError, match=r"graph.condition\(evidence\).map\(\)"):
        FactorGraph([2, 2]).map(evidence={0: 1}, **options)


def test_marginals_by_name_are_told_where_names_go() -> None:
    with pytest.raises(TypeError, match=r"graph.variable\('Rain'\)"):
        FactorGraph([2], names=["Rain"]).marginals().nodes["Rain"]


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match="junction-tree"):
        FactorGraph([2]).map("magic")


@given(recipes())
def test_auto_is_exact_on_small_graphs_and_can_say_why(recipe: Recipe) -> None:
    graph = recipe.build()
    truth = Reference(graph)
    if not truth.feasible:
        with pytest.raises(InfeasibleError):
            graph.map()
        return
    best, marginals = graph.map(), graph.marginals()
    assert best.exact and abs(best.score - truth.best) <= 1e-9 * truth.scale
    assert marginals.exact and abs(marginals.log_z - truth.log_z) <= 1e-9 * truth.scale
    assert graph.explain("map").startswith(best.method)
    assert graph.explain().startswith(marginals.method)


def test_the_text_counts_variables_and_factors() -> None:
    assert repr(FactorGraph([2, 2], [((0,), [0, 0])])) == "<FactorGraph: 2 variables, 1 factors>"


def test_counts_and_single_variables_are_integers_of_any_kind() -> None:
    graph = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [2.0, 0.5]])])
    assert len(graph.top_k(np.int64(2))) == 2 and graph.sample(np.int32(3)).shape == (3, 2)
    assert graph.query(np.int64(1)).probabilities.shape == (2,)
    assert graph.map(over=np.int64(1)).labels.tolist() == [-1, 0]
    for wrong in (1.5, "2", None):
        with pytest.raises(GraphError, match=r"k = .* integer"):
            graph.top_k(wrong)  # type: ignore[arg-type]
        with pytest.raises(GraphError, match=r"n = .* integer"):
            graph.sample(wrong)  # type: ignore[arg-type]
