"""Equal jobs at the same moment: cases G1, G3 and G6, and that no worker waits for a caller."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import Connection, IsolationLevel

from jobwell import App, Dedup, Duplicate
from jobwell.core.outcome import Retrying
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from tests.dedup.conftest import Waiting
from tests.store.helpers import DONE, FAILED, FAILURE, RELEASED, SNOOZED, Hand, Store
from tests.waiting import PATIENCE

Beside = Callable[[], "Connection[Any]"]
TERMS: dict[str, dict[str, Any]] = {"done": {"until": "done"}, "started": {"until": "started"}, "window": {"window": "1h"}}
each_terms = pytest.mark.parametrize("terms", list(TERMS))


def task_of(app: App, terms: str, **more: Any) -> Any:
    @app.task(name="notify", dedup=Dedup("n", **TERMS[terms], **more))
    def notify(n: int, text: str = "") -> None: ...

    return notify


@each_terms
def test_g1_fifty_threads_on_one_key(app: App, store: Store, terms: str) -> None:
    """Case G1: 200 rounds; each makes exactly one job, and everybody is given that one."""
    notify = task_of(app, terms)
    rounds = 200 if terms == "done" else 40
    start = threading.Barrier(50)

    def caller(_: int) -> list[tuple[int, Any, bool]]:
        got = []
        for number in range(rounds):
            start.wait(PATIENCE * 3)
            handle = notify.enqueue(number)
            got.append((number, handle.id, handle.created))
        return got

    with ThreadPoolExecutor(50) as pool:
        calls = [call for made in pool.map(caller, range(50)) for call in made]
    assert store.count() == rounds
    stored = dict(store.ask("select (args ->> 'n')::int, id from jobs"))
    assert all(stored[number] == job for number, job, _ in calls)
    assert sum(created for _, _, created in calls) == rounds
    assert store.count("dedup_hits") == 49 * rounds


@each_terms
@pytest.mark.parametrize("ends", ["commit", "rollback"])
@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ], ids=["rc", "rr"])
def test_g1_the_second_waits_for_the_first(
    app: App, store: Store, beside: Beside, waiting: Waiting, terms: str, ends: str, level: IsolationLevel
) -> None:
    """Case G1: a rollback leaves the second with a job of its own, a commit with that of the first."""
    notify = task_of(app, terms)
    with beside() as one, beside() as other, ThreadPoolExecutor(1) as pool:
        one.isolation_level = other.isolation_level = level
        first = notify.using(conn=one).enqueue(1)
        other.execute("select count(*) from jobs")  # its snapshot, where it keeps one
        second = pool.submit(lambda: notify.using(conn=other).enqueue(1))
        waiting(other.info.backend_pid)
        one.commit() if ends == "commit" else one.rollback()
        if ends == "commit" and level == IsolationLevel.REPEATABLE_READ:
            with pytest.raises(psycopg.errors.SerializationFailure):  # of the driver, as for any row that has changed
                second.result(PATIENCE)
            other.rollback()
            assert not notify.using(conn=other).enqueue(1).created  # again, as serialization failures want it
        else:
            found = second.result(PATIENCE)
            assert (found.created, found.id == first.id) == ((ends == "rollback"), (ends == "commit"))
        other.commit()
    assert store.count() == 1
    assert store.one("select id from jobs") == (first.id if ends == "commit" else found.id)


@each_terms
def test_g1_a_taken_over_window_or_key_is_waited_for_too(
    app: App, store: Store, beside: Beside, waiting: Waiting, terms: str
) -> None:
    """Case G1: the key was somebody's before, and is taken by two at once."""
    notify = task_of(app, terms)
    notify.enqueue(1).cancel()
    with beside() as one, beside() as other, ThreadPoolExecutor(1) as pool:
        first = notify.using(conn=one).enqueue(1)
        assert first.created
        second = pool.submit(lambda: notify.using(conn=other).enqueue(1))
        waiting(other.info.backend_pid)
        one.commit()
        assert second.result(PATIENCE).id == first.id
        other.commit()
        assert first.cancel() == "cancelled"
        third = notify.using(conn=one).enqueue(1)
        fourth = pool.submit(lambda: notify.using(conn=other).enqueue(1))
        waiting(other.info.backend_pid)
        one.rollback()
        found = fourth.result(PATIENCE)
        assert found.created
        assert found.id != third.id
        other.commit()
    assert store.one("select id from jobs") == found.id


