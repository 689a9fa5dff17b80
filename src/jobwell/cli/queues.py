"""`jobwell queues …`."""

from datetime import datetime
from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import age, by_option, csv_out, json_out, output_option, rows_option, store_options, table


@click.group()
def queues() -> None:
    """Look at queues, hold them, and let them go on. Needs only a URL."""


@queues.command("list")
@rows_option
@store_options
def list_queues(output: str, database_url: str | None, schema: str | None) -> int:
    r"""List queues: what waits in each, for how long, and which are held by whom and why.

    Counts stop at 100,000 and are shown with a '+' then.

    \b
    Examples:
      jobwell queues list
    """
    from jobwell.core.task import STANDARD_QUEUES
    from jobwell.store import control, reads
    from jobwell.store.database import Database
    from jobwell.store.statements import run

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    with database.connect("queues") as conn, database.telling():
        held = {row["queue"]: row for row in run(conn, control.held(database.statements))}
        names = sorted({*STANDARD_QUEUES, *run(conn, control.queues(database.statements))})
        found = run(conn, reads.overview(database.statements, names))["queues"]
    rows = [_row(row, held.get(row["queue"]) or held.get(control.ALL)) for row in found]
    if output == "json":
        json_out(rows)
        return 0
    if output == "csv":
        csv_out(rows, ("queue", "state", "ready", "oldest_seconds", "paused_by", "paused_why", "paused_at", "paused_until"))
        return 0
    for row in rows:
        row.update(
            ready=f"{row['ready']:,}" + ("+" if row["ready"] >= reads.CAP else ""), oldest_waits=age(row["oldest_seconds"])
        )
    columns = ("queue", "state", "ready", "oldest_waits", "paused_by", "paused_why", "paused_at", "paused_until")
    table("", rows, columns, "no queues")
    return 0


def _row(found: dict[str, Any], hold: dict[str, Any] | None) -> dict[str, Any]:
    names = ("paused_at", "paused_by", "paused_why", "paused_until")
    return {**found, "state": "paused" if hold else "open", **{name: hold[name] if hold else None for name in names}}


@queues.command()
@click.argument("names", nargs=-1, metavar="QUEUES")
@click.option("--all", "everything", is_flag=True, help="All queues, those included that come later.")
@click.option("--why", metavar="TEXT", required=True, help="The reason, shown wherever the queue is.")
@click.option("--for", "for_", metavar="DURATION", help="Resume by itself after so long: 30m, 2h.")
@by_option
@output_option
@store_options
def pause(
    names: tuple[str, ...],
    everything: bool,
    why: str,
    for_: str | None,
    by: str | None,
    output: str,
    database_url: str | None,
    schema: str | None,
) -> int:
    r"""Hold QUEUES: nothing in them is started any more, in any worker; what runs goes on, and jobs may still be enqueued.

    Effective from the next claim on (a fraction of a second), kept across restarts and deploys, until `resume`, or for as long
    as --for says. Deadlines go on while a queue is held.

    \b
    Examples:
      jobwell queues pause bulk --why "month-end closing" --for 2h
      jobwell queues pause --all --why "database maintenance"
    \b
    Exit codes: 3 nobody knows such a queue
    """
    from jobwell.actions import queues as actions
    from jobwell.actions.actor import actor
    from jobwell.store.control import ALL
    from jobwell.store.database import Database

    if bool(names) == everything:
        raise click.UsageError("name queues, or say --all; one of the two")
    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    until = _until(database, for_) if for_ else None
    held = actions.pause(database, [ALL] if everything else names, by=actor(by), why=why, until=until)
    if output == "json":
        json_out({"paused": held, "until": until})
    else:
        click.echo(f"{_names(held)}: nothing is started any more" + (f" until {until:%Y-%m-%d %H:%M:%S}Z" if until else ""))
    return 0


@queues.command()
@click.argument("names", nargs=-1, metavar="QUEUES")
@click.option("--all", "everything", is_flag=True, help="Every hold there is.")
@by_option
@output_option
@store_options
def resume(
    names: tuple[str, ...], everything: bool, by: str | None, output: str, database_url: str | None, schema: str | None
) -> int:
    r"""Let QUEUES go on; what waits is started at once.

    \b
    Examples:
      jobwell queues resume bulk
      jobwell queues resume --all
    \b
    Exit codes: 3 nobody knows such a queue · 4 it stays held, because all are (`pause --all`); end that by `resume --all`
    """
    from jobwell.actions import queues as actions
    from jobwell.actions.actor import actor
    from jobwell.core.errors import Conflict
    from jobwell.store.control import ALL
    from jobwell.store.database import Database

    if bool(names) == everything:
        raise click.UsageError("name queues, or say --all; one of the two")
    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    freed = actions.resume(database, names, by=actor(by), everything=everything)
    if output == "json":
        json_out({"resumed": freed})
    else:
        click.echo(f"{_names(freed)}: work goes on" if freed else "none of them was held by its name")
    if names and any(row["queue"] == ALL for row in actions.held(database)):
        raise Conflict("all queues are held still, by `pause --all`: end that by `jobwell queues resume --all`")
    return 0


def _names(held: list[str]) -> str:
    return "all queues" if held == ["*"] else ", ".join("all queues" if name == "*" else name for name in held)


def _until(database: Any, duration: str) -> datetime:
    from datetime import timedelta

    from jobwell.core.duration import seconds
    from jobwell.core.errors import DeclarationError
    from jobwell.store import control

    try:
        lasts = seconds(duration, "--for")
    except DeclarationError as error:
        raise click.BadParameter(error.message, param_hint="--for") from None
    now: datetime = database.run(control.now(database.statements))
    return now + timedelta(seconds=lasts)
