"""Linear chains on a device by PyTorch: the optimum of the compiled solvers, proved as truly.

Here the device is the CPU; on a GPU, and with TRITON_INTERPRET=1, the same tests try the kernels.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

from chain_problems import ChainRecipe, Enumeration, chain_recipes, random_problem  # noqa: E402
from hypothesis import given, settings  # noqa: E402

from cliquewise import SequenceTagger, load  # noqa: E402
from cliquewise.errors import TooLargeError, UnsupportedError  # noqa: E402
from cliquewise.solvers import get  # noqa: E402
from cliquewise.solvers.base import Start  # noqa: E402
from cliquewise.solvers.planner import choose  # noqa: E402
from cliquewise.solvers.run import run  # noqa: E402
from cliquewise.torch import _products  # noqa: E402
from cliquewise.torch._device_data import DeviceData, Needs, Plan  # noqa: E402
from cliquewise.torch.device import DeviceLBFGS  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def solve(problem, tol=1e-6, **options):
    return run(problem, DeviceLBFGS(DEVICE, **options), tol=tol, max_epochs=2000)


@settings(max_examples=10)
@given(chain_recipes(-2, 2))
def test_every_certificate_brackets_the_optimum_of_a_list_of_all_labelings(recipe):
    problem = recipe.build()
    reference = Enumeration(problem)
    fit = solve(problem)
    assert fit.converged or fit.certificate.absolute_gap <= 1e-9
    for row in fit.trace:
        assert row["dual"] <= reference.optimum + 1e-9 * (1 + reference.optimum)
        assert row["primal"] >= reference.optimum - 1e-9 * (1 + reference.optimum)
    assert reference.value(fit.weights) == pytest.approx(
        fit.certificate.primal, rel=1e-9, abs=1e-11
    )


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_the_optimum_is_that_of_sdca(pairs):
    problem = random_problem(3, 20, 5, 8, C=0.5, pairs=pairs)
    ours, theirs = solve(problem), run(problem, get("sdca"), tol=1e-6, random_state=0)
    assert ours.converged and theirs.converged
    assert ours.certificate.primal == pytest.approx(theirs.certificate.primal, rel=3e-6)
    assert ours.certificate.dual <= theirs.certificate.primal + 1e-12
    # Strong convexity: weights are as close as both gaps allow.
    apart = np.linalg.norm(ours.weights - theirs.weights)
    gaps = [np.sqrt(2 * f.certificate.absolute_gap / problem.lam) for f in (ours, theirs)]
    assert apart <= sum(gaps) + 1e-9


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_value_and_gradient_are_those_of_the_compiled_kernels(dtype):
    recipe = ChainRecipe(5, examples=6, values=True, weights=True, forbid="both", labels=4)
    problem = recipe.build()
    w = np.random.default_rng(0).normal(size=problem.dimension)
    value, gradient = problem.primal_and_gradient(w)
    data = DeviceData(problem, torch.device(DEVICE), 5)
    evaluator = data.evaluator(getattr(torch, dtype))
    evaluator.weights.copy_(data.upload(w))
    evaluator()
    n = problem.n_examples
    own = data.download(torch.where(data.free, evaluator.sums.double() / n, 0.0))
    rel = 1e-5 if dtype == "float32" else 1e-12
    assert problem.ridge_objective(w @ w, float(evaluator.total)) == pytest.approx(value, rel=rel)
    free = data.download(data.free) > 0
    expected = np.where(free, gradient - problem.lam * w, 0.0)
    np.testing.assert_allclose(own, expected, rtol=rel, atol=rel)
    assert data.prove(data.upload(w))[0] == pytest.approx(value, rel=1e-12)


def test_batches_that_wait_in_main_memory_give_the_same_optimum():
    problem = random_problem(4, 14, 4, 6, C=0.5)
    whole = solve(problem)
    needs = Needs.of(problem, 10, padded=DEVICE == "cpu")
    for room in (needs.data + 0.4 * needs.scratch, 0.5 * (needs.data + needs.scratch)):
        gib = (needs.vectors + room) / 2**30
        plan = Plan.of(needs, gib * 2**30, problem.n_examples)
        assert plan.batches > 1
        fit = solve(problem, memory_gib=gib)
        assert fit.converged
        assert fit.certificate.primal == pytest.approx(whole.certificate.primal, rel=3e-6)
    with pytest.raises(TooLargeError, match=r"GiB on the device.*leave device out"):
        solve(problem, memory_gib=0.5 * needs.vectors / 2**30)
    streamed = Plan.of(Needs(0.0, 100.0, 10.0), 80.0, 50)
    assert streamed.batches > 1 and not streamed.resident


def test_where_float32_gets_no_further_float64_goes_on():
    problem = random_problem(6, 10, 3, 5, C=3.0)
    fit = solve(problem, tol=0.0)
    assert fit.certificate.gap <= 1e-10
    assert fit.state.descent.evaluator.dtype == torch.float64
    assert solve(problem, start="float64").converged


def test_a_warm_start_and_a_checkpoint_go_on_from_weights(tmp_path):
    problem = random_problem(7, 10, 4, 6)
    whole = solve(problem)
    again = run(problem, DeviceLBFGS(DEVICE), tol=1e-5, warm=Start(whole.weights))
    assert again.epochs <= 3
    solver = DeviceLBFGS(DEVICE)
    state = solver.unpack(problem, solver.pack(whole.state))
    assert solver.certify(problem, state).primal == pytest.approx(
        whole.certificate.primal, rel=1e-6
    )


def test_the_same_run_has_the_same_bits():
    problem = random_problem(8, 10, 4, 6)
    assert np.array_equal(solve(problem).weights, solve(problem).weights)


def test_long_rows_are_added_up_in_pieces():
    rng = np.random.default_rng(0)
    lengths = rng.choice([0, 1, 3, 70, 5000], 30)
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
    launches, spare = _products.launches(starts, 30)
    # What the launches add up, with a 1 for every entry, are the lengths.
    out = np.zeros(30 + spare)
    for number, (begin, length, target) in enumerate(launches):
        assert int(length.max()) <= _products.PIECE
        source = np.ones(int(starts[-1])) if number == 0 else out.copy()
        for b, n, t in zip(begin.tolist(), length.tolist(), target.tolist(), strict=True):
            out[t] = source[b : b + n].sum()
    np.testing.assert_array_equal(out[:30], lengths)


# ---- the tagger


def sentences(n=30, seed=0):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        states = rng.integers(0, 3, rng.integers(1, 7)).tolist()
        X.append([[f"w={s if rng.random() < 0.8 else 0}", f"n={rng.integers(5)}"] for s in states])
        y.append([f"L{s}" for s in states])
    return X, y


def test_a_tagger_with_a_device_predicts_and_proves_as_one_without(tmp_path):
    X, y = sentences()
    plain = SequenceTagger(C=0.5, tol=1e-7, max_epochs=1000, random_state=0).fit(X, y)
    tagger = SequenceTagger(C=0.5, tol=1e-7, device=DEVICE).fit(X, y)
    assert tagger.solver_ == "lbfgs" and tagger.certificate_.gap <= 1e-7
    assert tagger.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-6)
    assert tagger.predict(X) == plain.predict(X)
    for a, b in zip(tagger.predict_marginals(X), plain.predict_marginals(X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)
    allowed = [[{"L0", "L1"} for _ in x] for x in X]
    assert tagger.predict(X, allowed) == plain.predict(X, allowed)
    assert tagger.predict([]) == [] and tagger.predict([[], X[0]])[0] == []
    tagger.save(tmp_path / "m.cw")
    loaded = load(tmp_path / "m.cw")
    assert loaded.device is None and loaded.predict(X) == plain.predict(X)
    tagger.partial_fit(*sentences(5, 1))
    assert tagger.certificate_.gap <= 1e-7


def test_what_a_device_cannot_do_is_rejected_with_a_reason():
    X, y = sentences(6)
    with pytest.raises(UnsupportedError, match=r"only .lbfgs. does"):
        SequenceTagger(device=DEVICE, solver="sdca").fit(X, y)
    with pytest.raises(UnsupportedError, match="minimizes log, not hinge"):
        SequenceTagger("hinge", device=DEVICE).fit(X, y)
    with pytest.raises(UnsupportedError, match="fully labeled data"):
        SequenceTagger(device=DEVICE).fit(X, [[None, *tags[1:]] for tags in y])
    with pytest.raises(UnsupportedError, match='"cuda:1" or "cpu"'):
        SequenceTagger(device="gpu").fit(X, y)
    if not torch.cuda.is_available():
        with pytest.raises(UnsupportedError, match="no GPU here; leave device out"):
            SequenceTagger(device="cuda").fit(X, y)
    many = random_problem(1, 2, 130, 3)
    with pytest.raises(UnsupportedError, match="at most 128 labels, not 130"):
        choose(many, DeviceLBFGS(DEVICE))
