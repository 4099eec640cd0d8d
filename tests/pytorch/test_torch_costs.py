"""Costs of wrong labels by truth, by token and label: equal to enumeration, with gaps as well."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")
from torch_cases import Batch, log_sum  # noqa: E402

from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError, UnsupportedError  # noqa: E402

SIZE, LENGTH, K = 3, 4, 3
FORMS = ["number", "table", "tokens", "labels", "all"]


def cost_of(form, rng):
    """A cost as it is given, and what it is for every truth, row, position and label."""
    shape = {
        "number": (), "table": (K, K), "tokens": (SIZE, LENGTH, 1), "labels": (1, 1, K),
        "all": (SIZE, LENGTH, K),
    }[form]  # fmt: skip
    given = rng.uniform(0, 3, shape)
    if form == "table":
        np.fill_diagonal(given, 0.0)
        whole = np.broadcast_to(given[:, None, None, :], (K, SIZE, LENGTH, K))
    else:
        whole = np.broadcast_to(given, (K, SIZE, LENGTH, K))
    return torch.tensor(given), whole


def expected(batch, b, at, whole, loss, gamma):
    """The loss of chain b by all labelings of its positions."""
    nodes, trans = batch.nodes[b, at].detach().numpy(), batch.transitions.detach().numpy()
    tags, n = batch.tags[b, at].numpy(), len(at)
    labels = np.array(list(np.ndindex(*[K] * n)), dtype=int).reshape(K**n, n)
    score = nodes[np.arange(n), labels].sum(1)
    score += trans[labels[:, :-1], labels[:, 1:]].sum(1)
    if n:
        score += batch.begin.detach().numpy()[labels[:, 0]]
        score += batch.end.detach().numpy()[labels[:, -1]]
    own = whole[tags, b, at][np.arange(n), labels]
    padded = score + np.where(labels == tags, 0.0, own).sum(1)
    truth = score[(labels == tags).all(1)][0]
    worst = padded.max() if loss == "hinge" else gamma * log_sum(padded / gamma)
    return worst - truth


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loss", ["hinge", "softmax_margin"])
def test_costs_of_tokens_and_labels_equal_enumeration_in_value_and_pass_gradcheck(loss, form):
    rng = np.random.default_rng([FORMS.index(form), len(loss)])
    batch = Batch(int(rng.integers(1000)), SIZE, LENGTH, K, masked=False)
    mask = torch.tensor(rng.random((SIZE, LENGTH)) < 0.7)
    mask[0, 0], mask[1] = False, True
    tags = batch.tags.clone()
    tags[2, 1] = -100
    cost, whole = cost_of(form, rng)
    leaves = [batch.nodes, batch.transitions, batch.begin, batch.end]
    for leaf in leaves:
        leaf.requires_grad_()

    def value(*scores):
        return cwt.chain_loss(
            loss, tags, *scores, mask, cost=cost, gamma=0.5, reduction="none"
        )  # fmt: skip

    found = value(*leaves)
    for b in range(SIZE):
        at = (mask & (tags != -100))[b].nonzero()[:, 0].numpy()
        right = expected(batch, b, at, whole, loss, 0.5)
        np.testing.assert_allclose(found[b].item(), right, atol=1e-9)
    assert torch.autograd.gradcheck(value, leaves, fast_mode=True)


def test_all_losses_take_costs_and_gradients_reach_them():
    batch = Batch(0, SIZE, LENGTH, K)
    cost = torch.ones(SIZE, LENGTH, K, dtype=torch.float64, requires_grad=True)
    for loss in ("hinge", "smooth_hinge", "softmax_margin"):
        one = cwt.chain_loss(loss, batch.tags, **batch.scores)
        same = cwt.chain_loss(loss, batch.tags, **batch.scores, cost=cost)
        torch.testing.assert_close(same, one)
        torch.testing.assert_close(
            cwt.chain_loss(loss, batch.tags, **batch.scores, cost=1 - np.eye(K)), one
        )
        (grad,) = torch.autograd.grad(same, cost)
        assert (grad >= 0).all() and not grad[~batch.mask].any()
        assert not grad.gather(-1, batch.tags.unsqueeze(-1)).any()


def test_what_is_no_cost_is_refused_with_the_shapes_that_are():
    batch = Batch(0, SIZE, LENGTH, K, masked=False)

    def loss(cost, kind="hinge"):
        return cwt.chain_loss(kind, batch.tags, **batch.scores, cost=cost)

    for wrong in (torch.ones(K), torch.ones(SIZE, LENGTH), torch.ones(SIZE, LENGTH, K + 1)):
        with pytest.raises(DataError, match=r"a table \(K, K\) = \(3, 3\).*\(3, 4, 3\)"):
            loss(wrong)
    with pytest.raises(DataError, match="diagonal"):
        loss(torch.ones(K, K))
    for wrong in (-1.0, float("nan"), 1e10, -torch.ones(1, 1, K)):
        with pytest.raises(DataError, match="between 0 and"):
            loss(wrong)
    with pytest.raises(DataError, match="a number or a tensor of numbers"):
        loss("dear")
    with pytest.raises(UnsupportedError, match="softmax_margin"):
        loss(2.0, "log")
