"""Compiled kernels on disk: whatever the disk does, the library works and says one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: Two small kernels in a module of their own, called in a new process.
TINY = """
from cliquewise._kernels import kernel

@kernel
def twice(x):
    return x + x

@kernel
def thrice(x):
    return x + x + x

@kernel(helper=True)
def square(x):
    return x * x

@kernel
def fourth(x):
    return square(square(x))

@kernel
def eighth(x):
    return fourth(x) * fourth(x)
"""
CODE = """
import warnings
{prepare}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from tiny import thrice, twice
    print(twice(2.0) + thrice(3.0))
    loaded = sum(sum(f.stats.cache_hits.values()) for f in (twice, thrice))
print(len([w for w in caught if "compiled kernels" in str(w.message)]), loaded)
"""
#: Every write into the cache fails as on a full disk.
FULL = """
import builtins, errno, os
import numba.core.caching as caching
def full(path, mode="r", *rest):
    if "w" in mode:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    return builtins.open(path, mode, *rest)
caching.open = full
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "tiny.py").write_text(TINY)
    return folder


def call(place: Path, cache: Path, prepare: str = "") -> str:
    done = start(CODE.format(prepare=prepare), place, cache)
    answer, rest = done.stdout.splitlines()
    assert answer == "13.0"
    return rest


def start(code: str, place: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    with begin(code, place, cache) as process:
        out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return subprocess.CompletedProcess(process.args, 0, out, errors)


def begin(code: str, place: Path, cache: Path) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(cache)
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, cwd=place, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_sound_cache_is_used_in_silence(place, tmp_path):
    assert call(place, tmp_path) == "0 0"
    assert call(place, tmp_path) == "0 2"


def test_what_kernels_share_is_compiled_once_for_all_processes(place, tmp_path):
    code = "import tiny; print(tiny.{0}(2.0), *(sum(f.stats.cache_hits.values()) for f in {1}))"
    parts = "(tiny.square, tiny.fourth.part, tiny.fourth, tiny.eighth)"
    asked = ["fourth", "eighth", "fourth", "eighth"]
    answers = [start(code.format(name, parts), place, tmp_path).stdout for name in asked]
    # A part is loaded for a caller that is new, and for no other.
    expected = ["16.0 0 0 0 0\n", "256.0 1 0 0 0\n", "16.0 0 0 1 0\n", "256.0 0 0 0 1\n"]
    assert answers == expected


def test_long_compiling_is_announced_once_and_names_the_folder(place, tmp_path):
    code = "from cliquewise._kernels import cache; cache.PATIENCE = -1.0\n"
    code += "from tiny import thrice, twice; print(twice(2.0) + thrice(3.0))"
    first, second = (start(code, place, tmp_path).stderr for _ in range(2))
    assert first.count("compiling this part, once; kept in") == 1
    assert str(tmp_path) in first
    assert second == ""


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_truncated_cache_file_is_compiled_anew_and_healed(kind, place, tmp_path):
    call(place, tmp_path)
    files = list(tmp_path.rglob(f"*.{kind}"))
    assert len(files) == 2
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert call(place, tmp_path) == "1 0"
    assert call(place, tmp_path) == "0 2"


def test_a_full_disk_gives_one_warning(place, tmp_path):
    assert call(place, tmp_path, FULL) == "1 0"


def test_a_folder_that_cannot_be_written_gives_one_warning(place, tmp_path):
    (tmp_path / "cliquewise").write_text("a file where the folder should be")
    assert call(place, tmp_path) == "1 0"


SLOW = """
import sys, time
import tiny
compiler = type(tiny.eighth._compiler)
usual = compiler.compile
def slow(self, *arguments):
    time.sleep({pause})
    return usual(self, *arguments)
compiler.compile = slow
print("begins", flush=True)
print(tiny.eighth(2.0), sum(tiny.eighth.stats.cache_hits.values()))
"""


def test_of_two_processes_one_compiles_and_the_other_waits_for_it(place, tmp_path):
    code = SLOW.format(pause=1.0)
    with begin(code, place, tmp_path) as first, begin(code, place, tmp_path) as second:
        answers = {
            process.communicate(timeout=120)[0].splitlines()[-1] for process in (first, second)
        }
    assert answers == {"256.0 0", "256.0 1"}


def test_nobody_waits_for_a_process_that_was_killed_while_it_compiled(place, tmp_path):
    with begin(SLOW.format(pause=100.0), place, tmp_path) as first:
        assert first.stdout.readline() == "begins\n"
        while not list(tmp_path.rglob("*.turn")):
            time.sleep(0.01)
        first.kill()
    assert start("import tiny; print(tiny.eighth(2.0))", place, tmp_path).stdout == "256.0\n"


def test_a_turn_that_two_threads_end_at_once_ends_once(tmp_path, monkeypatch):
    turns = pytest.importorskip("cliquewise._kernels.compile_lock")
    if turns.fcntl is None:
        pytest.skip("no locks on files here")
    turn, flock = turns.CompileLock(), turns.fcntl.flock
    assert not turn.wait(tmp_path / "a.turn")

    def slow(file, what):
        if what == turns.fcntl.LOCK_UN:
            turn.end()  # the other thread, meanwhile
        flock(file, what)

    monkeypatch.setattr(turns.fcntl, "flock", slow)
    turn.end()
    assert not turns.CompileLock().wait(tmp_path / "a.turn")  # nobody has it
