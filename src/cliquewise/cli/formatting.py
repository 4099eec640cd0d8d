"""Help in groups, error messages with flags, numbers with units."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

import click


class GroupedCommand(click.Command):
    """A command whose help shows its options in groups.

    Parameters
    ----------
    groups : dict of str to list of str
        Headings, and the names of the options below them, in order; the others come last.
    """

    def __init__(
        self, *arguments: Any, groups: Mapping[str, Sequence[str]], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a section for each group."""
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        records = {option.name: option.get_help_record(ctx) for option in options}
        named = {head: list(names) for head, names in self.groups.items()}
        grouped = {name for names in named.values() for name in names}
        named["Other"] = [name for name in records if name not in grouped and name is not None]
        for head, names in named.items():
            rows = [record for name in names if (record := records[name]) is not None]
            if rows:
                with formatter.section(head):
                    formatter.write_dl(rows, col_max=34)


def error_message(error: BaseException, command: click.Command | None) -> str:
    """Return the message of an error on one line, with flags in place of Python parameters.

    Parameters
    ----------
    error : Exception
        The message of a ``ParameterError`` begins with the flag, and suggested values are
        written as options. After other errors with ``parameters``, flags follow in parentheses.
    command : click.Command, optional
    """
    from cliquewise.cli.options import flags_of
    from cliquewise.errors import CliquewiseError, ParameterError

    flags = flags_of(command)

    def setting(name: str, value: object) -> str:
        if name == "separator" and "tabs" in flags:
            return flags["tabs"]
        return f"{flags[name]} {quote(str(value))}" if name in flags else f"{name}={value!r}"

    if isinstance(error, ParameterError):
        text = error.message_for(flags.get(error.parameter, error.parameter))
    elif isinstance(error, CliquewiseError):
        own = [flags[name] for name in error.parameters if name in flags]
        text = error.render(setting)
        text += f" ({'option' if len(own) == 1 else 'options'} {', '.join(own)})" if own else ""
    else:
        text = str(error) or type(error).__name__
    return "; ".join(line.strip().rstrip(";") for line in text.split("\n"))


def counted(number: float, word: str, plural: str | None = None) -> str:
    """Return a number and its noun: ``1 token``, ``2 tokens``."""
    return f"{number:.10g} {word if number == 1 else plural or word + 's'}"


def size_of(path: str) -> str:
    """Return the size of a file in kB or MB."""
    size = os.path.getsize(path)
    return f"{size / 1e6:.3g} MB" if size >= 1e5 else f"{size / 1e3:.3g} kB"
