"""``docs/papers.md``, from the results alone."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from experiments._papers import NOT_YET, NOTHING, PAPERS
from experiments._rows import ROOT, Row, rows

PAGE = ROOT / "docs" / "papers.md"
PICTURES = ROOT / "docs" / "papers"

HEAD = """\
# The five papers, figure by figure

This library makes five papers usable. Each of their figures, tables and theorems has a line here:
what the paper shows, what we find, and whether that agrees. `python -m experiments page` writes
this page from the files in `experiments/results`, which hold the numbers, the commit, the machine
and the versions of each run; no number is typed by hand, and "agrees" and "differs" follow from the
numbers by rules in the code. To run a line:

    python -m experiments list
    python -m experiments run NAME            # goes on after Ctrl-C; --again runs anew
    python -m experiments run NAME --quick    # seconds, on less data

Data sets are read from the folder in `CLIQUEWISE_DATA`.
"""


#: What may become of a row, said of one and of many.
WORDS = {
    "agrees": ("agrees", "agree"), "differs": ("differs", "differ"),
    "cannot be run here": ("cannot be run here",) * 2,
    "nothing to run": ("has nothing to run", "have nothing to run"),
    "not run yet": ("is not run yet", "are not run yet"),
}  # fmt: skip


def judged(row: Row) -> tuple[str, str]:
    """The word and the sentence of a row."""
    if row.run is None:
        words = {NOT_YET: "not run yet"} | dict.fromkeys(NOTHING, "nothing to run")
        return words.get(row.reason, "cannot be run here"), row.reason
    kept = row.kept()
    if kept is None:
        return "not run yet", NOT_YET
    assert row.verdict is not None
    word, sentence = row.verdict(kept["result"])
    return word, f"{sentence} Why: {row.why}." if word == "differs" and row.why else sentence


def counts(paper: str) -> str:
    """Items of the paper, and what became of the rows, in one sentence."""
    kinds = Counter(item.split()[0] for item in PAPERS[paper].items)
    has = ", ".join(f"{n} {plural(kind.lower(), n)}" for kind, n in kinds.items())
    states = Counter(judged(row)[0] for row in rows() if row.paper == paper)
    total, parts = sum(states.values()), []
    for state, words in WORDS.items():
        if n := states[state]:
            of = "" if parts else f"of {total} rows "
            parts.append(f"{n} {of}{words[n > 1]}")
    return f"{PAPERS[paper].short}: {has}; {', '.join(parts)}."


def plural(word: str, n: int) -> str:
    """One figure, two figures."""
    if n == 1:
        return word
    return word[:-1] + "ies" if word.endswith("y") else word + "s"


def listed(items: tuple[str, ...]) -> str:
    """Items without repeating the kind: "Table 1, Corollaries 1, 2"."""
    kinds: dict[str, list[str]] = {}
    for item in items:
        kind, _, number = item.partition(" ")
        kinds.setdefault(kind, []).append(number)
    return ", ".join(f"{plural(k, len(found))} {', '.join(found)}" for k, found in kinds.items())


def line(row: Row) -> str:
    """One line of a table."""
    word, sentence = judged(row)
    command = f"`run {row.name}`" if row.run is not None else ""
    if row.draw is not None and row.kept() is not None:
        command += f" ([picture](papers/{row.slug}.svg))"
    cells = (listed(row.items), row.shows, command, sentence, word)
    return "| " + " | ".join(re.sub(r"\s+", " ", c).replace("|", "\\|") for c in cells) + " |"


def section(paper: str) -> str:
    """Title, counts, table and pictures of one paper."""
    info, found = PAPERS[paper], [row for row in rows() if row.paper == paper]
    out = [f"## {info.short}", "", f"{info.title}. {counts(paper).split(': ', 1)[1].capitalize()}",
           "", "| in the paper | what it shows | ours | what we find | |", "|---|---|---|---|---|",
           *(line(row) for row in found)]  # fmt: skip
    for row in found:
        if row.draw is not None and row.kept() is not None:
            out += ["", f"![{row.name}: {listed(row.items)}](papers/{row.slug}.svg)"]
    return "\n".join(out) + "\n"


def provenance() -> str:
    """Which runs the page was made from."""
    lines = [
        "## The runs",
        "",
        "| row | commit | date | seconds | machine |",
        "|---|---|---|---|---|",
    ]
    for row in rows():
        kept = row.kept() if row.run is not None else None
        if kept is not None:
            lines.append(f"| `{row.name}` | {kept['commit']} | {kept['date']} | "
                         f"{kept['seconds']:.0f} | {kept['machine']} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def text() -> str:
    """The whole page."""
    top = "\n".join(f"* {counts(paper)}" for paper in PAPERS) + "\n"
    return "\n".join([HEAD, top, *(section(paper) for paper in PAPERS), provenance()])


def write() -> str:
    """Write the page and draw its pictures."""
    PICTURES.mkdir(exist_ok=True)
    wanted: set[Path] = set()
    for row in rows():
        kept = row.kept() if row.draw is not None else None
        if kept is not None:
            assert row.draw is not None
            wanted.add(PICTURES / f"{row.slug}.svg")
            row.draw(kept["result"], PICTURES / f"{row.slug}.svg")
    for old in set(PICTURES.glob("*.svg")) - wanted:
        old.unlink()
    PAGE.write_text(text())
    return f"wrote {PAGE.relative_to(ROOT)} and {len(wanted)} pictures"
