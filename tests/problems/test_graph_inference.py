"""Exact inference in `GraphProblem`: nothing inexact is used as if it were exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem

RING = [(0, 1), (1, 2), (0, 2)]


def problem(loss: str) -> GraphProblem:
    rng = np.random.default_rng(0)
    data = GraphDataset.from_examples([(rng.normal(size=(3, 2)), RING)], [[0, 1, 1]])
    return GraphProblem(PairwiseModel([2], 2), data, loss=loss)


class Inexact:
    """An answer with its flag ``exact`` replaced."""

    def __init__(self, answer: Any):
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        return False if name == "exact" else getattr(self.answer, name)


@pytest.mark.parametrize(("loss", "method"), [("hinge", "map"), ("log", "marginals")])
def test_certificate_rejects_inexact_inference(
    loss: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, p = getattr(FactorGraph, method), problem(loss)
    w = np.zeros(p.dimension)
    assert p.certificate(w).status == "exact"
    monkeypatch.setattr(FactorGraph, method, lambda self, *a, **k: Inexact(own(self, *a, **k)))
    with pytest.raises(UnsupportedError, match=r"example 0.*did not find an exact answer"):
        p.certificate(w)


def test_marginals_of_an_example_reject_inexact_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    own, p = FactorGraph.marginals, problem("log")
    tables = np.zeros(len(p.entries(0)))
    assert p.marginals(0, tables)[1] == pytest.approx(3 * np.log(2))
    monkeypatch.setattr(FactorGraph, "marginals", lambda self, **k: Inexact(own(self, **k)))
    with pytest.raises(UnsupportedError, match="did not find an exact answer"):
        p.marginals(0, tables)
