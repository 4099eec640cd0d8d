"""The templates `columns`, `chunking` and `ner`, and the changes of words that rules may ask for.

A change is computed once for each distinct word, so it may be slow; one that returns None
makes no attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby

from cliquewise.data.expressions import Expression
from cliquewise.data.rules import Macro, Rule
from cliquewise.errors import DataError

Change = Callable[[str], "str | None"]

_SHAPES = {".,": ".", ";:?!": ";", "+-*/=|_": "-", "({[<": "(", ")}]>": ")"}
_SHAPE_OF = {c: shape for letters, shape in _SHAPES.items() for c in letters}


def shape(word: str) -> str:
    """Write U, L, D for upper case, lower case and digits, and classes of punctuation.

    Examples
    --------
    >>> shape("McDonald's-2")
    "ULULLLLL'L-D"
    """
    return "".join(map(_shape_of_character, word))


def _shape_of_character(c: str) -> str:
    if c.isupper():
        return "U"
    if c.islower():
        return "L"
    return "D" if c.isdigit() else _SHAPE_OF.get(c, c)


def short_shape(word: str) -> str:
    """Return the shape with each run of one letter written once: ``Rome`` is ``UL``."""
    return "".join(letter for letter, _ in groupby(shape(word)))


def word_type(word: str) -> str:
    """Name what the word is made of, such as ``InitUpper`` or ``AllDigit``."""
    upper = any(c.isupper() for c in word)
    lower = any(c.islower() for c in word)
    digit = any(c.isdigit() for c in word)
    symbol = any(not c.isalnum() for c in word)
    if not lower and (upper or digit or symbol):
        parts = ("Upper", upper), ("Digit", digit), ("Symbol", symbol)
        return "All" + "".join(name for name, there in parts if there)
    if word[:1].isupper():
        return "InitUpper"
    if symbol:
        return "LowerSymbol"
    return "LowerDigit" if digit else "Lower"


def _prefix(word: str, n: int) -> str | None:
    return word[:n] if len(word) >= n else None


def _suffix(word: str, n: int) -> str | None:
    return word[-n:] if len(word) >= n else None


CHANGES: dict[str, Change] = {
    "lower": str.lower,
    "shape": shape,
    "short_shape": short_shape,
    "type": word_type,
    **{f"prefix{n}": partial(_prefix, n=n) for n in (1, 2, 3, 4)},
    **{f"suffix{n}": partial(_suffix, n=n) for n in (1, 2, 3, 4)},
}


def change_of(name: str) -> Change:
    """Return the function behind a macro's `change`.

    Examples
    --------
    >>> change_of("test:^R")("Rome"), change_of("suffix2")("Rome")
    ('true', 'me')
    """
    if name in CHANGES:
        return CHANGES[name]
    kind, _, pattern = name.partition(":")
    if kind not in ("test", "match", "lower_match"):
        raise DataError(f"no change {name!r}; there are {', '.join(CHANGES)}")
    search = Expression.parse(pattern).search
    if kind == "test":
        return lambda word: "false" if search(word) is None else "true"
    if kind == "match":
        return lambda word: search(word) or ""
    return lambda word: (search(word) or "").lower()


def _rule(*fields: tuple[str, int, int, str]) -> Rule:
    """CRFsuite's way to write an attribute: ``w[-1]|w[0]=value|value``."""
    name = "|".join(f"{field}[{row}]" for field, row, _, _ in fields)
    parts = (name + "=", *["|"] * (len(fields) - 1), "")
    return Rule(parts, tuple(Macro(row, col, change) for _, row, col, change in fields))


def _grams(field: str, column: int, n: int, rows: range, change: str = "") -> Iterator[Rule]:
    for row in rows:
        yield _rule(*[(field, row + k, column, change) for k in range(n)])


def _ends() -> Iterator[Rule]:
    yield Rule(("__BOS__",), (), "first")
    yield Rule(("__EOS__",), (), "last")


def _chunking(n_columns: int) -> Iterator[Rule]:
    yield from _grams("w", 0, 1, range(-2, 3))
    yield from _grams("w", 0, 2, range(-1, 1))
    for n in (1, 2, 3):
        yield from _grams("pos", 1, n, range(-2, 4 - n))
    yield from _ends()


def _ner(n_columns: int) -> Iterator[Rule]:
    yield from _grams("w", 0, 1, range(-2, 3))
    yield from _grams("w", 0, 2, range(-1, 1))
    yield from _grams("wl", 0, 1, range(-2, 3), "lower")
    for n in (1, 2, 3, 4):
        yield _rule((f"p{n}", 0, 0, f"prefix{n}"))
        yield _rule((f"s{n}", 0, 0, f"suffix{n}"))
    yield _rule(("shape", 0, 0, "shape"))
    for name, change in (("shaped", "short_shape"), ("type", "type")):
        yield from _grams(name, 0, 1, range(-2, 3), change)
        yield from _grams(name, 0, 2, range(-1, 1), change)
    for name, column in (("pos", 1), ("chk", 2)):
        if column < n_columns:
            yield from _grams(name, column, 1, range(-2, 3))
            yield from _grams(name, column, 2, range(-1, 1))
    yield from _ends()


def _columns(n_columns: int) -> Iterator[Rule]:
    """Words as in `ner`, leaner; further columns as the tags of `chunking`, and their pairs."""
    yield from _grams("w", 0, 1, range(-2, 3))
    yield from _grams("w", 0, 2, range(-1, 1))
    yield from _grams("wl", 0, 1, range(-1, 2), "lower")
    for n in (1, 2, 3, 4):
        yield _rule((f"p{n}", 0, 0, f"prefix{n}"))
        yield _rule((f"s{n}", 0, 0, f"suffix{n}"))
    for n in (1, 2):
        yield from _grams("shaped", 0, n, range(-1, 3 - n), "short_shape")
    for column in range(1, n_columns):
        for n in (1, 2, 3):
            yield from _grams(f"c{column}", column, n, range(-2, 4 - n))
        for other in range(column + 1, n_columns):
            yield _rule((f"c{column}", 0, column, ""), (f"c{other}", 0, other, ""))
    yield from _ends()


#: Columns that `columns` looks at; a file with more of them is a matrix of something else.
MOST_COLUMNS = 16

#: The template of columns that come without one.
DEFAULT = "columns"

BUILTIN: dict[str, tuple[Callable[[int], Iterator[Rule]], int, int]] = {
    # name: (rules by number of columns, columns needed, columns used)
    "chunking": (_chunking, 2, 2),
    "ner": (_ner, 1, 3),
    "columns": (_columns, 1, MOST_COLUMNS),
}
