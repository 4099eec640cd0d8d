"""Checkpoints that cannot be written: training goes on, and the last good file stays."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
from chain_problems import ChainRecipe

from cliquewise.errors import DataError, FormatError
from cliquewise.persistence import read_arrays, write_arrays
from cliquewise.solvers import get
from cliquewise.solvers.run import run

EPOCHS = 6


@pytest.fixture(scope="module")
def problem():
    return ChainRecipe(7, examples=6, labels=3, values=True, weights=True).build()


def test_a_full_disk_at_any_moment_does_not_end_training(problem, tmp_path, monkeypatch):
    alone = run(problem, get("sdca"), tol=0, max_epochs=EPOCHS, random_state=0)
    path, fsync, calls = tmp_path / "state", os.fsync, []

    def full(handle):
        calls.append(handle)
        if path.exists() and read_arrays(path)[1]["epochs"] >= 2.0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="No space left.*Training continues.*left unchanged"):
        fit = run(
            problem, get("sdca"), tol=0, max_epochs=EPOCHS, random_state=0,
            checkpoint=path, checkpoint_seconds=0,
        )  # fmt: skip
    assert len(calls) >= EPOCHS  # tried again every time
    np.testing.assert_array_equal(fit.weights, alone.weights)
    assert read_arrays(path)[1]["epochs"] == 2.0  # the last good one
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_a_path_that_cannot_be_written_is_refused_before_the_first_step(problem, tmp_path):
    rows = []
    for wrong in (tmp_path / "missing" / "state", tmp_path, tmp_path / ("n" * 300)):
        with pytest.raises(FormatError, match="the checkpoint cannot be written there"):
            run(problem, get("sdca"), callback=rows.append, checkpoint=wrong)
    assert rows == []


@pytest.mark.parametrize("epochs", ["many", None, -1.0, float("nan"), float("inf"), [1]])
def test_a_checkpoint_with_an_absurd_number_of_passes_is_rejected(problem, tmp_path, epochs):
    path = tmp_path / "state"
    options = {"tol": 0, "random_state": 0, "checkpoint": path, "checkpoint_seconds": 0}
    run(problem, get("sdca"), max_epochs=1, **options)
    arrays, header = read_arrays(path)
    write_arrays(path, arrays, header | {"epochs": epochs})
    with pytest.raises(DataError, match="damaged"):
        run(problem, get("sdca"), max_epochs=3, resume=True, **options)
