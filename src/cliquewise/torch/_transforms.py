"""Detection of torch.compile, torch.export and torch.func around the current call.

Compiled kernels work on plain tensors. Under torch.func, forward-mode differentiation and
torch.export, functions record plain tensor operations instead, which all of these understand.
Under torch.compile, the graph breaks around a call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

from cliquewise.errors import UnsupportedError

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


def is_exporting() -> bool:
    """Whether torch.export traces this call."""
    # torch.compile may set the same flag; the function is missing in the oldest versions.
    if torch.compiler.is_dynamo_compiling():
        return False
    return bool(getattr(torch.compiler, "is_exporting", bool)())


def is_transformed() -> bool:
    """Whether torch.func, forward-mode differentiation or torch.export traces this call."""
    return (
        torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or is_exporting()
    )


def is_capturing(tensor: Tensor) -> bool:
    """Whether a CUDA graph is being captured, so the tensor has no values yet."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def can_read(tensor: Tensor) -> bool:
    """Whether the values of a tensor can be read without waiting for a GPU."""
    return tensor.device.type == "cpu" and not is_transformed()


def graph_break(method: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """Decorate a function to run outside the graphs of torch.compile, unchanged."""

    @wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Answer:
        if torch.compiler.is_compiling() and not is_exporting():
            from cliquewise.torch._dynamo import run

            return run(method, *args, **kwargs)
        return method(*args, **kwargs)

    return call


def check_plain_call(name: str, instead: str) -> None:
    """Raise if torch.export or torch.func traces this call."""
    if is_exporting():
        raise UnsupportedError(f"{name} cannot be exported; export {instead}")
    if is_transformed():
        raise UnsupportedError(f"{name} is not available under torch.func; use {instead}")


def read_constant(name: str, tensor: Tensor) -> NDArray[Any]:
    """Return the values of a tensor, although torch.func may trace this call."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            raise UnsupportedError(
                f"{name} cannot be mapped by torch.func.vmap; pass a batch of examples"
            )
        tensor = functorch.get_unwrapped(tensor)
    with torch._C._DisableFuncTorch():
        array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
