"""Layers and losses in PyTorch: ChainCRF beside its model, candidates, labels, graphs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

import cliquewise as cw  # noqa: E402
from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError, UnsupportedError  # noqa: E402


def test_chain_crf_has_the_parameters_of_pytorch_crf():
    crf = cwt.ChainCRF(4)
    shapes = {name: tuple(x.shape) for name, x in crf.state_dict().items()}
    assert shapes == {
        "start_transitions": (4,),
        "end_transitions": (4,),
        "transitions": (4, 4),
    }


def reference_log_likelihood(crf, emissions, tags, lengths):
    """Of one batch (T, B, K), by enumeration over the package's oracle."""
    total = 0.0
    for b, n in enumerate(lengths):
        nodes = emissions[:n, b].double().numpy().copy()
        nodes[0] += crf.start_transitions.detach().double().numpy()
        nodes[-1] += crf.end_transitions.detach().double().numpy()
        trans = crf.transitions.detach().double().numpy()
        graph = cw.FactorGraph.chain(nodes, np.broadcast_to(trans, (n - 1, *trans.shape)))
        total += graph.score(tags[:n, b].numpy()) - graph.marginals().log_z
    return total


def test_chain_crf_gives_the_log_likelihood_in_both_layouts_and_all_reductions():
    torch.manual_seed(0)
    crf = cwt.ChainCRF(5)
    emissions, tags = torch.randn(7, 3, 5), torch.randint(0, 5, (7, 3))
    lengths = [7, 4, 1]
    mask = torch.arange(7)[:, None] < torch.tensor(lengths)
    expected = reference_log_likelihood(crf, emissions, tags, lengths)
    value = crf(emissions, tags, mask.to(torch.uint8))
    assert value.item() == pytest.approx(expected, rel=1e-5)
    first = cwt.ChainCRF(5, batch_first=True)
    first.load_state_dict(crf.state_dict())
    across = [x.transpose(0, 1) for x in (emissions, tags, mask)]
    assert first(*across).item() == pytest.approx(expected, rel=1e-5)
    none = crf(emissions, tags, mask, reduction="none")
    assert none.shape == (3,)
    assert crf(emissions, tags, mask, reduction="mean").item() == pytest.approx(expected / 3)
    assert crf(emissions, tags, mask, reduction="token_mean").item() == pytest.approx(expected / 12)
    decoded = crf.decode(emissions, mask)
    assert [len(row) for row in decoded] == lengths
    assert decoded == first.decode(across[0], across[2])


def test_chain_crf_equals_pytorch_crf_where_that_is_installed():
    torchcrf = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed")
    torch.manual_seed(1)
    theirs, ours = torchcrf.CRF(6, batch_first=True), cwt.ChainCRF(6, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    emissions, tags = torch.randn(4, 9, 6), torch.randint(0, 6, (4, 9))
    mask = torch.arange(9) < torch.tensor([9, 5, 2, 1])[:, None]
    for reduction in ("sum", "mean", "token_mean"):
        left = ours(emissions, tags, mask, reduction=reduction)
        right = theirs(emissions, tags, mask, reduction=reduction)
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-5)
    left.backward(), right.backward()
    for own, other in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-5)
    assert ours.decode(emissions, mask) == theirs.decode(emissions, mask)


def test_chain_crf_never_decodes_a_forbidden_transition():
    torch.manual_seed(2)
    forbidden = ~torch.eye(4, dtype=torch.bool) & (torch.rand(4, 4) < 0.5)
    crf = cwt.ChainCRF(4, batch_first=True, forbidden=forbidden)
    emissions = 10 * torch.randn(5, 12, 4)
    for row in crf.decode(emissions):
        assert not forbidden[row[:-1], row[1:]].any()
    draws = crf.sample(emissions, 20)
    assert not forbidden[draws[..., :-1], draws[..., 1:]].any()
    scores, labels = crf.top_k(emissions, 3)
    assert (scores[:, :-1] >= scores[:, 1:]).all() and labels.shape == (5, 3, 12)
    torch.testing.assert_close(crf.marginals(emissions).nodes.sum(-1), torch.ones(5, 12))


def test_chain_crf_refuses_bad_input():
    crf = cwt.ChainCRF(3)
    emissions, tags = torch.zeros(4, 2, 3), torch.zeros(4, 2, dtype=torch.long)
    with pytest.raises(DataError, match="num_tags = "):
        cwt.ChainCRF(0)
    with pytest.raises(DataError, match="emissions must have shape"):
        crf(torch.zeros(4, 2, 5), tags)
    with pytest.raises(DataError, match="tags must have shape"):
        crf(emissions, tags[:3])
    with pytest.raises(DataError, match="invalid reduction"):
        crf(emissions, tags, reduction="median")
    with pytest.raises(DataError, match="mask must have shape"):
        crf(emissions, tags, torch.zeros(4, 3, dtype=torch.bool))
    with pytest.raises(DataError, match="mean loss of an empty batch"):
        crf(emissions, tags, torch.zeros(4, 2, dtype=torch.bool), reduction="token_mean")


@pytest.mark.parametrize("loss", ["log", "hinge", "smooth_hinge", "softmax_margin"])
def test_candidate_losses_are_convex_above_zero_and_differentiable(loss):
    torch.manual_seed(3)
    scores = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 5, (6,))
    costs = torch.rand(6, 5, dtype=torch.float64).scatter(1, target[:, None], 0.0)
    layer = cwt.CandidateLoss(loss, gamma=0.5, reduction="none")
    assert (layer(scores, target, costs) >= 0).all()
    assert torch.autograd.gradcheck(lambda x: layer(x, target, costs), scores)
    other = torch.randn(6, 5, dtype=torch.float64)
    middle = layer((scores + other) / 2, target, costs)
    ends = (layer(scores, target, costs) + layer(other, target, costs)) / 2
    assert (middle <= ends + 1e-12).all()


