"""What every estimator shares: the parameters of a run, training, and one file format."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from cliquewise.certificate import Certificate
from cliquewise.deprecation import translate_keywords, warn_renamed
from cliquewise.errors import DataError, warn_user
from cliquewise.estimators._stored import Arrays, Header, restored_weights, rounded
from cliquewise.estimators.parameters import (
    Role,
    TrainingParameters,
    check_file_parameters,
    check_parameters,
    names_with_role,
    old_names,
    saved_parameters,
)
from cliquewise.persistence import check_target, write_arrays
from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats
from cliquewise.report import blocks
from cliquewise.report.page import check_report, write_page
from cliquewise.solvers.planner import choose
from cliquewise.solvers.progress import training_line
from cliquewise.solvers.run import Fit, run
from cliquewise.trace import Trace

#: The site, as `[project.urls]` of pyproject.toml names it.
DOCUMENTATION = "https://cliquewise.readthedocs.io/"
Method = TypeVar("Method", bound=Callable[..., Any])


def rollback_on_error(method: Method) -> Method:
    """A method that trains; if it raises, the estimator is what it was before."""

    @wraps(method)
    def trained(self: Any, *given: Any, **named: Any) -> Any:
        before = dict(self.__dict__)
        try:
            return method(self, *given, **named)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return trained  # type: ignore[return-value]


@dataclass(eq=False, repr=False)
class Estimator(TrainingParameters, BaseEstimator):  # type: ignore[misc]
    """Base of all estimators: training, model files and reports.

    A subclass also inherits from its table in :mod:`cliquewise.estimators.parameters`. It calls
    :meth:`_train` in ``fit``, and packs and restores its fitted state in :meth:`_to_file` and
    :meth:`_from_file`.
    """

    # scikit-learn's picture of an estimator links to its page of the reference
    _doc_link_module: ClassVar[str] = "cliquewise"
    _doc_link_template: ClassVar[str] = (
        DOCUMENTATION + "api/generated/cliquewise.{estimator_name}.html"
    )
    # ---- parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters; see scikit-learn. Old names work with a FutureWarning."""
        renamed = old_names(type(self))
        if not renamed.keys().isdisjoint(parameters):
            parameters = translate_keywords(type(self).__name__, parameters, renamed)
        return super().set_params(**parameters)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        """Return a parameter by its old name; called only for missing attributes."""
        new = None if name.startswith("_") else old_names(type(self)).get(name)
        if new is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warn_renamed(type(self).__name__, name, new)
        return getattr(self, new)

    # ---- training

    def _check_parameters(self) -> None:
        """Raise a ParameterError if a parameter has a value that training cannot use."""
        check_parameters(type(self), self.get_params(deep=False))

    def _wanted(self) -> Any:
        """The solver to train with: a name or an instance."""
        return self.solver

    def _most_epochs(self, solver: Any, problem: Problem) -> float:
        """Passes after which training by a solver stops, whatever it has reached."""
        return self.max_epochs

    def _train(
        self,
        problem: Problem,
        callback: Callable[..., Any] | None = None,
        monitor: Any = None,
        **options: Any,
    ) -> Fit:
        """Run a solver on a problem and keep what it proves; ``options`` are those of `run`."""
        problem.elastic(self.l1_ratio)
        choice = choose(problem, self._wanted(), self.max_memory * 2**30)
        with training_line(self.verbose, self.tol) as line:
            fit = run(
                problem,
                choice.solver,
                tol=self.tol,
                max_epochs=self._most_epochs(choice.fallback or choice.solver, problem),
                max_seconds=np.inf if self.max_seconds is None else self.max_seconds,
                random_state=self.random_state,
                callback=callback,
                progress=line,
                stop_when=monitor,
                fallback=choice.fallback,
                **options,
            )
        # First: where warnings are errors, what is known of the weights before stays.
        if not fit.converged and not (monitor is not None and monitor.stopped):
            warn_user(_shortfall(fit, self.tol), ConvergenceWarning)
        # scikit-learn's is a whole number; the trace has the epochs to the digit
        self.solver_, self.n_iter_ = fit.solver, math.ceil(fit.epochs - 1e-9)
        self.certificate_, self.trace_ = fit.certificate, fit.trace
        self._remember()
        return fit

    def _remember(self) -> None:
        """Keep the parameters that weights and certificate are of."""
        self._objective, self._made = self._settings(), self._settings("model")

    def _settings(self, role: Role = "objective") -> dict[str, Any]:
        """Return copies of the parameters with a role."""
        return {name: _copied(getattr(self, name)) for name in names_with_role(type(self), role)}

    @property
    def _has_own_certificate(self) -> bool:
        """Whether ``certificate_`` is of the objective that the parameters say."""
        return self.__dict__.get("_objective") in (None, self._settings())

    # ---- reports

    def report(self, X: Any, y: Any, path: str | Path, **options: Any) -> None:
        """Write what is proved, and how well the model does on ``X``, as one HTML file.

        The file is complete: it asks nothing of any network, and works from a disk or in a mail.

        Parameters
        ----------
        X, y
            Examples that the model was not trained on, and their true outputs.
        path : path
            The file to write, such as ``report.html``.
        **options
            ``title``, ``subtitle`` : str, what the page calls itself. ``tokens`` : lists of strings
            that a tagger's tokens are shown as; by default the first column, or a feature that
            names a word. ``live`` : bool, put a tagger with a template into the page, to try it
            there: the page grows by the model's size.
        """
        check_is_fitted(self, "coef_")
        check_report(path)
        title = options.pop("title", f"{type(self).__name__}: report")
        about = options.pop("subtitle", f"{type(self).__name__} trained by {self.solver_}")
        sections = self._sections(X, y, **options)
        proof = blocks.certificate(self.certificate_._cells(), self.tol)
        columns = {name: self.trace_[name] for name in self.trace_.columns}
        begin = blocks.section(
            "proof", "What is proved", [proof, *blocks.course(columns, self.tol)]
        )
        write_page(path, title, about, [begin, *sections])

    def _sections(self, X: Any, y: Any) -> list[blocks.Block]:
        """What a report says of predictions."""
        raise NotImplementedError

    @property
    def n_nonzero_(self) -> int:
        """How many weights of ``coef_`` are not zero."""
        check_is_fitted(self, "coef_")
        return int(np.count_nonzero(self.coef_))

    # ---- files

    def save(self, path: str | Path, *, dtype: str = "float64") -> None:
        """Write the model to one file; see :func:`cliquewise.load`.

        Parameters that JSON cannot hold (a solver instance, a generator of random numbers) are
        left out and have their defaults in the model that is loaded.

        Parameters
        ----------
        path : path
        dtype : {"float64", "float32", "float16"}, default="float64"
            What the weights are rounded to in the file; they are float64 again once loaded. The
            certificate in the file is that of the rounded weights where the training data are at
            hand (a tagger that was trained in this process), and otherwise proves nothing. Nor does
            it where parameters of the objective, such as ``C``, were changed after training. Those
            of the model, such as ``intercept``, are saved as they were in training.
        """
        check_is_fitted(self, "coef_")
        self._write(path, dtype, *self._to_file())

    def _write(self, path: str | Path, dtype: str, arrays: Arrays, header: Header) -> None:
        """Write what an estimator has, and what all share."""
        check_target(path, "the model")
        certificate = self.certificate_ if self._has_own_certificate else Certificate(math.nan)
        if dtype != "float64":
            exact, arrays["coef"] = arrays["coef"], rounded(arrays["coef"], dtype)
            if not np.array_equal(arrays["coef"], exact):
                certificate = self._certificate_of(rounded(self.coef_, dtype).astype(np.float64))
        parameters = self._plain_parameters()
        check_file_parameters(type(self), parameters)
        columns = self.trace_.columns
        cells = [self.trace_[name] for name in columns]
        shared = {
            "kind": type(self).__name__,
            "params": parameters,
            "certificate": asdict(certificate),
            "weights": dtype,
            "solver": self.solver_,
            "n_iter": self.n_iter_,
            "trace": list(columns),
        }
        if hasattr(self, "feature_names_in_"):
            shared["feature_names"] = self.feature_names_in_.tolist()
        write_arrays(path, {**arrays, "trace": np.stack(cells, axis=1)}, {**shared, **header})

    @classmethod
    def _restored(cls, arrays: Arrays, header: Header) -> Self:
        """A fitted estimator from what :meth:`save` wrote; any ValueError means damage."""
        parameters = check_file_parameters(cls, header["params"])
        header = {**header, "params": parameters}
        estimator = cls(**parameters)
        c = header["certificate"]
        if c["status"] not in ("exact", "bound", "none"):
            raise DataError(f"its certificate says {c['status']!r:.40}")
        values = float(c["primal"]), float(c["dual"]), c["status"]
        estimator.certificate_ = Certificate(*values, float(c.get("rounding", 0.0)))
        if not isinstance(header["solver"], str):
            raise DataError("its solver has no name")
        estimator.solver_ = header["solver"]
        # Files of version 1 have neither of these two.
        estimator.n_iter_ = _passes(header.get("n_iter", 0))
        estimator.trace_ = (
            _trace(header["trace"], arrays["trace"]) if "trace" in header else Trace()
        )
        if "feature_names" in header:
            names = np.array(header["feature_names"], dtype=object)
            if names.ndim != 1 or not all(isinstance(name, str) for name in names):
                raise DataError("the names of its features are no list of strings")
            estimator.feature_names_in_ = names
        estimator._from_file({**arrays, "coef": restored_weights(arrays, header)}, header)
        estimator._remember()
        if "feature_names" in header and len(names) != estimator.n_features_in_:
            raise DataError(f"{len(names)} names for {estimator.n_features_in_} features")
        return estimator

    def _plain_parameters(self) -> dict[str, Any]:
        """Return the parameters that a file holds; those of the model as training used them."""
        used = self.get_params(deep=False) | self.__dict__.get("_made", {})
        return saved_parameters(type(self), used)

    def _certificate_of(self, weights: Floats) -> Certificate:
        """What is proved of other weights than those that training found."""
        return Certificate(math.nan)

    def _to_file(self) -> tuple[Arrays, Header]:
        """The fitted state that only this kind of estimator has."""
        raise NotImplementedError

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        """Back from :meth:`_to_file`; checks sizes and types before anything is used."""
        raise NotImplementedError


