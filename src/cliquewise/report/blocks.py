"""What a page consists of: sections of blocks, each a plain dictionary that the script draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cliquewise.report.page import number, numbers

Block = dict[str, Any]

#: Rows of a trace that a curve is drawn of.
MOST_POINTS = 400


def section(name: str, title: str, blocks: Sequence[Block], note: str = "") -> Block:
    """A part of the page, under a heading of its own."""
    return {"id": name, "title": title, "note": note, "blocks": list(blocks)}


def text(words: str, plain: bool = False) -> Block:
    """A paragraph; or, ``plain``, lines as a program writes them."""
    return {"kind": "text", "text": words, "plain": plain}


def figures(items: Sequence[tuple[str, str, str]]) -> Block:
    """Large figures: what it is, the figure, and what stands below it."""
    return {"kind": "figures", "items": [list(item) for item in items]}


def table(caption: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> Block:
    """A table; a column is a name and a form: text, count, number or share.

    A cell may be (value, low, high): an interval is shown with it.
    """
    return {
        "kind": "table",
        "caption": caption,
        "columns": [list(column) for column in columns],
        "rows": [list(row) for row in rows],
    }


def heatmap(
    caption: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Any,
    *,
    axes: tuple[str, str],
    signed: bool = False,
    share: bool = False,
) -> Block:
    """A matrix as a table of colored cells.

    Parameters
    ----------
    caption : str
    rows, columns : list of str
    values : nested list
        None is a cell that cannot be.
    axes : pair of str
        What rows are, and what columns are.
    signed : bool
        Colors tell positive from negative numbers.
    share : bool
        Colors are shares of the row, and cells off the diagonal stand out.
    """
    return {
        "kind": "heatmap", "caption": caption, "rows": list(rows), "columns": list(columns),
        "values": values, "axes": list(axes), "signed": signed, "share": share,
    }  # fmt: skip


def bars(caption: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Block:
    """Signed bars with names, in groups of which one is shown at a time."""
    plain = [[name, [[item, number(value, 4)] for item, value in items]] for name, items in groups]
    return {"kind": "bars", "caption": caption, "groups": plain}


def reliability(caption: str, bins: Sequence[Sequence[float]], error: float, n: int) -> Block:
    """A reliability diagram: (mean probability, share that is right, count) of each bin."""
    rows = [[number(p, 4), number(a, 4), int(count)] for p, a, count in bins]
    return {
        "kind": "reliability",
        "caption": caption,
        "bins": rows,
        "error": number(error, 4),
        "n": n,
    }


def curves(
    caption: str,
    steps: Sequence[tuple[str, Any]],
    lines: Sequence[tuple[str, Any]],
    *,
    logarithmic: bool = False,
    target: float | None = None,
) -> Block:
    """Lines over one of several measures of progress (passes, seconds)."""
    return {
        "kind": "curves", "caption": caption, "logarithmic": logarithmic, "target": target,
        "steps": [[name, numbers(values)] for name, values in steps],
        "lines": [[name, numbers(values)] for name, values in lines],
    }  # fmt: skip


def badge(status: str, word: str, sentence: str, facts: Sequence[tuple[str, str]]) -> Block:
    """What is proved: ``proved``, ``bounded`` or ``open``; one plain sentence; the numbers."""
    return {
        "kind": "badge", "status": status, "word": word, "sentence": sentence,
        "facts": [list(fact) for fact in facts],
    }  # fmt: skip


def certificate(values: dict[str, Any], tol: float | None = None) -> Block:
    """The badge of a training run.

    Parameters
    ----------
    values : dict
        ``primal``, ``dual``, ``gap``, ``rounding``, ``status`` of a certificate.
    tol : float, optional
        The gap that was asked for.

    Examples
    --------
    >>> c = {"primal": 2.0, "dual": 1.999, "gap": 5e-4, "rounding": 0.0, "status": "exact"}
    >>> certificate(c, 1e-3)["sentence"]
    'No weights whatsoever have an objective more than 0.05 % below that of this model: proved.'
    """
    status, word, sentence = verdict(values, tol)
    facts = [
        ("objective of this model", f"{values['primal']:.8g}"),
        ("proved lower bound", f"{values['dual']:.8g}"),
        ("relative gap", f"{values['gap']:.3g}"),
    ]
    if tol is not None:
        facts.append(("gap asked for", f"{tol:g}"))
    if values["rounding"]:
        facts.append(("allowed for rounding", f"{values['rounding']:.2g}"))
    return badge(status, word, sentence, facts)


def verdict(values: dict[str, Any], tol: float | None = None) -> tuple[str, str, str]:
    """Status, word and plain sentence of a certificate."""
    gap = values["gap"]
    if values["status"] == "none" or not gap < float("inf"):
        return "open", "Nothing is proved", (
            "The objective is not convex, or training had no time for a bound: other weights may "
            "be better, by an amount that nobody knows."
        )  # fmt: skip
    percent = f"{100 * gap:.3g} %"
    if values["status"] == "bound":
        sentence = (
            f"No weights whatsoever have an objective more than {percent} below the value that is "
            "proved for this model, which is an upper bound: inference was not exact."
        )
    else:
        sentence = (
            f"No weights whatsoever have an objective more than {percent} below that of this "
            "model: proved."
        )
    reached = tol is None or gap <= tol
    word = "Proved optimal" if reached else "Not finished"
    if not reached:
        sentence += f" That is more than the {100 * float(tol or 0):.3g} % asked for."
    return (
        "proved" if reached else "bounded",
        f"{word} within {percent}" if reached else word,
        sentence,
    )


def course(columns: dict[str, Any], tol: float | None = None) -> list[Block]:
    """The course of training: primal and dual, and the gap, over passes and seconds."""
    if not columns or not len(columns["seconds"]):
        return [text("This model's file holds no course of its training.")]
    n = len(columns["seconds"])
    keep = [round(i * (n - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)]
    rows = list(range(n)) if n <= MOST_POINTS else keep
    kept = {name: [float(values[i]) for i in rows] for name, values in columns.items()}
    # Passes first: seconds of a first run are those of the compiler.
    steps = [("passes", kept["epochs"]), ("seconds", kept["seconds"])]
    values = [("objective (primal)", kept["primal"]), ("lower bound (dual)", kept["dual"])]
    return [
        curves("Objective and its lower bound", steps, values),
        curves("Relative gap", steps, [("gap", kept["gap"])], logarithmic=True, target=tol),
    ]
