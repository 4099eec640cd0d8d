"""What an oracle is; how one is chosen is in ``choice.py``, its answers are in ``results.py``.

An oracle says of a structure whether it can work on it (``refuses``), which questions it
answers (``provides``), and answers each with a value, a bound and whether it is exact.
Adding one is one file in this folder with one ``@register``: the registry imports every
module here, and the conformance tests try whatever they find.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from cliquewise.errors import InfeasibleError, TooLargeError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.results import (
    MapResult,
    MarginalResult,
    MaxMarginalResult,
    tolerance,
)
from cliquewise.ragged import Ints

#: Bytes that a question may take, unless the caller sets ``max_memory``.
MAX_MEMORY = 4 * 2**30
#: Options that say how much a question may take.
LIMITS = frozenset({"max_memory", "max_operations"})
#: A limit of fewer seconds than this means a hurry: plans are then made quickly.
HURRY = 20.0

#: The questions, in the words of ``Oracle.provides``.
QUESTIONS = ("map", "marginals", "max_marginals", "top_k", "sample")

#: What other tools, and answers that say how they were found, call a method.
ELSEWHERE = {
    "bp": "trw-bp", "lbp": "trw-bp", "loopy-bp": "anytime", "belief-propagation": "trw-bp",
    "trbp": "trw-bp", "trws": "trw-s", "viterbi": "chain", "forward-backward": "chain",
    "jt": "junction-tree", "variable-elimination": "junction-tree", "ve": "junction-tree",
    "mbe": "mini-buckets", "alpha-expansion": "expansion", "ilp": "milp", "lp": "relaxed",
    "qpbo": "graph-cut", "mcmc": "gibbs", "ad3": "relaxed", "exhaustive": "brute-force",
}  # fmt: skip

#: What answers are worth: the true one, one with a bound, or neither.
PROVED, BOUNDED, NEITHER = "proved", "bounded", "neither"


class Cost(NamedTuple):
    """What an answer takes: seconds (inf: until it is proved, or the limit) and bytes.

    Seconds are those of one core of a machine of 2023, within a factor of two or three
    (``python -m benchmarks.oracle_costs`` compares them with the clock).
    """

    seconds: float
    memory: float


class Oracle:
    """Base of all oracles.

    Attributes
    ----------
    name : str
        What users write as ``method=``.
    provides : frozenset of str
        The questions it answers, out of ``map``, ``marginals``, ``max_marginals``,
        ``top_k``, ``sample``; each is a method of the same name.
    exact : bool
        Whether its answers are exact on every graph that it accepts.
    rank : int
        ``auto`` tries oracles in this order, special before general.
    gives : str
        What its answers are worth where they are not exact: ``bounded`` or ``neither``.
    may_prove : bool
        Whether its answers are often proved although it is not ``exact``.
    is_quickest : bool
        Whether nothing answers sooner where it fits (linear time).
    automatic : bool
        Whether ``auto`` may choose it alone. Others may be steps of ``anytime``.
    needs_zeros : bool
        Whether it pays only where many entries are impossible, which a structure does not say.
    only_adds : bool
        Whether it only adds and compares scores: then losses of any size stay precise.
    has_limits : bool
        Whether it takes ``max_memory`` and ``max_operations``; others need next to nothing.
    """

    name: ClassVar[str]
    provides: ClassVar[frozenset[str]]
    exact: ClassVar[bool] = True
    gives: ClassVar[str] = BOUNDED
    may_prove: ClassVar[bool] = False
    rank: ClassVar[int] = 100
    is_quickest: ClassVar[bool] = False
    automatic: ClassVar[bool] = True
    needs_zeros: ClassVar[bool] = False
    only_adds: ClassVar[bool] = False
    has_limits: ClassVar[bool] = False

    def refuses(self, structure: Structure, want: str = "map") -> str | None:
        """Why it cannot work on this structure, as the end of a sentence; None if it can."""
        return None

    def refuses_tables(self, graph: FactorGraph, want: str = "map") -> str | None:
        """Likewise for reasons that lie in the numbers (submodularity, say)."""
        return None

    def avoids_tables(self, graph: FactorGraph, want: str = "map") -> str | None:
        """Why ``auto`` should pass it by, for reasons that lie in the numbers."""
        return None

    def too_large(
        self, structure: Structure, want: str, options: dict[str, Any]
    ) -> TooLargeError | None:
        """The refusal that states memory and operations, if they exceed the limits."""
        return None

    def avoids(self, structure: Structure, want: str = "map") -> str | None:
        """Why ``auto`` should pass it by although it could answer; None if it need not."""
        return None

    def cost(self, structure: Structure, want: str = "map") -> Cost:
        """About what an answer takes; asked only where it does not refuse."""
        entries = float(structure.table_offsets[-1])
        return Cost(math.inf, 16.0 * entries)

    def at_least(self, structure: Structure, want: str = "map") -> float:
        """Seconds that an answer surely takes, as far as a first look can tell."""
        return 0.0

    def steps(self, structure: Structure, want: str) -> tuple[str, ...]:
        """Names of the other oracles that it may ask."""
        return ()

    def accepts(self, structure: Structure, want: str = "map") -> bool:
        """Whether it can answer ``want`` on this structure within its default limits."""
        return (
            want in self.provides
            and self.refuses(structure, want) is None
            and self.too_large(structure, want, {}) is None
        )

    def refusal(self, graph: FactorGraph, want: str) -> str | None:
        """The first reason not to ask this oracle, whatever its limits; or None."""
        if want not in self.provides:
            return f"does not provide {want}"
        return self.refuses(graph.structure, want) or self.refuses_tables(graph, want)

    # What the answers have in common.

    def reject(self, options: dict[str, Any]) -> None:
        """Say which option is unknown instead of ignoring it."""
        if options:
            raise UnsupportedError(f"method {self.name!r} has no option {sorted(options)[0]!r}")

    def known_limits(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options without the limits that it does not have."""
        return {k: v for k, v in options.items() if self.has_limits or k not in LIMITS}

    def check_limits(
        self,
        structure: Structure,
        want: str,
        options: dict[str, Any],
        advice: str = "",
        **asked: Any,
    ) -> None:
        """Raise if options other than limits are given, or if the question exceeds the limits."""
        unknown = set(options) - LIMITS
        if unknown:
            raise TypeError(
                f"method {self.name!r} takes max_memory and max_operations, not {sorted(unknown)}"
            )
        large = self.too_large(structure, want, options | asked)
        if large is not None:
            message = f"method {self.name!r} {large}{advice}"
            raise TooLargeError(message, large.memory_bytes, large.operations)

    def best(self, graph: FactorGraph, labels: Ints) -> MapResult:
        """The answer where nothing scores higher than ``labels``."""
        score = float(graph.score(labels))
        if score == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        return MapResult(labels, score, score, True, self.name, rounding=graph.rounding)

    def bounded(
        self, graph: FactorGraph, labels: Ints, bound: float, info: dict[str, Any]
    ) -> MapResult:
        """The answer where nothing scores higher than ``bound``."""
        score = float(graph.score(labels))
        closed = bound - score <= tolerance(score, bound)
        return self.judged(graph, labels, score, bound, closed, info)

    def judged(
        self,
        graph: FactorGraph,
        labels: Ints,
        score: float,
        bound: float,
        exact: bool,
        info: dict[str, Any],
    ) -> MapResult:
        """The answer where the oracle knows if it is exact; else rounding widens the bound."""
        rounding = graph.rounding
        bound = max(bound, score) if exact else max(bound + rounding, score)
        return MapResult(labels, score, bound, exact, self.name, info, rounding)

    # What ``provides`` promises; a subclass overrides those.

    def map(self, graph: FactorGraph, **options: Any) -> MapResult:
        """The best labeling."""
        raise UnsupportedError(f"method {self.name!r} does not provide map")

    def marginals(self, graph: FactorGraph, **options: Any) -> MarginalResult:
        """Node and factor marginals and log Z."""
        raise UnsupportedError(f"method {self.name!r} does not provide marginals")

    def max_marginals(self, graph: FactorGraph, **options: Any) -> MaxMarginalResult:
        """Best score for each state of each variable."""
        raise UnsupportedError(f"method {self.name!r} does not provide max_marginals")

    def top_k(self, graph: FactorGraph, k: int, **options: Any) -> list[MapResult]:
        """The k best labelings, best first."""
        raise UnsupportedError(f"method {self.name!r} does not provide top_k")

    def sample(self, graph: FactorGraph, n: int, rng: np.random.Generator, **options: Any) -> Ints:
        """Independent draws, one per row."""
        raise UnsupportedError(f"method {self.name!r} does not provide sample")


