"""Entropy, divergence, smoothing and second derivatives of chains: accuracy and edge cases."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")
from torch_cases import Batch  # noqa: E402

from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError  # noqa: E402
from cliquewise.torch import _numba, _plain  # noqa: E402
from cliquewise.torch._scores import make_scores, remove_gaps  # noqa: E402

KINDS = [
    {"shared": shared, "masked": masked, "forbidden": forbidden, "scale": scale}
    for shared in (True, False)
    for masked in (True, False)
    for forbidden in (0.0, 0.3)
    for scale in (1.0, 400.0)
]


def distributions(batch):
    for b in range(len(batch.lengths)):
        _, score = batch.paths(b)
        p = np.exp(score - score.max()) if score.max() > -np.inf else np.full(len(score), np.nan)
        yield p / p.sum()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_entropy_equals_enumeration(kind):
    batch = Batch(3, 3, 4, 3, **kind)
    found = cwt.entropy(**batch.scores)
    for h, p in zip(found.tolist(), distributions(batch)):
        np.testing.assert_allclose(h, -(p[p > 0] * np.log(p[p > 0])).sum(), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_covariances_of_the_kernel_equal_recorded_second_derivatives(kind):
    batch = Batch(5, 3, 4, 3, **kind)
    scores, _ = remove_gaps(make_scores(**batch.scores))
    scores = scores.each(lambda x: x.clone().requires_grad_())
    generator = torch.Generator().manual_seed(0)
    direction = scores.each(
        lambda x: torch.randn(x.shape, generator=generator, dtype=torch.float64)
    )
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    _, found = _numba.covariances(scores, direction, weights)
    expected, _ = _plain.pull_back(
        scores, weights, lambda s, w: _plain.log_domain(s, w)[1], direction[:4]
    )
    for left, right in zip(found, expected):
        if left is not None and left.numel() and right is not None:
            torch.testing.assert_close(left, right, atol=1e-9, rtol=1e-6)


def test_entropy_of_long_float32_chains_has_five_digits():
    torch.manual_seed(0)
    for scale in (1.0, 10.0, 30.0):
        nodes, trans = scale * torch.randn(2, 1000, 5), scale * torch.randn(5, 5)
        exact = cwt.entropy(nodes.double(), trans.double())
        torch.testing.assert_close(cwt.entropy(nodes, trans).double(), exact, rtol=1e-5, atol=0.0)


def test_entropy_of_huge_float32_scores_is_not_negative():
    torch.manual_seed(0)
    nodes, trans = 1e6 * torch.randn(3, 50, 4), torch.zeros(4, 4)
    assert (cwt.entropy(nodes, trans) >= 0).all()
    tie = torch.full((1, 10, 2), 1e6)
    torch.testing.assert_close(cwt.entropy(tie, torch.zeros(2, 2)), 10 * torch.tensor([2.0]).log())


def test_a_small_divergence_of_long_float32_chains_does_not_cancel():
    torch.manual_seed(0)
    nodes, trans = torch.randn(1, 500, 4), torch.randn(4, 4)
    other = nodes + 1e-3 * torch.randn_like(nodes)
    p, q = (nodes, trans), (other, trans)
    exact = cwt.kl_divergence(*(tuple(x.double() for x in s) for s in (p, q)))
    assert 1e-5 < exact.item() < 1e-3
    torch.testing.assert_close(cwt.kl_divergence(p, q).double(), exact, rtol=1e-5, atol=0.0)


def test_cross_entropy_is_entropy_plus_divergence():
    torch.manual_seed(0)
    p, q = ((torch.randn(2, 5, 3), torch.randn(3, 3)) for _ in range(2))
    torch.testing.assert_close(cwt.cross_entropy(p, q), cwt.entropy(*p) + cwt.kl_divergence(p, q))


def test_emissions_that_rule_out_every_label_are_an_error_in_the_likelihood():
    nodes = torch.zeros(2, 3, 2)
    nodes[1, 1] = -torch.inf
    tags = torch.zeros(2, 3).long()
    with pytest.raises(DataError, match="sequence 1 has no possible labeling"):
        cwt.ChainCRF(2, batch_first=True)(nodes, tags)
    with pytest.raises(DataError, match="sequence 1 has no possible labeling"):
        cwt.chain_loss("log", tags, nodes, torch.zeros(2, 2))
    assert cwt.log_partition(nodes, torch.zeros(2, 2))[1] == -torch.inf
    assert cwt.entropy(nodes, torch.zeros(2, 2))[1].isnan()


@pytest.mark.parametrize("backend", ["numba", "plain"])
def test_one_table_and_ends_per_chain_equal_single_chains(backend):
    torch.manual_seed(0)
    mask = torch.tensor([[False, True, False, True], [True, True, True, False], [False] * 4])
    nodes, trans = torch.randn(3, 4, 2), torch.randn(3, 2, 2)
    begin, end = torch.randn(3, 2), torch.randn(3, 2)
    found = cwt.log_partition(nodes, trans, begin, end, mask, backend=backend)
    for b in range(3):
        own = cwt.log_partition(nodes[b : b + 1], trans[b], begin[b], end[b], mask[b : b + 1])
        torch.testing.assert_close(found[b], own[0])
    inputs = [x.double().requires_grad_() for x in (nodes, trans, begin, end)]
    assert torch.autograd.gradcheck(lambda *x: cwt.log_partition(*x, mask), inputs)


def test_label_smoothing_equals_enumeration_and_has_the_right_gradient():
    batch = Batch(7, 3, 3, 2, masked=True)
    found = cwt.chain_loss("log", batch.tags, **batch.scores, label_smoothing=0.3, reduction="none")
    for b, p in enumerate(distributions(batch)):
        labels, score = batch.paths(b)
        log_z = score.max() + np.log(np.exp(score - score.max()).sum())
        own = batch.tags[b, : batch.lengths[b]].numpy()
        true = score[(labels == own).all(1)][0]
        np.testing.assert_allclose(found[b], log_z - 0.7 * true - 0.3 * score.mean())
        assert len(p) == len(score)
    leaves = [x.requires_grad_() for x in (batch.nodes, batch.transitions)]

    def loss(nodes, trans):
        return cwt.chain_loss("log", batch.tags, nodes, trans, mask=batch.mask, label_smoothing=0.3)

    assert torch.autograd.gradcheck(loss, leaves)


def test_the_old_name_of_the_numba_backend_warns():
    nodes, trans = torch.zeros(1, 2, 2), torch.zeros(2, 2)
    with pytest.warns(FutureWarning, match="numba"):
        cwt.log_partition(nodes, trans, backend="compiled")


def test_second_derivatives_of_smooth_hinge_losses_are_not_dropped():
    scores = torch.tensor([[0.1, 0.2, -0.3]], dtype=torch.float64, requires_grad=True)
    loss = cwt.CandidateLoss("smooth_hinge", gamma=2.0)
    assert torch.autograd.gradgradcheck(lambda s: loss(s, torch.tensor([0])), scores)


def distribution(seed=0):
    torch.manual_seed(seed)
    mask = torch.tensor([[True, False, True, True], [True, True, False, False]])
    tables = torch.randn(2, 4, 3), torch.randn(3, 3), torch.randn(3), torch.randn(3), mask
    return cwt.ChainDistribution(*tables), tables


def test_the_distribution_object_agrees_with_the_functions():
    p, tables = distribution()
    q, others = distribution(1)
    assert (p.batch_shape, p.event_shape) == ((2,), (4,))
    torch.testing.assert_close(p.entropy(), cwt.entropy(*tables))
    torch.testing.assert_close(
        torch.distributions.kl_divergence(p, q), cwt.kl_divergence(tables, others)
    )
    assert torch.equal(p.mode, cwt.viterbi(*tables)[1])
    values, labels = p.top_k(2)
    torch.testing.assert_close(values[:, 0], p.log_prob(labels[:, 0]))
    torch.testing.assert_close(p.log_z, cwt.log_partition(*tables))


def test_log_probabilities_of_all_labelings_sum_to_one_and_samples_follow_them():
    p, _ = distribution()
    grids = torch.cartesian_prod(*[torch.arange(3)] * 3)
    labels = torch.zeros(27, 2, 4).long()
    labels[:, 0, [0, 2, 3]] = grids
    torch.testing.assert_close(p.log_prob(labels)[:, 0].exp().sum(), torch.tensor(1.0))
    draws = p.sample((20, 200), torch.Generator().manual_seed(0))
    assert draws.shape == (20, 200, 2, 4)
    frequency = torch.nn.functional.one_hot(draws.flatten(0, 1), 3).float().mean(0)
    exact = p.marginals().nodes
    assert (frequency - exact)[tables_mask(p)].abs().max() < 0.04


def tables_mask(p):
    return p.scores.mask


def test_log_prob_refuses_values_that_are_not_labelings():
    p, _ = distribution()
    for wrong in (torch.zeros(2, 3).long(), torch.zeros(2, 4), torch.full((2, 4), 3)):
        with pytest.raises(DataError, match="label"):
            p.log_prob(wrong)
