"""Constraints in state dicts, folders of TokenClassifier, and options of Trainer."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError, FormatError, UnsupportedError  # noqa: E402

LABELS = ["O", "B-X", "I-X"]


class Encoder(torch.nn.Module):
    """An embedding, as an encoder of transformers returns it."""

    def __init__(self, size=4):
        super().__init__()
        self.embedding = torch.nn.Embedding(20, size)

    def forward(self, input_ids, attention_mask=None):
        return (self.embedding(input_ids),)


def model(scheme="BIO", **options):
    torch.manual_seed(0)
    return cwt.TokenClassifier(Encoder(), LABELS, scheme, hidden_size=4, **options)


def test_constrained_weights_load_only_into_a_layer_with_the_same_constraints():
    crf = cwt.ChainCRF.from_scheme("BIO", LABELS)
    state = crf.state_dict()
    assert "forbidden" in state and "forbidden_starts" in state
    cwt.ChainCRF.from_scheme("BIO", LABELS).load_state_dict(state)
    with pytest.raises(RuntimeError, match="this layer has no constraints"):
        cwt.ChainCRF(3).load_state_dict(state)
    with pytest.raises(RuntimeError, match="this layer has other constraints"):
        cwt.ChainCRF(3, forbidden=[(0, 1)]).load_state_dict(state)


def test_weights_without_constraints_still_load_into_a_constrained_layer():
    plain = cwt.ChainCRF(3)
    assert set(plain.state_dict()) == {"start_transitions", "end_transitions", "transitions"}
    crf = cwt.ChainCRF.from_scheme("BIO", LABELS)
    crf.load_state_dict(plain.state_dict())
    assert torch.equal(crf.transitions, plain.transitions) and crf.forbidden.any()


def test_a_saved_model_predicts_the_same(tmp_path):
    before = model(dropout=0.3, label_smoothing=0.1).eval()
    before.save_pretrained(tmp_path)
    after = cwt.TokenClassifier.from_pretrained(tmp_path, Encoder())
    ids = torch.randint(0, 20, (3, 5))
    torch.testing.assert_close(after(ids).logits, before(ids).logits)
    assert torch.equal(after(ids).predictions, before(ids).predictions)
    assert (after.dropout.p, after.label_smoothing, after.scheme) == (0.3, 0.1, "BIO")
    assert not after.training


def test_a_saved_transformer_is_rebuilt_from_its_configuration(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=8,
    )  # fmt: skip
    encoder = transformers.BertModel(config, add_pooling_layer=False)
    before = cwt.TokenClassifier(encoder, LABELS, "BIO").eval()
    before.save_pretrained(tmp_path)
    after = cwt.TokenClassifier.from_pretrained(tmp_path)
    ids = torch.randint(0, 20, (2, 5))
    torch.testing.assert_close(after(ids).logits, before(ids).logits)
    after.train().gradient_checkpointing_enable()
    assert after.is_gradient_checkpointing
    after(ids, labels=torch.zeros(2, 5).long()).loss.backward()
    after.gradient_checkpointing_disable()
    assert not after.is_gradient_checkpointing


def test_damaged_folders_are_rejected(tmp_path):
    with pytest.raises(FormatError, match=r"token_classifier\.json"):
        cwt.TokenClassifier.from_pretrained(tmp_path)
    model().save_pretrained(tmp_path)
    with pytest.raises(FormatError, match="do not match"):
        cwt.TokenClassifier.from_pretrained(tmp_path, Encoder(5))
    with pytest.raises(DataError, match="encoder="):
        cwt.TokenClassifier.from_pretrained(tmp_path)
    path = tmp_path / "token_classifier.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(FormatError, match="newer"):
        cwt.TokenClassifier.from_pretrained(tmp_path, Encoder())


def test_checkpointing_needs_an_encoder_that_supports_it():
    with pytest.raises(UnsupportedError, match="Encoder has no gradient_checkpointing_enable"):
        model().gradient_checkpointing_enable()


def test_training_without_labels_is_refused_because_the_chain_would_be_ignored():
    ids = torch.zeros(1, 3).long()
    with pytest.raises(DataError, match="label_smoothing="):
        model()(ids)
    assert model()(ids, word_mask=torch.ones(1, 3)).logits.shape == (1, 3, 3)


def test_label_smoothing_counts_in_training_only():
    smooth, plain = model(label_smoothing=0.2, dropout=0.0), model(dropout=0.0)
    ids, labels = torch.arange(4)[None], torch.tensor([[0, 1, 2, -100]])
    assert smooth(ids, labels=labels).loss != plain(ids, labels=labels).loss
    assert smooth.eval()(ids, labels=labels).loss == plain.eval()(ids, labels=labels).loss
