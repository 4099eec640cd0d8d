"""Pair rules (``B1:%x[0,1]``) on CoNLL-2000: sdca beside lbfgs, and CRFsuite without such rules.

    python -m benchmarks.pair_rules --data DIR [--sentences N] [--seconds LIMIT]

All get the same attributes of tokens and the same penalty (C = 1, CRFsuite's ``c2 = 0.5``). Ours
train to a proved relative gap of 1e-3, or until the limit; CRFsuite, which knows no attributes of
pairs, until its objective is within 1e-3 of the best that it finds.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common import print_json, print_table

TOKENS = "".join(
    f"U{number}:{rule}\n"
    for number, rule in enumerate(
        ["%x[-1,0]", "%x[0,0]", "%x[1,0]", "%x[-1,1]", "%x[0,1]", "%x[1,1]", "%x[-1,1]/%x[0,1]"]
    )
)
PAIRS = TOKENS + "B\nB1:%x[0,1]\n"
TOL = 1e-3


def train(X: Any, y: Any, solver: str, seconds: float) -> dict[str, Any]:
    """CPU seconds to the gap, or the gap that the limit leaves."""
    from cliquewise import SequenceTagger
    from cliquewise.data import Template

    tagger = SequenceTagger(
        template=Template.parse(PAIRS), solver=solver, tol=TOL, max_seconds=seconds,
        max_epochs=1000, random_state=0,
    )  # fmt: skip
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger.fit(X, y)
    used, c = time.process_time() - begin, tagger.certificate_
    return {"who": f"cliquewise {solver} ({tagger.solver_})", "seconds": used, "gap": c.gap,
            "epochs": float(tagger.n_iter_)}  # fmt: skip


def train_peer(X: Any, y: Any) -> dict[str, Any]:
    """CPU seconds of CRFsuite's L-BFGS, without attributes of pairs."""
    import pycrfsuite

    from cliquewise.data import Template, TemplateEncoder

    encoder = TemplateEncoder(Template.parse(TOKENS))
    data = encoder.fit_transform(X)
    names = encoder.vocabulary
    words = [names[j] for j in data.indices.tolist()]
    ends, marks = data.indptr.tolist(), data.offsets.tolist()
    tokens = [words[a:b] for a, b in pairwise(ends)]

    class Recorder(pycrfsuite.BaseTrainer):
        curve: list[tuple[float, float]] = []  # noqa: RUF012

        def message(self, message: str) -> None:
            if found := re.match(r"Loss: ([-+.\deinf]+)", message):
                self.curve.append((time.process_time() - begin, float(found.group(1))))

    trainer = Recorder()
    for a, b, labels in zip(marks[:-1], marks[1:], y, strict=True):
        trainer.append(tokens[a:b], labels)
    trainer.set_params({"c2": 0.5, "feature.possible_transitions": True,
                        "feature.possible_states": True, "max_iterations": 300})  # fmt: skip
    begin = time.process_time()
    with tempfile.NamedTemporaryFile(suffix=".crfsuite") as file:
        trainer.train(file.name)
    best = min(value for _, value in trainer.curve)
    step, at = next(
        (k, t) for k, (t, value) in enumerate(trainer.curve, 1) if value <= (1 + TOL) * best
    )
    return {
        "who": "CRFsuite lbfgs, no pair rules",
        "seconds": at,
        "gap": TOL,
        "epochs": float(step),
    }


def main() -> None:
    """Run all and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("CLIQUEWISE_DATA"))
    parser.add_argument("--sentences", type=int, default=8936)
    parser.add_argument("--seconds", type=float, default=300.0)
    args = parser.parse_args()
    if not args.data:
        parser.error("give --data or set CLIQUEWISE_DATA")
    from cliquewise.data import Columns, read_conll

    text, y = read_conll(Path(args.data) / "conll2000" / "train.txt.gz").split_labels()
    y = y[: args.sentences]
    end = int(text.offsets[len(y)])
    X = Columns([column[:end] for column in text.columns], text.offsets[: len(y) + 1])
    few = Columns([column[: int(text.offsets[5])] for column in text.columns], text.offsets[:6])
    for solver in ("sdca", "lbfgs"):
        train(few, y[:5], solver, 1.0)  # compile
    results = [train(X, y, "auto", args.seconds), train(X, y, "lbfgs", args.seconds)]
    results.append(train_peer(X, y))
    rows = [(r["who"], r["seconds"], r["gap"], r["epochs"]) for r in results]
    print_table("CoNLL-2000 with a pair rule", ["who", "CPU seconds", "gap", "passes"], rows)
    print_json({"sentences": len(y), "results": results})


if __name__ == "__main__":
    main()
