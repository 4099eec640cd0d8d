"""A chain over an encoder of subwords: losses, predictions, and what PyTorch does with modules."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError  # noqa: E402

LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


class Encoder(torch.nn.Module):
    """Embeddings, mixed with their neighbors; the states come back in the form asked for."""

    def __init__(self, form="tuple", size=16):
        super().__init__()
        self.form, self.embedding = form, torch.nn.Embedding(50, size)
        self.mix = torch.nn.Conv1d(size, size, 3, padding=1)

    def forward(self, input_ids, attention_mask=None, shift=0.0):
        states = self.embedding(input_ids)
        if attention_mask is not None:
            states = states * attention_mask.unsqueeze(-1)
        states = states + self.mix(states.mT).mT + shift
        if self.form == "object":
            return type("Output", (), {"last_hidden_state": states})()
        named = {"last_hidden_state": states}
        return {"tuple": (states, None), "tensor": states, "mapping": named}[self.form]


def batch(seed=0, size=40, length=9):
    """Words of one to three pieces between two special tokens; the first piece tells the label."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(10, 50, (size, length), generator=generator)
    first = torch.rand(size, length, generator=generator) < 0.6
    attention = torch.arange(length) < torch.randint(4, length + 1, (size, 1), generator=generator)
    first[:, 0] = False
    ids[:, 0] = 1
    first &= attention
    # Pieces of one word per label; an inner label only where its span is open.
    labels = torch.full((size, length), -100)
    for b in range(size):
        before = 0
        for t in first[b].nonzero()[:, 0].tolist():
            label = int(ids[b, t]) % 5
            if label in (2, 4) and before not in (label - 1, label):
                label -= 1
                ids[b, t] -= 1
            labels[b, t] = before = label
    return {"input_ids": ids, "attention_mask": attention.long(), "labels": labels}


@pytest.mark.parametrize("form", ["tuple", "object", "tensor", "mapping"])
def test_any_output_of_an_encoder_will_do(form):
    torch.manual_seed(0)
    model = cwt.TokenClassifier(Encoder(form), LABELS, "BIO", hidden_size=16).eval()
    inputs = batch(size=3)
    output = model(**inputs)
    assert list(output) == ["loss", "logits", "predictions"]
    assert output.logits.shape == (3, 9, 5) and output[0] is output.loss
    assert torch.equal(output.predictions == -100, inputs["labels"] == -100)
    expected = -model.crf(output.logits, inputs["labels"], reduction="token_mean")
    torch.testing.assert_close(output.loss, expected)
    assert list(model.train()(**inputs)) == ["loss", "logits"]
    assert model(**inputs, shift=100.0).loss != output.loss


