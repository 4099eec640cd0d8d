"""UAI files: models, evidence, results; and what happens to files that are not right."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cliquewise.data.formats import _packed
from cliquewise.data.formats.uai import read_uai, read_uai_evidence, read_uai_query, write_uai
from cliquewise.data.formats.uai_results import (
    read_uai_map,
    read_uai_mar,
    read_uai_mmap,
    read_uai_pr,
    write_uai_map,
    write_uai_mar,
    write_uai_mmap,
    write_uai_pr,
)
from cliquewise.errors import CliquewiseError, FormatError, GraphError
from cliquewise.graph.factor_graph import FactorGraph

MODEL = b"""MARKOV
3
2 2 3
2
2 0 1
2 1 2

4
 1.0 2.0
 3.0 0.0

6
 0.5 1e-3 1
 2   4    8
"""


def read(text: bytes, evidence: bytes | None = None) -> FactorGraph:
    return read_uai(io.BytesIO(text), None if evidence is None else io.BytesIO(evidence))


# ---- what a good file says


def test_tables_are_logarithms_in_the_order_of_the_scope():
    graph = read(MODEL)
    assert graph.cardinalities.tolist() == [2, 2, 3]
    assert [scope for scope, _ in graph.factors] == [(0, 1), (1, 2)]
    np.testing.assert_array_equal(graph.table(0)[0], np.log([1.0, 2.0]))
    assert graph.table(0)[1, 1] == -np.inf
    np.testing.assert_array_equal(graph.table(1)[1], np.log([2.0, 4.0, 8.0]))


def test_whitespace_does_not_matter_and_bayes_reads_like_markov():
    with pytest.warns(UserWarning, match="not to one"):
        graph = read(b" \r\n bayes\t" + b"\r\n\t ".join(MODEL.split()[1:]))
    np.testing.assert_array_equal(graph.tables, read(MODEL).tables)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_packed_files_are_known_by_their_first_bytes(compress):
    np.testing.assert_array_equal(read(compress(MODEL)).tables, read(MODEL).tables)


def test_a_factor_without_variables_is_a_constant():
    graph = read(b"MARKOV 1  2  2  0  1 0  1 5.0  2 1 1")
    assert graph.marginals("brute-force").log_z == pytest.approx(np.log(10.0), abs=1e-14)


def test_no_variables_and_no_factors_is_a_model():
    assert read(b"MARKOV 0 0").n_variables == 0


def test_numbers_beyond_float64_keep_their_logarithm():
    graph = read(b"MARKOV 1 4 1 1 0 4  1e-400 0 2.5E+400 4e-320")
    expected = [
        -400 * np.log(10),
        -np.inf,
        np.log(2.5) + 400 * np.log(10),
        np.log(4) - 320 * np.log(10),
    ]
    np.testing.assert_allclose(graph.tables, expected, rtol=1e-7)


# ---- evidence


@pytest.mark.parametrize("text", [b"1 2 1", b"1\n1 2 1", b"2 2 1 2 1"])
def test_both_evidence_layouts_say_the_same(text):
    assert read_uai_evidence(io.BytesIO(text)) == {2: 1}
    assert read(MODEL, text).evidence == {2: 1}


@pytest.mark.parametrize("text", [b"0", b"1\n0\n"])
def test_no_evidence_in_both_layouts(text):
    assert read_uai_evidence(io.BytesIO(text)) == {}


def test_evidence_of_one_variable_zero_in_both_layouts_is_not_confused():
    # "1 1 0" is variable 1 in state 0; "1 1 0 0" is one set with variable 0 in state 0.
    assert read_uai_evidence(io.BytesIO(b"1 1 0")) == {1: 0}
    assert read_uai_evidence(io.BytesIO(b"1 1 0 0")) == {0: 0}


@pytest.mark.parametrize(
    "text, says",
    [
        (b"", "empty"),
        (b"2 0 1", "need 4 numbers"),
        (b"2\n1 0 1\n1 0 1", "need 4 numbers"),
        (b"2\n1 0 1 1 0", "neither layout"),
        (b"1 0.5 1", "integer"),
        (b"1 -1 1", "integer"),
        (b"1 0 nan", "integer"),
        (b"1 0 1e30", "integer|states"),
        (b"2 0 1 0 0", "two states, 1 and 0"),
        (b"1 7 0", "variable 7"),
        (b"1 2 3", "states are 0..2"),
        (b"evidence 1 0 0", "not a number"),
    ],
)
def test_bad_evidence_is_refused_with_the_reason(text, says):
    with pytest.raises(FormatError, match=says):
        read(MODEL, text)


def test_a_mapping_is_evidence_too():
    assert read_uai(io.BytesIO(MODEL), {0: 1}).evidence == {0: 1}


# ---- files that are not right


def changed(old: bytes, new: bytes) -> bytes:
    assert MODEL.count(old) >= 1
    return MODEL.replace(old, new, 1)


BAD = {
    "empty": (b"", "empty"),
    "blank": (b" \n\n", "empty"),
    "another format": (b"\x89PNG\r\n\x1a\n\0\0\0", "begins with"),
    "a word only": (b"MARKOV", "ends before the number of variables"),
    "binary after the word": (b"MARKOV \x00\xff\xfe", "not a number"),
    "a word among numbers": (changed(b"4\n", b"four\n"), "line 8.*'four'"),
    "underscores": (changed(b"4\n", b"0_4\n"), "line 8.*not a number"),
    "too many variables": (changed(b"3\n", b"300\n"), "number of variables is 300"),
    "absurdly many variables": (changed(b"3\n", b"1000000000000\n"), "variables is 10+, but"),
    "half a variable": (changed(b"3\n", b"3.5\n"), "integer"),
    "cardinality 0": (changed(b"2 2 3", b"2 0 3"), "line 3.*cardinality of variable 1 is 0"),
    "cardinality -2": (changed(b"2 2 3", b"2 -2 3"), "cardinality of variable 1"),
    "cardinality 1e9": (changed(b"2 2 3", b"2 1000000000 3"), "cardinality of variable 1"),
    "cardinality 1e30": (changed(b"2 2 3", b"2 1" + b"0" * 30 + b" 3"), "cardinality"),
    "cardinality 1e400": (changed(b"2 2 3", b"2 1e400 3"), "cardinality of variable 1 is inf"),
    "many large cardinalities": (
        b"MARKOV 300 " + b"10000000 " * 300 + b"0",
        "states in all",
    ),
    "too many factors": (changed(b"2\n2 0 1", b"9\n2 0 1"), "number of factors is 9"),
    "factor order": (changed(b"2 1 2", b"4 1 2"), "line 6.*number of variables of factor 1"),
    "variable twice": (changed(b"2 1 2", b"2 1 1"), "factor 1 names variable 1 twice"),
    "variable unknown": (changed(b"2 1 2", b"2 1 3"), "line 6: factor 1 names variable 3"),
    "variable negative": (changed(b"2 1 2", b"2 -1 2"), "line 6: factor 1 names variable -1"),
    "variable fraction": (changed(b"2 1 2", b"2 1.5 2"), "factor 1 names variable 1.5"),
    "table size": (changed(b"4\n", b"5\n"), "line 8: the table of factor 0.*needs 4"),
    "table size nan": (changed(b"4\n", b"nan\n"), "factor 0 is said to have nan"),
    "nan": (changed(b"3.0", b"nan"), "line 10: entry 2 of factor 0 is nan"),
    "inf": (changed(b"3.0", b"inf"), "line 10: 'inf'"),
    "negative": (changed(b"3.0", b"-3.0"), "line 10: entry 2 of factor 0 is -3"),
    "negative and tiny": (changed(b"3.0", b"-1e-999"), "line 10"),
    "absurd exponent": (changed(b"3.0", b"1e99999999999999999999"), "line 10"),
    "trailing numbers": (MODEL + b"1 2", "2 numbers are left"),
    "trailing words": (MODEL + b"MAR", "not a number"),
    "truncated": (MODEL[:-6], "the table of factor 1: 1 numbers are missing"),
    "truncated scopes": (b"MARKOV 3 2 2 2 2 3 0 1 2 3 0 1", "factor"),
    "huge table of a small file": (
        b"MARKOV 40 " + b"10 " * 40 + b"1 40 " + b" ".join(b"%d" % i for i in range(40)) + b" 1 1",
        "entries",
    ),
    "truncated gzip": (gzip.compress(MODEL)[:-9], "truncated file"),
    "truncated xz": (lzma.compress(MODEL)[:-9], "truncated file"),
    "truncated bzip2": (bz2.compress(MODEL)[:-9], "truncated file"),
    "garbage in gzip": (gzip.compress(MODEL)[:20] + b"garbage garbage", "damaged gzip"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_file_place_and_reason(case, tmp_path):
    text, says = BAD[case]
    path = tmp_path / "bad.uai"
    path.write_bytes(text)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=says) as caught:
            read_uai(path)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)


def test_a_gzip_bomb_is_refused_at_the_limit(monkeypatch):
    monkeypatch.setattr(_packed, "MAX_TEXT", 1 << 20)
    for compress in (gzip.compress, lzma.compress, bz2.compress):
        with pytest.raises(FormatError, match="limit"):
            read(compress(b"MARKOV " + b"1 " * (1 << 20)))


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_damaged_files_give_a_valid_graph_or_our_error(data):
    text = bytearray(data.draw(st.sampled_from([MODEL, gzip.compress(MODEL), b"2 0 1 1 0"])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        kind = data.draw(st.sampled_from(["cut", "drop", "set", "insert"]))
        if kind == "cut":
            del text[at:]
        elif kind == "drop":
            del text[at : at + data.draw(st.integers(1, 9))]
        elif kind == "set":
            text[at : at + 1] = data.draw(st.sampled_from([b"9", b"-", b".", b"e", b" ", b"\xff"]))
        else:
            extra = data.draw(
                st.sampled_from([b"nan", b"1e300 ", b"inf", b"\0", b" 99999 ", b"-1 "])
            )
            text[at:at] = extra
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reader in (
            read_uai, read_uai_evidence, read_uai_query, read_uai_mar, read_uai_map,
            read_uai_mmap, read_uai_pr,
        ):  # fmt: skip
            try:
                answer = reader(io.BytesIO(bytes(text)))
            except CliquewiseError:
                continue
            if isinstance(answer, FactorGraph):
                assert not np.isnan(answer.tables).any() and (answer.tables < np.inf).all()


# ---- there and back


@st.composite
def graphs(draw):
    n = draw(st.integers(0, 5))
    cards = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    logs = st.one_of(st.floats(-3e3, 3e3), st.just(-np.inf), st.floats(-1e-3, 1e-3))
    factors = []
    for _ in range(draw(st.integers(0, 4))):
        scope = draw(st.permutations(range(n)))[: draw(st.integers(0, min(n, 3)))]
        size = int(np.prod([cards[v] for v in scope], dtype=int))
        table = draw(st.lists(logs, min_size=size, max_size=size))
        factors.append((scope, np.reshape(table, [cards[v] for v in scope])))
    return FactorGraph(cards, factors)


@settings(max_examples=200, deadline=None)
@given(graph=graphs(), ending=st.sampled_from(["", ".gz", ".xz", ".bz2"]))
def test_a_graph_survives_writing_and_reading(graph, ending, tmp_path_factory):
    path = tmp_path_factory.mktemp("uai") / f"model.uai{ending}"
    write_uai(graph, path)
    once = read_uai(path)
    np.testing.assert_array_equal(once.structure.scopes, graph.structure.scopes)
    np.testing.assert_array_equal(once.structure.scope_offsets, graph.structure.scope_offsets)
    np.testing.assert_array_equal(once.cardinalities, graph.cardinalities)
    finite = graph.tables > -np.inf
    np.testing.assert_array_equal(once.tables > -np.inf, finite)
    np.testing.assert_allclose(once.tables[finite], graph.tables[finite], rtol=3e-16, atol=3e-16)
    write_uai(once, path)
    np.testing.assert_array_equal(read_uai(path).tables, once.tables)


@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.floats(1e-307, 1e307), min_size=1, max_size=30))
def test_potentials_of_a_file_come_back_to_the_last_bit(values, tmp_path_factory):
    text = f"MARKOV 1 {len(values)} 1 1 0 {len(values)} " + " ".join(map(repr, values))
    graph = read(text.encode())
    path = tmp_path_factory.mktemp("uai") / "again.uai"
    write_uai(graph, path)
    np.testing.assert_array_equal(read_uai(path).tables, graph.tables)


def test_observed_variables_are_not_lost_in_writing(tmp_path):
    graph = read(MODEL, b"2 0 1 2 2")
    with pytest.raises(GraphError, match="evidence="):
        write_uai(graph, tmp_path / "m.uai")
    write_uai(graph, tmp_path / "m.uai", evidence=tmp_path / "m.uai.evid")
    again = read_uai(tmp_path / "m.uai", tmp_path / "m.uai.evid")
    assert again.evidence == {0: 1, 2: 2}


def test_what_cannot_be_written_is_refused_by_name(tmp_path):
    with pytest.raises(GraphError, match="factor 0 has the log-potential -1e"):
        write_uai(FactorGraph([1], [((0,), [-1e7])]), tmp_path / "m.uai")
    with pytest.raises(GraphError, match="MARKOV or BAYES"):
        write_uai(FactorGraph([1], []), tmp_path / "m.uai", kind="MARKOW")


def test_evidence_beside_the_model_is_not_read_by_itself(tmp_path):
    (tmp_path / "m.uai").write_bytes(MODEL)
    (tmp_path / "m.uai.evid").write_bytes(b"1 0 1")
    assert read_uai(tmp_path / "m.uai").evidence == {}


# ---- results


def test_result_files_come_back(tmp_path):
    nodes = [np.array([0.1, 0.9]), np.array([1 / 3, 1 / 3, 1 / 3]), np.array([1.0])]
    write_uai_mar(nodes, tmp_path / "a.MAR")
    for ours, theirs in zip(nodes, read_uai_mar(tmp_path / "a.MAR"), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    write_uai_pr(-123.456, tmp_path / "a.PR")
    assert read_uai_pr(tmp_path / "a.PR") == pytest.approx(-123.456, rel=1e-15)
    write_uai_map([1, 0, 2], tmp_path / "a.MAP")
    assert (tmp_path / "a.MAP").read_text() == "MAP\n3 1 0 2\n"
    write_uai_map([[1, 0], [0, 0]], tmp_path / "a.MAP")
    assert read_uai_map(tmp_path / "a.MAP").tolist() == [[1, 0], [0, 0]]
    write_uai_mmap({4: 0, 2: 1}, tmp_path / "a.MMAP")
    assert read_uai_mmap(tmp_path / "a.MMAP") == {4: 0, 2: 1}


@pytest.mark.parametrize(
    "reader, text",
    [
        (read_uai_mar, b"MAR 1 2 0.5"),
        (read_uai_mar, b"MAR 1 2 0.5 1.5"),
        (read_uai_mar, b"MAR 1 1 1 7"),
        (read_uai_mar, b"MAR 1000000 1 1"),
        (read_uai_mar, b"PR 1"),
        (read_uai_pr, b"PR"),
        (read_uai_pr, b"PR nan"),
        (read_uai_pr, b"PR 1 2"),
        (read_uai_mmap, b"MMAP"),
        (read_uai_mmap, b"MMAP 2 0 1 0 1"),
        (read_uai_mmap, b"MMAP 1 0 1 1"),
        (read_uai_mmap, b"MMAP 1 0 -1"),
        (read_uai_map, b"MAP"),
        (read_uai_map, b"MAP 2 1"),
        (read_uai_map, b"MAP 1 -1"),
        (read_uai_map, b"MAP 1 1 MAP 2 1 1"),
        (read_uai_map, b"MAP 1 1 MAX 1 1"),
    ],
)
def test_bad_result_files_are_rejected(reader, text):
    with pytest.raises(FormatError):
        reader(io.BytesIO(text))


@pytest.mark.medium
def test_twenty_megabytes_are_read_in_a_couple_of_seconds():
    rng = np.random.default_rng(0)
    table = " ".join(map(repr, rng.random(1_000_000).tolist()))
    text = f"MARKOV 2 1000 1000 1 2 0 1 1000000 {table}".encode()
    start = time.process_time()
    graph = read(text)
    assert graph.tables.size == 1_000_000
    assert time.process_time() - start < 3.0


def test_rows_of_a_bayesian_network_that_are_no_chances_are_named():
    head = b"BAYES 2  2 3  2  1 0  2 0 1  2  0.3 0.7  6  "
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(head + b"0.333 0.333 0.333  0.2 0.3 0.5")  # rounded
        read(b"MARKOV" + head[5:] + b"0.5 0.5 0.5  7 8 9")
    with pytest.warns(UserWarning, match=r"variable 1 \(factor 1\) sums to 1.4, not to one; the"):
        graph = read(head + b"0.2 0.3 0.5  0.4 0.5 0.5")
    assert np.exp(graph.table(1)[1]).sum() == pytest.approx(1.4)  # taken as it is
    with pytest.warns(UserWarning, match="sums to 0, not to one, nor do 1 further rows"):
        read(head + b"0 0 0  0.4 0.5 0.5")


@pytest.mark.parametrize("comment", ["c a comment", "# a comment", "// a comment, 7 numbers"])
def test_comments_are_skipped(comment):
    text = f"{comment}\nMARKOV\n{comment}\n1\n2\n1\n1 0\n2\n0.25 0.75\n{comment}\n"
    graph = read_uai(io.BytesIO(text.encode()))
    assert np.exp(graph.table(0)) == pytest.approx([0.25, 0.75])


def test_errors_after_comments_name_the_line():
    with pytest.raises(FormatError, match="line 9"):
        read_uai(io.BytesIO(b"MARKOV\n# c\n1\n2\n1\n1 0\n2\n0.25\nx\n"))


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (b"celar 2 3 1 100\n2 3\n2 0 1 0 1\n0 0 5\n", "a wcsp file"),
        (b'{ problem: {name: "p", mustbe: "<10"}, variables: {} }', "a toulbar2 cfn file"),
        (b'net { }\nnode a { states = ("t" "f"); }', "a Hugin NET file"),
        (b"network a { }", "BIF, which cliquewise.read_bif reads"),
    ],
)
def test_errors_name_the_format_of_other_files(text, format):
    with pytest.raises(FormatError, match=f"It looks like {format}"):
        read_uai(io.BytesIO(text))
