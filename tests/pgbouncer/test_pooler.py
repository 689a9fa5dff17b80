"""Through a pooler in transaction mode everything works, and nothing is done that such a pooler cannot keep: case E3."""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import AsyncConnection, Connection

from jobwell import App, Context, StoreError, StoreUnavailable
from jobwell.cli import main
from jobwell.store import migrations
from jobwell.store.path import probe
from tests.pgbouncer.helpers import POOL, Bouncer
from tests.waiting import auntil, until
from tests.worker.helpers import Desk, working


def note_of(app: App, ran: list[int] | None = None) -> Any:
    """A task that keeps a list."""

    @app.task(name="note")
    def note(n: int) -> int:
        (ran if ran is not None else []).append(n)
        return n

    return note


@pytest.fixture
def desk(app: App, conn: "Connection[Any]") -> Desk:
    return Desk(app, conn)


@pytest.fixture
def left_behind(bouncer: Bouncer) -> Iterator[None]:
    """After the test no session of the pooler's keeps anything that its next user would meet."""
    yield
    for _ in range(8):
        with psycopg.connect(bouncer.url, autocommit=True, prepare_threshold=None) as one:
            assert one.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
            assert one.execute("select count(*) from pg_listening_channels()").fetchone() == (0,)
            assert one.execute(
                "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
            ).fetchone() == (0,)


def test_producers_find_out_by_themselves(pooled: App, conn: "Connection[Any]", left_behind: None) -> None:
    note = note_of(pooled)
    with ThreadPoolExecutor(12) as threads:
        list(threads.map(note.enqueue, range(300)))
    pooled.enqueue_many(note.job(n) for n in range(1000))
    assert pooled.database.pooled
    assert conn.execute("select count(*) from jobs").fetchone() == (1300,)


async def test_async_producers_too(pooled: App, conn: "Connection[Any]", left_behind: None) -> None:
    note = note_of(pooled)
    handles = await asyncio.gather(*(note.aenqueue(n) for n in range(200)))
    assert {await handle.astatus() for handle in handles} == {"ready"}
    assert pooled.database.pooled
    await pooled.aclose()


def test_a_server_without_a_pooler_is_told_from_one(app: App) -> None:
    note_of(app).enqueue(1)
    assert not app.database.pooled


def test_a_job_commits_with_the_callers_rows_through_the_pooler(pooled: App, bouncer: Bouncer, conn: "Connection[Any]") -> None:
    note = note_of(pooled)
    with psycopg.connect(bouncer.url, prepare_threshold=None) as caller:
        with caller.transaction(), pooled.within(caller):
            for n in range(10):
                note.enqueue(n)
            assert conn.execute("select count(*) from jobs").fetchone() == (0,)
        with pytest.raises(ZeroDivisionError), caller.transaction(), pooled.within(caller):
            note.enqueue(99)
            raise ZeroDivisionError
        assert caller.prepare_threshold is None, "the caller's own setting, left alone"
    assert conn.execute("select count(*) from jobs").fetchone() == (10,)


async def test_an_async_caller_too(pooled: App, bouncer: Bouncer, conn: "Connection[Any]") -> None:
    note = note_of(pooled)
    async with await AsyncConnection.connect(bouncer.url, prepare_threshold=None) as caller, caller.transaction():
        with pooled.within(caller):
            await note.aenqueue(1)
    assert conn.execute("select count(*) from jobs").fetchone() == (1,)
    await pooled.aclose()


