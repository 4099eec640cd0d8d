"""``python -m tests.fuzz``: arguments, time for every part, and the table at the end."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from . import PARTS
from .findings import Finding, Trouble, shrink
from .worker import LIMIT, Worker

#: Seconds to make one finding small, and number of findings of a part that are made small.
SHRINK_SECONDS, MAX_SHRUNK = 30.0, 8


@dataclass
class Result:
    """What a part found; ``seen`` counts each trouble."""

    part: str
    cases: int = 0
    checks: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)


def run_part(
    part: str, seed: int, seconds: float, only: int | None = None, until_finding: bool = False
) -> Result:
    """Draw and check cases until the time is over; print every new finding."""
    result, worker, started = Result(part), Worker(), time.monotonic()
    number = only or 0
    try:
        while time.monotonic() - started < seconds:
            answer = worker.drawn(part, [seed, zlib.crc32(part.encode()), number])
            result.cases += 1
            result.checks += answer.report.checks
            trouble = answer.report.trouble
            if trouble is not None:
                count = result.seen.get(trouble.what, 0)
                result.seen[trouble.what] = count + 1
                if until_finding:
                    break
                if count == 0:
                    result.findings.append(_small(worker, result, number, answer.case, trouble))
                    print(result.findings[-1], flush=True)
            if only is not None:
                break
            number += 1
    finally:
        worker.close()
    result.seconds = time.monotonic() - started
    return result


def _small(worker: Worker, result: Result, number: int, case: object, trouble: Trouble) -> Finding:
    """Return the finding with the smallest case that shows the same trouble."""
    latest = trouble

    def fails(smaller: object) -> bool:
        nonlocal latest
        found = worker.check(result.part, smaller, 1.5 * LIMIT).trouble
        if found is None or found.what != trouble.what:
            return False
        latest = found
        return True

    # Endless loops take the whole limit each time.
    if len(result.findings) < MAX_SHRUNK and fails(case):
        case = shrink(case, fails, (4 if trouble.what == "hang" else 1) * SHRINK_SECONDS)
    return Finding(result.part, number, latest, case)


def table(results: list[Result]) -> str:
    """Return cases, checks, findings and seconds of every part, and the count of each trouble."""
    lines = [f"{'part':<14}{'cases':>9}{'checks':>9}{'findings':>10}{'seconds':>9}"]
    for r in results:
        found = sum(r.seen.values())
        lines.append(f"{r.part:<14}{r.cases:>9}{r.checks:>9}{found:>10}{r.seconds:>9.0f}")
    for r in results:
        lines += [f"  {count} x {r.part}: {what}" for what, count in sorted(r.seen.items())]
    return "\n".join(lines)


def replay(path: Path) -> int:
    """Check the cases in a file of JSON lines again; return 1 if one still shows a trouble."""
    worker, failed = Worker(), 0
    try:
        for line in path.read_text().splitlines():
            if line.startswith("{"):
                found = json.loads(line)
                trouble = worker.check(found["part"], found["case"], 10 * LIMIT).trouble
                print(f"{found['part']}: {trouble or 'passes'}", flush=True)
                failed |= trouble is not None
    finally:
        worker.close()
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="draws the same cases again; default: a new one")
    parser.add_argument("--only", choices=[*PARTS], action="append", help="may be repeated")
    parser.add_argument("--case", type=int, help="only this case; needs --only and --seed")
    parser.add_argument("--replay", type=Path, help="check the cases that an earlier run printed")
    parser.add_argument("--until-finding", action="store_true", help="stop at the first finding")
    given = parser.parse_args(arguments)
    if given.replay is not None:
        return replay(given.replay)
    if given.case is not None and (given.seed is None or len(given.only or []) != 1):
        parser.error("--case needs --seed and one --only")
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    parts = given.only or [*PARTS]
    print(f"fuzz with --seed {seed}: {', '.join(parts)}", flush=True)
    total, results = sum(PARTS[part] for part in parts), []
    for part in parts:
        seconds = 60 * given.minutes * PARTS[part] / total
        results.append(run_part(part, seed, seconds, given.case, given.until_finding))
        if given.until_finding and results[-1].seen:
            break
    print(table(results))
    return int(any(r.seen for r in results))


if __name__ == "__main__":
    sys.exit(main())
