"""``cliquewise infer``: one question about one model file."""

from __future__ import annotations

import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from cliquewise.cli import debug_option
from cliquewise.cli.progress import waiting

if TYPE_CHECKING:
    from cliquewise.graph import FactorGraph

#: The question that each task asks of an oracle.
QUESTION = {"MAP": "map", "MAR": "marginals", "PR": "marginals", "TOPK": "top_k"}


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--task",
    type=click.Choice(list(QUESTION), case_sensitive=False),
    default="MAP",
    metavar="[" + "|".join(QUESTION) + "]",
    show_default=True,
    help="Best labeling, marginals, partition function, or the K best labelings.",
)
@click.option(
    "--k", type=click.IntRange(min=1), default=5, show_default=True, help="Labelings of TOPK."
)
@click.option(
    "--evid",
    type=click.Path(exists=True, dir_okay=False),
    help="Evidence file; MODEL.evid beside the model is not read unless named here.",
)
@click.option("--method", default="auto", show_default=True, help="Oracle that answers.")
@click.option(
    "--max-memory",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GIB",
    help="Refuse a junction tree that needs more.",
)
@click.option("--out", type=click.Path(dir_okay=False, writable=True), help="Result file.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@debug_option
def command(
    model: str,
    task: str,
    k: int,
    evid: str | None,
    method: str,
    max_memory: float | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Answer a question about MODEL, a file in UAI format (.gz, .xz and .bz2 too).

    The result has the format of the UAI competitions: "MAP", then the number of variables
    and their states; "MAR", then the number of variables and, for each, the number of its
    states and their probabilities; "PR", then log10 Z. TOPK writes one MAP block for each
    labeling, best first.
    """
    from cliquewise.data.formats.uai import read_uai

    start = time.perf_counter()
    with waiting(f"reading {model}"):
        graph = read_uai(model, evid)
    with waiting(f"{task} of {graph.n_variables} variables, {graph.n_factors} factors"):
        answer = _ask(graph, QUESTION[task], method, k, max_memory)
    seconds = time.perf_counter() - start
    _warn(answer)
    if out is not None:
        _write_result(task, answer, out)
    if as_json:
        about = {"model": model, "task": task, "variables": graph.n_variables}
        about |= {"factors": graph.n_factors, "observed": len(graph.evidence)}
        about |= {"seconds": round(seconds, 6), **_describe(task, answer)}
        click.echo(json.dumps(about, allow_nan=False))
    elif out is None:
        _write_result(task, answer, sys.stdout)


def _ask(graph: FactorGraph, want: str, method: str, k: int, max_memory: float | None) -> Any:
    from cliquewise.oracles.base import Oracle, choose

    options: dict[str, Any] = {"k": k} if want == "top_k" else {}
    if max_memory is not None:
        limit = {"max_memory": max_memory * 2**30}
        oracle = choose(graph.core.graph, want, method, limit).oracle
        if type(oracle).too_large is not Oracle.too_large:
            options |= limit
        elif method != "auto":
            raise click.UsageError(f"method {method!r} takes no --max-memory")
    return getattr(graph, want)(method=method, **options)


def _write_result(task: str, answer: Any, target: Any) -> None:
    from cliquewise.data.formats import uai_results as results

    if task == "MAP":
        results.write_uai_map(answer.labels, target)
    elif task == "TOPK":
        results.write_uai_map([a.labels for a in answer], target)
    elif task == "MAR":
        results.write_uai_mar(answer.nodes, target)
    else:
        results.write_uai_pr(answer.log_z, target)


def _warn(answer: Any) -> None:
    """Say on the error stream if an answer is not proved, and what is known of it."""
    first = answer[0] if isinstance(answer, list) else answer
    if first.exact:
        return
    if hasattr(first, "gap"):
        known = f"its gap is {first.gap:.6g}"
    else:
        known = f"ln Z lies in {first.log_z_bounds}"
    click.echo(f"note: {first.method} does not prove this answer exact; {known}", err=True)


def _describe(task: str, answer: Any) -> dict[str, Any]:
    """The answer as JSON: natural logarithms, and None for what is not finite."""
    if task == "TOPK":
        return {
            "method": answer[0].method,
            "exact": all(a.exact for a in answer),
            "labelings": [_labeling(a) for a in answer],
        }
    about = {"method": answer.method, "exact": bool(answer.exact)}
    if task == "MAP":
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
