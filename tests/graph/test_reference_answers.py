"""A few models of each family against the answers that other programs stored."""

from __future__ import annotations

import importlib.util
import json
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

DATA = os.environ.get("CLIQUEWISE_DATA")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reference_answers.py"

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(DATA is None, reason="CLIQUEWISE_DATA does not name the data folder"),
    pytest.mark.skipif(not SCRIPT.exists(), reason="the benchmarks are not beside the tests"),
]


@pytest.fixture(scope="module")
def reference():
    import sys

    spec = importlib.util.spec_from_file_location("reference_answers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


#: Models of each family that are small enough for a test.
FEW = {
    "MAR_CSP": ["CSP_12"],
    "MAR_Grids": ["Grids_12"],
    "MAR_Segmentation": ["Segmentation_11", "Segmentation_12"],
    "PR_extra": ["grid10x10.f10"],
    "Synthetic": [str(i) for i in range(1, 901, 60)],
    "SyntheticGrids_5x5": [f"gridWi5Tr{i}" for i in range(1, 16)],
    "SyntheticGrids_10x10": [f"gridWi10Tr{i}" for i in range(1, 16)],
}


@pytest.mark.parametrize("name", FEW)
def test_log_z_and_marginals_equal_the_stored_ones(reference, name):
    family = next(f for f in reference.FAMILIES if f.name == name)
    row = reference.Row(family)
    for case in reference.cases(family, Path(DATA)):
        if case.name in FEW[name]:
            reference.check(family, case, "auto", 1e9, row)
    assert row.solved == len(FEW[name])
    assert row.unexplained == []
    assert row.log_z_error < 5e-6
    if name == "PR_extra":
        assert row.marginal_error is None
    else:
        assert row.marginal_error <= family.marginal_tolerance


def test_what_does_not_fit_is_refused_with_its_estimate(reference):
    family = next(f for f in reference.FAMILIES if f.name == "MAR_Grids")
    row = reference.Row(family)
    case = next(c for c in reference.cases(family, Path(DATA)) if c.name == "Grids_15")
    reference.check(family, case, "junction-tree", 2**20, row)
    assert (row.solved, len(row.refused)) == (0, 1)
    assert row.refused[0][1] > 2**20 and row.refused[0][2] > 1e5


def test_a_wrong_stored_answer_is_noticed(reference):
    """The check itself can fail: a digit changed in log Z, and in one marginal."""
    family = next(f for f in reference.FAMILIES if f.name == "Synthetic")
    case = next(islice(reference.cases(family, Path(DATA)), 1))
    marginals = case.marginals.copy()
    marginals[0] += 2e-6
    wrong = reference.Case(case.name, case.model, case.evidence, case.log_z + 1e-4, marginals)
    row = reference.Row(family)
    reference.check(family, wrong, "auto", 1e9, row)
    assert len(row.unexplained) == 2
    assert "log Z" in row.unexplained[0] and "marginals" in row.unexplained[1]
    assert json.loads(reference.summary([row]))["unexplained"] == 2


def test_half_unit_is_half_of_the_sixth_significant_digit(reference):
    np.testing.assert_allclose(
        reference.half_unit(np.array([134.772, -75.07, 0.0551973, 1.0])),
        [5e-4, 5e-5, 5e-8, 5e-6],
        rtol=1e-5,
    )
