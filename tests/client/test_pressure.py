"""Queues with a limit: refused at the door, with nothing stored, without harm to the caller's transaction, and counted once."""

import asyncio
import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, Connection

from jobwell import App, NewJob, NotFound, Queue, QueueFull
from jobwell.client.pressure import Figure
from jobwell.client.task import Task
from jobwell.core.classify import classify
from jobwell.store.pressure import Length, lengths
from jobwell.store.statements import run
from tests.client.helpers import count, one

SOFT, HARD = 250, 300
Conn = Connection[Any]


class Clock:
    """The client's, by hand; the store's figure grows old with it."""

    def __init__(self, conn: Conn) -> None:
        self.now = 100.0
        self._conn = conn

    def __call__(self) -> float:
        return self.now

    def later(self, seconds: float = 2.0) -> None:
        self.now += seconds
        self._conn.execute("update queue_lengths set counted_at = counted_at - make_interval(secs => %s)", [seconds])


@pytest.fixture
def app(store_settings: dict[str, Any], schema: str, conn: Conn) -> Iterator[App]:
    """An app with limits."""
    app = App(**store_settings, schema=schema, queues=(Queue("bulk", soft=SOFT, hard=HARD), Queue("early", soft=2)))
    yield app
    app.close()


@pytest.fixture
def clock(app: App, conn: Conn) -> Clock:
    """Stands still until it is moved."""
    clock = Clock(conn)
    app.client.gauge.clock = clock
    return clock


@pytest.fixture
def item(app: App, clock: Clock) -> Task[[int], None]:
    """In the queue with the hard limit."""

    @app.task(name="item", queue="bulk")
    def item(n: int) -> None: ...

    return item


@pytest.fixture(params=["plain", "async", "within", "async within"])
def put(request: pytest.FixtureRequest, app: App, caller: Conn) -> Callable[[Any], Any]:
    """`enqueue_many` of an iterable, or `enqueue` of a number, by each path; the two within commit whatever comes."""

    async def asynchronous(jobs: Any, conn: Any) -> None:
        if isinstance(jobs, tuple):
            await jobs[0].using(conn=conn).aenqueue(jobs[1])
        else:
            await app.aenqueue_many(jobs, conn=conn)

    async def in_loop(jobs: Any) -> None:
        try:
            if request.param == "async":
                await asynchronous(jobs, None)
                return
            async with await AsyncConnection.connect(caller.info.dsn, password=caller.info.password) as own:
                try:
                    await asynchronous(jobs, own)
                finally:
                    await own.commit()
        finally:
            await app.aclose()

    def plain(jobs: Any, conn: Any) -> None:
        if isinstance(jobs, tuple):
            jobs[0].using(conn=conn).enqueue(jobs[1])
        else:
            app.enqueue_many(jobs, conn=conn)

    def put(jobs: Any) -> None:
        if request.param == "plain":
            plain(jobs, None)
        elif request.param == "within":
            try:
                plain(jobs, caller)
            finally:
                caller.commit()
        else:
            asyncio.run(in_loop(jobs))

    return put


# --- the hard limit ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, iter], ids=["list", "stream"])
def test_a_call_that_would_overflow_is_refused_and_nothing_of_it_is_stored(
    put: Callable[[Any], Any], item: Task[..., None], conn: Conn, kind: Callable[..., Any]
) -> None:
    with pytest.raises(QueueFull, match=r"queue 'bulk' is full: 300 jobs .* its hard limit is 300; nothing was enqueued"):
        put(kind([item.job(n) for n in range(HARD + 1)]))
    assert count(conn) == 0
    put(kind([item.job(n) for n in range(HARD)]))
    assert count(conn) == HARD
    for jobs in (kind([item.job(1)]), (item, 1)):
        with pytest.raises(QueueFull) as caught:
            put(jobs)
        assert (caught.value.queue, caught.value.length, caught.value.limit) == ("bulk", HARD, HARD)
    assert count(conn) == HARD


