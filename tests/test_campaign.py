"""The campaign finds what is planted: a false dual, a wrong marginal, a foreign error, a crash."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from campaign import PARTS, certificates, files, inference
from campaign.__main__ import Result, main, run_part, table
from campaign.findings import Finding, Trouble, shrink
from campaign.modes import MODES
from campaign.worker import Worker, examined

from cliquewise.certificate import Certificate
from cliquewise.oracles.junction_tree import JunctionTree
from cliquewise.solvers.subgradient import Subgradient

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

CANDIDATES: dict[str, Any] = {
    "problem": {
        "kind": "candidates",
        "width": 2,
        "params": {"C": 1.0, "loss": "hinge"},
        "examples": [
            {"candidates": [{"x": {"0": 1.25}}, {"x": {"1": -0.5}}, {"x": {}}], "y": 0},
            {"candidates": [{"x": {"0": 0.75, "1": 2.0}}, {"x": {"0": -1.5}}], "y": 1,
             "weight": 0.3},
        ],
    },
    "runs": [{"solver": "subgradient", "max_epochs": 1, "tol": 0.0, "random_state": 0}],
}  # fmt: skip
GRAPH: dict[str, Any] = {
    "cards": [2, 2, 2],
    "factors": [{"scope": [0, 1], "table": [0.5, 0.25, -1.0, 2.0]},
                {"scope": [1, 2], "table": [0.0, 1.5, 0.0, 0.0]},
                {"scope": [0, 2], "table": [0.3, 0.0, 0.0, 0.1]}],
    "asks": [{"method": "junction-tree", "question": "marginals"},
             {"method": "junction-tree", "question": "map"}],
}  # fmt: skip


def trouble_of(module: Any, case: Any) -> Trouble:
    found = examined(module, case).trouble
    assert found is not None
    return found


def shrunk(module: Any, case: Any) -> Any:
    what = trouble_of(module, case).what

    def fails(smaller: Any) -> bool:
        found = examined(module, smaller).trouble
        return found is not None and found.what == what

    return shrink(case, fails, 20.0)


def runs(program: str, folder: Any) -> str:
    """What a printed program says."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- what is planted is found


def test_a_false_dual_is_found_and_its_problem_made_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    assert examined(certificates, CANDIDATES).trouble is None
    certify = Subgradient.certify

    def proud(self: Any, problem: Any, state: Any) -> Certificate:
        proof = certify(self, problem, state)
        return replace(proof, dual=0.99 * proof.primal)

    monkeypatch.setattr(Subgradient, "certify", proud)
    found = trouble_of(certificates, CANDIDATES)
    assert found.what == "subgradient on candidates hinge: the dual is above the optimum"
    small = shrunk(certificates, CANDIDATES)
    assert len(small["problem"]["examples"]) == 1
    assert "Certificate(primal=" in runs(certificates.script(small), tmp_path)
    monkeypatch.setattr(
        Subgradient, "certify", lambda *a: replace(certify(*a), primal=1.01 * certify(*a).primal)
    )
    assert "the primal is not the objective" in trouble_of(certificates, CANDIDATES).what


def test_options_are_drawn_that_a_solver_takes_together() -> None:
    kind = certificates.KINDS["candidates"]
    for seed in range(300):
        rng = np.random.default_rng(seed)
        drawn = certificates._draw_run(rng, kind.draw(rng), "casimir", kind)
        certificates._solver_of(kind, drawn)


def test_a_wrong_marginal_is_found_and_its_graph_made_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    assert examined(inference, GRAPH).trouble is None
    marginals = JunctionTree.marginals

    def wrong(self: Any, graph: Any, **options: Any) -> Any:
        found = marginals(self, graph, **options)
        if found.nodes.flat.size > 1:
            found.nodes.flat[:2] = found.nodes.flat[:2][::-1].copy()
        return found

    monkeypatch.setattr(JunctionTree, "marginals", wrong)
    found = trouble_of(inference, GRAPH)
    assert found.what == "marginals by junction-tree: wrong marginals though exact"
    small = shrunk(inference, GRAPH)
    assert len(small["asks"]) == 1 and len(small["factors"]) == 1
    assert "MarginalResult" in runs(inference.script(small), tmp_path)


def test_a_foreign_error_of_a_reader_is_found_and_its_text_made_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    read, text = files.READERS["libsvm"]

    def careless(path: Any) -> Any:
        if b"7:" in path.read_bytes():
            raise KeyError("7")
        return read(path)

    monkeypatch.setitem(files.READERS, "libsvm", (careless, text))
    assert examined(files, {"reader": "libsvm", "text": text}).trouble is None
    case = {"reader": "libsvm", "text": f"{text}0,1 3:1.5 7:2\n1 2:1\n"}
    assert "KeyError" in trouble_of(files, case).what
    small = shrunk(files, case)
    assert small == {"reader": "libsvm", "text": "7:"}
    with pytest.raises(AssertionError, match="is not index:value"):
        runs(files.script(small), tmp_path)


