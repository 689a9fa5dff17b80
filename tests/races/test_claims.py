"""Claims that meet: each job goes to one worker, a lock key to one job, and nobody waits for anybody."""

import asyncio
from collections import Counter

import psycopg
import pytest

from jobwell.core.filters import Selection
from jobwell.core.outcome import Retrying
from jobwell.store import quarantine
from jobwell.store.jobs import insert
from jobwell.store.statements import arun
from jobwell.store.workers import WorkerVerbs
from tests.races.conftest import Waits
from tests.store.conftest import Hands
from tests.store.helpers import DONE, FAILED, FAILURE, Hand, Store, ids, new
from tests.waiting import apause


@pytest.mark.parametrize("shape", ["plain", "tenants", "keys"])
async def test_no_job_is_claimed_twice(store: Store, hands: Hands, shape: str) -> None:
    """20 claimers, 5,000 jobs."""
    columns = {
        "plain": lambda n: {},
        "tenants": lambda n: {"tenant": f"t{n % 37}", "rank": n % 3},
        "keys": lambda n: {"lock_key": f"k{n}", "tenant": f"t{n % 3}"},
    }[shape]
    store.put([job for n in range(5000) for job in new(1, **columns(n))])
    crew = [await hands() for _ in range(20)]
    taken: list[object] = []

    async def work(hand: Hand, want: int) -> None:
        empty = 0
        while empty < 3:
            rows = await hand.claim(want)
            taken.extend(ids(rows))
            empty = 0 if rows else empty + 1

    await asyncio.gather(*[work(hand, 1 + 7 * n % 40) for n, hand in enumerate(crew)])
    while rows := await crew[0].claim(100):  # what the others had under way when a claim looked
        taken.extend(ids(rows))
    assert len(taken) == len(set(taken)) == 5000
    assert store.one("select count(*), count(distinct id) from jobs where state = 'running' and attempt = 1") == (5000, 5000)


async def test_a_claim_does_not_wait_for_another(store: Store, hands: Hands) -> None:
    one, two = await hands(), await hands()
    jobs = store.put_new(10)
    async with one.conn.transaction():
        first = ids(await one.claim(6))
        second = ids(await asyncio.wait_for(two.claim(10), 10))
        assert not set(first) & set(second)
        assert {*first, *second} == set(jobs)


async def test_a_claim_that_is_undone_leaves_the_jobs_to_others(store: Store, hands: Hands) -> None:
    one, two = await hands(), await hands()
    store.put_new(4)
    async with one.conn.transaction(force_rollback=True):
        await one.claim(4)
        assert await two.claim(4) == []
    assert {row.attempt for row in await two.claim(4)} == {1}


async def test_two_workers_on_one_lock_key(store: Store, hands: Hands) -> None:
    one, two = await hands(), await hands()
    first, second = store.put_new(2, lock_key="k")
    async with one.conn.transaction():
        assert ids(await one.claim(10)) == [first]
        assert await asyncio.wait_for(two.claim(10), 10) == []
    assert await two.claim(10) == []
    async with one.conn.transaction():
        await one.end(DONE, (first, one.claim_id))
        assert await asyncio.wait_for(two.claim(10), 10) == []  # not committed: still held
    assert ids(await two.claim(10)) == [second]


async def test_a_key_whose_claim_is_undone_is_free(store: Store, hands: Hands) -> None:
    one, two = await hands(), await hands()
    first, _ = store.put_new(2, lock_key="k")
    async with one.conn.transaction(force_rollback=True):
        await one.claim(10)
        assert await two.claim(10) == []
    assert ids(await two.claim(10)) == [first]


@pytest.mark.parametrize("keys", [1, 3, 10])
async def test_a_key_is_never_held_twice_while_everything_happens_to_its_jobs(
    store: Store, hands: Hands, workers: WorkerVerbs, keys: int
) -> None:
    """Claims, ends of all kinds, rescues and flips of due jobs, all at once; the unique index must never have to say no."""
    jobs = [job for n in range(keys) for job in new(200 // keys, lock_key=f"k{n}", tenant=f"t{n % 2}")]
    store.put(jobs)
    crew = [await hands() for _ in range(8)]
    rescuer = await hands()
    over = asyncio.Event()

    async def work(number: int, hand: Hand) -> None:
        turn = number
        while not over.is_set():
            for row in await hand.claim(3):
                turn += 1
                if turn % 5 == 0:
                    await arun(rescuer.conn, workers.leave(hand.worker))
                    # A claim that met the row on its way holds it for a moment, and a rescue passes it over: the next one takes it.
                    while store.count("jobs", f"state = 'running' and worker = '{hand.worker}'"):
                        await arun(rescuer.conn, workers.rescue(limit=10, bound=1000))
                    await arun(
                        rescuer.conn,
                        workers.register(
                            hand.worker, lease=60.0, pid=1, host="h", name="h", version="0", slots=1, queues=["default"]
                        ),
                    )
                elif turn % 5 == 1:
                    await hand.end(Retrying(0.0, FAILURE), (row.id, hand.claim_id))
                else:
                    await hand.end(DONE if turn % 2 else FAILED, (row.id, hand.claim_id))

    async def housekeep() -> None:
        while store.count():
            await rescuer.verbs.flip_due(rescuer.conn, 100)
            store.conn.execute("update jobs set run_at = clock_timestamp() where state = 'retrying'")
            await apause(0.001)
        over.set()

    async with asyncio.timeout(90):
        await asyncio.gather(housekeep(), *[work(n, hand) for n, hand in enumerate(crew)])
    assert store.count("finished") + store.count("quarantine") == len(jobs)


async def test_a_job_that_commits_late_is_claimed_in_its_turn(store: Store, hands: Hands, database_url: str) -> None:
    """Its time and id are older than those already taken: nobody has gone past it."""
    hand = await hands()
    async with await psycopg.AsyncConnection.connect(database_url) as caller:
        late, early = new(1), new(3)
        await arun(caller, insert(store.statements, late, None))
        store.put(early)
        assert set(ids(await hand.claim(10))) == {job.id for job in early}
        assert await hand.claim(10) == []
        await caller.commit()
    assert ids(await hand.claim(10)) == [late[0].id]


async def test_two_operators_retry_the_same(store: Store, hands: Hands) -> None:
    one, two = await hands(), await hands()
    store.put_new(50)
    rows = await one.claim(50)
    await one.end(FAILED, *[(row.id, one.claim_id) for row in rows])
    moved = await asyncio.gather(*[arun(each.conn, quarantine.retry(store.statements, Selection())) for each in (one, two)])
    assert Counter(job for part in moved for job in part.ids) == dict.fromkeys(ids(rows), 1)
    assert store.states() == {"ready": 50}


async def test_a_finish_waits_for_nobody_but_its_own_rows(store: Store, hands: Hands, waits: Waits) -> None:
    one, two = await hands(), await hands()
    store.put_new(4)
    mine, theirs = ids(await one.claim(2)), ids(await two.claim(2))
    async with one.conn.transaction():
        await one.end(DONE, *[(job, one.claim_id) for job in mine])
        assert await asyncio.wait_for(two.end(DONE, *[(job, two.claim_id) for job in theirs]), 10) == set()
    assert store.count("finished") == 4
