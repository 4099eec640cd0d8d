"""The command line. One file per command, loaded only when the command is used.

A command is a file here with a click command named ``command``, and a line in
``COMMANDS``. What it needs beyond click is imported inside its functions, so that
``cliquewise --help`` stays quick.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from contextlib import suppress
from typing import Any

import click

from cliquewise import __version__

#: Name of each command, which is also its module, and the line that ``--help`` shows.
COMMANDS = {
    "demo": "Train on handwritten digits and show what a certificate is.",
    "fit": "Train a sequence tagger on a column file.",
    "update": "Add sentences to a trained model, which goes on from where it stood.",
    "predict": "Tag a file or a stream with a trained model.",
    "evaluate": "Accuracy and F1 of a model, or of a file of true and predicted labels.",
    "report": "A page that shows a model, its scores and its errors, as one HTML file.",
    "prune": "A smaller model, and what that costs in the objective.",
    "inspect": "The largest weights of a trained model.",
    "infer": "Answer a question about a model in UAI or BIF format.",
    "warmup": "Compile ahead what the estimators need (for images of containers).",
}

DEBUG = "cliquewise.debug"


class LazyGroup(click.Group):
    """Commands that are imported when invoked; our errors become one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run; an error of ours, of the file system or of memory ends with status 2."""
        from cliquewise.cli.formatting import error_message
        from cliquewise.errors import CliquewiseError

        try:
            with warnings.catch_warnings():
                warnings.showwarning = _tell  # type: ignore[assignment]
                result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a full disk is still an error of ours
            return result
        except BrokenPipeError:  # whoever read the output has seen enough: `| head`
            _drop_output()
            ctx.exit(1)
        except click.UsageError as error:
            name = f"{ctx.invoked_subcommand} " if ctx.invoked_subcommand in COMMANDS else ""
            text = f"{error.format_message().rstrip('.')}. See cliquewise {name}--help"
            click.echo(f"cliquewise: error: {text}", err=True)
            ctx.exit(2)
        except (CliquewiseError, OSError, MemoryError) as error:
            if ctx.meta.get(DEBUG):
                raise
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            click.echo(f"cliquewise: error: {error_message(error, command)}", err=True)
            if isinstance(error, OSError):
                _drop_output()
            ctx.exit(2)


def _tell(message: Warning | str, *place: Any) -> None:
    """Write a warning as errors are written: where it is from is no matter of whoever reads it."""
    click.echo(f"cliquewise: warning: {message}", err=True)


def standard_output() -> Any:
    """The standard output; an error of ours where it was closed."""
    from cliquewise.errors import DataError

    if sys.stdout is None or sys.stdout.closed:
        raise DataError("the standard output is closed; name a file by --out, or open it")
    return sys.stdout


def _drop_output() -> None:
    """Send what cannot be written nowhere: the interpreter would complain of it at its end."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def debug_option(function: Any) -> Any:
    """Add ``--debug``, before or after the command's name."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[DEBUG] = True

    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Show the traceback of an error.",
    )(function)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cliquewise")
@debug_option
def main() -> None:
    """Structured prediction with certificates."""