def test_crashes_and_endless_loops_end_the_worker_and_not_the_campaign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fatal(path: Any) -> Any:
        if "loop" in path.read_text():
            time.sleep(60)
        if "read" in path.read_text():
            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGBUS)

    monkeypatch.setitem(files.READERS, "uai", (fatal, ""))
    worker = Worker()
    try:
        for text, seconds, what in (
            ("bus", 10.0, "crash: SIGBUS"),
            ("read 0", 10.0, "crash: SIGSEGV"),
            ("loop", 1.0, "hang"),
        ):
            found = worker.check("files", {"reader": "uai", "text": text}, seconds).trouble
            assert found is not None and found.what == what
        assert worker.check("files", {"reader": "uai_pr", "text": "PR\n1\n"}).trouble is None
    finally:
        worker.close()


def test_the_command_prints_seed_findings_and_table_and_exits_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "draw", lambda rng: {"reader": "uai_pr", "text": "PR\n-1.5\n"})
    read = files.READERS["uai_pr"]
    assert main(["--minutes", "0.01", "--only", "files", "--seed", "5"]) == 0
    assert "campaign with --seed 5" in capsys.readouterr().out

    def careless(path: Any) -> Any:
        raise KeyError(path.name)

    monkeypatch.setitem(files.READERS, "uai_pr", (careless, read[1]))
    assert main(["--minutes", "0.01", "--only", "files"]) == 1
    said = capsys.readouterr().out
    assert "# files, case 0: uai_pr: the campaign itself failed with KeyError" in said
    assert "import read_uai_pr as read" in said and "cases" in said


# ---- its parts


def test_the_same_seed_draws_the_same_cases() -> None:
    for module in (certificates, inference, files):
        one, two, other = (module.draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert repr(one) == repr(two) != repr(other)


def test_the_references_agree_with_the_library_where_nothing_is_planted() -> None:
    # Kinds whose kernels are few; the campaign itself tries the others.
    for kind in ("candidates", "matching", "examples"):
        case = {"problem": certificates.KINDS[kind].draw(np.random.default_rng(3))}
        case["runs"] = [{"solver": "bcfw", "max_epochs": 20, "tol": 1e-6, "random_state": 0}]
        assert examined(certificates, case).trouble is None


def test_elastic_nets_and_all_ways_to_a_tagger_are_drawn_and_written_as_programs() -> None:
    case = {"problem": certificates.KINDS["candidates"].draw(np.random.default_rng(3))}
    case["problem"]["params"] |= {"loss": "log", "l1_ratio": 0.5, "C": 2.0}
    case["runs"] = [{"solver": "owlqn", "max_epochs": 99, "tol": 1e-9, "random_state": 0}]
    assert examined(certificates, case).trouble is None
    kind, seen = certificates.KINDS["chain"], set()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        problem = kind.draw(rng)
        drawn = certificates._draw_run(rng, problem, "auto", kind)
        params = problem["params"]
        seen |= {drawn.get("mode"), params["loss"], *params, *drawn.get("first", {})}
        if drawn.get("mode") in MODES:
            compile(certificates.script({"problem": problem, "runs": [drawn]}), "script", "exec")
    assert seen >= {*MODES, "l1_ratio", "cost", "pseudo_likelihood", "softmax_margin", "solver"}


def test_shrinking_keeps_what_matters_of_any_plain_data() -> None:
    case = {"a": [3.14159, {"b": "xyzzy"}, 7], "c": list(range(100)), "d": True}
    assert shrink(case, lambda c: 42 in c.get("c", []), 5.0) == {"c": [42]}
    assert shrink(case, lambda c: "3.1" in repr(c.get("a")), 5.0) == {"a": [3.1]}


def test_a_part_counts_cases_and_tells_every_trouble_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "draw", lambda rng: {"reader": "none", "text": ""})
    result = run_part("files", 1, 0.5)
    assert result.cases > 1 and len(result.findings) == 1
    assert list(result.seen.values()) == [result.cases]
    assert f"{result.cases} x files" in table([result, Result("inference")])
    assert set(PARTS) >= {"certificates", "inference", "files", "interrupts"}


def test_a_finding_is_a_program_with_its_story_as_a_comment() -> None:
    finding = Finding("files", 3, Trouble("KeyError", "line 1\nline 2"), {}, "print(1)\n")
    assert str(finding) == "# files, case 3: KeyError\n# line 1\n# line 2\nprint(1)\n"
