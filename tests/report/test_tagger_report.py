"""What a tagger's report says: probabilities of spans, kinds of errors, intervals, reasons."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from report_cases import spans_tagger, template_tagger

import cliquewise as cw
from cliquewise.cli import main
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._report_measures import KINDS, Spans, bootstrap, calibration
from cliquewise.estimators.tagger.report_reasons import reasons
from cliquewise.estimators.tagger.tagged_text import TaggedText
from cliquewise.metrics import span_scores
from cliquewise.ragged import offsets_of


@pytest.fixture(scope="module")
def tried():
    tagger, X, y = spans_tagger()
    return tagger, X, [row[::-1] for row in y]  # other labels than those of training


def data_of(path):
    found = re.search(r'id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    return json.loads(found[1])


def block_of(page, section, kind):
    blocks = next(s for s in page["sections"] if s["id"] == section)["blocks"]
    return next(b for b in blocks if b["kind"] == kind)


def spans_in(tags):
    s = Spans.of(list(tags), list(tags), offsets_of([len(tags)]))
    return {(first, end, s.types[kind]) for first, end, kind, _ in s.true.tolist()}


def test_the_probability_of_a_span_is_that_of_all_labelings_that_have_it(tried):
    tagger, X, y = tried
    text = TaggedText(tagger.chain_, X, y)
    for i in range(len(X)):
        if len(X[i]) > 4:
            continue
        every = tagger.predict_top_k([X[i]], 5 ** len(X[i]))[0]
        begin, end = text.offsets[i : i + 2]
        for row, p in zip(text.spans.own.tolist(), text.span_probability, strict=True):
            if begin <= row[0] < end:
                span = (row[0] - begin, row[1] - begin, text.spans.types[row[2]])
                assert p == pytest.approx(sum(q for q, tags in every if span in spans_in(tags)))


def test_kinds_of_errors_are_what_their_names_say():
    truth = ["B-X", "I-X", "O", "B-Y", "O", "B-X", "O", "B-X", "I-X", "O", "O", "B-Y"]
    own = ["B-X", "I-X", "O", "B-X", "O", "O", "O", "B-X", "O", "O", "B-Y", "B-Y"]
    spans = Spans.of(truth, own, np.array([0, 12]))
    assert [KINDS[k] for k in spans.true[:, 3]] == [
        "correct",
        "type",
        "missed",
        "boundary",
        "correct",
    ]
    assert [KINDS[k] for k in spans.own[:, 3]] == [
        "correct",
        "type",
        "boundary",
        "spurious",
        "correct",
    ]


def test_spans_that_are_right_are_those_that_the_conll_script_counts():
    rng = np.random.default_rng(1)
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y", "S-X", "E-Y"]
    for _ in range(50):
        truth, own = ([labels[j] for j in rng.integers(0, 7, 12)] for _ in range(2))
        spans = Spans.of(truth, own, np.array([0, 12]))
        scores = span_scores([truth], [own])
        assert (spans.true[:, 3] == 0).sum() == (spans.own[:, 3] == 0).sum() == scores.n_correct
        assert len(spans.pairs) == len(spans.true) + (spans.pairs[:, 0] < 0).sum()
        assert set(spans.pairs[spans.pairs[:, 0] < 0, 1]) == set(
            np.flatnonzero(spans.own[:, 3] == 5)
        )


def test_the_parts_of_a_reason_sum_to_the_difference_of_the_scores(tried):
    tagger, X, y = tried
    text = TaggedText(tagger.chain_, X, y)
    found = reasons(text)
    assert len(found.by_token) > 20
    for token, (other, pro, contra, rest, before, after, _) in found.by_token.items():
        i = int(np.searchsorted(text.offsets, token, side="right")) - 1
        tags = [text.names[c] for c in text.own[text.offsets[i] : text.offsets[i + 1]]]
        changed = list(tags)
        changed[token - text.offsets[i]] = text.names[other]
        difference = -np.subtract(*tagger.log_likelihood([X[i], X[i]], [changed, tags]))
        if before is None or after is None or not np.isfinite(difference):
            continue  # the other tag is forbidden there
        total = sum(pro[1::2]) + sum(contra[1::2]) + rest + before + after
        assert total == pytest.approx(difference, abs=0.03)  # three digits of each


def test_a_bootstrap_of_equal_sentences_has_no_width_and_of_others_covers_the_truth():
    assert np.all(bootstrap(np.ones((4, 2))) == 4)
    hits = np.random.default_rng(0).random(400) < 0.3
    low, high = np.quantile(bootstrap(hits[:, None])[:, 0] / 400, [0.025, 0.975])
    half = 1.96 * np.sqrt(hits.mean() * (1 - hits.mean()) / 400)
    assert low == pytest.approx(hits.mean() - half, abs=0.01)
    assert high == pytest.approx(hits.mean() + half, abs=0.01)


def test_calibrated_probabilities_have_a_small_calibration_error_and_others_a_large_one():
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    assert calibration(p, rng.random(20_000) < p)[1] < 0.02
    assert calibration(p, rng.random(20_000) < p**3)[1] > 0.1


def test_a_report_holds_every_sentence_and_its_scores(tried, tmp_path):
    tagger, X, y = tried
    tagger.report(X, y, tmp_path / "r.html", title="A title")
    page = data_of(tmp_path / "r.html")
    assert page["title"] == "A title"
    block = block_of(page, "sentences", "sentences")
    words = [block["words"][w] for w in block["tokens"]]
    assert words == [token[0][2:] for x in X for token in x]
    assert [block["labels"][g] for g in block["gold"]] == list(itertools.chain(*y))
    table = block_of(page, "scores", "table")
    assert table["rows"][-1][3][0] == pytest.approx(span_scores(y, tagger.predict(X)).f1, abs=1e-4)
    assert block_of(page, "proof", "badge")["status"] in ("proved", "bounded")


@pytest.mark.parametrize("loss", ["hinge", "log"])
def test_labels_that_name_no_spans_and_losses_without_probabilities_are_reported_too(
    loss, tmp_path
):
    X = [[{"word": "the", "size": 3.0}, {"word": "dog"}], [{"word": "a"}], []]
    y = [["D", "N"], [None], []]
    tagger = cw.SequenceTagger(loss, random_state=0).fit(X[:1], y[:1])
    tagger.report(X, [["N", "new"], [None], []], tmp_path / "r.html")
    block = block_of(data_of(tmp_path / "r.html"), "sentences", "sentences")
    assert block["spans"] is None and block["words"] == ["the", "dog", "a"]
    assert (block["probability"] is None) == (loss == "hinge")


def test_arrays_have_numbers_for_words(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(4, 3, 2)), [["a", "b", "a"]] * 4
    cw.SequenceTagger(random_state=0).fit(X, y).report(X, y, tmp_path / "r.html")
    assert block_of(data_of(tmp_path / "r.html"), "sentences", "sentences")["words"] == [
        "1",
        "2",
        "3",
    ]


def test_what_cannot_be_reported_is_an_error_that_says_why(tried, tmp_path):
    tagger, X, y = tried
    with pytest.raises(DataError, match="one label for each token"):
        tagger.report(X, y[:-1], tmp_path / "r.html")
    with pytest.raises(DataError, match="no tokens"):
        tagger.report([], [], tmp_path / "r.html")
    with pytest.raises(DataError, match="one string for each token"):
        tagger.report(X, y, tmp_path / "r.html", tokens=[["a"]])
    assert not (tmp_path / "r.html").exists()


def test_the_command_writes_the_same_page(tmp_path):
    (tmp_path / "train").write_text("Rome B-LOC\nsleeps O\n\nParis B-LOC\nwakes O\n\n")
    fit = ["fit", str(tmp_path / "train"), "--model", str(tmp_path / "m.cw"), "--quiet"]
    assert CliRunner().invoke(main, fit).exit_code == 0
    ask = ["report", str(tmp_path / "train"), "--model", str(tmp_path / "m.cw")]
    result = CliRunner().invoke(main, [*ask, "--out", str(tmp_path / "r.html")])
    assert result.exit_code == 0, result.output
    page = data_of(tmp_path / "r.html")
    assert page["title"] == "train" and "m.cw" in page["subtitle"]
    assert block_of(page, "sentences", "sentences")["words"] == ["Rome", "sleeps", "Paris", "wakes"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "without a template"),
        ({"template": "columns", "n_hash": 64}, "hashes"),
        ({"template": 'U1:%t[0,0,"^a"]'}, "expression"),
        ({"template": "U1:%x[0,0]\nB2:%x[0,0]"}, "pairs of tokens"),
    ],
)
def test_live_refuses_models_that_a_page_cannot_run(options, why, tmp_path):
    if ":" in options.get("template", ""):
        (tmp_path / "t").write_text(options["template"])
        options = {"template": tmp_path / "t"}
    X, y = [[["a"], ["b"]]], [["A", "B"]]
    tagger = cw.SequenceTagger(random_state=0, tol=0.9, **options).fit(X, y)
    with pytest.raises(UnsupportedError, match=why):
        tagger.report(X, y, tmp_path / "r.html", live=True)


def test_sentences_come_second_and_the_certificate_names_the_origin(tmp_path):
    tagger, X, y = spans_tagger(n=20)
    tagger.report(X, y, tmp_path / "r.html")
    found = data_of(tmp_path / "r.html")
    assert [part["id"] for part in found["sections"]][:2] == ["proof", "sentences"]
    facts = dict(map(tuple, block_of(found, "proof", "badge")["facts"]))
    assert facts["trained with"] == f"cliquewise {cw.__version__}, {tagger.solver_}"
    assert facts["digest of the data"] == tagger.provenance_["data"]


def test_a_large_report_names_what_shrinks_it(tmp_path, monkeypatch):
    monkeypatch.setattr("cliquewise.estimators._base.LARGE_REPORT_MB", 0.0)
    tagger, X = template_tagger("ner", n_test=3)
    with pytest.warns(UserWarning, match="leave out live, or report on fewer sentences"):
        tagger.report(X, tagger.predict(X), tmp_path / "r.html", live=True)


def test_a_report_of_a_loaded_model_has_curves_over_epochs(tmp_path):
    tagger, X, y = spans_tagger(n=20)
    tagger.save(tmp_path / "m.cw")
    cw.load(tmp_path / "m.cw").report(X, y, tmp_path / "r.html")
    curves = block_of(data_of(tmp_path / "r.html"), "proof", "curves")
    assert [name for name, _ in curves["steps"]] == ["epochs"]
