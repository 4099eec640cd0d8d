"""Dual distributions in files, of which one part at a time is mapped into memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.atomic_files import replace_file
from cliquewise.errors import DataError
from cliquewise.problems.fingerprint import Fingerprint, listed
from cliquewise.problems.shards import ShardedChainProblem
from cliquewise.ragged import Floats, offsets_of

FOLDER, OWNER = "duals", "problem.json"
#: The files.
NAMES = ("theta", "theta_edges", "mu", "mu_edges", "log_z", "gaps")


class DualStore:
    """The files of the dual distributions of a problem, in a folder beside its data."""

    def __init__(self, problem: ShardedChainProblem):
        self.problem, self.folder = problem, problem.cache.folder / FOLDER
        self.folder.mkdir(exist_ok=True)
        links = np.maximum(np.diff(problem.cache.offsets) - 1, 0)
        tables = links if problem.has_pair_attributes else np.minimum(links, 1)
        self._tables = offsets_of(tables)
        k, tokens, n = problem.model.n_labels, problem.cache.n_tokens, problem.n_examples
        shapes = {"theta": (tokens, k), "theta_edges": (int(self._tables[-1]), k, k)}
        self._shapes: dict[str, tuple[int, ...]] = {
            **shapes, "mu": shapes["theta"], "mu_edges": shapes["theta_edges"],
            "log_z": (n,), "gaps": (n,),
        }  # fmt: skip

    def _size(self, name: str) -> int:
        return 8 * int(np.prod(self._shapes[name]))

    @property
    def found(self) -> bool:
        """Whether there are distributions of this problem; those of another one are refused."""
        path = self.folder / OWNER
        if not path.exists():
            return False
        try:
            owner = Fingerprint.from_header(json.loads(path.read_text("utf-8")))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataError(f"{path} is damaged; fit with resume=False") from None
        differences = [d for d in owner.differences(self.problem.fingerprint()) if d != "C"]
        if differences or owner.n_examples != self.problem.n_examples:
            raise DataError(
                f"the dual variables in {self.folder} are of another problem: "
                f"{listed(differences or ['features'])} differ; fit with resume=False to begin anew"
            )
        short = [f for f in self._shapes if _length(self.folder / f) != self._size(f)]
        if short:
            raise DataError(
                f"{self.folder / short[0]} has not the size that it should have; fit with "
                "resume=False to begin anew"
            )
        return True

    def begin(self) -> None:
        """Files of zeros, which take their room as they are written to."""
        (self.folder / OWNER).unlink(missing_ok=True)
        there = sum(_length(self.folder / name) for name in self._shapes)
        needed = sum(map(self._size, self._shapes))
        self.problem.cache.check_disk(needed - there, "the dual variables")
        for name in self._shapes:
            with open(self.folder / name, "ab") as file:
                file.truncate(0)
                file.truncate(self._size(name))
        header = json.dumps(self.problem.fingerprint().to_header())
        replace_file(self.folder / OWNER, header.encode())

    def _map(self, name: str, first: int, last: int) -> Any:
        shape = (last - first, *self._shapes[name][1:])
        if 0 in shape:
            return np.zeros(shape)
        offset = 8 * first * int(np.prod(shape[1:], dtype=np.int64))
        path = self.folder / name
        return np.asarray(np.memmap(path, np.float64, "r+", offset, shape))

    def gaps(self) -> Floats:
        """Of all examples."""
        return self._map("gaps", 0, self.problem.n_examples)  # type: ignore[no-any-return]

    def part(self, part: int) -> Any:
        """The distributions of one part, as the kernels take them; changes go to the files."""
        a, b = self.problem.cuts_at[part : part + 2].tolist()
        return self._duals([self._map(name, *self._rows(name, a, b)) for name in NAMES], [(a, b)])

    def read(self, ranges: list[tuple[int, int]]) -> Any:
        """The distributions of the examples of some ranges, in memory."""
        return self._duals(
            [
                np.concatenate([self._map(name, *self._rows(name, a, b)) for a, b in ranges])
                for name in NAMES
            ],
            ranges,
        )

    def write(self, ranges: list[tuple[int, int]], duals: Any) -> None:
        """Back to the files from :meth:`read`."""
        for name in NAMES:
            done, source = 0, getattr(duals, name)
            for a, b in ranges:
                first, last = self._rows(name, a, b)
                target = self._map(name, first, last)
                target[:] = source[done : done + last - first]
                done += last - first

    def _rows(self, name: str, a: int, b: int) -> tuple[int, int]:
        """Where the examples ``a : b`` lie in a file."""
        if name.endswith("edges"):
            return int(self._tables[a]), int(self._tables[b])
        if name in ("theta", "mu"):
            return int(self.problem.cache.offsets[a]), int(self.problem.cache.offsets[b])
        return a, b

    def _duals(self, arrays: list[Any], ranges: list[tuple[int, int]]) -> Any:
        from cliquewise._kernels.chain.sdca import Duals

        tables = np.concatenate([np.diff(self._tables[a : b + 1]) for a, b in ranges])
        rows = np.where(tables > 0, np.cumsum(tables) - tables, -1)
        return Duals._make([*arrays, np.empty(0), rows])


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
