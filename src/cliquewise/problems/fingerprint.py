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

    @classmethod
    def of(cls, n: int, C: float, parts: Iterable[tuple[str, Any]]) -> Fingerprint:
        """From arrays, each belonging to one of the parts."""
        sums: dict[str, Any] = {}
        for name, part in parts:
            array = np.ascontiguousarray(part)
            digest = sums.setdefault(name, hashlib.blake2b(digest_size=16))
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
        return cls(n, float(C), {name: digest.hexdigest() for name, digest in sums.items()})

    def differences(self, other: Fingerprint) -> list[str]:
        """The parts that differ."""
        mine, theirs = self.digests | {"C": self.C}, other.digests | {"C": other.C}
        return [name for name in PARTS if mine.get(name) != theirs.get(name)]

    def to_header(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"n_examples": self.n_examples, "C": repr(self.C), "digests": self.digests}

    @classmethod
    def from_header(cls, header: Any) -> Fingerprint:
        """Back from :meth:`to_header`; any error means damage."""
        digests = {str(k): str(v) for k, v in header["digests"].items()}
        return cls(int(header["n_examples"]), float(header["C"]), digests)


def listed(parts: Iterable[str]) -> str:
    """Parts as words: ``labels``, ``labels and C``, ``features, labels and C``."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
