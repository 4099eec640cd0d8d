"""Every public function has an example, and every example runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from textwrap import dedent

import pytest

import cliquewise

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(cliquewise.__path__, "cliquewise.")
    if "._kernels" not in module.name and not module.name.endswith("__main__")
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "start").glob("*.md")),
    *sorted((ROOT / "docs" / "explanation").glob("*.md")),
]


def need_torch():
    torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")
    torch.set_num_threads(1)  # small operations wait for threads that two workers share


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_run(name):
    if name.startswith("cliquewise.torch"):
        need_torch()
        if "_triton" in name:
            pytest.importorskip("triton", reason="Triton is not installed")
    if name == "cliquewise.spacy":
        pytest.importorskip("spacy", reason="the extra cliquewise[spacy] is not installed")
    if name.startswith("cliquewise.distributed"):
        pytest.importorskip("distributed", reason="cliquewise[distributed] is not installed")
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=FLAGS)
    assert result.failed == 0


@pytest.mark.parametrize("name", sorted(set(cliquewise.__all__) - {"__version__"}))
def test_every_public_name_is_documented(name):
    thing = getattr(cliquewise, name)
    assert inspect.getdoc(thing)
    if not inspect.ismodule(thing):
        assert ">>> " in inspect.getdoc(thing), f"{name} has no example"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_in_the_pages_run(page):
    if page.stem == "deep":
        need_torch()
    if page.name == "cluster.md":
        pytest.importorskip("distributed", reason="cliquewise[distributed] is not installed")
    result = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS)
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_all_python_in_the_pages_is_fenced_and_made_of_examples(page):
    """An example outside a fence is not shown as code; code without a prompt is never run."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    for block in blocks:
        assert block.startswith(">>> "), block
        assert block.endswith("\n\n"), f"the fence would be taken for output: {block}"
    parser = doctest.DocTestParser()
    fenced = sum(len(parser.get_examples(block)) for block in blocks)
    assert fenced == len(parser.get_examples(text))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"^ {4}\w+ = \w+[.(]", prose, flags=re.MULTILINE), "code that never runs"


def figures(page):
    """Return the code of the figures in a page."""
    pattern = r"^```\{eval-rst\}\n\.\. plot::\n(?: +:[^\n]*\n)*(.*?)^```$"
    return [dedent(code) for code in re.findall(pattern, page.read_text(), flags=re.M | re.S)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_in_the_pages_can_be_drawn(page):
    if not figures(page):
        pytest.skip("the page has no figure")
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="cliquewise[report] is not installed")
    for code in figures(page):
        pyplot.close("all")
        exec(compile(code, str(page), "exec"), {})
        assert pyplot.gcf().axes
    pyplot.close("all")


def test_files_in_the_walkthroughs_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    walkthroughs = text[text.index("### Walkthroughs") : text.index("## Glossary")]
    names = re.findall(r"`(\w+(?:/\w+)+)`", walkthroughs)
    assert len(names) > 40
    source = ROOT / "src" / "cliquewise"
    assert [name for name in names if not (source / f"{name}.py").is_file()] == []
