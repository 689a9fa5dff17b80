"""`ctx.checkpoint`: typed, fenced, on its own or within the caller's transaction (case G13)."""

import threading
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection
from pydantic import BaseModel

from jobwell import App, CheckpointMismatch, Context, InvalidArguments, Reject, SyncContext
from jobwell.core.checkpoint import decoded, encoded
from jobwell.store.statements import Statements, run
from jobwell.store.upkeep import UpkeepVerbs
from jobwell.testing import Testbed
from jobwell.worker import completing
from jobwell.worker.housekeeping.prune import FIRST
from tests.waiting import auntil
from tests.worker.helpers import QUICK, Desk, wait, working
from tests.worker.keeping.helpers import Cursor, kept, take_away
from tests.worker.keeping.lines import CutLine


@dataclass
class Place:
    """A dataclass with a model in it."""

    page: int
    inner: Cursor
    day: date | None = None


class Older(BaseModel):
    """What an earlier release has saved."""

    after: int


VALUES = [
    (Cursor(after=7), Cursor),
    (Place(2, Cursor(after=1), date(2030, 1, 2)), Place),
    ([Cursor(after=1), Cursor(after=2)], list[Cursor]),
    ({"a": [1, "ä", None], "b": Decimal("1.10")}, dict[str, Any]),
    (UUID(int=7), UUID),
    (None, Cursor | None),
]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=lambda value: str(value)[:20])
def test_values_come_back_as_they_were(value: Any, kind: Any) -> None:
    assert decoded(encoded(value), kind) == value


def test_plain_values_come_back_without_a_type() -> None:
    assert decoded(encoded({"at": 3, "day": date(2030, 1, 2)}), Any) == {"at": 3, "day": date(2030, 1, 2)}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [("x" * 70_000, "70,002 bytes"), ("a\x00b", "NUL"), (object(), "cannot be stored"), ({"a": "\ud800"}, "lone surrogate")],
    ids=["large", "nul", "object", "surrogate"],
)
def test_what_cannot_be_kept_is_refused(value: Any, sentence: str) -> None:
    with pytest.raises(InvalidArguments, match=sentence):
        encoded(value)


def test_what_does_not_fit_any_more_is_told() -> None:
    with pytest.raises(CheckpointMismatch, match="does not fit Cursor") as raised:
        decoded(encoded(Older(after=1)), Cursor)
    assert "Older" in raised.value.raw
    with pytest.raises(CheckpointMismatch, match="does not fit int"):
        decoded(encoded("seven"), int)


async def test_the_next_attempt_goes_on_with_what_was_saved(app: App, desk: Desk) -> None:
    seen: list[int] = []

    @app.task(retry=QUICK)
    async def send(ctx: Context) -> int:
        at = await ctx.checkpoint.load(Cursor, Cursor())
        seen.append(at.after)
        await ctx.checkpoint.save(Cursor(after=at.after + 10))
        if ctx.attempt < 3:
            raise ConnectionResetError("gone")
        return at.after

    async with working(app):
        job = await send.aenqueue()
        assert (await desk.end(job))["result"] == "20"
    assert seen == [0, 10, 20]


async def test_a_plain_task_uses_the_same_words(app: App, desk: Desk) -> None:
    @app.task(retry=QUICK)
    def send(ctx: SyncContext) -> list[Any]:
        before = ctx.checkpoint.load()
        ctx.checkpoint.save({"attempt": ctx.attempt})
        if ctx.attempt == 1:
            raise ConnectionResetError("gone")
        ctx.checkpoint.clear()
        return [before, ctx.checkpoint.load()]

    async with working(app):
        assert (await desk.end(await send.aenqueue()))["result"] == '[{"attempt":1},null]'


