"""A partition of the data on a worker, and the pure functions that rounds apply to it.

Most features of text occur in few partitions, so the vectors of a partition, and the messages to
and from it, only have entries for the features of that partition.
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
    """Some rows of a weight table that starts at ``start`` and has ``n_rows`` rows of ``width``."""

    start: int
    n_rows: int
    width: int
    rows: Ints


@dataclass(frozen=True)
class Places:
    """Positions of a partition's weights among all weights.

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
        """Number of weights of the partition."""
        return sum(len(block.rows) * block.width for block in self.blocks)

    def _tables(self, w: Floats) -> list[Floats]:
        ends = ((b, b.start + b.n_rows * b.width) for b in self.blocks)
        return [w[b.start : end].reshape(b.n_rows, b.width) for b, end in ends]

    def take(self, w: Floats) -> Floats:
        """Extract the weights of the partition from all weights."""
        tables = zip(self._tables(w), self.blocks, strict=True)
        return np.concatenate([table[block.rows].ravel() for table, block in tables])

    def add(self, own: Floats, total: Floats) -> None:
        """Add a vector of the partition to a vector of all weights."""
        at = 0
        for table, block in zip(self._tables(total), self.blocks, strict=True):
            end = at + len(block.rows) * block.width
            table[block.rows] += own[at:end].reshape(-1, block.width)
            at = end


@dataclass
class Part:
    """The examples of one partition.

    Attributes
    ----------
    build : callable
        Creates their problem. Only the builder is pickled, not cached data.
    places : Places
        Positions of its weights.
    rows : int array
        Its rows of roundings (see :attr:`Problem.weight_error_scale`) among all.
    nbytes : int
        Bytes of the examples and of the data derived from them.
    """

    build: Callable[[], Problem]
    places: Places
    rows: Ints
    nbytes: int = field(default=0)

    @cached_property
    def problem(self) -> Problem:
        """The problem of these examples."""
        return self.build()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "problem"}

    def __sizeof__(self) -> int:
        # Dask uses the size for scheduling and memory accounting.
        return self.nbytes


class Summary(NamedTuple):
    """Facts about a partition, collected once."""

    n_examples: int
    is_convex: bool
    lower_bound: float  # sum of the costs of the true outputs
    weight_error_scale: Floats
    rounding_terms: tuple[Floats, float]
    fingerprint: Fingerprint
    nbytes: int
    working: int  # additional bytes during a round


def summary(part: Part) -> Summary:
    """Return sizes, rounding terms and fingerprint of a partition."""
    problem = part.problem
    n = problem.n_examples
    working = 8 * (2 * problem.vector_size + 3 * problem.dimension)
    return Summary(
        n, problem.is_convex, problem.lower_bound * n, problem.weight_error_scale,
        problem.rounding_terms, problem.fingerprint(), part.nbytes, working,
    )  # fmt: skip


def losses_and_gradient(part: Part, w: Floats, is_whole: bool) -> tuple[float, Floats]:
    """Return the summed losses of a partition and their gradient, at its own or all weights."""
    loss, slope = part.problem.losses_and_gradient(part.places.take(w) if is_whole else w)
    return float(loss), slope


def local_solution(part: Part, tol: float, max_epochs: float) -> Floats:
    """Return approximately optimal weights of this partition, to start from."""
    solver = choose(part.problem).solver
    fit = run(part.problem, solver, tol=tol, max_epochs=max_epochs, random_state=0)
    return fit.weights


def named(number: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; errors name the partition."""
    try:
        return function(*arguments)
    except CliquewiseError as error:
        raise DataError(f"partition {number}: {error}") from None
