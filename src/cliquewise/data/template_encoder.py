"""TemplateEncoder: columns of text to a Dataset, by numbers rather than by strings.

Each column becomes numbers of its distinct values once; a rule combines the numbers of its
macros into one; a string is built only for each distinct combination. That is some hundred
times fewer strings than attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.attribute_table import AttributeTable, check_counts
from cliquewise.data.builtin_templates import change_of
from cliquewise.data.columns import Columns
from cliquewise.data.dataset import Dataset
from cliquewise.data.names import listed_names
from cliquewise.data.raw_features import RawFeatures
from cliquewise.data.rules import Macro, Rule
from cliquewise.data.template_items import RuleItems
from cliquewise.data.templates import Template
from cliquewise.data.value_index import ValueIndex, drop_rare
from cliquewise.errors import DataError

#: Possible combinations per token up to which a table beats sorting: clearing and scanning a table
#: of 32 n entries takes about as long as sorting n codes (measured for 200 to 20,000 tokens).
_TABLE_ENTRIES = 32
_SHORT = 16  # up to so many sentences are encoded one by one
_MARKS = {"crfpp": ("_B-{}", "_B+{}"), "wapiti": ("_x-{}", "_x+{}")}


class TemplateEncoder:
    """Apply a template to columns of text.

    Parameters
    ----------
    template : Template
        What the attributes are.
    n_hash : int, optional
        Number attributes by hashing into this many features instead of by a vocabulary.
    min_count : int, default=1
        Leave out attributes seen fewer times than this in fitting.

    Attributes
    ----------
    vocabulary, edge_vocabulary : list of str or None
        Names of the features of tokens, and of edges (``B...`` rules).
    n_features, n_edge_features : int
        Their numbers.

    Examples
    --------
    >>> text = Columns([["the", "cat"], ["DT", "NN"]], [0, 2])
    >>> encoder = TemplateEncoder(Template.parse("U1:%x[0,1]\\nU2:%x[-1,0]"))
    >>> data = encoder.fit_transform(text)
    >>> encoder.vocabulary
    ['U1:DT', 'U1:NN', 'U2:the', 'U2:_B-1']
    >>> data.indices
    array([0, 3, 1, 2], dtype=int32)
    """

    def __init__(self, template: Template, n_hash: int | None = None, min_count: int = 1):
        check_counts(n_hash, min_count)
        self.template = template
        self.n_hash = n_hash
        self.min_count = min_count
        self.vocabulary: list[str] | None = None
        self.edge_vocabulary: list[str] | None = None
        self._tables: dict[str, AttributeTable] = {}
        self._items: RuleItems | None = None

    @property
    def n_features(self) -> int:
        """Number of features of tokens."""
        return self.n_hash or len(self.vocabulary or ())

    @property
    def n_edge_features(self) -> int:
        """Number of features of edges."""
        if not self.template.edge_rules:
            return 0
        return self.n_hash or len(self.edge_vocabulary or ())

    def fit_transform(self, text: Columns) -> Dataset:
        """Learn the attributes of the tokens (and of the edges) and encode the tokens."""
        self._tables.clear()
        self._items = None
        view = _View(text, self.template)
        if self.n_hash is None:
            edges = _apply(view, self.template.edge_rules, inner=True)
            _, self.edge_vocabulary = _learn(edges, view, self.min_count)
            tokens = _apply(view, self.template.token_rules)
            data, self.vocabulary = _learn(tokens, view, self.min_count)
            return data
        return self._entries(view, "tokens").compact()

    def fit(self, text: Columns) -> TemplateEncoder:
        """Learn the attributes."""
        self.fit_transform(text)
        return self

    def transform(self, text: Columns) -> Dataset:
        """Encode the tokens; attributes never seen are left out."""
        return self.entries(text).compact()

    def entries(self, text: Columns) -> RawFeatures:
        """:meth:`transform` without putting the attributes in order."""
        if len(text) > _SHORT or not self.template.token_rules:
            return self._entries(_View(text, self.template), "tokens")
        if self._items is None or text.n_columns < self._items.n_columns:
            _check_columns(self.template, text)
            table, marks = self._table("tokens"), marks_outside(self.template)
            self._items = RuleItems(self.template, marks, table)
        return _as_entries(self._items.numbers(text), text, self.n_features)

    def transform_edges(self, text: Columns) -> Dataset:
        """Encode the edges: the features of token ``t`` describe the pair ``(t - 1, t)``.

        The first token of a sentence has none.
        """
        return self._entries(_View(text, self.template), "edges").compact()

    def _table(self, what: str) -> AttributeTable:
        vocabulary = self.edge_vocabulary if what == "edges" else self.vocabulary
        if vocabulary is None and self.n_hash is None:
            raise DataError("this TemplateEncoder is not fitted: call fit or fit_transform first")
        if what not in self._tables:
            self._tables[what] = AttributeTable(vocabulary, self.n_hash or 0)
        return self._tables[what]

    def _entries(self, view: _View, what: str) -> RawFeatures:
        of_edges, table = what == "edges", self._table(what)
        rules = self.template.edge_rules if of_edges else self.template.token_rules
        ids = _number_all(_apply(view, rules, inner=of_edges), table.numbers, view)
        return _as_entries(ids, view.text, table.n_features)

    def to_state(self) -> dict[str, Any]:
        """Return the fitted encoder as a dict of plain values."""
        state: dict[str, Any] = {"n_hash": self.n_hash, "min_count": self.min_count}
        for name in ("vocabulary", "edge_vocabulary"):
            state[name] = listed_names(getattr(self, name))
        return {**state, "template": self.template.to_state()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TemplateEncoder:
        """Build a fitted encoder from `to_state`'s dict."""
        encoder = cls(Template.from_state(state["template"]), state["n_hash"], state["min_count"])
        encoder.vocabulary = state["vocabulary"]
        encoder.edge_vocabulary = state["edge_vocabulary"]
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        names = {n: listed_names(getattr(self, n)) for n in ("vocabulary", "edge_vocabulary")}
        return {**self.__dict__, **names, "_tables": {}, "_items": None}


