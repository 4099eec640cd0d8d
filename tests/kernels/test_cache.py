"""The cache of compiled kernels: shared, read-only, damaged, full, and cleaned up."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cliquewise._kernels import cache_dir, compile_lock
from cliquewise._kernels.sources import code_hash

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
print(len([w for w in caught if "kernel" in str(w.message)]), loaded)
print(*[w.message for w in caught])
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
#: No file can be created in the cache, as on a read-only disk (permissions do not stop root).
READ_ONLY = """
import builtins, errno, os, pathlib, tempfile
import numba.core.caching as caching
def refuse(path, *rest, **options):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
def read(path, mode="r", *rest):
    return refuse(path) if "w" in mode else builtins.open(path, mode, *rest)
caching.open = read
tempfile.TemporaryFile = lambda dir: refuse(dir)
pathlib.Path.touch = pathlib.Path.write_text = refuse
usual = os.open
os.open = lambda path, flags, *rest: refuse(path) if flags & os.O_CREAT else usual(
    path, flags, *rest)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "tiny.py").write_text(TINY)
    return folder


def call(place: Path, cache: Path, prepare: str = "") -> tuple[str, str]:
    """Call both kernels in a new process; return "warnings cache-hits" and the warnings' text."""
    done = start(CODE.format(prepare=prepare), place, cache)
    answer, counts, messages = done.stdout.splitlines()
    assert answer == "13.0"
    return counts, messages


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


def test_second_process_loads_all_kernels_without_a_warning(place, tmp_path):
    assert call(place, tmp_path) == ("0 0", "")
    assert call(place, tmp_path) == ("0 2", "")


def test_helper_is_compiled_once_for_all_its_callers(place, tmp_path):
    code = "import tiny; print(tiny.{0}(2.0), *(sum(f.stats.cache_hits.values()) for f in {1}))"
    parts = "(tiny.square, tiny.fourth.part, tiny.fourth, tiny.eighth)"
    callers = ["fourth", "eighth", "fourth", "eighth"]
    answers = [start(code.format(name, parts), place, tmp_path).stdout for name in callers]
    # A helper is loaded for a new caller only.
    expected = ["16.0 0 0 0 0\n", "256.0 1 0 0 0\n", "16.0 0 0 1 0\n", "256.0 0 0 0 1\n"]
    assert answers == expected


def test_compilation_is_announced_once_per_cache_folder(place, tmp_path):
    code = "from cliquewise._kernels import cache_dir; cache_dir.ANNOUNCE_AFTER = -1.0\n"
    first = start(code + "from tiny import twice; print(twice(2.0))", place, tmp_path).stderr
    second = start(code + "from tiny import twice; print(twice(2.0))", place, tmp_path).stderr
    other = start(code + "from tiny import thrice; print(thrice(2.0))", place, tmp_path).stderr
    assert first.count("compiling kernels") == 1
    assert str(tmp_path) in first
    assert second == ""
    assert other == ""


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_truncated_cache_file_is_replaced_with_one_warning(kind, place, tmp_path):
    call(place, tmp_path)
    files = list(tmp_path.rglob(f"*.{kind}"))
    assert len(files) == 2
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    counts, message = call(place, tmp_path)
    assert counts == "1 0" and "damaged" in message
    assert call(place, tmp_path) == ("0 2", "")


def test_full_disk_gives_one_warning_that_names_the_remedy(place, tmp_path):
    counts, message = call(place, tmp_path, FULL)
    assert counts == "1 0"
    assert "free some space" in message and "NUMBA_CACHE_DIR" in message


def test_missing_folder_that_cannot_be_created_gives_one_warning(place, tmp_path):
    (tmp_path / "cliquewise").write_text("a file where the folder should be")
    counts, message = call(place, tmp_path)
    assert counts == "1 0"
    assert "cannot be created" in message and "space" not in message


