"""Templates: CRF++, Wapiti and built-in ones against a plain string-by-string reading."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cliquewise.data import Columns, FeatureEncoder, Template, TemplateEncoder, read_conll
from cliquewise.data.builtin_templates import change_of, short_shape, word_type
from cliquewise.data.conversion import SequenceEncoder
from cliquewise.errors import DataError, FormatError


def expand(template, rule, rows, t):
    """One attribute, read off the rows the slow way; None if it is absent."""
    text = rule.parts[0]
    if rule.only and t != (0 if rule.only == "first" else len(rows) - 1):
        return None
    for macro, part in zip(rule.macros, rule.parts[1:], strict=True):
        p = t + macro.row
        if macro.absolute:
            p = len(rows) + macro.row if macro.row < 0 else macro.row - 1
        if 0 <= p < len(rows):
            value = rows[p][macro.column]
        elif template.outside == "absent":
            return None
        else:
            d = -p if p < 0 else p - len(rows) + 1
            letter = "B" if template.outside == "crfpp" else "x"
            shown = "#" if letter == "x" and d > 4 else d
            value = f"_{letter}{'-' if p < 0 else '+'}{shown}"
        value = change_of(macro.change)(value) if macro.change else value
        if value is None:
            return None
        text += value + part
    return text


def slow(template, rules, sentences, edges=False):
    found = []
    for rows in sentences:
        for t in range(len(rows)):
            names = [expand(template, rule, rows, t) for rule in rules]
            found.append([] if edges and t == 0 else [n for n in names if n is not None])
    return found


def names_of(vocabulary, data):
    values = np.ones(len(data.indices)) if data.values is None else data.values
    return [
        sorted(vocabulary[j] for j, v in zip(data.indices[a:b], values[a:b]) for _ in range(int(v)))
        for a, b in zip(data.indptr, data.indptr[1:])
    ]


def columns(sentences, width=2):
    if not sentences:
        return Columns([[] for _ in range(width)], [0])
    return Columns.from_rows(sentences)


words = st.sampled_from(["Rome", "is", "a", "B", "_B-1", "a/b", "x%s", "7", "é"])
text = st.lists(st.lists(st.tuples(words, words), min_size=1, max_size=4), max_size=4)
macro = st.builds(
    "%{}[{}{},{}]".format,
    st.sampled_from("xxxX"),
    st.sampled_from(["", "", "@"]),
    st.integers(1, 6) | st.integers(-6, -1),
    st.integers(0, 1),
) | st.sampled_from(["%x[0,0]", '%t[0,1,"^\\u"]', '%m[-1,0,".?.?$"]', '%M[0,0,"^..?"]'])
rule = st.builds(
    lambda kind, macros, gap: kind + ":" + gap.join(macros),
    st.sampled_from(["U", "U1", "U2", "B", "B1", "*"]),
    st.lists(macro, max_size=3),
    st.sampled_from(["/", ""]),
)


@given(text, st.lists(rule, min_size=1, max_size=5), st.sampled_from([None, "crfpp", "absent"]))
@settings(max_examples=200, deadline=None)
def test_any_template_gives_the_attributes_of_a_plain_reading(sentences, rules, outside):
    template = Template.parse("\n".join(rules), outside)
    encoder = TemplateEncoder(template)
    data = encoder.fit_transform(columns(sentences))
    tokens = [sorted(n) for n in slow(template, template.token_rules, sentences)]
    assert names_of(encoder.vocabulary, data) == tokens
    for times in (1, 1, 5):  # few sentences, the same again, and many are three ways to go
        again = encoder.transform(columns(sentences * times))
        assert names_of(encoder.vocabulary, again) == tokens * times
    edges = [sorted(n) for n in slow(template, template.edge_rules, sentences, edges=True)]
    assert names_of(encoder.edge_vocabulary, encoder.transform_edges(columns(sentences))) == edges
    assert encoder.n_edge_features == len({name for names in edges for name in names})


@given(text)
@settings(max_examples=50, deadline=None)
@pytest.mark.parametrize("name", ["chunking", "ner", "columns"])
def test_builtin_templates_agree_with_a_plain_reading(name, sentences):
    template = Template.builtin(name, n_columns=2)
    encoder = TemplateEncoder(template)
    data = encoder.fit_transform(columns(sentences))
    tokens = [sorted(n) for n in slow(template, template.token_rules, sentences)]
    assert names_of(encoder.vocabulary, data) == tokens


def test_the_default_template_knows_every_column_and_every_pair_of_them():
    for n in (1, 2, 5):
        template = Template.builtin("columns", n)
        together = {tuple(m.column for m in rule.macros) for rule in template.token_rules}
        assert {column for pair in together for column in pair} == set(range(n))
        assert {(a, b) for a in range(1, n) for b in range(a + 1, n)} <= together
        assert Template.from_state(template.to_state()) == template


def test_columns_without_a_template_get_the_default_one():
    text = Columns([["the", "cat"], ["DT", "NN"]], [0, 2])
    own, named = SequenceEncoder(), SequenceEncoder("columns")
    assert len(own.fit_transform(text).indices) == len(named.fit_transform(text).indices)
    assert own.names() == named.names() and "c1[0]=DT" in own.names()
    assert own.n_columns == 2


def test_chunking_is_the_set_of_attributes_of_crfsuites_example():
    rows = [["Brown", "NNP"], ["promises", "VBZ"], ["change", "NN"]]
    encoder = TemplateEncoder(Template.builtin("chunking"))
    data = encoder.fit_transform(columns([rows]))
    middle = names_of(encoder.vocabulary, data)[1]
    expected = (
        "w[-1]=Brown w[0]=promises w[1]=change w[-1]|w[0]=Brown|promises w[0]|w[1]=promises|change "
        "pos[-1]=NNP pos[0]=VBZ pos[1]=NN pos[-1]|pos[0]=NNP|VBZ pos[0]|pos[1]=VBZ|NN "
        "pos[-1]|pos[0]|pos[1]=NNP|VBZ|NN"
    )
    assert middle == sorted(expected.split())
    assert len(Template.builtin("chunking").token_rules) == 21
    assert "__BOS__" in names_of(encoder.vocabulary, data)[0]
    assert "__EOS__" in names_of(encoder.vocabulary, data)[2]


def test_a_crfpp_file_gives_crfpp_strings_at_the_borders():
    template = Template.parse("# Unigram\nU00:%x[-2,0]\nU01:%x[-1,0]/%x[0,1]\n\n# Bigram\nB\n")
    assert template.transitions
    assert template.edge_rules == ()
    encoder = TemplateEncoder(template)
    encoder.fit(columns([[["He", "PRP"], ["reckons", "VBZ"]]]))
    expected = {"U00:_B-2", "U00:_B-1", "U01:_B-1/PRP", "U01:He/VBZ"}
    assert set(encoder.vocabulary) == expected


def test_rules_without_an_identifier_make_a_bag_of_words():
    encoder = TemplateEncoder(Template.parse("U:%x[0,0]\nU:%x[1,0]", "absent"))
    data = encoder.fit_transform(Columns([["a", "a", "b"]], [0, 3]))
    assert encoder.vocabulary == ["U:a", "U:b"]
    assert data.features().toarray().tolist() == [[2, 0], [1, 1], [0, 1]]


def test_hashing_and_min_count_work_with_templates():
    some = Columns([["a", "a", "b"]], [0, 3])
    template = Template.parse("U1:%x[0,0]\nU2:%x[1,0]", "absent")
    encoder = TemplateEncoder(template, min_count=2)
    assert encoder.fit_transform(some).features().toarray().tolist() == [[1], [1], [0]]
    assert encoder.vocabulary == ["U1:a"]
    hashed = TemplateEncoder(template, n_hash=64).fit_transform(some)
    strings = FeatureEncoder(n_hash=64).fit_transform(
        [[["U1:a", "U2:a"], ["U1:a", "U2:b"], ["U1:b"]]]
    )
    assert np.array_equal(hashed.features().toarray(), strings.features().toarray())


def test_the_fitted_encoder_survives_json_and_pickle():
    some = Columns([["a", "B"], ["X", "Y"]], [0, 2])
    for template in (Template.parse("U1:%X[0,0]\nB2:%x[0,1]"), Template.builtin("ner", 2)):
        encoder = TemplateEncoder(template)
        data = encoder.fit_transform(some)
        state = json.loads(json.dumps(encoder.to_state()))
        for copy in (TemplateEncoder.from_state(state), pickle.loads(pickle.dumps(encoder))):
            assert copy.transform(some).indices.tolist() == data.indices.tolist()
            assert copy.n_edge_features == encoder.n_edge_features


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("U1:%x[0,0]\nX2:%x[0,0]", 2, "starts with neither U, B nor"),
        ("U1:%x[0]", 1, "expected row and column"),
        ("U1:%x[0,0", 1, "a macro looks like"),
        ("U1:%x", 1, "a macro looks like"),
        ("U1:%y[0,0]", 1, "no command %y"),
        ("U1:%x[a,0]", 1, "expected row and column"),
        ("U1:%x[0,-1]", 1, "expected row and column"),
        ("\n#\nU1:%x[1000000000,0]", 3, "more than 64 tokens away"),
        ("U1:%x[0,99999999999]", 1, "no column 99999999999"),
        ("U1:%t[0,0]", 1, "needs one"),
        ('U1:%x[0,0,"a"]', 1, "takes no expression"),
        ('U1:%m[0,0,"*a"]', 1, "nothing to repeat"),
        ("U1:%x[@0,0]", 1, "start at 1"),
        ("U1:%x[*0,0]", 1, "not supported"),
    ],
)
def test_errors_in_a_template_name_the_line_and_a_remedy(text, line, message):
    with pytest.raises(FormatError, match=message) as caught:
        Template.parse(text, path="my.template")
    assert caught.value.line == line
    assert "my.template" in str(caught.value)


def test_empty_templates_and_missing_columns_are_errors(tmp_path):
    with pytest.raises(FormatError, match="has no rule"):
        Template.parse("# nothing\n")
    encoder = TemplateEncoder(Template.parse("U1:%x[0,7]"))
    with pytest.raises(DataError, match="uses column 7, but there are only 2 columns"):
        encoder.fit(columns([[["a", "b"]]]))
    with pytest.raises(DataError, match="not fitted"):
        TemplateEncoder(Template.parse("U1:%x[0,0]")).transform(columns([[["a", "b"]]]))
    with pytest.raises(DataError, match="needs 2 columns"):
        Template.builtin("chunking", 1)
    with pytest.raises(DataError, match="no built-in template 'pos'"):
        Template.builtin("pos")
    path = tmp_path / "t"
    path.write_text("U1:%x[0,0]\nnonsense\n")
    with pytest.raises(FormatError, match=r"t, line 2"):
        Template.load(path)


def test_a_one_line_template_file_without_an_end_is_read(tmp_path):
    path = tmp_path / "t"
    path.write_text("U1:%x[0,0]")
    assert len(Template.load(path).token_rules) == 1


@pytest.mark.parametrize(
    ("pattern", "word", "match"),
    [
        (r"^\u", "Rome", "R"),
        (r"^\u", "rome", ""),
        (r"^.?.?.?", "Rome", "Rom"),
        (r".?.?$", "Rome", "me"),
        (r"\d\d*$", "a123", "123"),
        (r"\p", "a-b", "-"),
        (r"\U\L", "aB", "aB"),
        (r"a\*b", "xa*b", "a*b"),
        (r"x.*y", "xaybzy", "xay"),
    ],
)
def test_wapitis_expressions_match_what_wapiti_matches(pattern, word, match):
    assert change_of(f"match:{pattern}")(word) == match


def test_shapes_and_types_of_words():
    assert [short_shape(w) for w in ("Rome", "U.S.", "1999-2000", "iPod")] == [
        "UL",
        "U.U.",
        "D-D",
        "LUL",
    ]
    assert [
        word_type(w) for w in ("Rome", "ROME", "U.S.", "1999", "a1", "rome", "e-mail", "--")
    ] == [
        "InitUpper",
        "AllUpper",
        "AllUpperSymbol",
        "AllDigit",
        "LowerDigit",
        "Lower",
        "LowerSymbol",
        "AllSymbol",
    ]


@pytest.mark.medium
def test_conll2000_is_encoded_as_from_strings():
    if "CLIQUEWISE_DATA" not in os.environ:
        pytest.skip("CLIQUEWISE_DATA does not name a folder with the CoNLL data")
    folder = Path(os.environ["CLIQUEWISE_DATA"]) / "conll2000"
    text, _ = read_conll(folder / "train.txt.gz").split_labels()
    template = Template.builtin("chunking")
    encoder = TemplateEncoder(template)
    data = encoder.fit_transform(text)
    assert (data.n_features, len(data.indices)) == (335674, 3808439)
    test, _ = read_conll(folder / "test.txt.gz").split_labels()
    few = slice(int(test.offsets[100]))
    part = Columns([column[few] for column in test.columns], test.offsets[:101])
    rows = [list(zip(*s)) for s in zip(part.sentences(0), part.sentences(1))]
    strings = FeatureEncoder.from_state(
        {"kind": "attributes", "vocabulary": encoder.vocabulary, "n_features": data.n_features}
        | {"n_hash": None, "min_count": 1}
    )
    slowly = slow(template, template.token_rules, rows)
    expected = strings.transform([slowly]).features()
    assert (encoder.transform(part).features() != expected).nnz == 0
