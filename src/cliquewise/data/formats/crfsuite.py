r"""CRFsuite's data format: ``label TAB attribute[:value] TAB ...``, blank lines between.

In a label or an attribute, ``\:`` is a colon and ``\\`` a backslash. A field that starts with
``#`` begins a comment. A line ``@weight:2.5`` gives the weight of the sequence it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cliquewise.data.flatten import flatten_token
from cliquewise.data.formats.text import Progress, numbered, open_writer, read_lines
from cliquewise.errors import DataError, FormatError

_SPECIAL = re.compile(r"\\.|:", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\:])")


@dataclass(frozen=True, eq=False)
class LabeledSequences:
    """Sequences of attributes and of labels, ready for `FeatureEncoder` and `Labels`.

    Parameters
    ----------
    X : list of list of list
        For each sequence and token, attributes: strings, or (string, value) pairs where the
        file gives values.
    y : list of list of str
        Labels.
    weights : float64 array or None
        Weight of each sequence, None if the file gives none.
    """

    X: list[list[list[Any]]]
    y: list[list[str]]
    weights: NDArray[np.float64] | None


def read_crfsuite(
    path: str | Path, *, encoding: str = "utf-8", progress: Progress | None = None
) -> LabeledSequences:
    r"""Read a file in CRFsuite's format, plain or compressed (gzip, xz, bzip2).

    Parameters
    ----------
    path : str or Path
        The file.
    encoding : str, default="utf-8"
        How characters are written.
    progress : callable, optional
        Called as ``progress(bytes_done, bytes_total)`` now and then.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.crfsuite"
    >>> _ = path.write_text("B\tw=Rome\tlength:4\nO\tw=\\:\n\n")
    >>> data = read_crfsuite(path)
    >>> data.X, data.y
    ([[['w=Rome', ('length', 4.0)], ['w=:']]], [['B', 'O']])
    """
    with numbered(read_lines(path, encoding, progress), path) as lines:
        return parse_lines(lines)


def parse_lines(lines: Iterable[str]) -> LabeledSequences:
    """Read lines of the format; see `read_crfsuite`."""
    X: list[list[list[Any]]] = []
    y: list[list[str]] = []
    weights: list[float] = []
    tokens: list[list[Any]] = []
    labels: list[str] = []
    weight, weighted = 1.0, False

    def finish() -> None:
        nonlocal tokens, labels, weight
        if tokens:
            X.append(tokens)
            y.append(labels)
            weights.append(weight)
        tokens, labels, weight = [], [], 1.0

    for line in lines:
        if not line:
            finish()
            continue
        fields = [field for field in line.split("\t") if field]
        if "\t#" in line or line.startswith("#"):
            fields = _without_comment(fields)
        if not fields:
            continue
        if len(fields) == 1 and " " in fields[0] and not tokens and not X:
            raise FormatError(
                f"no tab in {line!r:.60}; this is read as CRFsuite's format, LABEL TAB FEATURE TAB "
                "..., as for models that were trained on features (those that were trained on "
                'columns, by cliquewise fit or with template="columns", read columns)'
            )
        if fields[0].startswith("@"):
            weight, weighted = _directive(fields[0]), True
            continue
        if ":" in line or "\\" in line:
            parsed = [_field(field) for field in fields]
            labels.append(parsed[0] if isinstance(parsed[0], str) else parsed[0][0])
            tokens.append(parsed[1:])
        else:
            labels.append(fields[0])
            tokens.append(fields[1:])
    finish()
    return LabeledSequences(X, y, np.array(weights) if weighted else None)


def _without_comment(fields: list[str]) -> list[str]:
    end = next((i for i, field in enumerate(fields) if field.startswith("#")), len(fields))
    return fields[:end]


def _directive(field: str) -> float:
    name, _, value = field.partition(":")
    if name != "@weight":
        raise FormatError(f"unknown directive {name!r}; only @weight is known")
    weight = _number(value, field)
    if weight < 0:
        raise FormatError(f"a weight below zero: {value}")
    return weight


def _field(field: str) -> str | tuple[str, float]:
    if "\\" not in field:
        name, _, value = field.partition(":")
    else:
        colon = next((m.start() for m in _SPECIAL.finditer(field) if m[0] == ":"), len(field))
        name, value = _ESCAPED.sub(r"\1", field[:colon]), field[colon + 1 :]
    if not value:
        return name
    if ":" in value:
        raise FormatError(
            rf"{field!r:.60} has two colons; write a colon that belongs to the name as \:"
        )
    return name, _number(value, field)


def _number(text: str, field: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise FormatError(
            rf"{text!r:.60} in {field!r:.60} is not a number; write a colon that belongs to the "
            r"name as \:"
        ) from None
    if not np.isfinite(value):
        raise FormatError(f"the value in {field!r} is not finite")
    return value


def write_crfsuite(
    target: str | Path | IO[str],
    X: Sequence[Sequence[Any]],
    y: Sequence[Sequence[Any]],
    weights: ArrayLike | None = None,
) -> None:
    """Write sequences in CRFsuite's format to a file or a text stream.

    Parameters
    ----------
    target : str, Path or text stream
        Where to write; a suffix such as ``.gz`` compresses.
    X : list of sequences of tokens
        Dicts, lists of strings or of (string, value) pairs.
    y : list of sequences of labels
        One for each token.
    weights : array of float, optional
        One for each sequence.

    Examples
    --------
    >>> import sys
    >>> write_crfsuite(sys.stdout, [[["w=Rome", ("length", 4.0)]]], [["B-LOC"]])
    ... # doctest: +NORMALIZE_WHITESPACE
    B-LOC	w=Rome	length:4.0
    <BLANKLINE>
    """
    if len(X) != len(y):
        raise DataError(f"X has {len(X)} sequences, y has {len(y)}")
    scale = None if weights is None else np.asarray(weights, dtype=np.float64).tolist()
    with open_writer(target) as stream:
        for i, (tokens, labels) in enumerate(zip(X, y)):
            if len(tokens) != len(labels):
                raise DataError(f"example {i} has {len(tokens)} tokens but {len(labels)} labels")
            if scale is not None:
                stream.write(f"@weight:{scale[i]!r}\n")
            for token, label in zip(tokens, labels):
                stream.write(_line(label, token, i))
            stream.write("\n")


def _line(label: Any, token: Any, example: int) -> str:
    fields = [_escape(str(label), example)]
    if fields[0].startswith("@"):
        raise DataError(f"example {example}: the format has no label that starts with @")
    for name, value in zip(*flatten_token(token)):
        text = _escape(name, example)
        fields.append(text if value == 1.0 else f"{text}:{value!r}")
    return "\t".join(fields) + "\n"


def _escape(name: str, example: int) -> str:
    if not name or name[0] == "#" or any(c in name for c in "\t\n\r"):
        raise DataError(
            f"example {example}: the format cannot hold {name!r} (empty, a # in front, "
            "a tab or a line end)"
        )
    return name.replace("\\", "\\\\").replace(":", "\\:")
