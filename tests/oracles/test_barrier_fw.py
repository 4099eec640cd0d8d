"""Barrier Frank-Wolfe: bounds that hold at every call, and marginals that are good."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference

from cliquewise._kernels.graphs import barrier_fw as kernels
from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.builders import complete, grid
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._barrier_run import INSIDE
from cliquewise.oracles._trw import problem, start_rho
from cliquewise.oracles.vertex_cover import cover_of

VARIANTS = [
    {"delta": "adaptive"},
    {"delta": 1e-4},
    {"delta": 0},
    {"delta": 0, "correction": False},
    {"delta": "adaptive", "local_search": True},
    {"delta": "adaptive", "polytope": "local"},
]


def clique(n: int, coupling: float, seed: int, states: int = 2) -> FactorGraph:
    rng = np.random.default_rng(seed)
    edges = rng.uniform(-coupling, coupling, (n * (n - 1) // 2, states, states))
    return complete(rng.uniform(-1, 1, (n, states)), edges)


def mixed_graph(seed: int, forbidden: float = 0.0) -> FactorGraph:
    """Cardinalities 1 to 4, a cycle with chords, parallel and flipped factors."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 5, 5)
    scopes = [(v,) for v in range(5)] + [(v, (v + 1) % 5) for v in range(5)]
    scopes += [(2, 0), (0, 2), (3, 1)]
    factors = []
    for scope in scopes:
        table = rng.normal(size=tuple(cards[list(scope)]))
        if len(scope) == 2:
            table[rng.random(table.shape) < forbidden] = -np.inf
        factors.append((scope, table))
    return FactorGraph(cards, factors)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("coupling", [0.5, 2.0, 8.0])
def test_the_bound_holds_at_every_call(options, coupling):
    for seed in range(3):
        graph = clique(7, coupling, seed)
        truth = Reference(graph)
        for updates in (0, 4):
            result = graph.marginals("barrier-fw", rho_updates=updates, max_calls=60, **options)
            assert result.bounds_certified == (True, True)
            assert np.all(result.trace.upper >= truth.log_z - 1e-9)
            assert np.all(result.trace.certified == 1.0)
            assert result.log_z_bounds[0] <= truth.log_z + 1e-9
            assert result.log_z_bounds[1] == result.trace.upper.min() + result.rounding


@given(seed=st.integers(0, 10_000), forbidden=st.sampled_from([0.0, 0.0, 0.2, 0.5]))
@settings(max_examples=30)
def test_any_cardinalities_parallel_factors_and_forbidden_entries(seed, forbidden):
    graph = mixed_graph(seed, forbidden)
    truth = Reference(graph)
    if not truth.feasible:
        with pytest.raises(InfeasibleError):
            graph.marginals("barrier-fw")
        return
    result = graph.marginals("barrier-fw", rho_updates=3, gap=0.05)
    assert np.all(result.trace.upper >= truth.log_z - 1e-9)
    assert result.log_z_bounds[0] <= truth.log_z + 1e-9
    assert result.bounds_certified == (True, True)
    impossible = truth.node_marginals == 0.0
    assert np.all(result.nodes.flat[impossible] == 0.0)
    assert np.abs(result.nodes.flat - truth.node_marginals).max() < 0.35
    for f, (scope, _) in enumerate(graph.factors):
        for axis, v in enumerate(scope):
            other = tuple(a for a in range(len(scope)) if a != axis)
            np.testing.assert_allclose(
                result.factors[f].sum(axis=other), result.nodes[v], atol=1e-9
            )


def test_on_a_tree_the_bound_closes_to_the_truth():
    rng = np.random.default_rng(0)
    graph = FactorGraph.tree([-1, 0, 0, 1, 1], rng.normal(size=(5, 3)), rng.normal(size=(4, 3, 3)))
    truth = graph.marginals("tree")
    result = graph.marginals("barrier-fw", gap=1e-3, max_calls=3000, seconds=30)
    assert truth.log_z - 1e-9 <= result.log_z_bounds[1] <= truth.log_z + 2e-3
    assert np.abs(result.nodes.flat - truth.nodes.flat).max() < 0.03


