"""Case K6: wherever work is not done, there is a sign of it, and the age of what waits rises where an operator looks."""

from typing import Any

from psycopg import Connection

from jobwell import App, Context, Fixed, Lock, Snooze
from tests.cli.conftest import Cli
from tests.worker.helpers import Desk, working

Conn = Connection[Any]


def age(cli: Cli, queue: str) -> float:
    rows = {row["queue"]: row for row in cli("status", "-o", "json").json["queues"]}
    return float(rows[queue]["oldest_seconds"])


def why(cli: Cli, job: Any) -> str:
    return str(cli("jobs", "why", str(job.id), "-o", "json").json["because"][0]["code"])


async def test_k6_each_place_where_work_is_not_done_leaves_a_sign(app: App, conn: Conn, cli: Cli) -> None:
    """Case K6."""
    desk = Desk(app, conn)

    @app.task(name="plain", result_ttl="1s")
    async def plain() -> str:
        return "done"

    @app.task(name="snoozes", deadline="1h")
    async def snoozes(_ctx: Context) -> None:
        raise Snooze("2h", "not yet")

    @app.task(name="locked", lock=Lock("key"), retry=Fixed("1h", attempts=3))
    async def locked(key: str) -> None:
        raise TimeoutError(key)

    done, snoozed, retried = plain.enqueue(), snoozes.enqueue(), locked.enqueue("a")
    async with working(app):
        await desk.end(done)
        assert (await desk.end(snoozed))["reason"] == "deadline"
        await desk.end(plain.using(deadline="1ms").enqueue())
        cli("queues", "pause", "default", "--why", "closing", "--by", "olga")
        held = plain.enqueue()
        assert why(cli, held) == "paused"
        conn.execute("update jobs set ready_at = ready_at - interval '1 hour' where id = %s", [held.id])
        assert age(cli, "default") > 3600  # a held queue does not look healthy
        status = cli("status", "-o", "json").json
        assert [row["paused_why"] for row in status["paused"]] == ["closing"]
    found = cli("jobs", "show", str(snoozed.id), "-o", "json").json
    assert "asked to sleep past its deadline" in found["message"]
    assert why(cli, retried) == "retrying"
    assert why(cli, plain.using(run_after="1h").enqueue()) == "not_due"
    assert [row["reason"] for row in cli("quarantine", "list", "-o", "json").json] == ["deadline", "deadline"]
    cli("queues", "resume", "default")
    assert why(cli, held) == "no_worker"

    cancelled = plain.enqueue()
    cli("jobs", "cancel", str(cancelled.id), "--why", "by mistake", "--by", "olga")
    assert cli("jobs", "show", str(cancelled.id), "-o", "json").json["note"] == "cancelled by olga: by mistake"
    acts = conn.execute("select action, actor from audit order by id").fetchall()
    assert [action for action, _ in acts] == ["queues.pause", "queues.resume", "jobs.cancel"]


def test_k6_a_task_that_nobody_knows_is_named_by_the_status(app: App, conn: Conn, cli: Cli) -> None:
    """Case K6."""
    conn.execute(
        "insert into workers (id, lease_until, pid, host, name, version, slots, queues, tasks) values"
        " (gen_random_uuid(), now() + interval '1 hour', 1, 'h', 'h/1', '0', 1, '{default}', '{other}')"
    )

    @app.task(name="nobody.has.this")
    async def nobody() -> None: ...

    job = nobody.enqueue()
    assert [row["task"] for row in cli("status", "-o", "json").json["unknown"]] == ["nobody.has.this"]
    assert "No live worker knows the task nobody.has.this: 1 job(s) of queue default wait for one." in cli("status").out
    assert why(cli, job) == "task_unknown"
