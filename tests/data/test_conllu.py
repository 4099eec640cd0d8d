"""CoNLL-U files: recognition, columns by name, and writing that changes nothing else."""

import io
import os
from pathlib import Path

import pytest

import cliquewise as cw
from cliquewise.data import (
    Columns,
    Shards,
    iter_conll,
    iter_conllu,
    read_conll,
    read_conllu,
    write_conllu,
)
from cliquewise.data.formats.text import read_lines
from cliquewise.errors import DataError, FormatError

TEXT = """# newdoc id = a
# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\t_\tMood=Imp|Number=Plur\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\tCase=Acc|Number=Plur\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_
4\tel\tel\tDET\t_\tDefinite=Def|Number=Sing\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\t_\tNumber=Sing\t1\tobl\t_\tGloss=sea
5.1\tva\tir\tVERB\t_\t_\t_\t_\t0:root\t_

# sent_id = 2
1\tsí\tsí\tINTJ\t_\t_\t0\troot\t_\t_

"""


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "a.conllu"
    target.write_text(TEXT, encoding="utf-8")
    return target


def test_ranges_and_empty_nodes_are_not_tokens(path):
    forms = [["vamos", "nos", "a", "el", "mar"], ["sí"]]
    assert read_conllu(path).columns(["form"]).sentences() == forms
    assert read_conll(path).sentences("form") == forms
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [[row[1] for row in s] for s in iter_conll(lines)] == forms


def test_a_column_of_key_value_pairs_is_split_by_key(path):
    text = read_conll(path, columns=["feats.Number", "misc.Gloss"])
    assert text.sentences(0) == [["Plur", "Plur", "_", "Sing", "Sing"], ["_"]]
    assert text.sentences("misc.Gloss")[0][-1] == "sea"
    tokens = read_conllu(path).tokens(["form", "feats"])
    assert tokens[0][1] == {"form": "nos", "feats": ["Case=Acc", "Number=Plur"]}
    assert tokens[1][0]["feats"] == []


def test_labels_must_be_named(path):
    with pytest.raises(DataError, match="CoNLL-U: name the column of the labels"):
        read_conll(path, comment="#").split_labels()
    X, y = read_conll(path).split_labels("upos")
    assert X.names == ("form",)
    assert y == [["VERB", "PRON", "ADP", "DET", "NOUN"], ["INTJ"]]
    X, y = read_conll(path).split_labels("feats.Case", features=["form", "upos"])
    assert X.names == ("form", "upos")
    assert y[0] == ["_", "Acc", "_", "_", "_"]


