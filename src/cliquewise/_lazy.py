"""Attributes of packages that are imported on first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_attributes(
    package: str, names: Mapping[str, str], modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Parameters
    ----------
    package : str
        Its full name.
    names : mapping from str to str
        For every public name, the module in the package that defines it.
    modules : mapping from str to str, optional
        Public names of whole modules of the package. All get into ``__dir__`` only by
        ``__all__`` of the package.

    Examples
    --------
    >>> load, _ = lazy_attributes("cliquewise", {"Trace": "trace"})
    >>> load("Trace").__module__
    'cliquewise.trace'
    """
    modules = modules or {}

    def load(name: str) -> Any:
        if name in names:
            value = getattr(importlib.import_module(f"{package}.{names[name]}"), name)
        elif name in modules:
            value = importlib.import_module(f"{package}.{modules[name]}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def public_names() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return load, public_names
