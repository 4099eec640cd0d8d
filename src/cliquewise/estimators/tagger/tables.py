"""Tables (pandas, polars, pyarrow) as input, and predictions as columns of the same library.

``cliquewise.data.frames`` converts between tables and sequences.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from cliquewise.data.column_values import plain_cells
from cliquewise.data.frames import Layout, Table, TableSchema
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.errors import DataError, warn_user

if TYPE_CHECKING:
    from cliquewise.estimators.tagger.chain_tagger import ChainTagger

#: Converts an answer for sequences to one for a table; gets the call's arguments by name.
Convert = Callable[[Layout, Any, "ChainTagger", dict[str, Any]], Any]
Method = TypeVar("Method", bound=Callable[..., Any])


class SampleInputs(NamedTuple):
    """Arguments of ``fit`` about sequences and tokens, other than their labels."""

    sample_weight: Any = None
    token_weight: Any = None
    allowed: Any = None

    def by_sequence(self, layout: Layout | None) -> SampleInputs:
        """Return the columns of a table as lists by sequence."""
        if layout is None:
            return self
        own = {n: getattr(self, n) for n in ("token_weight", "allowed")}
        return self._replace(**{n: layout.given(v, n) for n, v in own.items() if v is not None})


class TrainingTable(NamedTuple):
    """Sequences and labels to train on, and the columns of the table that they came from."""

    X: Any
    y: Any
    inputs: SampleInputs
    schema: TableSchema | None = None


def _table(X: Any, sequence_column: str | None) -> Table | None:
    """Return ``X`` as a table, or None; raise an error if ``sequence_column`` needs a table."""
    table = Table.of(X)
    if table is None and sequence_column is not None and getattr(X, "ndim", 0) == 2:
        raise DataError(
            f"sequence_column={sequence_column!r} names a column, but X is a {type(X).__name__}, "
            "whose columns have no names: pass a table (in a pipeline, the previous step returns "
            'one after set_output(transform="pandas"))'
        )
    return table


def read_training_table(
    X: Any, y: Any, inputs: SampleInputs, sequence_column: str | None, has_template: bool
) -> TrainingTable:
    """Convert a table to sequences and labels; return other input unchanged."""
    table = _table(X, sequence_column)
    if table is None:
        return TrainingTable(X, y, inputs)
    if y is None:
        raise DataError('y is missing: pass the name of the label column, fit(table, "tag")')
    named = y if isinstance(y, str) else getattr(y, "name", None)
    label = named if named in table.names else None
    others = (_column_name(table, column) for column in (inputs.token_weight, inputs.allowed))
    layout = Layout.of(table, sequence_column, None, label, *others)
    _warn_of_another_order(X, y)
    labels = layout.labels(y)
    if not layout.columns:
        raise DataError(
            f"no column describes the tokens: the table has only {', '.join(table.names)}"
        )
    for name in layout.columns:
        if label is None and labels and layout.given(name, name) == labels:
            raise DataError(
                f"column {name!r} holds the labels; pass its name, fit(table, {name!r}), "
                "or remove it from the table"
            )
    tokens, _ = layout.tokens(True if has_template else None)
    inputs = inputs.by_sequence(layout)
    name_of_y = named if isinstance(named, str) else None
    schema = TableSchema(layout.columns, name_of_y, layout.kinds())
    return TrainingTable(tokens, labels, inputs, schema)


def _column_name(table: Table, column: Any) -> str | None:
    """Return the name of a column of the table, given by name or as the column itself."""
    if column is None or isinstance(column, str):
        return column
    name = getattr(column, "name", None)
    is_own = name in table.names and plain_cells(column) == table.cells(name)
    return name if is_own else None


def read_table(chain: ChainTagger, X: Any) -> tuple[Layout | None, Any]:
    """Return the layout of a table for a fitted chain and its sequences; (None, X) if no table."""
    table = _table(X, chain.sequence_column)
    if table is None:
        return None, X
    schema = chain.encoder_.table
    layout = Layout.of(table, chain.sequence_column, None if schema is None else schema.columns)
    is_text = isinstance(chain.encoder_.inner, TemplateEncoder)
    if not is_text and schema is not None:
        _check_kinds(layout, schema.kinds)
    return layout, layout.tokens(is_text)[0]


def _check_kinds(layout: Layout, known: dict[str, str]) -> None:
    """Raise an error for columns that changed between text and numbers: no weight would match."""
    for name, kind in layout.kinds().items():
        if known.get(name, kind) != kind:
            was, now = ("no text", "is") if kind == "text" else ("text", "is not")
            raise DataError(
                f"column {name!r} was {was} in training, and now it {now}: convert it "
                f"(table[{name!r}].astype({'float' if kind == 'text' else 'str'}))"
            )


def read_labeled_table(chain: ChainTagger, X: Any, y: Any) -> tuple[Any, Any]:
    """Return the sequences and labels of a table for a fitted chain; other input unchanged."""
    layout, sequences = read_table(chain, X)
    if layout is None:
        return X, y
    _warn_of_another_order(X, y)
    return sequences, layout.labels(y)


def _warn_of_another_order(X: Any, y: Any) -> None:
    """Warn if the indexes of X and y differ in order: rows are matched by position."""
    own: Any = getattr(X, "index", None)
    other: Any = getattr(y, "index", None)
    if not hasattr(own, "equals") or not hasattr(other, "equals") or own.equals(other):
        return
    if set(own) == set(other):
        warn_user(
            "the index of y has another order than that of the table; rows are matched by "
            "position. If this is not intended, pass table.loc[y.index] or y.loc[table.index]"
        )


def one_sequence(chain: ChainTagger, x: Any) -> Any:
    """Return one sequence, which may be given as a table of its rows."""
    if chain.encoder_.table is None:
        return x
    layout, sequences = read_table(chain, x)
    if layout is None:
        return x
    if len(sequences) != 1:
        raise DataError(f"pass the rows of one sequence; this table has {len(sequences)} sequences")
    return sequences[0]


def takes_tables(convert: Convert) -> Callable[[Method], Method]:
    """Return a decorator for methods of a chain that accept tables.

    ``X`` may then be a table, and ``y`` and ``allowed`` its columns. ``convert`` turns the answer
    for sequences into one for the table.
    """

    def decorate(method: Method) -> Method:
        signature = inspect.signature(method)

        @wraps(method)
        def with_tables(self: ChainTagger, X: Any, *args: Any, **options: Any) -> Any:
            layout, sequences = read_table(self, X)
            if layout is None:
                return method(self, X, *args, **options)
            given = signature.bind(self, sequences, *args, **options).arguments
            if given.get("y") is not None:
                _warn_of_another_order(X, given["y"])
                given["y"] = layout.labels(given["y"])
            if given.get("allowed") is not None:
                given["allowed"] = layout.given(given["allowed"], "allowed")
            return convert(layout, method(**given), self, given)

        return with_tables  # type: ignore[return-value]

    return decorate


def as_labels(layout: Layout, answer: Any, chain: ChainTagger, given: dict[str, Any]) -> Any:
    """Return a column with the name of the training labels: one label (or list) per row."""
    schema = chain.encoder_.table
    name = "label" if schema is None or not schema.label else schema.label
    return layout.table.column(layout.scattered(answer), name)


def as_probabilities(layout: Layout, answer: Any, chain: ChainTagger, given: dict[str, Any]) -> Any:
    """Return a table with a column per label; pairwise marginals and dicts are unchanged."""
    if any(not isinstance(part, np.ndarray) for part in answer):
        return answer
    names = [str(label) for label in chain.classes_]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(
            f"several labels are written {twice!r}, and column names must be unique: make all "
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


#: Columns of a table of spans, and their types in a table without rows.
SPANS = {"start": np.int64, "end": np.int64, "type": np.str_, "probability": np.float64}


def as_spans(layout: Layout, answer: Any, chain: ChainTagger, given: dict[str, Any]) -> Any:
    """Return a table with a row per span: its sequence, its first and last token, its type."""
    scored = given.get("proba") or given.get("candidates") == "all"
    scored = scored or not (given.get("threshold") is None is given.get("k"))
    fields = list(SPANS) if scored else list(SPANS)[:3]
    own = (
        "sequence"
        if chain.sequence_column is None or chain.sequence_column in SPANS
        else str(chain.sequence_column)
    )
    alike = {*map(type, layout.ids)} in ({int}, {float}, {str})
    columns: dict[str, Any] = {own: np.array(layout.ids[:1])[:0] if alike else []}
    columns |= {name: np.empty(0, SPANS[name]) for name in fields}
    rows = [(one, *span) for one, spans in zip(layout.ids, answer, strict=True) for span in spans]
    if rows:
        columns = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
    return layout.table.frame(columns, same_rows=False)


def unchanged(layout: Layout, answer: Any, chain: ChainTagger, given: dict[str, Any]) -> Any:
    """Return the answer: a number, or a list in the order of the sequences."""
    return answer
