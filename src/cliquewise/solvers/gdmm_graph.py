"""GDMM on graphs: factorwise Frank-Wolfe or greedy steps inside an augmented Lagrangian."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers._cliquewise import Ascent, Cliquewise
from cliquewise.solvers.base import Info, register

STEPS = ("bcfw", "afw", "bgcd")
SEARCHES = ("sublinear", "full", "sampled")
#: Parts that the sampled search divides states (or, with BGCD, cliques) into.
PARTS = 2
#: A clique joins the active ones if it gains this share of the best clique's gain.
JOIN = 0.5
#: Shares of the whole gap that the inner problem's should stay between (as in idal).
LEAST, MOST = 0.02, 0.8
#: From one look to the next a gap should fall below this part of itself.
SLOW = 0.95


@register
@dataclass(frozen=True, init=False)
class GraphGDMM(Cliquewise):
    """Greedy direction method of multipliers on pairwise graphs; users call it ``gdmm``.

    It minimizes the structured hinge loss of the local polytope (other losses, too: the paper's
    steps then include the entropy). All states of all cliques are
    stored, so that the search of a clique is always complete; for hundreds of labels that are
    on or off see :class:`~cliquewise.solvers.gdmm_multilabel.MultiLabelGDMM`.

    Parameters
    ----------
    step : {"bcfw", "afw", "bgcd"}, default="bcfw"
        At a clique: the best state joins the active ones, on which the proximal problem is
        solved (Algorithm 4 of the paper); a Frank-Wolfe or an away step, whichever promises
        more, with an exact line search (Algorithm 2, one clique at a time); or as ``bcfw``,
        but only at active cliques, which the most promising ones of each example join at every
        pass (Algorithm 3).
    factor_search : {"sublinear", "full", "sampled"}, default="sublinear"
        On small cliques the first two are the same. ``sampled`` looks at one of two random
        parts of the states (``bgcd``: of the cliques), and always at the active ones.
    rho : float, "auto" or "adaptive", default="auto"
        Penalty for disagreement; large is strong. ``auto``: the penalty bends an edge's
        objective as much as all other terms do. ``adaptive`` starts there, and changes it
        when the gap hardly falls.
    eta : float, default=1.0
        Step of the multipliers, in units of rho.

    Examples
    --------
    >>> from cliquewise.data.graphs import GraphDataset
    >>> from cliquewise.models.pairwise import PairwiseModel
    >>> from cliquewise.solvers.run import run
    >>> data = GraphDataset.from_examples([([[0.5], [-1.0]], [(0, 1)])], [[0, 1]])
    >>> problem = GraphProblem(PairwiseModel([2], 1), data, loss="hinge")
    >>> run(problem, GraphGDMM(), tol=1e-3, random_state=0).certificate.gap <= 1e-3
    True
    """

    name: ClassVar[str] = "gdmm_graph"
    # Not parameters here: a pass visits every clique, example by example.
    inner: ClassVar[float] = 1.0  # type: ignore[misc]
    sampling: ClassVar[str] = "examples"  # type: ignore[misc]

    rule: str = "bcfw"
    factor_search: str = "sublinear"
    eta: float = 1.0

    def __init__(
        self,
        step: str = "bcfw",
        factor_search: str = "sublinear",
        rho: float | str = "auto",
        eta: float = 1.0,
    ):
        # ``step`` is the name of a method, so that the parameter is kept as ``rule``.
        check_parameters(step, factor_search, eta)
        for name, value in (("rule", step), ("factor_search", factor_search), ("rho", rho)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "eta", float(eta))
        if rho != "adaptive":
            super().__post_init__()

    @classmethod
    def like(cls, solver: Any) -> GraphGDMM:
        """The same parameters as those of another kind of GDMM."""
        return cls(**parameters_of(solver))

    def init(self, problem: GraphProblem, warm: Ascent | None = None) -> Ascent:
        """Everything at the truth, so that the weights are zero; or at ``warm``."""
        from cliquewise._kernels.cliques.ascent import Point

        rho = "auto" if isinstance(self.rho, str) else 1.0 / self.rho
        state = Cliquewise(rho=rho).init(problem, warm)
        if warm is None:
            x = state.point
            state = self._ready(
                problem, Point(problem.truth.copy(), x.xi, x.inflow, x.w), state.rho
            )
        state.active = problem.truth[problem.cliques.offsets[:-1]] < 0
        if warm is not None:
            state.active[:] = True
        return state

    def step(
        self, problem: GraphProblem, state: Ascent, rng: np.random.Generator
    ) -> tuple[Ascent, Info]:
        """One pass: example by example its multipliers move, then its cliques."""
        from cliquewise._kernels.cliques.ascent import Tour
        from cliquewise._kernels.cliques.factors import Rule, factor_sweep

        n, data = problem.n_cliques, problem.data
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        if self.rho == "adaptive" and np.isfinite(state.share):
            self._adapt(problem, state)
        length = self.eta / state.rho if state.outer else 0.0
        parts = PARTS if self.factor_search == "sampled" else 1
        examples = rng.permutation(len(data))
        visits, apart = factor_sweep(
            problem.cliques, problem.terms, state.point, state.rho, state.steps,
            Rule(STEPS.index(self.rule), parts, JOIN), state.gaps, state.active,
            Tour(data.node_offsets, data.edge_offsets, examples, state.order, state.place),
            length, rng.integers(0, 2**63, 1, dtype=np.uint64),
        )  # fmt: skip
        if length > 0:
            state.disagreement = apart
        state.visits += visits
        state.outer += 1
        proof = self._look(problem, state) if state.outer == state.next_look else None
        return state, Info(1.0, visits, np.inf, proof, self._is_finished(state))

    def unpack(self, problem: GraphProblem, arrays: dict[str, np.ndarray[Any, Any]]) -> Ascent:
        """Back from :meth:`pack`; every clique counts as active until it is found idle."""
        state = super().unpack(problem, arrays)
        state.active = np.ones(problem.n_cliques, dtype=bool)
        return state

    def _adapt(self, problem: GraphProblem, state: Ascent) -> None:
        """Another penalty if the gap has hardly fallen; each change is smaller than the last."""
        gap = state.primal - state.dual
        if gap > SLOW * state.last_gap and not LEAST <= state.share <= MOST:
            state.changes += 1
            factor = 4.0 ** (1.0 / state.changes)
            rho = state.rho * factor if state.share > MOST else state.rho / factor
            self._set_rho(problem, state, rho)
        state.last_gap, state.share = gap, np.nan


def check_parameters(step: str, factor_search: str, eta: float) -> None:
    """Refuse what no GDMM knows."""
    if step not in STEPS:
        raise DataError(f"step is one of {', '.join(STEPS)}, not {step!r}")
    if factor_search not in SEARCHES:
        raise DataError(f"factor_search is one of {', '.join(SEARCHES)}, not {factor_search!r}")
    if not (isinstance(eta, int | float) and np.isfinite(eta) and eta > 0):
        raise DataError(f"eta = {eta!r}; it must be a positive number")


def parameters_of(solver: Any) -> dict[str, Any]:
    """step, factor_search, rho and eta of a GDMM of another kind of problem."""
    values = {f.name: getattr(solver, f.name) for f in fields(solver)}
    known = {k: v for k, v in values.items() if k in ("factor_search", "rho", "eta")}
    rule = [v for v in values.values() if isinstance(v, str) and v in STEPS]
    return known | ({"step": rule[0]} if rule else {})
