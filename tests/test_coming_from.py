"""The pages for those who come from other tools: every block runs, a peer's where it is installed.

Blocks of a page share their names. One that imports a peer comes after those of ours that it needs,
and nothing of ours needs it.
"""

from __future__ import annotations

import doctest
import importlib.util
import re
import warnings
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "coming_from"
PAGES = sorted(FOLDER.glob("*.md"))
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
#: Modules of other tools, and the packages that they come in.
PEERS = {
    "pgmpy": "pgmpy",
    "pyagrum": "pyagrum",
    "pycrfsuite": "python-crfsuite",
    "sklearn_crfsuite": "sklearn-crfsuite",
    "torch_struct": "torch-struct",
    "torchcrf": "pytorch-crf",
    "wapiti": "libwapiti",
}


@cache
def blocks(page):
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def imported(block):
    return set(re.findall(r"^(?:>>>|\.\.\.) +(?:import|from) (\w+)", block, flags=re.MULTILINE))


def peers_of(block):
    return sorted(imported(block) & set(PEERS))


def run(block, names, where):
    """Run one block with the names that are there, and enter its own."""
    test = doctest.DocTestParser().get_doctest(block, names, where, str(where), 0)
    test.globs = names  # DocTest copies them
    said = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    with warnings.catch_warnings():
        failed = runner.run(test, out=said.append, clear_globs=False).failed
    assert failed == 0, "".join(said)


@cache
def names_before(page, i):
    """What our own blocks before block ``i`` have defined."""
    if i == 0:
        return {}
    names, before = dict(names_before(page, i - 1)), blocks(page)[i - 1]
    if not peers_of(before):
        run(before, names, f"{page.name}, block {i}")
    return names


@pytest.mark.parametrize(
    ("page", "i"),
    [
        pytest.param(page, i, id=f"{page.stem}-{i + 1}-{'+'.join(peers_of(block)) or 'ours'}")
        for page in PAGES
        for i, block in enumerate(blocks(page))
    ],
)
def test_a_block_runs(page, i):
    if "torch" in page.name:
        torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")
        torch.set_num_threads(1)
    block = blocks(page)[i]
    for module in peers_of(block):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{PEERS[module]} is not installed: pip install 'cliquewise[peers]'")
    if not peers_of(block):
        names_before(page, i + 1)
        return
    run(block, dict(names_before(page, i)), f"{page.name}, block {i + 1}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_all_code_is_in_blocks_that_run_and_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    parser = doctest.DocTestParser()
    assert all(b.startswith(">>> ") and b.endswith("\n\n") for b in blocks(page))
    assert sum(len(parser.get_examples(b)) for b in blocks(page)) == len(parser.get_examples(text))
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in link or (page.parent / link).exists(), link


def test_every_page_is_listed_and_every_peer_appears():
    listed = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert all(f"({page.name})" in listed for page in PAGES if page.stem != "index")
    found = {peer for page in PAGES for block in blocks(page) for peer in peers_of(block)}
    assert found == set(PEERS)
