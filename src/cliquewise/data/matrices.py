"""Checks of feature matrices; kernels rely on them and check nothing again.

scipy checks a sparse matrix when it is made, not when its arrays are changed; an index out of range
then makes compiled code write anywhere. Values are bounded: no square and no score overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from cliquewise.errors import DataError
from cliquewise.ragged import Floats, owner_of

#: Largest size of a feature: sums of squares, and scores by weights of the same kind, stay finite.
LARGEST = 1e100

#: Most columns of a matrix: feature numbers are 32-bit integers.
MOST_COLUMNS = 2**31 - 1

#: How a row is called in messages.
Place = Callable[[int], str]


def checked_matrix(
    rows: Any, what: str = "X", place: Place | None = None, names: Sequence[str] | None = None
) -> Any:
    """Return rows of numbers as a float64 array, or a CSR matrix with sorted, unique entries.

    Parameters
    ----------
    rows : 2-D array-like or sparse matrix
    what : str
        How messages call the matrix.
    place : callable, optional
        How they call a row, given its number.
    names : sequence of str, optional
        How they call the columns.

    Raises
    ------
    DataError
        If it is no matrix of real numbers up to 1e100 in size, or its indices point outside it.

    Examples
    --------
    >>> checked_matrix([[1, 2], [3, 4]]).dtype
    dtype('float64')
    >>> checked_matrix(csr_matrix([[0.0, 2.0]])).nnz
    1
    """
    matrix = _sparse(rows, what) if issparse(rows) else _dense(rows, what)
    check_values(matrix, what, place, names)
    return matrix


def check_values(
    matrix: Any, what: str = "X", place: Place | None = None, names: Sequence[str] | None = None
) -> None:
    """Refuse values that are not finite, or too large; the message names the feature."""
    at = first_beyond(matrix.data if issparse(matrix) else matrix)
    if at is None:
        return
    if issparse(matrix):
        value, column = matrix.data[at], int(matrix.indices[at])
        row = owner_of(matrix.indptr, at)[0]
    else:
        row, column = (int(i) for i in np.unravel_index(at, matrix.shape))
        value = matrix[row, column]
    where = f"{what}, row {row}" if place is None else place(row)
    feature = repr(str(names[column])) if names is not None else str(column)
    raise DataError(f"{where}: feature {feature} is {value:g}; {remedy(float(value))}")


def first_beyond(values: Floats) -> int | None:
    """Return the flat position of the first value that is not finite or too large, or None."""
    # Two reductions, which a NaN passes through, are quicker than a mask of the same size.
    if values.size == 0 or (values.min() >= -LARGEST and values.max() <= LARGEST):
        return None
    return int(np.argmin(np.abs(values).ravel() <= LARGEST))


def remedy(value: float) -> str:
    """Return advice about a value that :func:`first_beyond` finds."""
    if not np.isfinite(value):
        return "replace or drop values that are NaN or infinity"
    return f"values go up to {LARGEST:g} in size, beyond which squares overflow; scale the feature"


def _dense(rows: Any, what: str) -> Floats:
    try:
        matrix = np.asarray(rows)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} must be rows of numbers ({error})") from None
    if isinstance(rows, np.ma.MaskedArray) and np.ma.is_masked(rows):
        raise DataError(f"{what} is a masked array; fill in or drop what is masked")
    numbers = matrix.dtype.kind in "biuf" or (
        matrix.dtype.kind == "O" and all(isinstance(v, Real | np.bool_) for v in matrix.flat)
    )
    if not numbers and matrix.size:
        raise DataError(f"{what} must be rows of real numbers, not of {_kind(matrix.dtype)}")
    if matrix.ndim != 2:
        raise DataError(f"{what} must have two dimensions, not the shape {matrix.shape}")
    return _as_floats(matrix, what)


def _sparse(matrix: Any, what: str) -> csr_matrix:
    if matrix.ndim != 2:
        raise DataError(f"{what} must have two dimensions, not the shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"{what} must hold real numbers, not {_kind(matrix.dtype)}")
    check_width(matrix, what)
    _check_layout(matrix, what)  # before scipy's own compiled code reads it
    csr = csr_matrix(matrix)
    check_pointers(csr, what)
    values = _as_floats(csr.data, what)
    if values is not csr.data:
        csr = csr_matrix((values, csr.indices, csr.indptr), shape=csr.shape)
    if not csr.has_canonical_format:
        csr = csr.copy()  # the caller's matrix stays as it is
        csr.sum_duplicates()
    return csr


def check_width(matrix: Any, what: str) -> None:
    """Refuse more columns than feature numbers of 32 bits."""
    if matrix.shape[1] > MOST_COLUMNS:
        raise DataError(
            f"{what} has {matrix.shape[1]:,} columns, more than {MOST_COLUMNS:,}; hash the "
            "features into fewer columns, or drop empty ones"
        )


def _as_floats(values: Any, what: str) -> Floats:
    try:
        with np.errstate(over="ignore"):
            return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{what} must hold numbers that float64 can hold ({error})") from None


def _kind(dtype: Any) -> str:
    return "complex numbers" if dtype.kind == "c" else f"{dtype}"


def _check_layout(matrix: Any, what: str) -> None:
    """Refuse indices outside a matrix in any of scipy's formats that keeps them in arrays."""
    rows, columns = matrix.shape
    if matrix.format == "coo":
        within(matrix.row, rows, f"{what}: row")
        within(matrix.col, columns, f"{what}: column")
        if not len(matrix.row) == len(matrix.col) == len(matrix.data):
            raise DataError(f"{what} is damaged: as many rows as columns and values are needed")
    elif matrix.format in ("csr", "csc"):
        check_pointers(matrix, what)
    elif matrix.format == "bsr":
        height, width = matrix.blocksize
        _check_arrays(matrix, rows // height, columns // width, what)


def check_pointers(matrix: Any, what: str = "X") -> None:
    """Refuse a CSR or CSC matrix whose arrays do not fit its shape."""
    rows, columns = matrix.shape if matrix.format == "csr" else matrix.shape[::-1]
    _check_arrays(matrix, rows, columns, what)


def _check_arrays(matrix: Any, n_lines: int, n_places: int, what: str) -> None:
    indptr, indices = matrix.indptr, matrix.indices
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise DataError(f"{what} is damaged: its indices are no integers")
    if indptr.shape != (n_lines + 1,) or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise DataError(
            f"{what} is damaged: indptr must be {n_lines + 1} numbers that start at 0 and never "
            "decrease"
        )
    if not indptr[-1] == len(indices) == len(matrix.data):
        raise DataError(
            f"{what} is damaged: indptr ends at {indptr[-1]}, but there are {len(indices)} indices "
            f"and {len(matrix.data)} values"
        )
    within(indices, n_places, f"{what}: index")


def within(numbers: Any, size: int, what: str) -> None:
    """Refuse numbers outside ``0 .. size - 1``."""
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
        wrong = numbers.min() if numbers.min() < 0 else numbers.max()
        raise DataError(f"{what} {wrong} is not in 0..{size - 1}; the matrix is damaged")
