"""What is special about chains; tests/conformance compares all answers with brute force."""

from __future__ import annotations

import numpy as np
import pytest

from cliquewise.errors import InfeasibleError, TooLargeError, UnsupportedError
from cliquewise.graph.builders import chain
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import choose, get
from cliquewise.oracles.base import NO_LIMITS

RNG_SEED = 5


def scrambled_paths() -> FactorGraph:
    """Two paths, 4-0-2 and 3-1, whose tables lie in both directions, some in parallel."""
    rng = np.random.default_rng(RNG_SEED)
    scopes = [(0, 4), (4, 0), (0, 2), (1, 3), (3,), (3,), (2,)]
    return FactorGraph([3] * 5, [(s, rng.standard_normal((3,) * len(s))) for s in scopes])


def assert_same_answers(a: FactorGraph, method: str) -> None:
    ours, other = a.marginals("chain"), a.marginals(method)
    assert ours.log_z == pytest.approx(other.log_z, rel=1e-12)
    assert np.abs(ours.nodes.flat - other.nodes.flat).max() <= 1e-12
    assert np.abs(ours.factors.flat - other.factors.flat).max() <= 1e-12
    best, alike = a.max_marginals("chain"), a.max_marginals(method)
    assert best.value == pytest.approx(alike.value, rel=1e-12)
    assert best.nodes.flat == pytest.approx(alike.nodes.flat, rel=1e-12)
    assert a.map("chain").score == pytest.approx(a.map(method).score, rel=1e-12)


def test_paths_in_any_order_with_parallel_and_transposed_factors() -> None:
    assert_same_answers(scrambled_paths(), "brute-force")


def test_top_k_runs_across_the_gap_between_two_paths() -> None:
    graph = scrambled_paths()
    ours = [r.score for r in graph.top_k(40, "chain")]
    assert ours == pytest.approx([r.score for r in graph.top_k(40, "brute-force")])


def test_a_shared_table_and_its_copies_give_the_same_answer_as_a_tree() -> None:
    rng = np.random.default_rng(RNG_SEED)
    nodes, table = rng.standard_normal((50, 4)), rng.standard_normal((4, 4))
    assert get("chain")._scores(chain(nodes, table), "map", NO_LIMITS).trans.shape == (1, 4, 4)
    assert_same_answers(chain(nodes, table), "tree")
    assert_same_answers(chain(nodes, rng.standard_normal((49, 4, 4))), "tree")


@pytest.mark.parametrize("scale", [1e4, 1e8])
def test_huge_potentials_keep_marginals_finite_and_equal_to_a_trees(scale: float) -> None:
    rng = np.random.default_rng(RNG_SEED)
    graph = chain(scale * rng.standard_normal((30, 3)), scale * rng.standard_normal((29, 3, 3)))
    ours, tree = graph.marginals("chain"), graph.marginals("tree")
    assert ours.log_z == pytest.approx(tree.log_z, rel=1e-12)
    assert np.abs(ours.nodes.flat - tree.nodes.flat).max() <= 1e-12 + 1e-15 * scale


def test_single_states_and_no_variables_have_one_labeling() -> None:
    ones = chain(np.full((7, 1), 2.0), np.full((1, 1), 0.5))
    assert ones.marginals("chain").log_z == pytest.approx(17.0)
    assert np.all(ones.marginals("chain").nodes.flat == 1.0)
    empty = FactorGraph([], [])
    assert empty.marginals("chain").log_z == 0.0
    assert empty.map("chain").labels.shape == (0,)
    assert empty.sample(3, method="chain").shape == (3, 0)
    assert len(empty.top_k(5, "chain")) == 1


@pytest.mark.parametrize("question", ["map", "marginals", "max_marginals"])
def test_one_impossible_path_makes_all_impossible(question: str) -> None:
    forbidden = np.full((2, 2), -np.inf)
    graph = FactorGraph([2] * 4, [((0, 1), np.zeros((2, 2))), ((2, 3), forbidden)])
    with pytest.raises(InfeasibleError, match="probability zero"):
        getattr(graph, question)("chain")
    with pytest.raises(InfeasibleError):
        graph.top_k(2, "chain")
    with pytest.raises(InfeasibleError):
        graph.sample(0, method="chain")


@pytest.mark.parametrize(
    ("cardinalities", "scopes", "reason"),
    [
        ([2, 3], [(0, 1)], "equally many states"),
        ([2] * 4, [(0, 1), (0, 2), (0, 3)], "at most two neighbors"),
        ([2] * 3, [(0, 1), (1, 2), (2, 0)], "no cycle"),
        ([2] * 3, [(0, 1, 2)], "at most two variables"),
    ],
)
def test_what_is_no_chain_is_refused_with_the_reason(
    cardinalities: list[int], scopes: list[tuple[int, ...]], reason: str
) -> None:
    tables = [(s, np.zeros([cardinalities[v] for v in s])) for s in scopes]
    with pytest.raises(UnsupportedError, match=reason):
        FactorGraph(cardinalities, tables).map("chain")


def test_many_states_without_edges_go_to_a_method_without_square_tables() -> None:
    graph = FactorGraph([200_000], [((0,), np.arange(200_000.0))])
    assert choose(graph, "marginals").oracle.name != "chain"
    with pytest.raises(TooLargeError, match="GiB"):
        graph.marginals("chain")
    assert graph.map().labels == [199_999]


def test_more_labelings_than_memory_holds_are_rejected() -> None:
    with pytest.raises(TooLargeError, match="top_k"):
        chain(np.zeros((1_000, 10)), np.zeros((10, 10))).top_k(10**6, "chain")


def test_draws_follow_the_marginals_of_both_paths() -> None:
    graph = scrambled_paths()
    draws = graph.sample(20_000, random_state=0, method="chain")
    p = np.array(graph.marginals("chain").nodes)
    shares = np.stack([(draws == state).mean(axis=0) for state in range(3)], axis=1)
    assert np.abs(shares - p).max() <= 5 * 0.5 / np.sqrt(20_000)
