"""Exit codes, JSON output, metadata, suggestions and logging of the command line."""

from __future__ import annotations

import json
import logging

import pytest
from click.testing import CliRunner

import cliquewise as cw
from cliquewise.cli import COMMANDS, SYNONYMS, exit_codes, main

TRAIN = "the DT\ncat NN\nsleeps VB\n\na DT\ndog NN\nbarks VB\n\n"


def call(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def result_of(*arguments, code=exit_codes.SUCCESS):
    result = call(*arguments)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    (folder / "train").write_text(TRAIN)
    line = ["fit", folder / "train", "--model", folder / "m.cw", "--quiet", "--with-state"]
    assert call(*line).exit_code == 0
    return folder


# ---- exit codes


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("fit {train} --model {new} --quiet", exit_codes.SUCCESS),
        ("fit {train} --model {new} --quiet --tol 1e-12 --max-epochs 1", exit_codes.NOT_CONVERGED),
        ("fit {train} --model {new} --quiet --tol 0 --max-epochs 1", exit_codes.SUCCESS),
        ("fit {train} --model {new} --tol -1", exit_codes.USAGE),
        ("fit {train} --model {new} --solver nonesuch", exit_codes.USAGE),
        ("fit {train}", exit_codes.USAGE),
        ("train {train}", exit_codes.USAGE),
        ("evaluate {broken} --model {model}", exit_codes.DATA),
        ("inspect --model {broken}", exit_codes.DATA),
        ("fit {broken} --model {new}", exit_codes.DATA),
        ("fit {train} --model {folder}/no/such/m.cw", exit_codes.SYSTEM),
    ],
)
def test_exit_codes_tell_usage_data_and_system_errors_apart(line, code, folder, tmp_path):
    (tmp_path / "broken").write_text("a X\nb\n")
    names = {
        "train": folder / "train", "model": folder / "m.cw", "folder": tmp_path,
        "broken": tmp_path / "broken", "new": tmp_path / "new.cw",
    }  # fmt: skip
    result = call(*line.format(**names).split())
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output


def test_a_model_that_has_not_converged_is_written(folder, tmp_path):
    path = tmp_path / "m.cw"
    line = ["fit", folder / "train", "--model", path, "--tol", "1e-12", "--max-epochs", "1"]
    result = call(*line, "--quiet")
    assert result.exit_code == exit_codes.NOT_CONVERGED
    assert cw.load(path).stop_reason_ == "limit"
    assert "raise --max-epochs" in result.stderr


def test_help_lists_the_exit_codes():
    text = " ".join(call("--help").stdout.split())
    for code in (exit_codes.USAGE, exit_codes.DATA, exit_codes.NOT_CONVERGED, 130):
        assert f" {code} " in text


# ---- suggestions


@pytest.mark.parametrize(
    ("typed", "meant"), [("fti", "fit"), ("predcit", "predict"), *SYNONYMS.items()]
)
def test_a_mistyped_command_gets_a_suggestion(typed, meant):
    result = call(typed)
    assert result.exit_code == exit_codes.USAGE and meant in COMMANDS
    assert f"there is no command {typed!r}; did you mean {meant!r}?" in result.stderr


def test_an_unrelated_word_gets_no_suggestion():
    assert call("xyzzy").stderr.startswith("cliquewise: error: there is no command 'xyzzy'.")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_an_example_and_a_sentence_per_option(name):
    command = main.get_command(None, name)
    text = CliRunner().invoke(main, [name, "--help"]).output
    assert f"cliquewise {name}" in text.split("Example: ")[1]
    for option in command.params:
        text = getattr(option, "help", None)
        if text is not None and not option.hidden:
            sentence = text.split(" [default")[0]
            assert sentence[0].isupper() and sentence.endswith("."), (option.name, text)


def test_prune_without_a_choice_is_a_usage_error(folder, tmp_path):
    line = ["prune", folder / "train", "--model", folder / "m.cw", "--out", tmp_path / "s.cw"]
    result = call(*line)
    assert result.exit_code == exit_codes.USAGE and not (tmp_path / "s.cw").exists()
    assert call(*line, "--threshold", "0").exit_code == 0


# ---- JSON


def test_fit_prints_json(folder, tmp_path):
    path = tmp_path / "m.cw"
    found = result_of("fit", folder / "train", "--model", path, "--quiet", "--json")
    model = cw.load(path)
    assert found["sequences"] == 2 and found["tokens"] == 6
    assert found["labels"] == model.classes_ and found["weights"] == len(model.coef_)
    assert found["objective"] == model.certificate_.primal and found["gap"] <= 1e-3
    assert found["stop_reason"] == "converged" and found["warnings"] == []


def test_json_of_a_run_that_missed_its_tolerance_has_the_warning(folder, tmp_path):
    line = ["fit", folder / "train", "--model", tmp_path / "m.cw", "--quiet", "--json"]
    missed = result_of(*line, "--tol", "1e-12", "--max-epochs", "1", code=exit_codes.NOT_CONVERGED)
    assert missed["stop_reason"] == "limit" and "--max-epochs" in missed["warnings"][0]


def test_update_evaluate_inspect_and_prune_print_json(folder, tmp_path):
    (tmp_path / "more").write_text("the DT\nbird JJ\n\n")
    model, train = folder / "m.cw", folder / "train"
    more = result_of(
        "update",
        tmp_path / "more",
        "--model",
        model,
        "--out",
        tmp_path / "u.cw",
        "--quiet",
        "--json",
    )
    assert more["new_labels"] == ["JJ"] and more["labels"][-1] == "JJ"
    assert result_of("evaluate", train, "--model", model, "--json")["token_accuracy"] == 1.0
    shown = result_of("inspect", "--model", model, "--json", "--top", "3")
    assert shown["kind"] == "SequenceTagger" and set(shown["features"]) == {"DT", "NN", "VB"}
    assert shown["parameters"]["C"] == 1.0 and shown["provenance"]["examples"] == 2
    pruned = result_of(
        "prune", train, "--model", model, "--out", tmp_path / "p.cw", "--keep", "2", "--json"
    )
    assert pruned["weights"] == 2 and pruned["bytes"] == (tmp_path / "p.cw").stat().st_size


# ---- provenance and logging


def test_models_hold_the_command_and_notes(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/cliquewise", "fit", "a file"])
    line = ["fit", folder / "train", "--model", tmp_path / "m.cw", "--quiet"]
    assert call(*line, "--metadata", "author=Ada", "--metadata", "run=1=2").exit_code == 0
    loaded = cw.load(tmp_path / "m.cw")
    assert loaded.metadata_ == {"command": "cliquewise fit 'a file'", "author": "Ada", "run": "1=2"}
    shown = call("inspect", "--model", tmp_path / "m.cw").stdout
    assert "author: Ada\n" in shown and f"cliquewise {cw.__version__} on 2 examples" in shown
    assert call(*line, "--metadata", "author").exit_code == exit_codes.USAGE


def test_training_and_saving_are_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="cliquewise"):
        tagger = cw.SequenceTagger(random_state=0).fit([[["a"], ["b"]]], [["A", "B"]])
        tagger.save(tmp_path / "m.cw")
    texts = [record.getMessage() for record in caplog.records if record.name == "cliquewise"]
    assert any(text.startswith("training SequenceTagger with ") for text in texts)
    assert any("ended after" in text for text in texts)
    assert f"wrote {tmp_path / 'm.cw'}" in texts
