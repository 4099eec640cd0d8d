"""Numba functions on plain arrays, and nothing else.

Everything here is compiled by the decorator below. Compiled code is cached on disk, in a
folder per module whose name contains a hash of the module and of everything it imports: numba
itself only notices changes of a kernel's own file, and would run stale copies of its callees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from cliquewise._kernels.cache import KernelCache, PartCache, SharedCache, attach, cache_folder
from cliquewise._kernels.compiler import Kernel, PartCompiler

__all__ = ["REASSOCIATE", "cache_folder", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(
    function: F | None = None,
    *,
    inline: bool = False,
    helper: bool = False,
    fastmath: bool | set[str] = False,
) -> Any:
    """Compile a function: cached, without the GIL, with numpy's rules for division.

    Parameters
    ----------
    function : callable
        A function on plain arrays and scalars.
    inline : bool, default=False
        Inline into every caller (for functions of one or two lines in hot loops).
    helper : bool, default=False
        For functions that only other kernels call: saves the time to compile what Python
        would need to call them. Python must not: the process would crash.
    fastmath : bool or set of str, default=False
        Let sums be reordered (``{"reassoc", "contract"}``), so that reductions vectorize.
        Never ``True`` where infinities may occur: it licenses wrong results on them.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    options["no_cfunc_wrapper"] = True
    as_part = options | {"no_cpython_wrapper": True, "pipeline_class": PartCompiler}

    def compile_(f: F) -> Any:
        if inline:
            return attach(numba.njit(inline="always", **options)(f), f, KernelCache)
        part = attach(numba.njit(**as_part)(f), f, PartCache)
        return part if helper else attach(Kernel(f, options, part), f, SharedCache)

    return compile_ if function is None else compile_(function)


#: Sums may be reordered and products fused; infinities and NaN keep their meaning.
REASSOCIATE = {"reassoc", "contract", "nsz", "arcp"}
