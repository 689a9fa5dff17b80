"""`jobwell doctor`."""

import time
from typing import Any

import click

from jobwell import settings as setting
from jobwell.cli.output import console, csv_out, facts, json_out, rows_option, store_options, table
from jobwell.core.text import visible


@click.command()
@rows_option
@store_options
def doctor(output: str, database_url: str | None, schema: str | None) -> int:
    r"""Each setting and where it came from, the server, and what is wrong, in words.

    CSV has the settings only. Needs nothing: it also says that no database is set. Passwords are masked.

    \b
    Examples:
      jobwell doctor
      jobwell doctor -o json | jq .wrong
    \b
    Exit codes: 1 something is wrong; hints alone leave it at 0
    """
    settings = setting.load({"database_url": database_url, "schema": schema})
    rows = [dict(zip(("setting", "value", "from", "what"), row, strict=True)) for row in settings.described()]
    server: dict[str, Any] = {}
    wrong, hints = _look(settings, server)
    if output == "json":
        json_out({"settings": rows, "server": server, "wrong": wrong, "hints": hints})
        return 1 if wrong else 0
    if output == "csv":
        csv_out(rows, ("setting", "value", "from", "what"))
        return 1 if wrong else 0
    from rich.markup import escape

    table("Settings", rows, ("setting", "value", "from", "what"), "")
    console().print()
    if server:
        console().print("[bold]Server[/bold]")
        facts(server.items())
        console().print()
    for line in wrong:
        console().print(f"[red]wrong[/red]  {escape(visible(line))}", markup=True)
    for line in hints:
        console().print(f"[yellow]hint[/yellow]   {escape(visible(line))}", markup=True)
    if not wrong:
        console().print("[green]ok[/green]     nothing is wrong" + (", but see the hints" if hints else ""))
    return 1 if wrong else 0


def _look(settings: setting.Settings, server: dict[str, Any]) -> tuple[list[str], list[str]]:
    from jobwell.actions import limits, subscriptions
    from jobwell.core.errors import JobwellError
    from jobwell.core.skew import warnings
    from jobwell.store import migrations
    from jobwell.store.database import Database
    from jobwell.store.path import probe
    from jobwell.store.statements import run
    from jobwell.store.workers import WorkerVerbs

    wrong: list[str] = []
    hints: list[str] = []
    try:
        settings.url  # noqa: B018  raises where none is set
        database = Database(settings)
        with database.connect("doctor") as conn, database.telling():
            server["host"] = f"{conn.info.host}:{conn.info.port}"
            server.update(run(conn, _facts(database)))
            _judge(server, wrong, hints)
            path = probe(database)
            server["pooler"] = "in transaction mode: nothing is prepared" if path.pooled else "none"
            server["wakeups"] = path.wakeups
            if path.why:
                hints.append(f"jobs are found by polling every {settings.poll:g} s, without wake-ups: {path.why}")
            migrations.check(conn, settings.schema)
            hints += limits.forgotten(database)
            hints += subscriptions.warnings(database)
            hints += warnings(run(conn, WorkerVerbs(database.statements).all()))
    except JobwellError as error:
        wrong.append(error.message)
    return wrong, hints


def _facts(database: Any) -> Any:
    rows = yield database.statements("server.facts")
    names = (
        "version", "version_text", "fsync", "synchronous_commit", "synchronous_standby_names", "max_connections",
        "shared_buffers", "encoding", "autovacuum",
        "idle_in_transaction_session_timeout", "replica", "database", "user", "may_create",
        "isolation", "read_only", "epoch",
    )  # fmt: skip
    found = dict(zip(names, rows[0], strict=True))
    found["clock_skew_ms"] = round((found.pop("epoch") - time.time()) * 1000)
    found["connections"] = (yield database.statements("server.connections"))[0][0]
    oldest = yield database.statements("server.oldest_transaction")
    found["oldest_transaction_seconds"] = round(oldest[0][3], 1) if oldest else 0
    found["oldest_transaction"] = f"pid {oldest[0][0]} ({oldest[0][2] or oldest[0][1]})" if oldest else ""
    return found


def _judge(server: dict[str, Any], wrong: list[str], hints: list[str]) -> None:
    old, skew = server["oldest_transaction_seconds"], server["clock_skew_ms"]
    checks = (
        (server["version"] < 150000, f"PostgreSQL {server['version_text']} is too old; Jobwell needs 15 or newer"),
        (server["replica"], "this server is a replica and cannot be written; give the primary's URL"),
        (server["read_only"] == "on", "default_transaction_read_only is on: nothing can be enqueued or claimed"),
        (
            server["isolation"] != "read committed",
            f"default_transaction_isolation is {server['isolation']!r}; workers need 'read committed'",
        ),
        (server["encoding"] != "UTF8", f"the database's encoding is {server['encoding']}; Jobwell needs UTF8 to store any text"),
        (server["fsync"] == "off", "fsync is off: a power failure can lose and corrupt jobs"),
        (server["autovacuum"] == "off", "autovacuum is off: the jobs table will bloat and claims will slow down"),
    )
    doubts = (
        (
            server["synchronous_commit"] == "off",
            "synchronous_commit is off: a crash of the server can lose jobs accepted in the last fraction of a second",
        ),
        (
            server["synchronous_commit"] == "local" and server["synchronous_standby_names"] != "",
            "synchronous_commit is local: no commit waits for a standby, so a fail-over can lose jobs that were accepted",
        ),
        (
            server["connections"] > 0.8 * server["max_connections"],
            f"{server['connections']} of {server['max_connections']} connections are in use; a worker process needs 3",
        ),
        (
            old > 300,
            f"a transaction is open for {old:.0f} s ({server['oldest_transaction']}): it stops vacuum and slows claims down",
        ),
        (abs(skew) > 2000, f"this host's clock differs from the server's by {skew} ms; Jobwell goes by the server's"),
    )
    wrong += [sentence for holds, sentence in checks if holds]
    hints += [sentence for holds, sentence in doubts if holds]
