"""`jobwell jobs …`."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import click
import orjson

from jobwell import settings as setting
from jobwell.cli import job_actions
from jobwell.cli.enqueue import enqueue
from jobwell.cli.output import age, console, csv_out, facts, json_out, output_option, rows_option, say, store_options, table
from jobwell.cli.quarantine import REASONS
from jobwell.cli.why import why

FACTS = ("id", "state", "reason", "code", "task", "queue", "priority", "tenant", "lock_key", "attempt")
STATES = click.Choice(["scheduled", "ready", "running", "retrying", "succeeded", "cancelled", "failed"])
COLUMNS = ("id", "state", "task", "queue", "priority", "tenant", "attempt", "enqueued_at", "note")


class Moment(click.ParamType[datetime | timedelta]):
    """A moment: a duration back from now, or an ISO date and time."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | timedelta:
        """Read it; a time without a zone is UTC, as the lists show it."""
        from datetime import UTC

        from jobwell.core.duration import seconds
        from jobwell.core.errors import DeclarationError

        if isinstance(value, datetime | timedelta):
            return value
        try:
            if str(value)[:4].isdigit() and "-" in value:
                found = datetime.fromisoformat(value)
                return found if found.tzinfo else found.replace(tzinfo=UTC)
            return timedelta(seconds=seconds(value))
        except DeclarationError as error:
            if "between" in error.message:  # it is a duration, and too long a one
                self.fail(f"{value!r} is too long; at most 100 years", param, ctx)
            self.fail(f"{value!r} is neither a duration like '2h' nor a date and time like 2030-01-31T08:00Z", param, ctx)
        except ValueError:
            self.fail(f"{value!r} is neither a duration like '2h' nor a date and time like 2030-01-31T08:00Z", param, ctx)


MOMENT = Moment()


@click.group()
def jobs() -> None:
    """Look at jobs, ask why one does not run, and enqueue one by hand. Needs only a URL."""


jobs.add_command(enqueue)
jobs.add_command(why)


jobs.add_command(job_actions.cancel)
jobs.add_command(job_actions.priority)
jobs.add_command(job_actions.retry)


@jobs.command("list")
@click.option("--state", type=STATES)
@click.option("--queue")
@click.option("--task")
@click.option("--tenant")
@click.option("--reason", type=REASONS, help="Failed for this reason.")
@click.option("--fingerprint", help="Failed in the same way: as `quarantine list -o json` shows it.")
@click.option("--since", type=MOMENT, help="Enqueued at or after: 2h (back from now), 2030-01-31, 2030-01-31T08:00+05:00.")
@click.option("--until", type=MOMENT, help="Enqueued before.")
@click.option("--id", "ids", multiple=True, metavar="JOB", help="This job; give it again for more. Its beginning is enough.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=click.UUID, help="Older than this job: the next page.")
@rows_option
@store_options
def list_jobs(output: str, database_url: str | None, schema: str | None, ids: tuple[str, ...], **wanted: Any) -> int:
    r"""List jobs wherever they stand, newest first. All filters given must fit.

    Where there are more than --limit, the last line on stderr says how to go on.

    \b
    Examples:
      jobwell jobs list --state ready --queue bulk --tenant north
      jobwell jobs list --reason exhausted --since 2h -o csv > failed.csv
    \b
    Exit codes: 3 nobody knows the queue or task that a filter names, or a job
    """
    from jobwell.actions.queues import check_filters
    from jobwell.store import reads
    from jobwell.store.database import Database
    from jobwell.store.statements import run

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    check_filters(database, queue=wanted["queue"], task=wanted["task"])
    with database.connect("jobs") as conn, database.telling():
        chosen = [_id(conn, database, job) for job in ids] if ids else None
        rows = run(conn, reads.jobs(database.statements, reads.Filter(ids=chosen, **wanted)))
    if output == "json":
        json_out(rows)
    elif output == "csv":
        csv_out(rows, reads.LIST_COLUMNS)
    else:
        table("", rows, COLUMNS, "no jobs")
    if output != "json" and len(rows) == wanted["limit"]:
        click.echo(f"… more: --before {rows[-1]['id']}", err=True)
    return 0


@jobs.command()
@click.argument("job")
@output_option
@store_options
def show(job: str, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Everything about one JOB: its arguments, its attempts, and why it failed. The beginning of its id is enough.

    \b
    Examples:
      jobwell jobs show 019a22
      jobwell jobs show 019a22 -o json | jq .args
    \b
    Exit codes: 3 no job's id begins so, or several do
    """
    from jobwell.store import reads
    from jobwell.store.database import Database
    from jobwell.store.statements import run

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    with database.connect("jobs") as conn, database.telling():
        found = run(conn, reads.one(database.statements, _id(conn, database, job)))
    if output == "json":
        for name in ("args", "meta", "result"):
            found[name] = orjson.loads(found[name]) if found[name] is not None else None
        for edit in found["edits"]:
            edit["args"] = orjson.loads(edit["args"])
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
    attempts, trace, edits = found.pop("attempts"), found.pop("traceback"), found.pop("edits")
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
    if edits:
        console().print()
        table(
            "Arguments before they were edited",
            [row | {"args": _cut(row["args"])} for row in edits],
            ("at", "by", "why", "args"),
            "",
        )
    if trace:
        say(f"\n{trace}")


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= 2000 else f"{text[:2000]} … {len(text):,} characters; -o json has all"
