"""Workers are looked at before they work: software, memory; and what interrupts a fit."""

from __future__ import annotations

import signal

import pytest
from dask_cases import bags, sequences
from distributed import Client
from sklearn.exceptions import ConvergenceWarning

import cliquewise as cw
from cliquewise.distributed import DaskSequenceTagger
from cliquewise.distributed.checks import check_memory, check_versions, paused_workers, software
from cliquewise.errors import TooLargeError, UnsupportedError

GIB = 2**30


def test_a_worker_with_other_software_is_named():
    mine = software()
    theirs = {"tcp://a": mine, "tcp://b": {**mine, "numba": "0.1"}}
    with pytest.raises(UnsupportedError, match=r"tcp://b has numba 0\.1, the client"):
        check_versions(mine, theirs)


def test_a_worker_with_too_little_memory_is_named_before_work_starts():
    with (
        Client(
            processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0",
            memory_limit="20 MiB",
        ) as client,
        pytest.raises(TooLargeError, match=r"a memory_limit of 20 MiB, and .* before any data"),
    ):  # fmt: skip
        DaskSequenceTagger(client=client).fit(*bags(*sequences(0), 2))


def test_partitions_that_do_not_fit_are_refused_before_a_round():
    limits, taken = {"a": GIB, "b": GIB}, {"a": GIB // 4, "b": GIB // 4}
    check_memory([GIB // 4] * 4, [2**20] * 4, limits, taken)
    with pytest.raises(TooLargeError, match=r"partition 1 needs 768 MiB, and no worker has more"):
        check_memory([2**20, GIB // 2], [2**20, GIB // 4], limits, taken)
    with pytest.raises(TooLargeError, match=r"the partitions need .* the 2 workers have"):
        check_memory([GIB // 2] * 4, [2**20] * 4, limits, taken)
    check_memory([2**40], [2**40], {"a": 0}, {"a": 0})  # no limit is none
    assert "are paused because their memory is full" in str(
        paused_workers({"a": {"memory_limit": GIB}})
    )


@pytest.fixture
def ctrl_c_counts():
    """A background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_keeps_what_there_is(client, ctrl_c_counts):
    X, y = sequences(8)
    rounds = []

    def press(row):
        rounds.append(row)
        if len(rounds) == 3:
            signal.raise_signal(signal.SIGINT)

    tagger = DaskSequenceTagger(client=client, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match="lbfgs was interrupted after"):
        tagger.fit(*bags(X, y, 3), callback=press)
    assert len(rounds) == 3
    assert tagger.certificate_.dual <= cw.SequenceTagger(tol=1e-6).fit(X, y).certificate_.primal
    assert tagger.predict(X)
