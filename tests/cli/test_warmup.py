"""``cliquewise warmup``: afterwards nothing is left to compile."""

from __future__ import annotations

import re

import numba.core.event as event
import pytest
from click.testing import CliRunner

import cliquewise as cw
from cliquewise._kernels import cache_folder
from cliquewise.cli import main
from cliquewise.cli.warmup import WORK


class Compiled(event.Listener):
    """Names of the functions that are compiled."""

    def __init__(self):
        self.names = []

    def on_start(self, given):
        self.names.append(given.data["dispatcher"].py_func.__name__)

    def on_end(self, given):
        pass


@pytest.mark.medium
def test_after_a_warmup_fits_and_predictions_compile_nothing():
    result = CliRunner().invoke(main, ["warmup"])
    assert result.exit_code == 0, result.output
    *parts, total, kept = result.stdout.splitlines()
    assert [re.sub(r" +[\d.]+ s$", "", line) for line in parts] == list(WORK)
    assert total.startswith("all ")
    assert kept.startswith(f"kept in {cache_folder()} (")
    X = [[{"w": "a"}, {"w": "b"}], [{"w": "c"}]]
    y = [["A", "B"], ["B"]]
    with event.install_listener("numba:compile", compiled := Compiled()):
        tagger = cw.SequenceTagger(random_state=0).fit(X, y)
        tagger.predict(X), tagger.predict_marginals(X), tagger.predict_top_k(X, 2)
    assert compiled.names == []


def test_a_warmup_that_can_keep_nothing_says_so(monkeypatch):
    monkeypatch.setattr("cliquewise._kernels.cache_folder", lambda: None)
    result = CliRunner().invoke(main, ["warmup"])
    assert result.exit_code == 2
    assert result.stderr == (
        "cliquewise: error: nothing can be kept; name a folder by NUMBA_CACHE_DIR\n"
    )
