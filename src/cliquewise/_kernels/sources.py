"""Hashes of kernel modules, which name the folders of their compiled code."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

#: The folder of the kernel sources.
ROOT = Path(__file__).parent
_IMPORT = re.compile(r"^\s*from cliquewise\._kernels([\w.]*) import (\([^)]*\)|[^\n]*)", re.M)
#: Modules that decide when and where kernels are compiled, but not what their code is.
_NO_CODE = {"cache", "cache_dir", "clock", "compile_lock", "dispatcher", "sources"}


@cache
def _sources() -> dict[str, str]:
    """Return the source of every kernel module by its dotted name below ``_kernels``."""
    names = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name not in _NO_CODE:
            names[name] = path.read_text("utf-8")
    return names


@cache
def _imports(module: str) -> frozenset[str]:
    """Return the kernel modules that a module imports directly."""
    found = set()
    for package, names in _IMPORT.findall(_sources()[module]):
        package = package.lstrip(".")
        for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|\)|$)", names):
            inner = f"{package}.{name}" if package else name
            found.add(inner if inner in _sources() else package)
    return frozenset(found & _sources().keys())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def code_hash(source: str) -> str:
    """Hash the code of a module: without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                del node.body[0]
    return _hash(ast.dump(tree))


class _Hashes:
    """Code hashes by source hash, kept in a file: parsing all modules takes 0.4 s."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "hashes.json"
        self._known: dict[str, str] = {}
        if self._path is not None:
            with suppress(OSError, ValueError):
                known = json.loads(self._path.read_text("utf-8"))
                self._known = known if isinstance(known, dict) else {}

    def of(self, source: str) -> str:
        """Return the code hash of a source."""
        key = _hash(source)
        if key not in self._known:
            self._known[key] = code_hash(source)
            self._save()
        return self._known[key]

    def _save(self) -> None:
        if self._path is None:
            return
        part = self._path.with_suffix(f".{os.getpid()}")
        try:
            part.write_text(json.dumps(self._known), "utf-8")
            part.replace(self._path)
        except OSError:  # read-only or full: the hashes are computed again in the next process
            with suppress(OSError):
                part.unlink()
            self._path = None


@cache
def _hashes(folder: Path | None) -> _Hashes:
    return _Hashes(folder)


@cache
def source_digest(module: str, folder: Path | None = None) -> str:
    """Return a hash of a kernel module and of all kernel modules that it depends on.

    Compiled code is reused as long as the code of these modules is the same, wherever they are
    installed. Comments and docstrings may change.

    Parameters
    ----------
    module : str
        Dotted name below ``_kernels``.
    folder : Path, optional
        Where hashes of sources are kept.
    """
    needed, new = set[str](), {module, ""}
    while new:
        needed |= new
        new = set().union(*map(_imports, new)) - needed
    hashes = _hashes(folder)
    return _hash("\0".join(f"{name}\0{hashes.of(_sources()[name])}" for name in sorted(needed)))


def digest_of_all(folder: Path | None = None) -> str:
    """Return a hash of all kernel modules."""
    return _hash("".join(source_digest(name, folder) for name in sorted(_sources())))
