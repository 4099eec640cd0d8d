"""Spans and their probabilities, against the sum over all labelings that have them."""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cliquewise as cw
from cliquewise.data import read_spans
from cliquewise.data.spans import ScoredSpan, Span, SpanLabels
from cliquewise.errors import DataError, TooLargeError, UnsupportedError
from cliquewise.models.chain import ChainModel
from cliquewise.models.label_schemes import scheme_masks
from cliquewise.oracles import _chain_spans

SCHEMES = {
    "BIO": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "BIOES": ["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "E-Y"],
    "IO": ["O", "I-X", "I-Y"],
    "IOB1": ["O", "I-X", "B-X", "I-Y"],
    "BILOU and others": ["O", "B-X", "I-X", "L-X", "E-X", "U-X", "B", "I"],
    "no outside": ["B-X", "I-X"],
}


def tagger_of(classes, forbidden=None, transitions="all", scale=2.0, seed=0):
    """A tagger of numbers in place of features, with drawn weights."""
    X = [np.eye(len(classes))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger = cw.SequenceTagger(max_epochs=1, solver="lbfgs").fit(X, [list(classes)])
    model = ChainModel.build(
        tagger._record.data, len(classes), feature_pairs="all", transitions=transitions,
        forbidden=forbidden or (), classes=tagger.classes_, intercept=True, boundaries=True,
    )  # fmt: skip
    weights = scale * np.random.default_rng(seed).normal(size=model.dimension)
    tagger._chain = tagger._make_chain(tagger.encoder_, tagger.labels_, model, weights)
    return tagger


def by_enumeration(tagger, x):
    """P(span) of every span of a sequence: the labelings one by one, read by the reader."""
    labelings = [list(y) for y in itertools.product(tagger.classes_, repeat=len(x))]
    probabilities = np.exp(tagger.log_likelihood([x] * len(labelings), labelings))
    total = defaultdict(float)
    for p, spans in zip(probabilities.tolist(), read_spans(labelings), strict=True):
        for span in spans:
            total[span] += p
    return total


@given(
    st.sampled_from(list(SCHEMES)), st.integers(1, 4), st.sampled_from([0.0, 2.0, 30.0, 1e4]),
    st.integers(0, 10**6), st.booleans(),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_probabilities_of_spans_are_sums_over_the_labelings_that_have_them(
    scheme, length, scale, seed, forbid
):
    """Whatever the labels are, and where some transitions are forbidden."""
    rng = np.random.default_rng(seed)
    classes = SCHEMES[scheme]
    pairs = [(a, b) for a in classes for b in classes if a != b and rng.random() < 0.3]
    tagger = tagger_of(classes, forbidden=pairs if forbid else None, scale=scale, seed=seed)
    x = rng.normal(size=(length, len(classes)))
    truth = by_enumeration(tagger, x)
    # All that are possible, each once
    (found,) = tagger.predict_spans([x], candidates="all", threshold=0.0)
    assert len({s[:3] for s in found}) == len(found)
    for *place, probability in found:
        assert probability == pytest.approx(truth.pop(Span(*place)), rel=1e-9, abs=1e-90)
    assert all(p < 1e-80 for p in truth.values())
    # those of the best labeling, those above a threshold, the k most probable
    everything = sorted(found, key=lambda s: -s.probability)
    (best,) = tagger.predict_spans([x], proba=True)
    assert (
        [Span(*s[:3]) for s in best]
        == tagger.predict_spans([x])[0]
        == read_spans(tagger.predict([x]))[0]
    )
    assert set(best) <= set(found)
    middle = everything[len(everything) // 2].probability if found else 0.5
    (above,) = tagger.predict_spans([x], candidates="all", threshold=middle)
    assert sorted(above) == sorted(s for s in found if s.probability >= middle)
    (most,) = tagger.predict_spans([x], candidates="all", k=4)
    assert [s.probability for s in most] == [s.probability for s in everything[:4]]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_token_is_in_one_span_or_outside_of_all(scheme):
    """So the probabilities of the spans that cover it and that of O add up to one."""
    classes = SCHEMES[scheme]
    tagger = tagger_of(classes, seed=3)
    X = [np.random.default_rng(n).normal(size=(n, len(classes))) for n in (0, 1, 2, 30)]
    for spans, marginals in zip(
        tagger.predict_spans(X, candidates="all", threshold=0.0),
        tagger.predict_marginals(X),
        strict=True,
    ):
        covered = np.zeros(len(marginals))
        for s in spans:
            covered[s.start : s.end] += s.probability
        if "O" in classes:
            covered += marginals[:, tagger.classes_.index("O")]
        np.testing.assert_allclose(covered, 1.0, rtol=1e-12)


def test_the_expected_number_of_spans_is_that_of_their_first_tokens():
    """In strict BIO spans begin at B alone."""
    tagger = tagger_of(SCHEMES["BIO"], transitions="BIO", seed=1)
    x = np.random.default_rng(0).normal(size=(20, 5))
    (spans,) = tagger.predict_spans([x], candidates="all", threshold=0.0)
    begins = [tagger.classes_.index(c) for c in ("B-X", "B-Y")]
    begun = tagger.predict_marginals([x])[0][:, begins].sum()
    assert sum(s.probability for s in spans) == pytest.approx(begun)


def test_many_sequences_in_blocks_and_threads_answer_as_one_by_one(monkeypatch):
    tagger = tagger_of(SCHEMES["BIOES"], seed=5)
    rng = np.random.default_rng(1)
    X = [rng.normal(size=(int(n), 7)) for n in rng.integers(0, 9, 40)]
    asked = [
        {"proba": True},
        {"candidates": "all", "threshold": 0.2},
        {"candidates": "all", "k": 3},
    ]
    single = [[tagger.predict_spans([x], **options)[0] for x in X] for options in asked]
    monkeypatch.setattr("cliquewise.estimators.tagger.chain_tagger.BLOCK", 100)
    tagger.set_params(n_jobs=2)
    assert [tagger.predict_spans(X, **options) for options in asked] == single
    assert any(single[0]) and [] in single[0]


def test_attributes_of_token_pairs_count():
    """A template's B rules: one table of transitions per position."""
    words = [["a", "b", "a", "c"], ["b", "b", "c"], ["c", "a"]]
    y = [["B-X", "I-X", "O", "B-X"], ["B-X", "I-X", "O"], ["O", "B-X"]]
    X = [[[w] for w in s] for s in words]
    template = cw.data.Template.parse("U00:%x[0,0]\nB00:%x[0,0]\n")
    tagger = cw.SequenceTagger(template=template, C=5.0, random_state=0).fit(X, y)
    (found,) = tagger.predict_spans(X[:1], candidates="all", threshold=0.0)
    truth = by_enumeration(tagger, X[0])
    assert {s[:3] for s in found} == set(truth)
    for *place, probability in found:
        assert probability == pytest.approx(truth[Span(*place)], rel=1e-9)


def test_what_tokens_may_be_is_given():
    tagger = tagger_of(SCHEMES["BIO"])
    x = np.zeros((3, 5))
    allowed = [["B-X", "I-X", "O"]]
    assert tagger.predict_spans([x], allowed, proba=True) == [[ScoredSpan(0, 2, "X", 1.0)]]
    (impossible,) = tagger.predict_spans([x], allowed, candidates="all", k=9)
    assert impossible == [(0, 2, "X", 1.0)]  # nothing else is possible


def test_bad_questions_are_rejected(monkeypatch):
    tagger = tagger_of(SCHEMES["BIO"])
    x = np.zeros((3, 5))
    with pytest.raises(DataError, match="needs a threshold or a k"):
        tagger.predict_spans([x], candidates="all")
    with pytest.raises(DataError, match=r'"best" or "all"'):
        tagger.predict_spans([x], candidates="some")
    for wrong in (-0.1, 1.1, float("nan"), "high"):
        with pytest.raises(DataError, match="threshold"):
            tagger.predict_spans([x], threshold=wrong)
    with pytest.raises(DataError, match="k"):
        tagger.predict_spans([x], k=0)
    with pytest.raises(DataError, match="'N' is no span label"):
        tagger_of(["N", "V"]).predict_spans([np.zeros((1, 2))])
    monkeypatch.setattr(_chain_spans, "SPAN_BYTES", 1e12)
    with pytest.raises(TooLargeError, match="raise the threshold"):
        tagger.predict_spans([x], candidates="all", threshold=0.0)
    tagger.loss = "hinge"
    assert len(tagger.predict_spans([x])) == 1
    with pytest.raises(UnsupportedError, match="scores, not probabilities"):
        tagger.predict_spans([x], proba=True)


def test_the_rules_of_continuing_are_those_of_the_reader():
    """A pair of labels is one span if and only if the second continues the first."""
    for classes in SCHEMES.values():
        labels = SpanLabels.of(classes)
        pairs = list(itertools.product(range(len(classes)), repeat=2))
        spans = read_spans([[classes[a], classes[b]] for a, b in pairs])
        joined = {pair for pair, found in zip(pairs, spans, strict=True) if (0, 2) in
                  {s[:2] for s in found}}  # fmt: skip
        assert joined == set(labels.continuing())


@pytest.mark.parametrize("seed", range(20))
def test_labels_in_another_scheme_stand_for_the_same_spans_and_obey_it(seed):
    rng = np.random.default_rng(seed)
    classes = ["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "U-Y", "L-Y"]
    y = [rng.choice(classes, rng.integers(0, 9)).tolist() for _ in range(10)]
    for scheme in ("BIO", "BIOES"):
        written = cw.data.to_scheme(y, scheme)
        assert (
            read_spans(written) == read_spans(y) and cw.data.to_scheme(written, scheme) == written
        )
        known = sorted({c for labels in written for c in labels})
        follow, first, last = scheme_masks(scheme, known)
        for labels in filter(None, written):
            ids = [known.index(c) for c in labels]
            assert first[ids[0]] and last[ids[-1]] and follow[ids[:-1], ids[1:]].all()


def test_unknown_labels_stay_unknown_in_another_scheme():
    assert cw.data.to_scheme([["I-X", None, "I-X"]]) == [["B-X", None, "B-X"]]
    with pytest.raises(DataError, match="choose BIO or BIOES"):
        cw.data.to_scheme([["O"]], "IO")
