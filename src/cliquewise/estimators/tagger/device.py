"""What a tagger with a ``device`` asks of PyTorch."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def on_device() -> Any:
    """`cliquewise.torch.device`, by its name: PyTorch is an extra, and its room is above this one.

    Raises
    ------
    MissingDependencyError
        Where PyTorch is not installed.
    """
    return import_module("cliquewise.torch.device")
