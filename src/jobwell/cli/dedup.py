"""`jobwell dedup …`."""

import click

from jobwell import settings as setting
from jobwell.cli.output import by_option, csv_out, json_out, output_option, rows_option, say, shown, store_options, table


@click.group()
def dedup() -> None:
    """Enqueues that made no job, because an equal one stands for them. Needs only a URL."""


@dedup.command("list")
@click.option("--task", help="Only of this task.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="The most that are listed.")
@rows_option
@store_options
def list_suppressed(task: str | None, limit: int, output: str, database_url: str | None, schema: str | None) -> int:
    r"""How many enqueues were suppressed, by task and reason, and the last ones of them.

    The counts are exact and kept for ever. Single ones are listed as long as finished jobs are kept, the last 100,000 at most.

    \b
    Examples:
      jobwell dedup list
      jobwell dedup list --task hr.notify --limit 100 -o csv > suppressed.csv
    """
    from jobwell.actions import dedup as actions
    from jobwell.store.database import Database
    from jobwell.store.dedup import HIT_COLUMNS, TOTAL_COLUMNS

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    counted, last = actions.suppressed(database, task=task, limit=limit)
    if output == "json":
        json_out({"counts": counted, "last": last})
    elif output == "csv":
        csv_out(last, HIT_COLUMNS)
    else:
        table("", counted, TOTAL_COLUMNS, "no enqueue was suppressed")
        if last:
            click.echo("")
            table("", last, HIT_COLUMNS, "")
    return 0


@dedup.command()
@click.argument("key")
@output_option
@store_options
def show(key: str, output: str, database_url: str | None, schema: str | None) -> int:
    r"""What stands for KEY, and the last enqueues that it suppressed. A job's id, or its beginning, names its key.

    \b
    Examples:
      jobwell dedup show 'hr.notify:{"employee_id":7}'
      jobwell dedup show 019a4f
    \b
    Exit codes: 3 nothing stands for it, and nothing was suppressed by it lately
    """
    from jobwell.actions import dedup as actions
    from jobwell.store.database import Database
    from jobwell.store.dedup import HIT_COLUMNS

    found = actions.show(Database(setting.load({"database_url": database_url, "schema": schema})), key)
    if output == "json":
        json_out(found)
        return 0
    say(f"key   {found['key']}")
    for row in found["held_by"]:
        until = f", until {shown(row['until'])}" if row["until"] else ""
        void = "; it is over, or void, so the next job is accepted" if row["void"] else ""
        say(f"held  by job {row['job']} of {row['task']}, {row['state']}, since {shown(row['since'])}{until}{void}")
    if not found["held_by"]:
        say("held  by nobody: the next job is accepted")
    if found["suppressed"]:
        click.echo("")
        table("", found["suppressed"], tuple(name for name in HIT_COLUMNS if name != "key"), "")
    return 0


@dedup.command()
@click.argument("key")
@click.option("--why", metavar="TEXT", required=True, help="The reason, for the audit.")
@by_option
@output_option
@store_options
def release(key: str, why: str, by: str | None, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Let go of KEY: the next equal job is accepted, and runs beside the one that held it, if that still lives. Audited.

    \b
    Examples:
      jobwell dedup release 'hr.notify:{"employee_id":7}' --why "the first one had the wrong address"
      jobwell dedup release 019a4f --why "must go out again today"
    \b
    Exit codes: 3 nothing stands for it · 4 what stood for it has ended at this moment
    """
    from jobwell.actions import dedup as actions
    from jobwell.actions.actor import actor
    from jobwell.store.database import Database

    freed = actions.release(Database(setting.load({"database_url": database_url, "schema": schema})), key, by=actor(by), why=why)
    if output == "json":
        json_out({"released": freed})
    else:
        say(f"released; it was held by {', '.join(map(str, freed))}, which goes on")
    return 0
