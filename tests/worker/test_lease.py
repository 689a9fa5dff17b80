"""The lease in the worker: who cannot renew it stops by itself, who is silent is given up, and an outage is nobody's fault."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from jobwell import App, Fixed
from jobwell.core.errors import StoreUnavailable
from jobwell.core.ids import new_id
from jobwell.store.database import Database
from jobwell.store.link import Link
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.housekeeping.rescue import Rescue
from tests.conftest import POOLER
from tests.waiting import PATIENCE, auntil
from tests.worker.helpers import Acts, Desk, starting, working


def silent(desk: Desk, seconds: float = 1.0) -> UUID:
    """A worker whose lease ended so long ago."""
    worker = new_id()
    run(desk.conn, WorkerVerbs(desk.app.database.statements).register(
        worker, lease=-seconds, pid=1, host="elsewhere", name="elsewhere/1", version="0", slots=1, queues=["default"]))  # fmt: skip
    return worker


def run_by(desk: Desk, worker: UUID, job: Any) -> None:
    desk.conn.execute(
        "update jobs set state = 'running', attempt = 1, worker = %s, claim_id = %s, started_at = now(), ready_at = null where id = %s",
        [worker, new_id(), job.id],
    )


async def test_the_jobs_of_a_silent_worker_run_again_here(app: App, acts: Acts, desk: Desk) -> None:
    """Case A14: this worker was there before, and nothing is started afterwards."""
    app.override({"lease": 2})
    async with working(app):
        handle = acts.act.using(run_after="1h").enqueue("ok")
        run_by(desk, silent(desk), handle)
        job = await desk.end(handle, timeout=2 * 2 + 5)
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
    assert desk.outcomes(handle) == ["lost", "succeeded"]


async def test_a_task_that_the_rescuer_does_not_know_goes_back_to_its_own_queue(app: App, acts: Acts, desk: Desk) -> None:
    """Case A17."""
    other = App(app.settings.database_url, schema=app.settings.schema)

    @other.task(name="unknown", queue="bulk", retry=Fixed("10ms", attempts=2, jitter=0))
    async def unknown() -> None:
        raise ConnectionResetError("by its own rule: twice")

    app.override({"lease": 2})
    handle = unknown.enqueue()
    run_by(desk, silent(desk), handle)
    async with working(app, queues=("default",)):
        await auntil(lambda: desk.state(handle) == "ready")
        await desk.end(acts.act.enqueue("ok"))
    job = desk.job(handle)
    assert (job["queue"], job["losses"], job["state"]) == ("bulk", 1, "ready")
    async with working(other):
        job = await desk.end(handle)
    other.close()
    assert (job["reason"], job["failures"], desk.outcomes(handle)) == ("exhausted", 2, ["lost", "retrying", "failed"])


@pytest.mark.skipif(POOLER == "alone", reason="the heartbeat has no backend of its own then, that one could end")
async def test_who_cannot_renew_stops_its_jobs_and_itself(
    app: App, acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case A13: only the heartbeat cannot reach the store."""
    app.override({"lease": 2})
    true, cut = Database.connect, False

    def connect(self: Database, name: str = "tool", **options: Any) -> Any:
        if cut and name == "heartbeat":
            raise StoreUnavailable("no route")
        return true(self, name, **options)

    monkeypatch.setattr(Database, "connect", connect)
    handle = acts.act.enqueue("wait")
    async with starting(app, slots=1) as (_, task):
        await auntil(lambda: acts.under_way == 1)
        cut = True
        desk.conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobwell heartbeat' and query like %s",
            [f"%{app.settings.schema}%"],
        )
        assert await asyncio.wait_for(asyncio.shield(task), 2 * 2 + PATIENCE) == 3
    assert acts.under_way == 0
    assert acts.ran[0].context.cancelled
    cut = False
    acts.open_all()
    async with working(app):
        job = await desk.end(handle)
    assert (job["state"], desk.outcomes(handle)) == ("succeeded", ["lost", "succeeded"])


