"""What users see of the tagging commands: their files as they wrote them, flags, tables, help."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

import cliquewise as cw
from cliquewise.cli import COMMANDS, main
from cliquewise.cli.exit_codes import DATA, NOT_CONVERGED
from cliquewise.cli.formatting import error_message
from cliquewise.data import ColumnFormat
from cliquewise.errors import DataError, ParameterError

TRAIN = "café NN B-NP\nnoir JJ I-NP\nboit VB O\n\nthé NN B-NP\nboit VB O\n\n"


def call(*arguments, stdin=None):
    return CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)


def good(*arguments, stdin=None):
    result = call(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of a file in latin-1 with tabs, and one in UTF-8 with spaces."""
    folder = tmp_path_factory.mktemp("faces")
    (folder / "tabs").write_bytes(TRAIN.replace(" ", "\t").encode("latin-1"))
    (folder / "spaces").write_text(TRAIN, encoding="utf-8")
    good("fit", folder / "tabs", "--model", folder / "t.cw", "--encoding", "latin-1", "--quiet")
    good("fit", folder / "spaces", "--model", folder / "s.cw", "--quiet")
    return folder


def test_crfsuite_penalty_flags_are_translated(folder):
    told = call("fit", folder / "spaces", "--model", folder / "x.cw", "--c1", ".1", "--c2", ".1")
    assert told.exit_code == 2 and not (folder / "x.cw").exists()
    assert "--c1 and --c2 of CRFsuite: here --C 3.33333 --l1-ratio 0.333333, which" in told.output
    assert "--c1" not in good("fit", "--help").output


# ---- predict writes what it reads


def test_predict_uses_the_encoding_stored_in_the_model(folder):
    out = good("predict", "--model", folder / "t.cw", folder / "tabs").stdout_bytes
    lines = out.decode("latin-1").splitlines()
    assert [line.rsplit("\t", 1)[0] for line in lines] == TRAIN.replace(" ", "\t").splitlines()


def test_predict_keeps_the_separators_of_its_input(folder):
    for name, separator in (("s.cw", "\t"), ("t.cw", " ")):
        text = f"noir{separator}JJ\n\n"
        out = good("predict", "--model", folder / name, stdin=text.encode()).stdout
        assert out.startswith(f"noir{separator}JJ{separator}")


def test_a_single_column_gets_the_separator_of_the_training_file(tmp_path):
    (tmp_path / "train").write_text("a\tX\nb\tY\n\n")
    good("fit", tmp_path / "train", "--model", tmp_path / "m.cw", "--quiet")
    assert re.match(r"a\t[XY]\n", good("predict", "--model", tmp_path / "m.cw", stdin="a\n").stdout)


def test_encoding_option_overrides_the_stored_encoding(folder, tmp_path):
    out = tmp_path / "out"
    good(
        "predict", "--model", folder / "t.cw", folder / "spaces", "--encoding", "utf-8",
        "--out", out,
    )  # fmt: skip
    assert out.read_text(encoding="utf-8").startswith("café NN B-NP ")


def test_unencodable_labels_are_a_one_line_error(tmp_path):
    (tmp_path / "train").write_text("a Ω\nb Ω\n\n", encoding="utf-8")
    good("fit", tmp_path / "train", "--model", tmp_path / "m.cw", "--quiet")
    result = call("predict", "--model", tmp_path / "m.cw", "--encoding", "latin-1", stdin="a\n")
    assert result.exit_code == DATA
    assert result.stderr == "cliquewise: error: 'Ω' cannot be written in latin-1\n"


def test_file_format_survives_loading_and_saving_in_python(folder, tmp_path):
    cw.load(folder / "t.cw").save(tmp_path / "again.cw")
    assert cw.load(tmp_path / "again.cw").encoder_.file_format == ColumnFormat(
        encoding="latin-1", output_separator="\t"
    )


# ---- evaluate


@pytest.fixture(scope="module")
def two_columns(folder):
    path = folder / "tagged"
    path.write_text("a B-X B-X\nb I-X O\nc O O\n\nd B-Y_Z B-Y_Z\ne O O\n\n")
    return path


def test_evaluate_reads_the_output_of_predict_from_a_pipe(two_columns):
    piped = good("evaluate", "-", stdin=two_columns.read_text())
    assert piped.stdout == good("evaluate", two_columns).stdout
    assert "column 2 as gold labels, column 3 as predicted ones" in piped.stderr


def test_evaluate_compares_two_columns_of_a_file_without_a_model(two_columns):
    result = json.loads(good("evaluate", two_columns, "--format", "json").stdout)
    truth = [["B-X", "I-X", "O"], ["B-Y_Z", "O"]]
    guess = [["B-X", "O", "O"], ["B-Y_Z", "O"]]
    assert result["token_accuracy"] == cw.metrics.token_accuracy(truth, guess) == 4 / 5
    assert result["spans"]["f1"] == cw.metrics.span_scores(truth, guess).f1 == 0.5
    assert result["unknown_labels"] == []


