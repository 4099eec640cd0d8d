"""Spans (chunks, entities) that labels such as ``B-PER`` stand for: one reader for all who ask.

A label is outside (``O``), or has a prefix and a type. A label *continues* the one before it if
it is ``I-X`` or ``E-X`` and that one is ``B-X`` or ``I-X``: then both are in one span. Every other
label that is not outside begins a span, and a span ends before the first label that does not
continue it. So the CoNLL evaluation script reads them, whatever the labels are: BIO, BIOES, IO,
IOB1, and labelings that break their scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cliquewise.data.value_index import ValueIndex
from cliquewise.errors import DataError
from cliquewise.ragged import Ints, offsets_of

Scheme = Literal["auto", "IOB1", "IOB2", "BIOES"]

PREFIXES = {"auto": "BIESLU", "IOB1": "BI", "IOB2": "BI", "BIOES": "BIES"}
_SAME = {"L": "E", "U": "S"}  # BILOU's names
_CODE = {"O": 0, "B": 1, "I": 2, "E": 3, "S": 4}
_O, _B, _I, _E, _S = range(5)


class Span(NamedTuple):
    """Tokens ``start`` to ``end``, the latter not included, and what they are."""

    start: int
    end: int
    type: str


class ScoredSpan(NamedTuple):
    """A span, and the probability that it is there."""

    start: int
    end: int
    type: str
    probability: float


class Places(NamedTuple):
    """Spans of many sequences: first tokens, ends and types, among all tokens."""

    starts: Ints
    ends: Ints
    types: Ints


@dataclass(frozen=True, eq=False)
class SpanLabels:
    """Classes of a labeling task as prefixes and types.

    Attributes
    ----------
    prefixes : int array (K,)
        0 for O, then B, I, E, S.
    kinds : int array (K,)
        Number of the type, -1 for O.
    types : list of str
        The types.
    """

    prefixes: Ints
    kinds: Ints
    types: list[str]

    @classmethod
    def of(
        cls, classes: Sequence[Any], scheme: str = "auto", types: dict[str, int] | None = None
    ) -> SpanLabels:
        """Read the labels; ``types``, if given, numbers the types and is extended.

        Examples
        --------
        >>> SpanLabels.of(["B-PER", "I-PER", "O"]).types
        ['PER']
        """
        known: dict[str, int] = {} if types is None else types
        parsed = [_parse(label, scheme) for label in classes]
        kinds = [known.setdefault(kind, len(known)) if prefix else -1 for prefix, kind in parsed]
        prefixes = [prefix for prefix, _ in parsed]
        return cls(np.array(prefixes, np.int64), np.array(kinds, np.int64), list(known))

    def read(self, numbers: ArrayLike, offsets: Ints) -> Places:
        """The spans of sequences of classes, one sequence after the other."""
        ids = np.asarray(numbers, dtype=np.int64)
        prefix, kind = self.prefixes[ids], self.kinds[ids]
        before = np.concatenate([[_O], prefix[:-1]]) if len(ids) else prefix
        kind_before = np.concatenate([[-1], kind[:-1]]) if len(ids) else kind
        first = offsets[:-1][np.diff(offsets) > 0]
        before[first], kind_before[first] = _O, -1
        inside = prefix != _O
        fresh = (prefix == _B) | (prefix == _S) | (before == _O) | (before == _E) | (before == _S)
        starts = np.flatnonzero(inside & (fresh | (kind != kind_before)))
        # a span ends where the next one starts, at O, or with its sequence
        stop = np.zeros(len(ids) + 1, dtype=np.bool_)
        stop[:-1] = ~inside
        stop[starts] = True
        stop[offsets] = True
        stops = np.flatnonzero(stop)
        return Places(starts, stops[np.searchsorted(stops, starts, side="right")], kind[starts])

    def members(self) -> list[Ints]:
        """Of each type its classes."""
        return [np.flatnonzero(self.kinds == kind) for kind in range(len(self.types))]

    def continuing(self) -> list[tuple[int, int]]:
        """Pairs of classes (one, next) of which the second continues the first, type by type."""
        goes_on = (self.prefixes == _B) | (self.prefixes == _I)
        continues = (self.prefixes == _I) | (self.prefixes == _E)
        return [
            (int(a), int(b))
            for members in self.members()
            for a in members[goes_on[members]]
            for b in members[continues[members]]
        ]

    def named(self, places: Places, offsets: Ints) -> list[list[Span]]:
        """Spans of each sequence, counted from its first token."""
        owner = np.searchsorted(offsets, places.starts, side="right") - 1
        out: list[list[Span]] = [[] for _ in range(len(offsets) - 1)]
        shift = offsets[owner]
        columns = (owner, places.starts - shift, places.ends - shift, places.types)
        for i, start, end, kind in zip(*(c.tolist() for c in columns), strict=True):
            out[i].append(Span(start, end, self.types[kind]))
        return out


def read_spans(y: Any, scheme: Scheme = "auto") -> list[list[Span]]:
    """The spans of label sequences, as ``span_scores`` counts them.

    Parameters
    ----------
    y : list of sequences of str
        Labels such as ``B-NP``; ``O`` (or None) is outside of all spans.
    scheme : {"auto", "IOB1", "IOB2", "BIOES"}
        Which prefixes may occur; ``auto`` takes all, and BILOU's.

    Examples
    --------
    >>> read_spans([["B-PER", "I-PER", "O", "I-LOC"]])
    [[Span(start=0, end=2, type='PER'), Span(start=3, end=4, type='LOC')]]
    """
    check_scheme(scheme)
    sequences = [list(labels) for labels in y]
    flat = list(chain.from_iterable(sequences))
    offsets = offsets_of([len(s) for s in sequences])
    index = ValueIndex()
    numbers = index.numbers(flat)
    labels = SpanLabels.of(list(index), scheme)
    return labels.named(labels.read(numbers, offsets), offsets)


def to_scheme(y: Any, scheme: str = "BIO") -> list[list[Any]]:
    """The same spans in the labels of another scheme, such as those of an IOB1 file in BIO.

    Parameters
    ----------
    y : list of sequences of str
        Labels of any scheme that `read_spans` reads; None, a label that is not known, stays.
    scheme : {"BIO", "BIOES"}
        What to write.

    Examples
    --------
    >>> to_scheme([["I-PER", "I-PER", "O", "I-LOC"]])
    [['B-PER', 'I-PER', 'O', 'B-LOC']]
    >>> to_scheme([["I-PER", "I-PER", "O", "I-LOC"]], "BIOES")
    [['B-PER', 'E-PER', 'O', 'S-LOC']]
    """
    if scheme not in ("BIO", "BIOES"):
        raise DataError(f"scheme={scheme!r}; choose BIO or BIOES")
    sequences = [list(labels) for labels in y]
    out: list[list[Any]] = [[None if c is None else "O" for c in labels] for labels in sequences]
    for labels, spans in zip(out, read_spans(sequences), strict=True):
        for start, end, kind in spans:
            letters = ["B", *"I" * (end - start - 1)]
            if scheme == "BIOES":
                letters[-1] = "S" if len(letters) == 1 else "E"
            labels[start:end] = [f"{letter}-{kind}" for letter in letters]
    return out


def check_scheme(scheme: str) -> None:
    """Refuse what is no scheme."""
    if scheme not in PREFIXES:
        raise DataError(f"scheme={scheme!r}; choose one of {', '.join(PREFIXES)}")


def _parse(label: Any, scheme: str) -> tuple[int, str]:
    """Prefix and type of a label; None, where the truth is not known, is outside."""
    if label is None or label == "O":
        return _O, ""
    prefix, _, kind = str(label).partition("-")
    if prefix not in tuple(PREFIXES[scheme]) or not isinstance(label, str):
        allowed = ", ".join(f"{p}-..." for p in PREFIXES[scheme])
        of = "" if scheme == "auto" else f" of {scheme}"
        raise DataError(f"the label {label!r} is no span label{of}: use O, {allowed}")
    return _CODE[_SAME.get(prefix, prefix)], kind
