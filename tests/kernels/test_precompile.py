"""Kernels compiled by a second process: it may help, and can do no harm."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

import cliquewise as cw
from cliquewise._kernels import precompile
from cliquewise._kernels.cache import name_of
from cliquewise._kernels.chain.plan import PLAN

NAMES = [name_of(kernel.py_func) for kernel, _ in PLAN]
ALIVE = SimpleNamespace(poll=lambda: None)
DEAD = SimpleNamespace(poll=lambda: 1)


@pytest.fixture(autouse=True)
def nothing_is_ours(monkeypatch):
    monkeypatch.setattr(precompile, "_mine", set())
    monkeypatch.setattr(precompile, "wait_for", [])


@pytest.fixture(scope="module")
def fitted():
    X = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"], ["w=runs"]]]
    y = [["D", "N"], ["D", "N", "V"]]
    tagger = cw.SequenceTagger(random_state=0).fit(X, y)
    tagger.predict(X)
    return tagger


def test_the_plan_holds_the_types_that_a_first_fit_and_prediction_call_with(fitted):
    for kernel, types in PLAN:
        assert types in kernel.overloads, kernel.py_func.__name__


def test_a_warm_cache_starts_no_second_process(fitted, monkeypatch):
    monkeypatch.setattr(precompile.subprocess, "Popen", lambda *a, **k: pytest.fail("started"))
    precompile.start("chain.plan")
    assert not precompile.wait_for


def test_a_second_process_that_cannot_start_changes_nothing(monkeypatch, tmp_path):
    def refuse(*arguments, **options):
        raise OSError("no more processes")

    monkeypatch.setattr(precompile.subprocess, "Popen", refuse)
    monkeypatch.setattr(precompile, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(type(PLAN[0][0]._cache), "is_empty", True)
    precompile.start("chain.plan")
    assert not precompile.wait_for


def test_one_process_claims_a_kernel(tmp_path):
    assert precompile.claim(tmp_path, NAMES[0])
    assert not precompile.claim(tmp_path, NAMES[0])


def test_the_second_process_compiles_the_whole_plan(fitted, tmp_path):
    precompile.main("chain.plan", str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {*NAMES, *(f"{n}.done" for n in NAMES)}


def test_a_kernel_that_the_second_process_has_begun_is_waited_for_with_other_work(fitted, tmp_path):
    first, *rest = NAMES
    (tmp_path / first).touch()
    timer = threading.Timer(0.1, (tmp_path / f"{first}.done").touch)
    timer.start()
    assert precompile._wait(ALIVE, tmp_path, first, PLAN)
    assert all((tmp_path / f"{name}.done").exists() for name in rest)


def test_a_kernel_that_nobody_has_begun_is_compiled_here_after_what_lies_behind_it(
    fitted, tmp_path
):
    assert not precompile._wait(ALIVE, tmp_path, NAMES[-3], PLAN)
    assert {path.name for path in tmp_path.glob("*.done")} == {f"{n}.done" for n in NAMES[-2:]}


def test_a_second_process_that_died_is_not_waited_for(tmp_path):
    (tmp_path / NAMES[0]).touch()
    assert precompile._wait(DEAD, tmp_path, NAMES[0], PLAN)
    assert not list(tmp_path.glob("*.done"))


def test_kernels_outside_the_plan_are_not_waited_for(tmp_path):
    assert not precompile._wait(ALIVE, tmp_path, "somewhere.else", PLAN)
    assert not list(tmp_path.iterdir())
