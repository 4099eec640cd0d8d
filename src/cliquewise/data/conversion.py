"""SequenceEncoder: convert the input of estimators (features, columns, masks) to a Dataset."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.builtin_templates import BUILTIN, DEFAULT
from cliquewise.data.columns import Columns, Sentence
from cliquewise.data.dataset import Dataset
from cliquewise.data.encode import FeatureEncoder
from cliquewise.data.formats.column_format import ColumnFormat
from cliquewise.data.frames import TableSchema, frame_rows, is_table
from cliquewise.data.labels import Labels
from cliquewise.data.raw_features import RawFeatures
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.data.templates import Template
from cliquewise.errors import DataError, FormatError


class SequenceEncoder:
    """Convert sequences of features, or columns and a template, to a Dataset.

    Parameters
    ----------
    template : Template, str or path, optional
        A template, the name of a built-in one, or a template file. Columns that come without one
        get `DEFAULT`.
    n_hash, min_count
        See :class:`~cliquewise.data.FeatureEncoder`.
    table : TableSchema, optional
        The table that the sequences come from.

    Attributes
    ----------
    inner : FeatureEncoder or TemplateEncoder
    n_columns : int or None
        Number of columns of the text; None without a template.
    builtin_template : str or None
        Name of the built-in template, which adapts to the number of columns; `DEFAULT` for
        columns that come without a template.
    file_format : ColumnFormat or None
        Format of the file that the columns were read from.

    Examples
    --------
    >>> SequenceEncoder().fit_transform([[["a"], ["b"]]]).n_features
    2
    """

    def __init__(
        self,
        template: Any = None,
        n_hash: int | None = None,
        min_count: int = 1,
        table: TableSchema | None = None,
    ):
        self.inner: FeatureEncoder | TemplateEncoder
        self.n_columns: int | None = None
        self.file_format: ColumnFormat | None = None
        self.table = table
        is_builtin = isinstance(template, str) and template in BUILTIN
        self.builtin_template: str | None = template if is_builtin else None
        if template is None:
            self.inner = FeatureEncoder(n_hash, min_count)
        else:
            self.inner = TemplateEncoder(_template(template), n_hash, min_count)

    @classmethod
    def from_fitted(
        cls,
        inner: FeatureEncoder | TemplateEncoder,
        n_columns: int | None,
        file_format: ColumnFormat | None = None,
        table: TableSchema | None = None,
    ) -> SequenceEncoder:
        """Wrap a fitted encoder."""
        made = cls.__new__(cls)
        made.inner, made.n_columns, made.builtin_template = inner, n_columns, None
        made.file_format, made.table = file_format, table
        return made

    def _prepared(self, X: Any) -> Any:
        if isinstance(self.inner, TemplateEncoder) and not isinstance(X, Columns):
            return _columns(X)
        return X

    def fit_transform(self, X: Any) -> Dataset:
        """Learn the attributes and encode."""
        if isinstance(X, list) and X and all(isinstance(sentence, Sentence) for sentence in X):
            X = Columns.from_rows(X)
        if isinstance(X, Columns) and isinstance(self.inner, FeatureEncoder):
            self.builtin_template, given = DEFAULT, self.inner
            self.inner = TemplateEncoder(_template(DEFAULT), given.n_hash, given.min_count)
        X = self._prepared(X)
        if isinstance(self.inner, TemplateEncoder):
            self.n_columns, self.file_format = X.n_columns, X.format
            if self.builtin_template is not None and X.n_columns:
                self.inner.template = Template.builtin(self.builtin_template, X.n_columns)
        return self._with_edges(self.inner.fit_transform(X), X)

    def _with_edges(self, data: Dataset, X: Any) -> Dataset:
        """Add the attributes of token pairs that a template's B rules give."""
        if isinstance(self.inner, TemplateEncoder) and self.inner.template.edge_rules:
            return replace(data, edges=self.inner.transform_edges(X))
        return data

    def transform(self, X: Any) -> Dataset:
        """Encode; attributes that were not learned are left out."""
        X = self._prepared(X)
        return self._with_edges(self.inner.transform(X), X)

    def entries(self, X: Any) -> RawFeatures:
        """Return the attributes of tokens, unsorted, without those of token pairs."""
        return self.inner.entries(self._prepared(X))

    @property
    def n_features(self) -> int:
        """Number of attributes."""
        return int(self.inner.n_features)

    @property
    def n_features_in(self) -> int | None:
        """Number of columns of numeric input; None for named attributes."""
        if isinstance(self.inner, FeatureEncoder) and self.inner.kind == "numbers":
            return self.n_features
        return None

    def names(self) -> list[str]:
        """Names of the attributes."""
        vocabulary = self.inner.vocabulary
        if vocabulary is None:
            return [f"x{i}" for i in range(self.n_features)]
        return list(vocabulary)

    def extended(self, X: Any) -> SequenceEncoder:
        """Return an encoder with the attributes of ``X`` appended to those of this one."""
        if self.inner.vocabulary is None:
            return self
        state = self.inner.to_state()
        other = SequenceEncoder.from_fitted(
            TemplateEncoder(self.inner.template, None, self.inner.min_count)
            if isinstance(self.inner, TemplateEncoder)
            else FeatureEncoder(None, self.inner.min_count),
            self.n_columns,
        )
        other.fit_transform(X)
        learned = other.inner.to_state()
        for part in ("vocabulary", "edge_vocabulary"):  # of tokens, and of pairs of them
            if part in state:
                if learned[part] is None:
                    raise DataError(
                        "the examples before had attributes with names; these have numbers alone"
                    )
                known = set(state[part])
                state[part] = [*state[part], *(n for n in learned[part] if n not in known)]
        if "n_features" in state:
            state["n_features"] = len(state["vocabulary"])
        return self._like(state)

    def keeping(self, tokens: NDArray[np.bool_], pairs: NDArray[np.bool_]) -> SequenceEncoder:
        """Return an encoder with only some named attributes of tokens and of token pairs."""
        if tokens.all() and pairs.all():
            return self
        state = self.inner.to_state()
        for part, kept in (("vocabulary", tokens), ("edge_vocabulary", pairs)):
            if state.get(part) is not None and not kept.all():
                state[part] = [n for n, there in zip(state[part], kept.tolist()) if there]
        if "n_features" in state and state["vocabulary"] is not None:
            state["n_features"] = len(state["vocabulary"])
        return self._like(state)

    def _like(self, state: dict[str, Any]) -> SequenceEncoder:
        """Return a copy whose inner encoder has another state."""
        inner = type(self.inner).from_state(state)
        return SequenceEncoder.from_fitted(inner, self.n_columns, self.file_format, self.table)

    def widened(self, data: Dataset) -> Dataset:
        """Return older data with this encoder's larger number of attributes."""
        edges = data.edges
        if edges is not None and isinstance(self.inner, TemplateEncoder):
            edges = replace(edges, n_features=self.inner.n_edge_features)
        return replace(data, n_features=self.n_features, edges=edges)


