"""`jobwell move`."""

import sys

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, csv_out, json_out, rows_option, say, size, store_options


@click.command()
@click.option("--to", required=True, metavar="URL", help="postgresql://…: an empty database, or one without Jobwell's tables.")
@by_option
@rows_option
@store_options
def move(to: str, by: str | None, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Take the store with all its jobs to another server, for example from the embedded one to that of production.

    Needs: all workers stopped; a target of PostgreSQL 15 or newer, older or newer than this server, whose schema of that name is
    empty or not there; here the right to rename the schema. Producers may go on: they wait while it is copied, as long as their
    statement_timeout says, and get an error then, or where they find it closed.

    The target is migrated, all tables are copied in one transaction from one snapshot, their rows are counted on both sides, and
    the old store is closed: its tables stand aside in the schema <schema>_moved_<date>, and every program that still uses it
    is told where the store is now. The store keeps its identity. Interrupted at any moment it leaves the old store as it was,
    or is ended by the same command given again. Audited on the target. When all is well there, drop the old tables:
    `drop schema jobwell_moved_20300131 cascade`.

    \b
    Examples:
      jobwell move --database-url embedded --to postgresql://jobs@db.example/jobs
    \b
    Exit codes: 1 it could not be ended, and says how it stands · 4 workers live, somebody writes, or the target is in use;
                nothing was changed
    """
    from jobwell.actions import move as actions
    from jobwell.actions.actor import actor
    from jobwell.settings import masked
    from jobwell.store.database import Database
    from jobwell.store.move import Step

    def told(step: Step) -> None:
        if sys.stderr.isatty() and step.rows is None:
            click.echo(f"\r\x1b[K… {step.table} {size(step.bytes)}", err=True, nl=False)
        elif step.rows is not None:
            start = "\r\x1b[K" if sys.stderr.isatty() else ""
            click.echo(f"{start}{step.table}: {step.rows:,} row(s), {size(step.bytes)}", err=True)

    source = Database(setting.load({"database_url": database_url, "schema": schema}))
    counts = actions.move(source, to, by=actor(by), told=told)
    rows = [{"table": name, "rows": count} for name, count in counts.items()]
    if output == "json":
        json_out({"moved": counts, "to": masked(to)})
    elif output == "csv":
        csv_out(rows, ("table", "rows"))
    else:
        total = f"{sum(counts.values()):,} row(s) in {len(counts)} tables" if counts else "an earlier move is ended"
        say(f"moved: {total}; the store is at {masked(to)} now. Set database_url (JOBWELL_DATABASE_URL) to it everywhere.")
    return 0
