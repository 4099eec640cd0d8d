"""Files made to hurt: bombs, absurd numbers, and text that takes quadratic time to read."""

from __future__ import annotations

import gzip
import io
import re
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import cliquewise as cw
from cliquewise.data.expressions import MAX_VALUE, Expression
from cliquewise.data.formats import _packed, text
from cliquewise.data.formats.arff import read_arff, read_mulan_labels
from cliquewise.data.formats.conll import read_conll
from cliquewise.data.formats.crfsuite import read_crfsuite
from cliquewise.data.formats.libsvm import read_libsvm
from cliquewise.data.formats.uai import read_uai, read_uai_evidence
from cliquewise.data.formats.uai_results import read_uai_map, read_uai_mar, read_uai_pr
from cliquewise.data.graphs import read_graphs
from cliquewise.data.templates import Template
from cliquewise.errors import DataError, FormatError, TooLargeError

ARFF = "@relation r\n@attribute x numeric\n@attribute c {red,green}\n@attribute A {0,1}\n@data\n"


def labels_at_the_end(path):
    return read_arff(path, labels=1)


READERS = {
    "CoNLL": read_conll,
    "CRFsuite": read_crfsuite,
    "LIBSVM": read_libsvm,
    "ARFF": labels_at_the_end,
    "Mulan": read_mulan_labels,
    "template": Template.load,
    "UAI": read_uai,
    "evidence": read_uai_evidence,
    "MAR": read_uai_mar,
    "PR": read_uai_pr,
    "MAP": read_uai_map,
    "model": cw.load,
}


def written(folder: Path, content: str | bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def quick():
    """Nothing in the test may take long: a linear reader needs a fraction of this."""
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < 5


# ---- every reader


@pytest.mark.parametrize("name", READERS)
def test_a_missing_file_and_a_folder_are_our_own_error(name, tmp_path):
    for path in (tmp_path / "missing", tmp_path, tmp_path / "a\0b"):
        with pytest.raises(FormatError):
            READERS[name](path)


#: The beginning of a good file, and what may be repeated for ever.
ENDLESS = {
    "CoNLL": ("", "word TAG\n"),
    "CRFsuite": ("", "A\tw\n"),
    "LIBSVM": ("", "1 1:1\n"),
    "ARFF": (ARFF, "1,red,0\n"),
    "Mulan": ("<labels>", "<label/>\n"),
    "template": ("", "# comment\n"),
    "UAI": ("MARKOV ", "1 "),
    "evidence": ("", "1 "),
    "MAR": ("MAR ", "1 "),
    "PR": ("PR ", "1 "),
    "MAP": ("MAP ", "1 "),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_every_format_has_one_limit_packed_or_not(name, tmp_path, monkeypatch):
    monkeypatch.setattr(_packed, "MAX_TEXT", 1 << 16)
    monkeypatch.setattr("cliquewise.data.templates.MAX_TEMPLATE", 1 << 18)
    first, more = ENDLESS[name]
    content = (first + more * (1 << 16)).encode()
    for packed in (content, gzip.compress(content)):
        with pytest.raises(FormatError, match="limit"):
            READERS[name](written(tmp_path, packed))


@pytest.mark.parametrize("name", ["CoNLL", "CRFsuite", "LIBSVM"])
def test_a_line_without_an_end_is_read_in_linear_time_and_rejected(
    name, tmp_path, monkeypatch, quick
):
    monkeypatch.setattr(text, "MAX_LINE", 1 << 25)
    monkeypatch.setattr(_packed, "CHUNK", 1 << 12)  # as many pieces as a line of 8 GiB has else
    path = written(tmp_path, b"x" * ((1 << 25) + 1))
    with pytest.raises(FormatError, match="line 1: the line is longer than 33,554,432"):
        READERS[name](path)


@given(junk=st.lists(st.sampled_from([*"aB01 -:.,'\"\\%{}[]?#@\t\n", "1e400", "nan", "%x["])))
@pytest.mark.parametrize("name", ["CoNLL", "CRFsuite", "LIBSVM", "ARFF", "template", "UAI"])
def test_junk_is_read_or_refused_but_raises_nothing_foreign(name, tmp_path_factory, junk):
    first = ARFF if name == "ARFF" else ""
    path = written(tmp_path_factory.getbasetemp(), first + "".join(junk), "junk")
    with suppress(FormatError, DataError):
        READERS[name](path)


# ---- LIBSVM and ARFF


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1e400 1:1", "not a list of label numbers"),
        ("nan 1:1", "not a list of label numbers"),
        ("1.7 1:1", "label 1.7 is not a whole number"),
        ("-1 1:1", "label -1 is not"),
        ("1e18 1:1", "label 1e"),
        ("1 1:1\n2000000000 1:1", "2 rows and 2000000001 labels"),
        ("1 99999999999999999999:1", "feature 99999999999999999999 is not a number in 0.."),
        ("1 " + "9" * 5000 + ":1", "not index:value"),
        ("1 -3:1", "feature -3"),
        ("1 1_0:1", "feature 1_0"),
        ("1 1:nan", "not index:value"),
        ("1 1:-inf", "not index:value"),
        ("1 1:1e999", "not index:value"),
    ],
)
def test_absurd_numbers_in_libsvm_are_refused_with_their_line(content, message, tmp_path, quick):
    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        read_libsvm(written(tmp_path, content))
    assert "file" in str(caught.value)


