"""The commands that change things, as an operator calls them."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from jobwell import App
from jobwell.cli import acting
from jobwell.core.ids import new_id
from jobwell.store.database import Database
from tests.cli.conftest import Cli
from tests.waiting import until

Conn = Connection[Any]


def fill(app: App, count: int, **using: Any) -> list[str]:
    @app.task(name="mail", tenant="firm")
    async def mail(firm: str) -> None: ...

    return [str(job) for job in app.enqueue_many(mail.using(**using).job("a" if n % 2 else "b") for n in range(count))]


def test_queues_are_paused_listed_and_resumed(app: App, conn: Conn, cli: Cli) -> None:
    fill(app, 3)
    assert cli("queues", "pause", "default").code == 2  # without a reason
    assert cli("queues", "pause", "--why", "x").code == 2  # without a queue
    nobody = cli("queues", "pause", "defalt", "--why", "x")
    assert (nobody.code, "did you mean 'default'" in nobody.err) == (3, True)
    said = cli("queues", "pause", "default", "--why", "closing", "--for", "2h", "--by", "olga")
    assert "nothing is started any more until" in said.out
    rows = {row["queue"]: row for row in cli("queues", "list", "-o", "json").json}
    assert rows["default"]["ready"] == 3
    assert (rows["default"]["state"], rows["default"]["paused_why"], rows["default"]["paused_by"]) == (
        "paused",
        "closing",
        "olga",
    )
    assert rows["bulk"]["state"] == "open"
    assert "closing" in cli("queues", "list").out
    assert cli("queues", "resume", "default", "-o", "json").json == {"resumed": ["default"]}
    cli("queues", "pause", "--all", "--why", "maintenance")
    assert {row["state"] for row in cli("queues", "list", "-o", "json").json} == {"paused"}
    still = cli("queues", "resume", "default")
    assert (still.code, "resume --all" in still.err) == (4, True)
    assert "all queues" in cli("queues", "resume", "--all").out
    audit = conn.execute("select actor, action, target, detail ->> 'why' from audit order by id limit 1").fetchall()
    assert audit == [("olga", "queues.pause", "default", "closing")]


def test_jobs_are_cancelled_by_id_and_by_filter_with_a_preview(app: App, conn: Conn, cli: Cli) -> None:
    jobs = fill(app, 10, run_after="1h")
    assert cli("jobs", "cancel").code == 2
    assert cli("jobs", "cancel", jobs[0], "--all").code == 2
    one = cli("jobs", "cancel", jobs[0], "--why", "by mistake", "--by", "olga")
    assert (one.code, one.out) == (0, "1 job(s) cancelled\n")
    again = cli("jobs", "cancel", jobs[0])
    assert (again.code, "cancelled already" in again.err) == (4, True)
    assert cli("jobs", "cancel", "00000000-0000-0000-0000-000000000001").code == 3
    preview = cli("jobs", "cancel", "--tenant", "b")
    assert (preview.code, "would cancel 4 job(s)" in preview.err) == (2, True)
    assert conn.execute("select count(*) from jobs").fetchone() == (9,)
    many = cli("jobs", "cancel", "--tenant", "b", "--yes", "-o", "json").json
    assert (many["cancelled"], many["finished"]) == (4, True)
    listed = cli("actions", "list", "-o", "json").json
    assert (listed[0]["verb"], listed[0]["done"], listed[0]["total"], listed[0]["state"]) == ("jobs.cancel", 4, 4, "done")
    assert "tenant=b" in cli("actions", "list").out
    assert cli("actions", "resume", many["action"]).code == 4
    assert cli("actions", "stop", many["action"]).code == 4
    assert "olga: by mistake" in cli("jobs", "show", jobs[0]).out


def test_nothing_matches_is_no_error(cli: Cli) -> None:
    assert cli("jobs", "cancel", "--all", "--yes").out == "0 job(s) cancelled\n"
    assert cli("jobs", "retry", "--all", "--yes").out == "0 job(s) ready again\n"
    assert cli("actions", "list").out == "nobody has acted on many jobs yet\n"


def test_every_new_command_has_a_manual(cli: Cli) -> None:
    for command in (
        ("queues", "pause"),
        ("queues", "resume"),
        ("jobs", "cancel"),
        ("jobs", "retry"),
        ("jobs", "priority"),
        ("actions", "resume"),
    ):
        said = cli(*command, "--help")
        assert said.code == 0
        assert "Exit code" in said.out


def test_workers_are_asked_to_end(app: App, conn: Conn, cli: Cli) -> None:
    assert cli("workers", "drain").code == 2
    assert cli("workers", "drain", "nobody").code == 3
    assert cli("workers", "stop", "--all").code == 4
    conn.execute(
        "insert into workers (id, lease_until, pid, host, name, version, slots, queues) values"
        " (gen_random_uuid(), now() + interval '1 hour', 1, 'h', 'h/1', '0', 1, '{}')"
    )
    assert cli("workers", "drain", "h/1", "--why", "kernel", "-o", "json").json == {"asked": 1}
    assert conn.execute("select asked from workers").fetchone() == ("drain",)
    assert cli("workers", "stop", "--all").code == 0
    assert conn.execute("select asked from workers").fetchone() == ("stop",)
    assert conn.execute("select action, detail ->> 'why' from audit order by id").fetchall() == [
        ("workers.drain", "kernel"), ("workers.stop", None),
    ]  # fmt: skip


def test_lists_come_as_csv_too(app: App, cli: Cli) -> None:
    fill(app, 2)
    cli("jobs", "cancel", "--all", "--yes", "--why", "=1+1")
    queues = cli("queues", "list", "-o", "csv").out.splitlines()
    assert queues[0].startswith("queue,state,ready,oldest_seconds")
    actions = cli("actions", "list", "-o", "csv").out.splitlines()
    assert actions[0].startswith("id,verb,jobs,state,done,total")
    assert "'=1+1" in actions[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_the_action_and_not_only_the_command(
    app: App, conn: Conn, database_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    jobs = sorted(fill(app, 1200, run_after="1h"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JOBWELL_")}
    environ = {**clean, "JOBWELL_DATABASE_URL": app.settings.url, "JOBWELL_SCHEMA": app.settings.schema}
    command = [sys.executable, "-m", "jobwell", "jobs", "cancel", "--all", "--yes", "--by", "olga"]
    with psycopg.connect(database_url, options=f"-c search_path={app.settings.schema}") as other:
        other.execute("select from jobs where id = %s for update", [jobs[700]])  # of the second piece: there it waits
        with subprocess.Popen(command, env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
            until(lambda: conn.execute("select 1 from bulk_actions where done = 500").fetchall())
            running.send_signal(number)
            said = running.communicate(timeout=30)[1]
    assert running.returncode == 130
    assert "stopped after 500 of 1,200; the rest was not touched" in said
    assert conn.execute("select state, done from bulk_actions").fetchall() == [("stopped", 500)]
    assert conn.execute("select count(*) from jobs").fetchone() == (700,)
    assert conn.execute("select actor from audit where action = 'actions.stop'").fetchall() == [("olga",)]


def test_what_cannot_be_stopped_is_told_with_its_name(app: App, conn: Conn, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = Database(replace(app.settings, database_url="postgresql://u@127.0.0.1:1/x", direct_url=""))
    action = new_id()
    assert acting.stop(nowhere, action, by="olga") == 130
    said = capsys.readouterr().err
    assert f"`jobwell actions stop {action}`" in said
    assert "a worker goes on with it" in said
    assert acting.stop(app.database, action, by="olga") == 130
    assert "nothing was touched" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["jobs cancel --yes", "jobs retry --yes", "quarantine retry --yes", "jobs list", "quarantine list"]
)
def test_a_filter_that_nothing_fits_is_no_success(app: App, conn: Conn, cli: Cli, command: str) -> None:
    fill(app, 1, run_after="1h")
    conn.execute("insert into catalog (task, spec, release) values ('shop.invoice', '{}', '0')")
    for name, value, sentence in (
        ("--queue", "bulkk", "did you mean 'bulk'?"),
        ("--task", "shop.invoic", "did you mean 'shop.invoice'?"),
        ("--task", "zzz", "there are shop.invoice"),
    ):
        said = cli(*command.split(), name, value)
        assert said.code == 3, said.err
        assert sentence in said.err
    for name, value in (("--queue", "bulk"), ("--task", "shop.invoice"), ("--task", "mail")):  # nobody has published 'mail'
        assert cli(*command.split(), name, value).code == 0


def test_a_priority_is_changed_by_id_and_by_filter_with_a_preview(app: App, conn: Conn, cli: Cli) -> None:
    jobs = fill(app, 10)
    assert cli("jobs", "priority", jobs[1]).code == 2  # to what?
    assert cli("jobs", "priority", jobs[1], "--to", "101").code == 2
    assert cli("jobs", "priority", "--to", "5").code == 2
    one = cli("jobs", "priority", jobs[1], "--to", "90", "--why", "on the phone", "--by", "olga")
    assert (one.code, one.out) == (0, "1 job(s) wait with priority 90 now\n")
    preview = cli("jobs", "priority", "--tenant", "b", "--to", "-50")
    assert (preview.code, "would give priority -50 to 5 job(s)" in preview.err) == (2, True)
    many = cli("jobs", "priority", "--tenant", "b", "--to", "-50", "--yes", "-o", "json").json
    assert (many["changed"], many["finished"]) == (5, True)
    assert conn.execute("select rank, count(*) from jobs group by 1 order by 1").fetchall() == [(10, 1), (100, 4), (150, 5)]
    assert "jobs.priority to -50" in cli("actions", "list").out
    assert cli("actions", "list", "-o", "json").json[0]["to"] == -50
    conn.execute(
        "update jobs set state = 'running', worker = gen_random_uuid(), claim_id = gen_random_uuid() where id = %s", [jobs[1]]
    )
    late = cli("jobs", "priority", jobs[1], "--to", "1")
    assert (late.code, "it is running, and a priority counts only while a job waits" in late.err) == (4, True)
    audit = conn.execute(
        "select actor, detail ->> 'to', detail ->> 'why' from audit where action = 'jobs.priority' order by id limit 1"
    )
    assert audit.fetchall() == [("olga", "90", "on the phone")]
