"""GDMM: structural SVMs with thousands of labels, one factor at a time.

Algorithm 1 of Yen et al. 2016 (gdmm). Nodes and edges are separate multiclass machines with
beliefs ``mu_f``; multipliers ``lambda`` make them agree. ``A_f`` is the active set of a factor:
the states that have mass::

    repeat:
        for every factor f, in random order:
            y   <- the state of f of largest gradient, messages included      (sublinear in |Y_f|)
            A_f <- A_f + y
            move mu_f on A_f                                       (Algorithms 2 to 4: `step_rule`)
            drop the states of A_f without mass;  update w
        lambda_e <- lambda_e + eta (marginals of mu_e - mu of its nodes)                 (Eq. 13)

The passes are the same for all kinds of problems; what is stored differs: lists of active labels
and pairs on chains, all states of all cliques on graphs, and on label sets only active labels,
whose pairs with other labels have messages that follow from a rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.deprecation import renamed_keywords
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.backends.chain.factors import ChainFactors
from cliquewise.solvers.backends.factors import RULES, SEARCHES, Factors, FactorSettings
from cliquewise.solvers.backends.graph.factors import GraphFactors
from cliquewise.solvers.backends.label_sets import LabelSetFactors
from cliquewise.solvers.base import Arrays, Capabilities, Info, Solver, Warm
from cliquewise.solvers.parameters import at_least, one_of, positive
from cliquewise.solvers.registry import register

#: Number of labels from which a pass over factors is much cheaper than one over whole chains.
MANY_LABELS = 200
AnyFactors: TypeAlias = Factors[Any]
BACKENDS: dict[str, type[AnyFactors]] = {
    "chain": ChainFactors,
    "graph": GraphFactors,
    "label_sets": LabelSetFactors,
}


@register
@renamed_keywords(admit="max_new_labels", quiet="shrink_below")
@dataclass(frozen=True)
class GDMM(Solver[Problem, AnyFactors]):
    """Greedy direction method of multipliers, for many labels.

    Parameters
    ----------
    step_rule : {"bcfw", "afw", "bgcd"}, optional
        How the beliefs of a factor move. ``bcfw``: to the best point on the active set (Algorithm
        4 of the paper). ``afw``: by one Frank-Wolfe, away or pairwise step with exact line search
        per factor. ``bgcd``: as ``bcfw``, but only factors of largest violation of each example
        (Algorithm 3). By default ``bcfw``; on label sets only ``bgcd`` is available.
    factor_search : {"sublinear", "full", "sampled"}, default="sublinear"
        How the best state of a factor is found: by ordered bounds on the nonzero weights, or by
        reading all of them; both find the same state. ``sampled`` searches one part of the labels
        (on graphs: of the states or cliques) at a time.
    rho : float or "auto", default="auto"
        Initial penalty for disagreement; large is strong. ``auto`` is 1 on chains and 0.3 C on
        label sets; on graphs the penalty then has the curvature of all other terms of an edge.
    eta : float, default=1.0
        Step size of the multipliers, in units of ``rho``.
    adaptive : bool, optional
        Change ``rho`` if agreement and progress are out of balance; by default on chains, and on
        label sets with ``rho="auto"``.
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
    capabilities: ClassVar[Capabilities] = Capabilities(
        {
            "chain": frozenset({"hinge"}),
            "graph": frozenset({"log", "softmax_margin", "hinge"}),
            "label_sets": frozenset({"hinge"}),
        },
        rank=35,
        relaxed_on=frozenset({"graph", "label_sets"}),
        precision=1e-3,
    )
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
        one_of(self, "step_rule", None, *RULES)
        one_of(self, "factor_search", *SEARCHES)
        positive(self, "rho", "auto")
        positive(self, "eta")
        at_least(self, 1, "max_new_labels", *(["partition"] if self.partition is not None else []))
        at_least(self, 0, "shrink_below")

    @property
    def _settings(self) -> FactorSettings:
        return FactorSettings(*(getattr(self, name) for name in FactorSettings._fields))

    def refuses(self, problem: Problem) -> str | None:
        """Also reject what the kind of problem does not support."""
        reason = super().refuses(problem)
        return reason or BACKENDS[problem.kind].refuses(problem, self._settings)

    def unsuitable(self, problem: Problem) -> str | None:
        """Reject chains with few labels."""
        if problem.kind != "chain":
            return None
        few = cast(ChainProblem, problem).model.n_labels < MANY_LABELS
        return f"is for chains with at least {MANY_LABELS} labels" if few else None

    def memory(self, problem: Problem) -> float:
        """Return the bytes of the weights, and of what is active at the start."""
        return BACKENDS[problem.kind].memory(problem, self._settings)

    def tolerated_changes(self, problem: Problem) -> frozenset[str]:
        """Return what may change: beliefs are those of labels, which do not depend on a model."""
        return frozenset({"C", "model", "weights"})

    def init(self, problem: Problem, warm: Warm = None) -> AnyFactors:
        """Start at the truth, where the weights are zero; or at the beliefs of ``warm``."""
        state = BACKENDS[problem.kind](problem, self._settings)
        if isinstance(warm, Factors) and type(warm) is type(state):
            state.continue_from(warm)
        return state

    def step(self, problem: Problem, state: AnyFactors, rng: np.random.Generator) -> Info:
        """Make one pass over all examples."""
        return Info(1.0, 0, 0.0) if problem.n_examples == 0 else state.sweep(rng)

    def check_cost(self, state: AnyFactors) -> float:
        """Return the cost of a certificate, by the numbers that it reads."""
        return state.check_cost

    def certify(self, problem: Problem, state: AnyFactors) -> Certificate:
        """Return the primal of the weights, and the dual of beliefs that were made to agree."""
        return state.certify()

    def extras(self, problem: Problem, state: AnyFactors) -> dict[str, float]:
        """Return the disagreement of nodes and edges in the last pass, and the penalty on it."""
        return state.extras()

    def weights(self, problem: Problem, state: AnyFactors) -> Floats:
        """Return the weights of the beliefs."""
        return state.weights()

    def pack(self, state: AnyFactors) -> Arrays:
        """Return the active states, their beliefs, and the multipliers."""
        return state.pack()

    def unpack(self, problem: Problem, arrays: Arrays) -> AnyFactors:
        """Return a state from :meth:`pack`; the weights are recomputed."""
        state = self.init(problem)
        state.unpack(arrays)
        return state
