"""Smoothed hinge losses of chains, SVRG and Casimir: against all labelings and each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration, chain_recipes, random_problem
from hypothesis import example, given, settings

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.smoothers import get_smoother
from cliquewise.solvers.backends.base import SmoothingSettings
from cliquewise.solvers.backends.chain.smooth import ChainSmoothing
from cliquewise.solvers.casimir import Casimir, next_alpha
from cliquewise.solvers.planner import choose
from cliquewise.solvers.registry import get
from cliquewise.solvers.run import Fit, run
from cliquewise.solvers.svrg import SVRG

SMOOTHERS = pytest.mark.parametrize("smoother", ["l2", "entropy"])
#: Everything a user may choose that changes the path to the optimum.
WAYS: dict[str, Any] = {
    "svrg": SVRG(), "svrg, last iterate": SVRG(average=False, warm_up=0),
    "casimir": Casimir(), "casimir, previous": Casimir(warm_start="previous"),
    "casimir, extrapolation": Casimir(warm_start="extrapolation", restart=False),
    "casimir, gradient test": Casimir(inner="gradient"), "casimir, full": Casimir(anchor="full"),
}  # fmt: skip


def with_loss(problem: ChainProblem, loss: str, **options: Any) -> ChainProblem:
    return ChainProblem(problem.model, problem.data, problem.C, loss=loss, **options)


def solve(problem: ChainProblem, solver: Any, **options: Any) -> Fit:
    return run(problem, solver, **{"tol": 1e-6, "max_epochs": 3000, "random_state": 0, **options})


class SmoothEnumeration(Enumeration):
    """The smoothed losses from a list of all labelings."""

    def __init__(self, problem: ChainProblem, mu: float, smoother: str, top: int | None = None):
        super().__init__(problem)
        self.mu, self.smoother, self.top = mu, get_smoother(smoother), top
        self.costs = [
            (np.array(ys).reshape(len(ys), -1) != np.array(self._labels(i))).sum(axis=1)
            for i, ys in enumerate(self.labelings)
        ]

    def losses(self, w: np.ndarray) -> np.ndarray:
        out = []
        for cost, phi, t in zip(self.costs, self.features, self.truth, strict=True):
            psi = np.sort(cost + (phi - phi[t]) @ w)[::-1]
            out.append(self.smoother.value(psi[: self.top], self.mu))
        return np.array(out)


def free_weights(problem: ChainProblem, rng: np.random.Generator, scale: float) -> np.ndarray:
    w = scale * rng.normal(size=problem.dimension)
    problem.model.transitions(w)[~problem.model.edge_free] = 0
    return w


# ---- the loss


@SMOOTHERS
@settings(max_examples=25)
@given(recipe=chain_recipes())
@example(recipe=ChainRecipe(3, examples=6, labels=3, values=True, weights=True, forbid="both"))
@example(recipe=ChainRecipe(1, examples=6, labels=4, feature_pairs="seen"))
def test_loss_and_gradient_are_those_of_the_list_of_labelings(
    smoother: str, recipe: ChainRecipe
) -> None:
    rng = np.random.default_rng(recipe.seed)
    for gamma, top in ((0.3, 3), (2.0, 7)):
        problem = with_loss(recipe.build(), "smooth_hinge", gamma=gamma, smoother=smoother, top=top)
        listed = SmoothEnumeration(problem, gamma, smoother, top if smoother == "l2" else None)
        w, d = free_weights(problem, rng, 0.5), free_weights(problem, rng, 1.0)
        np.testing.assert_allclose(problem.losses(w), listed.losses(w), rtol=1e-9, atol=1e-9)
        value, gradient = problem.primal_and_gradient(w)
        assert value == pytest.approx(listed.value(w)) == pytest.approx(problem.primal(w))
        h = 1e-5
        slope = (listed.value(w + h * d) - listed.value(w - h * d)) / (2 * h)
        kinks = 1e-3 if smoother == "l2" else 1e-6  # l2: h times the curvature, at a kink
        assert slope == pytest.approx(gradient @ d, abs=kinks * (1 + d @ d), rel=1e-6)


@settings(max_examples=25)
@given(recipe=chain_recipes())
def test_share_of_exact_calls_is_that_of_proposition_4(recipe: ChainRecipe) -> None:
    problem = with_loss(recipe.build(), "hinge")
    rng = np.random.default_rng(recipe.seed)
    for mu, k in ((0.5, 2), (3.0, 4)):
        backend, w = (
            ChainSmoothing(problem, SmoothingSettings("l2", k)),
            free_weights(problem, rng, 0.4),
        )
        found = backend.full_gradient(backend.packed(w), mu)
        listed = SmoothEnumeration(problem, mu, "l2")
        exact = []
        for cost, phi, t in zip(listed.costs, listed.features, listed.truth, strict=True):
            psi = np.sort(cost + (phi - phi[t]) @ w)[::-1]
            following = psi[k] if len(psi) > k else -np.inf
            exact.append(bool(mu <= np.sum(psi[:k] - following) + 1e-12))
        filled = problem.data.lengths > 0
        assert found.calls == filled.sum()
        if filled.any():
            assert found.exact == pytest.approx(np.mean(np.array(exact)[filled]))


@SMOOTHERS
def test_epoch_makes_the_steps_of_svrg_one_by_one(smoother: str) -> None:
    problem = with_loss(
        ChainRecipe(7, examples=6, labels=3, values=True, weights=True, forbid="both").build(),
        "hinge",
    )
    backend, rng = ChainSmoothing(problem, SmoothingSettings(smoother, 4)), np.random.default_rng(0)
    mu, lam, kappa, rate, n = 0.7, problem.lam, 0.3, 0.05, problem.n_examples
    start, z = (backend.packed(free_weights(problem, rng, 0.5)) for _ in range(2))
    order = rng.permutation(n)
    mean = backend.full_gradient(start, mu).gradient
    new, calls = backend.epoch(
        start, (kappa * z - mean) / (lam + kappa), mu, order, rate, 1 - rate * (lam + kappa), True
    )
    assert calls == np.count_nonzero(problem.data.lengths * problem.chains.weights)

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        one = ChainProblem(
            problem.model, problem.data.subset(np.array([i])), loss="smooth_hinge", gamma=mu,
            smoother=smoother, top=4,
        )  # fmt: skip
        own = backend.unpacked(w)
        return backend.packed(one.primal_and_gradient(own)[1] - one.lam * own)

    w, total = start.copy(), np.zeros_like(start)
    for i in order:
        direction = gradient(w, i) - gradient(start, i) + mean + lam * w + kappa * (w - z)
        w = w - rate * direction
        total += w
    np.testing.assert_allclose(new, total / n, rtol=1e-9, atol=1e-10)


@settings(max_examples=10)
@given(recipe=chain_recipes())
@example(recipe=ChainRecipe(7, examples=6, labels=3, values=True, weights=True, forbid="both"))
def test_what_visits_keep_is_a_point_of_the_dual_found_at_their_own_weights(
    recipe: ChainRecipe,
) -> None:
    problem = with_loss(recipe.build(), "hinge")
    backend, rng = (
        ChainSmoothing(problem, SmoothingSettings("l2", 4)),
        np.random.default_rng(recipe.seed),
    )
    n, rate, lam = problem.n_examples, 0.05, problem.lam
    backend.forget()
    c, w = backend.zeros(), backend.zeros()
    for mu in (0.7, 0.0):  # without smoothing one labeling is left of the four
        new, _ = backend.epoch(w, c, mu, rng.permutation(n), rate, 1 - rate * lam, False, True)
        found = backend.kept()
        shares = backend.anchor.shares[problem.data.lengths > 0]
        np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
        bound = problem.bound(
            found.cost, found.gradient / lam, found.rounding_error, backend.weight_error_scale
        )
        value = problem.primal(backend.unpacked(new))
        assert bound.value <= value + 1e-9
        c, w = -found.gradient / lam, new
    # Steps without a rate stay where they are: the visits find what a full gradient does.
    backend.epoch(w, c, 0.7, rng.permutation(n), 0.0, 1.0, False, True)
    there = backend.kept()
    full = backend.full_gradient(w, 0.7)
    np.testing.assert_allclose(there.gradient, full.gradient, rtol=1e-9, atol=1e-12)
    assert there.loss == pytest.approx(full.loss) and there.cost == pytest.approx(full.cost)
    assert there.omega == pytest.approx(full.omega) and there.calls <= full.calls


# ---- the optimum


@SMOOTHERS
@pytest.mark.parametrize("solver", WAYS.values(), ids=WAYS.keys())
def test_every_way_ends_at_the_optimum_of_the_smooth_problem(solver: Any, smoother: str) -> None:
    # Of length 3 at most: with all labelings at hand, L-BFGS can minimize the l2 loss too.
    problem = with_loss(random_problem(0, 40, 4, 3), "smooth_hinge", smoother=smoother, top=64)
    reference = solve(problem, get("lbfgs"), tol=1e-7)
    fit = solve(problem, solver, tol=1e-4, max_epochs=2000)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(reference.certificate.primal, rel=2e-4)
    for row in fit.trace:
        assert row["dual"] <= reference.certificate.primal + 1e-9
        assert row["primal"] >= reference.certificate.dual - 1e-9


@settings(max_examples=20)
@given(recipe=chain_recipes())
def test_bounds_of_the_smooth_problem_hold_on_all_rows(recipe: ChainRecipe) -> None:
    problem = with_loss(recipe.build(), "smooth_hinge", gamma=0.5, top=3)
    listed = SmoothEnumeration(problem, 0.5, "l2", 3)
    rows = [r for s in (SVRG(), Casimir()) for r in solve(problem, s, max_epochs=30).trace]
    assert max(r["dual"] for r in rows) <= min(r["primal"] for r in rows) + 1e-9
    fit = solve(problem, Casimir(), max_epochs=10, tol=0)
    assert listed.value(fit.weights) == pytest.approx(fit.certificate.primal, rel=1e-9, abs=1e-10)


def test_casimir_certifies_the_hinge_loss_and_less_smoothing_leaves_less() -> None:
    problem = with_loss(random_problem(1, 30, 3, 6), "hinge")
    best = solve(problem, get("bcfw"), tol=1e-6, max_epochs=500).certificate
    fit = solve(problem, Casimir(), tol=1e-3, max_epochs=2000)
    assert fit.certificate.gap <= 5e-3
    assert fit.certificate.primal <= best.primal * (1 + 5e-3)
    ends = [
        solve(problem, Casimir(smoothing="constant", mu=mu), tol=1e-4, max_epochs=300)
        for mu in (3.0, 0.3)
    ]
    assert ends[1].certificate.primal < ends[0].certificate.primal
    assert fit.trace.mu[-1] < fit.trace.mu[0]
    assert not fit.trace.full_passes.any()
    full = solve(problem, Casimir(anchor="full"), tol=0, max_epochs=10).trace.full_passes
    assert np.all(np.diff(full) >= 0) and full[-1] > 0


def test_smoothing_of_zero_is_the_hinge_loss_itself() -> None:
    problem = with_loss(random_problem(2, 30, 3, 5), "hinge")
    none = [solve(problem, s, max_epochs=20, tol=0) for s in
            (SVRG(mu=0.0), SVRG(smoother="none"), SVRG(smoother="entropy", mu=0.0))]  # fmt: skip
    assert none[0].weights.tobytes() == none[1].weights.tobytes()
    np.testing.assert_allclose(none[0].weights, none[2].weights, rtol=1e-9, atol=1e-12)
    assert np.all(none[0].trace.exact_share == 1)


def test_more_outputs_than_there_are_count_as_all_of_them() -> None:
    problem = with_loss(random_problem(3, 10, 2, 3), "hinge")
    few, many = (solve(problem, SVRG(k=k), max_epochs=20, tol=0) for k in (8, 10**9))
    np.testing.assert_allclose(few.weights, many.weights, rtol=1e-9, atol=1e-12)
    assert np.all(many.trace.exact_share == 1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("C", [1e-8, 1e8])
def test_extreme_C_gives_finite_weights_and_true_bounds(C: float) -> None:
    base = random_problem(4, 20, 3, 5)
    problem = ChainProblem(base.model, base.data, C, loss="hinge")
    for solver in (SVRG(), Casimir(), Casimir(kappa=1e6), Casimir(learning_rate=1e6)):
        fit = solve(problem, solver, max_epochs=30)
        assert np.isfinite(fit.weights).all()
        assert fit.certificate.dual <= fit.certificate.primal * (1 + 1e-9)


def test_threads_find_the_same_full_gradient() -> None:
    base = random_problem(5, 40, 3, 6)
    one = ChainSmoothing(
        ChainProblem(base.model, base.data, loss="hinge"), SmoothingSettings("l2", 3)
    )
    two = ChainSmoothing(
        ChainProblem(base.model, base.data, n_jobs=2, loss="hinge"), SmoothingSettings("l2", 3)
    )
    w = one.packed(np.random.default_rng(0).normal(size=base.dimension))
    a, b = one.full_gradient(w, 1.0), two.full_gradient(w, 1.0)
    np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-12, atol=1e-12)
    assert (a.calls, a.exact) == (b.calls, b.exact) and a.loss == pytest.approx(b.loss)


# ---- small things


def test_alpha_is_the_positive_root_of_equation_27() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        lam, kappa, more = rng.random(3)
        old, new = lam + kappa, lam + kappa + more
        alpha = rng.uniform(np.sqrt(lam / old), 1)
        root = next_alpha(alpha, old, new, lam)
        assert root**2 * new == pytest.approx((1 - root) * alpha**2 * old + root * lam)
        assert 0 < root <= alpha and root**2 >= lam / new - 1e-12  # Lemma 21


def test_bad_parameters_are_refused_with_their_name() -> None:
    for bad in (
        {"k": 0},
        {"mu": -1.0},
        {"mu": np.nan},
        {"learning_rate": 0.0},
        {"warm_up": -1},
        {"kappa": 0.0},
        {"smoothing": "some"},
        {"warm_start": "cold"},
        {"inner": "x"},
        {"anchor": "x"},
        {"anchor": "visits", "inner": "gradient"},
    ):
        with pytest.raises(DataError, match=next(iter(bad))):
            Casimir(**bad)
    with pytest.raises(UnsupportedError, match="smoother"):
        SVRG(smoother="l3")
    problem = ChainRecipe(5).build()
    for name, value in (("gamma", 0.0), ("smoother", "none"), ("top", 0)):
        with pytest.raises(DataError, match=name):
            with_loss(problem, "smooth_hinge", **{name: value})
    with pytest.raises(UnsupportedError, match="can store few outputs"):
        choose(with_loss(problem, "hinge"), Casimir(smoother="entropy", anchor="visits"))
    with pytest.raises(UnsupportedError, match=r"'bcfw' minimizes hinge.*casimir"):
        choose(with_loss(problem, "smooth_hinge"), "bcfw")


def test_tagger_trains_with_the_smooth_hinge_loss() -> None:
    from cliquewise import SequenceTagger

    X = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]] * 5
    y = [["D", "N"], ["D", "N"]] * 5
    for solver in ("auto", "svrg", "casimir"):
        for smoother in ("l2", "entropy"):
            tagger = SequenceTagger(
                "smooth_hinge", smoother=smoother, solver=solver, tol=1e-2, max_epochs=500,
                random_state=0,
            ).fit(X, y)  # fmt: skip
            assert tagger.predict([[["w=the"], ["w=cat"]]]) == [["D", "N"]]
            assert tagger.certificate_.gap <= 1e-2
    with pytest.raises(UnsupportedError, match="probabilities"):
        tagger.predict_marginals(X)


def test_empty_data_are_a_problem_too() -> None:
    data = Dataset([0, 0], [0], [], None, 2, labels=[])
    problem = ChainProblem(ChainModel.build(data, 2), data, loss="smooth_hinge")
    for solver in (SVRG(), Casimir()):
        assert not solve(problem, solver, max_epochs=3).weights.any()