def over_limits(
    want: str,
    memory: float,
    operations: float,
    options: dict[str, Any],
    most: float = np.inf,
    at_least: str = "",
) -> TooLargeError | None:
    """The refusal of a question that needs more than the limits among its options."""
    limit = float(options.get("max_memory", MAX_MEMORY))
    most = float(options.get("max_operations", most))
    if memory <= limit and operations <= most:
        return None
    return TooLargeError(
        f"needs {at_least}{memory / 2**30:.3g} GiB and {at_least}{operations:.3g} table entries "
        f"for {want} (limits: max_memory = {limit / 2**30:.3g} GiB, max_operations = {most:.3g})",
        memory,
        operations,
    )


def check_number(name: str, value: Any) -> None:
    """Refuse a limit that is neither None nor a number."""
    if value is not None and not (isinstance(value, Real) and float(value) >= 0):
        raise UnsupportedError(f"{name} = {value!r}; it must be a number, not negative")


_registry: dict[str, Oracle] = {}
O = TypeVar("O", bound=type[Oracle])  # noqa: E741


def refuse_evidence(options: dict[str, Any]) -> None:
    """Say where evidence goes."""
    if "evidence" in options:
        raise TypeError("evidence is given before the question: graph.condition(evidence).map()")


def register(cls: O) -> O:
    """Make an oracle known under its name."""
    unknown = cls.provides - set(QUESTIONS)
    if unknown:
        raise UnsupportedError(f"oracle {cls.name!r} provides unknown questions {sorted(unknown)}")
    _registry[cls.name] = cls()
    return cls


