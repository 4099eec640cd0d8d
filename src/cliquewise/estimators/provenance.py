"""Where a model comes from: library version, digest of the training data, notes of the user."""

from __future__ import annotations

import hashlib
from typing import Any

from cliquewise import __version__
from cliquewise.errors import DataError
from cliquewise.estimators.parameters import is_plain
from cliquewise.problems.fingerprint import Fingerprint

#: Parts of a problem that come from the training data rather than from parameters.
_DATA_PARTS = ("features", "labels", "weights", "constraints", "costs")
#: Longest note in a file, in characters.
_MAX_NOTES = 1 << 16


def describe_training(problem: Fingerprint) -> dict[str, Any]:
    """Return what a model file records about its training.

    Examples
    --------
    >>> import numpy as np
    >>> found = describe_training(Fingerprint.of(2, 1.0, [("labels", np.array([0, 1]))]))
    >>> found["examples"], len(found["data"])
    (2, 32)
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in _DATA_PARTS:
        digest.update(f"{name}={problem.digests.get(name, '')};".encode())
    return {
        "cliquewise": __version__,
        "data": digest.hexdigest(),
        "examples": problem.n_examples,
    }


def check_metadata(metadata: Any) -> dict[str, Any]:
    """Return notes of the user if a model file can hold them: a dict of names and plain values.

    Examples
    --------
    >>> check_metadata({"author": "Ada", "run": 7})
    {'author': 'Ada', 'run': 7}
    """
    if metadata is None:
        return {}
    fine = isinstance(metadata, dict) and all(
        isinstance(name, str) and is_plain(value) for name, value in metadata.items()
    )
    if not fine:
        raise DataError(
            "metadata must be a dict whose keys are strings and whose values are strings, numbers, "
            f"booleans, None or lists of these, not {metadata!r:.60}"
        ).concerning("metadata")
    if len(repr(metadata)) > _MAX_NOTES:
        raise DataError(f"metadata must be shorter than {_MAX_NOTES} characters")
    return dict(metadata)


def check_provenance(found: Any) -> dict[str, Any]:
    """Return the record of a model file; a DataError if it is damaged. Older files have none."""
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(is_plain(value) for value in found.values()):
        raise DataError("the record of its training is damaged")
    return dict(found)
