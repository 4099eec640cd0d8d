"""The command line: what ``infer`` prints, writes and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from cliquewise.cli import COMMANDS, main
from cliquewise.cli.progress import waiting
from cliquewise.data.formats.bif import write_bif
from cliquewise.data.formats.uai import write_uai
from cliquewise.data.formats.uai_results import (
    read_uai_map,
    read_uai_mar,
    read_uai_mmap,
    read_uai_pr,
)
from cliquewise.graph.builders import random_graph
from cliquewise.graph.factor_graph import FactorGraph


@pytest.fixture
def graph():
    return random_graph(5, 7, max_order=3, random_state=4)


@pytest.fixture
def model(graph, tmp_path):
    path = tmp_path / "model.uai"
    write_uai(graph, path)
    return str(path)


def call(*arguments: str):
    return CliRunner().invoke(main, ["infer", *arguments])


def test_map_prints_the_best_labeling_in_the_competition_format(graph, model):
    result = call(model, "--task", "MAP", "--method", "brute-force")
    assert result.exit_code == 0, result.output
    labels = graph.map("brute-force").labels.tolist()
    assert result.stdout == "MAP\n" + " ".join(map(str, [5, *labels])) + "\n"


def test_result_files_match_brute_force(graph, model, tmp_path):
    out = str(tmp_path / "result")
    assert call(model, "--task", "MAR", "--out", out).stdout == ""
    truth = graph.marginals("brute-force")
    for ours, theirs in zip(read_uai_mar(out), truth.nodes, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    call(model, "--task", "PR", "--out", out)
    assert read_uai_pr(out) == pytest.approx(truth.log_z, abs=1e-12)
    call(model, "--task", "TOPK", "--k", "3", "--out", out)
    scores = graph.score(read_uai_map(out))
    best = [r.score for r in graph.top_k(3, "brute-force")]
    np.testing.assert_allclose(scores, best, atol=1e-12)


@pytest.mark.parametrize("task", ["MAP", "MAR", "PR", "TOPK"])
def test_json_matches_brute_force(graph, model, task):
    answer = json.loads(call(model, "--task", task.lower(), "--json").stdout)
    assert answer["task"] == task and answer["exact"] is True and answer["variables"] == 5
    if task == "MAP":
        assert graph.score(answer["labels"]) == pytest.approx(answer["score"], abs=1e-12)
        assert answer["gap"] == 0
    elif task == "TOPK":
        assert len(answer["labelings"]) == 5
    else:
        assert answer["log_z"] == pytest.approx(graph.marginals("brute-force").log_z, abs=1e-12)
        assert ("marginals" in answer) == (task == "MAR")


def test_evidence_files_are_read_only_if_named(graph, model):
    with open(model + ".evid", "w") as file:
        file.write("1 0 1")
    without = json.loads(call(model, "--task", "PR", "--json").stdout)
    given = json.loads(call(model, "--task", "PR", "--json", "--evid", model + ".evid").stdout)
    assert (without["observed"], given["observed"]) == (0, 1)
    observed = graph.condition({0: 1}).marginals("brute-force").log_z
    assert given["log_z"] == pytest.approx(observed, abs=1e-12)


def one_error_line(result) -> str:
    assert result.exit_code in (2, 3, 4)
    assert result.stdout == ""
    assert "Traceback" not in result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("cliquewise: error: ")
    return lines[0]


def test_invalid_file_error_names_file_and_line(tmp_path):
    path = tmp_path / "bad.uai"
    path.write_text("MARKOV\n1\n2\n1\n1 0\n2\n1 -1\n")
    line = one_error_line(call(str(path)))
    assert f"{path}, line 7" in line and "not negative" in line


def test_warnings_are_one_line(tmp_path):
    (tmp_path / "b.uai").write_text("BAYES 1 2 1 1 0 2 .5 .9")
    result = call(str(tmp_path / "b.uai"), "--task", "PR")
    assert result.exit_code == 0 and "UserWarning" not in result.stderr
    assert result.stderr.startswith("cliquewise: warning: ") and "variable 0" in result.stderr


def test_contradictory_evidence_is_a_one_line_error(tmp_path):
    write_uai(FactorGraph([2], [((0,), [0.0, -np.inf])]), tmp_path / "m.uai")
    (tmp_path / "e").write_text("1 0 1")
    line = one_error_line(call(str(tmp_path / "m.uai"), "--evid", str(tmp_path / "e")))
    assert "Z = 0" in line


def test_unknown_method_error_lists_the_methods(model):
    assert "junction-tree" in one_error_line(call(model, "--method", "magic"))


def test_debug_option_raises_the_error(model):
    for arguments in (["--debug", "infer", model], ["infer", model, "--debug"]):
        result = CliRunner().invoke(main, [*arguments, "--method", "magic"])
        assert isinstance(result.exception, ValueError)


def test_max_memory_is_an_option_of_the_junction_tree_only(tmp_path):
    rng = np.random.default_rng(0)
    graph = FactorGraph.complete(rng.normal(size=(12, 3)), np.eye(3))
    write_uai(graph, tmp_path / "m.uai")
    model = str(tmp_path / "m.uai")
    small = call(model, "--task", "PR", "--max-memory", "1e-4", "--method", "junction-tree")
    assert "GiB" in one_error_line(small)
    assert call(model, "--task", "PR", "--max-memory", "1").exit_code == 0
    refused = call(model, "--task", "PR", "--max-memory", "1", "--method", "brute-force")
    assert refused.exit_code in (2, 3, 4) and "--max-memory" in refused.stderr


def test_time_limit_works_on_any_model_and_is_reported(tmp_path, model):
    assert call(model, "--seconds", "5", "--gap", "0.1").exit_code == 0
    assert "--rho-updates" in call(model, "--task", "PR", "--rho-updates", "3").stderr
    rng = np.random.default_rng(0)
    wide = FactorGraph.complete(rng.normal(size=(60, 3)), 3 * rng.normal(size=(3, 3)))
    write_uai(wide, tmp_path / "w.uai")
    for task in ("MAP", "PR"):
        result = call(str(tmp_path / "w.uai"), "--task", task, "--seconds", "0.2", "--json")
        answer = json.loads(result.stdout)
        assert answer["exact"] is False and "note: " in result.stderr
        low, high = answer.get("log_z_bounds") or (answer["score"], answer["upper_bound"])
        assert low <= high


def test_missing_files_and_directories_are_usage_errors(tmp_path):
    assert call(str(tmp_path / "none.uai")).exit_code in (2, 3, 4)
    assert call(str(tmp_path)).exit_code in (2, 3, 4)


def test_unwritable_output_is_a_one_line_error(model, tmp_path):
    assert "No such file" in one_error_line(call(model, "--out", str(tmp_path / "no" / "file")))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_module_with_help(name):
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0 and "--debug" in result.stdout


def test_version():
    assert CliRunner().invoke(main, ["--version"]).stdout.startswith("cliquewise, version ")


def test_help_imports_no_heavy_packages():
    code = (
        "import sys, cliquewise.cli\n"
        "try: cliquewise.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'scipy', 'sklearn', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_the_spinner_appears_on_a_terminal_and_only_after_a_while():
    import pty

    def run(pause: float) -> bytes:
        code = (
            "import time; from cliquewise.cli.progress import waiting\n"
            f"with waiting('working', patience=0.2): time.sleep({pause})"
        )
        reader, writer = pty.openpty()
        process = subprocess.Popen([sys.executable, "-c", code], stderr=writer)
        os.close(writer)
        seen = b""
        try:
            while piece := os.read(reader, 4096):
                seen += piece
        except OSError:
            pass  # Linux reports the closed terminal this way
        os.close(reader)
        assert process.wait() == 0
        return seen

    assert b"working" in run(1.0)
    assert b"working" not in run(0.0)


def test_no_spinner_without_a_terminal(capsys):
    with waiting("working", patience=0.0):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


@pytest.fixture
def query(tmp_path):
    path = tmp_path / "model.uai.query"
    path.write_text("2 3 1\n")
    return str(path)


def test_marginal_map_labels_the_variables_of_the_query(graph, model, query, tmp_path):
    best = graph.map(over=[3, 1])
    labels = best.labels.tolist()
    printed = call(model, "--task", "MMAP", "--query", query)
    assert printed.stdout == f"MMAP\n2 3 {labels[3]} 1 {labels[1]}\n"
    out = str(tmp_path / "result")
    for method in ("junction-tree", "mini-buckets"):
        assert call(model, "--task", "mmap", "--query", query, "--method", method, "--seconds", "5",
                    "--out", out).stdout == ""  # fmt: skip
        assert read_uai_mmap(out) == {3: labels[3], 1: labels[1]}
    answer = json.loads(call(model, "--task", "MMAP", "--query", query, "--json").stdout)
    assert answer["query"] == [3, 1] and answer["labels"] == labels and answer["exact"]
    assert answer["score"] == pytest.approx(best.score)
    with open(model + ".evid", "w") as file:
        file.write("1 0 1")
    given = call(model, "--task", "MMAP", "--query", query, "--evid", model + ".evid", "--json")
    best = graph.condition({0: 1}).map(over=[3, 1])
    assert json.loads(given.stdout)["score"] == pytest.approx(best.score)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("3 0 1", "only 2 numbers follow"),
        ("1 0 1", "1 numbers are left"),
        ("2 0 5", "variables are 0..4"),
        ("2 1 1", "twice"),
        ("2 0 x", "is not a number"),
        ("1 0.5", "must be an integer"),
        ("-1", "at least 0"),
    ],
)
def test_wrong_query_files_get_one_clear_line(model, query, text, message):
    with open(query, "w") as file:
        file.write(text)
    result = call(model, "--task", "MMAP", "--query", query)
    assert result.exit_code != 0 and "Traceback" not in result.output
    assert message in result.output and "model.uai.query" in result.output


def test_a_query_belongs_to_marginal_map(model, query):
    assert "--query" in call(model, "--task", "MMAP").output
    assert "belongs to" in call(model, "--task", "MAP", "--query", query).output
    assert "--rho-updates" in call(
        model, "--task", "MMAP", "--query", query, "--rho-updates", "3"
    ).output  # fmt: skip


BIF = """network garden {}
variable Rain { type discrete [2] { no, yes }; }
variable Wet { type discrete [2] { no, yes }; }
probability ( Rain ) { table 0.8, 0.2; }
probability ( Wet | Rain ) { (no) 0.9, 0.1; (yes) 0.1, 0.9; }
"""


def test_networks_with_names_take_and_return_names(tmp_path):
    path = tmp_path / "garden.bif"
    path.write_text(BIF)
    answer = json.loads(call(str(path), "--given", "Wet=yes", "--task", "MAR", "--json").stdout)
    assert answer["names"] == ["Rain", "Wet"] and answer["states"] == [["no", "yes"]] * 2
    assert answer["observed"] == 1
    assert np.allclose(answer["marginals"], [[0.08 / 0.26, 0.18 / 0.26], [0.0, 1.0]])
    assert "they are no, yes" in one_error_line(call(str(path), "--given", "Wet=maybe"))
    assert "the variables are Rain, Wet" in one_error_line(call(str(path), "--given", "Sun=yes"))
    assert "NAME=STATE" in call(str(path), "--given", "Wet").output


def test_variables_without_names_are_observed_by_number(graph, model):
    given = json.loads(call(model, "--task", "PR", "--json", "--given", "1=0").stdout)
    assert given["log_z"] == pytest.approx(graph.condition({1: 0}).marginals().log_z)


@pytest.fixture
def counted(tmp_path):
    """A network whose states are named by numbers from 1 on."""
    path = tmp_path / "counted.bif"
    write_bif(FactorGraph.from_cpts({"Die": [0.2, 0.3, 0.5]}, states=[["1", "2", "3"]]), path)
    return str(path)


def test_evidence_files_refer_to_states_by_number(counted, tmp_path):
    evidence = tmp_path / "one.evid"
    evidence.write_text("1 0 1")
    found = json.loads(call(counted, "--task", "MAR", "--evid", str(evidence), "--json").stdout)
    assert found["marginals"] == [[0.0, 1.0, 0.0]] and found["names"] == ["Die"]
    named = call(counted, "--task", "MAR", "--given", "Die=2", "--json")
    assert json.loads(named.stdout)["marginals"] == found["marginals"]


def test_two_states_of_one_variable_are_an_error(counted):
    for again in ("Die=3", "0=3"):
        assert "two states" in one_error_line(call(counted, "--given", "Die=2", "--given", again))
    assert call(counted, "--given", "Die=2", "--given", "Die=2").exit_code == 0
