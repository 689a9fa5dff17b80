"""A store moves to another server: all rows, one identity, and no writer left behind. Interrupted anywhere, one store is open."""

import getpass
import os
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection, conninfo, sql

from jobwell import App, Conflict, Dedup, SchemaMismatch, StoreError, TransactionMisuse
from jobwell.core.ids import new_id
from jobwell.settings import load
from jobwell.store import closing, migrations, move
from jobwell.store.database import Database
from jobwell.store.move import Move, Step
from jobwell.store.statements import run
from jobwell.store.upkeep import UpkeepVerbs
from tests.waiting import until

SCHEMA = f"jwmove_{os.getpid()}"
Conn = Connection[Any]
MACHINE = "postgresql://postgres@127.0.0.1:5432/postgres"


def _server() -> str:
    """Another server than the test's, an older one if there is one; else another database of the embedded one."""
    for url in (os.environ.get("JOBWELL_TEST_DATABASE_URL"), MACHINE):
        if url:
            try:
                psycopg.connect(url, connect_timeout=2).close()
            except psycopg.OperationalError:
                continue
            return url
    from jobwell import embedded

    return embedded.start(Path(tempfile.gettempdir(), f"jobwell-tests-{getpass.getuser()}")).url


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """An empty database."""
    server, name = _server(), f"jwmove_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
        conn.execute(sql.SQL("create database {} template template0 encoding 'UTF8'").format(sql.Identifier(name)))
        given = conninfo.conninfo_to_dict(server)
        password = f":{given['password']}" if given.get("password") else ""
        more = f"?host={given['host']}&port={given['port']}" if str(given.get("host", "")).startswith("/") else ""
        place = "" if more else f"{given.get('host')}:{given.get('port', 5432)}"
        yield f"postgresql://{given['user']}{password}@{place}/{name}{more}"
        conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def target(elsewhere: str) -> Iterator[Database]:
    """A database without any of our schemas."""
    made = Database(load({"database_url": elsewhere, "schema": SCHEMA}))
    clear(made)
    yield made
    clear(made)


@pytest.fixture
def source(database_url: str) -> Iterator[Database]:
    """A migrated store with rows in every kind of table."""
    made = Database(load({"database_url": database_url, "schema": SCHEMA}))
    clear(made)
    migrations.migrate(made)
    yield made
    clear(made)


@pytest.fixture
def filled(source: Database) -> Database:
    with source.connect("test") as conn:
        conn.execute(f"set search_path = {SCHEMA}")
        conn.execute(
            "create table finished_20200102 partition of finished for values from ('2020-01-02+00') to ('2020-01-03+00')"
        )
        conn.execute(
            "insert into finished (id, finished_at, enqueued_at, run_at, rank, attempt, failures, bytes, queue, task, state, tenant, result)"
            " select gen_random_uuid(), t, t, t, 1, 1, 0, 2, 'q', 't', 'succeeded', '', '{\"a\":  1}'"
            " from generate_series(1, 300) n, lateral (select case when n % 3 = 0 then timestamptz '2020-01-02 12:00+00' when n % 3 = 1 then now()"
            " else timestamptz '2019-06-01 00:00+00' end as t) x"
        )
        conn.execute("update finished set state = 'cancelled' where id = (select min(id::text)::uuid from finished)")
        conn.execute(  # it would be undone if it came here just now
            "insert into steps (job_id, name, unknown, attempt, claim_id, state, compensate) select id, 'pay', 'hold', 1, id, 'done',"
            ' \'{"task": "t", "queue": "q", "rank": 1, "gate": "1", "deadline": 1, "version": 1, "parameter": "x"}\''
            " from finished where state = 'cancelled'"
        )
        conn.execute("insert into audit (actor, action) select 'olga', 'x' from generate_series(1, 20)")
        conn.execute(
            "insert into queues (name, paused_by, paused_why) values ('bulk', 'olga', E'tab\\t \\\\N and \"quotes\" 漢字')"
        )
        conn.execute(
            "insert into workers (id, lease_until, state, pid, host, name, version, slots, queues, tasks)"
            " values (gen_random_uuid(), now() - interval '1 hour', 'dead', 1, 'h', 'h/1', '0', 1, '{a,\"b,c\"}', '{t}')"
        )
    app = App(source.url, schema=SCHEMA)
    task = declared(app)
    app.enqueue_many(task.job("x" * (5000 if n % 10 == 0 else 5), n) for n in range(491))
    for terms, keys in ((Dedup("n", window="1h"), 5), (Dedup("n"), 4)):
        app.enqueue_many(task.using(dedup=terms).job("y", n % keys) for n in range(10))
    app.close()
    return source


