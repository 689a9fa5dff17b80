"""`jobwell workers …`."""

import click

from jobwell import settings as setting
from jobwell.cli.output import age, console, csv_out, facts, json_out, output_option, rows_option, store_options, table

COLUMNS = ("name", "state", "busy", "queues", "tasks", "up", "silent", "wakeups", "version")


@click.group()
def workers() -> None:
    """Look at worker processes. Needs only a URL."""


@workers.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True)
@rows_option
@store_options
def list_workers(limit: int, output: str, database_url: str | None, schema: str | None) -> int:
    r"""List workers: what each serves and can run, how busy it is, how long it has been up and silent.

    A worker renews its lease every few seconds (a quarter of the setting `lease`); one that is silent for longer than its lease
    is dead, and its jobs are taken back. Dead ones stay in the list for a day. 'wakeups' says whether it is told of new work
    (notify) or looks for it (poll).

    \b
    Examples:
      jobwell workers list
      jobwell workers list -o csv
    """
    from jobwell.store.database import Database
    from jobwell.store.workers import WORKER_COLUMNS, WorkerVerbs

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    rows = database.run(WorkerVerbs(database.statements).all(limit=limit))
    if output == "json":
        json_out(rows)
    elif output == "csv":
        csv_out(rows, WORKER_COLUMNS)
    else:
        for row in rows:
            row.update(
                up=age(row["up"]), silent=age(row["silent"]), busy=f"{row['busy']}/{row['slots']}", tasks=len(row["tasks"])
            )
        table("", rows, COLUMNS, "No worker lives: nothing will run. Start one with `jobwell worker module:app`.")
    return 0


@workers.command()
@click.argument("worker")
@output_option
@store_options
def show(worker: str, output: str, database_url: str | None, schema: str | None) -> int:
    r"""One WORKER, by its name or the beginning of its id: what it serves, and each job that it runs now, longest first.

    \b
    Examples:
      jobwell workers show host-1/4711
      jobwell workers show 019a22 -o json
    \b
    Exit codes: 3 there is no such worker, or there are several
    """
    from jobwell.store.database import Database
    from jobwell.store.workers import WorkerVerbs

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    found = database.run(WorkerVerbs(database.statements).one(worker))
    if output == "json":
        json_out(found)
        return 0
    runs = found.pop("runs")
    names = ("id", "name", "host", "pid", "version", "state", "queues", "tasks", "wakeups", "started_at")
    facts([*((name, found[name]) for name in names), ("up", age(found["up"])), ("silent", age(found["silent"])),
           ("busy", f"{found['busy']} of {found['slots']} slots")])  # fmt: skip
    console().print()
    for row in runs:
        row["for"] = age(row["seconds"])
    table("Runs now", runs, ("id", "task", "queue", "tenant", "priority", "attempt", "started_at", "for"), "It runs nothing now.")
    return 0
