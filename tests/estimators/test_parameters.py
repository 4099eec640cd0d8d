"""Parameter tables: validation, files, certificates, restrictions and renamed parameters."""

from __future__ import annotations

import inspect
import re
import warnings

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.cli import main
from cliquewise.data import Shards
from cliquewise.errors import ArgumentNameError, ParameterError, UnsupportedError
from cliquewise.estimators.files import KINDS
from cliquewise.estimators.parameters import (
    SequenceTaggerParameters,
    check_file_parameters,
    check_supported,
    names_with_role,
    saved_parameters,
    table_of,
)
from cliquewise.graph.oriented_trees import ENTROPIES
from cliquewise.models.pairwise import PAIRWISE
from cliquewise.persistence import read_arrays, write_arrays
from cliquewise.problems import candidates, chain, cliques, matching
from cliquewise.solvers.gdmm import GDMM

X, Y = [[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]]
OLD_NAMES = {
    "by": ("sequence_column", "s"),
    "boundaries": ("boundary_weights", False),
    "forbidden": ("forbidden_transitions", [("A", "A")]),
}
ESTIMATORS = [getattr(cw, kind) for kind in KINDS]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=list(KINDS))
def test_constructor_table_and_docstring_list_the_same_parameters(estimator):
    rows = table_of(estimator)
    signature = inspect.signature(estimator).parameters
    assert set(rows) == set(signature)
    assert {n: row.default for n, row in rows.items()} == {
        n: p.default for n, p in signature.items()
    }
    described = re.search(
        r"Parameters\n\s+-+\n(.*?)\n\s+Attributes", estimator.__doc__ + "\nAttributes", re.S
    )
    missing = [name for name in rows if not re.search(rf"\b{name}\b", described[1])]
    assert not missing


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=list(KINDS))
def test_defaults_satisfy_their_rules(estimator):
    for row in table_of(estimator).values():
        assert row.rule.accepts(row.default), row.name
        assert row.help.endswith(".") and row.help[0].isupper()


def test_words_in_rules_are_those_of_the_code_that_uses_them():
    losses = {
        cw.SequenceTagger: (*chain.LOSSES, "pseudo_likelihood"),
        cw.GraphLabeler: cliques.LOSSES,
        cw.MultiLabelClassifier: cliques.LOSSES,
        cw.Matcher: ("auto", "pseudo_likelihood", *matching.MatchingProblem.losses_known),
        cw.CandidateRanker: candidates.CandidateProblem.losses_known,
    }
    for estimator, words in losses.items():
        assert set(table_of(estimator)["loss"].rule.words) == set(words)
    assert table_of(cw.GraphLabeler)["entropy"].rule.words == tuple(ENTROPIES)
    assert table_of(cw.GraphLabeler)["pairwise"].rule.words == tuple(PAIRWISE)


@pytest.mark.parametrize(
    ("name", "value"),
    [("tol", -1), ("tol", "small"), ("C", 0), ("C", np.inf), ("C", np.nan), ("n_jobs", 0),
     ("min_count", 0), ("min_count", True), ("l1_ratio", 1.5), ("max_seconds", -1),
     ("loss", "huber"), ("dtype", "float16"), ("random_state", -1), ("transitions", "IOB"),
     ("sequence_column", 3), ("checkpoint_seconds", None)],
)  # fmt: skip
def test_fit_refuses_values_out_of_range_by_parameter_name(name, value):
    with pytest.raises(ParameterError, match=f"^{name} must be ") as caught:
        cw.SequenceTagger(**{name: value}).fit(X, Y)
    assert caught.value.parameter == name


def test_numpy_scalars_are_valid_numbers():
    tagger = cw.SequenceTagger(C=np.float32(2), min_count=np.int64(1), intercept=np.True_)
    assert tagger.fit(X, Y).predict(X) == Y


# ---- files and certificates


def test_files_hold_what_the_table_says(tmp_path):
    tagger = cw.SequenceTagger(C=np.float64(2), n_jobs=2, verbose=0, random_state=0).fit(X, Y)
    tagger.save(tmp_path / "m.cw")
    held = read_arrays(tmp_path / "m.cw")[1]["params"]
    assert set(held) == {n for n, row in table_of(cw.SequenceTagger).items() if row.is_saved}
    assert held["C"] == 2.0 and isinstance(held["C"], float)


@pytest.mark.parametrize(
    "name", ["n_jobs", "checkpoint", "template", "device", "client", "nothing"]
)
def test_files_cannot_set_parameters_that_act(name):
    with pytest.raises(cw.errors.DataError, match="a file may not set"):
        check_file_parameters(cw.SequenceTagger, {name: 1})


