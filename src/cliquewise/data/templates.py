"""Feature templates: the template files of CRF++ and Wapiti, and two built-in sets.

``U01:%x[-1,0]/%x[0,0]`` makes one attribute for each token: the text of the line with each
macro replaced by the value in a row (counted from the token) and a column.

========================  =================================================================
``%x[row,col]``           the value
``%X[row,col]``           the value in lower case (Wapiti)
``%t[row,col,"regex"]``   ``true`` or ``false``: does the expression match (Wapiti)
``%m[row,col,"regex"]``   the first match, or nothing (Wapiti)
``%x[@row,col]``          row counted from the start, or below zero from the end (Wapiti)
========================  =================================================================

``U...`` describes a token, ``B...`` the pair of a token and the one before it, ``*...`` both
(Wapiti); ``B`` alone stands for plain transitions. ``#`` starts a comment line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from cliquewise.data.formats.text import read_lines
from cliquewise.errors import DataError, FormatError

Outside = Literal["crfpp", "wapiti", "absent"]
Change = Callable[[str], "str | None"]

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

    def __str__(self) -> str:
        shown = [f"%x[{m.row},{m.column}]" for m in self.macros]
        return "".join(p + s for p, s in zip(self.parts, [*shown, ""]))


@dataclass(frozen=True)
class Template:
    """A set of rules.

    Use `parse`, `load` or `builtin`, and `TemplateEncoder` to apply it.

    Parameters
    ----------
    token_rules : tuple of Rule
        Attributes of a token.
    edge_rules : tuple of Rule
        Attributes of a token and the one before it.
    transitions : bool
        Whether plain transitions were asked for (``B`` alone).
    outside : {"crfpp", "wapiti", "absent"}
        What a row outside the sentence gives: ``_B-1``, ``_B+1``, ... as in CRF++; ``_x-1``,
        ``_x+1``, ... as in Wapiti; or no attribute at all, as in CRFsuite's examples.
    source : dict
        What `from_state` needs to build it again.

    Examples
    --------
    >>> template = Template.parse("U1:%x[0,0]\\nU2:%x[-1,0]/%x[0,0]\\nB")
    >>> len(template.token_rules), template.transitions
    (2, True)
    """

    token_rules: tuple[Rule, ...]
    edge_rules: tuple[Rule, ...] = ()
    transitions: bool = True
    outside: Outside = "crfpp"
    source: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(
        cls, text: str, outside: Outside | None = None, path: str | Path | None = None
    ) -> Template:
        """Read a template; errors name the line.

        Parameters
        ----------
        text : str
            The content of a template file.
        outside : {"crfpp", "wapiti", "absent"}, optional
            See `Template`. By default Wapiti's if the text uses something only Wapiti has.
        path : str or Path, optional
            What errors call the text.
        """
        if outside not in (None, "crfpp", "wapiti", "absent"):
            raise DataError(f"outside={outside!r}; choose 'crfpp', 'wapiti' or 'absent'")
        tokens: list[Rule] = []
        edges: list[Rule] = []
        transitions = wapiti = False
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            kind = line[0].upper()
            if kind not in "UB*":
                raise FormatError(
                    f"{line!r:.60} starts with neither U, B nor *; put U in front of a rule "
                    "about a token, B about a pair, # of a comment",
                    path,
                    number,
                )
            rule, only_wapiti = _parse_rule(line, path, number)
            wapiti = wapiti or only_wapiti or line[0] in "ub*"
            transitions = transitions or (kind != "U" and not rule.macros)
            if kind in "U*":
                tokens.append(rule)
            if kind in "B*" and rule.macros:
                edges.append(rule)
        if not tokens and not edges and not transitions:
            raise FormatError("the template has no rule; a first one could be U:%x[0,0]", path)
        chosen: Outside = outside or ("wapiti" if wapiti else "crfpp")
        source = (("text", text), ("outside", chosen))
        return cls(tuple(tokens), tuple(edges), transitions, chosen, source)

    @classmethod
    def load(cls, path: str | Path, outside: Outside | None = None) -> Template:
        """Read a template file."""
        lines = [line for group in read_lines(path) for line in group]
        return cls.parse("\n".join(lines), outside, path)

    @classmethod
    def builtin(cls, name: str, n_columns: int | None = None) -> Template:
        """Return a template that comes with the library.

        Parameters
        ----------
        name : {"chunking", "ner"}
            ``chunking``: the attributes of CRFsuite's chunking example, of the columns word
            and part of speech. ``ner``: words, lower case, affixes, shapes and types in a
            window of five, with part of speech and chunk if there are such columns.
        n_columns : int, optional
            Number of columns without the labels; ``ner`` can do with 1, 2 or 3 (default).

        Examples
        --------
        >>> str(Template.builtin("chunking").token_rules[5])
        'w[-1]|w[0]=%x[-1,0]|%x[0,0]'
        """
        from cliquewise.data.builtin_templates import BUILTIN

        if name not in BUILTIN:
            raise DataError(f"no built-in template {name!r}; there are {', '.join(BUILTIN)}")
        make, least, most = BUILTIN[name]
        n = most if n_columns is None else min(n_columns, most)
        if n < least:
            raise DataError(f"the template {name!r} needs {least} columns, there are {n_columns}")
        source = (("builtin", name), ("n_columns", n))
        return cls(tuple(make(n)), (), True, "absent", source)

    def to_state(self) -> dict[str, Any]:
        """Return what `from_state` needs, as plain values."""
        if not self.source:
            raise DataError("this template was built from rules; only parsed ones can be saved")
        return dict(self.source)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Template:
        """Build the template again."""
        if "builtin" in state:
            return cls.builtin(state["builtin"], state["n_columns"])
        return cls.parse(state["text"], state["outside"])

    def macros(self) -> Iterator[Macro]:
        """Walk through all macros of all rules."""
        for rule in (*self.token_rules, *self.edge_rules):
            yield from rule.macros

    @property
    def n_columns(self) -> int:
        """Number of columns that the rules need."""
        return max((macro.column + 1 for macro in self.macros()), default=0)


def _parse_rule(line: str, path: str | Path | None, number: int) -> tuple[Rule, bool]:
    parts: list[str] = []
    macros: list[Macro] = []
    wapiti = False
    end = 0
    for match in _MACRO.finditer(line):
        macro, only_wapiti = _parse_macro(match, path, number)
        parts.append(line[end : match.start()])
        macros.append(macro)
        wapiti = wapiti or only_wapiti
        end = match.end()
    parts.append(line[end:])
    stray = next((part for part in parts if "%" in part), None)
    if stray is not None:
        at = stray[stray.index("%") :]
        raise FormatError(
            f"cannot read {at!r:.40}; a macro looks like %x[-1,0] (row, column)", path, number
        )
    return Rule(tuple(parts), tuple(macros)), wapiti


def _parse_macro(match: re.Match[str], path: str | Path | None, number: int) -> tuple[Macro, bool]:
    command, text = match["command"], match[0]
    args = _ARGS.fullmatch(match["args"])
    if command not in "xXtTmM":
        raise FormatError(f"{text}: no command %{command}; there are %x %X %t %m", path, number)
    if args is None:
        raise FormatError(f"{text}: expected row and column, as in %x[-1,0]", path, number)
    if args["mark"] == "*":
        raise FormatError(
            f"{text}: rows given by a column (*) are not supported; compute the value "
            "beforehand as a column of its own",
            path,
            number,
        )
    row = int(args["row"])
    if abs(row) > MAX_ROW:
        raise FormatError(f"{text}: row {row} is more than {MAX_ROW} tokens away", path, number)
    if len(args["col"]) > 6:
        raise FormatError(f"{text}: there is no column {args['col']}", path, number)
    if args["mark"] == "@" and row == 0:
        raise FormatError(f"{text}: rows after @ start at 1 (or -1, the last)", path, number)
    change = _parse_change(command, args["regex"], text, path, number)
    wapiti = command != "x" or args["mark"] == "@"
    return Macro(row, int(args["col"]), change, args["mark"] == "@"), wapiti


def _parse_change(
    command: str, regex: str | None, text: str, path: str | Path | None, number: int
) -> str:
    kind = command.lower()
    if (kind == "x") != (regex is None):
        need = "takes no expression" if kind == "x" else 'needs one, as in %t[0,0,"^\\u"]'
        raise FormatError(f"{text}: %{command} {need}", path, number)
    if kind == "x":
        return "lower" if command == "X" else ""
    assert regex is not None
    try:
        wapiti_regex(regex)
    except (ValueError, re.error) as error:
        raise FormatError(f"{text}: {error}", path, number) from None
    lower = "lower_" if command == "M" else ""
    return f"{'test' if kind == 't' else lower + 'match'}:{regex}"


_CLASSES = {"a": "A-Za-z", "d": "0-9", "l": "a-z", "u": "A-Z", "w": "A-Za-z0-9"}
_CLASSES |= {"s": r" \t-\r", "p": r"!-/:-@\[-`{-~"}


@lru_cache(maxsize=256)
def wapiti_regex(pattern: str) -> re.Pattern[str]:
    r"""Translate an expression of Wapiti's small language into Python's.

    Its classes are ``\a \d \l \p \s \u \w`` (capital letters: the complement), its only
    operators ``. * ? ^ $``, and ``*`` takes as little as it can.

    Examples
    --------
    >>> wapiti_regex(r"^\u.?").search("Rome")[0]
    'Ro'
    """
    out = "^" if pattern.startswith("^") else ""
    rest = pattern[len(out) :]
    while rest:
        if rest == "$":
            return re.compile(out + r"\Z", re.DOTALL)
        if rest[0] in "*?":
            raise ValueError(
                f"a {rest[0]} with nothing to repeat in {pattern!r}; escape it: \\{rest[0]}"
            )
        size = 2 if rest[0] == "\\" and len(rest) > 1 else 1
        unit, rest = rest[:size], rest[size:]
        out += _regex_unit(unit)
        if rest[:1] in ("*", "?"):
            out += "*?" if rest[0] == "*" else "?"
            rest = rest[1:]
    return re.compile(out, re.DOTALL)


def _regex_unit(unit: str) -> str:
    if unit == ".":
        return "."
    if len(unit) == 2:
        letters = _CLASSES.get(unit[1].lower())
        if letters is not None:
            return f"[{'^' if unit[1].isupper() else ''}{letters}]"
    return re.escape(unit[-1])
