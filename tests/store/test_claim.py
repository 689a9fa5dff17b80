"""Which jobs a claim takes, and in which order; never more than were asked for."""

import pytest

from jobwell.core.ids import gate_of, new_id
from jobwell.store import jobs as verbs
from tests.store.conftest import Hands
from tests.store.helpers import DONE, GATE, RETRYING, Hand, Store, ids, new

KB = 1024


async def test_a_claimed_row_says_all_that_an_attempt_needs(store: Store, hand: Hand) -> None:
    (job,) = new(1, tenant="hr", rank=40, args='{"n": 1}', size=8, deadline=120.0)
    store.put([job], '{"request_id": "r"}')
    row = await hand.claim_one()
    assert (row.id, row.task, row.queue, row.tenant, row.gate, row.rank) == (job.id, "note", "default", "hr", GATE, 40)
    assert (row.attempt, row.failures, row.postponements, row.bytes) == (1, 0, 0, 8)
    assert (row.args, row.meta) == ('{"n": 1}', '{"request_id": "r"}')
    assert row.remaining == pytest.approx(120, abs=10)
    stored = "select state, claim_id, worker, attempt, started_at between enqueued_at and clock_timestamp() from jobs"
    assert store.one(stored) == ("running", hand.claim_id, hand.worker, 1, True)


async def test_nothing_there_nothing_taken(hand: Hand) -> None:
    assert await hand.claim() == []


async def test_the_highest_priority_goes_first_whenever_it_came(store: Store, hand: Hand) -> None:
    by_rank = {rank: store.put_new(rank=rank)[0] for rank in (150, 0, 100, 200, 50)}
    got = [(await hand.claim_one()).id for _ in by_rank]
    assert got == [by_rank[rank] for rank in sorted(by_rank)]


async def test_a_claim_goes_on_to_the_next_rank_only_when_one_is_done(store: Store, hand: Hand) -> None:
    urgent, normal = store.put_new(3, rank=10), store.put_new(5, rank=100)
    assert set(ids(await hand.claim(5))) == {*urgent, *normal[:2]}


async def test_within_a_lane_the_oldest_goes_first(store: Store, hand: Hand) -> None:
    jobs = store.put_new(5)
    store.conn.execute("update jobs set ready_at = ready_at - interval '1 hour' where id = %s", [jobs[3]])
    got = [(await hand.claim_one()).id for _ in jobs]
    assert got == [jobs[3], jobs[0], jobs[1], jobs[2], jobs[4]]


async def test_age_counts_from_becoming_ready_not_from_the_id(store: Store, hand: Hand) -> None:
    older, younger = new(2)
    store.put([younger])
    store.put([older])
    assert (await hand.claim_one()).id == younger.id


@pytest.mark.parametrize("want", [1, 2, 3, 7, 10, 50, 99, 100, 500])
async def test_never_more_than_asked_for_and_never_fewer_than_there_are(store: Store, hand: Hand, want: int) -> None:
    store.put(
        [job for n in range(100) for job in new(1, tenant=f"t{n % 13}", rank=100 + n % 3, queue=("default", "bulk")[n % 2])]
    )
    rows = await hand.claim(want, queues=("default", "bulk"))
    assert len(rows) == len(set(ids(rows))) == min(want, 100)
    assert store.states().get("running", 0) == min(want, 100)


async def test_only_ready_jobs_are_taken(store: Store, hand: Hand, hands: Hands) -> None:
    store.put_new(2, delay=60.0)
    ready = store.put_new(4)
    first, second = await hand.claim(2)
    await hand.end(RETRYING, (first.id, hand.claim_id))
    assert store.states() == {"scheduled": 2, "ready": 2, "running": 1, "retrying": 1}
    other = await hands()
    assert set(ids(await other.claim(10))) == set(ready) - {first.id, second.id}


async def test_only_the_queues_asked_for_are_touched(store: Store, hand: Hand) -> None:
    in_queue = {queue: store.put_new(2, queue=queue) for queue in ("critical", "default", "bulk")}
    assert set(ids(await hand.claim(10, queues=("bulk", "critical")))) == {*in_queue["bulk"], *in_queue["critical"]}
    assert await hand.claim(10, queues=("bulk", "critical", "no such queue")) == []
    assert await hand.claim(10, queues=()) == []
    assert store.states() == {"running": 4, "ready": 2}


async def test_queues_of_one_rank_share_a_claim(store: Store, hand: Hand) -> None:
    for queue in ("a", "b", "c"):
        store.put_new(100, queue=queue)
    queues = [row.queue for row in await hand.claim(30, queues=("a", "b", "c"))]
    assert sorted(queues) == ["a"] * 10 + ["b"] * 10 + ["c"] * 10


async def test_rank_goes_before_queue(store: Store, hand: Hand) -> None:
    store.put_new(5, queue="a", rank=100)
    urgent = store.put_new(2, queue="z", rank=1)
    assert set(ids(await hand.claim(2, queues=("a", "z")))) == set(urgent)


async def test_a_queue_named_twice_is_served_once(store: Store, hand: Hand) -> None:
    store.put_new(3)
    assert len(await hand.claim(10, queues=("default", "default"))) == 3


# --- gates ---------------------------------------------------------------------------------------------------------------


