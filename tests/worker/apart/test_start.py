"""Children that start, and children that died while nobody used them: neither costs a job its time or a crash."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from psycopg import Connection

from jobwell import App
from jobwell.actions import jobs as actions
from jobwell.worker.executors.children import Children
from jobwell.worker.executors.kept import Kept
from tests.waiting import auntil
from tests.worker.apart import slow
from tests.worker.apart.tasks import cpu
from tests.worker.helpers import Desk, working


@pytest.fixture
def slow_app(database_url: str, schema: str, conn: "Connection[Any]") -> Iterator[App]:
    """An app whose children take longer to start than its task may run."""
    slow.app.override({"database_url": database_url, "schema": schema, "children": 1})
    yield slow.app
    slow.app.close()


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Kept]:
    """The children that were started."""
    started: list[Kept] = []
    real = Children._start

    def start(self: Children) -> Kept:
        started.append(real(self))
        return started[-1]

    monkeypatch.setattr(Children, "_start", start)
    return started


async def test_the_start_of_a_child_takes_none_of_the_jobs_time(slow_app: App, conn: "Connection[Any]") -> None:
    desk = Desk(slow_app, conn)
    async with working(slow_app):
        job = slow.quick.enqueue()
        found = await desk.end(job)
    assert (found["state"], desk.outcomes(job)) == ("succeeded", [])


async def test_a_child_that_comes_too_late_is_kept_for_the_next_job(
    slow_app: App, conn: "Connection[Any]", starts: list[Kept]
) -> None:
    desk = Desk(slow_app, conn)
    async with working(slow_app):
        first = slow.quick.enqueue()
        await auntil(lambda: desk.state(first) == "running")
        actions.named(slow_app.database, "jobs.cancel", [first.id], by="olga")
        assert (await desk.end(first))["state"] == "cancelled"
        found = await desk.end(slow.quick.enqueue())
        assert (found["state"], found["result"]) == ("succeeded", str(starts[0].process.pid))
    assert len(starts) == 1


@pytest.mark.parametrize("seen", [True, False])
async def test_an_idle_child_that_died_costs_nobody_a_crash(
    app: App, desk: Desk, starts: list[Kept], monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    app.override({"children": 1})
    try:
        async with working(app):
            assert (await desk.end(cpu.enqueue("add", 3)))["state"] == "succeeded"
            (idle,) = starts
            os.kill(idle.process.pid, signal.SIGKILL)
            await auntil(lambda: not psutil.pid_exists(idle.process.pid))
            if not seen:  # as if it died just after it was looked at
                monkeypatch.setattr(Kept, "dead", False)
            job = cpu.enqueue("add", 4)
            found = await desk.end(job)
    finally:
        app.override({"children": 2})
    assert (found["state"], found["crashes"], desk.outcomes(job)) == ("succeeded", 0, [])
    assert len(starts) == 2


async def test_a_loop_whose_child_starts_during_the_shutdown_hears_of_it(slow_app: App, conn: "Connection[Any]") -> None:
    desk = Desk(slow_app, conn)
    async with working(slow_app) as worker:
        job = slow.walk.enqueue()
        await auntil(lambda: desk.state(job) == "running")
        worker.stop()
        await auntil(lambda: worker.finished == 1)
    assert (desk.state(job), desk.outcomes(job)) == ("ready", ["released"])
