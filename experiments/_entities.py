"""CoNLL-2003's named entities: sentences, the best labels, and how many entities are right."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TEMPLATE = "\n".join(f"U{c}{i}:%x[{i},{c}]" for c in range(3) for i in range(-2, 3)) + "\nB\n"


class Corpus(NamedTuple):
    """CoNLL-2003: training sentences, and what to score on."""

    train: Any
    held: dict[str, tuple[Any, Any]]  # testa, testb: sentences and their true labels
    labels: Any


@cache
def load(base: Path) -> Corpus:
    """Word, part of speech and chunk of five positions, hashed to 2^16."""
    from cliquewise.data import Labels, Template, TemplateEncoder, read_conll

    sentences, y = read_conll(base / "eng.train.gz").split_labels()
    encoder = TemplateEncoder(Template.parse(TEMPLATE), 2**16)
    data, labels, held = encoder.fit_transform(sentences), Labels.fit(y), {}
    for part in ("testa", "testb"):
        others, truth = read_conll(base / f"eng.{part}.gz").split_labels()
        held[part] = encoder.transform(others), truth
    return Corpus(data.with_labels(labels.encode(y, data.offsets)[0]), held, labels)


def entity_f1(corpus: Corpus, potentials: Any) -> dict[str, float]:
    """On both held-out parts, for a function from sentences to scores."""
    from cliquewise.metrics import span_f1

    out = {}
    for part, (data, truth) in corpus.held.items():
        names = [corpus.labels.classes[j] for j in decoded(*potentials(data), data.offsets)]
        spans = [names[a:b] for a, b in pairwise(data.offsets.tolist())]
        out[part] = 100.0 * span_f1(truth, spans)
    return out


def decoded(nodes: np.ndarray, edges: np.ndarray, offsets: np.ndarray) -> list[int]:
    """The best labels of all tokens."""
    from cliquewise._kernels.chain.decode import batch_viterbi

    found, best = np.empty(len(nodes), dtype=np.int64), np.empty(len(offsets) - 1)
    batch_viterbi(nodes, offsets, edges, found, best)
    return found.tolist()
