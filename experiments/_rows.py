"""What the five papers show, row by row: how a row is run, kept and judged.

A row is one line of ``docs/papers.md``: an item of a paper (a figure, a table, a theorem), a
function that runs it, and a rule that says from the numbers whether it agrees. The modules in
``MODULES`` have lists ``ROWS``; ``experiments/sdca_crf.py`` is an example. To add one::

    def run_letters(work: Work) -> Result:
        folder = work.folder("ocr")               # of CLIQUEWISE_DATA; the row has data=("ocr",)
        problem = letters(folder, words=100 if work.quick else 6000)
        courses = {                               # kept: a run goes on here after Ctrl-C
            name: work.kept(name, lambda s=solver: followed(problem, s, passes=30).rows)
            for name, solver in SOLVERS.items()
        }
        return {"words": len(problem.data), "courses": courses}

    def judge_letters(result: Result) -> Verdict:
        ...                                       # from the result alone; None is "not finite"
        return ("agrees" if ours <= theirs else "differs"), f"Gap 1e-3 after {ours:.0f} passes."

    def draw_letters(result: Result, path: Path) -> None:
        panels(path, [Panel("letters", "passes", "gap", {name: (x, y), ...}, log="y")])

    ROWS = [Row("sdca/letters", "sdca_crf", ("Figure 2 (left)",), "SDCA is ahead of SAG.",
                run_letters, judge_letters, draw_letters, data=("ocr",))]

* ``items`` begin with a name of ``_papers.PAPERS``; a row may stand for several ("Figure 8",
  "Figure 9") or for a part of one ("Figure 2 (left)"). Where no module has a row for an item, its
  line of ``_papers.WITHOUT_RUN`` is shown. "Section 2.5" is fine, too.
* ``run`` returns what JSON can hold (numpy numbers and arrays are turned into plain ones, nine
  digits; what is not finite becomes None). Keep it small: courses of tens of rows, not thousands.
* ``work.quick`` means seconds (it runs in the test suite), not minutes: a few examples and passes.
* The verdict's sentence is a cell of the page: one sentence, with numbers, and with what differs
  from the paper's setting (data, sizes). A table has about ten lines at most.
* A solver is followed pass by pass by ``experiments._follow.followed``, and by nothing else;
  pictures are drawn by ``experiments._pictures.panels``.
* ``python -m experiments run NAME --quick``; then ``run NAME`` from a pushed commit (the file
  says which), ``page``, and commit ``experiments/results/NAME.json`` and ``docs/``. Where the page
  conflicts with another change, run ``page`` again.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.errors import DataError

ROOT = Path(__file__).parents[1]
#: Results of full runs, in the repository.
RESULTS = ROOT / "experiments" / "results"
#: What is not: results of quick runs, and the parts of runs that are under way.
SCRATCH = ROOT / "out" / "experiments"
#: Modules with a list ``ROWS``.
MODULES = (
    "sdca_crf",
    "casimir",
    "casimir_losses",
    "deep_localization",
    "barrier_fw",
    "idal",
    "gdmm",
    "gdmm_multilabel",
    "gdmm_skipping",
)
VERSIONS = ("cliquewise", "numpy", "scipy", "numba", "scikit-learn")

Verdict = tuple[str, str]
Result = dict[str, Any]


class Absent(DataError):
    """The data of a row are not here."""


@dataclass(frozen=True)
class Row:
    """One line of the page; see the module's docstring.

    Parameters
    ----------
    name : str
        What ``run`` takes: "sdca/ocr".
    paper : str
        A key of ``_papers.PAPERS``.
    items : tuple of str
        "Figure 2 (left)", "Theorem 1", "Table 1".
    shows : str
        What the paper shows, in one sentence.
    run : callable, optional
        From a :class:`Work` to the result.
    verdict : callable, optional
        From the result to "agrees" or "differs" and one sentence made from its numbers.
    draw : callable, optional
        From the result and a path to a picture.
    data : tuple of str
        Folders of CLIQUEWISE_DATA that the row cannot do without.
    needs : tuple of str
        Modules that it cannot do without, and that the library can ("torch").
    reason : str
        Why the item cannot be run here, or that it was not run yet; such a row has no ``run``.
    why : str
        Where the verdict is "differs": the reason, as far as it is known.
    """

    name: str
    paper: str
    items: tuple[str, ...]
    shows: str
    run: Callable[[Work], Result] | None = None
    verdict: Callable[[Result], Verdict] | None = None
    draw: Callable[[Result, Path], None] | None = None
    data: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    reason: str = ""
    why: str = ""

    @property
    def slug(self) -> str:
        """Name of its files."""
        return self.name.replace("/", "_")

    @property
    def path(self) -> Path:
        """Where the result of the full run is."""
        return RESULTS / f"{self.slug}.json"

    def covers(self) -> set[str]:
        """Items of the paper that this row, or a part of it, stands for."""
        return {re.match(r"\w+ [\w.]+", item)[0] for item in self.items}  # type: ignore[index]

    def kept(self) -> dict[str, Any] | None:
        """The full run's file, if there is one."""
        return json.loads(self.path.read_text()) if self.path.exists() else None

    def missing(self) -> str:
        """Which modules or data are not here; empty if all are."""
        folder = data_folder()
        modules = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if modules:
            return f"needs {', '.join(modules)}"
        absent = [name for name in self.data if not (folder / name).exists()]
        return f"needs {', '.join(absent)} in the folder CLIQUEWISE_DATA" if absent else ""


