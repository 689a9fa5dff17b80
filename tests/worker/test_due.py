"""Jobs for later (case A1): not touched before they are due, and each run once."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from jobwell import App
from tests.waiting import auntil
from tests.worker.helpers import Acts, Desk, working


@pytest.mark.parametrize(
    ("amount", "within"), [(1000, 2.0), pytest.param(20_000, 30.0, marks=[pytest.mark.long, pytest.mark.timeout(300)])]
)
async def test_many_jobs_for_later_with_a_restart_in_the_middle(
    app: App, acts: Acts, desk: Desk, amount: int, within: float
) -> None:
    """Each runs once, none before its time; one worker ends and another begins while they come due."""
    start = datetime.now(UTC) + timedelta(seconds=0.5)
    app.enqueue_many(acts.act.using(run_after=start + timedelta(seconds=within * n / amount)).job("ok", n) for n in range(amount))
    async with working(app):
        await auntil(lambda: len(acts.ran) > amount / 4, timeout=within + 30)
        async with working(app):
            pass
    async with working(app):
        assert await desk.settled(timeout=within + 60) == {"succeeded": amount}
    assert Counter(ran.n for ran in acts.ran) == dict.fromkeys(range(amount), 1)
    assert desk.one("select count(*) from finished where started_at < run_at or attempt > 1") == 0


async def test_many_jobs_for_later_cost_a_worker_nothing(app: App, acts: Acts, desk: Desk) -> None:
    app.enqueue_many(acts.act.using(run_after="1h").job("ok", n) for n in range(5000))
    async with working(app) as worker:
        for _ in range(10):
            await desk.end(acts.act.enqueue("ok"))
        await auntil(lambda: worker.busy == 0)  # it knows a moment after the store
    assert desk.states() == {"scheduled": 5000, "succeeded": 10}


@pytest.fixture
def _slow(app: App) -> None:
    app.override({"poll": 30})


@pytest.mark.usefixtures("_slow")
async def test_a_job_that_this_worker_put_off_for_a_moment_comes_in_a_moment(app: App, acts: Acts, desk: Desk) -> None:
    """The rest between two looks is half a minute here: a retry or a snooze of milliseconds ends it early."""
    async with working(app):
        assert (await desk.end(acts.act.enqueue("fail twice"), timeout=10))["attempt"] == 3
        assert (await desk.end(acts.act.enqueue("snooze once"), timeout=10))["attempt"] == 1
