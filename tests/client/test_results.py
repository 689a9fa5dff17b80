"""Waiting for a job and reading what it returned, sync and async, from the process that enqueued it or another one."""

import asyncio
import dataclasses
import threading
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import pydantic
import pytest
import pytest_asyncio
from psycopg import Connection

from jobwell import (
    App,
    DeclarationError,
    JobCancelled,
    JobFailed,
    NotFound,
    ResultError,
    ResultExpired,
    ResultMismatch,
    ResultUnavailable,
    TransactionMisuse,
    WaitTimeout,
)
from jobwell.client import results
from jobwell.client.handle import Handle
from jobwell.core.ids import new_id
from jobwell.store.statements import run
from jobwell.store.upkeep import UpkeepVerbs
from tests.client.helpers import count, one
from tests.waiting import auntil, until
from tests.worker.helpers import Acts, working


@dataclasses.dataclass
class Person:
    name: str
    born: date


class Report(pydantic.BaseModel):
    total: Decimal
    people: list[Person]


@pytest_asyncio.fixture
async def acts(aapp: App) -> Any:
    made = Acts(aapp, {})
    yield made
    made.open_all()


async def ask(handle: Handle[Any], kind: str, timeout: Any = "10s") -> Any:
    """Sync from a thread, or async on this loop."""
    return await (handle.aresult(timeout) if kind == "async" else asyncio.to_thread(handle.result, timeout))


BOTH = pytest.mark.parametrize("kind", ["sync", "async"])


@BOTH
async def test_a_result_comes_back_as_what_it_was(aapp: App, kind: str) -> None:
    given = Report(total=Decimal("12.50"), people=[Person("Aigul", date(1990, 5, 1))])

    @aapp.task
    async def report() -> Report:
        return given

    handle = await report.aenqueue()
    async with working(aapp):
        found = await ask(handle, kind)
    assert found == given
    assert (type(found), type(found.people[0]), type(found.total)) == (Report, Person, Decimal)


@BOTH
async def test_waiting_lasts_until_the_end(acts: Acts, kind: str) -> None:
    handle = await acts.act.aenqueue("wait", 7)
    async with working(acts.app):
        waiter = asyncio.create_task(ask(handle, kind))
        await auntil(lambda: acts.under_way)
        await asyncio.wait([waiter], timeout=0.3)
        assert not waiter.done()
        acts.door(7).set()
        assert await waiter == {"n": 7}


@BOTH
async def test_a_failed_job_says_how(acts: Acts, conn: Connection[Any], kind: str) -> None:
    rejected, exhausted = await acts.act.aenqueue("reject"), await acts.act.aenqueue("temporary")
    async with working(acts.app):
        with pytest.raises(JobFailed) as error:
            await ask(rejected, kind)
        with pytest.raises(JobFailed) as other:
            await ask(exhausted, kind)
    failed = error.value
    assert (failed.reason, failed.code, failed.error_message, failed.attempts) == (
        "rejected",
        "no_such_employee",
        "employee 7 is gone",
        1,
    )
    assert (failed.job_id, failed.task) == (rejected.id, "act")
    assert (
        str(failed)
        == f"job {rejected.id} of act failed for good (rejected) after 1 attempt: no_such_employee: employee 7 is gone"
    )
    assert (other.value.reason, other.value.error_type, other.value.attempts) == ("exhausted", "TimeoutError", 5)


@BOTH
async def test_a_cancelled_job_says_so(aapp: App, note: Any, conn: Connection[Any], kind: str) -> None:
    handle = await note.aenqueue(1)
    columns = "id, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, tenant"
    conn.execute(
        f"with gone as (delete from jobs returning *) insert into finished ({columns}, state, note) select {columns}, 'cancelled', 'no longer needed' from gone"
    )
    with pytest.raises(JobCancelled, match="was cancelled: no longer needed") as error:
        await ask(handle, kind)
    assert (error.value.job_id, error.value.note) == (handle.id, "no longer needed")


@BOTH
async def test_a_job_that_goes_on_times_the_waiting_out(aapp: App, note: Any, kind: str) -> None:
    handle = await note.using(run_after="1h").aenqueue(1)
    with pytest.raises(WaitTimeout, match="is scheduled after 30ms of waiting; nothing is lost") as error:
        await ask(handle, kind, "30ms")
    assert (error.value.job_id, error.value.state) == (handle.id, "scheduled")
    assert isinstance(error.value, TimeoutError)
    with pytest.raises(WaitTimeout):
        await ask(handle, kind, 0)


@BOTH
async def test_no_job_is_not_found(aapp: App, kind: str) -> None:
    with pytest.raises(NotFound, match="its transaction has not committed"):
        await ask(aapp.handle(new_id()), kind)


