"""The five papers: every item has a row, every row runs, the page is what the results say."""

from __future__ import annotations

import json

import pytest

from experiments import __main__ as door
from experiments import _page, _rows
from experiments._papers import PAPERS
from experiments._rows import Row, Work, plain, rows

ROWS = rows()
RUN = [row for row in ROWS if row.run is not None]


def test_every_figure_table_and_theorem_of_the_five_papers_has_a_row():
    for name, paper in PAPERS.items():
        covered = {item for row in ROWS if row.paper == name for item in row.covers()}
        wanted = set(paper.items)
        assert wanted <= covered, f"{name}: no row for {sorted(wanted - covered)}"


def test_rows_are_about_items_that_exist_and_have_a_run_or_a_reason():
    assert len({row.name for row in ROWS}) == len({row.slug for row in ROWS}) == len(ROWS)
    for row in ROWS:
        known = {*PAPERS[row.paper].items}
        for item in row.covers():
            assert item in known or item.startswith(("Section", "Appendix", "Algorithm")), row.name
        assert (row.run is None) == (row.verdict is None) == bool(row.reason), row.name


def test_the_page_is_what_the_kept_results_say():
    text = _page.PAGE.read_text()
    assert text == _page.text(), "docs/papers.md is stale: python -m experiments page"
    for row in RUN:
        if row.draw is not None and row.kept() is not None:
            assert (_page.PICTURES / f"{row.slug}.svg").exists(), row.name


def test_a_row_that_differs_says_why():
    for row in RUN:
        kept = row.kept()
        if kept is not None and row.verdict(kept["result"])[0] == "differs":
            assert row.why, row.name


def test_kept_results_are_small_and_say_where_they_come_from():
    known = {row.path for row in RUN}
    for path in _rows.RESULTS.glob("*.json"):
        assert path in known, f"{path.name} is of no row"
        assert path.stat().st_size < 60_000, path.name
        file = json.loads(path.read_text())
        assert {"commit", "date", "machine", "versions", "seconds", "command"} <= set(file)


@pytest.mark.medium
@pytest.mark.parametrize("row", RUN, ids=lambda row: row.name)
def test_quick(row, tmp_path):
    if row.missing():
        pytest.skip(row.missing())
    result = plain(row.run(Work(quick=True)))
    result = json.loads(json.dumps(result, allow_nan=False))
    word, sentence = row.verdict(result)
    assert word in ("agrees", "differs") and sentence.endswith(".")
    if row.draw is not None:
        pytest.importorskip("matplotlib")
        row.draw(result, tmp_path / "picture.svg")
        assert 0 < (tmp_path / "picture.svg").stat().st_size < 400_000


def test_a_run_goes_on_after_an_interrupt(tmp_path, monkeypatch, capsys):
    """Finished parts are kept; the second run makes the rest alone, and a third one nothing."""
    made, stop = [], [True]

    def part(k):
        if k == 2 and stop:
            raise KeyboardInterrupt
        made.append(k)
        return k * 1.5

    row = Row("toy/row", "gdmm", ("Figure 1",), "Shows.",
              lambda work: {str(k): work.kept(str(k), lambda k=k: part(k)) for k in range(4)},
              lambda result: ("agrees", f"{result['3']}."))  # fmt: skip
    monkeypatch.setattr(_rows, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(_rows, "SCRATCH", tmp_path / "scratch")
    monkeypatch.setattr(_rows, "rows", lambda: [row])
    assert door.main(["run", "toy/row"]) == 130 and not row.path.exists()
    stop.clear()
    assert door.main(["run", "toy/row"]) == 0 and made == [0, 1, 2, 3]
    assert door.main(["run", "toy/*"]) == 0 and made == [0, 1, 2, 3]
    assert json.loads(row.path.read_text())["result"] == {"0": 0, "1": 1.5, "2": 3, "3": 4.5}
    assert door.main(["run", "toy/row", "--again"]) == 0 and len(made) == 8
    assert "agrees. 4.5." in capsys.readouterr().out
    assert door.main(["run", "toy/none"]) == 1
