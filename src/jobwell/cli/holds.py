"""`jobwell pause`, `jobwell resume` and `jobwell holds`."""

from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, csv_out, json_out, output_option, rows_option, say, shown, store_options, table
from jobwell.cli.when import ending, ends_options
from jobwell.core.limits import KINDS

COLUMNS = ("kind", "name", "held_by", "held_why", "held_at", "held_until")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("names", nargs=-1, required=True)
@click.option("--why", metavar="TEXT", required=True, help="The reason, shown wherever the hold is.")
@ends_options
@click.option("--dry-run", is_flag=True, help="Only say what it would delay.")
@by_option
@output_option
@store_options
def pause(
    kind: Any,
    names: tuple[str, ...],
    why: str,
    for_: str | None,
    until: str | None,
    dry_run: bool,
    by: str | None,
    output: str,
    database_url: str | None,
    schema: str | None,
) -> int:
    r"""Hold tasks, queues, resources or tenants by NAMES: none of their jobs is started any more, in any worker.

    What runs goes on, and jobs may still be enqueued. It says first how many jobs that delays, and how many of them pass their
    deadline meanwhile (within a day, where the hold has no end). Effective from the next claim on, kept across restarts and
    deploys, until `resume` or the end that is given. Counts stop at 100,000.

    \b
    Examples:
      jobwell pause task hr.transfer --why "wrong data" --dry-run
      jobwell pause resource sms-gateway --why "the provider is down" --until 18:00
      jobwell pause tenant acme --why "invoice unpaid"
    \b
    Exit codes: 3 nobody knows such a thing
    """
    from jobwell.actions import limits as actions
    from jobwell.actions.actor import actor
    from jobwell.store.database import Database

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    end = ending(database, for_, until)
    delays = actions.preview(database, kind, names, until=end)
    if output != "json":
        for delay in delays:
            say(_said(delay))
    held = [] if dry_run else actions.hold(database, kind, names, by=actor(by), why=why, until=end)
    if output == "json":
        json_out({"held": held, "kind": kind, "until": end, "dry_run": dry_run, "delays": [vars(delay) for delay in delays]})
    elif dry_run:
        click.echo("nothing was done")
    else:
        say(f"held: {', '.join(held)}; nothing of it is started any more" + (f" until {shown(end)}" if end else ""))
    return 0


def _said(delay: Any) -> str:
    more = "+" if delay.more else ""
    late = f"; {delay.late:,}{more} pass their deadline by {shown(delay.by)}" if delay.late else "; none passes its deadline"
    first = f", the first at {shown(delay.first)}" if delay.late else f" by {shown(delay.by)}"
    return f"{delay.kind} {delay.name}: {delay.waiting:,}{more} job(s) wait behind it" + (late + first if delay.waiting else "")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of that kind that are held.")
@by_option
@output_option
@store_options
def resume(
    kind: Any, names: tuple[str, ...], everything: bool, by: str | None, output: str, database_url: str | None, schema: str | None
) -> int:
    r"""Let tasks, queues, resources or tenants go on; what waits is started at once.

    \b
    Examples:
      jobwell resume task hr.transfer
      jobwell resume tenant --all
    \b
    Exit codes: 3 nobody knows such a thing · 4 a queue stays held, because all are; end that by `resume queue --all`
    """
    from jobwell.actions import limits as actions
    from jobwell.actions.actor import actor
    from jobwell.core.errors import Conflict
    from jobwell.store.control import ALL
    from jobwell.store.database import Database

    if bool(names) == everything:
        raise click.UsageError("give names, or say --all; one of the two")
    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    freed = actions.release(database, kind, names, by=actor(by), everything=everything)
    if output == "json":
        json_out({"kind": kind, "resumed": freed})
    else:
        say(f"{', '.join(freed)}: work goes on" if freed else "none of them was held by its name")
    if names and any((row["kind"], row["name"]) == (kind, ALL) for row in actions.held(database)):
        raise Conflict("all queues are held still: end that by `jobwell resume queue --all`")
    return 0


@click.command()
@rows_option
@store_options
def holds(output: str, database_url: str | None, schema: str | None) -> int:
    r"""What is held now: tasks, queues ('*' is all), resources and tenants, by whom, why and until when.

    \b
    Examples:
      jobwell holds
    """
    from jobwell.actions import limits as actions
    from jobwell.store.database import Database

    rows = actions.held(Database(setting.load({"database_url": database_url, "schema": schema})))
    if output == "json":
        json_out(rows)
    elif output == "csv":
        csv_out(rows, COLUMNS)
    else:
        table("", rows, COLUMNS, "nothing is held")
    return 0