def test_rho_updates_and_the_marginal_polytope_tighten_the_bound():
    gained, over_local = [], []
    for seed in range(6):
        graph = clique(8, 3.0, seed)
        upper = {}
        for updates in (0, 10):
            found = graph.marginals("barrier-fw", rho_updates=updates, parts=1)
            upper[updates] = found.log_z_bounds[1]
        local = graph.marginals(
            "barrier-fw", polytope="local", rho_updates=0, max_calls=100, parts=1
        )
        gained.append(upper[0] - upper[10])
        over_local.append(local.log_z_bounds[1] - upper[0])
    assert np.mean(gained) > 0.2 and min(gained) > -0.5
    assert np.mean(over_local) > 1.0 and min(over_local) > -0.5


def machine(seed: int) -> FactorGraph:
    """A restricted Boltzmann machine of strong couplings, where trees miss most."""
    rng = np.random.default_rng(seed)
    factors = [((v,), rng.normal(size=2)) for v in range(15)]
    factors += [((i, 7 + j), 2.0 * rng.normal(size=(2, 2))) for i in range(7) for j in range(8)]
    return FactorGraph([2] * 15, factors)


def test_parts_give_tighter_bounds_and_better_marginals_than_any_edge_probabilities():
    errors: dict[int, list[list[float]]] = {1: [], 2: [], 8: []}
    for seed in range(4):
        graph = machine(seed)
        truth = graph.marginals("junction-tree")
        for parts in errors:
            found = graph.marginals("barrier-fw", parts=parts)
            low, high = found.log_z_bounds
            assert low <= truth.log_z <= high and found.bounds_certified == (True, True)
            assert np.all(found.trace.upper >= truth.log_z - 1e-9)
            assert found.info["parts"] >= parts or high - low < 0.5
            wrong = float(np.abs(found.nodes.flat - truth.nodes.flat).mean())
            errors[parts].append([high - truth.log_z, truth.log_z - low, wrong])
            for f, (scope, _) in enumerate(graph.factors):
                for axis, v in enumerate(scope):
                    others = tuple(a for a in range(len(scope)) if a != axis)
                    summed = found.factors[f].sum(axis=others)
                    np.testing.assert_allclose(summed, found.nodes[v], atol=1e-9)
    whole, two, eight = (np.mean(errors[parts], axis=0) for parts in errors)
    assert (eight < two).all() and (two < whole).all()
    assert eight[0] < 0.5 * whole[0]


def test_parts_with_negligible_weight_do_not_break_the_bounds():
    tied = np.array([[2000.0, 0.0], [0.0, 0.0]])
    graph = FactorGraph([2] * 4, [((i, j), tied) for i in range(4) for j in range(i)])
    found = graph.marginals("barrier-fw", parts=4)
    low, high = found.log_z_bounds
    assert low <= 12_000.0 + 1e-6 and high >= 12_000.0 - 1e-6 and high - low < 1.0


def test_parts_without_any_labeling_are_left_out():
    apart = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
    tied = np.array([[0.5, -np.inf], [-np.inf, 0.0]])
    scopes = [((0, 1), tied), ((1, 2), tied), ((0, 2), tied), ((2, 3), apart), ((3, 4), apart),
              ((2, 4), tied), ((0, 4), tied)]  # fmt: skip
    graph = FactorGraph([2] * 5, scopes)
    truth = Reference(graph)
    found = graph.marginals("barrier-fw", parts=8, gap=0.01)
    low, high = found.log_z_bounds
    assert low <= truth.log_z + 1e-9 and truth.log_z - 1e-9 <= high <= truth.log_z + 0.05
    np.testing.assert_allclose(found.nodes.flat, truth.node_marginals, atol=0.03)


def test_the_local_polytope_meets_tree_reweighted_belief_propagation():
    graph = clique(5, 1.0, 3)
    bp = graph.marginals("trw-bp", rho="weighted", tol=1e-10, max_iterations=20_000, damping=0.5)
    assert bp.info["converged"]
    fw = graph.marginals(
        "barrier-fw", polytope="local", rho_updates=0, gap=0.02, max_calls=400, parts=1
    )
    assert fw.info["stopped"] == "gap"
    assert fw.info["primal"] <= bp.log_z + 1e-9
    assert fw.log_z_bounds[1] >= bp.log_z - 1e-9
    assert np.abs(fw.nodes.flat - bp.nodes.flat).max() < 0.1


