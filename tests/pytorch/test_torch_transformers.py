"""A tiny transformer, built from its config, under a chain: it trains and predicts in Trainer."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from test_torch_tokens import LABELS, batch  # noqa: E402

from cliquewise import torch as cwt  # noqa: E402


def tiny():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    encoder = transformers.BertModel(config, add_pooling_layer=False)
    return cwt.TokenClassifier(encoder, LABELS, "BIO")


def accuracy(predictions, labels):
    known = labels != -100
    return float((predictions == labels)[known].mean())


def test_a_tiny_transformer_trains_and_predicts_in_trainer(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate, which Trainer needs, is not installed")
    whole = batch(size=64)
    rows = [{name: x[i] for name, x in whole.items()} for i in range(64)]
    model = tiny()
    arguments = transformers.TrainingArguments(
        str(tmp_path), num_train_epochs=12, per_device_train_batch_size=8,
        gradient_accumulation_steps=2, learning_rate=1e-2, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, seed=0,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, train_dataset=rows, eval_dataset=rows,
        compute_metrics=lambda p: {"right": accuracy(p.predictions[1], p.label_ids)},
    )  # fmt: skip
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_loss"] < before["eval_loss"] / 2
    assert after["eval_right"] > max(0.9, before["eval_right"])
    labels = trainer.predict(rows[:5]).predictions[1]
    assert ((labels == -100) == (whole["labels"][:5] == -100).numpy()).all()


def test_a_tiny_transformer_answers_with_dicts_and_with_tuples():
    model = tiny().eval()
    inputs = batch(size=3)
    expected = model(**inputs)
    found = model(**inputs, return_dict=False)
    torch.testing.assert_close(found.logits, expected.logits)
    assert torch.equal(found.predictions, expected.predictions)
