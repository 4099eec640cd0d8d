"""HTML displays for notebooks: badges, curves, tables, marked-up sentences, graphs.

Each function takes plain data and returns HTML for light and dark notebooks. All text is escaped
by :func:`escaped`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from cliquewise.report.blocks import verdict

#: Colors of span types: legible on light and dark backgrounds, and suited to color blindness.
COLORS = (
    "#3b82c4", "#d0722a", "#3a9a66", "#a55bc7", "#cc5050",
    "#2f97a1", "#97851c", "#7873d6", "#c9539a", "#74808c",
)  # fmt: skip
_TONES = {"proved": "#2f9e62", "bounded": "#c08a1e", "open": "#cf5148"}
#: Largest number of labels of a matrix, of sentences, and of characters of a word.
MOST_LABELS, MOST_SENTENCES, MOST_LETTERS = 40, 100, 200
_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"
_CELL = "padding:.15em .6em;text-align:right;border-bottom:1px solid rgba(128,128,128,.3)"


class Marked(NamedTuple):
    """A sentence: its words, and its spans (first, end, type, probability or None)."""

    words: list[str]
    spans: list[tuple[int, int, str, float | None]]


def escaped(text: Any) -> str:
    """Return text escaped for HTML; long text is cut.

    Examples
    --------
    >>> escaped("<b>")
    '&lt;b&gt;'
    """
    shown = str(text)
    if len(shown) > MOST_LETTERS:
        shown = f"{shown[:MOST_LETTERS]}… ({len(str(text)):,} characters)"
    return html.escape(shown.encode("utf-8", "replace").decode("utf-8"))


def tag(name: str, *children: str, **attributes: Any) -> str:
    """Return an HTML element; attributes are escaped, children must be HTML.

    Examples
    --------
    >>> tag("text", escaped("a<b"), text_anchor="end")
    '<text text-anchor="end">a&lt;b</text>'
    """
    given = "".join(
        f' {key.replace("_", "-").strip("-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{given}>{''.join(children)}</{name}>"


def badge(values: dict[str, Any]) -> str:
    """Return a badge that states in a sentence what a certificate proves.

    Examples
    --------
    >>> c = {"primal": 2.0, "dual": 1.9, "gap": 0.05, "rounding": 0.0, "status": "exact"}
    >>> "5 %" in badge(c)
    True
    """
    status, word, sentence = verdict(values)
    return claim(
        status, word, sentence, f"objective {values['primal']:.6g}, bound {values['dual']:.6g}"
    )


def claim(status: str, word: str, sentence: str, below: str) -> str:
    """Return a sentence in the color of its status: ``proved``, ``bounded`` or ``open``."""
    tone = _TONES[status]
    box = (
        f"border-left:.35em solid {tone};padding:.4em .9em;max-width:46em;"
        "background:rgba(128,128,128,.08);border-radius:.3em"
    )
    head = tag("b", escaped(word), style=f"color:{tone}")
    small = tag("small", escaped(below), style="opacity:.7")
    return tag("div", head, "<br>", html.escape(sentence), "<br>", small, style=box)


def curve(columns: dict[str, Sequence[float]], lines: Sequence[str], step: str) -> str:
    """Return lines as a small SVG; the scale is logarithmic for positive values of wide range.

    Examples
    --------
    >>> curve({"seconds": [1.0, 2.0], "gap": [1.0, 0.1]}, ["gap"], "seconds").count("<polyline")
    1
    """
    width, height, left, bottom = 460, 200, 62, 30
    found = [v for name in lines for v in columns[name] if math.isfinite(v)]
    if not found:
        return "<small>no values were recorded</small>"
    logarithmic = min(found) > 0 and max(found) > 20 * min(found)
    scale = math.log10 if logarithmic else float
    low, high = scale(min(found)), scale(max(found))
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin
    steps = list(columns[step])
    end = max((s for s in steps if math.isfinite(s)), default=1.0) or 1.0
    words = {"font_size": 11, "fill": "currentColor"}
    out = []
    for part in (0.0, 0.5, 1.0):
        value = low + part * (high - low)
        y = round(height - bottom - part * (height - bottom - 12), 1)
        shown = f"{10**value if logarithmic else value:.4g}"
        out.append(tag("line", x1=left, x2=width, y1=y, y2=y, stroke="rgba(128,128,128,.35)"))
        out.append(tag("text", shown, x=left - 6, y=y + 4, text_anchor="end", **words))
    for i, name in enumerate(lines):
        points = [
            f"{left + s / end * (width - left - 8):.1f},"
            f"{height - bottom - (scale(v) - low) / (high - low) * (height - bottom - 12):.1f}"
            for s, v in zip(steps, columns[name], strict=True)
            if math.isfinite(v) and math.isfinite(s) and (v > 0 or not logarithmic)
        ]
        look = {"fill": "none", "stroke": COLORS[i % len(COLORS)], "stroke_width": 2}
        out.append(tag("polyline", points=" ".join(points), **look))
        key = {"font_size": 11, "fill": COLORS[i % len(COLORS)]}
        out.append(tag("text", f"— {escaped(name)}", x=left + 90 * i, y=height - 4, **key))
    last = f"{escaped(step)}: {end:.4g}"
    out.append(tag("text", last, x=width, y=height - 16, text_anchor="end", **words))
    return _svg(width, height, f"{', '.join(lines)} over {step}", out)


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    return tag(
        "svg", *parts, viewBox=f"0 0 {width:.0f} {height:.0f}", width=f"{min(width, 900):.0f}",
        role="img", aria_label=label, style="max-width:100%",
    )  # fmt: skip


def table(head: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table whose first column holds names.

    Examples
    --------
    >>> table(["type", "F1"], [["<X>", "0.5"]]).count("&lt;X&gt;")
    1
    """
    names = [tag("th", escaped(h), scope="col", style=_CELL) for h in head]
    body = [
        tag(
            "tr",
            tag("th", escaped(row[0]), scope="row", style=f"{_CELL};text-align:left"),
            *(tag("td", escaped(cell), style=_CELL) for cell in row[1:]),
        )
        for row in rows
    ]
    return tag("table", tag("thead", tag("tr", *names)), tag("tbody", *body), style=_TABLE)


