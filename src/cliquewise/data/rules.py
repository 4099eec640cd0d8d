"""Rules of feature templates, and how one is written.

A rule makes one attribute for each token: the text of a line with each macro replaced by a
value, such as ``%x[-1,0]`` by column 0 of the token before. See `cliquewise.data.templates`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from cliquewise.data.expressions import Expression
from cliquewise.errors import FormatError

MAX_ROW = 64  # CRF++ stops at 4; a window wider than this is a slip of the keyboard
_MACRO = re.compile(r'%(?P<command>[A-Za-z])\[(?P<args>(?:"(?:\\.|[^"\\])*"|[^"\]])*)\]')
_ARGS = re.compile(
    r"\s*(?P<mark>[@*]?)(?P<row>[+-]?\d+)\s*,\s*(?P<col>\d+)\s*"
    r'(?:,\s*"(?P<regex>(?:\\.|[^"\\])*)"\s*)?'
)


@dataclass(frozen=True)
class Macro:
    """A value that a rule takes from the columns.

    Parameters
    ----------
    row : int
        Distance from the token; with `absolute`, 1 is the first token and -1 the last.
    column : int
        Column of the value.
    change : str, default=""
        What is done to it: a key of `CHANGES`, or ``test:regex`` / ``match:regex``.
    absolute : bool, default=False
        Count rows from the start or the end of the sentence.
    """

    row: int
    column: int
    change: str = ""
    absolute: bool = False


@dataclass(frozen=True)
class Rule:
    """One attribute for each token: ``parts[0] + macros[0] + parts[1] + ...``.

    `only` restricts the rule to the ``"first"`` or ``"last"`` token of a sentence.
    """

    parts: tuple[str, ...]
    macros: tuple[Macro, ...]
    only: Literal["", "first", "last"] = ""

    @property
    def pattern(self) -> str:
        """What makes the attribute of the macros' values, by ``%``."""
        return "%s".join(part.replace("%", "%%") for part in self.parts)

    def __str__(self) -> str:
        shown = [f"%x[{m.row},{m.column}]" for m in self.macros]
        return "".join(p + s for p, s in zip(self.parts, [*shown, ""]))


def parse_rule(line: str) -> tuple[Rule, bool]:
    """Read one line of a template; tell whether only Wapiti would understand it.

    Examples
    --------
    >>> rule, only_wapiti = parse_rule("U1:%x[-1,0]/%x[0,0]")
    >>> str(rule), only_wapiti
    ('U1:%x[-1,0]/%x[0,0]', False)
    """
    parts: list[str] = []
    macros: list[Macro] = []
    wapiti = False
    end, at = 0, line.find("%")
    while at >= 0:
        match = _MACRO.match(line, at)
        if match is None:  # the first that cannot be read ends the search: time is linear
            shown = line[at : at + 40]
            raise FormatError(f"cannot read {shown!r}; a macro looks like %x[-1,0] (row, column)")
        macro, only_wapiti = _parse_macro(match)
        parts.append(line[end:at])
        macros.append(macro)
        wapiti = wapiti or only_wapiti
        end = match.end()
        at = line.find("%", end)
    parts.append(line[end:])
    return Rule(tuple(parts), tuple(macros)), wapiti


def _parse_macro(match: re.Match[str]) -> tuple[Macro, bool]:
    command, text = match["command"], f"{match[0]:.60}"
    args = _ARGS.fullmatch(match["args"])
    if command not in "xXtTmM":
        raise FormatError(f"{text}: no command %{command}; there are %x %X %t %m")
    if args is None:
        raise FormatError(f"{text}: expected row and column, as in %x[-1,0]")
    if args["mark"] == "*":
        raise FormatError(
            f"{text}: rows given by a column (*) are not supported; compute the value "
            "beforehand as a column of its own"
        )
    row = int(args["row"]) if len(args["row"]) < 9 else MAX_ROW + 1
    if abs(row) > MAX_ROW:
        raise FormatError(f"{text}: the row is more than {MAX_ROW} tokens away")
    if len(args["col"]) > 6:
        raise FormatError(f"{text}: there is no column {args['col']}")
    if args["mark"] == "@" and row == 0:
        raise FormatError(f"{text}: rows after @ start at 1 (or -1, the last)")
    change = _parse_change(command, args["regex"], text)
    wapiti = command != "x" or args["mark"] == "@"
    return Macro(row, int(args["col"]), change, args["mark"] == "@"), wapiti


def _parse_change(command: str, regex: str | None, text: str) -> str:
    kind = command.lower()
    if (kind == "x") != (regex is None):
        need = "takes no expression" if kind == "x" else 'needs one, as in %t[0,0,"^\\u"]'
        raise FormatError(f"{text}: %{command} {need}")
    if kind == "x":
        return "lower" if command == "X" else ""
    assert regex is not None
    try:
        Expression.parse(regex)
    except (ValueError, re.error) as error:
        raise FormatError(f"{text}: {error}") from None
    lower = "lower_" if command == "M" else ""
    return f"{'test' if kind == 't' else lower + 'match'}:{regex}"
