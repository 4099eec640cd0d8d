"""Decoding as a module of plain operations: the labels of ChainCRF, exported and by onnxruntime."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

from cliquewise import torch as cwt  # noqa: E402
from cliquewise.errors import DataError, UnsupportedError  # noqa: E402
from cliquewise.torch.chain import decode  # noqa: E402

LENGTH = 8
SCHEMES = ["BIOES", None]


def layer(scheme, *, batch_first=True):
    labels = ["O", *(f"{letter}-{kind}" for kind in "XY" for letter in "BIES")]
    torch.manual_seed(0)
    if scheme is None:
        crf = cwt.ChainCRF(9, batch_first)
    else:
        crf = cwt.ChainCRF.from_scheme(scheme, labels, batch_first)
    for weight in crf.parameters():
        torch.nn.init.normal_(weight)
    return crf


def batches(count, seed=0):
    """Random batches of several sizes; masks with gaps, some of them empty."""
    generator = torch.Generator().manual_seed(seed)
    for i in range(count):
        size = 1 + i % 5
        emissions = 3 * torch.randn(size, LENGTH, 9, generator=generator)
        mask = torch.rand(size, LENGTH, generator=generator) < (0.2, 0.7, 1.1)[i % 3]
        yield emissions, mask


def check(crf, emissions, mask, labels, score):
    expected = decode(crf.scores(emissions, mask))[0]
    torch.testing.assert_close(score, expected, rtol=1e-5, atol=1e-4)
    possible = torch.isfinite(expected)  # no labels are best where none are possible
    assert torch.equal(labels[possible], crf.predict(emissions, mask)[possible])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_decoder_gives_the_labels_and_scores_of_the_layer(scheme):
    crf = layer(scheme)
    decoder = crf.decoder()
    for emissions, mask in batches(50):
        check(crf, emissions, mask, *decoder(emissions, mask))
    turned = layer(scheme, batch_first=False).decoder()
    for mine, theirs in zip(turned(emissions.transpose(0, 1), mask.T), decoder(emissions, mask)):
        assert torch.equal(mine, theirs)


def test_long_chains_keep_their_digits_and_one_position_is_enough():
    crf = layer(None)
    emissions, mask = 1000 + torch.randn(2, 300, 9), torch.rand(2, 300) < 0.8
    check(crf, emissions, mask, *crf.decoder()(emissions, mask))
    check(crf, emissions[:, :1], mask[:, :1], *crf.decoder()(emissions[:, :1], mask[:, :1]))


def example():
    emissions, mask = torch.zeros(2, LENGTH, 9), torch.ones(2, LENGTH, dtype=torch.bool)
    size = torch.export.Dim("size", min=1, max=1000)
    return (emissions, mask), ({0: size}, {0: size})


def test_torch_export_takes_the_decoder_with_a_batch_of_any_size():
    crf = layer("BIOES")
    inputs, shapes = example()
    program = torch.export.export(crf.decoder(), inputs, dynamic_shapes=shapes).module()
    for emissions, mask in batches(10):
        check(crf, emissions, mask, *program(emissions, mask))


def test_a_whole_model_is_exported_as_it_predicts():
    from test_torch_tokens import LABELS, Encoder, batch

    torch.manual_seed(0)
    model = cwt.TokenClassifier(Encoder(), LABELS, "BIO", hidden_size=16).eval()
    inputs = batch(size=3)
    ids, attention, words = inputs["input_ids"], inputs["attention_mask"], inputs["labels"] != -100
    given = {"word_mask": words}
    program = torch.export.export(model, (ids, attention), given).module()
    other = batch(seed=1, size=3)
    words = other["labels"] != -100
    found = program(other["input_ids"], other["attention_mask"], word_mask=words)
    expected = model(other["input_ids"], other["attention_mask"], word_mask=words)
    assert torch.equal(found["predictions"], expected.predictions)


def test_the_likelihood_is_exported_as_plain_operations():
    crf, inputs = layer(None), (torch.randn(2, 4, 9), torch.randint(0, 9, (2, 4)))
    program = torch.export.export(crf, inputs).module()
    other = torch.randn(2, 4, 9), torch.randint(0, 9, (2, 4))
    torch.testing.assert_close(program(*other), crf(*other))


class Calling(torch.nn.Module):
    """A method of a layer as a module."""

    def __init__(self, crf, method):
        super().__init__()
        self.crf, self.method = crf, method

    def forward(self, *inputs):
        return getattr(self.crf, self.method)(*inputs)


def test_marginals_are_exported_with_masks_that_have_gaps():
    module = Calling(layer("BIOES"), "marginals").eval()
    mask = torch.tensor([[1, 0, 1, 1], [0, 1, 0, 0]]).bool()
    program = torch.export.export(module, (torch.randn(2, 4, 9), mask)).module()
    other = torch.randn(2, 4, 9), mask.flip(0, 1)
    for found, expected in zip(program(*other), module(*other)):
        torch.testing.assert_close(found, expected)


def test_decode_and_spans_refuse_to_be_exported():
    for method in ("decode", "predict_spans"):
        with pytest.raises(UnsupportedError, match=r"crf.decoder\(\)"):
            torch.export.export(Calling(layer("BIOES"), method), (torch.zeros(1, 2, 9),))


def test_the_decoder_takes_masks_of_any_type_or_none_and_says_what_it_wants():
    crf = layer(None)
    decoder, emissions = crf.decoder(), torch.randn(2, 4, 9)
    mask = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0]])
    assert torch.equal(decoder(emissions, mask)[0], crf.predict(emissions, mask))
    assert torch.equal(decoder(emissions)[0], crf.predict(emissions))
    assert decoder(emissions[:, :0], mask[:, :0])[0].shape == (2, 0)
    for wrong in ((emissions, mask[:, :3]), (emissions[:, :, :8], mask)):
        with pytest.raises(DataError, match=r"\(batch, time, 9\)"):
            decoder(*wrong)


def test_onnxruntime_decodes_as_the_layer_does_on_100_random_batches(tmp_path):
    for module in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    import onnxruntime

    crf = layer("BIOES")
    inputs, shapes = example()
    path = str(tmp_path / "decoder.onnx")
    torch.onnx.export(
        crf.decoder(), inputs, path, input_names=["emissions", "mask"],
        output_names=["labels", "score"], dynamic_shapes=shapes, dynamo=True, verbose=False,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for emissions, mask in batches(100, seed=1):
        given = {"emissions": emissions.numpy(), "mask": mask.numpy()}
        labels, score = (torch.from_numpy(x) for x in session.run(["labels", "score"], given))
        assert labels.shape == mask.shape and labels.dtype == torch.int64
        check(crf, emissions, mask, labels, score)
