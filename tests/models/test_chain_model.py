"""The chain model and its objective against a list of all labelings."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration, chain_recipes
from hypothesis import given, settings
from scipy.special import logsumexp

from cliquewise._kernels.chain.sums import batch_forward_backward
from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.models.attributes import augment
from cliquewise.models.chain import ChainModel
from cliquewise.models.chain_form import PADDING
from cliquewise.problems.chain import ChainProblem


def random_weights(problem: ChainProblem, seed: int) -> np.ndarray:
    """Transitions that carry no weight have none."""
    w = np.random.default_rng(seed).normal(size=problem.dimension)
    problem.model.transitions(w)[~problem.model.edge_free] = 0.0
    return w


@settings(max_examples=60)
@given(recipe=chain_recipes())
def test_losses_and_primal_are_those_of_the_enumeration(recipe: ChainRecipe) -> None:
    problem = recipe.build()
    reference = Enumeration(problem)
    assert problem.dimension == reference.dimension
    w = random_weights(problem, recipe.seed)
    np.testing.assert_allclose(problem.losses(w), reference.losses(w), rtol=1e-11, atol=1e-11)
    assert problem.primal(w) == pytest.approx(reference.value(w), rel=1e-11)


@settings(max_examples=60)
@given(recipe=chain_recipes())
def test_gradient_is_that_of_the_enumeration(recipe: ChainRecipe) -> None:
    problem = recipe.build()
    reference = Enumeration(problem)
    w = random_weights(problem, recipe.seed)
    value, gradient = problem.primal_and_gradient(w)
    assert value == pytest.approx(reference.value(w), rel=1e-11)
    expected = reference.derivatives(w)[0]
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-11)


@settings(max_examples=30)
@given(recipe=chain_recipes(min_log_c=-1, max_log_c=1))
def test_gradient_agrees_with_finite_differences(recipe: ChainRecipe) -> None:
    problem = recipe.build()
    w = 0.3 * random_weights(problem, recipe.seed)
    direction = random_weights(problem, recipe.seed + 1)
    direction /= np.linalg.norm(direction)
    h = 1e-5
    slope = (problem.primal(w + h * direction) - problem.primal(w - h * direction)) / (2 * h)
    gradient = problem.primal_and_gradient(w)[1]
    assert gradient @ direction == pytest.approx(slope, rel=1e-5, abs=1e-6)


@settings(max_examples=30)
@given(recipe=chain_recipes())
def test_certificate_of_any_weights_brackets_the_optimum(recipe: ChainRecipe) -> None:
    problem = recipe.build()
    optimum = Enumeration(problem).optimum
    for scale in (0.0, 0.01, 1.0):
        proof = problem.certificate(scale * random_weights(problem, recipe.seed))
        slack = 1e-10 * (1 + abs(optimum) + abs(proof.dual))
        assert proof.dual <= optimum + slack
        assert proof.primal >= optimum - slack


@settings(max_examples=30)
@given(recipe=chain_recipes())
def test_threads_do_not_change_the_values(recipe: ChainRecipe) -> None:
    problem = recipe.build()
    w = random_weights(problem, recipe.seed)
    many = ChainProblem(problem.model, problem.data, problem.C, n_jobs=2)
    np.testing.assert_array_equal(many.losses(w), problem.losses(w))
    np.testing.assert_allclose(
        many.primal_and_gradient(w)[1], problem.primal_and_gradient(w)[1], rtol=1e-10, atol=1e-12
    )


def hidden_problem(seed: int) -> ChainProblem:
    """Some labels unknown, some known to be one of two."""
    data = ChainRecipe(seed, examples=4, labels=3).build().data
    rng = np.random.default_rng(seed)
    partial = np.zeros((data.n_tokens, 3), dtype=bool)
    partial[np.arange(data.n_tokens), data.labels] = True
    unknown = rng.random(data.n_tokens) < 0.5
    partial[unknown] |= rng.random((int(unknown.sum()), 3)) < 0.6
    labels = np.where(unknown, -1, data.labels)
    hidden = data.with_labels(labels)
    return ChainProblem(ChainModel.build(hidden, 3), hidden, partial=partial)


@pytest.mark.parametrize("seed", range(8))
def test_partial_labels_cost_the_log_probability_of_their_set(seed: int) -> None:
    problem = hidden_problem(seed)
    w = random_weights(problem, seed)
    total = 0.0
    for i in range(problem.n_examples):
        first, last = problem.data.offsets[i : i + 2]
        if first == last:
            continue
        graph = problem.model.graph(w, problem.data, i)
        labelings = list(np.ndindex(*[3] * (last - first)))
        scores = np.array([graph.score(y) for y in labelings])
        inside = [all(problem.partial[first + t, a] for t, a in enumerate(y)) for y in labelings]
        total += logsumexp(scores) - logsumexp(scores[inside])
    expected = total / problem.n_examples + 0.5 * problem.lam * w @ w
    value, gradient = problem.primal_and_gradient(w)
    assert value == pytest.approx(expected, rel=1e-11)
    direction, h = random_weights(problem, seed + 1), 1e-6
    up, down = problem.primal(w + h * direction), problem.primal(w - h * direction)
    assert gradient @ direction == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-6)


def test_constant_attributes_come_after_those_of_the_data() -> None:
    data = Dataset([0, 2, 2, 3], [0, 1, 1, 2], [1, 0], [2.0, 3.0], 2, labels=[0, 1, 1])
    full = augment(data, intercept=True, boundaries=True).features().toarray()
    expected = [[0, 2, 1, 1, 0], [0, 0, 1, 0, 1], [3, 0, 1, 1, 1]]
    np.testing.assert_array_equal(full, expected)
    assert augment(data, intercept=False, boundaries=False) is data


def test_seen_pairs_are_kept_as_dense_rows_without_a_change_of_meaning() -> None:
    problem = ChainRecipe(4, examples=5, labels=4, feature_pairs="seen").build()
    model, form = problem.model, problem.form
    assert form.rows
    w = random_weights(problem, 0)
    dense = np.concatenate([model.emissions(w).ravel(), model.transitions(w).ravel()])
    np.testing.assert_array_equal(form.pack(w), np.append(dense, np.zeros(PADDING)))
    np.testing.assert_array_equal(form.unpack(form.pack(w)), w)
    bits = form.chains.row_mask[:, None] >> np.arange(4, dtype=np.uint64) & np.uint64(1)
    np.testing.assert_array_equal(bits.astype(bool), model.emissions(np.ones_like(w)) != 0)
    assert len(form.zeros()) == form.size == len(dense) + PADDING


def with_pair_attributes(seed: int, feature_pairs: str) -> tuple[ChainModel, Dataset]:
    rng = np.random.default_rng(seed)
    offsets = [0, 3, 3, 4, 9]
    edges = Dataset.from_matrix(rng.normal(size=(9, 2)), offsets)
    labels = rng.integers(0, 3, 9)
    data = Dataset.from_matrix(rng.normal(size=(9, 4)), offsets, labels=labels)
    data = replace(data, edges=edges)
    return ChainModel.build(data, 3, feature_pairs=feature_pairs), data


def test_accumulate_is_the_adjoint_of_potentials() -> None:
    recipes = [
        ChainRecipe(seed, feature_pairs=pairs, values=seed % 2 == 0, transitions_seen=seed > 2)
        for seed in range(5)
        for pairs in ("all", "seen")
    ]
    cases = [(p.model, p.data) for p in (recipe.build() for recipe in recipes)]
    cases += [with_pair_attributes(7, "all"), with_pair_attributes(8, "seen")]
    for number, (model, data) in enumerate(cases):
        rng = np.random.default_rng(number)
        w = rng.normal(size=model.dimension)
        model.transitions(w)[~model.edge_free] = 0.0
        nodes, edges = model.potentials(w, data)
        mu = rng.normal(size=nodes.shape), rng.normal(size=edges.shape)
        out = rng.normal(size=model.dimension)
        before = out.copy()
        model.accumulate(mu, data, out)
        assert w @ (out - before) == pytest.approx(np.sum(nodes * mu[0]) + np.sum(edges * mu[1]))


@pytest.mark.parametrize("feature_pairs", ["all", "seen"])
def test_marginals_accumulate_to_the_slope_of_the_log_partition(feature_pairs: str) -> None:
    model, data = with_pair_attributes(3, feature_pairs)
    graphs = range(len(data))

    def total(w: np.ndarray) -> float:
        return sum(model.graph(w, data, i).marginals().log_z for i in graphs if data.lengths[i])

    w = 0.5 * np.random.default_rng(1).normal(size=model.dimension)
    nodes, edges = model.potentials(w, data)
    mu = np.zeros_like(nodes), np.zeros_like(edges)
    batch_forward_backward(nodes, data.offsets, edges, *mu, np.empty((0, 3)), np.empty(len(data)))
    slope = np.zeros(model.dimension)
    model.accumulate(mu, data, slope)
    for direction in np.random.default_rng(2).normal(size=(5, model.dimension)):
        h = 1e-5
        expected = (total(w + h * direction) - total(w - h * direction)) / (2 * h)
        assert slope @ direction == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_the_order_in_which_threads_end_does_not_matter() -> None:
    problem = ChainRecipe(5, examples=9, labels=4).build()
    many = ChainProblem(problem.model, problem.data, n_jobs=3)
    later = threading.Event()

    def part(first: int, last: int) -> tuple[int, int]:
        if first:
            later.set()
        elif last < 9:
            assert later.wait(10)  # the first part ends after another one
        return first, last

    parts = list(many.over_examples(part))
    assert len(parts) > 1
    assert [first for first, _ in parts] == [0, *(last for _, last in parts[:-1])]


def test_label_outside_a_forbidden_transition_is_named() -> None:
    data = Dataset([0, 2], [0, 0, 0], [], None, 1, labels=[1, 0])
    mask = np.array([[True, True], [False, True]])
    with pytest.raises(DataError, match=r"example 0, token 1: label number 0 follows 1"):
        ChainProblem(ChainModel.build(data, 2, transitions=mask), data)


def test_mask_of_another_shape_is_rejected() -> None:
    data = Dataset([0, 2], [0, 0, 0], [], None, 1, labels=[1, 0])
    with pytest.raises(DataError, match=r"shape \(3, 3\).*must be \(2, 2\)"):
        ChainModel.build(data, 2, transitions=np.ones((3, 3), dtype=bool))


def test_data_with_another_number_of_features_are_rejected() -> None:
    problem = ChainRecipe(4).build()
    wider = Dataset([0, 1], [0, 1], [9], None, 10, labels=[0])
    with pytest.raises(DataError, match="the model has 8"):
        problem.model.potentials(np.zeros(problem.dimension), wider)
