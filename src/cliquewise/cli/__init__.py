"""The command line: one module per command, imported when the command is used.

A command is a module here with a click command named ``command``, and an entry in ``COMMANDS``.
Slow imports belong inside its functions, because ``--help`` should be fast.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import click

from cliquewise import __version__
from cliquewise.cli import exit_codes
from cliquewise.cli.formatting import error_message
from cliquewise.cli.signals import sigterm_interrupts

#: The name of each command, which is also that of its module, and its line in ``--help``.
COMMANDS = {
    "demo": "Train on handwritten digits and explain the certificate.",
    "fit": "Train a sequence tagger on a labeled file.",
    "update": "Continue training a saved tagger with more sentences.",
    "predict": "Tag a file or a stream with a trained model.",
    "evaluate": "Compute the accuracy and F1 score of a model or of predicted labels.",
    "report": "Write an HTML report about a model, its scores and its errors.",
    "prune": "Write a smaller model and show how the objective changes.",
    "inspect": "Show the certificate and the largest weights of a model.",
    "infer": "Answer a query about a graphical model in UAI or BIF format.",
    "warmup": "Compile all kernels in advance, e.g. when building a container image.",
}
#: Names of commands in other tools, and ours.
SYNONYMS = {
    "train": "fit", "learn": "fit", "tag": "predict", "apply": "predict", "label": "predict",
    "test": "evaluate", "eval": "evaluate", "score": "evaluate", "dump": "inspect",
    "show": "inspect", "query": "infer", "map": "infer", "compile": "warmup",
    "partial-fit": "update", "compress": "prune", "html": "report",
}  # fmt: skip

DEBUG = "cliquewise.debug"
LEVELS = ("debug", "info", "warning", "error")


class LazyGroup(click.Group):
    """A group that imports a command when it is invoked, and reports errors on one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; suggest one if there is none."""
        name = args[0] if args else ""
        if args and name not in COMMANDS and not name.startswith("-"):
            close = get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
            found = SYNONYMS.get(name.lower()) or (close[0] if close else None)
            hint = f"; did you mean {found!r}?" if found else ""
            raise click.UsageError(f"there is no command {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; report errors on one line, and exit with the code of the error."""
        from cliquewise.errors import CliquewiseError

        try:
            with warnings.catch_warnings(), sigterm_interrupts():
                warnings.showwarning = _print_warning  # type: ignore[assignment]
                result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # here, so that a full disk is reported as an error
            return result
        except BrokenPipeError:  # the reader closed the pipe, as `head` does
            _discard_output()
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("cliquewise: interrupted", err=True)
            _discard_output()
            ctx.exit(exit_codes.INTERRUPTED)
        except click.UsageError as error:
            name = f"{ctx.invoked_subcommand} " if ctx.invoked_subcommand in COMMANDS else ""
            text = error.format_message().rstrip(".?") + ("?" if "mean" in error.message else "")
            end = "" if text.endswith("?") else "."
            click.echo(f"cliquewise: error: {text}{end} See cliquewise {name}--help", err=True)
            ctx.exit(exit_codes.USAGE)
        except (CliquewiseError, OSError, MemoryError, ImportError) as error:
            if ctx.meta.get(DEBUG):
                raise
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            click.echo(f"cliquewise: error: {error_message(error, command)}", err=True)
            if isinstance(error, OSError):
                _discard_output()
            ctx.exit(exit_codes.exit_code_of(error))


def _print_warning(message: Warning | str, *place: Any) -> None:
    """Write a warning in the style of errors, without its source location."""
    click.echo(f"cliquewise: warning: {message}", err=True)


def standard_output() -> Any:
    """Return the standard output stream; raise a DataError if it is closed."""
    from cliquewise.errors import DataError

    if sys.stdout is None or sys.stdout.closed:
        raise DataError("the standard output is closed; name a file with --out, or open it")
    return sys.stdout


def _discard_output() -> None:
    """Redirect unwritable output to /dev/null, because Python flushes it again at exit."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def debug_option(function: Any) -> Any:
    """Add ``--debug`` and ``--log-level``, before or after the name of the command."""

    def set_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[DEBUG] = True

    def set_level(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
            logging.getLogger("cliquewise").setLevel(value.upper())

    function = click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        expose_value=False,
        callback=set_level,
        help="Write log messages of at least this level to the standard error stream.",
    )(function)
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=set_debug,
        help="Show the traceback of an error.",
    )(function)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=exit_codes.SUMMARY,
)
@click.version_option(__version__, prog_name="cliquewise")
@debug_option
def main() -> None:
    """Structured prediction with certificates of optimality.

    \b
    Example: cliquewise fit train.conll --model model.cw
    """
