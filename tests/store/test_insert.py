"""Jobs go in: by one row, by arrays, by COPY. Whichever way, the same rows."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from jobwell import App
from jobwell.core.job import NewJob
from jobwell.store import bulk
from jobwell.store.feed import SMALL, Feed
from jobwell.store.jobs import INLINE
from tests.store.helpers import Store, new

META = '{"request_id": "r-1"}'
LARGE = json.dumps({"text": "x" * INLINE})
Columns = dict[str, Any]

CASES: dict[str, Columns] = {
    "plain": {},
    "everything said": {
        "queue": "bulk",
        "task": "hr.move",
        "gate": -(2**63),
        "rank": 0,
        "tenant": "финансы",
        "lock_key": "k:1",
        "deadline": 5.0,
    },
    "last gate, last rank": {"gate": 2**63 - 1, "rank": 200},
    "delayed": {"delay": 3600.0},
    "due in the future": {"run_at": datetime.now(UTC) + timedelta(days=2)},
    "due in the past": {"run_at": datetime(2020, 1, 1, tzinfo=UTC)},
    "at the inline limit": {"args": "9" * INLINE, "size": INLINE},
    "above the inline limit": {"args": LARGE, "size": len(LARGE)},
    "large and delayed": {"args": LARGE, "size": len(LARGE), "delay": 60.0},
    "json as it was written": {"args": '{"b": 1.0, "a":  "\\u0000", "a": 1e2}', "size": 36},
    "no deadline to speak of": {"deadline": 0.0},
}
COMPARED = (
    "select j.queue, j.task, j.rank, j.gate, j.tenant, j.lock_key, j.bytes, j.args::text, j.meta::text, j.state, j.attempt, j.failures,"
    " j.crashes, j.losses, j.postponements, j.claim_id, j.worker, j.started_at, p.args::text,"
    " round(extract(epoch from j.deadline - greatest(j.run_at, j.enqueued_at)), 3), j.run_at - j.enqueued_at > interval '30 seconds',"
    " abs(extract(epoch from j.enqueued_at - clock_timestamp())) < 60,"
    " j.ready_at is not null, coalesce(j.ready_at >= j.enqueued_at, true), coalesce(j.run_at <= j.ready_at, true)"
    " from jobs j left join payloads p using (id) where j.id = %s"
)


def by_one(store: Store, app: App, job: NewJob) -> None:
    store.put([job], META)


def by_arrays(store: Store, app: App, job: NewJob) -> None:
    store.put([job, *new(2)], META)


def by_copy(store: Store, app: App, job: NewJob) -> None:
    feed = Feed([*new(SMALL), job], META, eager=False)
    assert not feed.small
    bulk.put(store.conn, app.database.statements, feed)


@pytest.mark.parametrize("case", CASES)
def test_the_three_ways_in_make_equal_rows(store: Store, app: App, case: str) -> None:
    rows = []
    for way in (by_one, by_arrays, by_copy):
        (job,) = new(1, **CASES[case])
        way(store, app, job)
        rows.append(store.one(COMPARED, job.id))
    one, arrays, copy = rows
    assert one == arrays
    assert one == copy
    assert (one[9], one[-3]) == (("scheduled", False) if one[-5] else ("ready", True))
    assert all(one[-2:])


@pytest.mark.parametrize("way", [by_one, by_arrays, by_copy])
def test_run_at_is_kept_to_the_microsecond(store: Store, app: App, way: Callable[[Store, App, NewJob], None]) -> None:
    due = datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    (job,) = new(1, run_at=due, deadline=90.0)
    way(store, app, job)
    assert store.one("select run_at, deadline from jobs where id = %s", job.id) == (due, due + timedelta(seconds=90))


def test_arguments_stand_in_the_row_or_apart_never_in_both(store: Store) -> None:
    small, large = store.put([*new(1, args="9" * INLINE, size=INLINE), *new(1, args=LARGE, size=len(LARGE))])
    assert store.ask("select id from payloads") == [(large,)]
    assert store.ask("select id from jobs where args is not null") == [(small,)]


def test_jobs_of_one_call_become_ready_in_its_order(store: Store) -> None:
    given = store.put_new(50)
    assert [row[0] for row in store.ask("select id from jobs order by ready_at, id")] == given


def test_an_id_is_taken_once(store: Store) -> None:
    jobs = new(3)
    store.put(jobs[:1])
    with pytest.raises(psycopg.errors.UniqueViolation):
        store.put(jobs)
    assert store.count() == 1  # all or nothing