def test_g1_in_bulk(app: App, store: Store, beside: Beside, waiting: Waiting) -> None:
    """Case G1: by COPY and by arrays, a bulk waits for a key in the middle of it."""
    notify = task_of(app, "done")
    for size, ends in ((50, "commit"), (50, "rollback"), (600, "commit"), (600, "rollback")):
        store.conn.execute("truncate jobs")
        with beside() as one, ThreadPoolExecutor(1) as pool:
            first = notify.using(conn=one).enqueue(7)
            many = pool.submit(lambda size=size: app.enqueue_many([notify.job(n) for n in range(size)]))
            waiting_for = "select 1 from pg_locks where not granted and locktype = 'transactionid'"
            from tests.waiting import until

            until(lambda query=waiting_for: store.ask(query), what="the bulk waits")
            one.commit() if ends == "commit" else one.rollback()
            found = many.result(PATIENCE)
        assert store.count() == size
        assert (found[7] == first.id, found.suppressed) == ((True, [7]) if ends == "commit" else (False, []))
        assert set(found) == {row[0] for row in store.ask("select id from jobs")}


def test_bulks_in_any_order_do_not_lock_each_other_out(app: App, store: Store) -> None:
    """Ten calls at once with the same keys in ten orders: no deadlock, one job for each key, and all are told of it."""
    import random

    notify = task_of(app, "done")

    def call(seed: int) -> Any:
        numbers = list(range(1500 if seed % 2 else 150))
        random.Random(seed).shuffle(numbers)
        return dict(zip(numbers, app.enqueue_many([notify.job(n) for n in numbers]), strict=True))

    with ThreadPoolExecutor(10) as pool:
        told = list(pool.map(call, range(10)))
    stored = dict(store.ask("select (args ->> 'n')::int, id from jobs"))
    assert len(stored) == store.count() == 1500
    assert all(stored[n] == job for found in told for n, job in found.items())


# --- case G3: a key does not outlive its job -----------------------------------------------------------------------------


@each_terms
@pytest.mark.parametrize("end", ["dead-lettered", "discarded", "cancelled", "cancelled by hand", "done"])
async def test_g3_a_key_is_free_as_soon_as_its_holder_is_over(app: App, store: Store, hand: Hand, terms: str, end: str) -> None:
    """Case G3."""
    from jobwell.actions import jobs as actions

    notify = task_of(app, terms)
    first = notify.enqueue(1)
    if end in ("dead-lettered", "discarded", "done"):
        await hand.claim_one(gates=notify.spec.gates)
        await hand.end(DONE if end == "done" else FAILED, (first.id, hand.claim_id))
    if end == "discarded":
        assert actions.named(app.database, "quarantine.discard", [first.id], by="olga", why="no").touched == 1
    if end == "cancelled":
        first.cancel()
    if end == "cancelled by hand":
        actions.named(app.database, "jobs.cancel", [first.id], by="olga")
    second = notify.enqueue(1)
    assert second.created == (end != "done" or terms != "window")
    assert not notify.enqueue(1).created


@pytest.mark.parametrize("conflict", ["skip", "replace"])
async def test_a_holder_that_begins_at_that_moment_is_not_changed(
    app: App, store: Store, hand: Hand, beside: Beside, waiting: Waiting, conflict: Any
) -> None:
    """A claim is under way: the second call waits for it, and then goes by what the job has become."""
    notify = task_of(app, "started", on_conflict=conflict)
    first = notify.enqueue(1, "old")
    await hand.conn.execute("begin")
    await hand.claim_one(gates=notify.spec.gates)
    with ThreadPoolExecutor(1) as pool, beside() as other:
        second = pool.submit(lambda: notify.using(conn=other).enqueue(1, "new"))
        waiting(other.info.backend_pid)
        await hand.conn.execute("commit")
        found = second.result(PATIENCE)
        other.commit()
    assert found.created
    assert store.ask("select id, state, args ->> 'text' from jobs order by id") == [
        (first.id, "running", "old"), (found.id, "ready", "new")]  # fmt: skip


# --- no worker waits for a caller ----------------------------------------------------------------------------------------


