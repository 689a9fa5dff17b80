"""`jobwell quarantine …`."""

import sys
from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, csv_out, json_out, output_option, rows_option, store_options, table

REASONS = click.Choice(["rejected", "exhausted", "deadline", "crashed", "lost", "held", "unsupported", "invalid"])


def _filters(command: Any) -> Any:
    for option in (
        click.option("--tenant"),
        click.option("--task"),
        click.option("--queue"),
        click.option("--reason", type=REASONS),
    ):
        command = option(command)
    return command


@click.group()
def quarantine() -> None:
    """Failed jobs that wait for a human. Needs only a URL."""


@quarantine.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=click.UUID, help="Older than this job: the next page.")
@rows_option
@store_options
def list_quarantine(output: str, database_url: str | None, schema: str | None, **wanted: Any) -> int:
    r"""List failed jobs, newest first. All filters given must fit.

    \b
    Examples:
      jobwell quarantine list --reason exhausted --task hr.transfer
      jobwell quarantine list -o csv > failed.csv
    """
    from jobwell.store import reads
    from jobwell.store.database import Database

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    rows = database.run(reads.quarantine(database.statements, reads.Filter(**wanted)))
    if output == "json":
        json_out(rows)
        return 0
    if output == "csv":
        csv_out(rows, reads.QUARANTINE_COLUMNS)
        return 0
    columns = ("id", "reason", "task", "tenant", "code", "error_type", "message", "ended_at")
    filtered = any(wanted[name] for name in ("reason", "queue", "task", "tenant"))
    table("", rows, columns, "none match" if filtered else "the quarantine is empty")
    if len(rows) == wanted["limit"]:
        click.echo(f"… more: --before {rows[-1]['id']}", err=True)
    return 0


@quarantine.command()
@click.argument("job")
@output_option
@store_options
@click.pass_context
def show(ctx: click.Context, job: str, output: str, database_url: str | None, schema: str | None) -> Any:
    r"""Everything about one failed JOB. The beginning of its id is enough.

    \b
    Examples:
      jobwell quarantine show 019a22
    \b
    Exit codes: 3 no job's id begins so, or several do
    """
    from jobwell.cli.jobs import show as show_job

    return ctx.invoke(show_job, job=job, output=output, database_url=database_url, schema=schema)


@quarantine.command()
@click.argument("jobs", nargs=-1)
@_filters
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@by_option
@output_option
@store_options
def retry(
    jobs: tuple[str, ...],
    everything: bool,
    yes: bool,
    by: str | None,
    output: str,
    database_url: str | None,
    schema: str | None,
    **common: str | None,
) -> int:
    r"""Put failed JOBS back to ready: a new attempt budget and deadline, the history kept, the action audited.

    Name jobs by id, or choose by filters, or say --all; the exact number is shown and confirmed before anything happens.

    \b
    Examples:
      jobwell quarantine retry 019a22 --by olga
      jobwell quarantine retry --task hr.transfer --reason exhausted
      jobwell quarantine retry --all --yes
    \b
    Exit codes: 2 not confirmed, because nobody can be asked · 3 none of the named jobs is there (any more)
    """
    from jobwell.actions import quarantine as actions
    from jobwell.cli.jobs import _id
    from jobwell.store import quarantine as store
    from jobwell.store.database import Database
    from jobwell.store.quarantine import Selection

    filtered = any(value is not None for value in common.values())
    if (bool(jobs) + filtered + everything) != 1:
        raise click.UsageError("name jobs, or give filters, or say --all; one of the three")
    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    ids = None
    if jobs:
        with database.connect("quarantine") as conn, database.telling():
            ids = [_id(conn, database, job) for job in jobs]
    chosen = Selection(ids=ids, until=database.run(store.now(database.statements)), **common)
    count = actions.count(database, chosen)
    if count and not jobs and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"this would retry {count:,} job(s); say --yes to do it without being asked")
        click.confirm(f"retry {count:,} job(s)?", abort=True)
    moved = 0
    if count or jobs:
        with click.progressbar(length=count, label="retrying", file=sys.stderr, hidden=count < 1000) as bar:
            moved = actions.retry(database, chosen, by=actions.actor(by), moved=bar.update)
    if output == "json":
        json_out({"retried": moved})
    else:
        click.echo(f"{moved:,} job(s) are ready again")
    return 0
