"""HTML displays of a factor graph: a page, and a picture in a notebook."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cliquewise.errors import CliquewiseError
from cliquewise.report import blocks, notebook
from cliquewise.report.blocks import Block
from cliquewise.report.layout import layout
from cliquewise.report.page import number, numbers

if TYPE_CHECKING:
    from cliquewise.graph.factor_graph import FactorGraph

#: Variables of a graph that is drawn, on a page and in a notebook; listed on a page.
MOST_DRAWN, MOST_PICTURED, MOST_LISTED = 600, 60, 5000
#: Entries of the tables of a graph whose marginals a notebook asks for, and seconds for them.
QUICK_ENTRIES, QUICK_SECONDS = 100_000, 1.0
#: Seconds of an exact answer that no limit rules out: answers keep to limits within about so much.
A_MOMENT = 1.0
#: How far a line that leads around a grid reaches beyond its side.
REACH = 0.55
#: States of a variable whose chances are listed.
MOST_STATES = 50


def names_of(graph: FactorGraph) -> list[str]:
    """Return the names of the variables, or their numbers."""
    return list(graph.names or map(str, range(graph.n_variables)))


class Drawn(NamedTuple):
    """Positions of the parts of a drawn graph."""

    places: Any  # of the variables, then of the factors of three or more
    edges: list[tuple[int, int]]
    scopes: list[list[int]]  # of those factors
    around: list[int]  # edges that join opposite sides of a grid: drawn as two ends


def drawn(graph: FactorGraph) -> Drawn:
    """Return positions of variables and of large factors, edges, and their scopes."""
    scopes = [scope for scope, _ in graph.factors]
    edges = sorted({(min(s), max(s)) for s in scopes if len(s) == 2})
    large = [list(s) for s in dict.fromkeys(s for s in scopes if len(s) > 2)]
    n = graph.n_variables
    spokes = [(n + f, v) for f, scope in enumerate(large) for v in scope]
    places, around = layout(n + len(large), [*edges, *spokes])
    return Drawn(places, edges, large, np.flatnonzero(around).tolist())


def lines_of(found: Drawn) -> tuple[list[Any], list[Any]]:
    """Return the line segments: whole edges, and the two ends of wrapped ones."""
    whole, ends, at = [], [], found.places
    cut = set(found.around)
    for i, (a, b) in enumerate(found.edges):
        if i not in cut:
            whole.append((at[a], at[b]))
            continue
        away = REACH * (at[b] - at[a]) / np.linalg.norm(at[b] - at[a])
        ends += [(at[a], at[a] - away), (at[b], at[b] + away)]
    return whole, ends


def picture(graph: FactorGraph) -> str:
    """Return the notebook display of a graph."""
    about = f"<small>{notebook.escaped(repr(graph))}</small>"
    if not 0 < graph.n_variables <= MOST_PICTURED:
        return about
    found = drawn(graph)
    places, large = found.places, found.scopes
    chances, note = quick_chances(graph)
    seen, names = graph.evidence, names_of(graph)
    nodes = [
        notebook.Node(float(places[v, 0]), float(places[v, 1]), names[v], chances[v], v in seen)
        for v in range(graph.n_variables)
    ]
    squares = [(*places[len(nodes) + f].tolist(), scope) for f, scope in enumerate(large)]
    return (
        notebook.network(nodes, *lines_of(found), squares)
        + f"<br>{about}<small>{notebook.escaped(note)}</small>"
    )


def limits(graph: FactorGraph, want: str, **options: Any) -> dict[str, Any]:
    """Drop the option ``seconds`` if an exact answer takes about as long.

    A limit keeps half of itself for bounds; a page is better exact than estimated in that time.
    """
    if "seconds" not in options or options.get("method", "auto") != "auto":
        return options
    core = graph.core.graph
    if graph._planner().choose(core, want).seconds > max(options["seconds"], A_MOMENT):
        return options
    return {name: value for name, value in options.items() if name != "seconds"}


def quick_chances(graph: FactorGraph) -> tuple[list[list[float]], str]:
    """Return the probabilities of all states if they are quickly found, and a caption."""
    none: list[list[float]] = [[] for _ in range(graph.n_variables)]
    if graph.tables.size > QUICK_ENTRIES:
        return none, ""
    try:
        found = graph.marginals(**limits(graph, "marginals", seconds=QUICK_SECONDS))
    except CliquewiseError as error:
        return none, f", no marginals: {error}"
    return [p.tolist() for p in found.nodes], "" if found.exact else ", marginals are estimates"


def graph_sections(graph: FactorGraph, **options: Any) -> list[Block]:
    """Return the sections of the page."""
    marginals = graph.marginals(**limits(graph, "marginals", **options))
    best = graph.map(**limits(graph, "map", **options))
    proof = [_log_z(marginals), _best(best), *_course(marginals)]
    out = [blocks.section("proof", "What is proved", proof)]
    names, seen = names_of(graph), graph.evidence
    if graph.n_variables <= MOST_DRAWN:
        out.append(blocks.section("graph", "The graph", [_network(graph, marginals, best)]))
    shown = range(min(graph.n_variables, MOST_LISTED))
    listed = {
        "kind": "marginals",
        "names": [names[v] for v in shown],
        "states": _states(graph, len(shown)),
        "chances": [numbers(marginals.nodes[v][:MOST_STATES], 4) for v in shown],
        "seen": [v for v in seen if v < len(shown)],
        "best": best.labels[: len(shown)].tolist(),
    }
    note = "" if marginals.exact else f"Estimates by {marginals.method}, not exact."
    if graph.n_variables > len(shown):
        note += f" The first {len(shown):,} of {graph.n_variables:,} variables."
    out.append(blocks.section("marginals", "Marginals", [listed], note))
    words = [("marginals and log Z", "marginals"), ("best labeling", "map")]
    why = []
    for what, want in words:
        why += [blocks.text(f"Methods for {what}, and which one is taken:")]
        why += [blocks.text(graph.explain(want), plain=True)]
    return [*out, blocks.section("model", "The model", [_sizes(graph), *why])]


def _log_z(found: Any) -> Block:
    low, high = found.log_z_bounds
    facts = [("log Z", _shown(found.log_z)), ("log10 Z", _shown(found.log_z / math.log(10)))]
    if found.exact:
        return blocks.badge(
            "proved", f"log Z = {_shown(found.log_z)}",
            f"Computed exactly by {found.method}, as are all marginals; only rounding is left.",
            [*facts, ("rounding at most", f"{found.rounding:.2g}")],
        )  # fmt: skip
    sure = all(found.bounds_certified) and math.isfinite(high - low)
    sentence = (
        f"log Z lies between {_shown(low)} and {_shown(high)}: proved. The marginals are estimates."
        if sure
        else "log Z and the marginals are estimates; not both bounds are proved."
    )
    facts += [("lower bound", _shown(low)), ("upper bound", _shown(high)), ("method", found.method)]
    return blocks.badge(
        "bounded" if sure else "open", f"log Z is about {_shown(found.log_z)}", sentence, facts
    )


def _best(best: Any) -> Block:
    facts = [("score", _shown(best.score)), ("upper bound", _shown(best.upper_bound))]
    facts.append(("method", best.method))
    if best.exact:
        sentence = "No labeling scores higher than the one with stars here."
        return blocks.badge("proved", "Best labeling proved", sentence, facts)
    bounded = math.isfinite(best.gap)
    sentence = (
        f"No labeling scores more than {best.gap:.4g} higher than the one with stars here: proved."
        if bounded
        else "Another labeling may score higher, by an amount that nobody knows."
    )
    return blocks.badge(
        "bounded" if bounded else "open", "Best labeling not proved", sentence, facts
    )


def _course(found: Any) -> list[Block]:
    """Plot the bounds of log Z over time, if the method records them."""
    trace = found.trace
    columns = () if trace is None else trace.columns
    lines = [n for n in ("upper", "lower") if n in columns]
    if trace is None or len(trace) < 2 or "seconds" not in columns or not lines:
        return []
    named = [(f"{name} bound", trace[name].tolist()) for name in lines]
    return [blocks.curves("Bounds of log Z", [("seconds", trace["seconds"].tolist())], named)]


def _network(graph: FactorGraph, marginals: Any, best: Any) -> Block:
    places, edges, large, around = drawn(graph)
    n, names = graph.n_variables, names_of(graph)
    return {
        "kind": "network",
        "places": numbers(np.round(places, 3)),
        "n": n,
        "names": names,
        "edges": [list(e) for e in edges],
        "around": around,
        "scopes": large,
        "chances": [numbers(marginals.nodes[v][:MOST_STATES], 4) for v in range(n)],
        "states": _states(graph, n),
        "seen": list(graph.evidence),
        "best": best.labels.tolist(),
    }


def _states(graph: FactorGraph, n: int) -> list[list[str]] | None:
    found = graph.states
    return None if found is None else [list(found[v][:MOST_STATES]) for v in range(n)]


def _sizes(graph: FactorGraph) -> Block:
    orders = np.diff(graph.structure.scope_offsets)
    rows = [
        ["variables", f"{graph.n_variables:,}"],
        ["observed", f"{len(graph.evidence):,}"],
        ["states of a variable, at most", f"{int(graph.cardinalities.max(initial=0)):,}"],
        ["factors", f"{graph.n_factors:,}"],
        ["variables of a factor, at most", f"{int(orders.max(initial=0)):,}"],
        ["entries of all tables", f"{graph.tables.size:,}"],
        ["of them forbidden", f"{int(np.isneginf(graph.tables).sum()):,}"],
    ]
    return blocks.table("Sizes", [("of", "text"), ("is", "text")], rows)


def _shown(value: float) -> str:
    rounded = number(value, 8)
    return str(value) if rounded is None else f"{rounded:.8g}"
