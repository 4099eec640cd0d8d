"""Files are replaced atomically, keep their mode, and leave nothing behind."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import cliquewise as cw
from cliquewise import atomic_files, persistence
from cliquewise.atomic_files import check_target, replace_file
from cliquewise.errors import SaveError

needs_unix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["unnamed", "named"])
def way(request, monkeypatch):
    """Both ways of writing: a file without a name, and, where that is unsupported, with one."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return request.param


def test_the_file_is_replaced_and_nothing_else_stays(tmp_path, way):
    for content in (b"old", b"new and longer", b"x"):
        replace_file(tmp_path / "model.cw", content)
        assert (tmp_path / "model.cw").read_bytes() == content
        assert names(tmp_path) == ["model.cw"]


@needs_unix
def test_a_symbolic_link_is_followed(tmp_path, way):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.cw"
    link.symlink_to(tmp_path / "real" / "model.cw")
    for content in (b"first", b"second"):  # at first the link points to nothing
        replace_file(link, content)
        assert link.is_symlink() and (tmp_path / "real" / "model.cw").read_bytes() == content
    assert names(tmp_path) == ["link.cw", "real"] and names(tmp_path / "real") == ["model.cw"]


@needs_unix
def test_a_link_to_another_file_system_is_followed(tmp_path):
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    target = other / f"cliquewise-test-{os.getpid()}.cw"
    link = tmp_path / "link.cw"
    link.symlink_to(target)
    try:
        check_target(link, "the model")
        replace_file(link, b"content")
        assert link.is_symlink() and target.read_bytes() == b"content"
    finally:
        target.unlink(missing_ok=True)


@needs_unix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_an_existing_file_keeps_its_mode(tmp_path, mode, way):
    path = tmp_path / "model.cw"
    path.write_bytes(b"old")
    path.chmod(mode)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == mode


@needs_unix
def test_a_new_file_gets_the_mode_of_the_umask(tmp_path, way):
    old = os.umask(0o027)
    try:
        replace_file(tmp_path / "model.cw", b"new")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "model.cw").stat().st_mode) == 0o640


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EXDEV])
def test_a_mounted_file_is_written_in_place(tmp_path, monkeypatch, number):
    path = tmp_path / "model.cw"
    path.write_bytes(b"old and longer than the new one")
    node = path.stat().st_ino

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new" and path.stat().st_ino == node
    assert names(tmp_path) == ["model.cw"]


def test_a_full_disk_keeps_the_old_file_and_saves_the_content_elsewhere(tmp_path, monkeypatch):
    folder, elsewhere = tmp_path / "full", tmp_path / "elsewhere"
    folder.mkdir(), elsewhere.mkdir()
    (folder / "model.cw").write_bytes(b"old")
    monkeypatch.chdir(elsewhere)
    sync = os.fsync

    def fill(handle):
        if str(folder) in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fill)
    with pytest.raises(
        SaveError, match=r"No space left.*saved to .*elsewhere.*model\.cw"
    ) as caught:
        replace_file(folder / "model.cw", b"new")
    assert caught.value.errno == errno.ENOSPC
    assert names(folder) == ["model.cw"] and (folder / "model.cw").read_bytes() == b"old"
    (saved,) = elsewhere.iterdir()
    assert saved.read_bytes() == b"new" and str(saved) in str(caught.value)


def test_a_trained_model_is_saved_elsewhere_if_its_folder_has_vanished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tagger = cw.SequenceTagger(random_state=0).fit([[["a"], ["b"]]], [["A", "B"]])
    monkeypatch.setattr("cliquewise.estimators._base.check_target", lambda *_: None)
    with pytest.raises(SaveError, match="saved to"):
        tagger.save(tmp_path / "gone" / "model.cw")
    (saved,) = tmp_path.glob("*.saved")
    assert cw.load(saved).predict([[["a"]]]) == [["A"]]


KILLED = """if True:
    import os, signal, sys, numpy as np
    if sys.argv[2] == "named":
        vars(os).pop("O_TMPFILE", None)
    from cliquewise.atomic_files import replace_file
    os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    replace_file(sys.argv[1], bytes(10**6))
"""


@needs_unix
@pytest.mark.parametrize("way", ["unnamed", "named"])
def test_files_of_killed_processes_are_deleted_by_the_next_save(tmp_path, way):
    path = tmp_path / "model.cw"
    path.write_bytes(b"old")
    line = [sys.executable, "-c", KILLED, str(path), way]
    done = subprocess.run(line, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert path.read_bytes() == b"old"
    left = [p for p in tmp_path.iterdir() if p != path]
    assert len(left) == (way == "named") or way == "unnamed"
    for file in left:
        os.utime(file, (time.time() - 3600,) * 2)
    replace_file(path, b"new")
    assert names(tmp_path) == ["model.cw"]


@needs_unix
def test_files_that_are_being_written_are_not_deleted(tmp_path):
    busy = tmp_path / ".model.cw.abc.tmp"
    busy.write_bytes(b"part")
    os.utime(busy, (time.time() - 3600,) * 2)
    with open(busy, "r+b") as file:
        atomic_files._lock(file.fileno())
        replace_file(tmp_path / "model.cw", b"new")
        assert busy.exists()
    (tmp_path / ".other.cw.abc.tmp").write_bytes(b"")
    os.utime(tmp_path / ".other.cw.abc.tmp", (0, 0))
    replace_file(tmp_path / "model.cw", b"new")
    assert names(tmp_path) == [".other.cw.abc.tmp", "model.cw"]


SAVING = """if True:
    import sys, numpy as np
    from cliquewise.persistence import write_arrays
    i = 0
    while True:
        i += 1
        write_arrays(sys.argv[1], {"x": np.full(1 + i % 7 * 1000, i % 7)}, {"kind": i % 7})
"""


def test_a_file_that_another_process_keeps_replacing_is_always_read_whole(tmp_path):
    path = tmp_path / "model.cw"
    persistence.write_arrays(path, {"x": np.zeros(1)}, {"kind": 0})
    writer = subprocess.Popen([sys.executable, "-c", SAVING, str(path)])
    try:
        seen, end = set(), time.monotonic() + 60
        while len(seen) < 7 and time.monotonic() < end:
            for mapped in (False, True):
                arrays, header = persistence.read_arrays(path, mapped=mapped)
                assert set(arrays["x"].tolist()) == {header["kind"]}
                seen.add(header["kind"])
        assert len(seen) == 7
    finally:
        writer.kill()
        writer.wait()
