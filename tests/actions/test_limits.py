"""What operators do about limits and holds: it counts at once, is on record, and says beforehand what it delays."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Conflict, DeclarationError, Limit, NotFound, Rate
from jobwell.actions import limits as actions
from jobwell.actions import queues
from jobwell.client.task import AsyncTask
from jobwell.core.ids import new_id
from jobwell.core.limits import Kind
from jobwell.store import control
from jobwell.store import limits as store
from jobwell.store.statements import run
from tests.waiting import auntil
from tests.worker.helpers import Desk, working

Conn = Connection[Any]
Note = AsyncTask[..., None]


@pytest.fixture
def note(app: App, conn: Conn) -> Note:
    """A task with a resource and a tenant, known to the store as a worker makes it known."""
    app.resource("sms-gateway", concurrency=5, rate="300/min")

    @app.task(name="hr.note", resources=("sms-gateway",), tenant="branch")
    async def note(n: int, branch: str = "north") -> None: ...

    publish(app, conn)
    return note


def publish(app: App, conn: Conn) -> None:
    run(conn, store.publish(app.database.statements, new_id(), app.catalog, app.limits_declared()))


def audit(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute("select actor, action, target, detail from audit order by at, id").fetchall()


def now(app: App) -> datetime:
    return app.database.run(control.now(app.database.statements))


def only(app: App) -> dict[str, Any]:
    (row,) = actions.listed(app.database)
    return row


def test_what_is_set_goes_before_code_until_it_is_cleared(app: App, conn: Conn, note: Note) -> None:
    assert (only(app)["concurrency"], only(app)["rate"], only(app)["set_by"]) == (5, ["300/min"], None)
    change = {"concurrency": 2, "rates": (Rate(1, 1), Rate(60, 60))}
    row = actions.put(app.database, "resource", "sms-gateway", change, by="olga", why="provider asked")
    assert (row["concurrency"], row["rate"], row["code_concurrency"], row["code_rate"]) == (2, ["1/s", "60/min"], 5, ["300/min"])
    assert (row["set_by"], row["set_why"], row["set_until"]) == ("olga", "provider asked", None)
    actions.put(app.database, "resource", "sms-gateway", {"rates": ()}, by="olga", why="they are back")
    assert (only(app)["concurrency"], only(app)["rate"]) == (2, [])  # what is not given stays
    publish(app, conn)
    assert only(app)["concurrency"] == 2  # a deploy changes nothing of it
    assert actions.clear(app.database, "resource", "sms-gateway", by="olga") == ["fleet"]
    assert actions.clear(app.database, "resource", "sms-gateway", by="olga") == []
    assert (only(app)["concurrency"], only(app)["rate"], only(app)["set_by"]) == (5, ["300/min"], None)
    assert [(actor, action, target) for actor, action, target, _ in audit(conn)] == [
        ("olga", "limits.set", "resource:sms-gateway"), ("olga", "limits.set", "resource:sms-gateway"),
        ("olga", "limits.clear", "resource:sms-gateway")]  # fmt: skip
    assert audit(conn)[0][3] == {
        "per": "fleet",
        "concurrency": 2,
        "rates": ["1/s", "60/min"],
        "why": "provider asked",
        "until": None,
    }


def test_a_value_for_a_time_ends_by_itself(app: App, conn: Conn, note: Note) -> None:
    end = now(app) + timedelta(hours=2)
    row = actions.put(app.database, "resource", "sms-gateway", {"concurrency": 0}, by="olga", why="x", until=end)
    assert (row["concurrency"], row["set_until"]) == (0, end)
    conn.execute("update limits set set_until = now()")
    assert (only(app)["concurrency"], only(app)["set_by"], only(app)["set_until"]) == (5, None, None)
    assert run(conn, store.forget(app.database.statements)) == 1
    assert conn.execute("select override, set_by from limits").fetchall() == [(None, None)]


def test_what_code_does_not_limit_can_be_limited_and_is_gone_with_it(app: App, conn: Conn, note: Note) -> None:
    actions.put(app.database, "task", "hr.note", {"concurrency": 1}, by="olga", why="x", per="host")
    actions.put(app.database, "task", "hr.note", {"concurrency": 3}, by="olga", why="x")
    rows = actions.listed(app.database, kind="task")
    assert [(row["per"], row["concurrency"], row["declared"]) for row in rows] == [("fleet", 3, False), ("host", 1, False)]
    assert actions.clear(app.database, "task", "hr.note", by="olga", per="host") == ["host"]
    assert actions.clear(app.database, "task", "hr.note", by="olga") == ["fleet"]
    assert actions.listed(app.database, kind="task") == []
    actions.put(
        app.database, "tenant", "*", {"concurrency": 1, "weight": 2.0}, by="olga", why="x", until=now(app) + timedelta(hours=1)
    )
    conn.execute("update limits set set_until = now() where kind = 'tenant'")
    assert run(conn, store.forget(app.database.statements)) == 1
    assert actions.listed(app.database, kind="tenant") == []


def test_what_code_gives_up_while_something_is_set_does_not_come_back(app: App, conn: Conn, note: Note) -> None:
    actions.put(app.database, "resource", "sms-gateway", {"concurrency": 2}, by="olga", why="x")
    run(conn, store.publish(app.database.statements, new_id(), app.catalog, []))  # the next release has no limit
    assert (only(app)["concurrency"], only(app)["rate"], only(app)["declared"]) == (2, [], False)
    assert actions.clear(app.database, "resource", "sms-gateway", by="olga") == ["fleet"]
    assert actions.listed(app.database) == []


@pytest.mark.parametrize(
    ("kind", "per", "change", "said"),
    [
        ("resource", "fleet", {}, "nothing is changed"), ("resource", "fleet", {"concurrency": -1}, "concurrency=-1"),
        ("resource", "fleet", {"weight": 2.0}, "a weight is for a tenant"), ("tenant", "fleet", {"weight": 0.0}, "weight 0.0"),
        ("tenant", "tenant", {"concurrency": 1}, "per='tenant'"), ("task", "week", {"concurrency": 1}, "per='week'"),
    ],
)  # fmt: skip
def test_a_wrong_value_changes_nothing(app: App, conn: Conn, kind: Any, per: Any, change: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        actions.put(app.database, kind, "sms-gateway", change, by="olga", why="x", per=per)
    assert audit(conn) == []


def test_names_are_found_and_slips_are_refused_with_the_nearest(app: App, conn: Conn, note: Note) -> None:
    find = actions.find
    assert find(app.database, "sms-gateway") == ("resource", "sms-gateway")
    assert find(app.database, "hr.note") == find(app.database, "task:hr.note") == ("task", "hr.note")
    assert find(app.database, "bulk") == ("queue", "bulk")
    assert find(app.database, "tenant:*") == ("tenant", "*")
    with pytest.raises(NotFound, match=r"the task, queue, resource or tenant 'sms-gatway'; did you mean 'sms-gateway'\?"):
        find(app.database, "sms-gatway")
    with pytest.raises(NotFound, match=r"the task 'hr.nota'; did you mean 'hr.note'\?"):
        find(app.database, "task:hr.nota")
    with pytest.raises(NotFound, match="the tenant 'north'"):
        find(app.database, "tenant:north")
    note.enqueue(1)
    assert find(app.database, "north") == find(app.database, "north", "tenant") == ("tenant", "north")
    for kind in ("queue", "task", "resource"):
        with pytest.raises(NotFound, match=f"the {kind} "):
            actions.put(app.database, kind, "*", {"concurrency": 1}, by="olga", why="x")
    app.resource("bulk", concurrency=1)
    publish(app, conn)
    with pytest.raises(Conflict, match="a queue and a resource; say which: queue:bulk or resource:bulk"):
        find(app.database, "bulk")


HOLDS: list[tuple[Any, str]] = [
    ("task", "hr.note"),
    ("resource", "sms-gateway"),
    ("tenant", "north"),
    ("queue", "default"),
    ("queue", "*"),
]


@pytest.mark.parametrize(("kind", "name"), HOLDS)
def test_a_preview_counts_what_waits_and_what_passes_its_deadline(app: App, conn: Conn, note: Note, kind: Any, name: str) -> None:
    for n in range(3):
        note.enqueue(n)
        note.using(run_after="3h").enqueue(n)
        note.using(run_after="3d").enqueue(n)
    conn.execute("update jobs set deadline = now() + interval '30 minutes' where args ->> 'n' = '1' and state = 'ready'")
    (delay,) = actions.preview(app.database, kind, [name], until=now(app) + timedelta(hours=1))
    assert (delay.kind, delay.name, delay.waiting, delay.late, delay.more) == (kind, name, 3, 1, False)
    assert delay.first is not None
    (short,) = actions.preview(app.database, kind, [name], until=now(app) + timedelta(minutes=10))
    assert (short.waiting, short.late, short.first) == (3, 0, None)
    (endless,) = actions.preview(app.database, kind, [name])
    assert (endless.waiting, endless.late) == (6, 3)  # a deadline is a day, unless a task says otherwise
    assert timedelta(hours=23) < endless.by - now(app) <= timedelta(days=1)
    assert audit(conn) == []


def test_a_preview_counts_nothing_of_others(app: App, conn: Conn, note: Note) -> None:
    @app.task(name="hr.other", queue="bulk", tenant="branch")
    async def other(branch: str) -> None: ...

    publish(app, conn)
    other.enqueue("south")
    note.enqueue(1)
    waiting = {kind: [actions.preview(app.database, kind, [name])[0].waiting] for kind, name in HOLDS[:4]}
    assert waiting == {"task": [1], "resource": [1], "tenant": [1], "queue": [1]}


@pytest.mark.parametrize(("kind", "name"), HOLDS[:4])
async def test_what_is_held_does_not_start_until_it_is_released(app: App, conn: Conn, note: Note, kind: Any, name: str) -> None:
    desk = Desk(app, conn)
    await note.aenqueue(1)
    assert actions.hold(app.database, kind, [name], by="olga", why="wrong data") == [name]
    (held,) = actions.held(app.database)
    assert (held["kind"], held["name"], held["held_by"], held["held_why"], held["held_until"]) == (
        kind, name, "olga", "wrong data", None)  # fmt: skip
    async with working(app):
        await auntil(lambda: desk.one("select count(*) from workers where idle") == 1)
        assert desk.one("select state from jobs") == "ready"
        assert actions.release(app.database, kind, [name], by="paul") == [name]
        await desk.settled()
    assert actions.held(app.database) == []
    assert actions.release(app.database, kind, [], by="paul", everything=True) == []
    assert [(actor, action, target) for actor, action, target, _ in audit(conn)] == [
        ("olga", f"{kind}s.pause", name), ("paul", f"{kind}s.resume", name)]  # fmt: skip


def test_a_hold_of_nobody_is_refused_and_one_of_a_tenant_that_is_gone_can_be_released(app: App, conn: Conn, note: Note) -> None:
    unknown: tuple[tuple[Kind, str], ...] = (("task", "hr.nota"), ("resource", "sms"), ("tenant", "south"), ("queue", "defalt"))
    for kind, name in unknown:
        with pytest.raises(NotFound):
            actions.hold(app.database, kind, [name], by="olga")
        with pytest.raises(NotFound):
            actions.preview(app.database, kind, [name])
    note.enqueue(1)
    actions.hold(app.database, "tenant", ["north"], by="olga")
    conn.execute("delete from jobs")
    assert actions.release(app.database, "tenant", ["north"], by="olga") == ["north"]


def test_a_hold_ends_by_itself_and_is_forgotten(app: App, conn: Conn, note: Note) -> None:
    actions.hold(app.database, "task", ["hr.note"], by="olga", until=now(app) + timedelta(hours=1))
    conn.execute("update holds set held_until = now()")
    assert actions.held(app.database) == []
    run(conn, store.forget(app.database.statements))
    assert conn.execute("select count(*) from holds").fetchone() == (0,)


def test_what_was_forgotten_is_told(app: App, conn: Conn, note: Note) -> None:
    note.enqueue(1)
    actions.hold(app.database, "tenant", ["north"], by="olga")
    queues.pause(app.database, ["*"], by="olga")
    actions.put(app.database, "resource", "sms-gateway", {"concurrency": 0}, by="olga", why="x")
    assert actions.forgotten(app.database) == []
    conn.execute("update holds set held_at = now() - interval '25 hours'")
    conn.execute("update queues set paused_at = now() - interval '50 hours'")
    conn.execute("update limits set set_at = now() - interval '8 days'")
    first, second, third = actions.forgotten(app.database)
    assert "the queue '*' has been held for 2 day(s) by olga" in first
    assert "`jobwell resume queue '*'`" in first
    assert "the tenant 'north' has been held for 1 day(s)" in second
    assert "the limit of the resource 'sms-gateway' was set 8 days ago by olga" in third
    conn.execute("update holds set held_until = now() + interval '1 day'")
    conn.execute("update queues set paused_until = now() + interval '1 day'")
    conn.execute("update limits set set_until = now() + interval '1 day'")
    assert actions.forgotten(app.database) == []


async def test_a_lower_limit_counts_from_the_next_claim_on(app: App, conn: Conn, note: Note) -> None:
    desk = Desk(app, conn)
    actions.put(app.database, "resource", "sms-gateway", {"concurrency": 0, "rates": ()}, by="olga", why="x")
    app.enqueue_many(note.job(n) for n in range(20))
    async with working(app):
        await auntil(lambda: desk.one("select count(*) from workers where idle") == 1)
        assert desk.one("select count(*) from jobs where state = 'ready'") == 20
        assert actions.uses(app.database, "resource", "sms-gateway") == (0, 0.0, [])
        actions.put(app.database, "resource", "sms-gateway", {"concurrency": None}, by="olga", why="x")
        await desk.settled()


def test_a_limit_declared_for_each_tenant_is_listed_beside_the_fleet(app: App, conn: Conn) -> None:
    app.resource("sms", limits=(Limit(concurrency=9), Limit(concurrency=2, rate="1/s", per="tenant")))
    publish(app, conn)
    rows = [(row["per"], row["concurrency"], row["rate"], row["in_use"]) for row in actions.listed(app.database)]
    assert rows == [("fleet", 9, [], 0), ("tenant", 2, ["1/s"], None)]


@pytest.mark.parametrize(
    ("kind", "name", "per"),
    [("task", "wait", "fleet"), ("resource", "sms", "fleet"), ("tenant", "north", "fleet"), ("tenant", "*", "fleet"),
     ("queue", "default", "process"), ("task", "wait", "host"), ("resource", "sms", "tenant")],
)  # fmt: skip
async def test_what_runs_when_a_limit_is_set_counts(app: App, conn: Conn, kind: Any, name: str, per: Any) -> None:
    desk, doors = Desk(app, conn), [asyncio.Event() for _ in range(6)]
    app.resource("sms")

    @app.task(name="wait", resources=("sms",), tenant="branch")
    async def wait(n: int, branch: str = "north") -> None:
        await doors[n].wait()

    async with working(app, slots=10):
        handles = [await wait.aenqueue(n) for n in range(4)]
        await auntil(lambda: desk.one("select count(*) from jobs where state = 'running'") == 4)
        actions.put(app.database, kind, name, {"concurrency": 3}, by="olga", why="x", per=per)
        handles += [await wait.aenqueue(n) for n in (4, 5)]
        doors[0].set()
        await desk.end(handles[0])
        await auntil(lambda: desk.one("select count(*) from workers where idle") == 1)
        assert [desk.state(handle) for handle in handles[1:]] == ["running"] * 3 + ["ready"] * 2
        actions.put(app.database, kind, name, {"concurrency": None}, by="olga", why="x", per=per)
        await auntil(lambda: desk.one("select count(*) from jobs where state = 'running'") == 5)
        for door in doors:
            door.set()
        await desk.settled()


async def test_a_limit_shows_who_uses_it_while_others_wait(app: App, conn: Conn) -> None:
    desk, door = Desk(app, conn), asyncio.Event()
    app.resource("sms", concurrency=2)

    @app.task(name="wait", resources=("sms",))
    async def wait() -> None:
        await door.wait()

    handles = [await wait.aenqueue() for _ in range(5)]
    async with working(app, slots=10):
        running = await auntil(lambda: len(ids := set(desk.all("select id from jobs where state = 'running'"))) == 2 and ids)
        used, delay, jobs = actions.uses(app.database, "resource", "sms")
        assert (used, delay, set(jobs)) == (2, 0.0, running)
        waiting = next(handle for handle in handles if handle.id not in running)
        (because, *_) = await waiting.awhy()
        assert because.code == "limit_full"
        assert all(str(job) in because.sentence for job in running)
        actions.put(app.database, "resource", "sms", {"concurrency": 4}, by="olga", why="x")
        await auntil(lambda: desk.one("select count(*) from jobs where state = 'running'") == 4)
        actions.put(app.database, "resource", "sms", {"concurrency": 1}, by="olga", why="x")
        assert actions.listed(app.database)[0]["in_use"] == 4  # what runs goes on
        door.set()
        await desk.settled()
