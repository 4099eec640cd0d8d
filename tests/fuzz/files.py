"""Files: damaged texts, models and checkpoints give our own errors or sane results, and soon."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from sklearn.exceptions import NotFittedError

import cliquewise as cw
from cliquewise.cli import main
from cliquewise.data import Columns, Template, TemplateEncoder, read_conll, read_crfsuite
from cliquewise.data.formats.arff import read_arff, read_mulan_labels
from cliquewise.data.formats.libsvm import read_libsvm
from cliquewise.data.formats.uai import read_uai_evidence
from cliquewise.data.formats.uai_results import read_uai_map, read_uai_mar, read_uai_pr
from cliquewise.errors import CliquewiseError
from cliquewise.persistence import read_arrays, write_arrays
from cliquewise.solvers import get
from cliquewise.solvers.run import run

from . import certificates
from .damage import apply_damage, damaged_text, draw_damage
from .drawing import Rng, chance, pick
from .findings import Report, Trouble
from .kinds import KINDS
from .worker import unexpected

CONLL = "the DT B-NP\ndog NN I-NP\nbarks VB O\n\na DT B-NP\ncat NN I-NP\n\n"
CRFSUITE = "B\tw=the:1.5\tp=DT\nI\tw=dog\tp=NN\n\n@weight:2\nB\tw=a\nI\tw=cat\\:x\tp=NN:0.5\n\n"
TEMPLATE = (
    'U1:%x[0,0]\nU2:%x[-1,0]/%x[0,1]\nU3:%t[0,0,"^[a-z]+$"]\nU4:%m[1,0,".o?"]\nB1:%x[0,1]\nB\n'
)
UAI = "MARKOV\n3\n2 3 2\n3\n1 0\n2 0 1\n2 1 2\n2\n 0.5 1.5\n6\n 1 2 0 0.1 1e-3 4\n6\n 1 1 1 2 3 4\n"
ARFF = ("@relation 'a: -C 2'\n@attribute x numeric\n@attribute 'y z' {a,'b c'}\n"
        "@attribute l1 {0,1}\n@attribute l2 {0,1}\n@data\n1.5,a,0,1\n"
        "{0 2, 3 1}\n% note\n-1,'b c',1,1\n")  # fmt: skip
MULAN = '<labels><label name="A"/><label name="B"/></labels>'


def _template(path: Path) -> Any:
    encoder = TemplateEncoder(Template.load(path))
    text = Columns.from_rows([[["The", "DT"], ["dog" * 10, "NN"]], [["a" * 40, "DT"]]])
    return encoder.fit(text).transform(text).values


#: Every reader, with a file that it reads.
READERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "conll": (lambda path: read_conll(path).n_tokens, CONLL),
    "crfsuite": (lambda path: read_crfsuite(path).y, CRFSUITE),
    "template": (_template, TEMPLATE),
    "uai": (lambda path: cw.read_uai(path).tables, UAI),
    "evidence": (lambda path: read_uai_evidence(path), "2 0 1 2 1\n"),
    "uai_map": (lambda path: read_uai_map(path), "MAP\n3 0 2 1\n"),
    "uai_mar": (lambda path: read_uai_mar(path), "MAR\n2 2 0.25 0.75 3 0.1 0.2 0.7\n"),
    "uai_pr": (lambda path: read_uai_pr(path), "PR\n-3.25\n"),
    "libsvm": (lambda path: read_libsvm(path).X.data, "0,2 1:0.5 3:-2\n1 2:1e-3 # note\n 1:4\n"),
    "arff": (lambda path: read_arff(path, labels=2).X.data, ARFF),
    "mulan": (lambda path: read_mulan_labels(path), MULAN),
}  # fmt: skip

#: Commands, with the files that they read; a model is made for those that need one.
COMMANDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "fit": (["fit", "train", "--model", "out", "--max-epochs", "2", "--quiet"], {"train": CONLL}),
    "fit crfsuite": (
        ["fit", "train", "--format", "crfsuite", "--model", "out", "--max-epochs", "2"],
        {"train": CRFSUITE},
    ),
    "fit template": (
        ["fit", "train", "--template", "rules", "--model", "out", "--max-epochs", "2"],
        {"train": CONLL, "rules": TEMPLATE},
    ),
    "predict": (["predict", "test", "--model", "model"], {"test": CONLL}),
    "predict marginals": (["predict", "test", "--model", "model", "--marginals"], {"test": CONLL}),
    "predict top": (["predict", "test", "--model", "model", "--top-k", "3"], {"test": CONLL}),
    "evaluate": (["evaluate", "test", "--model", "model"], {"test": CONLL}),
    "infer": (["infer", "graph", "--task", "MAR"], {"graph": UAI}),
    "infer map": (
        ["infer", "graph", "--evid", "seen", "--json"],
        {"graph": UAI, "seen": "1 0 1\n"},
    ),
}
OPTIONS = (
    "--seed -1", "--encoding utf-16", "--C nan", "--C 0", "--tol -1", "--jobs 0", "--loss x",
    "--top-k 1000000000", "--n-hash -5", "--solver gdmm", "--min-count 100", "--batch 0",
    "--max-epochs 1e400", "--method milp", "--task TOPK", "--max-seconds -1", "--checkpoint .",
    "--transitions BIO", "--feature-pairs seen", "--k 1000000", "--max-memory 1e-9", "--seconds 0",
    "--out .", "--model missing", "--template missing", "--evid missing", "--tabs",
    "--checkpoint-seconds nan",
)  # fmt: skip


# ---- drawing


def draw(rng: Rng) -> dict[str, Any]:
    """A damaged text, command, model or checkpoint."""
    what = rng.random()
    if what < 0.45:
        reader = pick(rng, *READERS)
        return {"reader": reader, "text": damaged_text(rng, READERS[reader][1])}
    if what < 0.6:
        arguments, given = COMMANDS[pick(rng, *COMMANDS)]
        arguments, given = list(arguments), dict(given)
        if chance(rng, 0.7):
            name = pick(rng, *given)
            given[name] = damaged_text(rng, given[name])
        else:
            arguments += pick(rng, *OPTIONS).split()
        return {"command": arguments, "files": given}
    if what < 0.8:
        model = pick(rng, *_models())
        return {"model": model, "damage": draw_damage(rng, *_copy(_models()[model]))}
    return _draw_checkpoint(rng)


def _draw_checkpoint(rng: Rng) -> dict[str, Any]:
    for _ in range(100):
        kind = pick(rng, *(k for k in KINDS.values() if k.name != "multiclass"))
        problem = kind.draw(rng)
        problem["params"].pop("n_jobs", None)
        solvers = [s for s in certificates._solvers(kind, problem) if s != "auto"]
        if not certificates.is_ordinary(problem) or not solvers:
            continue
        drawn = {"solver": pick(rng, *solvers), "max_epochs": 2, "tol": 0.0, "random_state": 0}
        try:
            library, solver = _library(kind, problem, drawn)
            arrays, header = _checkpoint(library, solver)
        except CliquewiseError:
            continue
        header["problem"] = {}  # damage elsewhere: this part is compared as a whole
        return {"problem": problem, "run": drawn, "damage": draw_damage(rng, arrays, header)}
    raise AssertionError("no problem can be trained")


# ---- what is damaged


@cache
def _models() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Arrays and headers of small models of every kind."""
    rng, made = np.random.default_rng(0), {}
    fits = {
        "tagger": lambda: cw.SequenceTagger(max_epochs=3, random_state=0).fit(
            [[["a", "b"], ["c"]], [["a"]]], [["X", "Y"], ["Y"]]),
        "hinge tagger": lambda: cw.SequenceTagger(
            "hinge", max_epochs=3, feature_pairs="seen", transitions="seen", random_state=0
        ).fit([np.eye(3)[:2], np.eye(3)], [[0, 1], [1, 1, 0]]),
        "template tagger": lambda: cw.SequenceTagger(
            max_epochs=3, template=Template.parse(TEMPLATE), random_state=0, solver="lbfgs"
        ).fit(Columns.from_rows([[["the", "DT"], ["dog", "NN"]], [["a", "DT"]]]),
              [["X", "Y"], ["X"]]),
        "classes": lambda: cw.MulticlassClassifier(max_epochs=3, random_state=0).fit(
            rng.normal(size=(6, 2)), [0, 1, 2, 0, 1, 2]),
        "graphs": lambda: cw.GraphLabeler(max_epochs=3, random_state=0).fit(
            [(np.eye(2), [(0, 1)]), (np.eye(2), [])], [["a", "b"], ["b", "b"]]),
        "label sets": lambda: cw.MultiLabelClassifier(max_epochs=3, random_state=0).fit(
            rng.normal(size=(4, 2)), [[0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1]]),
        "matchings": lambda: cw.Matcher(max_epochs=3, random_state=0).fit(
            rng.normal(size=(2, 2, 3, 2)), [[0, 1], [2, -1]]),
        "candidates": lambda: cw.CandidateRanker(max_epochs=3, random_state=0).fit(
            rng.normal(size=(3, 4, 2)), [0, 3, 1]),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        for name, fit in fits.items():
            fit().save(path)
            made[name] = read_arrays(path)
        for name in GOING_ON:
            fits[name.removesuffix(" with a state")]().save(path, with_state=True)
            made[name] = read_arrays(path)
    return made


#: Models with the state of their training, and what they go on with.
GOING_ON: dict[str, Any] = {
    "tagger with a state": ([[["b"], ["c", "d"]]], [["Y", "X"]]),
    "hinge tagger with a state": ([np.eye(3)[1:]], [[1, 0]]),
}
#: What each model is asked for.
INPUTS: dict[str, Any] = {
    "tagger": [[["a"], ["c", "z"]], []],
    "hinge tagger": [np.eye(3)],
    "template tagger": [[["the", "DT"], ["x", "NN"]]],
    "classes": np.ones((2, 2)),
    "graphs": [(np.eye(2), [(0, 1)])],
    "label sets": np.ones((2, 2)),
    "matchings": [np.ones((2, 3, 2))],
    "candidates": [np.ones((3, 2))],
    "tagger with a state": [[["a"], ["c", "z"]], []],
    "hinge tagger with a state": [np.eye(3)],
}


def _copy(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    return dict(pair[0]), copy.deepcopy(pair[1])


def _library(kind: Any, problem: Any, drawn: Any) -> tuple[Any, Any]:
    library = certificates.fitted(kind, problem, drawn | {"max_epochs": 0})[0]
    return library, get(drawn["solver"], library.kind)


def _checkpoint(library: Any, solver: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        run(
            library,
            solver,
            checkpoint=path,
            checkpoint_seconds=0,
            max_epochs=2,
            tol=0.0,
            random_state=0,
        )
        return _copy(read_arrays(path))


# ---- checking


def check(case: dict[str, Any]) -> Report:
    """One file."""
    with tempfile.TemporaryDirectory() as folder:
        if "reader" in case:
            return Report(1, _check_text(case, Path(folder)))
        if "command" in case:
            return Report(1, _check_command(case, Path(folder)))
        if "model" in case:
            return Report(1, _check_model(case, Path(folder)))
        return Report(1, _check_checkpoint(case, Path(folder)))


def encoded(text: str) -> bytes:
    """As it lies in a file: what is no Unicode becomes no UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def _titled(title: str, trouble: Trouble | None) -> Trouble | None:
    return None if trouble is None else Trouble(f"{title}: {trouble.what}", trouble.detail)


def _check_text(case: dict[str, Any], folder: Path) -> Trouble | None:
    path = folder / "file"
    path.write_bytes(encoded(case["text"]))
    try:
        found = READERS[case["reader"]][0](path)
    except CliquewiseError:
        return None
    except Exception as error:
        return _titled(case["reader"], unexpected(error))
    for part in found if isinstance(found, list) else [found]:
        if isinstance(part, np.ndarray | float) and np.isnan(part).any():
            return Trouble(f"{case['reader']}: NaN is read", str(part))
    return None


def _check_command(case: dict[str, Any], folder: Path) -> Trouble | None:
    for name, text in case["files"].items():
        (folder / name).write_bytes(encoded(text))
    if "model" in case["command"]:
        write_arrays(folder / "model", *_command_model())
    here = os.getcwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(main, case["command"])
    finally:
        os.chdir(here)
    title = case["command"][0] if case["command"] else ""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return _titled(f"command {title}", unexpected(result.exception))
    if result.exit_code not in range(6):  # the documented codes
        return Trouble(f"command {title}: exit status {result.exit_code}", result.output)
    return None


@cache
def _command_model() -> tuple[dict[str, Any], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        text, path = Path(folder) / "train", Path(folder) / "model"
        text.write_text(CONLL)
        done = CliRunner().invoke(main, ["fit", str(text), "--model", str(path), "--quiet"])
        assert done.exit_code == 0, done.output
        return read_arrays(path)


def damaged_model(case: dict[str, Any], path: Path) -> None:
    """Write the model of a case."""
    write_arrays(path, *apply_damage(*_copy(_models()[case["model"]]), case["damage"]))


def _check_model(case: dict[str, Any], folder: Path) -> Trouble | None:
    path, title = folder / "model", f"model of {case['model']}"
    damaged_model(case, path)
    here = os.getcwd()
    os.chdir(folder)  # where a relative path in a file would lead
    try:
        model = cw.load(path)
        X = INPUTS[case["model"]]
        model.predict(X)
        for name in ("predict_proba", "predict_marginals"):
            if hasattr(model, name):
                try:
                    getattr(model, name)(X)
                except CliquewiseError:
                    continue
        model.save(folder / "again")
        if case["model"] in GOING_ON:
            return _titled(title, _went_on(model, *GOING_ON[case["model"]]))
    except (CliquewiseError, NotFittedError):
        pass
    except Exception as error:
        return _titled(title, unexpected(error))
    finally:
        os.chdir(here)
    strange = set(os.listdir(folder)) - {"model", "again"}
    return Trouble(f"{title}: it writes files", str(strange)) if strange else None


def _went_on(model: Any, X: Any, y: Any) -> Trouble | None:
    """Train on, and hold what is proved against weights of the same problem."""
    model.set_params(max_epochs=2).partial_fit(X, y)
    proof = model.certificate_
    if proof.status == "none":
        return None
    problem = model._problem(model.model_, model._record.data, None)
    best = min(problem.primal(model.coef_), problem.primal(np.zeros(problem.dimension)))
    if problem.loss == "log":
        solver = get("owlqn" if problem.l1_ratio else "lbfgs", "chain")
        best = min(best, run(problem, solver, tol=0.0, max_epochs=60).certificate.primal)
    if proof.dual > best + 1e-12 * (1 + abs(best)):
        return Trouble("the dual is above the optimum", f"{proof!r}; some weights reach {best!r}")
    return None


def damaged_checkpoint(case: dict[str, Any], path: Path) -> tuple[Any, Any]:
    """Write the checkpoint of a case; the problem and the solver that it is of."""
    kind = KINDS[case["problem"]["kind"]]
    library, solver = _library(kind, case["problem"], case["run"])
    arrays, header = _checkpoint(library, solver)
    write_arrays(path, *apply_damage(arrays, header, case["damage"]))
    return library, solver


def _check_checkpoint(case: dict[str, Any], folder: Path) -> Trouble | None:
    path, problem = folder / "checkpoint", case["problem"]
    kind = KINDS[problem["kind"]]
    title = f"checkpoint of {case['run']['solver']} on {problem['kind']}"
    library, solver = damaged_checkpoint(case, path)
    try:
        fit = run(
            library, solver, checkpoint=path, resume=True, max_epochs=4, tol=0.0, random_state=0
        )
    except CliquewiseError:
        return None
    except Exception as error:
        return _titled(title, unexpected(error))
    objective = kind.objective(problem)
    objective.minimize()
    return _titled(title, certificates._judge(objective, library, fit, kind, problem))
