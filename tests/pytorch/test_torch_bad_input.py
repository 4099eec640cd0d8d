"""What is no input gives an error that says what to do, or NaN; never a plausible number."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")
from torch_cases import Batch  # noqa: E402

import cliquewise as cw  # noqa: E402
from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError  # noqa: E402
from cliquewise.torch.losses import LOSSES  # noqa: E402

NAN = float("nan")


# ---- tags


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(2, 3), (3, 4), (4, 2), (2, 4, 1), (1, 4), (4,)])
def test_tags_of_another_shape_are_refused_by_every_chain_loss(loss, shape):
    tags = torch.zeros(shape, dtype=torch.long)
    with pytest.raises(DataError, match=r"tags must have the shape \(B, T\) = \(2, 4\)"):
        cwt.chain_loss(loss, tags, torch.zeros(2, 4, 3), torch.zeros(3, 3))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("wrong", [-1, 3, 10**9])
def test_an_invalid_tag_is_reported_unless_it_is_padding(loss, wrong):
    nodes, trans = torch.randn(2, 4, 3), torch.randn(3, 3)
    tags = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    mask = torch.tensor([[True] * 4, [True, True, True, False]])
    expected = cwt.chain_loss(loss, tags, nodes, trans, mask=mask)
    tags[1, 3] = wrong
    assert cwt.chain_loss(loss, tags, nodes, trans, mask=mask) == expected
    with pytest.raises(DataError, match=rf"tags\[1, 3\] = {wrong}, but the labels are 0..2"):
        cwt.chain_loss(loss, tags, nodes, trans)
    with pytest.raises(DataError, match=r"tags\[1, 3\]"):
        cwt.ChainCRF(3, batch_first=True)(nodes, tags)
    with pytest.raises(DataError, match=r"tags\[1, 3\]"):
        cwt.path_score(tags, nodes, trans)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_tags_that_are_no_integers_are_rejected(dtype):
    with pytest.raises(DataError, match=r"integers.*tags.long\(\)"):
        cwt.chain_loss("log", torch.zeros(1, 2, dtype=dtype), torch.zeros(1, 2, 3), torch.eye(3))
    small = torch.zeros(1, 2, dtype=torch.int32)
    assert torch.isfinite(cwt.chain_loss("log", small, torch.zeros(1, 2, 3), torch.eye(3)))


# ---- what strangers hand over


def test_what_is_no_tensor_or_elsewhere_is_named():
    crf = cwt.ChainCRF(3, batch_first=True)
    emissions, tags = torch.randn(2, 4, 3), torch.zeros(2, 4, dtype=torch.long)
    mask = torch.ones(2, 4, dtype=torch.bool)
    for name, arguments in (
        ("emissions", (emissions.numpy(), tags)), ("tags", (emissions, tags.tolist())),
        ("tags", (emissions, None)), ("mask", (emissions, tags, mask.numpy())),
    ):  # fmt: skip
        with pytest.raises(DataError, match=rf"{name} must be a tensor.*torch.as_tensor"):
            crf(*arguments)
    for name, arguments in (
        ("tags", (emissions, tags.to("meta"))), ("mask", (emissions, tags, mask.to("meta"))),
        ("transitions", (emissions.to("meta"), tags)),
    ):  # fmt: skip
        with pytest.raises(DataError, match=rf"{name} and the node scores are on different"):
            crf(*arguments)


@pytest.mark.parametrize("batch_first", [True, False])
def test_axes_in_the_other_order_are_told_by_batch_first(batch_first):
    crf = cwt.ChainCRF(3, batch_first)
    emissions, tags = torch.randn(2, 4, 3), torch.zeros(4, 2, dtype=torch.long)
    with pytest.raises(DataError, match=rf"tags must have shape \(2, 4\).*={batch_first}"):
        crf(emissions, tags)
    with pytest.raises(DataError, match=rf"mask must have shape \(2, 4\).*={batch_first}"):
        crf.decode(emissions, tags.bool())


@pytest.mark.parametrize("wrong", [0.5, NAN, -torch.inf])
def test_a_mask_of_numbers_other_than_0_and_1_is_rejected(wrong):
    crf, emissions = cwt.ChainCRF(3, batch_first=True), torch.randn(1, 3, 3)
    with pytest.raises(DataError, match="mask == 0"):
        crf.decode(emissions, torch.tensor([[0.0, 0.0, wrong]]))
    assert [len(row) for row in crf.decode(emissions, torch.tensor([[1.0, 1.0, 0.0]]))] == [2]


@pytest.mark.parametrize("count", ["3", 3.0, ["O", "B-X"], 0, -1, None])
def test_a_number_of_tags_that_is_none_is_rejected(count):
    with pytest.raises(DataError, match=r"num_tags = .*whole number, at least 1"):
        cwt.ChainCRF(count)


def test_names_of_labels_that_are_none_are_rejected():
    for labels in (5, "BIO", {"O", "B-X"}, {"O": 0, "B-X": 1}, {"0": "O", "1": "B-X"}):
        with pytest.raises(DataError, match=r"names of all tags|id2label"):
            cwt.ChainCRF.from_scheme("BIO", labels)
    crf, emissions = cwt.ChainCRF(3, batch_first=True), torch.randn(1, 3, 3)
    mask = torch.ones(1, 3)
    with pytest.raises(DataError, match="whole number"):
        crf.top_k(emissions, mask)
    with pytest.raises(DataError, match="whole number"):
        crf.sample(emissions, mask)


# ---- NaN


@pytest.mark.parametrize("backend", ["numba", "plain"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("where", ["nodes", "transitions", "begin", "end"])
@pytest.mark.parametrize("shared", [True, False])
def test_nan_scores_give_nan_and_leave_the_other_chains_alone(backend, dtype, where, shared):
    batch = Batch(3, 3, 4, 3, dtype=dtype, shared=shared, masked=False)
    batch.mask = torch.tensor([[True] * 4, [True, True, True, False], [False] * 4])
    clean = cwt.log_partition(**batch.scores, backend=backend)
    scores = batch.scores
    scores[where] = scores[where].clone()
    at = {"nodes": (1, 2, 0), "begin": (1,), "end": (2,)}
    scores[where][at.get(where, (0, 1) if shared else (1, 0, 2, 2))] = NAN
    all_chains = where in ("begin", "end") or (where == "transitions" and shared)
    expected = [all_chains, True, False]
    value = cwt.log_partition(**scores, backend=backend)
    assert value.isnan().tolist() == expected
    torch.testing.assert_close(value[~value.isnan()], clean[~value.isnan()])
    best, _ = cwt.viterbi(**scores, backend=backend)
    assert best.isnan().tolist() == expected
    found = cwt.marginals(**scores, backend=backend)
    assert found.nodes.isnan().flatten(1).any(1).tolist() == expected
    assert found.edges.isnan().any()


@pytest.mark.parametrize("backend", ["numba", "plain"])
def test_nan_where_there_is_no_position_does_not_count(backend):
    batch = Batch(5, 3, 4, 3, scale=300.0)
    clean = cwt.marginals(**batch.scores, backend=backend)
    scores = batch.scores
    scores["nodes"] = batch.nodes.masked_fill(~batch.mask.unsqueeze(-1), NAN)
    found = cwt.marginals(**scores, backend=backend)
    for mine, theirs in zip(found, clean):
        torch.testing.assert_close(mine, theirs)
    assert cwt.viterbi(**scores, backend=backend)[1].equal(cwt.viterbi(**batch.scores)[1])


def test_nothing_is_decoded_or_drawn_from_nan():
    crf = cwt.ChainCRF(3, batch_first=True)
    emissions = torch.zeros(2, 4, 3)
    emissions[1, 2, 0] = NAN
    for answer in (crf.decode, crf.predict):
        with pytest.raises(DataError, match="sequence 1 contain NaN"):
            answer(emissions)
    with pytest.raises(DataError, match="chain 1 contain NaN"):
        crf.sample(emissions)


def test_nothing_is_decoded_where_no_labeling_is_possible():
    crf = cwt.ChainCRF.from_scheme("BIOES", ["B-X", "I-X", "E-X"], batch_first=True)
    emissions, mask = torch.zeros(3, 2, 3), torch.tensor([[1, 1], [0, 1], [0, 0]])
    for answer in (crf.decode, crf.predict):
        with pytest.raises(DataError, match="sequence 1 has no possible labeling"):
            answer(emissions, mask)
    mask[1, 1] = 0
    assert crf.decode(emissions, mask) == [[0, 2], [], []]
    emissions[0, 1] = -torch.inf
    with pytest.raises(DataError, match="sequence 0 has no possible labeling"):
        crf.decode(emissions)


def test_a_loss_of_nan_scores_is_nan():
    nodes = torch.zeros(2, 3, 2)
    nodes[0, 1, 1] = NAN
    tags = torch.zeros(2, 3, dtype=torch.long)
    for loss in LOSSES:
        value = cwt.chain_loss(loss, tags, nodes, torch.zeros(2, 2), reduction="none")
        assert value.isnan().tolist() == [True, False], loss


# ---- empty batches


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["chain", "graph"])
def test_an_empty_batch_has_no_losses_a_sum_of_zero_and_no_mean(loss, kind):
    if kind == "chain":
        scores = torch.zeros(0, 4, 3, requires_grad=True)
        trans = torch.zeros(3, 3, requires_grad=True)
        tags = torch.zeros(0, 4, dtype=torch.long)

        def value(reduction):
            return cwt.chain_loss(loss, tags, scores, trans, reduction=reduction)
    else:
        pair = cw.Structure([2, 2], [(0,), (1,), (0, 1)])
        scores = torch.zeros(0, 8, requires_grad=True)
        labels = torch.zeros(0, 2, dtype=torch.long)

        def value(reduction):
            return cwt.graph_loss(loss, pair, scores, labels, reduction=reduction)

    assert value("none").shape == (0,)
    total = value("sum")
    assert total == 0
    total.backward()
    assert scores.grad is not None and scores.grad.shape == scores.shape
    with pytest.raises(DataError, match=r'empty batch.*reduction="sum"'):
        value("mean")


def test_graphs_without_factors_and_empty_batches_of_graphs_are_answered():
    loose = cw.Structure([2, 3], [])
    value = cwt.graph_log_partition(loose, torch.zeros(2, 0))
    torch.testing.assert_close(value, torch.full((2,), 6.0).log())
    pair = cw.Structure([2, 2], [(0, 1)])
    score, labels = cwt.graph_map(pair, torch.zeros(0, 4))
    assert score.shape == (0,) and labels.shape == (0, 2)


@pytest.mark.parametrize("labels", [[[0, 2]], [[-1, 0]], [[0]], [0, 1, 0]])
def test_labels_of_graphs_are_checked(labels):
    pair = cw.Structure([2, 2], [(0,), (1,), (0, 1)])
    with pytest.raises(DataError, match="labels"):
        cwt.graph_loss("log", pair, torch.zeros(1, 8), torch.tensor(labels))


# ---- candidates and divergences


@pytest.mark.parametrize("loss", LOSSES)
def test_a_target_that_the_mask_hides_is_rejected(loss):
    mask = torch.tensor([[True, True, False], [True, False, True]])
    lossy = cwt.CandidateLoss(loss)
    assert torch.isfinite(lossy(torch.randn(2, 3), torch.tensor([1, 2]), mask=mask))
    with pytest.raises(DataError, match=r"target\[1\] = 1 is masked out"):
        lossy(torch.randn(2, 3), torch.tensor([0, 1]), mask=mask)
    with pytest.raises(DataError, match=r"target\[0\] = 3, but the candidates are 0..2"):
        lossy(torch.randn(2, 3), torch.tensor([3, 0]))
    with pytest.raises(DataError, match="mask must have shape"):
        lossy(torch.randn(2, 3), torch.tensor([0, 0]), mask=mask[:1])


def test_a_divergence_of_chains_of_other_lengths_is_rejected():
    p, q = Batch(0, 2, 4, 3, masked=False), Batch(1, 2, 4, 3, masked=False)
    short = torch.tensor([[True] * 4, [True, True, False, False]])
    p.mask = short
    with pytest.raises(DataError, match="row 1 has 2 positions by the mask of p and 4 by"):
        cwt.kl_divergence(tuple(p.scores.values()), tuple(q.scores.values()))
    q.mask = short.clone()
    value = cwt.kl_divergence(tuple(p.scores.values()), tuple(q.scores.values()))
    whole = [
        (x.nodes[1:, :2], x.transitions, x.begin, x.end) for x in (p, q)
    ]  # the second chain on its own
    torch.testing.assert_close(value[1:], cwt.kl_divergence(*whole))
