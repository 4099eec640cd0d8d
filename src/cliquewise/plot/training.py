"""Plots of training and of regularization paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cliquewise.errors import DataError
from cliquewise.plot.style import axes, finish, look, short
from cliquewise.ragged import Floats

_STEPS = {"seconds": "seconds", "epochs": "passes over the data", "oracle_calls": "oracle calls"}
_VALUES = {
    "gap": "relative duality gap",
    "primal": "objective",
    "dual": "lower bound of the objective",
    "suboptimality": "objective above the best bound",
    "lower": "lower bound of ln Z",
    "upper": "upper bound of ln Z",
}


def convergence(
    runs: Any,
    y: str | Sequence[str] = "auto",
    x: str = "seconds",
    *,
    target: float | None = None,
    ax: Any = None,
) -> Any:
    """Plot the progress of one or several training runs.

    Parameters
    ----------
    runs : Trace, fitted estimator, list of them, or mapping of name to one or to several
        Runs under one name (other seeds, say) share a color and a style. A mapping of columns,
        ``{"seconds": [...], "gap": [...]}``, is a run as well.
    y : str or several, default="auto"
        ``gap``, ``primal``, ``dual``, ``suboptimality`` (``primal`` less the largest ``dual`` of
        all runs), or any column. ``auto``: the gap, or the bounds of ln Z, whatever is recorded.
    x : {"seconds", "passes", "oracle_calls"} or a column
    target : float, optional
        Draw a horizontal line at this gap.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from cliquewise import SequenceTagger, plot
    >>> X, y = [[["a"], ["b"]]] * 3, [["A", "B"]] * 3
    >>> runs = {C: SequenceTagger(C=C, random_state=0).fit(X, y) for C in (0.1, 10.0)}
    >>> ax = plot.convergence({f"C = {C}": run for C, run in runs.items()}, x="passes")
    >>> len(ax.get_lines())
    2
    """
    ax = axes(ax)
    step = "epochs" if x == "passes" else x
    named = _named(runs)
    every = [run for group in named.values() for run in group]
    columns = _columns(every, y)
    floor = max((_best(run) for run in every), default=0.0) if "suboptimality" in columns else 0.0
    is_log = all(c in ("gap", "suboptimality") for c in columns)
    for i, (name, group) in enumerate(named.items()):
        for j, column in enumerate(columns):
            label = ", ".join(filter(None, (name, column if len(columns) > 1 else "")))
            for run in group:
                at, values = _column(run, step), _column(run, column, floor)
                kept = np.isfinite(at) & np.isfinite(values) & ((values > 0) | (not is_log))
                drawn = look(i, int(kept.sum()), None if len(columns) == 1 else j)
                ax.plot(at[kept], values[kept], label=short(label) if label else None, **drawn)
                label = ""
    if is_log:
        ax.set_yscale("log")
    if target is not None:
        ax.axhline(target, color="0.35", linewidth=1, linestyle=(0, (2, 3)), label="tolerance")
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend(frameon=False, fontsize="small")
    words = [_VALUES.get(c, c) for c in columns]
    common = "bounds of ln Z" if set(columns) == {"lower", "upper"} else "objective"
    return finish(ax, _STEPS.get(step, step), words[0] if len(words) == 1 else common)


def _named(runs: Any) -> dict[str, list[Any]]:
    """Return runs by their names."""
    if isinstance(runs, Mapping) and not (runs and all(map(_is_column, runs.values()))):
        return {
            str(name): list(map(_trace, run if isinstance(run, list | tuple) else [run]))
            for name, run in runs.items()
        }
    if isinstance(runs, list | tuple):
        return {f"run {i + 1}" if len(runs) > 1 else "": [_trace(r)] for i, r in enumerate(runs)}
    return {"": [_trace(runs)]}


def _is_column(value: Any) -> bool:
    """Return whether a value is a column of numbers rather than a run."""
    return isinstance(value, np.ndarray | list | tuple) and all(np.isscalar(v) for v in value[:1])


def _trace(run: Any) -> Any:
    """Return the columns of a run, or of the trace of an estimator."""
    found = run
    for name in ("trace_", "trace"):
        found = getattr(run, name, found)
    if isinstance(found, Mapping) or (found is not None and hasattr(found, "columns")):
        return found
    raise DataError(
        f"a {type(run).__name__} has no course to draw; give a fitted estimator, its trace_, "
        "or a mapping of columns"
    )


def _known(run: Any) -> tuple[str, ...]:
    return tuple(run if isinstance(run, Mapping) else run.columns)


def _columns(runs: list[Any], y: str | Sequence[str]) -> list[str]:
    if y != "auto":
        return [y] if isinstance(y, str) else list(y)
    known = {name for run in runs for name in _known(run)} or {"gap"}
    if "gap" in known:
        return ["gap"]
    bounds: list[str] = [name for name in ("upper", "lower") if name in known]
    return bounds or sorted(known - set(_STEPS))[:1]


def _column(run: Any, name: str, floor: float = 0.0) -> Floats:
    wanted = "primal" if name == "suboptimality" else name
    if wanted not in _known(run):
        raise DataError(f"no column {wanted!r} was recorded; there are {', '.join(_known(run))}")
    values = np.asarray(run[wanted], dtype=np.float64)
    return values - floor if name == "suboptimality" else values


def _best(run: Any) -> float:
    dual = _column(run, "dual")
    return float(np.max(dual[np.isfinite(dual)], initial=-np.inf))


def regularization_path(
    path: Sequence[Any], X: Any = None, y: Any = None, *, of: str = "auto", ax: Any = None
) -> Any:
    """Plot models along a regularization path, with one line per ``l1_ratio``.

    Parameters
    ----------
    path : list of fitted estimators
        From :func:`cliquewise.regularization_path`.
    X, y : optional
        Held-out data, to draw the scores on.
    of : {"auto", "score", "nonzero", "norm"}
        The score on ``X, y``, the number of weights that are not zero, or the weights' Euclidean
        norm. ``auto``: the score if there are data, else the number where an L1 penalty makes it
        change, else the norm.
    ax : matplotlib axes, optional

    Examples
    --------
    >>> from cliquewise import SequenceTagger, plot, regularization_path
    >>> X, y = [[["a"], ["b"]]], [["A", "B"]]
    >>> path = regularization_path(SequenceTagger(), X, y, [0.3, 3.0], l1_ratios=[0.5])
    >>> plot.regularization_path(path).get_lines()[0].get_ydata().tolist()
    [0.0, 9.0]
    """
    if not len(path):
        raise DataError("the path is empty: there is nothing to draw")
    if of == "auto":
        sparse = any(model.l1_ratio > 0 for model in path)
        of = "score" if X is not None else "nonzero" if sparse else "norm"
    if of == "score" and X is None:
        raise DataError("scores need data: give X and y")
    measures: dict[str, Callable[[Any], Any]] = {
        "score": lambda model: model.score(X, y),
        "nonzero": lambda model: model.n_nonzero_,
        "norm": lambda model: np.linalg.norm(model.coef_),
    }
    if of not in measures:
        raise DataError(f"of is one of {', '.join(measures)}, not {of!r}")
    lines: dict[float, list[tuple[float, float]]] = {}
    for model in path:
        lines.setdefault(float(model.l1_ratio), []).append((model.C, float(measures[of](model))))
    ax = axes(ax)
    for i, (ratio, points) in enumerate(lines.items()):
        at, values = np.array(sorted(points)).T
        ax.plot(at, values, label=f"l1_ratio = {ratio:g}", **look(i))
    ax.set_xscale("log")
    if len(lines) > 1:
        ax.legend(frameon=False, fontsize="small")
    words = {
        "score": "score",
        "nonzero": "weights that are not zero",
        "norm": "norm of the weights",
    }
    return finish(ax, "C (weight of the losses)", words[of])