def test_shards_need_the_name_of_the_label(path, tmp_path):
    with pytest.raises(FormatError, match="name the column of the labels"):
        next(Shards(path, tmp_path / "cache").blocks())
    block = next(Shards(path, tmp_path / "cache", label="upos").blocks())
    assert block.X.columns == [["vamos", "nos", "a", "el", "mar", "sí"]]
    assert block.y[1] == ["INTJ"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", ["", "\n\n"])
def test_writing_changes_only_the_column_that_was_set(tmp_path, newline, ending):
    source, target = tmp_path / "a.conllu", tmp_path / "b.conllu"
    raw = (TEXT.rstrip("\n") + ending).replace("\n", newline).encode()
    source.write_bytes(raw)
    document = read_conllu(source)
    write_conllu(target, document.with_column("upos", document.columns().sentences("upos")))
    assert target.read_bytes() == raw
    tags = [["X"] * 5, ["Y"]]
    write_conllu(target, document.with_column("upos", tags))
    changed = target.read_bytes().split(b"\n")
    different = [i for i, line in enumerate(raw.split(b"\n")) if line != changed[i]]
    assert different == document.word_lines.tolist()
    assert read_conllu(target).columns(["upos"]).sentences() == tags


def test_setting_one_feature_keeps_the_others(path):
    document = read_conllu(path)
    values = [["Ind", "_", "_", "_", "_"], ["_"]]
    feats = document.with_column("feats.Mood", values).columns(["feats"]).sentences()
    assert feats[0][:2] == ["Mood=Ind|Number=Plur", "Case=Acc|Number=Plur"]
    removed = document.with_column("feats.Number", [["_"] * 5, ["_"]])
    feats = removed.columns(["feats"]).sentences()
    assert feats[0] == ["Mood=Imp", "Case=Acc", "_", "Definite=Def", "_"]


def test_values_that_would_break_the_file_are_rejected(path):
    document = read_conllu(path)
    for value in ("", "a\tb", "a\nb"):
        with pytest.raises(DataError, match="cannot be written"):
            document.with_column("upos", [[value] * 5, ["X"]])
    with pytest.raises(DataError, match="one value per word"):
        document.with_column("upos", [["X"]])
    with pytest.raises(DataError, match="cannot be set"):
        document.with_column("id", [["1"] * 5, ["1"]])


def test_a_stream_gives_back_its_lines(path):
    documents = list(iter_conllu(read_lines(path)))
    assert [len(document) for document in documents] == [1, 1]
    out = io.StringIO()
    for document in documents:
        write_conllu(out, document)
    assert out.getvalue() == TEXT


def test_damaged_lines_are_named(tmp_path):
    target = tmp_path / "a.conllu"
    target.write_text(TEXT.replace("5\tmar\tmar", "5\tmar"), encoding="utf-8")
    for read in (read_conllu, read_conll):
        with pytest.raises(FormatError, match=r"line 10: 9 columns"):
            read(target)


def test_ten_columns_of_something_else_are_read_as_columns(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("1\ta\tb\tc\td\te\tnot a head\tg\th\tTAG\n")
    text = read_conll(target, separator="\t")
    assert text.names is None
    assert text.split_labels()[1] == [["TAG"]]


def test_a_model_remembers_the_columns_of_its_training_file(path, tmp_path):
    X, y = read_conll(path).split_labels("upos", features=["form", "feats.Number"])
    tagger = cw.SequenceTagger(random_state=0, max_epochs=50).fit(X, y)
    tagger.save(tmp_path / "m.cw")
    stored = cw.load(tmp_path / "m.cw").encoder_.file_format
    assert (stored.dialect, stored.label) == ("conllu", "upos")
    assert stored.features == ("form", "feats.Number")


def test_columns_have_names_where_the_file_has_a_header(tmp_path):
    target = tmp_path / "a.tsv"
    target.write_text("word\ttag\tpos\nRome\tB\tNNP\n\nYes\tO\tUH\n")
    text = read_conll(target, header=True)
    X, y = text.split_labels("tag")
    assert (X.names, y) == (("word", "pos"), [["B"], ["O"]])
    assert read_conll(target, columns=["pos"], header=True).columns == [["NNP", "UH"]]
    with pytest.raises(DataError, match="the columns are word, tag, pos"):
        text.split_labels("label")
    with pytest.raises(DataError, match="have no names"):
        Columns([["a"]], [0, 1]).sentences("word")


@pytest.mark.skipif(not os.environ.get("CLIQUEWISE_DATA"), reason="CLIQUEWISE_DATA is not set")
@pytest.mark.parametrize("part", ["dev", "test"])
def test_a_treebank_is_written_back_byte_for_byte(part, tmp_path):
    import lzma

    source = Path(os.environ["CLIQUEWISE_DATA"]) / f"ud/en_lines-ud-{part}.conllu.xz"
    if not source.exists():
        pytest.skip("the treebank is not there")
    document = read_conllu(source)
    target = tmp_path / "a.conllu"
    for column in ("upos", "feats", "misc"):
        values = document.columns([column]).sentences()
        write_conllu(target, document.with_column(column, values))
        assert target.read_bytes() == lzma.decompress(source.read_bytes())
