"""Tables of pandas, polars and pyarrow, dicts and datasets: in, and answers of the same kind."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data.frames import Layout, Table
from cliquewise.errors import DataError

SENTENCES = [
    (["Anna", "sees", "Rome"], ["B-PER", "O", "B-LOC"]),
    (["New", "York", "is", "large"], ["B-LOC", "I-LOC", "O", "O"]),
    (["it", "rains"], ["O", "O"]),
    (["Anna", "is", "in", "New", "York"], ["B-PER", "O", "O", "B-LOC", "I-LOC"]),
]
WORDS, TAGS = [w for w, _ in SENTENCES], [t for _, t in SENTENCES]
#: Rows of the long table: sentences are mixed, tokens of one in their order.
MIXED = sorted(
    ((s, t) for s, words in enumerate(WORDS) for t in range(len(words))),
    key=lambda place: (place[1], -place[0]),
)
IDS = ["d", "a", "c", "b"]
LONG = {
    "sentence": [IDS[s] for s, _ in MIXED],
    "word": [WORDS[s][t] for s, t in MIXED],
    "tag": [TAGS[s][t] for s, t in MIXED],
}
WIDE = {"tokens": [*WORDS, []], "tags": [*TAGS, []]}


class Dataset:
    """What Hugging Face's datasets look like."""

    def __init__(self, columns):
        self.column_names = ["id", *columns]
        self.columns_ = {"id": [str(i) for i in range(len(columns["tokens"]))], **columns}

    def __getitem__(self, name):
        return iter(self.columns_[name])


def pandas_table(columns):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    length = len(next(iter(columns.values())))
    return pandas.DataFrame(columns, index=[10 * i % 70 + i for i in range(length)])


def polars_table(columns):
    return pytest.importorskip("polars", reason="polars is not installed").DataFrame(columns)


def arrow_table(columns):
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed").table(columns)


def dict_table(columns):
    return dict(columns)


KINDS = {"pandas": pandas_table, "polars": polars_table, "pyarrow": arrow_table, "dict": dict_table}


def cells(column):
    """Plain values of a column of any kind."""
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, name):
            return [v.tolist() if hasattr(v, "tolist") else v for v in getattr(column, name)()]
    return list(column)


def columns_of(table):
    names = getattr(table, "column_names", None) or list(getattr(table, "columns", table))
    return {name: cells(table[name]) for name in names}


def make(**options):
    return cw.SequenceTagger(C=20.0, random_state=0, **options)


