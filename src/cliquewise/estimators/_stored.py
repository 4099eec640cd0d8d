"""Weights and classes in model files. Does not import scikit-learn, for a fast start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.labels import Labels
from cliquewise.errors import CliquewiseError, DataError, FormatError
from cliquewise.ragged import Floats

#: The content of a model file: named arrays, and a header for JSON.
Arrays = dict[str, NDArray[Any]]
Header = dict[str, Any]

#: Largest weight in a file: products with features (up to 1e100) are then finite.
_LARGEST_WEIGHT = 1e150
#: Types of weights in files.
WEIGHTS = ("float64", "float32", "float16")


def rounded(weights: Floats, dtype: str) -> NDArray[Any]:
    """Return weights rounded to another type."""
    if dtype not in WEIGHTS:
        raise DataError(f"dtype must be one of {', '.join(WEIGHTS)}, not {dtype!r}")
    most, largest = float(np.finfo(dtype).max), np.abs(weights).max(initial=0.0)
    if largest > most:
        raise DataError(f"a weight of {largest:.3g} does not fit into {dtype} (up to {most:.3g})")
    return weights.astype(dtype)


def restored_weights(arrays: Arrays, header: Header) -> NDArray[Any]:
    """Return the weights of a file as float64; their type must be the one in the header."""
    dtype, coef = header.get("weights", "float64"), arrays["coef"]
    if dtype not in WEIGHTS or coef.dtype != dtype:
        raise DataError(f"its weights are {coef.dtype}, not {dtype!r:.40}")
    return coef.astype(np.float64, copy=False)


def checked_weights(arrays: Arrays, dimension: int) -> Floats:
    """Return the weights of a file after checks of their number, type and size."""
    coef = arrays["coef"]
    if coef.dtype != np.float64 or coef.shape != (dimension,):
        raise DataError(f"its weights are {coef.dtype}{coef.shape}, not {dimension} numbers")
    if not (coef.max(initial=0) <= _LARGEST_WEIGHT and coef.min(initial=0) >= -_LARGEST_WEIGHT):
        raise DataError(f"its weights are not finite, or above {_LARGEST_WEIGHT:g} in size")
    return coef


def listed_classes(classes: Any) -> Labels:
    """Return the classes of a file: distinct strings and numbers."""
    if not isinstance(classes, list) or not classes:
        raise DataError("its classes are not a list")
    return Labels(plain_classes(classes))


def saved_weights(class_weight: Any, classes: Any) -> Header:
    """Return a dict of class weights for the header: a list with a weight per class."""
    if not isinstance(class_weight, dict):
        return {}
    return {"class_weight": [float(class_weight.get(c, 1.0)) for c in classes]}


def listed_weights(given: Any, classes: list[Any]) -> dict[Any, float]:
    """Return the class weights of a file as a dict."""
    fine = isinstance(given, list) and len(given) == len(classes)
    if not fine or not all(isinstance(w, float) and 0 <= w <= _LARGEST_WEIGHT for w in given):
        raise DataError("its class_weight is not a list with one weight per class")
    return dict(zip(classes, given, strict=True))


def plain_classes(classes: Any) -> list[Any]:
    """Return the classes if JSON can hold them; otherwise raise a DataError."""
    for c in classes:
        if not isinstance(c, str | int | float | bool):
            raise DataError(
                f"class {c!r} is a {type(c).__name__}; only strings, numbers and booleans can be "
                "saved: rename the classes"
            )
    return list(classes)


@contextmanager
def damaged(path: str | Path) -> Iterator[None]:
    """Convert errors raised while restoring a model to a FormatError that names the file."""
    try:
        yield
    except CliquewiseError as error:
        raise FormatError(f"the model is damaged: {error}", path) from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise FormatError(f"the model is damaged ({error!r})", path) from error
