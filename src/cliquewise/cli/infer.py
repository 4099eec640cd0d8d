"""``cliquewise infer``: answer a query about a graphical model in a file."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cliquewise.cli import debug_option, standard_output
from cliquewise.cli.progress import waiting

if TYPE_CHECKING:
    from cliquewise.graph.factor_graph import FactorGraph
    from cliquewise.oracles.base import Oracle, Question
    from cliquewise.oracles.results import MapResult

#: The method of an oracle for each task.
QUESTION: dict[str, Question] = {
    "MAP": "map",
    "MAR": "marginals",
    "PR": "marginals",
    "MMAP": "map",
    "TOPK": "top_k",
}
given_option = click.option(
    "--given",
    multiple=True,
    metavar="NAME=STATE",
    help="Observe this variable, given by name or number; may be repeated.",
)
#: Seconds between two updates of the live line.
REFRESH = 0.2


@click.command(
    epilog="""\b
    Example: cliquewise infer alarm.bif --task MAR --given SMOKE=True"""
)
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--task",
    type=click.Choice(list(QUESTION), case_sensitive=False),
    default="MAP",
    metavar="[" + "|".join(QUESTION) + "]",
    show_default=True,
    help="Find the best labeling (MAP), marginals (MAR), the partition function (PR), the best "
    "labels of some variables with the others summed out (MMAP), or the K best labelings (TOPK).",
)
@click.option(
    "--query",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Read the variables that MMAP labels from this file: their number, then their indices.",
)
@click.option(
    "--k",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Find this number of labelings with TOPK.",
)
@click.option(
    "--evid",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Read the observed variables from this file; MODEL.evid is not read by default.",
)
@given_option
@click.option(
    "--method", default="auto", show_default=True, metavar="NAME", help="Use this oracle."
)
@click.option(
    "--max-memory",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="Do not use a junction tree that needs more memory than this.",
)
@click.option("--gap", type=click.FloatRange(min=0), help="Stop when the bound is this close.")
@click.option(
    "--rho-updates",
    type=click.IntRange(min=0),
    metavar="N",
    help="Improve the edge probabilities of barrier-fw or trw-bp this number of times.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    help="Stop after this time, and print the best answer so far.",
)
@click.option(
    "--out", metavar="FILE", type=click.Path(dir_okay=False), help="Write the result to this file."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@debug_option
def command(
    model: str,
    task: str,
    query: str | None,
    k: int,
    evid: str | None,
    given: tuple[str, ...],
    method: str,
    out: str | None,
    as_json: bool,
    **limits: Any,
) -> None:
    """Answer a query about MODEL, a UAI, BIF or XMLBIF file (plain, .gz, .xz or .bz2).

    The result has the format of the UAI competitions: "MAP", the number of variables and their
    states; "MAR", the number of variables and, for each, the number of its states and their
    probabilities; "PR" and log10 Z; "MMAP", the number of query variables and, for each, its index
    and its state. TOPK writes a MAP block for each labeling, best first. Variables and states are
    numbered in the order of the file; --json adds their names, if there are any.
    """
    from cliquewise.atomic_files import check_target

    if (task == "MMAP") != (query is not None):
        words = "--task MMAP needs --query" if query is None else "--query belongs to --task MMAP"
        raise click.UsageError(words)
    if out is not None:
        check_target(out, "the result")
    start = time.perf_counter()
    with waiting(f"reading {model}"):
        graph = read_graph(model, evid, given)
        over = None if query is None else _read_query(query, graph)
    if limits["max_memory"] is not None:
        limits["max_memory"] *= 2**30
    if over is None:
        answer = _ask(graph, task, method, k, limits)
    else:
        answer = _ask_over(graph, over, method, limits)
    elapsed = time.perf_counter() - start
    _warn(answer)
    if out is not None:
        _write_result(task, answer, out, over)
    if as_json:
        about = {"model": model, "task": task, "variables": graph.n_variables}
        about |= {"factors": graph.n_factors, "observed": len(graph.evidence)}
        if graph.names is not None:
            about["names"] = graph.names
        if graph.states is not None:
            about["states"] = graph.states
        about |= {"seconds": round(elapsed, 6), **_describe(task, answer, over)}
        click.echo(json.dumps(about, allow_nan=False))
    elif out is None:
        _write_result(task, answer, standard_output(), over)


def read_graph(model: str, evidence: str | None, given: tuple[str, ...] = ()) -> FactorGraph:
    """Read a model, in the format of its file name (UAI by default), and its evidence."""
    graph = _read_model(model, evidence)
    for text in given:
        variable, state = _observed(text, graph)
        graph = graph.condition({variable: state})
    return graph


def _observed(text: str, graph: FactorGraph) -> tuple[int | str, int | str]:
    """Return the variable and the state of ``NAME=STATE``; numbers if there are no names."""
    name, equals, state = map(str.strip, text.rpartition("="))
    if not (name and equals and state):
        raise click.UsageError(f"--given {text!r} is not NAME=STATE")
    by_number = name.isdecimal() and name not in (graph.names or ())
    plain = state.isdecimal() and graph.states is None
    return int(name) if by_number else name, int(state) if plain else state


def _read_model(model: str, evidence: str | None) -> FactorGraph:
    from cliquewise.data.formats.bif import read_bif
    from cliquewise.data.formats.uai import read_uai, read_uai_evidence

    plain = model.lower()
    for packed in (".gz", ".xz", ".bz2"):
        plain = plain.removesuffix(packed)
    if not plain.endswith((".bif", ".xml", ".xmlbif")):
        return read_uai(model, evidence)
    graph = read_bif(model)
    if evidence is None:
        return graph
    by_number = graph.with_names(None).condition(read_uai_evidence(evidence))
    return by_number.with_names(graph.names, graph.states)


def _read_query(query: str, graph: FactorGraph) -> list[int]:
    from cliquewise.data.formats.uai import read_uai_query

    return read_uai_query(query, graph.n_variables)


def _ask_over(
    graph: FactorGraph, over: list[int], method: str, limits: dict[str, Any]
) -> MapResult:
    """Answer a marginal MAP query."""
    given = {name: value for name, value in limits.items() if value is not None}
    if "rho_updates" in given:
        raise click.UsageError("task MMAP takes no --rho-updates")
    with waiting(f"MMAP of {len(over)} of {graph.n_variables} variables"):
        return graph.map(method, over=over, **given)


def _ask(graph: FactorGraph, task: str, method: str, k: int, limits: dict[str, Any]) -> Any:
    """Run inference with the limits that the method takes; others are a usage error."""
    from cliquewise.oracles.planner import ANYTIME_QUESTIONS, choose

    want = QUESTION[task]
    given = {name: value for name, value in limits.items() if value is not None}
    if method == "auto" and want in ANYTIME_QUESTIONS:
        name, known = method, {"seconds", "gap", "max_memory"}
    else:
        oracle = choose(graph.core.graph, want, method, given).oracle
        name, known = oracle.name, _options_of(oracle, want)
    unknown = [name for name in given if name not in known]
    if unknown and not (method == "auto" and unknown == ["max_memory"]):
        option = "--" + unknown[0].replace("_", "-")
        raise click.UsageError(f"method {name!r} takes no {option}")
    options = {name: value for name, value in given.items() if name in known}
    if want == "top_k":
        options["k"] = k
    if "callback" in known:
        with _live_line() as options["callback"]:
            return getattr(graph, want)(method=method, **options)
    with waiting(f"{task} of {graph.n_variables} variables, {graph.n_factors} factors"):
        return getattr(graph, want)(method=method, **options)


@contextmanager
def _live_line() -> Iterator[Callable[[dict[str, float]], None]]:
    """Return a callback that updates a line on the terminal: calls, bound, gap."""
    shown = 0.0

    def show(row: dict[str, float]) -> None:
        nonlocal shown
        if sys.stderr.isatty() and time.perf_counter() - shown >= REFRESH:
            shown = time.perf_counter()
            words = f"{row['oracle_calls']:.0f} MAP calls, log Z at most {row['dual']:.6g}"
            click.echo(f"\r\x1b[2K{words}, gap {row['gap']:.3g}", nl=False, err=True)

    try:
        yield show
    finally:
        if shown:
            click.echo("\r\x1b[2K", nl=False, err=True)


def _options_of(oracle: Oracle, want: Question) -> set[str]:
    """Return the names of the options that an oracle takes for a question."""
    from cliquewise.oracles.options import options_of

    names = options_of(type(oracle), want)
    return set(names) | ({"max_memory"} if "limits" in names else set())


def _write_result(task: str, answer: Any, target: Any, over: list[int] | None) -> None:
    from cliquewise.data.formats import uai_results as results

    if over is not None:
        results.write_uai_mmap({v: int(answer.labels[v]) for v in over}, target)
    elif task == "MAP":
        results.write_uai_map(answer.labels, target)
    elif task == "TOPK":
        results.write_uai_map([a.labels for a in answer], target)
    elif task == "MAR":
        results.write_uai_mar(answer.nodes, target)
    else:
        results.write_uai_pr(answer.log_z, target)


def _warn(answer: Any) -> None:
    """Write to the error stream whether an answer is not proven, and what is known about it."""
    first = answer[0] if isinstance(answer, list) else answer
    if first.exact:
        return
    if hasattr(first, "gap"):
        known = f"its gap is {first.gap:.6g}"
    else:
        known = f"log Z lies in {first.log_z_bounds}"
    click.echo(f"note: {first.method} does not prove this answer exact; {known}", err=True)


def _describe(task: str, answer: Any, over: list[int] | None) -> dict[str, Any]:
    """Return the answer for JSON: natural logarithms, and None for values that are not finite."""
    if task == "TOPK":
        return {
            "method": answer[0].method,
            "exact": all(a.exact for a in answer),
            "labelings": [_labeling(a) for a in answer],
        }
    about = {"method": answer.method, "exact": bool(answer.exact)}
    if over is not None:
        about["query"] = over
    if over is not None or task == "MAP":
        return about | _labeling(answer)
    about |= {
        "log_z": _finite(answer.log_z),
        "log10_z": _finite(answer.log_z / math.log(10.0)),
        "log_z_bounds": [_finite(b) for b in answer.log_z_bounds],
    }
    if task == "MAR":
        about["marginals"] = [node.tolist() for node in answer.nodes]
    return about


def _labeling(answer: Any) -> dict[str, Any]:
    return {
        "labels": answer.labels.tolist(),
        "score": _finite(answer.score),
        "upper_bound": _finite(answer.upper_bound),
        "gap": _finite(answer.gap),
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