def test_warm_read_only_cache_is_used_without_a_warning(place, tmp_path):
    call(place, tmp_path)
    before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
    assert call(place, tmp_path, READ_ONLY) == ("0 2", "")
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before


def test_read_only_cache_that_lacks_a_kernel_gives_one_warning(place, tmp_path):
    start("from tiny import twice; print(twice(2.0))", place, tmp_path)
    counts, message = call(place, tmp_path, READ_ONLY)
    assert counts == "1 1"
    assert "read-only" in message and "space" not in message


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not stop root")
def test_warm_cache_of_another_user_is_used(place, tmp_path):
    call(place, tmp_path)
    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert call(place, tmp_path) == ("0 2", "")
    finally:
        for folder in folders:
            folder.chmod(stat.S_IRWXU)


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


def test_one_of_two_processes_compiles_and_the_other_waits(place, tmp_path):
    code = SLOW.format(pause=1.0)
    with begin(code, place, tmp_path) as first, begin(code, place, tmp_path) as second:
        answers = {
            process.communicate(timeout=120)[0].splitlines()[-1] for process in (first, second)
        }
    assert answers == {"256.0 0", "256.0 1"}


def test_lock_of_a_killed_process_is_released(place, tmp_path):
    with begin(SLOW.format(pause=100.0), place, tmp_path) as first:
        assert first.stdout.readline() == "begins\n"
        while not list(tmp_path.rglob("*.lock")):
            time.sleep(0.01)
        first.kill()
    assert start("import tiny; print(tiny.eighth(2.0))", place, tmp_path).stdout == "256.0\n"


@pytest.mark.skipif(compile_lock.fcntl is None, reason="no file locks on this system")
def test_lock_released_by_two_threads_at_once_is_released_once(tmp_path, monkeypatch):
    lock, flock = compile_lock.CompileLock(), compile_lock.fcntl.flock
    assert not lock.acquire(tmp_path / "a.lock")

    def slow(file, what):
        if what == compile_lock.fcntl.LOCK_UN:
            lock.release()  # the other thread, meanwhile
        flock(file, what)

    monkeypatch.setattr(compile_lock.fcntl, "flock", slow)
    lock.release()
    assert not compile_lock.CompileLock().acquire(tmp_path / "a.lock")  # it is free


def test_hash_of_code_ignores_comments_and_docstrings_and_nothing_else():
    code = '"""Old."""\ndef f(x):\n    """Old."""\n    return x + 1\n'
    assert code_hash(code) == code_hash("def f(x):\n    # why\n    return (x + 1)\n")
    assert code_hash(code) != code_hash(code.replace("+", "-"))
    assert code_hash(code) != code_hash(code.replace("1", "1.0"))


def age(folder: Path, days: float) -> None:
    then = time.time() - 86400.0 * days
    os.utime(folder, (then, then))


def test_folders_unused_for_a_month_are_removed_and_others_are_not(tmp_path):
    own = tmp_path / "kernels-2.0"
    ages = {own / "a-1": 31, own / "a-2": 29, tmp_path / "kernels-1.0" / "a-1": 31,
            tmp_path / "kernels-1.1" / "a-1": 29, tmp_path / "models" / "a-1": 99}  # fmt: skip
    for folder in ages:
        folder.mkdir(parents=True)
        (folder / "f.nbi").touch()
    for folder, days in ages.items():
        age(folder, days)
        if folder.parent != own:
            age(folder.parent, 99)
    cache_dir.remove_unused(own)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*-*")}
    expected = {"kernels-2.0", "kernels-2.0/a-2", "kernels-1.1", "kernels-1.1/a-1", "models/a-1"}
    assert left == expected


def test_loading_a_kernel_marks_its_folder_as_used(place, tmp_path):
    call(place, tmp_path)
    (module,) = [path for path in tmp_path.rglob("tiny-*") if path.is_dir()]
    age(module, 40)
    call(place, tmp_path)
    assert time.time() - module.stat().st_mtime < 3600.0
