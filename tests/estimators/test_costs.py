"""Costs of wrong labels: by label, by token, in every loss with a margin."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from chain_problems import ChainRecipe, chain_recipes
from hypothesis import given, settings
from hypothesis import strategies as st

import cliquewise as cw
from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.pseudo_likelihood import token_by_token

LABELS = ["A", "B", "C"]
SETTINGS = settings(max_examples=6, deadline=None)


def drawn(seed: int, n: int = 5) -> tuple[list[Any], list[Any], list[Any]]:
    """Sequences, labels that have to do with them, and a weight for every token."""
    rng = np.random.default_rng(seed)
    X, y, weights = [], [], []
    for _ in range(n):
        tags = rng.integers(0, 3, rng.integers(1, 4))
        X.append(
            [[f"w{t}", f"n{rng.integers(4)}"] for t in (tags + (rng.random(len(tags)) < 0.3)) % 3]
        )
        y.append([LABELS[t] for t in tags])
        weights.append(rng.choice([0.0, 0.5, 1.0, 4.0], len(tags)).tolist())
    X.append([["w0"], ["w1"], ["w2"]])  # every label occurs
    y.append(LABELS)
    weights.append([1.0, 2.0, 0.5])
    return X, y, weights


def objective(tagger: cw.SequenceTagger, X: Any, y: Any, table: Any, weights: Any) -> float:
    """The objective by listing every labeling, from the scores of the trained tagger."""
    total = 0.0
    for x, truth, own in zip(X, y, weights, strict=True):
        nodes, edges = tagger.model_.potentials(tagger.coef_, tagger.encoder_.transform([x]))
        values = []
        for labels in product(range(3), repeat=len(x)):
            score = sum(nodes[t, a] for t, a in enumerate(labels))
            score += sum(edges[0, a, b] for a, b in pairwise(labels))
            cost = sum(
                w * table[LABELS.index(a)][b] for a, b, w in zip(truth, labels, own, strict=True)
            )
            values.append(score + cost)
            if all(LABELS[a] == b for a, b in zip(labels, truth, strict=True)):
                true = score
        if tagger.loss == "hinge":
            total += max(values) - true
        else:
            total += np.log(np.sum(np.exp(np.array(values) - max(values)))) + max(values) - true
    w = tagger.coef_
    return float((total + w @ w / (2 * tagger.C)) / len(X))


@SETTINGS
@given(st.integers(0, 2**31), st.sampled_from(["hinge", "softmax_margin"]))
def test_the_objective_is_that_of_all_labelings_with_their_costs(seed: int, loss: str) -> None:
    X, y, weights = drawn(seed)
    table = np.random.default_rng(seed).choice([0.0, 0.3, 1.0, 5.0], (3, 3))
    np.fill_diagonal(table, 0.0)
    tagger = cw.SequenceTagger(loss, C=2.0, cost=table, tol=0.01, random_state=0)
    tagger.fit(X, y, token_weight=weights)
    proof = tagger.certificate_
    assert proof.gap <= 0.01
    np.testing.assert_allclose(proof.primal, objective(tagger, X, y, table, weights), rtol=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "softmax_margin"])
def test_costs_of_one_are_no_costs_and_solvers_agree(loss: str) -> None:
    X, y, weights = drawn(1)
    plain = cw.SequenceTagger(loss, random_state=0).fit(X, y)
    ones = [[1.0] * len(w) for w in weights]
    named = cw.SequenceTagger(loss, cost={"A": 1.0}, random_state=0).fit(X, y, token_weight=ones)
    assert abs(plain.certificate_.primal - named.certificate_.primal) < 1e-3
    values = []
    for solver in ("sdca", "bcfw" if loss == "hinge" else "lbfgs"):
        tagger = cw.SequenceTagger(loss, solver=solver, cost={"A": 3.0, ("B", "C"): 0.2}, tol=1e-5)
        values.append(
            tagger.set_params(max_epochs=3000, random_state=0).fit(X, y, token_weight=weights)
        )
    one, two = (tagger.certificate_ for tagger in values)
    assert max(one.dual, two.dual) <= min(one.primal, two.primal)


def test_a_heavy_label_is_missed_less_often() -> None:
    """Where two labels look alike, the heavier one is predicted; a dear one is more probable."""
    X, y = [[["same"]]] * 10, [["A"]] * 4 + [["B"]] * 6
    given = {"loss": "pseudo_likelihood", "C": 10, "random_state": 0}
    plain = cw.SequenceTagger(**given).fit(X, y)
    heavy = cw.SequenceTagger(**given, class_weight={"A": 3.0}).fit(X, y)
    assert plain.predict(X[:1]) == [["B"]]
    assert heavy.predict(X[:1]) == [["A"]]
    own = [[3.0]] * 4 + [[1.0]] * 6
    same = cw.SequenceTagger(**given).fit(X, y, token_weight=own)
    assert same.certificate_.primal == heavy.certificate_.primal
    margin, dear = (
        cw.SequenceTagger("softmax_margin", C=10, cost=cost).fit(X, y).predict_marginals(X[:1])[0]
        for cost in (None, {"A": 5.0})
    )
    assert dear[0, 0] > margin[0, 0]


@SETTINGS
@given(st.integers(0, 2**31), st.booleans(), st.booleans())
def test_the_pseudo_likelihood_is_that_of_tokens_given_their_neighbors(
    seed: int, forbid: bool, seen: bool
) -> None:
    X, y, weights = drawn(seed)
    tagger = cw.SequenceTagger(
        "pseudo_likelihood", C=2.0, class_weight={"A": 2.0}, random_state=0,
        forbidden_transitions=[pair for pair in [("C", "A")] if forbid and pair not in pairs_of(y)],
        feature_pairs="seen" if seen else "all",
    ).fit(X, y, token_weight=weights)  # fmt: skip
    total, n = 0.0, 0
    for x, truth, own in zip(X, y, weights, strict=True):
        nodes, edges = tagger.model_.potentials(tagger.coef_, tagger.encoder_.transform([x]))
        numbers = [LABELS.index(label) for label in truth]
        for t, (label, w) in enumerate(zip(numbers, own, strict=True)):
            scores = nodes[t].copy()
            if t:
                scores += edges[0, numbers[t - 1]]
            if t + 1 < len(numbers):
                scores += edges[0, :, numbers[t + 1]]
            total += (
                w * (2.0 if label == 0 else 1.0) * (np.logaddexp.reduce(scores) - scores[label])
            )
            n += 1
    w = tagger.coef_
    value = (total + w @ w / (2 * tagger.C)) / n
    assert tagger.certificate_.primal == pytest.approx(value, rel=1e-9)
    assert tagger.certificate_.gap <= 1e-3


@SETTINGS
@given(chain_recipes(), st.sampled_from([0, 2]))
def test_tokens_between_their_neighbors_have_their_constraints_and_attributes_of_pairs(
    recipe: ChainRecipe, pairs: int
) -> None:
    problem = replace(recipe, pairs=pairs).build()
    model, data = problem.model, problem.data
    w = np.random.default_rng(recipe.seed).normal(size=model.dimension)
    nodes, edges = model.potentials(w, data)
    if not pairs:
        edges = np.broadcast_to(edges, (len(data.followers), *edges.shape[1:]))
    losses, before = [], dict(zip(data.followers.tolist(), edges))
    for t, label in enumerate(data.labels):
        scores = nodes[t].copy()
        if t in before:
            scores += before[t][data.labels[t - 1]]
        if t + 1 in before:
            scores += before[t + 1][:, data.labels[t + 1]]
        losses.append(np.logaddexp.reduce(scores) - scores[label])
    spread = ChainProblem(*token_by_token(model, data))
    np.testing.assert_allclose(spread.losses(w), losses, rtol=1e-9, atol=1e-12)


def pairs_of(y: Any) -> set[Any]:
    """The transitions that occur."""
    return {pair for labels in y for pair in pairwise(labels)}


def test_the_pseudo_likelihood_knows_schemes_and_goes_on() -> None:
    X = [[["w=New"], ["w=York"], ["w=is"]], [["w=is"], ["w=Rome"]], [["w=York"]]]
    y = [["B", "I", "O"], ["O", "B"], ["B"]]
    names = [[f"{label}-LOC" if label != "O" else label for label in labels] for labels in y]
    given = {"transitions": "BIO", "tol": 1e-6, "random_state": 0}
    whole = cw.SequenceTagger("pseudo_likelihood", **given).fit(X, names)
    part = cw.SequenceTagger("pseudo_likelihood", **given).fit(X[:1], names[:1])
    part.partial_fit(X[1:], names[1:])
    assert part.certificate_.primal == pytest.approx(whole.certificate_.primal, rel=1e-5)
    assert whole.predict(X) == names
    unknown = [[None, "I-LOC", "O"], *names[1:]]
    with pytest.raises(DataError, match="every label to be known"):
        cw.SequenceTagger("pseudo_likelihood").fit(X, unknown)


def test_the_softmax_margin_has_probabilities_and_goes_on_from_a_file(tmp_path: Any) -> None:
    X, y, weights = drawn(2, 8)
    given = {"loss": "softmax_margin", "cost": {"A": 2.0}, "tol": 1e-6, "random_state": 0}
    tagger = cw.SequenceTagger(**given).fit(X[:6], y[:6], token_weight=weights[:6])
    np.testing.assert_allclose(tagger.predict_marginals(X)[0].sum(axis=1), 1.0)
    tagger.save(tmp_path / "m.cw", with_state=True)
    again = cw.load(tmp_path / "m.cw")
    assert again.cost == [[0.0, 2.0, 2.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    again.partial_fit(X[6:], y[6:], token_weight=weights[6:])
    whole = cw.SequenceTagger(**given).fit(X, y, token_weight=weights)
    assert abs(again.certificate_.primal - whole.certificate_.primal) < 1e-5
    before = tagger.certificate_.primal
    assert tagger.prune(0.0).certificate_.primal == pytest.approx(before)


@pytest.mark.parametrize("loss", ["hinge", "softmax_margin"])
def test_graphs_that_are_chains_have_the_same_optimum_with_costs(loss: str, tmp_path: Any) -> None:
    rng = np.random.default_rng(5)
    y = [["A", "B", "C"], ["B", "A"], ["C"]]
    features = [rng.normal(size=(len(labels), 2)) for labels in y]
    weights = [[2.0, 0.5, 1.0], [0.0, 3.0], [1.0]]
    given = {"loss": loss, "cost": {"A": 3.0, ("B", "C"): 0.0}, "tol": 1e-4, "random_state": 0}
    graphs = [(x, [(t, t + 1) for t in range(len(x) - 1)]) for x in features]
    exact = "bcfw" if loss == "hinge" else "sdca"
    labeler = cw.GraphLabeler(**given, solver=exact).fit(graphs, y, node_weight=weights)
    tagger = cw.SequenceTagger(**given, boundary_weights=False, max_epochs=1000)
    tagger.fit(features, y, token_weight=weights)
    one, two = labeler.certificate_, tagger.certificate_
    assert one.dual <= two.primal
    assert two.dual <= one.primal
    assert one.primal == pytest.approx(two.primal, rel=1e-3)
    labeler.save(tmp_path / "g.cw")
    assert cw.load(tmp_path / "g.cw").cost[0] == [0.0, 3.0, 3.0]
    with pytest.raises(UnsupportedError, match="node_weight"):
        cw.GraphLabeler().fit(graphs, y, node_weight=weights)
    with pytest.raises(DataError, match="as many numbers"):
        cw.GraphLabeler("hinge").fit(graphs, y, node_weight=[[1.0]] * 3)


def test_a_column_of_a_table_weighs_its_tokens() -> None:
    table = {"s": [1, 1, 2], "word": ["a", "b", "b"], "tag": ["A", "B", "A"], "w": [1.0, 0.5, 3.0]}
    own = cw.SequenceTagger("hinge", sequence_column="s", random_state=0).fit(
        table, "tag", token_weight="w"
    )
    assert own.encoder_.table.columns == ["word"]
    lists = cw.SequenceTagger("hinge", random_state=0, template="columns").fit(
        [[["a"], ["b"]], [["b"]]], [["A", "B"], ["A"]], token_weight=[[1.0, 0.5], [3.0]]
    )
    np.testing.assert_array_equal(own.coef_, lists.coef_)


def test_what_has_no_costs_says_what_has() -> None:
    X, y, weights = drawn(3)
    with pytest.raises(UnsupportedError, match="softmax_margin"):
        cw.SequenceTagger(cost={"A": 2.0}).fit(X, y)
    with pytest.raises(UnsupportedError, match="softmax_margin"):
        cw.SequenceTagger().fit(X, y, token_weight=weights)
    with pytest.raises(UnsupportedError, match="softmax_margin"):
        cw.SequenceTagger("pseudo_likelihood", cost={"A": 2.0}).fit(X, y)
    with pytest.raises(UnsupportedError, match="supports no other costs"):
        cw.SequenceTagger("hinge", solver="gdmm", cost={"A": 2.0}).fit(X, y)
    shards = cw.data.Shards(lambda: iter(zip(X, y)), "unused")
    with pytest.raises(UnsupportedError, match="cost is not supported for Shards"):
        cw.SequenceTagger("hinge", cost={"A": 2.0}).fit(shards)


@pytest.mark.parametrize(
    ("cost", "weights", "said"),
    [
        ({"Z": 1.0}, None, "names 'Z'"),
        ({("A", "A"): 1.0}, None, "diagonal of cost must be 0"),
        ({"A": -1.0}, None, "between 0 and"),
        ({"A": "dear"}, None, "not a number"),
        ([[0.0, 1.0]], None, "shape"),
        (np.ones((3, 3)), None, "diagonal"),
        (None, [[1.0]], "lists for"),
        (None, [["x"]] * 6, "list of numbers"),
        (None, "short", "as many numbers"),
        (None, "nan", "token_weight is nan"),
    ],
)
def test_bad_costs_are_rejected(cost: Any, weights: Any, said: str) -> None:
    X, y, good = drawn(4)
    if weights == "short":
        weights = [*good[:-1], [1.0]]
    elif weights == "nan":
        weights = [[np.nan] * len(w) for w in good]
    with pytest.raises(DataError, match=said):
        cw.SequenceTagger("hinge", cost=cost).fit(X, y, token_weight=weights)
    with pytest.raises(DataError, match="a label for every token"):
        cw.SequenceTagger("hinge").fit(
            X, [[None] * len(t) for t in y[:-1]] + y[-1:], token_weight=good
        )


def test_a_dataset_checks_its_costs() -> None:
    for costs, said in (
        ([[0.0, -1.0]], "between"),
        ([[1.0, 0.0]], "true label"),
        ([[0.0]] * 2, "row"),
    ):
        with pytest.raises(DataError, match=said):
            Dataset([0, 1], [0, 1], [0], None, 1, labels=[0], costs=costs)
