"""Label schemes of spans (BIO, BIOES): possible transitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import DataError

Mask = NDArray[np.bool_]

#: The letters of a scheme, by its names.
_LETTERS = {"BIO": "BIO", "IOB2": "BIO", "BIOES": "BIOES", "IOBES": "BIOES", "IO": "IO"}


def scheme_masks(scheme: str, classes: Sequence[Any]) -> tuple[Mask, Mask, Mask]:
    """Return the possible transitions, first labels and last labels of a span scheme.

    Parameters
    ----------
    scheme : {"BIO", "BIOES", "IO"}
        ``BIO``: a span begins with ``B-X`` and goes on with ``I-X``. ``BIOES``: it ends with
        ``E-X``, or is a single ``S-X``. ``IO``: all is ``I-X``, and anything may follow.
        ``IOB2`` and ``IOBES`` are other names of the first two.
    classes : sequence of str
        Labels ``O`` or ``<letter>-<type>``.

    Examples
    --------
    >>> follow, first, last = scheme_masks("BIO", ["B-NP", "I-NP", "O"])
    >>> follow.astype(int).tolist(), first.tolist()
    ([[1, 1, 1], [1, 1, 1], [1, 0, 1]], [True, False, True])
    """
    letters = _LETTERS.get(scheme)
    if letters is None:
        raise DataError(
            f"there is no scheme {scheme!r} of spans: they are {', '.join(_LETTERS)}; transitions "
            'may also be "all", "seen" or a (K, K) mask'
        )
    parsed = [_parse(label, letters, scheme) for label in classes]
    inside = {"B", "I"} if letters == "BIOES" else set()  # a span that must go on
    going_on = () if letters == "IO" else ("I", "E")
    n = len(parsed)
    follow = np.zeros((n, n), dtype=bool)
    for a, (letter, kind) in enumerate(parsed):
        for b, (next_letter, next_kind) in enumerate(parsed):
            if next_letter in going_on:
                follow[a, b] = letter in ("B", "I") and kind == next_kind
            else:
                follow[a, b] = letter not in inside
    first = np.array([letter not in going_on for letter, _ in parsed], dtype=bool)
    last = np.array([letter not in inside for letter, _ in parsed], dtype=bool)
    return follow, first, last


def _parse(label: Any, letters: str, scheme: str) -> tuple[str, str]:
    text = str(label)
    if text == "O":
        return "O", ""
    letter, dash, kind = text.partition("-")
    if not dash or letter not in letters or letter == "O":
        allowed = ", ".join(f"{x}-<type>" for x in letters if x != "O")
        raise DataError(
            f"label {text!r} is not of the scheme {scheme}: labels are O, {allowed}; "
            "convert the labels (cliquewise.data.to_scheme does it for spans) or use "
            'transitions="all" (of a ChainCRF: no scheme, forbidden=...)'
        )
    return letter, kind
