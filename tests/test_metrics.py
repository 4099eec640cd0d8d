"""Metrics against plain loops, and span counts against the rules of the CoNLL script."""

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, make_scorer

from cliquewise import SequenceTagger, metrics
from cliquewise.errors import DataError


def conlleval_chunks(labels):
    """Chunks by the start and end rules of the CoNLL evaluation script, one tag at a time."""
    chunks, start = [], None
    previous, previous_type = "O", ""
    for t, label in enumerate([*labels, "O"]):
        tag, _, kind = label.partition("-")
        ends = (
            (previous in "BI" and tag in "BOS")
            or previous in "ES"
            or (previous != "O" and previous_type != kind)
        )
        starts = (
            tag in "BS"
            or (previous in "ESO" and tag in "EI")
            or (tag != "O" and previous_type != kind)
        )
        if start is not None and ends:
            chunks.append((start, t, previous_type))
            start = None
        if starts:
            start = t
        previous, previous_type = tag, kind
    return chunks


def pairs(labels):
    token = st.tuples(labels, labels)
    sequences = st.lists(st.lists(token, max_size=8), max_size=4)
    return sequences.map(lambda s: ([[a for a, _ in q] for q in s], [[b for _, b in q] for q in s]))


tags = st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "I-"])


@given(pairs(tags))
def test_spans_are_counted_as_by_the_conll_script(both):
    true, pred = ([{(i, *c) for i, s in enumerate(y) for c in conlleval_chunks(s)}] for y in both)
    scores = metrics.span_scores(*both)
    assert (scores.n_true, scores.n_predicted) == (len(true[0]), len(pred[0]))
    assert scores.n_correct == len(true[0] & pred[0])
    for kind in ("X", "Y", ""):
        found = scores.by_type.get(kind)
        n = sum(c[3] == kind for c in true[0])
        assert (found.n_true if found else 0) == n


def test_an_i_without_a_b_begins_a_span_and_f1_is_the_harmonic_mean():
    true = [["B-PER", "I-PER", "O", "B-LOC"]]
    pred = [["I-PER", "I-PER", "O", "I-PER"]]
    scores = metrics.span_scores(true, pred)
    assert (scores.n_true, scores.n_predicted, scores.n_correct) == (2, 2, 1)
    assert scores.by_type["PER"].precision == 0.5
    assert scores.by_type["PER"].recall == 1.0
    assert scores.by_type["LOC"].recall == 0.0
    assert metrics.span_f1(true, pred) == pytest.approx(0.5)


def test_spans_do_not_run_from_one_sequence_into_the_next():
    assert metrics.span_scores([["B-X"], ["I-X"]], [["B-X"], ["O"]]).n_true == 2


def test_iob1_and_bilou_are_read():
    assert metrics.span_scores([["I-X", "B-X"]], [["I-X", "I-X"]], "IOB1").n_true == 2
    assert metrics.span_scores([["B-X", "L-X", "U-X"]], [["B-X", "E-X", "S-X"]]).f1 == 1.0


@pytest.mark.parametrize("label", ["NP", "X-NP", 3, "E-X"])
def test_labels_that_are_no_span_labels_are_rejected(label):
    with pytest.raises(DataError, match="no span label of IOB2"):
        metrics.span_f1([[label]], [["O"]], "IOB2")


@given(pairs(st.sampled_from("AB")))
def test_accuracies_are_those_of_plain_loops(both):
    true, pred = both
    flags = [[a == b for a, b in zip(s, q, strict=True)] for s, q in zip(true, pred, strict=True)]
    flat = [flag for sequence in flags for flag in sequence]
    if flat:
        assert metrics.token_accuracy(true, pred) == pytest.approx(np.mean(flat))
        assert metrics.hamming_loss(true, pred) == pytest.approx(1 - np.mean(flat))
    if flags:
        assert metrics.exact_match_accuracy(true, pred) == pytest.approx(
            np.mean(list(map(all, flags)))
        )
    matrix = metrics.confusion(true, pred, classes="AB").matrix
    assert matrix.trace() == sum(flat)
    assert matrix.sum() == len(flat)


def test_tokens_whose_truth_is_not_known_do_not_count():
    true, pred = [["A", None, "B"]], [["A", "B", "A"]]
    assert metrics.token_accuracy(true, pred) == 0.5
    assert metrics.confusion(true, pred).matrix.tolist() == [[1, 0], [1, 0]]
    assert metrics.exact_match_accuracy([[None]], [["A"]]) == 1.0


def test_arrays_integers_and_mixed_labels_are_fine():
    assert metrics.token_accuracy(np.array([[1, 2]]), [np.array([1, 3])]) == 0.5
    assert metrics.confusion([[1, "a"]], [["a", "a"]]).matrix.sum() == 2
    assert metrics.confusion([[1, 2, 2]], [[2, 1, 1]]).most_confused(1) == [(2, 1, 2)]


def test_no_tokens_at_all_score_zero_and_do_not_warn():
    for function in (metrics.token_accuracy, metrics.hamming_loss, metrics.span_f1):
        assert function([], []) == 0.0
        assert function([[]], [[]]) == 0.0
    assert metrics.exact_match_accuracy([[]], [[]]) == 1.0


@pytest.mark.parametrize(
    ("true", "pred", "message"),
    [
        ([["A"]], [], "1 true sequences, 0 predicted"),
        ([["A"], ["A"]], [["A"], []], "example 1 has 1 true labels but 0 predicted"),
        (["A"], ["A"], r"wrap a single sequence: \[y\]"),
        ([1], [1], r"wrap a single sequence: \[y\]"),
    ],
)
def test_sequences_that_do_not_fit_are_rejected(true, pred, message):
    with pytest.raises(DataError, match=message):
        metrics.token_accuracy(true, pred)


