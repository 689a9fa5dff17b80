"""One job at a time, of either colour: what is stored, and what is refused."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg import Connection

from jobwell import App, EnqueueError, InvalidArguments, Lock, PayloadTooLarge, SchemaMismatch, StoreUnavailable
from jobwell.client.task import Task
from tests.client.helpers import BOTH, count, one, stored_args
from tests.samples import ROUND_TRIPS, shape

Conn = "Connection[Any]"


def test_a_job_is_stored_when_enqueue_returns(app: App, conn: Connection[Any]) -> None:
    @app.task(name="hr.notify", queue="notifications", priority=50, deadline="2h", tenant="department", lock=Lock("n"))
    def notify(n: int, department: str) -> None: ...

    handle = notify.enqueue(7, department="finance")
    (row,) = conn.execute(
        "select id, task, queue, rank, gate, tenant, lock_key, state, attempt, args::text, bytes, meta, claim_id,"
        " run_at = enqueued_at, ready_at >= enqueued_at, deadline - run_at, enqueued_at between now() - interval '1 minute' and now()"
        " from jobs"
    ).fetchall()
    assert row == (
        handle.id, "hr.notify", "notifications", 50, notify.spec.gate, "finance", 'hr.notify:{"n":7}', "ready", 0,
        '{"n":7,"department":"finance"}', 30, None, None, True, True, timedelta(hours=2), True,
    )  # fmt: skip
    assert (handle.task, handle.created) == ("hr.notify", True)
    assert repr(handle) == f"<job {handle.id} of hr.notify>"


@pytest.mark.asyncio
async def test_async_stores_the_same_row(aapp: App, note: Task[..., None], conn: Connection[Any]) -> None:
    columns = "task, queue, rank, gate, tenant, lock_key, state, args::text, bytes, deadline - run_at, ready_at is null"
    note.enqueue(1, text="a")
    await note.aenqueue(1, text="a")
    first, second = conn.execute(f"select {columns} from jobs").fetchall()
    assert first == second


@pytest.mark.asyncio
async def test_a_plain_enqueue_also_works_on_a_running_loop(aapp: App, note: Task[..., None], conn: Connection[Any]) -> None:
    note.enqueue(1)
    await asyncio.to_thread(note.enqueue, 2)
    await note.aenqueue(3)
    assert count(conn) == 3


def test_options_are_those_of_one_enqueue(note: Task[..., None], conn: Connection[Any]) -> None:
    urgent = note.using(priority=90, tenant="finance", deadline="1h")
    later = urgent.using(run_after="10m", priority=-5)
    urgent.enqueue(1)
    later.enqueue(2)
    note.enqueue(3)
    rows = conn.execute("select rank, tenant, state, deadline - run_at from jobs order by args->>'n'").fetchall()
    assert rows == [
        (10, "finance", "ready", timedelta(hours=1)),
        (105, "finance", "scheduled", timedelta(hours=1)),
        (100, "", "ready", timedelta(hours=24)),
    ]


def test_a_wrong_option_stores_nothing(note: Task[..., None], conn: Connection[Any]) -> None:
    with pytest.raises(EnqueueError, match="priority=101 must be a whole number from -100 to 100"):
        note.using(priority=101).enqueue(1)
    assert count(conn) == 0


def test_ids_grow_in_the_order_of_enqueueing(note: Task[..., None], conn: Connection[Any]) -> None:
    ids = [note.enqueue(n).id for n in range(20)]
    assert ids == sorted(ids)
    assert [row[0] for row in conn.execute("select id from jobs order by enqueued_at, id")] == ids


# --- what the worker will get (case H2), through the real server ---------------------------------------------------------


@pytest.mark.parametrize(("annotation", "value"), [case[1:] for case in ROUND_TRIPS], ids=[case[0] for case in ROUND_TRIPS])
def test_every_kind_of_argument_comes_back_from_the_table(app: App, conn: Connection[Any], annotation: Any, value: Any) -> None:
    def task(x: Any) -> None: ...

    task.__annotations__ = {"x": annotation}
    declared = app.task(name="task")(task)
    handle = declared.enqueue(value)
    back = declared.spec.signature.decode(stored_args(conn, handle.id))
    assert shape(back["x"]) == shape(value)


@pytest.mark.parametrize("many", BOTH)
def test_every_kind_of_argument_comes_back_from_a_copy(app: App, conn: Connection[Any], many: Any) -> None:
    @app.task(name="task")
    def task(x: Any, pad: str = "") -> None: ...

    values = [
        value
        for _, annotation, value in ROUND_TRIPS
        if annotation is Any or isinstance(value, str | bytes | int | float | list | dict)
    ]
    task.spec.signature.known  # noqa: B018
    plain = [value for value in values if _is_plain(task, value)]
    assert len(plain) > 20
    ids = many(app, (task.job(plain[n % len(plain)], pad="x" * (n % 3000)) for n in range(600)))
    for n, job in enumerate(ids):
        if n % 7 == 0:
            assert shape(task.spec.signature.decode(stored_args(conn, job))["x"]) == shape(plain[n % len(plain)])


def _is_plain(task: Any, value: Any) -> bool:
    try:
        task.job(value)
    except InvalidArguments:
        return False
    return True


# --- content that PostgreSQL cannot hold (case H1) -----------------------------------------------------------------------

UNSTORABLE = ["\x00", "a\x00b", "\ud800", "ok\udfff"]


@pytest.mark.parametrize("bad", UNSTORABLE)
@pytest.mark.parametrize("place", ["text", "list", "key", "nested key", "tenant", "bulk"])
def test_text_that_cannot_be_stored_is_refused_at_enqueue_and_nothing_is_written(
    app: App, conn: Connection[Any], place: str, bad: str
) -> None:
    @app.task(name="task", tenant="tenant")
    def task(x: Any, tenant: str = "") -> None: ...

    attempts = {
        "text": lambda: task.enqueue(bad), "list": lambda: task.enqueue(["a", {"b": bad}]), "key": lambda: task.enqueue({bad: 1}),
        "nested key": lambda: task.enqueue([{1: {bad: 1}}]), "tenant": lambda: task.using(tenant=bad).enqueue(1),
        "bulk": lambda: app.enqueue_many(task.job(n if n < 300 else bad) for n in range(400)),
    }  # fmt: skip
    with pytest.raises(InvalidArguments) as refused:
        attempts[place]()
    assert refused.value.path
    refused.value.message.encode()
    assert count(conn) == count(conn, "payloads") == 0


def test_emoji_and_the_rest_of_unicode_are_stored(note: Task[..., None], conn: Connection[Any]) -> None:
    text = "🛠️ 👩‍👩‍👧 \U0010ffff \ufffe й е\u0301 \u202e"
    handle = note.using(tenant="отдел кадров 🏥").enqueue(1, text=text)
    assert note.spec.signature.decode(stored_args(conn, handle.id))["text"] == text
    assert one(conn, "select tenant from jobs") == "отдел кадров 🏥"


# --- sizes (case H4) -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [None, *BOTH])
def test_large_arguments_stand_apart_and_small_ones_in_the_row(
    app: App, note: Task[..., None], conn: Connection[Any], many: Any
) -> None:
    texts = ["x" * size for size in (0, 10, 1900, 2100, 200_000)]
    if many:
        ids = list(many(app, (note.job(n, text=texts[n % 5]) for n in range(250))))
    else:
        ids = [note.enqueue(n, text=texts[n % 5]).id for n in range(5)]
    for n, job in enumerate(ids[:10]):
        inline, size = one(conn, "select args is not null, bytes from jobs where id = %s", job)
        assert inline is (len(texts[n % 5]) < 2000)
        assert size == len(stored_args(conn, job).encode())
        assert note.spec.signature.decode(stored_args(conn, job)) == {"n": n, "text": texts[n % 5]}
    assert count(conn, "payloads") == one(conn, "select count(*) from jobs where args is null") == len(ids) * 2 // 5


def test_arguments_above_the_limit_are_refused_with_advice(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    note.enqueue(1, text="x" * 262_000)
    with pytest.raises(PayloadTooLarge, match="the limit is 262,144; nothing was enqueued.*pass its id, path or URL"):
        note.enqueue(1, text="x" * 263_000)
    assert count(conn) == 1


def test_the_limit_is_a_setting(database_url: str, schema: str, conn: Connection[Any]) -> None:
    app = App(database_url, schema=schema, payload_limit=2_000_000)

    @app.task
    def task(text: str) -> None: ...

    handle = task.enqueue("x" * 1_500_000)
    assert one(conn, "select bytes from jobs where id = %s", handle.id) == 1_500_011
    app.close()


def test_ten_thousand_jobs_of_a_megabyte_are_refused_at_the_first(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    made = []

    def jobs() -> Any:
        for n in range(10_000):
            made.append(n)
            yield note.job(n, text="x" * 1_000_000)

    with pytest.raises(PayloadTooLarge, match="^job 0 of this call: note: the arguments take 1,000,"):
        app.enqueue_many(jobs())
    assert made == [0]
    assert count(conn) == 0


# --- the store is not there ----------------------------------------------------------------------------------------------


def test_without_tables_the_error_says_what_to_run(database_url: str) -> None:
    app = App(database_url, schema="jwtest_no_such_schema")

    @app.task
    def task() -> None: ...

    for verb in (task.enqueue, lambda: app.enqueue_many(task.job() for _ in range(500))):
        with pytest.raises(SchemaMismatch, match="'jwtest_no_such_schema'.*run `jobwell migrate`"):
            verb()
    app.close()


def test_an_unreachable_store_is_told_without_the_password() -> None:
    app = App("postgresql://me:secret@127.0.0.1:1/jobs", connect_timeout=1)

    @app.task
    def task() -> None: ...

    async def later() -> None:
        try:
            await task.aenqueue()
        finally:
            await app.aclose()

    for verb in (task.enqueue, lambda: asyncio.run(later())):
        with pytest.raises(StoreUnavailable, match=r"me:\*\*\*@127\.0\.0\.1:1/jobs cannot be reached") as told:
            verb()
        assert "secret" not in str(told.value)
    app.close()


def test_an_app_can_be_used_again_after_close(app: App, note: Task[..., None], conn: Connection[Any]) -> None:
    note.enqueue(1)
    app.close()
    app.close()
    assert isinstance(note.enqueue(2).id, UUID)
    assert count(conn) == 2
