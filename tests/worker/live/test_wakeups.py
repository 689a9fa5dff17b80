"""An idle worker is woken by an enqueue and by a commit; without wake-ups it finds the job all the same."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from psycopg import AsyncConnection, Connection

from jobwell import App
from jobwell.worker import worker as worker_module
from jobwell.worker.heartbeat import Heartbeat
from tests.waiting import auntil
from tests.worker.live.helpers import Books, Make, Start

LONG = 60.0  # no test waits for a look that comes so late: whoever is quicker was woken


@pytest.fixture
def app(make: Make) -> App:
    return make(poll=LONG)


@pytest.fixture
def ran(app: App) -> list[tuple[int, float]]:
    """What has run, and when."""
    return []


@pytest.fixture
def note(app: App, ran: list[tuple[int, float]]) -> Any:
    @app.task(name="note")
    async def note(n: int) -> None:
        ran.append((n, time.monotonic()))

    return note


@pytest_asyncio.fixture
async def caller(database_url: str, schema: str) -> AsyncIterator["AsyncConnection[Any]"]:
    """A connection of the application, in a transaction from its first statement on."""
    async with await AsyncConnection.connect(database_url, options=f"-c search_path={schema}") as caller:
        yield caller
        await caller.rollback()


async def _idle(books: Books) -> None:
    await auntil(lambda: books.count("workers", "idle") == 1, what="an idle worker")


async def test_an_idle_worker_is_woken_by_an_enqueue(start: Start, books: Books, note: Any, ran: list[tuple[int, float]]) -> None:
    await start()
    took = []
    for n in range(5):
        await _idle(books)
        began = time.monotonic()
        await books.ended(await note.aenqueue(n))
        took.append(ran[-1][1] - began)
    assert min(took) < 0.5
    assert max(took) < 5


async def test_an_idle_worker_is_woken_by_a_bulk(app: App, start: Start, books: Books, note: Any) -> None:
    await start()
    await _idle(books)
    await app.aenqueue_many(note.job(n) for n in range(1000))
    await books.empty()
    assert books.count("finished") == 1000


async def test_a_job_in_a_transaction_runs_after_its_commit_and_not_before(
    start: Start, books: Books, note: Any, ran: list[tuple[int, float]], caller: "AsyncConnection[Any]"
) -> None:
    await start()
    await _idle(books)
    job = await note.using(conn=caller).aenqueue(1)
    await books.ended(await note.aenqueue(2))  # the worker has looked meanwhile
    await _idle(books)
    assert [n for n, _ in ran] == [2]
    began = time.monotonic()
    await caller.commit()
    await books.ended(job)
    assert ran[-1][0] == 1
    assert ran[-1][1] - began < 2


async def test_a_job_in_a_transaction_that_rolls_back_never_runs(
    app: App, start: Start, books: Books, note: Any, ran: list[tuple[int, float]], caller: "AsyncConnection[Any]"
) -> None:
    await start()
    await _idle(books)
    await caller.execute("select 1")
    with app.within(caller):
        await note.aenqueue(1)
    await books.ended(await note.aenqueue(2))
    await caller.rollback()
    await books.ended(await note.aenqueue(3))
    await _idle(books)
    assert [n for n, _ in ran] == [2, 3]
    assert books.count("jobs") == 0


async def test_without_wake_ups_polling_finds_the_job(
    make: Make, start: Start, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(Heartbeat):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **{**more, "wake": lambda: None})

    monkeypatch.setattr(worker_module, "Heartbeat", Deaf)
    app = make(poll=0.2)

    @app.task(name="note")
    async def note(n: int) -> int:
        return n

    await start(app)
    for n in range(3):
        await _idle(books)
        assert (await books.ended(await note.aenqueue(n)))["result"] == n


async def test_wake_ups_come_back_after_the_listening_connection_broke(
    app: App, start: Start, books: Books, note: Any, conn: "Connection[Any]", schema: str
) -> None:
    await start()
    await _idle(books)
    listening = "select pid from pg_stat_activity where application_name = 'jobwell heartbeat' and datname = current_database()"
    channel = app.database.statements.channel
    before = {row["pid"] for row in books.rows(f"{listening} and query like %s", f"%{channel}%")}
    before = before or {row["pid"] for row in books.rows(f"{listening} and query like %s", f"%{schema}%")}
    for pid in before:
        conn.execute("select pg_terminate_backend(%s)", [pid])
    await auntil(lambda: books.count("workers", "idle") == 1)
    for n in range(3):  # the first may fall into the gap; a new connection looks first
        await books.ended(await note.aenqueue(n))


async def test_a_retry_does_not_wait_for_the_next_look(app: App, start: Start, books: Books) -> None:
    from jobwell import Fixed

    @app.task(name="twice", retry=Fixed("50ms", attempts=2))
    async def twice() -> None:
        raise TimeoutError

    await start()
    await _idle(books)
    assert (await books.ended(await twice.aenqueue()))["attempt"] == 2