def declared(app: App) -> Any:
    @app.task(name="note", tenant="text")
    async def note(text: str, n: int) -> None: ...

    note.using(tenant="t")
    return note.using(tenant="t")


def clear(database: Database) -> None:
    with database.connect("test") as conn:
        conn.execute("set client_min_messages = warning")
        for (name,) in conn.execute("select nspname from pg_namespace where nspname like %s", [f"{SCHEMA}%"]).fetchall():
            conn.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))


def schemas(database: Database) -> set[str]:
    with database.connect("test") as conn:
        return {
            name for (name,) in conn.execute("select nspname from pg_namespace where nspname like %s", [f"{SCHEMA}%"]).fetchall()
        }


def rows(database: Database, schema: str = SCHEMA, *, without: tuple[str, ...] = ("audit",)) -> dict[str, list[Any]]:
    """All rows of all tables, as text."""
    with database.connect("test") as conn:
        conn.execute("set timezone = 'UTC'")
        tables = conn.execute(
            "select relname from pg_class where relnamespace = %s::regnamespace and relkind in ('r', 'p') and not relispartition"
            " and relname <> 'migrations' order by 1", [schema]).fetchall()  # fmt: skip
        return {
            name: conn.execute(sql.SQL("select t::text from {} t order by 1").format(sql.Identifier(schema, name))).fetchall()
            for (name,) in tables
            if name not in without
        }


def moving(source: Database, target: Database, told: Callable[[Step], None] = lambda _: None) -> dict[str, int]:
    return Move(source, target, by="olga", told=told).run()


def is_open(database: Database) -> bool:
    with database.connect("test") as conn:
        return closing.marker(conn, SCHEMA) is None


# --- all of it, once -----------------------------------------------------------------------------------------------------


def test_everything_arrives_and_the_old_store_is_closed(filled: Database, target: Database) -> None:
    before, said = rows(filled), []
    counts = moving(filled, target, said.append)
    assert (counts["jobs"], counts["finished"], counts["payloads"]) == (500, 300, 50)
    assert rows(target) == before
    assert {step.table for step in said} == set(counts)
    assert schemas(target) == {SCHEMA}
    with target.connect("test") as conn:
        actor, action, detail = conn.execute(
            f"select actor, action, detail from {SCHEMA}.audit order by id desc limit 1"
        ).fetchone()  # type: ignore[misc, call-overload]
        assert (actor, action, detail["rows"]["jobs"]) == ("olga", "store.move", 500)
        assert conn.execute(f"select count(*), max(id) from {SCHEMA}.audit").fetchone() == (21, 21)  # type: ignore[call-overload]
        day = conn.execute(f"select count(*) from {SCHEMA}.finished_20200102").fetchone()  # type: ignore[call-overload]
        assert day == (100,)
        migrations.check(conn, SCHEMA)
    assert len(schemas(filled)) == 2
    for call in (
        lambda: App(filled.url, schema=SCHEMA).client.status(new_id()),
        lambda: declared(App(filled.url, schema=SCHEMA)).enqueue("x", 1),
        lambda: migrations.migrate(filled),
        lambda: filled.run(UpkeepVerbs(filled.statements).make_partitions()),
    ):
        with pytest.raises(SchemaMismatch, match="was moved to") as raised:
            call()
        assert "Nothing was written" in str(raised.value)
    with pytest.raises(Conflict, match="was moved to"):
        moving(filled, target)


def test_a_caller_within_a_transaction_is_refused_too(filled: Database, target: Database) -> None:
    moving(filled, target)
    app = App(filled.url, schema=SCHEMA)
    with psycopg.connect(filled.url) as conn, pytest.raises((TransactionMisuse, SchemaMismatch, StoreError)), app.within(conn):
        declared(app).enqueue("x", 1)


