"""Locks that say more than "wait": what is held is skipped, or keeps its order."""

import asyncio

import pytest

from jobwell.core.outcome import Retrying, Snoozed
from tests.store.conftest import Hands
from tests.store.helpers import DONE, FAILURE, GATE, Hand, Store, ids
from tests.store.limited import declare, finish, gate, patient, row
from tests.waiting import auntil


async def flip(store: Store, hand: Hand) -> None:
    store.conn.execute("update jobs set run_at = now() - interval '1 s' where state in ('scheduled', 'retrying')")
    await auntil(lambda: flipped(hand))


async def flipped(hand: Hand) -> int:
    return (await hand.verbs.flip_due(hand.conn, 10))[0]


async def test_what_waits_for_a_held_key_is_skipped_with_a_note(store: Store, hand: Hand) -> None:
    gate(store, GATE, "note", busy="skip")
    (holder,) = store.put_new(1, lock_key="k")
    (first,) = await hand.claim(10)
    claim = hand.claim_id
    late = store.put_new(2, lock_key="k")
    free = store.put_new(1, lock_key="z")
    assert ids(await hand.claim(10)) == free
    assert dict(store.ask("select id, note from finished where state = 'cancelled'")) == dict.fromkeys(
        late, f"skipped: its key was held by job {holder}"
    )
    await hand.end(DONE, (first.id, claim))
    next_one = store.put_new(1, lock_key="k")
    assert ids(await hand.claim(10)) == next_one


async def test_nothing_is_skipped_where_the_lock_waits(store: Store, hand: Hand) -> None:
    gate(store, GATE, "note", ordered=True)
    store.put_new(3, lock_key="k")
    await hand.claim_one()
    await hand.claim(10)
    assert store.states() == {"running": 1, "ready": 2}


@pytest.mark.parametrize("end", [Retrying(60.0, FAILURE), Snoozed(60.0)], ids=["retry", "snooze"])
async def test_an_ordered_key_waits_for_the_one_that_is_tried_again(store: Store, hand: Hand, end: object) -> None:
    gate(store, GATE, "note", ordered=True)
    first, second = store.put_new(2, lock_key="k")
    other = store.put_new(1, lock_key="z")
    assert set(ids(await hand.claim(10))) == {first, *other}
    await hand.end(end, (first, hand.claim_id))
    assert await hand.claim(10) == []
    await flip(store, hand)
    assert ids(await hand.claim(10)) == [first]
    await hand.end(DONE, (first, hand.claim_id))
    assert ids(await hand.claim(10)) == [second]


async def test_an_ordered_key_keeps_the_order_across_tenants_and_ranks(store: Store, hand: Hand) -> None:
    gate(store, GATE, "note", ordered=True)
    jobs = [store.put_new(1, lock_key="k", rank=rank, tenant=tenant)[0] for rank, tenant in ((200, "z"), (100, "a"), (0, "m"))]
    for job in jobs:
        assert ids(await hand.claim(10)) == [job]
        await hand.end(DONE, (job, hand.claim_id))


async def test_a_waiting_job_costs_no_attempt(store: Store, hand: Hand) -> None:
    """D18: however often it was passed over."""
    declare(store, row("queue", "default", 1))
    store.put_new(2)
    holder, claim = await hand.claim_one(), hand.claim_id
    for _ in range(50):
        assert await hand.claim(10) == []
    await hand.end(DONE, (holder.id, claim))
    job = await hand.claim_one()
    assert (job.attempt, job.failures, job.postponements) == (1, 0, 0)


async def test_a_job_put_in_at_the_moment_of_a_finish_starts_at_once(store: Store, hands: Hands) -> None:
    """D4: 300 times, on a limit of one: the first look after both finds it."""
    declare(store, row("queue", "default", 1))
    one, two, three = await hands(), await hands(), await hands()
    store.put_new(1)
    job, claim = await one.claim_one(), one.claim_id
    for _ in range(300):
        _, waiting, _ = await asyncio.gather(
            one.end(DONE, (job.id, claim)), patient(three), asyncio.to_thread(store.put_new, 1)
        )  # fmt: skip
        if waiting:
            (job,), claim = waiting, three.claim_id
        else:
            (job,) = await patient(two)
            claim = two.claim_id
    await finish(two, [job], claim)
    assert store.count("finished") == 301
