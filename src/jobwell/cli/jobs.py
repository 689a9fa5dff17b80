"""`jobwell jobs …`."""

from typing import Any
from uuid import UUID

import click
import orjson

from jobwell import settings as setting
from jobwell.cli import job_actions
from jobwell.cli.output import age, console, facts, json_out, output_option, store_options, table

FACTS = ("id", "state", "reason", "code", "task", "queue", "priority", "tenant", "lock_key", "attempt")
STATES = click.Choice(["scheduled", "ready", "running", "retrying", "succeeded", "cancelled", "failed"])


@click.group()
def jobs() -> None:
    """Look at jobs. Needs only a URL."""


jobs.add_command(job_actions.cancel)
jobs.add_command(job_actions.retry)


@jobs.command("list")
@click.option("--state", type=STATES)
@click.option("--queue")
@click.option("--task")
@click.option("--tenant")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=click.UUID, help="Older than this job: the next page.")
@output_option
@store_options
def list_jobs(output: str, database_url: str | None, schema: str | None, **wanted: Any) -> int:
    """List jobs wherever they stand, newest first."""
    from jobwell.store import reads
    from jobwell.store.database import Database

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    rows = database.run(reads.jobs(database.statements, reads.Filter(**wanted)))
    if output == "json":
        json_out(rows)
        return 0
    table("", rows, ("id", "state", "task", "queue", "priority", "tenant", "attempt", "enqueued_at", "note"), "no jobs")
    if len(rows) == wanted["limit"]:
        click.echo(f"… more: --before {rows[-1]['id']}", err=True)
    return 0


@jobs.command()
@click.argument("job")
@output_option
@store_options
def show(job: str, output: str, database_url: str | None, schema: str | None) -> int:
    """Everything about one JOB: its arguments, its attempts, and why it failed. The beginning of its id is enough."""
    from jobwell.store import reads
    from jobwell.store.database import Database
    from jobwell.store.statements import run

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    with database.connect("jobs") as conn, database.telling():
        found = run(conn, reads.one(database.statements, _id(conn, database, job)))
    if output == "json":
        for name in ("args", "meta", "result"):
            found[name] = orjson.loads(found[name]) if found[name] is not None else None
        json_out(found)
        return 0
    _print(found)
    return 0


def _id(conn: Any, database: Any, typed: str) -> UUID:
    from jobwell.store import reads
    from jobwell.store.statements import run

    try:
        return UUID(typed)
    except ValueError:
        return run(conn, reads.by_prefix(database.statements, typed))


def _print(found: dict[str, Any]) -> None:
    attempts, trace = found.pop("attempts"), found.pop("traceback")
    started, ended = found["started_at"], found["ended_at"]
    took = age((ended - started).total_seconds()) if started and ended else ""
    counters = ("failures", "crashes", "losses", "postponements")
    shown = [
        *((name, found[name]) for name in FACTS),
        ("counted", ", ".join(f"{found[name]} {name}" for name in counters if found[name]) or "no failures"),
        *((name.replace("_at", ""), found[name]) for name in ("enqueued_at", "run_at", "started_at", "ended_at", "deadline")),
        ("took", took), ("worker", found["worker"]),
        ("error", " ".join(filter(None, (found["error_type"], found["message"])))),
        ("note", found["note"]), ("arguments", _cut(found["args"])), ("carries", found["meta"]),
        ("result", _cut(found["result"])),
    ]  # fmt: skip
    facts((name, value) for name, value in shown if value not in (None, ""))
    if attempts:
        console().print()
        columns = ("attempt", "outcome", "error_type", "message", "started_at", "ended_at", "next_at", "note")
        table("Attempts that did not simply succeed", attempts, columns, "")
    if trace:
        click.echo(f"\n{trace}")


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= 2000 else f"{text[:2000]} … {len(text):,} characters; -o json has all"
