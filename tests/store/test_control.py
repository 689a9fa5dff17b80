"""What operators do: held queues, cancelled jobs, actions on many."""

from typing import Any

import pytest

from jobwell.core.filters import Selection
from jobwell.core.ids import alone
from jobwell.core.outcome import Cancelled, Crashed, Retrying
from jobwell.store import control
from jobwell.store.statements import arun, run
from jobwell.store.workers import WorkerVerbs
from tests.store.conftest import Hands
from tests.store.helpers import DONE, FAILED, FAILURE, RELEASED, RETRYING, Hand, Store


def hold(store: Store, *queues: str, until: Any = None) -> list[str]:
    return run(store.conn, control.pause(store.statements, queues, actor="olga", why="closing", until=until))


async def test_a_held_queue_is_not_claimed_from_and_the_others_are(store: Store, hand: Hand) -> None:
    (held,) = store.put_new(queue="default")
    (free,) = store.put_new(queue="bulk")
    hold(store, "default")
    assert [row.id for row in await hand.claim(10, queues=["default", "bulk"])] == [free]
    assert run(store.conn, control.resume(store.statements, ["default"])) == ["default"]
    assert [row.id for row in await hand.claim(10, queues=["default", "bulk"])] == [held]


async def test_all_held_means_all_also_queues_that_come_later(store: Store, hand: Hand) -> None:
    hold(store, control.ALL)
    store.put_new(queue="never-seen-before")
    assert await hand.claim(10, queues=["never-seen-before", "default"]) == []
    run(store.conn, control.resume(store.statements, [], everything=True))
    assert len(await hand.claim(10, queues=["never-seen-before", "default"])) == 1


async def test_a_hold_with_an_end_ends_by_itself(store: Store, hand: Hand, travel: Any) -> None:
    store.put_new()
    hold(store, "default", until=store.one("select now() + interval '1 hour'"))
    assert await hand.claim(10) == []
    travel("61 minutes")
    assert run(store.conn, control.held(store.statements)) == []
    assert len(await hand.claim(10)) == 1


async def test_a_hold_counts_for_claims_by_marks_too(store: Store, hand: Hand) -> None:
    """A worker that knows its lanes names them; a held queue's lanes are left out there as well."""
    (held,) = store.put_new(queue="default")
    (free,) = store.put_new(queue="bulk")
    rows = await hand.claim(10, queues=["default", "bulk"])
    lanes = [((row.queue, row.rank, row.gate, row.tenant), (0, "00000000-0000-0000-0000-000000000000")) for row in rows]
    await hand.end(RELEASED, *((row.id, hand.claim_id) for row in rows))
    hold(store, "default")
    assert {held, free} == {row.id for row in rows}
    again = await hand.claim(10, queues=["default", "bulk"], lanes=lanes)
    assert [row.id for row in again] == [free]


@pytest.mark.parametrize("state", ["scheduled", "ready", "retrying"])
async def test_what_waits_is_cancelled_at_once(store: Store, hand: Hand, state: str) -> None:
    (job,) = store.put_new(delay=3600.0 if state == "scheduled" else 0.0, args='{"n": 1}')
    if state == "retrying":
        await hand.end(RETRYING, ((await hand.claim_one()).id, hand.claim_id))
    found = run(store.conn, control.cancel(store.statements, [job], actor="olga", why="wrong date"))
    assert found == {job: "cancelled"}
    assert store.ask("select id, state, note, args::text from finished") == [
        (job, "cancelled", "cancelled by olga: wrong date", '{"n": 1}')
    ]
    assert store.count() == store.count("cancels") == 0
    assert run(store.conn, control.cancel(store.statements, [job], actor="olga", why=None)) == {}


async def test_what_runs_is_asked_and_its_worker_tells_the_end(store: Store, hand: Hand, hands: Hands) -> None:
    (job,) = store.put_new()
    (row,) = await hand.claim(1)
    assert run(store.conn, control.cancel(store.statements, [job], actor="olga", why=None)) == {job: "asked"}
    other = await hands()
    assert run(store.conn, control.orders(store.statements, other.worker)) == ([], None)
    assert run(store.conn, control.orders(store.statements, hand.worker)) == ([(job, hand.claim_id)], None)
    stranger = other.claim_id
    assert await hand.end(Cancelled(), (row.id, stranger)) == {job}
    assert store.states() == {"running": 1}
    assert await hand.end(Cancelled(FAILURE), (row.id, hand.claim_id)) == set()
    assert store.ask("select state, note from finished") == [("cancelled", "cancelled by olga")]
    assert store.ask("select outcome, message from attempts") == [("cancelled", FAILURE.message)]
    assert store.count("cancels") == store.count() == 0


