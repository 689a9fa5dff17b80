"""`jobwell workers …`."""

from collections.abc import Callable
from typing import Any, Literal

import click

from jobwell import settings as setting
from jobwell.cli.output import (
    age,
    brief,
    by_option,
    console,
    csv_out,
    facts,
    json_out,
    output_option,
    rows_option,
    signed,
    store_options,
    table,
    warn,
)

COLUMNS = ("name", "state", "busy", "queues", "tasks", "up", "silent", "clock", "lag", "wakeups", "version")


@click.group()
def workers() -> None:
    """Look at worker processes, and end them. Needs only a URL."""


@workers.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True)
@rows_option
@store_options
def list_workers(limit: int, output: str, database_url: str | None, schema: str | None) -> int:
    r"""List workers: what each serves and can run, how busy it is, how long it has been up and silent.

    A worker renews its lease every few seconds (a quarter of the setting `lease`); one that is silent for longer than its lease
    is dead, and its jobs are taken back. Dead ones stay in the list for a day. 'wakeups' says whether it is told of new work
    (notify) or looks for it (poll), 'clock' by how much its host's clock is ahead of the database's (a difference above 2 s is
    pointed out; jobs go by the database's), 'lag' for how long its event loop did not answer, at the worst since its last sign.
    'pools' has slots taken of slots now, and the most with borrowed ones; 'held' says why heavy tasks are not begun.

    \b
    Examples:
      jobwell workers list
      jobwell workers list -o csv
    """
    from jobwell.core.skew import warnings
    from jobwell.store.database import Database
    from jobwell.store.workers import WORKER_COLUMNS, WorkerVerbs

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    rows = database.run(WorkerVerbs(database.statements).all(limit=limit))
    if output == "json":
        json_out(rows)
    elif output == "csv":
        csv_out(rows, WORKER_COLUMNS)
    else:
        off = warnings(rows)
        for row in rows:
            row.update(
                clock=signed(row["skew"]), lag=brief(row["lag"]), up=age(row["up"]), silent=age(row["silent"]),
                busy=f"{row['busy']}/{row['slots']}", tasks=len(row["tasks"]), pools=pools_told(row["pools"]),
            )  # fmt: skip
        more = [name for name in ("pools", "held") if any(row[name] for row in rows)]
        table("", rows, (*COLUMNS, *more), "No worker lives: nothing will run. Start one with `jobwell worker module:app`.")
        warn(off)
    return 0


@workers.command()
@click.argument("worker")
@output_option
@store_options
def show(worker: str, output: str, database_url: str | None, schema: str | None) -> int:
    r"""One WORKER, by its name or the beginning of its id: what it serves, and each job that it runs now, longest first.

    \b
    Examples:
      jobwell workers show host-1/4711
      jobwell workers show 019a22 -o json
    \b
    Exit codes: 3 there is no such worker, or there are several
    """
    from jobwell.core.skew import warnings
    from jobwell.store.database import Database
    from jobwell.store.workers import WorkerVerbs

    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    found = database.run(WorkerVerbs(database.statements).one(worker))
    if output == "json":
        json_out(found)
        return 0
    runs, pools = found.pop("runs"), found["pools"] or []
    names = ("id", "name", "host", "pid", "version", "state", "queues", "tasks", "wakeups", "started_at")
    held = [("held", found["held"])] if found["held"] else []
    facts([*((name, found[name]) for name in names), ("up", age(found["up"])), ("silent", age(found["silent"])),
           ("busy", f"{found['busy']} of {found['slots']} slots"), ("clock", signed(found["skew"])),
           ("lag", brief(found["lag"])), *held])  # fmt: skip
    warn(warnings([found]))
    console().print()
    if pools:
        table("Pools", pools, ("name", "queues", "order", "busy", "slots", "most", "least"), "")
        console().print()
    for row in runs:
        row["for"] = age(row["seconds"])
    table("Runs now", runs, ("id", "task", "queue", "tenant", "priority", "attempt", "started_at", "for"), "It runs nothing now.")
    return 0


def pools_told(pools: list[dict[str, Any]] | None) -> str:
    """Slots taken of slots now, by pool."""
    return ", ".join(
        f"{pool['name']} {pool['busy']}/{pool['slots']}" + (f"..{pool['most']}" if pool["most"] > pool["slots"] else "")
        for pool in pools or ()
    )


def _ending(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        store_options,
        output_option,
        by_option,
        click.option("--why", metavar="TEXT", help="The reason, for the audit."),
        click.option("--all", "everything", is_flag=True, help="All that live."),
        click.argument("names", nargs=-1, metavar="WORKERS"),
    ):
        command = option(command)
    return command


@workers.command()
@_ending
def drain(**given: Any) -> int:
    r"""Let WORKERS end: they claim no more, running jobs have the grace, what is left goes back. By name or beginning of the id.

    A worker that was asked ends with code 6, and its supervisor does not start it again; one that has none left ends too.

    \b
    Examples:
      jobwell workers drain host-1/4711 --why "kernel update"
      jobwell workers drain --all
    \b
    Exit codes: 3 there is no such worker, or there are several · 4 none of them lives
    """
    return _ask("drain", **given)


@workers.command()
@_ending
def stop(**given: Any) -> int:
    r"""End WORKERS at once: running jobs go back without spending an attempt. By name or the beginning of the id.

    \b
    Examples:
      jobwell workers stop 019a22
    \b
    Exit codes: 3 there is no such worker, or there are several · 4 none of them lives
    """
    return _ask("stop", **given)


def _ask(
    what: Literal["drain", "stop"],
    *,
    names: tuple[str, ...],
    everything: bool,
    why: str | None,
    by: str | None,
    output: str,
    database_url: str | None,
    schema: str | None,
) -> int:
    from jobwell.actions import workers as actions
    from jobwell.actions.actor import actor
    from jobwell.store.database import Database
    from jobwell.store.statements import run
    from jobwell.store.workers import WorkerVerbs

    if bool(names) == everything:
        raise click.UsageError("name workers, or say --all; one of the two")
    database = Database(setting.load({"database_url": database_url, "schema": schema}))
    verbs = WorkerVerbs(database.statements)
    with database.connect("workers") as conn, database.telling():
        found = run(conn, verbs.all(limit=10_000)) if everything else [run(conn, verbs.one(name)) for name in names]
    count = actions.ask(database, [row["id"] for row in found], what, by=actor(by), why=why)
    if output == "json":
        json_out({"asked": count})
    else:
        click.echo(f"{count} worker(s) are asked to {what}; they look within about a second")
    return 0
