"""Tables in, answers as columns of the same library out; see ``data.frames``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cliquewise.data.column_values import plain_cells
from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.frames import Layout, Table, TableSchema
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.errors import DataError, warn_user

Answer = Callable[[Layout, Any, Any, dict[str, Any]], Any]
Method = TypeVar("Method", bound=Callable[..., Any])


class SampleInputs(NamedTuple):
    """What `fit` is told of sequences and tokens beside their labels."""

    sample_weight: Any = None
    token_weight: Any = None
    allowed: Any = None

    def by_sequence(self, layout: Layout | None) -> SampleInputs:
        """Columns of a table as lists."""
        if layout is None:
            return self
        own = {n: getattr(self, n) for n in ("token_weight", "allowed")}
        return self._replace(**{n: layout.given(v, n) for n, v in own.items() if v is not None})


class TrainingTable(NamedTuple):
    """What a table (or what is none) says to an estimator that learns."""

    X: Any
    y: Any
    given: SampleInputs
    schema: TableSchema | None = None


def _table(tagger: Any, X: Any) -> Table | None:
    """A table if that is what ``X`` is, or what ``by`` says it should be."""
    table = Table.of(X)
    if table is None and tagger.sequence_column is not None and getattr(X, "ndim", 0) == 2:
        raise DataError(
            f"sequence_column={tagger.sequence_column!r} names a column, but X is a "
            f"{type(X).__name__}, whose columns have no names: pass a table (in a pipeline, "
            "the previous step returns one after "
            'set_output(transform="pandas"))'
        )
    return table


def read_training_table(tagger: Any, X: Any, y: Any, given: SampleInputs) -> TrainingTable:
    """A table as sequences and labels; all else as it is."""
    table = _table(tagger, X)
    if table is None:
        return TrainingTable(X, y, given)
    if y is None:
        raise DataError('give y: the name of the column of labels, fit(table, "tag"), or a column')
    named = y if isinstance(y, str) else getattr(y, "name", None)
    label = named if named in table.names else None
    others = (_named(table, column) for column in (given.token_weight, given.allowed))
    layout = Layout.of(table, tagger.sequence_column, None, label, *others)
    _warn_of_another_order(X, y)
    labels = layout.labels(y)
    if not layout.columns:
        raise DataError(
            f"no column describes the tokens: the table has {', '.join(table.names)} alone"
        )
    for name in layout.columns:
        if label is None and labels and layout.given(name, name) == labels:
            raise DataError(
                f"column {name!r} holds the labels themselves; give its name, fit(table, {name!r}),"
                " or leave it out of the table"
            )
    tokens, _ = layout.tokens(None if tagger.template is None else True)
    given = given.by_sequence(layout)
    name_of_y = named if isinstance(named, str) else None
    schema = TableSchema(layout.columns, name_of_y, layout.kinds())
    return TrainingTable(tokens, labels, given, schema)


def _named(table: Table, column: Any) -> str | None:
    """The name of a column of the table, which is given by it or as the column itself."""
    if column is None or isinstance(column, str):
        return column
    name = getattr(column, "name", None)
    is_own = name in table.names and plain_cells(column) == table.cells(name)
    return name if is_own else None


def laid_out(tagger: Any, X: Any) -> tuple[Layout | None, Any]:
    """How a table is laid out for a fitted tagger, and its sequences; others as they are."""
    table = _table(tagger, X)
    if table is None:
        return None, X
    tagger._check_fitted()
    encoder: SequenceEncoder = tagger.encoder_
    schema = encoder.table
    layout = Layout.of(table, tagger.sequence_column, None if schema is None else schema.columns)
    is_text = isinstance(encoder.inner, TemplateEncoder)
    if not is_text and schema is not None:
        _check_kinds(layout, schema.kinds)
    return layout, layout.tokens(is_text)[0]


def _check_kinds(layout: Layout, known: dict[str, str]) -> None:
    """Refuse numbers that have become text, or text numbers: no weight would fit them."""
    for name, kind in layout.kinds().items():
        if known.get(name, kind) != kind:
            was, now = ("no text", "is") if kind == "text" else ("text", "is not")
            raise DataError(
                f"column {name!r} was {was} in training, and now it {now}: convert it "
                f"(table[{name!r}].astype({'float' if kind == 'text' else 'str'}))"
            )


def labeled(tagger: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Sequences and labels of a table for a fitted tagger; others as they are."""
    layout, sequences = laid_out(tagger, X)
    if layout is None:
        return X, y
    _warn_of_another_order(X, y)
    return sequences, layout.labels(y)


