"""The producer's connections after an outage, a server's idle timeout, and everybody's dismissal: cases E4 and D13."""

import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import pytest_asyncio
from psycopg import Connection

from jobwell import App, StoreUnavailable
from jobwell.core.errors import StoreRefused
from tests.outage.conftest import Own
from tests.outage.helpers import Proxy, note_of
from tests.waiting import auntil, until
from tests.worker.helpers import working

OURS = "application_name = 'jobwell client' and datname = current_database() and query ilike %s"


def ours(conn: "Connection[Any]", schema: str) -> int:
    """How many connections of producers to this schema there are."""
    row = conn.execute(f"select count(*) from pg_stat_activity where {OURS}", [f"%{schema}.%"]).fetchone()
    assert row is not None
    return int(row[0])


@pytest_asyncio.fixture
async def aapp(app: App) -> AsyncIterator[App]:
    yield app
    await app.aclose()


@pytest.fixture
def at_once(app: App) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(30) as threads:
        yield threads


def test_dismissed_connections_reach_no_caller(
    app: App, conn: "Connection[Any]", schema: str, at_once: ThreadPoolExecutor
) -> None:
    note = note_of(app)
    for _ in range(3):
        list(at_once.map(note.enqueue, range(50)))
        assert ours(conn, schema) <= 4
        conn.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {OURS}", [f"%{schema}.%"])
        until(lambda: ours(conn, schema) == 0)
        began = time.monotonic()
        note.enqueue(1)
        assert time.monotonic() - began < 1.0, "at once, and not after a pause for each of the dead ones"
    assert conn.execute("select count(*) from jobs").fetchone() == (153,)


async def test_the_same_for_async_code(aapp: App, conn: "Connection[Any]", schema: str) -> None:
    note = note_of(aapp)
    await note.aenqueue(1)
    conn.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {OURS}", [f"%{schema}.%"])
    until(lambda: ours(conn, schema) == 0)
    began = time.monotonic()
    await note.aenqueue(2)
    assert time.monotonic() - began < 1.0


def test_an_idle_timeout_of_the_server_reaches_no_caller(database_url: str, schema: str, conn: "Connection[Any]") -> None:
    joint = "&" if "?" in database_url else "?"
    app = App(f"{database_url}{joint}options=-c%20idle_session_timeout%3D50", schema=schema)
    note = note_of(app)
    for n in range(3):
        note.enqueue(n)
        until(lambda: ours(conn, schema) == 0)
    app.close()
    assert conn.execute("select count(*) from jobs").fetchone() == (3,)


async def test_an_idle_timeout_of_the_server_disturbs_no_worker(
    database_url: str, schema: str, conn: "Connection[Any]", caplog: pytest.LogCaptureFixture
) -> None:
    """The connection for outcomes rests while nothing ends."""
    joint = "&" if "?" in database_url else "?"
    app = App(f"{database_url}{joint}options=-c%20idle_session_timeout%3D1500", schema=schema, lease=2)
    ran: list[int] = []

    @app.task(name="note")
    async def note(n: int) -> None:
        ran.append(n)

    def outcomes() -> int:
        row = conn.execute(
            "select count(*) from pg_stat_activity where application_name = 'jobwell finish' and query ilike %s", [f"%{schema}.%"]
        ).fetchone()
        assert row is not None
        return int(row[0])

    async with working(app, slots=2):
        for n in range(2):
            await note.aenqueue(n)
            await auntil(lambda: outcomes() == 1)
            await auntil(lambda: outcomes() == 0)
    assert ran == [0, 1]
    assert conn.execute("select count(*) from finished").fetchone() == (2,)
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
    await app.aclose()


def test_a_lost_answer_says_that_the_fate_is_unknown(app: App, schema: str, proxy: Proxy, conn: "Connection[Any]") -> None:
    through = App(proxy.url, schema=schema)
    note = note_of(through)
    note.enqueue(1)
    conn.execute("begin; lock table jobs in exclusive mode")  # the statement arrives, and waits
    cutter = threading.Thread(target=lambda: (until(lambda: waits(conn)), proxy.cut(), conn.execute("commit")))
    cutter.start()
    with pytest.raises(StoreUnavailable, match="not known whether what was asked for has taken effect") as told:
        note.enqueue(2)
    cutter.join()
    assert told.value.unsure
    note.enqueue(3)
    through.close()


def waits(conn: "Connection[Any]") -> bool:
    """Whether somebody waits for a lock of this connection's."""
    return (
        conn.execute("select 1 from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid))").fetchone() is not None
    )


