"""Each row of the table of defaults: quality equal or better, time within 1.5x.

CLIQUEWISE_DATA=... python -m benchmarks.defaults [part of a row's name ...]
"""

from __future__ import annotations

import sys

from benchmarks.common import print_json, print_table
from benchmarks.defaults import graphs, inference, label_sets, sequences
from benchmarks.defaults.rows import verdict


def main(wanted: list[str]) -> None:
    """Run the rows whose names contain one of ``wanted``, or all."""
    table, record = [], []
    for row in [*label_sets.ROWS, *graphs.ROWS, *inference.ROWS, *sequences.ROWS]:
        if wanted and not any(part in row.name for part in wanted):
            continue
        print(f"... {row.name}", file=sys.stderr, flush=True)
        results = list(row.run())
        says = verdict(results, row.noise)
        for k, r in enumerate(results):
            first = (row.name, row.measure) if k == 0 else ("", "")
            table.append((*first, r["choice"], f"{r['quality']:.4f}", r["seconds"],
                          says if k == 0 else ""))  # fmt: skip
        record.append({"row": row.name, "verdict": says, "results": results})
    columns = ["what", "measure", "choice", "quality", "seconds", "verdict"]
    print_table("default beside the best choice by hand", columns, table)
    print_json({"rows": record})


if __name__ == "__main__":
    main(sys.argv[1:])
