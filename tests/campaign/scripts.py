"""Cases as programs that need the library alone."""

from __future__ import annotations

import base64
import inspect
import pprint
import re
import zlib
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset

from . import modes
from .kinds import KINDS
from .outputs import OwnProblem

IMPORTS = """\
import numpy as np
from numpy import array, inf, nan

import cliquewise as cw
from cliquewise.data import Dataset
"""

MODES = """\
import tempfile
from pathlib import Path
from typing import Any

from cliquewise.errors import UnsupportedError

"""

RECORD = """\
from cliquewise.estimators import _base
from cliquewise.solvers import get
from cliquewise.solvers.run import run

made = []


def record(problem, solver, **options):
    made.append(problem)
    return run(problem, solver, **options)


_base.run = record
"""


def literal(value: Any) -> str:
    """Python for plain data and arrays."""
    with np.printoptions(floatmode="unique", threshold=10**9, linewidth=96):
        return pprint.pformat(_plain(value), width=96, compact=True)


class _Array:
    def __init__(self, value: np.ndarray):
        self.value = value

    def __repr__(self) -> str:
        shape = "" if self.value.size else f".reshape{self.value.shape}"
        return f"array({self.value.tolist()!r}){shape}"


class _Rows:
    def __init__(self, value: Dataset):
        self.value = value

    def __repr__(self) -> str:
        d = self.value
        parts = [d.offsets.tolist(), d.indptr.tolist(), d.indices.tolist()]
        parts += [None if d.values is None else d.values.tolist(), d.n_features]
        edges = "" if d.edges is None else f", edges={_Rows(d.edges)!r}"
        return f"Dataset({', '.join(map(repr, parts))}{edges})"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _Array(value)
    if isinstance(value, Dataset):
        return _Rows(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(inner) for inner in value)
    return value


def certificate_script(case: dict[str, Any]) -> str:
    """A problem and its runs."""
    problem = case["problem"]
    kind = KINDS[problem["kind"]]
    if not kind.estimator:
        return _own_script(case)
    lines = [IMPORTS, "from cliquewise.solvers import get", ""]
    if any("before" in drawn for drawn in case["runs"]):
        lines = [IMPORTS, RECORD, ""]
    if problem["params"].get("n_jobs", 1) > 1:
        lines += ["from cliquewise.solvers.backends.chain import parallel",
                  "parts.LEAST = parts.LEAST_WORK = 1", ""]  # fmt: skip
    if any("mode" in drawn and "before" not in drawn for drawn in case["runs"]):
        lines += [MODES, inspect.getsource(modes._in_parts), "", inspect.getsource(modes.train), ""]
    lines += [f"given = {literal(kind.arguments(problem))}", ""]
    for drawn in case["runs"]:
        if "before" in drawn:
            lines += _warm_lines(kind, problem, drawn)
            continue
        lines.append(f"model = {_estimator(kind, problem, drawn)}")
        if drawn.get("mode"):
            C = problem["params"]["C"]
            lines.append(f"model = train(model, given, {literal(drawn)}, {C})")
        else:
            lines.append("model.fit(**given)")
        lines.append("print(repr(model.certificate_))")
    return "\n".join(lines)


def _solver(kind: Any, drawn: dict[str, Any]) -> str:
    if not drawn.get("options"):
        return repr(drawn["solver"])
    return f"type(get({drawn['solver']!r}, {kind.registered!r}))(**{drawn['options']!r})"


def _limits(drawn: dict[str, Any]) -> dict[str, Any]:
    return {name: drawn[name] for name in ("max_epochs", "tol", "random_state") if name in drawn}


def _estimator(kind: Any, problem: Any, drawn: dict[str, Any]) -> str:
    params = dict(problem["params"])
    if isinstance(params.get("transitions"), list):
        params["transitions"] = np.array(params["transitions"], dtype=bool)
    words = [f"solver={_solver(kind, drawn)}"]
    words += [f"{name}={literal(value)}" for name, value in (params | _limits(drawn)).items()]
    return f"cw.{kind.estimator}({', '.join(words)})"


