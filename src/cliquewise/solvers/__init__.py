"""Solvers: one step on the weights or on the duals. One module per algorithm."""

from cliquewise.solvers.base import Capabilities, Info, Solver, State
from cliquewise.solvers.registry import get, register, registered

__all__ = ["Capabilities", "Info", "Solver", "State", "get", "register", "registered"]


def __getattr__(name: str) -> type[Solver]:  # type: ignore[type-arg]
    """Return a solver class by its name: ``cw.solvers.SDCA``."""
    for solver in registered():
        if solver.__name__ == name:
            return solver
    raise AttributeError(f"module 'cliquewise.solvers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(solver.__name__ for solver in registered())])