def test_evaluating_predicted_labels_equals_evaluating_the_model(folder, tmp_path):
    tagged = tmp_path / "tagged"
    good("predict", "--model", folder / "s.cw", folder / "spaces", "--out", tagged)
    lines = [
        good("evaluate", tagged).stdout,
        good("evaluate", folder / "spaces", "--model", folder / "s.cw").stdout,
    ]
    assert lines[0] == lines[1]


def test_evaluate_prints_the_same_table_as_text_and_as_latex(two_columns):
    text = good("evaluate", two_columns).stdout
    latex = good("evaluate", two_columns, "--format", "latex").stdout
    assert latex.startswith("\\begin{tabular}{lrrrr}\nspan & precision & recall & F1 & true \\\\\n")
    assert latex.endswith("\\end{tabular}\n")
    rows = [line.removesuffix(r" \\").split(" & ") for line in latex.splitlines() if "&" in line]
    assert [" ".join(row).replace("\\_", "_") for row in rows[1:]] == [
        " ".join(line.split()) for line in text.split("true\n")[1].splitlines()
    ]


def test_evaluate_needs_two_columns_or_a_model(tmp_path):
    (tmp_path / "words").write_text("a X\nb Y\n")
    assert good("evaluate", tmp_path / "words").exit_code == 0
    (tmp_path / "words").write_text("a\nb\n")
    assert "one column only" in call("evaluate", tmp_path / "words").stderr


# ---- messages


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ("--tol -1", "--tol must be a number >= 0, not -1.0"),
        ("--C 0", "--C must be"),
        ("--jobs 0", "--jobs must be"),
        ("--min-count 0", "--min-count must be an integer >= 1, not 0"),
        ("--n-hash 0", "--n-hash must be"),
        ("--max-seconds -1", "--max-seconds must be"),
        ("--loss huber", "--loss must be log, pseudo_likelihood"),
    ],
)
def test_errors_name_flags_instead_of_python_parameters(folder, tmp_path, options, start):
    line = ["fit", folder / "spaces", "--model", tmp_path / "m.cw", "--quiet", *options.split()]
    result = call(*line)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"cliquewise: error: {start}")


def test_wrong_encoding_error_suggests_the_encoding_flag(folder, tmp_path):
    error = call("fit", folder / "tabs", "--model", tmp_path / "m.cw").stderr
    assert "--encoding latin-1" in error and "encoding=" not in error


def test_errors_name_only_flags_of_the_command_that_ran():
    error = DataError("the state needs 9 GiB").concerning("max_memory", "n_hash")
    fit, predict = (main.get_command(None, name) for name in ("fit", "predict"))
    assert error_message(error, fit) == "the state needs 9 GiB (options --max-memory, --n-hash)"
    assert error_message(error, predict) == "the state needs 9 GiB"
    wrong = ParameterError("n_jobs", "an integer other than 0", 0)
    assert error_message(wrong, fit).startswith("--jobs must be")
    assert error_message(wrong, None).startswith("n_jobs must be")


def test_old_flags_work_and_are_hidden(folder, tmp_path):
    models = []
    for flag in ("--no-boundaries", "--no-boundary-weights"):
        good("fit", folder / "spaces", "--model", tmp_path / "m.cw", "--quiet", flag)
        models.append(cw.load(tmp_path / "m.cw"))
        assert models[-1].boundary_weights is False
    assert "--no-boundaries" not in good("fit", "--help").stdout


@pytest.mark.parametrize(
    "line",
    ["fit none --model m.cw", "predict --model none", "evaluate none", "inspect --model none",
     "infer none", "fit", "predict", "fit none"],
)  # fmt: skip
def test_missing_files_and_options_are_one_line_errors(line):
    result = call(*line.split())
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1 and result.stderr.startswith("cliquewise: error: ")
    assert f"See cliquewise {line.split()[0]} --help" in result.stderr


def test_tolerance_zero_gives_no_convergence_warning(folder, tmp_path):
    line = ["fit", folder / "spaces", "--model", tmp_path / "m.cw", "--quiet", "--max-epochs", "3"]
    missed = call(*line, "--tol", "1e-15")
    assert "warning:" in missed.stderr and missed.exit_code == NOT_CONVERGED
    assert good(*line, "--tol", "0").stderr == ""


# ---- help


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_fits_eighty_columns(name):
    lines = CliRunner().invoke(main, [name, "--help"], terminal_width=80).output.splitlines()
    assert max(map(len, lines)) <= 80


def test_fit_help_groups_options_and_shows_each_once():
    lines = CliRunner().invoke(main, ["fit", "--help"], terminal_width=80).output.splitlines()
    heads = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert heads == ["Files:", "Model:", "Training:", "Long runs:", "Other:"]
    options = lines[lines.index("Files:") :]
    for parameter in main.get_command(None, "fit").params[1:]:
        shown = sum(line.startswith(f"  {parameter.opts[0]} ") for line in options)
        assert shown == (not parameter.hidden)
