"""A worker that was given up finishes late, at the very moment of the rescue: one of them wins, and the other is told."""

import asyncio
from typing import Any

import pytest

from jobwell.store.statements import arun
from jobwell.store.workers import WorkerVerbs
from tests.races.conftest import Waits
from tests.store.conftest import Hands
from tests.store.helpers import DONE, FAILED, RELEASED, RETRYING, SNOOZED, Hand, Store

each_end = pytest.mark.parametrize("end", [DONE, FAILED, RETRYING, SNOOZED, RELEASED], ids=lambda end: type(end).__name__)


async def rescue(one: Hand, workers: WorkerVerbs) -> int:
    return await arun(one.conn, workers.rescue(limit=100, bound=10))


@each_end
async def test_the_rescue_is_first(store: Store, hands: Hands, workers: WorkerVerbs, waits: Waits, end: Any) -> None:
    """The late one waits for the rescuer's commit and then finds that nothing is its own any more."""
    late, rescuer = await hands(), await hands()
    store.put_new(3)
    rows = await late.claim(3)
    jobs = [(row.id, late.claim_id) for row in rows]
    await arun(rescuer.conn, workers.expire(late.worker))
    async with rescuer.conn.transaction():
        assert await rescue(rescuer, workers) == 3
        ending = asyncio.create_task(late.end(end, *jobs))
        await waits(late)
    assert await ending == {job for job, _ in jobs}
    assert store.states() == {"ready": 3}
    assert store.ask("select distinct outcome from attempts") == [("lost",)]
    assert store.count("finished") + store.count("quarantine") == 0


@each_end
async def test_the_finish_is_first(store: Store, hands: Hands, workers: WorkerVerbs, end: Any) -> None:
    """The rescuer passes over what somebody writes about, and afterwards finds nothing."""
    late, rescuer = await hands(), await hands()
    store.put_new(3)
    rows = await late.claim(3)
    await arun(rescuer.conn, workers.expire(late.worker))
    async with late.conn.transaction():
        assert await late.end(end, *[(row.id, late.claim_id) for row in rows[:2]]) == set()
        assert await rescue(rescuer, workers) == 1
    assert await rescue(rescuer, workers) == 0
    assert store.count("attempts", "outcome = 'lost'") == 1
    assert store.one("select count(*) from jobs where losses > 0") == 1
    assert store.count() + store.count("finished") + store.count("quarantine") == 3


async def test_a_finish_that_is_undone_leaves_the_job_to_the_rescue(store: Store, hands: Hands, workers: WorkerVerbs) -> None:
    late, rescuer = await hands(), await hands()
    store.put_new(1)
    row = await late.claim_one()
    await arun(rescuer.conn, workers.expire(late.worker))
    async with late.conn.transaction(force_rollback=True):
        await late.end(DONE, (row.id, late.claim_id))
        assert await rescue(rescuer, workers) == 0
    assert await rescue(rescuer, workers) == 1
    assert store.states() == {"ready": 1}


@each_end
async def test_the_late_finish_meets_the_next_claim(
    store: Store, hands: Hands, workers: WorkerVerbs, waits: Waits, end: Any
) -> None:
    late, other = await hands(), await hands()
    store.put_new(1)
    row = await late.claim_one()
    await arun(other.conn, workers.expire(late.worker))
    await rescue(other, workers)
    async with other.conn.transaction():
        await other.claim_one()
        ending = asyncio.create_task(late.end(end, (row.id, late.claim_id)))
        # It sees a ready row that is not its own, or waits for the claim's commit and then sees that: either way it is lost.
        await asyncio.wait([ending], timeout=0.2)
    assert await ending == {row.id}
    assert await other.end(end, (row.id, other.claim_id)) == set()


async def test_two_that_finish_one_claim(store: Store, hands: Hands, waits: Waits) -> None:
    one, two = await hands(), await hands()
    store.put_new(5)
    rows = await one.claim(5)
    jobs = [(row.id, one.claim_id) for row in rows]
    async with one.conn.transaction():
        assert await one.end(DONE, *jobs[:3]) == set()
        second = asyncio.create_task(two.end(DONE, *jobs[::-1]))
        await waits(two)
    assert await second == {job for job, _ in jobs[:3]}
    assert store.one("select count(*), count(distinct id) from finished") == (5, 5)


# --- the lease -----------------------------------------------------------------------------------------------------------


async def bury(one: Hand, workers: WorkerVerbs) -> list[Any]:
    return await arun(one.conn, workers.bury())


async def renew(one: Hand, workers: WorkerVerbs) -> bool:
    return await arun(one.conn, workers.renew(one.worker, lease=60.0, busy=0))


async def test_a_renewal_that_comes_first_saves_the_worker(store: Store, hands: Hands, workers: WorkerVerbs) -> None:
    silent, other = await hands(), await hands()
    store.conn.execute("update workers set lease_until = clock_timestamp() - interval '1 second' where id = %s", [silent.worker])
    async with silent.conn.transaction():
        assert await renew(silent, workers)
        assert await bury(other, workers) == []
    assert await bury(other, workers) == []
    assert store.ask("select distinct state from workers") == [("live",)]


async def test_a_renewal_that_comes_second_finds_itself_dead(
    store: Store, hands: Hands, workers: WorkerVerbs, waits: Waits
) -> None:
    silent, other = await hands(), await hands()
    store.conn.execute("update workers set lease_until = clock_timestamp() - interval '1 second' where id = %s", [silent.worker])
    async with other.conn.transaction():
        assert await bury(other, workers) == [silent.worker]
        renewing = asyncio.create_task(renew(silent, workers))
        await waits(silent)
    assert not await renewing


async def test_a_burial_that_is_undone_leaves_the_worker_alive(
    store: Store, hands: Hands, workers: WorkerVerbs, waits: Waits
) -> None:
    silent, other = await hands(), await hands()
    store.conn.execute("update workers set lease_until = clock_timestamp() - interval '1 second' where id = %s", [silent.worker])
    async with other.conn.transaction(force_rollback=True):
        await bury(other, workers)
        renewing = asyncio.create_task(renew(silent, workers))
        await waits(silent)
    assert await renewing
    assert await bury(other, workers) == []


async def test_two_that_bury_at_once_tell_it_once(store: Store, hands: Hands, workers: WorkerVerbs) -> None:
    crew = [await hands() for _ in range(6)]
    store.conn.execute("update workers set lease_until = clock_timestamp() - interval '1 second'")
    buried = [worker for told in await asyncio.gather(*[bury(one, workers) for one in crew]) for worker in told]
    assert sorted(buried) == sorted(one.worker for one in crew)


async def test_a_claim_under_way_when_its_worker_is_buried_is_found_by_the_next_rescue(
    store: Store, hands: Hands, workers: WorkerVerbs
) -> None:
    silent, other = await hands(), await hands()
    store.put_new(2)
    async with silent.conn.transaction():
        await silent.claim(2)
        await arun(other.conn, workers.expire(silent.worker))
        assert await rescue(other, workers) == 0  # not visible yet
    assert await rescue(other, workers) == 2
