"""Enqueue within the caller's transaction: the job exists if and only if the caller's row does (cases L1 and L2)."""

import asyncio
import contextvars
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, Connection, Cursor
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from jobwell import App, InvalidArguments, TransactionMisuse
from jobwell.client.guard import LASTS
from jobwell.client.task import Task
from jobwell.store.borrowed import key
from jobwell.store.migrations import migrate
from tests.client.helpers import count, one

Caller = Connection[Any]
ACaller = AsyncConnection[Any]
ROW = "insert into orders values ({})"


def row(number: int) -> Any:
    """The caller's own work."""
    return ROW.format(number)


# --- commit and rollback -------------------------------------------------------------------------------------------------


def test_a_job_appears_with_the_commit_and_not_before(app: App, note: Task[..., None], conn: Caller, caller: Caller) -> None:
    with app.within(caller):
        caller.execute(row(1))
        note.enqueue(1)
        assert count(conn) == 0
    assert count(conn) == 0  # the end of `within` commits nothing
    assert caller.info.transaction_status == TransactionStatus.INTRANS
    caller.commit()
    assert (count(conn), count(conn, "orders")) == (1, 1)


def test_a_job_vanishes_with_the_rollback(app: App, note: Task[..., None], conn: Caller, caller: Caller) -> None:
    with app.within(caller):
        caller.execute(row(1))
        note.enqueue(1, text="x" * 3000)
        app.enqueue_many(note.job(n) for n in range(300))
    caller.rollback()
    assert (count(conn), count(conn, "payloads"), count(conn, "orders")) == (0, 0, 0)


def test_the_explicit_form_does_the_same(app: App, note: Task[..., None], conn: Caller, caller: Caller) -> None:
    note.using(conn=caller).enqueue(1)
    caller.rollback()
    note.using(conn=caller, priority=5).enqueue(2)
    assert count(conn) == 0
    caller.commit()
    assert one(conn, "select args->>'n', rank from jobs") == ("2", 95)


@pytest.mark.asyncio
async def test_async_commit_and_rollback(aapp: App, note: Task[..., None], conn: Caller, acaller: ACaller) -> None:
    with aapp.within(acaller):
        await acaller.execute(row(1))
        await note.aenqueue(1)
    await acaller.rollback()
    assert (count(conn), count(conn, "orders")) == (0, 0)
    with aapp.within(acaller):
        await acaller.execute(row(2))
        await note.aenqueue(2)
        assert count(conn) == 0
    await note.using(conn=acaller).aenqueue(3)
    await acaller.commit()
    assert (count(conn), count(conn, "orders")) == (2, 1)


def test_a_rolled_back_savepoint_takes_its_jobs_along_and_no_others(
    app: App, note: Task[..., None], conn: Caller, caller: Caller
) -> None:
    with app.within(caller), caller.transaction():
        note.enqueue(1)
        with caller.transaction(force_rollback=True):
            note.enqueue(2)
            app.enqueue_many(note.job(2) for _ in range(300))
        with caller.transaction():
            note.enqueue(3)
    caller.commit()
    assert [n for (n,) in conn.execute("select args->>'n' from jobs order by id")] == ["1", "3"]


@pytest.mark.asyncio
async def test_an_async_savepoint_too(aapp: App, note: Task[..., None], conn: Caller, acaller: ACaller) -> None:
    with aapp.within(acaller):
        await note.aenqueue(1)
        async with acaller.transaction(force_rollback=True):
            await note.aenqueue(2)
    await acaller.commit()
    assert one(conn, "select args->>'n' from jobs") == "1"


