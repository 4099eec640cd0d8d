"""Every chain oracle on one device beside plain PyTorch: same values, gradients, labels."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from cliquewise.torch._scores import make_scores
from cliquewise.torch.chain import log_likelihood, viterbi

SHAPES = ((3, 1, 2), (4, 2, 3), (5, 7, 9), (6, 33, 20), (4, 40, 50), (3, 12, 128), (300, 5, 4))


def make_case(shape: tuple[int, int, int], dtype: Any, device: str, **kind: Any) -> dict[str, Any]:
    """Random scores; ``kind`` says whether masked, with ends, shared, forbidden, and how large."""
    b, t, k = shape
    scale = kind["scale"]
    options = {"dtype": dtype, "device": device}
    table = (k, k) if kind["shared"] else (b, t - 1, k, k)
    case: dict[str, Any] = {
        "nodes": scale * torch.randn(b, t, k, **options),
        "transitions": scale * torch.randn(table, **options),
        "begin": torch.randn(k, **options) if kind["ends"] else None,
        "end": torch.randn(k, **options) if kind["ends"] else None,
        "mask": None,
    }
    if kind["forbidden"]:
        drop = torch.rand(table, device=device) < 0.3
        case["transitions"] = case["transitions"].masked_fill(drop, -torch.inf)
    if kind["masked"]:
        lengths = torch.randint(0, t + 1, (b,), device=device)
        case["mask"] = torch.arange(t, device=device) < lengths[:, None]
        if kind["masked"] == "gaps":
            case["mask"] = torch.rand(b, t, device=device) < 0.6
    return case


def answers(case: dict[str, Any], tags: torch.Tensor | None, backend: str) -> dict[str, Any]:
    """Value, weighted gradients, best score and labels, by one backend."""
    leaves = {
        name: None if x is None else x.clone().requires_grad_()
        for name, x in case.items()
        if name != "mask"
    }
    scores = make_scores(*leaves.values(), case["mask"])
    value = log_likelihood(scores, tags, backend=backend)
    weights = torch.linspace(0.5, 1.5, len(value), dtype=value.dtype, device=value.device)
    given = {name: x for name, x in leaves.items() if x is not None}
    finite = torch.where(torch.isfinite(value), value, torch.zeros_like(value))
    gradients = torch.autograd.grad((finite * weights).sum(), list(given.values()))
    best, labels = viterbi(**case, backend=backend)
    found = {"value": value.detach(), "best": best, "labels": labels}
    return found | {f"by {name}": g for name, g in zip(given, gradients)}


def check_case(shape: tuple[int, int, int], dtype: Any, device: str, **kind: Any) -> None:
    """Compare the device's own backend with plain PyTorch on one random batch."""
    case = make_case(shape, dtype, device, **kind)
    tags = None
    if kind["tags"]:
        tags = torch.randint(0, shape[2], shape[:2], device=device)
    mine, plain = answers(case, tags, "auto"), answers(case, tags, "plain")
    tolerance = (1e-5 if dtype == torch.float32 else 1e-10) * max(1.0, kind["scale"])
    for name, right in plain.items():
        left = mine[name]
        if name == "labels":
            close = kind["forbidden"] or dtype == torch.float32 or torch.equal(left, right)
        else:
            same = torch.isfinite(left) == torch.isfinite(right)
            some = torch.isfinite(right)
            # Sums of many marginals, less as many counts, lose digits in proportion.
            wide = tolerance * max(1.0, shape[0] * shape[1] / 50)
            close = bool(same.all()) and torch.allclose(
                left[some], right[some], rtol=wide, atol=wide
            )
        if not close:
            worst = (left - right).abs().max().item()
            raise SystemExit(f"{name} differs by {worst} at {shape}, {dtype}, {kind}")


KINDS = (  # masked, ends, shared, forbidden, scale
    ("gaps", True, True, False, 1.0),
    (True, True, True, False, 1.0),
    (True, True, True, False, 1e4),
    (False, True, True, True, 1.0),
    ("gaps", True, False, False, 1.0),
    (False, False, True, False, 1.0),
    (False, False, False, True, 1.0),
    (True, True, True, True, 50.0),
)


def check_oracles(device: str, quick: bool = False) -> None:
    """Compare on many kinds of batches; leave at the first difference.

    On a GPU most of the time is compilation: ``quick`` takes fewer kinds.
    """
    torch.manual_seed(0)
    shapes = ((5, 7, 9), (6, 33, 20), (3, 12, 128)) if quick else SHAPES
    kinds = KINDS[:4] if quick else KINDS
    types = (torch.float32,) if quick else (torch.float32, torch.float64)
    count = 0
    for shape, dtype in itertools.product(shapes, types):
        for masked, ends, shared, forbidden, scale in kinds:
            for tags in (True,) if quick and not forbidden else (False, not forbidden):
                check_case(
                    shape, dtype, device, masked=masked, ends=ends, shared=shared,
                    forbidden=forbidden, scale=scale, tags=tags,
                )  # fmt: skip
                count += 1
        print(f"{shape} {dtype}: {device} and plain PyTorch agree", flush=True)
    print(f"{count} random batches: {device} and plain PyTorch agree")
