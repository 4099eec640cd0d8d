"""Wapiti's expressions, matched in time that grows with expression times text.

Python's matcher tries all ways to share a text among the stars of an expression: a template of one
line from a stranger could keep it busy for ever. It is used where that cannot happen; elsewhere a
matcher of our own, which never tries the same part of the expression twice at the same place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from cliquewise.errors import DataError

#: Longest expression and longest value that one is matched with, in characters.
MAX_EXPRESSION, MAX_VALUE = 256, 10_000
#: Steps that Python's matcher may need at worst, where it is used.
_STEPS = 1e5

_CLASSES = {"a": "A-Za-z", "d": "0-9", "l": "a-z", "u": "A-Z", "w": "A-Za-z0-9"}
_CLASSES |= {"s": r" \t-\r", "p": r"!-/:-@\[-`{-~"}


@dataclass(frozen=True)
class _Unit:
    """One character of an expression, and how often it may come: once, ``?`` or ``*``."""

    one: re.Pattern[str]
    repeat: str


@dataclass(frozen=True)
class Expression:
    r"""An expression of Wapiti's small language.

    Its classes are ``\a \d \l \p \s \u \w`` (capital letters: the complement), its only
    operators ``. * ? ^ $``, and ``*`` takes as little as it can.

    Examples
    --------
    >>> Expression.parse(r"^\u.?").search("Rome")
    'Ro'
    >>> Expression.parse("x*" * 60 + "y").search("x" * 1000) is None
    True
    """

    units: tuple[_Unit, ...]
    starts: bool
    ends: bool

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, pattern: str) -> Expression:
        """Read an expression; ``ValueError`` says what is wrong with it."""
        if len(pattern) > MAX_EXPRESSION:
            raise ValueError(
                f"an expression of {len(pattern)} characters; {MAX_EXPRESSION} at most"
            )
        starts = pattern.startswith("^")
        rest, units = pattern[starts:], []
        while rest and rest != "$":
            if rest[0] in "*?":
                raise ValueError(
                    f"a {rest[0]} with nothing to repeat in {pattern!r}; escape it: \\{rest[0]}"
                )
            size = 2 if rest[0] == "\\" and len(rest) > 1 else 1
            unit, rest = rest[:size], rest[size:]
            repeat = rest[:1] if rest[:1] in ("*", "?") else ""
            rest = rest[len(repeat) :]
            units.append(_Unit(re.compile(_one(unit), re.DOTALL), repeat))
        return cls(tuple(units), starts, rest == "$")

    def search(self, text: str) -> str | None:
        """The first match, or None."""
        if len(text) > MAX_VALUE:
            raise DataError(
                f"the value {text!r:.40} is too long for %t and %m, which take up to {MAX_VALUE:,} "
                "characters"
            )
        stars, options = self._choices
        if float(len(text) + 1) ** min(1 + stars, 20) * 2.0**options > _STEPS:
            return self._search(text)
        found = self._compiled.search(text)
        return None if found is None else found[0]

    @cached_property
    def _choices(self) -> tuple[int, int]:
        """Number of stars and of question marks."""
        repeats = [unit.repeat for unit in self.units]
        return repeats.count("*"), repeats.count("?")

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        """The same for Python's matcher."""
        lazy = {"": "", "?": "?", "*": "*?"}
        body = "".join(unit.one.pattern + lazy[unit.repeat] for unit in self.units)
        start, end = "^" * self.starts, r"\Z" * self.ends
        return re.compile(start + body + end, re.DOTALL)

    def _search(self, text: str) -> str | None:
        """Depth first as Python's matcher, but what has failed once is not tried again."""
        n, m = len(text), len(self.units)
        tried = bytearray((n + 1) * (m + 1))
        for start in range(1 if self.starts else n + 1):
            stack = [(0, start)]
            while stack:
                i, at = stack.pop()
                if tried[i * (n + 1) + at]:
                    continue
                tried[i * (n + 1) + at] = 1
                if i == m:
                    if not self.ends or at == n:
                        return text[start:at]
                    continue
                unit = self.units[i]
                fits = at < n and unit.one.match(text, at) is not None
                # The last one pushed is tried first.
                if unit.repeat == "*":
                    stack += [(i, at + 1)] * fits + [(i + 1, at)]
                elif unit.repeat == "?":
                    stack += [(i + 1, at)] + [(i + 1, at + 1)] * fits
                elif fits:
                    stack.append((i + 1, at + 1))
        return None


def _one(unit: str) -> str:
    """A character or class in Python's language."""
    if unit == ".":
        return "."
    letters = _CLASSES.get(unit[1].lower()) if len(unit) == 2 else None
    if letters is None:
        return re.escape(unit[-1])
    return f"[{'^' if unit[1].isupper() else ''}{letters}]"
