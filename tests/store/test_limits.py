"""Concurrency limits: never more at once than they say, also when many claim at once (D2); a slot is free when its job has ended."""

import asyncio
from collections import Counter
from typing import Any

import psycopg
import pytest

from jobwell.core.ids import gate_of
from jobwell.core.outcome import Cancelled, Released, Retrying, Snoozed
from jobwell.store import limits
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.streams import Rotation
from tests.store.conftest import Hands
from tests.store.helpers import DONE, FAILED, FAILURE, GATE, Hand, Store, ids, new
from tests.store.limited import declare, finish, gate, patient, row, together, turn
from tests.store.test_lanes import lane

OTHER = gate_of("other")


def running(store: Store, where: str = "true") -> int:
    return store.count("jobs", f"state = 'running' and {where}")


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "task": (row("task", "note", 3), {}),
    "queue": (row("queue", "default", 3), {}),
    "resource": (row("resource", "sms", 3), {}),
    "tenant": (row("tenant", "acme", 3), {"tenant": "acme"}),
    "each tenant": (row("tenant", "*", 3), {"tenant": "acme"}),
    "task of a tenant": (row("task", "note", 3, per="tenant"), {"tenant": "acme"}),
    "resource on a host": (row("resource", "sms", 3, per="host"), {}),
    "queue in a process": (row("queue", "default", 3, per="process"), {}),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_no_more_at_once_and_no_fewer(store: Store, hand: Hand, kind: str) -> None:
    limit, columns = KINDS[kind]
    gate(store, GATE, "note", "sms")
    declare(store, limit)
    jobs = set(store.put_new(12, **columns))
    first = await hand.claim(2)
    claim = hand.claim_id
    assert len(first) == 2
    (second,) = await hand.claim(10)
    assert await hand.claim(10) == []
    await finish(hand, first, claim)
    third = await hand.claim(10)
    assert len(third) == 2
    assert {*ids(first), second.id, *ids(third)} <= jobs
    assert running(store) == 3


@pytest.mark.parametrize("kind", ["resource", "tenant", "queue", "task"])
async def test_what_is_not_limited_passes(store: Store, hand: Hand, kind: str) -> None:
    """Oldest first, and there is a crowd in front."""
    limit, columns = KINDS[kind]
    gate(store, GATE, "note", "sms")
    gate(store, OTHER, "other")
    declare(store, limit)
    store.put_new(50, **columns)
    free = store.put_new(5, gate=OTHER, task="other", queue="bulk", tenant="zoo")
    rows = await hand.claim(20, gates=[GATE, OTHER], queues=["default", "bulk"])
    assert len(rows) == 8
    assert set(free) < set(ids(rows))


async def test_each_tenant_is_counted_by_itself_and_a_named_one_by_its_own_number(store: Store, hand: Hand) -> None:
    declare(store, row("tenant", "*", 2), row("tenant", "acme", 5), row("tenant", "free", weight=2))
    for tenant in ("acme", "zoo", "bar", "free", ""):
        store.put_new(20, tenant=tenant)
    taken: Counter[str] = Counter()
    while rows := await hand.claim(7):
        taken.update(each.tenant for each in rows)
    assert taken == {"acme": 5, "zoo": 2, "bar": 2, "free": 2, "": 20}


async def test_hosts_and_processes_have_numbers_of_their_own(store: Store, hands: Hands) -> None:
    gate(store, GATE, "note", "sms")
    declare(store, row("resource", "sms", 4, per="host"), row("task", "note", 3, per="process"), row("queue", "default", 6))
    store.put_new(50)
    one, two, far = await hands("here"), await hands("here"), await hands("there")
    assert [len(await each.claim(10)) for each in (one, two, far)] == [3, 1, 2]


async def test_several_limits_on_a_job_all_hold(store: Store, hand: Hand) -> None:
    gate(store, GATE, "note", "sms", "db")
    gate(store, OTHER, "other", "db")
    declare(
        store, row("resource", "sms", 4), row("resource", "db", 7), row("queue", "default", 9), row("tenant", "acme", 2), row("task", "other", 8)
    )  # fmt: skip
    store.put_new(20, tenant="acme")
    store.put_new(20, tenant="zoo")
    store.put_new(20, gate=OTHER, task="other")
    while await hand.claim(5, gates=[GATE, OTHER]):
        pass
    assert 2 <= running(store, f"gate = {GATE}") <= 4
    assert running(store) == 7
    assert running(store, "tenant = 'acme'") <= 2