def test_a_small_encoder_learns_its_words_and_predicts_at_their_first_pieces():
    torch.manual_seed(0)
    model = cwt.TokenClassifier(Encoder(), LABELS, "BIO", hidden_size=16, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    inputs = batch()
    for _ in range(25):
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()
    model.eval()
    truth = inputs.pop("labels")
    with torch.no_grad():
        output = model(**inputs, word_mask=truth != -100)
        everywhere = model(**inputs)
    assert "loss" not in output
    known = truth != -100
    assert torch.equal(output.predictions != -100, known)
    assert (output.predictions == truth)[known].double().mean() > 0.95
    assert torch.equal(everywhere.predictions != -100, inputs["attention_mask"] == 1)
    names = model.names(output.predictions)
    assert [len(row) for row in names] == known.sum(1).tolist()
    assert {name for row in names for name in row} <= set(LABELS)


def test_batches_that_are_gathered_count_by_their_labels_as_trainer_wants_it():
    torch.manual_seed(0)
    model = cwt.TokenClassifier(Encoder(), 5, hidden_size=16, dropout=0.0)
    whole = batch(size=6)
    count = (whole["labels"] != -100).sum()
    parts = [{k: v[s] for k, v in whole.items()} for s in (slice(0, 2), slice(2, 6))]
    losses = [model(**part, num_items_in_batch=count).loss for part in parts]
    torch.testing.assert_close(sum(losses), model(**whole).loss)
    nothing = whole | {"labels": torch.full_like(whole["labels"], -100)}
    assert model(**nothing).loss == 0


def test_what_is_missing_is_said():
    with pytest.raises(DataError, match="hidden_size="):
        cwt.TokenClassifier(Encoder(), LABELS)
    with pytest.raises(DataError, match="needs the names"):
        cwt.TokenClassifier(Encoder(), 5, "BIO", hidden_size=16)
    model, inputs = cwt.TokenClassifier(Encoder(), 5, hidden_size=16), batch(size=2)
    for name in ("labels", "word_mask"):
        with pytest.raises(DataError, match=rf"{name} must have shape \(2, 9\).*first_pieces"):
            model(**inputs | {name: torch.zeros(2, 5, dtype=torch.long)})
        with pytest.raises(DataError, match=rf"{name} must be a tensor"):
            model(**inputs | {name: [[0] * 9] * 2})
    with pytest.raises(DataError, match="pass hidden_size=16"):
        cwt.TokenClassifier(Encoder(), 5, hidden_size=8)(**inputs)
    model.encoder.forward = lambda **inputs: {"logits": torch.zeros(2, 9, 5)}
    with pytest.raises(DataError, match=r"returned logits.*without its head"):
        model(**inputs)
    broken = cwt.TokenClassifier(torch.nn.ReLU(), 5, hidden_size=16).eval()
    broken.encoder.forward = lambda **inputs: "nothing"
    with pytest.raises(DataError, match="returned str"):
        broken(torch.zeros(1, 2))


# ---- what PyTorch does with modules


@pytest.mark.parametrize("labels", [5, 210])  # by kernels, and by products of matrices
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_scores_are_float32(dtype, labels):
    torch.manual_seed(0)
    crf = cwt.ChainCRF(labels, batch_first=True)
    emissions = torch.randn(8, 5, labels).to(dtype).requires_grad_()
    tags, mask = torch.randint(0, labels, (8, 5)), torch.rand(8, 5) < 0.6
    with torch.autocast("cpu", dtype=dtype):
        value = crf(emissions, tags, mask)
        found = crf.marginals(emissions.detach(), mask).nodes
        label, score = crf.decoder()(emissions, mask)
    value.backward()
    wide = emissions.detach().float().requires_grad_()
    expected = crf(wide, tags, mask)
    expected.backward()
    assert value.dtype == found.dtype == score.dtype == torch.float32
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(emissions.grad, wide.grad.to(dtype))
    torch.testing.assert_close(found.sum(-1), mask.float())
    assert torch.equal(label, crf.predict(wide, mask))


def test_compiled_models_give_the_losses_gradients_and_labels_of_before():
    torch.manual_seed(0)
    model = cwt.TokenClassifier(Encoder(), LABELS, "BIO", hidden_size=16, dropout=0.0)
    compiled = torch.compile(model, backend="eager")
    inputs = batch(size=4)
    gradients = []
    for one in (model, compiled):
        model.zero_grad()
        loss = one(**inputs).loss
        loss.backward()
        gradients.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for mine, theirs in zip(*gradients):
        torch.testing.assert_close(mine, theirs)
    model.eval()
    assert torch.equal(compiled(**inputs).predictions, model(**inputs).predictions)


def model_and_batch():
    """The same in every process."""
    torch.manual_seed(0)
    model = cwt.TokenClassifier(Encoder(), LABELS, "BIO", hidden_size=16, dropout=0.0)
    return model, batch(size=6)


def replica(rank, store, found):
    """One step of one of two processes on its half of a batch; writes the averaged gradients."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    model, whole = model_and_batch()
    copies = torch.nn.parallel.DistributedDataParallel(model)
    count = (whole["labels"] != -100).sum()
    half = {k: v[rank::2] for k, v in whole.items()}
    # Gradients are averaged over the processes, hence the 2.
    (2 * copies(**half, num_items_in_batch=count)["loss"]).backward()
    torch.save([p.grad for p in model.parameters()], f"{found}.part")
    Path(f"{found}.part").rename(found)
    torch.distributed.barrier()


@pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this PyTorch has no gloo",
)
def test_two_processes_have_the_gradients_of_one(tmp_path):
    store, found = str(tmp_path / "store"), [tmp_path / "0.pt", tmp_path / "1.pt"]
    code = "import sys; from test_torch_tokens import replica\n"
    code += "replica(int(sys.argv[1]), *sys.argv[2:])"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), store, str(path)], cwd=Path(__file__).parent
        )
        for rank, path in enumerate(found)
    ]
    end = time.monotonic() + 120
    while not all(path.exists() for path in found) and time.monotonic() < end:
        time.sleep(0.05)
    for process in processes:  # gloo may wait for itself when it is taken down
        process.kill()
        process.wait()
    model, whole = model_and_batch()
    model(**whole).loss.backward()
    for path in found:
        for theirs, parameter in zip(torch.load(path), model.parameters(), strict=True):
            torch.testing.assert_close(theirs, parameter.grad)
