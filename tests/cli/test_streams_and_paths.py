"""What a shell does to a program: closed streams, full disks, wrong paths. One line is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

import cliquewise as cw
from cliquewise.cli import main

TRAIN = "the DT B-NP\ncat NN I-NP\nsleeps VB B-VP\n\na DT B-NP\ndog NN I-NP\n\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    (folder / "train").write_text(TRAIN)
    (folder / "long").write_text(TRAIN * 5000)
    (folder / "wide").write_text(TRAIN, encoding="utf-16")
    (folder / "graph.uai").write_text("MARKOV 1 2 1 1 0 2 1 3")
    rows = [[line.split() for line in s.splitlines()] for s in TRAIN.strip().split("\n\n")]
    X, y = [[r[:2] for r in s] for s in rows], [[r[2] for r in s] for s in rows]
    cw.SequenceTagger(template="chunking", random_state=0).fit(X, y).save(folder / "m.cw")
    return folder


def shell(folder, line):
    """Run a line of the shell in which CW is the program."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=folder, capture_output=True, text=True, timeout=120,
        env={**os.environ, "CW": f"{sys.executable} -m cliquewise"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("$CW predict --model m.cw <&-", "the standard input is closed"),
        ("$CW infer graph.uai >&-", "the standard output is closed"),
        ("$CW predict --model m.cw long >/dev/full", "No space left"),
    ],
)
def test_stream_failures_are_one_line_errors(folder, line, message):
    done = shell(folder, line)
    assert done.returncode in (2, 3, 4) and len(done.stderr.splitlines()) == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fit train --model m2.cw --seed -1", "--seed must be None or an integer >= 0"),
        ("fit train --model m2.cw --encoding utf-16", "not utf-16"),
        ("fit train --model m2.cw --encoding hex", "no encoding 'hex'"),
        ("predict --model m.cw --encoding utf-16", "stdin.*not utf-16"),
        ("predict --model m.cw train --out no/such/file", "the output cannot be written"),
        ("infer graph.uai --out no/such/file", "the result cannot be written"),
        ("fit long --model no/such/m.cw", "the model cannot be written"),
        ("fit train --model m2.cw --checkpoint no/state", "the checkpoint cannot be written"),
        ("predict --model missing train", "missing"),
        ("fit train --model m2.cw --template missing", "missing: cannot be opened"),
    ],
)
def test_invalid_arguments_are_one_line_errors(folder, line, message, monkeypatch):
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, line.split(), input=TRAIN + "x")
    assert result.exit_code in (2, 3, 4) and "Traceback" not in result.output
    assert re.search(message, result.stderr.splitlines()[-1])
    assert not (folder / "m2.cw").exists()


def test_closed_pipe_ends_the_command_silently(folder):
    done = shell(folder, "$CW predict --model m.cw long | head -n 1")
    assert done.stdout == "the DT B-NP B-NP\n" and done.stderr == ""


def read(result):
    return result.stdout_bytes.decode("utf-16")


def test_non_ascii_text_passes_through_files_and_pipes(folder, monkeypatch):
    monkeypatch.chdir(folder)
    line = ["predict", "--model", "m.cw"]
    plain = CliRunner().invoke(main, [*line, "train"]).stdout
    wide, content = [*line, "--encoding", "utf-16"], (folder / "wide").read_bytes()
    assert plain.startswith("the DT")
    assert read(CliRunner().invoke(main, [*wide, "wide"])) == plain
    assert read(CliRunner().invoke(main, wide, input=content)) == plain
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: (folder / "pipe").write_bytes(content))
    writer.start()
    assert read(CliRunner().invoke(main, [*wide, "pipe"])) == plain
    writer.join()
