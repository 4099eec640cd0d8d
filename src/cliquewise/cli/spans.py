"""Output of ``cliquewise predict --spans``: a line per span, or a JSON object per sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click


@dataclass
class SpanWriter:
    """Write predicted spans; sentences are counted from 0.

    Parameters
    ----------
    candidates : {"best", "all"}
    threshold, k
        As in ``SequenceTagger.predict_spans``.
    as_json : bool
    """

    candidates: str
    threshold: float | None
    k: int | None
    as_json: bool
    sentence: int = 0

    @classmethod
    def of(
        cls, spans: str | None, threshold: float | None, k: int | None, form: str, marginals: bool
    ) -> SpanWriter | None:
        """Return a writer for the options of the command; None without --spans."""
        if spans is None:
            if threshold is not None or form != "text":
                raise click.UsageError("--threshold and --format are for --spans")
            return None
        if marginals:
            raise click.UsageError("choose one of --marginals and --spans")
        if spans == "all" and threshold is None and k is None:
            raise click.UsageError("--spans all needs --threshold P or --top-k K")
        return cls(spans, threshold, k, form == "json")

    def lines(self, tagger: Any, X: Any, shown: list[Any]) -> Iterator[str]:
        """Yield the output for some sentences; ``shown`` holds their rows of columns."""
        found = tagger.predict_spans(
            X, proba=True, candidates=self.candidates, threshold=self.threshold, k=self.k
        )
        for rows, spans in zip(shown, found, strict=True):
            words = [row[0] for row in rows if row]
            texts = [" ".join(words[s.start : s.end]) for s in spans]
            if self.as_json:
                listed = [
                    s._asdict() | ({"text": text} if words else {})
                    for s, text in zip(spans, texts, strict=True)
                ]
                record = {"sentence": self.sentence, "tokens": len(rows), "spans": listed}
                yield json.dumps(record, ensure_ascii=False)
            else:
                for s, text in zip(spans, texts, strict=True):
                    place = f"{self.sentence}\t{s.start}\t{s.end}\t{s.type}"
                    yield f"{place}\t{s.probability:.6f}" + (f"\t{text}" if words else "")
            self.sentence += 1
