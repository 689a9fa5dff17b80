"""Stopping: what can end ends, the rest is handed back uncounted; and what a worker does that has lost its lease."""

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from jobwell import App, Fixed
from tests.waiting import PATIENCE, auntil
from tests.worker.live.helpers import BOTH, Books, Kind, Make, Start


class Gates:
    """Two tasks that wait, each for its gate."""

    def __init__(self, app: App, kind: Kind) -> None:
        self.begun: list[str] = []
        self.gates = {"short": threading.Event(), "long": threading.Event()}

        @app.task(name="on_loop", retry=Fixed("10ms", attempts=1))
        async def on_loop(name: str) -> str:
            self.begun.append(name)
            while not self.gates[name].is_set():
                await auntil(self.gates[name].is_set)
            return name

        @app.task(name="on_thread", retry=Fixed("10ms", attempts=1))
        def on_thread(name: str) -> str:
            self.begun.append(name)
            assert self.gates[name].wait(PATIENCE)
            return name

        self.task: Any = on_loop if kind == "async" else on_thread

    def open(self) -> None:
        for gate in self.gates.values():
            gate.set()


@pytest.mark.parametrize("kind", BOTH)
async def test_a_short_job_ends_and_a_long_one_is_handed_back_uncounted(
    make: Make, start: Start, books: Books, kind: Kind
) -> None:
    app = make(grace=1)
    gates = Gates(app, kind)
    working = await start(app)
    short, long = await gates.task.aenqueue("short"), await gates.task.aenqueue("long")
    await auntil(lambda: len(gates.begun) == 2)
    working.worker.stop()
    await auntil(lambda: books.count("workers", "state = 'draining'") == 1)
    late = await gates.task.aenqueue("short")
    gates.gates["short"].set()
    assert await working.over() == 0
    gates.open()
    assert (await books.ended(short))["result"] == "short"
    for job, postponements, history in ((long, 1, [("released", 1, "shutdown")]), (late, 0, [])):
        row = books.live(job)
        assert row is not None
        assert (row["state"], row["attempt"], row["failures"], row["losses"], row["claim_id"]) == ("ready", 0, 0, 0, None)
        assert row["postponements"] == postponements
        assert books.history(job, "outcome", "attempt", "note") == history
    assert books.count("workers") == 0
    await start(app)
    assert [(await books.ended(job))["attempt"] for job in (long, late)] == [1, 1]


@pytest.mark.parametrize("kind", BOTH)
async def test_the_second_stop_does_not_wait(app: App, start: Start, books: Books, kind: Kind) -> None:
    gates = Gates(app, kind)
    working = await start()
    job = await gates.task.aenqueue("long")
    await auntil(lambda: gates.begun)
    working.worker.stop()
    await auntil(lambda: books.count("workers", "state = 'draining'") == 1)
    began = time.monotonic()
    assert await working.stop() == 0
    assert time.monotonic() - began < 10  # the grace is 25 s
    gates.open()
    row = books.live(job)
    assert row is not None
    assert (row["state"], row["attempt"]) == ("ready", 0)
    assert books.history(job, "outcome", "note") == [("released", "shutdown")]
    assert books.count("workers") == 0


async def test_a_worker_without_jobs_stops_at_once(app: App, start: Start, books: Books) -> None:
    working = await start()
    began = time.monotonic()
    assert await working.stop() == 0
    assert time.monotonic() - began < 5
    assert books.count("workers") == 0


@pytest.mark.parametrize(("how", "state", "attempts"), [("return", "succeeded", 1), ("raise", "failed", 1)])
async def test_what_a_job_does_when_told_to_stop_counts(
    make: Make, start: Start, books: Books, how: str, state: str, attempts: int
) -> None:
    app, begun = make(grace=0), asyncio.Event()

    @app.task(name="job", retry=Fixed("10ms", attempts=1))
    async def job() -> str:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if how == "raise":
            raise ValueError("told to stop")
        return "done all the same"

    working = await start(app)
    handle = await job.aenqueue()
    await begun.wait()
    assert await working.stop() == 0
    end = await books.ended(handle)
    assert (end["state"], end["attempt"]) == (state, attempts)


async def test_a_job_that_does_not_end_at_all_is_left_to_the_others(
    make: Make, start: Start, books: Books, caplog: pytest.LogCaptureFixture
) -> None:
    app, begun, gate = make(grace=0), asyncio.Event(), asyncio.Event()

    @app.task(name="job")
    async def job() -> None:
        while not gate.is_set():
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()

    working = await start(app)
    handle = await job.aenqueue()
    await begun.wait()
    assert await working.stop() == 0
    assert "did not end" in caplog.text
    assert books.rows("select state from workers") == [{"state": "dead"}]
    gate.set()
    await start(app)
    end = await books.ended(handle)
    assert (end["state"], end["attempt"]) == ("succeeded", 2)
    assert books.history(handle) == ["lost", "succeeded"]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("sql", ["delete from workers", "update workers set state = 'dead'"])
async def test_a_worker_that_lost_its_lease_ends_with_3_and_writes_nothing(
    make: Make, start: Start, books: Books, kind: Kind, sql: str
) -> None:
    app = make(lease=2)
    gates = Gates(app, kind)
    working = await start(app, slots=1)
    job = await gates.task.aenqueue("long")
    await auntil(lambda: gates.begun)
    books.conn.execute(sql)
    assert await working.over() == 3
    gates.open()
    assert (books.count("finished"), books.count("quarantine"), books.end(job)) == (0, 0, None)
    row = books.live(job)
    assert row is not None
    assert row["failures"] == 0
    assert set(books.history(job)) <= {"lost"}


async def test_slots_are_free_and_rows_gone_after_many_starts(app: App, start: Start, books: Books) -> None:
    @app.task(name="job")
    async def job() -> str:
        return "x"

    for _ in range(5):
        working = await start()
        await books.ended(await job.aenqueue())
        await auntil(lambda w=working.worker: w.busy == 0)  # type: ignore[misc]
        assert await working.stop() == 0
    assert books.count("workers") == 0
    assert not [thread.name for thread in threading.enumerate() if thread.name == "jobwell-heartbeat"]