_answers: dict[str, Callable[..., Any]] = {}
F = TypeVar("F", bound=Callable[..., Any])


def answers(question: str) -> Callable[[F], F]:
    """Make a function known that answers a question of its own, by oracles of several kinds."""

    def remember(function: F) -> F:
        _answers[question] = function
        return function

    return remember


def answer_to(question: str) -> Callable[..., Any]:
    """The function that answers a question of its own.

    Examples
    --------
    >>> answer_to("marginal_map").__name__
    'marginal_map'
    """
    _load_all()
    return _answers[question]


@cache
def _load_all() -> None:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")


def registered() -> list[Oracle]:
    """All oracles, special before general.

    Examples
    --------
    >>> "junction-tree" in [oracle.name for oracle in registered()]
    True
    """
    _load_all()
    return sorted(_registry.values(), key=lambda oracle: (oracle.rank, oracle.name))


def get(name: str) -> Oracle:
    """The oracle of this name.

    Examples
    --------
    >>> get("chain").name
    'chain'
    """
    _load_all()
    if name not in _registry:
        names = [o.name for o in registered()]
        plain = str(name).lower().replace("_", "-").replace(" ", "-")
        close = get_close_matches(plain, names, n=1, cutoff=0.75)
        meant = ELSEWHERE.get(plain, close[0] if close else None)
        hint = "" if meant is None else f", perhaps {meant!r}"
        raise UnsupportedError(
            f"unknown method {name!r}{hint}; the methods are: auto, {', '.join(names)}"
        )
    return _registry[name]
