"""CoNLL and CRFsuite files: round trips, compression, and errors that name the line."""

import bz2
import gzip
import io
import lzma
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cliquewise.data import (
    Columns,
    Labels,
    iter_conll,
    read_conll,
    read_crfsuite,
    write_conll,
    write_crfsuite,
)
from cliquewise.errors import DataError, FormatError

TEXT = "Rome NNP B-LOC\nis VBZ O\n\nYes UH O\n\n"


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a", bytes), ("a.gz", gzip.compress), ("a.xz", lzma.compress), ("a.bz2", bz2.compress)],
)
def test_compressed_files_are_recognised_by_name_or_content(folder, name, pack):
    for path in (folder / name, folder / "without_suffix"):
        text = read_conll(write(path, pack(TEXT.encode())))
        assert text.columns == [
            ["Rome", "is", "Yes"],
            ["NNP", "VBZ", "UH"],
            ["B-LOC", "O", "O"],
        ]
        assert text.offsets.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    "content",
    [
        "a b\nc d",
        "a b\r\nc d\r\n",
        "\n\na\tb\n  c   d \n\n\n",
        "\ufeffa b\nc d\n",
        "-DOCSTART- -X-\n\na b\nc d\n",
    ],
)
def test_odd_but_harmless_layouts_give_the_same_columns(folder, content):
    text = read_conll(write(folder / "a", content))
    assert text.columns == [["a", "c"], ["b", "d"]]
    assert text.offsets.tolist() == [0, 2]


def test_an_empty_file_has_no_sentences_and_one_line_without_an_end_has_one(folder):
    assert len(read_conll(write(folder / "a", ""))) == 0
    assert read_conll(write(folder / "a", ""), columns=[0]).columns == []
    assert read_conll(write(folder / "b", "x y")).columns == [["x"], ["y"]]


def test_options_choose_columns_separator_comments_and_docstart(folder):
    path = write(folder / "a", "# text\na b\tO\n#\tX\n-DOCSTART-\tO\n")
    text = read_conll(path, separator="\t", comment="# ", docstart=True, columns=[-1, 0])
    assert text.columns == [["O", "X", "O"], ["a b", "#", "-DOCSTART-"]]
    with pytest.raises(FormatError, match="there is no column 5"):
        read_conll(path, separator="\t", comment="# ", columns=[5])


def test_a_no_break_space_is_part_of_a_word(folder):
    text = read_conll(write(folder / "a", "10\u00a0000 CD\n\u3000 X\n"))
    assert text.columns[0] == ["10\u00a0000", "\u3000"]


def test_wrong_column_count_names_file_and_line(folder):
    path = write(folder / "a.txt", "a b c\nd e f\n\ng h\n")
    with pytest.raises(FormatError, match=r"a\.txt, line 4: 2 columns, but line 1 has 3") as caught:
        read_conll(path)
    assert (caught.value.line, caught.value.path) == (4, str(path))


def test_bytes_that_are_not_utf8_are_named_by_line_and_byte(folder):
    path = write(folder / "a", "a b\nc d\n\ncaf\xe9 d\n".encode("latin-1"))
    with pytest.raises(FormatError, match=r"line 4: byte 12 \(0xe9\) is not utf-8") as caught:
        read_conll(path)
    assert "encoding='latin-1'" in str(caught.value)
    assert read_conll(path, encoding="latin-1").columns[0] == ["a", "c", "café"]
    with pytest.raises(FormatError, match="no encoding 'utf-9'"):
        read_conll(path, encoding="utf-9")


def test_a_bad_byte_behind_many_chunks_is_still_found(folder):
    lines = 300_000
    path = write(folder / "a", "é x\n".encode() * lines + b"\xff x\n")
    with pytest.raises(FormatError, match=rf"line {lines + 1}: byte {5 * lines} \(0xff\)"):
        read_conll(path)


def test_a_file_cut_inside_a_character_is_rejected(folder):
    path = write(folder / "a", "a b\ncaf\u00e9".encode()[:-1])
    with pytest.raises(FormatError, match="line 2: byte 7"):
        read_conll(path)