@each_terms
@pytest.mark.parametrize(
    "end", [DONE, FAILED, Retrying(0.0, FAILURE, "a note"), SNOOZED, RELEASED], ids=lambda end: type(end).__name__
)
async def test_nothing_that_a_worker_does_waits_for_a_callers_transaction(
    app: App, store: Store, hand: Hand, workers: WorkerVerbs, beside: Beside, terms: str, end: Any
) -> None:
    """The caller has put in, or found, the same key and leaves its transaction open: the holder's life goes on."""
    notify = task_of(app, terms)
    first = notify.enqueue(1)
    await hand.conn.execute("set lock_timeout = '2s'")
    await hand.claim_one(gates=notify.spec.gates)
    with beside() as caller:
        notify.using(conn=caller).enqueue(1)  # skipped; with "started" a job of its own, which is not committed
        if terms == "window":
            store.conn.execute("update dedup set until = now()")
            caller.rollback()
            assert notify.using(conn=caller).enqueue(1).created  # has taken over the window of the running one
        assert not await hand.end(end, (first.id, hand.claim_id))
        store.conn.execute("set lock_timeout = '2s'")
        store.conn.execute("update jobs set run_at = now() where state in ('scheduled', 'retrying')")
        await hand.verbs.flip_due(hand.conn, 100)
        again = await hand.claim(5, gates=notify.spec.gates)
        assert len(again) == (end not in (DONE, FAILED))
        store.conn.execute("update workers set lease_until = now() - interval '1 hour'")
        run(store.conn, workers.bury())
        assert run(store.conn, workers.rescue(limit=10, bound=10)) == len(again)
        caller.rollback()


async def test_a_replaced_job_is_passed_by_until_the_commit(app: App, store: Store, hand: Hand, beside: Beside) -> None:
    notify = task_of(app, "started", on_conflict="replace")
    first = notify.enqueue(1, "old")
    await hand.conn.execute("set lock_timeout = '2s'")
    with beside() as caller:
        notify.using(conn=caller).enqueue(1, "new")
        assert await hand.claim(5, gates=notify.spec.gates) == []
        await hand.verbs.flip_due(hand.conn, 100)
        caller.commit()
    (row,) = await hand.claim(5, gates=notify.spec.gates)
    assert (row.id, "new" in (row.args or "")) == (first.id, True)


async def test_a_retry_by_a_worker_does_not_wait_for_a_caller(app: App, store: Store, hand: Hand, beside: Beside) -> None:
    """An action that a worker goes on with meets a key in an open transaction: that job stays, the others go back."""
    from jobwell.actions import jobs as actions

    notify = task_of(app, "done")
    failed = [notify.enqueue(n) for n in (1, 2)]
    for row in await hand.claim(5, gates=notify.spec.gates):
        await hand.end(FAILED, (row.id, hand.claim_id))
    with beside() as caller:
        notify.using(conn=caller).enqueue(1)
        done = actions.named(app.database, "quarantine.retry", [job.id for job in failed], by="olga")
        assert done.touched == 1
        assert "try again" in done.refused[failed[0].id]
        caller.rollback()
    assert actions.named(app.database, "quarantine.retry", [failed[0].id], by="olga").touched == 1


# --- case G6 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conflict", ["skip", "replace", "reject"])
@each_terms
def test_g6_an_equal_job_does_not_poison_the_callers_transaction(
    app: App, store: Store, caller: "Connection[Any]", terms: str, conflict: Any
) -> None:
    """Case G6: business insert, duplicate enqueue, business insert, commit."""
    notify = task_of(app, terms, on_conflict=conflict)
    first = notify.enqueue(1)
    caller.execute("insert into orders values (1)")
    with app.within(caller):
        try:
            assert notify.enqueue(1).id == first.id
        except Duplicate as error:
            assert (conflict, error.job_id) == ("reject", first.id)
        caller.execute("insert into orders values (2)")
        assert notify.enqueue(2).created
    caller.commit()
    assert (store.count("orders"), store.count(), store.count("dedup_hits")) == (2, 2, 1)


def test_what_was_suppressed_in_a_transaction_that_rolls_back_is_not_counted(
    app: App, store: Store, caller: "Connection[Any]"
) -> None:
    notify = task_of(app, "done")
    notify.enqueue(1)
    notify.using(conn=caller).enqueue(1)
    caller.rollback()
    assert store.count("dedup_hits") == 0
