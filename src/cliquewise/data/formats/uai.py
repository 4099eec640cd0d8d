"""The UAI format: models (MARKOV, BAYES) and evidence.

The format is described at https://uaicompetition.github.io/uci-2022/file-formats/. Tables
stand there in linear scale and here in natural logarithms; a zero becomes ``-inf``.
Result files (MAR, PR, MAP) are in :mod:`cliquewise.data.formats.uai_results`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.formats._numbers import Numbers, Source, first_word, read_numbers_text
from cliquewise.data.formats.text import open_writer
from cliquewise.errors import FormatError, GraphError, warn_user
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import MAX_CARDINALITY, Structure
from cliquewise.ragged import Ints, owner_of

#: Log-potentials whose exponential is a normal float64; others are written digit by digit.
_PLAIN = (-708.0, 709.0)
#: Largest log-potential, in size, that can be written at all (10 to the power 999999).
_WRITABLE = 2.3e6
#: How far the sum of a row of chances may be from one, for each of them: files are rounded.
_ROUNDED = 1e-3
#: States of variables may be many more than the numbers in the file only up to here.
_FREE_STATES = 10_000_000


def read_uai(source: Source, evidence: Source | Mapping[int, int] | None = None) -> FactorGraph:
    """Read a model, plain or packed with gzip, xz or bzip2.

    Parameters
    ----------
    source : path or binary file
    evidence : path, binary file or mapping of variable to state, optional
        Observed variables. A file that merely lies beside the model is not used.

    Returns
    -------
    FactorGraph

    Raises
    ------
    FormatError
        If the file is malformed, truncated or absurd; the message names the place.

    Warns
    -----
    UserWarning
        If the rows of a ``BAYES`` model do not sum to one, beyond rounding.

    Examples
    --------
    >>> import io
    >>> graph = read_uai(io.BytesIO(b"MARKOV 2  2 2  1  2 0 1  4  1 0.5 0.25 0"))
    >>> graph.table(0)
    array([[ 0.        , -0.69314718],
           [-1.38629436,        -inf]])
    """
    text, name = read_numbers_text(source)
    numbers = Numbers(text, name, start=first_word(text, name, "MARKOV", "BAYES"))
    n = numbers.count("the number of variables")
    cardinalities = numbers.integers(n, "the cardinality of variable {}", 1, MAX_CARDINALITY)
    if cardinalities.sum() > max(_FREE_STATES, len(numbers.values)):
        raise numbers.error(
            f"the variables have {cardinalities.sum():.3g} states in all, far more than the file "
            "has numbers; are the cardinalities right?",
            numbers.at - 1,
        )
    scopes, offsets = _scopes(numbers, n)
    try:
        structure = Structure.from_arrays(cardinalities, scopes, offsets)
    except GraphError as error:
        raise FormatError(f"{error}; correct the scope in the file", name) from error
    tables = _tables(numbers, structure)
    if text.lstrip()[:5].upper() == b"BAYES":
        _check_rows(structure, tables, name)
    graph = FactorGraph.from_structure(structure, tables)
    if evidence is None:
        return graph
    if isinstance(evidence, Mapping):
        return graph.condition(evidence)
    return _observe(graph, evidence)


def _scopes(numbers: Numbers, n: int) -> tuple[Ints, Ints]:
    """Variables of all factors, flat, and where each factor's begin."""
    # A factor takes three numbers at least: its order, its table's size and one entry.
    m = numbers.count("the number of factors", each=3)
    item, end = numbers.values.item, len(numbers.values)
    at = numbers.at
    heads = np.empty(m, dtype=np.int64)
    for f in range(m):
        order = item(at) if at < end else 0.0
        if not (0 <= order <= n and order == int(order)) or at + order >= end:
            numbers.at = at
            numbers.integer(f"the number of variables of factor {f}", 0, n)
            raise numbers.error(f"the file ends in the scope of factor {f}; it is truncated", end)
        heads[f] = at
        at += int(order) + 1
    first = numbers.at
    inside = np.ones(at - first, dtype=bool)
    inside[heads - first] = False
    flat = numbers.values[first:at][inside]
    offsets = np.concatenate((heads - first - np.arange(m), [at - first - m]))
    bad = ~((flat >= 0) & (flat < n) & (np.floor(flat) == flat))
    if bad.any():
        i = int(np.argmax(bad))
        f, _ = owner_of(offsets, i)
        raise numbers.error(
            f"factor {f} names variable {flat[i]:.16g}, but the variables are 0..{n - 1}",
            first + int(np.flatnonzero(inside)[i]),
        )
    numbers.at = at
    return flat.astype(np.int64), offsets.astype(np.int64)


