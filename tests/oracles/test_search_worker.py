"""The process that searches: time-outs, kills and crashes are its own, answers stay right."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from map_cases import torus

from cliquewise.graph.builders import random_graph
from cliquewise.oracles import toulbar2

pytest.importorskip("pytoulbar2")
if os.name == "nt":
    pytest.skip("signals are those of POSIX", allow_module_level=True)


def while_searching(act):
    """Call ``act`` with the worker's process id, a moment after a search began."""

    def wait():
        while not toulbar2._worker._lock.locked():
            time.sleep(0.01)
        time.sleep(0.3)
        act(toulbar2._worker._process.pid)

    threading.Thread(target=wait, daemon=True).start()


def test_small_answers_are_right_after_many_time_outs():
    hard, rng = torus(30, 4, seed=0), np.random.default_rng(0)
    for _ in range(5):
        assert not hard.map("toulbar2", seconds=0.1).exact
    for _ in range(200):
        graph = random_graph(5, 6, max_order=3, random_state=rng)
        found = graph.map("toulbar2")
        assert found.exact
        assert found.score == pytest.approx(graph.map("brute-force").score, abs=1e-8)


def test_a_search_keeps_to_its_time_and_returns_what_it_found():
    graph = torus(30, 4, seed=1)
    begin = time.perf_counter()
    found = graph.map("toulbar2", seconds=0.7, init=np.zeros(900, dtype=int))
    assert time.perf_counter() - begin < 30  # a busy machine; without the limit: hours
    assert found.score > graph.score(np.zeros(900, dtype=int))
    assert found.upper_bound >= found.score


def test_a_worker_killed_in_the_middle_costs_the_proof_alone():
    graph, small = torus(30, 4, seed=0), torus(4, 2, seed=3)
    small.map("toulbar2")
    while_searching(lambda worker: os.kill(worker, signal.SIGKILL))
    with pytest.warns(UserWarning, match="toulbar2 crashed, exit code -9: .* without a proof"):
        found = graph.map("toulbar2", seconds=20)
    assert not found.exact
    assert found.upper_bound >= found.score
    assert small.map("toulbar2").score == pytest.approx(small.map("junction-tree").score)


def test_a_worker_killed_between_questions_is_replaced_without_a_word(recwarn):
    small = torus(4, 2, seed=3)
    small.map("toulbar2")
    toulbar2._worker._process.kill()
    time.sleep(0.2)
    assert small.map("toulbar2").exact
    assert not recwarn


def test_ctrl_c_ends_the_search_and_the_next_one_is_right():
    graph, small = torus(30, 4, seed=0), torus(4, 2, seed=3)
    small.map("toulbar2")
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while_searching(lambda worker: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            graph.map("toulbar2", seconds=60)
    finally:
        signal.signal(signal.SIGINT, old)
    assert small.map("toulbar2").exact


def test_a_search_that_runs_out_of_memory_costs_the_proof_alone(monkeypatch):
    toulbar2._worker.stop()
    monkeypatch.setattr(toulbar2, "MAX_MEMORY", 2**20)
    with pytest.warns(UserWarning, match="without a proof"):
        found = torus(60, 4, seed=0).map("toulbar2", seconds=30)
    assert found.upper_bound >= found.score
    toulbar2._worker.stop()


def test_a_forked_child_has_a_worker_of_its_own():
    small = torus(4, 2, seed=3)
    best = small.map("toulbar2").score
    child = os.fork()
    if child == 0:  # no test machinery in here
        try:
            right = toulbar2._worker._process is None and small.map("toulbar2").score == best
            toulbar2._worker.stop()
        finally:
            os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert small.map("toulbar2").score == best
