"""What commands print: a table for people, JSON for programs."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import click

FORMATS = click.Choice(["table", "json"])

output_option = click.option("-o", "--output", type=FORMATS, default="table", show_default=True, help="How to print.")


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options by which every command finds its store."""
    for option in (
        click.option("--schema", help="The schema that holds the tables."),
        click.option("--database-url", metavar="URL", help="postgresql://… or 'embedded' (default: JOBWELL_DATABASE_URL)."),
    ):
        command = option(command)
    return command


def by_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Who acts, for the audit."""
    return click.option("--by", metavar="WHO", help="Who acts, for the audit (default: the user of the system).")(command)


def json_out(value: Any) -> None:
    """Print one JSON value."""
    import orjson

    click.echo(orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())


def table(title: str, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], empty: str) -> None:
    """Print rows for people; on a pipe the lines are not cut."""
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    if not rows:
        click.echo(empty)
        return
    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        made.add_row(*(Text(shown(row.get(column)), _colour(column, row.get(column))) for column in columns))
    console().print(made)


def facts(rows: Iterable[tuple[str, Any]]) -> None:
    """Print names with values."""
    from rich.table import Table
    from rich.text import Text

    made = Table(show_header=False, box=None, pad_edge=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, Text(shown(value), _colour(name, value)))
    console().print(made)


def console() -> Any:
    """A console as wide as the terminal; wide enough not to fold on a pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200, soft_wrap=False, highlight=False)


def shown(value: Any) -> str:
    """A value for people."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + "Z"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def age(value: float | None) -> str:
    """Seconds for people."""
    from jobwell.core.duration import text

    return "" if value is None else text(max(0.0, value))


_COLOURS = {
    "running": "cyan", "ready": "blue", "succeeded": "green", "failed": "red", "retrying": "yellow", "scheduled": "magenta",
    "live": "green", "dead": "red", "draining": "yellow",
}  # fmt: skip


def _colour(column: str, value: Any) -> str:
    return _COLOURS.get(str(value), "") if column in ("state", "outcome") else ""


def _plain(value: Any) -> Any:
    if isinstance(value, UUID | date | datetime):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
