"""Ctrl-C and SIGTERM: training keeps its model and checkpoint, and nothing partial is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.cli import exit_codes

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")

COMMAND = [sys.executable, "-m", "cliquewise"]


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """A file on which training takes long at a tolerance that it cannot reach."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("interrupted") / "train"
    with open(path, "w") as file:
        for _ in range(400):
            for word, tag in zip(rng.integers(0, 500, 12), rng.integers(0, 9, 12), strict=True):
                file.write(f"w{word} t{tag}\n")
            file.write("\n")
    return path


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    assert condition()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_fit_writes_the_model_and_a_checkpoint(number, train, tmp_path):
    model, checkpoint, log = tmp_path / "m.cw", tmp_path / "state", tmp_path / "log"
    line = [
        *COMMAND, "fit", train, "--model", model, "--checkpoint", checkpoint, "--tol", "1e-14",
        "--checkpoint-seconds", "3600", "--max-epochs", "1000000", "--C", "1e4",
    ]  # fmt: skip
    with open(log, "w") as errors:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors)
        wait_for(lambda: "pass" in log.read_text() or "epoch" in log.read_text(), process)
        process.send_signal(number)
        start = time.monotonic()
        process.communicate(timeout=60)
    assert process.returncode == exit_codes.INTERRUPTED, log.read_text()
    assert time.monotonic() - start < 20
    assert "was interrupted at relative gap" in log.read_text()
    loaded = cw.load(model)
    assert loaded.stop_reason_ == "interrupted" and 0 < loaded.certificate_.gap <= 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "m.cw", "state"]
    again = [*line[: line.index("--tol")], "--resume", "--max-epochs", str(loaded.n_iter_ + 1)]
    done = subprocess.run([*again, "--C", "1e4"], capture_output=True, text=True, timeout=120)
    assert done.returncode in (exit_codes.SUCCESS, exit_codes.NOT_CONVERGED), done.stderr
    assert f"{loaded.n_iter_ + 1} epochs" in done.stdout or done.returncode == exit_codes.SUCCESS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_predict_leaves_no_part(number, train, tmp_path):
    model, out = tmp_path / "m.cw", tmp_path / "out"
    tagger = cw.SequenceTagger(template="columns", random_state=0)
    tagger.fit([[["a"], ["b"]]], [["A", "B"]]).save(model)
    line = [*COMMAND, "predict", "--model", model, "--out", out, "--batch", "1"]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"a\nb\n\n" * 50)
    process.stdin.flush()
    wait_for(lambda: len(list(tmp_path.iterdir())) > 1, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == exit_codes.INTERRUPTED, errors
    assert errors == b"cliquewise: interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["m.cw"]