@pytest.mark.parametrize(("end", "left"), [("finish", "succeeded"), ("fail", "quarantine"), ("retry", "cancelled")])
async def test_a_job_that_ended_otherwise_before_it_was_told(store: Store, hand: Hand, end: str, left: str) -> None:
    """Done is done and failed is failed; what would be tried again is cancelled where it waits."""
    (job,) = store.put_new()
    await hand.claim_one()
    run(store.conn, control.cancel(store.statements, [job], actor="olga", why=None))
    ends: dict[str, Any] = {"finish": DONE, "fail": FAILED, "retry": RETRYING}
    await hand.end(ends[end], (job, hand.claim_id))
    assert run(store.conn, control.orders(store.statements, hand.worker)) == ([], None)
    assert store.count("cancels") == store.count() == 0
    assert store.ask("select state from finished") == ([] if left == "quarantine" else [(left,)])
    assert store.count("quarantine") == (left == "quarantine")


@pytest.mark.parametrize("way", ["rescue", "crash", "retry", "postpone"])
async def test_a_job_that_shall_stop_does_not_begin_again(
    store: Store, hand: Hand, hands: Hands, workers: WorkerVerbs, way: str
) -> None:
    """Its attempt ended before its worker told it to stop: it is cancelled where it waits, and nobody begins it meanwhile."""
    (job,) = store.put_new()
    (row,) = await hand.claim(1)
    run(store.conn, control.cancel(store.statements, [job], actor="olga", why=None))
    if way == "rescue":
        run(store.conn, workers.expire(hand.worker))
        assert run(store.conn, workers.rescue(limit=10, bound=10)) == 1
    elif way == "crash":
        assert await hand.verbs.crash(hand.conn, [(job, hand.claim_id, Crashed("SIGSEGV"))], bound=3) == set()
        run(store.conn, control.run_now(store.statements, [job]))
    else:
        await hand.end(Retrying(0.0, FAILURE) if way == "retry" else RELEASED, (row.id, hand.claim_id))
        run(store.conn, control.run_now(store.statements, [job]))
    assert store.states() == {"ready": 1}
    (neighbour,) = store.put_new()
    other = await hands()
    assert [row.id for row in await other.claim(10)] == [neighbour]
    assert run(store.conn, control.orders(store.statements, other.worker)) == ([], None)
    assert store.ask("select id, state from finished") == [(job, "cancelled")]
    assert store.count("cancels") == 0


async def test_a_retry_from_the_quarantine_forgets_an_old_cancel(store: Store, hand: Hand) -> None:
    (job,) = store.put_new()
    await hand.claim_one()
    run(store.conn, control.cancel(store.statements, [job], actor="olga", why=None))
    await hand.end(FAILED, (job, hand.claim_id))
    run(store.conn, control.apply(store.statements, "quarantine.retry", [job], actor="olga", why=None))
    assert run(store.conn, control.orders(store.statements, hand.worker)) == ([], None)
    assert store.states() == {"ready": 1}


async def test_a_cancelled_lock_holder_frees_its_key(store: Store, hand: Hand) -> None:
    store.put_new(2, lock_key="k")
    (row,) = await hand.claim(10)
    claimed_by = hand.claim_id
    run(store.conn, control.cancel(store.statements, [row.id], actor="olga", why=None))
    assert await hand.claim(10) == []
    await hand.end(Cancelled(), (row.id, claimed_by))
    assert len(await hand.claim(10)) == 1


async def test_the_next_attempt_now_keeps_the_count(store: Store, hand: Hand) -> None:
    (job,) = store.put_new()
    await hand.end(RETRYING, ((await hand.claim_one()).id, hand.claim_id))
    assert run(store.conn, control.run_now(store.statements, [job])) == [job]
    assert store.ask("select state, failures, attempt from jobs") == [("ready", 1, 1)]
    assert run(store.conn, control.run_now(store.statements, [job])) == []


