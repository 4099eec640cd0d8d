"""GDMM: structural SVMs with thousands of labels, one factor at a time.

Yen et al. 2016. Nodes and edges are multiclass machines of their own, made to agree by
multipliers; a factor's active states move by greedy steps, and the search for its best state is
sublinear in its domain. The passes are the same for all kinds of problems; what is stored differs:
lists of active labels and pairs on chains, all states of all cliques on graphs, and on label sets
active labels only, whose pairs with other labels have messages by rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.deprecation import renamed_keywords
from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats
from cliquewise.solvers.backends.base import Factors
from cliquewise.solvers.backends.chain.factors import ChainFactors
from cliquewise.solvers.backends.graph.costs import prefers_cliques
from cliquewise.solvers.backends.graph.factors import GraphFactors
from cliquewise.solvers.backends.label_sets import LabelSetFactors
from cliquewise.solvers.base import Arrays, Info, Solver, at_least, one_of, positive, register

#: From here on a pass over factors is much cheaper than one over whole chains.
MANY_LABELS = 200
BACKENDS: dict[str, Any] = {
    "chain": ChainFactors,
    "graph": GraphFactors,
    "label_sets": LabelSetFactors,
}


@register
@renamed_keywords(admit="max_new_labels", quiet="shrink_below")
@dataclass(frozen=True)
class GDMM(Solver):
    """Greedy direction method of multipliers, for many labels.

    Parameters
    ----------
    step_rule : {"bcfw", "afw", "bgcd"}, optional
        How a factor's active set moves: to the best point for the states it has (Algorithm 4 of
        the paper); by one Frank-Wolfe, away or pairwise step with exact line search (Algorithm 2);
        or as ``bcfw``, for the factors of greatest violation of each example only (Algorithm 3).
        By default ``bcfw``; on label sets there is only ``bgcd``.
    factor_search : {"sublinear", "full", "sampled"}, default="sublinear"
        How a factor's best state is found: by ordered bounds on the nonzero weights, or by
        reading all of them; both find the same. ``sampled`` looks at one part of the labels (on
        graphs: of the states or cliques) at a time.
    rho : float or "auto", default="auto"
        Penalty for disagreement, at the start; large is strong. ``auto`` is 1 on chains, 0.3 C on
        label sets; on graphs the penalty bends an edge's objective as much as all other terms do.
    eta : float, default=1.0
        Step of the multipliers, in units of ``rho``.
    adaptive : bool, optional
        Change ``rho`` where agreement and progress are out of balance; by default on chains, and
        on label sets with ``rho="auto"``.
    partition : int, optional
        Parts of the labels with ``factor_search="sampled"``; by default 3, on graphs 2.
    max_new_labels : int, default=4
        On chains: the number of labels that one search may add to the active set of a token,
        because searches are expensive and rare. Elsewhere it is one.
    shrink_below : float, default=0.1
        On chains: skip factors whose gap is below this share of the average for 1, 3, then 7
        epochs, or until a neighbor changes; 0 visits all factors in every epoch.

    Examples
    --------
    >>> from cliquewise.data.dataset import Dataset
    >>> from cliquewise.models.chain import ChainModel
    >>> from cliquewise.problems.chain import ChainProblem
    >>> from cliquewise.solvers.run import run
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> problem = ChainProblem(ChainModel.build(data, 2), data, loss="hinge")
    >>> bool(run(problem, GDMM("bcfw"), tol=1e-4, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "gdmm"
    works_on: ClassVar[dict[str, frozenset[str]]] = {
        "chain": frozenset({"hinge"}),
        "graph": frozenset({"log", "softmax_margin", "hinge"}),
        "label_sets": frozenset({"hinge"}),
    }
    rank: ClassVar[int] = 35
    tolerates_changes_in: ClassVar[frozenset[str]] = frozenset({"C", "model", "weights"})
    precision: ClassVar[float] = 1e-3
    relaxed_on: ClassVar[frozenset[str]] = frozenset({"graph", "label_sets"})
    columns: ClassVar[tuple[str, ...]] = ("disagreement", "rho", "inner_gap", "active")
    step_rule: str | None = None
    factor_search: str = "sublinear"
    rho: float | str = "auto"
    eta: float = 1.0
    adaptive: bool | None = None
    partition: int | None = None
    max_new_labels: int = 4
    shrink_below: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "step_rule", None, "bcfw", "afw", "bgcd")
        one_of(self, "factor_search", "sublinear", "full", "sampled")
        positive(self, "rho", "auto")
        positive(self, "eta")
        at_least(self, 1, "max_new_labels", *(["partition"] if self.partition is not None else []))
        at_least(self, 0, "shrink_below")

    def refuses(self, problem: Problem) -> str | None:
        """Refuse what a kind of problem cannot be given."""
        reason = super().refuses(problem)
        return reason or BACKENDS[problem.kind].refuses(problem, self)

    def suits(self, problem: Any) -> bool:
        """On chains with many labels, and on graphs that are dear to ask as a whole."""
        if problem.kind == "graph":
            return prefers_cliques(problem)
        return bool(problem.kind != "chain" or problem.model.n_labels >= MANY_LABELS)

    def memory(self, problem: Any) -> float:
        """Weights and what is active at the start."""
        return float(BACKENDS[problem.kind].memory(problem))

    def init(self, problem: Any, warm: Any = None) -> Factors:
        """The truth alone, so that the weights are zero; or what ``warm`` has."""
        state: Factors = BACKENDS[problem.kind](problem, self)
        if type(warm) is type(state):
            state.continue_from(warm)
        return state

    def step(self, problem: Any, state: Factors, rng: np.random.Generator) -> tuple[Factors, Info]:
        """One pass over all examples."""
        if problem.n_examples == 0:
            return state, Info(1.0, 0, 0.0)
        return state, state.sweep(rng)

    def check_cost(self, state: Factors) -> float:
        """By what a certificate reads, in passes."""
        return state.check_cost

    def certify(self, problem: Any, state: Factors) -> Certificate:
        """The primal of the weights, and the dual of beliefs that were made to agree."""
        return state.certify()

    def extras(self, problem: Any, state: Factors) -> dict[str, float]:
        """How far nodes and edges were apart in the last pass, and the penalty on it."""
        return state.extras()

    def weights(self, problem: Any, state: Factors) -> Floats:
        """Weights of the beliefs as they are."""
        return state.weights()

    def pack(self, state: Factors) -> Arrays:
        """What is active, its beliefs and multipliers."""
        return state.pack()

    def resume_paths(self, state: Factors) -> tuple[str, ...]:
        """The running weights, how lists are laid out, and when what is looked at next."""
        return state.resume_paths

    def unpack(self, problem: Any, arrays: Arrays) -> Factors:
        """Back from :meth:`pack`."""
        state = self.init(problem)
        state.unpack(arrays)
        return state
