"""Certificates: is the dual value below the optimum, and the primal value that of the weights?"""

from __future__ import annotations

import copy
import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from relaxed_program import RelaxedProgram

import cliquewise as cw
from cliquewise.errors import CertificateError, CliquewiseError, UnsupportedError
from cliquewise.estimators import _base
from cliquewise.solvers import get, registered
from cliquewise.solvers.run import run

from .drawing import Kind, Problem, Rng, chance, pick
from .findings import Report, Trouble
from .kinds import KINDS
from .objective import Objective
from .outputs import OwnProblem

#: What an ordinary problem has at most (and its inverse at least): it must not be refused.
ORDINARY_C, ORDINARY_FEATURE = 1e4, 5e3


# ---- drawing


def draw(rng: Rng) -> dict[str, Any]:
    """A problem, and runs of the solvers that know its kind and loss."""
    kind = pick(rng, *KINDS.values())
    problem = kind.draw(rng)
    solvers = _solvers(kind, problem)
    chosen = [solvers[i] for i in rng.permutation(len(solvers))[:4]]
    return {"problem": problem, "runs": [_draw_run(rng, problem, name, kind) for name in chosen]}


def _solvers(kind: Kind, problem: Problem) -> list[str]:
    loss = problem["params"].get("loss", "log" if kind.name == "multiclass" else "hinge")
    kinds = [kind.registered]
    if kind.name == "label_sets" and problem["params"]["pairs"] != "table":
        kinds.append("label_sets")
    loss = "log" if loss == "pseudo_likelihood" else loss
    ratio = problem["params"].get("l1_ratio", 0.0)
    found = {s.name for k in kinds for s in registered(k) if loss in s.capabilities.losses[k]
             and (s.capabilities.l1 if ratio else s.name != "owlqn")}  # fmt: skip
    return [*sorted(found), *(["auto"] if kind.estimator else [])]


def _draw_run(rng: Rng, problem: Problem, solver: str, kind: Kind) -> dict[str, Any]:
    drawn = {
        "solver": solver,
        "max_epochs": pick(rng, 1, 2, 5, 30, 100),
        "tol": pick(rng, 1e-3, 1e-9, 0.0),
        "random_state": int(rng.integers(100)),
    }
    if solver != "auto" and chance(rng, 0.35):
        pool = options_of(solver, kind.registered)
        if pool:
            options: dict[str, Any] = {}
            for name in [pick(rng, *pool) for _ in range(2)]:
                more = options | {name: pick(rng, *pool[name])}
                if _takes(type(get(solver, kind.registered)), more):
                    options = more
            drawn["options"] = options
    how = rng.random()
    if solver != "auto" and how < 0.25:
        drawn["before"] = _changed(rng, problem)
        drawn["mode"] = pick(rng, "warm", "resume")
    return drawn


@cache
def options_of(solver: str, kind: str) -> dict[str, list[Any]]:
    """The values that the hyper-parameters of a solver take, found by trying."""
    cls = type(get(solver, kind))
    pool = {}
    for field in dataclasses.fields(cls):
        if field.name.startswith("map_"):
            continue  # of inference, which is a part of its own
        values: list[Any] = [0.0, 0.01, 0.5, 1.0, 3.0] if "float" in str(field.type) else []
        values += [1, 2, 7] if "int" in str(field.type) else []
        values += [True, False] if "bool" in str(field.type) else []
        values += _words(cls, field.name) if "str" in str(field.type) else []
        taken = [
            value for value in values if value != field.default and _takes(cls, {field.name: value})
        ]
        if taken:
            pool[field.name] = taken
    return pool


def _takes(cls: Any, options: dict[str, Any]) -> bool:
    """Whether a solver takes them, together: some contradict each other."""
    try:
        cls(**options)
    except CliquewiseError:
        return False
    return True


def _words(cls: Any, name: str) -> list[str]:
    """The words that a hyper-parameter may be, from the error message that lists them."""
    try:
        cls(**{name: "?"})
    except CliquewiseError as error:
        text = str(error)
        listed = text.partition(" is ")[2].rpartition(", not ")[0] or text.rpartition(": ")[2]
        return listed.replace(" or ", ", ").split(", ")
    return []


