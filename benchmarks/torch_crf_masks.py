"""What masks cost ``ChainCRF``: ``python -m benchmarks.torch_crf --masks none,whole,prefix,gaps``.

A training step (forward and backward) and decoding, with no mask, a mask of ones (``whole``), the
first positions of every row (``prefix``), as many scattered over the row (``gaps``), and these
told by tags of -100 alone (``ignored``, a step only). The last three are the same chains: before
times are believed, values and gradients must be equal. All take turns, and the best turn counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.common import print_table
from cliquewise.torch import ChainCRF

MASKS = ("none", "whole", "prefix", "gaps", "ignored")
#: The mask whose step a step is compared with.
BESIDE = {"whole": "none", "prefix": "whole", "gaps": "prefix", "ignored": "prefix"}


class Masked:
    """A step and a decoding of one batch under one kind of mask."""

    def __init__(self, kind: str, case: Any) -> None:
        (b, t, _), device = case.size, case.device
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(max(t // 2, 1), t + 1, (b, 1), generator=generator)
        prefix = torch.arange(t) < lengths
        scattered = prefix.gather(1, torch.rand(b, t, generator=generator).argsort(1))
        self.kind, self.crf = kind, case.layer(ChainCRF)
        self.tags, emissions = case.tags.clone(), case.emissions.detach().clone()
        self.where = {"none": None, "whole": torch.ones(b, t, dtype=torch.bool)}.get(kind, prefix)
        if self.where is not None:
            self.where = self.where.to(device)
        if kind in ("gaps", "ignored"):
            scattered = scattered.to(device)
            emissions[scattered] = case.emissions.detach()[self.where]
            self.tags[scattered] = case.tags[self.where]
            self.where = scattered
        self.mask = self.where
        if kind == "ignored":
            self.tags, self.mask = self.tags.masked_fill(~scattered, -100), None
        self.emissions = emissions.requires_grad_()

    def train(self) -> torch.Tensor:
        self.emissions.grad = None
        self.crf.zero_grad(set_to_none=True)
        value = self.crf(self.emissions, self.tags, self.mask, reduction="mean")
        value.backward()
        return value.detach()

    def answers(self) -> list[torch.Tensor]:
        """Value and gradients, those of the emissions at the positions alone."""
        value = self.train()
        assert self.emissions.grad is not None
        own = self.emissions.grad.flatten(0, 1) if self.where is None else self.emissions.grad
        return [value, own if self.where is None else own[self.where], self.crf.transitions.grad]

    def decode(self) -> torch.Tensor:
        with torch.no_grad():
            return self.crf.predict(self.emissions, self.mask)


def check(layers: dict[str, Masked]) -> None:
    """Masks that say the same must give the same."""
    for same in (("none", "whole"), ("prefix", "gaps", "ignored")):
        found = [layers[kind].answers() for kind in same if kind in layers]
        for other in found[1:]:
            for mine, theirs in zip(found[0], other, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def compare_masks(sizes: Sequence[tuple[int, int, int]], device: str, kinds: Sequence[str]) -> Any:
    """Milliseconds of a step and of decoding, and each step beside another mask's."""
    from benchmarks.torch_crf import Case, best_of_turns

    rows = []
    for size in sizes:
        layers = {kind: Masked(kind, Case(size, device)) for kind in kinds}
        check(layers)
        train = best_of_turns({k: x.train for k, x in layers.items()}, device, 1.0)
        heard = {k: x.decode for k, x in layers.items() if k != "ignored"}
        decode = best_of_turns(heard, device, 0.5)
        for kind in kinds:
            other = BESIDE.get(kind, "none")
            ratio = train[kind] / train[other] if other in train else float("nan")
            rows.append(
                ["x".join(map(str, size)), kind, 1e3 * train[kind], f"{ratio:.2f} x {other}",
                 1e3 * decode.get(kind, float("nan"))]
            )  # fmt: skip
            print(rows[-1], flush=True)
    print_table("masks", ["B x T x K", "mask", "step, ms", "step", "decode, ms"], rows)
    return rows
