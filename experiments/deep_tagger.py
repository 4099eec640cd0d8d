"""A small neural tagger for CoNLL-2003: embeddings of words, affixes and shapes, a convolution.

A capitalized word is also known by the company it keeps elsewhere in its document: the
neighbors and the writing of its nearest other occurrences, seen through the same embeddings.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from cliquewise.data.builtin_templates import short_shape, word_type
from cliquewise.data.formats.conll import DOCSTART, read_conll
from cliquewise.data.loaders import data_folder

Token = tuple[str, str, str]


@dataclass(frozen=True)
class Text:
    """Sentences of (word, part of speech, chunk), their labels, and the document of each."""

    sentences: list[list[Token]]
    labels: list[list[str]]
    documents: list[int]


def read_text(part: str, folder: str | None = None) -> Text:
    """One part of CoNLL-2003: train, testa or testb."""
    path = next((data_folder(folder) / "conll2003").glob(f"eng.{part}*"), Path(f"eng.{part}"))
    columns, labels = read_conll(path, docstart=True).split_labels()
    rows = zip(*(columns.sentences(c) for c in range(3)), labels, strict=True)
    sentences, kept, documents, document = [], [], [], 0
    for words, tags, chunks, row in rows:
        if words[0] == DOCSTART:
            document += 1
            continue
        sentences.append(list(zip(words, tags, chunks, strict=True)))
        kept.append(list(row))
        documents.append(document)
    return Text(sentences, kept, documents)


def to_bioes(labels: Sequence[str]) -> list[str]:
    """IOB1 labels with the ends of spans marked: S for a span of one token, B ... E else."""
    after = [*labels[1:], "O"]
    out = []
    for before, here, next_ in zip(["O", *labels[:-1]], labels, after, strict=True):
        kind = here[2:]
        begins = before[2:] != kind or here[0] == "B"
        ends = next_[2:] != kind or next_[0] == "B"
        prefix = "S" if begins and ends else "B" if begins else "E" if ends else "I"
        out.append("O" if here == "O" else f"{prefix}-{kind}")
    return out


def plain(word: str) -> str:
    """Small letters, and 0 for all digits."""
    return re.sub("[0-9]", "0", word.lower())


#: Function of (word, part of speech, chunk) whose values get embeddings, and their size.
FEATURES: dict[str, tuple[Callable[[str, str, str], str], int]] = {
    "word": (lambda word, pos, chunk: plain(word), 48),
    "shape": (lambda word, pos, chunk: short_shape(word), 16),
    "type": (lambda word, pos, chunk: f"{word_type(word)}{min(len(word), 8)}", 8),
    "suffix1": (lambda word, pos, chunk: word[-1:], 8),
    "suffix2": (lambda word, pos, chunk: word[-2:].lower(), 12),
    "suffix3": (lambda word, pos, chunk: word[-3:].lower(), 24),
    "suffix4": (lambda word, pos, chunk: word[-4:].lower(), 24),
    "prefix1": (lambda word, pos, chunk: word[:1], 8),
    "prefix2": (lambda word, pos, chunk: word[:2].lower(), 12),
    "prefix3": (lambda word, pos, chunk: word[:3].lower(), 24),
    "prefix4": (lambda word, pos, chunk: word[:4].lower(), 24),
    "pos": (lambda word, pos, chunk: pos, 12),
    "chunk": (lambda word, pos, chunk: chunk, 8),
}
#: Other occurrences of a word that are looked at, and what is known of each: the word before
#: and after, the shapes of all three, and whether it begins a sentence.
OCCURRENCES, KNOWN = 4, 6


class Encoder:
    """From texts to padded integers; 0 is padding, 1 what was seen once at most."""

    def __init__(self, text: Text, documents: bool = True) -> None:
        self.tables: list[dict[str, int]] = []
        self.documents = documents
        tokens = Counter(token for sentence in text.sentences for token in sentence)
        for function, _ in FEATURES.values():
            counts: Counter[str] = Counter()
            for token, n in tokens.items():
                counts[function(*token)] += n
            kept = [(value, n) for value, n in counts.most_common() if n > 1]
            self.tables.append({value: i + 2 for i, (value, _) in enumerate(kept)})
            if len(self.tables) == 1:
                #: How often each word was seen.
                self.counts = torch.tensor([0.0, 1.0, *(float(n) for _, n in kept)])

    @property
    def width(self) -> int:
        """Integers of a token."""
        return len(FEATURES) + OCCURRENCES * KNOWN * self.documents

    def encode(self, text: Text) -> tuple[Tensor, Tensor]:
        """Numbers (n, T, width) and the mask (n, T)."""
        known: dict[Token, list[int]] = {}
        for token in {token for sentence in text.sentences for token in sentence}:
            values = (function(*token) for function, _ in FEATURES.values())
            known[token] = [t.get(v, 1) for t, v in zip(self.tables, values, strict=True)]
        longest = max(map(len, text.sentences))
        out = np.zeros((len(text.sentences), longest, self.width), dtype=np.int32)
        for row, sentence in enumerate(text.sentences):
            out[row, : len(sentence), : len(FEATURES)] = [known[token] for token in sentence]
        if self.documents:
            add_occurrences(out, text)
        numbers = torch.from_numpy(out)
        return numbers, numbers[:, :, 0] > 0


def add_occurrences(numbers: np.ndarray, text: Text) -> None:
    """Write what is known of the nearest other occurrences of every capitalized word."""
    where: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for row, sentence in enumerate(text.sentences):
        for t, (word, *_) in enumerate(sentence):
            where[text.documents[row], word.lower()].append((row, t))
    for row, sentence in enumerate(text.sentences):
        for t, (word, *_) in enumerate(sentence):
            if word == word.lower():
                continue
            others = [o for o in where[text.documents[row], word.lower()] if o != (row, t)]
            others.sort(key=lambda o: abs(o[0] - row))
            known = [_known(numbers, r, u) for r, u in others[:OCCURRENCES]]
            first = len(FEATURES)
            numbers[row, t, first : first + KNOWN * len(known)] = np.ravel(known)


def _known(numbers: np.ndarray, row: int, t: int) -> list[int]:
    """What is known of one occurrence; see `KNOWN`. Its last entry is never 0."""
    before = numbers[row, t - 1] if t > 0 else numbers[row, 0] * 0
    after = numbers[row, t + 1] if t + 1 < numbers.shape[1] else numbers[row, 0] * 0
    return [before[0], after[0], numbers[row, t, 1], before[1], after[1], 2 if t == 0 else 1]


class Tagger(nn.Module):
    """Embeddings, one convolution over neighbors, ELU, and scores of the labels.

    In training a word is taken for an unknown one the more often the rarer it is.
    """

    def __init__(self, encoder: Encoder, n_labels: int, width: int = 128, span: int = 5) -> None:
        super().__init__()
        sizes = [size for _, size in FEATURES.values()]
        self.embeddings = nn.ModuleList(
            nn.Embedding(len(t) + 2, size) for t, size in zip(encoder.tables, sizes, strict=True)
        )
        for embedding in self.embeddings:
            nn.init.normal_(embedding.weight, std=0.3)
        self.register_buffer("counts", encoder.counts, persistent=False)
        self.documents = encoder.documents
        total = sum(sizes)
        if self.documents:
            self.place = nn.Embedding(3, 4)
            self.company = nn.Linear(2 * sizes[0] + 3 * sizes[1] + 4, width // 2)
            total += width
        self.convolution = nn.Conv1d(total, width, span, padding=span // 2)
        self.drop = nn.Dropout(0.4)
        self.own = nn.Linear(total, n_labels)
        self.out = nn.Linear(width, n_labels)

    def forward(self, numbers: Tensor) -> Tensor:
        """(B, T, width) to (B, T, labels)."""
        own = numbers[:, :, : len(FEATURES)]
        there = own[:, :, :1] > 0
        if self.training:
            own = self.forget(own)
        parts = [embed(own[:, :, f]) for f, embed in enumerate(self.embeddings)]
        if self.documents:
            parts.append(self.elsewhere(numbers[:, :, len(FEATURES) :]))
        x = self.drop(torch.cat(parts, -1)) * there
        hidden = nn.functional.elu(self.convolution(x.transpose(1, 2)).transpose(1, 2))
        return self.out(self.drop(hidden)) + self.own(x)

    def forget(self, own: Tensor) -> Tensor:
        """Some words replaced by the unknown one: with probability 1 / (1 + count)."""
        word = own[:, :, 0]
        chance = torch.rand(word.shape, device=word.device)
        gone = (chance * (1 + self.counts[word]) < 1) & (word > 0)
        return torch.cat([word.masked_fill(gone, 1).unsqueeze(-1), own[:, :, 1:]], -1)

    def elsewhere(self, numbers: Tensor) -> Tensor:
        """Maximum and mean over the other occurrences of each word, (B, T, hidden)."""
        seen = numbers.unflatten(-1, (OCCURRENCES, KNOWN))
        some = seen[:, :, 0, -1] > 0
        # Few tokens have any: the others are left out of the work.
        before, after, *shapes, place = seen[some].unbind(-1)
        word, shape = self.embeddings[0], self.embeddings[1]
        parts = [word(before), word(after), *(shape(s) for s in shapes), self.place(place)]
        hidden = nn.functional.elu(self.company(self.drop(torch.cat(parts, -1))))
        there = (place > 0).unsqueeze(-1)
        most = hidden.masked_fill(~there, -1.0).amax(1)
        mean = (hidden * there).sum(1) / there.sum(1)
        found = torch.cat([most, mean], -1)
        out = found.new_zeros((*some.shape, found.shape[-1]))
        return out.masked_scatter(some.unsqueeze(-1), found)