@pytest.fixture(scope="module")
def plain():
    """The same by lists of lists of columns."""
    X = [[[w] for w in words] for words in WIDE["tokens"]]
    return make(template="columns").fit(X, WIDE["tags"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_per_token_in_any_order_is_learned_and_answered_row_by_row(kind):
    table = KINDS[kind](LONG)
    tagger = make(sequence_column="sentence").fit(table, "tag")
    # The sequences are in the order of their first rows
    order = list(dict.fromkeys(s for s, _ in MIXED))
    X = [[[w] for w in WORDS[s]] for s in order]
    same = make(template="columns").fit(X, [TAGS[s] for s in order])
    np.testing.assert_array_equal(tagger.coef_, same.coef_)

    predicted = tagger.predict(table)
    expected = dict(zip(order, same.predict(X), strict=True))
    assert type(predicted) is type(table["tag"])
    assert cells(predicted) == [expected[s][t] for s, t in MIXED] == LONG["tag"]
    if kind == "pandas":
        assert predicted.index.equals(table.index) and predicted.name == "tag"
    elif kind == "polars":
        assert predicted.name == "tag"

    marginals = tagger.predict_marginals(table)
    assert isinstance(marginals, type(table))
    found = columns_of(marginals)
    assert list(found) == tagger.classes_
    truth = dict(zip(order, same.predict_marginals(X), strict=True))
    for at, (s, t) in enumerate(MIXED):
        assert [found[c][at] for c in found] == truth[s][t].tolist()

    spans = tagger.predict_spans(table, proba=True)
    assert isinstance(spans, type(table))
    rows = list(zip(*columns_of(spans).values(), strict=True))
    assert list(columns_of(spans)) == ["sentence", "start", "end", "type", "probability"]
    assert rows == [
        (IDS[s], *span)
        for s, one in zip(order, same.predict_spans(X, proba=True), strict=True)
        for span in one
    ]
    assert tagger.score(table, "tag") == tagger.score(table, table["tag"]) == 1.0
    assert tagger.log_likelihood(table, "tag").shape == (4,)


@pytest.mark.parametrize("kind", [*KINDS, "datasets"])
def test_a_row_per_sequence_with_lists_is_learned_and_answered_list_by_list(kind, plain):
    table = Dataset(WIDE) if kind == "datasets" else KINDS[kind](WIDE)
    tagger = make().fit(table, "tags")
    np.testing.assert_array_equal(tagger.coef_, plain.coef_)
    predicted = tagger.predict(table)
    assert [list(y) for y in cells(predicted)] == WIDE["tags"]
    if kind != "datasets":
        assert type(predicted) is type(table["tags"])
    found = columns_of(tagger.predict_marginals(table))
    (expected,) = plain.predict_marginals([[[w] for w in WORDS[0]]])
    np.testing.assert_array_equal(np.array([list(found[c][0]) for c in found]).T, expected)
    spans = columns_of(tagger.predict_spans(table))
    assert spans["sequence"] == [0, 0, 1, 3, 3] and spans["type"][0] == "PER"
    assert tagger.score(table, "tags") == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_empty_tables_and_empty_sequences_have_empty_answers(kind):
    tagger = make(sequence_column="sentence").fit(LONG, "tag")
    nothing = KINDS[kind]({"sentence": [], "word": []})
    assert cells(tagger.predict(nothing)) == []
    assert set(map(len, columns_of(tagger.predict_marginals(nothing)).values())) == {0}
    assert columns_of(tagger.predict_spans(nothing, proba=True))["start"] == []
    lists = make().fit(WIDE, "tags")
    wide = KINDS[kind]({"tokens": [["Rome"], [], None]})
    assert [list(y) for y in cells(lists.predict(wide))] == [["B-LOC"], [], []]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["start", "end", "type", "probability"])
def test_ids_of_sequences_are_not_lost_among_the_columns_of_spans(kind, by):
    table = KINDS[kind]({by: LONG["sentence"], "word": LONG["word"], "tag": LONG["tag"]})
    spans = columns_of(make(sequence_column=by).fit(table, "tag").predict_spans(table, proba=True))
    usual = columns_of(
        make(sequence_column="sentence").fit(LONG, "tag").predict_spans(LONG, proba=True)
    )
    assert list(spans) == ["sequence", "start", "end", "type", "probability"]
    assert list(spans.values()) == list(usual.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"proba": True}, {"threshold": 0.5}, {"k": 1}])
def test_where_there_are_no_spans_the_table_has_the_columns_that_others_have(kind, options):
    tagger = make(sequence_column="sentence").fit(LONG, "tag")
    some, none = (
        tagger.predict_spans(KINDS[kind]({"sentence": ["a"], "word": [word]}), **options)
        for word in ("Rome", "rains")
    )
    assert list(columns_of(none)) == list(columns_of(some))
    assert set(map(len, columns_of(none).values())) == {0}
    if kind in ("polars", "pyarrow"):
        assert none.schema == some.schema


@pytest.mark.parametrize("kind", KINDS)
def test_labels_that_are_written_alike_do_not_share_a_column(kind):
    tagger = make(sequence_column="sentence").fit(
        LONG, [1 if t == "O" else "1" for t in LONG["tag"]]
    )
    with pytest.raises(DataError, match="several labels are written '1'"):
        tagger.predict_marginals(KINDS[kind](LONG))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_weights_and_allowed_labels_of_the_table_do_not_describe_its_tokens(kind):
    weights = [1.0 if tag == "O" else 2.0 for tag in LONG["tag"]]
    table = KINDS[kind]({**LONG, "length": [len(w) for w in LONG["word"]], "weight": weights})
    own = {"token_weight": table["weight"]}
    for given in (own, {"token_weight": "weight"}):
        tagger = make(sequence_column="sentence", loss="softmax_margin").fit(table, "tag", **given)
        assert tagger.encoder_.table.columns == ["word", "length"]
    tagger.fit(table, "tag", token_weight=2 * table["length"])
    assert tagger.encoder_.table.columns == ["word", "length", "weight"]
    table = KINDS[kind]({**LONG, "may": [[tag, "O"] for tag in LONG["tag"]]})
    for may in ("may", table["may"]):
        tagger = make(sequence_column="sentence").fit(table, "tag", allowed=may)
        assert tagger.encoder_.table.columns == ["word"]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_table_of_one_column_is_told_apart_from_the_column(kind):
    table = KINDS[kind](LONG)
    with pytest.raises(DataError, match="a column is wanted"):
        make(sequence_column="sentence").fit(table, table[["tag"]])


