"""From what users give an estimator to a Dataset: features, columns with a template, masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import Dataset
from cliquewise.data.encode import FeatureEncoder
from cliquewise.data.formats.conll import Columns
from cliquewise.data.labels import Labels
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.data.templates import Template
from cliquewise.errors import DataError


class SequenceEncoder:
    """Sequences of features, or columns and a template, to a Dataset.

    Parameters
    ----------
    template : Template, str or path, optional
        A template, the name of a built-in one, or a template file.
    n_hash, min_count
        See :class:`~cliquewise.data.FeatureEncoder`.

    Examples
    --------
    >>> SequenceEncoder().fit_transform([[["a"], ["b"]]]).n_features
    2
    """

    def __init__(self, template: Any = None, n_hash: int | None = None, min_count: int = 1):
        self.inner: FeatureEncoder | TemplateEncoder
        if template is None:
            self.inner = FeatureEncoder(n_hash, min_count)
        else:
            self.inner = TemplateEncoder(_template(template), n_hash, min_count)

    def _prepared(self, X: Any) -> Any:
        if isinstance(self.inner, TemplateEncoder) and not isinstance(X, Columns):
            return Columns.from_rows(X)
        return X

    def fit_transform(self, X: Any) -> Dataset:
        """Learn the attributes and encode."""
        return self.inner.fit_transform(self._prepared(X))

    def transform(self, X: Any) -> Dataset:
        """Encode; attributes that were not learned are left out."""
        return self.inner.transform(self._prepared(X))

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
        """An encoder that knows the attributes of ``X`` as well, after those of this one."""
        if self.inner.vocabulary is None:
            return self
        fresh = SequenceEncoder.__new__(SequenceEncoder)
        fresh.inner = type(self.inner).from_state(self.inner.to_state())
        other = SequenceEncoder.__new__(SequenceEncoder)
        state = self.inner.to_state()
        if isinstance(self.inner, TemplateEncoder):
            other.inner = TemplateEncoder(self.inner.template, None, self.inner.min_count)
        else:
            other.inner = FeatureEncoder(None, state["min_count"])
        other.fit_transform(X)
        known = set(self.inner.vocabulary)
        new = [name for name in other.inner.vocabulary or [] if name not in known]
        state["vocabulary"] = [*self.inner.vocabulary, *new]
        if "n_features" in state:
            state["n_features"] = len(state["vocabulary"])
        fresh.inner = type(self.inner).from_state(state)
        return fresh

    def widened(self, data: Dataset) -> Dataset:
        """Older data under this encoder's larger number of attributes."""
        return replace(data, n_features=self.n_features)


def _template(template: Any) -> Template:
    if isinstance(template, Template):
        return template
    if template in ("chunking", "ner"):
        return Template.builtin(template)
    if isinstance(template, str | Path):
        return Template.load(template)
    raise DataError("template is a Template, 'chunking', 'ner' or the path of a template file")


def allowed_mask(
    allowed: Sequence[Sequence[Any]], labels: Labels, offsets: NDArray[np.int64]
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
    index = {c: i for i, c in enumerate(labels.classes)}
    mask = np.ones((int(offsets[-1]), len(labels)), dtype=bool)
    for i, sequence in enumerate(allowed):
        if sequence is None:
            continue
        if len(sequence) != lengths[i]:
            raise DataError(
                f"allowed[{i}] has {len(sequence)} tokens; the sequence has {lengths[i]}"
            )
        for t, options in enumerate(sequence):
            if options is None:
                continue
            chosen = {options} if isinstance(options, str) else set(options)
            unknown = [c for c in chosen if c not in index]
            if unknown or not chosen:
                what = f"names {unknown[0]!r}, which is no class" if unknown else "is empty"
                raise DataError(f"allowed[{i}][{t}] {what}")
            row = mask[offsets[i] + t]
            row[:] = False
            row[[index[c] for c in chosen]] = True
    return mask
