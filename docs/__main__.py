"""Build the site and check it: `python -m docs [FOLDER]`.

Warnings are errors. Afterwards every page is read once more: nothing may be loaded from a network
(scripts, styles, fonts, pictures, frames), and every link within the site must have its target.
Links that lead outside are counted, not followed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).parent
#: Elements that a browser fetches, and the attributes that say from where.
LOADED = {
    "script": ("src",), "img": ("src", "srcset"), "iframe": ("src",), "source": ("src", "srcset"),
    "video": ("src", "poster"), "audio": ("src",), "embed": ("src",), "object": ("data",),
}  # fmt: skip
FETCHED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "preconnect"}
OUTSIDE = re.compile(r"^(?:https?:)?//")
IN_STYLES = re.compile(r"(?:url\(\s*|@import\s+)['\"]?((?:https?:)?//[^'\")\s]+)")


class Page(HTMLParser):
    """Links, targets and what is loaded, of one page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.targets: set[str] = set()
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.targets |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and FETCHED_LINKS & set(given.get("rel", "").split()):
            self.loaded.append(given.get("href", ""))
        self.loaded += [given[name] for name in LOADED.get(tag, ()) if given.get(name)]
        self.loaded += IN_STYLES.findall(given.get("style", ""))


def check(site: Path) -> tuple[dict[str, int], list[str]]:
    """Counts, and what is wrong with a built site."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    wrong = []
    counts = {"pages": len(pages), "links within": 0, "links to the outside (not followed)": 0}
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        wrong += [f"{name} loads {url}" for url in page.loaded if OUTSIDE.match(url)]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                counts["links to the outside (not followed)"] += 1
                continue
            counts["links within"] += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                wrong.append(f"{name} links to {link}, which is not there")
                continue
            known = pages[target].targets if target in pages else ()
            if parts.fragment and target in pages and unquote(parts.fragment) not in known:
                wrong.append(f"{name} links to {link}, a place that is not there")
    for path in site.rglob("*.css"):
        found = IN_STYLES.findall(path.read_text(encoding="utf-8"))
        wrong += [f"{path.relative_to(site)} loads {url}" for url in found]
    return counts, wrong


def main() -> int:
    """Build, check, and say what was done."""
    parser = argparse.ArgumentParser(prog="python -m docs", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "_build" / "html")
    folder = parser.parse_args().folder
    start = time.perf_counter()
    build = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q"]
    built = subprocess.run([*build, str(HERE), str(folder)], check=False).returncode
    if built:
        return built
    counts, wrong = check(folder)
    counts["examples"] = len(list((HERE.parent / "examples").rglob("*.py")))
    counts["pages of the reference"] = len(list((folder / "api").rglob("*.html")))
    told = "".join(f"  {name:36} {count:6,}\n" for name, count in counts.items())
    print(f"{folder / 'index.html'} in {time.perf_counter() - start:.0f} s\n{told}", end="")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