def matrix(names: Sequence[Any], cells: Sequence[Sequence[int]]) -> str:
    """Return a colored confusion matrix: blue is correct, orange is wrong.

    Examples
    --------
    >>> matrix(["a", "b"], [[3, 1], [0, 2]]).count("<td")
    4
    """
    used = range(min(len(names), MOST_LABELS))
    small = "padding:.15em .4em"
    corner = tag("th", "gold ↓ predicted →", style="font-weight:400;font-style:italic")
    head = [tag("th", escaped(names[j]), scope="col", style=small) for j in used]
    rows = []
    for i in used:
        total = max(sum(cells[i]), 1)
        row = [tag("th", escaped(names[i]), scope="row", style=f"{small};text-align:right")]
        for j in used:
            color = "59,130,196" if i == j else "208,114,42"
            shade = f"background:rgba({color},{0.7 * math.sqrt(cells[i][j] / total):.3f})"
            shown = f"{cells[i][j]:,}" if cells[i][j] else ""
            row.append(tag("td", shown, style=f"{small};text-align:center;{shade}"))
        rows.append(tag("tr", *row))
    more = ""
    if len(names) > MOST_LABELS:
        more = tag("small", f"{MOST_LABELS} of {len(names):,} labels")
    top = tag("thead", tag("tr", corner, *head))
    return tag("table", top, tag("tbody", *rows), style=_TABLE) + more


def sentences(marked: Sequence[Marked]) -> str:
    """Return sentences with their spans in colored boxes, in the style of displaCy.

    Examples
    --------
    >>> "PER" in sentences([Marked(["Anna", "sleeps"], [(0, 1, "PER", 0.93)])])
    True
    """
    kinds: dict[str, int] = {}
    out = [_sentence(one, kinds) for one in marked[:MOST_SENTENCES]]
    if len(marked) > MOST_SENTENCES:
        out.append(tag("small", f"{MOST_SENTENCES} of {len(marked):,} sentences"))
    return "".join(out)


def _sentence(one: Marked, kinds: dict[str, int]) -> str:
    starts = {span[0]: span for span in one.spans}
    out, t = [], 0
    while t < len(one.words):
        if t not in starts:
            out.append(tag("bdi", escaped(one.words[t])))
            t += 1
            continue
        _, end, kind, probability = starts[t]
        color = COLORS[kinds.setdefault(kind, len(kinds)) % len(COLORS)]
        words = " ".join(tag("bdi", escaped(word)) for word in one.words[t:end])
        chance = "" if probability is None else f" {100 * probability:.3g}&thinsp;%"
        name = tag("small", escaped(kind), chance, style=f"font-weight:600;color:{color}")
        box = f"background:{color}33;color:inherit;border-radius:.3em;padding:.1em .3em"
        out.append(tag("mark", words, " ", name, style=box))
        t = max(end, t + 1)
    return tag("p", " ".join(out), style="line-height:1.9;margin:.3em 0")


