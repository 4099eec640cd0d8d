"""What notebooks show: drawn from plain data, every text escaped; and the live bar of a fit."""

from __future__ import annotations

import sys
import types
from html.parser import HTMLParser

import numpy as np
import pytest
from report_cases import HOSTILE, spans_tagger

import cliquewise as cw
from cliquewise import metrics
from cliquewise.report.layout import layout
from cliquewise.solvers import progress


class Reader(HTMLParser):
    """Elements and text of a piece of HTML; elements must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.names, self.open, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        assert not any(key.startswith("on") for key, _ in attributes)
        if name != "br":
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.text += data


def test_a_certificate_is_a_badge_that_says_what_is_proved():
    face = Reader(cw.Certificate(2.0, 1.9, "exact")._repr_html_())
    assert "more than 5 % below" in face.text
    assert "unknown amount" in Reader(cw.Certificate(2.0)._repr_html_()).text


def test_a_trace_is_a_curve_whatever_it_records():
    trace = cw.Trace()
    assert "no values were recorded" in trace._repr_html_()
    trace.append(seconds=1.0, gap=0.5, primal=1.0, dual=float("-inf"))
    trace.append(seconds=2.0, gap=float("nan"))
    trace.append(seconds=3.0, gap=0.01)
    assert "polyline" in Reader(trace._repr_html_()).names
    other = cw.Trace(["steps"])
    other.append(steps=3.0)
    assert "polyline" in Reader(other._repr_html_()).names


@pytest.mark.parametrize("word", HOSTILE)
def test_no_text_of_users_becomes_markup_in_a_notebook(word):
    y = [[word, "b"], ["b", "b"]]
    faces = [metrics.confusion(y, y[::-1])]
    spans = [[f"B-{word}", "O"], ["O", f"B-{word}"]]
    faces.append(metrics.span_scores(spans, spans[::-1]))
    faces.append(cw.FactorGraph([2, 2], [((0, 1), np.eye(2))], names=[word, "other"]))
    tagger = cw.SequenceTagger(max_epochs=1, tol=0.9).fit([[["w=a"]]], [["B-a"]])
    faces.append(tagger.show([[["w=a"]]], tokens=[[word]]))
    for face in faces:
        read = Reader(face._repr_html_())
        assert not {"script", "img", "b"} & set(read.names)
        assert word[:8].replace("\ud800", "?") in read.text
        assert len(read.text) < 3000


def test_predictions_are_marked_up_with_exact_probabilities():
    tagger, X, _ = spans_tagger()
    shown = tagger.show(X[:5])
    spans = [s for found in tagger.predict_spans(X[:5], proba=True) for s in found]
    assert Reader(shown._repr_html_()).names.count("mark") == len(spans) == repr(shown).count("[")
    for s in spans:
        assert f"]{s.type}:{s.probability:.2g}" in repr(shown)


def test_labels_without_spans_are_marked_token_by_token():
    X, y = [[["w=the"], ["w=dog"]]], [["D", "N"]]
    assert repr(cw.SequenceTagger("hinge").fit(X, y).show(X)) == "[the]D [dog]N"


def test_a_drawn_graph_has_a_bar_for_every_variable_and_marks_what_is_observed():
    graph = cw.FactorGraph(
        [2, 3, 2], [((0, 1), np.zeros((2, 3))), ((0, 1, 2), np.zeros((2, 3, 2)))]
    )
    face = Reader(graph.condition({2: 1})._repr_html_())
    assert face.names.count("g") == 3 and face.text.count("(observed)") == 1
    assert "0.333" in face.text
    impossible = cw.FactorGraph([2], [((0,), [-np.inf, -np.inf])])
    assert "no marginals" in Reader(impossible._repr_html_()).text
    assert "<svg" not in cw.FactorGraph([2] * 500)._repr_html_()


def grid_edges(height, width, torus=False):
    """Of nodes that are numbered row by row."""
    number = np.arange(height * width).reshape(height, width)
    pairs = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    if torus:
        pairs += [(number[:, -1], number[:, 0]), (number[-1], number[0])]
    return np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in pairs])


def lengths(places, edges):
    return np.linalg.norm(places[edges[:, 0]] - places[edges[:, 1]], axis=1)


@pytest.mark.parametrize(("height", "width"), [(5, 5), (3, 8), (7, 2), (2, 2)])
def test_a_grid_is_laid_out_as_a_grid_however_it_is_numbered_and_parts_do_not_overlap(
    height, width
):
    n = height * width
    edges = np.random.default_rng(0).permutation(n)[grid_edges(height, width)]
    places, around = layout(2 * n, np.concatenate([grid_edges(height, width), edges + n]))
    assert not around.any()
    assert (lengths(places, edges + n) == 1).all()
    assert places[:n].tolist() == [[v % width, v // width] for v in range(n)] or n == 4
    assert len(np.unique(places, axis=0)) == 2 * n


def test_lines_that_lead_around_a_torus_are_cut():
    edges = grid_edges(4, 6, torus=True)
    places, around = layout(24, edges)
    assert around.sum() == 4 + 6
    assert (lengths(places, edges)[~around] == 1).all()
    assert (lengths(places, edges)[around] > 2).all()
    graph = cw.FactorGraph([2] * 24, [(e, np.zeros((2, 2))) for e in edges.tolist()])
    assert graph._repr_html_().count("stroke-dasharray") == 2 * 10


@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_a_grid_is_not_taken_for_one_and_unfolds(seed):
    """A grid with a hole, and random trees: no two nodes fall together, edges are about as long."""
    rng = np.random.default_rng(seed)
    edges = grid_edges(6, 6)
    hole = edges[~np.isin(edges, [14, 15, 20, 21]).any(axis=1)]
    tree = np.array([(int(rng.integers(max(0, v - 3), v)), v) for v in range(1, 30)])
    for some in (rng.permutation(36)[hole], tree):
        nodes = np.unique(some)
        places, around = layout(len(nodes), np.searchsorted(nodes, some))
        found = lengths(places, np.searchsorted(nodes, some))
        assert not around.any() and found.min() > 0.4 and found.max() < 2.2
        apart = np.linalg.norm(places[:, None] - places[None], axis=2) + 9 * np.eye(len(places))
        assert apart.min() > 0.1
        assert np.array_equal(places, layout(len(nodes), np.searchsorted(nodes, some)).places)


def test_a_turned_grid_with_a_hole_comes_out_level():
    edges = grid_edges(6, 6)
    hole = np.random.default_rng(3).permutation(36)[edges]
    hole = hole[2:]  # no longer complete: found by its distances
    places = layout(36, hole).places
    steps = np.abs(places[hole[:, 0]] - places[hole[:, 1]])
    assert np.median(steps.min(axis=1)) < 0.2 and np.median(steps.max(axis=1)) > 0.7


# ---- the live bar


def fit(**options):
    X = [[["w=a"], ["w=b"]], [["w=b"], ["w=a"]]] * 5
    y = [["A", "B"], ["B", "A"]] * 5
    return cw.SequenceTagger(verbose=True, random_state=0, **options).fit(X, y)


def test_on_a_pipe_a_quick_fit_writes_how_it_began_and_how_it_ended(capsys):
    tagger = fit()
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 3
    assert f"gap {tagger.certificate_.gap:.2e} (target 1e-03)" in lines[-1]
    assert "\r" not in "".join(lines)


def test_a_terminal_has_one_line_that_is_renewed(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    fit()
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and text.count("\r") > 1
    assert "█" * progress.WIDTH in text.rsplit("\r", 1)[1]


def test_a_notebook_has_one_output_that_is_updated(monkeypatch):
    shown = []

    class Handle:
        def update(self, face):
            shown.append(("update", face))

    def display(face, display_id):
        shown.append(("display", face))
        return Handle()

    shell = types.ModuleType("IPython")
    shell.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    view = types.ModuleType("IPython.display")
    view.HTML, view.display = str, display
    for name, module in (("IPython", shell), ("IPython.display", view), ("ipykernel", shell)):
        monkeypatch.setitem(sys.modules, name, module)
    fit()
    assert [kind for kind, _ in shown].count("display") == 1
    assert shown[-1][0] == "update" and "target" in Reader(shown[-1][1]).text


def test_callbacks_are_called_whether_or_not_something_is_shown():
    for verbose in (0, 1):
        rows = []
        X, y = [[["w=a"]], [["w=b"]]], [["A"], ["B"]]
        tagger = cw.SequenceTagger(verbose=verbose, random_state=0).fit(X, y, callback=rows.append)
        assert len(rows) == len(tagger.trace_)