async def test_a_worker_that_was_declared_dead_finds_out_and_ends(app: App, acts: Acts, desk: Desk) -> None:
    app.override({"lease": 2})
    handle = acts.act.enqueue("wait")
    async with starting(app) as (worker, task):
        await auntil(lambda: acts.under_way == 1)
        run(desk.conn, WorkerVerbs(app.database.statements).expire(worker.id))
        assert await asyncio.wait_for(asyncio.shield(task), PATIENCE) == 3
    assert desk.one("select count(*) from finished") == 0
    acts.open_all()
    async with working(app):
        assert (await desk.end(handle))["attempt"] == 2


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_who_has_just_come_gives_nobody_up_for_a_lease(app: App, acts: Acts, desk: Desk) -> None:
    link, clock = Link(app.database, "test"), Clock()
    rescue = Rescue(
        WorkerVerbs(app.database.statements), link, silent(desk, -60.0), every=1.0, lease=10.0, clock=clock, rescued=lambda: None
    )
    handle = acts.act.enqueue("ok")
    run_by(desk, silent(desk), handle)
    clock.now += 360.0  # a start that waited for the store: what counts is when that is there
    await rescue.tick()
    clock.now += 9.9
    await rescue.tick()
    assert desk.state(handle) == "running"
    clock.now += 0.2
    await rescue.tick()
    assert desk.state(handle) == "ready"
    await link.close()


async def test_who_is_about_to_lose_its_own_lease_gives_nobody_up(app: App, acts: Acts, desk: Desk) -> None:
    """After a freeze, or a step of the clock, all leases look old at once."""
    link, clock = Link(app.database, "test"), Clock()
    rescue = Rescue(
        WorkerVerbs(app.database.statements), link, silent(desk), every=1.0, lease=10.0, clock=clock, rescued=lambda: None
    )
    await rescue.tick()
    clock.now += 100
    handle = acts.act.enqueue("ok")
    run_by(desk, silent(desk), handle)
    await rescue.tick()
    assert desk.state(handle) == "running"
    await link.close()


async def test_after_an_outage_nobody_is_given_up_for_a_lease(app: App, acts: Acts, desk: Desk) -> None:
    """The others could not renew either. What the dead of before have left is taken back all the same."""
    link, clock, told = Link(app.database, "test"), Clock(), [0]

    def rescued() -> None:
        told[0] += 1

    rescue = Rescue(
        WorkerVerbs(app.database.statements), link, silent(desk, -60.0), every=1.0, lease=10.0, clock=clock, rescued=rescued
    )
    clock.now += 100
    rescue.failed(StoreUnavailable("away"))
    handle, worker = acts.act.enqueue("ok"), silent(desk)
    run_by(desk, worker, handle)
    orphan = acts.act.enqueue("ok")
    run_by(desk, new_id(), orphan)
    clock.now += 60.0  # what counts is when this one has come back
    assert await rescue.tick() == 1.0
    clock.now += 9.9
    assert await rescue.tick() == 1.0
    assert (desk.state(handle), desk.state(orphan), told) == ("running", "ready", [1])
    clock.now += 0.2
    await rescue.tick()
    assert (desk.state(handle), told) == ("ready", [2])
    await rescue.tick()
    assert told == [2]
    await link.close()


async def test_many_orphans_are_taken_back_without_a_pause(app: App, acts: Acts, desk: Desk) -> None:
    app.enqueue_many(acts.act.job("ok", n) for n in range(1000))
    desk.conn.execute("update jobs set state = 'running', attempt = 1, worker = gen_random_uuid(), claim_id = gen_random_uuid()")
    async with working(app):
        assert await desk.settled(timeout=15) == {"succeeded": 1000}
    assert sorted(ran.n for ran in acts.ran) == list(range(1000))
