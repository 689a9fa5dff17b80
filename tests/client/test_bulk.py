"""Many jobs at once (cases D11 and H4): all or nothing, ids in input order, memory bounded, inside and outside a transaction."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import AsyncConnection, Connection

from jobwell import App, EnqueueError, InvalidArguments, NewJob, StoreUnavailable, TransactionMisuse
from jobwell.client.task import Task
from jobwell.store.wire import LoopConnection
from tests.client.helpers import BOTH, count, one

Put = Callable[..., Any]
PATHS = ["plain", "async", "within", "async within"]
MEGABYTE = 1024 * 1024


@pytest.fixture(params=PATHS)
def put(request: pytest.FixtureRequest, app: App, database_url: str, orders: str) -> Put:
    """`enqueue_many` by each path; the two inside a transaction write a row of the caller first and commit at the end."""

    row_of_the_caller = f"insert into {app.settings.schema}.orders values (1) on conflict do nothing"

    def plain(jobs: Iterable[NewJob]) -> Any:
        return app.enqueue_many(jobs)

    def within(jobs: Iterable[NewJob]) -> Any:
        with psycopg.connect(database_url) as caller:
            caller.execute(row_of_the_caller)  # type: ignore[call-overload]
            try:
                with app.within(caller):
                    return app.enqueue_many(jobs)
            finally:
                caller.commit()

    async def asynchronous(jobs: Iterable[NewJob]) -> Any:
        try:
            return await app.aenqueue_many(jobs)
        finally:
            await app.aclose()

    async def async_within(jobs: Iterable[NewJob]) -> Any:
        async with await AsyncConnection.connect(database_url) as caller:
            await caller.execute(row_of_the_caller)  # type: ignore[call-overload]
            try:
                with app.within(caller):
                    return await app.aenqueue_many(jobs)
            finally:
                await caller.commit()

    return {
        "plain": plain, "within": within, "async": lambda jobs: asyncio.run(asynchronous(jobs)),
        "async within": lambda jobs: asyncio.run(async_within(jobs)),
    }[request.param]  # fmt: skip


# --- any number ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0, 1, 2, 199, 200, 201, 2000, 2001, 4000, 10_000, 30_000])
def test_any_number_is_stored_in_input_order(put: Put, note: Task[..., None], conn: Connection[Any], amount: int) -> None:
    ids = put(note.job(n) for n in range(amount))
    assert len(ids) == amount == count(conn)
    rows = conn.execute("select id from jobs order by (args->>'n')::int").fetchall()
    assert list(ids) == [row[0] for row in rows] == sorted(ids)


def jobs_of_two_kilobytes(note: Task[..., None], amount: int, look: Callable[[], object] = int) -> Iterator[NewJob]:
    for n in range(amount):
        if n % 5000 == 0:
            look()
        yield note.job(n, text="x" * 1500)


def check_stored(conn: Connection[Any], ids: Any, amount: int) -> None:
    assert len(ids) == amount
    assert one(conn, "select count(*), count(distinct id), min((args->>'n')::int), max((args->>'n')::int) from jobs") == (
        amount, amount, 0, amount - 1,
    )  # fmt: skip
    for at in (0, amount // 2, amount - 1):
        assert one(conn, "select args->>'n' from jobs where id = %s", ids[at]) == str(at)


def test_memory_does_not_grow_with_the_number_of_jobs(put: Put, note: Task[..., None], conn: Connection[Any]) -> None:
    note.job(0)  # what is made once is made
    tracemalloc.start()
    try:
        ids = put(jobs_of_two_kilobytes(note, 12_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * MEGABYTE  # a piece on its way, and not the 24 MB of all
    check_stored(conn, ids, 12_000)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_quarter_of_a_million_takes_little_memory(put: Put, note: Task[..., None], conn: Connection[Any]) -> None:
    process = psutil.Process()
    seen: list[int] = []
    ids = put(jobs_of_two_kilobytes(note, 250_000, lambda: seen.append(process.memory_info().rss)))
    assert max(seen) - seen[0] < 40 * MEGABYTE
    check_stored(conn, ids, 250_000)


def test_memory_does_not_grow_with_the_number_of_large_jobs(put: Put, note: Task[..., None], conn: Connection[Any]) -> None:
    """900 jobs of 100 KB are 90 MB; the first 200 are looked at before, and a piece of 8 MB is on its way at a time."""
    peaks = []
    for amount in (300, 900):
        tracemalloc.start()
        try:
            ids = put(note.job(n, text="x" * 100_000) for n in range(amount))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert len(ids) == amount
    assert count(conn) == count(conn, "payloads") == 1200
    assert peaks[1] - peaks[0] < 20 * MEGABYTE


# --- nothing is lost -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("amount", "size"), [(250, 100_000), (201, 250_000), (450, 50_000), (1000, 20_000), (150, 100_000)])
def test_no_job_with_large_arguments_is_lost(
    put: Put, note: Task[..., None], conn: Connection[Any], amount: int, size: int
) -> None:
    ids = put(note.job(n, text="x" * (size if n % 2 else 10)) for n in range(amount))
    assert len(ids) == amount
    stored = conn.execute(
        "select id, (coalesce(j.args, p.args)->>'n')::int, length(coalesce(j.args, p.args)->>'text')"
        " from jobs j left join payloads p using (id) order by 2"
    ).fetchall()
    assert stored == [(job, n, size if n % 2 else 10) for n, job in enumerate(ids)]


def test_all_options_survive(app: App, put: Put, note: Task[..., None], conn: Connection[Any]) -> None:
    @app.task(name="other", queue="bulk", priority=7)
    async def other(x: str) -> None: ...

    def three() -> list[NewJob]:
        return [note.using(tenant="a", priority=5).job(1), other.using(run_after="1h").job("ж"), note.job(2, text="x" * 5000)]

    jobs = [job for _ in range(100) for job in three()]
    ids = put(jobs)
    rows = conn.execute("select id, task, queue, rank, tenant, state, bytes, gate from jobs order by id").fetchall()
    expected = [
        (job.id, job.task, job.queue, job.rank, job.tenant, "scheduled" if job.delay else "ready", job.size, job.gate)
        for job in jobs
    ]
    assert rows == sorted(expected)
    assert list(ids) == [job.id for job in jobs]


def test_a_small_bulk_is_the_same_as_single_jobs(app: App, put: Put, note: Task[..., None], conn: Connection[Any]) -> None:
    columns = (
        "task, queue, rank, gate, tenant, lock_key, state, args::text, bytes, deadline - run_at, ready_at is null, attempt, meta"
    )
    note.using(tenant="a").enqueue(1)
    put([note.using(tenant="a").job(1)])
    put(note.using(tenant="a").job(1) for _ in range(10))
    put(note.using(tenant="a").job(1) for _ in range(300))
    assert len(set(conn.execute(f"select {columns} from jobs").fetchall())) == 1
    assert count(conn) == 312


# --- all or nothing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 150, 250, 1500, 2999])
def test_a_bad_job_leaves_nothing_and_its_position_is_told(
    request: pytest.FixtureRequest, put: Put, note: Task[..., None], conn: Connection[Any], at: int
) -> None:
    with pytest.raises(InvalidArguments, match=f"^job {at} of this call: note: n: ") as refused:
        put(note.job("bad" if n == at else n) for n in range(3000))
    assert refused.value.path == "n"
    assert count(conn) == count(conn, "payloads") == 0
    if "within" in request.node.callspec.params["put"]:
        assert count(conn, "orders") == 1  # the caller's own work is untouched


def test_an_error_of_the_callers_own_generator_leaves_nothing(put: Put, note: Task[..., None], conn: Connection[Any]) -> None:
    def jobs() -> Iterator[NewJob]:
        for n in range(3000):
            if n == 2500:
                raise ZeroDivisionError
            yield note.job(n, text="x" * (3000 if n % 2 else 1))

    with pytest.raises(ZeroDivisionError):
        put(jobs())
    assert count(conn) == count(conn, "payloads") == 0


@pytest.mark.parametrize(("wrong", "said"), [(5, "job 2 of this call is a int"), (None, "is a NoneType")])
@pytest.mark.parametrize("amount", [10, 1000])
def test_what_is_no_job_is_refused(
    put: Put, note: Task[..., None], conn: Connection[Any], wrong: Any, said: str, amount: int
) -> None:
    with pytest.raises(EnqueueError, match=f"{said}; give task.job"):
        put(wrong if n == 2 else note.job(n) for n in range(amount))
    assert count(conn) == 0


def test_the_same_job_twice_leaves_nothing(put: Put, note: Task[..., None], conn: Connection[Any]) -> None:
    jobs = [note.job(n) for n in range(300)]
    with pytest.raises(EnqueueError, match=r"was (given|enqueued) before.*make each with task\.job\(…\) of its own"):
        put([*jobs, jobs[0]])
    with pytest.raises(EnqueueError, match="job 100 of this call was given before"):
        put([*jobs[:100], jobs[7]])
    assert count(conn) == 0


@pytest.mark.parametrize("many", BOTH)
@pytest.mark.parametrize("amount", [1, 300])
def test_a_job_of_an_earlier_call_leaves_nothing(
    app: App, note: Task[..., None], conn: Connection[Any], many: Put, amount: int
) -> None:
    first = note.job(-1)
    many(app, [first])
    with pytest.raises(EnqueueError, match=f"was enqueued before, in this call or an earlier one.*{first.id}"):
        many(app, [first, *(note.job(n) for n in range(amount))])
    assert count(conn) == 1


@pytest.mark.parametrize("many", BOTH)
@pytest.mark.parametrize("at", [0, 150, 250, 2500])
@pytest.mark.parametrize(
    "error",
    [psycopg.OperationalError("server closed the connection"), psycopg.errors.UndefinedTable("no orders"), StoreUnavailable("x")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_stream_is_not_told_as_one_of_the_store(
    app: App, note: Task[..., None], conn: Connection[Any], many: Put, at: int, error: Exception
) -> None:
    def jobs() -> Iterator[NewJob]:
        for n in range(3000):
            if n == at:
                raise error
            yield note.job(n)

    with pytest.raises(type(error)) as raised:
        many(app, jobs())
    assert raised.value is error
    assert error.__cause__ is None
    assert count(conn) == 0


# --- the caller's transaction --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [5, 5000])
def test_a_bulk_vanishes_with_the_transaction(
    app: App, note: Task[..., None], conn: Connection[Any], caller: Connection[Any], amount: int
) -> None:
    caller.execute("insert into orders values (1)")
    app.enqueue_many((note.job(n, text="x" * 3000) for n in range(amount)), conn=caller)
    assert count(conn) == 0
    caller.rollback()
    assert count(conn) == count(conn, "payloads") == count(conn, "orders") == 0


@pytest.mark.parametrize("amount", [5, 5000])
def test_a_bulk_that_fails_is_a_savepoint_of_the_transaction(
    app: App, note: Task[..., None], conn: Connection[Any], caller: Connection[Any], amount: int
) -> None:
    caller.execute("insert into orders values (1)")
    with app.within(caller):
        app.enqueue_many(note.job(n) for n in range(amount))
        with pytest.raises(InvalidArguments):
            app.enqueue_many(note.job("bad" if n == amount - 1 else n) for n in range(amount))
    caller.execute("insert into orders values (2)")
    caller.commit()
    assert (count(conn), count(conn, "orders")) == (amount, 2)


@pytest.mark.parametrize("name", [None, "of_the_server"])
def test_jobs_may_be_made_from_a_cursor_of_the_same_transaction(
    app: App, note: Task[..., None], conn: Connection[Any], caller: Connection[Any], name: str | None
) -> None:
    caller.execute("insert into orders select generate_series(1, 5000)")
    with caller.cursor(name) if name else caller.cursor() as cursor:  # type: ignore[call-overload]
        cursor.execute("select id from orders order by id")
        ids = app.enqueue_many((note.job(row[0], text="x" * (3000 if row[0] % 100 == 0 else 1)) for row in cursor), conn=caller)
    caller.commit()
    assert [row[0] for row in conn.execute("select id from jobs order by id")] == list(ids)
    assert one(conn, "select min((coalesce(j.args, p.args)->>'n')::int), max((coalesce(j.args, p.args)->>'n')::int), count(*)"
                     " from jobs j left join payloads p using (id)") == (1, 5000, 5000)  # fmt: skip


def test_other_code_of_the_loop_goes_on_during_a_bulk(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    async def run() -> int:
        loop, ticks, done = asyncio.get_running_loop(), 0, False

        def tick() -> None:
            nonlocal ticks
            ticks += 1
            if not done:
                loop.call_soon(tick)

        tick()
        await app.aenqueue_many(note.job(n, text="x" * 500) for n in range(20_000))
        done = True
        await app.aclose()
        return ticks

    assert asyncio.run(run()) > 20
    assert count(conn) == 20_000


def test_an_async_generator_is_refused_plainly(app: App, note: Task[..., None]) -> None:
    async def jobs() -> AsyncIterator[NewJob]:
        yield note.job(1)

    with pytest.raises(TypeError, match="not iterable"):
        app.enqueue_many(jobs())  # type: ignore[arg-type]


@pytest.mark.parametrize(("at", "stored"), [(300, 0), (2500, 2000), (4999, 4000)])
@pytest.mark.parametrize("way", ["commit; begin", "commit", "rollback"])
def test_a_stream_that_ends_the_callers_transaction_is_told_how_much_was_stored(
    app: App, note: Task[..., None], conn: Connection[Any], database_url: str, at: int, stored: int, way: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as caller:

        def stream() -> Iterator[NewJob]:
            for n in range(5000):
                if n == at:
                    caller.execute(way)  # past psycopg, which would refuse its own verbs here
                yield note.job(n)

        caller.execute("begin")
        found = (
            f"{stored} jobs of this call were stored in it before, and it is {'aborted' if way == 'rollback' else 'committed'}"
        )
        with pytest.raises(TransactionMisuse, match=found):
            app.enqueue_many(stream(), conn=caller)
        caller.execute("rollback")
    assert count(conn) == (0 if way == "rollback" else stored)


@pytest.mark.asyncio
@pytest.mark.parametrize("lent", [False, True])
async def test_a_task_cancelled_when_the_copy_has_just_begun_rolls_back_in_silence(
    aapp: App, note: Task[..., None], conn: Connection[Any], acaller: AsyncConnection[Any], orders: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, lent: bool,
) -> None:  # fmt: skip
    """The driver waits for the answer to the end, drops it, and raises: the server is in COPY, and nobody knows."""
    await acaller.execute("insert into orders values (1)")
    kind = AsyncConnection if lent else LoopConnection
    wait = kind.wait

    async def cancelled(self: Any, gen: Any, *given: Any, **options: Any) -> Any:
        answer = await wait(self, gen, *given, **options)
        if gen.__name__ == "_start_copy_gen":
            raise asyncio.CancelledError
        return answer

    with monkeypatch.context() as patch, pytest.raises(asyncio.CancelledError):
        patch.setattr(kind, "wait", cancelled)
        await aapp.aenqueue_many((note.job(n) for n in range(300)), conn=acaller if lent else None)
    await acaller.commit()
    assert (count(conn), count(conn, orders)) == (0, 1)
    assert not caplog.records
    await aapp.aenqueue_many(note.job(n) for n in range(300))
    assert count(conn) == 300


@pytest.mark.parametrize("many", [1, 300])
def test_texts_are_the_same_whatever_the_encoding_of_the_callers_connection(app: App, database_url: str, many: int) -> None:
    """By an INSERT and by a COPY, whose texts the server reads in the connection's encoding."""

    @app.task(tenant="branch")
    def greet(branch: str, text: str) -> None: ...

    with psycopg.connect(database_url, client_encoding="LATIN1") as caller:
        app.enqueue_many([greet.job("Zürich", "é" * 2000) for _ in range(many)], conn=caller)
    with psycopg.connect(database_url) as conn:
        table = app.settings.schema
        found = conn.execute(
            f"select distinct j.tenant, coalesce(j.args, p.args) ->> 'text' = repeat('é', 2000) from {table}.jobs j"  # type: ignore[arg-type]  a name of ours
            f" left join {table}.payloads p on p.id = j.id"
        ).fetchall()
    assert found == [("Zürich", True)]
