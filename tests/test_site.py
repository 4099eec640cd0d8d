"""The site without building it: links, examples, and the reference of every public name.

`python -m docs` builds it; these are the parts that can be checked in a second.
"""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import tomllib
from functools import cache
from pathlib import Path

import pytest

import cliquewise
from cliquewise import solvers
from cliquewise.estimators._base import DOCUMENTATION
from cliquewise.oracles import registered

ROOT = Path(__file__).parent.parent
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
PAGES = sorted({page for page in PAGES if not {"_build", "gallery"} & set(page.parts)})
SCRIPTS = sorted(EXAMPLES.rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: What examples may import: ours, what we need, what the site needs, and Python's own.
KNOWN = {"cliquewise", "matplotlib", "numpy", "PIL", "scipy", "sklearn", "torch"}


# ---- links


@cache
def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


def source(page: Path, target: str) -> Path:
    """The file behind a link; pages of the gallery are made of examples."""
    path = (DOCS / target.lstrip("/") if target.startswith("/") else page.parent / target).resolve()
    if path.is_relative_to(DOCS / "gallery"):
        return EXAMPLES / path.relative_to(DOCS / "gallery").with_suffix(".py")
    return path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_has_its_target(page):
    text = re.sub(r"^```python.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    text = re.sub(r"(?<![{`])`[^`\n]+`", "", re.sub(r"\{doc\}`", "{doc}<", text))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = source(page, path) if path else page
        assert target.exists(), f"{link} is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link} has no such heading"
    for name in re.findall(r"\{doc\}<[^<]*<([^>]+)>", text):
        target = source(page, name)
        files = [target, *(Path(f"{target}{end}") for end in (".md", ".rst"))]
        assert any(file.is_file() for file in files), f"{name} is not there"


# ---- examples


def test_there_are_examples_of_everything():
    assert len(SCRIPTS) >= 12
    assert len({script.stem for script in SCRIPTS}) == len(SCRIPTS)
    for folder in {script.parent for script in SCRIPTS}:
        assert (folder / "GALLERY_HEADER.rst").is_file()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_examples_have_a_title_and_make_their_own_data(script):
    text = script.read_text(encoding="utf-8")
    tree = ast.parse(text)
    title, line, *_ = ast.get_docstring(tree).splitlines()
    assert set(line) == {"="}
    assert len(line) == len(title)
    assert "plt.show()" in text
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
                for alias in node.names}  # fmt: skip
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    tops = {name.split(".")[0] for name in imported}
    assert tops <= KNOWN | set(importlib.import_module("sys").stdlib_module_names)
    assert not tops & {"urllib", "http", "socket", "requests"}
    assert not re.search(r"fetch_|CLIQUEWISE_DATA|https?://|read_(uai|bif|conll)\(", text)


# ---- the reference


def listed() -> set[str]:
    """Names that the pages of the reference list."""
    return {
        name
        for page in (DOCS / "api").glob("*.rst")
        for name in re.findall(r"^   (cliquewise\.[\w.]+)$", page.read_text(), flags=re.M)
    }


def public() -> set[str]:
    """Names that the package and its public modules export."""
    found = {f"cliquewise.{name}" for name in cliquewise._NAMES}
    for module in ("data", "hypergraph", "metrics", "oracles", "plot", "solvers"):
        names = importlib.import_module(f"cliquewise.{module}").__all__
        found |= {f"cliquewise.{module}.{name}" for name in names}
    found -= {"cliquewise.data.images"}  # a module, whose functions are listed
    builders = importlib.import_module("cliquewise.graph.builders")
    found |= {f"cliquewise.graph.builders.{name}" for name in builders.__all__}
    # Those of networks are registered where PyTorch was imported; they are listed under torch.
    own = [s for s in solvers.registered() if not s.__module__.startswith("cliquewise.torch")]
    found |= {f"cliquewise.solvers.{solver.__name__}" for solver in own}
    found |= {f"{oracle.__module__}.{oracle.__name__}" for oracle in map(kind, registered())}
    tree = ast.parse((ROOT / "src/cliquewise/errors.py").read_text())
    found |= {f"cliquewise.errors.{n.name}" for n in tree.body if isinstance(n, ast.ClassDef)}
    for extra in ("torch", "distributed"):  # by their text, since they may not be installed
        tree = ast.parse((ROOT / f"src/cliquewise/{extra}/__init__.py").read_text())
        where = next(n.value for n in tree.body
                     if isinstance(n, ast.Assign) and n.targets[0].id == "_MODULES")  # fmt: skip
        found |= {f"cliquewise.{extra}.{key.value}" for key in where.keys}
    return found


def kind(thing):
    return thing if isinstance(thing, type) else type(thing)


def test_every_public_name_has_a_page_in_the_reference():
    again = {f"cliquewise.graph.builders.{name}"
             for name in ("random_graph", "from_networkx", "to_networkx")}  # fmt: skip
    assert public() - listed() - again == set()


def test_the_reference_lists_nothing_that_is_not_there():
    for name in sorted(listed()):
        if re.match(r"cliquewise\.(torch|distributed|spacy)\.", name):
            continue
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module), last), name


# ---- the site itself


def test_settings_of_the_site_load_without_sphinx():
    settings = runpy.run_path(str(DOCS / "conf.py"))
    assert settings["nitpicky"]
    assert settings["html_baseurl"] == PROJECT["urls"]["Documentation"]


def test_checks_of_the_built_site_find_what_is_wrong(tmp_path):
    check = runpy.run_path(str(DOCS / "__main__.py"), run_name="docs")["check"]
    (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#there">b</a>')
    (tmp_path / "b.html").write_text('<p id="there"></p><a href="https://else.where">out</a>')
    counts, wrong = check(tmp_path)
    assert counts["links within"] == 1
    assert counts["links to the outside (not followed)"] == 1
    assert wrong == []
    (tmp_path / "c.html").write_text(
        '<script src="https://cdn.example/x.js"></script><img src="//cdn.example/x.png">'
        '<a href="no.html">x</a><a href="a.html#no">x</a>'
    )
    (tmp_path / "x.css").write_text("@import url('https://fonts.example/f.css');")
    assert len(check(tmp_path)[1]) == 5


def test_estimators_link_to_their_page():
    assert PROJECT["urls"]["Documentation"] == DOCUMENTATION
    for name in ("SequenceTagger", "GraphLabeler", "MultiLabelClassifier", "Matcher",
                 "CandidateRanker", "MulticlassClassifier"):  # fmt: skip
        assert f"cliquewise.{name}" in listed()
        link = f"{DOCUMENTATION}api/generated/cliquewise.{name}.html"
        assert link in getattr(cliquewise, name)()._repr_html_()


def test_estimators_of_a_cluster_link_to_their_page():
    distributed = pytest.importorskip("cliquewise.distributed", reason="Dask is not installed")
    link = distributed.DaskSequenceTagger()._get_doc_link()
    assert link == f"{DOCUMENTATION}api/generated/cliquewise.distributed.DaskSequenceTagger.html"
