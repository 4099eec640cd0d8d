"""ViterbiDecoder: best labels by plain tensor operations only, for export."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cliquewise.errors import DataError
from cliquewise.torch._plain import viterbi
from cliquewise.torch._scores import IGNORED, Scores


class ViterbiDecoder(nn.Module):
    """Best labels and scores of chains, by operations that other runtimes support.

    `ChainCRF.decode` is faster, but its compiled kernels cannot be exported. This module can, by
    ``torch.export`` and to ONNX. Positions are unrolled, so an exported decoder has a fixed T, to
    which inputs are padded; the batch size may stay dynamic.

    Parameters
    ----------
    transitions : Tensor of shape (K, K)
    begin, end : Tensor of shape (K,)
        Scores; -inf forbids.
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

        ``mask`` may have gaps. Shapes are those of ``ChainCRF``, but the labels are always
        (B, T). The scores are float64 if the emissions are, and float32 otherwise.
        """
        tables = (self.transitions, self.begin, self.end)
        return decode_exportable(emissions, mask, tables, self.batch_first)


def decode_exportable(
    emissions: Tensor,
    mask: Tensor | None,
    tables: tuple[Tensor, Tensor, Tensor],
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """Return labels and scores as `ViterbiDecoder` does, by operations that can be exported."""
    if mask is None:
        mask = torch.ones_like(emissions[:, :, 0], dtype=torch.bool)
    # The batch size may be unknown during export.
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
        trans, begin, end = (x.to(wide) for x in tables)
        scores = Scores(emissions.to(wide), trans, begin, end, mask.bool())
        value, labels = viterbi(scores)
    return labels.masked_fill(~mask.bool(), IGNORED), value
