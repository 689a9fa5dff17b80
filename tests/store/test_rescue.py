"""Workers, leases, and the jobs of those that are gone: back at once, counted, behind growing delays, and not for ever."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from jobwell.core.ids import new_id
from jobwell.store.statements import arun, run
from jobwell.store.workers import WorkerVerbs
from tests.store.conftest import Hands
from tests.store.helpers import DONE, Hand, Store, ids, new


@pytest.fixture
def desk(store: Store, workers: WorkerVerbs) -> "Desk":
    return Desk(store, workers)


class Desk:
    """Short calls of the verbs about workers."""

    def __init__(self, store: Store, verbs: WorkerVerbs) -> None:
        self.store = store
        self.verbs = verbs

    def register(self, lease: float = 60.0, queues: tuple[str, ...] = ("default",)) -> UUID:
        worker = new_id()
        run(self.store.conn, self.verbs.register(
            worker, lease=lease, pid=7, host="h", name="h/7", version="1", slots=5, queues=list(queues)))  # fmt: skip
        return worker

    def __call__(self, name: str, *args: Any, **options: Any) -> Any:
        return run(self.store.conn, getattr(self.verbs, name)(*args, **options))

    def rescue(self, limit: int = 100, bound: int = 10) -> int:
        return int(self("rescue", limit=limit, bound=bound))

    def end_lease(self, worker: UUID) -> None:
        self.store.conn.execute(
            "update workers set lease_until = clock_timestamp() - interval '1 second' where id = %s", [worker]
        )

    def state(self, worker: UUID) -> str | None:
        found = self.store.ask("select state from workers where id = %s", worker)
        return found[0][0] if found else None


# --- the lease -----------------------------------------------------------------------------------------------------------


def test_a_registered_worker_is_seen(desk: Desk) -> None:
    worker = desk.register(queues=("default", "bulk"))
    (row,) = desk("all")
    shown = {name: row[name] for name in ("id", "name", "host", "pid", "version", "state", "queues", "slots", "busy")}
    assert shown == {
        "id": worker,
        "name": "h/7",
        "host": "h",
        "pid": 7,
        "version": "1",
        "state": "live",
        "queues": ["default", "bulk"],
        "slots": 5,
        "busy": 0,
    }
    assert row["silent"] >= 0
    assert row["up"] >= row["silent"]


def test_a_renewal_moves_the_end_of_the_lease(desk: Desk) -> None:
    worker = desk.register(lease=5.0)
    assert desk("renew", worker, lease=100.0, busy=3)
    left = desk.store.one("select extract(epoch from lease_until - clock_timestamp())::float from workers")
    assert left == pytest.approx(100, abs=5)
    assert desk.store.one("select busy from workers") == 3


def test_a_dead_worker_cannot_renew(desk: Desk) -> None:
    worker = desk.register()
    desk("expire", worker)
    before = desk.store.snapshot()
    assert not desk("renew", worker, lease=60.0, busy=0)
    assert desk.store.snapshot() == before
    assert desk.rescue() == 0


def test_a_worker_without_a_row_cannot_renew(desk: Desk) -> None:
    assert not desk("renew", new_id(), lease=60.0, busy=0)
    assert desk("all") == []


def test_a_draining_worker_keeps_its_lease(desk: Desk) -> None:
    worker = desk.register()
    desk("say_idle", worker, idle=True)
    desk("drain", worker)
    assert desk.store.one("select state, idle from workers") == ("draining", False)
    assert desk("renew", worker, lease=60.0, busy=1)
    assert desk("bury") == []


def test_bury_declares_dead_whose_lease_has_ended_and_nobody_else(desk: Desk) -> None:
    silent, draining, alive = desk.register(), desk.register(), desk.register()
    desk("drain", draining)
    desk.end_lease(silent)
    desk.end_lease(draining)
    assert set(desk("bury")) == {silent, draining}
    assert (desk.state(silent), desk.state(alive)) == ("dead", "live")
    assert desk("bury") == []


def test_the_dead_are_forgotten_after_a_while_but_not_before_their_jobs_are_taken_back(desk: Desk, store: Store) -> None:
    old, recent, alive = desk.register(), desk.register(), desk.register()
    desk("expire", old)
    desk("expire", recent)
    store.conn.execute("update workers set lease_until = lease_until - interval '2 days' where id in (%s, %s)", [old, alive])
    (job,) = store.put_new(1)
    store.conn.execute("update jobs set state = 'running', worker = %s, claim_id = %s where id = %s", [old, new_id(), job])
    desk("forget", seconds=86400.0)
    assert desk.state(old) == "dead"
    assert desk.rescue() == 1
    desk("forget", seconds=86400.0)
    assert (desk.state(old), desk.state(recent), desk.state(alive)) == (None, "dead", "live")


async def test_who_was_declared_dead_claims_nothing(desk: Desk, store: Store, hand: Hand) -> None:
    """It may not know it yet; what it took would be taken back at once, and run twice at the same time."""
    store.put_new(3)
    desk("drain", hand.worker)
    assert len(await hand.claim(1)) == 1
    desk("expire", hand.worker)
    assert await hand.claim(1) == []
    desk("leave", hand.worker)
    assert await hand.claim(1) == []
    assert store.states() == {"ready": 2, "running": 1}


# --- rescue --------------------------------------------------------------------------------------------------------------


async def test_jobs_of_the_living_stay(desk: Desk, store: Store, hand: Hand) -> None:
    store.put_new(3)
    await hand.claim(3)
    assert desk.rescue() == 0
    desk("drain", hand.worker)
    assert desk.rescue() == 0
    desk.end_lease(hand.worker)
    assert desk.rescue() == 0  # silent, but not declared dead: it may still renew
    assert store.states() == {"running": 3}


async def test_the_first_loss_is_ready_at_once_and_logged(desk: Desk, store: Store, hand: Hand, hands: Hands) -> None:
    store.put_new(3)
    jobs, claim = ids(await hand.claim(2)), hand.claim_id
    other = await hands()
    await other.claim(1)
    desk.end_lease(hand.worker)
    assert desk("bury") == [hand.worker]
    assert desk.rescue() == 2
    assert store.states() == {"ready": 2, "running": 1}
    columns = "losses, failures, crashes, attempt, claim_id, worker, started_at, ready_at > enqueued_at"
    assert store.ask(f"select {columns} from jobs where state = 'ready'") == [(1, 0, 0, 1, None, None, None, True)] * 2
    logged = "job_id, claim_id, worker, attempt, outcome, note, started_at is not null"
    assert set(store.ask(f"select {logged} from attempts")) == {
        (job, claim, hand.worker, 1, "lost", "its worker vanished", True) for job in jobs
    }
    assert {row.attempt for row in await other.claim(5)} == {2}


async def test_a_deleted_worker_row_orphans_its_jobs(desk: Desk, store: Store, hand: Hand) -> None:
    """Case A3: the row is gone, pruned or deleted by hand."""
    store.put_new(2)
    await hand.claim(2)
    store.conn.execute("delete from workers")
    assert desk.rescue() == 2
    assert store.states() == {"ready": 2}


async def test_a_new_worker_of_the_same_name_does_not_keep_the_old_ones_jobs(desk: Desk, store: Store, hand: Hand) -> None:
    store.put_new(1)
    await hand.claim(1)
    desk("expire", hand.worker)
    desk.register()  # the same host, pid and name
    assert desk.rescue() == 1


async def test_the_dead_the_deleted_and_the_living_are_told_apart(desk: Desk, store: Store, hands: Hands) -> None:
    crew = [await hands() for _ in range(9)]
    store.put_new(27)
    for hand in crew:
        await hand.claim(3)
    dead, deleted, living = crew[::3], crew[1::3], crew[2::3]
    for hand in dead:
        desk("expire", hand.worker)
    for hand in deleted:
        desk("leave", hand.worker)
    assert desk.rescue() == 18
    kept = {row[0] for row in store.ask("select worker from jobs where state = 'running'")}
    assert kept == {hand.worker for hand in living}


async def test_a_rescue_goes_piece_by_piece(desk: Desk, store: Store, hand: Hand) -> None:
    store.put_new(25)
    await hand.claim(25)
    desk("leave", hand.worker)
    assert [desk.rescue(limit=10) for _ in range(4)] == [10, 10, 5, 0]
    assert store.states() == {"ready": 25}


async def test_losses_are_followed_by_growing_delays_and_at_the_bound_by_the_quarantine(
    desk: Desk, store: Store, hand: Hand
) -> None:
    (job,) = store.put_new(1, lock_key="k", tenant="hr", args="[1]")
    delays = []
    for _ in range(4):
        await hand.claim_one()
        claim = hand.claim_id
        desk("expire", hand.worker)
        assert desk.rescue(bound=5) == 1
        delays.append(store.one("select greatest(0, round(extract(epoch from run_at - clock_timestamp())))::int from jobs"))
        hand.worker = desk.register()
        store.conn.execute("update jobs set run_at = clock_timestamp()")
        await hand.verbs.flip_due(hand.conn, 10)
    assert delays[0] == 0
    assert 5 <= delays[1] < delays[2] < delays[3]
    row = await hand.claim_one()
    assert (row.attempt, row.failures) == (5, 0)
    claim = hand.claim_id
    desk("expire", hand.worker)
    assert desk.rescue(bound=5) == 1
    assert store.count() == 0
    columns = "id, reason, losses, crashes, failures, attempt, lock_key, tenant, args::text, fingerprint, message"
    assert store.one(f"select {columns} from quarantine") == (
        job, "lost", 5, 0, 0, 5, "k", "hr", "[1]", "note|lost", "its worker vanished 5 times while it ran")  # fmt: skip
    assert store.ask("select attempt, outcome from attempts order by ended_at") == [(n, "lost") for n in range(1, 6)]
    assert store.one("select claim_id from attempts order by ended_at desc limit 1") == claim


async def test_the_delay_has_an_end(desk: Desk, store: Store, hand: Hand) -> None:
    store.put_new(1)
    await hand.claim_one()
    store.conn.execute("update jobs set losses = 50")
    desk("expire", hand.worker)
    assert desk.rescue(bound=100) == 1
    assert store.one("select extract(epoch from run_at - clock_timestamp())::float from jobs") == pytest.approx(600, abs=5)


async def test_a_rescue_is_blind_to_tasks_queues_and_keys(desk: Desk, store: Store, hand: Hand) -> None:
    """Cases A17 and A21: whoever sweeps need not know the task or serve its queue; what waits on the same key is no obstacle."""
    for n, columns in enumerate(
        [{"queue": "elsewhere", "task": "unknown", "gate": 5}, {"lock_key": "k"}, {"rank": 200, "tenant": "t"}]
    ):
        store.put_new(2, **columns)
        assert len(await hand.claim(1, queues=("default", "elsewhere"), gates=(5, new(1)[0].gate))) == 1, n
    desk("leave", hand.worker)
    assert desk.rescue() == 3
    assert store.states() == {"ready": 6}
    assert store.count(where="task = 'unknown' and queue = 'elsewhere'") == 2


async def test_what_was_rescued_is_lost_for_the_late_worker(desk: Desk, store: Store, hand: Hand) -> None:
    """Case A2."""
    (job,) = store.put_new(1)
    await hand.claim_one()
    desk("expire", hand.worker)
    desk.rescue()
    before = store.snapshot()
    assert await hand.end(DONE, (job, hand.claim_id)) == {job}
    assert store.snapshot() == before


async def test_many_rescuers_take_each_job_once(desk: Desk, store: Store, hand: Hand, hands: Hands) -> None:
    store.put_new(400)
    await hand.claim(400)
    desk("leave", hand.worker)
    crew = [await hands() for _ in range(5)]

    async def sweep(one: Hand) -> int:
        total = 0
        while count := await arun(one.conn, desk.verbs.rescue(limit=30, bound=10)):
            total += count
        return total

    assert sum(await asyncio.gather(*map(sweep, crew))) == 400
    assert desk.rescue() == 0
    assert store.one("select count(*), count(distinct job_id) from attempts") == (400, 400)
    assert store.ask("select distinct losses, state from jobs") == [(1, "ready")]
