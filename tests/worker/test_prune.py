"""Upkeep beside the work: partitions come and go while jobs are stored, and nobody waits for anybody."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import Connection

from jobwell import App
from jobwell.store.link import Link
from jobwell.store.statements import run
from jobwell.store.upkeep import UpkeepVerbs
from jobwell.store.workers import WorkerVerbs
from jobwell.worker.housekeeping.prune import BUSY, EVERY, Prune
from tests.waiting import auntil
from tests.worker.helpers import Acts, Desk, working

DAY = 86400.0


def days(desk: Desk, table: str = "finished") -> list[str]:
    return desk.all(
        "select inhrelid::regclass::text from pg_inherits where inhparent = %s::regclass and inhrelid::regclass::text not like '%%default' order by 1", table)  # fmt: skip


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of the worker; that a job has failed is another matter."""
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR and one.name != "jobwell.job"]


def drop_days(desk: Desk) -> None:
    for name in [*days(desk), *days(desk, "attempts")]:
        desk.conn.execute(f"drop table {name}")  # type: ignore[call-overload]


@pytest.fixture
def bare(desk: Desk) -> Iterator[Desk]:
    """A store of which no worker has made the partitions yet."""
    drop_days(desk)
    yield desk
    desk.conn.execute("truncate finished, attempts")
    drop_days(desk)
    run(desk.conn, UpkeepVerbs(desk.app.database.statements).make_partitions())


@pytest_asyncio.fixture
async def prune(app: App, desk: Desk) -> AsyncIterator[Prune]:
    """With a retention of five days."""
    link = Link(app.database, "test")
    yield Prune(UpkeepVerbs(app.database.statements), WorkerVerbs(app.database.statements), link, 5 * DAY)
    await link.close()


async def test_a_round_makes_the_days_ahead_and_drops_the_old_ones(
    bare: Desk, prune: Prune, travel: Callable[[str], None]
) -> None:
    travel("-12 days")
    await prune.tick()
    assert len(days(bare)) == len(days(bare, "attempts")) == 8
    travel("0 days")
    assert await prune.tick() == EVERY
    assert len(days(bare)) == len(days(bare, "attempts")) == 8 + 1  # the one that the retention has not passed yet


async def test_a_reader_puts_the_drop_off_and_nothing_else(
    bare: Desk, prune: Prune, travel: Callable[[str], None], database_url: str, schema: str
) -> None:
    travel("-20 days")
    await prune.tick()
    travel("0 days")
    old = days(bare)
    with psycopg.connect(database_url) as reader:
        reader.execute(f"select * from {schema}.{old[0]}")  # type: ignore[call-overload]
        bare.conn.execute("insert into payloads values ('00000000-0000-7000-8000-000000000001', '1')")
        await asyncio.wait_for(prune.tick(), 10)
        assert old[0] in days(bare)
        assert days(bare, "attempts") != []
        assert bare.one("select count(*) from payloads") == 0
    await prune.tick()
    assert not set(old) & set(days(bare))


async def test_an_open_transaction_of_a_finish_puts_new_partitions_off(
    bare: Desk, prune: Prune, database_url: str, schema: str
) -> None:
    with psycopg.connect(database_url) as writer:
        writer.execute(
            f"insert into {schema}.finished (id, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant)"  # type: ignore[call-overload]
            " values (gen_random_uuid(), now(), now(), 1, 1, 0, 2, 'q', 't', 'succeeded', '')"
        )
        await asyncio.wait_for(prune.tick(), 10)
        assert days(bare) == []
        assert len(days(bare, "attempts")) <= 8
    await prune.tick()
    assert len(days(bare)) == 7  # not today's: it has a row in the default partition


async def test_payloads_are_walked_piece_by_piece_and_then_from_the_beginning(bare: Desk, prune: Prune) -> None:
    put = "insert into payloads select lpad(to_hex(n), 32, '0')::uuid, '1' from generate_series(%s::int, %s::int) n"
    bare.conn.execute(put, [2000, 4100])
    assert [await prune.tick() for _ in range(4)] == [1.0, 1.0, 1.0, EVERY]
    bare.conn.execute(put, [1, 5])
    await prune.tick()
    assert bare.one("select count(*) from payloads") == 0


async def test_several_workers_that_start_on_new_tables_store_everything_without_an_error(
    bare: Desk, app: App, acts: Acts, caplog: pytest.LogCaptureFixture
) -> None:
    app.enqueue_many(acts.act.job(("ok", "logical", "fail twice")[n % 3], n) for n in range(900))
    async with working(app, slots=20), working(app, slots=20), working(app, slots=20):
        assert await bare.settled(timeout=40) == {"succeeded": 600, "failed": 300}
        await auntil(lambda: days(bare) and days(bare, "attempts"))
    assert errors(caplog) == []


