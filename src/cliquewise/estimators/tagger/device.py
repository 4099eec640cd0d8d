"""Access to ``cliquewise.torch.device``, for taggers with a ``device``."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def torch_device() -> ModuleType:
    """Import and return ``cliquewise.torch.device``.

    The module is imported by name because PyTorch is an optional dependency and the torch package
    is a higher layer.

    Raises
    ------
    MissingDependencyError
        If PyTorch is not installed.
    """
    return import_module("cliquewise.torch.device")
