"""Feature templates: the template files of CRF++ and Wapiti, and built-in sets.

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

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cliquewise.data.builtin_templates import BUILTIN, DEFAULT
from cliquewise.data.formats.text import numbered, read_lines
from cliquewise.data.rules import Macro, Rule, parse_rule
from cliquewise.errors import DataError, FormatError

#: Longest template, in characters; people write a few thousand.
MAX_TEMPLATE = 1 << 20

Outside = Literal["crfpp", "wapiti", "absent"]


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
        if len(text) > MAX_TEMPLATE:
            raise FormatError(f"a template has {MAX_TEMPLATE:,} characters at most", path)
        tokens: list[Rule] = []
        edges: list[Rule] = []
        transitions = wapiti = False
        with numbered(text.split("\n"), path) as lines:
            for line in map(str.strip, lines):
                if not line or line.startswith("#"):
                    continue
                kind = line[0].upper()
                if kind not in "UB*":
                    raise FormatError(
                        f"{line!r:.60} starts with neither U, B nor *; put U in front of a rule "
                        "about a token, B about a pair, # of a comment"
                    )
                rule, only_wapiti = parse_rule(line)
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
        kept, total = [], 0
        for line in read_lines(path):
            kept.append(line)
            total += len(line) + 1
            if total > 2 * MAX_TEMPLATE:  # enough for `parse` to refuse it
                break
        return cls.parse("\n".join(kept), outside, path)

    @classmethod
    def builtin(cls, name: str, n_columns: int | None = None) -> Template:
        """Return a template that comes with the library.

        Parameters
        ----------
        name : {"columns", "chunking", "ner"}
            ``columns``, the default: words, affixes and shapes, and every further column in a
            window of five, with pairs of columns. ``chunking``: the attributes of CRFsuite's
            chunking example, of the columns word and part of speech. ``ner``: words, lower case,
            affixes, shapes and types in a window of five, with part of speech and chunk if there
            are such columns.
        n_columns : int, optional
            Number of columns without the labels; ``ner`` takes 1, 2 or 3 (default), ``columns``
            any number (default: 1).

        Examples
        --------
        >>> str(Template.builtin("chunking").token_rules[5])
        'w[-1]|w[0]=%x[-1,0]|%x[0,0]'
        """
        if name not in BUILTIN:
            raise DataError(f"no built-in template {name!r}; there are {', '.join(BUILTIN)}")
        make, least, most = BUILTIN[name]
        if not isinstance(n_columns, int | None):
            raise DataError(f"n_columns = {n_columns!r:.40}; it is a whole number")
        n = (1 if name == DEFAULT else most) if n_columns is None else min(n_columns, most)
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
            return cls.builtin(str(state["builtin"]), state["n_columns"])
        return cls.parse(str(state["text"]), state["outside"])

    def macros(self) -> Iterator[Macro]:
        """Walk through all macros of all rules."""
        for rule in (*self.token_rules, *self.edge_rules):
            yield from rule.macros

    @property
    def n_columns(self) -> int:
        """Number of columns that the rules need."""
        return max((macro.column + 1 for macro in self.macros()), default=0)
