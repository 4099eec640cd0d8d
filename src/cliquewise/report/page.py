"""Self-contained HTML reports: markup, style, script and data in one file.

The data are JSON, escaped for HTML, which the script inserts as text. The content security policy
of the page blocks other scripts and all network requests.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from cliquewise.atomic_files import check_target, replace_file
from cliquewise.errors import DataError

#: Characters with a special meaning in HTML or in older JavaScript.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}

#: The scripts, in the order in which they are joined.
SCRIPTS = ("page.js", "charts.js", "sentences.js", "network.js", "live.js", "start.js")


def check_report(path: str | Path) -> None:
    """Raise an error if no report can be written to a path; call it before computing."""
    check_target(path, "the report")


def write_page(
    path: str | Path, title: str, subtitle: str, sections: Sequence[dict[str, Any]]
) -> None:
    """Write a report.

    Parameters
    ----------
    path : path
    title, subtitle : str
        Plain text.
    sections : list of dicts
        See :func:`cliquewise.report.blocks.section`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> write_page(path, "A <b>", "", [])
    >>> "<title>A &lt;b&gt;</title>" in path.read_text()
    True
    """
    replace_file(path, page(title, subtitle, sections).encode("utf-8", "replace"))


def page(title: str, subtitle: str, sections: Sequence[dict[str, Any]]) -> str:
    """Return the HTML of a report; see :func:`write_page`."""
    folder = files(__package__)
    style = folder.joinpath("page.css").read_text("utf-8")
    script = "\n".join(folder.joinpath(name).read_text("utf-8") for name in SCRIPTS)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    data = {"title": title, "subtitle": subtitle, "sections": list(sections)}
    filled = {
        "policy": policy,
        "title": html.escape(title),
        "style": style,
        "script": script,
        "data": embedded(data),
    }
    text = folder.joinpath("page.html").read_text("utf-8")
    pieces = text.split("{{")
    out = [pieces[0]]
    for piece in pieces[1:]:  # not by str.replace, because a value may contain a placeholder
        name, _, rest = piece.partition("}}")
        out += [filled[name], rest]
    return "".join(out)


def embedded(data: Any) -> str:
    """Return JSON for a script element of a page.

    Examples
    --------
    >>> embedded({"word": "</script>"})
    '{"word":"\\\\u003c/script\\\\u003e"}'
    """
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the data of the report must be plain numbers and strings: {error}"
        ) from error
    # A single surrogate cannot be encoded.
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode("utf-8")


def _hash(text: str) -> str:
    """Return the hash of an inline script or style for the Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def number(value: Any, digits: int = 6) -> float | None:
    """Return a number with few digits; None if it is not finite."""
    return float(f"{float(value):.{digits}g}") if math.isfinite(value) else None


def numbers(values: Any, digits: int = 6) -> list[Any]:
    """Apply :func:`number` to all items of a nested array."""
    return [
        numbers(v, digits) if isinstance(v, list) else number(v, digits)
        for v in (values if isinstance(values, list) else values.tolist())
    ]
