"""A small neural tagger for CoNLL-2003: embeddings of words, affixes and shapes, a convolution."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn


def shape_of(word: str) -> str:
    """Capitals, small letters, digits and signs, runs shortened: 'EU-25' becomes 'A-0'."""
    text = re.sub("[A-Z]+", "A", word)
    text = re.sub("[a-z]+", "a", text)
    return re.sub("[0-9]+", "0", text)


#: Column -> function of (word, tag) whose values get embeddings; and their size.
FEATURES: dict[str, tuple[Callable[[str, str], str], int]] = {
    "word": (lambda word, tag: re.sub("[0-9]", "0", word.lower()), 48),
    "suffix2": (lambda word, tag: word[-2:].lower(), 12),
    "suffix3": (lambda word, tag: word[-3:].lower(), 24),
    "prefix2": (lambda word, tag: word[:2].lower(), 12),
    "prefix3": (lambda word, tag: word[:3].lower(), 24),
    "shape": (lambda word, tag: shape_of(word), 16),
    "tag": (lambda word, tag: tag, 12),
}


class Encoder:
    """From sentences of (word, tag) to padded integers; 0 is padding, 1 what was rarely seen."""

    def __init__(self, sentences: Sequence[Sequence[tuple[str, str]]], least: int = 2) -> None:
        self.tables: list[dict[str, int]] = []
        for function, _ in FEATURES.values():
            counts = Counter(function(*token) for s in sentences for token in s)
            kept = [value for value, n in counts.most_common() if n >= least]
            self.tables.append({value: i + 2 for i, value in enumerate(kept)})

    def encode(self, sentences: Sequence[Sequence[tuple[str, str]]]) -> tuple[Tensor, Tensor]:
        """Numbers (n, T, features) and the mask (n, T)."""
        longest = max(len(s) for s in sentences)
        out = np.zeros((len(sentences), longest, len(FEATURES)), dtype=np.int64)
        for row, sentence in enumerate(sentences):
            for f, (function, _) in enumerate(FEATURES.values()):
                table = self.tables[f]
                out[row, : len(sentence), f] = [table.get(function(*t), 1) for t in sentence]
        numbers = torch.from_numpy(out)
        return numbers, numbers[:, :, 0] > 0


class Tagger(nn.Module):
    """Embeddings, one convolution over neighbours, ELU, and scores of the labels."""

    def __init__(self, encoder: Encoder, n_labels: int, width: int = 128, span: int = 5) -> None:
        super().__init__()
        sizes = [size for _, size in FEATURES.values()]
        self.embeddings = nn.ModuleList(
            nn.Embedding(len(t) + 2, size) for t, size in zip(encoder.tables, sizes, strict=True)
        )
        for embedding in self.embeddings:
            nn.init.normal_(embedding.weight, std=0.3)
        self.convolution = nn.Conv1d(sum(sizes), width, span, padding=span // 2)
        self.drop = nn.Dropout(0.4)
        self.own = nn.Linear(sum(sizes), n_labels)
        self.out = nn.Linear(width, n_labels)

    def forward(self, numbers: Tensor) -> Tensor:
        """(B, T, features) to (B, T, labels)."""
        parts = [embed(numbers[:, :, f]) for f, embed in enumerate(self.embeddings)]
        x = self.drop(torch.cat(parts, -1)) * (numbers[:, :, :1] > 0)
        hidden = nn.functional.elu(self.convolution(x.transpose(1, 2)).transpose(1, 2))
        return self.out(self.drop(hidden)) + self.own(x)
