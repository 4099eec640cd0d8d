"""Templates applied to a few sentences: by a table of what was seen before, without arrays.

`TemplateEncoder` works on whole columns, some array operations per rule: a few milliseconds, a lot
for one sentence. Here a rule's values are looked up as a tuple; see `Items`.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.attribute_table import AttributeTable
from cliquewise.data.builtin_templates import change_of
from cliquewise.data.columns import Columns
from cliquewise.data.item_cache import LIMIT, ItemCache
from cliquewise.data.rules import Rule
from cliquewise.data.templates import Template


class RuleItems:
    """The attributes of single sentences.

    Parameters
    ----------
    template : Template
    marks : list of (str or None)
        What stands 1, 2, ... places before the start, then after the end, of a sentence.
    table : AttributeTable
    """

    def __init__(self, template: Template, marks: list[str | None], table: AttributeTable):
        self.n_columns = template.n_columns
        self._rules = template.token_rules
        # Rules without a macro have a value of no letters on every token that they are of.
        self._patterns = [r.pattern if r.macros else f"{r.pattern}%s" for r in self._rules]
        self._sources = {(m.column, m.change) for rule in self._rules for m in rule.macros}
        self._macros = [
            [((m.column, m.change), m.row, m.absolute) for m in rule.macros] for rule in self._rules
        ]
        self._reach = len(marks) // 2
        self._before, self._after = marks[: self._reach][::-1], marks[self._reach :]
        self._table = table
        self._items = ItemCache(partial(_name, self._patterns))
        self._changed = {m.change: _Changed(m.change) for m in template.macros() if m.change}

    def numbers(self, text: Columns) -> NDArray[np.int32]:
        """Numbers of the attributes, tokens by rules, -1 where a rule gives none or a new one."""
        n_rules, bounds = len(self._rules), list(pairwise(text.offsets.tolist()))
        items = (self._sentence(text, first, last) for first, last in bounds if first < last)
        flat = chain.from_iterable(chain.from_iterable(items))
        encoded = self._items.encode(flat, n_rules * text.n_tokens, self._table.numbers)
        assert encoded is not None  # every item is one attribute, or none
        found = encoded[0]
        parts = [found[n_rules * a : n_rules * b].reshape(n_rules, b - a).T for a, b in bounds]
        return np.concatenate([np.empty((0, n_rules), dtype=np.int32), *parts])

    def _sentence(self, text: Columns, first: int, last: int) -> list[Any]:
        """The items of each rule, one per token."""
        length, reach = last - first, self._reach
        values: dict[tuple[int, str], list[Any]] = {}
        for column in {column for column, _ in self._sources}:
            words = text.columns[column][first:last]
            values[column, ""] = [*self._before, *words, *self._after]
        for column, change in self._sources:
            if change:
                changed = self._changed[change].__getitem__
                values[column, change] = list(map(changed, values[column, ""]))
        out: list[Any] = []
        for number, (rule, macros) in enumerate(zip(self._rules, self._macros)):
            if not macros:
                out.append(zip(repeat(number), _constant(rule, length)))
                continue
            shifted: list[Any] = []
            for source, row, absolute in macros:
                own, at = values[source], reach + row
                if absolute:
                    shifted.append(repeat(own[at - 1 if row > 0 else at + length], length))
                else:
                    shifted.append(own[at : at + length])
            out.append(zip(repeat(number), *shifted))
        return out


class _Changed(dict[Any, Any]):
    """What a change makes of each word that was seen."""

    def __init__(self, name: str):
        super().__init__({None: None})
        self._change = change_of(name)

    def __missing__(self, word: str) -> str | None:
        if len(self) > LIMIT:
            self.clear()
            self[None] = None
        value = self[word] = self._change(word)
        return value


def _name(patterns: list[str], item: Any) -> tuple[str | None, float]:
    return None if None in item else patterns[item[0]] % item[1:], 1.0


def _constant(rule: Rule, length: int) -> list[str | None]:
    """Something on every token, or on the first or the last alone."""
    if not rule.only or length == 0:
        return [""] * length
    values: list[str | None] = [None] * length
    values[0 if rule.only == "first" else -1] = ""
    return values
