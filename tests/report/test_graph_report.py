"""The report of a graphical model: what is proved, the drawn graph, marginals, evidence."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from test_tagger_report import block_of, data_of

import cliquewise as cw
from cliquewise.cli import main
from cliquewise.errors import CliquewiseError


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(0)
    edges = [(0, 1), (1, 2), (2, 0), (2, 3)]
    tables = [(edge, rng.normal(size=(2, 2))) for edge in edges]
    tables += [((1, 2, 3), rng.normal(size=(2, 2, 2))), ((3,), [0.0, -np.inf])]
    states = [["no", "yes"]] * 4
    return cw.FactorGraph([2] * 4, tables, names=list("abcd"), states=states).condition({"a": 1})


def test_the_page_holds_the_marginals_the_evidence_and_ln_z(graph, tmp_path):
    graph.report(tmp_path / "g.html", "A graph")
    page = data_of(tmp_path / "g.html")
    truth = graph.marginals("brute-force")
    listed = block_of(page, "marginals", "marginals")
    for own, exact in zip(listed["chances"], truth.nodes, strict=True):
        assert own == pytest.approx(exact.tolist(), abs=1e-4)
    assert listed["seen"] == [0] and listed["states"][0] == ["no", "yes"]
    assert listed["best"] == graph.map("brute-force").labels.tolist()
    badge = block_of(page, "proof", "badge")
    assert badge["status"] == "proved" and float(badge["facts"][0][1]) == pytest.approx(truth.log_z)
    drawn = block_of(page, "graph", "network")
    assert drawn["edges"] == [[0, 1], [0, 2], [1, 2], [2, 3]] and drawn["scopes"] == [[1, 2, 3]]
    assert len(drawn["places"]) == 5
    model = page["sections"][-1]["blocks"]
    assert sum("<- taken" in b["text"] for b in model if b["kind"] == "text" and b["plain"]) == 2


def test_bounds_are_called_proved_only_where_they_are(tmp_path):
    rng = np.random.default_rng(1)
    n = 40
    pairs = [(i, j) for i in range(n) for j in range(i)]
    graph = cw.FactorGraph([2] * n, [(p, rng.normal(size=(2, 2))) for p in pairs])
    graph.report(tmp_path / "g.html", seconds=0.5)
    badge, found = (
        block_of(data_of(tmp_path / "g.html"), "proof", "badge"),
        graph.marginals(seconds=0.5),
    )
    assert not found.exact and badge["status"] != "proved"
    assert "estimates" in badge["sentence"]


def test_a_grid_that_elimination_answers_in_a_moment_is_exact_whatever_the_limit(tmp_path):
    rng = np.random.default_rng(2)
    edges = [(i, i + step) for i in range(64) for step in (1, 8) if i + step < 64]
    edges = [(a, b) for a, b in edges if b - a == 8 or b % 8]
    graph = cw.FactorGraph([2] * 64, [(e, rng.normal(size=(2, 2))) for e in edges])
    graph.report(tmp_path / "g.html", seconds=0.01)
    page = data_of(tmp_path / "g.html")
    badge = block_of(page, "proof", "badge")
    assert badge["status"] == "proved" and "exactly" in badge["sentence"]
    drawn = block_of(page, "graph", "network")
    assert drawn["places"] == [[v % 8, v // 8] for v in range(64)] and drawn["around"] == []


def test_the_command_takes_a_uai_file_and_evidence(tmp_path):
    (tmp_path / "m.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n")
    (tmp_path / "m.evid").write_text("1 0 1\n")
    ask = ["report", str(tmp_path / "m.uai"), "--out", str(tmp_path / "m.html")]
    result = CliRunner().invoke(main, [*ask, "--evid", str(tmp_path / "m.evid")])
    assert result.exit_code == 0, result.output
    page = data_of(tmp_path / "m.html")
    assert page["title"] == "m.uai" and "1 observed" in page["subtitle"]
    assert block_of(page, "marginals", "marginals")["chances"][1] == pytest.approx(
        [3 / 7, 4 / 7], abs=1e-4
    )


def test_a_graph_without_a_possible_labeling_is_an_error_and_leaves_no_file(tmp_path):
    with pytest.raises(CliquewiseError):
        cw.FactorGraph([2], [((0,), [-np.inf, -np.inf])]).report(tmp_path / "g.html")
    assert not (tmp_path / "g.html").exists()
