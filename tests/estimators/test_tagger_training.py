"""Training: certificates, warnings, paths, adding examples, seeds, Ctrl-C and checkpoints."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from tagging_cases import problem, same_predictions, tight

import cliquewise as cw
from cliquewise import MulticlassClassifier, SequenceTagger, regularization_path
from cliquewise.data import Template
from cliquewise.errors import CliquewiseError, DataError, UnsupportedError
from cliquewise.solvers.registry import registered

X, Y = problem(20)


def test_the_same_seed_gives_the_same_bits():
    results = [SequenceTagger(random_state=3, tol=1e-4).fit(X, Y) for _ in range(3)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].coef_, other.coef_)
        assert results[0].certificate_ == other.certificate_
        assert results[0].n_iter_ == other.n_iter_


def test_a_certificate_brackets_the_optimum_of_another_solver():
    reference = tight(solver="lbfgs", tol=1e-11).fit(X, Y).certificate_
    tagger = SequenceTagger(solver="sdca", tol=1e-6, random_state=0).fit(X, Y)
    for row in range(len(tagger.trace_)):
        assert tagger.trace_.dual[row] <= reference.primal + 1e-10
        assert tagger.trace_.primal[row] >= reference.dual - 1e-10
    assert tagger.certificate_.gap <= 1e-6


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_a_warning_that_is_an_error_leaves_the_certificate_of_the_weights_that_are_there():
    tagger = SequenceTagger(random_state=0).fit(X, Y)
    weights, proved, trace = tagger.coef_, tagger.certificate_, tagger.trace_
    tagger.set_params(C=100.0, max_epochs=1)
    with pytest.raises(ConvergenceWarning):
        tagger.fit(X[:5], Y[:5])
    assert tagger.coef_ is weights
    assert tagger.certificate_ is proved and tagger.trace_ is trace


def test_a_converged_run_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger = SequenceTagger(random_state=0).fit(X, Y)
    assert tagger.certificate_.gap <= tagger.tol


def test_raw_numbers_are_solved_for_without_a_word():
    rng = np.random.default_rng(0)
    seconds, page = rng.exponential(20.0, size=(200, 10)), rng.integers(0, 4, (200, 10))
    features = np.concatenate([seconds[:, :, None], np.eye(4)[page]], axis=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger = SequenceTagger(random_state=0).fit(features, page % 2 + (seconds > 30.0))
    assert tagger.certificate_.gap <= tagger.tol and tagger.n_iter_ > 100


@pytest.mark.parametrize("solver", ["sdca", "lbfgs"])
def test_a_run_that_is_cut_short_names_the_gap_it_reached(solver):
    with pytest.warns(ConvergenceWarning) as caught:
        tagger = SequenceTagger(solver=solver, tol=1e-12, max_epochs=2, random_state=0).fit(X, Y)
    assert f"{tagger.certificate_.gap:.3g}" in str(caught[0].message)
    assert tagger.certificate_.gap > 1e-12


def test_warnings_point_at_the_line_of_the_user():
    from sklearn.pipeline import make_pipeline

    short = SequenceTagger(solver="sdca", tol=1e-12, max_epochs=2, random_state=0)
    for estimator in (short, make_pipeline(short)):
        with pytest.warns(ConvergenceWarning) as caught:
            estimator.fit(X, Y)
        assert caught[0].filename == __file__
    with pytest.warns(ConvergenceWarning) as caught:
        clone(short).partial_fit(X, Y)
    assert caught[0].filename == __file__


def test_a_time_limit_ends_the_run():
    with pytest.warns(ConvergenceWarning):
        tagger = SequenceTagger(solver="sdca", tol=0, max_epochs=1e9, max_seconds=0.3).fit(X, Y)
    assert 0.3 <= tagger.trace_.seconds[-1] < 30  # a pass here takes milliseconds


@pytest.mark.parametrize("solver", ["sdca", "lbfgs"])
def test_a_path_reaches_what_cold_runs_reach(solver):
    values = [0.1, 1.0, 5.0]
    path = regularization_path(tight(solver=solver, tol=1e-8), X, Y, values)
    for C, warm in zip(values, path, strict=True):
        cold = tight(solver=solver, tol=1e-8, C=C).fit(X, Y)
        assert warm.C == C and warm.certificate_.gap <= 1e-8
        assert warm.certificate_.primal == pytest.approx(cold.certificate_.primal, rel=2e-8)
        same_predictions(warm, cold, X, atol=1e-3)
    with pytest.raises(DataError, match="Cs is empty"):
        regularization_path(tight(), X, Y, [])


def test_a_path_keeps_the_weights_of_examples():
    weights = np.linspace(0.5, 2, len(X))
    path = regularization_path(tight(), X, Y, [0.5, 1.0], sample_weight=weights)
    cold = tight().fit(X, Y, sample_weight=weights)
    assert path[1].certificate_.primal == pytest.approx(cold.certificate_.primal, rel=1e-8)


def test_regularization_path_calls_the_callback_for_every_C():
    seen = []
    path = regularization_path(tight(), X, Y, [0.1, 1.0, 5.0], callback=seen.append)
    assert len(seen) == sum(len(tagger.trace_) for tagger in path)
    with pytest.raises(DataError, match="C must be a number"):
        regularization_path(tight(), X, Y, [1.0, -1.0])
    with pytest.raises(UnsupportedError, match="not a MulticlassClassifier"):
        regularization_path(MulticlassClassifier(), np.eye(2), [0, 1], [1.0])


ON_CHAINS = [
    (solver.name, loss)
    for solver in registered("chain")
    for loss in sorted(solver.capabilities.losses["chain"])
]


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("solver", "loss"), ON_CHAINS)
def test_every_solver_goes_on_from_its_state_or_starts_afresh(solver, loss):
    """Certificates of warm runs bracket the optimum that a cold run finds."""
    mixed = 0.5 if solver == "owlqn" else 0.0  # which is for L1 penalties alone
    given = {"l1_ratio": mixed, "tol": 1e-2, "max_epochs": 200, "random_state": 0}
    tagger = SequenceTagger(loss, solver=solver, **given)
    grown = clone(tagger).partial_fit(X[:7], Y[:7], classes=["A", "B", "C"])
    grown.partial_fit(X[7:], Y[7:])
    for warm in [grown, *regularization_path(tagger, X, Y, [0.3, 1.0])]:
        cold = clone(tagger).set_params(C=warm.C).fit(X, Y)
        assert warm.certificate_.dual <= cold.certificate_.primal + 1e-9
        assert cold.certificate_.dual <= warm.certificate_.primal + 1e-9
        assert warm.certificate_.primal <= 1.05 * cold.certificate_.primal


def test_a_state_of_another_solver_is_no_reason_to_fail():
    tagger = tight(solver="lbfgs").partial_fit(X[:7], Y[:7], classes=["A", "B", "C"])
    tagger.set_params(solver="sdca").partial_fit(X[7:], Y[7:])
    assert tagger.solver_ == "sdca"
    assert tagger.certificate_.primal == pytest.approx(
        tight().fit(X, Y).certificate_.primal, rel=1e-8
    )


@pytest.mark.parametrize("solver", ["sdca", "lbfgs"])
def test_adding_examples_reaches_what_training_on_all_reaches(solver):
    grown = tight(solver=solver).partial_fit(X[:7], Y[:7], classes=["A", "B", "C"])
    grown.partial_fit(X[7:8], Y[7:8]).partial_fit(X[8:], Y[8:])
    whole = tight(solver=solver).fit(X, Y)
    assert grown.certificate_.primal == pytest.approx(whole.certificate_.primal, rel=1e-8)
    same_predictions(grown, whole, X)


def test_added_examples_bring_their_own_attributes():
    tagger = tight().partial_fit([[["a"], ["b"]]], [["A", "B"]])
    tagger.partial_fit([[["c"], ["b"]]], [["B", "B"]])
    assert tagger.predict([[["c"]]]) == [["B"]]
    assert "c" in tagger.feature_names()


def test_added_examples_bring_their_own_attributes_of_pairs():
    template = Template.parse("U:%x[0,0]\nB\nB1:%x[0,0]\n")
    x = [[["x"], [w]] for w in "uvuvuw"]
    y = [["A", "A"], ["A", "B"], ["B", "B"], ["B", "A"], ["A", "A"], ["A", "B"]]
    grown = tight(template=template).partial_fit(x[:1], y[:1], classes=["A", "B"])
    grown.partial_fit(x[1:], y[1:])
    whole = tight(template=template).fit(x, y)
    assert grown.model_.n_edge_attributes == whole.model_.n_edge_attributes == 3
    assert grown.certificate_.primal == pytest.approx(whole.certificate_.primal, rel=1e-8)


def test_later_classes_may_be_new():
    tagger = tight().partial_fit(X[:5], Y[:5], classes=["A", "B", "C"])
    tagger.partial_fit(X[5:7], Y[5:7], classes=["C", "A", "B"])
    assert tagger.classes_ == ["A", "B", "C"]
    tagger.partial_fit(X[7:], Y[7:], classes=["A", "B", "C", "D"])
    assert tagger.classes_ == ["A", "B", "C", "D"]


def test_a_tagger_without_its_examples_does_not_forget_them_silently(tmp_path):
    tagger = tight().partial_fit(X[:5], Y[:5], classes=["A", "B", "C"])
    tagger.save(tmp_path / "m.cw")
    for again in (cw.load(tmp_path / "m.cw"), pickle.loads(pickle.dumps(tagger))):
        before = again.coef_.copy()
        with pytest.raises(DataError, match="does not have the old ones"):
            again.partial_fit(X[5:], Y[5:])
        np.testing.assert_array_equal(again.coef_, before)
    clone(again).partial_fit(X[5:], Y[5:])


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_adding_arrays_of_numbers(pairs):
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((3, 2)) for _ in range(6)]
    y = [[0, 1, 1], [1, 0, 0]] * 3
    grown = tight(feature_pairs=pairs).partial_fit(data[:2], y[:2]).partial_fit(data[2:], y[2:])
    whole = tight(feature_pairs=pairs).fit(data, y)
    assert grown.certificate_.primal == pytest.approx(whole.certificate_.primal, rel=1e-8)


def test_the_callback_sees_every_row_of_the_trace():
    rows = []
    tagger = SequenceTagger(random_state=0).fit(X, Y, callback=rows.append)
    assert [row["gap"] for row in rows] == tagger.trace_.gap.tolist()


@pytest.mark.parametrize("solver", ["sdca", "lbfgs"])
def test_an_interrupt_returns_what_there_is_with_a_warning(solver):
    calls = []

    def interrupt(row):
        calls.append(row)
        if len(calls) == 1:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="was interrupted"):
        tagger = SequenceTagger(solver=solver, tol=1e-14, max_epochs=1e6, random_state=0).fit(
            X, Y, callback=interrupt
        )
    assert tagger.score(X, Y) > 0.5 and np.isfinite(tagger.certificate_.gap)


INTERRUPTED = """
import os, signal, sys, warnings
sys.path.insert(0, {folder!r})
from tagging_cases import problem
from cliquewise import SequenceTagger
X, Y = problem(20)
warnings.simplefilter("error")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
sent = []
def callback(row):
    if not sent:
        sent.append(row)
        os.kill(os.getpid(), signal.SIGINT)
