"""Wake-ups are hints (case E7): empty, one for a statement, only where somebody waits, and never a reason to fail."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from jobwell import App
from jobwell.core.ids import new_id
from jobwell.store import bulk
from jobwell.store.feed import Feed
from jobwell.store.statements import run
from jobwell.store.workers import WorkerVerbs
from tests.store.helpers import Store, new

LONG = "q" * 200
HUGE = '"' + "x" * 1_000_000 + '"'


@pytest.fixture
def listener(database_url: str, store: Store) -> Iterator["Connection[Any]"]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f'listen "{store.statements.channel}"')  # type: ignore[call-overload]
        yield conn


def idle(store: Store, workers: WorkerVerbs, *queues: str) -> None:
    worker = new_id()
    run(store.conn, workers.register(worker, lease=60.0, pid=1, host="h", name="h", version="0", slots=1, queues=list(queues)))
    run(store.conn, workers.say_idle(worker, idle=True))


def heard(listener: "Connection[Any]", store: Store) -> list[str]:
    """Payloads of all that was sent until now."""
    store.conn.execute("select pg_notify(%s, 'end')", [store.statements.channel])
    said = [note.payload for note in listener.notifies(timeout=20, stop_after=1)]
    while said[-1] != "end":
        said += [note.payload for note in listener.notifies(timeout=20, stop_after=1)]
    return said[:-1]


def test_nobody_waits_nothing_is_sent(store: Store, listener: Connection[Any], workers: WorkerVerbs) -> None:
    worker = new_id()
    run(store.conn, workers.register(worker, lease=60.0, pid=1, host="h", name="h", version="0", slots=1, queues=["default"]))
    store.put_new(1)
    store.put_new(5)
    assert heard(listener, store) == []


@pytest.mark.parametrize("count", [1, 2, 500])
def test_a_waiting_worker_is_woken_once_for_a_statement_without_a_payload(
    store: Store, app: App, listener: Connection[Any], workers: WorkerVerbs, count: int
) -> None:
    idle(store, workers, "bulk", "default")
    store.put_new(count)
    assert heard(listener, store) == [""]


def test_a_waiting_worker_of_another_queue_is_left_alone(store: Store, listener: Connection[Any], workers: WorkerVerbs) -> None:
    idle(store, workers, "bulk")
    store.put_new(1)
    store.put_new(10)
    assert heard(listener, store) == []
    store.put([*new(1), *new(1, queue="bulk")])
    assert heard(listener, store) == [""]


def test_a_job_for_later_wakes_nobody(store: Store, listener: Connection[Any], workers: WorkerVerbs) -> None:
    idle(store, workers, "default")
    store.put_new(1, delay=60.0)
    store.put_new(10, delay=60.0)
    assert heard(listener, store) == []


def test_the_dead_and_the_draining_are_not_woken(store: Store, listener: Connection[Any], workers: WorkerVerbs) -> None:
    for verb in (workers.drain, workers.expire):
        idle(store, workers, "default")
        run(store.conn, verb(store.one("select id from workers where idle")))
    store.put_new(1)
    assert heard(listener, store) == []


def test_a_wake_up_comes_with_the_commit_or_not_at_all(store: Store, listener: Connection[Any], workers: WorkerVerbs) -> None:
    idle(store, workers, "default")
    with store.conn.transaction(force_rollback=True):
        store.put_new(1)
    assert [note.payload for note in listener.notifies(timeout=0, stop_after=1)] == []
    with store.conn.transaction():
        store.put_new(1)
        store.put_new(1)
        assert [note.payload for note in listener.notifies(timeout=0, stop_after=1)] == []
    assert heard(listener, store) == [""]


@pytest.mark.parametrize("queue", ["default", LONG])
def test_neither_large_arguments_nor_long_names_travel_with_it(
    store: Store, listener: Connection[Any], workers: WorkerVerbs, queue: str
) -> None:
    idle(store, workers, queue)
    store.put_new(1, queue=queue, args=HUGE, size=len(HUGE), tenant="t" * 200, task="t" * 200)
    store.put([*new(1, queue=queue, args=HUGE, size=len(HUGE)), *new(1, queue=queue)])
    assert heard(listener, store) == ["", ""]
    assert store.count() == 3


@pytest.mark.parametrize("amount", [3000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_bulk_enqueue_sends_one(store: Store, app: App, listener: Connection[Any], workers: WorkerVerbs, amount: int) -> None:
    idle(store, workers, LONG)
    bulk.put(store.conn, app.database.statements, Feed((new(1, queue=LONG)[0] for _ in range(amount)), None, eager=False))
    assert heard(listener, store) == [""]
    assert store.count() == amount


def test_say_idle_is_written_only_when_it_changes(store: Store, workers: WorkerVerbs) -> None:
    idle(store, workers, "default")
    before = store.one("select xmin::text from workers")
    worker = store.one("select id from workers")
    run(store.conn, workers.say_idle(worker, idle=True))
    assert store.one("select xmin::text from workers") == before
    run(store.conn, workers.say_idle(worker, idle=False))
    assert store.one("select idle from workers") is False
