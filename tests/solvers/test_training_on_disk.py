"""Training on data that stay on disk: the same optimum, and certificates as exact as ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data import Shards, Template
from cliquewise.errors import CliquewiseError, DataError, UnsupportedError
from cliquewise.estimators.tagger import shards as deciding
from cliquewise.problems import shards as problems

PAIRS = Template.parse("U00:%x[0,0]\nB\nB01:%x[0,0]\n")


def drawn(seed, n=40):
    """Sequences of words that tell something of their labels; some empty, some of one token."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = rng.integers(0, 3, rng.integers(0, 6))
        X.append(
            [[f"w{3 * int(k) + int(rng.integers(0, 4))}", f"v{rng.integers(9)}"] for k in labels]
        )
        y.append(["ABC"[k] for k in labels])
    return X, y


@pytest.fixture
def on_disk(monkeypatch):
    """Nothing is kept in memory, and parts are small."""
    monkeypatch.setattr(deciding, "MEMORY_SHARE", 0.0)
    monkeypatch.setattr(problems, "PART_BYTES", 15000)


@pytest.mark.parametrize("loss", ["log", "hinge"])
@pytest.mark.parametrize("seed", range(3))
def test_training_on_disk_ends_where_training_in_memory_does(tmp_path, on_disk, loss, seed):
    X, y = drawn(seed)
    options = {"feature_pairs": "seen"} if seed == 1 else {"transitions": "seen"}
    settings = {"loss": loss, "tol": 1e-5 if loss == "log" else 3e-2, "max_epochs": 500, **options}
    memory = cw.SequenceTagger(random_state=0, **settings).fit(X, y)
    disk = cw.SequenceTagger(random_state=0, **settings).fit(Shards(lambda: zip(X, y), tmp_path))
    assert (tmp_path / "duals" / "theta").stat().st_size > 0
    for tagger, other in ((disk, memory), (memory, disk)):
        assert tagger.certificate_.gap <= tagger.tol
        assert tagger.certificate_.dual <= other.certificate_.primal
    assert np.all(np.diff(disk.trace_.dual) >= 0)
    assert disk.classes_ == memory.classes_


def test_the_same_weights_come_out_to_six_digits_of_every_probability(tmp_path, on_disk):
    X, y = drawn(9, 15)
    settings = {"tol": 1e-12, "max_epochs": 2000, "solver": "sdca", "random_state": 0}
    memory = cw.SequenceTagger(**settings).fit(X, y)
    disk = cw.SequenceTagger(**settings).fit(Shards(lambda: zip(X, y), tmp_path))
    ours, theirs = (np.concatenate(t.predict_marginals(X)) for t in (disk, memory))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_attributes_of_token_pairs_and_weights_of_sequences_lie_on_disk_too(tmp_path, on_disk):
    X, y = drawn(5)
    X = [[[token[0]] for token in x] for x in X]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    settings = {"template": PAIRS, "tol": 1e-5, "max_epochs": 500, "random_state": 0}
    memory = cw.SequenceTagger(**settings).fit(X, y, weights)
    disk = cw.SequenceTagger(**settings).fit(Shards(lambda: zip(X, y, weights), tmp_path))
    assert disk.model_.n_edge_attributes > 0
    assert disk.certificate_.primal == pytest.approx(memory.certificate_.primal, rel=1e-4)
    assert disk.certificate_.dual <= memory.certificate_.primal


def test_lbfgs_works_on_disk_as_well(tmp_path, on_disk):
    X, y = drawn(2)
    shards = Shards(lambda: zip(X, y), tmp_path)
    disk = cw.SequenceTagger(solver="lbfgs", tol=1e-6).fit(shards)
    memory = cw.SequenceTagger(solver="lbfgs", tol=1e-6).fit(X, y)
    np.testing.assert_allclose(disk.coef_ @ disk.coef_, memory.coef_ @ memory.coef_, rtol=1e-4)
    with pytest.raises(UnsupportedError, match="sag"):
        cw.SequenceTagger(solver="sag").fit(shards)


def test_data_that_fit_are_trained_in_memory(tmp_path):
    X, y = drawn(3)
    tagger = cw.SequenceTagger(random_state=0).fit(Shards(lambda: zip(X, y), tmp_path))
    assert not (tmp_path / "duals").exists()
    assert tagger.certificate_.gap <= 1e-3