@dataclass
class _Applied:
    """A rule's attributes: the distinct names, and which one each token has (-1: none)."""

    names: list[str]
    codes: NDArray[np.int64]


@dataclass
class _View:
    """Columns as numbers of their distinct values, with the marks outside a sentence."""

    text: Columns
    template: Template
    starts: NDArray[np.int64] = field(init=False)
    lengths: NDArray[np.int64] = field(init=False)
    places: NDArray[np.int64] = field(init=False)
    _columns: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_columns(self.template, self.text)
        sizes = np.diff(self.text.offsets)
        self.starts = np.repeat(self.text.offsets[:-1], sizes)
        self.lengths = np.repeat(sizes, sizes)
        self.places = np.arange(self.text.n_tokens) - self.starts
        self.marks = marks_outside(self.template)
        self.reach = len(self.marks) // 2

    def macro(self, macro: Macro) -> tuple[NDArray[np.int64], list[str | None]]:
        """For each token the code of the macro's value, and the values by code."""
        numbers, values = self._values(macro.column, macro.change)
        return numbers[self._source(macro.row, macro.absolute)], values

    def _source(self, row: int, absolute: bool) -> NDArray[np.int64]:
        """Where each token finds its value: a token, or a mark behind the last token."""
        key = ("source", row, absolute)
        if key not in self._columns:
            at = self.places + row
            if absolute:
                at = np.where(row < 0, self.lengths + row, row - 1) + 0 * self.places
            n, reach = self.text.n_tokens, self.reach
            source = self.starts + at
            before, after = at < 0, at >= self.lengths
            source[before] = n - 1 - at[before]
            source[after] = n + reach + (at - self.lengths)[after]
            self._columns[key] = source
        return self._columns[key]  # type: ignore[no-any-return]

    def _values(self, column: int, change: str) -> tuple[NDArray[np.int64], list[str | None]]:
        key = (column, change)
        if key in self._columns:
            return self._columns[key]  # type: ignore[no-any-return]
        if change:
            numbers, values = self._values(column, "")
            numbers, values = _change(numbers, values, change)
        else:
            index = ValueIndex()
            found = index.numbers(self.text.columns[column] if self.text.n_tokens else [])
            marks = np.arange(len(index), len(index) + 2 * self.reach)
            numbers = np.concatenate([found, marks])
            values = [*index, *self.marks]
        self._columns[key] = (numbers, values)
        return numbers, values


