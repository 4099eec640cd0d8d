"""Kernels as parts of other kernels: code to link in, that is optimized once, in its caller.

numba optimizes a function, and emits machine code for it and for everything that it calls, at
every level of calls again. What another kernel calls needs neither: a part is kept as it was
written down, and the kernel that Python calls is optimized as a whole.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher

from cliquewise._kernels.clock import stopped


class _NothingRuns:
    """In place of the engine that runs machine code."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """Kernels keep no Python objects while they run."""


class PartLibrary(JITCodeLibrary):
    """The code of one part. It has no address, and Python cannot call it."""

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
        return _NothingRuns

    def serialize_using_object_code(self) -> Any:
        return self.serialize_using_bitcode()


class PartCompiler(Compiler):
    """numba's compiler, for a part."""

    def compile_extra(self, function: Any) -> Any:
        self.state.library = PartLibrary(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)


class Kernel(CPUDispatcher):
    """A function that Python calls; other kernels that call it get it as a part."""

    _cache: Any  # numba's own, which has no types

    def __init__(self, function: Any, options: dict[str, Any], part: Any) -> None:
        super().__init__(function, targetoptions={"nopython": True, "boundscheck": None} | options)
        self.part = part

    def compile(self, sig: Any) -> Any:
        """Load or compile; our turn, where we took one, ends when the kernel is on disk."""
        try:
            with stopped():
                return super().compile(sig)
        finally:
            if self._cache.cache_path is not None:  # there is a folder for it
                self._cache.turn.end()

    @property
    def is_compiling(self) -> Any:
        return self.part.is_compiling

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        return self.part.get_overload(sig)

    def __reduce__(self) -> Any:
        return self.py_func.__qualname__  # as any function is pickled: by its name
