"""Choosing an oracle: once for a structure, again only where the tables matter."""

from __future__ import annotations

import numpy as np
import pytest

from cliquewise.errors import TooLargeError, UnsupportedError
from cliquewise.graph import FactorGraph
from cliquewise.oracles.base import Oracle
from cliquewise.oracles.planner import choose, find_method
from cliquewise.oracles.registry import ALIASES, registered


def grid(sign: float, side: int = 40) -> FactorGraph:
    """Too large for a junction tree; a cut solves it if neighbors attract each other."""
    rng = np.random.default_rng(0)
    return FactorGraph.grid(rng.normal(size=(side, side, 2)), sign * np.eye(2), sign * np.eye(2))


def test_graphs_of_one_structure_may_need_different_oracles() -> None:
    graph = grid(1.0)
    again = FactorGraph.from_structure(graph.structure, -graph.tables)
    for _ in range(2):
        assert choose(graph, "map").oracle.name == "graph-cut"
        assert choose(again, "map").oracle.name != "graph-cut"


def test_what_a_structure_decides_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    tree = FactorGraph.tree([-1, 0, 0, 0], rng.normal(size=(4, 2)), np.eye(2))
    considered: list[str] = []
    for oracle in registered():
        plain = type(oracle).consider

        def consider(self: Oracle, graph, question, limits, plain=plain):
            considered.append(self.name)
            return plain(self, graph, question, limits)

        monkeypatch.setattr(type(oracle), "consider", consider)
    first = choose(tree, "map")
    count = len(considered)
    second = choose(FactorGraph.from_structure(tree.structure, 2.0 * tree.tables), "map")
    assert count > 0 and len(considered) == count
    assert first.oracle is second.oracle


def test_a_question_without_an_exact_answer_names_the_methods_that_have_another() -> None:
    with pytest.raises(TooLargeError, match=r"by name: method='perturb-and-map' or 'gibbs'$"):
        grid(-1.0).sample(2)


def test_limits_among_the_options_count_each_time() -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph.complete(rng.normal(size=(8, 3)), rng.normal(size=(3, 3)))
    assert choose(graph, "marginals").oracle.exact
    with pytest.raises(TooLargeError, match="junction-tree"):
        choose(graph, "max_marginals", options={"max_memory": 1.0})
    assert choose(graph, "max_marginals").oracle.name == "junction-tree"


def test_methods_without_limits_are_chosen_where_limits_are_given() -> None:
    rng = np.random.default_rng(0)
    cut = grid(1.0)
    limits = {"max_memory": 1e9, "max_operations": 1e6}
    assert cut.map(**limits).method == "graph-cut"
    assert cut.max_marginals(**limits).method == "graph-cut"
    assert grid(1.0, 4).top_k(2, max_memory=100.0)[0].method == "bmmf"
    machine = [((i, j), rng.normal(size=(2, 2))) for i in range(8) for j in range(8, 20)]
    assert FactorGraph([2] * 20, machine).map(max_operations=100).method == "vertex-cover"
    with pytest.raises(TooLargeError, match="max_memory"):
        grid(-1.0, 4).top_k(2, max_memory=100.0)


@pytest.mark.parametrize("method", ["auto", "junction-tree"])
def test_limits_are_numbers_or_none(method: str) -> None:
    graph = grid(-1.0, 3)
    for name in ("max_memory", "max_operations"):
        assert graph.map(method, **{name: None}).exact
        assert graph.map(method, **{name: np.float32(1e9)}).exact
        for wrong in ("1GB", [1e9], -1.0, np.nan):
            with pytest.raises(UnsupportedError, match=f"{name} = .* must be a number"):
                graph.map(method, **{name: wrong})
    assert graph.map(seconds=np.float32(10.0)).exact
    assert graph.map(over=[0], seconds=np.float32(10.0)).exact


def test_a_short_time_once_leaves_no_trace_in_later_choices() -> None:
    for want in ("map", "marginals"):
        short, long = grid(-1.0, 4), grid(-1.0, 4)
        assert choose(short, want, options={"seconds": 0.0}).oracle.name != "junction-tree"
        later = choose(short, want, options={"seconds": 10.0})
        assert later.oracle is choose(long, want, options={"seconds": 10.0}).oracle


def test_time_enough_counts_where_questions_without_a_limit_came_before() -> None:
    rng = np.random.default_rng(0)
    graph = FactorGraph.grid(rng.normal(size=(16, 16, 3)), np.eye(3), np.eye(3))
    room = {"max_memory": 1e13, "max_operations": 1e13}
    for _ in range(3):
        assert choose(graph, "marginals", options=room).oracle.name == "anytime"
    later = choose(graph, "marginals", options={"seconds": 1e6, **room})
    assert later.oracle.name == "junction-tree"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("junction_tree", "junction-tree"), ("Viterbi", "chain"), ("bp", "trw-bp"), ("gibs", "gibbs")],
)
def test_a_method_by_another_name_is_answered_with_the_one_that_is_meant(name, meant):
    with pytest.raises(UnsupportedError, match=rf"'{name}', did you mean '{meant}'\?; "):
        FactorGraph([2], []).map(name)


def test_every_name_of_another_tool_leads_to_a_method_that_is_there():
    assert {find_method(name).name for name in ALIASES.values()} == set(ALIASES.values())
    with pytest.raises(UnsupportedError, match="unknown method 'zzz'; the methods are: auto"):
        FactorGraph([2], []).map("zzz")