try:
    SequenceTagger(tol=0, max_epochs=1e9, max_seconds=60).fit(X, Y, callback=callback)
except Warning as warning:
    print(warning)
"""


@pytest.mark.medium
def test_the_interrupt_signal_ends_training_early():
    code = INTERRUPTED.format(folder=os.path.dirname(__file__))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "was interrupted" in done.stdout, done.stderr


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from tagging_cases import problem
from cliquewise import SequenceTagger
X, Y = problem(20)
def callback(row):
    if os.path.exists({checkpoint!r}) and row["epochs"] > 5:
        os.kill(os.getpid(), signal.SIGKILL)
SequenceTagger(solver={solver!r}, tol=0, max_epochs=1e7, random_state=0, checkpoint={checkpoint!r},
               checkpoint_seconds=0).fit(X, Y, callback=callback)
"""


@pytest.mark.medium
@pytest.mark.parametrize("solver", ["sdca", "lbfgs"])
def test_a_killed_run_resumes_from_its_checkpoint(tmp_path, solver):
    checkpoint = str(tmp_path / "state")
    code = KILLED.format(folder=os.path.dirname(__file__), checkpoint=checkpoint, solver=solver)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    resumed = tight(solver=solver, checkpoint=checkpoint, resume=True).fit(X, Y)
    whole = tight(solver=solver).fit(X, Y)
    # A resumed run recomputes sums from its arrays, so the last bits may differ.
    for name in ("primal", "dual"):
        expected = pytest.approx(getattr(whole.certificate_, name), rel=1e-12)
        assert getattr(resumed.certificate_, name) == expected


