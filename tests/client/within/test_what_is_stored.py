"""What is stored does not depend on what the caller has taught its connection, nor on the settings of its session."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import ClientCursor, Connection, RawCursor, rows
from psycopg.adapt import Loader
from psycopg.types.string import StrBinaryDumper, StrDumper
from sqlalchemy import event

from jobwell import App
from jobwell.client.task import Task
from tests.client.helpers import one
from tests.client.within.ways import AsyncAlchemySessionAsyncpg, Asyncpg, AsyncpgPool, AsyncPsycopg, Psycopg, Way

pytestmark = pytest.mark.asyncio
HARD = "quotes ' \" \\ \\\\ {a,b} NULL %s %(x)s :x ::y $1 \n\t ж 漢 \U0001f600 \\u0041 \x7f"
DUE = datetime(2031, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
COMPARED = (
    "select task, queue, rank, gate, tenant, lock_key, bytes, coalesce(j.args, p.args)::text, meta::text, state, run_at,"
    " deadline - run_at, ready_at is null, (deadline = greatest(run_at, enqueued_at) + make_interval(secs => 86400))"
    " from jobs j left join payloads p using (id) where id = %s"
)


def made(note: Task[..., Any]) -> list[Any]:
    """Tasks with options and their arguments: each goes once by our own connection, and once by the caller's."""
    return [
        (note.using(tenant=HARD[:60], priority=-7, run_after=DUE), (1, HARD)),
        (note.using(run_after=DUE), (2, HARD * 100)),
        (note.using(run_after=DUE, tenant=""), (-(2**40), "")),
    ]


async def compare(aapp: App, note: Task[..., Any], conn: Connection[Any], way: Way) -> None:
    with aapp.correlate(request_id=HARD, number=7):
        expected = [one(conn, COMPARED, task.enqueue(*args).id) for task, args in made(note)]
        await way.start()
        with aapp.within(way.lent):
            single = [(await way.enqueue(task, *args)).id for task, args in made(note)]
            few = await way.many(aapp, (task.job(*args) for task, args in made(note)))
            many = await way.many(aapp, (task.job(*args) for _ in range(70) for task, args in made(note)))
    await way.commit()
    for ids in (single, few, many[:3], many[-3:]):
        assert [one(conn, COMPARED, job) for job in ids] == expected


async def test_every_way_stores_the_same(aapp: App, note: Task[..., Any], conn: Connection[Any], way: Way) -> None:
    await compare(aapp, note, conn, way)


async def test_the_settings_of_the_session_change_nothing(
    aapp: App, note: Task[..., Any], conn: Connection[Any], way: Way
) -> None:
    await way.start()
    for setting in (
        "datestyle = 'SQL, DMY'", "timezone = 'Asia/Kathmandu'", "intervalstyle = 'sql_standard'", "extra_float_digits = -15",
        "bytea_output = 'escape'", "standard_conforming_strings = off", "search_path = pg_temp", "array_nulls = on",
        "lc_numeric = 'C'", "quote_all_identifiers = on", "xmloption = 'document'",
    ):  # fmt: skip
        await way.execute(f"set {setting}")
    await compare(aapp, note, conn, way)


# --- codecs --------------------------------------------------------------------------------------------------------------


def refuse(value: Any) -> Any:
    raise AssertionError(f"{value!r} went through a codec of the caller")


async def teach_asyncpg(connection: Any) -> None:
    """Codecs that nothing of ours may meet, and the two that everybody sets."""
    for name in ("uuid", "timestamptz", "timestamp", "int2", "int8", "float8", "numeric", "bool", "interval"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=refuse, decoder=refuse, format="text")
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)


@pytest.mark.parametrize("kind", [Asyncpg, AsyncpgPool], ids=lambda kind: kind.name)
async def test_codecs_of_asyncpg(aapp: App, note: Task[..., Any], conn: Connection[Any], way: Way) -> None:
    await teach_asyncpg(way.lent)
    await compare(aapp, note, conn, way)


@pytest.mark.parametrize("kind", [AsyncAlchemySessionAsyncpg], ids=lambda kind: kind.name)
async def test_codecs_behind_sqlalchemy(aapp: App, note: Task[..., Any], conn: Connection[Any], way: Way) -> None:
    @event.listens_for(way.engine.sync_engine, "connect")  # type: ignore[attr-defined]
    def teach(connection: Any, _: Any) -> None:
        connection.run_async(teach_asyncpg)

    await compare(aapp, note, conn, way)


class _UuidAsText(Loader):
    def load(self, data: Any) -> str:
        return f"uuid {bytes(data).hex()}"


class _Never(Loader):
    def load(self, data: Any) -> Any:
        return refuse(data)


def _rows(connection: Any) -> None:
    connection.row_factory = rows.dict_row


def _client_cursor(connection: Any) -> None:
    connection.cursor_factory = ClientCursor


def _raw_cursor(connection: Any) -> None:
    connection.cursor_factory = RawCursor


def _loaders(connection: Any) -> None:
    connection.adapters.register_loader("uuid", _UuidAsText)
    connection.adapters.register_loader("timestamptz", _Never)


@pytest.mark.parametrize("kind", [Psycopg], ids=["psycopg"])
@pytest.mark.parametrize("change", [_rows, _client_cursor, _raw_cursor, _loaders])
async def test_factories_and_loaders_of_psycopg(
    aapp: App, note: Task[..., Any], conn: Connection[Any], way: Way, change: Callable[[Any], None]
) -> None:
    change(way.lent)
    await compare(aapp, note, conn, way)


@pytest.mark.parametrize("kind", [Psycopg], ids=["psycopg"])
async def test_rows_of_an_async_psycopg_connection(aapp: App, note: Task[..., Any], conn: Connection[Any], way: Way) -> None:
    async with await psycopg.AsyncConnection.connect(**way.at, row_factory=rows.dict_row) as there:
        await note.using(conn=there).aenqueue(1)
        ids = await aapp.aenqueue_many((note.job(n) for n in range(300)), conn=there)
    assert isinstance(ids[0], UUID)
    assert one(conn, "select count(*) from jobs") == 301


class Loud(StrDumper):
    """A caller's own idea of text."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.upper())


class LoudBinary(StrBinaryDumper):
    """The same in binary, as COPY takes it."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.upper())


@pytest.mark.parametrize("kind", [AsyncPsycopg, Psycopg], ids=["async psycopg", "psycopg"])
async def test_dumpers_on_the_callers_connection_change_nothing(
    aapp: App, note: Task[..., Any], conn: Connection[Any], way: Way
) -> None:
    way.lent.adapters.register_dumper(str, Loud)
    way.lent.adapters.register_dumper(str, LoudBinary)
    await compare(aapp, note, conn, way)
    assert {queue for (queue,) in conn.execute("select queue from jobs")} == {"default"}