def _warm_lines(kind: Any, problem: Any, drawn: dict[str, Any]) -> list[str]:
    before, short = drawn["before"], drawn | {"max_epochs": 3, "tol": 0.0}
    limits = ", ".join(f"{name}={value!r}" for name, value in _limits(drawn).items())
    first = ", ".join(f"{name}={value!r}" for name, value in _limits(short).items())
    lines = [
        f"other = {literal(kind.arguments(before))}",
        f"{_estimator(kind, before, short)}.fit(**other)",
        f"{_estimator(kind, problem, drawn | {'max_epochs': 0})}.fit(**given)",
        "before, now = made[-2:]",
        f"solver = get({_solver(kind, drawn)}, now.kind)",
    ]
    if drawn.get("mode") == "resume":
        lines += [
            f'run(before, solver, checkpoint="checkpoint", checkpoint_seconds=0, {first})',
            f'fit = run(now, solver, checkpoint="checkpoint", resume=True, {limits})',
            "print(repr(fit.certificate))",
        ]
    else:
        lines += [
            f"state = run(before, solver, {first}).state",
            f"print(repr(run(now, solver, warm=state, {limits}).certificate))",
        ]
    return lines


def _own_script(case: dict[str, Any]) -> str:
    kind = KINDS["examples"]
    lines = [
        IMPORTS,
        "from cliquewise.problems.examples import ExampleProblem, Rows, stacked",
        "from cliquewise.solvers import get",
        "from cliquewise.solvers.run import run",
        "\n",
        inspect.getsource(OwnProblem).replace("Iterator[tuple[str, Any]]", "object"),
        f"\nproblem = OwnProblem(**{literal(kind.arguments(case['problem']))})",
    ]
    for drawn in case["runs"]:
        limits = ", ".join(f"{name}={value!r}" for name, value in _limits(drawn).items())
        lines.append(f"solver = get({_solver(kind, drawn)}, 'examples')")
        if "before" not in drawn:
            lines.append(f"print(repr(run(problem, solver, {limits}).certificate))")
            continue
        lines += [
            f"before = OwnProblem(**{literal(kind.arguments(drawn['before']))})",
            "options = dict(max_epochs=3, tol=0.0, random_state=0)",
        ]
        if drawn.get("mode") == "resume":
            lines += [
                'run(before, solver, checkpoint="checkpoint", checkpoint_seconds=0, **options)',
                f'fit = run(problem, solver, checkpoint="checkpoint", resume=True, {limits})',
                "print(repr(fit.certificate))",
            ]
        else:
            lines += [
                "state = run(before, solver, **options).state",
                f"print(repr(run(problem, solver, warm=state, {limits}).certificate))",
            ]
    return "\n".join(lines)


def inference_script(case: dict[str, Any]) -> str:
    """A graph and the questions to it."""
    cards = case["cards"]
    factors = [
        (tuple(f["scope"]), np.array(f["table"]).reshape([cards[v] for v in f["scope"]]))
        for f in case["factors"]
    ]
    lines = [IMPORTS, f"graph = cw.FactorGraph({cards}, {literal(factors)})"]
    if case.get("evidence"):
        lines.append(
            f"graph = graph.condition({ {int(v): s for v, s in case['evidence'].items()} })"
        )
    for asked in case["asks"]:
        method, question = asked["method"], asked["question"]
        if question == "top_k":
            lines.append(f"print(repr(graph.top_k({asked['k']}, {method!r})))")
        elif question == "sample":
            lines.append(f"print(graph.sample(6, random_state={asked['seed']}, method={method!r}))")
        else:
            more = f", random_state={asked['seed']}" if method == "perturb-and-map" else ""
            lines.append(f"print(repr(graph.{question}({method!r}{more})))")
    return "\n".join(lines)


# ---- files

