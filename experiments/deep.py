"""A neural tagger on CoNLL-2003: embeddings and a convolution under a chain, beside the linear one.

    python -m experiments.deep [--minutes 12] [--linear] [--no-documents]

Needs PyTorch and CLIQUEWISE_DATA. Of no paper; those of casimir are in ``deep_localization.py``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from cliquewise.torch import Adam, StructuredClassifier


def tagging(given: argparse.Namespace) -> None:
    """The neural tagger beside the linear one on CoNLL-2003."""
    from cliquewise.metrics import span_f1
    from experiments.deep_tagger import Encoder, Tagger, read_text, to_bioes

    texts = {part: read_text(part) for part in ("train", "testa", "testb")}
    labels = [to_bioes(row) for row in texts["train"].labels]
    classes = sorted({label for row in labels for label in row})
    number = {label: i for i, label in enumerate(classes)}
    start = time.perf_counter()
    encoder = Encoder(texts["train"], documents=not given.no_documents)

    def data(text: Any) -> tuple[Any, Any, Any]:
        numbers, mask = encoder.encode(text)
        target = torch.zeros(mask.shape, dtype=torch.long)
        for row, tags in enumerate(text.labels):
            target[row, : len(tags)] = torch.tensor([number[tag] for tag in to_bioes(tags)])
        return numbers, target, mask

    torch.manual_seed(given.seed)
    tagger = StructuredClassifier(
        Tagger(encoder, len(classes)), "chain", "log",
        Adam(2e-3, "inverse", t0=2000, average=0.999), n_labels=len(classes),
        lam=1e-6, batch_size=32, max_epochs=given.epochs, max_seconds=60 * given.minutes,
        random_state=given.seed, verbose=1, device="cpu", patience=4,
    )  # fmt: skip
    validation = data(texts["testa"])
    tagger.fit(*data(texts["train"]), validation=validation)
    seconds = time.perf_counter() - start
    for name in ("testa",) if given.no_testb else ("testa", "testb"):
        numbers, mask = encoder.encode(texts[name])
        found = zip(tagger.predict(numbers, mask), texts[name].labels, strict=True)
        tags = [[classes[i] for i in row[: len(y)]] for row, y in found]
        print(f"neural tagger, {name}: entity F1 {100 * span_f1(texts[name].labels, tags):.2f}")
    rows = list(zip(tagger.trace_.epochs, tagger.trace_.validation, strict=True))
    print("best accuracy on testa by passes:", *(f"{e:.0f} {100 * v:.3f}" for e, v in rows))
    print(f"training: {seconds:.0f} s, {tagger.trace_.epochs[-1]:.0f} passes")
    if given.linear:
        from cliquewise.data.loaders import load_conll2003

        linear(load_conll2003(), load_conll2003(test="testa"), span_f1)


def linear(test: Any, dev: Any, span_f1: Any) -> None:
    """The linear tagger with the built-in template."""
    from cliquewise import SequenceTagger

    start = time.perf_counter()
    tagger = SequenceTagger(template="ner", random_state=0)
    tagger.fit(test.X_train, test.y_train)
    print(f"linear tagger: {time.perf_counter() - start:.0f} s")
    for name, split in (("testa", dev), ("testb", test)):
        print(
            f"  {name}: entity F1 {100 * span_f1(split.y_test, tagger.predict(split.X_test)):.2f}"
        )


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--epochs", type=float, default=15)
    parser.add_argument("--no-documents", action="store_true", help="sentence by sentence")
    parser.add_argument("--no-testb", action="store_true", help="look at testa only")
    parser.add_argument("--linear", action="store_true", help="train the linear tagger too")
    parser.add_argument("--seed", type=int, default=0)
    tagging(parser.parse_args())


if __name__ == "__main__":
    main()
