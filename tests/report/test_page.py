"""The file itself: complete, closed to scripts of others, and to the network."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from report_cases import HOSTILE

from cliquewise.errors import DataError
from cliquewise.report import blocks
from cliquewise.report.page import embedded, page


def test_text_in_the_data_cannot_leave_the_data():
    text = page(HOSTILE[0], HOSTILE[1], [blocks.section("a", w, [blocks.text(w)]) for w in HOSTILE])
    assert text.count("<script") == text.count("</script>") == 2
    data = text.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(data)
    found = [s["blocks"][0]["text"] for s in json.loads(data)["sections"]]
    assert found == HOSTILE


def test_the_policy_names_the_one_script_and_the_one_style_and_nothing_else():
    text = page("t", "s", [])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; ")
    for kind, pattern in (
        ("script", r"<script>(.*?)</script>"),
        ("style", r"<style>(.*?)</style>"),
    ):
        content = re.search(pattern, text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_nothing_is_fetched_and_nothing_is_set_as_markup():
    text = page("t", "s", [])
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
    ):
        assert word not in text
    addresses = set(re.findall(r"https?://[^\"' )]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place


def test_data_that_json_cannot_hold_are_an_error_of_ours():
    for value in (float("nan"), object()):
        with pytest.raises(DataError, match="must be plain numbers"):
            embedded([value])


@pytest.mark.parametrize("status", ["exact", "bound", "none"])
def test_a_badge_says_what_is_proved_and_no_more(status):
    values = {"primal": 2.0, "dual": 1.0, "gap": 0.5, "rounding": 0.0, "status": status}
    made = blocks.certificate(values, 1e-3)
    assert made["status"] == ("open" if status == "none" else "bounded")
    assert ("50 %" in made["sentence"]) == (status != "none")
    assert blocks.certificate(values, 0.5)["status"] == ("open" if status == "none" else "proved")
