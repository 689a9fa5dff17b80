"""Who is served: tenants share equally, what some leave goes to the others, everybody's turn comes, and low priority lives."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from jobwell.core.ids import gate_of
from jobwell.core.job import NewJob
from jobwell.store.jobs import Claimed
from jobwell.worker.streams import LOWER_RANKS_EVERY, Rotation
from tests.store.helpers import GATE, Hand, Store, ids, new


async def turn(hand: Hand, rotation: Rotation, want: int, **ask: Any) -> list[Claimed]:
    """One claim as the fetcher makes it."""
    for from_rank in rotation.ranks():
        rows = await hand.claim(want, from_rank=from_rank, after_gate=rotation.gate, after_tenant=rotation.tenant, **ask)
        if rows:
            rotation.learn(rows)
            return rows
    return []


def tenants(rows: list[Claimed]) -> Counter[str]:
    return Counter(row.tenant for row in rows)


async def test_a_giant_beside_small_tenants_takes_one_share(store: Store, hand: Hand) -> None:
    store.put_new(5000, tenant="giant")
    store.put([job for n in range(9) for job in new(50, tenant=f"small{n}")])
    shares = tenants(await hand.claim(100))
    assert shares == {"giant": 10} | {f"small{n}": 10 for n in range(9)}


async def test_each_of_many_small_tenants_is_served_in_the_first_claims(store: Store, hand: Hand) -> None:
    """One giant with a backlog beside 500 small ones with two jobs each."""
    store.put_new(5000, tenant="m-giant")
    store.put([job for n in range(500) for job in new(2, tenant=f"{'az'[n % 2]}{n}")])
    rotation, served = Rotation([GATE]), Counter[str]()
    for _ in range(6):
        served += tenants(await turn(hand, rotation, 100))
    assert len(served) == 501
    assert max(served.values()) <= 2


async def test_what_some_leave_unused_is_handed_to_the_others(store: Store, hand: Hand) -> None:
    store.put([*new(1, tenant="a"), *new(2, tenant="b"), *new(500, tenant="c"), *new(500, tenant="d")])
    shares = tenants(await hand.claim(100))
    assert (shares["a"], shares["b"], shares.total()) == (1, 2, 100)
    assert min(shares["c"], shares["d"]) >= 25


@pytest.mark.parametrize("want", [1, 3, 8, 9, 10, 11, 25])
async def test_shares_are_equal_whatever_the_size_of_a_claim(store: Store, hand: Hand, want: int) -> None:
    """Also where a claim takes fewer jobs than there are tenants, and comes to the far end in its middle."""
    for n in range(10):
        store.put_new(100, tenant=f"t{n}")
    rotation, served = Rotation([GATE]), Counter[str]()
    while served.total() < 700:
        served += tenants(await turn(hand, rotation, want))
    assert 56 <= min(served.values()) <= max(served.values()) <= 84  # what cannot be shared evenly goes by lot


async def test_one_tenant_alone_gets_everything(store: Store, hand: Hand) -> None:
    store.put_new(300, tenant="a")
    assert len(await hand.claim(250)) == 250


async def test_tasks_of_a_tenant_have_shares_of_their_own(store: Store, hand: Hand) -> None:
    gates = [gate_of(f"task{n}") for n in range(4)]
    for gate in gates:
        store.put_new(100, gate=gate)
    assert Counter(row.gate for row in await hand.claim(40, gates=gates)) == dict.fromkeys(gates, 10)


ORDERS: dict[str, Callable[[list[NewJob]], None]] = {
    "as they sort": lambda jobs: jobs.sort(key=lambda job: job.tenant),
    "backwards": lambda jobs: jobs.sort(key=lambda job: job.tenant, reverse=True),
    "mixed": lambda jobs: random.Random(7).shuffle(jobs),
}


@pytest.mark.parametrize("order", ORDERS)
async def test_more_tenants_than_a_claim_takes_are_all_served_in_turn(store: Store, hand: Hand, order: str) -> None:
    """1,000 tenants with ten jobs each, 100 a claim: each has had one job after ten claims, in whatever order they came."""
    named = new(10_000)
    for n, job in enumerate(named):
        job.tenant = f"t{n % 1000:03}"
    given = [(job.id, job.tenant) for job in named]
    ORDERS[order](named)
    for job, (id_, _) in zip(named, given, strict=True):
        job.id = id_  # ids rise in the order in which they are put
    store.put(named)
    rotation, served = Rotation([GATE]), Counter[str]()
    for _ in range(11):
        served += tenants(await turn(hand, rotation, 100))
    assert len(served) == 1000
    assert max(served.values()) <= 2


async def test_several_queues_with_many_tenants_are_all_served_in_turn(store: Store, hand: Hand) -> None:
    """A queue with few lanes does not wait until one with many has come round."""
    few, many = gate_of("few"), gate_of("many")
    store.put([job for n in range(10) for job in new(30, queue="a", gate=few, tenant=f"few{n}")])
    store.put([job for n in range(400) for job in new(3, queue="b", gate=many, tenant=f"many{n:03}")])
    rotation, served = Rotation([few, many]), Counter[str]()
    for _ in range(60):
        served += tenants(await turn(hand, rotation, 10, queues=("a", "b"), gates=(few, many)))
    counts = [served[f"few{n}"] for n in range(10)]
    assert min(counts) >= 1, counts
    assert len([name for name in served if name.startswith("many")]) >= 250


async def test_low_priority_lives_beside_a_flood(store: Store, hand: Hand) -> None:
    """At least one claim in sixteen goes to the ranks below the one that could take them all."""
    store.put_new(2000, rank=0)
    low = set(store.put_new(100, rank=150))
    rotation, claims = Rotation([GATE]), 10 * LOWER_RANKS_EVERY
    got = [low & set(ids(await turn(hand, rotation, 5))) for _ in range(claims)]
    assert sum(map(bool, got)) >= 9


async def test_lower_ranks_take_turns(store: Store, hand: Hand) -> None:
    store.put_new(3000, rank=0)
    for rank in (50, 100, 150, 200):
        store.put_new(100, rank=rank)
    rotation, served = Rotation([GATE]), Counter[int]()
    for _ in range(17 * LOWER_RANKS_EVERY):
        served.update({row.rank for row in await turn(hand, rotation, 5)})
    assert all(served[rank] >= 3 for rank in (50, 100, 150, 200)), served


async def test_a_turn_for_the_lower_ranks_is_no_loss_where_there_are_none(store: Store, hand: Hand) -> None:
    store.put_new(400, rank=0)
    rotation = Rotation([GATE])
    for _ in range(4 * LOWER_RANKS_EVERY):
        assert len(await turn(hand, rotation, 5)) == 5


async def test_d15_strict_by_choice_low_priority_waits_and_is_served_when_nothing_higher_is_left(
    store: Store, hand: Hand
) -> None:
    store.put_new(5 * 3 * LOWER_RANKS_EVERY, rank=0)
    low = set(store.put_new(5, rank=150))
    rotation = Rotation([GATE], strict=True)
    for _ in range(3 * LOWER_RANKS_EVERY):
        assert not low & set(ids(await turn(hand, rotation, 5)))
    assert set(ids(await turn(hand, rotation, 5))) == low
