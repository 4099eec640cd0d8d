"""Calls that torch.compile leaves alone; imported while it compiles, as its import is slow."""

from __future__ import annotations

from typing import Any

import torch


@torch.compiler.disable
def run(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The function, as it is."""
    return function(*args, **kwargs)
