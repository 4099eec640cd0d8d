"""``cliquewise warmup``: compile all kernels that the estimators use by default."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import click

from cliquewise.cli import debug_option


@click.command(
    epilog="""\b
    Example: NUMBA_CACHE_DIR=/opt/kernels cliquewise warmup"""
)
@debug_option
def command() -> None:
    """Compile all kernels in advance, e.g. when building a container image.

    Compiled code is cached in a folder, which is printed. It is valid for this version of the
    library, of numba and of Python, and for this kind of processor. NUMBA_CACHE_DIR or
    XDG_CACHE_HOME moves the folder.
    """
    from cliquewise._kernels import STOCK_NUMBA, cache_folder
    from cliquewise._kernels.cache_dir import is_writable
    from cliquewise.errors import DataError

    folder = cache_folder()
    if folder is None or not is_writable(folder):
        raise DataError("the kernel cache cannot be written; set NUMBA_CACHE_DIR to another folder")
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about training on a few examples
        for name, work in WORK.items():
            start = time.perf_counter()
            work()
            click.echo(f"{name:20} {time.perf_counter() - start:6.1f} s")
    click.echo(f"{'all':20} {time.perf_counter() - begin:6.1f} s")
    if STOCK_NUMBA:
        click.echo("cached by numba (CLIQUEWISE_STOCK_NUMBA is set)")
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    click.echo(f"cached in {folder} ({len(files)} files, {size:.1f} MB)")


def _fit_tagger() -> None:
    import numpy as np

    from cliquewise.data.columns import Columns
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

    words, y = [["the", "dog"], ["a", "cat", "runs"]], [["D", "N"], ["D", "N", "V"]]
    columns = [[word for sentence in part for word in sentence] for part in (words, y)]
    forms: list[Any] = [
        [[[f"w={word}"] for word in sentence] for sentence in words],
        [[{"w": word} for word in sentence] for sentence in words],
        [[{"w": word, "size": 2.0} for word in sentence] for sentence in words],
        [[[("w", 1.0), (word, 2.0)] for word in sentence] for sentence in words],
        [np.arange(2.0 * len(sentence)).reshape(-1, 2) for sentence in words],
        Columns(columns, np.array([0, 2, 5])),
    ]
    for X in forms:
        tagger = SequenceTagger(random_state=0).fit(X, y)
        tagger.predict(X)
        tagger.predict_marginals(X)
        tagger.predict_top_k(X, 2)
        if isinstance(X, list):
            tagger.predict(X[:1])


def _fit_classifier() -> None:
    from cliquewise.estimators.multiclass import MulticlassClassifier

    X = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    MulticlassClassifier(random_state=0).fit(X, ["a", "b", "c"]).predict(X)


def _fit_label_sets() -> None:
    from cliquewise.estimators.multilabel import MultiLabelClassifier

    X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    Y = [[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]]
    MultiLabelClassifier(random_state=0).fit(X, Y).predict(X)


def _fit_graphs() -> None:
    from cliquewise.estimators.graph import GraphLabeler

    # A cycle and a tree use different methods.
    X = [([[2.0], [1.5], [-1.0]], [(0, 1), (1, 2), (0, 2)]), ([[-2.0], [3.0]], [(0, 1)])]
    GraphLabeler(random_state=0).fit(X, [["in", "in", "out"], ["out", "in"]]).predict(X)


def _fit_matcher_and_ranker() -> None:
    from cliquewise.estimators.candidates import CandidateRanker
    from cliquewise.estimators.matcher import Matcher

    tables = [[[[3.8], [0.1], [8.0]], [[0.2], [3.9], [4.0]]]]
    Matcher(random_state=0).fit(tables, [[1, 0]]).predict(tables)
    lists = [[[1.0, 0.0], [0.0, 1.0]], [[0.2, 0.9], [0.8, 0.1], [0.5, 0.5]]]
    CandidateRanker(random_state=0).fit(lists, [0, 1]).predict(lists)


def _run_inference() -> None:
    from cliquewise.graph.factor_graph import FactorGraph

    table = [[1.0, 0.0], [0.0, 1.0]]
    for edges in ([(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)]):
        graph = FactorGraph([2, 2, 2], [((0,), [0.5, 0.0]), *((edge, table) for edge in edges)])
        graph.map()
        graph.marginals()


#: Functions that compile, by the name of the class whose kernels they use.
WORK: dict[str, Callable[[], None]] = {
    "SequenceTagger": _fit_tagger,
    "MulticlassClassifier": _fit_classifier,
    "MultiLabelClassifier": _fit_label_sets,
    "GraphLabeler": _fit_graphs,
    "Matcher and ranker": _fit_matcher_and_ranker,
    "FactorGraph": _run_inference,
}
