"""Plain functions that do not come back: their threads are replaced up to a bound, and then the process is."""

import asyncio
import threading
from typing import Any

from jobwell import App, Fixed, SyncContext
from tests.waiting import PATIENCE, auntil
from tests.worker.helpers import QUICK, Desk, starting


async def test_c1_stuck_threads_are_counted_replaced_and_bounded(app: App, desk: Desk) -> None:
    """Case C1."""
    door = threading.Event()
    entered: list[int] = []
    returned: list[int] = []

    @app.task(name="recv", timeout="0.5s", retry=Fixed("1.5s", attempts=9, jitter=0))
    def recv(ctx: SyncContext, n: int) -> int:
        entered.append(n)
        door.wait(60)  # as a silent peer
        returned.append(n)
        return ctx.attempt

    @app.task(name="quick")
    def quick(n: int) -> int:
        return n

    async with starting(app, slots=4) as (worker, task):
        stuck = [recv.using(deadline="1h").enqueue(n) for n in range(3)]
        await auntil(lambda: worker.stuck == 3)
        for job in stuck:
            found = await auntil(lambda job=job: (row := desk.job(job))["attempts"] and row)  # type: ignore[misc]
            assert found["attempts"][0]["error_type"] == "TimeLimit"
        done: list[Any] = [quick.enqueue(n) for n in range(20)]
        for job in done:
            assert (await desk.end(job, 5.0))["state"] == "succeeded"
        # The retries get stuck too: beyond the bound the process drains.
        assert await asyncio.wait_for(asyncio.shield(task), PATIENCE) == 4
        assert desk.one("select count(*) from jobs where state = 'running'") == 0
        assert desk.one("select count(*) from workers") == 0
        before = desk.all("select id, state, failures from jobs order by id")
        door.set()
        await auntil(lambda: len(returned) == len(entered))
        assert desk.all("select id, state, failures from jobs order by id") == before  # what comes back late changes nothing


async def test_threads_that_come_back_are_not_stuck_any_more(app: App, desk: Desk) -> None:
    door = threading.Event()

    @app.task(name="slow", timeout="0.2s", retry=QUICK, deadline="1h")
    def slow() -> None:
        door.wait(60)

    async with starting(app, slots=50) as (worker, _):
        slow.enqueue()
        await auntil(lambda: worker.stuck >= 1)
        door.set()
        await auntil(lambda: worker.stuck == 0)
        assert await desk.settled() == {"succeeded": 1}
