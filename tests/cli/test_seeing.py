"""Seeing and acting: status, jobs, quarantine, doctor, migrate."""

import asyncio
from typing import Any

import psycopg

from jobwell import App, Fixed, Reject
from jobwell.worker.worker import Worker
from tests.cli.conftest import Cli
from tests.waiting import auntil

Conn = psycopg.Connection[tuple[Any, ...]]


def work_off(app: App, conn: Conn, *, attempts: int = 1) -> None:
    """Run a worker until nothing is live."""

    async def live() -> None:
        worker = Worker(app, slots=10)
        running = asyncio.create_task(worker.run())
        await worker.ready()
        query = f"select not exists (select from {app.settings.schema}.jobs)"
        await auntil(lambda: conn.execute(query).fetchone() == (True,), what="no live job")
        worker.stop()
        assert await running == 0

    del attempts
    asyncio.run(asyncio.wait_for(live(), 30))


def declare(app: App) -> tuple[Any, Any]:
    @app.task(name="good")
    async def good(text: str) -> str:
        return text.upper()

    @app.task(name="bad", tenant="branch", retry=Fixed("1s", attempts=1))
    async def bad(number: int, branch: str) -> None:
        if number == 0:
            raise Reject("no_such_thing", "\x1b[2Jit is gone")
        raise ValueError(f"number {number}")

    return good, bad


def test_a_job_from_enqueue_to_show(app: App, conn: Conn, cli: Cli) -> None:
    good, _ = declare(app)
    job = good.enqueue(text="hello")
    waiting = cli("status", "-o", "json").json
    assert waiting["states"]["ready"] == 1
    assert {"queue": "default", "ready": 1}.items() <= next(q for q in waiting["queues"] if q["queue"] == "default").items()
    work_off(app, conn)
    shown = cli("jobs", "show", str(job.id), "-o", "json").json
    assert (shown["state"], shown["result"], shown["args"], shown["attempt"]) == ("succeeded", "HELLO", {"text": "hello"}, 1)
    assert cli("jobs", "show", str(job.id)[:18], "-o", "json").json["id"] == str(job.id)
    assert "succeeded" in cli("jobs", "show", str(job.id)).out
    listed = cli("jobs", "list", "--state", "succeeded", "-o", "json").json
    assert [row["id"] for row in listed] == [str(job.id)]
    assert "good" in cli("jobs", "list").out


def test_quarantine_list_show_retry_is_previewed_and_audited(app: App, conn: Conn, cli: Cli) -> None:
    _, bad = declare(app)
    rejected = bad.enqueue(0, "north")
    for number in (1, 2, 3):
        bad.enqueue(number, "south")
    work_off(app, conn)
    rows = cli("quarantine", "list", "-o", "json").json
    assert sorted(row["reason"] for row in rows) == ["exhausted", "exhausted", "exhausted", "rejected"]
    shown = cli("quarantine", "show", str(rejected.id))
    assert "no_such_thing" in shown.out
    assert "\x1b[2J" not in shown.out
    refused = cli("quarantine", "retry", "--tenant", "south")
    assert refused.code == 2
    assert "3 job(s)" in refused.err
    assert cli("quarantine", "retry").code == 2
    assert cli("quarantine", "retry", "--all", "--tenant", "south", "--yes").code == 2
    done = cli("quarantine", "retry", "--tenant", "south", "--yes", "--by", "olga", "-o", "json")
    assert done.json["retried"] == 3
    again = cli("quarantine", "retry", str(rejected.id), "--by", "olga")
    assert again.code == 0
    twice = cli("quarantine", "retry", str(rejected.id))
    assert twice.code == 4
    schema = app.settings.schema
    audit = conn.execute(f"select actor, action, target from {schema}.audit order by id").fetchall()
    assert audit[0][:2] == ("olga", "quarantine.retry.begin")
    assert audit[1:] == [("olga", "quarantine.retry", "3 jobs"), ("olga", "quarantine.retry", str(rejected.id))]
    budget = conn.execute(f"select distinct failures, state from {schema}.jobs").fetchall()
    assert budget == [(0, "ready")]
    work_off(app, conn)
    history = cli("jobs", "show", str(rejected.id), "-o", "json").json
    assert [attempt["attempt"] for attempt in history["attempts"]] == [1, 2]


def test_doctor_shows_origins_and_server(cli: Cli) -> None:
    said = cli("doctor", "-o", "json", JOBWELL_GRACE="7s")
    found = {row["setting"]: row for row in said.json["settings"]}
    assert (found["grace"]["value"], found["grace"]["from"]) == ("7s", "JOBWELL_GRACE")
    assert found["lease"]["from"] == "default"
    assert said.json["server"]["version"] >= 150000
    assert all("autovacuum" in line for line in said.json["wrong"])  # some test servers run without it
    assert "grace" in cli("doctor").out


def test_migrate_plan_sql_and_json(cli: Cli, conn: Conn) -> None:
    schema = "jwtest_cli_migrate"
    conn.execute(f"drop schema if exists {schema} cascade")
    try:
        assert "would run migration 0001" in cli("migrate", "--plan", JOBWELL_SCHEMA=schema).out
        assert "create table jwtest_cli_migrate.jobs" in cli("migrate", "--sql", JOBWELL_SCHEMA=schema).out
        done = cli("migrate", "-o", "json", JOBWELL_SCHEMA=schema).json
        assert done["done"]
        assert done["steps"][0]["name"].startswith("0001")
        assert cli("migrate", "-o", "json", JOBWELL_SCHEMA=schema).json["steps"] == []
        assert "nothing to do" in cli("migrate", "--plan", JOBWELL_SCHEMA=schema).out
    finally:
        conn.execute(f"drop schema if exists {schema} cascade")


def test_help_is_a_manual(bare: Cli) -> None:
    for command in (
        (), ("worker",), ("up",), ("status",), ("jobs",), ("jobs", "list"), ("jobs", "show"), ("quarantine",), ("quarantine", "retry"),
        ("migrate",), ("doctor",), ("bench",), ("demo",),
    ):  # fmt: skip
        said = bare(*command, "--help")
        assert said.code == 0
        assert len(said.out.splitlines()) > 6, command
    assert "Exit codes" in bare("--help").out