async def test_a_wrong_timeout_is_refused(aapp: App) -> None:
    with pytest.raises(DeclarationError, match="timeout='soon' is not a duration"):
        await aapp.handle(new_id()).aresult("soon")


async def test_the_sync_form_is_refused_on_a_loop(aapp: App, note: Any) -> None:
    handle = await note.aenqueue(1)
    with pytest.raises(ResultError, match="await handle.aresult"):
        handle.result()
    with pytest.raises(ResultError, match="await app.aresults"):
        aapp.results([handle])


def test_waiting_inside_within_is_refused(app: App, note: Any, caller: Connection[Any], conn: Connection[Any]) -> None:
    with app.within(caller), pytest.raises(TransactionMisuse, match="would wait for ever"):
        note.enqueue(1).result()
    with app.within(caller):
        handle = note.enqueue(2)
    with pytest.raises(NotFound, match="not committed"):
        handle.result(0)
    caller.commit()
    with pytest.raises(WaitTimeout):
        handle.result(0)
    assert count(conn) == 2


async def test_waiting_inside_within_is_refused_async(aapp: App, note: Any, acaller: Any) -> None:
    with aapp.within(acaller):
        handle = await note.aenqueue(1)
        with pytest.raises(TransactionMisuse, match="Keep the handle"):
            await handle.aresult()


# --- a handle from an id ---------------------------------------------------------------------------------------------------


async def test_a_later_request_has_only_the_id(acts: Acts) -> None:
    handle = await acts.act.aenqueue("give", 3)
    async with working(acts.app):
        assert await acts.app.handle(str(handle.id)).aresult() == {"n": 3}
        assert await acts.app.handle(handle.id, acts.act).aresult() == {"n": 3}
        assert await acts.app.handle(handle.id.hex, acts.act).astatus() == "succeeded"
        with pytest.raises(NotFound, match=f"no job {handle.id} of act_plain"):
            await acts.app.handle(handle.id, acts.act_plain).aresult()
    assert repr(acts.app.handle(handle.id)) == f"<job {handle.id} of some task>"


@pytest.mark.parametrize("text", ["", "7", "x" * 32, None, 7, "'; drop table jobs"])
def test_what_is_no_id_is_not_found(app: App, text: Any) -> None:
    with pytest.raises(NotFound, match="is not a job id"):
        app.handle(text)


async def test_another_process_without_the_task_reads_plain_results(acts: Acts, database_url: str, schema: str) -> None:
    @acts.app.task(name="person")
    async def person() -> Person:
        return Person("Dana", date(2000, 1, 1))

    plain, rich = await acts.act.aenqueue("give", 3), await person.aenqueue()
    async with working(acts.app):
        await acts.app.aresults([plain, rich])
    stranger = App(database_url, schema=schema)
    assert await stranger.handle(plain.id).aresult() == {"n": 3}
    with pytest.raises(ResultMismatch, match="this app does not know the task 'person'") as error:
        await stranger.handle(rich.id).aresult()
    assert "Dana" in error.value.raw
    await stranger.aclose()


# --- many ----------------------------------------------------------------------------------------------------------------


@BOTH
async def test_many_come_in_the_order_asked(acts: Acts, kind: str) -> None:
    handles = [await acts.act.aenqueue("give", n) for n in range(20)]
    ids = await acts.app.aenqueue_many(acts.act.job("give", n) for n in range(20, 25))
    async with working(acts.app):
        if kind == "async":
            found = await acts.app.aresults([*reversed(handles), *ids, handles[0]])
        else:
            found = await asyncio.to_thread(acts.app.results, [*reversed(handles), *ids, handles[0]])
    assert found == [{"n": n} for n in (*range(19, -1, -1), *range(20, 25), 0)]


async def test_the_first_error_is_raised_and_the_others_go_on(acts: Acts) -> None:
    handles = [await acts.act.aenqueue("wait", 1), await acts.act.aenqueue("reject")]
    async with working(acts.app):
        with pytest.raises(JobFailed, match="no_such_employee"):
            await acts.app.aresults(handles)
        acts.door(1).set()
        assert await handles[0].aresult() == {"n": 1}


async def test_errors_stand_in_their_places(acts: Acts) -> None:
    handles = [
        await acts.act.aenqueue("give", 1),
        await acts.act.aenqueue("reject"),
        await acts.act.using(run_after="1h").aenqueue("give"),
    ]
    async with working(acts.app):
        await acts.app.aresults(handles[:2], return_errors=True)
        found = await acts.app.aresults([*handles, new_id()], "50ms", return_errors=True)
    assert found[0] == {"n": 1}
    assert [type(error) for error in found[1:]] == [JobFailed, WaitTimeout, NotFound]