READ = {
    "conll": "from cliquewise.data import read_conll as read",
    "crfsuite": "from cliquewise.data import read_crfsuite as read",
    "template": "from cliquewise.data import Template\n\nread = Template.load",
    "uai": "from cliquewise import read_uai as read",
    "evidence": "from cliquewise.data.formats.uai import read_uai_evidence as read",
    "uai_map": "from cliquewise.data.formats.uai_results import read_uai_map as read",
    "uai_mar": "from cliquewise.data.formats.uai_results import read_uai_mar as read",
    "uai_pr": "from cliquewise.data.formats.uai_results import read_uai_pr as read",
    "libsvm": "from cliquewise.data.formats.libsvm import read_libsvm as read",
    "arff": "from functools import partial\n\nfrom cliquewise.data.formats.arff import read_arff"
    "\n\nread = partial(read_arff, labels=2)",
    "mulan": "from cliquewise.data.formats.arff import read_mulan_labels as read",
}


def _content(data: bytes) -> str:
    """Bytes as Python; long runs of one piece are written as products."""
    text = repr(data)
    return re.sub(r"(?<!\\)([^\\]{1,4}?)\1{40,}", _product, text) if len(text) > 500 else text


def _product(match: re.Match[str]) -> str:
    quote, piece = match.string[1], match[1]
    return f"{quote} + b{quote}{piece}{quote} * {len(match[0]) // len(piece)} + b{quote}"


def _written(name: str, data: bytes) -> str:
    return f"Path({name!r}).write_bytes({_content(data)})"


def text_script(reader: str, data: bytes) -> str:
    """A text and its reader."""
    lines = ["from pathlib import Path\n", READ[reader], "", _written("file", data)]
    lines.append('print(read("file"))')
    if reader == "template":
        lines += [
            "from cliquewise.data import Columns, TemplateEncoder\n",
            'text = Columns.from_rows([[["The", "DT"], ["dog" * 10, "NN"]], [["a" * 40, "DT"]]])',
            'print(TemplateEncoder(read("file")).fit(text).transform(text))',
        ]
    return "\n".join(lines)


def command_script(arguments: list[str], files: dict[str, bytes]) -> str:
    """A command and its files."""
    lines = ["from pathlib import Path\n", "from cliquewise.cli import main\n"]
    lines += [_written(name, data) for name, data in files.items()]
    if "model" in arguments:
        data = b"the DT B-NP\ndog NN I-NP\nbarks VB O\n\na DT B-NP\ncat NN I-NP\n\n"
        lines += [_written("train", data)]
        lines += ['main(["fit", "train", "--model", "model"], standalone_mode=False)']
    return "\n".join([*lines, f"main({arguments!r})"])


def _packed(name: str, data: bytes) -> str:
    text = base64.b85encode(zlib.compress(data, 9)).decode()
    parts = "\n".join(f"    {text[i : i + 90]!r}" for i in range(0, len(text), 90))
    return f"Path({name!r}).write_bytes(zlib.decompress(base64.b85decode(\n{parts}\n)))"


def model_script(data: bytes, X: Any, more: Any = None) -> str:
    """A model, what it is asked for, and what it goes on with."""
    lines = [
        "import base64\nimport zlib\nfrom pathlib import Path\n", IMPORTS, _packed("model", data),
        'model = cw.load("model")', f"print(model.predict({literal(X)}))", 'model.save("again")',
    ]  # fmt: skip
    if more is not None:
        lines.append(f"model.set_params(max_epochs=2).partial_fit(*{literal(more)})")
        lines.append("print(repr(model.certificate_))")
    return "\n".join(lines)


def checkpoint_script(problem: Any, drawn: Any, data: bytes) -> str:
    """A checkpoint, and the problem that goes on from it."""
    case = {"problem": problem, "runs": [drawn | {"max_epochs": 0}]}
    kind = KINDS[problem["kind"]]
    lines = ["import base64\nimport zlib\nfrom pathlib import Path\n", certificate_script(case)]
    if kind.estimator:
        lines[1] = lines[1].replace("from cliquewise.solvers import get\n", RECORD, 1)
        lines.append(f"problem = made[-1]\nsolver = get({drawn['solver']!r}, problem.kind)")
    lines += [
        _packed("checkpoint", data),
        "options = dict(max_epochs=4, tol=0.0, random_state=0)",
        'fit = run(problem, solver, checkpoint="checkpoint", resume=True, **options)',
        "print(repr(fit.certificate))",
    ]
    return "\n".join(lines)
