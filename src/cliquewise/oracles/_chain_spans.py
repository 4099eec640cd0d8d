"""Spans in chains of labels and their probabilities, computed from scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.spans import Places, ScoredSpan, SpanLabels
from cliquewise.errors import DataError, TooLargeError
from cliquewise.oracles.matching import check_k
from cliquewise.ragged import Floats, Ints, offsets_of

#: Where the search for the k most probable spans of a sequence looks, until it has them.
LEVELS = (0.3, 0.03, 1e-3, 1e-6, 1e-12, 1e-24, 1e-48, 1e-96, 0.0)
#: More than any probability: a sequence that is done.
PASSED = 2.0
#: Bytes of one span that was found.
SPAN_BYTES = 200.0


class Chains(NamedTuple):
    """Concatenated scores (N, K) of chains, their offsets, and transitions (1 or E, K, K)."""

    nodes: Floats
    offsets: Ints
    trans: Floats


class Found(NamedTuple):
    """Spans among all tokens, and their probabilities."""

    starts: Ints
    ends: Ints
    types: Ints
    probabilities: Floats

    def only(self, chosen: NDArray[np.bool_] | Ints) -> Found:
        """Return some of the spans, or all in another order."""
        return Found(*(column[chosen] for column in self))  # type: ignore[arg-type]

    def moved(self, by: int) -> Found:
        """Return the spans shifted by so many tokens."""
        return self._replace(starts=self.starts + by, ends=self.ends + by)

    @classmethod
    def joined(cls, parts: list[Found]) -> Found:
        """Concatenate several."""
        empty: tuple[Any, ...] = (*(np.empty(0, np.int64) for _ in range(3)), np.empty(0))
        return cls(*map(np.concatenate, zip(empty, *parts, strict=True)))


def span_rules(labels: SpanLabels) -> Any:
    """Return which label may continue which, as arrays for the kernels."""
    from cliquewise._kernels.chain.spans import SpanRules

    members, pairs = labels.members(), labels.continuing()
    sources = np.array([a for a, _ in pairs], dtype=np.int64)
    targets = np.array([b for _, b in pairs], dtype=np.int64)
    per_type = np.bincount(labels.kinds[sources], minlength=len(members))
    joined = np.concatenate([np.empty(0, np.int64), *members])
    offsets = offsets_of([len(m) for m in members])
    return SpanRules(sources, targets, offsets_of(per_type), joined, offsets)


def score_spans(
    chains: Chains, rules: Any, places: Places, check: Callable[[Floats], None]
) -> Found:
    """Return given spans with their probabilities; ``check`` receives log Z of the chains."""
    from cliquewise._kernels.chain.spans import Spans, batch_span_probabilities

    log_z, out = np.zeros(len(chains.offsets) - 1), np.zeros(len(places.starts))
    spans = Spans(owners_of(places.starts, chains.offsets), *places, out)
    batch_span_probabilities(*chains, rules, spans, log_z)
    check(log_z)
    return Found(*places, out)


def search_spans(
    chains: Chains,
    rules: Any,
    threshold: float,
    k: int | None,
    check: Callable[[Floats], None],
    most: tuple[float, str],
) -> Found:
    """Return all spans above the threshold, or enough to include the k most probable.

    ``most`` is the memory in GiB that those of one look may take, and its name in an error.
    """
    levels = [threshold] if k is None else [*(p for p in LEVELS if p > threshold), threshold]
    wanted = np.inf if k is None else k
    n = len(chains.offsets) - 1
    least, found = np.full(n, levels[0]), []
    for level, lower in zip(levels, [*levels[1:], PASSED], strict=True):
        part = _above(chains, rules, least, check, most)
        owners = owners_of(part.starts, chains.offsets)
        few = np.bincount(owners, minlength=n) < wanted
        few &= (least == level) & (lower != PASSED)
        found.append(part.only(~few[owners]))
        if not few.any():
            break
        least = np.where(few, lower, PASSED)
    return Found.joined(found)


def _above(
    chains: Chains,
    rules: Any,
    least: Floats,
    check: Callable[[Floats], None],
    most: tuple[float, str],
) -> Found:
    """Return the spans with at least this probability, by sequence."""
    from cliquewise._kernels.chain.spans import Spans, batch_spans_above

    log_z, count, room = np.zeros(len(least)), len(chains.nodes), -1
    while count > room:
        room = count
        if room * SPAN_BYTES > most[0] * 2**30:
            raise TooLargeError(
                f"{room} spans need about {room * SPAN_BYTES / 2**30:.3g} GiB (limit: "
                f"{most[1]}{most[0]:g} GiB); raise the threshold, or ask for "
                "fewer sequences at a time",
                room * SPAN_BYTES,
            )
        columns: Any = [np.empty(room, kind) for kind in (*[np.int64] * 4, np.float64)]
        spans = Spans(*columns)
        count = int(batch_spans_above(*chains, rules, least, spans, log_z))
    check(log_z)
    return Found(*(column[:count] for column in spans[1:]))


def owners_of(starts: Ints, offsets: Ints) -> Ints:
    """Return the sequence of each span."""
    return np.searchsorted(offsets, starts, side="right") - 1


def listed(found: Found, offsets: Ints, types: list[str], k: int | None) -> list[list[ScoredSpan]]:
    """Return the spans of each sequence, in text order or the k most probable."""
    owners = owners_of(found.starts, offsets)
    by = [found.types, found.ends, found.starts]
    order = np.lexsort(by if k is None else [*by, -found.probabilities, owners])
    out: list[list[ScoredSpan]] = [[] for _ in range(len(offsets) - 1)]
    owners, found = owners[order], found.only(order)
    shift = offsets[owners]
    columns = (owners, found.starts - shift, found.ends - shift, found.types, found.probabilities)
    for i, start, end, kind, probability in zip(*(c.tolist() for c in columns), strict=True):
        if k is None or len(out[i]) < k:
            out[i].append(ScoredSpan(start, end, types[kind], probability))
    return out


def check_choice(candidates: Any, threshold: Any, k: Any) -> None:
    if candidates not in ("best", "all"):
        raise DataError(f'candidates are "best" or "all", not {candidates!r}')
    if k is not None:
        check_k(k)
    if threshold is not None and not (
        isinstance(threshold, int | float | np.number) and 0.0 <= threshold <= 1.0
    ):
        raise DataError(f"threshold = {threshold!r}; it is a probability, from 0 to 1")
    if candidates == "all" and threshold is None and k is None:
        raise DataError(
            'candidates="all" needs a threshold or a k: a sequence has a span for every two of '
            "its tokens and every type"
        )
