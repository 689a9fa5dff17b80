"""What a worker takes, and when: as many jobs as it has free slots, at once when woken, soon without, never before the commit."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from jobwell import App
from jobwell.worker import heartbeat
from tests.conftest import needs_wakeups
from tests.waiting import apause, auntil
from tests.worker.helpers import Acts, Desk, working

Caller = Callable[[], "contextlib.AbstractContextManager[Connection[Any]]"]


# --- slots ---------------------------------------------------------------------------------------------------------------


async def test_a_slot_is_free_when_its_job_is_stored(app: App, acts: Acts, desk: Desk) -> None:
    """One slot: when the second begins, the first has left the table."""
    seen: list[int] = []
    acts.words["look"] = lambda ctx, n: seen.append(desk.one("select count(*) from jobs where state = 'running'"))
    for _ in range(10):
        acts.act.enqueue("look")
    async with working(app, slots=1):
        await desk.settled()
    assert seen == [1] * 10


async def test_urgent_jobs_overtake(app: App, acts: Acts, desk: Desk) -> None:
    for n in range(10):
        acts.act.enqueue("ok", n)
    acts.act.using(priority=50).enqueue("ok", 100)
    async with working(app, slots=1):
        await desk.settled()
    assert [ran.n for ran in acts.ran] == [100, *range(10)]


# --- waking up -----------------------------------------------------------------------------------------------------------


async def idle(desk: Desk, workers: int = 1) -> None:
    """Wait until so many workers have said that they wait."""
    await auntil(lambda: desk.one("select count(*) from workers where idle") == workers)
    await apause(0.3)  # past the quick looks that follow, into the long rest


@pytest.fixture
def slow_poll(app: App) -> App:
    """With polling alone a job would be seen after half a minute."""
    app.override({"poll": 30})
    return app


@needs_wakeups
async def test_one_that_runs_a_long_job_is_woken_for_its_free_slots(slow_poll: App, acts: Acts, desk: Desk) -> None:
    acts.act.enqueue("wait")
    async with working(slow_poll, slots=2):
        await auntil(lambda: acts.under_way == 1)
        await idle(desk)
        await desk.end(acts.act.enqueue("ok"), timeout=10)
        acts.open_all()


async def test_a_job_enqueued_by_a_job_is_taken_at_once(slow_poll: App, acts: Acts, desk: Desk) -> None:
    acts.words["chain"] = lambda ctx, n: acts.act.enqueue("chain", n - 1) if n else None
    async with working(slow_poll):
        acts.act.enqueue("chain", 20)
        assert await desk.settled(timeout=15) == {"succeeded": 21}


def serve_without_listening(self: Any, conn: "Connection[Any]", serve: Any = heartbeat.Heartbeat._serve) -> None:
    with contextlib.closing(psycopg.connect(conn.info.dsn, password=conn.info.password, autocommit=True)):
        serve(self, Deaf(conn))


class Deaf:
    """A connection that does not hear."""

    def __init__(self, conn: "Connection[Any]") -> None:
        self._conn = conn

    def execute(self, query: Any, *parameters: Any) -> Any:
        return None if str(query).startswith("listen") else self._conn.execute(query, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


# --- the caller's transaction --------------------------------------------------------------------------------------------


@pytest.fixture
def caller(database_url: str, schema: str, conn: "Connection[Any]") -> Iterator["Connection[Any]"]:
    """Somebody with a table and transactions of his own."""
    conn.execute("create table orders (id int primary key)")
    with psycopg.connect(database_url, options=f"-c search_path={schema}") as caller:
        yield caller
        caller.rollback()
    conn.execute("drop table orders")


async def test_a_savepoint_takes_its_jobs_with_it(slow_poll: App, acts: Acts, desk: Desk, caller: "Connection[Any]") -> None:
    async with working(slow_poll):
        with caller.transaction():
            acts.act.using(conn=caller).enqueue("ok", 1)
            with caller.transaction(force_rollback=True):
                acts.act.using(conn=caller).enqueue("ok", 2)
            acts.act.using(conn=caller).enqueue("ok", 3)
        await auntil(lambda: desk.states() == {"succeeded": 2})
    assert sorted(ran.n for ran in acts.ran) == [1, 3]


async def test_transactions_that_commit_in_another_order_than_they_began_lose_nothing(
    app: App, acts: Acts, desk: Desk, database_url: str, schema: str
) -> None:
    async with working(app):
        async with contextlib.AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(await psycopg.AsyncConnection.connect(database_url)) for _ in range(10)]
            for n, caller in enumerate(callers):
                await caller.execute("select 1")
                await acts.act.using(conn=caller).aenqueue("ok", n)
            for caller in (*callers[::2], *callers[1::2]):
                await caller.commit()
                await desk.end(acts.act.enqueue("ok", 100))
        await desk.settled()
    await app.aclose()
    assert sorted(ran.n for ran in acts.ran) == [*range(10), *[100] * 10]


async def test_a_worker_that_dies_between_commit_and_wake_up_is_no_loss(
    app: App, acts: Acts, desk: Desk, caller: "Connection[Any]"
) -> None:
    """Nobody is there when the caller commits: the row alone is enough."""
    with caller.transaction():
        handle = acts.act.using(conn=caller).enqueue("ok")
    async with working(app):
        await desk.end(handle)


# --- discovery, lost claims ------------------------------------------------------------------------------------------


async def test_several_workers_share_a_flood_and_run_each_job_once(app: App, acts: Acts, desk: Desk) -> None:
    app.enqueue_many(acts.act.job("ok", n) for n in range(2000))
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(working(app, slots=20))
        assert await desk.settled(timeout=40) == {"succeeded": 2000}
    assert sorted(ran.n for ran in acts.ran) == list(range(2000))


async def test_tenants_of_a_flood_are_served_from_the_beginning(app: App, acts: Acts, desk: Desk) -> None:
    """A giant's 1,000 jobs stand before the ten of each small tenant: they do not wait for its end."""
    app.enqueue_many(acts.act.using(tenant="giant").job("ok", n) for n in range(1000))
    for small in range(10):
        app.enqueue_many(acts.act.using(tenant=f"small{small}").job("ok", 10_000 + small) for _ in range(10))
    async with working(app, slots=20):
        await desk.settled(timeout=40)
    last_small = max(at for at, ran in enumerate(acts.ran) if ran.n >= 10_000)
    assert last_small < 500


async def test_lock_keys_hold_in_the_worker(app: App, desk: Desk) -> None:
    from jobwell import Lock

    inside: dict[int, int] = {}
    worst = 0

    @app.task(name="locked", lock=Lock("key"))
    async def locked(key: int) -> None:
        nonlocal worst
        inside[key] = inside.get(key, 0) + 1
        worst = max(worst, inside[key])
        await asyncio.sleep(0)
        await apause(0.002)
        inside[key] -= 1

    app.enqueue_many(locked.job(key=n % 4) for n in range(120))
    async with working(app, slots=10), working(app, slots=10):
        assert await desk.settled(timeout=40) == {"succeeded": 120}
    assert worst == 1
