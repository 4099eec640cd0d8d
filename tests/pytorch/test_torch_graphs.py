"""Graph functions and label sets: derivatives of every order, exactness, types and bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

import cliquewise as cw  # noqa: E402
from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError, UnsupportedError  # noqa: E402
from cliquewise.torch import _elimination  # noqa: E402

#: A loop with a pendant variable, a constant, a repeated scope and one in the other order.
LOOP = cw.Structure([2, 3, 2, 2], [(0,), (0, 1), (2, 1), (2, 0), (), (0, 1), (3,), (3, 2)])


def potentials(structure=LOOP, size=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    n = int(structure.table_offsets[-1])
    return torch.randn(size, n, generator=generator, dtype=torch.float64).to(dtype)


def enumerate_labelings(structure, row):
    """All labelings, their scores, and their indicators of table entries."""
    labels = np.array(list(itertools.product(*map(range, structure.cardinalities))))
    picked = np.zeros((len(labels), len(row)))
    for f in range(structure.n_factors):
        at = np.zeros(len(labels), dtype=int)
        for v, n in zip(structure.scope(f), structure.shape(f)):
            at = at * n + labels[:, v]
        picked[np.arange(len(labels)), structure.table_offsets[f] + at] = 1
    return labels, picked @ row, picked


def test_gradient_of_a_gradient_keeps_its_second_order_term():
    coin = cw.Structure([2], [(0,)])
    p = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    z = cwt.graph_log_partition(coin, p)
    g = torch.autograd.grad(z, p, create_graph=True)[0]
    found = torch.autograd.grad(z + (g**2).sum(), p)[0]
    q = 1 / (1 + np.exp(-1.0))
    slope = q + 2 * q * (1 - q) * (2 * q - 1)
    np.testing.assert_allclose(found, [1 - slope, slope])


def test_second_derivatives_of_label_sets_equal_finite_differences():
    crf = cwt.MultiLabelCRF(3).double()
    labels = torch.tensor([[0, 1, 1]])
    scores = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda s: crf(s, labels), scores)
    assert torch.autograd.gradcheck(crf.marginals, scores)


def test_eliminated_values_and_marginals_equal_enumeration():
    rows = potentials()
    rows[0, 3] = -torch.inf
    log_z, marginals = _elimination.log_partition(LOOP, rows), _elimination.marginals(LOOP, rows)
    for b, row in enumerate(rows.numpy()):
        finite = np.where(np.isinf(row), -1e300, row)
        _, score, picked = enumerate_labelings(LOOP, finite)
        p = np.exp(score - score.max())
        np.testing.assert_allclose(log_z[b], score.max() + np.log(p.sum()))
        np.testing.assert_allclose(marginals[b], (p / p.sum()) @ picked, atol=1e-12)
    torch.testing.assert_close(cwt.graph_marginals(LOOP, rows), marginals)


def test_infeasible_graphs_have_log_z_of_minus_infinity_under_torch_func():
    row = torch.full((2,), -torch.inf, dtype=torch.float64)
    coin = cw.Structure([2], [(0,)])
    assert torch.func.vmap(lambda x: cwt.graph_log_partition(coin, x))(row[None]).item() == -np.inf


def test_third_derivatives_of_log_z_equal_finite_differences():
    chain = cw.Structure([2, 2], [(0,), (0, 1)])
    x = potentials(chain, 1).requires_grad_()

    def slope(x):
        log_z = cwt.graph_log_partition(chain, x)
        return torch.autograd.grad(log_z.sum(), x, create_graph=True)[0]

    assert torch.autograd.gradgradcheck(slope, x)


def test_wide_graphs_refuse_recorded_operations_with_a_reason():
    n = 30
    full = cw.Structure([2] * n, list(itertools.combinations(range(n), 2)))
    with pytest.raises(UnsupportedError, match="smaller treewidth"):
        _elimination.log_partition(full, torch.zeros(1, int(full.table_offsets[-1])))


class Unproven:
    """The answer of an inference method that ran out of time."""

    exact, upper_bound, score = False, 30.5, 3.0


def test_unproven_best_labelings_are_refused_with_their_gap(monkeypatch):
    asked = []

    def give_up(self, **options):
        asked.append(options)
        return Unproven()

    monkeypatch.setattr(cw.FactorGraph, "map", give_up)
    pair = cw.Structure([2, 2], [(0,), (1,), (0, 1)])
    with pytest.raises(UnsupportedError, match=r"too low by 27\.5.*seconds=2"):
        cwt.graph_map(pair, torch.zeros(8), seconds=2)
    with pytest.raises(UnsupportedError, match="not proven best"):
        cwt.graph_loss("hinge", pair, torch.zeros(1, 8), torch.tensor([[0, 1]]))
    assert asked == [{"seconds": 2}, {}]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("loss", ["log", "hinge", "smooth_hinge", "softmax_margin"])
def test_half_precision_losses_are_computed_in_full_precision(loss, dtype):
    structure = cw.Structure([4] * 5, [(v,) for v in range(5)] + [(v, v + 1) for v in range(4)])
    rows = potentials(structure, 3, dtype=dtype)
    labels = torch.tensor([[0, 1, 2, 3, 0]] * 3)
    found = cwt.graph_loss(loss, structure, rows, labels, reduction="none")
    wanted = cwt.graph_loss(loss, structure, rows.double(), labels, reduction="none")
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted.float())


def test_integer_potentials_are_rejected():
    with pytest.raises(DataError, match="floating-point"):
        cwt.graph_log_partition(cw.Structure([2], [(0,)]), torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize("dtype", [torch.float32, torch.long, torch.bool])
def test_label_sets_accept_zeros_and_ones_of_any_type(dtype):
    crf, scores = cwt.MultiLabelCRF(2), torch.tensor([[1.0, -1.0]])
    labels = torch.tensor([[1, 0]])
    assert crf(scores, labels.to(dtype)) == crf(scores, labels)


@pytest.mark.parametrize("labels", [[[0.9, 0.0]], [[2, 0]], [[-1, 0]]])
def test_label_sets_refuse_other_targets_than_zero_and_one(labels):
    with pytest.raises(DataError, match="0 or 1"):
        cwt.MultiLabelCRF(2)(torch.zeros(1, 2), torch.tensor(labels))


def test_label_sets_refuse_unknown_losses_when_they_are_created():
    with pytest.raises(UnsupportedError, match="unknown loss 'foo'"):
        cwt.MultiLabelCRF(2, loss="foo")


def test_the_old_name_of_yes_probabilities_warns():
    crf = cwt.MultiLabelCRF(2)
    tables = crf.potentials(torch.zeros(1, 2))
    with pytest.warns(FutureWarning, match="yes_probabilities"):
        assert torch.equal(crf.chances(tables), crf.yes_probabilities(tables))
