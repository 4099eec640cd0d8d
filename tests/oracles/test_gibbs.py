"""Gibbs sampling: frequencies within their standard errors, and honest about what it misses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from reference import Reference

from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.builders import random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import gibbs


@pytest.mark.parametrize("order", [2, 3, 4])
def test_frequencies_are_as_far_from_the_truth_as_their_standard_errors_say(order: int) -> None:
    scores = []
    for seed in range(4):
        graph = random_graph(8, 12, max_order=order, scale=0.7, random_state=seed)
        truth = Reference(graph)
        found = graph.marginals("gibbs", random_state=seed)
        off = np.abs(found.nodes.flat - truth.node_marginals)
        assert off.mean() < 0.02 and not found.exact
        assert found.bounds_certified == (False, False)
        assert not found.info["may_miss_states"]
        scores.append(off / found.info["standard_errors"])
        for f, (scope, _) in enumerate(graph.factors):
            for axis, v in enumerate(scope):
                others = tuple(a for a in range(len(scope)) if a != axis)
                np.testing.assert_allclose(
                    found.factors[f].sum(axis=others), found.nodes[v], atol=1e-9
                )
    assert 0.3 < np.sqrt(np.mean(np.concatenate(scores) ** 2)) < 2.5


def test_a_sweep_that_had_to_wait_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(6, 9, random_state=2)
    late = iter([0.0, 0.0, 0.0, 0.5])  # the first trial takes half a second
    expected = graph.marginals("gibbs", seconds=60)
    monkeypatch.setattr(gibbs, "clock", SimpleNamespace(now=lambda: next(late, 0.5)))
    found = graph.marginals("gibbs", seconds=60)
    assert found.info["sweeps"] == expected.info["sweeps"] == 2000
    assert found.nodes.flat.tolist() == expected.nodes.flat.tolist()


def test_draws_have_the_right_frequencies_and_a_seed_repeats_them() -> None:
    graph = random_graph(6, 9, max_order=3, random_state=1)
    draws = graph.sample(3000, random_state=0, method="gibbs")
    for v, node in enumerate(graph.marginals("brute-force").nodes):
        seen = np.bincount(draws[:, v], minlength=len(node)) / len(draws)
        assert np.abs(seen - node).max() < 0.05
    assert (draws == graph.sample(3000, random_state=0, method="gibbs")).all()


def test_forbidden_entries_are_never_visited_and_the_answer_says_what_it_may_miss() -> None:
    same = np.where(np.eye(3) > 0, [[0.0], [0.5], [0.2]], -np.inf)
    graph = FactorGraph([3] * 5, [((v, v + 1), same) for v in range(4)])
    found = graph.marginals("gibbs", sweeps=50)
    assert found.info["may_miss_states"]  # no single move leaves a possible labeling
    for f in range(4):
        assert (found.factors[f][same == -np.inf] == 0.0).all()
    assert (graph.score(graph.sample(20, random_state=0, method="gibbs")) > -np.inf).all()
    nothing = FactorGraph([2, 2], [((0, 1), np.full((2, 2), -np.inf))])
    with pytest.raises(InfeasibleError):
        nothing.marginals("gibbs")


def test_chains_that_stay_in_their_corners_have_large_errors() -> None:
    tied = np.array([[30.0, 0.0], [0.0, 30.0]])
    graph = FactorGraph([2] * 6, [((v, v + 1), tied) for v in range(5)])
    found = graph.marginals("gibbs", sweeps=100)
    assert found.info["standard_errors"].max() > 0.1


def test_bad_options_are_errors_that_name_them() -> None:
    graph = FactorGraph([2], [((0,), [0.0, 1.0])])
    for options, word in (({"sweeps": 0}, "sweeps"), ({"restarts": 1}, "restarts"),
                          ({"speed": 1}, "speed")):  # fmt: skip
        with pytest.raises(UnsupportedError, match=word):
            graph.marginals("gibbs", **options)


def test_intervals_of_1_96_standard_errors_cover_95_percent() -> None:
    covered = []
    for seed in range(200):
        graph = random_graph(20, 30, max_order=2 + seed % 3, random_state=seed)
        truth = graph.marginals("junction-tree").nodes.flat
        found = graph.marginals("gibbs", sweeps=1000, random_state=seed)
        error = np.abs(found.nodes.flat - truth)
        covered.append(error <= 1.96 * found.info["standard_errors"])
    states = np.concatenate(covered)
    assert len(states) > 10_000
    assert 0.94 <= states.mean() <= 0.96
