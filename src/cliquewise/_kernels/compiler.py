"""Compile what a kernel calls together with it, once.

numba optimizes a function and emits machine code for it and for all its callees, again at every
level of calls. Callees of a kernel need neither. Here their unoptimized code is kept as LLVM
bitcode, and is linked into each kernel that Python calls, which is then optimized as a whole.

What each measure is worth (numba 0.68, CPU seconds; a cold first fit of ``SequenceTagger``, all of
``cliquewise warmup``; forward-backward with 10 labels in million tokens per second):

================================================  =========  ======  ================
..                                                first fit  warmup  forward-backward
================================================  =========  ======  ================
as it is                                               23.0      69              10.9
without linking bitcode (this module)                  28.2      88              11.3
with C wrappers (without ``no_cfunc_wrapper``)         26.3       -              11.6
without ``no_unroll``                                  24.5       -              11.9
tuples for vectors (``llvm/plain.py``)                 28.7       -              0.25
all of these (``CLIQUEWISE_STOCK_NUMBA=1``)            47.1       -                 -
================================================  =========  ======  ================

The differences of the last column above the line of tuples are noise.
"""

from __future__ import annotations

import os
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

#: Whether kernels are plain ``numba.njit(cache=True)`` functions.
STOCK_NUMBA = os.environ.get("CLIQUEWISE_STOCK_NUMBA", "") not in ("", "0")


class _NoEngine:
    """Stands in for the engine that runs machine code."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """Do nothing: kernels hold no Python objects while they run."""


class BitcodeLibrary(JITCodeLibrary):
    """Unoptimized code of a function that only kernels call. It has no address."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return _NoEngine

    def serialize_using_object_code(self) -> Any:
        return self.serialize_using_bitcode()


class HelperCompiler(Compiler):
    """numba's compiler, into a `BitcodeLibrary`."""

    def compile_extra(self, function: Any) -> Any:
        self.state.library = BitcodeLibrary(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)