def test_damaged_and_missing_files_are_clear_errors(folder):
    packed = gzip.compress((TEXT * 1000).encode())
    with pytest.raises(FormatError, match="ends early"):
        read_conll(write(folder / "cut.gz", packed[: len(packed) // 2]))
    with pytest.raises(FormatError, match="ends early"):
        read_conll(write(folder / "cut.xz", lzma.compress(os.urandom(5000))[:-50]))
    broken = bytearray(packed)
    broken[20:30] = b"\xff" * 10
    with pytest.raises(FormatError, match="damaged gzip"):
        read_conll(write(folder / "broken.gz", bytes(broken)))
    with pytest.raises(FormatError, match="the name says gzip but the content is not"):
        read_conll(write(folder / "text.gz", TEXT))
    with pytest.raises(FormatError, match="cannot be opened"):
        read_conll(folder / "nowhere")


def test_progress_reaches_the_size_of_the_file(folder):
    path = write(folder / "a.gz", gzip.compress(("word tag\n" * 400_000).encode()))
    seen = []
    read_conll(path, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == (path.stat().st_size,) * 2


def test_streaming_yields_a_sentence_as_soon_as_it_is_complete():
    read = []

    def lines():
        for line in (b"a b\n", b"c d\r\n", b"\n", b"e f\n"):
            read.append(line)
            yield line

    sentences = iter_conll(lines())
    assert next(sentences) == [["a", "b"], ["c", "d"]]
    assert len(read) == 3
    assert next(sentences) == [["e", "f"]]
    with pytest.raises(FormatError, match="stdin, line 2: 1 columns"):
        list(iter_conll(["a b", "c"], name="stdin"))
    with pytest.raises(FormatError, match=r"stdin, line 2: .*position 1"):
        list(iter_conll([b"a b", b"c\xff d"], name="stdin"))
    rows = Columns.from_rows([[["a", "b"], ["c", "d"]], [["e", "f"]]])
    assert (rows.columns, rows.offsets.tolist()) == ([["a", "c", "e"], ["b", "d", "f"]], [0, 2, 3])


word = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=4)
sentences = st.lists(st.lists(st.tuples(word, word), min_size=1, max_size=3), max_size=4)


@given(sentences, st.sampled_from([" ", "\t", "|"]))
@settings(max_examples=60, deadline=None)
def test_conll_files_come_back_as_they_were(tmp_path_factory, rows, separator):
    rows = [r for r in rows if not any(f == "-DOCSTART-" or "|" in f for t in r for f in t)]
    text = Columns.from_rows(rows)
    path = tmp_path_factory.mktemp("conll") / "a.gz"
    write_conll(path, text.columns, text.offsets, separator=separator)
    again = read_conll(path, separator=None if separator == " " else separator)
    assert again.columns == text.columns
    assert again.offsets.tolist() == text.offsets.tolist()


def test_writing_refuses_what_could_not_be_read_back_and_leaves_no_file(folder):
    for value in ("a b", "", "a\nb"):
        with pytest.raises(FormatError, match="could not be read back"):
            write_conll(folder / "a", [[value]], [0, 1])
    with pytest.raises(DataError, match="column 1 has 2 tokens"):
        write_conll(folder / "a", [["x"], ["y", "z"]], [0, 1])
    with pytest.raises(DataError, match="cannot hold"):
        write_crfsuite(folder / "a", [[["fine"], ["a\tb"]]], [["A", "B"]])
    assert list(folder.iterdir()) == []


def test_split_labels_takes_any_column():
    text = Columns([["a"], ["b"], ["c"]], [0, 1])
    rest, labels = text.split_labels(1)
    assert (rest.columns, labels) == ([["a"], ["c"]], [["b"]])
    with pytest.raises(DataError, match="no column 3"):
        text.split_labels(3)


def test_crfsuite_format_with_values_escapes_weights_and_comments(folder):
    content = (
        "@weight:2.5\n"
        "B-NP\tw=a\\:b\\\\\tlength:2.5\tflag:\n"
        "I NP\tx\t# a comment\ty\n"
        "\n\n"
        "# only a comment\n"
        "O\n"
    )
    data = read_crfsuite(write(folder / "a", content))
    assert data.X == [[["w=a:b\\", ("length", 2.5), "flag"], ["x"]], [[]]]
    assert data.y == [["B-NP", "I NP"], ["O"]]
    assert data.weights.tolist() == [2.5, 1.0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("O\ta:b:c", "line 2: 'a:b:c' has two colons"),
        ("O\ta:b", "line 2: 'b' in 'a:b' is not a number"),
        ("O\ta:nan", "line 2: .* not finite"),
        ("@wait:2", "line 2: unknown directive '@wait'"),
        ("@weight:-1", "line 2: a weight below zero"),
        ("@weight", "line 2: '' in '@weight' is not a number"),
    ],
)
def test_errors_in_crfsuite_files_name_the_line(folder, line, message):
    with pytest.raises(FormatError, match=message):
        read_crfsuite(write(folder / "a", f"O\ta\n{line}\n"))


name = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1)
attribute = name.filter(lambda s: s[0] not in "#@")
token = st.lists(attribute | st.tuples(attribute, st.floats(-1e3, 1e3)), max_size=3)
labeled = st.lists(st.lists(st.tuples(attribute, token), min_size=1, max_size=3), max_size=3)


@given(labeled)
@settings(max_examples=60, deadline=None)
def test_crfsuite_files_come_back_as_they_were(tmp_path_factory, sequences):
    X = [[token for _, token in s] for s in sequences]
    y = [[label for label, _ in s] for s in sequences]
    weights = np.arange(len(X)) / 3
    path = tmp_path_factory.mktemp("crfsuite") / "a.xz"
    write_crfsuite(path, X, y, weights)
    again = read_crfsuite(path)
    plain = [[[a[0] if a[1:] == (1.0,) else a for a in t] for t in s] for s in X]
    assert (again.X, again.y) == (plain, y)
    assert again.weights is None if not X else again.weights.tolist() == weights.tolist()


def test_writing_to_a_stream_leaves_it_open():
    stream = io.StringIO()
    write_crfsuite(stream, [[{"w": "a", "n": 2}]], [["O"]])
    write_conll(stream, [["a"], ["b"]], [0, 1], separator="\t")
    assert stream.getvalue() == "O\tw\\:a\tn:2.0\n\na\tb\n\n"


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("conll2000/train.txt.gz", (8936, 211727, 22)),
        ("conll2000/test.txt.gz", (2012, 47377, 19)),
        ("conll2003/eng.train.gz", (14041, 203621, 8)),
        ("conll2003/eng.testb.gz", (3453, 46435, 8)),
    ],
)
def test_shared_task_files_have_the_published_counts(name, counts):
    if "CLIQUEWISE_DATA" not in os.environ:
        pytest.skip("CLIQUEWISE_DATA does not name a folder with the CoNLL data")
    text = read_conll(Path(os.environ["CLIQUEWISE_DATA"]) / name)
    labels = Labels.fit(text.sentences(-1))
    assert (text.n_sentences, text.n_tokens, len(labels)) == counts


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_is_read(tmp_path, newline):
    path = tmp_path / "a.txt"
    path.write_bytes(newline.join(["a X", "b Y", "", "c Z", ""]).encode())
    assert read_conll(path).sentences() == [["a", "b"], ["c"]]
    with path.open("rb") as stream:
        assert list(iter_conll(stream)) == [[["a", "X"], ["b", "Y"]], [["c", "Z"]]]


def test_a_token_that_is_the_comment_sign_stays_a_token(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("# a comment\nroom NN\n# SYM\n7 CD\n\n# sent_id = 2\nyes UH\n")
    text = read_conll(path, comment="#")
    assert text.sentences() == [["room", "#", "7"], ["yes"]]
    path.write_text("# text = x\na\tX\n\n#\tSYM\n7\tCD\n")
    assert read_conll(path, comment="#").sentences() == [["a"], ["#", "7"]]