def _changed(rng: Rng, problem: Problem) -> Problem:
    """A problem that differs in one thing, and has often the same shape."""
    other = copy.deepcopy(problem)
    what = pick(rng, "C", "number", "number", "weight", "examples", "parameter", "constraint")
    if what == "C":
        other["params"]["C"] = problem["params"]["C"] * pick(rng, 0.01, 0.5, 3.0, 1000.0)
        if "l1_ratio" in problem["params"]:
            other["params"]["l1_ratio"] = pick(rng, problem["params"]["l1_ratio"], 0.3, 0.95)
    elif what == "number":
        places = list(_numbers(other["examples"]))
        if places:
            holder, key = places[int(rng.integers(len(places)))]
            holder[key] = type(holder[key])(-holder[key] if isinstance(holder[key], float)
                                            else 1 - min(holder[key], 1))  # fmt: skip
    elif what == "weight":
        pick(rng, *other["examples"])["weight"] = pick(rng, 0.0, 0.5, 4.0)
    elif what == "examples":
        other["examples"].append(copy.deepcopy(pick(rng, *other["examples"])))
        other["examples"].pop(0)
    elif what == "parameter":
        names = "intercept", "boundary_weights", "feature_pairs", "transitions", "gamma", "cost"
        name = pick(rng, *names)
        other["params"].pop(name, None)
    else:
        for holder in _dicts(other["examples"]):
            holder.pop("allowed", None)
    return other


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _dicts(inner)