async def test_jobs_behind_a_closed_gate_stay(store: Store, hand: Hand) -> None:
    store.put_new(5, task="unknown", gate=gate_of("unknown"))
    known = store.put_new(3)
    assert set(ids(await hand.claim(10))) == set(known)
    assert await hand.claim(10) == []
    assert store.states() == {"running": 3, "ready": 5}


async def test_no_open_gate_no_job(store: Store, hand: Hand) -> None:
    store.put_new(3)
    assert await hand.claim(10, gates=()) == []


async def test_fifty_gates_half_of_them_closed(store: Store, hand: Hand) -> None:
    """The closed ones hold most of the jobs, and the oldest, at every rank."""
    open_, closed = [gate_of(f"open{n}") for n in range(25)], [gate_of(f"closed{n}") for n in range(25)]
    for gate in closed:
        store.put([job for rank in (50, 100) for job in new(100, gate=gate, rank=rank)])
    expected = {job for gate in open_ for job in store.put([*new(2, gate=gate, rank=50), *new(3, gate=gate)])}
    got: set[object] = set()
    while rows := await hand.claim(20, gates=open_):
        assert len(rows) == min(20, len(expected) - len(got))
        got |= set(ids(rows))
    assert got == expected


async def test_a_gate_is_shut_for_all_its_tenants(store: Store, hand: Hand) -> None:
    for n in range(50):
        store.put_new(1, task="unknown", gate=gate_of("unknown"), tenant=f"t{n}")
    (known,) = store.put_new(1, tenant="t25")
    assert ids(await hand.claim(5)) == [known]


@pytest.mark.parametrize("gate", [1 - 2**63, 2**63 - 1, 0])
@pytest.mark.parametrize("tenant", ["", "\U0010fffe" * 3, "\uffff"])
async def test_no_gate_and_no_tenant_is_too_small_or_too_large_to_be_reached(
    store: Store, hand: Hand, gate: int, tenant: str
) -> None:
    (job,) = store.put_new(1, gate=gate, tenant=tenant)
    assert ids(await hand.claim(5, gates=(gate,))) == [job]


async def test_a_claim_that_begins_behind_a_lane_comes_round_to_it(store: Store, hand: Hand) -> None:
    for n in range(10):
        store.put_new(1, tenant=f"t{n}")
    rows = await hand.claim(4, after_gate=GATE, after_tenant="t7")
    assert {row.tenant for row in rows} >= {"t8", "t9"}
    assert len(rows) == 4
    assert len(await hand.claim(10, after_gate=2**63 - 1, after_tenant="")) == 6


async def test_a_claim_from_a_lower_rank_leaves_the_higher_ones(store: Store, hand: Hand) -> None:
    store.put_new(5, rank=0)
    low = store.put_new(5, rank=100)
    assert set(ids(await hand.claim(10, from_rank=1))) == set(low)


# --- size ----------------------------------------------------------------------------------------------------------------


async def test_a_claim_has_a_budget_of_bytes(store: Store, hand: Hand) -> None:
    """100 jobs of 256 KB are 25 MB: they come in several claims of about 8 MB, also from many lanes."""
    store.put([job for n in range(100) for job in new(1, size=256 * KB, tenant=f"t{n % 4}")])
    got = 0
    while rows := await hand.claim(100):
        assert sum(row.bytes for row in rows) <= verbs.CLAIM_BYTES + 256 * KB
        assert len(rows) >= min(30, 100 - got)
        got += len(rows)
    assert got == 100


async def test_a_job_above_the_budget_comes_alone(store: Store, hand: Hand) -> None:
    (large,) = store.put_new(1, size=2 * verbs.CLAIM_BYTES)
    store.put_new(5)
    assert ids(await hand.claim(10)) == [large]
    assert len(await hand.claim(10)) == 5


async def test_large_arguments_come_by_their_ids(store: Store, hand: Hand) -> None:
    text = '{"text": "' + "x" * 5000 + '"}'
    (large,), (small,) = store.put_new(1, args=text, size=len(text)), store.put_new(1, args="[]")
    by_id = {row.id: row for row in await hand.claim(10)}
    assert (by_id[large].args, by_id[small].args) == (None, "[]")
    assert await hand.verbs.payloads(hand.conn, [large, small, new_id()]) == {large: text}


# --- what a worker asks about itself -------------------------------------------------------------------------------------


async def test_gates_that_have_ready_jobs_are_told_with_a_task(store: Store, hand: Hand) -> None:
    store.put([*new(3), *new(2, task="b", gate=2), *new(1, task="c", gate=3, rank=7), *new(1, task="d", gate=4, queue="bulk")])
    store.put([*new(1, task="e", gate=5, delay=60.0)])
    assert await hand.verbs.gates(hand.conn, ["default"]) == {GATE: "note", 2: "b", 3: "c"}
    assert await hand.verbs.gates(hand.conn, []) == {}


async def test_held_by_tells_what_the_store_thinks_a_worker_runs(store: Store, hand: Hand, hands: Hands) -> None:
    store.put_new(5)
    first = {(row.id, hand.claim_id) for row in await hand.claim(2)}
    second = {(row.id, hand.claim_id) for row in await hand.claim(2)}
    other = await hands()
    await other.claim(1)
    done = first.pop()
    await hand.end(DONE, done)
    assert set(await hand.verbs.held_by(hand.conn, hand.worker)) == first | second
