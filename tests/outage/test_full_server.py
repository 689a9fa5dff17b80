"""Three connections for a worker process, and a start that waits for room: case D13."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict

from jobwell import App
from jobwell.worker.worker import Worker
from tests.crash.conftest import Fleet
from tests.waiting import PATIENCE, auntil, until
from tests.worker.helpers import Desk, working

FEW = f"jwfew_{os.getpid()}"


class Few:
    """A role that may have only so many connections at once."""

    def __init__(self, conn: "Connection[Any]", url: str) -> None:
        given = conninfo_to_dict(url)
        host, port = quote(str(given.get("host") or "127.0.0.1"), safe=""), given.get("port") or 5432
        self.url = f"postgresql://{FEW}:few@/{given['dbname']}?host={host}&port={port}"
        self._conn = conn

    def allow(self, count: int) -> None:
        """Connections at once, from now on."""
        self._conn.execute(sql.SQL("alter role {} connection limit {}").format(sql.Identifier(FEW), count))

    @property
    def held(self) -> dict[str, int]:
        """What it holds, by the names of the connections."""
        rows = self._conn.execute(
            "select application_name, count(*) from pg_stat_activity where usename = %s and application_name like 'jobwell %%' group by 1",
            [FEW],
        )
        return dict(rows.fetchall())


@pytest.fixture
def few(conn: "Connection[Any]", database_url: str) -> Iterator[Few]:
    name = sql.Identifier(FEW)
    conn.execute(sql.SQL("drop role if exists {}").format(name))
    conn.execute(sql.SQL("create role {} login password 'few' in role current_user").format(name))
    made = Few(conn, database_url)
    yield made
    until(lambda: not made.held)
    conn.execute(sql.SQL("drop role {}").format(name))


async def test_a_worker_holds_three_connections_idle_and_under_load(few: Few, schema: str, desk: Desk) -> None:
    app = App(few.url, schema=schema)

    @app.task(name="note")
    async def note(n: int) -> None: ...

    most: set[str] = set()
    producer = App(few.url, schema=schema)

    @producer.task(name="note")
    async def same(n: int) -> None: ...

    async with working(app, slots=50):
        await auntil(lambda: desk.one("select idle from workers"))
        assert few.held == {"jobwell claims": 1, "jobwell finish": 1, "jobwell heartbeat": 1}
        for _ in range(5):
            await producer.aenqueue_many(same.job(n) for n in range(400))
            while desk.one("select count(*) from jobs"):
                held = {name: count for name, count in few.held.items() if name != "jobwell client"}
                most |= {f"{name} {count}" for name, count in held.items()}
                await asyncio.sleep(0)
    assert desk.one("select count(*) from finished") == 2000
    assert most == {"jobwell claims 1", "jobwell finish 1", "jobwell heartbeat 1"}
    await producer.aclose()
    await app.aclose()


async def test_who_finds_the_server_full_waits_without_a_connection_and_begins_when_there_is_room(
    few: Few, schema: str, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    few.allow(9)
    apps = [App(few.url, schema=schema) for _ in range(20)]
    workers = [Worker(app, slots=50) for app in apps]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]

    def waiting() -> list[str]:
        return [text for record in caplog.records if "the start waits for the store" in (text := record.getMessage())]

    await auntil(lambda: 1 <= desk.one("select count(*) from workers") <= 3 and len(waiting()) >= 17, 40)
    assert sum(few.held.values()) <= 9
    assert all("too many connections" in text for text in waiting())
    few.allow(60)
    await auntil(lambda: desk.one("select count(*) from workers where state = 'live'") == 20, 40)
    assert not any(task.done() for task in tasks)
    assert len(waiting()) <= 20, "each says it once"
    await auntil(lambda: sum(few.held.values()) == 60)
    for worker in workers:
        worker.stop()
        worker.stop()
    assert set(await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)) == {0}


def test_a_caller_who_holds_the_last_connection_enqueues_over_it(few: Few, schema: str, conn: "Connection[Any]") -> None:
    """The first use would ask who the store is over one more; the address decides."""
    app = App(few.url, schema=schema)

    @app.task(name="note")
    def note(n: int) -> None: ...

    few.allow(1)
    with psycopg.connect(few.url) as caller, app.within(caller):
        for n in range(3):
            note.enqueue(n)
    assert conn.execute("select count(*) from jobs").fetchone() == (3,)
    app.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_twenty_processes_start_together(few: Few, schema: str, conn: "Connection[Any]", tmp_path: Path) -> None:
    conn.execute(f"drop table if exists {schema}.marks")
    conn.execute(f"create table {schema}.marks (job text, attempt integer, pid integer, what text, at timestamptz default now())")
    few.allow(30)
    fleet = Fleet(few.url, schema, conn, tmp_path / "log")
    with contextlib.ExitStack() as stack:
        stack.callback(conn.execute, f"drop table if exists {schema}.marks")
        stack.callback(fleet.end)
        with pytest.raises(AssertionError):  # there is room for half of them
            fleet.start(processes=20, slots=50, grace="1s")
        assert 1 <= fleet.live() <= 10
        supervisor = fleet.started[0]
        assert supervisor.poll() is None
        few.allow(80)
        until(lambda: fleet.live() == 20, 90)
        assert "is started again" not in (tmp_path / "log").read_text(), "nobody ended"
        until(lambda: sum(few.held.values()) == 60)