def test_a_feature_of_a_high_number_costs_nothing(tmp_path, quick):
    data = read_libsvm(written(tmp_path, "1 300000000:2.5"))
    assert data.X.shape == (1, 300_000_000) and data.feature_names[-1] == "300000000"


@pytest.mark.parametrize("cell", ["nan", "inf", "-1e999", "1_0"])
def test_numbers_that_are_not_finite_are_refused_in_arff(cell, tmp_path):
    with pytest.raises(FormatError, match=r"line 6: attribute 'x': .* is not a number"):
        labels_at_the_end(written(tmp_path, f"{ARFF}{cell},red,0\n"))


@pytest.mark.parametrize(
    "row",
    ["'" + " " * 60_000, "'a'" + " " * 60_000 + "x,red,0", '"' + "\\" * 60_000, "' " * 60_000,
     "1," + " " * 60_000 + "'red'" + " " * 60_000 + ",1", "{0 1" + " ," * 30_000 + "}",
     "{²  1}", "',\"," * 30_000],
)  # fmt: skip
def test_quotes_and_spaces_are_read_in_linear_time(row, tmp_path, quick):
    path = written(tmp_path, ARFF + row + "\n")
    with suppress(FormatError):
        assert labels_at_the_end(path).Y.tolist() == [[1]]


def test_many_attributes_and_many_empty_rows_are_not_multiplied(tmp_path, quick):
    many = "".join(f"@attribute x{i} numeric\n" for i in range(20_000))
    content = "@relation r\n" + many + "@attribute A {0,1}\n@data\n" + "{}\n" * 20_000
    assert labels_at_the_end(written(tmp_path, content)).X.shape == (20_000, 20_000)


# ---- templates


@pytest.mark.parametrize(
    "line", ["U:" + "%x[" * 60_000, "U:" + '%x["' * 60_000, "U:%x[0,0," + '"a"' * 60_000 + "x"]
)
def test_macros_that_never_end_are_refused_in_linear_time(line, quick):
    with pytest.raises(FormatError, match="line 1"):
        Template.parse(line)


def test_a_template_has_a_limit():
    with pytest.raises(FormatError, match="1,048,576 characters at most"):
        Template.parse("U:%x[0,0]\n" * 110_000)


@pytest.mark.parametrize(
    "pattern", ["x*" * 100 + "y", ".*" * 100 + "$y", "x?" * 120 + "x" * 15 + "y", "^.*.*.*.*y"]
)
def test_expressions_that_backtrack_for_ever_elsewhere_are_quick(pattern, quick):
    assert Expression.parse(pattern).search("x" * 1000) is None
    assert Expression.parse(pattern[:-1]).search("x" * 1000) is not None


def test_expressions_and_values_have_a_limit():
    with pytest.raises(FormatError, match="256 at most"):
        Template.parse('U:%t[0,0,"' + "a" * 300 + '"]')
    with pytest.raises(DataError, match="10,000 characters"):
        Expression.parse("a").search("x" * (MAX_VALUE + 1))


