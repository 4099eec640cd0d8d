"""What a package index and a citation say agrees with the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import cliquewise

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_all_versions_are_the_same():
    citation = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), flags=re.M)
    assert citation[1] == PROJECT["project"]["version"] == cliquewise.__version__


def test_links_of_the_readme_lead_somewhere_on_a_package_index():
    text = (ROOT / "README.md").read_text()
    for rule in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 5
    assert all(target.startswith("https://") for target in targets)
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert pictures
    assert all("/raw." in target for target in pictures)


@pytest.mark.parametrize("name", sorted(PROJECT["project"]["optional-dependencies"]))
def test_the_installation_page_documents_every_extra(name):
    assert f"`{name}`" in (ROOT / "docs" / "installation.md").read_text()


def test_the_readme_stays_under_two_screens():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 100
    rows = [line for line in lines[lines.index("## How fast is it?") :] if line[:2] == "| "]
    assert len(rows) - 1 <= 6
