"""A job does not hold up the others: plain functions run on threads, and who blocks the loop is named (C12)."""

import logging
import threading

import pytest

from jobwell import App
from jobwell.worker.executors.threads import Threads
from tests.waiting import PATIENCE, auntil
from tests.worker.live.helpers import Books, Make, Start


async def test_a_plain_function_runs_on_a_thread_while_the_loop_stays_responsive(app: App, start: Start, books: Books) -> None:
    gate, threads = threading.Event(), {}

    @app.task(name="slow")
    def slow(n: int) -> str:
        threads[f"slow {n}"] = threading.get_ident()
        assert gate.wait(PATIENCE)
        return "slow"

    @app.task(name="quick")
    async def quick() -> str:
        threads["quick"] = threading.get_ident()
        return "quick"

    slows = [await slow.aenqueue(n) for n in range(3)]
    await start()
    await auntil(lambda: len(threads) == 3)
    for _ in range(5):
        assert (await books.ended(await quick.aenqueue()))["result"] == "quick"
    assert [books.live(job)["state"] for job in slows] == ["running"] * 3  # type: ignore[index]
    gate.set()
    for job in slows:
        assert (await books.ended(job))["result"] == "slow"
    assert threads["quick"] == threading.get_ident()
    assert len(set(threads.values())) == 4


async def test_threads_are_kept_for_the_next_job(app: App, start: Start, books: Books) -> None:
    @app.task(name="plain")
    def plain() -> str:
        return threading.current_thread().name

    await start(slots=1)
    names = {(await books.ended(await plain.aenqueue()))["result"] for _ in range(8)}
    assert len(names) == 1


async def test_what_blocks_the_loop_is_logged_by_name_and_keeps_its_lease(make: Make, start: Start, books: Books) -> None:
    app, said, told = make(lease=2), threading.Event(), []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "blocked" in record.getMessage():
                told.append(record.getMessage())
                said.set()

    @app.task(name="reports.heavy")
    async def heavy() -> bool:
        found = said.wait(PATIENCE)  # blocking code in an async task: just what must be noticed
        threading.Event().wait(2.5)  # longer than the lease
        return found

    listener = Listener()
    logging.getLogger("jobwell.worker").addHandler(listener)
    try:
        working = await start(app)
        end = await books.ended(await heavy.aenqueue())
    finally:
        logging.getLogger("jobwell.worker").removeHandler(listener)
    assert (end["result"], end["attempt"], len(told)) == (True, 1, 1)
    assert "blocked for" in told[0]
    assert "reports.heavy" in told[0]
    assert "said.wait(PATIENCE)" in told[0]  # the stack shows the line
    assert await working.stop() == 0


async def test_variables_of_one_job_are_not_seen_by_another(app: App, start: Start, books: Books) -> None:
    from contextvars import ContextVar

    seen: ContextVar[str] = ContextVar("seen", default="nobody")

    @app.task(name="one")
    async def one() -> str:
        before = seen.get()
        seen.set("async")
        return before

    @app.task(name="two")
    def two() -> str:
        before = seen.get()
        seen.set("plain")
        return before

    await start(slots=1)
    assert {(await books.ended(await task.aenqueue()))["result"] for task in (one, two, one, two)} == {"nobody"}


@pytest.mark.parametrize("error", [StopIteration(3), GeneratorExit(), SystemExit(2)], ids=repr)
async def test_a_thread_delivers_what_a_future_refuses(error: BaseException) -> None:
    import asyncio

    def call() -> None:
        raise error

    threads = Threads(asyncio.get_running_loop())
    try:
        with pytest.raises((RuntimeError, SystemExit)) as caught:
            await threads.submit(call)
    finally:
        threads.close()
    assert error in (caught.value, caught.value.__cause__)