def test_callers_who_hold_every_connection_do_not_wait_for_one_more(
    pooled: App, bouncer: Bouncer, conn: "Connection[Any]", left_behind: None
) -> None:
    """The first use asks who the store is over a connection of its own, and the pooler has none left."""
    note = note_of(pooled)
    together = threading.Barrier(POOL)

    def work(n: int) -> None:
        with psycopg.connect(bouncer.url, prepare_threshold=None) as caller:
            caller.execute("select 1")
            together.wait()
            with pooled.within(caller):
                note.enqueue(n)

    began = time.monotonic()
    with ThreadPoolExecutor(POOL) as threads:
        list(threads.map(work, range(POOL)))
    assert time.monotonic() - began < 10
    assert conn.execute("select count(*) from jobs").fetchone() == (POOL,)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_async_callers_who_hold_every_connection_do_not_either(
    pooled: App, bouncer: Bouncer, conn: "Connection[Any]", left_behind: None, driver: str
) -> None:
    note = note_of(pooled)
    together = asyncio.Barrier(POOL)

    async def by_psycopg(n: int) -> None:
        async with await AsyncConnection.connect(bouncer.url, prepare_threshold=None) as caller:
            await caller.execute("select 1")
            await together.wait()
            await note.using(conn=caller).aenqueue(n)

    async def by_asyncpg(n: int) -> None:
        caller = await asyncpg.connect(bouncer.url, statement_cache_size=0)
        async with caller.transaction():
            await caller.execute("select 1")
            await together.wait()
            await note.using(conn=caller).aenqueue(n)
        await caller.close()

    began = time.monotonic()
    await asyncio.gather(*((by_psycopg if driver == "psycopg" else by_asyncpg)(n) for n in range(POOL)))
    assert time.monotonic() - began < 10
    assert conn.execute("select count(*) from jobs").fetchone() == (POOL,)
    await pooled.aclose()


def test_who_holds_every_connection_under_another_name_is_told_so(
    pooled: App, bouncer: Bouncer, conn: "Connection[Any]", left_behind: None
) -> None:
    """Then neither identity nor address tell; nothing is said of a lost answer, for nothing was asked for."""
    note = note_of(pooled)
    with contextlib.ExitStack() as stack:
        url = bouncer.url.replace("127.0.0.1", "localhost")
        callers = [stack.enter_context(psycopg.connect(url, prepare_threshold=None)) for _ in range(POOL)]
        for caller in callers:
            caller.execute("select 1")
        with pytest.raises(StoreUnavailable, match="leads to the store cannot be found out now") as told:
            note.using(conn=callers[0]).enqueue(1)
        assert not told.value.unsure
        assert "lost" not in str(told.value)
        for caller in callers:
            caller.execute("select 1")
    assert conn.execute("select count(*) from jobs").fetchone() == (0,)


async def test_three_workers_share_four_connections(
    bouncer: Bouncer, schema: str, pooled: App, desk: Desk, caplog: pytest.LogCaptureFixture, left_behind: None
) -> None:
    """Without a direct URL: polling, said once."""
    caplog.set_level(logging.INFO, "jobwell.worker")
    ran: list[int] = []
    apps = [App(bouncer.url, schema=schema) for _ in range(3)]
    for app in apps:
        note_of(app, ran)
    note = note_of(pooled)
    async with working(apps[0], slots=20), working(apps[1], slots=20), working(apps[2], slots=20):
        await pooled.aenqueue_many(note.job(n) for n in range(1500))
        assert await desk.settled() == {"succeeded": 1500}
        assert set(desk.all("select wakeups from workers")) == {"poll"}
    assert sorted(ran) == list(range(1500))
    said = [record.getMessage() for record in caplog.records]
    assert sum("set direct_url" in text for text in said) == 3, "once by each"
    assert sum("through a pooler in transaction mode" in text for text in said) == 3
    for app in (*apps, pooled):
        await app.aclose()


async def test_a_direct_url_brings_wake_ups(bouncer: Bouncer, database_url: str, schema: str, desk: Desk) -> None:
    app = App(bouncer.url, schema=schema, direct_url=database_url, poll=60)
    ran: list[int] = []
    note = note_of(app, ran)
    async with working(app, slots=2):
        for n in range(3):
            await auntil(lambda: desk.one("select idle and wakeups = 'notify' from workers"))
            await note.aenqueue(n)
            await auntil(lambda n=n: n in ran)
    assert probe(app.database).wakeups == "notify"
    await app.aclose()