def data_folder() -> Path:
    """The folder of data sets; one that does not exist where none is named."""
    return Path(os.environ.get("CLIQUEWISE_DATA") or ROOT / "no-data")


@dataclass
class Work:
    """What a row's ``run`` is given: how much to do, the data, and a place for what is done.

    ``parts`` is a file that keeps finished parts; without one, nothing is kept.
    """

    quick: bool = False
    parts: Path | None = None
    commit: str = ""
    content: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.parts is not None and self.parts.exists():
            found = json.loads(self.parts.read_text())
            # Parts of another commit may be of other code.
            if found.pop("commit", "") == self.commit:
                self.content = found

    def folder(self, name: str) -> Path:
        """A folder of data sets; :class:`Absent` if it is not there."""
        path = data_folder() / name
        if not path.exists():
            raise Absent(f"{path} is not there; CLIQUEWISE_DATA names the folder of the data sets")
        return path

    def kept(self, key: str, make: Callable[[], Any]) -> Any:
        """``make()``, or what an interrupted run has kept of it."""
        if key not in self.content:
            self.content[key] = plain(make())
            if self.parts is not None:
                self.parts.parent.mkdir(parents=True, exist_ok=True)
                self.parts.write_text(json.dumps({"commit": self.commit, **self.content}))
        return self.content[key]


def plain(value: Any) -> Any:
    """As JSON has it: lists, dictionaries with string keys, numbers of nine digits, None."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    return value


def rows() -> list[Row]:
    """All rows: those of the modules, and for items that none of them has, why."""
    from experiments._papers import PAPERS, WITHOUT_RUN

    found = [row for name in MODULES for row in importlib.import_module(f"experiments.{name}").ROWS]
    covered = {(row.paper, item) for row in found for item in row.covers()}
    found += [row for row in WITHOUT_RUN if not {(row.paper, i) for i in row.covers()} & covered]
    return sorted(found, key=lambda row: (list(PAPERS).index(row.paper), _order(row)))


def _order(row: Row) -> tuple[Any, ...]:
    kind, number = row.items[0].split()[:2]
    return "FTLCPSA".find(kind[0]), float("0" + re.sub(r"[^\d.]", "", number)), row.items[0]


def find(name: str) -> Row:
    """The row of a name."""
    for row in rows():
        if row.name == name:
            return row
    raise DataError(f"no row is named {name!r}; `python -m experiments list` shows all")


def perform(row: Row, quick: bool = False, again: bool = False) -> dict[str, Any]:
    """Run a row, or go on with it, and write its file; a full one that is kept is not run again."""
    assert row.run is not None, row.reason
    missing = row.missing()
    if missing:
        raise Absent(f"{row.name} {missing}")
    parts = SCRATCH / "parts" / f"{row.slug}{'.quick' if quick else ''}.json"
    if again:
        parts.unlink(missing_ok=True)
    kept = None if quick or again or parts.exists() else row.kept()
    if kept is not None:
        return kept
    work = Work(quick, parts, commit())
    wall, cpu = time.perf_counter(), time.process_time()
    result = plain(row.run(work))
    file = {
        "name": row.name,
        "command": f"python -m experiments run {row.name}{' --quick' if quick else ''}",
        "commit": work.commit,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        "versions": {name: metadata.version(name) for name in VERSIONS}
        | {"python": platform.python_version()},
        "seconds": plain(time.perf_counter() - wall),
        "cpu_seconds": plain(time.process_time() - cpu),
        "result": result,
    }
    path = SCRATCH / "quick" / f"{row.slug}.json" if quick else row.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(written(file))
    parts.unlink(missing_ok=True)
    return file


def written(file: dict[str, Any]) -> str:
    """A result as text: a line for each part of it, so that changes can be read."""
    text = json.dumps(file, indent=1, ensure_ascii=False)
    # Lists of numbers on one line each.
    return re.sub(r"\[[^\[\]{}]*\]", lambda m: re.sub(r"\s+", " ", m[0]), text) + "\n"


def commit() -> str:
    """The commit at hand; with a plus if files differ from it."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        changed = _git(
            "status", "--porcelain", "--untracked-files=no", "--", "src", "experiments/*.py"
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def machine() -> str:
    """Processor and cores."""
    name = platform.processor() or platform.machine()
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        name = found[1] if found else name
    except OSError:
        pass
    return f"{name.strip()}, {os.cpu_count()} cores, {platform.system()}"