def _tables(numbers: Numbers, structure: Structure) -> NDArray[np.float64]:
    """Log-potentials of all factors; every size is checked against the scope and the file."""
    first, m = numbers.at, structure.n_factors
    sizes = np.diff(structure.table_offsets)
    heads = first + structure.table_offsets[:-1] + np.arange(m)
    here = heads[heads < len(numbers.values)]
    wrong = numbers.values[here] != sizes[: len(here)]
    if wrong.any():
        f = int(np.argmax(wrong))
        raise numbers.error(
            f"the table of factor {f} is said to have {numbers.values[heads[f]]:.16g} entries, "
            f"but its scope {tuple(structure.scope(f).tolist())} needs {sizes[f]}; "
            "one of the two is wrong, or an earlier table has too few or too many entries",
            int(heads[f]),
        )
    needed = int(structure.table_offsets[-1]) + m
    if needed > numbers.left:
        f = int(np.searchsorted(heads, len(numbers.values), side="right")) - 1
        raise numbers.error(
            f"the file ends in the table of factor {max(f, 0)}: {needed - numbers.left} numbers "
            "are missing; it is truncated, or the number of factors is wrong",
            len(numbers.values),
        )
    entry = np.ones(needed, dtype=bool)
    entry[heads - first] = False
    where = np.flatnonzero(entry) + first
    values = numbers.values[where]
    bad = ~(values >= 0)
    if bad.any():
        i = int(np.argmax(bad))
        f, _ = owner_of(structure.table_offsets, i)
        raise numbers.error(
            f"entry {i - structure.table_offsets[f]} of factor {f} is {values[i]:g}; potentials "
            "are finite and not negative (the format has no logarithms)",
            int(where[i]),
        )
    numbers.at += needed
    numbers.finish()
    return numbers.logs(where)


def _check_rows(structure: Structure, tables: NDArray[np.float64], name: str) -> None:
    """Warn of conditional tables whose rows, over the last variable of a scope, are no chances."""
    last = structure.scope_offsets[1:] - 1
    filled = np.diff(structure.scope_offsets) > 0
    children = np.where(filled, structure.scopes[np.maximum(last, 0)], -1)
    states = np.where(filled, structure.cardinalities[np.maximum(children, 0)], 1)
    rows = np.diff(structure.table_offsets) // states
    lengths = np.repeat(states, rows)
    if not len(lengths):
        return
    ends = np.cumsum(lengths)
    sums = np.add.reduceat(np.exp(tables), ends - lengths)
    wrong = np.flatnonzero(~(np.abs(sums - 1.0) <= _ROUNDED * lengths))
    if not len(wrong):
        return
    f = int(np.searchsorted(np.cumsum(rows), wrong[0], side="right"))
    of = f"variable {children[f]}" if children[f] >= 0 else f"factor {f}"
    more = f", nor do {len(wrong) - 1} further rows" if len(wrong) > 1 else ""
    warn_user(
        f"{name}: a row of the conditional table of {of} (factor {f}) sums to "
        f"{sums[wrong[0]]:.6g}, not to one{more}; the numbers are taken as they are. The last "
        "variable of a scope is the child; tables of another kind belong into a MARKOV file"
    )


def read_uai_evidence(source: Source) -> dict[int, int]:
    """Read an evidence file in either layout.

    They are ``k v1 x1 .. vk xk`` and the same after a ``1``, the number of evidence sets.
    The first has an odd count of numbers and the second an even one.

    Parameters
    ----------
    source : path or binary file

    Returns
    -------
    dict
        State of each observed variable.

    Examples
    --------
    >>> import io
    >>> read_uai_evidence(io.BytesIO(b"2  0 1  3 0"))
    {0: 1, 3: 0}
    >>> read_uai_evidence(io.BytesIO(b"1\\n2  0 1  3 0"))
    {0: 1, 3: 0}
    """
    text, name = read_numbers_text(source)
    numbers = Numbers(text, name)
    if not numbers.left:
        raise FormatError("the evidence file is empty; write 0 for no evidence", name)
    if numbers.left % 2 == 0:
        sets = numbers.integer("the number of evidence sets")
        if sets != 1:
            raise numbers.error(
                f"{len(numbers.values)} numbers that begin with {sets} fit neither layout: "
                "'k v1 x1 .. vk xk' has an odd count, and '1' before it is one evidence set",
                0,
            )
    k = numbers.integer("the number of observed variables")
    if numbers.left != 2 * k:
        raise numbers.error(
            f"{k} observed variables need {2 * k} numbers after their count, but there are "
            f"{numbers.left}; correct the count or the list",
            numbers.at - 1,
        )
    evidence: dict[int, int] = {}
    for i in range(k):
        variable = numbers.integer(f"observed variable number {i}")
        state = numbers.integer(f"the state of variable {variable}")
        if evidence.setdefault(variable, state) != state:
            raise numbers.error(
                f"variable {variable} is given two states, {evidence[variable]} and {state}; "
                "keep one",
                numbers.at - 1,
            )
    return evidence


