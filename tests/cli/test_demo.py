"""``cliquewise demo``: what a stranger sees first."""

from __future__ import annotations

import re

from click.testing import CliRunner

from cliquewise.cli import main


def test_demo_shows_a_certificate_and_better_accuracy_of_sequences():
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    shares = {
        name: [float(v) for v in re.findall(r"([\d.]+) %", line)]
        for name in ("MulticlassClassifier", "SequenceTagger,")
        for line in result.stdout.split("\n")
        if line.strip().startswith(name)
    }
    alone, together = shares["MulticlassClassifier"], shares["SequenceTagger,"]
    assert together[0] > alone[0] + 5 and together[1] > alone[1] + 20
    objective = float(re.search(r"objective of these weights +([\d.]+)", result.stdout)[1])
    bound = float(re.search(r"no weights can do better than +([\d.]+)", result.stdout)[1])
    gap = float(re.search(r"relative gap +([\d.e-]+)", result.stdout)[1])
    assert bound <= objective and gap <= 1e-4
    assert "What to do next" in result.stdout
    assert max(map(len, result.stdout.split("\n"))) < 100
