"""What commands print: a table for people, JSON and CSV for programs."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import click

from jobwell.core.text import escaped, visible

FORMATS = click.Choice(["table", "json"])
ROW_FORMATS = click.Choice(["table", "json", "csv"])

output_option = click.option("-o", "--output", type=FORMATS, default="table", show_default=True, help="How to print.")
rows_option = click.option("-o", "--output", type=ROW_FORMATS, default="table", show_default=True, help="How to print.")


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


# --- for programs ----------------------------------------------------------------------------------------------------

FORMULA = ("=", "+", "-", "@", "\t")


def json_out(value: Any) -> None:
    """Print one JSON value, in UTF-8 whatever the locale says."""
    import orjson

    text = orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
    click.echo(escaped(text).encode())


def json_line(value: Any) -> None:
    """Print one JSON value as a line, at once: for programs that read while we go on."""
    import orjson

    text = orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()
    click.echo(escaped(text).encode())


def csv_out(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print CSV by RFC 4180, with a line of names, in UTF-8; times are ISO 8601 in UTC.

    A text that a spreadsheet would take for a formula gets an apostrophe in front. Numbers and times are left alone.
    """
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    click.echo(text.getvalue().encode(), nl=False)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | UUID | date):
        return str(value)
    text = visible(",".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
    return f"'{text}" if text.startswith(FORMULA) else text


def _plain(value: Any) -> Any:
    if isinstance(value, UUID | date | datetime):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


# --- for people ------------------------------------------------------------------------------------------------------


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
        made.add_row(Text(visible(name)), Text(shown(value), _colour(name, value)))
    console().print(made)


def say(text: str, *, err: bool = False) -> None:
    """Print a sentence that may hold what a job or a person gave us."""
    click.echo(visible(text), err=err)


def warn(hints: Iterable[str]) -> None:
    """Print hints as sentences, after a table."""
    for hint in hints:
        say(f"\n{hint[:1].upper()}{hint[1:]}.")


def console() -> Any:
    """A console as wide as the terminal; wide enough not to fold on a pipe."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:  # its own would end with 1; `main` knows that a reader who leaves is no failure
            raise BrokenPipeError

    return Plain(width=None if sys.stdout.isatty() else 200, soft_wrap=False, highlight=False)


def shown(value: Any) -> str:
    """A value for people, without what a terminal would obey."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + "Z"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list | tuple):
        return visible(", ".join(map(str, value)))
    return visible(str(value))


def age(value: float | None) -> str:
    """Seconds for people."""
    from jobwell.core.duration import text

    return "" if value is None else text(max(0.0, value))


def signed(value: float | None) -> str:
    """A difference of clocks for people."""
    return "" if value is None else f"{value:+.1f} s"


def brief(value: float | None) -> str:
    """A moment for people."""
    return "" if value is None else f"{value * 1000:.0f} ms" if value < 1 else age(value)


def size(value: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1024 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(value)


_COLOURS = {
    "running": "cyan", "ready": "blue", "succeeded": "green", "failed": "red", "retrying": "yellow", "scheduled": "magenta",
    "waiting": "magenta",
    "live": "green", "dead": "red", "draining": "yellow",
}  # fmt: skip


def _colour(column: str, value: Any) -> str:
    return _COLOURS.get(str(value), "") if column in ("state", "outcome") else ""
