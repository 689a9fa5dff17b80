"""`jobwell status`."""

import click

from jobwell import settings as setting
from jobwell.cli.output import age, console, json_out, output_option, store_options, table


@click.command()
@output_option
@store_options
def status(output: str, database_url: str | None, schema: str | None) -> int:
    """What waits, runs and has failed; which workers live. Needs only a URL.

    Counts stop at 100,000 and are shown with a '+' then.
    """
    from jobwell.core.task import STANDARD_QUEUES
    from jobwell.store import reads
    from jobwell.store.database import Database
    from jobwell.store.statements import run
    from jobwell.store.workers import WorkerVerbs

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    with database.connect("status") as conn, database.telling():
        found = run(conn, reads.overview(database.statements, STANDARD_QUEUES))
        workers = run(conn, WorkerVerbs(database.statements).all())
    if output == "json":
        json_out({**found, "workers": workers})
        return 0
    states = "   ".join(f"{name} {_capped(count)}" for name, count in found["states"].items())
    console().print(states, "\n", sep="")
    rows = [
        {"queue": row["queue"], "ready": _capped(row["ready"]), "oldest waits": age(row["oldest_seconds"])}
        for row in found["queues"] if row["ready"] or row["queue"] in STANDARD_QUEUES
    ]  # fmt: skip
    table("Queues", rows, ("queue", "ready", "oldest waits"), "no queues")
    console().print()
    for row in workers:
        row.update(up=age(row["up"]), silent=age(row["silent"]), busy=f"{row['busy']}/{row['slots']}")
    columns = ("name", "state", "busy", "queues", "up", "silent", "wakeups", "version")
    table("Workers", workers, columns, "No worker lives: nothing will run.")
    if not any(row["state"] == "live" for row in workers) and found["states"]["ready"]:
        click.echo("\nJobs wait and no worker lives; start one with `jobwell worker module:app`.", err=True)
    return 0


def _capped(count: int) -> str:
    from jobwell.store.reads import CAP

    return f"{count:,}+" if count >= CAP else f"{count:,}"
