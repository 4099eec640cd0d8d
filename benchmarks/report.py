"""How large is a report, how long does it take to write, and how soon does it react?

    python -m benchmarks.report [--sentences 10000] [--live]

A tagger is trained on 2,000 sentences of CoNLL-2003 and tried on others of the same file. The page
is opened in the system's Chromium by Playwright: seconds from opening it until it has drawn itself,
until the first sentences are there, and from a change of a filter, of the order and of the text to
the new list; and the longest of 50 frames of scrolling.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import print_json, print_table
from cliquewise import SequenceTagger
from cliquewise.data.loaders import load_conll2003
from cliquewise.estimators.tagger.tagged_text import take

#: Sentences that the tagger learns from.
TRAINED = 2000

#: Waits until the page has painted what was asked for; returns milliseconds.
AFTER = """async (change) => {
  const start = performance.now();
  const [name, value] = change, field = document.querySelector(`[data-filter=${name}]`);
  field.value = value;
  field.dispatchEvent(new Event(name === "text" ? "input" : "change"));
  if (name === "text") await new Promise((done) => setTimeout(done, 120));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - start;
}"""
SCROLL = """async () => {
  const list = document.querySelector(".list");
  let longest = 0, last = performance.now();
  for (let i = 0; i < 50; i += 1) {
    list.scrollTop = (i * 7919) % list.scrollHeight;
    await new Promise(requestAnimationFrame);
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }
  return longest;
}"""


def opened(path: Path) -> list[list[object]]:
    """Rows of what a user waits for."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        start = time.perf_counter()
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        rows: list[list[object]] = [["opened and drawn", time.perf_counter() - start]]
        page.wait_for_selector(".sentence")
        rows.append(["first sentences", time.perf_counter() - start])
        changes = [("kind", "errors"), ("order", "sure"), ("kind", "all"), ("text", "minister")]
        for change in changes:
            seconds = float(page.evaluate(AFTER, list(change))) / 1000
            rows.append([f"{change[0]}: {change[1]}", seconds])
        page.evaluate(AFTER, ["text", ""])
        rows.append(["longest frame of scrolling", float(page.evaluate(SCROLL)) / 1000])
        browser.close()
    return rows


def main() -> None:
    """Train, write, open, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=None)
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--live", action="store_true")
    options = parser.parse_args()
    split = load_conll2003(options.data)
    n = min(options.sentences, len(split.y_train) - TRAINED)
    at = np.arange(TRAINED, TRAINED + n)
    X, y = take(split.X_train, at), [split.y_train[i] for i in at]
    tagger = SequenceTagger(random_state=0, tol=0.1)
    tagger.fit(take(split.X_train, np.arange(TRAINED)), split.y_train[:TRAINED])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        tagger.report(X, y, path)  # what is compiled is not counted
        start = time.perf_counter()
        tagger.report(X, y, path, live=options.live)
        found: list[list[object]] = [["written", time.perf_counter() - start]]
        size = path.stat().st_size / 1e6
        found += opened(path)
    title = f"{n:,} sentences, {X.n_tokens:,} tokens: {size:.2f} MB"
    print_table(title, ["what", "seconds"], found)
    print_json({"sentences": n, "megabytes": size, **{str(k): v for k, v in found}})


if __name__ == "__main__":
    main()
