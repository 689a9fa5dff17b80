"""`jobwell migrate`."""

import click

from jobwell import settings as setting
from jobwell.cli.output import json_out, output_option, store_options


@click.command()
@click.option("--plan", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--sql", "as_sql", is_flag=True, help="Print it as SQL for a DBA, and do nothing.")
@output_option
@store_options
def migrate(plan: bool, as_sql: bool, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Bring the tables up to this release. Run it before anything of a new release is started.

    Safe from many processes at once and after an interruption: each step is one transaction with its record. Needs the right
    to create the schema, or to create tables in it where a DBA has made it.

    \b
    Examples:
      jobwell migrate --plan
      jobwell migrate
      jobwell migrate --sql > for-the-dba.sql
    \b
    Exit codes: 78 the tables are newer than this release, or the store was moved away
    """
    from jobwell.store import migrations
    from jobwell.store.database import Database

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    if plan or as_sql:
        with database.connect("migrate") as conn, database.telling():
            wanted = migrations.plan(conn, database.settings.schema)
        if as_sql:
            click.echo(migrations.script(database.settings.schema, wanted), nl=False)
            return 0
    else:
        wanted = migrations.migrate(database, say=lambda step: click.echo(step, err=True) if output == "table" else None)
    if output == "json":
        json_out({"done": not plan, "steps": [{"kind": step.kind, "name": step.name} for step in wanted]})
    elif plan:
        lines = [f"would run {step.kind} {step.name}" for step in wanted]
        click.echo("\n".join(lines) or "nothing to do: the tables are up to date")
    else:
        done = f"{len(wanted)} step(s) done" if wanted else "nothing to do"
        click.echo(f"{done}: schema {database.settings.schema!r} in {database.place} fits this release")
    return 0
