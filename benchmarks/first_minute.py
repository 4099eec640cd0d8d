"""The first fit and the first prediction of a new installation, with an empty cache.

``--against SRC`` runs the same with another version of the library (SRC is the folder that holds
``cliquewise``): before and after, in turns. Each run is followed by one that finds everything
compiled. Functions and processor time are those of all processes; the functions of numba's own
library are counted, too.

    python -m benchmarks.first_minute [--against SRC] [--repeats 2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import print_json, print_table

#: The first example of the README.
FIRST = """
import json, time
start = time.perf_counter()
import cliquewise as cw
X = [[["w=the"], ["w=dog"], ["w=barks"]], [["w=a"], ["w=cat"]]]
y = [["DET", "NOUN", "VERB"], ["DET", "NOUN"]]
tagger = cw.SequenceTagger(C=10, random_state=0).fit(X, y)
fitted = time.perf_counter()
tagger.predict([[["w=the"], ["w=cat"], ["w=barks"]]])
print(json.dumps({"fit": fitted - start, "predict": time.perf_counter() - fitted}))
"""
#: Python imports this at the start of every process: each writes down what it compiled.
COUNTER = """
import atexit, os, time, numba.core.event as event
class Counter(event.Listener):
    ours = all = 0
    def on_start(self, e):
        self.all += 1
        self.ours += e.data["dispatcher"].py_func.__module__.startswith("cliquewise")
    def on_end(self, e):
        pass
counter = Counter()
event.register("numba:compile", counter)
def write():
    with open(os.path.join(os.environ["COUNTS"], str(os.getpid())), "w") as file:
        file.write(f"{counter.all} {counter.ours} {time.process_time()}")
atexit.register(write)
"""


def run(source: Path, cache: Path) -> dict[str, float]:
    """Seconds and numbers of compiled functions of one new process."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts")
        counts.mkdir()
        Path(folder, "sitecustomize.py").write_text(COUNTER)
        environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | {
            "XDG_CACHE_HOME": str(cache),
            "LOCALAPPDATA": str(cache),
            "PYTHONPATH": os.pathsep.join([folder, str(source)]),
            "COUNTS": str(counts),
        }
        done = subprocess.run(
            [sys.executable, "-c", FIRST], env=environment, cwd=folder, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        result: dict[str, float] = json.loads(done.stdout)
        numbers = [list(map(float, file.read_text().split())) for file in counts.iterdir()]
    for name, column in zip(("functions", "of the library", "processor"), zip(*numbers)):
        result[name] = int(sum(column))
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--against", type=Path, help="source folder of another version")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    versions = {"this": Path(__file__).parent.parent / "src"}
    if options.against:
        versions = {"before": options.against.resolve(), **versions}
    rows, best = [], {}
    for _ in range(options.repeats):
        for name, source in versions.items():
            with tempfile.TemporaryDirectory() as cache:
                for state in ("empty", "full"):
                    result = run(source, Path(cache))
                    rows.append((name, state, *result.values()))
                    if state == "empty":
                        total = result["fit"] + result["predict"]
                        best[name] = min(best.get(name, total), total)
    columns = ["version", "cache", "fit, s", "predict, s", "functions", "of the library", "cpu, s"]
    print_table("the first fit and the first prediction", columns, rows)
    ratio = best["this"] / best["before"] if options.against else None
    print_json({"seconds": best, "ratio": ratio})


if __name__ == "__main__":
    main()
