"""What an oracle is, and how one is chosen; its answers are in ``results.py``.

An oracle says of a structure whether it can work on it (``refuses``), which questions it
answers (``provides``), and answers each with a value, a bound and whether it is exact.
Adding one is one file in this folder with one ``@register``: the registry imports every
module here, and the conformance tests try whatever they find.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from cliquewise.errors import InfeasibleError, TooLargeError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._leveled import PLAIN, Leveled, check_resolved, level
from cliquewise.oracles.results import (
    MapResult,
    MarginalResult,
    MaxMarginalResult,
    tolerance,
)
from cliquewise.ragged import Ints

#: Methods that end with a proof, unless the time runs out.
PROVERS = ("toulbar2", "milp")
#: Bytes that a question may take, unless the caller sets ``max_memory``.
MAX_MEMORY = 4 * 2**30
#: Table entries up to which elimination finds a good labeling in a moment.
QUICK = 1e6


#: The questions, in the words of ``Oracle.provides``.
QUESTIONS = ("map", "marginals", "max_marginals", "top_k", "sample")


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
    automatic : bool
        Whether ``auto`` may choose it.
    only_adds : bool
        Whether it only adds and compares scores: then losses of any size stay precise.
    """

    name: ClassVar[str]
    provides: ClassVar[frozenset[str]]
    exact: ClassVar[bool] = True
    rank: ClassVar[int] = 100
    automatic: ClassVar[bool] = True
    only_adds: ClassVar[bool] = False

    def refuses(self, structure: Structure, want: str = "map") -> str | None:
        """Why it cannot work on this structure, as the end of a sentence; None if it can."""
        return None

    def refuses_tables(self, graph: FactorGraph, want: str = "map") -> str | None:
        """Likewise for reasons that lie in the numbers (submodularity, say)."""
        return None

    def too_large(
        self, structure: Structure, want: str, options: dict[str, Any]
    ) -> TooLargeError | None:
        """The refusal that states memory and operations, if they exceed the limits."""
        return None

    def avoids(self, structure: Structure, want: str = "map") -> str | None:
        """Why ``auto`` should pass it by although it could answer; None if it need not."""
        return None

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

    def check_limits(
        self,
        structure: Structure,
        want: str,
        options: dict[str, Any],
        advice: str = "",
        **asked: Any,
    ) -> None:
        """Raise if options other than limits are given, or if the question exceeds the limits."""
        unknown = set(options) - {"max_memory", "max_operations"}
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


_registry: dict[str, Oracle] = {}
O = TypeVar("O", bound=type[Oracle])  # noqa: E741


def register(cls: O) -> O:
    """Make an oracle known under its name."""
    unknown = cls.provides - set(QUESTIONS)
    if unknown:
        raise UnsupportedError(f"oracle {cls.name!r} provides unknown questions {sorted(unknown)}")
    _registry[cls.name] = cls()
    return cls


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
        names = ", ".join(o.name for o in registered())
        raise UnsupportedError(f"unknown method {name!r}; the methods are: auto, {names}")
    return _registry[name]


class Choice(NamedTuple):
    """An oracle, and those that were passed by with the reasons (None: it was asked for)."""

    oracle: Oracle
    passed: list[tuple[Oracle, Any]] | None

    @property
    def explanation(self) -> str:
        """Why it was taken."""
        if self.passed is None:
            return f"{self.oracle.name}: asked for"
        doc = (self.oracle.__doc__ or "").strip().splitlines()[0]
        return f"{self.oracle.name}: {doc}" + "".join(f"\n  not {_why(p)}" for p in self.passed)


def _why(passed: tuple[Oracle, Any]) -> str:
    return f"{passed[0].name}: it {passed[1]}"


