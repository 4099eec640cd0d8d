"""A component of spaCy pipelines: entities by a chain, with the probability of each.

>>> nlp.add_pipe("cliquewise", config={"model": "names.cw"})  # doctest: +SKIP
>>> doc = nlp("Anna lives in New York")  # doctest: +SKIP
>>> doc.ents, doc.spans["cliquewise"].attrs["scores"]  # doctest: +SKIP

Needs the extra ``cliquewise[spacy]``. spaCy finds the component by itself.
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

#: Its name in pipelines, and that of its group of spans.
NAME = "cliquewise"
_FILE = "model.cw"


class ChainEntities:
    """Entities of documents by a fitted tagger.

    Parameters
    ----------
    model : SequenceTagger or path
        Fitted on columns (a file, a table of text, or rows of strings with a template).
    columns : sequence of str, default=("text",)
        The attributes of spaCy's tokens that are these columns: ``text``, ``tag_``, ``lemma_``...
    threshold : float, optional
        Entities that are less probable are left out.
    all_above : float, optional
        Spans of this probability, which may overlap, are in the group; by default those of
        ``doc.ents`` are.
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
        """The tagger, read when it is first asked: a pipeline from a folder brings its own."""
        if self._model is None:
            raise DataError('name a model: nlp.add_pipe("cliquewise", config={"model": "m.cw"})')
        found = self._model if isinstance(self._model, SequenceTagger) else load(self._model)
        if not isinstance(found, SequenceTagger):
            raise DataError(f"the model is a {type(found).__name__}, not a SequenceTagger")
        known = found.encoder_.n_columns
        if known != len(self.columns):
            if known is None:
                raise DataError(
                    "the model was trained on features that were made elsewhere, which spaCy's "
                    'tokens do not have: train it on columns of text, with template="columns"'
                )
            raise DataError(
                f"the model was trained on {known} columns; columns={self.columns} are "
                f"{len(self.columns)}: name one attribute of spaCy's tokens for each column"
            )
        return found

    def __call__(self, doc: Doc) -> Doc:
        """Set the entities of one document."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Set the entities of many."""
        for docs in minibatch(stream, size=batch_size):
            parts = [part for doc in docs for part in _sentences(doc)]
            X = [[[str(getattr(t, name)) for name in self.columns] for t in part] for part in parts]
            best = self._asked(X, threshold=self.threshold)
            more = best
            if self.all_above is not None:
                more = self._asked(X, candidates="all", threshold=self.all_above)
            at = 0
            for doc in docs:
                count = len(_sentences(doc))
                own = slice(at, at + count)
                _set(doc, parts[own], best[own], more[own], self.spans_key)
                at += count
                yield doc

    def _asked(self, X: list[Any], **options: Any) -> list[list[Any]]:
        if not X:
            return []
        found: list[list[Any]] = self.tagger.predict_spans(
            X, proba=self.tagger.has_probabilities, **options
        )
        return found

    # ---- as a part of a pipeline that is saved

    def to_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> None:
        """Save the model in a folder."""
        Path(path).mkdir(parents=True, exist_ok=True)
        self.tagger.save(Path(path) / _FILE)

    def from_disk(self, path: Any, *, exclude: Iterable[str] = ()) -> ChainEntities:
        """Take the model from that folder."""
        self._model = load(Path(path) / _FILE)
        self.__dict__.pop("tagger", None)
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """The model as bytes."""
        with tempfile.TemporaryDirectory() as folder:
            self.to_disk(folder)
            return (Path(folder) / _FILE).read_bytes()

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> ChainEntities:
        """Take the model from bytes."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / _FILE).write_bytes(data)
            return self.from_disk(folder)


def _sentences(doc: Doc) -> list[Any]:
    """The sentences of a document, if it has any; all of it else."""
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
    """What spaCy calls for ``nlp.add_pipe("cliquewise")``."""
    options: dict[str, Any] = {"threshold": threshold, "all_above": all_above}
    return ChainEntities(model, columns=columns, spans_key=spans_key, **options)