def begin(store: Store, verb: control.Verb, chosen: Selection) -> Any:
    total = run(store.conn, control.count(store.statements, verb, chosen))
    return run(store.conn, control.begin(store.statements, verb, chosen, actor="olga", why="x", total=total)), total


async def test_an_action_on_many_moves_piece_by_piece_and_touches_what_was_chosen(store: Store) -> None:
    store.put_new(1203, queue="bulk", tenant="a")
    store.put_new(7, queue="bulk", tenant="b")
    moment = run(store.conn, control.now(store.statements))
    store.put_new(5, queue="bulk", tenant="a")  # after the preview
    action, total = begin(store, "jobs.cancel", Selection(queue="bulk", tenant="a", until=moment))
    assert total == 1203
    pieces = []
    while step := run(store.conn, control.step(store.statements, action)):
        pieces.append(step)
    assert pieces == [(500, False), (500, False), (203, True)]
    assert store.ask("select tenant, count(*) from jobs group by 1 order by 1") == [("a", 5), ("b", 7)]
    (row,) = run(store.conn, control.actions(store.statements))
    assert (row["done"], row["total"], row["state"], row["chosen"]["tenant"]) == (1203, 1203, "done", "a")
    audit = store.ask("select action, target from audit order by id")
    assert audit == [
        ("jobs.cancel.begin", str(action)),
        ("jobs.cancel", "500 jobs"),
        ("jobs.cancel", "500 jobs"),
        ("jobs.cancel", "203 jobs"),
    ]


async def test_two_drivers_of_one_action_do_not_wait_for_each_other_or_touch_twice(store: Store, hands: Hands) -> None:
    store.put_new(900)
    action, _ = begin(store, "jobs.cancel", Selection(queue="default"))
    one, two = await hands(), await hands()
    async with one.conn.transaction():
        first = await arun(one.conn, control.step(store.statements, action))
        assert await arun(two.conn, control.step(store.statements, action)) is None
    assert first == (500, False)
    assert await arun(two.conn, control.step(store.statements, action)) == (400, True)
    assert store.count("finished") == 900


async def test_a_stopped_action_stays_stopped(store: Store) -> None:
    store.put_new(700)
    action, _ = begin(store, "jobs.cancel", Selection(queue="default"))
    run(store.conn, control.step(store.statements, action))
    assert run(store.conn, control.stop(store.statements, action))
    assert run(store.conn, control.step(store.statements, action)) is None
    assert not run(store.conn, control.stop(store.statements, action))
    assert store.count() == 200


def test_a_selection_survives_its_storage(store: Store) -> None:
    ids = store.put_new(2)
    chosen = Selection(ids=ids, reason="exhausted", until=store.one("select now()"))
    assert Selection.read(chosen.stored()) == chosen


async def test_a_worker_is_asked_to_end_and_a_dead_one_is_not(store: Store, hands: Hands) -> None:
    one, two = await hands(), await hands()
    store.conn.execute("update workers set state = 'dead' where id = %s", [two.worker])
    assert run(store.conn, control.ask(store.statements, [one.worker, two.worker], "drain")) == [one.worker]
    assert run(store.conn, control.orders(store.statements, one.worker)) == ([], "drain")


async def test_a_proven_killer_runs_alone_also_after_a_person_has_sent_it_back(
    store: Store, hand: Hand, workers: WorkerVerbs
) -> None:
    store.conn.execute("update workers set children = 2")
    (job,) = store.put_new()
    normal = store.one("select gate from jobs")
    for crash in range(4):
        await hand.claim(1, gates=[normal, alone(normal)])
        store.conn.execute("update workers set state = 'live'")
        if crash == 0:
            assert run(store.conn, workers.suspect(hand.worker, how="was killed by signal 9", bound=3)) == 1
        elif crash < 3:
            await hand.verbs.crash(hand.conn, [(job, hand.claim_id, Crashed("killed"))], bound=3)
        if store.count("quarantine"):
            assert store.one("select gate, alone, crashes from quarantine") == (alone(normal), True, 3)
            run(store.conn, control.apply(store.statements, "quarantine.retry", [job], actor="olga", why=None))
        else:
            run(store.conn, control.run_now(store.statements, [job]))
        assert store.one("select gate, alone from jobs") == (alone(normal), True)
