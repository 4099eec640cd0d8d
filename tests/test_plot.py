"""cw.plot: what is drawn is what was computed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.errors import DataError, MissingDependencyError

matplotlib = pytest.importorskip("matplotlib", reason="the extra cliquewise[report] is missing")
from matplotlib.colors import to_hex, to_rgba  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

X = [[["w=Anna"], ["w=sees"], ["w=Rome"]], [["w=Rome"], ["w=sleeps"]]] * 3
Y = [["B-PER", "O", "B-LOC"], ["B-LOC", "O"]] * 3


@pytest.fixture(scope="module")
def tagger():
    return cw.SequenceTagger(
        transitions="BIO", forbidden_transitions=[("O", "O")], random_state=0
    ).fit(X, Y)


@pytest.fixture
def ax():
    """Axes of a figure that pyplot does not know of."""
    return Figure().subplots()


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def trace_of(*rows):
    trace = cw.Trace()
    for seconds, primal, dual in rows:
        trace.append(seconds=seconds, epochs=2 * seconds, primal=primal, dual=dual,
                     gap=(primal - dual) / primal)  # fmt: skip
    return trace


# ---- courses

ONE, TWO = trace_of((1, 4, 1), (2, 3, 2.5), (3, 3, 3)), trace_of((1, 5, 2), (2, 3.5, 2.9))


def test_runs_are_drawn_in_their_own_colors_styles_and_markers(ax):
    assert cw.plot.convergence({"sdca": ONE, "lbfgs": TWO}, x="passes", target=1e-3, ax=ax) is ax
    first, second, target = ax.get_lines()
    np.testing.assert_allclose(first.get_xdata(), [2, 4])  # a gap of zero has no logarithm
    np.testing.assert_allclose(first.get_ydata(), [0.75, 1 / 6])
    np.testing.assert_allclose(second.get_ydata(), [0.6, 0.6 / 3.5])
    for look in ("get_color", "get_linestyle", "get_marker"):
        assert getattr(first, look)() != getattr(second, look)()
    assert ax.get_yscale() == "log" and target.get_ydata()[0] == 1e-3
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["sdca", "lbfgs", "tolerance"]


def test_suboptimality_is_measured_from_the_best_bound_of_all_runs(ax):
    cw.plot.convergence([ONE, TWO], y="suboptimality", ax=ax)
    first, second = ax.get_lines()
    np.testing.assert_allclose(first.get_ydata(), [1.0])
    np.testing.assert_allclose(second.get_ydata(), [2.0, 0.5])


def test_seeds_under_one_name_look_alike_and_count_once_in_the_legend(ax):
    cw.plot.convergence({"a": [ONE, TWO], "b": TWO}, y="primal", ax=ax)
    lines = ax.get_lines()
    assert len({line.get_color() for line in lines[:2]}) == 1 != len({*map(id, lines)})
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b"]


def test_an_estimator_columns_and_bounds_of_ln_z_have_a_course(tagger, ax):
    line = cw.plot.convergence(tagger, ax=ax).get_lines()[0]
    assert set(line.get_ydata()) <= set(tagger.trace_.gap)
    columns = {"seconds": [1.0], "upper": [2.0], "lower": [1.0]}
    for run in (cw.Trace(columns), columns):
        own = cw.plot.convergence(run, ax=Figure().subplots())
        assert len(own.get_lines()) == 2 and own.get_ylabel() == "bounds of ln Z"
    both = cw.plot.convergence(ONE, y=("primal", "dual"), ax=Figure().subplots())
    assert [list(one.get_ydata()) for one in both.get_lines()] == [[4, 3, 3], [1, 2.5, 3]]


def test_an_empty_trace_gives_empty_axes_and_other_things_our_error(ax):
    assert len(cw.plot.convergence(cw.Trace(), ax=ax).get_lines()[0].get_xdata()) == 0
    assert len(cw.plot.convergence({"a": cw.Trace(), "b": ONE}, ax=ax).get_lines()) == 3
    assert cw.plot.convergence([], ax=ax) is ax
    with pytest.raises(DataError, match="no course"):
        cw.plot.convergence(cw.SequenceTagger(), ax=ax)
    with pytest.raises(DataError, match="'accuracy'"):
        cw.plot.convergence(ONE, y="accuracy", ax=ax)


def test_a_path_is_one_line_per_share_of_the_l1_norm(ax):
    start = cw.SequenceTagger(random_state=0)
    path = cw.regularization_path(start, X, Y, [1.0, 0.2], l1_ratios=[0.1, 1.0])
    cw.plot.regularization_path(path, ax=ax)
    for line, models in zip(ax.get_lines(), (path[:2], path[2:]), strict=True):
        assert list(line.get_xdata()) == [0.2, 1.0]
        assert list(line.get_ydata()) == [models[1].n_nonzero_, models[0].n_nonzero_]
    scores = cw.plot.regularization_path(path[:1], X, Y, ax=Figure().subplots()).get_lines()[0]
    assert scores.get_ydata()[0] == path[0].score(X, Y)
    with pytest.raises(DataError, match="empty"):
        cw.plot.regularization_path([], ax=ax)
    with pytest.raises(DataError, match="X and y"):
        cw.plot.regularization_path(path, of="score", ax=ax)


# ---- models


def test_transitions_are_the_weights_and_impossible_ones_are_crossed_out(tagger, ax):
    assert cw.plot.transitions(tagger, ax=ax) is ax
    assert ticks(ax.yaxis) == ticks(ax.xaxis) == tagger.classes_
    drawn = ax.images[0].get_array().filled(np.nan)
    at = {label: i for i, label in enumerate(tagger.classes_)}
    for (a, b), weight in tagger.transition_features_.items():
        assert drawn[at[a], at[b]] == weight
    o = at["O"]
    assert [line.get_xydata().tolist() for line in ax.get_lines()] == [[[o, o]]]
    assert np.isnan(drawn).sum() == 1
    assert ax.images[0].norm.vmin == -ax.images[0].norm.vmax


def test_weights_are_those_of_top_features_and_signs_differ_in_hatch(tagger, ax):
    cw.plot.weights(tagger, "O", n=4, ax=ax)
    names, values = zip(*tagger.top_features("O", 4)["O"])
    assert ticks(ax.yaxis) == list(names)
    assert [bar.get_width() for bar in ax.patches] == list(values)
    assert all((bar.get_hatch() == "///") == (bar.get_width() < 0) for bar in ax.patches)
    every = cw.plot.weights(tagger, n=3, ax=Figure().subplots())
    top = max((w for listed in tagger.top_features().values() for _, w in listed), key=abs)
    assert every.patches[0].get_width() == top and ": " in ticks(every.yaxis)[0]
    with pytest.raises(DataError, match="not a class"):
        cw.plot.weights(tagger, "X", ax=ax)


def test_confusions_show_counts_and_shares_of_rows(ax):
    truth, own = [["a", "b", "b", "b"], ["c"]], [["a", "b", "a", "b"], ["c"]]
    cw.plot.confusion(truth, own, ax=ax)
    assert [t.get_text() for t in ax.texts] == ["1", "0", "0", "1", "2", "0", "0", "0", "1"]
    np.testing.assert_allclose(ax.images[0].get_array()[1], [1 / 3, 2 / 3, 0])
    again = cw.plot.confusion(cw.metrics.confusion(truth, own), ax=Figure().subplots())
    assert ticks(again.xaxis) == ["a", "b", "c"]


def test_of_many_labels_the_most_confused_are_drawn(ax):
    labels = [f"${i}_^" for i in range(60)]  # a dollar is no mathematics
    cw.plot.confusion([labels], [labels[:-2] + labels[:-3:-1]], ax=ax)
    assert "40 of 60" in ax.get_title() and len(ticks(ax.xaxis)) == 40 and not ax.texts
    assert r"\$58_^" in ticks(ax.xaxis)
    ax.figure.canvas.draw()


def test_calibration_draws_the_bins_of_tokens_of_spans_and_of_any_predictions(tagger, ax):
    right = np.arange(20) % 4 != 0
    cw.plot.calibration(np.full(20, 0.9), right, ax=ax)
    np.testing.assert_allclose([*ax.get_lines()[1].get_xydata()[0]], [0.9, 0.75])
    assert "0.150, 20 predictions" in ax.get_title()
    for spans, n in ((False, "15 tokens"), (True, "9 spans")):
        own = cw.plot.calibration(tagger, X, Y, spans=spans, ax=Figure().subplots())
        assert n in own.get_title()
    hinge = cw.SequenceTagger("hinge", random_state=0).fit(X, Y)
    with pytest.raises(DataError, match="not probabilities"):
        cw.plot.calibration(hinge, X, Y, ax=ax)
    with pytest.raises(DataError, match="one probability"):
        cw.plot.calibration([0.5, 1.5], [True, False], ax=ax)


# ---- graphs


def test_a_graph_is_drawn_with_its_chances_names_evidence_and_large_factors(ax):
    rng = np.random.default_rng(0)
    scopes = [(0, 1), (1, 2), (1, 2, 3)]
    cards = [2, 3, 2, 2]
    factors = [(s, rng.normal(size=[cards[v] for v in s])) for s in scopes]
    g = cw.FactorGraph(cards, factors, names=list("abcd")).condition({"a": 1})
    found = g.marginals()
    assert cw.plot.graph(g, marginals=found, ax=ax) is ax
    lines, squares, _, boxes, frames = ax.collections
    assert len(lines.get_segments()) == 2 + 3 and len(squares.get_offsets()) == 1
    widths = [np.ptp(path.vertices[:, 0]) for path in boxes.get_paths()]
    np.testing.assert_allclose(widths, 0.6 * np.concatenate(found.nodes), atol=1e-12)
    assert frames.get_linewidths()[0] > frames.get_linewidths()[1]
    assert [t.get_text() for t in ax.texts] == list("abcd")
    automatic = cw.plot.graph(g, ax=Figure().subplots()).collections[3]
    assert len(automatic.get_paths()) == 9
    assert not cw.plot.graph(g, marginals=None, ax=Figure().subplots()).collections[3].get_paths()
    with pytest.raises(DataError, match="one array per variable"):
        cw.plot.graph(g, marginals=found.nodes[:-1], ax=ax)


# ---- manners


def test_a_new_figure_is_made_without_axes_and_nothing_global_changes(tagger):
    from matplotlib import pyplot

    before, shown = dict(matplotlib.rcParams), []
    pyplot.show = lambda *a, **k: shown.append(1)
    try:
        made = [cw.plot.transitions(tagger), cw.plot.convergence(tagger)]
    finally:
        del pyplot.show
    assert made[0].figure is not made[1].figure
    assert dict(matplotlib.rcParams) == before and not shown
    for one in made:
        pyplot.close(one.figure)


def test_colors_differ_in_lightness_or_hue_for_the_color_blind():
    """In Viénot's model of protanopia and deuteranopia no two of the cycle fall together."""
    from cliquewise.plot.style import COLORS

    assert len({to_hex(c) for c in COLORS}) == len(COLORS)
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLORS]) ** 2.2
    for kept in ((0.11238, 0.88762, 0.0), (0.29275, 0.70725, 0.0)):
        blind = np.array([kept, kept, (0.00401, -0.00401, 1.0)]) @ rgb.T
        seen = np.clip(blind, 0, 1).T ** (1 / 2.2)
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2) + np.eye(len(seen))
        assert apart.min() > 0.08, apart.round(2)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'cliquewise\[report\]'"):
        cw.plot.confusion([["a"]], [["a"]])


def test_positive_weights_are_blue_and_negative_ones_orange_in_every_plot():
    from cliquewise.plot.style import NEGATIVE, POSITIVE, matrix

    ax = matrix(
        None, np.array([[-1.0, 1.0], [0.0, 0.5]]), "ab", (-1, 1), "", "{}", np.zeros((0, 0))
    )
    image = ax.images[0]
    shades = image.cmap(image.norm(np.array([-1.0, 1.0])))
    colors = [to_rgba(color) for color in (NEGATIVE, POSITIVE)]
    np.testing.assert_allclose(shades, colors, atol=0.01)
    tagger = cw.SequenceTagger(random_state=0).fit([[["a"], ["b"]]] * 3, [["A", "B"]] * 3)
    bars = cw.plot.weights(tagger, "A").patches
    seen = {(bar.get_width() > 0, bar.get_facecolor()) for bar in bars if bar.get_width()}
    assert seen == {(True, colors[1]), (False, colors[0])}
