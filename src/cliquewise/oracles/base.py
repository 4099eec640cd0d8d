"""The protocol of oracles: inference methods for one factor graph.

To add a method, write one module in this folder with a subclass of :class:`Oracle`: its name, the
questions that it answers (one method per question, named like the question), and ``consider``,
which returns an estimated cost or the reason why the method does not apply. Decorate it with
``@register`` (``registry.py``). ``tree.py`` is a short example; the conformance tests find the new
class and compare it with brute force. ``planner.py`` chooses among the registered oracles.

Oracles see a graph without observed variables and without constant factors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import ClassVar, Literal, NamedTuple

from cliquewise.errors import TooLargeError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult
from cliquewise.ragged import Ints

Question = Literal["map", "marginals", "max_marginals", "top_k", "sample"]
#: All questions; an oracle answers each one with the method of the same name.
QUESTIONS: tuple[Question, ...] = ("map", "marginals", "max_marginals", "top_k", "sample")

#: Default memory limit of one call, in bytes.
MAX_MEMORY = 4 * 2**30

#: What an oracle guarantees for its answers.
PROVED, OFTEN_PROVED, BOUNDED, ESTIMATE = "proved", "proved or bounded", "bounded", "estimate"


class Cost(NamedTuple):
    """Estimated cost of one answer.

    Attributes
    ----------
    seconds : float
        On one core of a machine from 2023, within a factor of two or three
        (``python -m benchmarks.oracle_costs`` compares the estimates with measurements).
        ``inf`` for a search that ends with a proof or at its time limit.
    memory : float
        Bytes.
    operations : float
        Table entries, for methods with the option ``max_operations``.
    """

    seconds: float
    memory: float
    operations: float = math.nan


class Limits(NamedTuple):
    """Resources that one answer may use.

    Attributes
    ----------
    max_memory : float
        Bytes.
    max_operations : float or None
        Table entries; ``None`` selects the default of the oracle.
    seconds : float
        An oracle that exceeds this anyway may skip a detailed estimate in ``consider``.
    planning : float
        Seconds that ``consider`` may spend, for example on finding an elimination order.
    k : int
        Number of labelings, for the question ``top_k``.
    """

    max_memory: float = MAX_MEMORY
    max_operations: float | None = None
    seconds: float = math.inf
    planning: float = math.inf
    k: int = 1

    def excess(
        self, question: str, cost: Cost, default: float = math.inf, prefix: str = ""
    ) -> str | None:
        """Return which limit a cost exceeds, as the end of a sentence; None if it exceeds none.

        ``default`` replaces a missing ``max_operations``, ``prefix`` qualifies both estimates.
        """
        most = default if self.max_operations is None else self.max_operations
        operations = 0.0 if math.isnan(cost.operations) else cost.operations
        if cost.memory <= self.max_memory and operations <= most:
            return None
        return (
            f"needs {prefix}{cost.memory / 2**30:.3g} GiB and {prefix}{operations:.3g} table "
            f"entries for {question} (limits: max_memory = {self.max_memory / 2**30:.3g} GiB, "
            f"max_operations = {most:.3g})"
        )


#: The default limits.
NO_LIMITS = Limits()


class Fit(Enum):
    """Whether an oracle can answer a question about a graph."""

    ACCEPTED = "can answer"
    DEFERRED = "can answer if named; the planner prefers other methods"
    TOO_LARGE = "can answer with higher limits"
    REJECTED = "cannot answer"


class Verdict(NamedTuple):
    """The answer of ``Oracle.consider``: an estimated cost, or a reason not to use the oracle.

    Attributes
    ----------
    fit : Fit
    cost : Cost or None
        None where the oracle cannot answer.
    reason : str or None
        Why the oracle is not accepted, as the end of a sentence that starts with its name.
    is_reusable : bool
        Whether the verdict holds for all graphs with the same structure. If False, tables or
        cached results of earlier calls influenced it.
    """

    fit: Fit
    cost: Cost | None = None
    reason: str | None = None
    is_reusable: bool = True

    @classmethod
    def accept(cls, seconds: float, memory: float, operations: float = math.nan) -> Verdict:
        """Return a verdict with an estimated cost.

        Examples
        --------
        >>> Verdict.accept(seconds=0.5, memory=1e6).cost.seconds
        0.5
        """
        return cls(Fit.ACCEPTED, Cost(seconds, memory, operations))

    @classmethod
    def defer(cls, reason: str, cost: Cost | None = None) -> Verdict:
        """Return a verdict for an oracle that works but that the planner should not choose.

        Examples
        --------
        >>> Verdict.defer("enumerates all labelings").can_answer
        True
        """
        return cls(Fit.DEFERRED, cost, reason)

    @classmethod
    def too_large(cls, reason: str, cost: Cost) -> Verdict:
        """Return a verdict for an oracle whose cost exceeds the limits.

        Examples
        --------
        >>> Verdict.too_large("needs 8 GiB", Cost(1.0, 8 * 2**30)).can_answer
        False
        """
        return cls(Fit.TOO_LARGE, cost, reason)

    @classmethod
    def reject(cls, reason: str) -> Verdict:
        """Return a verdict for an oracle that cannot answer.

        Examples
        --------
        >>> Verdict.reject("needs a graph without cycles").reason
        'needs a graph without cycles'
        """
        return cls(Fit.REJECTED, None, reason)

    @property
    def is_accepted(self) -> bool:
        """Whether the planner may choose the oracle."""
        return self.fit is Fit.ACCEPTED

    @property
    def can_answer(self) -> bool:
        """Whether a user may name the oracle."""
        return self.fit in (Fit.ACCEPTED, Fit.DEFERRED)

    @property
    def seconds(self) -> float:
        """Estimated time; infinite where it is unknown."""
        return math.inf if self.cost is None else self.cost.seconds

    def for_tables(self) -> Verdict:
        """Return the same verdict, valid for the tables of this graph only."""
        return self._replace(is_reusable=False)


class Oracle(ABC):
    """Base class of the inference methods.

    A subclass defines the class attributes, ``consider``, and one method for each question in
    ``provides``: ``map(graph)``, ``marginals(graph)``, ``max_marginals(graph)``,
    ``top_k(graph, k)``, ``sample(graph, n, rng)``. These methods may have more parameters with
    defaults, which become options of the user; a parameter ``limits`` receives ``max_memory`` and
    ``max_operations`` as ``Limits``. The planner rejects unknown options.

    Attributes
    ----------
    name : str
        The value of ``method=`` for users.
    provides : frozenset of str
        The questions that it answers.
    exact : bool
        Whether all its answers are exact. Only exact oracles are chosen automatically.
    guarantee : str
        What it guarantees otherwise: OFTEN_PROVED, BOUNDED or ESTIMATE.
    rank : int
        Oracles are considered in increasing order: special methods first.
    is_fastest : bool
        Whether no other method is faster where this one applies (linear time).
    only_adds : bool
        Whether it only adds and compares scores, so that sums of losses of any size stay precise.
    """

    name: ClassVar[str]
    provides: ClassVar[frozenset[Question]]
    exact: ClassVar[bool] = True
    guarantee: ClassVar[str] = BOUNDED
    rank: ClassVar[int] = 100
    is_fastest: ClassVar[bool] = False
    only_adds: ClassVar[bool] = False

    map: Callable[..., MapResult]
    marginals: Callable[..., MarginalResult]
    max_marginals: Callable[..., MaxMarginalResult]
    top_k: Callable[..., list[MapResult]]
    sample: Callable[..., Ints]

    @abstractmethod
    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Estimate the cost of an answer, or give the reason why the oracle does not apply.

        Parameters
        ----------
        graph : FactorGraph
            Without evidence.
        question : str
            One of ``provides``.
        limits : Limits
        """

    def require(self, graph: FactorGraph, question: Question, limits: Limits) -> None:
        """Raise TooLargeError if an answer would exceed the limits."""
        verdict = self.consider(graph, question, limits)
        if verdict.fit is Fit.TOO_LARGE:
            raise too_large_error(self.name, verdict)


def too_large_error(name: str, verdict: Verdict, advice: str = "") -> TooLargeError:
    """Return the error for a verdict TOO_LARGE of the method ``name``."""
    cost = verdict.cost
    assert cost is not None
    message = f"method {name!r} {verdict.reason}{advice}"
    return TooLargeError(message, cost.memory, cost.operations)
