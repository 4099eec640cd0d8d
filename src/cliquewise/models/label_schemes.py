"""Label schemes of spans: which label may follow which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import DataError

Mask = NDArray[np.bool_]


def scheme_masks(scheme: str, classes: Sequence[Any]) -> tuple[Mask, Mask, Mask]:
    """Possible transitions, first labels and last labels of a span scheme.

    Parameters
    ----------
    scheme : {"BIO", "BIOES"}
        ``BIO``: a span begins with ``B-X`` and goes on with ``I-X``. ``BIOES``: it ends with
        ``E-X``, or is a single ``S-X``.
    classes : sequence of str
        Labels ``O`` or ``<letter>-<type>``.

    Examples
    --------
    >>> follow, first, last = scheme_masks("BIO", ["B-NP", "I-NP", "O"])
    >>> follow.astype(int).tolist(), first.tolist()
    ([[1, 1, 1], [1, 1, 1], [1, 0, 1]], [True, False, True])
    """
    letters = {"BIO": "BIO", "BIOES": "BIOES"}.get(scheme)
    if letters is None:
        raise DataError(
            f'transitions are "all", "seen", "BIO", "BIOES" or a (K, K) mask, not {scheme!r}'
        )
    parsed = [_parse(label, letters, scheme) for label in classes]
    inside = {"B", "I"} if scheme == "BIOES" else set()  # a span that must go on
    n = len(parsed)
    follow = np.zeros((n, n), dtype=bool)
    for a, (letter, kind) in enumerate(parsed):
        for b, (next_letter, next_kind) in enumerate(parsed):
            continues = next_letter in ("I", "E")
            if continues:
                follow[a, b] = letter in ("B", "I") and kind == next_kind
            else:
                follow[a, b] = letter not in inside
    first = np.array([letter not in ("I", "E") for letter, _ in parsed], dtype=bool)
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
            'convert the labels, or use transitions="all"'
        )
    return letter, kind
