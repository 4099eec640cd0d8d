"""SVRG: stochastic gradients of the smoothed hinge loss, with reduced variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cliquewise.solvers._variance_reduced import VarianceReduced
from cliquewise.solvers.base import register


@register
@dataclass(frozen=True)
class SVRG(VarianceReduced):
    """Stochastic variance-reduced gradient (Johnson and Zhang 2013).

    Each step of the run is a full gradient (counted as a pass of its own, and apart in the
    column ``full_passes`` of the trace) and a reshuffled pass of single steps. With loss
    ``smooth_hinge`` smoothing and its amount are the problem's; with ``hinge`` they are the
    solver's, and the certificate is that of the hinge loss itself.

    Parameters
    ----------
    smoother : {"l2", "entropy", "none"}, default="l2"
        ``l2`` asks for the ``k`` best outputs, ``entropy`` for marginals.
    mu : float, default=1.0
        Amount of smoothing, in units of the task loss; 0 is none.
    k : int, default=5
        Outputs per oracle call, at most.
    learning_rate : float, optional
        By default it is ``1 / max ||x||^2`` over the tokens (candidates: the mean of their
        greatest differences), and halved when two full gradients in a row have not found the
        objective 2 % lower, or as much lower as steps of that length can make it.
    average : bool, default=True
        Go on from the average of an epoch's iterates, not from the last.
    warm_up : int, default=1
        Passes of plain stochastic gradients to begin with.

    Examples
    --------
    >>> from cliquewise.data.dataset import Dataset
    >>> from cliquewise.models.chain import ChainModel
    >>> from cliquewise.problems.chain import ChainProblem
    >>> from cliquewise.solvers.run import run
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> problem = ChainProblem(ChainModel.build(data, 2), data, loss="hinge")
    >>> bool(run(problem, SVRG(mu=0.01), tol=0.02, max_epochs=500, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "svrg"
