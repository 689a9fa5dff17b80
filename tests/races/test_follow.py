"""Ends and waits that meet: no job that follows is lost, and none is released twice or too early."""

import asyncio
import random
from uuid import UUID

import pytest

from jobwell.core.filters import Selection
from jobwell.store import control, quarantine
from jobwell.store.jobs import insert
from jobwell.store.statements import arun
from tests.races.conftest import Waits
from tests.store.conftest import Hands
from tests.store.helpers import DONE, FAILED, Hand, Store, new


async def shares(store: Store, crew: list[Hand]) -> list[list[tuple[UUID, UUID]]]:
    """Everything that is ready, claimed by these in turn."""
    each = -(-store.count("jobs", "state = 'ready'") // len(crew))
    return [[(row.id, hand.claim_id) for row in await hand.claim(each)] for hand in crew]


async def test_two_last_ends_at_once(store: Store, hands: Hands) -> None:
    """400 jobs that follow two each; the two end in two transactions at the same moment."""
    crew = [await hands(), await hands()]
    firsts, seconds = store.put_new(400), store.put_new(400, tenant="b")
    pairs = list(zip(firsts, seconds, strict=True))
    store.put([new(1, after=pair, ended=n % 2 == 0)[0] for n, pair in enumerate(pairs)])
    held = {job: (job, claim) for share in await shares(store, crew) for job, claim in share}
    for one, other in pairs:
        await asyncio.gather(crew[0].end(DONE, held[one]), crew[1].end(DONE, held[other]))
    assert store.states() == {"ready": 400}
    assert store.count("waits") == 0


async def test_the_second_last_end_waits_for_the_first(store: Store, hands: Hands, waits: Waits) -> None:
    """Each sees the other open, were it not for the row that both need."""
    one, two = await hands(), await hands()
    first, second = store.put_new(2)
    (follower,) = store.put(new(1, after=(first, second)))
    [[mine], [other]] = await shares(store, [one, two])
    async with one.conn.transaction():
        await one.end(DONE, mine)
        await one.conn.execute("set constraints all immediate")  # as at the commit, which then does not come
        ending = asyncio.create_task(two.end(DONE, other))
        await waits(two)
    assert await ending == set()
    assert store.ask("select id, state from jobs") == [(follower, "ready")]


async def test_batches_that_end_what_the_same_jobs_follow_do_not_lock_each_other_out(store: Store, hands: Hands) -> None:
    """Each of 60 jobs follows 20 of 400, which end in batches of four workers, in any order."""
    crew = [await hands() for _ in range(4)]
    jobs = store.put_new(400)
    chance = random.Random(7)
    store.put([new(1, after=tuple(chance.sample(jobs, 20)), ended=True)[0] for _ in range(60)])
    work = await shares(store, crew)

    async def end(hand: Hand, mine: list[tuple[UUID, UUID]]) -> None:
        chance.shuffle(mine)
        for at in range(0, len(mine), 25):
            await hand.end(FAILED if at % 50 else DONE, *mine[at : at + 25])

    await asyncio.gather(*[end(hand, mine) for hand, mine in zip(crew, work, strict=True)])
    assert store.states() == {"ready": 60}
    sums = store.ask(
        "select distinct (meta::jsonb #>> '{$followed,succeeded}')::int + (meta::jsonb #>> '{$followed,failed}')::int from jobs"
    )
    assert sums == [(20,)]


async def test_a_job_that_is_followed_at_the_moment_of_its_end(store: Store, hands: Hands) -> None:
    """300 rounds: one ends, another one enqueues what follows it."""
    ender, producer = await hands(), await hands()
    store.put_new(300)
    [mine] = await shares(store, [ender])
    for pair in mine:
        follow = insert(store.statements, new(1, after=(pair[0],)), None)
        await asyncio.gather(ender.end(DONE, pair), arun(producer.conn, follow))
    assert store.states() == {"ready": 300}


@pytest.mark.parametrize("end", [DONE, FAILED], ids=["done", "failed"])
async def test_who_begins_to_follow_waits_for_the_end_under_way(store: Store, hands: Hands, waits: Waits, end: object) -> None:
    ender, producer = await hands(), await hands()
    (job,) = store.put_new()
    [[mine]] = await shares(store, [ender])
    async with ender.conn.transaction():
        await ender.end(end, mine)
        follow = asyncio.create_task(arun(producer.conn, insert(store.statements, new(1, after=(job,)), None)))
        await waits(producer)
    await follow
    assert store.states() == ({"ready": 1} if end is DONE else {"waiting": 1})


async def test_a_transaction_that_follows_holds_nobody_up_before_its_commit(store: Store, hands: Hands) -> None:
    """A caller's transaction may be long: the job that it follows can end meanwhile."""
    ender, caller = await hands(), await hands()
    (job,) = store.put_new()
    [[mine]] = await shares(store, [ender])
    async with caller.conn.transaction():
        await arun(caller.conn, insert(store.statements, new(1, after=(job,)), None))
        assert await asyncio.wait_for(ender.end(DONE, mine), 10) == set()
    assert store.states() == {"ready": 1}


async def test_an_end_that_waited_for_a_follower_keeps_its_fence(store: Store, hands: Hands, waits: Waits) -> None:
    ender, caller = await hands(), await hands()
    (job,) = store.put_new()
    [[mine]] = await shares(store, [ender])
    async with caller.conn.transaction():
        await arun(caller.conn, insert(store.statements, new(1, after=(job,)), None))
        await caller.conn.execute("set constraints all immediate")
        ending = asyncio.create_task(ender.end(DONE, mine))
        await waits(ender)
    assert await ending == set()
    assert store.states() == {"ready": 1}


async def test_retried_and_followed_at_once(store: Store, hands: Hands) -> None:
    """100 failed jobs go back while others begin to follow them: each waits, and is released by the second life."""
    ender, operator, producer = await hands(), await hands(), await hands()
    jobs = store.put_new(100)
    [mine] = await shares(store, [ender])
    await ender.end(FAILED, *mine)
    for job in jobs:
        await asyncio.gather(
            arun(operator.conn, quarantine.retry(store.statements, Selection(ids=[job]))),
            arun(producer.conn, insert(store.statements, new(1, after=(job,)), None)),
        )
    await arun(operator.conn, quarantine.retry(store.statements, Selection()))  # what one of them found locked
    assert store.states() == {"ready": 100, "waiting": 100}
    [mine] = await shares(store, [ender])
    await ender.end(DONE, *mine)
    assert store.states() == {"ready": 100}


async def test_cancels_and_ends_at_once(store: Store, hands: Hands) -> None:
    """100 rounds: what waits is cancelled while what it waits for ends."""
    ender, operator = await hands(), await hands()
    jobs = store.put_new(100)
    followers = store.put([new(1, after=(job,))[0] for job in jobs])
    [mine] = await shares(store, [ender])
    pairs = dict(mine)
    for job, follower in zip(jobs, followers, strict=True):
        cancel = control.cancel(store.statements, [follower], actor="olga", why=None)
        await asyncio.gather(ender.end(DONE, (job, pairs[job])), arun(operator.conn, cancel))
    assert store.count() == 0
    assert store.count("waits") == 0
    assert dict(store.ask("select state, count(*) from finished group by state")) == {"succeeded": 100, "cancelled": 100}
