"""Wake-ups (case E7): empty, one for each statement, and only where a worker waits."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from jobwell import App
from jobwell.client.task import Task
from jobwell.core.ids import new_id
from tests.client.helpers import BOTH, count

Heard = Callable[[], list[str]]


@pytest.fixture
def heard(app: App, conn: Connection[Any], database_url: str) -> Iterator[Heard]:
    """The payloads of the wake-ups until now. Notifications arrive in the order of commits, so a marker ends the wait."""
    channel = app.database.statements.channel
    with psycopg.connect(database_url, autocommit=True) as ear:
        ear.execute(f'listen "{channel}"')  # type: ignore[call-overload]

        def until_now() -> list[str]:
            conn.execute("select pg_notify(%s, 'the end')", [channel])
            payloads = []
            for notification in ear.notifies(timeout=10):
                if notification.payload == "the end":
                    return payloads
                payloads.append(notification.payload)
            pytest.fail("the marker did not arrive")

        yield until_now


@pytest.fixture
def worker(conn: Connection[Any]) -> Callable[..., None]:
    """Makes a row of a worker."""

    def make(*queues: str, idle: bool = True) -> None:
        conn.execute(
            "insert into workers (id, lease_until, idle, pid, host, name, version, slots, queues)"
            " values (%s, now() + interval '1 hour', %s, 1, 'host', 'name', '1', 10, %s)",
            [new_id(), idle, list(queues)],
        )

    return make


def test_an_idle_worker_is_woken_without_a_payload(note: Task[..., None], heard: Heard, worker: Any) -> None:
    worker("default", "bulk")
    note.enqueue(1)
    assert heard() == [""]


@pytest.mark.parametrize("text", ["x" * 7_990, "x" * 8_000, "x" * 250_000])
def test_the_size_of_the_arguments_does_not_matter(note: Task[..., None], heard: Heard, worker: Any, text: str) -> None:
    worker("default")
    note.enqueue(1, text=text)
    assert heard() == [""]


def test_a_megabyte_of_arguments_wakes_as_well(
    database_url: str, schema: str, heard: Heard, worker: Any, conn: Connection[Any]
) -> None:
    app = App(database_url, schema=schema, payload_limit=2_000_000)

    @app.task
    def task(text: str) -> None: ...

    worker("default")
    task.enqueue("x" * 1_000_000)
    assert heard() == [""]
    app.close()


def test_a_queue_name_of_200_characters_works(
    database_url: str, schema: str, heard: Heard, worker: Any, conn: Connection[Any]
) -> None:
    name = "q" * 200
    app = App(database_url, schema=schema, queues=[name])

    @app.task(queue=name)
    def task() -> None: ...

    worker(name)
    task.enqueue()
    app.enqueue_many(task.job() for _ in range(300))
    assert heard() == ["", ""]
    assert count(conn) == 301
    app.close()


@pytest.mark.parametrize("many", BOTH)
@pytest.mark.parametrize("amount", [2, 199, 200, 5000])
def test_a_bulk_wakes_once_whatever_its_size_and_queues(
    app: App, note: Task[..., None], heard: Heard, worker: Any, many: Any, amount: int
) -> None:
    @app.task(name="other", queue="bulk")
    def other(n: int) -> None: ...

    worker("default", "bulk")
    worker("bulk")
    worker("default")
    many(app, ((note if n % 2 else other).job(n) for n in range(amount)))
    assert heard() == [""]


def test_without_an_idle_worker_of_the_queue_nobody_is_told(app: App, note: Task[..., None], heard: Heard, worker: Any) -> None:
    note.enqueue(1)
    worker("default", idle=False)
    worker("reports")
    note.enqueue(2)
    app.enqueue_many(note.job(n) for n in range(300))
    assert heard() == []


def test_a_job_for_later_wakes_nobody(app: App, note: Task[..., None], heard: Heard, worker: Any) -> None:
    worker("default")
    note.using(run_after="1h").enqueue(1)
    app.enqueue_many(note.using(run_after="1h").job(n) for n in range(10))
    app.enqueue_many(note.using(run_after="1h").job(n) for n in range(300))
    assert heard() == []


def test_within_a_transaction_the_wake_up_comes_with_the_commit(
    app: App, note: Task[..., None], heard: Heard, worker: Any, caller: Connection[Any]
) -> None:
    worker("default")
    with app.within(caller):
        note.enqueue(1)
        note.enqueue(2)
    assert heard() == []
    caller.commit()
    assert heard() == [""]
    note.using(conn=caller).enqueue(3)
    caller.rollback()
    assert heard() == []
