"""A worker that an operator ends: its jobs have the grace, or go back at once; it is not started again."""

import asyncio
from typing import Literal

import pytest

from jobwell import App
from jobwell.store import control
from tests.waiting import PATIENCE, auntil
from tests.worker.helpers import Acts, Desk, starting


@pytest.mark.parametrize("what", ["drain", "stop"])
async def test_it_ends_as_asked(app: App, acts: Acts, desk: Desk, what: Literal["drain", "stop"]) -> None:
    async with starting(app) as (worker, task):
        job = acts.act.enqueue("wait")
        await auntil(lambda: acts.under_way == 1)
        app.database.run(control.ask(app.database.statements, [worker.id], what))
        if what == "drain":
            await auntil(lambda: desk.one("select state from workers") == "draining")
            late = acts.act.enqueue("ok")
            acts.open_all()
        assert await asyncio.wait_for(asyncio.shield(task), PATIENCE) == 6
    assert desk.state(job) == ("succeeded" if what == "drain" else "ready")
    if what == "drain":
        assert desk.state(late) == "ready"
    assert desk.one("select count(*) from workers") == 0


async def test_b3_cancel_works_while_draining(app: App, acts: Acts, desk: Desk) -> None:
    """Case B3."""

    from jobwell.actions import jobs as actions

    async with starting(app) as (worker, task):
        job = acts.act.enqueue("wait")
        await auntil(lambda: acts.under_way == 1)
        worker.stop()
        await auntil(lambda: desk.one("select state from workers") == "draining")
        actions.named(app.database, "jobs.cancel", [job.id], by="olga")
        assert (await desk.end(job, 4.0))["state"] == "cancelled"
        assert await asyncio.wait_for(asyncio.shield(task), PATIENCE) == 0
