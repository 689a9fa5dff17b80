"""Lock keys: of all jobs with the same key one runs, fleet-wide, whatever lane it stands in; the others wait as ready."""

import asyncio
from collections import Counter

import psycopg
import pytest

from jobwell.core.ids import gate_of
from jobwell.core.outcome import Released, Retrying, Snoozed
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from tests.store.conftest import Hands
from tests.store.helpers import DONE, FAILED, FAILURE, GATE, Hand, Store, ids, new
from tests.waiting import auntil


async def flipped(hand: Hand) -> int:
    return (await hand.verbs.flip_due(hand.conn, 10))[0]


def running_keys(store: Store) -> Counter[str]:
    return Counter(dict(store.ask("select lock_key, count(*) from jobs where state = 'running' group by 1")))


async def test_one_job_for_a_key_the_oldest(store: Store, hand: Hand) -> None:
    first, *_rest = store.put_new(5, lock_key="k")
    assert ids(await hand.claim(10)) == [first]
    assert await hand.claim(10) == []
    assert store.states() == {"running": 1, "ready": 4}


async def test_jobs_without_a_key_are_not_held_up(store: Store, hand: Hand) -> None:
    store.put_new(5, lock_key="k")
    plain = store.put_new(5)
    assert set(ids(await hand.claim(10))) > set(plain)
    assert len(await hand.claim(10)) == 0


@pytest.mark.parametrize("limited", [False, True], ids=["plain", "limited"])
@pytest.mark.parametrize("want", [1, 10])
async def test_lanes_whose_keys_are_held_hold_up_nobody_behind_them(store: Store, hand: Hand, want: int, limited: bool) -> None:
    """Nor is it a long way past them: a claim looks at more and more of them together."""
    if limited:
        store.conn.execute("insert into limits (kind, name, concurrency) values ('queue', 'default', 10000)")
    blocked = [f"t{n:03}" for n in range(300)]
    store.put([job for tenant in blocked for job in new(1, tenant=tenant, lock_key=tenant)])
    while await hand.claim(100):
        pass
    store.put([job for tenant in blocked for job in new(2, tenant=tenant, lock_key=tenant)])
    assert await hand.claim(want) == []
    free = store.put_new(1, tenant="z", lock_key="z")
    before = await entries_read(store, hand)
    assert ids(await hand.claim(want)) == free
    assert await entries_read(store, hand) - before < 20 * len(blocked)


async def entries_read(store: Store, hand: Hand) -> int:
    """Of the index that claims walk; what the session has read so far is reported first, which else happens once a second."""
    await hand.conn.execute("select pg_stat_force_next_flush()")
    return int(store.one("select pg_stat_get_tuples_returned('jobs_ready'::regclass)"))


async def test_each_key_has_one_in_one_claim(store: Store, hand: Hand) -> None:
    store.put([job for n in range(20) for job in new(3, lock_key=f"k{n}")])
    rows = await hand.claim(50)
    assert len(rows) == 20
    assert set(running_keys(store).values()) == {1}


@pytest.mark.parametrize(
    "end", [DONE, FAILED, Retrying(60.0, FAILURE), Snoozed(60.0), Released("shutdown")], ids=lambda end: type(end).__name__
)
async def test_the_key_is_free_after_each_kind_of_end(store: Store, hand: Hand, end: object) -> None:
    first, second = store.put_new(2, lock_key="k")
    await hand.claim(10)
    await hand.end(end, (first, hand.claim_id))
    (row,) = await hand.claim(10)
    assert row.id == (second if not isinstance(end, Released) else row.id)
    assert running_keys(store) == {"k": 1}


async def test_the_key_is_free_after_a_rescue(store: Store, hand: Hand, hands: Hands, workers: WorkerVerbs) -> None:
    store.put_new(2, lock_key="k")
    await hand.claim(10)
    run(store.conn, workers.expire(hand.worker))
    assert run(store.conn, workers.rescue(limit=10, bound=10)) == 1
    assert len(await (await hands()).claim(10)) == 1


