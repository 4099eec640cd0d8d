"""Triton kernels are compiled on a GPU alone; that their calls fit is seen without one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cliquewise

FILES = sorted((Path(cliquewise.__file__).parent / "torch").glob("_triton_*.py"))


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    """The functions that a file has, and those that it imports from the others, by name."""
    tree, found = ast.parse(path.read_text()), {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and "_triton_" in str(node.module):
            theirs = functions(path.with_name(f"{str(node.module).split('.')[-1]}.py"))
            found |= {a.asname or a.name: theirs[a.name] for a in node.names if a.name in theirs}
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = node
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kernels_call_each_other_with_all_of_their_arguments(path):
    known = functions(path)
    calls = [c for c in ast.walk(ast.parse(path.read_text())) if isinstance(c, ast.Call)]
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id in known:
            wanted = [a.arg for a in known[call.func.id].args.args]
            given = [*wanted[: len(call.args)], *(str(k.arg) for k in call.keywords)]
            assert len(call.args) <= len(wanted), f"line {call.lineno}: too many"
            assert sorted(given) == sorted(wanted), f"line {call.lineno}: {call.func.id}"
