"""Shared parts of the Dask estimators: client, `to_local`, prediction over partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from dask.delayed import delayed

from cliquewise.distributed.chains import listed, unlabeled
from cliquewise.distributed.cluster import Cluster, client_of
from cliquewise.distributed.inputs import partitions
from cliquewise.distributed.problem import ClusterProblem
from cliquewise.errors import UnsupportedError
from cliquewise.estimators._base import DOCUMENTATION, Estimator
from cliquewise.estimators.parameters import check_supported
from cliquewise.solvers.base import Start
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.owlqn import OWLQN
from cliquewise.solvers.run import Fit


class ClusterEstimator:
    """Mixin for Dask estimators; ``_local`` is the class for one machine."""

    _local: ClassVar[type[Estimator]]
    _doc_link_template: ClassVar[str] = (
        DOCUMENTATION + "api/generated/cliquewise.distributed.{estimator_name}.html"
    )
    _kind: ClassVar[str]  # of the problem
    client: Any
    solver: Any
    loss: str

    @property
    def client_(self) -> Any:
        """The given client, or the current one."""
        return client_of(self.client)

    def _cluster(self) -> Cluster:
        """Return the cluster after checking its workers."""
        self._check_parameters()  # type: ignore[attr-defined]
        check_supported(type(self), self.get_params(deep=False), "dask")  # type: ignore[attr-defined]
        if not isinstance(self.solver, LBFGS) and self.solver not in ("auto", "lbfgs", "owlqn"):
            raise UnsupportedError(
                f"solver {self.solver!r} needs single examples; on a cluster these work "
                'with sums over partitions: "lbfgs" (which "auto" takes), "owlqn" with l1_ratio'
            )
        losses = LBFGS.capabilities.losses[self._kind]
        if self.loss not in losses:
            raise UnsupportedError(
                f"loss {self.loss!r} has no gradient to add up over partitions; on a cluster, use "
                f"{' or '.join(sorted(losses))}"
            )
        return Cluster(self.client_, getattr(self, "checkpoint", None))

    def _requested_solver(self) -> Any:
        """Return the solver, which works with sums over partitions."""
        if isinstance(self.solver, LBFGS):
            return self.solver
        sparse = self.solver == "owlqn" or (self.solver == "auto" and self.l1_ratio > 0)  # type: ignore[attr-defined]
        return OWLQN() if sparse else LBFGS()

    def _train_on(self, problem: ClusterProblem, start: Any = None, **options: Any) -> Fit:
        """Train, by default from the mean of the solutions of the partitions."""
        if start is None and problem.is_convex:
            start = problem.start()
        warm = None if start is None else Start(start)
        fit: Fit = self._train(problem, warm=warm, **options)  # type: ignore[attr-defined]
        self.traffic_ = {
            "rounds": problem.rounds,
            "bytes_sent": problem.cluster.sent,
            "bytes_received": problem.cluster.received,
        }
        return fit

    def to_local(self) -> Any:
        """Return the same model as an estimator for one machine, which needs no cluster."""
        parameters = {
            name: value
            for name, value in self.get_params(deep=False).items()  # type: ignore[attr-defined]
            if name != "client"
        }
        local = self._local(**parameters)
        state = {name: value for name, value in self.__dict__.items() if name not in parameters}
        local.__dict__.update({n: v for n, v in state.items() if n not in ("client", "traffic_")})
        return local

    def save(self, path: str | Path, **options: Any) -> None:
        """Write the model to a file that :func:`cliquewise.load` reads without a cluster."""
        self.to_local().save(path, **options)

    def _over(self, name: str, X: Any, empty: Any, *arguments: Any, **options: Any) -> list[Any]:
        """Apply a method of the local model to every partition; return delayed objects."""
        model = delayed(self.to_local(), pure=False)  # sent only once
        answer = delayed(_ask, pure=False)
        return [answer(model, name, x, empty, arguments, options) for x in partitions(X, "X")]

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, "client": None}  # another process cannot use it


def _ask(model: Any, name: str, X: Any, empty: Any, arguments: Any, options: Any) -> Any:
    """Call a method of a model on one partition."""
    X = unlabeled(X, model) if isinstance(X, str) else listed(X)
    if not (X.shape[0] if hasattr(X, "shape") else len(X)):
        return empty
    return getattr(model, name)(X, *arguments, **options)
