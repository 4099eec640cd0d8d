"""Templates applied to a few sentences: by a table of what was seen before, without arrays.

`TemplateEncoder` works on whole columns, some array operations per rule: a few milliseconds, a lot
for one sentence. Here a rule's values are looked up as a tuple; see `Items`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.attributes import AttributeTable
from cliquewise.data.builtin_templates import change_of
from cliquewise.data.formats.conll import Columns
from cliquewise.data.items import LIMIT, Items
from cliquewise.data.rules import Macro, Rule
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
        self._rules, self._table = template.token_rules, table
        self._patterns = [rule.pattern for rule in self._rules]
        self._reach = len(marks) // 2
        self._before, self._after = marks[: self._reach][::-1], marks[self._reach :]
        self._items = Items(self._name, self._number)
        self._changed = {m.change: _Changed(m.change) for m in template.macros() if m.change}

    def _name(self, item: Any) -> tuple[Any, list[float]]:
        number, *values = item
        if None in values:
            return [None], [1.0]
        rule = self._rules[number]
        return [self._patterns[number] % tuple(values) if rule.macros else rule.parts[0]], [1.0]

    def _number(self, names: list[Any]) -> NDArray[np.int32]:
        numbers = self._table.numbers(["" if name is None else name for name in names])
        numbers[[name is None for name in names]] = -1
        return numbers

    def numbers(self, text: Columns) -> NDArray[np.int32]:
        """Numbers of the attributes, tokens by rules, -1 where a rule gives none or a new one."""
        n_rules, bounds = len(self._rules), list(pairwise(text.offsets.tolist()))
        items = (self._sentence(text, first, last) for first, last in bounds if first < last)
        flat = chain.from_iterable(chain.from_iterable(items))
        found, _ = self._items.encode(flat, n_rules * text.n_tokens)
        parts = [found[n_rules * a : n_rules * b].reshape(n_rules, b - a).T for a, b in bounds]
        return np.concatenate([np.empty((0, n_rules), dtype=np.int32), *parts])

    def _sentence(self, text: Columns, first: int, last: int) -> Iterator[Iterator[Any]]:
        """The items of each rule, one per token."""
        columns: dict[tuple[int, str], list[Any]] = {}
        for number, rule in enumerate(self._rules):
            if not rule.macros:
                yield zip(repeat(number), _constant(rule, last - first))
                continue
            for macro in rule.macros:
                key = macro.column, macro.change
                if key not in columns:
                    words = text.columns[macro.column][first:last]
                    values: list[Any] = [*self._before, *words, *self._after]
                    if macro.change:
                        values = list(map(self._changed[macro.change].__getitem__, values))
                    columns[key] = values
            yield zip(
                repeat(number), *(self._shifted(m, columns, last - first) for m in rule.macros)
            )

    def _shifted(self, macro: Macro, columns: dict[Any, list[Any]], length: int) -> Any:
        values, at = columns[macro.column, macro.change], self._reach + macro.row
        if not macro.absolute:
            return values[at : at + length]
        return repeat(values[at - 1 if macro.row > 0 else at + length], length)


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


def _constant(rule: Rule, length: int) -> list[str | None]:
    """Something on every token, or on the first or the last alone."""
    if not rule.only or length == 0:
        return [""] * length
    values: list[str | None] = [None] * length
    values[0 if rule.only == "first" else -1] = ""
    return values
