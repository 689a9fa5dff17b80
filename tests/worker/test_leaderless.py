"""Case E8: nothing hangs on a leader or on one lock. Somebody stands still with everything locked that housekeeping wants."""

import asyncio
from typing import Any

import psycopg
import pytest

from jobwell import App
from jobwell.actions import jobs as actions
from jobwell.core.filters import Selection
from jobwell.core.ids import new_id
from jobwell.store import control
from jobwell.store.statements import run
from jobwell.worker.housekeeping import prune
from tests.waiting import auntil
from tests.worker.helpers import Acts, Desk, starting, working
from tests.worker.test_lease import silent

SOON = 3.0  # seconds, on a busy machine; a lock that is waited for costs 30


async def test_ready_jobs_flow_while_a_frozen_session_holds_every_lock_of_housekeeping(
    app: App, acts: Acts, desk: Desk, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "EVERY", 0.1)
    monkeypatch.setattr(prune, "BUSY", 0.1)
    schema = app.settings.schema
    dead = silent(desk, 10 * prune.DEAD_WORKERS_KEPT)
    desk.conn.execute("update workers set state = 'dead' where id = %s", [dead])
    held = acts.act.using(run_after="1h").enqueue("ok")
    desk.conn.execute("insert into cancels (job_id, actor) values (%s, 'olga')", [held.id])
    desk.conn.execute("insert into upkeep (name, holder, who, until) values ('prune', %s, 'frozen', now())", [new_id()])
    app.database.run(
        control.begin(app.database.statements, "jobs.cancel", Selection(task="act"), total=1, actor="olga", why=None)
    )
    desk.conn.execute("update bulk_actions set beat_at = now() - interval '1 hour'")
    with psycopg.connect(database_url, options=f"-c search_path={schema}") as frozen:
        frozen.execute("select from upkeep for update")
        frozen.execute("select from workers for update")
        frozen.execute("select from bulk_actions for update")
        frozen.execute("select from jobs where id = %s for update", [held.id])
        async with working(app, slots=2), working(app, slots=2):
            for n in range(15):
                job = acts.act.enqueue("ok", n)
                await desk.end(job, timeout=SOON)
                await asyncio.sleep(0)
            assert desk.state(held) == "scheduled"
            frozen.rollback()
            await auntil(lambda: desk.state(held) == "cancelled", what="what was held back is done when the lock is gone")
            await auntil(lambda: desk.one("select count(*) from workers where state = 'dead'") == 0)


async def test_a_frozen_action_is_ended_by_the_server_and_holds_nobody_up_for_long(
    app: App, acts: Acts, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client stops in the middle of a piece, with running jobs locked: their outcomes can be stored soon."""
    true = app.database.statements["control.brief"]
    brief = true.replace("'10s'", "'1s'")
    assert brief != true
    async with starting(app) as (_, _):
        job = acts.act.enqueue("wait")
        await auntil(lambda: acts.under_way == 1)
        with app.database.connect("frozen") as conn:
            conn.execute("begin")
            conn.execute(brief)
            run(conn, control.cancel(app.database.statements, [job.id], actor="olga", why=None))
            acts.open_all()
            assert (await desk.end(job, timeout=10))["state"] == "succeeded"
            with pytest.raises(psycopg.Error):
                conn.execute("commit")


def test_every_action_on_jobs_says_that_it_is_brief(app: App, acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr(control, "brief", lambda statements: said.append(1) or iter(()))
    job = acts.act.enqueue("ok")
    actions.named(app.database, "jobs.cancel", [job.id], by="olga")
    assert said == [1]