def test_an_error_inside_leaves_the_decision_to_the_caller(app: App, note: Task[..., None], conn: Caller, caller: Caller) -> None:
    def work() -> None:
        with app.within(caller):
            note.enqueue(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert caller.info.transaction_status == TransactionStatus.INTRANS
    caller.commit()
    assert count(conn) == 1


def test_refused_arguments_do_not_break_the_transaction(app: App, note: Task[..., None], conn: Caller, caller: Caller) -> None:
    with app.within(caller):
        caller.execute(row(1))
        with pytest.raises(InvalidArguments):
            note.enqueue("x")
        with pytest.raises(InvalidArguments):
            note.enqueue(1, text="\x00")
        caller.execute(row(2))
        note.enqueue(2)
    caller.commit()
    assert (count(conn), count(conn, "orders")) == (1, 2)


# --- which connection is meant -------------------------------------------------------------------------------------------


@pytest.fixture
def second(database_url: str, orders: str) -> Iterator[Caller]:
    """Another connection of the caller."""
    with psycopg.connect(database_url) as second:
        yield second
        second.rollback()


def test_the_innermost_within_counts_and_an_explicit_connection_wins(
    app: App, note: Task[..., None], conn: Caller, caller: Caller, second: Caller
) -> None:
    with app.within(caller):
        note.enqueue(1)
        with app.within(second):
            note.enqueue(2)
            note.using(conn=caller).enqueue(3)
            app.enqueue_many([note.job(4)], conn=caller)
        note.enqueue(5)
    second.rollback()
    caller.commit()
    note.enqueue(6)
    assert [n for (n,) in conn.execute("select args->>'n' from jobs order by id")] == ["1", "3", "4", "5", "6"]


def test_a_job_for_a_bulk_cannot_carry_a_connection(app: App, note: Task[..., None], conn: Caller, caller: Caller) -> None:
    """It would be committed at once, whatever became of the caller's rows."""
    with pytest.raises(TransactionMisuse, match=r"give it as `enqueue_many\(…, conn=conn\)`"):
        app.enqueue_many(note.using(conn=caller).job(n) for n in range(3))
    assert count(conn) == 0


def test_one_within_may_be_entered_again(app: App, note: Task[..., None], conn: Caller, caller: Caller) -> None:
    inside = app.within(caller)
    for n in (1, 2):
        with inside:
            note.enqueue(n)
    caller.commit()
    assert count(conn) == 2


def test_another_app_on_the_same_store_is_inside_too(
    app: App, database_url: str, schema: str, note: Task[..., None], conn: Caller, caller: Caller
) -> None:
    other = App(database_url, schema=schema)

    @other.task(name="other")
    def task() -> None: ...

    with app.within(caller):
        task.enqueue()
    caller.rollback()
    assert count(conn) == 0
    other.close()


# --- connections on which the promise cannot be kept ---------------------------------------------------------------------


def test_an_idle_autocommit_connection_is_refused(app: App, note: Task[..., None], conn: Caller, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as auto:
        with (
            pytest.raises(TransactionMisuse, match=r"autocommit mode and has no open transaction.*with conn\.transaction\(\):"),
            app.within(auto),
        ):
            note.enqueue(1)
        with pytest.raises(TransactionMisuse, match="autocommit"):
            note.using(conn=auto).enqueue(1)
        with pytest.raises(TransactionMisuse, match="autocommit"):
            app.enqueue_many([note.job(1)], conn=auto)
    assert count(conn) == 0


def test_autocommit_with_an_open_transaction_is_taken_as_long_as_it_is_open(
    app: App, note: Task[..., None], conn: Caller, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as auto:
        with auto.transaction(force_rollback=True), app.within(auto):
            note.enqueue(1)
        with auto.transaction():
            inside = app.within(auto)
            inside.__enter__()
            note.enqueue(2)
        with pytest.raises(TransactionMisuse, match="autocommit"):
            note.enqueue(3)
        inside.__exit__(None, None, None)
    assert one(conn, "select args->>'n' from jobs") == "2"


@pytest.mark.asyncio
async def test_an_idle_async_autocommit_connection_is_refused(
    aapp: App, note: Task[..., None], conn: Caller, database_url: str
) -> None:
    async with await AsyncConnection.connect(database_url, autocommit=True) as auto:
        with pytest.raises(TransactionMisuse, match="autocommit"), aapp.within(auto):
            await note.aenqueue(1)
        with pytest.raises(TransactionMisuse, match="autocommit"):
            await note.using(conn=auto).aenqueue(1)
    assert count(conn) == 0


def test_a_plain_enqueue_on_an_async_connection_is_refused(
    app: App, note: Task[..., None], conn: Caller, database_url: str
) -> None:
    async def run() -> None:
        async with await AsyncConnection.connect(database_url) as there:
            with app.within(there):
                for verb in (lambda: note.enqueue(1), lambda: app.enqueue_many([note.job(1)])):
                    with pytest.raises(TransactionMisuse, match=r"on the async connection given; call `await .*aenqueue"):
                        verb()
                await note.aenqueue(2)

    asyncio.run(run())
    assert count(conn) == 1


@pytest.mark.asyncio
async def test_an_async_enqueue_on_a_plain_connection_is_refused(
    aapp: App, note: Task[..., None], conn: Caller, caller: Caller
) -> None:
    caller.execute(row(1))
    with aapp.within(caller):
        with pytest.raises(TransactionMisuse, match=r"on the plain connection given; call `task\.enqueue"):
            await note.aenqueue(1)
        with pytest.raises(TransactionMisuse):
            await aapp.aenqueue_many([note.job(1)])
        note.enqueue(2)
    caller.commit()
    assert (count(conn), count(conn, "orders")) == (1, 1)


def test_a_closed_connection_is_refused(app: App, note: Task[..., None], database_url: str) -> None:
    closed = psycopg.connect(database_url)
    with app.within(closed):
        closed.close()
        with pytest.raises(TransactionMisuse, match="is closed; nothing was enqueued"):
            note.enqueue(1)
    with pytest.raises(TransactionMisuse, match="is closed"):
        app.within(closed).__enter__()


def test_a_failed_transaction_is_refused_and_can_be_rolled_back(
    app: App, note: Task[..., None], conn: Caller, caller: Caller
) -> None:
    with app.within(caller):
        note.enqueue(1)
        with pytest.raises(psycopg.errors.DivisionByZero):
            caller.execute("select 1/0")
        with pytest.raises(TransactionMisuse, match="has failed already and can only be rolled back"):
            note.enqueue(2)
        caller.rollback()
        note.enqueue(3)
    caller.commit()
    assert one(conn, "select args->>'n' from jobs") == "3"


@pytest.mark.parametrize(
    "wrong", [5, "postgresql://db/jobs", sqlite3.connect(":memory:"), object()], ids=lambda wrong: type(wrong).__name__
)
def test_what_is_no_psycopg_connection_is_refused(app: App, note: Task[..., None], wrong: Any) -> None:
    with (
        pytest.raises(TransactionMisuse, match="is not a connection that can be used here; give a psycopg Connection"),
        app.within(wrong),
    ):
        pass
    with pytest.raises(TransactionMisuse):
        note.using(conn=wrong).enqueue(1)


# --- another database ----------------------------------------------------------------------------------------------------


def test_another_database_is_refused_and_its_transaction_goes_on(
    app: App, note: Task[..., None], conn: Caller, elsewhere: str
) -> None:
    with psycopg.connect(elsewhere) as there:
        there.execute("create table orders (id int)")
        for _ in range(2):
            with app.within(there), pytest.raises(TransactionMisuse, match="leads to .*jwtest_other_.*cannot span two databases"):
                note.enqueue(1)
        with pytest.raises(TransactionMisuse):
            app.enqueue_many((note.job(n) for n in range(300)), conn=there)
        there.execute(row(1))
        there.commit()
        assert count(there, "orders") == 1
    assert count(conn) == 0


@pytest.mark.asyncio
async def test_another_database_is_refused_for_async_code_too(
    aapp: App, note: Task[..., None], conn: Caller, elsewhere: str
) -> None:
    async with await AsyncConnection.connect(elsewhere) as there:
        await there.execute("create table orders (id int)")
        with aapp.within(there), pytest.raises(TransactionMisuse, match="cannot span two databases"):
            await note.aenqueue(1)
        await there.execute(row(1))
        await there.commit()
        assert (await (await there.execute("select count(*) from orders")).fetchone()) == (1,)
    assert count(conn) == 0


def test_another_store_with_tables_of_its_own_is_refused(
    app: App, note: Task[..., None], conn: Caller, elsewhere: str, schema: str
) -> None:
    url = "postgresql:///?" + elsewhere.replace(" ", "&")
    other = App(url, schema=schema)
    migrate(other.database)
    with psycopg.connect(elsewhere) as there:
        with app.within(there), pytest.raises(TransactionMisuse, match="cannot span two databases"):
            note.enqueue(1)
        there.execute("select 1")
        assert there.info.transaction_status == TransactionStatus.INTRANS
        assert count(there, f"{schema}.jobs") == 0


def test_the_right_database_is_recognised_by_another_way_to_it(
    app: App, note: Task[..., None], conn: Caller, database_url: str
) -> None:
    parameters = conninfo_to_dict(database_url)
    if parameters.get("host") not in ("127.0.0.1", "localhost"):
        pytest.skip("there is one way only")
    parameters["host"] = {"127.0.0.1": "localhost", "localhost": "127.0.0.1"}[str(parameters["host"])]
    with psycopg.connect(**parameters) as there:  # type: ignore[arg-type]
        note.using(conn=there).enqueue(1)
    assert count(conn) == 1


def test_the_store_is_asked_once_for_each_way_to_it(
    app: App, note: Task[..., None], caller: Caller, second: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    note.using(conn=caller).enqueue(1)
    asked: list[Any] = []
    original = Cursor.execute

    def execute(cursor: Any, query: Any, *rest: Any, **options: Any) -> Any:
        asked.append(query)
        return original(cursor, query, *rest, **options)

    monkeypatch.setattr(Cursor, "execute", execute)
    note.using(conn=second).enqueue(2)
    assert len(asked) == 1
    assert "insert into" in asked[0]


# --- use after the end ---------------------------------------------------------------------------------------------------


def test_a_task_that_began_inside_cannot_enqueue_after_the_end(
    app: App, note: Task[..., None], conn: Caller, database_url: str
) -> None:
    async def run() -> None:
        over = asyncio.Event()

        async def late() -> None:
            await over.wait()
            await note.aenqueue(1)

        async with await AsyncConnection.connect(database_url) as there:
            with app.within(there):
                await note.aenqueue(2)
                going_on = asyncio.create_task(late())
            over.set()
            with pytest.raises(
                TransactionMisuse, match="which has ended since; its transaction may be over. Nothing was enqueued"
            ):
                await going_on
            await there.commit()
        await app.aclose()

    asyncio.run(run())
    assert count(conn) == 1


def test_a_task_that_began_inside_may_say_which_connection_it_means(
    app: App, note: Task[..., None], conn: Caller, caller: Caller
) -> None:
    with app.within(caller):
        captured = contextvars.copy_context()
    with ThreadPoolExecutor() as pool:
        late = pool.submit(captured.run, note.enqueue, 1)
        assert isinstance(late.exception(), TransactionMisuse)
        pool.submit(captured.run, note.using(conn=caller).enqueue, 2).result()
        many = pool.submit(captured.run, app.enqueue_many, [note.job(1)])
        assert isinstance(many.exception(), TransactionMisuse)
    caller.commit()
    assert one(conn, "select args->>'n' from jobs") == "2"


def test_a_thread_is_not_inside_by_itself(app: App, note: Task[..., None], conn: Caller, caller: Caller) -> None:
    with app.within(caller), ThreadPoolExecutor() as pool:
        pool.submit(note.enqueue, 1).result()
    caller.rollback()
    assert count(conn) == 1


def test_two_tasks_of_a_loop_each_have_their_own_within(app: App, note: Task[..., None], conn: Caller, database_url: str) -> None:
    async def run() -> None:
        both = asyncio.Barrier(2)

        async def one_of_two(n: int, *, keep: bool) -> None:
            async with await AsyncConnection.connect(database_url) as mine:
                with app.within(mine):
                    await both.wait()
                    await note.aenqueue(n)
                    await both.wait()
                await (mine.commit() if keep else mine.rollback())

        await asyncio.gather(one_of_two(1, keep=True), one_of_two(2, keep=False))
        await app.aclose()

    asyncio.run(run())
    assert one(conn, "select args->>'n' from jobs") == "1"


def test_the_event_loop_is_not_blocked_while_the_store_is_asked_who_it_is(
    app: App, note: Task[..., None], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity is read over a connection of its own, which may take as long as connecting takes."""
    guard = app.client._guard
    original = guard.ours

    async def run() -> None:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()

        def ours() -> Any:
            if guard._ours is None:
                loop.call_soon_threadsafe(asked.set)
                asyncio.run_coroutine_threadsafe(asked.wait(), loop).result(timeout=10)  # only a free loop answers
            return original()

        monkeypatch.setattr(guard, "ours", ours)
        async with await AsyncConnection.connect(database_url) as there:
            await note.using(conn=there).aenqueue(1)
            await there.rollback()
        await app.aclose()

    asyncio.run(run())


def test_who_the_store_is_is_asked_again_after_a_while(
    app: App, note: Task[..., None], caller: Caller, conn: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server may have taken over the name; here the caller alone sees another identity, in its transaction."""
    with app.within(caller):
        note.enqueue(1)
        caller.execute("update store set id = gen_random_uuid()")
        note.enqueue(2)  # trusted for some minutes
        later = time.monotonic() + LASTS + 1
        monkeypatch.setattr("jobwell.client.guard.time.monotonic", lambda: later)
        with pytest.raises(TransactionMisuse, match="leads to"):
            note.enqueue(3)
        caller.rollback()
        note.enqueue(4)
    caller.commit()
    assert one(conn, "select args->>'n' from jobs") == "4"


def test_the_way_is_known_by_the_servers_address_too(database_url: str) -> None:
    """Two servers may stand behind one name."""
    with psycopg.connect(database_url) as there:
        assert there.info.hostaddr in key(there)


def test_a_generator_whose_steps_run_in_copied_contexts_is_told_at_its_end(
    app: App, note: Task[..., None], conn: Caller, caller: Caller
) -> None:
    """As FastAPI runs a plain `yield` dependency: what is enqueued meanwhile has another context, and does not see `within`."""

    def dependency() -> Iterator[Caller]:
        with app.within(caller):
            yield caller

    steps = dependency()
    given = contextvars.copy_context().run(next, steps)
    note.using(conn=given).enqueue(1)
    assert count(conn) == 0
    with pytest.raises(TransactionMisuse, match="another context"):
        contextvars.copy_context().run(next, steps, None)
    steps = dependency()
    contextvars.copy_context().run(next, steps)
    with pytest.raises(ZeroDivisionError):  # an error on its way is not hidden
        contextvars.copy_context().run(steps.throw, ZeroDivisionError())
    note.enqueue(2)
    assert one(conn, "select args->>'n' from jobs") == "2"


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_connection_in_pipeline_mode_is_refused(
    app: App, note: Task[..., None], conn: Caller, caller: Caller, *, autocommit: bool
) -> None:
    """In it an enqueue returns before anything is stored, and in autocommit mode each statement commits by itself."""
    caller.autocommit = autocommit
    with caller.pipeline():
        caller.execute("select 1")
        with pytest.raises(TransactionMisuse, match="pipeline"), app.within(caller):
            note.enqueue(1)
        with pytest.raises(TransactionMisuse, match="pipeline"):
            app.enqueue_many([note.job(n) for n in range(300)], conn=caller)
    with caller.transaction(), app.within(caller):
        note.enqueue(2)
    caller.commit()
    assert one(conn, "select args->>'n' from jobs") == "2"


@pytest.mark.asyncio
async def test_an_async_pipeline_is_refused(aapp: App, note: Task[..., None], conn: Caller, acaller: ACaller) -> None:
    async with acaller.pipeline():
        await acaller.execute("select 1")
        with pytest.raises(TransactionMisuse, match="pipeline"):
            await note.using(conn=acaller).aenqueue(1)
    assert count(conn) == 0
