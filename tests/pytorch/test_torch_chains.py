"""Chain oracles in PyTorch: equal to enumeration and to the compiled oracles, and smooth."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch_cases import Batch, batches, log_sum  # noqa: E402

from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError, UnsupportedError  # noqa: E402
from cliquewise.graph.factor_graph import FactorGraph  # noqa: E402

BACKENDS = ["numba", "plain"]
relaxed = settings(deadline=None, max_examples=40)


def close(left, right, tol=1e-10):
    left, right = np.asarray(left, float), np.asarray(right, float)
    finite = np.isfinite(right)
    assert np.array_equal(np.isfinite(left), finite)
    np.testing.assert_allclose(left[finite], right[finite], rtol=tol, atol=tol)


@pytest.mark.parametrize("backend", BACKENDS)
@relaxed
@given(batch=batches())
def test_log_partition_marginals_and_best_labeling_equal_enumeration(backend, batch):
    result = cwt.marginals(**batch.scores, backend=backend)
    best, labels = cwt.viterbi(**batch.scores, backend=backend)
    for b in range(batch.shape[0]):
        paths, score = batch.paths(b)
        n = batch.lengths[b]
        close(result.log_z[b], log_sum(score))
        close(best[b], score.max())
        nodes = np.zeros(batch.shape[1:])
        if np.isfinite(score.max()):
            p = np.exp(score - log_sum(score))
            for t in range(n):
                np.add.at(nodes[t], paths[:, t], p)
            at = np.flatnonzero((paths == labels[b, :n].numpy()).all(1))[0]
            close(score[at], score.max())
        close(result.nodes[b], nodes)


@relaxed
@given(batch=batches(shared=True, forbidden=0.0))
def test_summed_edge_marginals_equal_enumeration(batch):
    k = batch.shape[2]
    total = np.zeros((k, k))
    for b in range(batch.shape[0]):
        paths, score = batch.paths(b)
        p = np.exp(score - log_sum(score))
        for t in range(1, batch.lengths[b]):
            np.add.at(total, (paths[:, t - 1], paths[:, t]), p)
    for backend in BACKENDS:
        close(cwt.marginals(**batch.scores, backend=backend).edges, total)


@pytest.mark.parametrize("dtype, tol", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_both_precisions_equal_the_chain_oracle_of_the_package(backend, dtype, tol):
    batch = Batch(3, 6, 12, 5, dtype=dtype, shared=False)
    result = cwt.marginals(**batch.scores, backend=backend)
    for b in range(6):
        if batch.lengths[b] == 0:
            continue
        answer = FactorGraph.chain(*batch.chain(b)).marginals("chain")
        n = batch.lengths[b]
        close(result.log_z[b], answer.log_z, tol * 10)
        close(result.nodes[b, :n], np.array([answer.nodes[t] for t in range(n)]), tol)


@relaxed
@given(batch=batches(), k=st.integers(1, 6))
def test_the_k_best_are_the_best_of_all_labelings(batch, k):
    scores, labels = cwt.top_k(
        batch.nodes, batch.transitions, k, batch.begin, batch.end, batch.mask
    )
    for b in range(batch.shape[0]):
        _, score = batch.paths(b)
        expected = np.full(k, -np.inf)
        ordered = np.sort(score[np.isfinite(score)])[::-1][:k]
        expected[: len(ordered)] = ordered
        close(scores[b], expected)
        own = [tuple(row[: batch.lengths[b]]) for row in labels[b, : len(ordered)].tolist()]
        assert len(set(own)) == len(ordered)


def test_draws_have_the_frequencies_of_the_labelings():
    batch = Batch(1, 2, 3, 2, masked=False)
    generator = torch.Generator().manual_seed(0)
    draws = cwt.sample(
        batch.nodes, batch.transitions, 20000, batch.begin, batch.end, generator=generator
    )
    for b in range(2):
        _, score = batch.paths(b)
        codes = (draws[:, b] * torch.tensor([4, 2, 1])).sum(1)
        share = np.bincount(codes.numpy(), minlength=8) / 20000
        assert np.abs(share - np.exp(score - log_sum(score))).max() < 0.02


def test_draws_respect_masks_and_forbidden_transitions():
    batch = Batch(2, 20, 6, 4, forbidden=0.3)
    draws = cwt.sample(batch.nodes, batch.transitions, 50, batch.begin, batch.end, batch.mask)
    assert not draws[:, ~batch.mask].any()
    scores = cwt.path_score(draws[7], **batch.scores)
    feasible = torch.isfinite(cwt.log_partition(**batch.scores))
    assert torch.isfinite(scores[feasible]).all()


@relaxed
@given(batch=batches(forbidden=0.0))
def test_entropy_and_divergence_equal_enumeration(batch):
    other = Batch(7, *batch.shape, shared=False, ends=False, masked=False)
    other.mask, other.lengths = batch.mask, batch.lengths
    entropy = cwt.entropy(**batch.scores)
    divergence = cwt.kl_divergence(tuple(batch.scores.values()), tuple(other.scores.values()))
    for b in range(batch.shape[0]):
        p, q = (x.paths(b)[1] for x in (batch, other))
        p, q = p - log_sum(p), q - log_sum(q)
        close(entropy[b], -(np.exp(p) * p).sum(), 1e-8)
        close(divergence[b], (np.exp(p) * (p - q)).sum(), 1e-8)


def test_divergence_from_what_the_other_forbids_is_infinite():
    p = torch.zeros(1, 2, 2), torch.zeros(2, 2)
    q = torch.zeros(1, 2, 2), torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])
    assert cwt.kl_divergence(p, q).item() == torch.inf
    assert torch.isfinite(cwt.kl_divergence(q, p)).all()


@relaxed
@given(batch=batches(forbidden=0.0), gamma=st.sampled_from([0.3, 1.0, 5.0]))
def test_smoothed_maxima_equal_their_definitions(batch, gamma):
    soft = cwt.smoothed_max(**batch.scores, gamma=gamma)
    flat = cwt.smoothed_max(**batch.scores, smoother="l2", gamma=gamma, k=81)
    for b in range(batch.shape[0]):
        _, score = batch.paths(b)
        close(soft[b], gamma * log_sum(score / gamma), 1e-8)
        close(flat[b], l2_by_bisection(score, gamma), 1e-7)


def l2_by_bisection(score, gamma):
    low, high = (score / gamma).min() - 1, (score / gamma).max()
    for _ in range(200):
        tau = (low + high) / 2
        low, high = (tau, high) if np.maximum(score / gamma - tau, 0).sum() > 1 else (low, tau)
    u = np.maximum(score / gamma - tau, 0)
    return u @ score - gamma * (u @ u - 1) / 2


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_and_second_gradients_pass_the_checks(backend, shared):
    def leaves_and_value(*sizes):
        batch = Batch(5, *sizes, shared=shared)
        batch.mask[0] = True
        scores = (batch.nodes, batch.transitions, batch.begin, batch.end)

        def value(*x):
            return cwt.log_partition(*x, batch.mask, backend=backend)

        return value, [x.requires_grad_() for x in scores]

    assert torch.autograd.gradcheck(*leaves_and_value(3, 4, 3))
    assert torch.autograd.gradgradcheck(*leaves_and_value(2, 3, 2))


@pytest.mark.parametrize("loss", ["log", "softmax_margin", "smooth_hinge", "hinge"])
def test_gradients_of_all_losses_pass_the_check(loss):
    batch = Batch(6, 3, 4, 3)
    leaves = [x.requires_grad_() for x in (batch.nodes, batch.transitions, batch.begin, batch.end)]

    def value(*x):
        return cwt.chain_loss(loss, batch.tags, *x, batch.mask, gamma=0.7, k=81)

    assert torch.autograd.gradcheck(value, leaves)
    assert value(*leaves) >= 0


@pytest.mark.parametrize("function", ["entropy", "marginals"])
def test_entropy_and_marginals_can_be_differentiated(function):
    batch = Batch(8, 2, 3, 2)
    leaves = [batch.nodes.requires_grad_(), batch.transitions.requires_grad_()]

    def value(nodes, transitions):
        out = getattr(cwt, function)(nodes, transitions, batch.begin, batch.end, batch.mask)
        return out.nodes if function == "marginals" else out

    assert torch.autograd.gradcheck(value, leaves)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("forbidden", [0.0, 0.4])
def test_huge_scores_and_forbidden_transitions_give_no_nan(backend, dtype, forbidden):
    batch = Batch(9, 8, 60, 7, dtype=dtype, scale=1e4, forbidden=forbidden)
    batch.nodes.requires_grad_(), batch.transitions.requires_grad_()
    value = cwt.log_partition(**batch.scores, backend=backend)
    value[torch.isfinite(value)].sum().backward()
    assert not torch.isnan(value).any()
    assert torch.isfinite(batch.nodes.grad).all() and torch.isfinite(batch.transitions.grad).all()
    feasible = torch.isfinite(value) & (torch.tensor(batch.lengths) > 0)
    sums = batch.nodes.grad[feasible].sum(-1)[batch.mask[feasible]]
    assert (sums - 1).abs().max() < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_marginals_of_long_float32_chains_sum_to_one(backend):
    batch = Batch(10, 2, 2000, 20, dtype=torch.float32, masked=False)
    result = cwt.marginals(**batch.scores, backend=backend)
    assert (result.nodes.sum(-1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_worked_on_in_float32(dtype):
    batch = Batch(11, 3, 30, 4, dtype=torch.float32)
    half = batch.nodes.to(dtype).requires_grad_()
    value = cwt.log_partition(half, batch.transitions, mask=batch.mask)
    value.sum().backward()
    exact = cwt.log_partition(half.detach().float(), batch.transitions, mask=batch.mask)
    assert value.dtype == torch.float32 and half.grad.dtype == dtype
    assert torch.equal(value, exact)


def test_unequal_weights_of_the_chains_reach_the_gradient():
    batch = Batch(12, 4, 6, 3)
    weights = torch.tensor([0.5, 2.0, 0.0, -1.0], dtype=torch.float64)
    found = []
    for backend in BACKENDS:
        trans = batch.transitions.clone().requires_grad_()
        scores = batch.scores | {"transitions": trans}
        (cwt.log_partition(**scores, backend=backend) * weights).sum().backward()
        found.append(trans.grad)
    close(*found)


def test_bad_input_is_rejected_with_a_reason():
    nodes, trans = torch.zeros(2, 3, 4), torch.zeros(4, 4)
    with pytest.raises(DataError, match=r"\(B, T, K\)"):
        cwt.log_partition(nodes[0], trans)
    with pytest.raises(DataError, match="transitions must have shape"):
        cwt.log_partition(nodes, trans[:3])
    with pytest.raises(DataError, match="mask must have shape"):
        cwt.log_partition(nodes, trans, mask=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(UnsupportedError, match="unknown backend"):
        cwt.log_partition(nodes, trans, backend="abacus")
    with pytest.raises(DataError, match="gamma"):
        cwt.smoothed_max(nodes, trans, gamma=0.0)
    with pytest.raises(UnsupportedError, match="choose from"):
        cwt.chain_loss("squared", torch.zeros(2, 3, dtype=torch.long), nodes, trans)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (2, 1, 1)])
def test_empty_batches_and_chains_have_log_z_zero_and_no_gradient(shape):
    nodes = torch.zeros(shape, requires_grad=True)
    for backend in BACKENDS:
        value = cwt.log_partition(nodes, torch.zeros(shape[2], shape[2]), backend=backend)
        assert value.shape == (shape[0],) and not value.detach().any()
        (grad,) = torch.autograd.grad(value.sum(), nodes)
        assert grad.shape == shape


def test_oracles_work_where_gradients_are_switched_off():
    batch = Batch(13, 3, 4, 3)
    with torch.no_grad():
        inside = cwt.marginals(**batch.scores)
    outside = cwt.marginals(**batch.scores)
    assert torch.equal(inside.nodes, outside.nodes)
    with torch.no_grad():
        assert torch.equal(cwt.log_partition(**batch.scores), outside.log_z)
