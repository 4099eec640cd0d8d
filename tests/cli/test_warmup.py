"""``cliquewise warmup`` compiles everything that fit and predict use."""

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
def test_fit_and_predict_compile_nothing_after_warmup():
    result = CliRunner().invoke(main, ["warmup"])
    assert result.exit_code == 0, result.output
    *parts, total, kept = result.stdout.splitlines()
    assert [re.sub(r" +[\d.]+ s$", "", line) for line in parts] == list(WORK)
    assert total.startswith("all ")
    assert kept.startswith(f"cached in {cache_folder()} (")
    X = [[{"w": "a"}, {"w": "b"}], [{"w": "c"}]]
    y = [["A", "B"], ["B"]]
    with event.install_listener("numba:compile", compiled := Compiled()):
        tagger = cw.SequenceTagger(random_state=0).fit(X, y)
        tagger.predict(X), tagger.predict_marginals(X), tagger.predict_top_k(X, 2)
    assert compiled.names == []


@pytest.mark.parametrize("is_missing", [True, False])
def test_warmup_without_a_writable_cache_is_an_error(is_missing, monkeypatch):
    if is_missing:
        monkeypatch.setattr("cliquewise._kernels.cache_folder", lambda: None)
    monkeypatch.setattr("cliquewise._kernels.cache_dir.is_writable", lambda folder: False)
    result = CliRunner().invoke(main, ["warmup"])
    assert result.exit_code == 3
    assert result.stderr == (
        "cliquewise: error: the kernel cache cannot be written; set NUMBA_CACHE_DIR to another "
        "folder\n"
    )
