"""Going on: save, load, train on; new attributes and labels, early stopping; no kill loses."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data.dataset import Dataset
from cliquewise.data.templates import Template
from cliquewise.errors import CliquewiseError, DataError
from cliquewise.persistence import read_arrays, write_arrays

RNG = np.random.default_rng(3)
X = [
    [[f"w{RNG.integers(40)}", f"v{RNG.integers(6)}"] for _ in range(RNG.integers(1, 6))]
    for _ in range(50)
]
Y = [["AABC"[(int(t[0][1:]) + RNG.integers(2)) % 4] for t in x] for x in X]
CUT = 40


def tight(**parameters):
    return cw.SequenceTagger(**{"random_state": 0, "tol": 1e-7, "max_epochs": 1000} | parameters)


def reloaded(tagger, folder):
    tagger.save(folder / "m.cw", with_state=True)
    return cw.load(folder / "m.cw")


ROWS = [[[w[1:], v[1:]] for w, v in x] for x in X]
KINDS = {
    "log": (X, {}),
    "hinge": (X, {"loss": "hinge", "tol": 1e-3}),
    "seen pairs": (X, {"feature_pairs": "seen"}),
    "single precision": (X, {"dtype": "float32", "tol": 1e-4}),
    "a solver in single precision": (X, {"solver": cw.solvers.SDCA(dtype="float32"), "tol": 1e-4}),
    "lbfgs": (X, {"solver": "lbfgs"}),
    "pair attributes": (ROWS, {"template": Template.parse("U:%x[0,0]\nB:%x[0,1]")}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_saved_loaded_and_gone_on_reaches_the_optimum_of_everything_at_once(kind, tmp_path):
    data, parameters = KINDS[kind]
    whole = tight(**parameters).fit(data, Y)
    copy = reloaded(tight(**parameters).fit(data[:CUT], Y[:CUT]), tmp_path)
    copy.partial_fit(data[CUT:], Y[CUT:])
    one, other = copy.certificate_, whole.certificate_
    assert one.gap <= copy.tol
    assert one.dual <= other.primal + 1e-9 and other.dual <= one.primal + 1e-9
    copy.fit(data, Y, warm_start=True)  # which it knows, to the last example
    assert copy.certificate_.dual <= other.primal + 1e-9


def drawn(n, seed):
    rng = np.random.default_rng(seed)
    data = [
        [[f"w{rng.integers(200)}", f"v{rng.integers(20)}"] for _ in range(rng.integers(3, 12))]
        for _ in range(n)
    ]
    return data, [["AABC"[(int(t[0][1:]) + rng.integers(2)) % 4] for t in x] for x in data]


def test_going_on_needs_fewer_passes_than_training_on_everything(tmp_path):
    data, labels = drawn(200, seed=1)
    whole = tight(tol=1e-4).fit(data, labels)
    grown = reloaded(tight(tol=1e-4).fit(data[:190], labels[:190]), tmp_path)
    grown.partial_fit(data[190:], labels[190:])
    again = cw.load(tmp_path / "m.cw").fit(data[::-1], labels[::-1], warm_start=True)  # any order
    for tagger in (grown, again):
        assert tagger.trace_.epochs[-1] < whole.trace_.epochs[-1]
        assert tagger.certificate_.primal == pytest.approx(whole.certificate_.primal, rel=2e-4)
    known = cw.load(tmp_path / "m.cw").fit(data[:190], labels[:190], warm_start=True)
    assert known.trace_.epochs[-1] <= 2


@pytest.mark.parametrize(
    "parameters", [{}, {"transitions": "seen"}, {"loss": "hinge", "tol": 1e-3}]
)
def test_new_labels_and_attributes_are_taken_in(parameters, tmp_path):
    more = [[["w1", "new"], ["v2", "newer"]]], [["D", "A"]]
    grown = reloaded(tight(**parameters).fit(X[:CUT], Y[:CUT]), tmp_path)
    grown.partial_fit(X[CUT:], Y[CUT:]).partial_fit(*more)
    whole = tight(**parameters).fit(X + more[0], Y + more[1])
    assert grown.classes_ == ["A", "B", "C", "D"] == whole.classes_
    assert grown.certificate_.gap <= grown.tol
    assert grown.certificate_.dual <= whole.certificate_.primal + 1e-9
    assert whole.certificate_.dual <= grown.certificate_.primal + 1e-9
    assert {"new", "newer"} <= set(grown.encoder_.names())
    warm = cw.load(tmp_path / "m.cw").fit(X + more[0], Y + more[1], warm_start=True)
    assert warm.certificate_.dual <= whole.certificate_.primal + 1e-9
    assert warm.certificate_.gap <= warm.tol


@pytest.mark.parametrize("token", [["w1", "w1"], [("w1", 0.5)], {"length": 7}])
def test_examples_without_values_are_added_to_by_some_that_have_values(token, tmp_path):
    tagger = reloaded(tight().fit(X[:CUT], Y[:CUT]), tmp_path)
    best = tight().fit([*X[:CUT], [token]], [*Y[:CUT], ["A"]]).certificate_
    one = tagger.partial_fit([[token]], [["A"]]).certificate_
    assert one.gap <= 1e-7
    assert one.dual <= best.primal + 1e-9 and best.dual <= one.primal + 1e-9


def test_examples_are_known_again_however_their_attributes_are_written(tmp_path):
    data = [[{"w": t[0], t[1]: True, "odd": t[0] in ("w1", "w3")} for t in x] for x in X]
    tagger = reloaded(tight(tol=1e-4).fit(data, Y), tmp_path)
    turned = [[dict(reversed(t.items())) for t in x] for x in data]  # and no value is zero any more
    bare = [[{k: v for k, v in t.items() if v is not False} for t in x] for x in turned]
    for same in (data, turned, bare):
        assert cw.load(tmp_path / "m.cw").fit(same, Y, warm_start=True).trace_.epochs[-1] <= 2
    with pytest.raises(DataError, match="numbers alone"):
        tagger.partial_fit([np.ones((2, 3))], [["A", "B"]])


def test_unsupported_training_raises_an_error_with_the_reason(tmp_path):
    tagger = tight().fit(X[:5], Y[:5])
    tagger.save(tmp_path / "bare.cw")
    bare = cw.load(tmp_path / "bare.cw")
    for go_on in (
        lambda: bare.partial_fit(X[5:], Y[5:]),
        lambda: bare.fit(X, Y, warm_start=True),
        lambda: bare.save(tmp_path / "x.cw", with_state=True),
    ):
        with pytest.raises(DataError, match="with_state=True") as told:
            go_on()
    assert "save it before, or" in str(told.value)
    partial = tight().fit(X[:5], [[None, *y[1:]] for y in Y[:4]] + Y[4:5])
    with pytest.raises(DataError, match="with every label known"):
        partial.save(tmp_path / "x.cw", with_state=True)
    clamped = tight().fit(X[:5], Y[:5], allowed=[[None] * len(x) for x in X[:5]])
    with pytest.raises(DataError, match="allowed labels"):
        clamped.partial_fit([[["w1"]]], [["Z"]])
    assert [p.name for p in tmp_path.iterdir()] == ["bare.cw"]


def test_a_forged_state_is_refused_or_proves_nothing_untrue(tmp_path):
    path, rng = tmp_path / "m.cw", np.random.default_rng(0)
    best = tight().fit(X, Y).certificate_.primal
    reloaded(tight(tol=1e-2).fit(X[:CUT], Y[:CUT]), tmp_path)
    arrays, header = read_arrays(path)
    names = [n for n in arrays if n.startswith(("data.", "duals."))]
    refused = 0
    for _ in range(60):
        name = str(rng.choice(names))
        changed = np.array(arrays[name])
        flat = changed.reshape(-1)
        kind = rng.integers(3)
        if kind == 0 and flat.size:
            flat[rng.integers(flat.size)] += rng.choice([1, -1, 100])
        elif kind == 1:
            changed = changed[:-1]
        else:
            changed = changed * 2
        write_arrays(path, {**arrays, name: changed}, header)
        try:
            model = cw.load(path).partial_fit(X[CUT:], Y[CUT:])
        except CliquewiseError:
            refused += 1
            continue
        assert model.certificate_.dual <= best + 1e-9 or not name.startswith("duals.")
    assert refused


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tampered_log_partition_functions_prove_nothing_untrue(tmp_path):
    path, more = tmp_path / "m.cw", {"sample_weight": [1e-9]}
    reloaded(tight(tol=1e-8).fit(X[:CUT], Y[:CUT]), tmp_path)
    arrays, header = read_arrays(path)
    best = cw.load(path).partial_fit(X[:1], Y[:1], **more).certificate_.primal
    forged = {name: np.array(part) for name, part in arrays.items()}
    forged["duals.theta"] += 1e4  # the same distributions
    # Files of earlier versions hold log Z. The error is as small as a rounding error could be.
    lengths = np.diff(forged["data.offsets"])
    forged["duals.log_z"] = (1e4 * lengths + 1.0) * (1 + 9e-10)
    write_arrays(path, forged, header)
    found = cw.load(path).set_params(max_epochs=1e-3).partial_fit(X[:1], Y[:1], **more)
    assert best - 1e-4 < found.certificate_.dual <= best


def test_what_is_wrong_with_a_state_in_a_file_is_said_in_a_sentence(tmp_path):
    path = tmp_path / "m.cw"
    reloaded(tight(tol=1e-2).fit(X[:5], Y[:5]), tmp_path)
    arrays, header = read_arrays(path)
    labels = arrays["data.labels"]
    allowed = np.ones((len(labels), 9), dtype=bool)
    for changed in ({"data.labels": labels + 3}, {"data.labels": labels - 1},
                    {"data.allowed": allowed}, {"data.offsets": None}):  # fmt: skip
        parts = {n: p for n, p in {**arrays, **changed}.items() if p is not None}
        write_arrays(path, parts, header)
        with pytest.raises(DataError):
            cw.load(path).partial_fit(X[5:7], Y[5:7])
    for state in (None, [1], {}, {**header["state"], "problem": 3}):
        write_arrays(path, arrays, {**header, "state": state})
        with pytest.raises(DataError):
            cw.load(path).partial_fit(X[5:7], Y[5:7])


def test_going_on_with_another_loss_begins_anew_where_its_examples_are_others():
    for losses in (("pseudo_likelihood", "log"), ("log", "pseudo_likelihood"), ("log", "hinge")):
        for go_on in (
            lambda t: t.fit(X[:9], Y[:9], warm_start=True),
            lambda t: t.partial_fit(X[8:9], Y[8:9]),
        ):
            tagger = tight(loss=losses[0], tol=1e-2).fit(X[:8], Y[:8]).set_params(loss=losses[1])
            whole = tight(loss=losses[1], tol=1e-2).fit(X[:9], Y[:9]).certificate_
            assert go_on(tagger).certificate_.gap <= 1e-2
            assert tagger.certificate_.dual <= whole.primal + 1e-9
            assert whole.dual <= tagger.certificate_.primal + 1e-9


@pytest.mark.parametrize("loss", ["softmax_margin", "hinge", "pseudo_likelihood"])
@pytest.mark.parametrize("how", ["partial_fit", "warm_start"])
def test_a_loaded_tagger_goes_on_with_another_loss_and_C_as_one_in_memory_does(loss, how, tmp_path):
    best = tight(loss=loss, C=0.3, tol=1e-4).fit(X, Y).certificate_
    copy = reloaded(tight(tol=1e-4).fit(X[:CUT], Y[:CUT]), tmp_path)
    copy.set_params(loss=loss, C=0.3)
    with pytest.raises(DataError, match="before saving"):
        copy.save(tmp_path / "n.cw", with_state=True)
    if how == "partial_fit":
        copy.partial_fit(X[CUT:], Y[CUT:])
    else:
        copy.fit(X, Y, warm_start=True)
    assert copy.certificate_.gap <= 1e-4
    assert copy.certificate_.dual <= best.primal and best.dual <= copy.certificate_.primal
    copy.save(tmp_path / "n.cw", with_state=True)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"loss": "softmax_margin"}, {"cost": {"A": 5.0}}),
        ({"loss": "hinge", "cost": {"A": 5.0}}, {"cost": None}),
        ({}, {"class_weight": {"A": 5.0}}),
        ({"class_weight": {"A": 5.0}}, {"loss": "pseudo_likelihood"}),
        ({"loss": "pseudo_likelihood", "class_weight": {"A": 5.0}}, {"loss": "log"}),
    ],
)
def test_examples_are_not_added_under_other_costs_or_weights_of_classes(first, then, tmp_path):
    whole = tight(**first | {"tol": 1e-3} | then).fit(X, Y).certificate_
    tagger = tight(**first | {"tol": 1e-3}).fit(X[:CUT], Y[:CUT])
    for one in (reloaded(tagger, tmp_path), tagger):
        one.set_params(**then)
        with pytest.raises(DataError, match="warm_start=True"):
            one.partial_fit(X[CUT:], Y[CUT:])
        proved = one.fit(X, Y, warm_start=True).certificate_
        assert proved.dual <= whole.primal and whole.dual <= proved.primal


@pytest.mark.parametrize(
    ("name", "first", "then"),
    [("cost", None, {"A": 5.0}), ("class_weight", {"A": 1.0}, {"A": 5.0})],
)
def test_a_state_is_not_saved_under_costs_or_weights_that_its_examples_do_not_have(
    name, first, then, tmp_path
):
    tagger = tight(loss="hinge", tol=1e-2, **{name: first}).fit(X[:CUT], Y[:CUT])
    tagger.set_params(**{name: then})
    with pytest.raises(DataError, match=f"the state belongs to {name}"):
        tagger.save(tmp_path / "m.cw", with_state=True)
    tagger.fit(X[:CUT], Y[:CUT], warm_start=True).save(tmp_path / "m.cw", with_state=True)


def test_weights_of_classes_are_in_the_file_and_balanced_ones_are_not_added_to(tmp_path):
    given = {"A": 0.25, "C": 3.0}
    copy = reloaded(tight(class_weight=given).fit(X[:9], Y[:9]), tmp_path)
    assert copy.class_weight == {"B": 1.0, **given}
    copy.partial_fit(X[9:12], Y[9:12])
    whole = tight(class_weight=given).fit(X[:12], Y[:12]).certificate_
    assert copy.certificate_.primal == pytest.approx(whole.primal, rel=1e-6)
    arrays, header = read_arrays(tmp_path / "m.cw")
    for wrong in ([1.0], [1.0, -1.0, 1.0], [1.0, 1.0, float("nan")], {"A": 1.0}):
        write_arrays(tmp_path / "x.cw", arrays, {**header, "class_weight": wrong})
        with pytest.raises(CliquewiseError, match="class_weight"):
            cw.load(tmp_path / "x.cw")
    balanced = tight(tol=1e-2, class_weight="balanced").fit(X[:9], Y[:9])
    with pytest.raises(DataError, match=r"balanced.*all labels at once"):
        balanced.partial_fit(X[9:], Y[9:])
    assert balanced.fit(X[:12], Y[:12], warm_start=True).certificate_.gap <= 1e-2


def test_a_kill_while_saving_loses_nothing(tmp_path):
    path = tmp_path / "m.cw"
    before = tight(tol=1e-3).fit(X[:CUT], Y[:CUT])
    before.save(path, with_state=True)
    code = (
        "import os, signal, cliquewise as cw\n"
        f"m = cw.load({str(path)!r}).partial_fit([[['w1']]], [['A']])\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"m.save({str(path)!r}, with_state=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    again = cw.load(path)
    np.testing.assert_array_equal(again.coef_, before.coef_)
    assert again.partial_fit(X[CUT:], Y[CUT:]).certificate_.gap <= 1e-3


# ---- early stopping


def test_training_ends_where_held_out_sequences_say_so_with_a_true_certificate():
    rng = np.random.default_rng(0)
    noise = [[str(rng.choice(list("ABC"))) for _ in y] for y in Y]  # nothing to be learned
    tagger = tight(C=100.0).fit(X[:30], noise[:30], validation=(X[30:], noise[30:]), patience=2)
    passes = [p for p, _ in tagger.validation_scores_]
    assert tagger.certificate_.gap > tagger.tol  # it ended early, and without a warning
    assert len(passes) < 100
    best = max(s for _, s in tagger.validation_scores_)
    assert tagger.score(X[30:], noise[30:]) == best
    whole = tight(C=100.0, tol=1e-3).fit(X[:30], noise[:30])
    losses = -tagger.log_likelihood(X[:30], noise[:30])
    primal = 0.5 * tagger.coef_ @ tagger.coef_ / (100.0 * 30) + losses.mean()
    assert tagger.certificate_.primal == pytest.approx(primal, rel=1e-9)
    assert tagger.certificate_.dual <= whole.certificate_.primal + 1e-9
    for wrong in (
        {"validation": X},
        {"validation": (X, Y), "patience": 0},
        {"validation": ([], [])},
        {"validation": (X, Y[1:])},
    ):
        with pytest.raises(DataError, match=r"validation|patience"):
            tight().fit(X, Y, **wrong)


def test_every_run_of_a_path_ends_where_held_out_sequences_say_so():
    held_out = {"validation": (X[CUT:], Y[CUT:]), "patience": 1}
    path = cw.regularization_path(tight(tol=1e-2), X[:CUT], Y[:CUT], [1.0, 10.0], **held_out)
    assert all(len(tagger.validation_scores_) > 0 for tagger in path)


def test_what_was_said_of_one_training_is_not_said_of_the_next():
    tagger = tight(tol=1e-2).fit([np.eye(3)], [["A", "B", "A"]])
    assert tagger.n_features_in_ == 3
    tagger.fit(X, Y, validation=(X[:9], Y[:9])).prune(keep=0.5)
    assert not hasattr(tagger, "n_features_in_")
    tagger.fit(X, Y)
    assert not hasattr(tagger, "validation_scores_") and not hasattr(tagger, "pruned_")


def test_weights_that_reach_the_tolerance_are_scored_as_well():
    for tol in (0.6, 1e-2):
        tagger = tight(tol=tol).fit(X[:30], Y[:30], validation=(X[:30], Y[:30]), patience=99)
        passes, scores = zip(*tagger.validation_scores_, strict=True)
        assert passes[-1] == pytest.approx(tagger.trace_.epochs[-1])
        assert (tagger.certificate_.gap <= tol) == (scores[-1] >= max(scores))


ZEROS = [[{"f": 0.0, "g": 1.0}, {"g": 1.0}], [{"f": 1.0}]]
ZERO_LABELS = [["a", "b"], ["b"]]


@pytest.mark.parametrize(
    "parameters",
    [
        {"intercept": False, "boundary_weights": False},
        {},
        {"loss": "pseudo_likelihood"},
        {"loss": "hinge"},
    ],
    ids=["emissions only", "default", "pseudo_likelihood", "hinge"],
)
def test_warm_start_on_features_that_are_zero_keeps_the_objective(parameters):
    cold = tight(tol=1e-6, **parameters).fit(ZEROS, ZERO_LABELS)
    warm = tight(tol=1e-6, **parameters).fit(ZEROS, ZERO_LABELS)
    for _ in range(2):
        warm.fit(ZEROS, ZERO_LABELS, warm_start=True)
        assert warm.certificate_.primal == pytest.approx(cold.certificate_.primal, rel=2e-6)
        assert warm.certificate_.dual == pytest.approx(cold.certificate_.dual, rel=2e-6)


def test_warm_start_leaves_the_dataset_unchanged():
    first = Dataset(
        offsets=np.array([0, 2, 3]), indptr=np.array([0, 2, 3, 4]),
        indices=np.array([0, 1, 1, 0], dtype=np.int32), values=np.array([0.0, 1.0, 1.0, 1.0]),
        n_features=2,
    )  # fmt: skip
    names = ("offsets", "indptr", "indices", "values")
    before = {name: getattr(first, name).copy() for name in names}
    tagger = tight().fit(first, ZERO_LABELS)
    tagger.fit(first, ZERO_LABELS, warm_start=True)
    for name in names:
        np.testing.assert_array_equal(getattr(first, name), before[name])
