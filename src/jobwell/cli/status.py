"""`jobwell status`."""

from dataclasses import asdict
from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import age, console, csv_out, json_out, rows_option, say, shown, store_options, table, warn
from jobwell.cli.workers import pools_told

CSV_COLUMNS = ("queue", "ready", "oldest_seconds", "paused_at", "paused_by", "paused_why", "paused_until")


@click.command()
@rows_option
@store_options
def status(output: str, database_url: str | None, schema: str | None) -> int:
    r"""What waits, runs and has failed; what is held; which limits were set; which workers live. Needs only a URL.

    Counts stop at 100,000 and are shown with a '+' then. CSV has one row for each queue. Limits from code: `jobwell limits list`.

    \b
    Examples:
      jobwell status
      jobwell status -o json | jq .states.ready
      watch jobwell status
    """
    from jobwell.actions.limits import readable
    from jobwell.core.skew import warnings
    from jobwell.core.task import STANDARD_QUEUES
    from jobwell.store import control, limits, reads
    from jobwell.store.database import Database
    from jobwell.store.statements import run
    from jobwell.store.workers import WorkerVerbs

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    with database.connect("status") as conn, database.telling():
        found = run(conn, reads.overview(database.statements, STANDARD_QUEUES))
        workers = run(conn, WorkerVerbs(database.statements).all())
        held = run(conn, limits.held(database.statements))
        limited = [readable(row) for row in run(conn, limits.listed(database.statements, only_set=True))]
        unknown = [asdict(each) for each in run(conn, control.unknown(database.statements))]
    paused = {row["queue"]: row for row in found["paused"]}
    if output == "json":
        json_out({**found, "held": held, "limits_set": limited, "workers": workers, "unknown": unknown})
    elif output == "csv":
        csv_out(
            [row | (paused.get(row["queue"]) or paused.get("*") or {}) | {"queue": row["queue"]} for row in _queues(found)],
            CSV_COLUMNS,
        )
    else:
        off = warnings(workers)
        _print(found, paused, workers)
        _print_hindrances(held, limited)
        _print_unknown(unknown)
        warn(off)
    return 0


def _print_hindrances(held: list[dict[str, Any]], limited: list[dict[str, Any]]) -> None:
    from jobwell.cli.holds import COLUMNS as HELD
    from jobwell.cli.limits import COLUMNS, row_of

    if held:
        click.echo()
        table("Held", held, HELD, "")
    if limited:
        click.echo()
        table("Limits set", [row_of(row) for row in limited], COLUMNS, "")


def _print_unknown(unknown: list[dict[str, Any]]) -> None:
    for row in unknown:
        more = "+" if row["jobs"] >= 1000 else ""
        say(f"\nNo live worker knows the task {row['task']}: {row['jobs']:,}{more} job(s) of queue {row['queue']} wait for one.")


def _queues(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The queues that hold jobs, and those that are paused and hold none."""
    rows: list[dict[str, Any]] = list(found["queues"])
    there = {row["queue"] for row in rows} | {"*"}
    return rows + [
        {"queue": row["queue"], "ready": 0, "oldest_seconds": None} for row in found["paused"] if row["queue"] not in there
    ]


def _print(found: dict[str, Any], paused: dict[str, Any], workers: list[dict[str, Any]]) -> None:
    from jobwell.core.task import STANDARD_QUEUES

    states = "   ".join(f"{name} {_capped(count)}" for name, count in found["states"].items())
    console().print(states, "\n", sep="")
    rows = [
        {
            "queue": row["queue"], "ready": _capped(row["ready"]), "oldest waits": age(row["oldest_seconds"]),
            "paused": _paused(paused.get(row["queue"])),
        }
        for row in _queues(found) if row["ready"] or row["queue"] in STANDARD_QUEUES or row["queue"] in paused
    ]  # fmt: skip
    columns = ("queue", "ready", "oldest waits", *(("paused",) if paused.keys() - {"*"} else ()))
    table("Queues", rows, columns, "no queues")
    if "*" in paused:
        say(f"\nAll queues are paused {_paused(paused['*'])}; `jobwell queues resume --all` lets them go on.")
    console().print()
    for row in workers:
        row.update(
            up=age(row["up"]), silent=age(row["silent"]), busy=f"{row['busy']}/{row['slots']}", pools=pools_told(row["pools"])
        )
    more = [name for name in ("pools", "held") if any(row[name] for row in workers)]
    shown_columns = ("name", "state", "busy", "queues", "up", "silent", "wakeups", "version")
    table("Workers", workers, (*shown_columns, *more), "No worker lives: nothing will run.")
    if not any(row["state"] == "live" for row in workers) and found["states"]["ready"]:
        click.echo("\nJobs wait and no worker lives; start one with `jobwell worker module:app`.", err=True)


def _paused(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    why = f": {row['paused_why']}" if row["paused_why"] else ""
    until = f", until {shown(row['paused_until'])}" if row["paused_until"] else ""
    return f"by {row['paused_by']} since {shown(row['paused_at'])}{until}{why}"


def _capped(count: int) -> str:
    from jobwell.store.reads import CAP

    return f"{count:,}+" if count >= CAP else f"{count:,}"