def test_the_slope_of_the_line_search_is_the_derivative():
    p = problem(clique(5, 2.0, 1), None)
    coef = p.coefficients(start_rho(p.pairwise))
    labels = np.array([[0, 1, 1, 0, 1]], dtype=np.int32)
    vertex = np.zeros_like(p.theta)
    none = np.zeros((0, len(p.theta)))
    hull = kernels.Hull(labels, none, 1, p.inner)
    kernels.add_vertex(0, 1.0, vertex, hull, p.pairwise.arrays)
    d = vertex - p.inner

    def value(step):
        return kernels.gradient(p.inner + step * d, p.theta, coef, np.empty_like(d))

    for step in (0.0, 0.3, 0.8):
        first, second = kernels.slopes(p.inner, d, step, coef, p.theta @ d)
        h = 1e-5
        assert first == pytest.approx((value(step + h) - value(step - h)) / (2 * h), abs=1e-5)
        up, _ = kernels.slopes(p.inner, d, step + h, coef, p.theta @ d)
        down, _ = kernels.slopes(p.inner, d, step - h, coef, p.theta @ d)
        assert second == pytest.approx((up - down) / (2 * h), rel=1e-4)
    start, _ = kernels.slopes(p.inner, d, 0.0, coef, p.theta @ d)
    best = kernels.line_search(p.inner, d, coef, p.theta @ d, start, 1.0)
    around = [value(s) for s in np.linspace(0.001, 0.999, 400)]
    assert value(best) >= max(around) - 1e-4


def test_the_iterate_is_the_mixture_that_its_weights_say():
    graph = clique(6, 2.0, 0)
    seen = []
    result = graph.marginals("barrier-fw", parts=1, callback=lambda row: seen.append(row) and False)
    assert len(seen) == len(result.trace) == result.info["map_calls"]
    assert [row["upper"] for row in seen] == result.trace.upper.tolist()
    assert np.all(np.diff(result.trace.dual) <= 0)
    assert np.all(np.diff(result.trace.delta) <= 0)


def test_an_approximate_map_method_gives_a_certified_bound_through_its_own():
    for method in ("icm", "trw-s", "portfolio"):
        for seed in range(3):
            graph = clique(7, 3.0, seed)
            truth = Reference(graph)
            result = graph.marginals("barrier-fw", map_method=method, rho_updates=2, max_calls=40)
            assert np.all(result.trace.upper >= truth.log_z - 1e-9), method
            assert result.bounds_certified == (True, True)
            assert result.info["map_method"] == method


def test_auto_lists_the_smaller_layer_of_a_restricted_boltzmann_machine():
    rng = np.random.default_rng(0)
    pairs = [(i, 8 + j) for i in range(8) for j in range(12)]
    factors = [((v,), rng.normal(size=2)) for v in range(20)]
    factors += [(pair, rng.normal(size=(2, 2))) for pair in pairs]
    graph = FactorGraph([2] * 20, factors)
    cover = cover_of(graph.structure)
    assert sorted([*cover.inner, *cover.outer]) == list(range(8))
    result = graph.marginals("barrier-fw", rho_updates=1)
    assert result.info["map_method"] == "vertex-cover"
    assert result.log_z_bounds[1] >= graph.marginals("junction-tree").log_z - 1e-9


def test_a_wide_graph_gets_marginals_from_auto():
    rng = np.random.default_rng(0)
    side = 40
    graph = grid(
        rng.normal(size=(side, side, 2)),
        rng.normal(size=(side - 1, side, 2, 2)),
        rng.normal(size=(side, side - 1, 2, 2)),
    )
    assert graph.explain("marginals").startswith("anytime: ")
    options = {"max_iterations": 20, "rounds": 1}
    result = graph.marginals(
        "barrier-fw", rho_updates=0, max_calls=3, map_method="portfolio", map_options=options
    )
    low, high = result.log_z_bounds
    assert low <= result.log_z <= high and result.bounds_certified == (True, True)
    assert len(result.trace) == 3


# ---- bad input and limits


def test_no_time_still_gives_true_bounds():
    graph = clique(6, 2.0, 0)
    truth = Reference(graph)
    for options in ({"seconds": 0}, {"max_calls": 0}):
        result = graph.marginals("barrier-fw", **options)
        low, high = result.log_z_bounds
        assert low - 1e-9 <= truth.log_z <= high + 1e-9
        assert len(result.trace) == 0
        np.testing.assert_allclose(result.nodes.flat, 0.5)


