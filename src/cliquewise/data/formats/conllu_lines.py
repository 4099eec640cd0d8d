"""Lines of CoNLL-U: names of the columns, and which lines are words."""

from __future__ import annotations

import re

#: The columns of CoNLL-U, in lower case.
CONLLU_COLUMNS = (
    "id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc",
)  # fmt: skip

_FIRST_ID = re.compile(r"1(-\d+)?|0\.1")
_HEAD = re.compile(r"\d+|_")


def is_conllu_line(line: str) -> bool:
    """Return whether the first line of a file that is not a comment looks like CoNLL-U.

    Examples
    --------
    >>> fields = ["1", "Rome", "Rome", "PROPN", "_", "_", "0", "root", "_", "_"]
    >>> is_conllu_line("\\t".join(fields)), is_conllu_line("1\\tRome")
    (True, False)
    """
    fields = line.split("\t")
    return (
        len(fields) == len(CONLLU_COLUMNS)
        and _FIRST_ID.fullmatch(fields[0]) is not None
        and _HEAD.fullmatch(fields[6]) is not None
    )


def is_word(number: str) -> bool:
    """Return whether an ID is that of a word, not of a range (2-3) or an empty node (3.1)."""
    return number.isdecimal()
