"""The facts about why a job does not run, read in one statement, and the reasons that follow."""

from typing import Any
from uuid import UUID

import pytest

from jobwell import NotFound
from jobwell.core.ids import alone, gate_of, new_id
from jobwell.core.outcome import Succeeded
from jobwell.core.why import Facts, explain
from jobwell.store import why
from jobwell.store.statements import run
from tests.store.conftest import Hands
from tests.store.helpers import FAILED, RETRYING, Hand, Store


def facts(store: Store, job: UUID) -> Facts:
    return run(store.conn, why.facts(store.statements, job))


def codes(store: Store, job: UUID) -> list[str]:
    return [because.code for because in explain(facts(store, job))]


def test_nobody_lives(store: Store) -> None:
    (job,) = store.put_new()
    assert codes(store, job) == ["no_worker"]
    with pytest.raises(NotFound):
        facts(store, new_id())


async def test_workers_by_what_they_serve_and_know(store: Store, hand: Hand) -> None:
    ready, other = *store.put_new(1), *store.put_new(1, queue="elsewhere")
    assert codes(store, ready) == ["next"]  # a worker of an older release does not say what it knows
    assert codes(store, other) == ["queue_unserved"]
    store.conn.execute("update workers set tasks = '{another}'")
    assert codes(store, ready) == ["task_unknown"]
    store.conn.execute("update workers set tasks = '{another,note}', busy = 10")
    assert codes(store, ready) == ["slots_busy"]
    store.conn.execute("update workers set state = 'draining'")
    assert codes(store, ready) == ["no_worker"]
    store.conn.execute("update workers set state = 'live', lease_until = now() - interval '1 second'")
    assert codes(store, ready) == ["no_worker"]


async def test_pauses(store: Store, hand: Hand) -> None:
    (job,) = store.put_new()
    put = "insert into queues (name, paused_by, paused_until) values (%s, 'olga', now() + %s::interval)"
    store.conn.execute(put, ["default", "-1 second"])
    assert codes(store, job) == ["next"]
    store.conn.execute(put, ["*", "1 hour"])
    assert facts(store, job).pause == "*"
    store.conn.execute("update queues set paused_until = null where name = 'default'")
    found = facts(store, job)
    assert (found.pause, found.paused_by, found.paused_until) == ("default", "olga", None)
    assert codes(store, job) == ["paused"]


async def test_a_held_lock_names_its_holder(store: Store, hand: Hand) -> None:
    first, second = store.put_new(2, lock_key="note:7")
    await hand.claim_one()
    running, waiting = facts(store, first), facts(store, second)
    assert (running.state, running.worker, running.worker_there) == ("running", "here/1", True)
    assert (waiting.holder, waiting.lock_key) == (first, "note:7")
    assert codes(store, second) == ["lock_held"]


async def test_places_in_the_queue(store: Store, hand: Hand) -> None:
    store.put_new(3, rank=50)
    store.put_new(2)
    store.put_new(4, tenant="another")
    store.put_new(5, queue="bulk", rank=1)
    (job,) = store.put_new()
    store.put_new(7)
    found = facts(store, job)
    assert (found.above, found.older) == (3, 2)
    assert codes(store, job) == ["behind"]


async def test_counts_are_capped(store: Store, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "CAP", 5)
    store.put_new(9, rank=50)
    (job,) = store.put_new()
    assert facts(store, job).above == 5


async def test_its_time_has_not_come(store: Store, hand: Hand) -> None:
    scheduled, failing = *store.put_new(1, delay=60.0), *store.put_new(1)
    await hand.claim_one()
    await hand.end(RETRYING, (failing, hand.claim_id))
    assert codes(store, scheduled) == ["not_due"]
    assert codes(store, failing) == ["retrying"]
    found = facts(store, failing)
    assert (found.error_type, found.attempt) == ("ValueError", 1)


@pytest.mark.parametrize(("end", "code"), [(Succeeded(), "succeeded"), (FAILED, "failed_exhausted")])
async def test_it_is_over(store: Store, hand: Hand, end: Any, code: str) -> None:
    (job,) = store.put_new()
    await hand.claim_one()
    await hand.end(end, (job, hand.claim_id))
    assert codes(store, job) == [code]


async def test_a_running_job_whose_worker_is_gone_or_that_shall_stop(store: Store, hands: Hands) -> None:
    hand = await hands()
    (job,) = store.put_new()
    await hand.claim_one()
    store.conn.execute("insert into cancels (job_id, actor) values (%s, 'olga')", [job])
    assert codes(store, job) == ["cancelling", "running"]
    store.conn.execute("delete from workers")
    assert codes(store, job) == ["cancelling", "worker_gone"]


async def test_the_statement_costs_little_beside_many_jobs(store: Store, hand: Hand) -> None:
    store.conn.execute(
        "insert into jobs (id, queue, task, gate, tenant) select gen_random_uuid(), 'default', 'note', %s, 't' || n %% 50"
        " from generate_series(1, 50000) n", [gate_of("note")])  # fmt: skip
    (job,) = store.put_new(1, tenant="t1")
    query = store.statements["why.facts"]
    plan = store.conn.execute(f"explain (analyze, buffers, format json) {query}", {"id": job, "cap": 1000}).fetchone()  # type: ignore[call-overload]
    top = plan[0][0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 2500


@pytest.mark.parametrize("kind", ["declared", "suspect"])
async def test_children_are_counted_for_what_runs_apart(store: Store, hand: Hand, kind: str) -> None:
    declared, plain = gate_of("note"), "process" if kind == "declared" else "auto"
    gate = declared if kind == "declared" else alone(declared)
    store.conn.execute(
        "insert into catalog (task, spec, release) values ('note', json_build_object('executor', %s::text, 'gate', %s::text), '0')",
        [plain, str(declared)],
    )
    first, second = store.put_new(2)
    store.conn.execute("update jobs set gate = %s", [gate])
    store.conn.execute("update workers set children = 1")
    assert codes(store, first) == ["next"]
    store.conn.execute(
        "update jobs set state = 'running', ready_at = null, started_at = now(), claim_id = gen_random_uuid(), worker = %s where id = %s",
        [hand.worker, first],
    )
    assert codes(store, second) == ["children_busy"]
    store.conn.execute("update workers set children = 2")
    assert codes(store, second) == ["next"]
