"""A spaCy pipeline component that finds entities with a chain, and their probabilities.

>>> nlp.add_pipe("cliquewise", config={"model": "names.cw"})  # doctest: +SKIP
>>> doc = nlp("Anna lives in New York")  # doctest: +SKIP
>>> doc.ents, doc.spans["cliquewise"].attrs["scores"]  # doctest: +SKIP

Needs the extra ``cliquewise[spacy]``. spaCy discovers the component automatically.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.errors import DataError, MissingDependencyError
from cliquewise.estimators.files import load
from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

try:
    from spacy.language import Language
    from spacy.tokens import Doc, Span, SpanGroup
    from spacy.util import minibatch
except ImportError as error:
    raise MissingDependencyError(
        "the component needs spaCy: pip install 'cliquewise[spacy]'"
    ) from error

#: Name of the component and of its span group.
NAME = "cliquewise"
_FILE = "model.cw"


class ChainEntities:
    """Find entities of documents with a fitted tagger.

    Parameters
    ----------
    model : SequenceTagger or path
        A tagger fitted on columns (a file, a table of text, or rows of strings with a template).
    columns : sequence of str, default=("text",)
        The token attributes for these columns: ``text``, ``tag_``, ``lemma_``...
    threshold : float, optional
        Leave out less probable entities.
    all_above : float, optional
        Put all spans of at least this probability, which may overlap, into the group; by default
        it has the spans of ``doc.ents``.
    spans_key : str, default="cliquewise"
        The group of ``doc.spans``; its ``attrs["scores"]`` are the probabilities.
    """

    def __init__(
        self,
        model: SequenceTagger | str | Path | None = None,
        *,
        columns: Sequence[str] = ("text",),
        threshold: float | None = None,
        all_above: float | None = None,
        spans_key: str = NAME,
    ):
        self._model = model
        self.columns = list(columns)
        self.threshold = threshold
        self.all_above = all_above
        self.spans_key = spans_key

    @cached_property
    def tagger(self) -> SequenceTagger:
        """Return the tagger; load it on first use, because a pipeline from disk brings its own."""
        if self._model is None:
            raise DataError('no model: use nlp.add_pipe("cliquewise", config={"model": "m.cw"})')
        found = self._model if isinstance(self._model, SequenceTagger) else load(self._model)
        if not isinstance(found, SequenceTagger):
            raise DataError(f"the model is a {type(found).__name__}, not a SequenceTagger")
        known = found.encoder_.n_columns
        if known != len(self.columns):
            if known is None:
                raise DataError(
                    "the model was trained on precomputed features, which spaCy's tokens do not "
                    'have: train it on columns of text, with template="columns"'
                )
            raise DataError(
                f"the model was trained on {known} columns; columns={self.columns} are "
                f"{len(self.columns)}: pass one token attribute for each column"
            )
        return found

    def __call__(self, doc: Doc) -> Doc:
        """Set the entities of one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Set the entities of many documents."""
        for docs in minibatch(stream, size=batch_size):
            parts = [part for doc in docs for part in _sentences(doc)]
            X = [[[str(getattr(t, name)) for name in self.columns] for t in part] for part in parts]
            best = self._predict_spans(X, threshold=self.threshold)
            more = best
            if self.all_above is not None:
                more = self._predict_spans(X, candidates="all", threshold=self.all_above)
            at = 0
            for doc in docs:
                count = len(_sentences(doc))
                own = slice(at, at + count)
                _set(doc, parts[own], best[own], more[own], self.spans_key)
                at += count
                yield doc

    def _predict_spans(self, X: list[Any], **options: Any) -> list[list[Any]]:
        if not X:
            return []
        found: list[list[Any]] = self.tagger.predict_spans(
            X, proba=self.tagger.has_probabilities, **options
        )
        return found

    # ---- saving in a pipeline

    def to_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> None:
        """Save the model to a folder."""
        Path(path).mkdir(parents=True, exist_ok=True)
        self.tagger.save(Path(path) / _FILE)

    def from_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> ChainEntities:
        """Load the model from a folder."""
        self._model = load(Path(path) / _FILE)
        self.__dict__.pop("tagger", None)
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the model as bytes."""
        with tempfile.TemporaryDirectory() as folder:
            self.to_disk(folder)
            return (Path(folder) / _FILE).read_bytes()

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> ChainEntities:
        """Load the model from bytes."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / _FILE).write_bytes(data)
            return self.from_disk(folder)


def _sentences(doc: Doc) -> list[Any]:
    """Return the sentences of a document, or the whole document without sentence bounds."""
    if doc.has_annotation("SENT_START"):
        return [sentence for sentence in doc.sents if len(sentence)]
    return [doc[:]] if len(doc) else []


def _set(doc: Doc, parts: list[Any], best: Any, more: Any, key: str) -> None:
    def spans(found: Any) -> list[Any]:
        return [
            Span(doc, part.start + s.start, part.start + s.end, label=s.type)
            for part, own in zip(parts, found, strict=True)
            for s in own
        ]

    doc.set_ents(spans(best))
    scores = [s.probability for own in more for s in own if len(s) == 4]
    doc.spans[key] = SpanGroup(doc, name=key, spans=spans(more), attrs={"scores": np.array(scores)})


@Language.factory(
    NAME,
    assigns=["doc.ents", "doc.spans", "token.ent_iob", "token.ent_type"],
    default_config={
        "model": None, "columns": ["text"], "threshold": None, "all_above": None, "spans_key": NAME
    },
)  # fmt: skip
def component(
    nlp: Language,
    name: str,
    model: str | None,
    columns: list[str],
    threshold: float | None,
    all_above: float | None,
    spans_key: str,
) -> ChainEntities:
    """Create the component for ``nlp.add_pipe("cliquewise")``."""
    options: dict[str, Any] = {"threshold": threshold, "all_above": all_above}
    return ChainEntities(model, columns=columns, spans_key=spans_key, **options)