def test_smooth_hinge_lies_above_the_hinge_by_at_most_half_gamma():
    torch.manual_seed(4)
    scores, target = torch.randn(50, 8), torch.randint(0, 8, (50,))
    hinge = cwt.CandidateLoss("hinge", reduction="none")(scores, target)
    for gamma in (0.1, 1.0, 10.0):
        smooth = cwt.CandidateLoss("smooth_hinge", gamma, "none")(scores, target)
        assert (smooth >= hinge - 1e-5).all() and (smooth <= hinge + gamma / 2 + 1e-5).all()


def test_masked_candidates_do_not_count():
    layer = cwt.CandidateLoss("log")
    scores = torch.tensor([[1.0, 2.0, 50.0]])
    mask = torch.tensor([[True, True, False]])
    target = torch.tensor([0])
    torch.testing.assert_close(layer(scores, target, mask=mask), layer(scores[:, :2], target))


TREE = [(0,), (1,), (2,), (3,), (0, 1), (1, 2), (1, 3)]
LOOP = [*TREE[:4], (0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]


@pytest.mark.parametrize("scopes", [TREE, LOOP], ids=["tree", "loop"])
def test_graph_log_partition_has_the_factor_marginals_as_gradient(scopes):
    structure = cw.Structure([2, 3, 2, 2], scopes)
    torch.manual_seed(5)
    size = int(structure.table_offsets[-1])
    potentials = torch.randn(3, size, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: cwt.graph_log_partition(structure, x), potentials)
    row = potentials[1].detach().numpy()
    expected = cw.FactorGraph.from_structure(structure, row).marginals("brute-force").log_z
    assert cwt.graph_log_partition(structure, potentials)[1].item() == pytest.approx(expected)


@pytest.mark.parametrize("loss", ["log", "hinge", "smooth_hinge", "softmax_margin"])
def test_graph_losses_of_a_chain_equal_chain_losses(loss):
    torch.manual_seed(6)
    nodes, trans = torch.randn(2, 3, 2).double(), torch.randn(2, 2).double()
    tags = torch.randint(0, 2, (2, 3))
    structure = cw.Structure([2, 2, 2], [(0,), (1,), (2,), (0, 1), (1, 2)])
    tables = trans.flatten().repeat(2, 2)
    potentials = torch.cat([nodes.flatten(1), tables], 1).requires_grad_()
    left = cwt.graph_loss(loss, structure, potentials, tags, gamma=0.6, k=8)
    right = cwt.chain_loss(loss, tags, nodes, trans, gamma=0.6, k=8)
    torch.testing.assert_close(left, right)
    assert torch.autograd.gradcheck(
        lambda x: cwt.graph_loss(loss, structure, x, tags, gamma=0.6, k=8), potentials
    )


def test_graph_loss_with_a_cost_needs_a_factor_for_every_variable():
    structure = cw.Structure([2, 2], [(0,), (0, 1)])
    with pytest.raises(UnsupportedError, match=r"add the scope \(1,\)"):
        cwt.graph_loss("hinge", structure, torch.zeros(1, 6), torch.tensor([[0, 0]]))


def test_multilabel_crf_learns_that_two_labels_exclude_each_other():
    torch.manual_seed(7)
    crf = cwt.MultiLabelCRF(3)
    labels = torch.tensor([[1, 0, 0], [0, 1, 1], [1, 0, 1], [0, 1, 0]] * 4)
    optimizer = torch.optim.LBFGS(crf.parameters(), max_iter=20)

    def closure():
        optimizer.zero_grad()
        loss = crf(torch.zeros(16, 3), labels) + 0.01 * crf.pairs.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert crf.decode(torch.tensor([[3.0, 2.0, 0.5], [2.0, 3.0, -0.5]])).tolist() == [
        [1, 0, 1], [0, 1, 0],
    ]  # fmt: skip
    marginals = crf.marginals(torch.zeros(1, 3))
    torch.testing.assert_close(marginals, torch.full((1, 3), 0.5), atol=0.05, rtol=0)


def test_multilabel_crf_asks_for_edges_where_all_pairs_are_too_many():
    with pytest.raises(DataError, match="pass the edges"):
        cwt.MultiLabelCRF(40)
    assert cwt.MultiLabelCRF(40, edges=[(v, v + 1) for v in range(39)]).pairs.shape == (39, 2, 2)


def test_importing_the_package_does_not_import_torch():
    code = "import sys, cliquewise; cliquewise.FactorGraph; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_torch_the_message_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import cliquewise\n"
        "try:\n    import cliquewise.torch\n"
        "except ImportError as error:\n    assert 'cliquewise[torch]' in str(error)\n"
        "else:\n    sys.exit(1)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_forbidden_transitions_may_be_pairs_of_tags():
    mask = torch.zeros(3, 3, dtype=torch.bool)
    mask[0, 1] = mask[2, 2] = True
    for pairs in ([(0, 1), (2, 2)], np.array([[0, 1], [2, 2]]), mask, mask.tolist()):
        assert torch.equal(cwt.ChainCRF(3, forbidden=pairs).forbidden, mask)
    assert torch.equal(cwt.ChainCRF(2, forbidden=[(0, 1), (1, 0)]).forbidden, ~torch.eye(2).bool())
    assert not cwt.ChainCRF(2, forbidden=[]).forbidden.any()
    for wrong in ([(0, 3)], [(-1, 0)], [(0, 1, 2)], [0, 1], "01", torch.zeros(3, 3)):
        with pytest.raises(DataError, match="forbidden"):
            cwt.ChainCRF(3, forbidden=wrong)
