"""Damage to texts, and to files of arrays whose check sum is then put right."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .drawing import Rng, chance, pick

NUMBERS = ("nan", "inf", "-inf", "1e400", "-1", "0", "1.7", "1e18", "99999999999999999999",
           "1e-320", "0x10", "1_000", "٣", "--1", "300000000", "2147483648", "")  # fmt: skip
PIECES = ("\x00", "\ufeff", "\r", "\t", " ", "\n\n", "'", '"', "\\", ",", ":", "%x[", "{", "}", "<",
          "é", "\ud800", "\u2028", "#", "@data\n", "[", "(a+)+$", "-DOCSTART-",
          "*" * 40)  # fmt: skip


def damaged_text(rng: Rng, text: str) -> str:
    """A text with a few things wrong."""
    for _ in range(int(rng.integers(1, 4))):
        how = rng.random()
        at = int(rng.integers(len(text) + 1))
        end = min(len(text), at + int(rng.integers(1, 12)))
        if how < 0.4:
            words = [m.span() for m in re.finditer(r"[^\s,:;{}\[\]]+", text)]
            if words:
                first, last = pick(rng, *words)
                text = text[:first] + pick(rng, *NUMBERS) + text[last:]
        elif how < 0.55:
            text = text[:at] + text[end:]
        elif how < 0.75:
            text = text[:at] + pick(rng, *PIECES) + text[at:]
        elif how < 0.85:
            text = text[:at] + text[at:end] * pick(rng, 2, 3, 50) + text[end:]
        elif how < 0.9:
            text = text[:at]
        elif how < 0.93:
            text = text[:at] + pick(rng, *PIECES) * 30_000 + text[at:]
        else:
            lines = text.splitlines(keepends=True)
            text = "".join(lines[i] for i in rng.permutation(len(lines)))
    return text


# ---- arrays and headers

VALUES = (None, -1, 0, 1, 10**20, 1e308, float("inf"), float("nan"), True, "log", "", "x" * 300,
          [], {}, [[]], [1, "a"], {"a": 1}, "../../x", 2**31, 0.5)  # fmt: skip
OPERATIONS = (
    "nan",
    "inf",
    "minus",
    "huge",
    "one",
    "swap",
    "short",
    "long",
    "type",
    "flat",
    "gone",
    "add",
    "nudge",
)


def draw_damage(rng: Rng, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> list[Any]:
    """What to change, as plain data."""
    out: list[Any] = []
    for _ in range(int(rng.integers(1, 4))):
        if arrays and chance(rng, 0.65):
            out.append({"array": pick(rng, *sorted(arrays)), "how": pick(rng, *OPERATIONS),
                        "at": float(f"{rng.random():.4f}")})  # fmt: skip
            continue
        path: list[Any] = []
        here: Any = header
        while isinstance(here, dict | list) and len(here) and (not path or chance(rng, 0.8)):
            key = pick(rng, *(sorted(here) if isinstance(here, dict) else range(len(here))))
            path.append(key)
            here = here[key]
        if path[0] in ("version", "kind") and len(path) == 1 and chance(rng, 0.8):
            continue
        change: dict[str, Any] = {"header": path}
        if chance(rng, 0.8):
            change["value"] = pick(rng, *VALUES)
        out.append(change)
    return out


def apply_damage(
    arrays: dict[str, np.ndarray], header: dict[str, Any], damage: list[Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and header with the changes; those that do not fit are left out."""
    arrays = {name: np.array(array) for name, array in arrays.items()}
    for change in damage:
        if "array" in change:
            name = change["array"]
            if name in arrays:
                changed = _changed(arrays[name], change["how"], change.get("at", 0.0))
                if changed is None:
                    del arrays[name]
                else:
                    arrays[name] = changed
            continue
        here: Any = header
        try:
            for key in change["header"][:-1]:
                here = here[key]
            if "value" in change:
                here[change["header"][-1]] = change["value"]
            else:
                del here[change["header"][-1]]
        except (KeyError, IndexError, TypeError):
            continue
    return arrays, header


def _changed(array: np.ndarray, how: str, at: float) -> np.ndarray | None:
    flat = array.ravel()
    place = min(int(at * len(flat)), max(len(flat) - 1, 0))
    number = array.dtype.kind in "iuf"
    if how == "gone":
        return None
    if how == "short":
        return flat[:place] if array.ndim == 1 else array[: max(0, len(array) - 1)]
    if how == "long":
        return np.concatenate([array, array]) if array.ndim else np.array([array, array])
    if how == "flat":
        return flat.reshape(1, -1) if array.ndim == 1 else flat
    if how == "type":
        return array.astype(np.float32 if array.dtype.kind == "f" else np.float64)
    if not len(flat) or not number:
        return array
    if how == "nudge" and array.dtype.kind == "f":
        return array * (1 + 9e-10)
    if how == "swap":
        return flat[::-1].reshape(array.shape).copy()
    if array.dtype.kind != "f":
        limits = np.iinfo(array.dtype)
        flat[place] = {"nan": limits.max, "inf": limits.min, "minus": limits.min + 1 if
                       limits.min == 0 else -1, "huge": 10**6 % limits.max, "one": 1}.get(
                           how, flat[place] ^ 1)  # fmt: skip
    else:
        flat[place] = {"nan": np.nan, "inf": np.inf, "minus": -flat[place] - 1, "huge": 1e300,
                       "one": 1.0}.get(how, flat[place] + 0.125)  # fmt: skip
    return flat.reshape(array.shape)
