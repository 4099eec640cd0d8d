"""A part of the data as workers hold it, and the pure functions that rounds apply to it.

A part has weights for its own features alone, since most features of text occur in few parts:
its vectors, what travels to it and what it returns are as short as that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cliquewise.errors import CliquewiseError, DataError
from cliquewise.problems.base import Problem
from cliquewise.problems.fingerprint import Fingerprint
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import run


class Block(NamedTuple):
    """Rows of a table of weights: the table begins at ``start`` and has ``n_rows`` of ``width``."""

    start: int
    n_rows: int
    width: int
    rows: Ints


@dataclass(frozen=True)
class Places:
    """Where a part's weights are among those of the whole.

    Examples
    --------
    >>> places = Places((Block(0, 3, 2, np.array([2, 0])),))
    >>> places.take(np.arange(6.0))
    array([4., 5., 0., 1.])
    >>> total = np.zeros(6)
    >>> places.add(np.ones(4), total)
    >>> total
    array([1., 1., 0., 0., 1., 1.])
    """

    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        """Number of the part's weights."""
        return sum(len(block.rows) * block.width for block in self.blocks)

    def _tables(self, w: Floats) -> list[Floats]:
        ends = ((b, b.start + b.n_rows * b.width) for b in self.blocks)
        return [w[b.start : end].reshape(b.n_rows, b.width) for b, end in ends]

    def take(self, w: Floats) -> Floats:
        """The part's weights, from those of the whole."""
        tables = zip(self._tables(w), self.blocks, strict=True)
        return np.concatenate([table[block.rows].ravel() for table, block in tables])

    def add(self, own: Floats, total: Floats) -> None:
        """Add a vector of the part to one of the whole; no row is in a part twice."""
        at = 0
        for table, block in zip(self._tables(total), self.blocks, strict=True):
            end = at + len(block.rows) * block.width
            table[block.rows] += own[at:end].reshape(-1, block.width)
            at = end


@dataclass
class Part:
    """Some of the examples.

    Attributes
    ----------
    build : callable
        Makes their problem; what is sent and kept is that, not what the problem keeps to be fast.
    places : Places
        Its weights among all.
    rows : int array
        Its rows of roundings (see :attr:`Problem.weight_error_scale`) among all.
    nbytes : int
        Bytes of the examples, and of what the problem makes of them.
    """

    build: Callable[[], Problem]
    places: Places
    rows: Ints
    nbytes: int = field(default=0)

    @cached_property
    def problem(self) -> Problem:
        """The problem of these examples alone."""
        return self.build()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "problem"}

    def __sizeof__(self) -> int:
        # Dask asks: it moves what is small, and counts memory by it.
        return self.nbytes


class Summary(NamedTuple):
    """What the whole is told of a part, once."""

    n_examples: int
    is_convex: bool
    lower_bound: float  # sum of the costs of the true outputs
    weight_error_scale: Floats
    rounding_terms: tuple[Floats, float]
    fingerprint: Fingerprint
    nbytes: int
    working: int  # bytes that a round needs beside


def summary(part: Part) -> Summary:
    """Sizes, roundings and identity of a part."""
    problem = part.problem
    n = problem.n_examples
    working = 8 * (2 * problem.vector_size + 3 * problem.dimension)
    return Summary(
        n, problem.is_convex, problem.lower_bound * n, problem.weight_error_scale,
        problem.rounding_terms, problem.fingerprint(), part.nbytes, working,
    )  # fmt: skip


def losses_and_gradient(part: Part, w: Floats, is_whole: bool) -> tuple[float, Floats]:
    """The sum of a part's losses and its gradient, at the part's own weights or all of them."""
    loss, slope = part.problem.losses_and_gradient(part.places.take(w) if is_whole else w)
    return float(loss), slope


def local_solution(part: Part, tol: float, max_epochs: float) -> Floats:
    """The weights that are best for this part alone, about: a start for all."""
    solver = choose(part.problem).solver
    fit = run(part.problem, solver, tol=tol, max_epochs=max_epochs, random_state=0)
    return fit.weights


def named(number: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call, with errors of ours that say which part of the data they are about."""
    try:
        return function(*arguments)
    except CliquewiseError as error:
        raise DataError(f"partition {number}: {error}") from None
