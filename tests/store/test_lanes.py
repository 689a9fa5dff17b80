"""Claims that name their lanes, while vacuum is held back: nothing but those lanes, nothing from before their marks."""

from collections import Counter
from uuid import UUID

import psycopg

from tests.store.helpers import DONE, GATE, Hand, Store, ids, new

FIRST = UUID(int=0)
Named = tuple[tuple[str, int, int, str], tuple[int, UUID]]


def lane(tenant: str = "", rank: int = 100, mark: tuple[int, UUID] = (0, FIRST), queue: str = "default") -> Named:
    return (queue, rank, GATE, tenant), mark


async def test_only_the_lanes_named_are_looked_at(store: Store, hand: Hand) -> None:
    store.put([*new(3, tenant="a"), *new(3, tenant="b"), *new(3, tenant="a", rank=50), *new(3, tenant="a", queue="bulk")])
    rows = await hand.claim(20, lanes=[lane("a"), lane("nobody")])
    assert [(row.queue, row.rank, row.tenant) for row in rows] == [("default", 100, "a")] * 3


async def test_a_mark_hides_what_stands_before_it(store: Store, hand: Hand) -> None:
    """Exactly, also among jobs of one moment: a bulk."""
    jobs = store.put_new(5)
    store.conn.execute("update jobs set ready_at = '2026-01-01 00:00:00.000007+00'")
    moment = store.one("select (extract(epoch from ready_at) * 1000000)::bigint from jobs limit 1")
    assert ids(await hand.claim(20, lanes=[lane(mark=(moment + 1, FIRST))])) == []
    assert ids(await hand.claim(20, lanes=[lane(mark=(moment, jobs[4]))])) == []
    assert ids(await hand.claim(20, lanes=[lane(mark=(moment, jobs[2]))])) == jobs[3:]
    assert ids(await hand.claim(1, lanes=[lane(mark=(moment - 1, jobs[4]))])) == jobs[:1]
    assert ids(await hand.claim(20)) == jobs[1:3]


async def test_no_mark_counts_beyond_the_lag(store: Store, hand: Hand) -> None:
    """What is younger may be older than what is still to commit."""
    (job,) = store.put_new(1)
    moment = store.one("select (extract(epoch from ready_at) * 1000000)::bigint from jobs")
    mark = (moment + 3_600_000_000, job)
    store.conn.execute("update jobs set ready_at = ready_at - interval '10 seconds'")
    assert ids(await hand.claim(20, lanes=[lane(mark=mark)], lag=5_000_000)) == []
    assert ids(await hand.claim(20, lanes=[lane(mark=mark)], lag=60_000_000)) == [job]


async def test_a_job_that_waits_for_its_key_is_found_before_the_mark(store: Store, hand: Hand) -> None:
    """Others of its lane went past it while the key was held."""
    first, second = store.put_new(2, lock_key="k")
    (other,) = store.put_new(1, lock_key="z")
    store.conn.execute("update jobs set ready_at = ready_at - interval '1 hour'")
    assert set(ids(await hand.claim(20))) == {first, other}
    claim = hand.claim_id
    mark = store.one("select (extract(epoch from ready_at) * 1000000)::bigint, id from jobs where lock_key = 'z'")
    named = [lane(mark=mark)]
    assert ids(await hand.claim(20, lanes=named)) == []
    await hand.end(DONE, (first, claim))
    assert ids(await hand.claim(20, lanes=named)) == [second]


async def test_ranks_shares_locks_and_size_hold_there_too(store: Store, hand: Hand) -> None:
    store.put(
        [*new(50, tenant="a"), *new(50, tenant="b"), *new(3, tenant="z", rank=10), *new(5, tenant="k", lock_key="k", rank=20)]
    )
    lanes = [lane("a"), lane("b"), lane("z", 10), lane("k", 20)]
    assert Counter(row.tenant for row in await hand.claim(24, lanes=lanes)) == {"z": 3, "k": 1, "a": 10, "b": 10}
    store.put_new(40, tenant="large", size=1024 * 1024, rank=0)
    rows = await hand.claim(100, lanes=[lane("large", 0), *lanes])
    assert 8 <= len(rows) <= 9


async def test_a_lane_of_a_lower_rank_can_be_the_beginning(store: Store, hand: Hand) -> None:
    store.put([*new(5, rank=0), *new(5, rank=100)])
    assert {row.rank for row in await hand.claim(5, from_rank=1, lanes=[lane(rank=0), lane(rank=100)])} == {100}


async def test_a_claim_tells_what_it_read(store: Store, hand: Hand, database_url: str) -> None:
    """With the dead entries of 2,000 finished jobs pinned a whole look reads them all, and a look behind the mark none."""
    store.put_new(2000)
    with psycopg.connect(database_url) as pin:
        pin.execute("set transaction isolation level repeatable read")
        pin.execute("select 1")
        for _ in range(4):
            rows = await hand.claim(500)
            mark = max((row.ready_us, row.id) for row in rows)
            assert not await hand.end(DONE, *[(row.id, hand.claim_id) for row in rows])
        store.put_new(10)
        behind = await hand.claim(5, lanes=[lane(mark=mark)])
        whole = await hand.claim(5)
        assert behind[-1].reads < 100
        assert whole[-1].reads > 1900
