"""The command line. Commands are imported when they are called, so that `--help` is quick."""

import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from jobwell.core import errors
from jobwell.core.text import storable, visible

EXIT_CODES = """\b
Exit codes: 0 done · 1 failed · 2 wrong usage · 3 not found · 4 not possible in this state
            75 the database cannot be reached, try again · 78 a setting, the app or the tables are wrong
            130 stopped by Ctrl-C
All commands with examples: docs/cli.md"""

_COMMANDS = {
    "actions": "actions:actions",
    "bench": "bench:bench",
    "breakers": "breakers:breakers",
    "completion": "completion:completion",
    "dedup": "dedup:dedup",
    "demo": "demo:demo",
    "doctor": "doctor:doctor",
    "holds": "holds:holds",
    "jobs": "jobs:jobs",
    "limits": "limits:limits",
    "migrate": "migrate:migrate",
    "move": "move:move",
    "pause": "holds:pause",
    "quarantine": "quarantine:quarantine",
    "queues": "queues:queues",
    "resume": "holds:resume",
    "runs": "runs:runs",
    "status": "status:status",
    "steps": "steps:steps",
    "store": "store:store",
    "up": "worker:up",
    "worker": "worker:worker",
    "workers": "workers:workers",
}

_CODES: tuple[tuple[type[errors.JobwellError], int], ...] = (
    (errors.NotFound, 3),
    (errors.Conflict, 4),
    (errors.StoreUnavailable, 75),
    (errors.StoreRefused, 78),
    (errors.SchemaMismatch, 78),
    (errors.SettingsError, 78),
    (errors.DeclarationError, 78),
)


def _keep_lines(command: click.Command) -> None:
    r"""Turn each line `\b` of a manual, written in a raw docstring, into click's sign for lines that stay as they are."""
    if command.help and "\\b" in command.help:
        command.help = re.sub(r"\n+\\b\n", "\n\n\b\n", inspect.cleandoc(command.help))
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _keep_lines(inner)


class Commands(click.Group):
    """Commands by name, imported at their call."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, attribute = place.split(":")
        found: click.Command = getattr(importlib.import_module(f"jobwell.cli.{module}"), attribute)
        _keep_lines(found)
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name in the error."""
        import difflib

        if args and args[0] not in _COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            ctx.fail(f"there is no command {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="jobwell", message="%(prog)s %(version)s")
def root() -> None:
    r"""Background jobs for business applications on PostgreSQL.

    \b
    Which database: JOBWELL_DATABASE_URL=postgresql://…, or 'embedded' to try things out.
    Begin with `jobwell doctor`; watch real work being done with `jobwell demo`.
    """


_keep_lines(root)


def _say_no_more() -> None:
    """What waits to be printed would fail again at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error: Exception) -> errors.JobwellError | None:
    """An error in our words, also one of the system or of the driver that slipped through; None: a fault of the program."""
    if isinstance(error, errors.JobwellError):
        return error
    if isinstance(error, OSError):  # a full disk under the output, a file that cannot be read
        _say_no_more()
        what = f"{error.filename}: " if error.filename else "what is printed, or another file, cannot be written or read: "
        return errors.JobwellError(f"{what}{error.strerror or error}")
    if "psycopg" not in sys.modules:
        return None
    from jobwell.store.database import last_word

    return last_word(error)


def _texts(arguments: Sequence[str]) -> list[str]:
    """The arguments in UTF-8, whatever the locale says."""
    found = []
    for argument in arguments:
        try:
            found.append(argument if storable(argument) else os.fsencode(argument).decode())
        except UnicodeError:
            raise click.UsageError(
                f"{argument!r} is not UTF-8, as everything that is stored has to be; nothing was done"
            ) from None
    return found


def _open_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: what is said goes nowhere, and into no connection of ours
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  for as long as we live
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that the locale does not have becomes '?', and is no reason to stop
            stream.reconfigure(errors="replace")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. Errors are one sentence and a code, never a traceback."""
    _open_streams()
    try:
        code = root.main(
            args=_texts(sys.argv[1:] if arguments is None else arguments), prog_name="jobwell", standalone_mode=False
        )
        sys.stdout.flush()
    except click.exceptions.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        click.echo(visible(said.getvalue()), err=True, nl=False)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `jobwell jobs list | head`: what is left to say goes nowhere, and that is no failure
        _say_no_more()
        sys.exit(0)
    except Exception as error:
        told = _told(error)
        if told is None:
            raise
        click.echo(f"jobwell: {visible(told.message)}", err=True)
        if type(told).__name__ == "EmbeddedUnavailable":  # its module is imported where it is used
            sys.exit(78)
        sys.exit(next((code for kind, code in _CODES if isinstance(told, kind)), 1))
    sys.exit(code if isinstance(code, int) else 0)