def choose(
    graph: FactorGraph, want: str, method: str = "auto", options: dict[str, Any] | None = None
) -> Choice:
    """Pick the oracle for a question: the named one, or the most special that fits.

    Parameters
    ----------
    graph : FactorGraph
        Without evidence (``FactorGraph.core`` takes care of that).
    want : str
        The question.
    method : str, default="auto"
    options : dict, optional
        Options of the question; limits among them count in the choice.

    Raises
    ------
    UnsupportedError
        If the named method does not fit, naming those that do; or if none fits.
    TooLargeError
        If none fits and one of them only for want of memory; it states the estimate.

    Examples
    --------
    >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [1.0, 0.0]])])
    >>> choose(g, "map").oracle.name
    'chain'
    """
    if want not in QUESTIONS:
        raise UnsupportedError(f"unknown question {want!r}; the questions are: {QUESTIONS}")
    if method != "auto":
        oracle = get(method)
        reason = oracle.refusal(graph, want)
        if reason is None:
            return Choice(oracle, None)
        raise UnsupportedError(
            f"method {method!r} {reason}; {_alternatives(graph, want, without=method)}"
        )
    passed: list[tuple[Oracle, Any]] = []
    for oracle, standing in _standings(graph.structure, want, options or {}):
        why = standing or oracle.refuses_tables(graph, want)
        if why is None:
            return Choice(oracle, passed)
        passed.append((oracle, why))
    message = f"no method can answer {want!r} on this graph:" + "".join(
        f"\n  {_why(p)}" for p in passed
    )
    large = [why for _, why in passed if isinstance(why, TooLargeError)]
    if large:
        raise TooLargeError(message, large[-1].memory_bytes, large[-1].operations)
    raise UnsupportedError(message)


def _standings(
    structure: Structure, want: str, options: dict[str, Any]
) -> list[tuple[Oracle, Any]]:
    """What ``auto`` would try, and why not where the structure alone forbids it.

    The list ends at the first oracle that takes whatever tables there are. It stays in the
    structure's memo: many graphs of one structure ask for little more than its first entries.
    """
    limits = tuple((k, v) for k, v in sorted(options.items()) if isinstance(v, int | float))
    key = ("oracles", len(_registry), want, limits)
    known: list[tuple[Oracle, Any]] | None = structure.memo.get(key)
    if known is None:
        known = []
        for oracle in registered():
            if not oracle.automatic or want not in oracle.provides:
                continue
            why = (
                oracle.refuses(structure, want)
                or oracle.avoids(structure, want)
                or oracle.too_large(structure, want, options)
            )
            known.append((oracle, why))
            if why is None and type(oracle).refuses_tables is Oracle.refuses_tables:
                break
        structure.memo[key] = known
    return known


def ask(graph: FactorGraph, want: str, method: str = "auto", **options: Any) -> Any:
    """Choose an oracle, ask it about what evidence leaves open, and translate its answer.

    Examples
    --------
    >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [3.0, 0.0]])]).condition({0: 0})
    >>> ask(g, "map").labels.tolist()
    [0, 1]
    """
    core = graph.core
    if core.constant == -np.inf:
        raise InfeasibleError(INFEASIBLE)
    if core.graph.largest <= PLAIN:
        oracle = choose(core.graph, want, method, options).oracle
        answer = getattr(oracle, want)(core.graph, **options)
    else:
        oracle, answer = _ask_leveled(core.graph, want, method, options)
    if want == "map" and answer.score == -np.inf:
        raise UnsupportedError(
            f"method {oracle.name!r} found no labeling of positive probability, and proves "
            f"nothing; {_alternatives(core.graph, want, oracle.name, exact=True)}"
        )
    return core.translate(want, answer)


def _ask_leveled(
    graph: FactorGraph, want: str, method: str, options: dict[str, Any]
) -> tuple[Oracle, Any]:
    """The answer about a graph whose scores are too large to be added up as they are."""
    leveled = Leveled.of(graph)
    oracle = choose(leveled.graph, want, method, options).oracle
    leveled = level(leveled, want, oracle, good_score)
    if want == "sample" and oracle.only_adds:
        check_resolved(oracle.map(leveled.graph).score)
    if "gap" in options:
        options = {**options, "gap": options["gap"] * leveled.scale}
    return oracle, leveled.translate(want, getattr(oracle, want)(leveled.graph, **options), oracle)


def good_score(graph: FactorGraph) -> float:
    """Score of a good labeling: the best one where elimination is quick."""
    tree = get("tree" if graph.structure.is_forest else "junction-tree")
    quick = tree.too_large(graph.structure, "map", {"max_operations": QUICK}) is None
    return float((tree if quick else get("icm")).map(graph).score)


def _alternatives(graph: FactorGraph, want: str, without: str, exact: bool = False) -> str:
    """Which methods (or exact ones) would work, as the end of an error message."""
    works = [
        o.name
        for o in registered()
        if o.name != without
        and (o.exact or not exact or o.name in PROVERS)
        and o.refusal(graph, want) is None
        and o.too_large(graph.structure, want, {}) is None
    ]
    if works:
        return f"for {want!r} these methods accept this graph: {', '.join(works)}"
    return f"no registered method can answer {want!r} on this graph"
