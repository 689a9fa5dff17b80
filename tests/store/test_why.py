"""The facts about why a job does not run, read in one statement, and the reasons that follow."""

import json
from typing import Any
from uuid import UUID

import pytest

from jobwell import NotFound
from jobwell.core.ids import alone, gate_of, new_id
from jobwell.core.limits import Limit, declared
from jobwell.core.outcome import Succeeded
from jobwell.core.why import Facts, explain
from jobwell.store import limits, why
from jobwell.store.statements import run
from jobwell.store.upkeep import UpkeepVerbs
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


def limit(store: Store, kind: Any, name: str, **values: Any) -> None:
    """As a worker's code declares it."""
    (row,) = declared(kind, name, [Limit(**values)])
    stored = row.stored()
    store.conn.execute(
        "insert into limits (kind, name, per, concurrency, rates, declared) values (%s, %s, %s, %s, %s, true)",
        [kind, name, stored["per"], stored["concurrency"], json.dumps(stored["rates"]) if stored["rates"] else None],
    )


def gate(store: Store, **columns: Any) -> None:
    """What is behind the gate of `note`."""
    given = {"gate": gate_of("note"), "task": "note", **columns}
    names = ", ".join(given)
    store.conn.execute(f"insert into gates ({names}) values ({', '.join(['%s'] * len(given))})", list(given.values()))  # type: ignore[call-overload]


@pytest.mark.parametrize(("kind", "name"), [("task", "note"), ("resource", "sms"), ("tenant", "acme")])
async def test_holds_say_by_whom_and_until_when(store: Store, hand: Hand, kind: str, name: str) -> None:
    gate(store, resources=["fax", "sms"])
    ready, later = *store.put_new(1, tenant="acme"), *store.put_new(1, tenant="acme", delay=60.0)
    run(store.conn, limits.hold(store.statements, kind, [name], actor="olga", why="bad data", until=None))
    assert codes(store, ready) == [f"{kind}_held"]
    assert codes(store, later) == ["not_due", f"{kind}_held"]
    (held,) = facts(store, ready).holds
    assert (held.kind, held.name, held.by, held.why, held.until) == (kind, name, "olga", "bad data", None)
    store.conn.execute("update holds set held_until = now()")
    assert codes(store, ready) == ["next"]
    assert run(store.conn, limits.release(store.statements, kind, [name])) == []


@pytest.mark.parametrize(
    ("kind", "name", "per"),
    [("task", "note", "fleet"), ("queue", "default", "fleet"), ("resource", "sms", "fleet"), ("tenant", "acme", "fleet"),
     ("tenant", "*", "fleet"), ("resource", "sms", "tenant"), ("task", "note", "host"), ("task", "note", "process")],
)  # fmt: skip
async def test_a_limit_in_use_names_the_jobs_that_use_it(store: Store, hand: Hand, kind: Any, name: str, per: Any) -> None:
    gate(store, resources=["sms"])
    limit(store, kind, name, concurrency=2, per=per)
    first, second, third = store.put_new(3, tenant="acme")
    assert len(await hand.claim()) == 2
    (found,) = facts(store, third).limits
    assert (found.kind, found.name, found.per, found.used, found.full, found.wait) == (kind, name, per, 2, True, 0)
    assert set(found.holders) == {first, second}
    assert codes(store, third) == ["limit_full"]
    await hand.end(Succeeded(), (first, hand.claim_id))
    assert codes(store, third) == ["next"]


async def test_a_limit_per_process_is_full_only_where_all_are(store: Store, hands: Hands) -> None:
    one, other = await hands(), await hands()
    gate(store)
    limit(store, "task", "note", concurrency=1, per="process")
    *_, waiting = store.put_new(3)
    await one.claim_one()
    assert "limit_full" not in codes(store, waiting)
    await other.claim_one()
    assert codes(store, waiting) == ["limit_full"]


async def test_a_rate_says_until_when(store: Store, hand: Hand) -> None:
    gate(store, resources=["sms"])
    limit(store, "resource", "sms", rate="1/min")
    store.put_new(1)
    await hand.claim_one()
    (waiting,) = store.put_new()
    (found,) = facts(store, waiting).limits
    assert found.rates == ("1/min",)
    assert 50 < found.wait <= 62.4
    assert codes(store, waiting) == ["rate"]


async def test_a_limit_of_others_is_not_told(store: Store, hand: Hand) -> None:
    gate(store, resources=["sms"])
    for kind, name in (("task", "other"), ("resource", "fax"), ("tenant", "bolt"), ("queue", "bulk")):
        limit(store, kind, name, concurrency=0)
    (job,) = store.put_new(1, tenant="acme")
    assert codes(store, job) == ["next"]
    limit(store, "tenant", "*", concurrency=0)
    assert codes(store, job) == ["limit_zero"]
    limit(store, "tenant", "acme", concurrency=1)  # instead of the one for each that is not named
    assert codes(store, job) == ["next"]


async def test_a_lock_that_keeps_order_or_has_a_rate(store: Store, hand: Hand) -> None:
    (rate,) = declared("task", "x", [Limit(rate="1/min")])
    gate(store, ordered=True, key_rates=json.dumps(rate.stored()["rates"]))
    first, second = store.put_new(2, lock_key="note:7")
    assert codes(store, second) == ["lock_order", "behind"]
    assert facts(store, second).before == first
    await hand.claim_one()
    assert codes(store, second) == ["lock_held", "lock_rate"]
    await hand.end(RETRYING, (first, hand.claim_id))
    assert codes(store, second) == ["lock_order", "lock_rate"]
    assert facts(store, second).before_state == "retrying"


async def test_the_time_of_those_in_front_from_the_pace_of_late(store: Store, hand: Hand) -> None:
    put = (
        "insert into finished (id, finished_at, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant)"
        " select gen_random_uuid(), now() - n * interval '1 second', now(), now(), 100, 1, 0, 2, 'default', %s, 'succeeded', ''"
        " from generate_series(1, 10) n"
    )
    run(store.conn, UpkeepVerbs(store.statements).make_partitions())
    store.put_new(20)
    (job,) = store.put_new()
    assert facts(store, job).pace_lane is None
    store.conn.execute(put, ["other"])
    found = facts(store, job)
    assert found.pace_lane is None
    assert found.pace_above == pytest.approx(1.0, rel=0.3)
    store.conn.execute(put, ["note"])
    assert facts(store, job).pace_lane == pytest.approx(1.0, rel=0.3)
    (because,) = explain(facts(store, job))
    assert "the pace of the last minutes that takes" in because.sentence


async def test_the_pace_is_read_from_few_pages(store: Store, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store.conn, UpkeepVerbs(store.statements).make_partitions())
    store.conn.execute(
        "insert into finished (id, finished_at, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant)"
        " select gen_random_uuid(), now(), now(), now(), 100, 1, 0, 2, 'default', 'note', 'succeeded', '' from generate_series(1, 20000)"
    )
    monkeypatch.setattr(why, "PAGES", 3)
    rows = store.conn.execute(store.statements["why.tail"], {"pages": 3}).fetchall()  # type: ignore[call-overload]
    asked = {"queue": "default", "task": "note", "tenant": "", "page": str(rows[0][0]), "now": rows[0][1], "seconds": 300.0}
    plan = store.conn.execute(f"explain (analyze, buffers, format json) {store.statements['why.pace']}", asked).fetchone()  # type: ignore[call-overload]
    top = plan[0][0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 50


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
