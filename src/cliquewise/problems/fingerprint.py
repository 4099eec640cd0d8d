"""Fingerprint: who a problem is, so that no state is taken for that of another.

A state of a solver proves something about the problem it was made for. What it proves of another
one depends on what the two share: the same examples under another C, say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: The parts of a problem, in the words of an error message.
PARTS = ("features", "labels", "weights", "constraints", "costs", "model", "loss", "C")


@dataclass(frozen=True)
class Fingerprint:
    """Digests of the parts of a problem.

    Examples
    --------
    >>> import numpy as np
    >>> one = Fingerprint.of(2, 1.0, [("labels", np.array([0, 1]))])
    >>> one.differences(Fingerprint.of(2, 3.0, [("labels", np.array([0, 2]))]))
    ['labels', 'C']
    """

    n_examples: int
    C: float
    digests: dict[str, str] = field(default_factory=dict)
    l1_ratio: float = 0.0

    @classmethod
    def of(
        cls, n: int, C: float, parts: Iterable[tuple[str, Any]], l1_ratio: float = 0.0
    ) -> Fingerprint:
        """From arrays, each belonging to one of the parts."""
        sums: dict[str, Any] = {}
        for name, part in parts:
            array = np.ascontiguousarray(part)
            digest = sums.setdefault(name, hashlib.blake2b(digest_size=16))
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
        digests = {name: digest.hexdigest() for name, digest in sums.items()}
        return cls(n, float(C), digests, float(l1_ratio))

    def differences(self, other: Fingerprint) -> list[str]:
        """The parts that differ; C stands for all of the penalty."""
        mine, theirs = (one.digests | {"C": f"{one.C!r} {one.l1_ratio!r}"} for one in (self, other))
        return [name for name in PARTS if mine.get(name) != theirs.get(name)]

    def to_header(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "n_examples": self.n_examples,
            "C": repr(self.C),
            "l1_ratio": repr(self.l1_ratio),
            "digests": self.digests,
        }

    @classmethod
    def from_header(cls, header: Any) -> Fingerprint:
        """Back from :meth:`to_header`; any error means damage."""
        digests = {str(k): str(v) for k, v in header["digests"].items()}
        penalty = float(header["C"]), float(header.get("l1_ratio", 0.0))
        return cls(int(header["n_examples"]), penalty[0], digests, penalty[1])


def listed(parts: Iterable[str]) -> str:
    """Parts as words: ``labels``, ``labels and C``, ``features, labels and C``."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
