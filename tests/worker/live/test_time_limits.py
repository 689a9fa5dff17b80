"""Time limits and deadlines."""

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from jobwell import App, Fixed, Retry, SyncContext
from jobwell.worker.attempts import Attempts
from jobwell.worker.record import Attempt
from tests.waiting import PATIENCE, auntil
from tests.worker.live.helpers import BOTH, SOON, Books, Kind, Start, declare, raising

TWICE = Fixed("10ms", attempts=2)
SAID = "it ran longer than its time limit of 100ms"


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _swallow_once() -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "too late"


async def _swallow_five() -> str:
    for _ in range(5):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    return "too late"


async def _raise_instead() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise OSError("the clean-up broke")


@pytest.mark.parametrize("body", [_for_ever, _swallow_once, _swallow_five, _raise_instead])
async def test_an_async_attempt_over_its_limit_is_timed_out(app: App, start: Start, books: Books, body: Any) -> None:
    job = await app.task(name="job", timeout="100ms", retry=TWICE)(body).aenqueue()
    working = await start()
    end = await books.ended(job)
    assert (end["reason"], end["error_type"], end["message"], end["attempt"]) == ("exhausted", "TimeLimit", SAID, 2)
    assert books.history(job, "outcome", "kind") == [("retrying", "temporary"), ("failed", "temporary")]
    await auntil(lambda: working.worker.busy == 0)


async def test_a_plain_attempt_is_recorded_and_its_late_result_dropped(app: App, start: Start, books: Books) -> None:
    gate, over, told = threading.Event(), threading.Event(), []

    @app.task(name="job", timeout="100ms", retry=Fixed("10ms", attempts=1))
    def job(ctx: SyncContext) -> str:
        gate.wait(PATIENCE)
        told.append(ctx.cancelled)
        over.set()
        return "too late"

    @app.task(name="other")
    def other() -> str:
        return "other"

    handle = await job.aenqueue()
    working = await start(slots=1)
    end = await books.ended(handle)
    assert (end["reason"], end["error_type"], end["message"], end["attempt"]) == ("exhausted", "TimeLimit", SAID, 1)
    assert (await books.ended(await other.aenqueue()))["result"] == "other"  # the slot is free though the thread is not
    gate.set()
    await auntil(over.is_set)
    assert (await books.ended(await other.aenqueue()))["result"] == "other"
    await auntil(lambda: working.worker.busy == 0)
    assert (told, books.end(handle)) == ([True], end)


@pytest.mark.parametrize("kind", BOTH)
async def test_a_job_whose_deadline_has_passed_is_not_begun(app: App, start: Start, books: Books, kind: Kind) -> None:
    runs: list[int] = []
    job = await declare(app, kind, lambda: runs.append(1)).aenqueue()
    books.conn.execute("update jobs set deadline = now() - interval '1 second'")
    await start()
    end = await books.ended(job)
    assert (end["reason"], end["error_type"], end["failures"], runs) == ("deadline", "DeadlinePassed", 0, [])
    assert end["message"] == "the deadline passed before the attempt began"


async def test_a_deadline_that_passes_while_it_runs_ends_it(app: App, start: Start, books: Books) -> None:
    job = app.task(name="job", deadline="1s", retry=SOON)(_for_ever)
    await start()
    end = await books.ended(await job.aenqueue())
    assert (end["reason"], end["error_type"], end["attempt"]) == ("deadline", "DeadlinePassed", 1)
    assert (end["failed_at"] - end["enqueued_at"]).total_seconds() > 0.9


@pytest.mark.parametrize("error", [TimeoutError("slow"), Retry("busy", after="2h"), Retry("busy")], ids=repr)
async def test_no_retry_is_planned_past_the_deadline(app: App, start: Start, books: Books, error: Exception) -> None:
    job = await declare(app, "async", raising(error), deadline="1h", retry=Fixed("90m", attempts=9)).aenqueue()
    await start()
    end = await books.ended(job)
    assert (end["reason"], end["attempt"], end["failures"]) == ("deadline", 1, 1)
    asked = " (asked to wait 2h, which is past its deadline)" if getattr(error, "after", None) else ""
    assert end["message"] == f"{error}{asked}"


@pytest.mark.parametrize(("why", "state"), [("timeout", None), ("shutdown", None), ("lost", "running")])
async def test_an_attempt_stopped_before_its_first_step_gives_its_slot_back(
    app: App, start: Start, books: Books, monkeypatch: pytest.MonkeyPatch, why: Any, state: str | None
) -> None:
    """A task cancelled unbegun never runs: its slot would be gone, and its job running for ever."""
    stopped: list[Attempt] = []
    begin = Attempts.begin

    def stopping(attempts: Attempts, *given: Any) -> None:
        begin(attempts, *given)
        if not stopped:
            stopped.extend(attempts)
            for attempt in stopped:
                attempt.stop(why)

    monkeypatch.setattr(Attempts, "begin", stopping)
    runs: list[int] = []
    job = await declare(app, "async", lambda: runs.append(1), retry=SOON).aenqueue()
    working = await start(slots=1)
    if state is None:
        assert (await books.ended(job))["state"] == "succeeded"
        assert runs == [1]
        assert books.history(job)[0] == {"timeout": "retrying", "shutdown": "released"}[why]
    await auntil(lambda: stopped and working.worker.busy == 0, what="a free slot")
    if state is not None:
        row = books.live(job)
        assert row is not None
        assert (row["state"], runs) == (state, [])