@pytest.mark.parametrize("plain", [False, True])
async def test_a_save_of_an_old_attempt_is_refused_and_ends_it_without_a_word(
    app: App, desk: Desk, conn: "Connection[Any]", plain: bool
) -> None:
    """G13: nothing of it is written, not even where its code catches every error."""
    door, after = threading.Event(), []

    @app.task(retry=QUICK)
    async def on_loop(ctx: Context) -> None:
        await ctx.checkpoint.save(1)
        await wait(door)
        try:
            await ctx.checkpoint.save(2)
        except Exception:  # noqa: BLE001  as careless code does
            after.append("caught")
        after.append("went on")

    @app.task(retry=QUICK)
    def on_thread(ctx: SyncContext) -> None:
        ctx.checkpoint.save(1)
        door.wait(20)
        try:
            ctx.checkpoint.save(2)
        except Exception:  # noqa: BLE001  as careless code does
            after.append("caught")
        after.append("went on")

    async with working(app) as worker:
        job = await (on_thread if plain else on_loop).aenqueue()
        await auntil(lambda: kept(conn, job) == 1)
        take_away(conn, job)
        door.set()
        await auntil(lambda: worker.finished == 1)
        assert kept(conn, job) == 1
        assert desk.one("select state from jobs") == "running"  # of the other attempt, untouched
        assert desk.one("select count(*) from attempts") == 0
        assert after == []
        conn.execute("delete from jobs")


async def test_within_the_callers_transaction_it_is_kept_if_that_commits(app: App, desk: Desk, conn: "Connection[Any]") -> None:
    url = app.settings.url

    @app.task(retry=QUICK)
    async def send(ctx: Context) -> Any:
        before = await ctx.checkpoint.load(int)
        async with await psycopg.AsyncConnection.connect(url) as own:
            await ctx.checkpoint.save(ctx.attempt, conn=own)
            if ctx.attempt == 2:
                raise ConnectionResetError("rolled back")
        if ctx.attempt == 1:
            raise ConnectionResetError("committed")
        return before

    @app.task(retry=QUICK)
    def send_plain(ctx: SyncContext) -> Any:
        before = ctx.checkpoint.load(int)
        with psycopg.connect(url) as own:
            ctx.checkpoint.save(ctx.attempt, conn=own)
            if ctx.attempt == 2:
                raise ConnectionResetError("rolled back")
        if ctx.attempt == 1:
            raise ConnectionResetError("committed")
        return before

    async with working(app):
        for task in (send, send_plain):
            assert (await desk.end(await task.aenqueue()))["result"] == "1"


async def test_while_the_callers_transaction_is_open_nobody_else_can_have_the_job(
    app: App, desk: Desk, conn: "Connection[Any]"
) -> None:
    """What a batch writes and its cursor commit before the next attempt begins, or not at all: so each batch happens once."""
    door, saved, seen = threading.Event(), threading.Event(), threading.Event()

    @app.task
    async def send(ctx: Context) -> None:
        async with await psycopg.AsyncConnection.connect(app.settings.url) as own:
            await ctx.checkpoint.save("mine", conn=own)
            saved.set()
            await wait(door)
        await wait(seen)

    async with working(app):
        job = await send.aenqueue()
        await auntil(saved.is_set)
        conn.execute("update workers set state = 'dead'")
        assert conn.execute("select rescue(100, 10)").fetchone() == (0,)  # it is passed over
        assert desk.state(job) == "running"
        door.set()
        await auntil(lambda: kept(conn, job) == "mine")
        seen.set()