def read_uai_query(source: Source, n_variables: float = math.inf) -> list[int]:
    """Read a query file: how many variables are to be labeled, and their numbers.

    Parameters
    ----------
    source : path or binary file
    n_variables : int, optional
        Of the model; larger numbers in the file are an error then.

    Examples
    --------
    >>> import io
    >>> read_uai_query(io.BytesIO(b"4 0 4 8 17"))
    [0, 4, 8, 17]
    """
    text, name = read_numbers_text(source)
    numbers = Numbers(text, name)
    if not numbers.left:
        raise FormatError("the query file is empty; write 0 to sum out all variables", name)
    k = numbers.count("the number of query variables")
    first = numbers.at
    asked = numbers.integers(k, "query variable number {}")
    if k and asked.max() >= n_variables:
        i = int(np.argmax(asked))
        raise numbers.error(
            f"the query names variable {asked[i]}, but the variables are 0..{n_variables - 1}; is "
            "this the query of another model?", first + i
        )  # fmt: skip
    unique, places = np.unique(asked, return_index=True)
    if len(unique) < k:
        i = int(np.setdiff1d(np.arange(k), places)[0])
        raise numbers.error(f"the query names variable {asked[i]} twice; keep one", first + i)
    numbers.finish()
    return [int(v) for v in asked]


def _observe(graph: FactorGraph, source: Source) -> FactorGraph:
    evidence = read_uai_evidence(source)
    try:
        return graph.condition(evidence)
    except GraphError as error:
        name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
        raise FormatError(
            f"{error}; is this the evidence of another model?",
            None if name is None else os.fspath(name),
        ) from error


def write_uai(
    graph: FactorGraph,
    path: str | os.PathLike[str],
    *,
    evidence: str | os.PathLike[str] | None = None,
    kind: str = "MARKOV",
) -> None:
    """Write a model; a name that ends in .gz, .xz or .bz2 is packed.

    A graph that was read from a file gets the same log-potentials when it is read again, to
    the last bit; any other the same within the rounding of ``exp`` (2.3e-16). Log-potentials
    whose exponential is no float64 are written as decimals like 1e-400, which
    :func:`read_uai` understands and other programs may take for zero or infinity.

    Parameters
    ----------
    graph : FactorGraph
    path : path
    evidence : path, optional
        Where to write the observed variables; needed if there are any.
    kind : {"MARKOV", "BAYES"}, default="MARKOV"
        ``BAYES`` says that every factor is a conditional table of its last variable.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> graph = FactorGraph([2], [((0,), [0.0, 1.0])])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_uai(graph, pathlib.Path(folder) / "model.uai.gz")
    ...     read_uai(pathlib.Path(folder) / "model.uai.gz").table(0)
    array([0., 1.])
    """
    if kind not in ("MARKOV", "BAYES"):
        raise GraphError(f"kind is {kind!r}; a UAI model is MARKOV or BAYES")
    if graph.evidence and evidence is None:
        raise GraphError(
            f"the graph has {len(graph.evidence)} observed variables, which a UAI model file "
            "cannot hold; name a file for them with evidence="
        )
    s = graph.structure
    entries = _linear(graph)
    lines = [kind, str(s.n_variables), " ".join(map(str, s.cardinalities.tolist()))]
    lines.append(str(s.n_factors))
    scopes, ends = list(map(str, s.scopes.tolist())), s.scope_offsets.tolist()
    lines += [" ".join([str(b - a), *scopes[a:b]]) for a, b in pairwise(ends)]
    ends = s.table_offsets.tolist()
    for a, b in pairwise(ends):
        lines += ["", str(b - a), " ".join(entries[a:b])]
    with open_writer(path) as file:
        file.write("\n".join(lines) + "\n")
    if evidence is not None:
        pairs = "".join(f" {v} {x}" for v, x in graph.evidence.items())
        with open_writer(evidence) as file:
            file.write(f"{len(graph.evidence)}{pairs}\n")


def _linear(graph: FactorGraph) -> list[str]:
    """Every potential in linear scale, as decimals that read back to its logarithm."""
    logs = graph.tables
    plain = (logs > _PLAIN[0]) & (logs < _PLAIN[1])
    values = np.zeros(len(logs))
    np.exp(logs, out=values, where=plain)
    # exp and log both round, so that log(exp(t)) may miss t where a neighbor would not.
    ones = np.ones(len(logs))
    exact = np.log(values, out=ones.copy(), where=plain) == logs
    for direction in (0.0, np.inf):
        moved = values
        for _ in range(2):
            moved = np.nextafter(moved, direction)
            hit = plain & ~exact & (np.log(moved, out=ones.copy(), where=plain) == logs)
            values[hit] = moved[hit]
            exact |= hit
    out = list(map(repr, values.tolist()))
    for i in np.flatnonzero(~plain & (logs > -np.inf)):
        if abs(logs[i]) > _WRITABLE:
            f, _ = owner_of(graph.structure.table_offsets, int(i))
            raise GraphError(
                f"factor {f} has the log-potential {logs[i]:g}, whose exponential cannot be "
                f"written; the UAI format takes those up to {_WRITABLE:g} in size"
            )
        out[i] = f"{Decimal(float(logs[i])).exp():.24E}"
    return out
