"""The architecture of DESIGN.md, checked on the source: imports point one way, functions are short.

Imports inside functions count. Every exception is listed here with its reason, and an entry that
is no longer needed fails, so that the lists only get shorter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"

#: Layers from the bottom up: a module may import its own layer and those before it. Modules at the
#: top of the package are listed by name.
LAYERS = (
    ("_kernels",),
    (
        "_lazy",
        "errors",
        "deprecation",
        "atomic_files",
        "ragged",
        "tables",
        "certificate",
        "trace",
        "persistence",
        "report",
    ),
    ("graph", "hypergraph"),
    ("data", "smoothers", "output_metrics", "metrics"),
    ("models",),
    ("oracles",),
    ("problems",),
    ("solvers",),
    ("estimators",),
    ("cli", "distributed", "plot", "spacy"),
    ("torch", "__main__"),
)
RANK = {package: rank for rank, packages in enumerate(LAYERS) for package in packages}

#: The one edge that may point back.
FACADE = ("cliquewise.graph.factor_graph", "cliquewise.oracles.planner")
FACADE_REASON = "FactorGraph.map() and its other inference methods call the planner"

MOST_LINES, MOST_PARAMETERS = 80, 12
#: "module.function" of longer functions, and of those with more parameters.
LONG: dict[str, str] = {}
MANY_PARAMETERS: dict[str, str] = {
    "oracles.barrier_fw.BarrierFW.marginals": "options of users, all named",
    **dict.fromkeys(
        (
            "torch._triton_decode.viterbi",
            "torch._triton_kernels._exponentiate",
            "torch._triton_kernels._finish",
            "torch._triton_kernels._gold",
            "torch._triton_kernels._scaled_pass",
            "torch._triton_kernels.finish",
            "torch._triton_kernels.scan",
            "torch._triton_log._log_pass",
            "torch._triton_ragged.gather_sums",
            "torch._triton_ragged.ragged_logs",
            "torch._triton_ragged.ragged_scan",
            "torch._triton_ragged.token_sums",
            "torch._triton_sums.weighted_sums",
            "torch._triton_vectors.measure",
        ),
        "Triton kernels take pointers and strides one by one",
    ),
    "torch.estimator.StructuredClassifier.__init__": "parameters of an estimator, all named",
    "solvers.run.run": "options of a run, all named",
}


# ---- the source


@cache
def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.with_suffix("").relative_to(SOURCE).parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from nodes(child)


@cache
def imports() -> frozenset[tuple[str, str]]:
    """Pairs of a module and one that it imports, lazily or not."""
    edges = set()
    for name, tree in modules().items():
        for node in nodes(tree):
            targets = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name}: imports are absolute"
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [t if t in modules() else str(node.module) for t in inside]
            edges |= {(name, t) for t in targets if t in modules() and t != name}
    return frozenset(edges)


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for name, tree in modules().items():
        stack = [(name, child) for child in ast.iter_child_nodes(tree)]
        while stack:
            path, node = stack.pop()
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                path = f"{path}.{node.name}"
                if isinstance(node, ast.FunctionDef):
                    yield path.removeprefix("cliquewise."), node
            stack += [(path, child) for child in ast.iter_child_nodes(node)]


# ---- imports


def points_back(edge: tuple[str, str]) -> bool:
    one, other = room(edge[0]), room(edge[1])
    return bool(one and other) and RANK[one] < RANK[other]


def circles(edges: frozenset[tuple[str, str]]) -> list[set[str]]:
    """Sets of modules each of which reaches all others of its set."""
    reach = {m: {b for a, b in edges if a == m} for m in modules()}
    grows = True
    while grows:
        grows = False
        for seen in reach.values():
            more = set().union(*(reach[x] for x in seen)) - seen
            seen |= more
            grows = grows or bool(more)
    found = []
    for m in modules():
        circle = {m} | {x for x in reach[m] if m in reach[x]}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def test_every_module_is_in_a_room() -> None:
    assert {room(m) for m in modules()} <= set(RANK) | {""}


def test_imports_point_one_way() -> None:
    back = {edge for edge in imports() if points_back(edge)}
    assert back == {FACADE}, FACADE_REASON


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(imports() - {FACADE}) == []


def test_kernels_know_nobody() -> None:
    outside = {e for e in imports() if room(e[0]) == "_kernels" and room(e[1]) != "_kernels"}
    assert outside == set()


# ---- functions


def lines(node: ast.FunctionDef) -> int:
    """Lines of code, without decorators and the docstring."""
    body = node.body
    if ast.get_docstring(node) is not None:
        body = body[1:]
    if not body:
        return 0
    signature = node.body[0].lineno - node.lineno
    return int(body[-1].end_lineno or 0) - body[0].lineno + 1 + signature


def parameters(node: ast.FunctionDef) -> int:
    a = node.args
    return len(a.posonlyargs) + len(a.args) + len(a.kwonlyargs)


def check(found: set[str], allowed: dict[str, str], what: str) -> None:
    assert found <= set(allowed), f"{what}: {sorted(found - set(allowed))}"
    assert set(allowed) <= found, f"no longer needed: {sorted(set(allowed) - found)}"
    assert all(len(reason) > 10 for reason in allowed.values())


def test_functions_fit_on_a_screen() -> None:
    check({n for n, f in functions() if lines(f) > MOST_LINES}, LONG, "too long")


def test_functions_have_few_parameters() -> None:
    many = {n for n, f in functions() if parameters(f) > MOST_PARAMETERS}
    check(many, MANY_PARAMETERS, "too many parameters")


def test_nobody_asks_a_problem_what_it_has() -> None:
    """A problem has a type: what a solver needs to know are plain attributes."""
    asking = {
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        for node in nodes(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and ast.unparse(node.args[0]).split(".")[-1] == "problem"
    }
    assert asking == set()


def test_kernels_give_no_named_tuples_to_python() -> None:
    """Numba makes them by calling Python: an interrupt at that moment is a segmentation fault."""
    made = {
        f"{name}.{function.name}"
        for name, tree in modules().items()
        if "._kernels." in name
        for function in nodes(tree)
        if isinstance(function, ast.FunctionDef) and not function.name.startswith("_")
        if any(ast.unparse(d) == "kernel" for d in function.decorator_list)
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func)[:1].isupper()
    }
    assert made == set()
