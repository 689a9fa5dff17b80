"""`jobwell jobs …`."""

from typing import Any
from uuid import UUID

import click
import orjson

from jobwell import settings as setting
from jobwell.cli import job_actions
from jobwell.cli.enqueue import enqueue
from jobwell.cli.output import (
    age,
    brief,
    console,
    csv_out,
    facts,
    json_out,
    output_option,
    rows_option,
    say,
    shown,
    store_options,
    table,
)
from jobwell.cli.quarantine import REASONS
from jobwell.cli.steps import restart
from jobwell.cli.when import MOMENT
from jobwell.cli.why import why
from jobwell.core.text import visible
from jobwell.core.timeline import Event

FACTS = ("id", "state", "reason", "code", "task", "queue", "priority", "tenant", "lock_key", "dedup_key", "dedup", "attempt")
EVENT_COLOURS = {
    "succeeded": "green", "failed": "red", "quarantined": "red", "retrying": "yellow", "crashed": "red", "lost": "yellow",
    "action": "cyan", "step": "blue",
}  # fmt: skip
ORIGINS = {
    "code": "code (our own)", "external": "external (another system)", "limits": "limits (one was reached)",
    "validation": "validation (data that does not fit)",
}  # fmt: skip
STATES = click.Choice(["waiting", "scheduled", "ready", "running", "retrying", "succeeded", "cancelled", "failed"])
FOLLOWED = ("live", "succeeded", "failed", "discarded", "cancelled")
COLUMNS = ("id", "state", "task", "queue", "priority", "tenant", "attempt", "enqueued_at", "note")


@click.group()
def jobs() -> None:
    """Look at jobs, ask why one does not run, and enqueue one by hand. Needs only a URL."""


jobs.add_command(enqueue)
jobs.add_command(why)


jobs.add_command(job_actions.cancel)
jobs.add_command(job_actions.priority)
jobs.add_command(job_actions.retry)
jobs.add_command(restart)


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
        csv_out(rows, (*reads.LIST_COLUMNS, "progress"))
    else:
        table("", rows, (*COLUMNS, "progress") if any(row["progress"] for row in rows) else COLUMNS, "no jobs")
    if output != "json" and len(rows) == wanted["limit"]:
        click.echo(f"… more: --before {rows[-1]['id']}", err=True)
    return 0


@jobs.command()
@click.argument("job")
@output_option
@store_options
def show(job: str, output: str, database_url: str | None, schema: str | None) -> int:
    r"""Everything about one JOB: its arguments, what happened to it step by step, and why it failed.

    The beginning of its id is enough.

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
        events = run(conn, reads.timeline(database.statements, found))
    if output == "json":
        for name in ("args", "meta", "result"):
            found[name] = orjson.loads(found[name]) if found[name] is not None else None
        for edit in found["edits"]:
            edit["args"] = orjson.loads(edit["args"])
        for kept in found["checkpoints"]:
            kept["value"] = orjson.loads(kept["value"])
        json_out(found | {"timeline": [event.as_json() for event in events]})
        return 0
    _print(found, events)
    return 0


def _id(conn: Any, database: Any, typed: str) -> UUID:
    from jobwell.store import reads
    from jobwell.store.statements import run

    try:
        return UUID(typed)
    except ValueError:
        return run(conn, reads.by_prefix(database.statements, typed))


def _print(found: dict[str, Any], events: list[Event]) -> None:
    trace, edits, kept = found.pop("traceback"), found.pop("edits"), found.pop("checkpoints")
    before, behind, counts = found.pop("follows"), found.pop("followed_by"), found.pop("follow_counts")
    started, ended = found["started_at"], found["ended_at"]
    took = age((ended - started).total_seconds()) if started and ended else ""
    counters = ("failures", "crashes", "losses", "postponements")
    rows = [
        *((name, found[name]) for name in FACTS),
        ("counted", ", ".join(f"{found[name]} {name}" for name in counters if found[name]) or "no failures"),
        *((name.replace("_at", ""), found[name]) for name in ("enqueued_at", "run_at", "started_at", "ended_at", "deadline")),
        ("took", took), ("worker", found["worker"]),
        ("error", " ".join(filter(None, (found["error_type"], found["message"])))),
        ("origin", ORIGINS.get(found["origin"] or "", found["origin"])), ("note", found["note"]),
        ("arguments", _cut(found["args"])), ("carries", found["meta"]), ("result", _cut(found["result"])),
        ("progress", found["progress"]), *map(_kept, kept),
    ]  # fmt: skip
    facts((name, value) for name, value in rows if value not in (None, ""))
    _print_timeline(events)
    _print_linked("It follows", before, sum(counts[name] for name in FOLLOWED))
    _print_linked("It is followed by", behind, counts["behind"])
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


def _print_linked(title: str, jobs: list[dict[str, Any]], total: int) -> None:
    if jobs:
        console().print()
        more = f" ({len(jobs)} of {total:,})" if total > len(jobs) else ""
        table(f"{title}{more}", jobs, ("id", "state", "task"), "")


def _print_timeline(events: list[Event]) -> None:
    """With the times of this host, and how long it was until each event."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title="What happened", title_justify="left", header_style="bold", box=None, pad_edge=False)
    made.add_column(f"time ({events[0].at.astimezone():%Z})", no_wrap=True)
    made.add_column("after", justify="right", no_wrap=True)
    made.add_column("", overflow="fold")
    before = None
    for event in events:
        after = "" if before is None else brief(max(0.0, (event.at - before).total_seconds()))
        when = f"{event.at.astimezone():%Y-%m-%d %H:%M:%S}"
        made.add_row(when, after, Text(visible(event.text), EVENT_COLOURS.get(event.event, "")))
        before = event.at
    console().print()
    console().print(made)


def _kept(kept: dict[str, Any]) -> tuple[str, str]:
    name = f"cursor of {kept['name']}" if kept["name"] else "checkpoint"
    return name, f"{_cut(kept['value'])} (saved at {shown(kept['saved_at'])} in attempt {kept['attempt']})"


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= 2000 else f"{text[:2000]} … {len(text):,} characters; -o json has all"
