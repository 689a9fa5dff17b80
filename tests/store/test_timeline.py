"""What happened to a job, read from the store in order."""

from typing import Any
from uuid import UUID

from jobwell import App
from jobwell.actions import jobs as actions
from jobwell.core.outcome import Failed, Failure
from jobwell.core.states import Reason
from jobwell.core.timeline import Event
from jobwell.store import reads
from jobwell.store.statements import run
from tests.store.helpers import DONE, FAILED, RELEASED, RETRYING, SNOOZED, Hand, Store, new

REJECTED = Failed(Reason.REJECTED, Failure("Reject", "no such\nmailbox", "", "t", "logical"), code="invalid_address")


def events(store: Store, job: UUID) -> list[Event]:
    return run(store.conn, reads.timeline(store.statements, run(store.conn, reads.one(store.statements, job))))


def texts(store: Store, job: UUID) -> list[str]:
    return [event.text for event in events(store, job)]


async def turn(store: Store, hand: Hand, end: Any) -> None:
    """One attempt of the only job, whatever it waits for."""
    store.conn.execute("update jobs set state = 'ready', run_at = now(), ready_at = now()")
    row = await hand.claim_one()
    await hand.end(end, (row.id, hand.claim_id))


async def test_from_the_enqueue_over_all_attempts_to_the_quarantine_and_back(app: App, store: Store, hand: Hand) -> None:
    (job,) = store.put(new(), '{"initiator":"olga","request_id":"7"}')
    for end in (RETRYING, SNOOZED, RELEASED, REJECTED):
        await turn(store, hand, end)
    assert not actions.named(app.database, "quarantine.retry", [job], by="ivan", why="the address is corrected").refused
    await turn(store, hand, RETRYING)
    await turn(store, hand, DONE)
    found = events(store, job)
    assert [event.event for event in found] == [
        "enqueued", "began", "retrying", "began", "snoozed", "began", "released", "began", "failed", "action", "began", "retrying",
        "began", "succeeded",
    ]  # fmt: skip
    said = [event.text for event in found]
    assert said[0] == "enqueued into default by olga"
    assert said[1].endswith("began on here/1 on here")
    assert "ValueError: it did not work" in said[2]
    assert said[2].endswith("a note · again in 1m")
    assert said[8].endswith("Reject: no such")
    assert said[9] == "ivan took it back from the quarantine: the address is corrected"
    assert [event.at for event in found] == sorted(event.at for event in found)


async def test_the_quarantine_tells_why(store: Store, hand: Hand) -> None:
    (job,) = store.put_new()
    await turn(store, hand, FAILED)
    assert texts(store, job)[-1] == "quarantine: exhausted"
    assert [event.event for event in events(store, job)] == ["enqueued", "began", "failed", "quarantined"]
    (other,) = store.put_new()
    await turn(store, hand, REJECTED)
    assert texts(store, other)[-1] == "quarantine: rejected, code invalid_address"


async def test_what_people_do_stands_in_its_place(app: App, store: Store, hand: Hand) -> None:
    job, beside = store.put_new(2)
    actions.named(app.database, "jobs.priority", [job, beside], by="ivan", to=80)
    actions.named(app.database, "jobs.cancel", [job], by="olga", why="not needed")
    assert texts(store, job)[1:] == [
        "ivan changed its priority to 80", "olga cancelled it: not needed", "cancelled while it waited: cancelled by olga: not needed",
    ]  # fmt: skip
    assert len(texts(store, beside)) == 2


async def test_a_lost_and_a_crashed_attempt_say_so(store: Store, hand: Hand) -> None:
    (job,) = store.put_new()
    await hand.claim_one()
    store.conn.execute("update workers set state = 'dead'")
    store.conn.execute("select rescue(10, 3)")
    lost = events(store, job)
    assert [event.event for event in lost] == ["enqueued", "began", "lost"]
    assert "its worker vanished · again at once" in lost[-1].text


async def test_who_gave_a_job_up_and_why_is_the_end(app: App, store: Store, hand: Hand) -> None:
    job = store.put_new(1)[0]
    await turn(store, hand, FAILED)
    actions.named(app.database, "quarantine.discard", [job], by="olga", why="the campaign is over")
    found = texts(store, job)
    assert found[-1].startswith("over: discarded by olga: the campaign is over")


async def test_what_waits_for_its_time_says_when_and_what_runs_says_where(store: Store, hand: Hand) -> None:
    (later,) = store.put_new(delay=60.0)
    assert [event.event for event in events(store, later)] == ["enqueued", "due"]
    store.conn.execute("delete from jobs")
    (runs,) = store.put_new()
    await hand.claim_one()
    assert [event.text for event in events(store, runs)][1] == "attempt 1 began on here/1 on here"