async def test_a_retried_holder_waits_like_the_others(store: Store, hand: Hand) -> None:
    first, second = store.put_new(2, lock_key="k")
    await hand.claim(10)
    await hand.end(Retrying(0.001, FAILURE), (first, hand.claim_id))
    holder = await hand.claim_one()
    assert holder.id == second
    claim = hand.claim_id
    await auntil(lambda: flipped(hand))
    assert await hand.claim(10) == []
    await hand.end(DONE, (second, claim))
    assert ids(await hand.claim(10)) == [first]


async def test_a_key_in_several_lanes_is_one_key(store: Store, hand: Hand) -> None:
    """Tenants, tasks, queues and ranks do not matter: the key does."""
    gates = [gate_of(f"task{n}") for n in range(3)]
    store.put([
        job for gate in gates for tenant in "abc" for rank in (50, 100) for queue in ("default", "bulk")
        for job in new(2, lock_key="k", gate=gate, tenant=tenant, rank=rank, queue=queue)
    ])  # fmt: skip
    ended = 0
    while rows := await hand.claim(50, gates=gates, queues=("default", "bulk")):
        assert len(rows) == 1
        assert running_keys(store) == {"k": 1}
        ended += 1
        await hand.end(DONE, (rows[0].id, hand.claim_id))
    assert ended == 72


async def test_keys_that_run_do_not_hide_those_that_are_free(store: Store, hand: Hand) -> None:
    """However many keys are held, one that is free is found, also by a claim for one slot."""
    store.put([job for n in range(30) for job in new(2, lock_key=f"k{n:02}")])
    assert len(await hand.claim(30)) == 30
    (free,) = store.put_new(1, lock_key="z")
    assert ids(await hand.claim(1)) == [free]


async def test_held_keys_of_one_tenant_do_not_hide_other_tenants(store: Store, hand: Hand) -> None:
    store.put([job for n in range(30) for job in new(2, lock_key=f"k{n:02}", tenant="a")])
    await hand.claim(30)
    store.put_new(1, lock_key="z", tenant="b")
    assert len(await hand.claim(1)) == 1


async def test_a_tenant_with_many_keys_does_not_starve_a_plain_one(store: Store, hand: Hand) -> None:
    store.put([job for n in range(2000) for job in new(1, lock_key=f"k{n}", tenant="many")])
    store.put_new(50, tenant="plain")
    assert Counter(row.tenant for row in await hand.claim(20)) == {"many": 10, "plain": 10}


async def test_the_index_holds_the_promise(store: Store, hand: Hand) -> None:
    first, second = store.put_new(2, lock_key="k")
    await hand.claim(1)
    assert running_keys(store) == {"k": 1}
    with pytest.raises(psycopg.errors.UniqueViolation):
        store.conn.execute("update jobs set state = 'running' where id = %s", [second])
    assert store.one("select state from jobs where id = %s", second) == "ready"
    assert first != second


@pytest.mark.parametrize("want", [1, 5, 50])
async def test_concurrent_claims_hold_each_key_once_and_do_not_fail(store: Store, hands: Hands, want: int) -> None:
    """Twelve workers on six keys: a claim whose snapshot is older than the other's commit must not trip over it."""
    jobs = [job for n in range(6) for job in new(60, lock_key=f"k{n}", tenant=f"t{n % 2}", gate=GATE)]
    store.put(jobs)
    done: list[object] = []
    holders: Counter[str] = Counter()
    keys = {job.id: job.lock_key for job in jobs}

    async def work(hand: Hand) -> None:
        while len(done) < len(jobs):
            for row in await hand.claim(want):
                holders[keys[row.id]] += 1
                assert holders[keys[row.id]] == 1, "two at once"
                await asyncio.sleep(0)
                holders[keys[row.id]] -= 1
                assert not await hand.end(DONE, (row.id, hand.claim_id))
                done.append(row.id)

    await asyncio.gather(*[work(await hands()) for _ in range(12)])
    assert len(set(done)) == len(done) == 360