async def test_a_limit_of_nothing_holds_everything(store: Store, hand: Hand) -> None:
    declare(store, row("queue", "default", 0))
    store.put_new(5)
    assert await hand.claim(10) == []


ENDS: dict[str, Any] = {
    "finish": DONE, "fail": FAILED, "retry": Retrying(60.0, FAILURE), "snooze": Snoozed(60.0), "release": Released("shutdown"),
    "cancel": Cancelled(),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
async def test_a_slot_is_free_after_each_kind_of_end_and_nobody_writes_that(store: Store, hand: Hand, end: str) -> None:
    declare(store, row("queue", "default", 1))
    store.put_new(3)
    for _ in range(3):
        job, claim = await hand.claim_one(), hand.claim_id
        assert await hand.claim(5) == []
        uses = store.ask("select xmin, * from limit_uses")
        assert not await hand.end(ENDS[end], (job.id, claim))
        assert store.ask("select xmin, * from limit_uses") == uses


async def test_slots_of_a_dead_worker_are_free_after_the_rescue_and_the_zombie_frees_nothing(
    store: Store, hands: Hands, workers: WorkerVerbs
) -> None:
    """A2 and A21: what comes too late changes nothing; what was lost and three that wait behind it all come to their end."""
    declare(store, row("queue", "default", 1))
    store.put_new(4)
    zombie, other = await hands(), await hands()
    lost = await zombie.claim_one()
    run(store.conn, workers.expire(zombie.worker))
    assert await other.claim(10) == []  # not before it was rescued
    assert run(store.conn, workers.rescue(limit=10, bound=10)) == 1
    ended = set()
    for number in range(4):
        job, claim = await other.claim_one(), other.claim_id
        late = await zombie.end(DONE, (lost.id, zombie.claim_id))
        assert late == {lost.id}, "a late finish changes nothing"
        assert await other.claim(10) == [], f"two at once, {number}"
        await finish(other, [job], claim)
        ended.add(job.id)
    assert len(ended) == 4
    assert store.count() == 0


async def test_a_job_that_runs_again_uses_one_slot(store: Store, hand: Hand) -> None:
    """Its old claim does not count beside the new one."""
    declare(store, row("queue", "default", 2))
    (job,) = store.put_new(1)
    for _ in range(5):
        assert (await hand.claim_one()).id == job
        await hand.end(Released("shutdown"), (job, hand.claim_id))
        store.conn.execute("update jobs set state = 'ready', ready_at = now() where id = %s", [job])
    store.put_new(5)
    assert len(await hand.claim(10)) == 2


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("keep_open", [False, True], ids=["", "one transaction kept open"])
async def test_ten_claim_at_once(store: Store, hands: Hands, limit: int, keep_open: bool) -> None:
    """D2: measured by the store at each commit, the parallelism is never above the limit, and everything is worked off."""
    gate(store, GATE, "note", "sms")
    gate(store, OTHER, "other")
    declare(store, row("resource", "sms", limit))
    jobs = store.put_new(120)
    crew = [await hands() for _ in range(10)]
    slow = await hands()
    seen: list[int] = []
    kept = 0

    async def work(hand: Hand) -> None:
        while store.count():
            rows = await patient(hand, 5)
            claim = hand.claim_id
            seen.append(running(store))
            await finish(hand, rows, claim)

    async def dawdle() -> None:
        nonlocal kept
        while keep_open and store.count():
            async with slow.conn.transaction():
                rows = await slow.claim(1)
                kept += len(rows)
                for _ in range(5):
                    seen.append(running(store) + len(rows))
                    await asyncio.sleep(0)
            await finish(slow, rows)

    async with asyncio.timeout(100):
        await asyncio.gather(dawdle(), *map(work, crew))
    assert max(seen) == limit
    assert store.count("finished") == len(jobs)


async def test_claims_pass_over_a_limit_that_another_is_working_on(store: Store, hands: Hands) -> None:
    """They do not wait for it, they serve what stands beside it, and they say that it is worth while to ask again at once."""
    gate(store, GATE, "note", "sms")
    gate(store, OTHER, "other")
    declare(store, row("resource", "sms", 3))
    store.put_new(20)
    plain = store.put_new(2, gate=OTHER, task="other")
    one, two = await hands(), await hands()
    async with one.conn.transaction():
        first = await one.claim(1)
        batch = await asyncio.wait_for(two.claim(10, gates=[GATE, OTHER]), 10)
        assert set(ids(batch)) == set(plain)
        assert batch.again is not None
        assert batch.again <= 0.01
    assert len(await two.claim(10)) == 2
    assert len(first) == 1


async def test_a_claim_that_is_undone_uses_nothing(store: Store, hands: Hands) -> None:
    declare(store, row("queue", "default", 2))
    store.put_new(5)
    one, two = await hands(), await hands()
    async with one.conn.transaction(force_rollback=True):
        assert len(await one.claim(5)) == 2
    assert len(await two.claim(5)) == 2


async def test_full_use_behind_a_barrier(store: Store, hands: Hands) -> None:
    declare(store, row("queue", "default", 3))
    store.put_new(100)
    crew = [await hands() for _ in range(10)]
    got = await together(crew, lambda hand: patient(hand, 2))
    assert sum(map(len, got)) == running(store) == 3


async def test_many_lanes_behind_one_limit_all_have_their_turn(store: Store, hand: Hand) -> None:
    """100 tenants with work, room for 5: nobody starves."""
    gate(store, GATE, "note", "sms")
    declare(store, row("resource", "sms", 5))
    for n in range(100):
        store.put_new(30, tenant=f"t{n:02}")
    rotation, served = Rotation([GATE]), Counter[str]()
    for _ in range(240):
        rows = await turn(hand, rotation, 10)
        assert len(rows) == 5
        served.update(each.tenant for each in rows)
        await finish(hand, rows)
    assert len(served) == 100, sorted(served.values())
    assert max(served.values()) <= 40  # 12 in the middle


async def test_lanes_behind_a_limit_and_lanes_beside_it_all_have_their_turn(store: Store, hand: Hand) -> None:
    """60 tenants of each task: the limited one does not begin again at its first tenants whenever the other's have come round."""
    gate(store, GATE, "note", "sms")
    gate(store, OTHER, "other")
    declare(store, row("resource", "sms", 2))
    for n in range(60):
        store.put_new(20, tenant=f"t{n:02}")
        store.put_new(20, tenant=f"t{n:02}", gate=OTHER, task="other")
    rotation, served = Rotation([GATE, OTHER]), Counter[tuple[int, str]]()
    for _ in range(180):
        rows = await turn(hand, rotation, 10, gates=[GATE, OTHER])
        served.update((each.gate, each.tenant) for each in rows)
        await finish(hand, rows)
    assert sum(1 for which, _ in served if which == OTHER) == 60
    assert sum(1 for which, _ in served if which == GATE) >= 50, sorted(served.items())


async def test_lower_ranks_are_served_beside_a_full_limit(store: Store, hand: Hand) -> None:
    gate(store, GATE, "note", "sms")
    gate(store, OTHER, "other")
    declare(store, row("resource", "sms", 1))
    store.put_new(50, rank=0)
    low = store.put_new(3, rank=200, gate=OTHER, task="other")
    assert set(low) < set(ids(await hand.claim(10, gates=[GATE, OTHER])))


async def test_holds(store: Store, hand: Hand) -> None:
    gate(store, GATE, "note", "sms")
    gate(store, OTHER, "other")
    both: dict[str, Any] = {"gates": [GATE, OTHER]}
    store.put_new(3, tenant="acme")
    store.put_new(3, gate=OTHER, task="other", tenant="zoo")
    held: list[tuple[str, str, int]] = [
        ("task", "note", 3),
        ("resource", "sms", 3),
        ("tenant", "acme", 3),
        ("tenant", "nobody", 6),
    ]
    for kind, name, left in held:
        run(store.conn, limits.hold(store.statements, kind, [name], actor="me", why="a test", until=None))
        rows = await hand.claim(10, **both)
        assert len(rows) == left, (kind, name)
        await hand.end(Released("back"), *[(job, hand.claim_id) for job in ids(rows)])
        store.conn.execute("update jobs set state = 'ready', ready_at = now()")
        assert run(store.conn, limits.release(store.statements, kind, [name])) == [name]
    run(
        store.conn,
        limits.hold(store.statements, "task", ["note"], actor="me", why=None, until=store.one("select now() - interval '1 s'")),
    )
    assert len(await hand.claim(10, **both)) == 6  # its time is over


async def test_named_lanes_are_limited_too(store: Store, hand: Hand) -> None:
    """As claims are while vacuum is held back."""
    gate(store, GATE, "note", "sms")
    declare(store, row("resource", "sms", 4), row("tenant", "a", 1))
    store.put_new(10, tenant="a")
    store.put_new(10, tenant="b")
    lanes = [lane("a"), lane("b")]
    assert Counter(each.tenant for each in await hand.claim(20, lanes=lanes)) == {"a": 1, "b": 3}
    assert await hand.claim(20, lanes=lanes) == []


async def test_many_tenants_at_their_quota_cost_little_and_hold_up_nobody(store: Store, hand: Hand) -> None:
    """Neither those behind them, whose turn comes with the next claims, nor lower ranks."""
    declare(store, row("tenant", "*", rate="1/h"))
    store.put([job for n in range(1000) for job in new(2, tenant=f"t{n:04}")])
    rotation, first, claims = Rotation([GATE]), 0, 0
    while first < 1000:  # each has its one; now and then a claim finds nothing and leaves the place where the next goes on
        first += len(await turn(hand, rotation, 100))
        claims += 1
        assert claims < 40
    assert not await turn(hand, rotation, 100)
    low = store.put_new(1, rank=150)  # of no tenant
    assert ids(await turn(hand, rotation, 10)) == low
    late, claims = store.put_new(1, tenant="z"), 0
    while not (rows := await turn(hand, rotation, 10)):
        claims += 1
        assert claims < 12
    assert ids(rows) == late


async def test_a_full_limit_of_a_queues_tenant_closes_no_other_queue(store: Store, hand: Hand) -> None:
    declare(store, row("queue", "one", 1, per="tenant"))
    store.put_new(5, tenant="a", queue="one")
    store.put_new(5, tenant="a", queue="two")
    assert len(await hand.claim(1, queues=["one"])) == 1
    assert [len(await hand.claim(1, queues=["one", "two"])) for _ in range(6)] == [1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("want", [1, 3, 20])
async def test_a_named_lane_behind_drained_ones_is_served(store: Store, hand: Hand, want: int) -> None:
    """The lanes that were used last stand last, so what is drained stands in front."""
    declare(store, row("queue", "default", 100))
    store.put_new(5, tenant="z")
    assert len(await hand.claim(want, lanes=[lane(f"t{n}") for n in range(8)] + [lane("z")])) == min(want, 5)


async def test_a_limited_claim_costs_the_same_however_many_were_before(store: Store, hand: Hand, database_url: str) -> None:
    """With a snapshot held open nothing can be cleaned away; what is in use is read from its young end."""
    declare(store, row("queue", "default", 5))
    store.put_new(400)

    def read() -> int:
        return int(store.one("select pg_stat_get_tuples_returned('limit_uses_pkey'::regclass)"))

    async def turns(count: int) -> int:
        await hand.conn.execute("select pg_stat_force_next_flush()")
        before = read()
        for _ in range(count):
            await finish(hand, await hand.claim(1))
        await hand.conn.execute("select pg_stat_force_next_flush()")
        return read() - before

    with psycopg.connect(database_url) as pin:
        pin.execute("set transaction isolation level repeatable read")
        pin.execute("select 1")
        early = await turns(20)
        await turns(300)
        store.conn.execute("analyze limit_uses")  # says how little lives; plans must not turn by that
        late = await turns(20)
    assert late <= 2 * early + 20, (early, late)


async def test_what_is_in_use_is_looked_up_by_id_and_not_among_all_that_run(store: Store, hand: Hand) -> None:
    """With hundreds of running jobs that was a product of two numbers."""
    declare(store, row("queue", "default", 600))
    store.put_new(1000)
    store.conn.execute("analyze jobs")

    async def read() -> int:
        await hand.conn.execute("select pg_stat_force_next_flush()")
        return int(store.one("select pg_stat_get_tuples_returned('jobs_running'::regclass)"))

    before = await read()
    assert [len(await hand.claim(300)) for _ in range(3)] == [300, 300, 0]
    assert await read() - before < 300
