"""A chain over a small random transformer of subwords: trained by Trainer, exported to ONNX.

    python -m experiments.subwords [--epochs 12] [--onnx decoder.onnx]

Needs torch, transformers and accelerate, and for ``--onnx`` onnx, onnxscript and onnxruntime. The
model is built from its config and the data are drawn: nothing is downloaded. Words have one to
three pieces, the first of which tells the label, most of the time.
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import torch
import transformers

from cliquewise import torch as cwt
from cliquewise.metrics import span_f1

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
#: Special tokens of the drawn texts, and how many different pieces there are.
START, STOP, PAD, PIECES = 1, 2, 0, 200


def draw_text(rng: np.random.Generator, length: int) -> dict[str, torch.Tensor]:
    """One text in pieces: some words tell their label, others what follows a span."""
    ids, labels = [START], [-100]
    before = 0
    for _ in range(rng.integers(2, 10)):
        label = int(rng.integers(5))
        if label in (2, 4) and before not in (label - 1, label):
            label = 0
        # One word in five looks like any label: its neighbors have to tell.
        seen = int(rng.integers(5)) if rng.random() < 0.2 else label
        rest = int(rng.integers(3))
        ids += [10 + seen + 5 * int(rng.integers(10)), *rng.integers(100, PIECES, rest).tolist()]
        labels += [label, *[-100] * rest]
        before = label
    ids, labels = [*ids, STOP][:length], [*labels, -100][:length]
    missing = length - len(ids)
    row = {
        "input_ids": ids + [PAD] * missing,
        "attention_mask": [1] * len(ids) + [0] * missing,
        "labels": labels + [-100] * missing,
    }
    return {name: torch.tensor(values) for name, values in row.items()}


def train(rows: list[dict[str, torch.Tensor]], epochs: float, folder: str) -> transformers.Trainer:
    """A one-layer BERT from its config under a chain, trained."""
    config = transformers.BertConfig(
        vocab_size=PIECES, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    encoder = transformers.BertModel(config, add_pooling_layer=False)
    model = cwt.TokenClassifier(encoder, LABELS, "BIO")
    arguments = transformers.TrainingArguments(
        folder, num_train_epochs=epochs, per_device_train_batch_size=16, learning_rate=3e-3,
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True, seed=0,
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=rows)
    trainer.train()
    return trainer


def names(labels: np.ndarray, known: np.ndarray) -> list[list[str]]:
    """The labels of the words, by name."""
    return [[LABELS[tag] for tag in row[on]] for row, on in zip(labels, known)]


def export(model: cwt.TokenClassifier, path: str, logits: torch.Tensor, mask: torch.Tensor) -> bool:
    """Write the decoder; whether onnxruntime gives the labels of the layer."""
    import onnxruntime

    size = torch.export.Dim("size", min=1, max=4096)
    torch.onnx.export(
        model.crf.decoder(), (logits[:2], mask[:2]), path, input_names=["emissions", "mask"],
        output_names=["labels", "score"], dynamic_shapes=({0: size}, {0: size}), dynamo=True,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = {"emissions": logits.numpy(), "mask": mask.numpy()}
    return torch.equal(
        torch.from_numpy(session.run(["labels"], given)[0]), model.crf.predict(logits, mask)
    )


def main() -> None:
    """Train, predict, say how well, export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=12)
    parser.add_argument("--onnx", help="file for the exported decoder")
    options = parser.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    rows = [draw_text(rng, 32) for _ in range(400)]
    with tempfile.TemporaryDirectory() as folder:
        trainer = train(rows[:320], options.epochs, folder)
        answer = trainer.predict(rows[320:])
    logits, predictions = answer.predictions
    known = answer.label_ids != -100
    truth = names(answer.label_ids, known)
    chain, alone = names(predictions, known), names(logits.argmax(-1), known)
    print(f"span F1 with the chain {span_f1(truth, chain):.3f}")
    print(f"the best label of every word alone: {span_f1(truth, alone):.3f}")
    if options.onnx:
        same = export(trainer.model, options.onnx, torch.tensor(logits), torch.tensor(known))
        print(f"onnxruntime gives the same labels: {same}")


if __name__ == "__main__":
    main()