def _numbers(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where there are numbers: features, labels, weights."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from _numbers(inner)
        elif isinstance(inner, int | float) and not isinstance(inner, bool):
            yield value, key


# ---- running


@contextmanager
def recorded() -> Iterator[list[tuple[Any, Any]]]:
    """The problems that estimators hand to solvers, and the fits that come back."""
    original, made = _base.run, []

    def spy(problem: Any, solver: Any, **options: Any) -> Any:
        fit = original(problem, solver, **options)
        made.append((problem, fit))
        return fit

    _base.run = spy
    try:
        yield made
    finally:
        _base.run = original


def _solver_of(kind: Kind, drawn: dict[str, Any]) -> Any:
    if not drawn.get("options"):
        return drawn["solver"]
    return type(get(drawn["solver"], kind.registered))(**drawn["options"])


def _limits(drawn: dict[str, Any]) -> dict[str, Any]:
    return {name: drawn[name] for name in ("max_epochs", "tol", "random_state") if name in drawn}


def estimator(kind: Kind, problem: Problem, drawn: dict[str, Any]) -> Any:
    """The estimator of a problem, not fitted."""
    params = dict(problem["params"])
    if isinstance(params.get("transitions"), list):
        params["transitions"] = np.array(params["transitions"], dtype=bool)
    return getattr(cw, kind.estimator)(solver=_solver_of(kind, drawn), **params, **_limits(drawn))


def fitted(kind: Kind, problem: Problem, drawn: dict[str, Any]) -> tuple[Any, Any]:
    """The library's problem, and what a solver makes of it."""
    given = kind.arguments(problem)
    if not kind.estimator:
        own = OwnProblem(**given)
        solver = get(_solver_of(kind, drawn), own.kind)
        if solver.refuses(own):
            raise UnsupportedError(str(solver.refuses(own)))
        return own, run(own, solver, **_limits(drawn))
    with recorded() as made:
        estimator(kind, problem, drawn).fit(**given)
    return made[-1]


def attempt(kind: Kind, problem: Problem, drawn: dict[str, Any]) -> tuple[Any, Any]:
    """:func:`fitted`, from the state of another problem where the run says so."""
    if "before" not in drawn:
        return fitted(kind, problem, drawn)
    plain = {name: value for name, value in drawn.items() if name not in ("before", "mode")}
    short = plain | {"max_epochs": 3, "tol": 0.0}
    before, fit = fitted(kind, drawn["before"], short)
    now = fitted(kind, problem, plain | {"max_epochs": 0})[0]
    solver = get(_solver_of(kind, drawn), now.kind)
    if drawn.get("mode") != "resume":
        return now, run(now, solver, warm=fit.state, **_limits(drawn))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        run(before, solver, checkpoint=path, checkpoint_seconds=0, **_limits(short))
        return now, run(now, solver, checkpoint=path, resume=True, **_limits(drawn))


# ---- checking


def is_ordinary(problem: Problem) -> bool:
    """Whether it has examples, of numbers whose size must be handled, not only survived."""
    sizes = [abs(holder[key]) for holder, key in _numbers(problem["examples"])]
    small = all(x == 0 or 1e-6 < x < ORDINARY_FEATURE for x in sizes)
    some = bool(problem["examples"])
    return some and small and 1 / ORDINARY_C <= problem["params"]["C"] <= ORDINARY_C


def check(case: dict[str, Any]) -> Report:
    """Run all solvers of a case; the weights of each are upper bounds for all."""
    problem = case["problem"]
    kind = KINDS[problem["kind"]]
    objective = kind.objective(problem)
    objective.minimize()
    done: list[tuple[dict[str, Any], Any, Any]] = []
    for drawn in case["runs"]:
        try:
            library, fit = attempt(kind, problem, drawn)
        except UnsupportedError:
            continue
        except CliquewiseError as error:
            if not is_ordinary(problem) or (
                drawn.get("mode") and not isinstance(error, CertificateError)
            ):
                continue
            what = f"{type(error).__name__} on an ordinary problem"
            return Report(len(done) + 1, Trouble(_title(drawn, problem, what), str(error)))
        done.append((drawn, library, fit))
        if np.all(np.isfinite(fit.weights)) and _is_exact(library, fit):
            objective.try_weights(kind.weights(problem, fit.weights))
    for drawn, library, fit in done:
        trouble = _judge(objective, library, fit, kind, problem)
        if trouble is not None:
            what, detail = trouble
            return Report(len(done), Trouble(_title(drawn, problem, what), detail))
    return Report(len(done))


def _title(drawn: dict[str, Any], problem: Problem, what: str) -> str:
    loss = problem["params"].get("loss", "")
    mode = f" ({drawn['mode']})" if drawn.get("mode") else ""
    return f"{drawn['solver']} on {problem['kind']} {loss}{mode}: {what}"


def _is_exact(library: Any, fit: Any) -> bool:
    return library.kind not in get(fit.solver, library.kind).capabilities.relaxed_on


def _judge(
    objective: Objective, library: Any, fit: Any, kind: Kind, problem: Problem
) -> Trouble | None:
    proof = fit.certificate
    said = f"primal {proof.primal!r}, dual {proof.dual!r}, status {proof.status}"
    if proof.status != "none" and (np.isnan(proof.primal) or np.isnan(proof.dual)):
        return Trouble("NaN with a status", said)
    if not np.all(np.isfinite(fit.weights)):
        return Trouble("weights that are not finite", said)
    if np.isnan(proof.primal):
        return None if not is_ordinary(problem) else Trouble("the primal is NaN", said)
    if _is_exact(library, fit):
        weights = kind.weights(problem, fit.weights)
        return judge_exact(objective, proof, fit.trace, weights, is_ordinary(problem))
    return _judge_relaxed(objective, library, fit, problem, said)


def judge_exact(
    objective: Objective, proof: Any, trace: Any, weights: np.ndarray, ordinary: bool
) -> Trouble | None:
    """Compare a certificate with the objective at the weights, and with the best weights known."""
    said = f"primal {proof.primal!r}, dual {proof.dual!r}, status {proof.status}"
    own = objective.try_weights(weights)
    if not np.isfinite(own.value) or (own.value > np.finfo(float).max and proof.primal == np.inf):
        return None
    slack = 1e-9 * abs(own.value) + 1e4 * own.error  # 1e4: of doubles, not of long doubles
    if proof.status == "bound":
        if proof.primal < own.value - slack:
            return Trouble("the primal is below the objective", f"{said}; it is {own.value!r}")
    elif abs(proof.primal - own.value) > slack:
        return Trouble("the primal is not the objective", f"{said}; it is {own.value!r}")
    if proof.status == "none":
        return Trouble("nothing is proved", said) if ordinary and objective.is_convex else None
    best = objective.best
    dual = max(proof.dual, max((row["dual"] for row in trace), default=-np.inf))
    if dual > best.value + best.error:
        return Trouble(
            "the dual is above the optimum", f"{said}; some weights reach {best.value!r}"
        )
    return None


def _judge_relaxed(
    objective: Objective, library: Any, fit: Any, problem: Problem, said: str
) -> Trouble | None:
    proof = fit.certificate
    if problem["params"].get("loss", "hinge") == "hinge":
        # At zero weights the relaxed maximum is the exact one: every label is wrong.
        zero = objective.value(np.zeros(objective.dimension))
        if proof.dual > zero.value + zero.error:
            return Trouble("the dual is above the optimum", f"{said}; zero reaches {zero.value!r}")
    if not is_ordinary(problem):
        return None
    program = RelaxedProgram(library if library.kind == "graph" else library.as_graphs())
    high, terms = program.bracket[1], library.C * float(program.target @ program.target)
    # The program adds and takes off such terms, in doubles.
    if proof.dual > high + 1e-8 * (1 + abs(high)) + 1e-12 * terms:
        return Trouble("the dual is above the optimum", f"{said}; the optimum is below {high!r}")
    low = program.value(fit.weights)
    scale = float(np.abs(program.B.T @ fit.weights).sum())
    if proof.primal < low - 1e-6 * (1 + abs(low)) - 1e-10 * scale:
        return Trouble("the primal is below the objective", f"{said}; it is above {low!r}")
    return None