async def test_a_timeout_of_many_counts_them(acts: Acts) -> None:
    ids = await acts.app.aenqueue_many(acts.act.job("give", n) for n in range(3))
    with pytest.raises(WaitTimeout, match=f"3 of 3 jobs have not ended; {ids[0]} is ready after 10ms"):
        await acts.app.aresults(ids, "10ms")


def test_nothing_is_waited_for_at_once(app: App) -> None:
    assert app.results([]) == []


async def test_many_are_looked_at_in_bounded_pieces(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PIECE", 7)
    ids = await acts.app.aenqueue_many(acts.act.job("give", n) for n in range(50))
    async with working(acts.app):
        assert await acts.app.aresults(ids) == [{"n": n} for n in range(50)]


def test_two_hundred_waiters_share_four_connections(database_url: str, schema: str, note: Any, conn: Connection[Any]) -> None:
    ids = note._client().put_many((note.job(n) for n in range(200)), None)
    app = App(f"{database_url}{'&' if '?' in database_url else '?'}application_name=waiters", schema=schema)
    handles = [app.handle(job) for job in ids]
    errors: list[BaseException] = []
    most = 0

    def wait(handle: Handle[Any]) -> None:
        try:
            handle.result("20s")
        except Exception as error:  # noqa: BLE001  told by the main thread
            errors.append(error)

    threads = [threading.Thread(target=wait, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    held = "select count(*) from pg_stat_activity where application_name = 'waiters'"
    for _ in range(40):
        most = max(most, one(conn, held))
    columns = "id, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, tenant"
    conn.execute(
        f"with gone as (delete from jobs returning *) insert into finished ({columns}, state) select {columns}, 'succeeded' from gone"
    )
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert not errors
    assert 1 <= most <= 4
    app.close()


def test_looking_leaves_nothing_in_the_session_behind_a_pooler(app: App, note: Any) -> None:
    """A pooler in transaction mode hands the session to others."""
    app.override({"pooler": "transaction"})
    handle = note.using(run_after="1h").enqueue(1)
    for _ in range(20):
        with pytest.raises(WaitTimeout):
            handle.result(0)
    with app.client.connections.plain() as own:
        prepared = [row[0] for row in own.execute("select statement from pg_prepared_statements")]
    assert not [statement for statement in prepared if "look" in statement]


def test_rests_grow_and_keep_within_the_time_given() -> None:
    waiting = results.Waiting([(new_id(), "")], App().catalog, 10.0, now=100.0)
    rests = [waiting.rest(100.0) for _ in range(20)]
    assert rests[0] == 0.002
    assert rests == sorted(rests)  # type: ignore[type-var]
    assert rests[-1] == 0.25
    assert waiting.rest(109.9) == pytest.approx(0.1)


# --- results that are not there ------------------------------------------------------------------------------------------


async def test_a_type_that_changed_is_told_with_what_is_stored(acts: Acts) -> None:
    handle = await acts.act.aenqueue("give", 3)
    async with working(acts.app):
        await handle.aresult()
    changed = App(acts.app.settings.database_url, schema=acts.app.settings.schema)

    @changed.task(name="act")
    async def act(word: str, n: int = 0) -> dict[str, date]:
        raise AssertionError

    with pytest.raises(
        ResultMismatch,
        match=f"job {handle.id} of act succeeded, and its result does not fit the type that the task declares now: n: ",
    ) as error:
        await changed.handle(handle.id, act).aresult()
    assert error.value.raw == '{"n":3}'
    await changed.aclose()


async def test_a_result_that_could_not_be_stored_is_told_and_the_job_ran_once(acts: Acts, conn: Connection[Any]) -> None:
    acts.words = {"object": lambda ctx, n: object(), "huge": lambda ctx, n: "x" * 300_000, "nothing": lambda ctx, n: None}
    bad, huge, nothing = [await acts.act.aenqueue(word) for word in ("object", "huge", "nothing")]
    async with working(acts.app):
        with pytest.raises(ResultUnavailable, match="succeeded, and is not done again; its result could not be stored"):
            await bad.aresult()
        with pytest.raises(ResultUnavailable, match="its result takes 300,002 bytes") as error:
            await huge.aresult()
        assert await nothing.aresult() is None
    assert error.value.note.startswith("its result takes")
    assert len(acts.ran) == 3


async def test_a_task_that_keeps_no_result(aapp: App, conn: Connection[Any]) -> None:
    @aapp.task(keep_result=False)
    async def shout(word: str) -> str | None:
        return word or None

    handle, silent = await shout.aenqueue("hey"), await shout.aenqueue("")
    async with working(aapp):
        with pytest.raises(ResultUnavailable, match="keep_result=False"):
            await handle.aresult()
        assert await silent.aresult() is None
    assert one(conn, "select count(*) from finished where result is null and state = 'succeeded'") == 2


# --- results with an end of their own ------------------------------------------------------------------------------------


async def test_a_result_expires_before_its_job(aapp: App, conn: Connection[Any]) -> None:
    @aapp.task(result_ttl="1h")
    async def brief(n: int) -> int:
        return n

    @aapp.task
    async def lasting(n: int) -> int:
        return n

    upkeep = UpkeepVerbs(aapp.database.statements)
    handles = [await brief.aenqueue(n) for n in range(3)]
    other = await lasting.aenqueue(9)
    async with working(aapp):
        assert await aapp.aresults([*handles, other]) == [0, 1, 2, 9]
    seconds = "select extract(epoch from result_until - finished_at)::int from finished where task like '%%brief' group by 1"
    assert one(conn, seconds) == 3600
    assert one(conn, "select count(*) from finished where result_until is null") == 1
    assert run(conn, upkeep.expire_results()) is False
    assert await handles[0].aresult() == 0  # nothing was due
    conn.execute(
        "update finished set result_until = now() - interval '1 second' where id = any(%s)", [[h.id for h in handles[:2]]]
    )
    with pytest.raises(ResultExpired, match="its result has expired: see result_ttl"):  # also before it was taken out
        await handles[0].aresult()
    assert run(conn, upkeep.expire_results()) is False
    assert (
        one(
            conn,
            "select count(*) from finished where result is null and note = 'its result has expired' and result_until is null",
        )
        == 2
    )
    for handle in handles[:2]:
        with pytest.raises(ResultExpired):
            await handle.aresult()
    assert await aapp.aresults([handles[2], other]) == [2, 9]


def test_expired_results_go_in_pieces(app: App, conn: Connection[Any]) -> None:
    conn.execute("insert into finished (id, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant, result, result_until)"
                 " select gen_random_uuid(), now(), now(), 100, 1, 0, 2, 'default', 't', 'succeeded', '', '1', now() - interval '1 min' from generate_series(1, 2500)")  # fmt: skip
    upkeep = UpkeepVerbs(app.database.statements)
    assert [run(conn, upkeep.expire_results()) for _ in range(3)] == [True, True, False]
    assert one(conn, "select count(*) from finished where result is not null") == 0


async def test_the_worker_takes_expired_results_out(aapp: App, conn: Connection[Any]) -> None:
    @aapp.task(result_ttl="10ms")
    async def brief(n: int) -> int:
        return n

    first = await brief.aenqueue(1)
    async with working(aapp):
        await auntil(lambda: one(conn, "select count(*) from finished") == 1)
        await auntil(lambda: one(conn, "select count(*) from upkeep") == 0)  # its round is over
    async with working(aapp):  # the first round of upkeep comes at the start
        await auntil(lambda: one(conn, "select note from finished") == "its result has expired")
    with pytest.raises(ResultExpired):
        await first.aresult()


async def test_a_result_for_a_time_is_fenced_as_any_other(
    aapp: App, conn: Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    door = threading.Event()

    @aapp.task(result_ttl="1h")
    def brief() -> int:
        door.wait(10)
        return 1

    handle = await brief.aenqueue()
    async with working(aapp):
        await auntil(lambda: one(conn, "select state from jobs") == "running")
        conn.execute("update jobs set claim_id = gen_random_uuid()")
        door.set()
        await auntil(lambda: "ownership lost" in caplog.text)
        assert (count(conn, "jobs"), count(conn, "finished")) == (1, 0)
        conn.execute("delete from jobs")
    assert handle.created


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"result_ttl": 0}, "must be above zero"),
        ({"result_ttl": "soon"}, "is not a duration"),
        ({"result_ttl": "1h", "keep_result": False}, "has nothing to keep"),
    ],
)
def test_a_wrong_declaration_is_refused_at_import(app: App, options: Any, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        app.task(name="wrong", **options)(lambda: None)


def test_a_sync_application_waits(app: App, conn: Connection[Any]) -> None:
    """The worker is another thread with a loop of its own, as another process would be."""

    @app.task
    def double(n: int) -> int:
        return 2 * n

    over = threading.Event()

    async def work() -> None:
        async with working(app):
            await auntil(over.is_set)

    worker = threading.Thread(target=lambda: asyncio.run(work()))
    worker.start()
    try:
        handle = double.enqueue(21)
        assert handle.result() == 42
        found: list[int] = app.results([double.enqueue(n) for n in range(5)])
        assert found == [0, 2, 4, 6, 8]
        assert isinstance(handle.id, UUID)
    finally:
        over.set()
        until(lambda: not worker.is_alive())
