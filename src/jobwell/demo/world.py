"""A throw-away world: a schema for Jobwell, one for the company, and a folder for mail and logs."""

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import Connection, sql

from jobwell import App
from jobwell.core.errors import StoreError
from jobwell.demo import people
from jobwell.demo.people import Person
from jobwell.demo.processes import DemoError
from jobwell.demo.statements import Case, company
from jobwell.settings import Settings
from jobwell.store import migrations
from jobwell.store.database import Database

MARK = "made by jobwell demo: dropped and made anew by the next one"


@dataclass(frozen=True)
class World:
    """What the scenario works with.

    Attributes:
        settings: with the schema of the demo.
        conn: the scenario's own connection, which also holds the place against a second demo.
        people: the first rows of the file.
        folder: for mail and logs.
    """

    settings: Settings
    database: Database
    conn: "Connection[Any]"
    case: Case
    app: App
    people: list[Person]
    folder: Path

    def ask(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement of `case.sql`."""
        with self.database.telling():
            cursor = self.conn.execute(self.case[name], parameters or None)
            return cursor.fetchall() if cursor.description else []


def demo_settings(settings: Settings) -> Settings:
    """The demo's own schema beside the configured one; the embedded server where no URL is set."""
    return replace(settings, schema=f"{settings.schema}_demo", database_url=settings.database_url or "embedded")


@contextlib.contextmanager
def world(settings: Settings, count: int, *, keep: bool) -> Iterator[World]:
    """Make it, and remove it at the end, come what may.

    Args:
        settings: from `demo_settings`.
        count: how many people.
        keep: leave schemas and folder for looking around.

    Raises:
        StoreUnavailable, StoreError: the database cannot be reached or used.
        DemoError: another demo is running there.
    """
    database = Database(settings)
    app = App(settings.database_url, schema=settings.schema)
    names = (settings.schema, company(settings.schema))
    with contextlib.ExitStack() as stack:
        stack.callback(app.close)
        # Over a connection made for it, since this one may be lost or in the middle of something by then.
        cleaning = stack.enter_context(contextlib.ExitStack())
        conn = stack.enter_context(contextlib.closing(database.connect("demo", direct=True)))
        if not _hold(conn, settings.schema):
            raise DemoError(f"another demo is running in the schema {settings.schema!r} of this database; wait for its end")
        folder = Path(tempfile.mkdtemp(prefix="jobwell-demo-"))
        if not keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        with _allowed(database):
            _refuse_live(conn, settings.schema)
            _drop(conn, names)
            if not keep:
                cleaning.callback(_remove, database, names)
            _create(conn, names)
            migrations.migrate(database)
            case = Case(settings.schema)
            _load(conn, case, count)
        with database.telling():
            yield World(settings, database, conn, case, app, people.read(count), folder)


def _hold(conn: "Connection[Any]", schema: str) -> bool:
    row = conn.execute("select pg_try_advisory_lock(hashtextextended(%s, 0))", [f"jobwell demo {schema}"]).fetchone()
    return row is not None and bool(row[0])


def _remove(database: Database, names: tuple[str, ...]) -> None:
    """Where the server is gone, or the next demo has begun already, that one does it."""
    with contextlib.suppress(StoreError, psycopg.Error), contextlib.closing(database.connect("demo", direct=True)) as conn:
        if _hold(conn, names[0]):
            _drop(conn, names)


def _drop(conn: "Connection[Any]", names: tuple[str, ...]) -> None:
    for name in names:
        row = conn.execute("select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = %s", [name]).fetchone()
        if row is not None and row[0] != MARK:
            raise DemoError(
                f"this database has a schema {name!r} that no demo has made, and it is left as it is;"
                " set JOBWELL_SCHEMA to another name, so that the demo takes another one too"
            )
        if row is not None:
            conn.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))


def _refuse_live(conn: "Connection[Any]", schema: str) -> None:
    """Workers of a demo that was killed would take jobs of this one, and send them to a mail server that is gone."""
    table = conn.execute("select to_regclass(%s)::text", [f"{schema}.workers"]).fetchone()
    if table is None or table[0] is None:
        return
    alive = sql.SQL("select pid, host from {}.workers where state <> 'dead' and lease_until > clock_timestamp()")
    for pid, host in conn.execute(alive.format(sql.Identifier(schema))).fetchall():
        if host != socket.gethostname() or _is_worker(pid):
            raise DemoError(
                f"a worker of an earlier demo seems alive (process {pid} on {host}); stop it, or try again in a minute"
            )


def _is_worker(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("jobwell" in word for word in psutil.Process(pid).cmdline())
    return False


def _create(conn: "Connection[Any]", names: tuple[str, ...]) -> None:
    with conn.transaction():
        for name in names:
            conn.execute(sql.SQL("create schema {}").format(sql.Identifier(name)))
            conn.execute(sql.SQL("comment on schema {} is {}").format(sql.Identifier(name), MARK))


def _load(conn: "Connection[Any]", case: Case, count: int) -> None:
    with conn.transaction(), conn.cursor() as cursor:
        cursor.execute(case["tables"])
        cursor.execute(case["incoming"])
        with cursor.copy(case["load"]) as copy:
            for line in people.lines(count):
                copy.write(line)
        cursor.execute(case["spread"])


@contextlib.contextmanager
def _allowed(database: Database) -> Iterator[None]:
    try:
        with database.telling():
            yield
    except psycopg.errors.InsufficientPrivilege as error:
        said = str(error).splitlines()[0]
        raise StoreError(f"{database.place}: the demo makes schemas of its own, and this user may not ({said})") from error