def test_a_wanted_gap_of_zero_ends_all_the_same():
    result = clique(5, 2.0, 0).marginals("barrier-fw", gap=0, rho_updates=1, max_calls=300)
    assert result.info["map_calls"] <= 300
    assert result.trace.gap[-1] < 0.3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delta": -0.1}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": "small"}, "adaptive"),
        ({"gap": -1.0}, "gap"),
        ({"gap": float("nan")}, "gap"),
        ({"seconds": -1.0}, "seconds"),
        ({"rho_updates": -1}, "rho_updates"),
        ({"polytope": "cycle"}, "polytope"),
        ({"rho": "best"}, "rho"),
        ({"rho": np.ones(10)}, "spanning-tree"),
        ({"map_method": "nothing"}, "nothing"),
        ({"parts": 0}, "parts"),
        ({"speed": 3}, "speed"),
    ],
)
def test_bad_options_are_errors_that_name_them(options, words):
    with pytest.raises(UnsupportedError, match=words):
        clique(5, 1.0, 0).marginals("barrier-fw", **options)


def test_factors_of_three_variables_are_refused_with_a_way_out():
    graph = FactorGraph([2, 2, 2], [((0, 1, 2), np.zeros((2, 2, 2)))])
    with pytest.raises(UnsupportedError, match="3 variables"):
        graph.marginals("barrier-fw")


def test_single_nodes_disconnected_parts_and_nothing_at_all():
    single = FactorGraph([3], [((0,), [0.0, 1.0, 2.0])]).marginals("barrier-fw", gap=1e-3)
    truth = np.log(np.exp([0.0, 1.0, 2.0]).sum())
    assert truth - 1e-9 <= single.log_z_bounds[1] <= truth + 2e-3
    factors = [((0, 1), [[1.0, 0.0], [0.0, 1.0]]), ((3, 4), [[2.0, 0.0], [0.0, 2.0]])]
    apart = FactorGraph([2] * 6, factors)
    result = apart.marginals("barrier-fw", gap=0.01)
    exact = apart.marginals("tree").log_z
    assert exact - 1e-9 <= result.log_z_bounds[1] <= exact + 0.02
    assert FactorGraph([], []).marginals("barrier-fw").log_z == 0.0
    assert FactorGraph([2], []).marginals("barrier-fw").log_z_bounds[1] >= np.log(2) - 1e-9


def test_ctrl_c_raises_keyboard_interrupt():
    def interrupt(row):
        if row["oracle_calls"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clique(8, 2.0, 0).marginals("barrier-fw", callback=interrupt)


@pytest.mark.parametrize("seed", range(3))
def test_adaptive_contraction_shrinks_without_corrections(seed):
    graph = clique(7, 8.0, seed)
    options = {"correction": False, "parts": 1, "rho_updates": 0, "gap": 0.5}
    result = graph.marginals("barrier-fw", max_calls=300, **options)
    assert result.info["stopped"] == "gap" and result.trace["oracle_calls"][-1] <= 40
    assert result.trace["delta"][-1] < 0.05


def test_a_callback_can_stop_the_run():
    result = clique(8, 2.0, 0).marginals("barrier-fw", callback=lambda row: row["gap"] < 20)
    assert result.info["stopped"] == "callback"
    assert result.trace.gap[-1] < 20 and np.all(result.trace.gap[:-1] >= 20)


def test_the_guard_against_the_boundary_is_small():
    assert 0 < INSIDE <= 1e-8


def test_authors_models_the_bound_holds_and_the_marginals_are_near(data_folder):
    from cliquewise.data.formats.uai import read_uai

    archive = data_folder / "fw_inference" / "Synthetic.tar.xz"
    if not archive.exists():
        pytest.skip(f"{archive} is not there")
    import io
    import tarfile

    wanted = {f"Synthetic/models/{k}.uai" for k in (7, 207, 407, 807)}
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name not in wanted:
                continue
            graph = read_uai(io.BytesIO(tar.extractfile(member).read()))
            truth = graph.marginals("junction-tree")
            result = graph.marginals("barrier-fw")
            assert np.all(result.trace.upper >= truth.log_z - 1e-9)
            assert result.log_z_bounds[1] - truth.log_z < 2.5
            assert np.abs(result.nodes.flat - truth.nodes.flat).mean() < 0.2
