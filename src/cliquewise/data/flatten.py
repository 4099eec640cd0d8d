"""Convert one token to names and values; see `cliquewise.data.token_encoder` for the names."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from cliquewise.data.matrices import LARGEST, remedy
from cliquewise.errors import DataError


def in_order(token: Any) -> Any:
    """Return the items of a set sorted, since its order differs between processes.

    Examples
    --------
    >>> in_order({"b", "a"}), in_order(["b", "a"])
    (['a', 'b'], ['b', 'a'])
    """
    if not isinstance(token, (set, frozenset)):
        return token
    try:
        return sorted(token)
    except TypeError:
        return sorted(token, key=repr)


def flatten_token(token: Any) -> tuple[list[str], list[float]]:
    """Return the attributes of one token and their values.

    Examples
    --------
    >>> flatten_token({"word": "Rome", "length": 4, "in": ["places", "names"]})
    (['word:Rome', 'length', 'in:places', 'in:names'], [1.0, 4.0, 1.0, 1.0])
    """
    names: list[str] = []
    values: list[float] = []
    flatten_into(token, names, values)
    return names, values


def flatten_into(token: Any, names: list[str], values: list[float]) -> None:
    if isinstance(token, dict):
        for key, value in token.items():
            if type(key) is str and type(value) is str:  # by far the most frequent case
                names.append(f"{key}:{value}")
                values.append(1.0)
            else:
                _flatten_value(_text(key), value, names, values)
    elif isinstance(token, (list, tuple, set, frozenset)):
        for item in in_order(token):
            if type(item) is str:
                names.append(item)
                values.append(1.0)
            elif isinstance(item, tuple) and len(item) == 2:
                names.append(_text(item[0]))
                values.append(_number(item[0], item[1]))
            else:
                names.append(_text(item))
                values.append(1.0)
    else:
        raise DataError(_not_a_token(token))


def _flatten_value(key: str, value: Any, names: list[str], values: list[float]) -> None:
    if isinstance(value, (str, bytes)):
        names.append(f"{key}:{_text(value)}")
        values.append(1.0)
    elif isinstance(value, (dict, list, set, frozenset)):
        start = len(names)
        flatten_into(value, names, values)
        names[start:] = [f"{key}:{name}" for name in names[start:]]
    else:
        names.append(key)
        values.append(_number(key, value))


def _text(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    if isinstance(key, bytes):
        try:
            return key.decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"the attribute {key!r} is not UTF-8; decode it first") from None
    deep = "; is there a list too many around the tokens?" if isinstance(key, dict | list) else ""
    raise DataError(f"an attribute must be a string, not {type(key).__name__} {key!r:.80}{deep}")


def _number(key: Any, value: Any) -> float:
    if isinstance(value, (Real, np.bool_)):
        try:
            number = float(value)
        except OverflowError:
            number = np.inf
        if not -LARGEST <= number <= LARGEST:
            raise DataError(f"attribute {key!r} is {number}; {remedy(number)}")
        return number
    raise DataError(
        f"attribute {key!r} has a value of type {type(value).__name__}; "
        "a value is a number, a bool, a string, a list or set of strings, or a dict of these"
    )


def _not_a_token(token: Any) -> str:
    if isinstance(token, (str, bytes)):
        return (
            f"the token is the string {token!r:.80}; give a list of attributes, [{token!r:.80}], "
            "or a dict"
        )
    remedy = "give a dict, a list of strings, or a 2-D array for the whole sequence"
    return f"a token cannot be a {type(token).__name__}; {remedy}"
