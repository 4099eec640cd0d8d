"""A state, or a checkpoint, of another problem proves nothing of this one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration

import cliquewise as cw
from cliquewise.certificate import Certificate
from cliquewise.errors import CertificateError, DataError
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers import Solver, get, registered
from cliquewise.solvers.run import run


@cache
def problem(loss: str) -> ChainProblem:
    base = ChainRecipe(7, examples=6, labels=3, values=True, weights=True).build()
    return ChainProblem(base.model, base.data, loss=loss)


def changed(base: ChainProblem, what: str) -> ChainProblem:
    """A problem of equal shape that differs in one part."""
    data, model, rng = base.data, base.model, np.random.default_rng(0)
    if what == "features":
        data = replace(data, values=rng.permutation(data.values))
    elif what == "labels":
        data = data.with_labels(rng.permutation(data.labels), data.allowed, data.weights)
    elif what == "weights":
        data = data.with_labels(data.labels, data.allowed, data.weights[::-1].copy())
    elif what == "constraints":
        allowed = rng.random((data.n_tokens, 3)) < 0.3
        allowed[np.arange(data.n_tokens), data.labels] = True
        data = data.with_labels(data.labels, allowed, data.weights)
    elif what == "model":
        model = replace(model, edge_free=model.edge_free & (rng.random((3, 3)) < 0.5))
    return ChainProblem(model, data, base.C, loss=base.loss)


PARTS = ("features", "labels", "weights", "constraints", "model")
CASES = [
    (cls, loss)
    for cls in registered("chain")
    for loss in ("log", "hinge")
    if loss in cls.capabilities.losses["chain"]
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].name}-{c[1]}")


def enclosure(p: ChainProblem) -> tuple[float, float]:
    """The optimum between two values: listed, or by a solver that never saw another problem."""
    if p.loss == "log":
        best = Enumeration(p).optimum
        return best, best
    proof = run(p, get("bcfw"), tol=1e-6, max_epochs=5000, random_state=0).certificate
    return proof.dual, proof.primal


@cases
@pytest.mark.parametrize("what", PARTS)
def test_a_warm_start_of_another_problem_is_refused_or_proves_nothing_wrong(
    case: tuple[type[Solver], str], what: str
) -> None:
    solver, one = case[0](), problem(case[1])
    other = changed(one, what)
    state = run(one, solver, tol=0, max_epochs=20, random_state=0).state
    try:
        fit = run(other, solver, tol=0, max_epochs=6, random_state=0, warm=state)
    except DataError as error:
        assert what in str(error)
        return
    low, high = enclosure(other)
    for row in fit.trace:
        assert row["dual"] <= high + 1e-9 * (1 + abs(high))
        assert row["primal"] >= low - 1e-9 * (1 + abs(low))


@cases
@pytest.mark.parametrize("what", [*PARTS, "loss"])
def test_a_checkpoint_of_another_problem_is_refused_with_what_differs(
    case: tuple[type[Solver], str], what: str, tmp_path: Any
) -> None:
    solver, one, path = case[0](), problem(case[1]), tmp_path / "run.ckpt"
    run(one, solver, tol=0, max_epochs=3, random_state=0, checkpoint=path, checkpoint_seconds=0)
    other = changed(one, what)
    if what == "loss":
        other = ChainProblem(one.model, one.data, loss={"log": "hinge", "hinge": "log"}[case[1]])
    with pytest.raises(DataError, match=f"of other data: its .*{what}"):
        run(other, solver, max_epochs=6, checkpoint=path, resume=True)


def test_partial_fit_after_a_change_of_the_scheme_is_as_true_as_training_anew() -> None:
    X = [[["a"], ["b"], ["c"]], [["b"], ["a"]], [["c"], ["c"]]]
    y = [["B-X", "I-X", "O"], ["O", "B-X"], ["B-X", "B-X"]]
    tagger = cw.SequenceTagger(tol=1e-6, max_epochs=500, random_state=0).fit(X, y)
    tagger.set_params(transitions="BIO").partial_fit(X[:1], y[:1])
    fresh = cw.SequenceTagger(tol=1e-6, max_epochs=500, random_state=0, transitions="BIO")
    fresh.fit([*X, X[0]], [*y, y[0]])
    assert tagger.certificate_.primal == pytest.approx(fresh.certificate_.primal, rel=1e-5)
    assert tagger.certificate_.dual <= fresh.certificate_.primal + 1e-9


def test_fitting_again_with_other_allowed_labels_does_not_take_up_the_checkpoint(
    tmp_path: Any,
) -> None:
    X, y = [[["a"], ["b"]]] * 3, [["P", "Q"], ["Q", "P"], ["P", "P"]]
    tagger = cw.SequenceTagger(
        checkpoint=tmp_path / "ck", checkpoint_seconds=0, resume=True, random_state=0
    )
    tagger.fit(X, y)
    with pytest.raises(DataError, match="constraints"):
        tagger.fit(X, y, allowed=[[["P"], None], None, None])


def test_a_certificate_that_contradicts_itself_announces_the_bug() -> None:
    with pytest.raises(CertificateError, match="above the primal"):
        Certificate(0.69, 1.16, "exact")
    assert Certificate(float("nan"), 0.0, "exact").status == "none"
    assert Certificate(1.0, 1.0 + 1e-12, "exact").gap < 0
    assert Certificate(float("nan")).status == "none"


def test_a_model_without_anything_new_keeps_its_fingerprint() -> None:
    data = ChainRecipe(11, examples=6).build().data
    model = ChainModel.build(data, 3)
    whole, few = (ChainProblem(model, d) for d in (data, data.subset(np.arange(4))))
    assert whole.fingerprint(4).differences(few.fingerprint()) == []
    assert whole.fingerprint().differences(few.fingerprint()) != []
