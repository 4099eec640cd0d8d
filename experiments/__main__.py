"""The figures and tables of the five papers, run here.

    python -m experiments list                     what there is, and what was found
    python -m experiments run NAME... [--quick]    run rows (what is kept is shown; --again: anew)
    python -m experiments page                     write docs/papers.md and its pictures

``run all`` takes every row; names may end in ``*`` ("sdca/*"). A run that was stopped by Ctrl-C
goes on where it was. Full results are in ``experiments/results``; quick ones are not kept.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys

from cliquewise.errors import CliquewiseError
from experiments import _page, _rows


def show(row: _rows.Row) -> str:
    """State of a row in one line."""
    if row.run is None:
        return f"{row.name:28s} {', '.join(row.items)}: {row.reason}"
    kept = row.kept()
    if kept is None:
        return f"{row.name:28s} {', '.join(row.items)}: no result yet {row.missing()}"
    assert row.verdict is not None
    word, _ = row.verdict(kept["result"])
    return (f"{row.name:28s} {', '.join(row.items)}: {word} ({kept['date']}, {kept['commit']}, "
            f"{kept['seconds']:.0f} s)")  # fmt: skip


def chosen(names: list[str]) -> list[_rows.Row]:
    """Rows of these names or patterns."""
    out = []
    for name in names:
        if name == "all" or "*" in name:
            pattern = "*" if name == "all" else name
            out += [r for r in _rows.rows() if r.run and fnmatch.fnmatch(r.name, pattern)]
        else:
            out.append(_rows.find(name))
    return out


def run(names: list[str], quick: bool, again: bool) -> int:
    """Run rows; the exit status is 1 if some could not be."""
    failed = 0
    for row in chosen(names):
        if row.run is None or row.missing():
            print(f"{row.name}: {row.reason or row.missing()}")
            failed = 1
            continue
        try:
            file = _rows.perform(row, quick, again)
        except KeyboardInterrupt:
            print(f"\nstopped; `python -m experiments run {row.name}` goes on", file=sys.stderr)
            return 130
        assert row.verdict is not None
        word, sentence = row.verdict(file["result"])
        print(f"{row.name}: {word}. {sentence} ({file['date']}, commit {file['commit']}, "
              f"{file['seconds']:.1f} s, CPU {file['cpu_seconds']:.1f} s)", flush=True)  # fmt: skip
    return failed


def main(arguments: list[str] | None = None) -> int:
    """The door."""
    parser = argparse.ArgumentParser(
        "experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what there is, and what was found")
    running = commands.add_parser("run", help="run rows, or show what was kept")
    running.add_argument("names", nargs="+", metavar="NAME")
    running.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    running.add_argument("--again", action="store_true", help="also where a result is kept")
    commands.add_parser("page", help="write docs/papers.md from the results")
    given = parser.parse_args(arguments)
    try:
        if given.command == "run":
            return run(given.names, given.quick, given.again)
        if given.command == "page":
            print(_page.write())
        else:
            print("\n".join(show(row) for row in _rows.rows()))
            print("\n".join(_page.counts(paper) for paper in _page.PAPERS))
    except CliquewiseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
