"""Hypergraphs of dynamic programs against direct enumeration of their outputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cliquewise.errors import DataError
from cliquewise.hypergraph import (
    alignments,
    context_chain,
    projective_trees,
    segmentations,
    span_trees,
)


def log_sum(values):
    values = np.array(values)
    return values.max() + np.log(np.exp(values - values.max()).sum())


def check_against(graph, scores, outputs):
    """Compare with a list of outputs, each a list of the parts it uses."""
    values = sorted((scores[list(parts)].sum() for parts in outputs), reverse=True)
    assert graph.best(scores).score == pytest.approx(values[0])
    assert graph.log_partition(scores) == pytest.approx(log_sum(values))
    found = graph.top_k(scores, len(values) + 5)
    np.testing.assert_allclose([d.score for d in found], values, atol=1e-9)
    assert {tuple(sorted(d.parts)) for d in found} == {tuple(sorted(parts)) for parts in outputs}


@pytest.mark.parametrize(
    ("length", "widest", "n_labels"), [(1, 1, 2), (4, 2, 2), (5, 5, 1), (3, 4, 3)]
)
def test_segmentations_match_enumeration(length, widest, n_labels):
    graph, outputs = segmentations(length, widest, n_labels), []
    first_transition = length * widest * n_labels
    for cuts in itertools.product([False, True], repeat=length - 1):
        bounds = [0, *(t + 1 for t in range(length - 1) if cuts[t]), length]
        sizes = np.diff(bounds)
        if sizes.max() > widest:
            continue
        for labels in itertools.product(range(n_labels), repeat=len(sizes)):
            parts = [(s * widest + n - 1) * n_labels + k for s, n, k in zip(bounds, sizes, labels)]
            parts += [first_transition + a * n_labels + b for a, b in itertools.pairwise(labels)]
            outputs.append(parts)
    check_against(graph, np.random.default_rng(0).normal(size=graph.n_parts), outputs)


def is_projective(heads):
    """Return whether the arcs to ``heads[m - 1]`` form a tree without crossing arcs."""
    n = len(heads)
    for m in range(1, n + 1):
        seen, h = set(), m
        while h != 0:
            if h in seen:
                return False
            seen.add(h)
            h = heads[h - 1]
    arcs = [(min(h, m), max(h, m)) for m, h in enumerate(heads, 1)]
    return not any(a < c < b < d for (a, b), (c, d) in itertools.permutations(arcs, 2))


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_projective_trees_match_enumeration(length, single_root):
    graph, outputs = projective_trees(length, single_root), []
    for heads in itertools.product(range(length + 1), repeat=length):
        if is_projective(heads) and not (single_root and heads.count(0) != 1):
            outputs.append([h * (length + 1) + m for m, h in enumerate(heads, 1)])
    check_against(graph, np.random.default_rng(1).normal(size=graph.n_parts), outputs)


def binary_trees(i, j):
    """List the sets of spans of all binary trees over the tokens i to j - 1."""
    if j - i == 1:
        return [[(i, j)]]
    return [
        [(i, j), *left, *right]
        for k in range(i + 1, j)
        for left in binary_trees(i, k)
        for right in binary_trees(k, j)
    ]


@pytest.mark.parametrize(("length", "n_labels"), [(1, 3), (4, 2), (5, 1)])
def test_span_trees_match_enumeration(length, n_labels):
    graph, outputs = span_trees(length, n_labels), []
    for spans in binary_trees(0, length):
        for labels in itertools.product(range(n_labels), repeat=len(spans)):
            outputs.append(
                [(i * (length + 1) + j) * n_labels + k for (i, j), k in zip(spans, labels)]
            )
    check_against(graph, np.random.default_rng(2).normal(size=graph.n_parts), outputs)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (3, 2), (3, 3)])
def test_alignments_match_enumeration(rows, columns):
    graph, outputs = alignments(rows, columns), []
    deletions = rows * columns
    insertions = deletions + rows * (columns + 1)
    starts = {"d": insertions + (rows + 1) * columns, "i": insertions + (rows + 1) * columns + 1}

    def extend(i, j, last, parts):
        if (i, j) == (rows, columns):
            outputs.append(parts)
            return
        if i < rows and j < columns:
            extend(i + 1, j + 1, "m", [*parts, i * columns + j])
        if i < rows:
            start = [] if last == "d" else [starts["d"]]
            extend(i + 1, j, "d", [*parts, *start, deletions + i * (columns + 1) + j])
        if j < columns:
            start = [] if last == "i" else [starts["i"]]
            extend(i, j + 1, "i", [*parts, *start, insertions + i * columns + j])

    extend(0, 0, "m", [])
    check_against(graph, np.random.default_rng(3).normal(size=graph.n_parts), outputs)


@pytest.mark.parametrize(
    ("length", "n_labels", "order"), [(1, 2, 2), (2, 3, 2), (5, 2, 2), (5, 2, 3), (4, 3, 1)]
)
def test_context_chains_match_enumeration(length, n_labels, order):
    graph, outputs = context_chain(length, n_labels, order), []
    for labels in itertools.product(range(n_labels), repeat=length):
        parts = [t * n_labels + k for t, k in enumerate(labels)]
        for t in range(1, length):
            before = min(t, order)
            first = length * n_labels + sum(n_labels ** (m + 1) for m in range(1, before))
            history = labels[t - before : t + 1]
            parts.append(first + int(np.ravel_multi_index(history, (n_labels,) * (before + 1))))
        outputs.append(parts)
    check_against(graph, np.random.default_rng(4).normal(size=graph.n_parts), outputs)


def test_segments_of_one_token_are_a_chain():
    import cliquewise as cw

    rng = np.random.default_rng(5)
    nodes, table = rng.normal(size=(6, 3)), rng.normal(size=(3, 3))
    graph = segmentations(6, 1, 3)
    found = graph.marginals(np.concatenate([nodes.ravel(), table.ravel()]))
    chain = cw.builders.chain(nodes, table).marginals()
    assert found.log_z == pytest.approx(chain.log_z)
    np.testing.assert_allclose(found.parts[:18].reshape(6, 3), list(chain.nodes), atol=1e-12)


@pytest.mark.parametrize("builder", [segmentations, alignments, span_trees])
def test_sizes_below_one_are_rejected(builder):
    sizes = (0, 2, 2) if builder is segmentations else (0, 2)
    with pytest.raises(DataError, match="at least 1"):
        builder(*sizes)


def test_topologies_that_are_too_large_are_rejected():
    with pytest.raises(DataError, match="the limit is"):
        span_trees(2000, 5)