def test_a_writer_that_waits_meanwhile_is_told_and_writes_nowhere(filled: Database, target: Database) -> None:
    """Fresh statements and prepared ones: both wait for the lock, and neither may land in the tables put aside."""
    app = App(filled.url, schema=SCHEMA)
    task = declared(app)
    for n in range(8):  # the driver prepares what it has seen five times
        task.enqueue("warm", n)
    fresh = App(filled.url, schema=SCHEMA)
    other = declared(fresh)
    errors: list[BaseException] = []

    def write(one: Any) -> None:
        try:
            one.enqueue("late", 1)
        except SchemaMismatch as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=[one]) for one in (task, other)]

    def told(step: Step) -> None:
        if step.table == "workers" and step.rows is not None:
            for writer in writers:
                writer.start()
            until(lambda: waiting(filled) == 2, what="both wait")

    moving(filled, target, told)
    for writer in writers:
        writer.join(20)
    assert len(errors) == 2
    assert all("was moved to" in str(error) for error in errors)
    aside = next(name for name in schemas(filled) if "_moved_" in name)
    assert len(rows(filled, aside)["jobs"]) == len(rows(target)["jobs"]) == 508
    app.close()
    fresh.close()


def waiting(database: Database) -> int:
    with database.connect("test") as conn:
        row = conn.execute(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'jobwell client' and query like %s",
            [f"%{SCHEMA}.jobs%"],
        ).fetchone()
    return int(row[0]) if row else 0


def test_it_can_be_used_there_at_once_and_moved_on(filled: Database, target: Database, elsewhere: str) -> None:
    moving(filled, target)
    app = App(target.url, schema=SCHEMA)
    assert declared(app).enqueue("x", 1).id
    app.close()
    clear(filled)
    moving(target, filled)
    assert len(rows(filled)["jobs"]) == 501


# --- refused -------------------------------------------------------------------------------------------------------------


def test_refused_where_workers_live_or_the_target_is_used(filled: Database, target: Database) -> None:
    with filled.connect("test") as conn:
        conn.execute(f"update {SCHEMA}.workers set state = 'live', lease_until = now() + interval '1 minute'")  # type: ignore[call-overload]
        with pytest.raises(Conflict, match="workers live: h/1"):
            moving(filled, target)
        conn.execute(f"delete from {SCHEMA}.workers")  # type: ignore[call-overload]
    assert schemas(target) == set()
    migrations.migrate(target)
    with target.connect("test") as conn:
        conn.execute(f"insert into {SCHEMA}.audit (actor, action) values ('a', 'b')")  # type: ignore[call-overload]
        with pytest.raises(Conflict, match="holds rows"):
            moving(filled, target)
        conn.execute(f"delete from {SCHEMA}.audit")  # type: ignore[call-overload]
    with pytest.raises(Conflict, match="this very store"):
        moving(filled, filled)
    assert moving(filled, target)["jobs"] == 500  # a migrated and empty one is right


def test_refused_where_the_role_could_not_close_the_store(filled: Database, target: Database) -> None:
    role = f"{SCHEMA}_reader"
    with filled.connect("test") as conn:
        conn.execute(f"drop role if exists {role}")  # type: ignore[call-overload]
        conn.execute(f"create role {role}")  # type: ignore[call-overload]
        try:
            conn.execute(f"grant usage on schema {SCHEMA} to {role}")  # type: ignore[call-overload]
            conn.execute(f"grant select on all tables in schema {SCHEMA} to {role}")  # type: ignore[call-overload]
            sign = "&" if "?" in filled.url else "?"
            limited = Database(load({"database_url": f"{filled.url}{sign}options=-c%20role%3D{role}", "schema": SCHEMA}))
            with pytest.raises(Conflict, match="may not close the store"):
                moving(limited, target)
            assert schemas(target) == set()
        finally:
            conn.execute(f"drop owned by {role}")  # type: ignore[call-overload]
            conn.execute(f"drop role {role}")  # type: ignore[call-overload]