@pytest.mark.parametrize("kind", KINDS)
def test_missing_labels_are_unknown(kind):
    tags = [None if at == 2 else tag for at, tag in enumerate(LONG["tag"])]
    tagger = make(sequence_column="sentence").fit(KINDS[kind]({**LONG, "tag": tags}), "tag")
    assert tagger.certificate_.status == "none"  # which is so with labels that are not known
    wide = {"tokens": WIDE["tokens"], "tags": [None, *WIDE["tags"][1:]]}
    assert None not in make().fit(KINDS[kind](wide), "tags").classes_
    # They do not count in scores, and likelihoods need them
    table = KINDS[kind]({**LONG, "tag": tags})
    full = make(sequence_column="sentence").fit(LONG, "tag")
    assert full.score(table, "tag") == 1.0
    with pytest.raises(DataError, match="a label for every token"):
        full.log_likelihood(table, "tag")


def test_a_categorical_or_nullable_id_and_empty_cells_that_continue_a_sequence():
    pandas = pytest.importorskip("pandas")
    ids = pandas.Categorical(LONG["sentence"], categories=["x", *IDS])  # x has no rows
    table = pandas.DataFrame({**LONG, "sentence": ids})
    table["word"] = table["word"].astype("string")
    tagger = make(sequence_column="sentence").fit(table, table["tag"])
    assert tagger.encoder_.table.columns == ["word"]
    assert tagger.predict(table).tolist() == LONG["tag"]
    sparse = {"id": ["s1", None, "s2", float("nan")], "word": ["New", "York", "it", "rains"]}
    for empty in (sparse, {**sparse, "id": ["s1", "", "s2", ""]}):  # as CSV files are read
        layout = Layout.of(Table.of(empty), "id")
        assert layout.offsets.tolist() == [0, 2, 4] and layout.ids == ["s1", "s2"]
    assert layout.labels(["A", "", "B", ""]) == [["A", None], ["B", None]]
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({"id": [2.0, float("nan"), None, 1.0, 2.0]})
    assert Layout.of(Table.of(table), "id").order.tolist() == [0, 1, 2, 4, 3]


def test_what_tokens_may_be_comes_as_a_column_and_more_rows_can_be_learned():
    tagger = make(sequence_column="sentence").fit(LONG, "tag")
    allowed = [["O"] if word == "Rome" else None for word in LONG["word"]]
    predicted = dict(zip(LONG["word"], tagger.predict(LONG, allowed), strict=True))
    assert predicted["Rome"] == "O" and predicted["Anna"] == "B-PER"
    tagger.partial_fit(
        {"sentence": [0, 0], "word": ["Paris", "rains"], "tag": ["B-LOC", "O"]}, "tag"
    )
    assert tagger.predict({"sentence": [7], "word": ["Paris"]}) == ["B-LOC"]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_scikit_learn_cross_validates_whole_sequences_of_a_table(kind):
    from sklearn.model_selection import GroupKFold, cross_val_score

    table = KINDS[kind](LONG)
    options = {"groups": table["sentence"], "cv": GroupKFold(2), "error_score": "raise"}
    scores = cross_val_score(make(sequence_column="sentence"), table, table["tag"], **options)
    assert scores.shape == (2,) and np.all(scores > 0)
    options["scoring"] = cw.metrics.span_f1_scorer
    assert (
        len(cross_val_score(make(sequence_column="sentence"), table, table["tag"], **options)) == 2
    )