def marks_outside(template: Template) -> list[str | None]:
    """What stands 1, 2, ... places before the start, then after the end, of a sentence."""
    reach = max((abs(macro.row) for macro in template.macros()), default=0)
    if template.outside == "absent":
        return [None] * (2 * reach)
    far = 4 if template.outside == "wapiti" else reach
    return [
        mark.format(d if d <= far else "#")
        for mark in _MARKS[template.outside]
        for d in range(1, reach + 1)
    ]


def _check_columns(template: Template, text: Columns) -> None:
    if template.n_columns > text.n_columns and text.n_tokens:
        raise DataError(
            f"the template uses column {template.n_columns - 1}, but there are only "
            f"{text.n_columns} columns (0..{text.n_columns - 1}) without the labels"
        )


def _change(
    numbers: NDArray[np.int64], values: list[str | None], name: str
) -> tuple[NDArray[np.int64], list[str | None]]:
    change = change_of(name)
    index: dict[str | None, int] = {}
    changed = [None if value is None else change(value) for value in values]
    new = np.array([index.setdefault(value, len(index)) for value in changed], dtype=np.int64)
    return (new[numbers] if len(new) else numbers), list(index)


def _apply(view: _View, rules: Sequence[Rule], inner: bool = False) -> Iterator[_Applied]:
    return (_apply_rule(view, rule, inner) for rule in rules)


def _apply_rule(view: _View, rule: Rule, inner: bool) -> _Applied:
    """Combine the macros' codes pair by pair; name only the combinations that occur."""
    n = view.text.n_tokens
    if inner:
        there = view.places > 0
    elif rule.only:
        there = view.places == (0 if rule.only == "first" else view.lengths - 1)
    else:
        there = np.ones(n, dtype=np.bool_)
    columns = [view.macro(macro) for macro in rule.macros]
    for codes, values in columns:
        if None in values:
            there = there & np.array([value is not None for value in values])[codes]
    tokens = np.flatnonzero(there)
    combined, size = np.zeros(len(tokens), dtype=np.int64), 1
    examples = tokens[:1]
    for codes, values in columns:
        combined, examples = _distinct(combined * len(values) + codes[tokens], size * len(values))
        examples, size = tokens[examples], len(examples)
    result = np.full(n, -1, dtype=np.int64)
    result[tokens] = combined
    return _Applied(_names(rule, columns, examples), result)


def _distinct(codes: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the distinct codes (all below `size`); return the numbers and a place of each."""
    if size > _TABLE_ENTRIES * len(codes):
        _, places, numbers = np.unique(codes, return_index=True, return_inverse=True)
        return numbers.reshape(-1), places
    place = np.full(size, -1, dtype=np.int64)
    place[codes] = np.arange(len(codes))
    seen = place >= 0
    return (np.cumsum(seen) - 1)[codes], place[seen]


def _names(rule: Rule, columns: list[Any], examples: NDArray[np.int64]) -> list[str]:
    if not columns:
        return [rule.parts[0]] * len(examples)
    chosen = [map(values.__getitem__, codes[examples].tolist()) for codes, values in columns]
    return list(map(rule.pattern.__mod__, zip(*chosen)))


def _learn(applied: Iterator[_Applied], view: _View, min_count: int) -> tuple[Dataset, list[str]]:
    index = ValueIndex()
    ids, names = drop_rare(_number_all(applied, index.numbers, view), list(index), min_count)
    return _as_entries(ids, view.text, len(names)).compact(), names


def _number_all(
    applied: Iterator[_Applied], number: Callable[[list[str]], NDArray[np.int32]], view: _View
) -> NDArray[np.int32]:
    """Numbers of the attributes, tokens by rules, -1 where a rule gives none."""
    columns = [np.append(number(rule.names), np.int32(-1))[rule.codes] for rule in applied]
    if not columns:
        return np.empty((view.text.n_tokens, 0), dtype=np.int32)
    return np.stack(columns, axis=1)


def _as_entries(ids: NDArray[np.int32], text: Columns, n_features: int) -> RawFeatures:
    lengths = np.full(ids.shape[0], ids.shape[1], dtype=np.int64)
    return RawFeatures(text.offsets, lengths, ids.reshape(-1), None, n_features)
