"""ViterbiDecoder: the best labels by plain tensor operations alone, for export."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cliquewise.errors import DataError
from cliquewise.torch._scores import IGNORED


class ViterbiDecoder(nn.Module):
    """Best labels and scores of chains by operations that other runtimes know.

    `ChainCRF.decode` is quicker, but compiled kernels do not travel. This module does: by
    ``torch.export`` and to ONNX. Positions are unrolled, so that an exported decoder has a fixed
    T, to which inputs are padded; the batch may stay dynamic.

    Parameters
    ----------
    transitions : Tensor of shape (K, K)
    begin, end : Tensor of shape (K,)
        Scores, -inf where something is forbidden.
    batch_first : bool, default=True
        Whether emissions are (B, T, K) rather than (T, B, K).

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch import ChainCRF
    >>> decoder = ChainCRF.from_scheme("BIO", ["O", "B-X", "I-X"], batch_first=True).decoder()
    >>> emissions = torch.tensor([[[0.0, 1.0, 9.0], [0.0, 0.0, 0.0], [0.0, 0.0, 9.0]]])
    >>> labels, score = decoder(emissions, torch.tensor([[True, False, True]]))
    >>> labels
    tensor([[   1, -100,    2]])
    """

    transitions: Tensor
    begin: Tensor
    end: Tensor

    def __init__(
        self, transitions: Tensor, begin: Tensor, end: Tensor, batch_first: bool = True
    ) -> None:
        super().__init__()
        self.batch_first = batch_first
        for name, scores in (("transitions", transitions), ("begin", begin), ("end", end)):
            self.register_buffer(name, scores.detach().clone())

    def forward(self, emissions: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Labels (B, T), -100 where the mask is False, and their scores (B,).

        ``mask`` may have gaps; shapes are those of ``ChainCRF``, but the labels are (B, T) whatever
        ``batch_first``. The scores are float64 if the emissions and the weights are, and float32
        otherwise.
        """
        tables = (self.transitions, self.begin, self.end)
        return plain_decode(emissions, mask, tables, self.batch_first)


def plain_decode(
    emissions: Tensor,
    mask: Tensor | None,
    tables: tuple[Tensor, Tensor, Tensor],
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """What `ViterbiDecoder` answers, by transition, begin and end scores."""
    if mask is None:
        mask = torch.ones_like(emissions[:, :, 0], dtype=torch.bool)
    # The size of the batch may be unknown while this is exported.
    time, k = 1 if batch_first else 0, tables[0].shape[0]
    if tuple(emissions.shape[2:]) != (k,) or mask.shape[time] != emissions.shape[time]:
        order = "batch, time" if batch_first else "time, batch"
        raise DataError(
            f"emissions must have shape ({order}, {k}) and mask ({order}), not "
            f"{tuple(emissions.shape)} and {tuple(mask.shape)}"
        )
    if not batch_first:
        emissions, mask = emissions.transpose(0, 1), mask.transpose(0, 1)
    with torch.autocast(emissions.device.type, enabled=False):
        wide = torch.promote_types(emissions.dtype, torch.float32)
        return best_labels(emissions.to(wide), mask.bool(), *tables)


def best_labels(
    nodes: Tensor, mask: Tensor, transitions: Tensor, begin: Tensor, end: Tensor
) -> tuple[Tensor, Tensor]:
    """Labels (B, T), -100 where the mask is False, and scores (B,); (B, T) comes first."""
    length = nodes.shape[1]
    if length == 0:
        return mask.long(), nodes.new_zeros(nodes.shape[0])
    trans, first, last = (x.to(nodes.dtype) for x in (transitions, begin, end))
    own = torch.arange(trans.shape[0], device=nodes.device)
    least = torch.finfo(nodes.dtype).min
    some = mask[:, 0]  # chains that have had a position
    best, back = first + nodes[:, 0], []
    for t in range(1, length):
        here, x = mask[:, t, None], nodes[:, t]
        high, origin = (best.unsqueeze(-1) + trans).max(1)
        new = torch.where(some[:, None], high, first) + x
        # Shifted to keep the digits that matter in long chains.
        new = new - new.amax(-1, keepdim=True).clamp(min=least)
        best = torch.where(here, new, best)
        back.append(torch.where(here, origin, own))
        some = some | mask[:, t]
    label = (best + last).argmax(-1, keepdim=True)
    labels = [label]
    for origin in reversed(back):
        label = origin.gather(1, label)
        labels.append(label)
    found = torch.cat(labels[::-1], 1)
    score = _score(nodes, found, mask, transitions, begin, end)
    return torch.where(mask, found, IGNORED), torch.where(some, score, 0.0).to(nodes.dtype)


def _score(
    nodes: Tensor, labels: Tensor, mask: Tensor, transitions: Tensor, begin: Tensor, end: Tensor
) -> Tensor:
    """Score of the labels, each of which is repeated through the gap after it; (B,), float64."""
    zero = torch.zeros((), dtype=torch.float64, device=nodes.device)
    started = mask.cumsum(1) > 0
    picked = nodes.gather(2, labels.unsqueeze(-1)).squeeze(-1).double()
    total = torch.where(mask, picked, zero).sum(1)
    steps = transitions.double()[labels[:, :-1], labels[:, 1:]]
    total = total + torch.where(started[:, :-1] & mask[:, 1:], steps, zero).sum(1)
    # Before the first position the way back repeats what that position came from.
    first = (~started).sum(1, keepdim=True).clamp(max=nodes.shape[1] - 1)
    ends = begin.double()[labels.gather(1, first).squeeze(1)]
    return total + ends + end.double()[labels[:, -1]]
