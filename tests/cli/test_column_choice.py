"""CoNLL-U, and columns chosen by name or number, on the command line."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import cliquewise as cw
from cliquewise.cli import main

SENTENCE = """# sent_id = {i}
# text = Wir gingen zum Haus
1\tWir\twir\tPRON\tPPER\tCase=Nom|Number=Plur\t2\tnsubj\t_\t_
2\tgingen\tgehen\tVERB\tVVFIN\tTense=Past\t0\troot\t_\t_
3-4\tzum\t_\t_\t_\t_\t_\t_\t_\t_
3\tzu\tzu\tADP\tAPPR\t_\t5\tcase\t_\t_
4\tdem\tder\tDET\tART\tCase=Dat\t5\tdet\t_\t_
5\tHaus\tHaus\tNOUN\tNN\tCase=Dat|Gender=Neut\t2\tobl\t_\tSpaceAfter=No
5.1\tgingen\tgehen\tVERB\t_\t_\t_\t_\t2:conj\t_
"""
DOCUMENT = "".join(SENTENCE.format(i=i) + "\n" for i in range(6))
TABLE = "token pos tag\nRome NNP B\nis VBZ O\n\nParis NNP B\nwas VBD O\n\n"


def call(*arguments, stdin=None):
    return CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)


def good(*arguments, stdin=None):
    result = call(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def fitted(tmp_path):
    """Train on a text with some options; return the paths of the text and the model."""

    def fit(text, *options):
        (tmp_path / "train").write_bytes(text.encode())
        good("fit", tmp_path / "train", "--model", tmp_path / "m.cw", "--quiet", *options)
        return tmp_path / "train", tmp_path / "m.cw"

    return fit


@pytest.mark.parametrize("label", ["upos", "xpos", "deprel", "feats", "feats.Case", "4"])
def test_predictions_leave_the_rest_of_conllu_unchanged(label, fitted, tmp_path):
    train, model = fitted(DOCUMENT, "--label", label)
    assert "token accuracy  100.00 %" in good("evaluate", train, "--model", model).stdout
    good("predict", train, "--model", model, "--out", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == train.read_bytes()


@pytest.mark.parametrize(
    "text", [DOCUMENT.rstrip("\n"), DOCUMENT.replace("\n", "\r\n"), DOCUMENT + "\n"]
)
def test_predict_preserves_line_endings_and_the_end_of_the_file(text, fitted, tmp_path):
    train, model = fitted(text, "--label", "upos")
    good("predict", train, "--model", model, "--out", tmp_path / "out", "--batch", "1")
    assert (tmp_path / "out").read_bytes() == text.encode()


def test_only_the_label_column_changes(fitted, tmp_path):
    _, model = fitted(DOCUMENT, "--label", "upos")
    unlabeled = DOCUMENT.replace("\tPRON\t", "\t_\t").replace("\tVERB\tVVFIN", "\t_\tVVFIN")
    (tmp_path / "new").write_text(unlabeled)
    assert good("predict", tmp_path / "new", "--model", model).stdout == DOCUMENT
    assert good("predict", "--model", model, stdin=unlabeled).stdout == DOCUMENT


def test_conllu_features_are_chosen_by_name(fitted):
    _, model = fitted(DOCUMENT, "--label", "feats.Case", "--columns", "form,upos")
    tagger = cw.load(model)
    assert tagger.encoder_.n_columns == 2 and tagger.encoder_.file_format.features == (
        "form",
        "upos",
    )
    assert set(tagger.classes_) == {"Nom", "Dat", "_"}


def test_conllu_without_a_label_says_what_to_type(tmp_path):
    (tmp_path / "train").write_text(DOCUMENT)
    result = call("fit", tmp_path / "train", "--model", tmp_path / "m.cw")
    assert result.exit_code == 3 and "name the column of the labels (upos, xpos" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--header", "--label", "tag", "--columns", "token"],
        ["--header", "--columns", "1"],
        ["--header", "--label", "-1", "--columns", "1"],
    ],
)
def test_columns_are_chosen_by_header_or_number(options, fitted):
    train, model = fitted(TABLE, *options)
    tagger = cw.load(model)
    assert tagger.encoder_.n_columns == 1 and set(tagger.classes_) == {"B", "O"}
    assert "token accuracy  100.00 %" in good("evaluate", train, "--model", model).stdout
    out = good("predict", train, "--model", model).stdout
    assert out.startswith("token pos tag predicted\nRome NNP B B\nis VBZ O O\n\n")


def test_a_label_column_in_the_middle(fitted):
    rows = "".join(line and f"{line}\n" for line in TABLE.splitlines(True)[1:])
    train, model = fitted(rows.replace("\n\n", "\n"), "--label", "2")
    assert set(cw.load(model).classes_) == {"NNP", "VBZ", "VBD"}
    assert good("predict", train, "--model", model).stdout.startswith("Rome NNP B NNP\n")


def test_an_unknown_column_is_reported_in_one_line(fitted, tmp_path):
    (tmp_path / "train").write_text(TABLE)
    line = ["fit", tmp_path / "train", "--model", tmp_path / "m.cw"]
    result = call(*line, "--header", "--label", "lemma")
    assert result.exit_code == 3 and "there is no column 'lemma'" in result.stderr
    assert "numbered from 1" in call(*line, "--label", "0").stderr


def test_a_column_of_text_gets_a_warning(tmp_path):
    text = "".join(f"word{i} lemma{i}\n\n" for i in range(250))
    (tmp_path / "train").write_text(text)
    line = ["fit", tmp_path / "train", "--model", tmp_path / "m.cw", "--quiet", "--tol", "1"]
    result = good(*line, "--feature-pairs", "seen", "--transitions", "seen")
    assert "250 different values, and 250 of them occur once" in result.stderr
    assert "--label" in result.stderr
