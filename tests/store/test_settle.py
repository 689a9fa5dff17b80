"""How attempts end: each verb by the fence (id, claim id), whole batches in one statement, and the log of attempts."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from jobwell.core.ids import new_id
from jobwell.core.outcome import Cancelled, Failed, Failure, Released, Retrying, Snoozed, Succeeded
from jobwell.core.states import Reason
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from tests.store.conftest import Hands
from tests.store.helpers import DONE, FAILED, FAILURE, RELEASED, RETRYING, SNOOZED, Hand, Store, ids, new

ENDS = [DONE, FAILED, RETRYING, SNOOZED, RELEASED]
each_end = pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)


async def claimed(store: Store, hand: Hand, **columns: Any) -> tuple[UUID, UUID]:
    """A running job: its id and claim id."""
    store.put_new(1, **columns)
    row = await hand.claim_one()
    return row.id, hand.claim_id


# --- each verb -----------------------------------------------------------------------------------------------------------


async def test_finish_moves_the_job_with_its_result(store: Store, hand: Hand) -> None:
    job, claim = await claimed(store, hand, tenant="hr", rank=7, args='{"n": 1}', size=8)
    assert await hand.end(Succeeded('{"rows": 3}', "a note"), (job, claim)) == set()
    assert store.count() == 0
    columns = "id, state, task, queue, tenant, rank, attempt, failures, bytes, args::text, result::text, note, worker, finished_at >= started_at, started_at >= enqueued_at"
    assert store.one(f"select {columns} from finished") == (
        job, "succeeded", "note", "default", "hr", 7, 1, 0, 8, '{"n": 1}', '{"rows": 3}', "a note", hand.worker, True, True,
    )  # fmt: skip
    assert store.count("attempts") == 0  # it simply succeeded the first time


async def test_an_attempt_that_succeeds_later_is_logged(store: Store, hand: Hand) -> None:
    store.put_new(1)
    job = (await hand.claim_one()).id
    await hand.end(Retrying(0.0, FAILURE), (job, hand.claim_id))
    assert (await hand.verbs.flip_due(hand.conn, 10))[0] == 1
    row = await hand.claim_one()
    assert (row.attempt, row.failures) == (2, 1)
    await hand.end(DONE, (job, hand.claim_id))
    assert store.ask("select attempt, outcome from attempts order by ended_at") == [(1, "retrying"), (2, "succeeded")]


async def test_fail_moves_the_job_to_the_quarantine(store: Store, hand: Hand) -> None:
    job, claim = await claimed(store, hand, lock_key="k", tenant="hr", deadline=60.0, args="[1]")
    end = Failed(Reason.REJECTED, Failure("Reject", "gone", "Traceback", "a.py:f", "logical"), "no_such_employee")
    assert await hand.end(end, (job, claim)) == set()
    assert store.count() == store.count("finished") == 0
    columns = "id, reason, code, error_type, message, traceback, fingerprint, failures, attempt, lock_key, tenant, args::text, deadline - run_at"
    assert store.one(f"select {columns} from quarantine") == (
        job, "rejected", "no_such_employee", "Reject", "gone", "Traceback", "note|no_such_employee|a.py:f", 1, 1, "k", "hr", "[1]",
        timedelta(seconds=60),
    )  # fmt: skip
    assert store.one("select job_id, claim_id, worker, attempt, outcome, kind, error_type, message, traceback, note from attempts") == (
        job, claim, hand.worker, 1, "failed", "logical", "Reject", "gone", "Traceback", "rejected",
    )  # fmt: skip


async def test_a_failure_that_is_not_the_tasks_is_not_counted(store: Store, hand: Hand) -> None:
    job, claim = await claimed(store, hand)
    await hand.end(Failed(Reason.DEADLINE, FAILURE, counts=False), (job, claim))
    assert store.one("select failures from quarantine") == 0


async def test_retry_waits_and_counts(store: Store, hand: Hand) -> None:
    job, claim = await claimed(store, hand)
    assert await hand.end(Retrying(60.0, FAILURE, "cut to a minute"), (job, claim)) == set()
    assert store.one("select state, failures, attempt, postponements, claim_id, worker, ready_at from jobs") == (
        "retrying",
        1,
        1,
        0,
        None,
        None,
        None,
    )
    assert store.one("select extract(epoch from run_at - jobs.enqueued_at)::float from jobs") == pytest.approx(60, abs=5)
    assert store.one("select outcome, kind, error_type, message, traceback, note, next_at = (select run_at from jobs), claim_id from attempts") == (
        "retrying", "unknown", "ValueError", "it did not work", "Traceback …", "cut to a minute", True, claim,
    )  # fmt: skip


async def test_a_retry_goes_elsewhere_in_the_same_step(store: Store, hand: Hand) -> None:
    """Of two retries in one batch, only that which asks for it."""
    job, claim = await claimed(store, hand)
    other, its_claim = await claimed(store, hand)
    ends = [(job, claim, Retrying(60.0, FAILURE, "goes to bulk", "bulk", -20)), (other, its_claim, Retrying(60.0, FAILURE))]
    assert await hand.verbs.retry(hand.conn, ends) == set()
    assert store.ask("select id, queue, rank from jobs order by id") == [(job, "bulk", 120), (other, "default", 100)]
    assert store.ask("select job_id, note, queue from attempts order by 1") == [
        (job, "goes to bulk", "default"),
        (other, None, None),
    ]
    before = store.snapshot()
    assert await hand.verbs.retry(hand.conn, [(job, claim, Retrying(1.0, FAILURE, None, "reports", 50))]) == {job}
    assert store.snapshot() == before  # not the caller's any more


@pytest.mark.parametrize("origin", ["code", "external", "limits", "validation", None])
async def test_where_an_error_comes_from_is_kept(store: Store, hand: Hand, origin: str | None) -> None:
    failure = replace(FAILURE, origin=origin)
    for end in (Failed(Reason.EXHAUSTED, failure), Retrying(60.0, failure), Cancelled(failure)):
        await hand.end(end, await claimed(store, hand))
    assert store.ask("select origin from attempts") == [(origin,)] * 3
    assert store.one("select origin from quarantine") == origin


async def test_a_snooze_costs_no_attempt(store: Store, hand: Hand) -> None:
    job, claim = await claimed(store, hand)
    await hand.end(Snoozed(60.0, "not yet"), (job, claim))
    assert store.one("select state, attempt, failures, postponements, ready_at, started_at from jobs") == (
        "scheduled",
        0,
        0,
        1,
        None,
        None,
    )
    assert store.one("select outcome, attempt, note, next_at = (select run_at from jobs) from attempts") == (
        "snoozed",
        1,
        "not yet",
        True,
    )


async def test_a_hand_back_is_ready_at_once_and_costs_no_attempt(store: Store, hand: Hand) -> None:
    job, claim = await claimed(store, hand)
    await hand.end(Released("shutdown"), (job, claim))
    assert store.one("select state, attempt, failures, postponements, ready_at >= enqueued_at from jobs") == (
        "ready",
        0,
        0,
        1,
        True,
    )
    assert store.one("select outcome, attempt, note from attempts") == ("released", 1, "shutdown")
    row = await hand.claim_one()
    assert (row.id, row.attempt, row.postponements) == (job, 1, 1)


async def test_a_hand_back_behind_a_delay_waits(store: Store, hand: Hand) -> None:
    job, claim = await claimed(store, hand)
    await hand.end(Released("unknown task", 30.0), (job, claim))
    assert store.states() == {"scheduled": 1}
    assert await hand.claim() == []


# --- batches -------------------------------------------------------------------------------------------------------------


@each_end
@pytest.mark.parametrize("size", [1, 2, 500])
async def test_a_batch_ends_whole(store: Store, hand: Hand, end: Any, size: int) -> None:
    store.put_new(size)
    rows = await hand.claim(size)
    assert await hand.end(end, *[(job, hand.claim_id) for job in ids(rows)]) == set()
    assert store.count(where="state = 'running'") == 0
    assert store.count() + store.count("finished") + store.count("quarantine") == size
    assert store.count("attempts") == (0 if end is DONE else size)


async def test_each_of_a_batch_has_its_own_end(store: Store, hand: Hand) -> None:
    store.put_new(5)
    rows = ids(await hand.claim(5))
    claims = [hand.claim_id] * 5
    await hand.verbs.finish(hand.conn, rows[:2], claims[:2], [Succeeded("1"), Succeeded(None, "none")])
    await hand.verbs.retry(
        hand.conn, [(job, hand.claim_id, Retrying(10.0 * n, Failure("E", f"m{n}"))) for n, job in enumerate(rows[2:], 1)]
    )
    assert set(store.ask("select id, result::text, note from finished")) == {(rows[0], "1", None), (rows[1], None, "none")}
    assert store.ask("select job_id, message, round(extract(epoch from next_at - ended_at)) from attempts order by message") == [
        (job, f"m{n}", 10 * n) for n, job in enumerate(rows[2:], 1)
    ]


@each_end
async def test_an_empty_batch_is_nothing(store: Store, hand: Hand, end: Any) -> None:
    store.put_new(1)
    before = store.snapshot()
    assert await hand.end(end) == set()
    assert store.snapshot() == before


# --- the fence -----------------------------------------------------------------------------------------------------------


@each_end
async def test_a_stale_claim_changes_nothing_and_is_told(store: Store, hand: Hand, end: Any) -> None:
    store.put_new(1)
    row = await hand.claim_one()
    before = store.snapshot()
    stranger = new_id()
    assert await hand.end(end, (row.id, stranger)) == {row.id}
    assert store.snapshot() == before


@each_end
@pytest.mark.parametrize("first", ENDS, ids=lambda end: type(end).__name__)
async def test_after_any_end_the_claim_is_stale(store: Store, hand: Hand, first: Any, end: Any) -> None:
    pair = await claimed(store, hand)
    await hand.end(first, pair)
    before = store.snapshot()
    assert await hand.end(end, pair) == {pair[0]}
    assert store.snapshot() == before


@each_end
async def test_a_claim_of_before_does_not_touch_the_claim_of_now(store: Store, hand: Hand, hands: Hands, end: Any) -> None:
    job, old = await claimed(store, hand)
    await hand.end(RELEASED, (job, old))
    other = await hands()
    await other.claim_one()
    before = store.snapshot()
    assert await hand.end(end, (job, old)) == {job}
    assert store.snapshot() == before
    assert await other.end(end, (job, other.claim_id)) == set()


@each_end
async def test_a_job_that_is_nowhere_is_lost(store: Store, hand: Hand, end: Any) -> None:
    job = new_id()
    assert await hand.end(end, (job, new_id())) == {job}
    assert [rows for rows in store.snapshot()[:-1] if rows] == []


@each_end
async def test_a_ready_job_is_nobodys(store: Store, hand: Hand, end: Any) -> None:
    (job,) = store.put_new(1)
    before = store.snapshot()
    assert await hand.end(end, (job, new_id())) == {job}
    assert store.snapshot() == before


@each_end
async def test_in_a_mixed_batch_the_good_ones_end_and_the_lost_are_told(store: Store, hand: Hand, end: Any) -> None:
    store.put_new(6)
    rows = ids(await hand.claim(6))
    good, stale, gone = rows[:3], rows[3:], [new_id(), new_id()]
    pairs = [
        *[(job, hand.claim_id) for job in good],
        *[(job, new_id()) for job in stale],
        *[(job, hand.claim_id) for job in gone],
    ]
    assert await hand.end(end, *pairs[::2], *pairs[1::2]) == {*stale, *gone}
    assert {row[0] for row in store.ask("select id from jobs where state = 'running'")} == set(stale)


def taken_back(store: Store, workers: WorkerVerbs, hand: Hand) -> None:
    """Its row was gone for a moment."""
    run(store.conn, workers.leave(hand.worker))
    assert run(store.conn, workers.rescue(limit=10, bound=10)) == 1
    run(
        store.conn, workers.register(hand.worker, lease=60.0, pid=1, host="h", name="h", version="0", slots=9, queues=["default"])
    )


@each_end
@pytest.mark.parametrize("live_first", [True, False])
async def test_one_worker_with_two_claims_of_a_job_in_one_batch(
    store: Store, hand: Hand, workers: WorkerVerbs, end: Any, live_first: bool
) -> None:
    """Its first claim was taken back behind its back and it claimed again: one counts, and the other is told as lost."""
    job, stale = await claimed(store, hand)
    taken_back(store, workers, hand)
    await hand.claim_one()
    pairs = [(job, hand.claim_id), (job, stale)]
    assert await hand.end(end, *(pairs if live_first else pairs[::-1])) == {job}
    assert store.count() + store.count("finished") + store.count("quarantine") == 1
    logged = store.ask("select claim_id from attempts where outcome <> 'lost'")
    assert logged == [(hand.claim_id,)]


async def test_of_two_claims_in_one_batch_the_live_ones_end_counts(store: Store, hand: Hand, workers: WorkerVerbs) -> None:
    job, stale = await claimed(store, hand)
    taken_back(store, workers, hand)
    await hand.claim_one()
    await hand.verbs.postpone(hand.conn, [(job, stale, Snoozed(1000.0, "stale")), (job, hand.claim_id, Snoozed(10.0, "live"))])
    assert store.one("select extract(epoch from run_at - clock_timestamp())::float from jobs") == pytest.approx(10, abs=5)
    assert store.ask("select note from attempts where outcome = 'snoozed'") == [("live",)]


# --- texts ---------------------------------------------------------------------------------------------------------------


async def test_texts_of_every_alphabet_come_through(store: Store, hand: Hand) -> None:
    words = '‘día’ "\\ \t\n 🛠️ \U0010ffff қазақ $1 %s {} \x7f'
    job, claim = await claimed(store, hand)
    await hand.end(Failed(Reason.EXHAUSTED, Failure(words, words, words, "place", "unknown"), words), (job, claim))
    assert store.one("select code, error_type, message, traceback from quarantine") == (words,) * 4
    assert store.one("select error_type, message, traceback from attempts") == (words,) * 3


async def test_a_result_stands_as_it_was_written(store: Store, hand: Hand) -> None:
    job, claim = await claimed(store, hand)
    written = '{"b": 1.0, "a": "\\u0000 \\ud83d\\ude00", "a": 1e400}'
    await hand.end(Succeeded(written), (job, claim))
    assert store.one("select result::text from finished") == written


async def test_large_arguments_stay_where_they_are(store: Store, hand: Hand) -> None:
    text = '"' + "x" * 5000 + '"'
    for end in ENDS:
        (job,) = store.put(new(1, args=text, size=len(text)))
        await hand.claim(10)
        await hand.end(end, (job, hand.claim_id))
        assert store.one("select args::text from payloads where id = %s", job) == text
        store.conn.execute("truncate jobs")