def test_a_migration_refuses_a_pooler_and_takes_the_direct_url(bouncer: Bouncer, database_url: str, schema: str) -> None:
    name = f"{schema}_m"
    app = App(bouncer.url, schema=name)
    with pytest.raises(StoreError, match="set direct_url"):
        migrations.migrate(app.database)
    app = App(bouncer.url, schema=name, direct_url=database_url)
    assert migrations.migrate(app.database)
    assert migrations.migrate(App(bouncer.url, schema=name).database) == [], "nothing to do needs no lock"
    with psycopg.connect(database_url, autocommit=True) as one:
        migrations.drop(one, name)


def test_an_option_in_the_url_is_told_as_what_it_is(bouncer: Bouncer, schema: str) -> None:
    app = App(f"{bouncer.url}?options=-c%20work_mem%3D8MB", schema=schema)
    with pytest.raises(StoreError, match="a pooler does not pass it on"):
        note_of(app).enqueue(1)
    app.close()


def test_doctor_says_what_it_found(
    bouncer: Bouncer, database_url: str, schema: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(url: str, *, direct: str = "") -> tuple[Any, str]:
        monkeypatch.setenv("JOBWELL_DIRECT_URL", direct)
        with pytest.raises(SystemExit):
            main(["doctor", "-o", "json", "--database-url", url, "--schema", schema])
        told = json.loads(capsys.readouterr().out)
        return (told["server"]["pooler"], told["server"]["wakeups"]), " ".join(told["hints"])

    (pooler, wakeups), hints = found(bouncer.url)
    assert ("transaction" in pooler, wakeups, "set direct_url" in hints) == (True, "poll", True)
    (pooler, wakeups), hints = found(bouncer.url, direct=database_url)
    assert ("transaction" in pooler, wakeups, "direct_url" in hints) == (True, "notify", False)
    (pooler, wakeups), hints = found(database_url)
    assert (pooler, wakeups) == ("none", "notify")


async def test_a_pooler_among_several_hosts_is_found(bouncer: Bouncer, schema: str, desk: Desk) -> None:
    url = bouncer.url.replace("@", "@127.0.0.1:1,")
    app = App(url, schema=schema)
    ran: list[int] = []
    note = note_of(app, ran)
    async with working(app, slots=2):
        await note.aenqueue(1)
        await auntil(lambda: ran == [1])
    assert app.database.pooled
    await app.aclose()


async def test_a_restart_of_the_pooler_heals(bouncer: Bouncer, schema: str, pooled: App, desk: Desk) -> None:
    ran: list[int] = []
    note = note_of(pooled, ran)
    async with working(pooled, slots=2):
        note.enqueue(1)
        await auntil(lambda: ran == [1])
        bouncer.stop()
        bouncer.start()
        await note.aenqueue(2)
        await auntil(lambda: 2 in ran)
    await pooled.aclose()


def test_the_server_behind_the_pooler_dismisses_everybody(pooled: App, conn: "Connection[Any]") -> None:
    """The pooler keeps our connection and makes another one of its own."""
    note = note_of(pooled)
    note.enqueue(1)
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'"
        " and application_name like 'jobwell client%%' and query like %s",
        [f"%{pooled.database.settings.schema}.%"],  # those of other tests stay
    )

    def works() -> bool:
        try:
            note.enqueue(2)
        except StoreUnavailable as error:
            assert error.unsure  # it went into a connection that ended under it
            return False
        return True

    until(works)


async def test_work_and_the_end_of_its_job_commit_together(pooled: App, desk: Desk, schema: str, left_behind: None) -> None:
    @pooled.task
    async def send(ctx: Context) -> None:
        at = await ctx.checkpoint.load(int, 0)
        async for n in ctx.resume(range(5), every=2):
            await ctx.checkpoint.save(at + n)
            ctx.progress(n + 1, 5)
        found = await ctx.checkpoint.load(int)
        async with (tx := ctx.transaction()) as own:
            for n in range(10):
                await own.execute("select %s::integer", [n])
            tx.result = found

    pooled.override({"transaction_pool": 2})  # of the four connections that the pooler has
    async with working(pooled):
        jobs = [await send.aenqueue() for _ in range(8)]
        for job in jobs:
            assert (await desk.end(job))["result"] == "4"
