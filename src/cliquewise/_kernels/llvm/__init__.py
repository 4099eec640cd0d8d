"""Vectors of eight floats, and fast exponentials and logarithms.

The only modules of the package that emit LLVM instructions are `vectors` and `exponentials`. With
``CLIQUEWISE_STOCK_NUMBA=1`` the same names come from `plain`, which needs numba's documented
features only.
"""

from cliquewise._kernels.compiler import STOCK_NUMBA

if STOCK_NUMBA:
    from cliquewise._kernels.llvm.plain import (
        LANES,
        add,
        any_above,
        clamp,
        fast_exp,
        fast_log,
        fma,
        keep_above,
        keep_bits,
        lane_max,
        lane_sum,
        load,
        load_first,
        maximum,
        mul,
        no_unroll,
        prefetch,
        splat,
        spread,
        store,
        store_first,
        sub,
    )
else:
    from cliquewise._kernels.llvm.exponentials import fast_exp, fast_log
    from cliquewise._kernels.llvm.vectors import (
        LANES,
        add,
        any_above,
        clamp,
        fma,
        keep_above,
        keep_bits,
        lane_max,
        lane_sum,
        load,
        load_first,
        maximum,
        mul,
        no_unroll,
        prefetch,
        splat,
        spread,
        store,
        store_first,
        sub,
    )

__all__ = [
    "LANES",
    "add",
    "any_above",
    "clamp",
    "fast_exp",
    "fast_log",
    "fma",
    "keep_above",
    "keep_bits",
    "lane_max",
    "lane_sum",
    "load",
    "load_first",
    "maximum",
    "mul",
    "no_unroll",
    "prefetch",
    "splat",
    "spread",
    "store",
    "store_first",
    "sub",
]
