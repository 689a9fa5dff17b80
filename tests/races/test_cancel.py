"""A cancel races with the start, the end and the retry of a job."""

import asyncio
import random
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Context, Fixed
from jobwell.actions import jobs as actions
from tests.waiting import apause, auntil
from tests.worker.helpers import Desk, working


async def race(app: App, desk: Desk, rounds: int) -> None:
    effects: dict[str, int] = {}
    told: dict[Any, str] = {}

    @app.task(name="brief", retry=Fixed("1ms", attempts=3, jitter=0))
    async def brief(ctx: Context, *, fails: bool) -> str:
        await apause(0.025)
        if fails:
            raise TimeoutError
        effects[str(ctx.id)] = effects.get(str(ctx.id), 0) + 1
        return "done"

    chance = random.Random(7)

    async def one(number: int) -> None:
        handle = await brief.aenqueue(fails=number % 4 == 0)
        await apause(chance.random() * 0.05)
        done = await asyncio.to_thread(actions.named, app.database, "jobs.cancel", [handle.id], by="test")
        told[handle.id] = next(iter(done.refused.values()), "asked" if done.asked else "cancelled")

    async with working(app, slots=50):
        for start in range(0, rounds, 25):
            await asyncio.gather(*(one(number) for number in range(start, start + 25)))
        await desk.settled()
        await auntil(lambda: desk.one("select count(*) from cancels") == 0)
        before = dict(effects)
        await apause(0.2)
        assert effects == before  # nothing runs on or again

    states = dict(desk.all("select id, state from finished"))
    assert len(states) + desk.one("select count(*) from quarantine") == rounds
    for job, said in told.items():
        ran = effects.get(str(job), 0)
        assert ran <= 1
        if said == "cancelled":  # over at once, while it waited: it has not run to its end, before or afterwards
            assert (states[job], ran) == ("cancelled", 0)
        elif "already" in said:  # too late, and told so
            assert states.get(job) != "cancelled"
        else:
            assert (states.get(job) == "succeeded") == (ran == 1)


async def test_c4_the_final_state_is_what_really_happened(app: App, conn: "Connection[Any]") -> None:
    """Case C4."""
    await race(app, Desk(app, conn), 300)


@pytest.mark.long
async def test_c4_at_full_length(app: App, conn: "Connection[Any]") -> None:
    """Case C4."""
    await race(app, Desk(app, conn), 2000)


async def test_c5_a_cancel_while_no_worker_lives_is_not_forgotten(app: App, conn: "Connection[Any]") -> None:
    """Case C5."""
    desk, ran = Desk(app, conn), []

    @app.task(name="note")
    async def note(n: int) -> None:
        ran.append(n)

    jobs = [note.enqueue(1), note.using(run_after="1h").enqueue(2)]
    actions.named(app.database, "jobs.cancel", [job.id for job in jobs], by="olga")
    conn.execute("update jobs set run_at = now()")
    async with working(app):
        assert (await desk.end(note.enqueue(3)))["state"] == "succeeded"
    assert ran == [3]
    assert desk.states() == {"cancelled": 2, "succeeded": 1}