@pytest.mark.parametrize("kind", KINDS)
def test_spans_of_columns_end_with_their_sequences(kind):
    table = KINDS[kind]({"id": [1, 2, 1, 2], "y": ["B-X", "I-X", "I-X", "O"], "p": list("OOOO")})
    scores = cw.metrics.span_scores(table["y"], table["p"], by=table["id"])
    assert scores.n_true == 2 and cw.metrics.span_f1(table["y"], table["y"], by=table["id"]) == 1
    tagger = make(sequence_column="sentence").fit(LONG, "tag")
    own = KINDS[kind](LONG)
    assert cw.metrics.span_f1_scorer(tagger, own, own["tag"]) == 1.0
    assert cw.metrics.exact_match_scorer(tagger, own, "tag") == 1.0
    lists = make().fit(WIDE, "tags")
    assert cw.metrics.token_accuracy_scorer(lists, KINDS[kind](WIDE), "tags") == 1.0
    with pytest.raises(DataError, match="by=table"):
        cw.metrics.span_f1(table["y"], table["p"])


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_shown_explained_reported_pruned_and_stop_training(kind, tmp_path):
    table = KINDS[kind](LONG)
    tagger = make(sequence_column="sentence").fit(
        table, "tag", validation=(table, "tag"), patience=50
    )
    assert tagger.validation_scores_[-1][1] == 1.0
    one = KINDS[kind]({"sentence": [5, 5], "word": ["Anna", "sees"]})
    assert tagger.predict_single(one) == [row["tag"] for row in tagger.explain(one)]
    assert set(tagger.predict_marginals_single(one)[0]) == set(tagger.classes_)
    assert "[Anna]PER" in str(tagger.show(one))
    tagger.report(table, "tag", tmp_path / "r.html")
    assert tagger.prune(keep=0.5, X=table, y="tag").pruned_.objective > 0
    with pytest.raises(DataError, match="one sequence; this table has 4"):
        tagger.explain(table)


def test_a_table_of_pandas_is_refused_with_what_to_do_about_it():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(LONG)
    holes = table.assign(word=table["word"].where(table["word"] != "it"))  # "NA", to read_csv
    for wrong, message in (
        (pandas.concat([table, table[["word"]]], axis=1), "several 'word'"),
        (table.set_index("sentence"), r"reset_index\(\)"),
        (holes, "keep_default_na=False"),
    ):
        with pytest.raises(DataError, match=message):
            make(sequence_column="sentence").fit(wrong, "tag")
    with pytest.raises(DataError, match="'word' holds 1; with a template all columns are text"):
        make(sequence_column="sentence").fit(table, "tag").predict({"sentence": [1], "word": [1]})


def test_columns_are_remembered_in_files_and_others_are_not_read(tmp_path):
    table = {**LONG, "length": [len(w) for w in LONG["word"]]}
    tagger = make(sequence_column="sentence").fit(table, "tag")
    assert "word:Anna" in tagger.feature_names()  # not all is text: a token is a dict of columns
    tagger.save(tmp_path / "m.cw")
    loaded = cw.load(tmp_path / "m.cw")
    shuffled = {name: table[name] for name in ("length", "sentence", "word")} | {
        "more": LONG["tag"]
    }
    assert loaded.sequence_column == "sentence"
    assert loaded.predict(shuffled) == tagger.predict(table)
    with pytest.raises(DataError, match="no column 'length'"):
        loaded.predict(LONG)


