"""`jobwell actions …`: actions on many jobs, and how far they are."""

import sys
from uuid import UUID

import click

from jobwell import settings as setting
from jobwell.cli.acting import stop as stop_action
from jobwell.cli.acting import stoppable
from jobwell.cli.output import by_option, csv_out, json_out, output_option, rows_option, store_options, table


@click.group()
def actions() -> None:
    """Actions on many jobs: how far they are, go on, stop. Needs only a URL."""


@actions.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@rows_option
@store_options
def list_actions(limit: int, output: str, database_url: str | None, schema: str | None) -> int:
    r"""List them, newest first: who did what to which jobs, why, and how many are done.

    \b
    Examples:
      jobwell actions list
    """
    from jobwell.actions import jobs
    from jobwell.store.database import Database

    rows = jobs.latest(Database(setting.load({"database_url": database_url, "schema": schema})), limit=limit)
    if output == "json":
        json_out(rows)
        return 0
    for row in rows:
        row["progress"] = f"{row['done']:,} of {row['total']:,}"
        row["jobs"] = ", ".join(f"{name}={value}" for name, value in row["chosen"].items() if name != "until") or "all"
    if output == "csv":
        csv_out(rows, ("id", "verb", "jobs", "state", "done", "total", "actor", "why", "at", "ended_at", "to"))
        return 0
    for row in rows:
        row["verb"] += "" if row["to"] is None else f" to {row['to']}"
    columns = ("id", "verb", "jobs", "state", "progress", "actor", "why", "at", "ended_at")
    table("", rows, columns, "nobody has acted on many jobs yet")
    return 0


@actions.command()
@click.argument("action", type=click.UUID)
@output_option
@store_options
def resume(action: UUID, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Go on with an ACTION whose command died. A worker does the same by itself after 15 seconds. Ctrl-C stops the action.

    \b
    Examples:
      jobwell actions resume 5d2c6f0e-…
    \b
    Exit codes: 3 there is no such action · 4 it is over
    """
    from jobwell.actions import jobs
    from jobwell.store.database import Database

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    try:
        with stoppable(), click.progressbar(length=0, label="going on", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
            done = jobs.resume(database, action, told=bar.update)
    except (KeyboardInterrupt, click.Abort):
        return stop_action(database, action, by=None)
    if output == "json":
        json_out({"touched": done.touched, "finished": done.finished})
    else:
        click.echo(f"{done.touched:,} job(s) more" + ("" if done.finished else "; another process goes on with it"))
    return 0


@actions.command()
@click.argument("action", type=click.UUID)
@by_option
@store_options
def stop(action: UUID, by: str | None, database_url: str | None, schema: str | None) -> int:
    r"""End an ACTION before its end. What it has done stays done.

    \b
    Examples:
      jobwell actions stop 5d2c6f0e-…
    \b
    Exit codes: 3 there is no such action · 4 it is over
    """
    from jobwell.actions import jobs
    from jobwell.actions.actor import actor
    from jobwell.store.database import Database

    jobs.stop(Database(setting.load({"database_url": database_url, "schema": schema})), action, by=actor(by))
    click.echo(f"action {action} is stopped")
    return 0
