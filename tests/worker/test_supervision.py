"""Case E6: alive but not consuming. Each internal loop is broken, once and for good: it comes back, or the process ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jobwell import App
from jobwell.core.ids import new_id
from jobwell.runtime import loop as loop_module
from jobwell.runtime.loop import Loop
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.ending import EXIT_FAILED, EXIT_LOST
from jobwell.worker.heartbeat import Heartbeat
from jobwell.worker.worker import Worker
from tests.waiting import PATIENCE, auntil
from tests.worker.helpers import Acts, Desk, starting, working
from tests.worker.test_lease import run_by

VITAL = ("fetcher", "finisher", "due", "rescue", "limits", "lease", "orders", "threads")
OTHERS = ("prune", "bulk", "unknown", "undo", "progress", "runs")
BROKEN = ValueError("broken")


class Faults:
    """What the rounds of one loop come to, in every worker of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException, times: float) -> None:
        self.seen = 0
        true = Worker._loop
        faults = self

        def loop(self: Worker, of: str, tick: Callable[[], Awaitable[float]], *given: Any, **options: Any) -> Loop:
            async def broken() -> float:
                if faults.seen < times:
                    faults.seen += 1
                    raise error
                return await tick()

            return true(self, of, broken if of == name else tick, *given, **options)

        monkeypatch.setattr(Worker, "_loop", loop)
        monkeypatch.setattr(loop_module, "LONGEST_BACKOFF", 0.01)


def test_these_are_all_loops_that_there_are(app: App, acts: Acts) -> None:
    async def names() -> set[str]:
        async with working(app) as worker:
            return {loop.name for loop in worker._loops}

    assert asyncio.run(names()) == {*VITAL, *OTHERS}


@pytest.mark.parametrize(
    ("name", "error"),
    [*((name, BROKEN) for name in VITAL + OTHERS), ("fetcher", asyncio.CancelledError()), ("lease", BaseException("the root"))],
)
async def test_after_some_errors_a_loop_works_again(
    acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException
) -> None:
    faults = Faults(monkeypatch, name, error, times=2)
    orphan = acts.act.enqueue("ok", 1)
    run_by(desk, new_id(), orphan)
    async with working(acts.app) as worker:
        later = acts.act.using(run_after="50ms").enqueue("fail twice", 2)
        for job in (acts.act.enqueue("ok"), orphan, later):
            assert (await desk.end(job))["state"] == "succeeded"
        await auntil(lambda: faults.seen == 2 and next(loop for loop in worker._loops if loop.name == name).late < 1)


@pytest.mark.parametrize("name", VITAL)
async def test_a_loop_that_is_broken_for_good_ends_the_worker(
    acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(loop_module, "FATAL_SILENCE", 0.0)
    faults = Faults(monkeypatch, name, BROKEN, times=float("inf"))
    job = acts.act.enqueue("wait")
    async with starting(acts.app) as (worker, task):
        if name == "finisher":  # it begins a round when there is something to store
            acts.open_all()
        assert await asyncio.wait_for(asyncio.shield(task), PATIENCE) == EXIT_FAILED
    assert faults.seen >= loop_module.FATAL_FAILURES
    assert f"{name} fails again and again; this worker ends: broken" in caplog.messages
    acts.open_all()
    faults.seen = float("inf")  # type: ignore[assignment]
    async with working(acts.app):
        assert (await desk.end(job))["state"] == "succeeded", "another one goes on with it"
    assert worker.busy == 0 or name == "finisher"


@pytest.mark.parametrize("name", OTHERS)
async def test_housekeeping_that_is_broken_for_good_is_said_and_stops_no_work(
    acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(loop_module, "FATAL_SILENCE", 0.0)
    Faults(monkeypatch, name, BROKEN, times=float("inf"))
    async with working(acts.app):
        await auntil(lambda: any(f"{name} fails again and again, and is tried on" in said for said in caplog.messages))
        assert (await desk.end(acts.act.enqueue("ok")))["state"] == "succeeded"


@pytest.mark.parametrize("part", ["renewal", "listening"])
async def test_the_heartbeat_comes_back_after_errors(acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    left = [3]
    owner, name = (WorkerVerbs, "renew") if part == "renewal" else (Heartbeat, "_listen")
    true = getattr(owner, name)

    def broken(*given: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise ValueError("broken")
        return true(*given, **options)

    monkeypatch.setattr(owner, name, broken)
    async with working(acts.app):
        await auntil(lambda: left == [0] and desk.one("select beat_at > started_at from workers"))
        assert (await desk.end(acts.act.enqueue("ok")))["state"] == "succeeded"


@pytest.mark.parametrize("error", [BROKEN, BaseException("the root"), SystemExit(0)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_heartbeat_that_is_broken_for_good_ends_the_worker(
    acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Whatever ends its thread, also what no handler of errors catches: its silence is seen."""
    acts.app.override({"lease": 2})

    def broken(*given: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(WorkerVerbs, "renew", broken)
    acts.act.enqueue("wait")
    async with starting(acts.app) as (_, task):
        assert await asyncio.wait_for(asyncio.shield(task), PATIENCE) == EXIT_LOST
    assert acts.under_way == 0


async def test_a_broken_filter_of_logs_does_not_keep_a_worker_alive_without_a_lease(
    acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on for ever, and others have its jobs."""
    acts.app.override({"lease": 2})

    def broken(record: logging.LogRecord) -> bool:
        raise ValueError("no log")

    acts.act.enqueue("wait")
    loggers = [logging.getLogger(name) for name in ("jobwell.worker", "jobwell.loop")]
    async with starting(acts.app) as (worker, task):
        await auntil(lambda: acts.under_way == 1)
        for logger in loggers:
            logger.addFilter(broken)
        try:
            desk.conn.execute("update workers set state = 'dead' where id = %s", [worker.id])
            assert await asyncio.wait_for(asyncio.shield(task), PATIENCE) == EXIT_LOST
        finally:
            for logger in loggers:
                logger.removeFilter(broken)
    assert acts.under_way == 0