def test_an_outage_is_told_with_its_cause_and_over_at_once(own: Own) -> None:
    app = own.app(connect_timeout=1)
    note = note_of(app)
    note.enqueue(1)
    own.stop()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="cannot be reached: .*(refused|No such file)") as told:
        note.enqueue(2)
    assert not told.value.unsure
    assert time.monotonic() - began < 5
    own.start()
    began = time.monotonic()
    note.enqueue(3)
    assert time.monotonic() - began < 1.0
    app.close()
    with own.connect() as conn:
        assert conn.execute("select count(*) from jobs").fetchone() == (2,)


def test_who_comes_during_a_short_outage_waits_for_its_end(own: Own) -> None:
    app = own.app()
    note = note_of(app)
    note.enqueue(1)
    own.stop()
    with ThreadPoolExecutor(20) as threads:
        handles = [threads.submit(note.enqueue, n) for n in range(20)]
        own.start()
        for handle in handles:
            handle.result(20)
    app.close()
    with own.connect() as conn:
        assert conn.execute("select count(*) from jobs").fetchone() == (21,)


def test_who_waits_for_a_place_is_told_so_and_holds_no_connection(
    database_url: str, schema: str, conn: "Connection[Any]", at_once: ThreadPoolExecutor
) -> None:
    app = App(database_url, schema=schema, connect_timeout=1)
    note = note_of(app)
    list(at_once.map(note.enqueue, range(20)))
    conn.execute("begin; lock table jobs in exclusive mode")
    handles = [at_once.submit(note.enqueue, n) for n in range(12)]
    until(lambda: sum(handle.done() for handle in handles) == 8)
    assert ours(conn, schema) <= 4
    for handle in handles:
        if handle.done():
            with pytest.raises(StoreUnavailable, match="all 4 connections of this process have been in use for 1 s, so nothing"):
                handle.result()
    conn.execute("commit")
    until(lambda: all(handle.done() for handle in handles))
    app.close()
    assert conn.execute("select count(*) from jobs").fetchone() == (24,)


def test_a_refusal_is_told_at_once(database_url: str, schema: str) -> None:
    base, _, query = database_url.partition("?")
    app = App(f"{base.rpartition('/')[0]}/jobwell_is_not_here{'?' if query else ''}{query}", schema=schema)
    began = time.monotonic()
    with pytest.raises(StoreRefused, match="create it, or correct the URL"):
        note_of(app).enqueue(1)
    assert time.monotonic() - began < 2.0
    app.close()


def test_no_thread_for_the_cleaning_costs_neither_answer_nor_place(
    app: App, conn: "Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    note = note_of(app)
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def full(thread: threading.Thread) -> None:
        if isinstance(thread, threading.Timer):
            refused.append(thread)
            raise RuntimeError("can't start new thread")  # noqa: TRY004  as Python says it
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", full)
    for n in range(10):
        note.enqueue(n)
    assert len(refused) == 10, "it is tried again each time"
    assert conn.execute("select count(*) from jobs").fetchone() == (10,)


def test_a_signal_handler_enqueues_wherever_it_interrupts(app: App, conn: "Connection[Any]") -> None:
    """A timer hits an enqueue in the making a thousand times a second, also inside the pool."""
    note = note_of(app)
    note.enqueue(0)
    hits = 0

    def handle(*_: object) -> None:
        nonlocal hits
        hits += 1
        note.enqueue(-1)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for n in range(1, 101):
            signal.setitimer(signal.ITIMER_REAL, n * 1e-5)
            note.enqueue(n)
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert hits
    assert conn.execute("select count(*) from jobs").fetchone() == (101 + hits,)


def test_the_pool_holds_no_lock_that_a_signal_handler_would_wait_for(app: App, conn: "Connection[Any]") -> None:
    """The handler runs at every line of the pool's own code, once at each: what a timer hits only by luck."""
    note = note_of(app)
    note.enqueue(0)
    seen: set[tuple[str, int]] = set()

    def trace(frame: Any, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith("store/pool.py"):
            return None
        spot = (frame.f_code.co_name, frame.f_lineno)
        if event == "line" and spot not in seen:
            seen.add(spot)
            sys.settrace(None)  # the enqueue below is not traced itself
            more.append(note.enqueue(-1))
            sys.settrace(trace)
        return trace

    more: list[Any] = []
    sys.settrace(trace)
    try:
        note.enqueue(1)
    finally:
        sys.settrace(None)
    assert {name for name, _ in seen} >= {"connection", "_take", "_give"}
    assert conn.execute("select count(*) from jobs").fetchone() == (2 + len(more),)
