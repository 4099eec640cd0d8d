"""Spans of deep models and their probabilities, against the sum over all labelings."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra cliquewise[torch] is not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import cliquewise as cw  # noqa: E402
from cliquewise import torch as cwt  # noqa: E402
from cliquewise.data import read_spans  # noqa: E402
from cliquewise.data.spans import Span  # noqa: E402
from cliquewise.errors import DataError, TooLargeError  # noqa: E402
from cliquewise.oracles import _chain_spans  # noqa: E402

CUDA = pytest.param(
    "cuda",
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
)
SCHEMES = {
    "BIO": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "BIOES": ["O", "B-X", "I-X", "E-X", "S-X", "S-Y"],
    "IO": ["O", "I-X", "I-Y"],
    None: ["I-X", "O", "B-X", "I-Y"],
}


def layer(scheme, seed, scale=1.0, batch_first=True):
    """One of a scheme, or one whose forbidden tags and transitions are drawn; O is possible."""
    rng, labels = np.random.default_rng([seed, 1]), SCHEMES[scheme]
    if scheme is None:
        no = [torch.tensor(rng.random(shape) < 0.3) for shape in ((4, 4), 4, 4)]
        no[0][1, 1] = no[1][1] = no[2][1] = False
        crf = cwt.ChainCRF(
            4, batch_first, forbidden=no[0], forbidden_starts=no[1], forbidden_ends=no[2]
        )
    else:
        crf = cwt.ChainCRF.from_scheme(scheme, labels, batch_first)
        assert crf.labels == labels
    for weight in crf.parameters():
        weight.data = torch.tensor(scale * rng.normal(size=weight.shape), dtype=torch.float32)
    return crf


def by_enumeration(crf, labels, emissions, mask):
    """P(span) of every span of a row: the labelings one by one, read by the reader."""
    at = mask.nonzero()[:, 0].tolist()
    nodes = emissions[at].double().numpy()
    trans, begin, end = (x.detach().double().numpy() for x in crf.tables())
    total, mass = defaultdict(float), []
    labelings = list(itertools.product(range(len(labels)), repeat=len(at)))
    for y in labelings:
        score = sum(nodes[t, c] for t, c in enumerate(y))
        score += sum(trans[a, b] for a, b in itertools.pairwise(y))
        mass.append(score + (begin[y[0]] + end[y[-1]] if y else 0.0))
    mass = np.exp(np.array(mass) - max(mass))
    names = [[labels[c] for c in y] for y in labelings]
    for p, spans in zip((mass / mass.sum()).tolist(), read_spans(names), strict=True):
        for span in spans:
            total[Span(at[span.start], at[span.end - 1] + 1, span.type)] += p
    return {span: p for span, p in total.items() if p > 0}


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_probabilities_of_spans_are_sums_over_the_labelings_that_have_them(scheme, device):
    """At the positions of the rows, whatever gaps the mask has; what is forbidden never is."""

    @settings(max_examples=10, deadline=None, database=None)
    @given(
        st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 10.0]), st.booleans(),
        st.sampled_from([torch.float32, torch.float64]),
    )  # fmt: skip
    def check(seed, scale, batch_first, dtype):
        labels, rng = SCHEMES[scheme], np.random.default_rng(seed)
        crf = layer(scheme, seed, scale, batch_first)
        emissions = torch.tensor(scale * rng.normal(size=(4, 6, len(labels))), dtype=dtype)
        mask = torch.tensor(rng.random((4, 6)) < 0.6)
        mask[rng.integers(4)] = False
        mask[:, rng.integers(1, 6) :: 4] = False
        truth = [by_enumeration(crf, labels, *row) for row in zip(emissions, mask)]
        crf.to(device, dtype)
        rows = (emissions, mask) if batch_first else (emissions.transpose(0, 1), mask.mT)
        rows = [x.to(device) for x in rows]
        named = {"labels": None if scheme else dict(enumerate(labels))}
        found = crf.predict_spans(*rows, **named, candidates="all", threshold=0.0)
        for spans, expected in zip(found, truth, strict=True):
            assert spans == sorted(spans) and len({s[:3] for s in spans}) == len(spans)
            probability = {Span(*s[:3]): s.probability for s in spans}
            for span in probability.keys() | expected.keys():
                # Weights and emissions of float32 are exact in float64.
                wanted = pytest.approx(expected.get(span, 0.0), rel=1e-9, abs=1e-90)
                assert probability.get(span, 0.0) == wanted
        # those of the best labeling, those above a threshold, the k most probable
        best = crf.predict_spans(*rows, **named, proba=True)
        tags = [[labels[c] for c in row] for row in crf.decode(*rows)]
        places = [row.nonzero()[:, 0].tolist() for row in mask]
        expected = [
            [Span(at[s.start], at[s.end - 1] + 1, s.type) for s in row]
            for at, row in zip(places, read_spans(tags), strict=True)
        ]
        assert crf.predict_spans(*rows, **named) == expected
        assert [[Span(*s[:3]) for s in row] for row in best] == expected
        above = crf.predict_spans(*rows, **named, candidates="all", threshold=0.2)
        most = crf.predict_spans(*rows, **named, candidates="all", k=3)
        sure = crf.predict_spans(*rows, **named, threshold=0.5)
        for b, everything in enumerate(found):
            assert set(best[b]) <= set(everything)
            assert above[b] == [s for s in everything if s.probability >= 0.2]
            assert sure[b] == [s for s in best[b] if s.probability >= 0.5]
            high = sorted((s.probability for s in everything), reverse=True)[:3]
            assert [s.probability for s in most[b]] == high

    check()


def test_a_tagger_with_the_same_scores_has_the_same_spans():
    rng = np.random.default_rng(0)
    X = [[[f"w={w}"] for w in rng.integers(0, 5, 6)] for _ in range(8)]
    y = [["O", "B-X", "I-X", "O", "B-Y", "B-X"]] * 8
    tagger = cw.SequenceTagger(random_state=0).fit(X, y)
    data = tagger.chain_.encode(X)
    form = tagger.model_.form(data, learn=False)
    nodes, trans = form.potentials(tagger.chain_.prepared.packed, 0, 8)
    crf = cwt.ChainCRF(len(tagger.classes_), batch_first=True).double()
    crf.transitions.data = torch.tensor(trans[0])
    torch.nn.init.zeros_(crf.start_transitions)
    torch.nn.init.zeros_(crf.end_transitions)
    emissions = torch.tensor(nodes).view(8, 6, -1)
    best = [{}, {"proba": True}, {"threshold": 0.4}, {"k": 1}]
    everything = [{"candidates": "all", **few} for few in ({"threshold": 0.01}, {"k": 4})]
    for options in best + everything:
        found = crf.predict_spans(emissions, labels=tagger.classes_, **options)
        assert found == tagger.predict_spans(X, **options)


@pytest.mark.parametrize("shape", [(0, 4, 5), (2, 0, 5), (2, 4, 5)])
def test_empty_sequences_have_no_spans(shape):
    crf = layer("BIO", 0)
    mask = torch.zeros(shape[:2], dtype=torch.bool)
    for options in ({}, {"proba": True}, {"candidates": "all", "k": 2}):
        found = crf.predict_spans(torch.full(shape, torch.nan), mask, **options)
        assert found == [[]] * shape[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_gradients_are_no_obstacle(dtype):
    crf = layer("BIO", 0)
    emissions = torch.randn(2, 4, 5).to(dtype).requires_grad_()
    wide = emissions.detach().float()
    assert crf.predict_spans(emissions, proba=True) == crf.predict_spans(wide, proba=True)


def test_what_is_missing_or_impossible_is_said(monkeypatch):
    crf, emissions = cwt.ChainCRF(3, batch_first=True), torch.zeros(2, 4, 3)
    labels = ["O", "B-X", "I-X"]
    with pytest.raises(DataError, match=r"pass labels=.*from_scheme"):
        crf.predict_spans(emissions)
    with pytest.raises(DataError, match="labels has 2 names for 3 tags"):
        crf.predict_spans(emissions, labels=["O", "B-X"])
    with pytest.raises(DataError, match="'N' is no span label"):
        crf.predict_spans(emissions, labels=["O", "N", "V"])
    with pytest.raises(DataError, match="needs a threshold or a k"):
        crf.predict_spans(emissions, labels=labels, candidates="all")
    ways = ({}, {"proba": True}, {"candidates": "all", "k": 2})
    for options in ways:
        wrong = emissions.clone()
        wrong[1, 2, 0] = torch.nan
        with pytest.raises(DataError, match="sequence 1 contain NaN"):
            crf.predict_spans(wrong, labels=labels, **options)
        wrong[1, 2] = -torch.inf
        with pytest.raises(DataError, match="sequence 1 has no possible labeling"):
            crf.predict_spans(wrong, labels=labels, **options)
    monkeypatch.setattr(_chain_spans, "SPAN_BYTES", 1e12)
    with pytest.raises(TooLargeError, match=r"limit: 8 GiB.*raise the threshold"):
        crf.predict_spans(emissions, labels=labels, candidates="all", threshold=0.0)


# ---- TokenClassifier


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 8)

    def forward(self, input_ids, attention_mask=None, shift=0.0):
        return (self.embedding(input_ids) + shift,)


@pytest.mark.parametrize("scheme", ["BIO", None])
def test_spans_of_an_encoder_are_those_of_its_scores_at_the_first_pieces(scheme):
    torch.manual_seed(0)
    model = cwt.TokenClassifier(Encoder(), SCHEMES["BIO"], scheme, hidden_size=8).eval()
    ids = torch.randint(0, 50, (3, 7))
    attention = torch.arange(7) < torch.tensor([[7], [5], [4]])
    words = torch.tensor([[0, 1, 0, 1, 1, 0, 1]] * 3).bool()
    logits = model(ids, attention, shift=0.5).logits
    wanted = {"candidates": "all", "threshold": 0.01}
    expected = model.crf.predict_spans(logits, words & attention, labels=SCHEMES["BIO"], **wanted)
    found = model.predict_spans(ids, attention, word_mask=words, shift=0.5, **wanted)
    assert found == expected and found[0]
    assert {s.start for row in found for s in row} == {1, 3, 4, 6}
    truth = torch.where(words, 0, -100)
    assert model.predict_spans(ids, attention, truth, shift=0.5, **wanted) == expected
    best = model(ids, attention, word_mask=words).predictions
    tags = read_spans(model.names(best))
    assert [len(row) for row in model.predict_spans(ids, attention, word_mask=words)] == [
        len(row) for row in tags
    ]


def test_a_model_in_training_or_without_names_says_what_to_do():
    ids = torch.zeros(1, 3, dtype=torch.long)
    model = cwt.TokenClassifier(Encoder(), SCHEMES["BIO"], hidden_size=8)
    with pytest.raises(DataError, match=r"model\.eval\(\)"):
        model.predict_spans(ids)
    with pytest.raises(DataError, match="names of the labels"):
        cwt.TokenClassifier(Encoder(), 5, hidden_size=8).eval().predict_spans(ids)


def test_a_compiled_model_answers_as_before():
    torch.manual_seed(0)
    crf, emissions = layer("BIOES", 0), torch.randn(2, 5, 6)
    compiled = torch.compile(lambda x: crf.predict_spans(2 * x, proba=True), backend="eager")
    assert compiled(emissions) == crf.predict_spans(2 * emissions, proba=True)
