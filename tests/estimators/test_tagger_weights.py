"""Weights of examples and of classes."""

from __future__ import annotations

import numpy as np
import pytest
from tagging_cases import problem, same_predictions, tight

from cliquewise.errors import DataError

X, Y = problem(8)


@pytest.mark.parametrize("solver", ["sdca", "lbfgs"])
def test_weight_two_is_the_example_twice(solver):
    weights = np.ones(len(X))
    weights[[1, 4]] = 2
    twice = [*range(len(X)), 1, 4]
    weighted = tight(solver=solver).fit(X, Y, sample_weight=weights)
    repeated = tight(solver=solver).fit([X[i] for i in twice], [Y[i] for i in twice])
    same_predictions(weighted, repeated, X)
    total = weighted.certificate_.primal * len(X)  # certificates are per example
    assert total == pytest.approx(repeated.certificate_.primal * len(twice), rel=1e-8)


@pytest.mark.parametrize("solver", ["sdca", "lbfgs"])
def test_weight_zero_is_the_example_left_out(solver):
    weights = np.array([1.0] * 7 + [0.0])
    weighted = tight(solver=solver).fit(X, Y, sample_weight=weights)
    without = tight(solver=solver).fit(X[:7], Y[:7])
    same_predictions(weighted, without, X[:7])


def test_sequences_of_one_token_take_the_weight_of_their_class():
    x = [[token] for s in X for token in s]
    y = [[tag] for tags in Y for tag in tags]
    by_class = tight(class_weight={"A": 3.0, "B": 0.5}).fit(x, y)
    by_example = tight().fit(x, y, [{"A": 3.0, "B": 0.5, "C": 1.0}[tags[0]] for tags in y])
    same_predictions(by_class, by_example, x)


def test_balanced_weights_lift_a_rare_class():
    x, y = [[["a"]]] * 20, [["common"]] * 18 + [["rare"]] * 2
    plain, balanced = tight().fit(x, y), tight(class_weight="balanced").fit(x, y)
    assert plain.predict_marginals(x[:1])[0][0, 1] < 0.2
    assert balanced.predict_marginals(x[:1])[0][0, 1] == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize(
    "weights", [[1.0], [-1.0] * 8, [np.nan] * 8, [np.inf] * 8, [0] * 8, "much"]
)
def test_weights_that_make_no_sense_are_rejected(weights):
    with pytest.raises(DataError, match="sample_weight"):
        tight().fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize(
    "weight", ["much", {"Z": 1.0}, {"A": -1.0}, {"A": np.nan}, {"A": "much"}, 3]
)
def test_class_weights_that_make_no_sense_are_rejected(weight):
    with pytest.raises(DataError, match="class"):
        tight(class_weight=weight).fit(X, Y)
