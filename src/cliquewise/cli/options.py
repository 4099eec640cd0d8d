"""Command-line options that are derived from the parameter tables of the estimators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

import click

from cliquewise.estimators.parameters import Option, Parameter, table_of

Command = Callable[..., Any]


def parameter_options(
    table: type, *names: str, defaults: Mapping[str, Any] | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds options for parameters of an estimator.

    The function receives the value of each parameter under its Python name.

    Parameters
    ----------
    table : type
        A table of :mod:`cliquewise.estimators.parameters`.
    *names : str
        The parameters; by default all that have an option.
    defaults : dict, optional
        Defaults that differ from those of the table.

    Examples
    --------
    >>> import click
    >>> from cliquewise.estimators.parameters import SequenceTaggerParameters
    >>> @click.command()
    ... @parameter_options(SequenceTaggerParameters, "n_jobs")
    ... def command(n_jobs):
    ...     print(n_jobs)
    >>> command.params[0].opts
    ['--jobs']
    """
    rows = table_of(table)
    hints = get_type_hints(table)

    def add(function: Command) -> Command:
        for name in reversed(names or tuple(rows)):
            row = rows[name]
            if row.option is not None:
                default = (defaults or {}).get(name, row.default)
                function = _option(row, row.option, hints[name], default)(function)
        return function

    return add


def option_groups(table: type) -> dict[str, list[str]]:
    """Return the parameters below each heading of ``--help``."""
    groups: dict[str, list[str]] = {}
    for name, row in table_of(table).items():
        if row.option is not None:
            groups.setdefault(row.option.group, []).append(name)
    return groups


def flags_of(command: click.Command | None) -> dict[str, str]:
    """Return the flag of each parameter that a command has an option for."""
    options = [] if command is None else [p for p in command.params if isinstance(p, click.Option)]
    return {str(p.name): max(p.opts, key=len) for p in options}


class _Option(click.Option):
    """An option whose former flags work and are not shown."""

    def __init__(self, *arguments: Any, shown: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shown = shown

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the row of ``--help``, with the current flag only."""
        every, self.opts = self.opts, [self.shown]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = every


class _NumberOrWord(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5
    """A number, or one of a few words."""

    name = "number"

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        """Return the word or the number."""
        if value in self.words:
            return str(value)
        return float(click.FLOAT.convert(value, param, ctx))


def _option(row: Parameter, option: Option, hint: Any, default: Any) -> Callable[[Any], Any]:
    """Make the click option of a parameter."""
    declared = [row.flag, *option.old_flags, row.name]
    text = option.help or row.help
    if row.name == "verbose":  # --quiet sets it to 0
        return click.option(
            row.flag, row.name, is_flag=True, flag_value=0, default=1, type=int, help=text
        )
    if row.flag.startswith("--no-"):
        return click.option(
            *declared, cls=_Option, shown=row.flag, is_flag=True, flag_value=False, default=True,
            help=text,
        )  # fmt: skip
    kind: Any = option.type or _plain_type(hint)
    if kind is bool:
        return click.option(*declared, is_flag=True, default=default, help=text)
    default = option.default if option.default is not None else default
    choices = row.rule.words if option.metavar is None else ()
    if kind is float and row.rule.words:
        kind = _NumberOrWord(row.rule.words)
    return click.option(
        *declared,
        type=click.Choice(choices) if choices else kind,
        metavar=f"[{'|'.join(choices)}]" if choices else option.metavar,
        default=default,
        show_default=default is not None,
        help=text,
    )


def _plain_type(hint: Any) -> type:
    """Return the type of values in an annotation such as ``float | None``."""
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)]
    return kinds[0] if kinds[0] in (bool, int, float, str) else str
