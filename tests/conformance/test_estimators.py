"""Every public estimator keeps scikit-learn's conventions, its files, and the meaning of weights.

Estimators are found among the public names; a new one needs a recipe for its data.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import cliquewise as cw
from cliquewise.errors import CliquewiseError, DataError, FormatError
from cliquewise.estimators.files import KINDS
from cliquewise.trace import Trace

PUBLIC = [getattr(cw, name) for name in cw.__all__ if inspect.isclass(getattr(cw, name))]
ESTIMATORS = [cls for cls in PUBLIC if issubclass(cls, BaseEstimator)]
N = 12


# ---- data of every kind


def sequences(rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    y = [[*rng.permutation(["A", "B", "C"]).tolist(), "A"] for _ in range(N)]
    return [[[f"w={t}", f"n={rng.integers(3)}"] for t in tags] for tags in y], y


def rows(rng: np.random.Generator) -> tuple[Any, Any]:
    y = np.arange(N) % 3
    return rng.standard_normal((N, 4)) + y[:, None], np.array(["x", "y", "z"])[y]


def label_sets(rng: np.random.Generator) -> tuple[Any, Any]:
    X = rng.standard_normal((N, 4))
    return X, (X[:, :3] + 0.5 * rng.standard_normal((N, 3)) > 0).astype(int)


def graphs(rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    X = [(rng.standard_normal((4, 2)), [(0, 1), (1, 2), (2, 3)]) for _ in range(N)]
    return X, [np.where(x[:, 0] + rng.standard_normal(4) > 0, "in", "out").tolist() for x, _ in X]


def pair_tables(rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    y = [rng.permutation(4)[:3] for _ in range(N)]
    X = [rng.standard_normal((3, 4, 2)) for _ in range(N)]
    for x, columns in zip(X, y, strict=True):
        x[np.arange(3), columns, 0] += 1.0
    return X, y


def candidates(rng: np.random.Generator) -> tuple[list[Any], Any]:
    y = rng.integers(0, 3, N)
    X = [rng.standard_normal((5, 3)) for _ in range(N)]
    for x, best in zip(X, y, strict=True):
        x[best] += 0.5
    return X, y


@dataclass
class Recipe:
    data: Callable[..., tuple[Any, Any]]
    #: Parameters of models whose files are tried.
    saved: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    #: A solver that reaches the exact optimum, for what holds of optima only.
    tight: dict[str, Any] = field(default_factory=dict)


TIGHT = {"tol": 1e-10, "max_epochs": 20_000}
EXACT = {"solver": "lbfgs"}
RECIPES = {
    "SequenceTagger": Recipe(
        sequences,
        [
            {},
            {"loss": "hinge", "solver": "bcfw", "class_weight": "balanced"},
            {"feature_pairs": "seen", "transitions": np.ones((3, 3), dtype=bool)},
        ],
    ),
    "MulticlassClassifier": Recipe(
        rows, [{}, {"solver": "lbfgs", "intercept": False, "max_epochs": np.int64(100)}], EXACT
    ),
    "GraphLabeler": Recipe(
        graphs, [{}, {"solver": "lbfgs", "pairwise": "potts"}, {"loss": "hinge"}], EXACT
    ),
    "MultiLabelClassifier": Recipe(
        label_sets,
        [
            {},
            {"solver": "lbfgs", "label_graph": [[0, 1], [1, 2]]},
            {"loss": "hinge", "solver": "gdmm", "pairs": "co-occurrence", "C": 0.1},
            {"label_graph": "tree", "intercept": False},
        ],
        EXACT,
    ),
    "Matcher": Recipe(pair_tables, [{}, {"intercept": False, "cost_wrong": 2.0}]),
    "CandidateRanker": Recipe(candidates, [{}, {"loss": "log", "solver": "lbfgs"}]),
}
EVERY = pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
SAVED = pytest.mark.parametrize(
    ("cls", "parameters"),
    [(cls, p) for cls in ESTIMATORS for p in RECIPES[cls.__name__].saved],
    ids=lambda value: getattr(value, "__name__", None),
)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def examples(cls: type, seed: int = 0) -> tuple[Any, Any]:
    return RECIPES[cls.__name__].data(np.random.default_rng(seed))


def pick(values: Any, chosen: Any) -> Any:
    return values[chosen] if isinstance(values, np.ndarray) else [values[i] for i in chosen]


# ---- scikit-learn's own checks

MATRIX = "X is no matrix"
#: What sklearn's checks ask of estimators of rows; these take lists of structures.
STRUCTURED = dict.fromkeys(
    [
        "check_fit_score_takes_y", "check_estimators_overwrite_params",
        "check_dont_overwrite_parameters", "check_estimators_fit_returns_self",
        "check_readonly_memmap_input", "check_n_features_in_after_fitting",
        "check_positive_only_tag_during_fit", "check_estimators_dtypes",
        "check_sample_weights_pandas_series", "check_sample_weights_not_an_array",
        "check_sample_weights_list", "check_all_zero_sample_weights_error",
        "check_sample_weights_shape", "check_sample_weights_not_overwritten",
        "check_sample_weight_equivalence_on_dense_data", "check_complex_data",
        "check_dtype_object", "check_estimators_empty_data_messages",
        "check_pipeline_consistency", "check_estimators_nan_inf", "check_estimators_pickle",
        "check_f_contiguous_array_estimator", "check_methods_sample_order_invariance",
        "check_methods_subset_invariance", "check_fit2d_1sample", "check_fit2d_1feature",
        "check_dict_unchanged", "check_fit_idempotent", "check_fit_check_is_fitted",
        "check_n_features_in", "check_fit2d_predict1d",
    ],
    MATRIX,
)  # fmt: skip
COLUMNS = "y is columns of 0 and 1, not classes"
EXPECTED_FAILURES: dict[str, dict[str, str]] = {
    "MulticlassClassifier": {},
    "MultiLabelClassifier": dict.fromkeys(
        [
            "check_estimators_dtypes", "check_sample_weights_pandas_series",
            "check_sample_weights_not_an_array", "check_sample_weights_shape",
            "check_sample_weights_not_overwritten",
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
            "check_estimator_sparse_array", "check_estimator_sparse_matrix",
            "check_classifier_data_not_an_array", "check_classifiers_one_label",
            "check_classifiers_one_label_sample_weights", "check_classifiers_classes",
            "check_classifiers_train", "check_classifiers_regression_target",
            "check_classifier_not_supporting_multiclass", "check_fit2d_1feature",
            "check_decision_proba_consistency",
        ],
        COLUMNS,
    ),
    "SequenceTagger": STRUCTURED,
    "GraphLabeler": STRUCTURED,
    "Matcher": STRUCTURED,
    "CandidateRanker": STRUCTURED,
}  # fmt: skip


def checked() -> list[Any]:
    made = []
    for cls in ESTIMATORS:
        # Its checks compare optima; a run may end a little above a gap at the limit of float64.
        exact = cls.__name__ == "MulticlassClassifier"
        made.append(cls(random_state=0, **({**EXACT, "tol": 1e-15} if exact else {})))
    return made


@parametrize_with_checks(
    checked(), expected_failed_checks=lambda e: EXPECTED_FAILURES[type(e).__name__]
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# ---- files


def visible(estimator: Any) -> dict[str, Any]:
    """Return all public fitted attributes: those of the instance, and properties of the class."""
    properties = [k for k, v in inspect.getmembers(type(estimator)) if isinstance(v, property)]
    names = [k for k in (*vars(estimator), *properties) if k.endswith("_") and k[0] != "_"]
    return {k: getattr(estimator, k) for k in names if hasattr(estimator, k)}


def assert_same(a: Any, b: Any, where: str) -> None:
    """Assert that two objects have the same type and the same values, apart from caches."""
    assert type(a) is type(b), where
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape, where
        np.testing.assert_array_equal(a, b, where)
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (p, q) in enumerate(zip(a, b, strict=True)):
            assert_same(p, q, f"{where}[{i}]")
    elif isinstance(a, dict):
        assert set(a) == set(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, Trace):
        assert a.columns == b.columns, where
        # Files leave out times, so that equal runs write equal files.
        timeless = [c for c in a.columns if not c.endswith("seconds")]
        assert_same({c: a[c] for c in timeless}, {c: b[c] for c in timeless}, where)
    elif isinstance(a, BaseEstimator):
        assert_same(visible(a), visible(b), where)
    elif hasattr(a, "to_state"):
        assert_same(a.to_state(), b.to_state(), where)
    elif is_dataclass(a):  # `pairs` is an argument; `pair_list` is what becomes of it
        names = [f.name for f in fields(a) if f.name != "pairs"]
        for name in names:
            assert_same(getattr(a, name), getattr(b, name), f"{where}.{name}")
    elif hasattr(a, "__dict__"):
        assert_same(vars(a), vars(b), where)
    else:
        assert a == b, where


def answers(estimator: Any, X: Any) -> dict[str, Any]:
    out = {}
    for name in ("predict", "predict_proba", "predict_marginals", "decision_function"):
        if hasattr(estimator, name):
            try:
                out[name] = getattr(estimator, name)(X)
            except CliquewiseError:  # no probabilities with the hinge loss
                assert estimator.loss == "hinge" and name != "predict"
    return out


@EVERY
def test_unfitted_and_fitted_estimators_can_be_listed_and_displayed(cls: type) -> None:
    """Notebooks and tab completion evaluate every property; only AttributeError is allowed."""
    estimator = cls(random_state=0)
    assert "coef_" not in dir(estimator)
    assert cls.__name__ in estimator._repr_html_() and cls.__name__ in repr(estimator)
    estimator.fit(*examples(cls))
    assert {"coef_", "certificate_", "fit"} <= set(dir(estimator))
    assert cls.__name__ in estimator._repr_html_() and cls.__name__ in repr(estimator)


def test_every_estimator_has_a_recipe_and_can_be_loaded() -> None:
    names = {cls.__name__ for cls in ESTIMATORS}
    assert names == set(RECIPES) == set(EXPECTED_FAILURES) == set(KINDS) and len(names) >= 6


@SAVED
def test_a_file_keeps_everything_that_was_fitted(
    cls: type, parameters: dict[str, Any], tmp_path: Any
) -> None:
    X, y = examples(cls)
    fitted = cls(random_state=3, **parameters).fit(X, y)
    fitted.save(tmp_path / "model.cw")
    again = cw.load(tmp_path / "model.cw")
    assert type(again) is cls
    assert {"coef_", "certificate_"} <= set(visible(fitted))
    assert_same(visible(fitted), visible(again), cls.__name__)
    assert_same(answers(fitted, X), answers(again, X), "answers")
    assert again.score(X, y) == fitted.score(X, y)
    for name, value in fitted.get_params().items():
        np.testing.assert_array_equal(again.get_params()[name], value, name)
    again.save(tmp_path / "again.cw")
    assert (tmp_path / "again.cw").read_bytes() == (tmp_path / "model.cw").read_bytes()
    assert_same(answers(clone(again).fit(X, y), X), answers(fitted, X), "trained again")


@EVERY
def test_parameters_of_one_machine_or_run_stay_out_of_the_file(cls: type, tmp_path: Any) -> None:
    X, y = examples(cls)
    settings = {"n_jobs": 2, "verbose": 0, "random_state": np.random.default_rng(0)}
    known = cls().get_params()
    cls(**{k: v for k, v in settings.items() if k in known}).fit(X, y).save(tmp_path / "m.cw")
    assert cw.load(tmp_path / "m.cw").get_params() == known


@pytest.mark.parametrize("cls", [cw.MulticlassClassifier, cw.MultiLabelClassifier])
def test_names_of_columns_come_back(cls: type, tmp_path: Any) -> None:
    import pandas as pd

    X, y = examples(cls)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "ü"])
    fitted = cls(random_state=0).fit(frame, y)
    fitted.save(tmp_path / "m.cw")
    again = cw.load(tmp_path / "m.cw")
    assert_same(visible(fitted), visible(again), cls.__name__)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"a": "z"}))


@EVERY
def test_a_file_with_a_damaged_part_is_rejected(cls: type, tmp_path: Any) -> None:
    from cliquewise import persistence

    X, y = examples(cls)
    path = tmp_path / "m.cw"
    cls(random_state=0).fit(X, y).save(path)
    arrays, header = persistence.read_arrays(path)
    damage: list[Any] = [
        lambda a, h: a.update(coef=a["coef"][:-1]),
        lambda a, h: a.update(coef=np.full_like(a["coef"], np.inf)),
        lambda a, h: a.update(coef=a["coef"].astype(np.float32)),
        lambda a, h: a.update(trace=a["trace"][:, 1:]),
        lambda a, h: a.pop("trace"),
        lambda a, h: h.update(trace=["append"]),
        lambda a, h: h.update(n_iter="many"),
        lambda a, h: h.update(certificate={}),
        lambda a, h: h.update(feature_names=[1, 2]),
        lambda a, h: h.update(params={"unknown": 1}),
        lambda a, h: h.pop("solver"),
    ]
    for change in damage:
        a, h = dict(arrays), dict(header)
        change(a, h)
        persistence.write_arrays(path, a, h)
        with pytest.raises(FormatError, match=r"m\.cw"):
            cw.load(path)


# ---- clones, pickles, parameters, seeds


@EVERY
def test_parameters_are_what_the_signature_says(cls: type) -> None:
    signature = inspect.signature(cls)
    estimator = cls()
    assert set(signature.parameters) == set(estimator.get_params())
    for name, parameter in signature.parameters.items():
        assert getattr(estimator, name) is parameter.default
        value = object()
        assert getattr(cls().set_params(**{name: value}), name) is value
        assert getattr(cls(**{name: value}), name) is value
    with pytest.raises(ValueError, match="Invalid parameter"):
        estimator.set_params(unknown=1)


@EVERY
def test_clones_pickles_and_seeds(cls: type) -> None:
    X, y = examples(cls)
    fitted = cls(C=0.5, random_state=1).fit(X, y)
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)
    with pytest.raises(NotFittedError):
        clone(fitted).save("unused")
    second = clone(fitted).fit(X, y)
    assert_same(second.coef_, fitted.coef_, "coef_")
    assert second.certificate_ == fitted.certificate_ and second.n_iter_ == fitted.n_iter_
    copied = pickle.loads(pickle.dumps(fitted))
    assert_same(visible(copied), visible(fitted), "pickle")
    assert_same(answers(copied, X), answers(fitted, X), "pickle")


# ---- weights


@EVERY
@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_a_weight_is_a_number_of_copies(cls: type, weight: float) -> None:
    X, y = examples(cls, 1)
    weights = np.ones(N)
    weights[-3:] = weight
    copies = [*range(N - 3), *list(range(N - 3, N)) * int(weight)]
    tight = cls(random_state=0, **TIGHT, **RECIPES[cls.__name__].tight)
    weighted = clone(tight).fit(X, y, sample_weight=weights)
    repeated = clone(tight).fit(pick(X, copies), pick(y, copies))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=2e-4)
    rough = cls(C=0.01, random_state=0).fit(X, y)
    assert rough.score(X, y, sample_weight=weights) == pytest.approx(
        rough.score(pick(X, copies), pick(y, copies))
    )
    assert rough.score(X, y, sample_weight=np.full(N, 3.0)) == pytest.approx(rough.score(X, y))


# ---- bad input


@EVERY
def test_bad_parameters_are_rejected_with_a_reason(cls: type) -> None:
    X, y = examples(cls)
    bad = {
        "C": [0, -1.0, np.nan, "1"], "tol": [-1.0, None], "max_epochs": [-1, np.nan],
        "max_seconds": [-1.0], "max_memory": [-1.0], "solver": ["adam"], "n_jobs": [0, "all", 1.5],
        "class_weight": [{"x": -1.0, "A": -1.0, "in": -1.0}, "much", {"no such class": 1.0}, 3],
        "loss": ["square"],
    }  # fmt: skip
    for name in set(bad) & set(cls().get_params()):
        for value in bad[name]:
            with pytest.raises(CliquewiseError):
                cls(**{name: value}).fit(X, y)


@EVERY
def test_negative_class_weights_are_rejected(cls: type) -> None:
    X, y = examples(cls)
    if "class_weight" not in cls().get_params():
        return
    first = np.ravel(y)[0] if isinstance(y, np.ndarray) else y[0][0]
    with pytest.raises(DataError, match="not negative"):
        cls(class_weight={first: -1.0}).fit(X, y)


@EVERY
def test_bad_weights_and_examples_are_rejected_with_a_reason(cls: type) -> None:
    X, y = examples(cls)
    fitted = cls(random_state=0).fit(X, y)
    for weights in ([1.0], [-1.0] * N, [np.nan] * N, [0.0] * N, "much"):
        with pytest.raises(CliquewiseError, match="sample_weight"):
            cls().fit(X, y, sample_weight=weights)
        with pytest.raises(ValueError, match="weight"):
            fitted.score(X, y, sample_weight=weights)
    for wrong_X, wrong_y in [(X, None), (X, y[:-1]), (None, y), (3, y), ("text", y)]:
        with pytest.raises(ValueError, match=r"."):
            cls().fit(wrong_X, wrong_y)
    for wrong in (None, 3, "text"):
        with pytest.raises(ValueError, match=r"."):
            fitted.predict(wrong)
