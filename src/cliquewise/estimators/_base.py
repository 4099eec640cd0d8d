"""Base class of the estimators: parameters, training, reports and model files."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from datetime import date
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from cliquewise.atomic_files import check_target
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
from cliquewise.estimators.provenance import check_metadata, check_provenance, describe_training
from cliquewise.persistence import write_arrays
from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats
from cliquewise.report import blocks
from cliquewise.report.page import check_report, write_page
from cliquewise.solvers.planner import choose
from cliquewise.solvers.progress import training_line
from cliquewise.solvers.run import Fit, run
from cliquewise.trace import Trace

#: The URL of the documentation; the same as in `[project.urls]` of pyproject.toml.
DOCUMENTATION = "https://cliquewise.readthedocs.io/"
Method = TypeVar("Method", bound=Callable[..., Any])
#: Why training ended: the gap is at most ``tol``; a limit on epochs or seconds was reached; Ctrl-C
#: or SIGTERM; the score on validation data stopped improving.
STOP_REASONS = ("converged", "limit", "interrupted", "validation")
#: Size in MB from which a report is slow to open and too large for a mail.
LARGE_REPORT_MB = 10.0
logger = logging.getLogger("cliquewise")


def rollback_on_error(method: Method) -> Method:
    """Decorate a method that trains: if it raises, the estimator is left unchanged."""

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

    # scikit-learn's notebook display of an estimator links to its page of the reference
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

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; the old name of a parameter sets the parameter."""
        new = old_names(type(self)).get(name)
        if new is not None:
            warn_renamed(type(self).__name__, name, new)
        super().__setattr__(new or name, value)

    # ---- training

    def _check_parameters(self) -> None:
        """Raise a ParameterError if a parameter has a value that training cannot use."""
        check_parameters(type(self), self.get_params(deep=False))

    def _requested_solver(self) -> Any:
        """Return the solver to train with: a name or an instance."""
        return self.solver

    def _epoch_limit(self, solver: Any, problem: Problem) -> float:
        """Return the number of epochs after which training with a solver stops."""
        return self.max_epochs

    def _train(
        self,
        problem: Problem,
        callback: Callable[..., Any] | None = None,
        monitor: Any = None,
        **options: Any,
    ) -> Fit:
        """Solve a problem and record the result; ``options`` are passed to `solvers.run.run`."""
        problem.elastic(self.l1_ratio)
        choice = choose(problem, self._requested_solver(), self.max_memory * 2**30)
        logger.info("training %s with %s, C=%g", type(self).__name__, choice.solver.name, problem.C)
        with training_line(self.verbose, self.tol) as line:
            fit = run(
                problem,
                choice.solver,
                tol=self.tol,
                max_epochs=self._epoch_limit(choice.fallback or choice.solver, problem),
                max_seconds=np.inf if self.max_seconds is None else self.max_seconds,
                random_state=self.random_state,
                callback=callback,
                progress=line,
                stop_when=monitor,
                fallback=choice.fallback,
                **options,
            )
        stopped_early = monitor is not None and monitor.stopped
        logger.info(
            "%s ended after %g epochs: objective %.8g, relative gap %.3g",
            fit.solver, fit.epochs, fit.certificate.primal, fit.certificate.gap,
        )  # fmt: skip
        # Before anything is recorded, because a warning may be turned into an error.
        if not fit.converged and not stopped_early:
            warn_user(_convergence_message(fit, self.tol), ConvergenceWarning)
        # An integer, as in scikit-learn; the trace has fractions of epochs.
        self.solver_, self.n_iter_ = fit.solver, math.ceil(fit.epochs - 1e-9)
        self.certificate_, self.trace_ = fit.certificate, fit.trace
        self.stop_reason_ = _stop_reason(fit, stopped_early)
        self.provenance_ = describe_training(problem.fingerprint())
        self.metadata_: dict[str, Any] = {}
        self._record_parameters()
        return fit

    def _record_parameters(self) -> None:
        """Record the parameters that the weights and the certificate belong to."""
        self._objective, self._model_parameters = (
            self._parameters_with_role(),
            self._parameters_with_role("model"),
        )

    def _parameters_with_role(self, role: Role = "objective") -> dict[str, Any]:
        """Return copies of the parameters with a role."""
        return {name: _copied(getattr(self, name)) for name in names_with_role(type(self), role)}

    @property
    def _has_own_certificate(self) -> bool:
        """Whether ``certificate_`` belongs to the objective that the parameters define."""
        return self.__dict__.get("_objective") in (None, self._parameters_with_role())

    # ---- reports

    def report(self, X: Any, y: Any, path: str | Path, **options: Any) -> None:
        """Write an HTML report: the certificate, and the quality of predictions on ``X``.

        The report is one self-contained file that makes no network requests.

        Parameters
        ----------
        X, y
            Examples that the model was not trained on, and their gold outputs.
        path : path
            The file to write, such as ``report.html``.
        **options
            ``title``, ``subtitle`` : str, the headings of the page. ``tokens`` : lists of strings
            to show for the tokens of a tagger; by default the first column, or a feature that
            names a word. ``live`` : bool, include a tagger that has a template, so that readers can
            tag their own sentences; the file grows by the size of the model.
        """
        check_is_fitted(self, "coef_")
        check_report(path)
        title = options.pop("title", f"{type(self).__name__}: report")
        about = options.pop("subtitle", f"{type(self).__name__} trained by {self.solver_}")
        sections = self._sections(X, y, **options)
        proof = blocks.certificate(self.certificate_._cells(), self.tol)
        columns = {name: self.trace_[name] for name in self.trace_.columns}
        if self.__dict__.get("provenance_"):
            proof["facts"] += [[name, str(value)] for name, value in self._origin().items()]
        begin = blocks.section(
            "proof", "Certificate", [proof, *blocks.convergence(columns, self.tol)]
        )
        write_page(path, title, about, [begin, *sections])
        size = Path(path).stat().st_size / 1e6
        if size > LARGE_REPORT_MB:
            shrink = "leave out live, or report" if options.get("live") else "report"
            warn_user(f"{path} has {size:.0f} MB; to shrink it, {shrink} on fewer sentences")

    def _origin(self) -> dict[str, str]:
        """Return where the model comes from, for a report."""
        known = self.provenance_
        notes = self.__dict__.get("metadata_") or {}
        return {
            "trained with": f"cliquewise {known.get('cliquewise')}, {self.solver_}",
            "training examples": f"{known.get('examples'):,}",
            "digest of the data": str(known.get("data")),
            "report of": f"{date.today():%Y-%m-%d}",
        } | {str(name): str(value) for name, value in notes.items()}

    def _sections(self, X: Any, y: Any) -> list[blocks.Block]:
        """Return the sections of a report about predictions."""
        raise NotImplementedError

    @property
    def n_nonzero_(self) -> int:
        """Number of weights of ``coef_`` that are not zero."""
        check_is_fitted(self, "coef_")
        return int(np.count_nonzero(self.coef_))

    # ---- files

    def save(
        self, path: str | Path, *, dtype: str = "float64", metadata: dict[str, Any] | None = None
    ) -> None:
        """Write the model to one file; :func:`cliquewise.load` reads it.

        Equal models give equal bytes, so the file holds no times: in the loaded model
        ``trace_.seconds`` is NaN. Parameters that JSON cannot hold, such as a solver instance or a
        random generator, have their defaults in the loaded model.

        Parameters
        ----------
        path : path
            Symbolic links are followed, and an existing file keeps its mode.
        dtype : {"float64", "float32", "float16"}, default="float64"
            Round the weights to this type in the file; loaded weights are float64. The file has
            a certificate for the rounded weights if the training data are still in memory (a
            tagger that was trained in this process), and otherwise none. It has none either if
            parameters of the objective, such as ``C``, were changed after training. Parameters of
            the model, such as ``intercept``, are saved with the values used in training.
        metadata : dict, optional
            Notes to store in the file, with string keys and plain values. The loaded model has
            them in ``metadata_``.
        """
        check_is_fitted(self, "coef_")
        self._write(path, dtype, *self._to_file(), metadata=metadata)

    def _write(
        self,
        path: str | Path,
        dtype: str,
        arrays: Arrays,
        header: Header,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Write the arrays and the header of an estimator, and what all estimators share."""
        metadata = check_metadata(self.__dict__.get("metadata_") if metadata is None else metadata)
        check_target(path, "the model")
        certificate = self.certificate_ if self._has_own_certificate else Certificate(math.nan)
        if dtype != "float64":
            exact, arrays["coef"] = arrays["coef"], rounded(arrays["coef"], dtype)
            if not np.array_equal(arrays["coef"], exact):
                certificate = self._certificate_of(rounded(self.coef_, dtype).astype(np.float64))
        parameters = self._parameters_to_save()
        check_file_parameters(type(self), parameters)
        columns = self.trace_.columns
        # Times would make files of equal runs differ.
        cells = [self.trace_[name] * (np.nan if name == "seconds" else 1.0) for name in columns]
        shared = {
            "kind": type(self).__name__,
            "params": parameters,
            "certificate": asdict(certificate),
            "weights": dtype,
            "solver": self.solver_,
            "n_iter": self.n_iter_,
            "trace": list(columns),
            "stop_reason": self.__dict__.get("stop_reason_"),
            "provenance": self.__dict__.get("provenance_"),
            "metadata": metadata,
        }
        if hasattr(self, "feature_names_in_"):
            shared["feature_names"] = self.feature_names_in_.tolist()
        write_arrays(path, {**arrays, "trace": np.stack(cells, axis=1)}, {**shared, **header})
        logger.info("wrote %s", path)

    @classmethod
    def _from_content(cls, arrays: Arrays, header: Header) -> Self:
        """Return a fitted estimator from the content of a file; a ValueError means damage."""
        parameters = check_file_parameters(cls, header["params"])
        header = {**header, "params": parameters}
        estimator = cls(**parameters)
        c = header["certificate"]
        if c["status"] not in ("exact", "bound", "none"):
            raise DataError(f"its certificate has the status {c['status']!r:.40}")
        values = float(c["primal"]), float(c["dual"]), c["status"]
        estimator.certificate_ = Certificate(*values, float(c.get("rounding", 0.0)))
        if not isinstance(header["solver"], str):
            raise DataError("its solver has no name")
        estimator.solver_ = header["solver"]
        # Files of version 1 have no n_iter and no trace; later ones may lack the other three.
        estimator.n_iter_ = _epochs(header.get("n_iter", 0))
        estimator.trace_ = (
            _trace(header["trace"], arrays["trace"]) if "trace" in header else Trace()
        )
        reason = header.get("stop_reason")
        estimator.stop_reason_ = reason if reason in STOP_REASONS else "unknown"
        estimator.provenance_ = check_provenance(header.get("provenance"))
        estimator.metadata_ = check_metadata(header.get("metadata"))
        if "feature_names" in header:
            names = np.array(header["feature_names"], dtype=object)
            if names.ndim != 1 or not all(isinstance(name, str) for name in names):
                raise DataError("the names of its features are not a list of strings")
            estimator.feature_names_in_ = names
        estimator._from_file({**arrays, "coef": restored_weights(arrays, header)}, header)
        estimator._record_parameters()
        if "feature_names" in header and len(names) != estimator.n_features_in_:
            raise DataError(f"{len(names)} names for {estimator.n_features_in_} features")
        return estimator

    def _parameters_to_save(self) -> dict[str, Any]:
        """Return the parameters that a file holds; those of the model as training used them."""
        used = self.get_params(deep=False) | self.__dict__.get("_model_parameters", {})
        return saved_parameters(type(self), used)

    def _certificate_of(self, weights: Floats) -> Certificate:
        """Return the certificate of other weights; without the training data there is none."""
        return Certificate(math.nan)

    def _to_file(self) -> tuple[Arrays, Header]:
        """Return the fitted state that is specific to this estimator."""
        raise NotImplementedError

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        """Restore what :meth:`_to_file` returned, after checks of all sizes and types."""
        raise NotImplementedError


def _stop_reason(fit: Fit, stopped_early: bool) -> str:
    """Return why training stopped, one of ``STOP_REASONS``."""
    if fit.interrupted:
        return "interrupted"
    if stopped_early:
        return "validation"
    return "converged" if fit.converged else "limit"


def _convergence_message(fit: Fit, tol: float) -> str:
    """Describe how far a run is from its tolerance, and what may help."""
    why = "was interrupted" if fit.interrupted else "stopped"
    reached = (
        f"with relative gap {fit.certificate.gap:.3g} (tol = {tol:g})"
        if fit.certificate.status != "none"
        else "without a certificate (the problem is not convex)"
    )
    if fit.certificate.rounding > tol * abs(fit.certificate.primal):
        return (
            f"{fit.solver} {why} after {fit.epochs:.4g} epochs {reached}; no smaller gap can be "
            f"proven, because rounding errors may reach {fit.certificate.rounding:.3g} of the "
            f"objective {fit.certificate.primal:.3g}; scale the features, or lower C"
        )
    return (
        f"{fit.solver} {why} after {fit.epochs:.4g} epochs {reached}; scale the features, "
        "raise max_epochs or max_seconds, lower C, or try another solver"
    )


def _epochs(n_iter: Any) -> int:
    """Return a number of epochs as an integer; older files hold fractions."""
    number = float(n_iter)
    if not 0 <= number < 2**53:
        raise DataError(f"its number of epochs is {number}")
    return math.ceil(number)


def _copied(value: Any) -> Any:
    """Return an independent copy that can be compared: arrays become lists."""
    if isinstance(value, list | tuple):
        return [_copied(part) for part in value]
    return np.asarray(value).tolist() if hasattr(value, "__array__") else deepcopy(value)


def _trace(columns: Any, cells: NDArray[Any]) -> Trace:
    """Restore a trace from a file."""
    trace = Trace(columns)
    if cells.dtype != np.float64 or cells.ndim != 2 or cells.shape[1] != len(trace.columns):
        raise DataError("its trace does not match the names of its columns")
    for row in cells.tolist():
        trace.append(**dict(zip(trace.columns, row, strict=True)))
    return trace
