"""`ctx.progress`: told often, written seldom, seen by people."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from jobwell import App, Context, InvalidArguments, SyncContext
from jobwell.core.progress import Progress, Report, later, report
from jobwell.store.statements import Statements
from tests.cli.conftest import call
from tests.waiting import auntil
from tests.worker.helpers import Desk, wait, working
from tests.worker.keeping.helpers import take_away


def test_what_is_told_is_checked_and_cleaned() -> None:
    assert report(3, 10, "a\x00b\ud800") == Report(3, 10, "a�b�")
    assert report(11, 10, "") == Report(11, 11)  # the total was an estimate
    assert len(report(1, None, "x" * 9999).note) <= 500
    for done, total in ((-1, None), (1.5, 2), (True, 2), (1, -1), (2**63, None), ("3", None)):
        with pytest.raises(InvalidArguments, match=r"ctx\.progress"):
            report(done, total, "")  # type: ignore[arg-type]  what a caller may get wrong


def test_words_out_of_order_take_nothing_back() -> None:
    assert later(Report(5, 10, "a"), Report(3, 10, "b")) == Report(5, 10, "b")
    assert later(Report(5, 10), Report(6, 10)) == Report(6, 10)
    assert later(Report(5, 10), Report(0, 3, "next part")) == Report(0, 3, "next part")


async def test_a_flood_of_words_is_few_writes_and_the_last_one_is_kept(
    app: App, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = Statements.__call__
    monkeypatch.setattr(Statements, "__call__", lambda self, name, /, **given: asked.append(name) or ask(self, name, **given))

    @app.task
    async def send(ctx: Context) -> None:
        for n in range(10_000):
            ctx.progress(n + 1, 10_000, "letters")

    @app.task
    def send_plain(ctx: SyncContext) -> None:
        for n in range(10_000):
            ctx.progress(n + 1, 10_000)

    async with working(app):
        jobs = [await send.aenqueue(), await send_plain.aenqueue()]
        for job in jobs:
            await desk.end(job)
            told = await job.aprogress()
            assert told is not None
            assert (told.done, told.total, told.share) == (10_000, 10_000, 1.0)
    assert 2 <= asked.count("progress.tell") <= 20


async def test_it_is_seen_while_the_job_runs(app: App, desk: Desk, schema: str, tmp_path: Path) -> None:
    door = threading.Event()

    @app.task
    async def send(ctx: Context) -> None:
        ctx.progress(1200, 5000, "letters sent")
        await ctx.checkpoint.save({"after": 7})
        await wait(door)

    async with working(app):
        job = await send.aenqueue()
        await auntil(job.aprogress)
        assert str(job.progress()) == "1,200 of 5,000 (24 %): letters sent"
        store = ("--database-url", app.settings.url, "--schema", schema)
        for command in (["list", "--state", "running"], ["list", "-o", "json"], ["list", "-o", "csv"], ["show", str(job.id)]):
            said = await asyncio.to_thread(call, ("jobs", *command, *store), {}, tmp_path)
            assert "letters sent" in said.out, said
        assert '{"after":7}' in said.out.replace(" ", "")
        door.set()
        await desk.end(job)


async def test_another_attempts_word_changes_nothing(app: App, desk: Desk, conn: "Connection[Any]") -> None:
    door = threading.Event()

    @app.task
    async def send(ctx: Context) -> None:
        ctx.progress(1)
        await wait(door)
        ctx.progress(2)

    async with working(app) as worker:
        job = await send.aenqueue()
        await auntil(lambda: desk.one("select count(*) from progress") == 1)
        take_away(conn, job)
        door.set()
        await auntil(lambda: worker.finished == 1)
        assert desk.one("select done from progress") == 1
        conn.execute("delete from jobs")


def test_a_share_of_nothing_is_all_of_it() -> None:
    from datetime import UTC, datetime

    assert Progress(0, 0, "", datetime(2030, 1, 1, tzinfo=UTC)).share == 1.0
    assert Progress(3, None, "", datetime(2030, 1, 1, tzinfo=UTC)).share is None


@pytest.mark.parametrize("isolation", [None, "repeatable read"])
@pytest.mark.parametrize("plain", [False, True])
async def test_the_last_word_before_a_transaction_is_kept(app: App, desk: Desk, plain: bool, isolation: Any) -> None:
    first = threading.Event()

    @app.task
    async def send(ctx: Context) -> None:
        ctx.progress(1, 50)
        await wait(first)
        async with ctx.transaction(isolation=isolation):
            ctx.progress(50, 50, "all")

    @app.task
    def send_plain(ctx: SyncContext) -> None:
        ctx.progress(1, 50)
        first.wait(20)
        with ctx.transaction(isolation=isolation):
            ctx.progress(50, 50, "all")

    async with working(app):
        job = await (send_plain if plain else send).aenqueue()
        await auntil(lambda: desk.one("select count(*) from progress") == 1)
        first.set()
        await desk.end(job)
        told = await job.aprogress()
    assert told is not None
    assert desk.outcomes(job) == []  # a word costs no work
    if isolation is None:
        assert (told.done, told.note) == (50, "all")
