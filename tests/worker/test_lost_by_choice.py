"""What a task says about lost workers and lost leases."""

import asyncio
from typing import Any

import pytest

from jobwell import App, Context
from jobwell.core.errors import DeclarationError
from jobwell.core.ids import new_id
from tests.waiting import PATIENCE, apause, auntil
from tests.worker.helpers import Desk, starting, working


async def test_a20_a_vanished_worker_is_retried_or_left_to_a_person_as_the_task_says(app: App, desk: Desk) -> None:
    """Case A20."""

    @app.task(name="again")
    async def again() -> str:
        return "done"

    @app.task(name="pay", on_lost="fail")
    async def pay() -> str:
        return "done"

    one, two = again.enqueue(), pay.enqueue()
    async with working(app):  # the catalog is published
        await desk.end(one)
        await desk.end(two)
    one, two = again.enqueue(), pay.enqueue()
    desk.conn.execute("update jobs set state = 'running', claim_id = %s, worker = %s", [new_id(), new_id()])
    async with working(app):
        assert (await desk.end(one))["state"] == "succeeded"
        found = await desk.end(two)
    assert (found["state"], found["reason"], found["losses"]) == ("failed", "lost", 1)


@pytest.mark.parametrize("choice", ["stop", "finish"])
async def test_a13_a_lost_lease_stops_a_job_or_lets_it_end(app: App, desk: Desk, choice: Any) -> None:
    """Case A13."""
    app.override({"lease": "2s"})  # it beats twice a second
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.task(name="work", on_lease_lost=choice)
    async def work(ctx: Context) -> str:
        begun.set()
        await apause(1.5)
        ended.set()
        return "done"

    async with starting(app) as (worker, task):
        await auntil(lambda: desk.one("select count(*) from workers where idle") == 1)  # its first rounds are over
        job = work.enqueue()
        await asyncio.wait_for(begun.wait(), PATIENCE)
        worker._rescue.paused = True  # nobody is quick enough to take it over
        desk.conn.execute("update workers set state = 'dead' where id = %s", [worker.id])
        assert await asyncio.wait_for(asyncio.shield(task), PATIENCE) == 3
    assert ended.is_set() == (choice == "finish")
    if choice == "finish":  # nobody had taken it over, so its outcome counts
        assert desk.state(job) == "succeeded"
    else:
        assert desk.state(job) in ("running", "ready")


async def test_what_ends_after_somebody_else_has_the_job_changes_nothing(app: App, desk: Desk) -> None:
    app.override({"lease": "2s"})
    begun = asyncio.Event()

    @app.task(name="work", on_lease_lost="finish")
    async def work(ctx: Context) -> int:
        begun.set()
        await apause(1.5)
        return ctx.attempt

    job = work.enqueue()
    async with starting(app) as (worker, task):
        await asyncio.wait_for(begun.wait(), PATIENCE)
        other = new_id()
        desk.conn.execute(
            "insert into workers (id, lease_until, pid, host, name, version, slots, queues, tasks) values"
            " (%s, now() + interval '1 hour', 1, 'h', 'h/1', '0', 1, '{}', '{work}')",
            [other],
        )
        desk.conn.execute("update jobs set claim_id = %s, worker = %s", [other, other])
        desk.conn.execute("update workers set state = 'dead' where id = %s", [worker.id])
        assert await asyncio.wait_for(asyncio.shield(task), PATIENCE) == 3
    assert desk.one("select claim_id from jobs") == other
    assert desk.state(job) == "running"
    await auntil(lambda: True)


@pytest.mark.parametrize("options", [{"on_lost": "drop"}, {"on_lease_lost": "wait"}])
def test_other_words_are_refused(app: App, options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=r"on_l\w+='\w+' must be"):

        @app.task(name="t", **options)
        async def t() -> None: ...
