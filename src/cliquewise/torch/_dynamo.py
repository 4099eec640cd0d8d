"""Calls outside torch.compile; a separate module because importing Dynamo is slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


@torch.compiler.disable
def run(
    function: Callable[Parameters, Answer], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Answer:
    """Call a function without compiling it."""
    return function(*args, **kwargs)
