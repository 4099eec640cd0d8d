"""What the estimators share: parameters of a run, warnings, and files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import DataError, FormatError
from cliquewise.graph.factor_graph import Floats
from cliquewise.solvers.base import choose, get
from cliquewise.solvers.run import Fit, run


def train(
    estimator: Any, problem: Any, warm: Any = None, callback: Callable[..., Any] | None = None
) -> Fit:
    """Run the estimator's solver on a problem and keep what it proves."""
    from sklearn.exceptions import ConvergenceWarning

    from cliquewise.report.progress import training_line

    limit = estimator.max_memory * 2**30
    solver = choose(problem, estimator.solver, limit)
    # Dual ascent is slow where the penalty is weak or features are badly scaled; ``auto`` then
    # goes on with L-BFGS.
    automatic = isinstance(estimator.solver, str) and estimator.solver == "auto"
    smooth = automatic and solver.name == "sdca" and problem.loss == "log"
    fallback = get("lbfgs") if smooth else None
    with training_line(estimator.verbose, estimator.tol) as show:

        def report(row: dict[str, float]) -> None:
            show(row)
            if callback is not None:
                callback(row)

        fit = run(
            problem,
            solver,
            tol=estimator.tol,
            max_epochs=estimator.max_epochs,
            max_seconds=np.inf if estimator.max_seconds is None else estimator.max_seconds,
            random_state=estimator.random_state,
            warm=warm,
            callback=report,
            checkpoint=getattr(estimator, "checkpoint", None),
            checkpoint_seconds=getattr(estimator, "checkpoint_seconds", 60.0),
            resume=bool(getattr(estimator, "resume", False)),
            fallback=fallback,
        )
    estimator.solver_ = fit.solver
    estimator.certificate_ = fit.certificate
    estimator.trace_ = fit.trace
    estimator.n_iter_ = fit.epochs
    if not fit.converged:
        why = "was interrupted" if fit.interrupted else "stopped"
        c = fit.certificate
        reached = (
            f"with relative gap {c.gap:.3g} (tol = {estimator.tol:g})"
            if c.status != "none"
            else "without a certificate (the problem is not convex)"
        )
        warnings.warn(
            f"{fit.solver} {why} after {fit.epochs:.3g} epochs {reached}; raise max_epochs or "
            "max_seconds, scale the features, lower C, or try another solver",
            ConvergenceWarning,
            stacklevel=3,
        )
    return fit


def threads(n_jobs: int | None) -> int:
    """How many threads ``n_jobs`` means, by scikit-learn's conventions.

    Examples
    --------
    >>> threads(None), threads(3)
    (1, 3)
    """
    if n_jobs is None or n_jobs == 0:
        return 1
    return int(n_jobs) if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + int(n_jobs))


def check_parameters(estimator: Any) -> None:
    """Refuse numbers with which no run can end well."""
    for name in ("tol", "max_epochs", "max_seconds", "max_memory", "C"):
        value = getattr(estimator, name)
        if value is None and name == "max_seconds":
            continue
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not value >= 0 or (name == "C" and not 0 < value < np.inf):
            least = "a positive number" if name == "C" else "a number that is not negative"
            raise DataError(f"{name} = {value!r}; it must be {least}")


def class_weights(class_weight: Any, classes: Sequence[Any], labels: NDArray[Any]) -> Floats:
    """One weight per class, from scikit-learn's ``class_weight``."""
    if class_weight is None:
        return np.ones(len(classes))
    counts = np.bincount(labels[labels >= 0], minlength=len(classes))
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise DataError(f'class_weight is None, "balanced" or a dict, not {class_weight!r}')
        return np.asarray(counts.sum() / (len(classes) * np.maximum(counts, 1)))
    unknown = [c for c in class_weight if c not in set(classes)]
    if unknown:
        raise DataError(f"class_weight names {unknown[0]!r}, which is no class")
    return np.array([float(class_weight.get(c, 1.0)) for c in classes])


def check_sample_weight(sample_weight: Any, n: int) -> Floats:
    """One non-negative weight per example."""
    if sample_weight is None:
        return np.ones(n)
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight must be {n} numbers ({error})") from None
    if weights.shape != (n,) or not np.all(np.isfinite(weights)) or (n and weights.min() < 0):
        raise DataError(f"sample_weight must be {n} finite numbers that are not negative")
    if n and not weights.any():
        raise DataError("every sample_weight is zero; at least one example must count")
    return weights


# ---- names in files


def pack_strings(name: str, strings: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Strings as two arrays: their UTF-8 bytes and where each begins."""
    encoded = [s.encode("utf-8", "surrogatepass") for s in strings]
    offsets = np.concatenate(([0], np.cumsum([len(e) for e in encoded], dtype=np.int64)))
    return {
        f"{name}.bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8).copy(),
        f"{name}.offsets": offsets.astype(np.int64),
    }


def unpack_strings(name: str, arrays: dict[str, NDArray[Any]], path: Any) -> list[str]:
    """Back from :func:`pack_strings`."""
    try:
        data, offsets = arrays[f"{name}.bytes"].tobytes(), arrays[f"{name}.offsets"].tolist()
    except KeyError as error:
        raise FormatError(f"the file lacks {error}", path) from error
    if offsets[0] != 0 or offsets[-1] != len(data) or any(np.diff(offsets) < 0):
        raise FormatError(f"the names {name!r} are damaged", path)
    try:
        return [data[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(offsets)]
    except UnicodeDecodeError as error:
        raise FormatError(f"the names {name!r} are damaged", path) from error


def plain_classes(classes: Sequence[Any]) -> list[Any]:
    """Classes that JSON can hold, or an error that says which cannot be saved."""
    for c in classes:
        if not isinstance(c, str | int | float | bool):
            raise DataError(
                f"class {c!r} is a {type(c).__name__}; only strings, numbers and booleans can be "
                "saved: rename the classes"
            )
    return list(classes)
