"""`jobwell quarantine groups` and `set`: failures of one kind, and what people say of them."""

from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, csv_out, json_out, output_option, rows_option, say, store_options, table

REASONS = click.Choice(["rejected", "exhausted", "deadline", "crashed", "lost", "held", "unsupported", "invalid"])
STATES = click.Choice(["new", "looked at", "waiting", "resolved"])
SHOWN = click.Choice(["open", "new", "new again", "looked at", "waiting", "resolved"])
COLUMNS = ("group", "state", "count", "task", "error", "origin", "message", "tenants", "last_seen", "owner", "note", "example")


@click.command()
@click.option("--tenant")
@click.option("--task")
@click.option("--queue")
@click.option("--reason", type=REASONS)
@click.option("--state", type=SHOWN, help="Only groups in this state; open: all that are not resolved.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@rows_option
@store_options
def groups(output: str, database_url: str | None, schema: str | None, state: str | None, limit: int, **wanted: Any) -> int:
    r"""Group failed jobs by what went wrong: the task, the error, the place, and the message without what differs.

    The group that failed last comes first. "new again" was resolved, and has failed since.

    \b
    Examples:
      jobwell quarantine groups --state open
      jobwell quarantine groups --task hr.transfer -o csv > groups.csv
    \b
    Exit codes: 3 nobody knows the queue or task that a filter names
    """
    from jobwell.actions import triage
    from jobwell.actions.queues import check_filters
    from jobwell.core.filters import Selection
    from jobwell.store.database import Database
    from jobwell.store.quarantine import GROUP_COLUMNS

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    check_filters(database, queue=wanted["queue"], task=wanted["task"])
    rows = triage.groups(database, Selection(**wanted), state=state, limit=limit)
    if output == "json":
        json_out(rows)
        return 0
    if output == "csv":
        csv_out(rows, GROUP_COLUMNS)
        return 0
    for row in rows:
        row["error"] = row["code"] or row["error_type"] or row["reason"]
        row["example"] = str(row["examples"][0])
        row["tenants"] = f"{row['tenants']}: {', '.join(row['some_tenants'])}" if row["tenants"] else ""
    table("", rows, COLUMNS, "none match" if state or any(wanted.values()) else "the quarantine is empty")
    if len(rows) == limit:
        click.echo("… there may be more: --limit", err=True)
    return 0


@click.command("set")
@click.argument("group")
@click.option("--owner", help="Who answers for it; an empty text: whom the task names.")
@click.option("--note", help="What is known of it; an empty text takes it away.")
@click.option("--state", type=STATES, help="How far it is.")
@by_option
@output_option
@store_options
def set_group(
    group: str,
    output: str,
    database_url: str | None,
    schema: str | None,
    by: str | None,
    owner: str | None,
    note: str | None,
    state: Any,
) -> int:
    r"""Say whose a GROUP of failed jobs is, what is known of it, and how far it is. The beginning of its name is enough.

    A resolved group in which another job fails is shown as "new again".

    \b
    Examples:
      jobwell quarantine set 5d2c6f --owner olga --state waiting --note "the bank answers tomorrow"
      jobwell quarantine set 5d2c6f --state resolved
    \b
    Exit codes: 3 no group's name begins so, or several do
    """
    from jobwell.actions import triage
    from jobwell.actions.actor import actor
    from jobwell.store.database import Database

    if owner is None and note is None and state is None:
        raise click.UsageError("give --owner, --note or --state")
    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    said = triage.put(database, group, by=actor(by), owner=owner, note=note, state=state)
    if output == "json":
        json_out(said)
        return 0
    more = "".join(f", {name} {said[name]}" for name in ("owner", "note") if said[name])
    say(f"group {said['group']}: {said['state']}{more}")
    return 0
