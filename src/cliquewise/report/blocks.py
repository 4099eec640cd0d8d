"""Sections and blocks of a report: plain dictionaries that the script of the page draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cliquewise.report.page import number, numbers

Block = dict[str, Any]

#: Largest number of points of a curve.
MOST_POINTS = 400


def section(name: str, title: str, blocks: Sequence[Block], note: str = "") -> Block:
    """Return a section of the page, with a heading."""
    return {"id": name, "title": title, "note": note, "blocks": list(blocks)}


def text(words: str, plain: bool = False) -> Block:
    """Return a paragraph; if ``plain``, preformatted text."""
    return {"kind": "text", "text": words, "plain": plain}


def figures(items: Sequence[tuple[str, str, str]]) -> Block:
    """Return large figures: for each a name, the figure, and a note below it."""
    return {"kind": "figures", "items": [list(item) for item in items]}


def table(caption: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> Block:
    """Return a table; a column is a name and a form: text, prose, count, number or share.

    A cell may be (value, low, high), which shows an interval.
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
    """Return a matrix, drawn as a table of colored cells.

    Parameters
    ----------
    caption : str
    rows, columns : list of str
    values : nested list
        None marks an impossible cell.
    axes : pair of str
        Names of the rows and of the columns.
    signed : bool
        Whether colors distinguish positive and negative numbers.
    share : bool
        Whether colors show shares of the row, with cells off the diagonal in another color.
    """
    return {
        "kind": "heatmap", "caption": caption, "rows": list(rows), "columns": list(columns),
        "values": values, "axes": list(axes), "signed": signed, "share": share,
    }  # fmt: skip


def bars(caption: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Block:
    """Return groups of signed bars with names; one group is shown at a time."""
    plain = [[name, [[item, number(value, 4)] for item, value in items]] for name, items in groups]
    return {"kind": "bars", "caption": caption, "groups": plain}


def reliability(caption: str, bins: Sequence[Sequence[float]], error: float, n: int) -> Block:
    """Return a reliability diagram: (mean probability, accuracy, count) of each bin."""
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
    """Return lines over one of several measures of progress (epochs, seconds)."""
    return {
        "kind": "curves", "caption": caption, "logarithmic": logarithmic, "target": target,
        "steps": [[name, numbers(values)] for name, values in steps],
        "lines": [[name, numbers(values)] for name, values in lines],
    }  # fmt: skip


def badge(status: str, word: str, sentence: str, facts: Sequence[tuple[str, str]]) -> Block:
    """Return a badge: status (``proved``, ``bounded``, ``open``), a sentence, and the numbers."""
    return {
        "kind": "badge", "status": status, "word": word, "sentence": sentence,
        "facts": [list(fact) for fact in facts],
    }  # fmt: skip


def certificate(values: dict[str, Any], tol: float | None = None) -> Block:
    """Return the badge of a training run.

    Parameters
    ----------
    values : dict
        ``primal``, ``dual``, ``gap``, ``rounding``, ``status`` of a certificate.
    tol : float, optional
        The tolerance of the run.

    Examples
    --------
    >>> c = {"primal": 2.0, "dual": 1.999, "gap": 5e-4, "rounding": 0.0, "status": "exact"}
    >>> certificate(c, 1e-3)["sentence"]
    'No weights can have an objective more than 0.05 % below that of this model.'
    """
    status, word, sentence = verdict(values, tol)
    facts = [
        ("objective of this model", f"{values['primal']:.8g}"),
        ("proven lower bound", f"{values['dual']:.8g}"),
        ("relative gap", f"{values['gap']:.3g}"),
    ]
    if tol is not None:
        facts.append(("tolerance", f"{tol:g}"))
    if values["rounding"]:
        facts.append(("rounding error, included", f"{values['rounding']:.2g}"))
    return badge(status, word, sentence, facts)


def verdict(values: dict[str, Any], tol: float | None = None) -> tuple[str, str, str]:
    """Return the status, the heading and the sentence of a certificate."""
    gap = values["gap"]
    if values["status"] == "none" or not gap < float("inf"):
        return "open", "No certificate", (
            "The objective is not convex, or there was no time for a bound. Other weights may be "
            "better, by an unknown amount."
        )  # fmt: skip
    percent = f"{100 * gap:.3g} %"
    if values["status"] == "bound":
        sentence = (
            f"No weights can have an objective more than {percent} below the upper bound that is "
            "proven for this model; inference was not exact."
        )
    else:
        sentence = f"No weights can have an objective more than {percent} below that of this model."
    reached = tol is None or gap <= tol
    word = "Proven optimal" if reached else "Not converged"
    if not reached:
        sentence += f" The tolerance was {100 * float(tol or 0):.3g} %."
    return (
        "proved" if reached else "bounded",
        f"{word} within {percent}" if reached else word,
        sentence,
    )


def convergence(columns: dict[str, Any], tol: float | None = None) -> list[Block]:
    """Return curves of the objective, its lower bound and the gap during training."""
    if not columns or not len(columns["epochs"]):
        return [text("The model file holds no trace of the training.")]
    n = len(columns["epochs"])
    keep = [round(i * (n - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)]
    rows = list(range(n)) if n <= MOST_POINTS else keep
    kept = {name: [float(values[i]) for i in rows] for name, values in columns.items()}
    steps = [("epochs", kept["epochs"])]
    if all(map(math.isfinite, kept["seconds"])):  # model files hold no times
        steps.append(("seconds", kept["seconds"]))
    values = [("objective (primal)", kept["primal"]), ("lower bound (dual)", kept["dual"])]
    return [
        curves("Objective and its lower bound", steps, values),
        curves("Relative gap", steps, [("gap", kept["gap"])], logarithmic=True, target=tol),
    ]