def _warn_of_another_order(X: Any, y: Any) -> None:
    """Rows are taken as they come, as everywhere in scikit-learn; pandas would go by the index."""
    own: Any = getattr(X, "index", None)
    other: Any = getattr(y, "index", None)
    if not hasattr(own, "equals") or not hasattr(other, "equals") or own.equals(other):
        return
    if set(own) == set(other):
        warn_user(
            "y has the index of the table in another order, and is taken row by row, whatever the "
            "index says; give table.loc[y.index], or y.loc[table.index], if that is not meant"
        )


def one_sequence(tagger: Any, x: Any) -> Any:
    """One sequence, which may be the table of its rows."""
    tagger._check_fitted()
    if tagger.encoder_.table is None:
        return x
    layout, sequences = laid_out(tagger, x)
    if layout is None:
        return x
    if len(sequences) != 1:
        raise DataError(f"give the rows of one sequence; this table has {len(sequences)} of them")
    return sequences[0]


def takes_tables(answer: Answer) -> Callable[[Method], Method]:
    """Let a method take a table as ``X``, columns as ``y`` and ``allowed``, and answer in kind."""

    def decorate(method: Method) -> Method:
        signature = inspect.signature(method)

        @wraps(method)
        def with_tables(self: Any, X: Any, *args: Any, **options: Any) -> Any:
            layout, sequences = laid_out(self, X)
            if layout is None:
                return method(self, X, *args, **options)
            given = signature.bind(self, sequences, *args, **options).arguments
            if given.get("y") is not None:
                _warn_of_another_order(X, given["y"])
                given["y"] = layout.labels(given["y"])
            if given.get("allowed") is not None:
                given["allowed"] = layout.given(given["allowed"], "allowed")
            return answer(layout, method(**given), self, given)

        return with_tables  # type: ignore[return-value]

    return decorate


def as_labels(layout: Layout, answer: Any, tagger: Any, given: dict[str, Any]) -> Any:
    """A column of labels, one per row (or a list per row), with the name of that of training."""
    schema = tagger.encoder_.table
    name = "label" if schema is None or not schema.label else schema.label
    return layout.table.column(layout.scattered(answer), name)


def as_probabilities(layout: Layout, answer: Any, tagger: Any, given: dict[str, Any]) -> Any:
    """A table with a column per label. Pairs of neighbors and dicts stay what they are."""
    if any(not isinstance(part, np.ndarray) for part in answer):
        return answer
    names = [str(label) for label in tagger.classes_]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(
            f"several labels are written {twice!r}, and a table has one column per name: make all "
            "labels strings, or call predict_marginals with lists"
        )
    if layout.order is not None:
        by_row = np.empty((len(names), len(layout.order)))
        if answer:
            by_row[:, layout.order] = np.concatenate(answer).T
        return layout.table.frame(dict(zip(names, by_row, strict=True)), same_rows=True)
    columns = {
        name: layout.scattered([part[:, at].tolist() for part in answer])
        for at, name in enumerate(names)
    }
    return layout.table.frame(columns, same_rows=True)


#: Columns of spans, and what is in them where there are none.
SPANS = {"start": np.int64, "end": np.int64, "type": np.str_, "probability": np.float64}


def as_spans(layout: Layout, answer: Any, tagger: Any, given: dict[str, Any]) -> Any:
    """A table with a row per span: its sequence, its place among the tokens of this, its type."""
    scored = given.get("proba") or given.get("candidates") == "all"
    scored = scored or not (given.get("threshold") is None is given.get("k"))
    fields = list(SPANS) if scored else list(SPANS)[:3]
    own = (
        "sequence"
        if tagger.sequence_column is None or tagger.sequence_column in SPANS
        else str(tagger.sequence_column)
    )
    alike = {*map(type, layout.ids)} in ({int}, {float}, {str})
    columns: dict[str, Any] = {own: np.array(layout.ids[:1])[:0] if alike else []}
    columns |= {name: np.empty(0, SPANS[name]) for name in fields}
    named = [(one, *span) for one, spans in zip(layout.ids, answer, strict=True) for span in spans]
    if named:
        columns = dict(zip(columns, map(list, zip(*named, strict=True)), strict=True))
    return layout.table.frame(columns, same_rows=False)


def as_it_is(layout: Layout, answer: Any, tagger: Any, given: dict[str, Any]) -> Any:
    """Numbers, and lists of answers in the order of the sequences."""
    return answer