def test_refused_while_somebody_writes(filled: Database, target: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    patience = filled.statements["move.patience"].replace("'5s'", "'200ms'")
    monkeypatch.setitem(filled.statements._texts, "move.patience", patience)
    with psycopg.connect(filled.url) as writer:
        writer.execute(f"delete from {SCHEMA}.jobs where id = '{uuid.UUID(int=0)}'")  # type: ignore[call-overload]
        with pytest.raises(Conflict, match="somebody writes"):
            moving(filled, target)
    assert is_open(filled)


def test_two_moves_at_once(filled: Database, target: Database) -> None:
    def one(_: int) -> str:
        try:
            moving(Database(filled.settings), Database(target.settings))
        except StoreError as error:
            return type(error).__name__
        except Conflict:
            return "Conflict"
        return "moved"

    with ThreadPoolExecutor(2) as pool:
        ends = sorted(pool.map(one, range(2)))
    assert ends.count("moved") == 1
    assert len(rows(target)["jobs"]) == 500


# --- interrupted ---------------------------------------------------------------------------------------------------------


class Cut(Exception):
    """As a killed process: nothing is cleaned up by us but what the server does itself."""


@pytest.mark.parametrize("at", ["attempts", "jobs", "workers"])
def test_interrupted_while_copying(filled: Database, target: Database, at: str) -> None:
    before = rows(filled)

    def told(step: Step) -> None:
        if step.table == at and step.rows is not None:
            raise Cut

    with pytest.raises(Cut):
        moving(filled, target, told)
    assert rows(filled) == before
    assert is_open(filled)
    assert all(not held for name, held in rows(target).items() if name != "store")
    assert moving(filled, target)["jobs"] == 500
    assert rows(target) == before


def test_interrupted_by_the_source_when_it_should_close(
    filled: Database, target: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target has committed: it stays closed, the old store goes on, and the next move begins anew."""
    real = move.closing.close

    def broken(conn: Conn, schema: str, **given: Any) -> str:
        if given["state"] == "moved":
            raise Cut
        return real(conn, schema, **given)

    monkeypatch.setattr(move.closing, "close", broken)
    with pytest.raises(Cut):
        moving(filled, target)
    assert is_open(filled)
    assert not is_open(target)
    with pytest.raises(SchemaMismatch, match="on its way to here"):
        migrations.migrate(target)
    app = App(filled.url, schema=SCHEMA)
    declared(app).enqueue("meanwhile", 1)
    app.close()
    monkeypatch.undo()
    assert moving(filled, target)["jobs"] == 501
    assert schemas(target) == {SCHEMA}


def test_interrupted_before_the_target_is_opened(filled: Database, target: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise Cut

    monkeypatch.setattr(move.closing, "reopen", broken)
    with pytest.raises(Cut):
        moving(filled, target)
    assert not is_open(filled)
    assert not is_open(target)
    monkeypatch.undo()
    assert moving(filled, target) == {}
    assert is_open(target)
    assert len(rows(target)["jobs"]) == 500


def test_a_target_that_breaks_in_the_middle(filled: Database, target: Database) -> None:
    def told(step: Step) -> None:
        if step.table == "jobs" and step.rows is None:
            with target.connect("test") as conn:
                conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobwell move' and datname = current_database()"
                             " and pid <> pg_backend_pid() and query not like %s", ["%share row exclusive%"])  # fmt: skip

    with pytest.raises(StoreError):
        moving(filled, target, told)
    assert is_open(filled)
    assert moving(filled, target)["jobs"] == 500


def test_another_release_on_the_other_side(filled: Database, target: Database) -> None:
    migrations.migrate(target)
    with target.connect("test") as conn:
        run(conn, UpkeepVerbs(target.statements).make_partitions())
        conn.execute(f"alter table {SCHEMA}.jobs add column later text")  # type: ignore[call-overload]
    with pytest.raises(StoreError, match="not alike"):
        moving(filled, target)
    assert is_open(filled)


def test_what_stands_in_the_way_of_the_last_step_is_told(
    filled: Database, target: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    reopen = closing.reopen

    def somebody_is_there(conn: Conn, schema: str, aside: str) -> None:
        with target.connect("test") as other:
            other.execute(f"create table {schema}.mine (x integer)")
        reopen(conn, schema, aside)

    monkeypatch.setattr(closing, "reopen", somebody_is_there)
    with pytest.raises(StoreError, match=r"the old store is closed.*\.mine depends on.*run the same command again"):
        moving(filled, target)
    assert not is_open(filled)
    monkeypatch.setattr(closing, "reopen", reopen)
    with pytest.raises(StoreError, match=r"the old store is closed"):
        moving(filled, target)
    with target.connect("test") as conn:
        conn.execute(f"drop table {SCHEMA}.mine")
    assert moving(filled, target) == {}
    assert is_open(target)


def test_a_large_table_has_more_time_than_a_claim(filled: Database, target: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Move._hold
    hurried = Database(replace(filled.settings, statement_timeout=1.0))

    def slowly(self: Move, lock: Conn) -> None:
        lock.execute("select pg_sleep(1.6)")
        hold(self, lock)

    monkeypatch.setattr(Move, "_hold", slowly)
    assert sum(moving(hurried, target).values()) > 500
