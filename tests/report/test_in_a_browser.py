"""Reports in Chromium: no error, no request, filters and clicks work, hostile text is only text.

The browser is the system's (``chromium``, or the path in CHROMIUM), driven by Playwright.
"""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from report_cases import HOSTILE, spans_tagger, template_tagger

import cliquewise as cw

BROWSER = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if BROWSER is None:
    pytest.skip("there is no Chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page that was opened, and all that it complained of or asked for."""

    def __init__(self, browser, path, **options):
        self.page = browser.new_page(**options)
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def check(self):
        assert self.complaints == []
        assert len(self.requests) == 1 and self.requests[0].startswith("file:")
        assert self.page.evaluate("window.hacked") is None
        self.page.close()

    def shown(self):
        self.page.wait_for_timeout(200)  # the search waits for a pause in typing
        count = self.page.inner_text("p[role=status].legend")
        return int(count.split(" of ")[0].replace(",", ""))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "r.html"
    tagger, X, y = spans_tagger(n=60)
    y = [row[::-1] for row in y]
    tagger.report(X, y, path)
    return path, tagger.predict(X), X, y


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_filters_orders_and_clicks_work_without_errors_or_requests(browser, plain, scheme):
    path, own, X, y = plain
    visit = Visit(browser, path, color_scheme=scheme)
    page = visit.page
    assert visit.shown() == 60
    page.select_option("[data-filter=kind]", "errors")
    assert visit.shown() == sum(a != b for a, b in zip(own, y, strict=True))
    page.select_option("[data-filter=kind]", "right")
    assert visit.shown() == sum(a == b for a, b in zip(own, y, strict=True))
    page.select_option("[data-filter=kind]", "all")
    page.fill("[data-filter=text]", "W3")
    assert visit.shown() == sum(["w=w3"] in x for x in X)
    page.fill("[data-filter=text]", "nothing is like this")
    assert visit.shown() == 0 and page.is_visible("text=No matching sentences.")
    page.fill("[data-filter=text]", "")
    page.select_option("[data-filter=order]", "sure")
    visit.shown()
    page.click(".token.why.wrong >> nth=0")
    assert "rather than" in page.inner_text(".reason")
    page.keyboard.press("Enter")  # the focus stays on the word
    assert page.query_selector(".reason") is None
    dark = "document.documentElement.classList.contains('dark')"
    assert page.evaluate(dark) == (scheme == "dark")
    page.click("#theme")
    assert page.evaluate(dark) == (scheme == "light")
    page.click("th button >> nth=1")
    visit.check()


def test_a_narrow_screen_scrolls_down_and_not_sideways(browser, plain):
    visit = Visit(browser, plain[0], viewport={"width": 390, "height": 800})
    visit.shown()
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 390
    visit.check()


def test_the_page_can_be_used_by_keyboard_and_has_names_for_what_it_shows(browser, plain):
    visit = Visit(browser, plain[0])
    visit.shown()
    nameless = """[...document.querySelectorAll("select, input, button, svg[role=img], table")]
        .filter((e) => !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim()))
        .map((e) => e.outerHTML.slice(0, 80))"""
    assert visit.page.evaluate(nameless) == []
    assert visit.page.evaluate("document.querySelectorAll('main, nav, header, footer').length") == 4
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.className") == "skip"
    visit.page.focus(".token.why >> nth=0")
    visit.page.keyboard.press("Enter")
    assert visit.page.is_visible(".reason")
    visit.check()


def test_hostile_text_is_shown_and_never_run(browser, tmp_path):
    path = tmp_path / "a<b>&'c.html"
    labels = [f"B-{word.replace(chr(0xD800), '')}" for word in HOSTILE]
    X, y = [[[f"w={w}"] for w in HOSTILE]] * 2, [labels, labels[::-1]]
    tagger = cw.SequenceTagger(random_state=0, max_epochs=3, tol=0.9).fit(X, y)
    tagger.report(X, y, path, title=HOSTILE[0], subtitle=HOSTILE[1])
    visit = Visit(browser, path, viewport={"width": 800, "height": 800})
    visit.shown()
    words = visit.page.evaluate(
        "[...document.querySelectorAll('.token .word')].map((e) => e.textContent)"
    )
    assert words[: len(HOSTILE)] == HOSTILE
    assert visit.page.text_content("h1") == visit.page.title() == HOSTILE[0]
    assert visit.page.text_content("#subtitle") == HOSTILE[1]
    for at in range(3):
        visit.page.click(f".token.why >> nth={at}")
    visit.page.select_option("[data-filter=label]", index=2)
    assert visit.shown() >= 1
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 800
    assert visit.page.evaluate("document.querySelectorAll('main script, main img').length") == 0
    visit.check()


def test_a_graph_can_be_clicked_filtered_and_has_only_text_for_names(browser, tmp_path):
    names = [word.replace(chr(0xD800), "") + str(v) for v, word in enumerate(HOSTILE)]
    n = len(names)
    likes = [[0.7, 0.0], [0.0, 0.7]]
    states = [[HOSTILE[0], HOSTILE[2]]] * n
    pairs = [((v, v + 1), likes) for v in range(n - 1)]
    graph = cw.FactorGraph([2] * n, [((0,), [0.1, 0.0]), *pairs], names=names, states=states)
    graph.condition({0: 1}).report(tmp_path / "g.html", HOSTILE[0], HOSTILE[1])
    visit = Visit(browser, tmp_path / "g.html")
    assert visit.page.locator(".network .node").count() == n
    visit.page.click(".network .node >> nth=3", force=True)
    assert names[3] in visit.page.text_content(".card h4")
    visit.page.focus(".network .node >> nth=0")
    visit.page.keyboard.press("Enter")
    assert "observed" in visit.page.text_content(".card h4")
    visit.page.fill("[data-filter=text]", "onerror")
    assert visit.shown() == 1
    visit.page.select_option("[data-filter=order]", "rounding_error")
    visit.check()


TEMPLATE = "U1:%x[0,0]\nU2:%x[-1,0]/%X[1,0]\nU3:%x[-2,1]\nU4:%x[@1,0]/%x[@-1,1]\nB"


@pytest.mark.parametrize(
    ("template", "options"),
    [
        ("ner", {}),
        (
            TEMPLATE,
            {
                "feature_pairs": "seen",
                "boundary_weights": False,
                "forbidden_transitions": [("O", "I-X")],
            },
        ),
    ],
    ids=["ner", "crfpp"],
)
def test_the_page_tags_as_python_does(browser, tmp_path, template, options):
    if "\n" in template:
        (tmp_path / "template").write_text(template)
        template = tmp_path / "template"
    tagger, X = template_tagger(template, **options)
    tags, tables = tagger.predict(X), tagger.predict_marginals(X)
    tagger.report(X[:5], tags[:5], tmp_path / "r.html", live=True)
    visit = Visit(browser, tmp_path / "r.html")
    answer = visit.page.evaluate(
        """(X) => X.map((rows) => { const { tags, probabilities } = LIVE.get().tag(rows);
        return [tags, probabilities]; })""",
        X,
    )
    for own, table, (numbers, probabilities) in zip(tags, tables, answer, strict=True):
        assert [tagger.classes_[k] for k in numbers] == own
        assert np.abs(np.array(probabilities) - table).max() <= 1e-6
    visit.check()


def test_a_typed_sentence_is_tagged_at_once_with_reasons(browser, tmp_path):
    tagger, X = template_tagger("ner", n_test=3)
    tagger.report(X, tagger.predict(X), tmp_path / "r.html", live=True)
    visit = Visit(browser, tmp_path / "r.html")
    page = visit.page
    page.fill("[data-live]", "Rome N\nx2 V\n<img/src=x/onerror=window.hacked=1> D")
    page.wait_for_selector(".answer .token >> nth=2")
    assert page.locator(".answer .word").all_text_contents()[:2] == ["Rome", "x2"]
    page.click(".answer .token >> nth=0")
    assert "rather than" in page.inner_text(".answer .reason")
    page.fill("[data-live]", "In Rome, U.S. x2.")
    page.wait_for_selector(".answer .token >> nth=5")
    assert page.locator(".answer .word").all_text_contents() == [
        "In",
        "Rome",
        ",",
        "U.S.",
        "x2",
        ".",
    ]
    visit.check()


BOXES = """() => [...document.querySelectorAll(".sentence")].flatMap((sentence) => {
    const frame = sentence.getBoundingClientRect(), found = [];
    const parts = [...sentence.querySelectorAll(".tokens .word, .tokens .tag")];
    const boxes = parts.flatMap((part) => [...part.getClientRects()].map((box) => [part, box]));
    for (const [part, box] of boxes) {
        const inside = box.left >= frame.left - 1 && box.right <= frame.right + 1;
        if (!inside) found.push(["clipped", part.textContent]);
    }
    for (let i = 0; i < boxes.length; i += 1) for (let j = i + 1; j < boxes.length; j += 1) {
        const [a, b] = [boxes[i][1], boxes[j][1]];
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && tall > 3) found.push(["overlap", parts[i], parts[j]].map(String));
    }
    return found;
})"""


LAST = """() => Math.max(...[...document.querySelectorAll(".sentence")]
    .map((sentence) => +sentence.getAttribute("aria-posinset")))"""


@pytest.mark.parametrize("width", [390, 1200])
def test_no_label_is_clipped_or_covers_another(browser, tmp_path, width):
    tagger, X, y = spans_tagger(n=200)
    tagger.report(X, [row[::-1] for row in y], tmp_path / "r.html")
    visit = Visit(browser, tmp_path / "r.html", viewport={"width": width, "height": 900})
    seen = 0
    for top in range(0, 40_000, 600):
        visit.page.evaluate(f"document.querySelector('.list').scrollTop = {top}")
        visit.page.wait_for_timeout(50)
        assert visit.page.evaluate(BOXES) == []
        seen = max(seen, visit.page.evaluate(LAST))
    assert seen == 200
    visit.check()
