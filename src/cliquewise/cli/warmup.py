"""``cliquewise warmup``: compile what the estimators need by default, before somebody waits."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import click

from cliquewise.cli import debug_option


@click.command()
@debug_option
def command() -> None:
    """Compile ahead, for example while an image of a container is built.

    Compiled code is kept in a folder, which is printed, and is good for this version of the
    library, of numba and of Python, and for this kind of processor. NUMBA_CACHE_DIR, or
    XDG_CACHE_HOME, moves it.
    """
    from cliquewise._kernels import cache_folder
    from cliquewise.errors import DataError

    folder = cache_folder()
    if folder is None:
        raise DataError("nothing can be kept; name a folder by NUMBA_CACHE_DIR")
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of training on toys
        for name, work in WORK.items():
            start = time.perf_counter()
            work()
            click.echo(f"{name:20} {time.perf_counter() - start:6.1f} s")
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    click.echo(f"{'all':20} {time.perf_counter() - begin:6.1f} s")
    click.echo(f"kept in {folder} ({len(files)} files, {size:.1f} MB)")


def _tag() -> None:
    import numpy as np

    from cliquewise.data.columns import Columns
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

    words, y = [["the", "dog"], ["a", "cat", "runs"]], [["D", "N"], ["D", "N", "V"]]
    columns = [[word for sentence in given for word in sentence] for given in (words, y)]
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


def _classify() -> None:
    from cliquewise.estimators.multiclass import MulticlassClassifier

    X = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    MulticlassClassifier(random_state=0).fit(X, ["a", "b", "c"]).predict(X)


def _label_sets() -> None:
    from cliquewise.estimators.multilabel import MultiLabelClassifier

    X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    Y = [[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]]
    MultiLabelClassifier(random_state=0).fit(X, Y).predict(X)


def _label_graphs() -> None:
    from cliquewise.estimators.graph import GraphLabeler

    # A circle: on trees inference would be another.
    X = [([[2.0], [1.5], [-1.0]], [(0, 1), (1, 2), (0, 2)]), ([[-2.0], [3.0]], [(0, 1)])]
    GraphLabeler(random_state=0).fit(X, [["in", "in", "out"], ["out", "in"]]).predict(X)


def _match_and_rank() -> None:
    from cliquewise.estimators.candidates import CandidateRanker
    from cliquewise.estimators.matcher import Matcher

    tables = [[[[3.8], [0.1], [8.0]], [[0.2], [3.9], [4.0]]]]
    Matcher(random_state=0).fit(tables, [[1, 0]]).predict(tables)
    lists = [[[1.0, 0.0], [0.0, 1.0]], [[0.2, 0.9], [0.8, 0.1], [0.5, 0.5]]]
    CandidateRanker(random_state=0).fit(lists, [0, 1]).predict(lists)


def _infer() -> None:
    from cliquewise.graph.factor_graph import FactorGraph

    likes = [[1.0, 0.0], [0.0, 1.0]]
    for edges in ([(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)]):
        graph = FactorGraph([2, 2, 2], [((0,), [0.5, 0.0]), *((edge, likes) for edge in edges)])
        graph.map()
        graph.marginals()


#: What is compiled, by the name of what needs it.
WORK: dict[str, Callable[[], None]] = {
    "SequenceTagger": _tag,
    "MulticlassClassifier": _classify,
    "MultiLabelClassifier": _label_sets,
    "GraphLabeler": _label_graphs,
    "Matcher and ranker": _match_and_rank,
    "FactorGraph": _infer,
}