async def test_a_partition_that_is_attached_under_a_finish_is_no_error(
    bare: Desk, app: App, acts: Acts, prune: Prune, database_url: str, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The finish has planned for the default partition, waits for the attaching transaction, and finds that it was too late."""
    await prune.tick()
    drop_days(bare)
    handles = [acts.act.enqueue(word) for word in ("wait", "wait", "ok")]
    async with working(app, slots=3):
        await auntil(lambda: acts.under_way == 2)
        await bare.end(handles[2])
        bare.conn.execute("truncate finished, attempts")
        drop_days(bare)
        with psycopg.connect(database_url) as other:
            other.execute(f"select {schema}.make_partitions('finished', 'finished_at', 1)")  # type: ignore[call-overload]
            acts.open_all()
            await auntil(lambda: waiting(bare.conn, schema), what="the finish waits")
            other.commit()
        for handle in handles[:2]:
            assert (await bare.end(handle))["attempt"] == 1
    assert errors(caplog) == []
    assert bare.one("select count(*) from finished_default") == 0


def waiting(conn: "Connection[Any]", schema: str) -> bool:
    query = "select count(*) > 0 from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'jobwell finish' and query like %s"
    row = conn.execute(query, [f"%{schema}%"]).fetchone()
    return bool(row and row[0])


PUT = (
    "insert into finished (id, finished_at, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant)"
    " select gen_random_uuid(), now() - interval '30 days', now(), now(), 1, 1, 0, 2, 'q', 't', 'succeeded', '' from generate_series(1, %s)"
)


async def test_only_the_holder_of_the_lease_prunes(bare: Desk, prune: Prune) -> None:
    bare.conn.execute(PUT, [10])
    bare.conn.execute(
        "insert into upkeep (name, holder, who, until) values ('prune', gen_random_uuid(), 'olga', now() + interval '1 minute')"
    )
    assert await prune.tick() == BUSY
    assert bare.one("select count(*) from finished") == 10
    assert len(days(bare)) == 8  # the days ahead are made by anybody
    bare.conn.execute("update upkeep set until = now() - interval '1 second'")
    await prune.tick()
    assert bare.one("select count(*) from finished") == 0
    assert bare.one("select count(*) from upkeep") == 0  # given back


async def test_a_round_has_a_time_and_the_next_comes_soon(bare: Desk, app: App) -> None:
    bare.conn.execute(PUT, [3500])
    clock = iter(range(0, 10_000, 100))
    link = Link(app.database, "test")
    statements = app.database.statements
    hasty = Prune(UpkeepVerbs(statements), WorkerVerbs(statements), link, 5 * DAY, clock=lambda: float(next(clock)))
    rests, left = [], []
    for _ in range(4):
        rests.append(await hasty.tick())
        left.append(bare.one("select count(*) from finished"))
    assert (rests, left) == ([1.0, 1.0, 1.0, EVERY], [2500, 1500, 500, 0])
    await link.close()


async def test_uses_of_limits_go_when_nothing_depends_on_them(bare: Desk, prune: Prune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobwell.store.upkeep.PIECE_OF_USES", 100)
    monkeypatch.setattr("jobwell.worker.housekeeping.prune.PIECE_OF_USES", 100)
    put = "insert into limit_uses (subject, turn, jobs, claims, tats) select %s || n, 1, %s, %s, %s from generate_series(1, %s) n"
    running, claim = bare.one(
        "insert into jobs (id, queue, task, gate, state, ready_at, claim_id, started_at) values"
        " (gen_random_uuid(), 'default', 'note', 1, 'running', null, gen_random_uuid(), now()) returning id, claim_id"
    )
    over, early, late = uuid.uuid4(), datetime.now(UTC) - timedelta(minutes=1), datetime.now(UTC) + timedelta(hours=1)
    bare.conn.execute(put, ["used:", [running], [claim], [], 3])
    bare.conn.execute(put, ["soon:", [], [], [early, late], 3])
    bare.conn.execute(put, ["over:", [running, over], [over, over], [early], 250])
    await prune.tick()
    assert sorted(bare.all("select subject from limit_uses")) == [f"{what}:{n}" for what in ("soon", "used") for n in (1, 2, 3)]


async def test_holds_and_limits_that_are_over_go(bare: Desk, prune: Prune) -> None:
    bare.conn.execute(
        "insert into holds (kind, name, held_by, held_until) values ('task', 'a', 'olga', now()), ('task', 'b', 'olga', null)"
    )
    bare.conn.execute(
        "insert into limits (kind, name, override, set_at, set_by, set_until, declared) values"
        " ('task', 'a', '{}', now(), 'olga', now(), false), ('task', 'b', '{}', now(), 'olga', now(), true),"
        " ('task', 'c', '{}', now(), 'olga', now() + interval '1 hour', false)"
    )
    await prune.tick()
    assert bare.all("select name from holds") == ["b"]
    assert bare.all("select name, set_by from limits order by name") == [("b", None), ("c", "olga")]


async def test_failed_jobs_wait_for_ever_unless_a_setting_says_how_long(app: App, desk: Desk, acts: Acts, prune: Prune) -> None:
    async with working(app):
        for _ in range(3):
            await desk.end(acts.act.enqueue("logical"))
    desk.conn.execute(
        "update quarantine set failed_at = now() - interval '40 days' where id <> (select id from quarantine order by id limit 1)"
    )
    desk.conn.execute("delete from upkeep")  # the worker may have ended in the middle of its round
    assert await prune.tick() == EVERY
    assert desk.one("select count(*) from quarantine") == 3
    # A person has said that one of them waits.
    desk.conn.execute(
        "update quarantine set fingerprint = 'other' where id = (select id from quarantine order by id desc limit 1)"
    )
    desk.conn.execute("insert into quarantine_groups (fingerprint, state, set_by) values ('other', 'waiting', 'olga')")
    link = Link(app.database, "test")
    statements = app.database.statements
    keeping = Prune(UpkeepVerbs(statements), WorkerVerbs(statements), link, 5 * DAY, failed=30 * DAY)
    assert await keeping.tick() == EVERY
    await link.close()
    assert desk.one("select count(*) from quarantine") == 2
    (note,) = set(desk.all("select note from finished where state = 'failed'"))
    assert note.startswith("discarded by retention: nobody has decided for 30d (quarantine_keep)")
    assert desk.one("select actor || ' ' || action || ' ' || target from audit") == "retention quarantine.discard 1 jobs"