@pytest.mark.parametrize(
    ("table", "y", "by", "message"),
    [
        (LONG, None, "sentence", "the name of the label column"),
        (LONG, LONG["tag"], "sentence", "'tag' holds the labels;"),
        (LONG, "tags", "sentence", "no column 'tags'; it has sentence, word, tag"),
        (LONG, ["O"], "sentence", "y has 1 values, the table 14 rows"),
        (LONG, "tag", None, r"SequenceTagger\(sequence_column="),
        (LONG, "tag", "id", "no column 'id'"),
        ({**LONG, "word": [None, *LONG["word"][1:]]}, "tag", "sentence", "row 0: column 'word'"),
        (
            {"w": [["a"], ["b"]], "p": [["c"], []], "t": [["A"], ["A"]]},
            "t",
            None,
            "row 1: 0 values",
        ),
        ({"w": [["a"], ["b"]], "t": [["A"], []]}, "t", None, "example 1 has 1 tokens but 0 labels"),
        ({"w": ["a"], "t": ["A", "A"]}, "t", "w", "equally long"),
        (WIDE, "tags", "tokens", "an id is a number or a string"),
        ({"w": 1, "t": ["A", "A"]}, "t", "w", "'w' of the table is no list"),
        ({"w": "ab", "t": ["A", "A"]}, "t", "w", "'w' of the table is no list"),
        ({"s": [1, 2], "t": ["A", "B"]}, "t", "s", "no column describes the tokens"),
        ({"s": [], "w": []}, [], "s", "y has no labels"),
        ({"s": [1, 2], "w": ["a", "b"], "t": [0.3, 0.7]}, "t", "s", "a label is 0.3"),
        ({"w": [["a", "b"]], "t": [[-100, 1]]}, "t", None, "a label is -100"),
        (
            {"s": [1], **{n: c[:1] for n, c in WIDE.items()}},
            "tags",
            "s",
            "leave out sequence_column",
        ),
    ],
)
def test_tables_that_cannot_be_learned_say_why(table, y, by, message):
    with pytest.raises(DataError, match=message):
        make(sequence_column=by).fit(table, y)


def test_what_is_no_column_is_told_so():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame(LONG)
    with pytest.raises(DataError, match=r'take table\["tag"\], not'):
        make(sequence_column="sentence").fit(table.drop(columns="tag"), table[["tag"]])
    with pytest.raises(
        DataError, match=r"sequence_column must be None or the name of a column .* not a Series"
    ):
        make(sequence_column=table["sentence"]).fit(table, "tag")
    tagger = make(sequence_column="sentence").fit(table, "tag")
    with pytest.raises(DataError, match=r"sequence_column='sentence' names a column.*set_output"):
        tagger.predict(table.to_numpy())
    with pytest.raises(DataError, match=r"sequence_column='sentence' names a column.*set_output"):
        make(sequence_column="sentence").fit(table.to_numpy(), "tag")


def test_labels_in_another_order_than_the_table_are_warned_about():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame(LONG)
    rows, tags = table.drop(columns="tag"), table["tag"]
    turned = tags[::-1]
    with pytest.warns(UserWarning, match="another order"):
        make(sequence_column="sentence").fit(rows, turned)
    tagger = make(sequence_column="sentence").fit(rows, turned.loc[rows.index])
    with pytest.warns(UserWarning, match="another order"):
        tagger.score(rows, turned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tagger.score(rows[::-1], turned) == tagger.score(rows[::-1], turned.tolist())


def test_a_column_that_has_become_text_or_is_no_longer_is_rejected(tmp_path):
    table = {
        "s": [1, 1, 2],
        "n": [1.5, -1.0, 2.0],
        "code": ["01", "02", "01"],
        "t": ["A", "B", "A"],
    }
    tagger = make(sequence_column="s").fit(table, "t")
    tagger.save(tmp_path / "m.cw")
    for known in (tagger, cw.load(tmp_path / "m.cw")):
        assert list(known.predict(table)) == table["t"]
        with pytest.raises(DataError, match=r"'n' was no text in training, and now it is.*float"):
            known.predict({**table, "n": ["1.5", "-1.0", "2.0"]})
        with pytest.raises(DataError, match=r"'code' was text in training, and now it is not.*str"):
            known.score({**table, "code": [1, 2, 1]}, "t")


def test_a_table_that_is_not_there_yet_is_rejected():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    with pytest.raises(DataError, match=r"LazyFrame cannot be read; call its collect\(\)"):
        make(sequence_column="sentence").fit(polars.DataFrame(LONG).lazy(), "tag")
    batch = pytest.importorskip("pyarrow").record_batch(LONG)
    assert (
        make(sequence_column="sentence").fit(batch, "tag").predict(batch).to_pylist() == LONG["tag"]
    )
