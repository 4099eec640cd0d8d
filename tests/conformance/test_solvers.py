"""Every registered solver on every kind of problem and loss that it says it works on.

Nothing here names a solver that has to pass: they are found through the registry, and a new one
is tried as soon as its file exists. What it says is held against optima that no solver has found
(``solver_problems.py``).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from solver_problems import FAMILIES, HAS_TORCH, Family, Recipe, Reference, recipes

from cliquewise.certificate import Certificate
from cliquewise.errors import CliquewiseError, DataError, UnsupportedError
from cliquewise.persistence import write_arrays
from cliquewise.problems.base import Problem
from cliquewise.solvers import Solver, get, registered
from cliquewise.solvers.base import Selective
from cliquewise.solvers.checkpoints import unpack_same
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import Fit, run
from cliquewise.solvers.warm_start import begin

#: A dual value may exceed the optimum, and a primal value fall short of it, by rounding only.
HONEST = 1e-9
#: Most passes of a run to the precision that a solver promises.
LIMIT = 3000
#: Drawn problems per solver and test, always the same; the fuzzer draws new ones. Graphs,
#: matchings and networks are slow to solve, and label sets to list.
DRAWN = {"chain": 14, "graph": 6, "label_sets": 10, "label_graph": 5,
         "labels": 5, "candidates": 8, "matching": 5,
         "examples": 8, "deep": 2}  # fmt: skip

#: A problem with a bit of everything.
ORDINARY = Recipe(7, examples=5, weights=True, forbid=True)
CORNERS = (
    Recipe(0, examples=1, size=1),
    Recipe(7, examples=4, size=3),
    Recipe(1, examples=5, size=4, C=100.0, weights=True, seen=True, threads=2),
    Recipe(2, examples=5, size=2, C=0.01, sparse=True, variant=1),
    Recipe(3, examples=3, size=3, C=30.0, variant=2),
    Recipe(8, examples=5, size=3, C=0.01, seen=True, bare=True),  # chains: without intercept
    Recipe(4, examples=5, size=3, C=3.0, weights=True, l1=0.5),
    Recipe(5, examples=4, size=3, C=30.0, seen=True, l1=0.9),
    Recipe(6, examples=5, size=3, C=1.0, l1=1.0),
    Recipe(9, examples=5, size=3, C=1.0, weights=True, variant=1, costs=True),
)


@dataclass(frozen=True)
class Case:
    """A solver and the problems that it is tried on."""

    family: Family
    solver: Solver

    @property
    def relaxed(self) -> bool:
        return self.family.kind in self.solver.capabilities.relaxed_on

    def reference(self, recipe: Recipe, **changes: Any) -> Reference:
        return self.family.reference(self._known(recipe)._replace(**changes), self.relaxed)

    def build(self, recipe: Recipe, **changes: Any) -> Any:
        return self.family.build(self._known(recipe)._replace(**changes))

    def _known(self, recipe: Recipe) -> Recipe:
        if not self.solver.capabilities.pair_attributes:
            recipe = recipe._replace(pairs=0)
        if self._needs_gini:
            recipe = recipe._replace(seen=False)
        if recipe.costs and not self._takes_costs:
            recipe = recipe._replace(costs=False)
        if not self.solver.capabilities.l1:
            return recipe._replace(l1=0.0)
        return recipe if recipe.l1 or not self._needs_l1 else recipe._replace(l1=0.3)

    @cached_property
    def _needs_gini(self) -> bool:
        """Whether it refuses the entropy that graphs have with ``seen``."""
        reason = None
        if self.family.kind == "graph":
            reason = self.solver.refuses(self.family.build(ORDINARY._replace(seen=True)))
        return reason is not None and "entropy" in reason

    @cached_property
    def _takes_costs(self) -> bool:
        """Whether it refuses no costs of single labels, in a problem that it takes otherwise."""
        plain = Recipe(7, examples=5, l1=0.3 if self._needs_l1 else 0.0)
        return self.solver.refuses(self.family.build(plain, costs=True)) is None

    @cached_property
    def _needs_l1(self) -> bool:
        """Whether it refuses what has no L1 part."""
        return self.solver.refuses(self.family.build(ORDINARY)) is not None


CASES = [
    Case(family, solver())
    for family in FAMILIES
    for solver in registered(family.kind)
    if family.loss in solver.capabilities.losses[family.kind]
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.family}-{c.solver.name}")
every_family = pytest.mark.parametrize("family", FAMILIES, ids=str)
EVERY = sorted(registered(), key=lambda s: (s.name, sorted(s.capabilities.losses)))
every_solver = pytest.mark.parametrize("solver", [s() for s in EVERY], ids=lambda s: s.name)


def solve(problem: Problem, solver: Solver, **options: Any) -> Fit:
    return run(problem, solver, **{"tol": 1e-7, "max_epochs": 30, "random_state": 0, **options})


def precision(problem: Problem, solver: Solver) -> float:
    """What the solver promises; likelihoods are smooth, and easier to minimize.

    Few outputs leave kinks in a smoothed maximum, for which a solver may say that it does not suit.
    """
    selective = problem.loss == "smooth_hinge" and isinstance(solver, Selective)
    if selective and solver.unsuitable(problem) is not None:
        return np.inf
    promised = solver.capabilities.precision
    smooth = problem.loss in ("log", "softmax_margin") and np.isfinite(promised)
    return 1e-6 if smooth else promised


def solve_well(problem: Problem, solver: Solver, **options: Any) -> Fit:
    """To the precision that the solver promises, or some passes if it promises none."""
    tol = precision(problem, solver)
    if np.isinf(tol):
        return solve(problem, solver, **options)
    fit = solve(problem, solver, **{"tol": tol, "max_epochs": LIMIT, **options})
    # Where the optimum is zero no relative gap is small.
    assert fit.converged or fit.certificate.absolute_gap <= 1e-3 * tol
    return fit


def check(primal: float, dual: float, reference: Reference) -> None:
    """The optimum is between dual and primal, as far as it is known itself."""
    low, high = reference.bracket
    assert dual <= high + HONEST * (1 + abs(high))
    assert primal >= low - HONEST * (1 + abs(low))
    assert primal - dual >= -HONEST * (1 + abs(primal))


def check_trace(fit: Fit, reference: Reference) -> None:
    assert len(fit.trace) > 0
    for row in fit.trace:
        check(row["primal"], row["dual"], reference)


def check_weights(w: Any, proof: Certificate, reference: Reference) -> None:
    """The certified primal is the objective at the weights, or (relaxed) bounds it from above."""
    own = reference.value(w)
    if proof.status == "bound":
        assert own <= proof.primal + 1e-7 * (1 + abs(own))
    else:
        assert own == pytest.approx(proof.primal, rel=1e-9, abs=1e-11)


def for_drawn(case: Case, test: Callable[[Recipe], None], share: float = 1.0) -> None:
    """Try drawn problems and the corners; those refused are refused with a sentence."""

    def one(recipe: Recipe) -> None:
        problem = case.build(recipe)
        if case.solver.refuses(problem) is None:
            test(recipe)
            return
        with pytest.raises(UnsupportedError, match=f"{case.solver.name}.*these do: "):
            choose(problem, case.solver)

    wanted = max(2, round(share * DRAWN[case.family.kind]))
    drawn = settings(max_examples=wanted)(given(recipes(case.family.fewest))(one))
    # Networks know no penalties, masks or costs, and prove nothing.
    for corner in CORNERS[:4] if case.family.kind == "deep" else CORNERS:
        drawn = example(corner)(drawn)
    drawn()


# ---- the optimum, and what is said on the way


@every_case
def test_every_row_of_the_trace_encloses_the_optimum(case: Case) -> None:
    def test(recipe: Recipe) -> None:
        problem, reference = case.build(recipe), case.reference(recipe)
        fit = solve(problem, case.solver)
        check_trace(fit, reference)
        assert fit.weights.shape == (problem.dimension,)
        check_weights(fit.weights, fit.certificate, reference)

    for_drawn(case, test)


@every_case
def test_the_certificate_is_true_at_every_step(case: Case) -> None:
    def test(recipe: Recipe) -> None:
        problem, reference, solver = case.build(recipe), case.reference(recipe), case.solver
        rng, state = np.random.default_rng(recipe.seed), solver.init(problem)
        for turn in range(9):
            proof = solver.certify(problem, state)
            check(proof.primal, proof.dual, reference)
            assert proof.status == expected_status(case)
            if not case.relaxed or turn % 4 == 0:
                check_weights(solver.weights(problem, state), proof, reference)
            info = solver.step(problem, state, rng)
            assert info.epochs >= 0 and info.oracle_calls >= 0
            if info.certificate is not None:
                check(info.certificate.primal, info.certificate.dual, reference)

    for_drawn(case, test, 0.5)


def expected_status(case: Case) -> str:
    if case.family.kind == "deep":
        return "none"
    return "bound" if case.relaxed else "exact"


@every_case
def test_the_optimum_is_reached_to_the_precision_that_is_promised(case: Case) -> None:
    def test(recipe: Recipe) -> None:
        problem = case.build(recipe)
        # Where nothing is promised, that all it says is true is tried above.
        if recipe.C > 3 or np.isinf(precision(problem, case.solver)):
            return
        fit = solve_well(problem, case.solver)
        optimum, reached = case.reference(recipe).bracket[1], fit.certificate.primal
        assert reached - optimum <= precision(problem, case.solver) * (1e-3 + reached)

    for_drawn(case, test, 0.4)


@every_case
def test_an_estimate_is_of_the_size_of_the_true_gap(case: Case) -> None:
    problem, solver = case.build(ORDINARY), case.solver
    rng, state, ratios = np.random.default_rng(0), solver.init(problem), []
    for _ in range(20):
        info = solver.step(problem, state, rng)
        gap = solver.certify(problem, state).gap
        if np.isfinite(info.estimate) and gap > 1e-9:
            ratios.append(info.estimate / gap)
    if ratios:
        # Too small, and certificates are made in vain; a gap that was seen some time ago is larger.
        assert 0.02 < np.median(ratios) < 1000


@every_case
def test_no_examples_and_one_are_problems_too(case: Case) -> None:
    if case.family.fewest > 0:
        with pytest.raises(DataError, match="examples"):
            case.build(ORDINARY, examples=0)
    else:
        fit = solve(case.build(ORDINARY, examples=0), case.solver)
        assert fit.converged
        assert not fit.weights.any()
        assert fit.certificate.primal == 0
    check_trace(solve(case.build(ORDINARY, examples=1), case.solver),
                case.reference(ORDINARY, examples=1))  # fmt: skip


# ---- the same answer again


@every_case
@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_bits_also_after_pickling(case: Case, threads: int) -> None:
    if threads > 1 and not case.family.takes_threads:
        return
    again = pickle.loads(pickle.dumps(case.solver))
    one, two = (
        solve(case.build(ORDINARY, threads=threads), s, max_epochs=10, random_state=5)
        for s in (case.solver, again)
    )
    assert one.weights.tobytes() == two.weights.tobytes()
    assert one.certificate == two.certificate


@every_case
def test_solver_and_problem_are_left_as_they_were(case: Case) -> None:
    problem = case.build(ORDINARY)
    solve(problem, case.solver, max_epochs=2)  # what is only computed when asked for is now there
    before = {name: pickle.dumps(value) for name, value in vars(problem).items()}
    solve(problem, case.solver, max_epochs=5)
    for name, value in vars(problem).items():
        assert pickle.dumps(value) == before[name], name
    assert case.solver == type(case.solver)()


@every_solver
def test_a_solver_is_frozen_hashable_and_survives_pickling(solver: Solver) -> None:
    again = pickle.loads(pickle.dumps(solver))
    assert again == solver and hash(again) == hash(solver)
    with pytest.raises(AttributeError):
        solver.name = "another"  # type: ignore[misc]


# ---- starting from somewhere


@every_case
def test_a_warm_start_at_the_optimum_ends_soon(case: Case) -> None:
    problem = case.build(ORDINARY)
    cold = solve_well(problem, case.solver)
    warm = solve_well(problem, case.solver, warm=cold.state, random_state=1)
    check_trace(warm, case.reference(ORDINARY))
    if cold.converged:
        assert warm.converged
        # A solver may certify itself after some passes only, or smooth anew at first; checks are
        # some passes apart.
        assert warm.epochs <= 10 + 1.5 * cold.epochs


@every_case
@pytest.mark.parametrize("C", [0.1, 3.0])
def test_a_warm_start_from_another_C_is_as_good_as_a_cold_one(case: Case, C: float) -> None:
    warm = solve(case.build(ORDINARY, C=C), case.solver).state
    fit = solve_well(case.build(ORDINARY), case.solver, warm=warm)
    check_trace(fit, case.reference(ORDINARY))


@every_case
def test_a_warm_start_with_more_examples_is_taken_or_rejected(case: Case) -> None:
    few = solve(case.build(ORDINARY, first=3), case.solver).state
    whole = case.build(ORDINARY)
    try:
        begin(case.solver, whole, few)
    except DataError as error:
        assert str(error).startswith("a warm start needs")
        return
    fit = solve_well(whole, case.solver, warm=few)
    check_trace(fit, case.reference(ORDINARY))
    check_weights(fit.weights, fit.certificate, case.reference(ORDINARY))


@every_case
@pytest.mark.parametrize("seen", [False, True])
def test_a_state_comes_back_from_its_arrays_and_goes_on(case: Case, seen: bool) -> None:
    recipe, solver = ORDINARY._replace(seen=seen), case.solver
    problem, rng = case.build(recipe), np.random.default_rng(0)
    state = solver.init(problem)
    for _ in range(4):
        solver.step(problem, state, rng)
    arrays = {name: np.array(part) for name, part in solver.pack(state).items()}
    again = solver.unpack(problem, pickle.loads(pickle.dumps(arrays)))
    np.testing.assert_allclose(
        solver.weights(problem, again), solver.weights(problem, state), rtol=1e-9, atol=1e-10
    )
    solver.step(problem, again, rng)
    proof = solver.certify(problem, again)
    check(proof.primal, proof.dual, case.reference(recipe))
    check_weights(solver.weights(problem, again), proof, case.reference(recipe))


@every_case
@pytest.mark.parametrize("passes", [2, 3])
def test_a_checkpoint_of_another_C_proves_nothing_wrong(case: Case, passes: int) -> None:
    solver, strengths = case.solver, (5.0, 0.01)
    for C, other in (strengths, strengths[::-1]):
        state = solve(case.build(ORDINARY, C=C), solver, tol=0, max_epochs=passes).state
        problem, reference = case.build(ORDINARY, C=other), case.reference(ORDINARY, C=other)
        again = solver.unpack(problem, solver.pack(state))
        for _ in range(2):
            proof = solver.certify(problem, again)
            check(proof.primal, proof.dual, reference)
            check_weights(solver.weights(problem, again), proof, reference)
            solver.step(problem, again, np.random.default_rng(0))


@every_case
def test_a_checkpoint_is_written_and_resumed(case: Case, tmp_path: Any) -> None:
    problem, path = case.build(ORDINARY), tmp_path / "run.ckpt"
    files = {"checkpoint": path, "checkpoint_seconds": 0}
    first = solve(problem, case.solver, max_epochs=3, tol=-np.inf, **files)
    assert path.exists()
    fit = solve_well(problem, case.solver, resume=True, **files)
    assert fit.epochs >= first.epochs
    check_trace(fit, case.reference(ORDINARY))


@every_case
def test_a_checkpoint_of_another_solver_is_rejected(case: Case, tmp_path: Any) -> None:
    problem, path = case.build(ORDINARY), tmp_path / "run.ckpt"
    arrays = case.solver.pack(case.solver.init(problem))
    write_arrays(path, arrays, {"kind": "checkpoint", "solver": "another", "epochs": 1.0})
    with pytest.raises(DataError, match="of solver 'another'"):
        solve(problem, case.solver, checkpoint=path, resume=True)


@every_case
def test_arrays_of_other_data_are_rejected(case: Case) -> None:
    one = case.build(Recipe(5, examples=5))
    state = case.solver.init(one)
    case.solver.step(one, state, np.random.default_rng(0))
    for recipe in (Recipe(6, examples=5), Recipe(6, examples=2, size=4, variant=1)):
        with pytest.raises(DataError, match=r"other data: its .* differ"):
            unpack_same(case.solver, case.build(recipe), case.solver.pack(state), one.fingerprint())
    with pytest.raises(DataError, match="other data"):
        case.solver.unpack(case.build(recipe), case.solver.pack(state))


# ---- stopping


@every_case
def test_ctrl_c_returns_what_there_is_with_a_true_certificate(case: Case) -> None:
    rows = []

    def interrupt(row: dict[str, float]) -> None:
        rows.append(row)
        if len(rows) == 1:
            raise KeyboardInterrupt

    fit = solve(case.build(ORDINARY), case.solver, tol=-np.inf, callback=interrupt)
    assert fit.interrupted and not fit.converged
    reference = case.reference(ORDINARY)
    check_trace(fit, reference)
    check_weights(fit.weights, fit.certificate, reference)


@every_case
def test_limits_are_kept(case: Case) -> None:
    problem, solver = case.build(ORDINARY), case.solver
    short = solve(problem, solver, tol=-np.inf, max_epochs=2)
    # No step is made once there were two passes.
    rng, state, passes, finished = np.random.default_rng(0), solver.init(problem), 0.0, False
    while passes < 2 - 1e-9 and not finished:
        info = solver.step(problem, state, rng)
        passes, finished = passes + info.epochs, info.finished
    assert short.epochs == pytest.approx(passes)
    at_once = solve(problem, solver, max_seconds=0.0)
    assert at_once.epochs == 0
    check_trace(at_once, case.reference(ORDINARY))


# ---- what cannot be done


@every_solver
def test_other_kinds_and_losses_are_refused_with_those_that_work(solver: Solver) -> None:
    for family in FAMILIES:
        problem = family.build(ORDINARY)
        if family.loss in solver.capabilities.losses.get(family.kind, ()):
            continue
        fit = [s.name for s in registered(family.kind) if s().refuses(problem) is None]
        with pytest.raises(UnsupportedError, match=f"'{solver.name}'") as error:
            choose(problem, solver)
        assert str(error.value).endswith(f"these do: {', '.join(fit)}")
        if family.kind in solver.capabilities.losses:
            assert f"not {family.loss}" in str(error.value)
            continue
        assert f"does not work on a {family.kind} problem" in str(error.value)
        if all(solver.name != s.name for s in registered(family.kind)):
            with pytest.raises(UnsupportedError, match=r"does not work on.*these do: "):
                get(solver.name, family.kind)


@every_case
def test_a_state_that_does_not_fit_is_refused_before_it_is_made(case: Case) -> None:
    problem, solver = case.build(ORDINARY), case.solver
    needed = solver.memory(problem)
    assert needed >= 8 * problem.dimension
    packed = solver.pack(solver.init(problem))
    assert needed >= 0.9 * sum(np.asarray(part).nbytes for part in packed.values()) - 512
    assert choose(problem, solver, max_memory=needed).solver is solver
    with pytest.raises(UnsupportedError, match=r"GiB for its state"):
        choose(problem, solver, max_memory=needed / 2)


# ---- the registry and the choice


@every_family
def test_a_solver_is_chosen_for_every_kind_and_loss_and_it_is_said_why(family: Family) -> None:
    choice = choose(family.build(ORDINARY), "auto")
    assert family.loss in choice.solver.capabilities.losses[family.kind]
    first = choice.explanation.splitlines()[0]
    assert first.startswith(f"{choice.solver.name}: ") and first.endswith(".")
    if choice.fallback is not None:
        assert family.loss in choice.fallback.capabilities.losses[family.kind]


def test_every_kind_and_loss_of_a_solver_is_tried() -> None:
    kinds = [
        (s, k) for s in EVERY for k in s.capabilities.losses if k != "shards"
    ]  # test_training_on_disk
    promised = {(k, loss, s.name) for s, k in kinds for loss in s.capabilities.losses[k]}
    tried = {(c.family.kind, c.family.loss, c.solver.name) for c in CASES}
    assert promised == tried


def test_names_are_keys_of_the_registry_for_each_kind() -> None:
    for kind in {kind for s in EVERY for kind in s.capabilities.losses}:
        names = [s.name for s in registered(kind)]
        assert len(set(names)) == len(names)
        assert all(get(s.name, kind) == s() for s in registered(kind))


def test_an_unknown_solver_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match=r"'simplex'.*auto.*sag.*sdca"):
        get("simplex")


@every_family
@pytest.mark.parametrize("C", [0.0, -1.0, np.nan])
def test_a_bad_C_is_rejected(family: Family, C: float) -> None:
    if family.kind == "deep":
        return  # which is given lam
    with pytest.raises(DataError, match="C = "):
        family.build(ORDINARY, C=C)


@pytest.mark.skipif(HAS_TORCH, reason="torch is there, and its solvers are tried")
def test_networks() -> None:
    pytest.skip("the extra cliquewise[torch] is not installed: solvers of networks are not tried")


WRONG = (np.nan, np.inf, -np.inf, "nonsense", b"x", [], {}, object(), 1j, np.array([1.0, 2.0]))


@every_solver
def test_hyper_parameters_that_are_no_numbers_or_words_are_rejected(solver: Solver) -> None:
    for field in fields(solver):
        for value in WRONG:
            if field.name == "map_options" and isinstance(value, dict):
                continue
            with pytest.raises(CliquewiseError):
                replace(solver, **{field.name: value})
