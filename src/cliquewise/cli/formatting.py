"""What commands look like: help in groups, errors that name flags."""

from __future__ import annotations

import os
import re
from shlex import quote
from typing import Any

import click

#: Parameters of Python that have other names as flags.
ALIASES = {"n_jobs": "jobs", "random_state": "seed"}


class GroupedCommand(click.Command):
    """A command whose help shows its options in groups.

    Parameters
    ----------
    groups : dict of str to str
        Heads, and the names of the options below them, in order; the others come last.
    """

    def __init__(self, *arguments: Any, groups: dict[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a section for each group."""
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        records = {option.name: option.get_help_record(ctx) for option in options}
        named = {head: names.split() for head, names in self.groups.items()}
        grouped = {name for names in named.values() for name in names}
        named["Other"] = [name for name in records if name not in grouped and name is not None]
        for head, names in named.items():
            rows = [record for name in names if (record := records[name]) is not None]
            if rows:
                with formatter.section(head):
                    formatter.write_dl(rows, col_max=34)


def with_flags(text: str, command: click.Command | None) -> str:
    """A message of the library with the flags of a command for the parameters of Python."""
    if command is None:
        return text
    options = [p for p in command.params if isinstance(p, click.Option)]
    flags = {str(option.name): max(option.opts, key=len) for option in options}
    flags |= {ours: flags[name] for ours, name in ALIASES.items() if name in flags}
    if "tabs" in flags:
        text = text.replace(r"separator='\t'", "--tabs")
    for name, flag in flags.items():
        value = re.compile(rf"""(?<![\w-]){name}=(["'])([^"']*)\1""")
        for found in value.finditer(text):
            text = text.replace(found[0], f"{flag} {quote(found[2])}")
        if "_" in name:
            text = re.sub(rf"(?<![\w-]){name}\b", flag, text)
        else:  # a word that may be one of the language, too: only where a value follows
            text = re.sub(rf"(?<![\w-]){name}(?= (= |'[^']*' is not))", flag, text)
    return re.sub(r"\b(lower|raise) C\b", r"\1 --C", text)


def counted(number: float, word: str, plural: str | None = None) -> str:
    """A number and its word: ``1 token``, ``2 tokens``."""
    return f"{number:.10g} {word if number == 1 else plural or word + 's'}"


def size_of(path: str) -> str:
    """The size of a file, in the unit that reads well."""
    size = os.path.getsize(path)
    return f"{size / 1e6:.3g} MB" if size >= 1e5 else f"{size / 1e3:.3g} kB"