def test_one_by_one_it_fills_to_the_last_place_and_no_further(
    put: Callable[[Any], Any], item: Task[..., None], conn: Conn
) -> None:
    put(item.job(n) for n in range(HARD - 3))
    for n in range(3):
        put((item, n))
    with pytest.raises(QueueFull):
        put((item, 3))
    assert count(conn) == HARD


def test_room_is_seen_when_the_figure_is_counted_anew(item: Task[..., None], app: App, conn: Conn, clock: Clock) -> None:
    app.enqueue_many(item.job(n) for n in range(HARD))
    conn.execute("delete from jobs where (args->>'n')::int < 10")
    with pytest.raises(QueueFull):
        item.enqueue(1)  # the figure is not a second old
    clock.later()
    for n in range(10):
        item.enqueue(n)
    with pytest.raises(QueueFull):
        item.enqueue(11)


def test_other_queues_and_other_tasks_go_on(item: Task[..., None], app: App, conn: Conn) -> None:
    @app.task(name="other")
    def other(n: int) -> None: ...

    app.enqueue_many(item.job(n) for n in range(HARD))
    other.enqueue(1)
    app.enqueue_many(other.job(n) for n in range(1000))
    with pytest.raises(QueueFull):
        app.enqueue_many([other.job(1), item.job(1)])
    assert one(conn, "select count(*) from jobs where queue = 'default'") == 1001


def test_jobs_for_later_count_when_they_are_due_and_a_full_queue_takes_none(item: Task[..., None], app: App, conn: Conn) -> None:
    app.enqueue_many(item.using(run_after="1h").job(n) for n in range(2 * HARD))
    app.enqueue_many((item.job(n) for n in range(2 * HARD)), spread="1h")
    app.enqueue_many(item.job(n) for n in range(HARD - 1))
    assert app.pressure("bulk").length == HARD - 1
    item.enqueue(1)
    with pytest.raises(QueueFull):
        item.using(run_after="1h").enqueue(1)
    with pytest.raises(QueueFull):
        app.enqueue_many([item.job(1)], spread="1h")


def test_what_is_refused_does_not_hurt_the_callers_transaction(item: Task[..., None], app: App, caller: Conn, conn: Conn) -> None:
    app.enqueue_many(item.job(n) for n in range(HARD - 1))
    caller.execute("insert into orders values (1)")
    with app.within(caller):
        for jobs in ([item.job(1), item.job(2)], [item.job(n) for n in range(700)]):
            with pytest.raises(QueueFull):
                app.enqueue_many(jobs)
        item.enqueue(7)
        with pytest.raises(QueueFull):
            item.enqueue(8)
        caller.execute("insert into orders values (2)")
    caller.commit()
    assert (count(conn), count(conn, "orders")) == (HARD, 2)


def test_a_call_that_failed_by_itself_takes_no_room(item: Task[..., None], app: App) -> None:
    def broken() -> Iterator[NewJob]:
        for n in range(HARD):
            yield item.job(n)
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            app.enqueue_many(broken())
    assert app.pressure("bulk").length == 0
    app.enqueue_many(item.job(n) for n in range(HARD))


def test_many_threads_of_one_process_never_go_above_it(item: Task[..., None], app: App, conn: Conn) -> None:
    refused: list[int] = []

    def run() -> None:
        for n in range(60):
            try:
                item.enqueue(n)
            except QueueFull:
                refused.append(n)

    app.enqueue_many(item.job(n) for n in range(HARD - 100))
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (count(conn), len(refused)) == (HARD, 140)


