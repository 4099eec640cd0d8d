"""Top-K of every structure against the list of all its outputs: 1,000 random cases each."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.branch_and_bound import branch_and_bound
from cliquewise.oracles.candidates import top_k_candidates
from cliquewise.oracles.matching import top_k_matchings
from cliquewise.oracles.subwindow import best_subwindows, exhaustive_subwindows

CASES = 1000


def values(rng: np.random.Generator, shape: Any) -> np.ndarray:
    """Scores of different kinds: some with many ties, some with a wide range."""
    kind = rng.integers(4)
    if kind == 0:
        return rng.integers(-2, 3, shape).astype(float)
    return rng.normal(size=shape) * (1.0, 1.0, 30.0, 1e-3)[kind]


def check_graph(graph: FactorGraph, k: int, method: str, **options: Any) -> None:
    cards = graph.cardinalities.tolist()
    every = np.array(list(itertools.product(*(range(c) for c in cards))))
    best = np.sort(graph.score(every))[::-1]
    expected = best[best > -np.inf][:k]
    found = graph.top_k(k, method, **options)
    assert len({tuple(r.labels.tolist()) for r in found}) == len(found)
    np.testing.assert_allclose([r.score for r in found], expected, rtol=1e-10, atol=1e-9)
    for r in found:
        assert graph.score(r.labels) == pytest.approx(r.score, rel=1e-12, abs=1e-12)
        assert r.exact


def unaries(rng: np.random.Generator, cards: list[int]) -> list[Any]:
    return [((v,), values(rng, c)) for v, c in enumerate(cards)]


def test_of_chains() -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES):
        n, c = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        pairs = [((i, i + 1), values(rng, (c, c))) for i in range(n - 1)]
        graph = FactorGraph([c] * n, [*unaries(rng, [c] * n), *pairs])
        check_graph(graph, int(rng.integers(1, 12)), "chain")


def test_of_trees() -> None:
    rng = np.random.default_rng(1)
    for _ in range(CASES):
        n = int(rng.integers(2, 6))
        cards = rng.integers(1, 4, n).tolist()
        parents = [(int(rng.integers(i)), i) for i in range(1, n)]
        pairs = [((a, b), values(rng, (cards[a], cards[b]))) for a, b in parents]
        graph = FactorGraph(cards, [*unaries(rng, cards), *pairs])
        check_graph(graph, int(rng.integers(1, 12)), "tree")


def test_of_junction_trees() -> None:
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        n = int(rng.integers(3, 6))
        cards = rng.integers(1, 4, n).tolist()
        pairs = [((i, (i + 1) % n), values(rng, (cards[i], cards[(i + 1) % n]))) for i in range(n)]
        graph = FactorGraph(cards, [*unaries(rng, cards), *pairs])
        check_graph(graph, int(rng.integers(1, 12)), "junction-tree")


def test_of_submodular_graphs_by_cuts() -> None:
    rng = np.random.default_rng(3)
    for _ in range(CASES):
        n = int(rng.integers(2, 6))
        pairs = []
        for i, j in itertools.combinations(range(n), 2):
            if rng.random() < 0.7:
                table = values(rng, (2, 2))
                lack = table[0, 1] + table[1, 0] - table[0, 0] - table[1, 1]
                table[0, 0] += max(lack, 0.0) + rng.integers(2)
                pairs.append(((i, j), table))
        graph = FactorGraph([2] * n, [*unaries(rng, [2] * n), *pairs])
        check_graph(graph, int(rng.integers(1, 7)), "bmmf", base="graph-cut")


def test_of_a_submodular_grid_that_no_junction_tree_could_hold() -> None:
    """The K best differ from the best by the cheapest changes: all of them single nodes here."""
    rng = np.random.default_rng(4)
    side = 30
    at = np.arange(side * side).reshape(side, side)
    pairs = [*zip(at[:-1].flat, at[1:].flat), *zip(at[:, :-1].flat, at[:, 1:].flat)]
    unary = 4.0 + rng.random(side * side)
    factors = [((v,), [0.0, unary[v]]) for v in range(side * side)]
    factors += [((int(a), int(b)), [[0.1, 0.0], [0.0, 0.1]]) for a, b in pairs]
    found = FactorGraph([2] * side**2, factors).top_k(3)
    assert found[0].method == "bmmf" and found[0].info["base"] == "graph-cut"
    assert [int((r.labels == 0).sum()) for r in found] == [0, 1, 1]


def every_matching(p: int, q: int, partial: bool) -> list[list[int]]:
    """The column of every row (-1: none), for all matchings."""
    lists = itertools.product(range(-1, q), repeat=p)
    all_ = [c for c in lists if len({x for x in c if x >= 0}) == sum(x >= 0 for x in c)]
    if not partial:
        all_ = [c for c in all_ if sum(x >= 0 for x in c) == min(p, q)]
    return [list(c) for c in all_]


def test_of_matchings() -> None:
    rng = np.random.default_rng(5)
    for _ in range(CASES):
        p, q = (int(x) for x in rng.integers(1, 5, 2))
        partial = bool(rng.random() < 0.5)
        scores = values(rng, (p, q))
        scores[rng.random((p, q)) < 0.15] = -np.inf if partial else scores.min()
        rows, columns = values(rng, p), values(rng, q)
        k = int(rng.integers(1, 15))

        def score(c: list[int], scores=scores, rows=rows, columns=columns, partial=partial):
            total = sum(scores[i, j] if j >= 0 else partial * rows[i] for i, j in enumerate(c))
            return total + partial * sum(columns[j] for j in range(len(columns)) if j not in c)

        expected = np.sort([score(c) for c in every_matching(p, q, partial)])[::-1]
        expected = expected[expected > -np.inf][:k]
        alone = (rows, columns) if partial else ()
        found = top_k_matchings(scores, k, *alone)
        assert len({tuple(m.columns.tolist()) for m in found}) == len(found)
        np.testing.assert_allclose([m.score for m in found], expected, rtol=1e-10, atol=1e-9)
        for m in found:
            assert score(m.columns.tolist()) == pytest.approx(m.score, rel=1e-10, abs=1e-9)


def test_of_candidate_lists() -> None:
    rng = np.random.default_rng(6)
    for _ in range(CASES):
        scores = values(rng, int(rng.integers(1, 30)))
        k = int(rng.integers(1, 40))
        found = top_k_candidates(scores, k)
        by_hand = sorted(range(len(scores)), key=lambda c: (-scores[c], c))[:k]
        assert found.tolist() == by_hand


def test_of_branch_and_bound() -> None:
    """Sets are the labelings with a known beginning; the bound is what could still come."""
    rng = np.random.default_rng(7)
    for _ in range(CASES):
        n, c = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        unary, pair = values(rng, (n, c)), values(rng, (c, c))

        def bound(y: tuple[int, ...], n=n, unary=unary, pair=pair) -> float:
            known = sum(unary[t, a] for t, a in enumerate(y))
            known += sum(pair[a, b] for a, b in itertools.pairwise(y))
            open_ = n - len(y)
            return (
                known
                + unary[len(y) :].max(axis=1).sum()
                + pair.max() * (open_ if y else max(open_ - 1, 0))
            )

        def split(y: tuple[int, ...], n=n, c=c) -> list[tuple[int, ...]]:
            return [(*y, a) for a in range(c)] if len(y) < n else []

        k = int(rng.integers(1, 12))
        found = branch_and_bound((), split, bound, k)
        every = sorted((bound(y) for y in itertools.product(range(c), repeat=n)), reverse=True)
        np.testing.assert_allclose([f.score for f in found], every[:k], rtol=1e-10, atol=1e-9)
        assert len({f.output for f in found}) == len(found)


def test_of_boxes() -> None:
    rng = np.random.default_rng(8)
    for case in range(CASES):
        weights = values(rng, tuple(rng.integers(1, 7, 2)))
        k, truth = int(rng.integers(1, 20)), None
        if case % 2:
            ends = [np.sort(rng.choice(s + 1, 2, replace=False)) for s in weights.shape]
            truth = (ends[0][0], ends[1][0], ends[0][1], ends[1][1])
        options = {"k": k, "truth": truth, "cost": float(rng.random() * 3)}
        found, expected = (
            best_subwindows(weights, **options),
            exhaustive_subwindows(weights, **options),
        )
        scale = 1e-9 * (1 + np.abs(weights).sum())
        np.testing.assert_allclose(
            [b.score for b in found], [b.score for b in expected], rtol=0, atol=scale
        )
        assert len({b.box for b in found}) == len(found)
        top, left, bottom, right = found[0].box
        if truth is None:
            assert weights[top:bottom, left:right].sum() == pytest.approx(found[0].score, abs=scale)
