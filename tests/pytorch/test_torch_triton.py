"""The Triton kernels give the answers of plain PyTorch: on a GPU, or interpreted."""

from __future__ import annotations

import math
import os

import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")
pytest.importorskip("triton", reason="Triton is not installed")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (torch.cuda.is_available() or INTERPRETED):
    pytest.skip("Triton kernels need a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from torch_cases import Batch  # noqa: E402

from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError  # noqa: E402
from cliquewise.torch import _triton  # noqa: E402
from cliquewise.torch._scores import Scores, make_scores  # noqa: E402
from cliquewise.torch.chain import decode, log_likelihood  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KINDS = [
    {},
    {"shared": False},
    {"ends": False, "masked": False},
    {"forbidden": 0.3},
    {"scale": 1e4},
]


def on_device(batch):
    return {n: None if x is None else x.to(DEVICE) for n, x in batch.scores.items()}


def answers(batch, backend, with_tags):
    scores = on_device(batch)
    mask = scores["mask"]
    leaves = {
        n: x.clone().requires_grad_() for n, x in scores.items() if n != "mask" and x is not None
    }
    tags = batch.tags.to(DEVICE) if with_tags else None
    value = log_likelihood(make_scores(**leaves, mask=mask), tags, backend=backend)
    weights = torch.linspace(0.5, 1.5, len(value), dtype=value.dtype, device=DEVICE)
    finite = torch.where(torch.isfinite(value), value, torch.zeros_like(value))
    gradients = torch.autograd.grad((finite * weights).sum(), list(leaves.values()))
    best, _ = cwt.viterbi(**scores, backend=backend)
    return [value.detach(), best, *gradients]


def gapped(batch, seed):
    """The batch with a mask that leaves out positions anywhere, and all of the second chain."""
    generator = torch.Generator().manual_seed(seed)
    batch.mask = torch.rand(batch.shape[:2], generator=generator) < 0.6
    batch.mask[1:2] = False
    batch.mask[2:3] = True
    return batch


@pytest.mark.parametrize(
    "shape, kind",
    [
        ((4, 6, 3), {}), ((4, 6, 3), {"shared": False}), ((4, 6, 3), {"ends": False}),
        ((4, 6, 3), {"scale": 1e3}), ((3, 140, 2), {}), ((4, 7, 20), {}),
        ((4, 7, 20), {"shared": False}),
    ],
    ids=str,
)  # fmt: skip
def test_gaps_are_closed_inside_the_kernels(shape, kind):
    batch = gapped(Batch(1, *shape, **kind), 0)
    # What stands in gaps counts nowhere; tags of -100 are gaps as well.
    batch.nodes[~batch.mask] = math.nan
    unmasked = Batch(1, *shape, **kind)
    unmasked.mask, unmasked.nodes = None, batch.nodes
    unmasked.tags = batch.tags.masked_fill(~batch.mask, -100)
    tol = 1e-9 * kind.get("scale", 1.0)
    for with_tags in (False, True):
        plain = answers(batch, "plain", with_tags)
        for mine, theirs in zip(answers(batch, "triton", with_tags), plain, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=tol, atol=tol)
    found = answers(unmasked, "triton", True)
    for i in (0, *range(2, len(found))):  # the maximum looks at no tags
        torch.testing.assert_close(found[i], plain[i], rtol=tol, atol=tol)
    scores = make_scores(**on_device(batch))
    for placed in (True, False):
        expected = decode(scores, "plain", placed)[1]
        assert torch.equal(decode(scores, "triton", placed)[1], expected)


def test_gradients_of_gradients_know_the_gaps():
    batch = gapped(Batch(2, 3, 4, 2), 1)
    tags = batch.tags.masked_fill(~batch.mask, -100).to(DEVICE)
    scores = {n: x for n, x in on_device(batch).items() if n != "mask"}
    leaves = [x.requires_grad_() for x in scores.values()]

    def value(*leaves):
        return log_likelihood(make_scores(*leaves), tags, backend="triton")

    assert torch.autograd.gradcheck(value, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(value, leaves, fast_mode=True)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("labels", [4, 20])
def test_tags_that_are_no_labels_give_nan_and_the_next_call_says_so(shared, labels):
    nodes = torch.zeros(3, 4, labels, device=DEVICE)
    shape = (labels, labels) if shared else (3, 3, labels, labels)
    mask = torch.tensor([[True] * 4, [True] * 4, [True, True, True, False]], device=DEVICE)
    scores = Scores(nodes, torch.zeros(shape, device=DEVICE), None, None, mask)
    tags = torch.zeros(3, 4, dtype=torch.long, device=DEVICE)
    for wrong in (-1, labels, 10**12):
        tags[1, 2] = wrong
        tags[2, 3] = wrong  # where there is no position
        value, _ = _triton.evaluate(scores, tags, True)
        assert value.isnan().tolist() == [False, True, False]
        with pytest.raises(DataError, match="tags"):
            _triton.viterbi(scores)
    assert not _triton.evaluate(scores, None, False)[0].isnan().any()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("where", ["nodes", "transitions", "begin", "end"])
def test_nan_scores_give_nan_and_leave_the_other_chains_alone(where, shared):
    batch = Batch(3, 3, 4, 3, shared=shared, masked=False)
    batch.mask = torch.tensor([[True] * 4, [True, True, True, False], [False] * 4])
    scores = on_device(batch)
    at = {"nodes": (1, 2, 0), "begin": (1,), "end": (2,)}
    scores[where][at.get(where, (0, 1) if shared else (1, 0, 2, 2))] = math.nan
    all_chains = where in ("begin", "end") or (where == "transitions" and shared)
    expected = [all_chains, True, False]
    found = cwt.marginals(**scores, backend="triton")
    assert found.log_z.isnan().tolist() == expected
    assert found.nodes.isnan().flatten(1).any(1).tolist() == expected
    assert found.edges.isnan().any()
    best, labels = cwt.viterbi(**scores, backend="triton")
    assert best.isnan().tolist() == expected
    assert labels.min() >= 0 and labels.max() < 3


@pytest.mark.parametrize("with_tags", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 1, 2), (4, 6, 3), (3, 9, 20), (2, 5, 40)])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_values_gradients_and_maxima_equal_plain_pytorch(kind, shape, dtype, with_tags):
    if with_tags and "forbidden" in kind:
        pytest.skip("random tags are infeasible")
    batch = Batch(0, *shape, dtype=dtype, **kind)
    batch.tags = batch.tags.contiguous()
    tol = (1e-5 if dtype == torch.float32 else 1e-10) * kind.get("scale", 1.0)
    pairs = zip(answers(batch, "triton", with_tags), answers(batch, "plain", with_tags))
    for mine, plain in pairs:
        assert torch.equal(torch.isfinite(mine), torch.isfinite(plain))
        some = torch.isfinite(plain)
        torch.testing.assert_close(mine[some], plain[some], rtol=tol, atol=tol)