def test_resuming_without_a_file_starts_from_scratch(tmp_path):
    tagger = tight(checkpoint=tmp_path / "none", resume=True).fit(X, Y)
    assert tagger.certificate_.gap <= 1e-9


def test_a_checkpoint_of_other_data_or_another_solver_is_rejected(tmp_path):
    path = tmp_path / "state"
    tight(solver="sdca", checkpoint=path, checkpoint_seconds=0, tol=1e-6).fit(X, Y)
    with pytest.raises(CliquewiseError, match="solver 'sdca'"):
        tight(solver="lbfgs", checkpoint=path, resume=True).fit(X, Y)
    with pytest.raises(CliquewiseError, match="other data"):
        tight(solver="sdca", checkpoint=path, resume=True).fit(X[:5], Y[:5])


@pytest.mark.parametrize("content", ["model", "noise"])
def test_a_file_that_is_no_checkpoint_is_rejected(tmp_path, content):
    path = tmp_path / "state"
    if content == "model":
        tight(solver="sdca").fit(X, Y).save(path)
    else:
        path.write_bytes(b"no checkpoint at all")
    with pytest.raises(CliquewiseError):
        tight(solver="sdca", checkpoint=path, resume=True).fit(X, Y)


def test_memory_that_is_not_there_chooses_a_leaner_solver_or_says_so():
    many, tags = [[["a"], ["b"]] * 10] * 50, [["A", "B"] * 10] * 50
    tagger = SequenceTagger(max_memory=2e-5, tol=1e-3)
    with pytest.raises(CliquewiseError, match="GiB"):
        tagger.set_params(solver="sdca").fit(many, tags)
    assert tagger.set_params(solver="auto").fit(many, tags).solver_ == "lbfgs"
    with pytest.raises(CliquewiseError, match=r"(?s)no solver.*lbfgs: it needs .* GiB"):
        tagger.set_params(max_memory=1e-7).fit(many, tags)
