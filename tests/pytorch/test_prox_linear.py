"""Prox-linear training of networks: products with the Jacobian, descent, and the baselines."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

from cliquewise.errors import DataError  # noqa: E402
from cliquewise.solvers.run import run  # noqa: E402
from cliquewise.torch import SGD, Adam, DeepProblem, ProxLinear  # noqa: E402
from cliquewise.torch.heads import Scorer, make_head  # noqa: E402
from cliquewise.torch.prox_linear import LinearModel, hold  # noqa: E402


def make_problem(loss="hinge", n=40, linear=False, structure="candidates", lam=0.05):
    torch.manual_seed(0)
    hidden = [] if linear else [torch.nn.Linear(4, 6), torch.nn.ELU()]
    network = torch.nn.Sequential(*hidden, torch.nn.Linear(4 if linear else 6, 3)).double()
    generator = torch.Generator().manual_seed(1)
    head = make_head(structure, 3).double()
    shape = (n, 5) if structure == "chain" else (n,)
    x = torch.randn(*shape, 4, generator=generator).double()
    y = (x[..., :3] + 0.3 * torch.randn(*shape, 3, generator=generator)).argmax(-1)
    return DeepProblem(Scorer(network, head), x, y, loss=loss, lam=lam, batch_size=8)


@pytest.mark.parametrize("structure", ["candidates", "chain"])
def test_gradient_of_the_linear_model_equals_that_of_the_network_at_its_center(structure):
    problem = make_problem("log", structure=structure)
    w = problem.weights()
    model = LinearModel(problem, w, 1.0, None, hold(problem, w, np.random.default_rng(0))[1])
    gradient, _, value = model.full_gradient(w)
    leaf = w.clone().requires_grad_()
    total = (
        sum(problem.losses(problem.scores(leaf, b), b).sum() for b in problem.batches())
        / problem.n_examples
    )
    torch.testing.assert_close(gradient, torch.autograd.grad(total, leaf)[0])
    assert value == pytest.approx(problem.objective(w))


def test_the_linear_model_is_the_first_order_expansion_of_the_scores():
    problem = make_problem("log")
    w = problem.weights()
    _, held = hold(problem, w, np.random.default_rng(0))
    batch = held.batches[0]
    jacobian = torch.func.jacrev(lambda v: problem.scores(v, batch)[0])(w)
    step = 0.1 * torch.randn_like(w)
    expected = problem.scores(w, batch)[0] + jacobian @ step
    leaf = expected.detach().requires_grad_()
    loss = problem.losses((leaf,), batch).mean()
    model = LinearModel(problem, w, 1.0, None, held)
    (found,), value = model.score_gradient(w + step, 0)
    torch.testing.assert_close(found, torch.autograd.grad(loss, leaf)[0])
    assert value == pytest.approx(loss.item())
    back = model.pull_back(batch, (found,))
    torch.testing.assert_close(back, torch.einsum("bkd,bk->d", jacobian, found))


@pytest.mark.parametrize("loss", ["hinge", "log", "smooth_hinge", "softmax_margin"])
@pytest.mark.parametrize("smoothing", ["adaptive", "constant"])
def test_the_objective_never_rises_across_outer_steps(loss, smoothing):
    problem = make_problem(loss)
    start = problem.objective(problem.weights())
    fit = run(problem, ProxLinear(eta=5.0, smoothing=smoothing), max_epochs=40, random_state=0)
    primal = np.r_[start, fit.trace.primal]
    assert (np.diff(primal) <= 0).all()
    assert primal[-1] < 0.7 * primal[0]
    assert fit.certificate.status == "none" and fit.certificate.dual == -np.inf
    assert np.isfinite(fit.trace.prox_gradient).all()


def test_the_objective_falls_for_chains_and_by_entropy_smoothing():
    problem = make_problem("hinge", n=16, structure="chain")
    start = problem.objective(problem.weights())
    solver = ProxLinear(eta=2.0, smoother="entropy", budget=2)
    fit = run(problem, solver, max_epochs=20, random_state=0)
    assert fit.trace.primal[-1] < 0.8 * start
    assert (np.diff(fit.trace.primal) <= 0).all()


def test_on_a_linear_score_it_reaches_the_optimum_of_a_generic_solver():
    problem = make_problem("log", linear=True, lam=0.1)
    w = problem.weights().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [w], max_iter=200, tolerance_grad=1e-10, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        losses = [problem.losses(problem.scores(w, b), b).sum() for b in problem.batches()]
        value = sum(losses) / problem.n_examples + 0.05 * w.square().sum()
        value.backward()
        return value

    optimizer.step(closure)
    best = problem.objective(w.detach())
    fit = run(problem, ProxLinear(eta=100.0, budget=10, growth=0.0), max_epochs=300, random_state=0)
    assert fit.certificate.primal == pytest.approx(best, rel=1e-4)
    assert fit.trace.prox_gradient[-1] < 0.1 * fit.trace.prox_gradient[0]


def test_a_tolerance_ends_the_inner_loop_early():
    problem = make_problem("log", linear=True, lam=0.1)
    solver = ProxLinear(eta=1.0, budget=50, tolerance=1e-2)
    info = solver.step(problem, solver.init(problem), np.random.default_rng(0))
    assert info.epochs < 50


@pytest.mark.parametrize(
    "solver",
    [
        SGD(0.1), SGD(0.3, "sqrt"), SGD(0.3, "inverse"), Adam(0.02), ProxLinear(eta=5.0),
        Adam(0.05, "sqrt", average=0.8),
    ],
    ids=lambda s: f"{s.name} {getattr(s, 'schedule', '')}",
)  # fmt: skip
def test_every_solver_lowers_the_objective_and_repeats_itself(solver):
    start = make_problem().objective(make_problem().weights())
    fits = [run(make_problem(), solver, max_epochs=12, random_state=3) for _ in range(2)]
    assert fits[0].certificate.primal < 0.8 * start
    assert np.array_equal(fits[0].weights, fits[1].weights)
    state = solver.unpack(make_problem(), solver.pack(fits[0].state))
    assert torch.equal(state.w, fits[0].state.w)


@pytest.mark.parametrize("solver", [SGD(0.1, average=0.5), Adam(0.02, average=0.5)])
def test_the_answer_is_a_moving_average_of_the_weights_if_asked(solver):
    problem = make_problem()
    problem.batch_size = problem.n_examples  # one step per pass
    plain = type(solver)(solver.rate)
    expected, state, averaged = problem.weights(), plain.init(problem), solver.init(problem)
    for t in range(1, 8):
        plain.step(problem, state, np.random.default_rng(t))
        info = solver.step(problem, averaged, np.random.default_rng(t))
        kept = min(0.5, (1 + t) / (10 + t))
        expected = kept * expected + (1 - kept) * state.w
    torch.testing.assert_close(averaged.w, state.w)
    np.testing.assert_allclose(solver.weights(problem, averaged), expected.numpy(), rtol=1e-10)
    assert info.certificate.primal == pytest.approx(problem.objective(expected))
    back = solver.unpack(problem, solver.pack(averaged))
    assert torch.equal(back.mean, averaged.mean)


def test_adam_takes_the_steps_of_pytorch_and_a_schedule_shortens_them():
    problem = make_problem()
    problem.batch_size = problem.n_examples
    leaf = problem.weights().requires_grad_()
    theirs = torch.optim.Adam([leaf], lr=0.02)
    schedule = torch.optim.lr_scheduler.LambdaLR(theirs, lambda t: 1 / (1 + t / 3) ** 0.5)
    solver = Adam(0.02, "sqrt", t0=3)
    state = solver.init(problem)
    for t in range(6):
        grad, _ = problem.gradient(leaf.detach(), problem.batches()[0])
        leaf.grad = grad + problem.lam * leaf.detach()
        theirs.step()
        schedule.step()
        solver.step(problem, state, np.random.default_rng(t))
    torch.testing.assert_close(state.w, leaf.detach())


def test_the_pass_of_the_acceptance_test_serves_the_next_anchor():
    problem = make_problem()
    solver = ProxLinear(eta=1.0, growth=0.0)
    state = solver.init(problem)
    first = solver.step(problem, state, np.random.default_rng(0))
    # Scores at the start, an inner pass, the acceptance test; then only the last two.
    assert first.epochs == 3.0
    assert solver.step(problem, state, np.random.default_rng(1)).epochs == 2.0
    solver = ProxLinear(eta=1.0, budget=3, growth=1.0)
    state = solver.init(problem)
    first = solver.step(problem, state, np.random.default_rng(0))
    assert first.epochs == 1.0 + 3.0 + 2.0 + 1.0
    second = solver.step(problem, state, np.random.default_rng(1))
    assert second.epochs == 4.0 + 3.0 + 1.0 and state.inner == 7.0


def test_bad_settings_are_rejected():
    with pytest.raises(DataError, match="eta"):
        ProxLinear(eta=0.0)
    with pytest.raises(DataError, match="budget"):
        ProxLinear(budget=0)
    with pytest.raises(DataError, match="growth"):
        ProxLinear(growth=-1.0)
    with pytest.raises(DataError, match="average"):
        Adam(average=1.0)
    with pytest.raises(DataError, match="smoother"):
        ProxLinear(smoother="l1")
    with pytest.raises(DataError, match="schedule"):
        SGD(schedule="cosine")
    with pytest.raises(DataError, match="unequal or no examples"):
        problem = make_problem()
        DeepProblem(problem.scorer, problem.inputs, problem.target[:3])
