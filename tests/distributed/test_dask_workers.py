"""Worker processes: two, four, and some that are killed. One cluster for all, for it is slow."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from dask_cases import TOL, agree, bags, sequences
from distributed import Client, LocalCluster

import cliquewise as cw
from cliquewise.distributed import DaskSequenceTagger
from cliquewise.errors import ClusterError, UnsupportedError

#: Rounds in which a worker is killed; `python -m benchmarks.distributed` has ten.
KILLS = 2


@pytest.fixture(scope="module")
def workers():
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield cluster, client


def test_without_a_client_fit_says_how_to_get_one():
    with pytest.raises(UnsupportedError, match="no Dask client"):
        DaskSequenceTagger().fit(*bags(*sequences(0), 2))


def living(client):
    """Processes of the workers that are there; one may just have been killed."""
    found = client.run(os.getpid, on_error="return").values()
    return [process for process in found if isinstance(process, int)]


@pytest.fixture(scope="module")
def local():
    return cw.SequenceTagger(tol=TOL).fit(*sequences(0))


def test_two_and_four_worker_processes_reach_the_optimum_of_one_machine(workers, local):
    cluster, client = workers
    two = DaskSequenceTagger(tol=TOL, client=client).fit(*bags(*sequences(0), 6))
    agree(two, local)
    cluster.scale(4)
    client.wait_for_workers(4)
    four = DaskSequenceTagger(tol=TOL, client=client).fit(*bags(*sequences(0), 6))
    assert np.array_equal(two.coef_, four.coef_)  # sums are in the order of the partitions


def test_a_worker_killed_in_each_round_costs_no_more_than_time(workers, local):
    _, client = workers
    rounds = []

    def kill(row):
        rounds.append(row["epochs"])
        if len(rounds) > KILLS:
            return
        process = sorted(living(client))[0]
        late = threading.Timer(0.05 * (len(rounds) - 1), os.kill, (process, signal.SIGKILL))
        late.start()  # between rounds, and within one

    tagger = DaskSequenceTagger(tol=TOL, client=client)
    tagger.fit(*bags(*sequences(0), 6), callback=kill)
    assert len(rounds) > KILLS
    agree(tagger, local)


def interrupt_after(rounds, action):
    """A callback that runs an action after some rows of the trace."""
    count = []

    def call(row):
        count.append(row)
        if len(count) == rounds:
            action()

    return call


@pytest.fixture
def fragile():
    """Workers without nannies, which nothing restarts."""
    with (
        LocalCluster(
            2, threads_per_worker=1, dashboard_address=":0", worker_class="distributed.Worker",
            processes=False, silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        yield cluster, client


def test_losing_all_workers_is_an_error_that_names_the_checkpoint(fragile, tmp_path, monkeypatch):
    monkeypatch.setattr("cliquewise.distributed.cluster.PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr("cliquewise.distributed.cluster.CHECK_SECONDS", 0.5)
    monkeypatch.setattr("cliquewise.distributed.cluster.SEND_SECONDS", 1.0)
    cluster, client = fragile
    path = tmp_path / "state.cw"
    tagger = DaskSequenceTagger(tol=TOL, client=client, checkpoint=path, checkpoint_seconds=0.0)
    stop = interrupt_after(2, lambda: cluster.scale(0) or wait_until_empty(client))
    with pytest.raises(ClusterError, match=r"workers of the cluster are gone.*state\.cw.*resume"):
        tagger.fit(*bags(*sequences(0), 4), callback=stop)


def wait_until_empty(client):
    deadline = time.monotonic() + 20
    while client.scheduler_info(n_workers=-1)["workers"] and time.monotonic() < deadline:
        time.sleep(0.05)


def test_losing_the_scheduler_is_an_error_that_says_how_to_continue(fragile):
    _, client = fragile
    tagger = DaskSequenceTagger(tol=TOL, client=client)
    stop = interrupt_after(2, client.close)
    with pytest.raises(ClusterError, match=r"scheduler of the cluster was lost.*checkpoint=PATH"):
        tagger.fit(*bags(*sequences(0), 4), callback=stop)
