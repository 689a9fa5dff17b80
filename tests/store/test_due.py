"""Due jobs become ready: exactly the due ones, oldest first, a bounded number for each commit."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.store.conftest import Hands
from tests.store.helpers import RETRYING, Hand, Store, ids, new
from tests.waiting import auntil


async def flip(hand: Hand, limit: int = 1000) -> tuple[int, float | None]:
    return await hand.verbs.flip_due(hand.conn, limit)


async def test_nothing_waits(store: Store, hand: Hand) -> None:
    store.put_new(3)
    assert await flip(hand) == (0, None)
    assert store.states() == {"ready": 3}


async def test_only_the_due_ones_flip(store: Store, hand: Hand) -> None:
    store.put_new(2, delay=3600.0)
    due = store.put_new(3, delay=0.05)
    await auntil(lambda: store.count(where="run_at <= clock_timestamp()") == 3)
    assert (await flip(hand))[0] == 3
    assert {row[0] for row in store.ask("select id from jobs where state = 'ready'")} == set(due)
    assert store.one("select bool_and(ready_at >= run_at) from jobs where state = 'ready'")
    assert set(ids(await hand.claim(10))) == set(due)


async def test_not_a_moment_too_early(store: Store, hand: Hand) -> None:
    """Looked at all the time, a job flips after its moment and never before."""
    store.put_new(1, delay=0.3)
    await auntil(lambda: flip_count(hand))
    assert store.one("select ready_at >= run_at and ready_at < run_at + interval '5 seconds' from jobs")


async def flip_count(hand: Hand) -> int:
    return (await flip(hand))[0]


async def test_retries_flip_too(store: Store, hand: Hand) -> None:
    (job,) = store.put_new(1)
    await hand.claim(1)
    await hand.end(RETRYING, (job, hand.claim_id))
    assert await flip_count(hand) == 0
    store.conn.execute("update jobs set run_at = clock_timestamp()")
    assert await flip_count(hand) == 1
    assert (await hand.claim_one()).attempt == 2


async def test_a_thousand_for_each_commit_the_oldest_first(store: Store, hand: Hand) -> None:
    store.put([job for n in range(2500) for job in new(1, run_at=datetime.now(UTC) + timedelta(hours=1, seconds=n))])
    store.conn.execute("update jobs set run_at = run_at - interval '1 day'")
    flipped, next_in = await flip(hand)
    assert flipped == 1000
    assert next_in is not None
    assert next_in < 0  # more are due
    assert store.one("select max(run_at) from jobs where state = 'ready'") < store.one(
        "select min(run_at) from jobs where state = 'scheduled'"
    )
    assert [await flip_count(hand) for _ in range(3)] == [1000, 500, 0]
    assert store.states() == {"ready": 2500}


async def test_the_next_one_is_told(store: Store, hand: Hand) -> None:
    store.put_new(1, delay=3600.0)
    store.put_new(1, delay=60.0)
    flipped, next_in = await flip(hand)
    assert flipped == 0
    assert next_in == pytest.approx(60, abs=5)


async def test_workers_that_flip_at_once_share_the_work(store: Store, hands: Hands) -> None:
    store.put_new(3000, delay=3600.0)
    store.conn.execute("update jobs set run_at = run_at - interval '1 day'")
    four = [await hands() for _ in range(4)]
    total = 0
    while any(flipped := await asyncio.gather(*[flip_count(hand) for hand in four])):
        total += sum(flipped)
    assert total == 3000
    assert store.states() == {"ready": 3000}


async def test_a_locked_one_is_passed_over(store: Store, hand: Hand, hands: Hands) -> None:
    locked, free = store.put_new(2, delay=3600.0)
    store.conn.execute("update jobs set run_at = run_at - interval '1 day'")
    other = await hands()
    async with other.conn.transaction():
        await other.conn.execute(f"select from {store.statements.schema}.jobs where id = %s for update", [locked])  # type: ignore[call-overload]
        assert await flip_count(hand) == 1
        assert store.one("select state from jobs where id = %s", free) == "ready"
    assert await flip_count(hand) == 1