@given(
    pattern=st.lists(
        st.tuples(st.sampled_from(["a", "b", ".", "\\u", "\\W"]), st.sampled_from(["", "*", "?"])),
        max_size=5,
    ).map(lambda units: "".join(map("".join, units))),
    start=st.sampled_from(["", "^"]),
    end=st.sampled_from(["", "$"]),
    word=st.text("abAB-", max_size=8),
)
def test_the_linear_matcher_finds_what_pythons_finds(pattern, start, end, word):
    expression = Expression.parse(start + pattern + end)
    found = expression._compiled.search(word)
    assert expression._search(word) == (None if found is None else found[0])


# ---- graphs, and answers without end


def zipped(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return content.getvalue()


def npy(array) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def test_an_array_that_claims_to_be_huge_is_refused_before_it_is_allocated(tmp_path):
    good = npy(np.eye(2))
    huge = good.replace(b"'shape': (2, 2), }" + b" " * 12, b"'shape': (2000000, 2000000), }")
    assert len(huge) == len(good)
    for members in (
        {"features": huge, "edges": npy(np.zeros((0, 2), int))},
        {"features": good[:-3], "edges": npy(np.zeros((0, 2), int))},
        {"features": npy(np.array([None])), "edges": good},
        {"features": b"", "edges": good},
    ):
        written(tmp_path, zipped(**members), "a.npz")
        with pytest.raises(FormatError, match=r"not a readable \.npz file"):
            read_graphs(tmp_path)


def test_an_npz_bomb_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("cliquewise.data.graphs.MAX_TEXT", 1 << 16)
    zeros = npy(np.zeros((1 << 10, 1 << 5)))
    written(tmp_path, zipped(features=zeros, edges=zeros), "a.npz")
    with pytest.raises(FormatError, match="more than"):
        read_graphs(tmp_path)


@given(data=st.data())
def test_a_damaged_npz_is_read_or_rejected(data, tmp_path_factory):
    content = bytearray(zipped(features=npy(np.eye(2)), edges=npy(np.array([[0, 1]]))))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("npz")
    written(folder, bytes(content), "a.npz")
    with suppress(FormatError):
        read_graphs(folder)


def test_a_billion_best_outputs_are_all_there_are_or_rejected():
    tagger = cw.SequenceTagger(random_state=0).fit([[["a"], ["b"]]], [["A", "B"]])
    assert len(tagger.predict_top_k([[["a"], ["b"]]], 10**9)[0]) == 4
    with pytest.raises(TooLargeError, match="max_memory"):
        tagger.predict_top_k([[["a"]] * 40], 10**9)
    matcher = cw.Matcher(random_state=0).fit([np.ones((1, 2, 1))], [[0]])
    assert len(matcher.predict_top_k([np.ones((2, 2, 1))], 10**9)[0]) == 7
    with pytest.raises(TooLargeError, match="max_memory"):
        matcher.predict_top_k([np.ones((30, 30, 1))], 10**9)


@pytest.mark.parametrize("suffix", [".xz", ".bz2"])
def test_a_small_file_that_expands_without_end_is_refused_early(tmp_path, suffix, monkeypatch):
    import bz2
    import lzma

    compress = {".xz": lzma.compress, ".bz2": bz2.compress}[suffix]
    path = tmp_path / f"a.conll{suffix}"
    path.write_bytes(compress(b"a B\n" * 2_000_000))
    monkeypatch.setattr(_packed, "FREE_BYTES", 1 << 20)
    with pytest.raises(FormatError, match="expands more than 500 times"):
        read_conll(path)


def test_more_columns_than_feature_numbers_are_rejected():
    huge = csr_matrix((np.ones(1), ([0], [2**31 + 1])), shape=(1, 2**31 + 5))
    for build in (
        lambda: cw.SequenceTagger().fit([huge], [["a"]]),
        lambda: cw.MulticlassClassifier().fit(huge, ["a"]),
    ):
        with pytest.raises(DataError, match="more than 2,147,483,647"):
            build()
