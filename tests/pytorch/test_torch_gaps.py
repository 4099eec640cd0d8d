"""Masks with gaps, as subwords have: every answer is that of the chain without the gaps."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch_cases import Batch  # noqa: E402

from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError  # noqa: E402
from cliquewise.torch.losses import LOSSES  # noqa: E402

CUDA = pytest.param(
    "cuda",
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
)
DEVICES = ["cpu", CUDA]


class Gapped(Batch):
    """A batch whose mask has gaps anywhere, also at the first position, or is empty."""

    def __init__(self, seed, size=4, length=6, k=3, *, density=0.5, device="cpu", **options):
        super().__init__(seed, size, length, k, masked=False, **options)
        rng = np.random.default_rng([seed, 1])
        self.mask = torch.tensor(rng.random((size, length)) < density)
        for name in ("nodes", "transitions", "begin", "end", "mask", "tags"):
            value = getattr(self, name)
            setattr(self, name, None if value is None else value.to(device))

    def closed(self, b):
        """The scores of chain b alone, cut to its positions: what any answer must equal."""
        at = self.mask[b].nonzero()[:, 0]
        trans = self.transitions
        if trans.dim() == 4:
            trans = trans[b, at[1:] - 1].unsqueeze(0)
        return {
            "nodes": self.nodes[b, at].unsqueeze(0), "transitions": trans, "begin": self.begin,
            "end": self.end,
        }, at  # fmt: skip


def drawn(**fixed):
    return st.builds(
        Gapped, st.integers(0, 10**6), density=st.sampled_from([0.2, 0.5, 0.8]),
        shared=st.booleans(), ends=st.booleans(), **fixed,
    )  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["auto", "plain"])
def test_every_answer_equals_that_of_the_compacted_chain(backend, device):
    @settings(max_examples=10, deadline=None, database=None)
    @given(drawn(device=st.just(device)))
    def check(batch):
        log_z = cwt.log_partition(**batch.scores, backend=backend)
        best, labels = cwt.viterbi(**batch.scores, backend=backend)
        probability = cwt.marginals(**batch.scores, backend=backend)
        scores, lists = cwt.top_k(**batch.scores, k=3)
        draws = cwt.sample(**batch.scores, n=4)
        smooth = cwt.smoothed_max(**batch.scores, gamma=0.5)
        entropy = cwt.entropy(**batch.scores)
        for b in range(len(log_z)):
            own, at = batch.closed(b)
            left_out = ~batch.mask[b]
            torch.testing.assert_close(log_z[b], cwt.log_partition(**own)[0])
            expected, path = cwt.viterbi(**own)
            torch.testing.assert_close(best[b], expected[0])
            assert torch.equal(labels[b, at], path[0]) and not labels[b, left_out].any()
            alone = cwt.marginals(**own)
            torch.testing.assert_close(probability.nodes[b, at], alone.nodes[0])
            assert not probability.nodes[b, left_out].any()
            if probability.edges.dim() == 4:
                torch.testing.assert_close(probability.edges[b, at[1:] - 1], alone.edges[0])
                torch.testing.assert_close(probability.edges[b].sum(), alone.edges.sum())
            expected, paths = cwt.top_k(**own, k=3)
            torch.testing.assert_close(scores[b], expected[0])
            possible = scores[b] > -torch.inf
            assert torch.equal(lists[b][possible][:, at], paths[0][possible])
            assert not lists[b][:, left_out].any() and not draws[:, b, left_out].any()
            assert draws.shape == (4, *batch.mask.shape)
            torch.testing.assert_close(smooth[b], cwt.smoothed_max(**own, gamma=0.5)[0])
            torch.testing.assert_close(entropy[b], cwt.entropy(**own)[0])

    check()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("device", DEVICES)
def test_losses_and_gradients_equal_those_of_the_compacted_chains(loss, device):
    for seed, shared in ((0, True), (1, False), (2, True)):
        batch = Gapped(seed, shared=shared, device=device)
        leaves = [batch.nodes, batch.transitions, batch.begin, batch.end]
        for leaf in leaves:
            leaf.requires_grad_()
        value = cwt.chain_loss(loss, batch.tags, **batch.scores, reduction="none")
        expected = []
        for b in range(len(value)):
            own, at = batch.closed(b)
            expected.append(cwt.chain_loss(loss, batch.tags[b, at][None], **own, reduction="sum"))
        expected = torch.stack(expected)
        torch.testing.assert_close(value, expected)
        weights = torch.linspace(0.5, 1.5, len(value), dtype=value.dtype, device=device)
        found = torch.autograd.grad((value * weights).sum(), leaves)
        others = torch.autograd.grad((expected * weights).sum(), leaves)
        for mine, theirs in zip(found, others):
            torch.testing.assert_close(mine, theirs)
        assert not found[0][~batch.mask].any()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_under_a_mask_with_gaps_pass_gradcheck(shared, device):
    batch = Gapped(7, 2, 3, 2, shared=shared, device=device)
    batch.mask[0] = torch.tensor([False, True, True], device=device)
    batch.mask[1] = torch.tensor([True, False, True], device=device)
    leaves = [x.requires_grad_() for x in (batch.nodes, batch.transitions, batch.begin, batch.end)]

    def likelihood(*scores):
        return cwt.chain_loss("log", batch.tags, *scores, batch.mask, reduction="none")

    assert torch.autograd.gradcheck(likelihood, leaves)
    assert torch.autograd.gradgradcheck(likelihood, leaves, fast_mode=True)

    def nodes(*scores):
        return cwt.marginals(*scores, batch.mask).nodes

    assert torch.autograd.gradcheck(nodes, leaves)


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_in_gaps_do_not_count_whatever_they_are(device):
    batch = Gapped(3, device=device)
    clean = cwt.marginals(**batch.scores)
    batch.nodes = batch.nodes.masked_fill(~batch.mask.unsqueeze(-1), torch.nan).requires_grad_()
    batch.tags = batch.tags.masked_fill(~batch.mask, 10**6)
    torch.testing.assert_close(cwt.log_partition(**batch.scores), clean.log_z)
    cwt.chain_loss("log", batch.tags, **batch.scores).backward()
    assert torch.isfinite(batch.nodes.grad).all()


# ---- ChainCRF


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_chain_crf_puts_labels_back_and_decodes_to_lists_as_long_as_the_mask_has_ones(
    batch_first, device
):
    batch = Gapped(11, 5, 8, 4, dtype=torch.float32, device=device)
    batch.mask[2] = False
    crf = cwt.ChainCRF(4, batch_first).to(device)
    turned = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
    emissions, mask, tags = (turned(x) for x in (batch.nodes, batch.mask, batch.tags))
    value = crf(emissions, tags, mask, reduction="none")
    lists, labels = crf.decode(emissions, mask), crf.predict(emissions, mask)
    assert [len(row) for row in lists] == batch.mask.sum(1).tolist()
    assert (labels[~batch.mask] == -100).all()
    nodes = crf.marginals(emissions, mask).nodes
    _, paths = crf.top_k(emissions, 2, mask)
    assert not crf.sample(emissions, 3, mask)[:, ~batch.mask].any()
    alone = cwt.ChainCRF(4, batch_first=True).to(device)
    alone.load_state_dict(crf.state_dict())
    for b in range(5):
        own, at = batch.closed(b)
        torch.testing.assert_close(value[b], alone(own["nodes"], batch.tags[b, at][None]))
        assert [lists[b]] == alone.decode(own["nodes"]) == [labels[b, at].tolist()]
        torch.testing.assert_close(nodes[b, at], alone.marginals(own["nodes"]).nodes[0])
        assert torch.equal(paths[b, 0, at], labels[b, at])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("loss", [*LOSSES, "crf"])
def test_tags_of_minus_100_are_left_out_with_and_without_a_mask(loss, device):
    batch = Gapped(5, device=device)
    crf = cwt.ChainCRF(3, batch_first=True).double().to(device)

    def value(tags, mask):
        if loss == "crf":
            reductions = ("none", "sum", "mean", "token_mean")
            return [crf(batch.nodes, tags, mask, reduction) for reduction in reductions]
        own = batch.scores | {"mask": mask}
        return cwt.chain_loss(loss, tags, **own, reduction="none")

    known = batch.mask.roll(1, 0)
    both = value(batch.tags, batch.mask & known)
    hidden = batch.tags.masked_fill(~known, -100)
    torch.testing.assert_close(value(hidden, batch.mask), both)
    torch.testing.assert_close(value(hidden.masked_fill(~batch.mask, -100), None), both)
    torch.testing.assert_close(value(hidden.int(), batch.mask.to(torch.uint8)), both)


def test_other_tags_that_are_no_labels_are_named_at_the_place_where_they_stand():
    crf, emissions = cwt.ChainCRF(3, batch_first=True), torch.randn(2, 4, 3)
    tags = torch.tensor([[0, 1, 2, 1], [-100, -100, 1, -1]])
    with pytest.raises(DataError, match=r"tags\[1, 3\] = -1.*mask=\(tags != -1\).*-100"):
        crf(emissions, tags)
    with pytest.raises(DataError, match=r"tags\[0, 3\] = 5, but the labels are 0\.\.2"):
        crf(emissions, torch.tensor([[-100, 0, -100, 5], [0, 1, 2, 0]]))


def test_a_divergence_needs_the_same_gaps():
    p, q = Gapped(1), Gapped(2)
    q.mask = p.mask
    value = cwt.kl_divergence(tuple(p.scores.values()), tuple(q.scores.values()))
    for b in range(4):
        own = [tuple(x.closed(b)[0].values()) for x in (p, q)]
        torch.testing.assert_close(value[b : b + 1], cwt.kl_divergence(*own))
    p.mask, q.mask = (torch.tensor([row] * 4) for row in ([1, 0, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0]))
    with pytest.raises(DataError, match="the same mask"):
        cwt.kl_divergence(tuple(p.scores.values()), tuple(q.scores.values()))


def test_a_classifier_trains_on_chains_with_gaps_and_unknown_labels():
    torch.manual_seed(0)
    x = torch.randn(60, 7, 3)
    y = (x[:, :, 0] > 0).long()
    mask = torch.rand(60, 7) < 0.5
    mask[:, -1] = True  # so that cutting rows to the greatest number of positions would fail
    y[torch.rand(60, 7) < 0.2] = -100
    tagger = cwt.StructuredClassifier(
        torch.nn.Linear(3, 2), "chain", n_labels=2, max_epochs=10, random_state=0, device="cpu",
        solver=cwt.Adam(rate=0.1),
    )  # fmt: skip
    assert tagger.fit(x, y, mask).score(x, y, mask) > 0.9


# ---- schemes


@pytest.mark.parametrize("scheme", ["BIO", "BIOES", "IOBES", "IOB2", "IO"])
def test_from_scheme_decodes_and_draws_only_labelings_of_the_scheme(scheme):
    letters = {"BIO": "BI", "IOB2": "BI", "IO": "I"}.get(scheme, "BIES")
    labels = ["O", *(f"{x}-{kind}" for kind in ("PER", "LOC") for x in letters)]
    crf = cwt.ChainCRF.from_scheme(scheme, labels, batch_first=True)
    assert cwt.ChainCRF.from_scheme(scheme, dict(enumerate(labels))).num_tags == len(labels)
    torch.manual_seed(0)
    emissions, mask = 10 * torch.randn(20, 9, len(labels)), torch.rand(20, 9) < 0.7
    rows = crf.decode(emissions, mask)
    rows += [
        [tag for tag, on in zip(draw, keep) if on]
        for draws in crf.sample(0 * emissions, 5, mask).tolist()
        for draw, keep in zip(draws, mask.tolist())
    ]
    seen = set()
    for row in rows:
        names = [labels[tag] for tag in row]
        assert possible(names, scheme), names
        seen |= {name[0] for name in names}
    assert seen == {"O", *letters}


def possible(names, scheme):
    """Whether a labeling is one of the scheme, read from left to right."""
    if scheme == "IO":
        return True
    open_type = None  # the type that may, or in BIOES must, go on
    strict = scheme in ("BIOES", "IOBES")
    for name in names:
        letter, _, kind = name.partition("-")
        if letter in ("I", "E"):
            if open_type != kind:
                return False
        elif strict and open_type is not None:
            return False
        open_type = kind if letter in ("B", "I") else None
    return not (strict and open_type is not None)


def test_labels_that_the_scheme_does_not_know_are_named_by_number():
    crf = cwt.ChainCRF.from_scheme("BIOES", ["O", "B-X", "I-X", "E-X", "S-X"], batch_first=True)
    emissions = torch.zeros(2, 4, 5)
    good = torch.tensor([[0, 1, 2, 3], [4, -100, 1, 3]])
    assert torch.isfinite(crf(emissions, good))
    for row, what in (
        ([2, 3, 0, 0], "2 cannot come first"),
        ([0, 0, 0, 1], "1 cannot come last"),
        ([1, -100, 0, 0], "0 cannot follow 1"),
    ):
        with pytest.raises(DataError, match=f"sequence 1 are impossible: {what}"):
            crf(emissions, torch.stack([good[0], torch.tensor(row)]))
    with pytest.raises(DataError, match="no scheme 'BILU'"):
        cwt.ChainCRF.from_scheme("BILU", ["O"])
    with pytest.raises(DataError, match="label 'PER' is not of the scheme BIO"):
        cwt.ChainCRF.from_scheme("BIO", ["O", "PER"])


def test_forbidden_starts_and_ends_may_be_tags_or_masks():
    for tags in ([1], torch.tensor([False, True, False]), np.array([1])):
        crf = cwt.ChainCRF(3, batch_first=True, forbidden_starts=tags, forbidden_ends=tags)
        row = crf.decode(torch.tensor([[[0.0, 9.0, 0.0]] * 3]))[0]
        assert row[0] != 1 and row[1] == 1 and row[2] != 1
        assert torch.equal(crf.state_dict()["forbidden_ends"], torch.tensor([False, True, False]))
    for wrong in ([3], [-1], [[0, 1]], torch.zeros(3)):
        with pytest.raises(DataError, match="forbidden_starts"):
            cwt.ChainCRF(3, forbidden_starts=wrong)