async def test_a_transaction_that_is_left_open_with_the_jobs_row_holds_nobody_up_for_long(
    app: App, desk: Desk, conn: "Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function on a thread runs on over its time limit; the end of its attempt waits for its transaction, and others behind it."""
    monkeypatch.setattr(completing, "MARGIN", 0.5)
    monkeypatch.setattr(completing, "SHORTEST", 0.1)
    door, over = threading.Event(), threading.Event()

    @app.task(timeout="300ms", retry=QUICK)
    def hold(ctx: SyncContext) -> None:
        if ctx.attempt > 1:
            return
        try:
            with psycopg.connect(app.settings.url) as own:
                ctx.checkpoint.save("mine", conn=own)
                door.wait(20)
                own.execute("select 1")
        except psycopg.Error:  # its session was ended
            over.set()

    @app.task
    async def other() -> None: ...

    async with working(app):
        job = await hold.aenqueue()
        await auntil(
            lambda: desk.one("select count(*) from pg_locks where relation = 'jobs'::regclass and mode = 'RowShareLock'") > 0
        )
        await auntil(lambda: desk.outcomes(job) == ["retrying", "succeeded"] or None, 10)
        await desk.end(await other.aenqueue())
        door.set()
        await auntil(over.is_set)
    assert kept(conn, job) is None


async def test_a_retry_from_the_quarantine_goes_on_there(bed: Testbed, conn: "Connection[Any]") -> None:
    @bed.app.task(retry=QUICK)
    async def send(ctx: Context) -> Any:
        before = await ctx.checkpoint.load(int)
        await ctx.checkpoint.save(5)
        if before is None:
            raise Reject("not_yet")
        return before

    job = await send.aenqueue()
    await bed.adrain()
    assert conn.execute("select count(*) from quarantine").fetchone() == (1,)
    from jobwell.core.filters import Selection
    from jobwell.store import quarantine

    run(conn, quarantine.retry(bed.app.database.statements, Selection(ids=[job.id])))
    await bed.adrain()
    assert bed.job(job).result == 5


def test_what_ended_jobs_have_left_is_pruned_and_nothing_else(app: App, conn: "Connection[Any]") -> None:
    conn.execute(
        "insert into checkpoints (job_id, name, claim_id, attempt, value)"
        " select gen_random_uuid(), '', gen_random_uuid(), 1, '1' from generate_series(1, 50)"
    )
    conn.execute(
        "insert into progress (job_id, claim_id, attempt, done, at) select job_id, claim_id, 1, 1, at from checkpoints,"
        " (values (now() - interval '2 hours')) t(at)"
    )
    live, failed = (row[0] for row in conn.execute("select job_id from checkpoints order by job_id limit 2"))
    conn.execute("insert into jobs (id, gate, task) values (%s, 1, 't')", [live])
    conn.execute(
        "insert into quarantine (id, enqueued_at, run_at, gate, rank, attempt, failures, crashes, losses, postponements, bytes, queue, task,"
        " tenant, lock_key, reason, fingerprint) values (%s, now(), now(), 1, 100, 1, 1, 0, 0, 0, 0, 'default', 't', '', '', 'rejected', 'f')",
        [failed],
    )
    upkeep = UpkeepVerbs(app.database.statements)
    for table in ("checkpoints", "progress"):
        looked, deleted, _ = run(conn, upkeep.delete_kept(table, after=FIRST))
        assert (looked, deleted) == (50, 48)
        assert {row[0] for row in conn.execute(f"select job_id from {table}")} == {live, failed}


async def test_called_directly_it_keeps_for_the_call(app: App) -> None:
    @app.task
    async def send(ctx: Context) -> list[Any]:
        await ctx.checkpoint.save(Cursor(after=1))
        ctx.progress(1, 2)
        return [await ctx.checkpoint.load(Cursor), [n async for n in ctx.resume([1, 2, 3])]]

    assert await send() == [Cursor(after=1), [1, 2, 3]]


async def test_a_job_that_keeps_nothing_costs_no_statement_more(app: App, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = Statements.__call__
    monkeypatch.setattr(Statements, "__call__", lambda self, name, /, **given: asked.append(name) or ask(self, name, **given))

    @app.task
    async def quiet(ctx: Context) -> None: ...

    async with working(app):
        await desk.end(await quiet.aenqueue())
    of_ours = [name for name in asked if name.split(".")[0] in {"checkpoints", "progress", "ending"}]
    assert {name.split(".")[1] for name in of_ours} <= {
        "delete_old",
        "of_job",
        "of_jobs",
    }  # the upkeep's, and this test's own looks


@pytest.mark.parametrize("at", ["before", "after"])
async def test_a_save_whose_answer_is_lost_is_there_or_not_and_the_next_attempt_sees_which(
    database_url: str, schema: str, conn: "Connection[Any]", at: str
) -> None:
    line = CutLine(database_url, b"jobwell client\0", b"checkpoints as c", later=1)
    app = App(line.url, schema=schema)
    desk = Desk(app, conn)

    @app.task(retry=QUICK)
    async def send(ctx: Context) -> Any:
        before = await ctx.checkpoint.load(int)
        line.cut_at = at if ctx.attempt == 1 else ""
        await ctx.checkpoint.save(ctx.attempt)
        return before

    try:
        async with working(app):
            job = await send.aenqueue()
            assert (await desk.end(job))["result"] == ("1" if at == "after" else None)
        assert line.cuts == 1
        assert desk.outcomes(job) == ["retrying", "succeeded"]
    finally:
        await app.aclose()
        line.close()