def test_a_second_fit_goes_on_from_the_dual_variables_on_disk(tmp_path, on_disk):
    X, y = drawn(4)
    shards = Shards(lambda: zip(X, y), tmp_path)
    settings = {"tol": 1e-5, "max_epochs": 500, "random_state": 0}
    fresh = cw.SequenceTagger(**settings).fit(shards)
    again = cw.SequenceTagger(resume=True, **settings).fit(shards)
    other = cw.SequenceTagger(resume=True, **{**settings, "C": 2.0}).fit(shards)
    assert again.n_iter_ <= 2 < fresh.n_iter_
    assert again.certificate_.gap <= 1e-5 and other.certificate_.gap <= 1e-5
    with pytest.raises(DataError, match="of another problem"):
        cw.SequenceTagger("hinge", resume=True).fit(shards)
    path = cw.regularization_path(cw.SequenceTagger(tol=1e-4), shards, None, [0.5, 1.0])
    assert [t.certificate_.gap <= 1e-4 for t in path] == [True, True]


KILLED = """
    import sys
    import numpy as np
    import cliquewise as cw
    from cliquewise.data import Shards
    from cliquewise.estimators.tagger import shards as deciding
    from cliquewise.problems import shards as problems
    sys.path.insert(0, sys.argv[2])
    from test_training_on_disk import drawn
    deciding.MEMORY_SHARE, problems.PART_BYTES = 0.0, 15000
    X, y = drawn(6)
    tagger = cw.SequenceTagger(tol=0.0, max_epochs=1e9, random_state=0)
    shards = Shards(lambda: zip(X, y), sys.argv[1])
    tagger.fit(shards, callback=lambda row: print("row", flush=True))
"""


def test_a_training_that_was_killed_can_be_resumed_with_a_true_certificate(tmp_path, on_disk):
    here = os.path.dirname(__file__)
    program = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), here]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "row\n"
        shards = Shards(lambda: zip(*drawn(6)), tmp_path)
        with pytest.raises(DataError, match="another training uses"):
            cw.SequenceTagger(resume=True).fit(shards)
        process.send_signal(signal.SIGKILL)
    theta = np.memmap(tmp_path / "duals" / "theta", np.float64, "r+")
    theta[::7] += 0.1  # torn in the middle of a visit
    theta.flush()
    resumed = cw.SequenceTagger(resume=True, tol=1e-5, random_state=0).fit(shards)
    optimum = cw.SequenceTagger(solver="lbfgs", tol=1e-8).fit(*drawn(6)).certificate_
    assert max(resumed.trace_.dual) <= optimum.primal
    assert resumed.certificate_.gap <= 1e-5


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"class_weight": "balanced"}, {}, "class_weight is not supported"),
        ({"checkpoint": "x"}, {}, "resume=True continues"),
        ({"loss": "smooth_hinge"}, {}, "smooth_hinge"),
        ({"solver": "bcfw", "loss": "hinge"}, {}, "shards"),
        ({}, {"y": [["A"]]}, "takes no y"),
        ({}, {"sample_weight": [1.0]}, "takes no sample_weight"),
        ({"max_memory": 1e-7}, {}, "max_memory|memory"),
    ],
)
def test_what_cannot_be_done_on_disk_is_said(tmp_path, on_disk, settings, given, message):
    X, y = drawn(7)
    with pytest.raises(CliquewiseError, match=message):
        cw.SequenceTagger(**settings).fit(Shards(lambda: zip(X, y), tmp_path), **given)


def test_a_disk_without_room_for_the_dual_variables_is_noticed_first(
    tmp_path, on_disk, monkeypatch
):
    class Full:
        f_bavail, f_frsize = 1, 4096

    monkeypatch.setattr(os, "statvfs", lambda folder: Full)
    X, y = drawn(8)
    with pytest.raises(DataError.__base__, match="the dual variables take"):
        cw.SequenceTagger().fit(Shards(lambda: zip(X, y), tmp_path))


@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_an_elastic_net_is_certified_on_disk_as_in_memory(tmp_path, on_disk, ratio):
    X, y = drawn(3, 20)
    given = {"l1_ratio": ratio, "C": 2.0, "tol": 1e-3, "max_epochs": 1000, "random_state": 0}
    tagger = cw.SequenceTagger(**given).fit(Shards(lambda: iter(zip(X, y)), tmp_path))
    local = cw.SequenceTagger(solver="owlqn", **given).fit(X, y)
    one, two = tagger.certificate_, local.certificate_
    assert one.status == two.status == "exact"
    assert max(one.gap, two.gap) <= 1e-3
    assert one.dual <= two.primal and two.dual <= one.primal
    assert 0 < tagger.n_nonzero_ < len(tagger.coef_)
