"""Loops, progress and transactions of jobs that run in children."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jobwell import App
from tests.waiting import auntil
from tests.worker.apart import tasks
from tests.worker.helpers import Desk, working


@pytest.mark.parametrize("task", [tasks.walking, tasks.awalking], ids=["plain", "async"])
async def test_a_shutdown_ends_a_loop_in_a_child_and_its_progress_is_seen(
    app: App, desk: Desk, tmp_path: Path, task: Any
) -> None:
    marks = tmp_path / "marks"
    async with working(app) as worker:
        job = await task.aenqueue(str(marks), 50)
        await auntil(lambda: desk.one("select coalesce(max(done), 0) from progress") == 5)
        worker.stop()
        await auntil(lambda: desk.one("select count(*) from workers where state = 'draining'") == 1)
        (tmp_path / "marks.go").touch()
        await auntil(lambda: worker.finished == 1)
    assert (desk.job(job)["state"], desk.job(job)["attempt"], desk.outcomes(job)) == ("ready", 0, ["released"])
    async with working(app):
        assert (await desk.end(job))["result"] is not None
    text = await asyncio.to_thread(marks.read_text)
    assert [int(line) for line in text.split()] == list(range(50))
    told = job.progress()
    assert told is not None
    assert (told.done, told.total, told.note) == (50, 50, "steps")


async def test_a_transaction_in_a_child_ends_the_job(app: App, desk: Desk) -> None:
    async with working(app) as worker:
        job = await tasks.committing.aenqueue()
        assert int((await desk.end(job))["result"]) > 0
        await auntil(lambda: worker.busy == 0)
    assert desk.outcomes(job) == []


async def test_a_time_limit_behind_the_transaction_changes_nothing(
    app: App, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(app) as worker:
        job = await tasks.committing_late.aenqueue()
        await auntil(lambda: worker.finished == 1)
        await auntil(lambda: worker.busy == 0)
    assert (desk.state(job), desk.outcomes(job)) == ("succeeded", [])
    assert "is over its time limit" in caplog.text
    assert "ownership lost" not in caplog.text
