"""`jobwell steps …`, and `jobwell jobs restart`."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click
import orjson

from jobwell import settings as setting
from jobwell.cli.output import by_option, csv_out, json_out, output_option, rows_option, say, store_options, table

COLUMNS = ("name", "state", "unknown", "attempt", "started_at", "done_at", "result", "call", "note", "compensate", "undo_id")
SHOWN = 200
TOLD = {
    "retried": "the job is ready again",
    "waits": "its next attempt comes by itself",
    "over": "the job is over and does not go on",
}


@click.group()
def steps() -> None:
    """Steps of jobs: what was done, what is not known, and what a person says of it. Needs only a URL."""


@steps.command("list")
@click.argument("job", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Without a JOB: the most rows.")
@rows_option
@store_options
def list_steps(job: str | None, limit: int, output: str, database_url: str | None, schema: str | None) -> int:
    r"""List the steps of a JOB in the order in which they were begun. The beginning of its id is enough.

    Without a JOB: those of all jobs that need a person, the oldest first: their outcome is not known, their undoing is not
    over, or they cannot be undone before somebody says what they returned.

    States: started (whether it happened is not known, unless the job runs), done, compensating (what undoes it is under way),
    compensated, left (a person gave its undoing up).

    \b
    Examples:
      jobwell steps list
      jobwell steps list 019a22 -o json
    \b
    Exit codes: 3 no job's id begins so, or several do
    """
    from jobwell.actions import steps as actions
    from jobwell.store.steps import COLUMNS as ALL
    from jobwell.store.steps import OPEN_COLUMNS

    database = _database(database_url, schema)
    all_columns: Sequence[str]
    columns: Sequence[str]
    if job is None:
        rows, all_columns, columns = actions.unsettled(database, limit=limit), OPEN_COLUMNS, OPEN_COLUMNS
    else:
        rows, all_columns, columns = actions.of_job(database, _job(database, job)), ALL, COLUMNS
    if output == "json":
        json_out([row | {"result": orjson.loads(row["result"])} if row.get("result") is not None else row for row in rows])
    elif output == "csv":
        csv_out(rows, all_columns)
    else:
        empty = "nothing waits for a person" if job is None else "the job has made no steps"
        table("", [row | {"result": _cut(row.get("result"))} for row in rows], columns, empty)
    return 0


@steps.command()
@click.argument("job")
@click.argument("name")
@click.option("--happened/--did-not-happen", "happened", default=None, help="What became of it.")
@click.option("--result", metavar="JSON", help="What the step is to return, if it happened (default: nothing).")
@click.option("--why", metavar="TEXT", help="How you know; compulsory.")
@by_option
@output_option
@store_options
def answer(output: str, database_url: str | None, schema: str | None, by: str | None, why: str | None, **given: Any) -> int:
    r"""Say what became of the step NAME of a JOB, of which nobody could know whether it happened.

    A job that is held in the quarantine for it becomes ready again, with a new attempt budget and deadline: what happened is not
    done again, what did not happen is done. --result is for what later parts of the job take from the step.

    For a job that is over (cancelled, or given up) it goes no further; where the step happened, it is undone now if it can be.

    \b
    Examples:
      jobwell steps answer 019a22 charge --happened --result '{"receipt": 77}' --why "it stands in the bank's list"
      jobwell steps answer 019a22 charge --did-not-happen --why "the bank knows nothing of it"
    \b
    Exit codes: 3 no job's id begins so, or it has no such step · 4 the job runs, or the outcome is known
    """
    from jobwell.actions import steps as actions
    from jobwell.actions.actor import actor

    if given["happened"] is None:
        raise click.UsageError("say --happened or --did-not-happen; nothing was done")
    database = _database(database_url, schema)
    job = _job(database, given["job"])
    became = actions.answer(
        database, job, given["name"], happened=given["happened"], by=actor(by), why=why or "", result=given["result"]
    )
    if output == "json":
        json_out({"job": job, "step": given["name"], "happened": given["happened"], "became": became})
        return 0
    say(f"step {given['name']!r} {'happened' if given['happened'] else 'did not happen'}; {TOLD[became]}")
    return 0


@click.command()
@click.argument("job")
@click.option("--from", "name", required=True, metavar="STEP", help="The first step that is to be done again.")
@click.option("--why", metavar="TEXT", help="The reason; compulsory.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@by_option
@output_option
@store_options
def restart(
    job: str, name: str, why: str | None, yes: bool, by: str | None, output: str, database_url: str | None, schema: str | None
) -> int:
    r"""Let a JOB do a step again, and all that were begun after it. What they have done outside is repeated.

    The job may wait for an attempt, or be in the quarantine, from which it is taken back. The keys of the steps stay the same: a
    system that recognises repeats by them will not do it twice. What the steps were stays in the audit.

    \b
    Examples:
      jobwell jobs restart 019a22 --from report --why "the figures were wrong"
    \b
    Exit codes: 3 no job's id begins so, or it has no such step · 4 the job runs or is over, or an outcome is unknown
    """
    from jobwell.actions import steps as actions
    from jobwell.actions.actor import actor

    database = _database(database_url, schema)
    chosen = _job(database, job)
    if not yes:
        names = [row["name"] for row in actions.of_job(database, chosen)]
        again = names[names.index(name) :] if name in names else []
        if again:
            click.confirm(f"do again: {', '.join(again)}?", abort=True, err=True)
    forgotten = actions.restart(database, chosen, name, by=actor(by), why=why or "")
    if output == "json":
        json_out({"job": chosen, "again": forgotten})
        return 0
    say(f"to be done again: {', '.join(forgotten)}")
    return 0


def _database(url: str | None, schema: str | None) -> Any:
    from jobwell.store.database import Database

    return Database(setting.load({"database_url": url, "schema": schema}))


def _job(database: Any, typed: str) -> UUID:
    from jobwell.store import reads
    from jobwell.store.statements import run

    try:
        return UUID(typed)
    except ValueError:
        with database.connect("steps") as conn, database.telling():
            return run(conn, reads.by_prefix(database.statements, typed))


def _cut(value: str | None) -> str | None:
    return value if value is None or len(value) <= SHOWN else f"{value[:SHOWN]} … -o json has all"
