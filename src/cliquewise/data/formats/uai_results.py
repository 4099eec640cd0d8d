"""Result files of the UAI competitions: MAR (marginals), PR (log10 Z), MAP and MMAP (labels)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import TextIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cliquewise.data.formats._numbers import Numbers, Source, first_word, read_numbers_text
from cliquewise.data.formats.text import open_writer
from cliquewise.errors import FormatError, GraphError
from cliquewise.ragged import Ints

Target = str | os.PathLike[str] | TextIO
LN10 = math.log(10.0)


def write_uai_mar(marginals: Sequence[ArrayLike], target: Target) -> None:
    """Write node marginals: ``MAR``, then ``n  card p .. p  card p .. p  ..``.

    Parameters
    ----------
    marginals : sequence of arrays
        ``graph.marginals().nodes``, say.
    target : path or text file

    Examples
    --------
    >>> import sys
    >>> write_uai_mar([[0.25, 0.75], [1.0]], sys.stdout)
    MAR
    2 2 0.25 0.75 1 1.0
    """
    words = [str(len(marginals))]
    for row in marginals:
        values = np.asarray(row, dtype=np.float64).tolist()
        words.append(str(len(values)))
        words += map(repr, values)
    _emit("MAR\n" + " ".join(words) + "\n", target)


def read_uai_mar(source: Source) -> list[NDArray[np.float64]]:
    """Read node marginals.

    Examples
    --------
    >>> import io
    >>> read_uai_mar(io.BytesIO(b"MAR 2  2 0.25 0.75  1 1.0"))
    [array([0.25, 0.75]), array([1.])]
    """
    numbers = _after_word(source, "MAR")
    n = numbers.count("the number of variables", each=2)
    out = []
    for v in range(n):
        card = numbers.count(f"the cardinality of variable {v}")
        row = numbers.values[numbers.at : numbers.at + card]
        bad = ~((row >= 0) & (row <= 1 + 1e-6))
        if bad.any():
            i = int(np.argmax(bad))
            raise numbers.error(
                f"state {i} of variable {v} has probability {row[i]:g}; it must be in 0..1",
                numbers.at + i,
            )
        out.append(row.copy())
        numbers.at += card
    numbers.finish()
    return out


def write_uai_pr(log_z: float, target: Target) -> None:
    """Write the natural logarithm of Z, in the file as log10: ``PR``, then the number.

    Examples
    --------
    >>> import math, sys
    >>> write_uai_pr(math.log(1000.0), sys.stdout)
    PR
    2.9999999999999996
    """
    _emit(f"PR\n{float(log_z) / LN10!r}\n", target)


def read_uai_pr(source: Source) -> float:
    """Read log10 Z and return the natural logarithm of Z.

    Examples
    --------
    >>> import io
    >>> round(read_uai_pr(io.BytesIO(b"PR 3.0")), 6)
    6.907755
    """
    numbers = _after_word(source, "PR")
    if len(numbers.values) != 1 or not np.isfinite(numbers.values[0]):
        raise numbers.error(
            f"a PR file has one finite number after its first word; this one has "
            f"{len(numbers.values)}: {numbers.values[:3]}",
            0,
        )
    return float(numbers.values[0]) * LN10


def write_uai_map(labelings: ArrayLike, target: Target) -> None:
    """Write one labeling, or several (one per row), each as ``MAP``, then ``n x0 x1 ..``.

    Several blocks, best first, are how the K best labelings are written.

    Examples
    --------
    >>> import sys
    >>> write_uai_map([[1, 0, 2], [1, 1, 2]], sys.stdout)
    MAP
    3 1 0 2
    MAP
    3 1 1 2
    """
    rows = np.asarray(labelings, dtype=np.int64)
    if rows.ndim not in (1, 2):
        raise GraphError("labelings must be one row of states, or several of equal length")
    lines = []
    for row in rows.reshape(-1, rows.shape[-1]).tolist():
        lines += ["MAP", " ".join(map(str, [len(row), *row]))]
    _emit("\n".join(lines) + "\n", target)


def read_uai_map(source: Source) -> Ints:
    """Read labelings, one row per ``MAP`` block.

    Examples
    --------
    >>> import io
    >>> read_uai_map(io.BytesIO(b"MAP 3 1 0 2"))
    array([[1, 0, 2]])
    """
    text, name = read_numbers_text(source)
    first_word(text, name, "MAP")
    blocks = list(re.finditer(rb"MAP\s([^M]*)", text))
    rows = []
    for i, block in enumerate(blocks):
        # Up to the next block, so that stray words are seen and refused.
        end = blocks[i + 1].start() if i + 1 < len(blocks) else len(text)
        numbers = Numbers(text, name, block.start(1), end)
        n = numbers.count("the number of variables")
        rows.append(numbers.integers(n, "the state of variable {}"))
        numbers.finish()
        if len(rows[0]) != n:
            raise numbers.error(f"labeling {i} has {n} variables, the first {len(rows[0])}", 0)
    if not rows:
        raise FormatError("the file ends after its first word; it is truncated", name)
    return np.stack(rows)


def write_uai_mmap(labels: Mapping[int, int], target: Target) -> None:
    """Write the labels of some variables: ``MMAP``, then ``k v1 x1 .. vk xk``.

    Parameters
    ----------
    labels : mapping of int to int
        State of each query variable, in the order of the query.
    target : path or text file

    Examples
    --------
    >>> import sys
    >>> write_uai_mmap({2: 0, 3: 1, 4: 0}, sys.stdout)
    MMAP
    3 2 0 3 1 4 0
    """
    words = [len(labels), *(number for pair in labels.items() for number in pair)]
    _emit("MMAP\n" + " ".join(map(str, words)) + "\n", target)


def read_uai_mmap(source: Source) -> dict[int, int]:
    """Read the labels of the query variables.

    Examples
    --------
    >>> import io
    >>> read_uai_mmap(io.BytesIO(b"MMAP 3 2 0 3 1 4 0"))
    {2: 0, 3: 1, 4: 0}
    """
    numbers = _after_word(source, "MMAP")
    k = numbers.count("the number of query variables", each=2)
    labels: dict[int, int] = {}
    for i in range(k):
        variable = numbers.integer(f"query variable number {i}")
        if variable in labels:
            raise numbers.error(f"variable {variable} is labeled twice; keep one", numbers.at - 1)
        labels[variable] = numbers.integer(f"the state of variable {variable}")
    numbers.finish()
    return labels


def _after_word(source: Source, word: str) -> Numbers:
    text, name = read_numbers_text(source)
    return Numbers(text, name, first_word(text, name, word))


def _emit(text: str, target: Target) -> None:
    with open_writer(target) as stream:
        stream.write(text)
