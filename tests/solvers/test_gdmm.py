"""GDMM on chains: its searches against full ones, its optimum against other solvers."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from chain_problems import ChainRecipe, chain_recipes
from gdmm_kernels import add_to_pairs, compare_searches, find_labels, label_scores
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_max_margin import HingeEnumeration, hinge, larger

import cliquewise as cw
from cliquewise._kernels.chain import sparse as chain_sparse
from cliquewise._kernels.chain.decode import batch_viterbi
from cliquewise._kernels.gdmm import rows as gdmm_rows
from cliquewise._kernels.gdmm import viterbi as gdmm_viterbi
from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.models.chain import ChainModel
from cliquewise.models.sparse_transitions import transition_lists
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.backends.chain.active import empty_table
from cliquewise.solvers.bcfw import BCFW
from cliquewise.solvers.gdmm import GDMM
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import Fit, run

VARIANTS = {
    "bcfw": GDMM("bcfw"),
    "afw": GDMM("afw"),
    "bgcd": GDMM("bgcd"),
    "full": GDMM(factor_search="full"),
    "sampled": GDMM(factor_search="sampled"),
    "one label, no rest": GDMM(max_new_labels=1, shrink_below=0.0, adaptive=False),
}
every_variant = pytest.mark.parametrize("solver", VARIANTS.values(), ids=VARIANTS.keys())
HONEST = 1e-9


def solve(problem: ChainProblem, solver: Any, **options: Any) -> Fit:
    return run(problem, solver, **{"tol": 1e-5, "max_epochs": 3000, "random_state": 0, **options})


def possible(recipe: ChainRecipe) -> ChainRecipe:
    """The same recipe with all transitions allowed."""
    forbid = {"transitions": "nothing", "both": "labels"}.get(recipe.forbid, recipe.forbid)
    return replace(recipe, forbid=forbid)


def well_scaled(recipe: ChainRecipe) -> ChainRecipe:
    """Steps of one factor at a time are slow where attributes are long and C is large."""
    return replace(possible(recipe), scale=min(recipe.scale, 1.0))


@cache
def enumerated(recipe: ChainRecipe) -> tuple[ChainProblem, HingeEnumeration]:
    problem = hinge(recipe.build())
    return problem, HingeEnumeration(problem)


def certified_bracket(problem: ChainProblem) -> tuple[float, float]:
    fit = solve(problem, BCFW(), tol=1e-6, max_epochs=150)
    return fit.certificate.dual, fit.certificate.primal


# ---- the search over pairs


class PairTable:
    """A table under updates, and messages for some labels on either side."""

    def __init__(self, rng: np.random.Generator, k: int, free: np.ndarray):
        self.rng, self.k = rng, k
        self.table = empty_table(free, 2 * k * k * 20 + 4096)
        self.dense = np.zeros((k, k))

    def update(self, count: int) -> None:
        """Rises and falls, some of them back to exactly zero."""
        left, right = self.rng.integers(0, self.k, (2, count))
        changes = self.rng.choice([-1.0, -0.5, 0.25, 0.5, 2.0], count)
        changes += self.rng.normal(size=count) * (self.rng.random(count) < 0.5)
        for n, (i, j) in enumerate(zip(left, right, strict=True)):
            if self.rng.random() < 0.2:
                changes[n] = -self.dense[i, j]
            if self.table.free[i * self.k + j]:
                self.dense[i, j] += changes[n]
        assert add_to_pairs(self.table, self.k, left, right, changes) == count

    def compare(self, score: float, mask: np.ndarray) -> None:
        k, rng = self.k, self.rng
        sides = [_some(rng, np.flatnonzero(mask[s]) if len(mask) else np.arange(k)) for s in (0, 1)]
        labels = np.concatenate(sides).astype(np.int32)
        spans = np.array([0, len(sides[0]), len(sides[0]), len(labels)])
        messages, marks = np.zeros((2, k)), np.zeros((2, k), dtype=np.int64)
        for s, own in enumerate(sides):
            marks[s, own] = np.arange(len(own)) + 1
            messages[s, own] = rng.choice([0.0, 1.0, -1.0], len(own)) * rng.random(len(own)) * 3
        out = np.zeros(2)
        found = compare_searches(self.table, k, labels, spans, messages, marks, mask, 0, score, out)
        values = self.dense - messages[0][:, None] - messages[1][None, :]
        if len(mask):
            values[~(mask[0][:, None] & mask[1][None, :])] = -np.inf
        best = values.max()
        for i, j, value in ((*found[:2], out[0]), (*found[2:], out[1])):
            if best > score:
                assert value == pytest.approx(best, abs=1e-12)
                assert values[i, j] == pytest.approx(best, abs=1e-12)
            else:
                assert i == j == -1


def _some(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    return rng.permutation(labels)[: int(rng.integers(0, len(labels) + 1))]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), k=st.integers(1, 12), masked=st.booleans(), low=st.booleans())
def test_sublinear_search_finds_what_the_full_one_finds_after_any_updates(
    seed: int, k: int, masked: bool, low: bool
) -> None:
    rng = np.random.default_rng(seed)
    free = rng.random((k, k)) < 0.9 if seed % 2 else np.ones((k, k), dtype=bool)
    pairs = PairTable(rng, k, free)
    for _ in range(25):
        pairs.update(int(rng.integers(0, 12)))
        mask = rng.random((2, k)) < 0.7 if masked else np.empty((0, k), dtype=bool)
        pairs.compare(-np.inf if low else float(rng.normal()), mask)
    np.testing.assert_allclose(pairs.table.values.reshape(k, k), pairs.dense, atol=1e-12)


# ---- the search over labels, and Viterbi


def trained(k: int = 30, passes: int = 4, **options: Any) -> tuple[ChainProblem, GDMM, Any]:
    problem, solver = larger(3, 40, k, 8, **options), GDMM()
    state, rng = solver.init(problem), np.random.default_rng(1)
    for _ in range(passes):
        solver.step(problem, state, rng)
    return problem, solver, state


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_sparse_rows_score_all_labels_as_the_weight_vector_does(pairs: str) -> None:
    problem, solver, state = trained(pairs=pairs)
    k, tokens = 30, problem.data.n_tokens
    scores = np.zeros((tokens, 32))
    label_scores(state.sets.chains, state.sets.rows, 0, tokens, k, scores)
    expected, _ = problem.model.potentials(solver.weights(problem, state), problem.data)
    np.testing.assert_allclose(scores[:, :k], expected, atol=1e-12)


def test_weights_kept_up_in_passes_are_those_of_the_masses() -> None:
    problem, solver, state = trained(passes=30)
    kept = solver.weights(problem, state)
    solver.certify(problem, state)
    np.testing.assert_allclose(solver.weights(problem, state), kept, atol=1e-10)


def test_sampled_search_finds_the_best_label_with_the_stated_probability() -> None:
    _, _, state = trained()
    k, hits, tries = 30, 0, 0
    one, scores = np.zeros(1, dtype=np.int64), np.zeros(32)
    arguments = state.sets.chains, state.sets.rows, state.sets.support
    for token in range(60):
        find_labels(*arguments, token, k, 0, 1, one, scores)
        best = int(one[0])
        outside = np.setdiff1d(np.arange(k), _active(state, token))
        assert scores[best] == scores[outside].max()
        for salt in range(50):
            size = find_labels(*arguments, token, k, 1000 * salt + 7, 3, one, scores)
            hits += bool(size and scores[one[0]] == scores[best])
            tries += 1
    assert hits / tries > 1 / 3 - 0.04


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_searches_in_single_precision_lead_to_the_same_optimum(
    pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = solve(larger(3, 40, 30, 8, pairs=pairs), GDMM(), tol=1e-3).certificate
    monkeypatch.setattr(gdmm_rows, "BRIEF", 4)
    for solver in (GDMM(), GDMM(factor_search="sampled", partition=2), GDMM("bgcd")):
        problem = larger(3, 40, 30, 8, pairs=pairs)
        state, rng = solver.init(problem), np.random.default_rng(1)
        for _ in range(3):
            solver.step(problem, state, rng)
        rows = state.sets.rows
        assert (len(rows.values_f32) > 0) == (pairs == "all")
        for a in np.flatnonzero(rows.dense * (len(rows.values_f32) > 0)):
            own = slice(rows.start[a], rows.start[a] + 30)
            assert np.array_equal(rows.values_f32[own], rows.value[own].astype(np.float32))
        fit = solve(problem, solver, tol=1e-3 if solver.step_rule else 1e-4)
        assert fit.converged
        assert fit.certificate.dual <= exact.primal and exact.dual <= fit.certificate.primal


def _active(state: Any, token: int) -> np.ndarray:
    begin = state.sets.support.start[token]
    return np.asarray(state.sets.support.label[begin : begin + state.sets.support.count[token]])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), k=st.integers(1, 24), density=st.floats(0, 1))
def test_sparse_viterbi_is_exact(seed: int, k: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 7, 4)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    nodes = rng.normal(size=(offsets[-1], k))
    nodes[rng.random(nodes.shape) < 0.1] = -np.inf
    trans = np.where(rng.random((k, k)) < density, rng.normal(size=(k, k)) * 2, 0.0)
    lists = transition_lists(trans)
    got, want = np.zeros((2, offsets[-1]), dtype=np.int64)
    scores = np.zeros((2, 4))
    chain_sparse.batch_sparse_viterbi(nodes, offsets, *lists, got, scores[0])
    batch_viterbi(nodes, offsets, trans[None], want, scores[1])
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-12, atol=1e-12)
    for s in range(4):
        if np.isfinite(scores[1, s]):
            own = slice(offsets[s], offsets[s + 1])
            assert np.all(got[own] == want[own])


@pytest.mark.parametrize("k", [5, 40])
def test_sparse_losses_are_those_of_the_problem(k: int) -> None:
    problem, solver, state = trained(k)
    solver.certify(problem, state)
    losses = np.zeros(problem.n_examples)
    gdmm_viterbi.sparse_losses(
        state.sets.chains, state.sets.rows, state.sets.table, k, 0, len(losses), losses
    )
    np.testing.assert_allclose(
        losses, problem.losses(solver.weights(problem, state)), rtol=1e-10, atol=1e-10
    )


# ---- the optimum, and what is said on the way


@every_variant
@settings(max_examples=3, deadline=None)
@given(recipe=chain_recipes(min_log_c=-2, max_log_c=0.5).map(well_scaled))
@example(recipe=ChainRecipe(0, examples=1, labels=1))
@example(recipe=ChainRecipe(3, examples=6, labels=3, values=True, weights=True, forbid="labels"))
@example(recipe=ChainRecipe(1, examples=6, labels=4, feature_pairs="seen", C=10.0))
@example(recipe=ChainRecipe(5, examples=5, labels=3, transitions_seen=True, boundaries=False))
def test_gdmm_agrees_with_bcfw_and_a_generic_solver(solver: GDMM, recipe: ChainRecipe) -> None:
    problem, reference = enumerated(recipe)
    lower, upper = reference.bracket
    fit = solve(problem, solver, max_epochs=2000)
    for row in fit.trace:
        assert row["dual"] <= upper + HONEST * (1 + upper)
        assert row["primal"] >= lower - HONEST * (1 + upper)
    assert fit.certificate.primal <= upper + 1e-4 * (1 + abs(upper))
    assert fit.certificate.dual >= lower - 1e-4 * (1 + abs(upper))
    own = reference.value(fit.weights)
    assert own == pytest.approx(fit.certificate.primal, rel=1e-9, abs=1e-10)
    bcfw = solve(problem, BCFW(), tol=1e-5, max_epochs=200).certificate
    assert fit.certificate.dual <= bcfw.primal + HONEST * (1 + upper)
    assert bcfw.dual <= fit.certificate.primal + HONEST * (1 + upper)


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_tokens_without_weights_give_no_false_dual(pairs: str) -> None:
    # No curvature there: a division by it made masses out of rounding errors, dual 1.0039.
    data = Dataset.from_matrix(
        np.array([[-0.8], [0.0], [0.0]]), np.arange(4), labels=np.array([0, 1, 2])
    )
    model = ChainModel.build(data, 3, feature_pairs=pairs, intercept=False, boundaries=False)
    problem = ChainProblem(model, data, 0.01045, loss="hinge")
    lower, upper = HingeEnumeration(problem).bracket
    proof = solve(problem, GDMM()).certificate
    assert lower - HONEST <= proof.primal <= upper + 1e-7
    assert lower - 1e-7 <= proof.dual <= upper + HONEST


def test_hundreds_of_problems_without_intercept_have_true_duals() -> None:
    for seed in range(120):
        recipe = ChainRecipe(
            seed, examples=1 + seed % 5, labels=2 + seed % 3, values=seed % 2 > 0, bare=True,
            feature_pairs=("all", "seen")[seed // 2 % 2], intercept=False,
            boundaries=seed % 5 > 2, C=10.0 ** (seed % 7 - 4), scale=(1.0, 1e-7, 1e3)[seed % 3],
        )  # fmt: skip
        problem = hinge(recipe.build())
        # Raises if the dual is above the primal value, which bounds the optimum from above.
        solvers = GDMM("bcfw"), GDMM("afw"), GDMM("bgcd"), BCFW()
        proofs = [solve(problem, solver, max_epochs=20).certificate for solver in solvers]
        least = min(proof.primal for proof in proofs)
        assert max(proof.dual for proof in proofs) <= least + HONEST * (1 + least)


@every_variant
@settings(max_examples=4, deadline=None)
@given(recipe=chain_recipes().map(possible))
def test_certificates_of_gdmm_are_true_at_every_step(solver: GDMM, recipe: ChainRecipe) -> None:
    problem = hinge(recipe.build())
    reference = HingeEnumeration(problem)
    lower, upper = certified_bracket(problem)
    rng, state = np.random.default_rng(0), solver.init(problem)
    for _ in range(8):
        proof = solver.certify(problem, state)
        assert proof.status == "exact"
        own = reference.value(solver.weights(problem, state))
        assert own == pytest.approx(proof.primal, rel=1e-9, abs=1e-10)
        assert proof.dual <= upper + HONEST * (1 + upper)
        assert proof.primal >= lower - HONEST * (1 + upper)
        info = solver.step(problem, state, rng)
        assert info.epochs == 1 and info.oracle_calls >= 0


@pytest.mark.parametrize(
    ("k", "pairs"), [(1, "all"), (2, "seen"), (30, "all"), (70, "seen"), (300, "all")]
)
def test_gdmm_solves_few_and_many_labels_to_the_end(k: int, pairs: str) -> None:
    problem = larger(2, 12, k, 5, pairs=pairs)
    fit = solve(problem, GDMM(), tol=1e-4)
    assert fit.converged
    lower, upper = certified_bracket(problem)
    assert fit.certificate.dual <= upper + HONEST and fit.certificate.primal >= lower - HONEST
    assert problem.primal(fit.weights) == pytest.approx(fit.certificate.primal, rel=1e-9)


def test_estimate_of_gdmm_is_of_the_size_of_the_gap() -> None:
    problem, solver = larger(0, 40, 6, 8), GDMM()
    state, rng, ratios = solver.init(problem), np.random.default_rng(0), []
    for _ in range(60):
        info = solver.step(problem, state, rng)
        gap = solver.certify(problem, state).gap
        if np.isfinite(info.estimate):
            ratios.append(info.estimate / gap)
    assert 0.05 < np.median(ratios) < 20


def test_repeated_attributes_count_as_often_as_they_occur() -> None:
    labels = [0, 1, 1, 0, 2]
    twice = Dataset(
        [0, 3, 5], [0, 2, 4, 6, 8, 9], [0, 0, 0, 1, 1, 1, 2, 2, 0], None, 3, labels=labels
    )
    once = Dataset(
        [0, 3, 5], [0, 1, 3, 4, 5, 6], [0, 0, 1, 1, 2, 0], [2, 1, 1, 2, 2, 1], 3, labels=labels
    )
    values = []
    for data in (twice, once):
        problem = ChainProblem(ChainModel.build(data, 3), data, loss="hinge")
        fit = solve(problem, GDMM())
        assert fit.converged
        assert problem.primal(fit.weights) == pytest.approx(fit.certificate.primal, rel=1e-9)
        values.append(fit.certificate.primal)
    assert values[0] == pytest.approx(values[1], rel=1e-4)


def test_more_labels_than_tokens_and_labels_never_seen_are_fine() -> None:
    data = Dataset([0, 2, 2, 3], [0, 1, 2, 3], [0, 1, 0], None, 2, labels=[7, 90, 7])
    problem = ChainProblem(ChainModel.build(data, 100), data, loss="hinge")
    fit = solve(problem, GDMM(), tol=1e-2)
    assert fit.converged
    assert problem.primal(fit.weights) == pytest.approx(fit.certificate.primal, rel=1e-9)


# ---- the same answer again, starting from somewhere, and what cannot be done


@every_variant
def test_gdmm_gives_the_same_bits_for_the_same_seed(solver: GDMM) -> None:
    problem = hinge(ChainRecipe(7, examples=6, values=True, weights=True, forbid="labels").build())
    again = pickle.loads(pickle.dumps(solver))
    assert again == solver and hash(again) == hash(solver)
    one, two = (solve(problem, s, max_epochs=15, tol=0, random_state=5) for s in (solver, again))
    assert one.weights.tobytes() == two.weights.tobytes()
    assert one.certificate == two.certificate


def test_gdmm_goes_on_from_a_warm_start_and_from_a_checkpoint(tmp_path: Any) -> None:
    data = ChainRecipe(11, examples=6).build().data
    model = ChainModel.build(data, 3)
    few = ChainProblem(model, data.subset(np.arange(4)), loss="hinge")
    whole = ChainProblem(model, data, 2.0, loss="hinge")
    solver, (lower, upper) = GDMM(), certified_bracket(whole)
    first = solve(few, solver, tol=1e-4)
    warm = solve(whole, solver, tol=1e-4, warm=first.state)
    again = solve(whole, solver, tol=1e-4, warm=warm.state)
    path = tmp_path / "run.ckpt"
    solve(whole, solver, tol=0, max_epochs=3, checkpoint=path, checkpoint_seconds=0)
    resumed = solve(whole, solver, tol=1e-4, checkpoint=path, resume=True)
    assert resumed.epochs > 3 and again.epochs <= 10
    for fit in (warm, again, resumed):
        assert fit.converged
        for row in fit.trace:
            assert row["dual"] <= upper + HONEST and row["primal"] >= lower - HONEST
    with pytest.raises(DataError, match="other data"):
        solver.unpack(few, solver.pack(warm.state))
    with pytest.raises(DataError, match="warm start"):
        solver.init(few, warm.state)


def test_packed_state_gives_the_same_weights() -> None:
    problem, solver, state = trained(pairs="seen")
    arrays = {k: np.array(v) for k, v in solver.pack(state).items()}
    again = solver.unpack(problem, pickle.loads(pickle.dumps(arrays)))
    np.testing.assert_allclose(
        solver.weights(problem, again), solver.weights(problem, state), atol=1e-11
    )
    assert solver.memory(problem) >= 8 * problem.dimension + sum(v.nbytes for v in arrays.values())


def test_forbidden_transitions_and_other_losses_are_refused_by_gdmm() -> None:
    recipe = ChainRecipe(7, forbid="transitions")
    with pytest.raises(UnsupportedError, match=r"'gdmm' cannot forbid transitions.*bcfw"):
        choose(hinge(recipe.build()), "gdmm")
    with pytest.raises(UnsupportedError, match=r"'gdmm' minimizes hinge, not log"):
        choose(ChainRecipe(7).build(), "gdmm")


@pytest.mark.parametrize("bad", [
    {"step_rule": "newton"}, {"factor_search": "none"}, {"rho": 0.0}, {"eta": -1.0},
    {"partition": 0}, {"max_new_labels": 0}, {"shrink_below": -1.0},
])  # fmt: skip
def test_bad_parameters_of_gdmm_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=next(iter(bad))):
        GDMM(**bad)


def test_no_examples_and_only_empty_ones_are_problems_of_gdmm_too() -> None:
    for offsets in ([0], [0, 0, 0]):
        data = Dataset(offsets, [0], [], None, 2, labels=[])
        problem = ChainProblem(ChainModel.build(data, 2), data, loss="hinge")
        for solver in VARIANTS.values():
            fit = solve(problem, solver, max_epochs=5)
            assert fit.converged and not fit.weights.any()


@pytest.mark.filterwarnings("ignore:gdmm stopped")
def test_tagger_trains_with_gdmm_and_predicts_many_labels_by_sparse_viterbi() -> None:
    rng = np.random.default_rng(0)
    y = [[str(v) for v in rng.integers(0, 300, 6)] for _ in range(120)]
    X = [[[f"w={v}", f"n={rng.integers(50)}"] for v in labels] for labels in y]
    tagger = cw.SequenceTagger(loss="hinge", solver="gdmm", max_epochs=15, random_state=0)
    tagger.fit(X, y)
    assert tagger.solver_ == "gdmm"
    data = tagger.encoder_.transform(X)
    nodes, trans = tagger.model_.potentials(tagger.coef_, data)
    assert transition_lists(trans[0]) is not None
    best, scores = np.zeros(len(nodes), dtype=np.int64), np.zeros(len(X))
    batch_viterbi(nodes, data.offsets, trans, best, scores)
    flat = [label for labels in tagger.predict(X) for label in labels]
    assert flat == [tagger.classes_[b] for b in best]
    assert tagger.score(X, y) > 0.9