class MarkedText:
    """Sentences with spans: boxes in a notebook, brackets in a terminal.

    Examples
    --------
    >>> MarkedText([Marked(["Anna", "sleeps"], [(0, 1, "PER", 0.93)])])
    [Anna]PER:0.93 sleeps
    """

    def __init__(self, marked: Sequence[Marked]):
        self.marked = list(marked)

    def _repr_html_(self) -> str:
        return sentences(self.marked)

    def __repr__(self) -> str:
        return "\n".join(_in_brackets(one) for one in self.marked)


def _in_brackets(one: Marked) -> str:
    words = list(one.words)
    for first, end, kind, probability in one.spans:
        words[first] = f"[{words[first]}"
        words[end - 1] += f"]{kind}" + ("" if probability is None else f":{probability:.2g}")
    return " ".join(words)


class Node(NamedTuple):
    """A variable of a graph: position, name, probabilities of its states, whether observed."""

    x: float
    y: float
    name: str
    chances: list[float]
    seen: bool


def network(
    nodes: Sequence[Node],
    lines: Sequence[tuple[Any, Any]],
    ends: Sequence[tuple[Any, Any]],
    factors: Sequence[tuple[float, float, list[int]]],
) -> str:
    """Return a graph as SVG: variables are bars divided among their states, factors are squares.

    ``lines`` join two positions each; ``ends`` are drawn dashed.

    Examples
    --------
    >>> nodes = [Node(0, 0, "a", [0.5, 0.5], False), Node(1, 0, "b", [], True)]
    >>> network(nodes, [((0, 0), (1, 0))], [], [])[:4]
    '<svg'
    """
    step = 64.0
    width = max(n.x for n in nodes) * step + 80
    height = max(n.y for n in nodes) * step + 80
    at = [(40 + n.x * step, 38 + n.y * step) for n in nodes]
    moved = [[(40 + x * step, 38 + y * step) for x, y in pair] for pair in (*lines, *ends)]
    out = [_line(a, b) for a, b in moved[: len(lines)]]
    out += [_line(a, b, stroke_dasharray="3 3") for a, b in moved[len(lines) :]]
    for x, y, scope in factors:
        own = 40 + x * step, 38 + y * step
        out += [_line(own, at[v]) for v in scope]
        out.append(_rectangle(own[0] - 4, own[1] - 4, 8, 8, fill="rgb(128,128,128)"))
    out += [_node(node, *place) for node, place in zip(nodes, at, strict=True)]
    return _svg(width, height, f"graph of {len(nodes)} variables", out)


def _line(a: Sequence[float], b: Sequence[float], **look: Any) -> str:
    places = {"x1": a[0], "y1": a[1], "x2": b[0], "y2": b[1]}
    rounded = {name: round(value, 1) for name, value in places.items()}
    return tag("line", **rounded, stroke="rgba(128,128,128,.6)", **look)


def _rectangle(x: float, y: float, width: float, height: float, **look: Any) -> str:
    sizes = {"x": x, "y": y, "width": width, "height": height}
    return tag("rect", **{name: round(value, 1) for name, value in sizes.items()}, **look)


def _node(node: Node, x: float, y: float) -> str:
    wide, high, left = 36.0, 12.0, x - 18.0
    edge = "stroke:currentColor;stroke-width:3" if node.seen else "stroke:rgba(128,128,128,.9)"
    chances = ", ".join(f"{p:.3g}" for p in node.chances[:20])
    known = f"{escaped(node.name)}{' (observed)' if node.seen else ''}: {chances}"
    out = [tag("title", known)]
    out.append(_rectangle(left, y - 6, wide, high, rx=2, style=f"fill:rgb(160,160,160);{edge}"))
    for state, p in enumerate(node.chances):
        out.append(_rectangle(left, y - 6, wide * p, high, fill=COLORS[state % len(COLORS)]))
        left += wide * p
    short = node.name if len(node.name) <= 10 else node.name[:9] + "…"
    look = {"text_anchor": "middle", "font_size": 10, "fill": "currentColor"}
    out.append(tag("text", escaped(short), x=round(x, 1), y=round(y + 18, 1), **look))
    return tag("g", *out)
