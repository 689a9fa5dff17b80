"""Jobs that wait for others: every way in which a job can end settles what follows it, in the same commit."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from jobwell import NotFound
from jobwell.core.filters import Selection
from jobwell.core.job import NewJob
from jobwell.core.outcome import Cancelled, Crashed
from jobwell.store import control, follow, quarantine
from jobwell.store.statements import arun, run
from jobwell.store.upkeep import UpkeepVerbs
from jobwell.store.workers import WorkerVerbs
from tests.store.helpers import DONE, FAILED, RETRYING, SNOOZED, Hand, Store, ids, new

Way = Callable[[Store, Hand, WorkerVerbs, UUID], Awaitable[Any]]


def after(*jobs: UUID, ended: bool = False, **columns: Any) -> NewJob:
    return new(1, after=tuple(jobs), ended=ended, **columns)[0]


def state(store: Store, job: UUID) -> str | None:
    return run(store.conn, control.state_of(store.statements, job))


async def claimed(hand: Hand, job: UUID) -> tuple[UUID, UUID]:
    rows = await hand.claim(10)
    assert job in ids(rows)
    return job, hand.claim_id


async def finish(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    await hand.end(DONE, await claimed(hand, job))


async def fail(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    await hand.end(FAILED, await claimed(hand, job))


async def crash(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    await hand.verbs.crash(hand.conn, [(*await claimed(hand, job), Crashed("signal 9"))], bound=1)


async def lose(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    await claimed(hand, job)
    await arun(hand.conn, workers.leave(hand.worker))
    await arun(hand.conn, workers.rescue(limit=10, bound=1))


async def no_worker_knows_it(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    store.conn.execute("update workers set tasks = '{other}'")
    (found,) = run(store.conn, control.unknown(store.statements))
    assert run(store.conn, control.give_up(store.statements, found, seconds=-1)) == 1


async def cancel(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    run(store.conn, control.cancel(store.statements, [job], actor="olga", why=None))


async def cancel_running(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    pair = await claimed(hand, job)
    await cancel(store, hand, workers, job)
    await hand.end(Cancelled(), pair)


async def cancel_many(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    begin = control.begin(store.statements, "jobs.cancel", Selection(state="ready"), actor="olga", why=None, total=1)
    action = run(store.conn, begin)
    with store.conn.transaction():
        run(store.conn, control.step(store.statements, action))


async def drop_at_a_busy_key(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    store.conn.execute("insert into gates (gate, task, busy) select gate, task, 'skip' from jobs where id = %s", [job])
    store.conn.execute("update jobs set lock_key = 'k' where id = %s", [job])
    store.put(new(1, lock_key="k"))
    store.conn.execute(
        "update jobs set state = 'running', worker = gen_random_uuid(), claim_id = gen_random_uuid()"
        " where state = 'ready' and id <> %s", [job])  # fmt: skip
    assert store.one("select skip_busy(array(select gate from gates), 10)") == 1


async def discard(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    await fail(store, hand, workers, job)
    assert run(store.conn, quarantine.discard(store.statements, [job], actor="olga", why="no use")) == [job]


async def discard_the_old(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    await fail(store, hand, workers, job)
    with store.conn.transaction():
        assert run(store.conn, UpkeepVerbs(store.statements).discard_old(seconds=-1)) == 1


async def succeed_at_the_second_life(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    await fail(store, hand, workers, job)
    run(store.conn, quarantine.retry(store.statements, Selection(ids=[job])))
    await finish(store, hand, workers, job)


async def succeed_at_the_second_attempt(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    await hand.end(RETRYING, await claimed(hand, job))
    run(store.conn, control.run_now(store.statements, [job]))
    await finish(store, hand, workers, job)


async def by_hand(store: Store, hand: Hand, workers: WorkerVerbs, job: UUID) -> None:
    store.conn.execute("delete from jobs where id = %s", [job])


@pytest.mark.parametrize(
    ("way", "for_success", "for_end"),
    [
        (finish, "ready", "ready"), (fail, "waiting", "ready"), (crash, "waiting", "ready"), (lose, "waiting", "ready"),
        (no_worker_knows_it, "waiting", "ready"), (cancel, "cancelled", "ready"), (cancel_running, "cancelled", "ready"),
        (cancel_many, "cancelled", "ready"), (drop_at_a_busy_key, "cancelled", "ready"), (discard, "cancelled", "ready"),
        (discard_the_old, "cancelled", "ready"), (succeed_at_the_second_life, "ready", "ready"),
        (succeed_at_the_second_attempt, "ready", "ready"), (by_hand, "cancelled", "ready"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)  # fmt: skip
async def test_each_way_to_end(store: Store, hand: Hand, workers: WorkerVerbs, way: Way, for_success: str, for_end: str) -> None:
    (job,) = store.put_new()
    one, any_end = after(job), after(job, ended=True, queue="bulk")
    then = after(one.id)
    store.put([one, any_end])
    store.put([then])
    assert (state(store, one.id), state(store, any_end.id)) == ("waiting", "waiting")
    await way(store, hand, workers, job)
    assert (state(store, one.id), state(store, any_end.id)) == (for_success, for_end)
    assert state(store, then.id) == ("cancelled" if for_success == "cancelled" else "waiting")
    assert store.count("unsettled") == 0
    assert store.count("waits") == store.count("jobs", "state = 'waiting'")


@pytest.mark.parametrize("end", [RETRYING, SNOOZED], ids=["retry", "snooze"])
async def test_what_is_no_end_releases_nobody(store: Store, hand: Hand, end: Any) -> None:
    (job,) = store.put_new()
    follower = after(job, ended=True)
    store.put([follower])
    await hand.end(end, await claimed(hand, job))
    assert state(store, follower.id) == "waiting"
    assert store.one("select linked from jobs where id = %s", job)


@pytest.mark.parametrize("way", [finish, fail, cancel, discard], ids=lambda way: way.__name__)
@pytest.mark.parametrize("ended", [False, True])
async def test_after_a_job_that_has_ended_already(store: Store, hand: Hand, workers: WorkerVerbs, way: Way, ended: bool) -> None:
    (job,) = store.put_new()
    await way(store, hand, workers, job)
    follower = after(job, ended=ended)
    store.put([follower])
    said = "ready" if ended or way is finish else "waiting" if way is fail else "cancelled"
    assert state(store, follower.id) == said
    if said == "cancelled":
        assert str(job) in store.one("select note from finished where id = %s", follower.id)


async def test_it_waits_again_for_one_that_came_back_from_the_quarantine(store: Store, hand: Hand, workers: WorkerVerbs) -> None:
    (job,) = store.put_new()
    await fail(store, hand, workers, job)
    (other,) = store.put_new(run_at=None, delay=3600.0)
    follower = after(job, other, ended=True)
    store.put([follower])
    run(store.conn, quarantine.retry(store.statements, Selection(ids=[job])))
    await cancel(store, hand, workers, other)
    assert state(store, follower.id) == "waiting"
    await fail(store, hand, workers, job)
    assert state(store, follower.id) == "ready"
    told = store.one("select meta::jsonb -> '$followed' from jobs where id = %s", follower.id)
    assert (told["succeeded"], told["failed"], told["cancelled"]) == (0, 1, 1)


async def test_delay_and_deadline_count_from_the_release(store: Store, hand: Hand, workers: WorkerVerbs) -> None:
    (job,) = store.put_new()
    soon, later = after(job, deadline=60.0), after(job, delay=600.0)
    store.put([soon, later])
    store.conn.execute("update jobs set enqueued_at = enqueued_at - interval '1 day', run_at = run_at - interval '1 day'")
    assert store.ask("select distinct deadline from jobs where state = 'waiting'") == [(None,)]
    await finish(store, hand, workers, job)
    of = (
        "select state, extract(epoch from run_at - now())::int, extract(epoch from deadline - now())::int from jobs where id = %s"
    )
    assert store.one(of, soon.id)[0] == "ready"
    assert 55 < store.one(of, soon.id)[2] <= 60
    waits, due, last = store.one(of, later.id)
    assert waits == "scheduled"
    assert 590 < due <= 600
    assert 4190 < last <= 4200


async def test_an_undone_end_releases_nobody_and_an_undone_wait_is_none(store: Store, hand: Hand) -> None:
    (job,) = store.put_new()
    follower, never = after(job), after(job)
    store.put([follower])
    with store.conn.transaction(force_rollback=True):
        store.put([never])
    pair = await claimed(hand, job)
    async with hand.conn.transaction(force_rollback=True):
        await hand.end(DONE, pair)
    assert state(store, follower.id) == "waiting"
    await hand.end(DONE, pair)
    assert state(store, follower.id) == "ready"
    assert state(store, never.id) is None


async def test_one_commit_that_ends_500_of_one_follower(store: Store, hand: Hand) -> None:
    jobs = store.put_new(500)
    follower = after(*jobs)
    store.put([follower])
    rows = await hand.claim(500)
    pairs = [(row.id, hand.claim_id) for row in rows]
    await hand.end(DONE, *pairs[:499])
    assert state(store, follower.id) == "waiting"
    assert store.one("select open from waits") == 1
    await hand.end(DONE, *pairs[499:])
    assert state(store, follower.id) == "ready"


async def test_a_cancel_goes_down_a_diamond(store: Store, hand: Hand, workers: WorkerVerbs) -> None:
    (job,) = store.put_new()
    left, right = after(job), after(job)
    both, anyway = after(left.id, right.id), after(left.id, right.id, ended=True)
    store.put([left, right, both, anyway])
    await cancel(store, hand, workers, job)
    assert [state(store, one.id) for one in (left, right, both, anyway)] == ["cancelled", "cancelled", "cancelled", "ready"]


def test_a_waiting_job_is_cancelled_and_reprioritized(store: Store) -> None:
    (job,) = store.put_new()
    follower = after(job)
    store.put([follower])
    assert run(store.conn, control.reprioritize(store.statements, [follower.id], 50)) == [follower.id]
    assert run(store.conn, control.cancel(store.statements, [follower.id], actor="olga", why=None)) == {follower.id: "cancelled"}
    assert store.count("waits") == 0
    run(store.conn, control.cancel(store.statements, [job], actor="olga", why=None))
    assert store.count() == 0


def test_what_is_nowhere_cannot_be_followed(store: Store) -> None:
    lost = new()[0].id
    with pytest.raises(NotFound, match=f"job {lost}, to be followed"):
        store.put([after(lost)])
    assert store.count() == 0


def test_a_time_that_cannot_be_reckoned_with_is_refused_at_the_enqueue(store: Store) -> None:
    """At the release it would stand in the way of the job that ends."""
    (job,) = store.put_new()
    with pytest.raises(psycopg.DataError):
        store.put([after(job, deadline=3e14)])
    assert store.states() == {"ready": 1}


def test_what_has_been_followed_is_forgotten_with_the_job(store: Store) -> None:
    (job,) = store.put_new()
    follower = after(job)
    store.put([follower])
    forget = follow.forget(store.statements, seconds=-3600)
    assert run(store.conn, forget) == 0
    run(store.conn, control.cancel(store.statements, [job], actor="olga", why=None))
    assert run(store.conn, follow.forget(store.statements, seconds=-3600)) == 0
    store.conn.execute("delete from finished")
    assert run(store.conn, follow.forget(store.statements, seconds=-3600)) == 1


async def test_jobs_without_followers_note_nothing(store: Store, hand: Hand) -> None:
    """A plain job pays nothing: no row anywhere but its own."""
    store.put_new(50)
    before = store.one("select last_value, is_called from unsettled_id_seq")
    rows = await hand.claim(50)
    await hand.end(DONE, *[(row.id, hand.claim_id) for row in rows])
    assert store.one("select last_value, is_called from unsettled_id_seq") == before