def test_a_label_outside_the_given_classes_is_rejected():
    with pytest.raises(DataError, match="'Z' is not among the classes"):
        metrics.confusion([["Z"]], [["A"]], classes=["A"])


def test_scorers_work_in_cross_validation():
    from sklearn.base import BaseEstimator
    from sklearn.model_selection import cross_val_score

    class MostFrequent(BaseEstimator):
        def fit(self, X, y):
            labels, counts = np.unique(np.concatenate(y), return_counts=True)
            self.label_ = str(labels[counts.argmax()])
            return self

        def predict(self, X):
            return [[self.label_] * len(x) for x in X]

    X, y = [[0, 0]] * 6, [["O", "O"]] * 4 + [["O", "B-X"]] * 2
    for scorer in (
        metrics.token_accuracy_scorer,
        metrics.exact_match_scorer,
        metrics.span_f1_scorer,
    ):
        scores = cross_val_score(MostFrequent(), X, y, cv=3, scoring=scorer)
        assert scores.shape == (3,)
        assert scores[-1] == {metrics.token_accuracy_scorer: 0.5}.get(scorer, 0.0)


def test_span_scores_print_as_a_table_with_a_row_for_every_type():
    scores = metrics.span_scores([["B-NP", "O", "B-all"]], [["B-NP", "B-NP", "O"]])
    rows = [line.split() for line in str(scores).splitlines()]
    assert rows[0] == ["type", "precision", "recall", "f1", "n_true", "n_predicted", "n_correct"]
    assert rows[1] == ["NP", "0.5000", "1.0000", "0.6667", "1", "2", "1"]
    assert [row[0] for row in rows[2:]] == ["all", "all"]  # a type of that name, and the sum
    assert repr(scores).startswith("SpanScores(n_true=2")
    pytest.importorskip("pandas")
    frame = scores.to_frame()
    assert frame.index.tolist() == ["NP", "all", "all"] and frame.f1.iloc[-1] == scores.f1


def test_a_confusion_prints_as_a_table():
    found = metrics.confusion([["A", "B", 7]], [["A", "A", 7]], classes=["A", "B", 7])
    lines = str(found).splitlines()
    assert lines[0].split() == ["true", "\\", "predicted", "A", "B", "7"]
    assert lines[2].split() == ["B", "1", "0", "0"]
    pytest.importorskip("pandas")
    assert found.to_frame().loc["B", "A"] == 1


def test_the_flat_report_is_that_of_scikit_learn_over_all_known_tokens():
    from sklearn.metrics import classification_report

    true, pred = [["A", "B"], ["A", None]], [["A", "A"], ["B", "A"]]
    flat = ["A", "B", "A"], ["A", "A", "B"]
    expected = classification_report(*flat, digits=3, zero_division=0.0)
    assert metrics.flat_classification_report(true, pred, digits=3) == expected
    assert "B" not in metrics.flat_classification_report(true, pred, labels=["A"]).split()
    with pytest.raises(DataError, match="nothing to report"):
        metrics.flat_classification_report([[None]], [["A"]])


def test_flat_f1_is_that_of_the_tokens_with_a_label_and_makes_a_scorer():
    true, pred = [["A", None, "B"], [], ["O"]], [["A", "A", "A"], [], ["O"]]
    options = {"labels": ["A", "B"], "average": "weighted"}
    expected = f1_score(["A", "B", "O"], ["A", "A", "O"], **options, zero_division=0.0)
    assert metrics.flat_f1_score(true, pred, **options) == expected
    tagger = SequenceTagger(C=100, random_state=0).fit([[["a"], ["b"]]] * 2, [["A", "B"]] * 2)
    scorer = make_scorer(metrics.flat_f1_score, **options)
    assert scorer(tagger, [[["a"], ["b"]]], [["A", "B"]]) == 1.0


def test_the_module_shows_metrics_and_nothing_else():
    names = dir(metrics)
    assert "span_scores" in names and "np" not in names and "chain" not in names
    own = {metrics.__name__, "cliquewise.output_metrics"}
    public = {n for n, v in vars(metrics).items() if getattr(v, "__module__", 0) in own}
    assert {n for n in public if not n.startswith("_")} == set(names)


def flat(sequences):
    return [label for labels in sequences for label in labels]


FLAT = {"average": "macro", "zero_division": 0.0}


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (metrics.flat_precision_score, "precision_score", FLAT),
        (metrics.flat_recall_score, "recall_score", FLAT),
        (metrics.flat_fbeta_score, "fbeta_score", FLAT | {"beta": 0.5}),
        (metrics.flat_accuracy_score, "accuracy_score", {}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_flat_scores_are_those_of_scikit_learn_on_known_tokens(ours, theirs, options):
    rng = np.random.default_rng(1)
    true = [rng.choice(["A", "B", "O"], n).tolist() for n in (5, 1, 7, 0, 4)]
    predicted = [rng.choice(["A", "B", "O"], len(labels)).tolist() for labels in true]
    score = getattr(sklearn.metrics, theirs)
    assert ours(true, predicted, **options) == pytest.approx(
        score(flat(true), flat(predicted), **options)
    )
    unknown = [[None, *labels[1:]] if labels else [] for labels in true]
    assert ours(unknown, predicted, **options) == pytest.approx(
        score(
            flat(labels[1:] for labels in true),
            flat(labels[1:] for labels in predicted),
            **options,
        )
    )


def test_sequence_accuracy_counts_sequences_without_an_error():
    true, predicted = [["A"], ["A", "B"], []], [["A"], ["A", "A"], []]
    assert metrics.sequence_accuracy_score(true, predicted) == pytest.approx(2 / 3)
