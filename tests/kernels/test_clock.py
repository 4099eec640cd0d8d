"""The clock of time limits stops during compilation, and is monotonic."""

from __future__ import annotations

import threading
import time

import pytest

from cliquewise._kernels import STOCK_NUMBA, clock, kernel
from cliquewise._kernels.clock import _Clock


def test_stopped_clock_stands_still_and_continues_when_released():
    watch = _Clock()
    before = watch.now()
    with watch.stopped():
        time.sleep(0.05)
        with watch.stopped():
            time.sleep(0.05)
        during = watch.now()
    after = watch.now()
    assert before <= during <= after < before + 0.1
    time.sleep(0.02)
    assert watch.now() >= after + 0.02


def test_clock_stopped_by_several_threads_subtracts_their_time_once():
    watch, seen = _Clock(), []

    def stop(pause: float) -> None:
        with watch.stopped():
            time.sleep(pause)
            seen.append(watch.now())

    begin = time.perf_counter()
    first = watch.now()
    threads = [threading.Thread(target=stop, args=(pause,)) for pause in (0.05, 0.08, 0.11)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.append(watch.now())
        time.sleep(0.005)
    last = watch.now()
    assert seen == sorted(seen)
    lost = (time.perf_counter() - begin) - (last - first)
    assert 0.1 < lost <= time.perf_counter() - begin


@pytest.mark.skipif(STOCK_NUMBA, reason="stock dispatchers do not stop the clock")
def test_compilation_does_not_count_against_a_time_limit(monkeypatch):
    @kernel
    def fresh(x):
        return x + 1.0

    usual = fresh._compiler.compile

    def slow(*arguments):
        time.sleep(0.3)
        return usual(*arguments)

    monkeypatch.setattr(fresh._compiler, "compile", slow)
    monkeypatch.setattr(fresh._cache, "load_overload", lambda *arguments: None)
    before, begin = clock.now(), time.perf_counter()
    assert fresh(1.0) == 2.0
    passed = time.perf_counter() - begin
    assert passed >= 0.3 and clock.now() - before <= passed - 0.3
