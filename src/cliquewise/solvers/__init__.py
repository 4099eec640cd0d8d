"""Solvers: one step on the weights or on the duals. One file per solver."""

from cliquewise.solvers.base import Info, Solver, State, get, register, registered

__all__ = ["Info", "Solver", "State", "get", "register", "registered"]


def __getattr__(name: str) -> type[Solver]:
    """Solvers by their class name: ``cw.solvers.SDCA``."""
    for solver in registered():
        if solver.__name__ == name:
            return solver
    raise AttributeError(f"module 'cliquewise.solvers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(solver.__name__ for solver in registered())])