def test_a_shared_figure_that_is_a_moment_old_hides_nothing_of_ones_own(
    item: Task[..., None], app: App, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock runs, and each enqueue looks at the figure anew: counted before most of the jobs were stored."""
    app.client.gauge.clock = time.monotonic
    monkeypatch.setattr("jobwell.client.pressure.LEAST", 0.0)
    monkeypatch.setattr("jobwell.client.pressure.MOST", 0.0)
    seen = asked(app, monkeypatch)
    app.enqueue_many(item.job(n) for n in range(HARD - 50))
    refused = 0
    for n in range(60):
        try:
            item.enqueue(n)
        except QueueFull:
            refused += 1
    assert (count(conn), refused, len(seen)) == (HARD, 10, 61)


def test_a_steady_stream_that_is_worked_off_at_once_does_not_pile_up_in_the_figure() -> None:
    figure = Figure()
    for n in range(10_000):  # a hundred a second, and a look each second at a count half a second old: an empty queue
        figure.add(1, n / 100)
        if n % 100 == 0:
            figure.learn(Length(0, 0.5, 0.5), n / 100)
            assert figure.length <= 56
        assert len(figure.added) <= 32
    figure.learn(Length(3, 1.0, 0.0), 101.0)
    assert figure.length == 3


def test_nothing_that_is_in_the_store_is_ever_refused(item: Task[..., None], app: App, conn: Conn) -> None:
    """Becoming due, and a retry by hand: by the store's own verbs, which know of no limit."""
    from jobwell.actions import jobs as actions

    app.enqueue_many(item.using(run_after="1h").job(n) for n in range(2))
    conn.execute("update jobs set state = 'retrying' where (args->>'n')::int = 0")
    app.enqueue_many(item.job(n) for n in range(10, 10 + HARD))
    jobs: dict[str, Any] = dict(conn.execute("select state, id from jobs where state <> 'ready'").fetchall())
    assert actions.named(app.database, "jobs.retry", [jobs["retrying"]], by="olga").touched == 1
    conn.execute("update jobs set run_at = now() where state = 'scheduled'")
    assert one(conn, "select flipped from flip_due(10)") == 1
    assert one(conn, "select count(*) from jobs where state = 'ready'") == HARD + 2


def test_a_task_that_meets_a_full_queue_tries_again_later() -> None:
    error = QueueFull("no", queue="bulk", length=3, limit=3)
    assert classify(error).kind == "temporary"
    again = pickle.loads(pickle.dumps(error))
    assert (again.queue, again.length, again.limit, str(again)) == ("bulk", 3, 3, "no")


# --- the soft limit ------------------------------------------------------------------------------------------------------


def test_the_soft_limit_warns_once_a_minute(
    item: Task[..., None], app: App, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if "soft limit" in record.getMessage()]

    with caplog.at_level(logging.WARNING, "jobwell.client"):
        app.enqueue_many(item.job(n) for n in range(SOFT))
        assert warnings() == []
        for n in range(5):
            item.enqueue(n)
        assert warnings() == ["queue bulk holds 250 ready jobs or more, its soft limit is 250; at 300 it takes no more"]
        clock.later(61)
        item.enqueue(7)
        assert len(warnings()) == 2


def test_code_can_look_at_the_pressure(item: Task[..., None], app: App) -> None:
    found = app.pressure("bulk")
    assert (found.length, found.ratio, found.soft_full, found.full) == (0, 0.0, False, False)
    app.enqueue_many(item.job(n) for n in range(270))
    found = app.pressure("bulk")
    assert (found.queue, found.length, found.soft, found.hard) == ("bulk", 270, SOFT, HARD)
    assert (found.ratio, found.soft_full, found.full) == (0.9, True, False)

    async def look() -> Any:
        try:
            return await app.apressure("bulk")
        finally:
            await app.aclose()

    assert asyncio.run(look()) == found
    with pytest.raises(NotFound, match="queue 'default' has no limit"):
        app.pressure("default")


def test_a_soft_limit_alone_refuses_nothing(app: App, clock: Clock, conn: Conn) -> None:
    @app.task(name="soft", queue="early")
    def soft(n: int) -> None: ...

    app.enqueue_many(soft.job(n) for n in range(10))
    clock.later()
    assert app.pressure("early").soft_full
    soft.enqueue(1)
    assert count(conn) == 11


# --- what it costs -------------------------------------------------------------------------------------------------------


def asked(app: App, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Each question of a client about lengths."""
    seen: list[object] = []
    monkeypatch.setattr("jobwell.client.pressure.lengths", lambda *args: seen.append(args) or lengths(*args))
    return seen


def test_the_store_is_asked_once_a_second_and_never_for_queues_without_a_limit(
    item: Task[..., None], app: App, clock: Clock, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(name="other")
    def other(n: int) -> None: ...

    seen = asked(app, monkeypatch)
    other.enqueue(1)
    assert not seen
    for n in range(20):
        item.enqueue(n)
        other.enqueue(n)
    app.enqueue_many(item.job(n) for n in range(20))
    assert len(seen) == 1
    clock.later()
    item.enqueue(1)
    assert len(seen) == 2


def test_a_count_is_shared_by_all_and_grows_rarer_the_longer_it_takes(app: App, conn: Conn) -> None:
    def ask(cap: int = 5) -> int:
        return run(conn, lengths(app.database.statements, {"bulk": cap}))["bulk"].jobs

    insert = "insert into jobs (id, gate, task, queue) select gen_random_uuid(), 1, 'item', 'bulk' from generate_series(1, %s)"
    conn.execute(insert, [3])
    assert ask() == 3
    conn.execute(insert, [4])
    assert ask() == 3  # counted a moment ago
    assert ask(6) == 6  # but not so far
    assert ask(4) == 4
    conn.execute("update queue_lengths set counted_at = counted_at - interval '2 seconds', length = 1, took = 0.2")
    assert ask() == 1  # stands for four seconds, since it took long
    conn.execute("update queue_lengths set counted_at = counted_at - interval '3 seconds'")
    assert ask() == 5  # counted no further than the cap
    conn.execute("update queue_lengths set counted_at = counted_at + interval '1 hour', length = 1")
    assert ask() == 5  # a clock that was set back


def test_while_one_counts_the_others_take_what_there_is(app: App, conn: Conn, caller: Conn) -> None:
    statements = app.database.statements
    assert run(conn, lengths(statements, {"bulk": 5}))["bulk"].jobs == 0
    conn.execute("insert into jobs (id, gate, task, queue) values (gen_random_uuid(), 1, 'item', 'bulk')")
    conn.execute("update queue_lengths set counted_at = counted_at - interval '1 minute'")
    assert run(caller, lengths(statements, {"bulk": 5}))["bulk"].jobs == 1  # a transaction that stays open
    assert run(conn, lengths(statements, {"bulk": 5}))["bulk"].jobs == 0
    assert run(conn, lengths(statements, {"bulk": 9}))["bulk"].jobs == 1  # nobody has counted so far
    caller.rollback()


def test_where_the_figure_cannot_be_had_nobody_is_stopped(
    item: Task[..., None], app: App, clock: Clock, conn: Conn, caplog: pytest.LogCaptureFixture
) -> None:
    app.enqueue_many(item.job(n) for n in range(HARD))
    clock.later()
    conn.execute("alter function queue_length rename to queue_length_away")
    try:
        with caplog.at_level(logging.WARNING, "jobwell.client"):
            for n in range(5):
                item.enqueue(n)
        assert [record.getMessage() for record in caplog.records if "no limit is held" in record.getMessage()][1:] == []
    finally:
        conn.execute("alter function queue_length_away rename to queue_length")
    assert count(conn) == HARD + 5
    clock.later(31)
    with pytest.raises(QueueFull):
        item.enqueue(1)


def test_a_caller_that_holds_the_last_connection_is_not_kept_waiting(
    item: Task[..., None], app: App, caller: Conn, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("FATAL:  sorry, too many clients already")

    with app.within(caller):
        item.enqueue(0)  # by now it is known where the connection leads
        app.client.gauge.clock.later()
        monkeypatch.setattr("jobwell.store.database.PlainConnection.connect", full)
        item.enqueue(1)
    caller.commit()
    assert count(conn) == 2
