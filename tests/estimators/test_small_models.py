"""Small models: files without zeros, fewer bytes per weight, pruning and its price, loading."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zlib

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data.attribute_table import AttributeTable, hash_table_of
from cliquewise.data.names import pack_names, unpack_names
from cliquewise.data.templates import Template
from cliquewise.errors import DataError, FormatError

RNG = np.random.default_rng(5)
X = [
    [[f"w{RNG.integers(200)}", f"v{RNG.integers(9)}"] for _ in range(RNG.integers(1, 7))]
    for _ in range(60)
]
Y = [["ABC"[int(t[0][1:]) % 3] for t in x] for x in X]
ROWS = [[[str(v)[1:], str(u)[1:]] for v, u in x] for x in X]
TEMPLATE = Template.parse("U1:%x[0,0]\nU2:%x[0,1]\nB:%x[0,1]")
KINDS = {
    "all pairs": (X, {}),
    "seen pairs": (X, {"feature_pairs": "seen"}),
    "hinge": (X, {"loss": "hinge"}),
    "hashed": (X, {"n_hash": 50}),
    "pair attributes": (ROWS, {"template": TEMPLATE}),
    "no constants": (X, {"intercept": False, "boundary_weights": False}),
}


def fitted(kind):
    data, parameters = KINDS[kind]
    tagger = cw.SequenceTagger(random_state=0, tol=1e-2, **parameters).fit(data, Y)
    return data, tagger


def objective(tagger, data, c=1.0):
    """Per example, from likelihoods alone."""
    losses = -tagger.log_likelihood(data, Y)
    return 0.5 * tagger.coef_ @ tagger.coef_ / (c * len(data)) + losses.mean()


@pytest.mark.parametrize("kind", KINDS)
def test_pruning_reports_its_cost_and_saves_the_remaining_weights(kind, tmp_path):
    data, tagger = fitted(kind)
    tagger.save(tmp_path / "whole.cw")
    before, dual = tagger.certificate_.primal, tagger.certificate_.dual
    largest = np.sort(np.abs(tagger.coef_))[::-1]
    assert tagger.prune(keep=0.2) is tagger
    told = tagger.pruned_
    assert told.weights <= 0.2 * told.weights_before + 1
    assert told.objective_before == before and told.objective == tagger.certificate_.primal
    assert tagger.certificate_.dual == dual <= told.objective and told.loss >= -1e-12
    if tagger.loss == "log":
        assert told.objective == pytest.approx(objective(tagger, data), rel=1e-9)
    assert np.abs(tagger.coef_).max() == largest[0] or kind == "pair attributes"
    tagger.save(tmp_path / "small.cw")
    sizes = [(tmp_path / f"{name}.cw").stat().st_size for name in ("small", "whole")]
    assert sizes[0] < sizes[1]
    copy = cw.load(tmp_path / "small.cw")
    assert copy.predict(data) == tagger.predict(data)
    np.testing.assert_array_equal(copy.coef_, tagger.coef_)


def test_keep_distinguishes_shares_from_counts(tmp_path):
    _, tagger = fitted("all pairs")
    n = np.count_nonzero(tagger.coef_)
    with pytest.raises(DataError, match="a share up to 1 or an integer"):
        tagger.prune(keep=1.5)
    assert tagger.prune(keep=1.0).n_nonzero_ == n
    with pytest.raises(FormatError, match="cannot be written there"):
        tagger.save(tmp_path / "no" / "m.cw")


def test_pruning_by_a_threshold_drops_exactly_the_weights_below_it():
    _, tagger = fitted("all pairs")
    weights, transitions = tagger.state_features_, tagger.transition_features_
    tagger.prune(0.1)
    assert tagger.state_features_ == {k: w for k, w in weights.items() if abs(w) > 0.1}
    assert tagger.transition_features_ == transitions
    named = {name for name, _ in tagger.state_features_}
    assert set(tagger.encoder_.names()) == named - {"(intercept)", "(begin)", "(end)"}


def test_loaded_tagger_prunes_with_given_data(tmp_path):
    data, tagger = fitted("all pairs")
    tagger.save(tmp_path / "m.cw")
    copy = cw.load(tmp_path / "m.cw")
    with pytest.raises(DataError, match="give X and y"):
        copy.prune(keep=0.5)
    copy.prune(keep=0.5, X=data, y=Y)
    tagger.prune(keep=0.5)
    assert copy.pruned_.objective == pytest.approx(tagger.pruned_.objective, rel=1e-9)
    best = cw.SequenceTagger(random_state=0, tol=1e-6).fit(data, Y).certificate_.primal
    assert copy.certificate_.dual <= best + 1e-6  # a bound for these data
    with pytest.raises(DataError, match="give X and y"):
        tagger.prune(keep=0.5)  # its training data have other attributes


def test_pruning_without_effect_keeps_the_certificate(tmp_path):
    for kind in ("hinge", "seen pairs"):
        data, tagger = fitted(kind)
        tagger.save(tmp_path / "m.cw")
        copy = cw.load(tmp_path / "m.cw").prune(0.0, X=data, y=Y)
        assert copy.certificate_ == tagger.certificate_
        assert copy.pruned_.weights == copy.pruned_.weights_before
        assert copy.pruned_.objective == pytest.approx(tagger.certificate_.primal, rel=1e-9)
        copy.prune(keep=0.5, X=data, y=Y)
        assert copy.certificate_.primal == copy.pruned_.objective > tagger.certificate_.primal
        assert copy.certificate_.dual <= tagger.certificate_.primal


@pytest.mark.parametrize("loss", ["pseudo_likelihood", "softmax_margin"])
def test_pruning_with_given_data_accepts_token_and_sample_weights(loss, tmp_path):
    rng = np.random.default_rng(2)
    given = {"token_weight": [rng.uniform(0, 3, len(x)).tolist() for x in X],
             "sample_weight": rng.uniform(0, 2, len(X))}  # fmt: skip
    weights = {"A": 2.0, "B": 0.5}
    tagger = cw.SequenceTagger(loss, C=0.3, l1_ratio=0.2, class_weight=weights, random_state=0)
    tagger.fit(X, Y, **given).save(tmp_path / "m.cw")
    copy = cw.load(tmp_path / "m.cw").prune(keep=0.5, X=X, y=Y, **given)
    tagger.prune(keep=0.5)
    assert copy.pruned_.objective_before == pytest.approx(tagger.pruned_.objective_before, rel=1e-9)
    assert copy.pruned_.objective == pytest.approx(tagger.pruned_.objective, rel=1e-9)
    assert copy.certificate_.dual <= tagger.pruned_.objective_before


@pytest.mark.parametrize("changed", [{"C": 50.0}, {"l1_ratio": 0.7}])
def test_changed_parameters_invalidate_the_certificate(changed, tmp_path):
    data, tagger = fitted("all pairs")
    tagger.save(tmp_path / "m.cw", with_state=True)
    proved = tagger.certificate_
    for model in (cw.load(tmp_path / "m.cw"), pickle.loads(pickle.dumps(tagger)), tagger):
        model.set_params(**changed)
        for options in ({}, {"dtype": "float16"}):
            model.save(tmp_path / "changed.cw", **options)
            assert cw.load(tmp_path / "changed.cw").certificate_.status == "none"
        if model is not tagger:
            continue
        model.save(tmp_path / "changed.cw", with_state=True)
        loaded = cw.load(tmp_path / "changed.cw")
        loaded.save(tmp_path / "again.cw", with_state=True)
        assert loaded.certificate_.status == "none"
        with pytest.raises(DataError, match="give X and y"):
            model.prune(keep=0.5)
        assert model.certificate_ == proved
        model.prune(0.0, X=data, y=Y)
        best = cw.SequenceTagger(**{**model.get_params(), "tol": 1e-5}).fit(data, Y)
        assert model.certificate_.primal == pytest.approx(model.pruned_.objective)
        assert model.certificate_.dual <= best.certificate_.primal
    loaded = cw.load(tmp_path / "m.cw").set_params(**changed)
    loaded.save(tmp_path / "again.cw", with_state=True)
    with pytest.raises(DataError, match="give X and y"):
        loaded.prune(keep=0.5)


GRAPHS = [(np.eye(2), [(0, 1)]), (np.eye(2), [])], [[3, 4], [4, 4]]
OTHERS = [(cw.GraphLabeler, *GRAPHS), (cw.MulticlassClassifier, np.eye(3), [3, 4, 4])]


@pytest.mark.parametrize(("kind", "data", "truth"), OTHERS)
def test_changed_C_invalidates_the_saved_certificate(kind, data, truth, tmp_path):
    model = kind(random_state=0).fit(data, truth)
    model.save(tmp_path / "m.cw")
    assert cw.load(tmp_path / "m.cw").certificate_ == model.certificate_
    model.set_params(C=9.0).save(tmp_path / "m.cw")
    assert cw.load(tmp_path / "m.cw").certificate_.status == "none"


@pytest.mark.parametrize(("kind", "data", "truth"), OTHERS)
def test_model_files_keep_class_weights(kind, data, truth, tmp_path):
    model = kind(random_state=0, class_weight={4: 3.0}).fit(data, truth)
    model.save(tmp_path / "m.cw")
    copy = cw.load(tmp_path / "m.cw")
    assert copy.class_weight == {3: 1.0, 4: 3.0}
    again = copy.set_params(random_state=0).fit(data, truth)
    assert again.certificate_.primal == pytest.approx(model.certificate_.primal, rel=2e-3)


def test_changed_pair_costs_invalidate_the_saved_certificate(tmp_path):
    matcher = cw.Matcher(C=10.0, random_state=0).fit([RNG.normal(size=(2, 3, 2))], [[1, 0]])
    assert matcher.certificate_.gap <= 1e-3
    matcher.set_params(cost_missing=5.0).save(tmp_path / "m.cw")
    assert cw.load(tmp_path / "m.cw").certificate_.status == "none"


def test_class_weight_changed_in_place_invalidates_the_saved_certificate(tmp_path):
    tagger = cw.SequenceTagger(class_weight={"A": 1.0}, random_state=0).fit(X[:9], Y[:9])
    tagger.class_weight["A"] = 7.0
    tagger.save(tmp_path / "m.cw")
    assert cw.load(tmp_path / "m.cw").certificate_.status == "none"


def test_rounded_intercepts_invalidate_the_certificate(tmp_path):
    classifier = cw.MulticlassClassifier(random_state=0).fit(np.zeros((5, 2)), list("aabbc"))
    assert not classifier.coef_.any()
    classifier.save(tmp_path / "m.cw", dtype="float16")
    copy = cw.load(tmp_path / "m.cw")
    assert not np.array_equal(copy.intercept_, classifier.intercept_)
    assert copy.certificate_.status == "none"


PAIRS = [RNG.normal(size=(2, 3, 2))]
CHANGES = {
    "tagger": (cw.SequenceTagger, X[:9], Y[:9], {"intercept": False, "boundary_weights": False}),
    "transitions": (cw.SequenceTagger, X[:9], Y[:9], {"transitions": [[True]]}),
    "classes": (cw.MulticlassClassifier, np.eye(3), list("abc"), {"intercept": False}),
    "matching": (cw.Matcher, PAIRS, [[1, 0]], {"intercept": False, "partial": False}),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_model_parameters_are_saved_as_used_in_training(kind, tmp_path):
    estimator, data, truth, changes = CHANGES[kind]
    model = estimator(random_state=0).fit(data, truth)
    before, predicted = model.get_params(), model.predict(data)
    model.set_params(**changes).save(tmp_path / "m.cw")
    copy = cw.load(tmp_path / "m.cw")
    assert all(getattr(copy, name) == before[name] for name in changes)
    assert np.array_equal(copy.coef_, model.coef_) and copy.certificate_ == model.certificate_
    for own, other in zip(predicted, copy.predict(data), strict=True):
        assert np.array_equal(own, other)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("given", [True, False])
def test_weights_rounded_by_pruning_keep_their_certificate(given, dtype, tmp_path):
    data, tagger = fitted("all pairs")
    own = {"X": data, "y": Y} if given else {}
    best = tagger.certificate_.primal * (1 - tagger.certificate_.gap)
    tagger.prune(keep=0.5, dtype=dtype, **own).save(tmp_path / "m.cw", dtype=dtype)
    loaded = cw.load(tmp_path / "m.cw")
    assert loaded.certificate_ == tagger.certificate_ and loaded.certificate_.status == "exact"
    assert loaded.certificate_.primal == pytest.approx(tagger.pruned_.objective)
    assert loaded.certificate_.primal >= best
    again = loaded.prune(0.0, X=data, y=Y).pruned_
    assert again.objective == pytest.approx(tagger.pruned_.objective, rel=1e-12)
    with pytest.raises(DataError, match="dtype must be one of float64, float32, float16"):
        tagger.prune(0.0, dtype="float8", X=data, y=Y)


def test_pruned_tagger_drops_its_training_state(tmp_path):
    data, tagger = fitted("all pairs")
    tagger.save(tmp_path / "m.cw", with_state=True)
    copy = cw.load(tmp_path / "m.cw").prune(0.05, X=data, y=Y)
    with pytest.raises(DataError, match="loaded, pruned"):
        copy.partial_fit(data[:1], Y[:1])


@pytest.mark.parametrize("wrong", [{}, {"threshold": 1, "keep": 2}, {"keep": -1}, {"keep": "x"}])
def test_pruning_rejects_invalid_arguments(wrong):
    with pytest.raises(DataError, match="prune"):
        fitted("all pairs")[1].prune(**wrong)


def test_zero_weights_are_not_saved(tmp_path):
    data, tagger = fitted("all pairs")
    whole = tagger.predict_marginals(data)
    number = tagger.encoder_.names().index("w7")
    tagger.coef_[3 * number : 3 * number + 3] = 0.0
    without = tagger.predict_marginals(data)
    tagger.save(tmp_path / "m.cw")
    copy = cw.load(tmp_path / "m.cw")
    assert "w7" not in copy.encoder_.names() and len(copy.coef_) == len(tagger.coef_) - 3
    tagger._chain = tagger.chain_.with_weights(tagger.coef_)
    for a, b in zip(copy.predict_marginals(data), tagger.predict_marginals(data), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole is not without


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rounded_file_is_smaller_and_has_the_certificate_of_its_weights(dtype, tmp_path):
    data, tagger = fitted("seen pairs")
    tagger.save(tmp_path / "whole.cw")
    tagger.save(tmp_path / "m.cw", dtype=dtype)
    assert (tmp_path / "m.cw").stat().st_size < (tmp_path / "whole.cw").stat().st_size
    copy = cw.load(tmp_path / "m.cw")
    np.testing.assert_array_equal(copy.coef_, tagger.coef_.astype(dtype))
    assert copy.certificate_.primal == pytest.approx(objective(copy, data), rel=1e-12)
    assert copy.certificate_.dual == tagger.certificate_.dual
    copy.save(tmp_path / "again.cw", dtype="float16")  # of a tagger without its data
    again = cw.load(tmp_path / "again.cw").certificate_
    assert again.status == "none" if dtype == "float32" else again == copy.certificate_


def test_weights_beyond_float16_and_unknown_types_raise_errors(tmp_path):
    _, tagger = fitted("all pairs")
    with pytest.raises(DataError, match="float8"):
        tagger.save(tmp_path / "m.cw", dtype="float8")
    tagger.coef_[0] = 1e5
    with pytest.raises(DataError, match="does not fit into float16"):
        tagger.save(tmp_path / "m.cw", dtype="float16")
    assert not list(tmp_path.iterdir())


# ---- loading


def test_name_lookup_is_the_same_after_loading():
    rng = np.random.default_rng(0)
    names = list({"".join(rng.choice(list("aé日\x1f\x1e:_"), n)) for n in rng.integers(0, 9, 3000)})
    names = [n for n in names if "\uffff" not in n]
    asked = names + [n + "?" for n in names] + ["", "x" * 999]
    stored = AttributeTable(unpack_names("n", pack_names("n", names, hash_table_of(names))))
    found = stored.numbers(asked)
    assert "table" not in stored.__dict__  # few names are found without it
    np.testing.assert_array_equal(found, AttributeTable(names).numbers(asked))
    np.testing.assert_array_equal(stored.table, AttributeTable(names).table)
    np.testing.assert_array_equal(stored.numbers(asked), found)


def outcome(tagger, data):
    try:
        return tagger.predict(data)
    except DataError as error:
        return str(error)


def test_unusual_input_gives_the_same_result_after_loading(tmp_path):
    _, tagger = fitted("all pairs")
    tagger.save(tmp_path / "m.cw")
    for odd in ([[["w1", 3]]], [[[b"w1"]]], [[{"w1": 1, "v": ["a"]}]], [[]], [[[]]], [[[""]]], []):
        assert outcome(cw.load(tmp_path / "m.cw"), odd) == outcome(tagger, odd)


@pytest.mark.parametrize("kind", KINDS)
def test_first_sentences_after_loading_get_the_same_labels_as_later_ones(kind, tmp_path):
    data, tagger = fitted(kind)
    tagger.save(tmp_path / "m.cw")
    copy = cw.load(tmp_path / "m.cw", mmap=True)
    expected = tagger.predict(data)
    assert [copy.predict([x])[0] for x in data] == expected  # from few rows, then from all
    assert copy.predict(data) == expected


def test_loading_and_tagging_does_not_decode_names(tmp_path, monkeypatch):
    data, tagger = fitted("all pairs")
    tagger.save(tmp_path / "m.cw")
    monkeypatch.setattr(zlib, "decompressobj", None)
    assert cw.load(tmp_path / "m.cw").predict(data) == tagger.predict(data)


def test_memory_mapped_model_survives_replacing_its_file(tmp_path):
    data, tagger = fitted("all pairs")
    tagger.save(tmp_path / "m.cw")
    mapped = cw.load(tmp_path / "m.cw", mmap=True)
    expected = tagger.predict(data)
    tagger.prune(keep=1).save(tmp_path / "m.cw")
    assert mapped.predict(data) == expected
    assert mapped.feature_names() != cw.load(tmp_path / "m.cw").feature_names()


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_predict_only_model_predicts_the_same_labels_as_the_tagger(kind, mmap, tmp_path):
    data, tagger = fitted(kind)
    tagger.save(tmp_path / "m.cw")
    light = cw.load(tmp_path / "m.cw", mmap=mmap, predict_only=True)
    assert not isinstance(light, cw.SequenceTagger)
    assert light.predict(data) == tagger.predict(data)
    if tagger.has_probabilities:
        assert light.predict_top_k(data[:2], 3) == tagger.predict_top_k(data[:2], 3)
        for ours, theirs in zip(light.predict_marginals(data), tagger.predict_marginals(data)):
            np.testing.assert_array_equal(ours, theirs)


def test_predict_only_models_do_not_import_scikit_learn(tmp_path):
    cw.SequenceTagger(random_state=0).fit(X, Y).save(tmp_path / "m.cw")
    code = (
        "import sys, cliquewise as cw; x = [[['w1', 'v2'], ['w7']]]\n"
        "print(cw.load(sys.argv[1], predict_only=True).predict(x), 'sklearn' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.cw")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    expected = cw.load(tmp_path / "m.cw").predict([[["w1", "v2"], ["w7"]]])
    assert found.stdout == f"{expected} False\n"
    other = cw.MulticlassClassifier(random_state=0).fit(np.eye(3), [0, 1, 2])
    other.save(tmp_path / "c.cw")
    assert isinstance(cw.load(tmp_path / "c.cw", predict_only=True), cw.MulticlassClassifier)