def _template(template: Any) -> Template:
    if isinstance(template, str) and template in BUILTIN:
        return Template.builtin(template)
    if isinstance(template, str) and not Path(template).exists():
        known = ", ".join(BUILTIN)
        raise FormatError(
            f"cannot be opened: no such file, nor one of the built-in templates {known}", template
        )
    if isinstance(template, str | Path):
        template = Template.load(template)
    if not isinstance(template, Template):
        names = ", ".join(map(repr, BUILTIN))
        raise DataError(f"template is a Template, one of {names}, or the path of a template file")
    return template


def _columns(X: Any) -> Columns:
    """Convert rows of strings, one per token, to columns; all rows must have the same length."""
    if isinstance(X, str | bytes | dict) or not hasattr(X, "__iter__"):
        raise DataError("with a template, X holds Columns (see read_conll) or rows of strings")
    if is_table(X):
        raise DataError(
            "X is one data frame; with a template, give a list of them, one per sequence"
        )
    sentences = [_plain_rows(sentence) for sentence in X]
    if not _are_rows(sentences):
        _refuse_rows(sentences)
    return Columns.from_rows(sentences)


def _are_rows(sentences: list[Any]) -> bool:
    """Return whether all tokens are lists of equally many strings, without a Python loop."""
    if not {list, tuple}.issuperset(map(type, sentences)):
        return False
    rows = list(chain.from_iterable(sentences))
    if not {list, tuple}.issuperset(map(type, rows)) or len(set(map(len, rows))) > 1:
        return False
    return {str}.issuperset(map(type, chain.from_iterable(rows)))


def _refuse_rows(sentences: list[Any]) -> None:
    """Raise an error for the first wrong token; subclasses of str are accepted."""
    width: int | None = None
    for i, sentence in enumerate(sentences):
        for t, row in enumerate(sentence):
            if not isinstance(row, list | tuple) or not all(isinstance(v, str) for v in row):
                raise DataError(
                    f"example {i}, token {t}: with a template, a token is a list of strings, "
                    f"its columns, not {row!r:.60}"
                )
            width = len(row) if width is None else width
            if len(row) != width:
                raise DataError(
                    f"example {i}, token {t}: {len(row)} columns; the tokens before it have {width}"
                )


def _plain_rows(sentence: Any) -> Any:
    """Convert the tokens of a frame or an array to lists of columns; return others unchanged."""
    if is_table(sentence):
        return [list(row.values()) for row in frame_rows(sentence)]
    return sentence.tolist() if isinstance(sentence, np.ndarray) else sentence


def allowed_mask(
    allowed: Sequence[Sequence[Any] | None], labels: Labels, offsets: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(tokens, K) mask from what each token may be; None allows everything.

    Examples
    --------
    >>> import numpy as np
    >>> allowed_mask([[None, {"a"}]], Labels(["a", "b"]), np.array([0, 2])).tolist()
    [[True, True], [True, False]]
    """
    lengths = np.diff(offsets)
    if len(allowed) != len(lengths):
        raise DataError(f"allowed has {len(allowed)} sequences; X has {len(lengths)}")
    given = [[None] * n if s is None else s for s, n in zip(allowed, lengths.tolist())]
    try:
        numbers, mask = labels.encode([list(map(_options, s)) for s in given], offsets)
    except DataError as error:
        raise DataError(f"allowed: {error}") from None
    if mask is None:
        mask = np.ones((len(numbers), len(labels)), dtype=bool)
    single = np.flatnonzero(numbers >= 0)
    mask[single] = False
    mask[single, numbers[single]] = True
    return mask


def _options(options: Any) -> Any:
    is_one = isinstance(options, str) or not isinstance(options, Collection)
    return options if is_one else tuple(options)
