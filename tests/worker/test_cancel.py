"""A running job that an operator cancels, and queues that are held under a working worker."""

from typing import Any

import pytest

from jobwell import App
from jobwell.actions import jobs as actions
from jobwell.actions import queues
from tests.waiting import auntil
from tests.worker.helpers import Acts, Desk, working


def cancel(app: App, *handles: Any) -> actions.Done:
    return actions.named(app.database, "jobs.cancel", [each.id for each in handles], by="olga", why="by mistake")


async def test_an_async_task_is_cancelled_where_it_awaits(app: App, acts: Acts, desk: Desk) -> None:
    async with working(app):
        job = acts.act.enqueue("wait")
        await auntil(lambda: acts.under_way == 1)
        done = cancel(app, job)
        assert (done.touched, done.asked, done.refused) == (1, 1, {})
        found = await desk.end(job, 5.0)
    assert (found["state"], found["note"]) == ("cancelled", "cancelled by olga: by mistake")
    assert acts.under_way == 0
    assert desk.outcomes(job) == ["cancelled"]
    assert desk.one("select count(*) from cancels") == 0


async def test_a_plain_function_ends_when_it_looks(app: App, acts: Acts, desk: Desk) -> None:
    acts.words["obey"] = lambda _ctx, _n: (_ for _ in ()).throw(RuntimeError("stopped half way"))
    async with working(app):
        job = acts.act_plain.enqueue("obey")
        await auntil(lambda: acts.under_way == 1)
        cancel(app, job)
        found = await desk.end(job, 5.0)
    assert found["state"] == "cancelled"
    assert "stopped half way" in found["attempts"][0]["message"]


@pytest.mark.parametrize("word", ["swallow once", "obey"])
async def test_work_that_comes_to_its_end_has_succeeded(app: App, acts: Acts, desk: Desk, word: str) -> None:
    """Nobody may call cancelled what was done."""
    async with working(app):
        task: Any = acts.act_plain if word == "obey" else acts.act
        job = task.enqueue(word, 3)
        await auntil(lambda: acts.under_way == 1)
        cancel(app, job)
        found = await desk.end(job, 5.0)
    assert (found["state"], found["result"]) == ("succeeded", '{"n":3}')
    await auntil(lambda: True)


async def test_a_deaf_plain_function_holds_its_slot_until_its_limit(app: App, acts_with: Any, desk: Desk) -> None:
    acts = acts_with(timeout="1.5s")
    async with working(app):
        job = acts.act_plain.enqueue("wait")
        await auntil(lambda: acts.under_way == 1)
        cancel(app, job)
        assert desk.state(job) == "running"
        found = await desk.end(job, 5.0)
    assert found["state"] == "cancelled"


async def test_a_job_between_two_attempts_is_over_and_never_runs_again(app: App, acts_with: Any, desk: Desk) -> None:
    from jobwell import Fixed

    acts = acts_with(retry=Fixed("1h", attempts=5))
    async with working(app):
        job = acts.act.enqueue("temporary")
        await auntil(lambda: desk.state(job) == "retrying")
        assert cancel(app, job).asked == 0
        assert desk.state(job) == "cancelled"
        assert actions.named(app.database, "jobs.retry", [job.id], by="olga").refused == {
            job.id: "it is cancelled, which is final; enqueue a new job instead"
        }
    assert len(acts.ran) == 1


async def test_the_next_attempt_now(app: App, acts_with: Any, desk: Desk) -> None:
    from jobwell import Fixed

    acts = acts_with(retry=Fixed("1h", attempts=2))
    async with working(app):
        job = acts.act.enqueue("temporary")
        await auntil(lambda: desk.state(job) == "retrying")
        assert actions.named(app.database, "jobs.retry", [job.id], by="olga").touched == 1
        found = await desk.end(job)
    assert (found["state"], found["reason"]) == ("failed", "exhausted")
    assert len(acts.ran) == 2


async def test_k3_a_pause_is_seen_by_every_worker_and_survives_restarts(app: App, acts: Acts, desk: Desk) -> None:
    """Case K3."""
    queues.pause(app.database, ["default"], by="olga", why="closing")
    for _ in range(2):
        async with working(app), working(app):
            acts.act.enqueue("ok")
            await auntil(lambda: desk.one("select count(*) from workers where idle") == 2)
            assert not acts.ran
    (hold,) = queues.held(app.database)
    assert (hold["paused_by"], hold["paused_why"]) == ("olga", "closing")
    async with working(app):
        assert queues.resume(app.database, ["default"], by="olga") == ["default"]
        assert await desk.settled(5.0) == {"succeeded": 2}


async def test_a_pause_in_the_middle_of_a_flood_stops_it_at_once(app: App, acts: Acts, desk: Desk) -> None:
    app.enqueue_many(acts.act.job("ok", n) for n in range(5000))
    async with working(app, slots=20):
        await auntil(lambda: len(acts.ran) > 200)
        queues.pause(app.database, ["*"], by="olga", why="stop")
        await auntil(lambda: desk.one("select count(*) from workers where idle") == 1)
        began = len(acts.ran)
        assert began < 5000
        assert desk.one("select count(*) from jobs") == 5000 - began
        queues.resume(app.database, [], by="olga", everything=True)
        assert await desk.settled() == {"succeeded": 5000}


async def test_a_worker_goes_on_with_an_action_whose_driver_is_gone(
    app: App, acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobwell.core.filters import Selection
    from jobwell.store import control
    from jobwell.worker.housekeeping import bulk

    monkeypatch.setattr(bulk, "EVERY", 0.05)
    statements = app.database.statements
    app.enqueue_many(acts.act.using(run_after="1h").job("ok", n) for n in range(1100))
    total, chosen = actions.preview(app.database, "jobs.cancel", Selection(task="act"))
    action = app.database.run(control.begin(statements, "jobs.cancel", chosen, actor="olga", why=None, total=total))
    app.database.run(control.step(statements, action))
    desk.conn.execute("update bulk_actions set beat_at = now() - interval '16 seconds'")
    async with working(app):
        await auntil(lambda: desk.one("select state from bulk_actions") == "done")
    assert desk.one("select done from bulk_actions") == 1100
    assert desk.states() == {"cancelled": 1100}
