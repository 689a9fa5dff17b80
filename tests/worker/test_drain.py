"""Stopping: no claim after the signal, the grace for what runs, and what is handed back costs nothing."""

import asyncio
from typing import Any

import pytest

from jobwell import App
from jobwell.store.jobs import JobVerbs
from tests.waiting import PATIENCE, apause, auntil
from tests.worker.helpers import Acts, Desk, starting, working


async def over(task: "asyncio.Task[int]", timeout: float = PATIENCE) -> int:
    """The exit code, when it has ended."""
    return await asyncio.wait_for(asyncio.shield(task), timeout)


async def test_the_last_results_are_stored_before_the_end(app: App, acts: Acts, desk: Desk) -> None:
    """A flood is under way: whatever has run is stored, whatever has not is ready, nothing hangs in between."""
    app.enqueue_many(acts.act.job("ok", n) for n in range(3000))
    async with starting(app, slots=50) as (worker, task):
        await auntil(lambda: len(acts.ran) > 300)
        worker.stop()
        assert await over(task) == 0
    done = len(acts.ran)
    assert 300 < done < 3000
    assert desk.states() == {"succeeded": done, "ready": 3000 - done}
    assert desk.one("select count(*) from attempts") == 0


@pytest.mark.parametrize("lost", [False, True], ids=["answered", "the answer is lost"])
async def test_a_claim_under_way_at_the_stop_is_no_loss(
    app: App, acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """The signal comes when the store has committed the claim and the worker does not know yet."""
    entered, leave = asyncio.Event(), asyncio.Event()
    claim = JobVerbs.claim

    async def slow(self: Any, conn: Any, request: Any) -> Any:
        rows = await claim(self, conn, request)
        if rows and not entered.is_set():
            entered.set()
            await leave.wait()
            if lost:
                await conn.close()
                raise ConnectionResetError("the answer is lost")
        return rows

    monkeypatch.setattr(JobVerbs, "claim", slow)
    handles = [acts.act.enqueue("ok", n) for n in range(5)]
    async with starting(app) as (worker, task):
        await asyncio.wait_for(entered.wait(), PATIENCE)
        worker.stop()
        await apause(0.05)
        leave.set()
        assert await over(task) == 0
    assert desk.one("select count(*) from jobs where state = 'running'") == 0
    assert desk.one("select count(*) from workers") == 0
    assert desk.one("select count(*) from attempts where outcome = 'lost'") == 0
    assert {desk.job(handle)["attempt"] for handle in handles if desk.state(handle) == "ready"} <= {0}
    async with working(app):
        assert {(await desk.end(handle))["attempt"] for handle in handles} == {1}
    assert sorted(ran.n for ran in acts.ran) == list(range(5))


async def test_stop_before_the_start_is_a_stop(app: App, acts: Acts, desk: Desk) -> None:
    from jobwell.worker.worker import Worker

    worker = Worker(app)
    worker.stop()
    assert await asyncio.wait_for(worker.run(), PATIENCE) == 0
    assert desk.one("select count(*) from workers") == 0
