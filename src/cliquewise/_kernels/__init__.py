"""Numba functions on plain arrays, and nothing else.

All of them are compiled by the decorator below. Compiled code is cached on disk, in a folder per
module whose name contains a hash of the module and of the modules it imports: numba only
notices changes of a kernel's own file, and would run stale copies of its callees.

With ``CLIQUEWISE_STOCK_NUMBA=1`` in the environment, the decorator is ``numba.njit(cache=True)``,
and vectors are tuples. Nothing then depends on numba's internals, and everything is slower. numba's
own cache serves stale callees after an edit: set NUMBA_CACHE_DIR to a new folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from cliquewise._kernels.cache import HelperCache, KernelCache, SharedCache, attach
from cliquewise._kernels.cache_dir import cache_folder
from cliquewise._kernels.compiler import STOCK_NUMBA, HelperCompiler
from cliquewise._kernels.dispatcher import Kernel

__all__ = ["REASSOCIATE", "STOCK_NUMBA", "cache_folder", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(
    function: F | None = None,
    *,
    inline: bool = False,
    helper: bool = False,
    fastmath: bool | set[str] = False,
) -> Any:
    """Compile a function: cached, without the GIL, with NumPy's rules for division.

    Parameters
    ----------
    function : callable
        A function on plain arrays and scalars.
    inline : bool, default=False
        Inline into every caller (for functions of one or two lines in hot loops).
    helper : bool, default=False
        For functions that only other kernels call: saves the time to compile the wrapper
        for calls from Python. Python must not call them: the process would crash.
    fastmath : bool or set of str, default=False
        Let sums be reordered (``{"reassoc", "contract"}``), so that reductions vectorize.
        Never ``True`` where infinities may occur: it permits wrong results on them.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    without_wrappers = options | {"no_cfunc_wrapper": True, "no_cpython_wrapper": True}

    def compile_(f: F) -> Any:
        if STOCK_NUMBA:
            return numba.njit(cache=True, inline="always" if inline else "never", **options)(f)
        if inline:
            return attach(numba.njit(inline="always", **options)(f), f, KernelCache)
        part = numba.njit(pipeline_class=HelperCompiler, **without_wrappers)(f)
        part = attach(part, f, HelperCache)
        if helper:
            return part
        return attach(Kernel(f, options | {"no_cfunc_wrapper": True}, part), f, SharedCache)

    return compile_ if function is None else compile_(function)


#: Sums may be reordered and products fused; infinities and NaN keep their meaning.
REASSOCIATE = {"reassoc", "contract", "nsz", "arcp"}
