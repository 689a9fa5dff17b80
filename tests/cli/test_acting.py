"""The commands that change things, as an operator calls them."""

from typing import Any

from psycopg import Connection

from jobwell import App
from tests.cli.conftest import Cli

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
    for command in (("queues", "pause"), ("queues", "resume"), ("jobs", "cancel"), ("jobs", "retry"), ("actions", "resume")):
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