def _shortfall(fit: Fit, tol: float) -> str:
    """What a run did not reach, and what to do."""
    why = "was interrupted" if fit.interrupted else "stopped"
    reached = (
        f"with relative gap {fit.certificate.gap:.3g} (tol = {tol:g})"
        if fit.certificate.status != "none"
        else "without a certificate (the problem is not convex)"
    )
    if fit.certificate.rounding > tol * abs(fit.certificate.primal):
        return (
            f"{fit.solver} {why} after {fit.epochs:.4g} epochs {reached}; numbers of this size "
            f"prove nothing finer: rounding alone may be {fit.certificate.rounding:.3g} of the "
            f"objective {fit.certificate.primal:.3g}; scale the features, or lower C"
        )
    return (
        f"{fit.solver} {why} after {fit.epochs:.4g} epochs {reached}; scale the features, "
        "raise max_epochs or max_seconds, lower C, or try another solver"
    )


def _passes(n_iter: Any) -> int:
    """A whole number of passes; older files hold fractions."""
    number = float(n_iter)
    if not 0 <= number < 2**53:
        raise DataError(f"its number of passes is {number}")
    return math.ceil(number)


def _copied(value: Any) -> Any:
    """A value that nobody else changes, and that can be compared: arrays are lists."""
    if isinstance(value, list | tuple):
        return [_copied(part) for part in value]
    return np.asarray(value).tolist() if hasattr(value, "__array__") else deepcopy(value)


def _trace(columns: Any, cells: NDArray[Any]) -> Trace:
    trace = Trace(columns)
    if cells.dtype != np.float64 or cells.ndim != 2 or cells.shape[1] != len(trace.columns):
        raise DataError("its trace does not fit the names of the columns")
    for row in cells.tolist():
        trace.append(**dict(zip(trace.columns, row, strict=True)))
    return trace
