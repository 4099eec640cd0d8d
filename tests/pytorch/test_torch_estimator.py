"""StructuredClassifier: fits chains, candidates and label sets; stops early, saves, resumes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")

from cliquewise._kernels import clock  # noqa: E402
from cliquewise.errors import CliquewiseError, DataError, FormatError  # noqa: E402
from cliquewise.torch import SGD, Adam, StructuredClassifier  # noqa: E402


def chains(n=120, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, 4, generator=generator)
    y = (x[:, :, :3]).argmax(-1)
    mask = torch.arange(8) < torch.randint(1, 9, (n, 1), generator=generator)
    return x, y, mask


def tagger(**options):
    torch.manual_seed(0)
    settings = {"n_labels": 3, "max_epochs": 15, "random_state": 0, "device": "cpu"} | options
    return StructuredClassifier(torch.nn.Linear(4, 3), "chain", solver=SGD(0.5), **settings)


def test_a_tagger_learns_predicts_and_gives_marginals():
    x, y, mask = chains()
    model = tagger().fit(x, y, mask)
    assert model.score(x, y, mask) > 0.9
    marginals = model.predict_marginals(x, mask)
    sums = marginals.sum(-1)
    np.testing.assert_allclose(sums[mask.numpy()], 1.0, atol=1e-5)
    assert not sums[~mask.numpy()].any()
    assert not model.predict(x, mask)[~mask.numpy()].any()
    assert model.certificate_.status == "none" and len(model.trace_) == 15


def test_early_stopping_keeps_the_best_weights_on_the_validation_set():
    x, y, mask = chains()
    bad = (y + 1) % 3
    model = tagger(max_epochs=50, patience=2)
    model.fit(x, y, mask, validation=(x, bad, mask))
    assert model.trace_.epochs[-1] < 50
    assert model.score(x, bad, mask) == pytest.approx(model.trace_.validation.max())


def test_early_stopping_looks_at_the_average_of_the_weights_if_there_is_one():
    x, y, mask = chains()
    torch.manual_seed(0)
    model = StructuredClassifier(
        torch.nn.Linear(4, 3), "chain", solver=Adam(0.02, average=0.99), n_labels=3,
        max_epochs=8, patience=8, random_state=0, device="cpu",
    ).fit(x, y, mask, validation=(x, y, mask))  # fmt: skip
    assert model.score(x, y, mask) == pytest.approx(model.trace_.validation.max())
    # The objective in the trace is that of the average, too.
    assert model.trace_.primal[-1] < model.trace_.primal[0]


def test_saved_weights_give_the_same_predictions(tmp_path):
    x, y, mask = chains()
    model = tagger().fit(x, y, mask)
    model.save(tmp_path / "tagger.cw")
    other = tagger().load_weights(tmp_path / "tagger.cw")
    assert np.array_equal(model.predict(x, mask), other.predict(x, mask))
    small = StructuredClassifier(torch.nn.Linear(4, 2), "chain", n_labels=2)
    with pytest.raises(FormatError, match="do not match this module"):
        small.load_weights(tmp_path / "tagger.cw")
    ranker = StructuredClassifier(torch.nn.Linear(4, 3), "candidates")
    with pytest.raises(FormatError, match="not a network for 'candidates'"):
        ranker.load_weights(tmp_path / "tagger.cw")


def test_training_resumes_from_a_checkpoint(tmp_path, monkeypatch):
    x, y, mask = chains()
    path = tmp_path / "run.cw"
    late = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(clock, "now", lambda: float(next(late)))
    first = tagger(max_epochs=3).fit(x, y, mask, checkpoint=path)
    assert path.exists()
    model = tagger(max_epochs=6).fit(x, y, mask, checkpoint=path, resume=True)
    assert model.trace_[0] == first.trace_[0]
    assert model.trace_.epochs[-1] == pytest.approx(6)


def test_candidates_with_costs_and_missing_candidates():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 6, generator=generator)
    y = x[:, :4].argmax(1)
    costs = torch.ones(100, 6).scatter(1, y[:, None], 0.0)
    costs[:, 4:] = torch.inf
    torch.manual_seed(0)
    model = StructuredClassifier(
        torch.nn.Linear(6, 6), "candidates", "softmax_margin", Adam(0.05), max_epochs=15,
        random_state=0, device="cpu",
    ).fit(x, y, costs)  # fmt: skip
    assert model.score(x, y, costs) > 0.85
    assert model.predict(x, costs).max() < 4
    assert not model.predict_marginals(x, costs)[:, 4:].any()


def test_label_sets_by_prox_linear():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator)
    y = (x > 0).long()
    y[:, 1] = 1 - y[:, 0]
    torch.manual_seed(0)
    model = StructuredClassifier(
        torch.nn.Linear(3, 3), "multilabel", "log", "prox_linear", n_labels=3, max_epochs=60,
        batch_size=20, random_state=0, device="cpu",
    ).fit(x, y)  # fmt: skip
    assert model.score(x, y) > 0.9
    assert model.predict_marginals(x).shape == (40, 3)


def test_bad_settings_are_rejected():
    with pytest.raises(DataError, match="needs n_labels"):
        StructuredClassifier(torch.nn.Linear(2, 2), "chain")
    with pytest.raises(CliquewiseError, match="choose from"):
        StructuredClassifier(torch.nn.Linear(2, 2), "tree", n_labels=2)
    with pytest.raises(CliquewiseError, match="unknown solver"):
        StructuredClassifier(torch.nn.Linear(2, 2), "chain", n_labels=2, solver="newton")
