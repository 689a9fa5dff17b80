"""`jobwell store …`."""

import sys
from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import (
    age,
    by_option,
    console,
    csv_out,
    facts,
    json_out,
    output_option,
    rows_option,
    say,
    size,
    store_options,
    table,
)

COLUMNS = ("table", "rows", "size", "of which indexes", "dead", "vacuumed_at")


@click.group()
def store() -> None:
    """Look at the store's tables, and remove what is older than its retention. Needs only a URL."""


@store.command("size")
@rows_option
@store_options
def show_size(output: str, database_url: str | None, schema: str | None) -> int:
    r"""Rows and bytes of each table, dead rows and the last vacuum, the oldest finished day, and what pins vacuum.

    Rows are the server's estimate. A session's transaction that stays open, a prepared transaction or a replication slot keeps
    vacuum from removing dead rows: the oldest is named, with its age. A role that may not see others' sessions is told less.

    \b
    Examples:
      jobwell store size
      jobwell store size -o csv
    """
    from jobwell.store.database import Database
    from jobwell.store.sizes import TABLE_COLUMNS, sizes

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    found = database.run(sizes(database.statements))
    rows = found["tables"]
    if output == "json":
        json_out(found)
        return 0
    if output == "csv":
        csv_out(rows, TABLE_COLUMNS)
        return 0
    for row in rows:
        row.update({"size": size(row["bytes"]), "of which indexes": size(row["index_bytes"])})
        row.update(rows=f"{row['rows']:,}", dead=f"{row['dead']:,}")
    table("", rows, COLUMNS, "no tables")
    console().print()
    pins = found["pins_vacuum"]
    if pins:
        since = f", for {age(pins['seconds'])}" if pins["seconds"] is not None else ""
        pins = f"{pins['who']}: {pins['transactions']:,} transaction(s) old{since}"
    facts((("oldest finished day", found["oldest_finished_day"] or "none"), ("pins vacuum", pins or "nothing")))
    return 0


@store.command()
@click.option("--keep", metavar="DURATION", help="Keep finished jobs for so long (default: the setting retention).")
@click.option(
    "--for", "budget", metavar="DURATION", default="10m", show_default=True, help="Stop after so long; run it again to go on."
)
@click.option("--yes", is_flag=True, help="Do not ask where --keep is shorter than the retention.")
@by_option
@output_option
@store_options
def prune(
    keep: str | None, budget: str, *, yes: bool, by: str | None, output: str, database_url: str | None, schema: str | None
) -> int:
    r"""Remove finished jobs, attempts, payloads and steps that are older than the retention, as workers do every ten minutes.

    Works in small commits beside the running jobs, resting as long as it works; may be interrupted anywhere and run again. One
    prunes at a time: a second one ends with code 4. A day that somebody reads is left, tried again, and named at the end. Live
    and failed jobs are never removed. Audited.

    \b
    Examples:
      jobwell store prune
      jobwell store prune --keep 2d --for 1h --yes
    \b
    Exit codes: 0 all is removed · 4 another one prunes, a day is in use, or the time was over: run it again
    """
    from jobwell.actions.actor import actor
    from jobwell.actions.prune import Prune, Pruned
    from jobwell.core.duration import text
    from jobwell.store.database import Database

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    kept = _seconds(keep, "--keep", least=3600.0) if keep else database.settings.retention
    if kept < database.settings.retention and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"the retention is {text(database.settings.retention)}; say --yes to keep only {text(kept)}")
        click.confirm(f"the retention is {text(database.settings.retention)}; keep only {text(kept)}?", abort=True)

    def told(pruned: Pruned) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r… {_counts(pruned)}", err=True, nl=False)

    action = Prune(database, keep=kept, budget=_seconds(budget, "--for", least=1.0), by=actor(by), told=told)
    try:
        pruned = action.run()
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"\nstopped; removed so far: {_counts(action.pruned)}; run it again to go on", err=True)
        return 130
    if sys.stderr.isatty():
        click.echo(err=True)
    if output == "json":
        json_out(vars(pruned))
    else:
        click.echo(f"removed {_counts(pruned)}")
        if pruned.in_use:
            say(f"left, because somebody uses them: {', '.join(pruned.in_use)}")
        if pruned.more:
            click.echo("the time is over and there is more: run it again")
    return 4 if pruned.in_use or pruned.more else 0


def _seconds(value: str, option: str, least: float) -> float:
    from jobwell.core.duration import seconds, text
    from jobwell.core.errors import DeclarationError

    try:
        found = seconds(float(value) if value.replace(".", "", 1).isdigit() else value, option)
    except DeclarationError as error:
        raise click.BadParameter(error.message, param_hint=option) from None
    if found < least:
        raise click.BadParameter(f"{value} is too short; at least {text(least)}", param_hint=option)
    return found


def _counts(pruned: Any) -> str:
    rows = f"{pruned.finished:,} finished job(s), {pruned.attempts:,} attempt(s), {pruned.payloads:,} payload(s)"
    rows += f", {pruned.steps:,} step(s)"
    return f"{len(pruned.days)} day(s), {rows}"
