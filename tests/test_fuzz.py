"""The fuzzer finds planted faults: a false dual, a wrong marginal, a foreign error, a crash."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz import PARTS, certificates, files, inference, operations, rows
from fuzz.__main__ import Result, main, run_part, table
from fuzz.faults import FAULTS, SOURCE, Fault
from fuzz.findings import Finding, Trouble, shrink
from fuzz.worker import Worker, examined
from scipy.sparse import csr_array

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


# ---- what is planted is found


def test_false_dual_is_found_and_its_problem_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(
        Subgradient, "certify", lambda *a: replace(certify(*a), primal=1.01 * certify(*a).primal)
    )
    assert "the primal is not the objective" in trouble_of(certificates, CANDIDATES).what


def test_random_options_are_accepted_together_by_the_solver() -> None:
    kind = certificates.KINDS["candidates"]
    for seed in range(300):
        rng = np.random.default_rng(seed)
        drawn = certificates._draw_run(rng, kind.draw(rng), "casimir", kind)
        certificates._solver_of(kind, drawn)


def test_wrong_marginal_is_found_and_its_graph_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_unexpected_error_of_a_reader_is_found_and_its_text_made_small(
    monkeypatch: pytest.MonkeyPatch,
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


def test_crashes_and_endless_loops_end_the_worker_but_not_the_fuzzer(
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
        assert worker.check("files", {"reader": "uai_pr", "text": "PR\n1\n"}, 120.0).trouble is None
    finally:
        worker.close()


def test_command_prints_findings_and_table_and_replays_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "draw", lambda rng: {"reader": "uai_pr", "text": "PR\n-1.5\n"})
    read = files.READERS["uai_pr"]
    assert main(["--minutes", "0.01", "--only", "files", "--seed", "5"]) == 0
    assert "fuzz with --seed 5" in capsys.readouterr().out

    def careless(path: Any) -> Any:
        raise KeyError(path.name)

    monkeypatch.setitem(files.READERS, "uai_pr", (careless, read[1]))
    assert main(["--minutes", "0.01", "--only", "files"]) == 1
    printed = capsys.readouterr().out
    assert "# files, case 0: uai_pr: the fuzzer itself failed with KeyError" in printed
    (tmp_path / "found").write_text(printed)
    assert main(["--replay", str(tmp_path / "found")]) == 1
    monkeypatch.setitem(files.READERS, "uai_pr", read)
    line = '{"part": "files", "case": {"reader": "uai_pr", "text": "PR\\n-1.5\\n"}}'
    (tmp_path / "found").write_text(line)
    assert main(["--replay", str(tmp_path / "found")]) == 0


def test_fuzzer_stops_at_the_first_finding_if_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "draw", lambda rng: {"reader": "none", "text": ""})
    result = run_part("files", 1, 60.0, until_finding=True)
    assert result.cases == 1 and len(result.seen) == 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_piece_that_a_fault_replaces_occurs_once(fault: Fault) -> None:
    assert (SOURCE / fault.file).read_text("utf-8").count(fault.old) == 1
    assert fault.part in PARTS and fault.old != fault.new


@pytest.mark.parametrize("seed", range(12))
def test_random_operations_on_a_tagger_keep_what_must_be_true(seed: int) -> None:
    case = operations.draw(np.random.default_rng(seed))
    assert examined(operations, case).trouble is None


def test_operations_find_a_warm_start_that_writes_to_its_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cliquewise.estimators.tagger import incremental

    case = {
        "form": "dicts",
        "params": {"intercept": False, "boundary_weights": False, "tol": 1e-6, "random_state": 0},
        "operations": [{"do": "fit", "examples": [
            {"tokens": [{"x": [["f", 0.0], ["g", 1.0]], "y": "a"}, {"x": [["g", 1.0]], "y": "b"}]},
            {"tokens": [{"x": [["f", 1.0]], "y": "b"}]},
        ]}, {"do": "warm fit"}],
    }  # fmt: skip
    assert examined(operations, case).trouble is None
    monkeypatch.setattr(incremental, "csr_array", lambda *a, copy, **k: csr_array(*a, **k))
    assert examined(operations, case).trouble is not None


def test_rows_find_a_marginal_that_is_slightly_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    case = rows.draw(np.random.default_rng(0))
    assert examined(rows, case).trouble is None
    marginals = rows.LabelRows.marginals

    def wrong(self: Any, *given: Any) -> Any:
        log_z, found, sums = marginals(self, *given)
        return log_z, found + 1e-6, sums

    monkeypatch.setattr(rows.LabelRows, "marginals", wrong)
    assert trouble_of(rows, case).what == "wrong marginals"


# ---- its parts


def test_same_seed_draws_the_same_cases() -> None:
    for module in (operations, certificates, inference, rows, files):
        one, two, other = (module.draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert repr(one) == repr(two) != repr(other)


def test_references_agree_with_the_library() -> None:
    # Kinds whose kernels are few; the fuzzer itself tries the others.
    for kind in ("candidates", "matching", "examples"):
        case = {"problem": certificates.KINDS[kind].draw(np.random.default_rng(3))}
        case["runs"] = [{"solver": "bcfw", "max_epochs": 20, "tol": 1e-6, "random_state": 0}]
        assert examined(certificates, case).trouble is None


def test_shrinking_keeps_the_relevant_part_of_plain_data() -> None:
    case = {"a": [3.14159, {"b": "xyzzy"}, 7], "c": list(range(100)), "d": True}
    assert shrink(case, lambda c: 42 in c.get("c", []), 5.0) == {"c": [42]}
    assert shrink(case, lambda c: "3.1" in repr(c.get("a")), 5.0) == {"a": [3.1]}


def test_part_counts_cases_and_reports_every_trouble_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "draw", lambda rng: {"reader": "none", "text": ""})
    result = run_part("files", 1, 0.5)
    assert result.cases > 1 and len(result.findings) == 1
    assert list(result.seen.values()) == [result.cases]
    assert f"{result.cases} x files" in table([result, Result("inference")])
    assert set(PARTS) >= {"operations", "certificates", "inference", "files", "interrupts"}


def test_finding_is_a_line_of_json_after_a_comment() -> None:
    finding = Finding("files", 3, Trouble("KeyError", "line 1\nline 2"), {"a": [1]})
    head = "# files, case 3: KeyError\n# line 1\n# line 2\n"
    assert str(finding) == head + '{"part": "files", "case": {"a": [1]}}\n'