def test_arrays_inside_lists_are_saved_as_lists():
    values = {"transitions": [np.array([True, False]), np.array([True, True])], "tol": 0.1}
    saved = saved_parameters(cw.SequenceTagger, values)
    assert saved == {"transitions": [[True, False], [True, True]], "tol": 0.1}


@pytest.mark.parametrize("role", ["objective", "model", "run"])
def test_changing_a_parameter_of_the_objective_voids_the_certificate(role, tmp_path):
    changes = {"objective": {"C": 3.0}, "model": {"intercept": False}, "run": {"tol": 0.1}}[role]
    assert set(changes) <= set(names_with_role(cw.SequenceTagger, role))
    tagger = cw.SequenceTagger(random_state=0).fit(X, Y).set_params(**changes)
    tagger.save(tmp_path / "m.cw")
    loaded = cw.load(tmp_path / "m.cw")
    assert np.isnan(loaded.certificate_.primal) == (role == "objective")
    assert loaded.intercept is True


# ---- restrictions


@pytest.mark.parametrize(
    "values", [{"cost": {"A": 2.0}}, {"class_weight": "balanced"}, {"loss": "pseudo_likelihood"}]
)
def test_shards_refuse_parameters_that_need_data_in_memory(values, tmp_path):
    shards = Shards(lambda: zip(X, Y, strict=True), tmp_path / "cache")
    with pytest.raises(UnsupportedError, match="not supported for Shards") as caught:
        cw.SequenceTagger(**values).fit(shards)
    assert caught.value.parameters == tuple(values)


def test_restrictions_ignore_defaults():
    values = {name: row.default for name, row in table_of(cw.SequenceTagger).items()}
    for setting in ("shards", "shards on disk", "dask"):
        check_supported(cw.SequenceTagger, values, setting)
    with pytest.raises(UnsupportedError, match="device"):
        check_supported(cw.SequenceTagger, values | {"device": "cuda"}, "dask")


# ---- renamed parameters


@pytest.mark.parametrize("old", OLD_NAMES)
def test_old_names_work_with_a_warning(old):
    new, value = OLD_NAMES[old]
    with pytest.warns(FutureWarning, match=f"{old} was renamed to {new}"):
        tagger = cw.SequenceTagger(**{old: value})
    assert getattr(tagger, new) == value
    with pytest.warns(FutureWarning, match=new):
        tagger = cw.SequenceTagger().set_params(**{old: value})
    assert tagger.get_params()[new] == value
    with pytest.warns(FutureWarning, match=new):
        assert getattr(tagger, old) == value
    tagger = cw.SequenceTagger()
    with pytest.warns(FutureWarning, match=new):
        setattr(tagger, old, value)
    assert getattr(tagger, new) == value and old not in vars(tagger)


@pytest.mark.parametrize("old", OLD_NAMES)
def test_old_and_new_name_together_are_an_error(old):
    new, value = OLD_NAMES[old]
    with pytest.raises(ArgumentNameError, match=f"{old} is the old name of {new}"):
        cw.SequenceTagger(**{old: value, new: value})


def test_files_with_old_names_load_without_a_warning(tmp_path):
    tagger = cw.SequenceTagger(boundary_weights=False, random_state=0).fit(X, Y)
    tagger.save(tmp_path / "new.cw")
    arrays, header = read_arrays(tmp_path / "new.cw")
    for old, (new, _) in OLD_NAMES.items():
        header["params"][old] = header["params"].pop(new)
    write_arrays(tmp_path / "old.cw", arrays, header)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = cw.load(tmp_path / "old.cw")
        fast = cw.load(tmp_path / "old.cw", predict_only=True)
    assert loaded.boundary_weights is False and loaded.get_params() == tagger.get_params()
    assert loaded.predict(X) == fast.predict(X) == tagger.predict(X)


def test_old_names_of_gdmm_work_with_a_warning():
    with pytest.warns(FutureWarning, match="quiet was renamed to shrink_below"):
        solver = GDMM(quiet=0.2)
    with pytest.warns(FutureWarning, match="admit was renamed to max_new_labels"):
        assert GDMM(admit=2).max_new_labels == 2
    assert solver.shrink_below == 0.2


# ---- the command line


def test_every_option_of_fit_comes_from_the_table():
    command = main.get_command(None, "fit")
    flags = {flag for parameter in command.params for flag in parameter.opts}
    for row in table_of(SequenceTaggerParameters).values():
        assert (row.flag in flags) == (row.option is not None), row.name
