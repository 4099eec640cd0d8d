"""A table of what goes wrong in practice, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from cliquewise import MulticlassClassifier, SequenceTagger
from cliquewise.data import Columns, read_conll, read_crfsuite
from cliquewise.errors import DataError, FormatError, ParameterError, UnsupportedError

GOOD_X, GOOD_Y = [[["a"], ["b"]], [["c"]]], [["A", "B"], ["A"]]


def fit(X=None, y=None, **parameters):
    return SequenceTagger(**{"random_state": 0, **parameters}).fit(
        GOOD_X if X is None else X, GOOD_Y if y is None else y
    )


REFUSED = {
    # what is wrong: (what is done, the error, what its message says)
    "empty X": (lambda: fit([], []), DataError, "no labels"),
    "only empty sequences": (lambda: fit([[], []], [[], []]), DataError, "no labels"),
    "labels all unknown": (lambda: fit(y=[[None, None], [None]]), DataError, "no labels"),
    "X and y of unequal length": (lambda: fit(y=[["A", "B"]]), DataError, "1 sequences.* 2"),
    "a sequence and its labels of unequal length": (
        lambda: fit(y=[["A"], ["A"]]), DataError, "example 0 has 2 tokens but 1 labels"),
    "y not nested": (lambda: fit(y=["A", "B"]), DataError, "example 0"),
    "y a string": (lambda: fit(y="AB"), DataError, "list of sequences"),
    "X a string": (lambda: fit("text"), DataError, "list of sequences"),
    "X a number": (lambda: fit(3), DataError, "list of sequences"),
    "a token that is a string": (lambda: fit([["a", "b"], [["c"]]]), DataError, "token 0"),
    "a token that is None": (lambda: fit([[None, ["b"]], [["c"]]]), DataError, "NoneType"),
    "a feature that is None": (
        lambda: fit([[{"w": None}, ["b"]], [["c"]]]), DataError, "example 0, token 0.*NoneType"),
    "a NaN feature": (lambda: fit([[{"w": np.nan}, {}], [{}]]), DataError, "example 0.*nan"),
    "an infinite feature": (lambda: fit([[{}, {"w": np.inf}], [{}]]), DataError, "token 1.*inf"),
    "NaN in an array": (
        lambda: fit([np.eye(2), np.array([[0, np.nan]])]), DataError, "example 1, token 0.*nan"),
    "infinity in a sparse matrix": (
        lambda: fit([csr_matrix(np.eye(2)), csr_matrix([[0, np.inf]])]), DataError, "example 1"),
    "arrays of unequal width": (
        lambda: fit([np.eye(2), np.ones((1, 3))]), DataError, "example 1 has 3 features"),
    "an array of words": (lambda: fit([np.array(["a", "b"]), [["c"]]]), DataError, "example 0"),
    "a two-dimensional array": (lambda: fit(np.eye(2)), DataError, "list of 2-D arrays"),
    "one sparse matrix": (lambda: fit(csr_matrix(np.eye(2))), DataError, "list of them"),
    "dicts and arrays mixed": (lambda: fit([np.eye(2), [["c"]]]), DataError, "use one kind"),
    "a NaN label": (lambda: fit(y=[["A", np.nan], ["A"]]), DataError, "NaN"),
    "a label that is a list": (lambda: fit(y=[["A", ["B"]], ["A"]]), DataError, "list"),
    "C = 0": (lambda: fit(C=0), ParameterError, "C must be .* 0$"),
    "C < 0": (lambda: fit(C=-1.0), DataError, "C must be .* -1.0$"),
    "C = NaN": (lambda: fit(C=float("nan")), DataError, "C must be .* nan$"),
    "C = inf": (lambda: fit(C=float("inf")), DataError, "C must be .* inf$"),
    "C a string": (lambda: fit(C="1"), DataError, "C must be .* '1'$"),
    "tol < 0": (lambda: fit(tol=-1e-3), DataError, "tol"),
    "tol = NaN": (lambda: fit(tol=float("nan")), DataError, "tol"),
    "max_epochs = NaN": (lambda: fit(max_epochs=float("nan")), DataError, "max_epochs"),
    "an unknown solver": (lambda: fit(solver="adam"), UnsupportedError, "adam.*lbfgs"),
    "an unknown loss": (lambda: fit(loss="huber"), ParameterError, "log.*huber"),
    "an impossible pair": (lambda: fit(loss="hinge", solver="lbfgs"), UnsupportedError, "hinge"),
    "feature_pairs": (lambda: fit(feature_pairs="some"), DataError, "some"),
    "transitions": (lambda: fit(transitions="IOB"), DataError, "IOB"),
    "labels that are no spans": (lambda: fit(transitions="BIO"), DataError, "'A' is not of"),
    "n_hash = 0": (lambda: fit(n_hash=0), DataError, "n_hash"),
    "min_count = 0": (lambda: fit(min_count=0), DataError, "min_count"),
    "a template over dicts": (
        lambda: fit([[{"w": "a"}]], [["A"]], template="ner"), DataError, "example 0, token 0"),
    "rows of unequal width": (
        lambda: fit([[["a", "b"], ["c"]]], [["A", "B"]], template="ner"), DataError, "token 1"),
    "a template that is no file": (lambda: fit(template="no/such"), (OSError, FormatError), "such"),
    "a template of a wrong type": (lambda: fit(template=3), DataError, "Template"),
    "too few columns": (
        lambda: fit(Columns([["a", "b"]], [0, 2]), [["A", "B"]], template="chunking"),
        DataError, "columns"),
    "predict: other width": (
        lambda: fit([np.eye(2), np.ones((1, 2))]).predict([np.eye(3)]), DataError, "3 features"),
    "predict: other kind": (lambda: fit().predict([np.eye(2)]), DataError, "same kind"),
    "predict: not nested": (lambda: fit().predict(["a"]), DataError, "example 0"),
    "predict: one sequence alone": (
        lambda: fit([[{"w": "a"}, {}]], [["A", "B"]]).predict([{"w": "a"}]),
        DataError, r"given as \[sequence\]"),
    "explain: a list of sequences": (
        lambda: fit().explain([[{"w": "a"}]]), DataError, "a list too many"),
    "top_k: k = 0": (lambda: fit().predict_top_k(GOOD_X, 0), DataError, "k = 0"),
    "log_likelihood: unknown label": (
        lambda: fit().log_likelihood([[["a"]]], [["Z"]]), DataError, "'Z' is not a class"),
    "log_likelihood: no label": (
        lambda: fit().log_likelihood([[["a"]]], [[None]]), DataError, "every token"),
    "score: unequal lengths": (
        lambda: fit().score([[["a"]]], [["A", "B"]]), DataError, "example 0"),
    "saving classes that JSON cannot hold": (
        lambda: fit(y=[[b"A", b"B"], [b"A"]]).save("unused"), DataError, "bytes"),
    "classifier: no features": (
        lambda: MulticlassClassifier().fit(np.empty((3, 0)), [0, 1, 1]), ValueError, "feature"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_rejected_with_a_reason(what):
    action, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        action()


ACCEPTED = {
    # what is odd: (X, y, what must be predicted for X)
    "an empty sequence among others": ([[["a"]], [], [["b"]]], [["A"], [], ["B"]], None),
    "a first and a last empty one": ([[], [["a"]], [["b"]], []], [[], ["A"], ["B"], []], None),
    "one label only": ([[["a"], ["b"]]], [["A", "A"]], None),
    "one token": ([[["a"]]], [["A"]], None),
    "tokens without features": ([[[], []], [[]]], [["A", "A"], ["A"]], None),
    "more labels than tokens of any sequence": (
        [[[f"w{i}"]] for i in range(40)],
        [[f"L{i}"] for i in range(40)],
        None,
    ),
    "labels with spaces": ([[["a"], ["b"]]], [["two words", " "]], None),
    "labels of Unicode": ([[["a"], ["b"]]], [["žluťoučký", "𝔘\n"]], None),
    "labels that are integers": ([[["a"], ["b"]]], [[7, -3]], None),
    "labels of numpy": ([[["a"], ["b"]]], [np.array([7, -3])], [[7, -3]]),
    "labels of mixed types": ([[["a"], ["b"], ["c"]]], [[1, "one", 2.5]], None),
    "the empty string as a label": ([[["a"], ["b"]]], [["", "x"]], None),
    "a feature twice in a token": ([[["a", "a"], ["b"]]], [["A", "B"]], None),
    "features of Unicode": ([[["\x1f", "\x1e"], ["", "𝔘"]]], [["A", "B"]], None),
    "very large values": ([[{"a": 1e6}, {"b": 1e-300}]], [["A", "B"]], None),
    "negative values": ([[{"a": -1.0}, {"a": 1.0}]], [["A", "B"]], None),
    "generators": ((x for x in GOOD_X), (y for y in [("A", "B"), ("A",)]), None),
}


@pytest.mark.parametrize("what", ACCEPTED)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_odd_input_is_learned(what, tmp_path):
    X, y, expected = ACCEPTED[what]
    X, y = (v if isinstance(v, list) else list(v) for v in (X, y))
    if what == "generators":
        tagger = fit(iter(X), y, C=1e3)
    else:
        tagger = fit(X, y, C=1e3)
    expected = [list(t) for t in y] if expected is None else expected
    assert tagger.predict(X) == expected
    assert tagger.certificate_.gap <= 1e-3 or what == "very large values"
    tagger.save(tmp_path / "m.cw")
    import cliquewise as cw

    assert cw.load(tmp_path / "m.cw").predict(X) == expected


def test_a_sequence_of_a_hundred_thousand_tokens():
    rng = np.random.default_rng(0)
    tags = rng.integers(0, 3, 100_000)
    x = [[f"w={t}"] for t in tags.tolist()]
    tagger = fit([x, x[:3]], [tags.tolist(), tags[:3].tolist()], tol=1e-2)
    assert tagger.score([x], [tags.tolist()]) == 1.0
    nodes = tagger.predict_marginals([x])[0]
    np.testing.assert_allclose(nodes.sum(axis=1), 1, atol=1e-9)
    assert np.isfinite(tagger.log_likelihood([x], [tags.tolist()])[0])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("U:%x[0]", 1),
        ("U:%x[0,0]\nU:%y[0,0]", 2),
        ("U:%x[0,0]\n\nX:%x[0,0]", 3),
        ("U:%x[999999,0]", 1),
        ("U:%x[0,99999999]", 1),
        ('U:%t[0,0,"*"]', 1),
        ("U:100%", 1),
    ],
)
def test_a_template_with_errors_is_refused_with_the_line(text, line, tmp_path):
    path = tmp_path / "template"
    path.write_text(text)
    with pytest.raises(FormatError, match=f"line {line}"):
        fit([[["a"], ["b"]]], [["A", "B"]], template=str(path))


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_conll, b"a B\nb\xff C\n", "line 2"),
        (read_conll, b"a B\nc D\n\ne\n", "line 4"),
        (read_conll, b"a B\nc D E\n", "line 2: 3 columns"),
        (read_crfsuite, b"A\tw:x\n", "line 1"),
        (read_crfsuite, b"A\tw\n\xfe\tw\n", "line 2"),
        (read_conll, b"\x1f\x8b broken gzip", "gzip"),
    ],
)
def test_a_broken_file_is_refused_with_the_line(read, content, message, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_C_with_which_nothing_can_be_computed_is_rejected():
    with pytest.raises(DataError, match=r"C must be a number .*1e\+100"):
        SequenceTagger(C=1e200).fit([[["a"]]], [["A"]])
