"""A throw-away world: a schema for Jobwell, one for the company, and a folder for mail and logs."""

import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import Connection

from jobwell import App
from jobwell.core.errors import StoreError
from jobwell.demo import people
from jobwell.demo.people import Person
from jobwell.demo.processes import DemoError
from jobwell.demo.statements import Case
from jobwell.settings import Settings
from jobwell.store import migrations
from jobwell.store.database import Database

HOLD_PATIENCE = 2.0  # seconds


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
    case = Case(settings.schema)
    with contextlib.ExitStack() as stack:
        stack.callback(app.close)
        # Over a connection made for it, since this one may be lost or in the middle of something by then.
        cleaning = stack.enter_context(contextlib.ExitStack())
        conn = stack.enter_context(contextlib.closing(database.connect("demo", direct=True)))
        if not _held_soon(conn, case):
            raise DemoError(f"another demo is running in the schema {settings.schema!r} of this database; wait for its end")
        folder = Path(tempfile.mkdtemp(prefix="jobwell-demo-"))
        if not keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        with _allowed(database):
            _make_room(conn, case)
            if not keep:
                cleaning.callback(_remove, database, case)
            with conn.transaction():
                conn.execute(case["schemas"])
            migrations.migrate(database)
            _load(conn, case, count)
        with database.telling():
            yield World(settings, database, conn, case, app, people.read(count), folder)


def _hold(conn: "Connection[Any]", case: Case) -> bool:
    row = conn.execute(case["hold"]).fetchone()
    return row is not None and bool(row[0])


def _held_soon(conn: "Connection[Any]", case: Case) -> bool:
    """One that has just ended lets go when the server has seen it."""
    until = time.monotonic() + HOLD_PATIENCE
    while not _hold(conn, case):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _remove(database: Database, case: Case) -> None:
    """Where the server is gone, or the next demo has begun already, that one does it."""
    with contextlib.suppress(StoreError, psycopg.Error), contextlib.closing(database.connect("demo", direct=True)) as conn:
        if _hold(conn, case):
            conn.execute(case["drop"])


def _make_room(conn: "Connection[Any]", case: Case) -> None:
    """Drop what an earlier demo has left, and nothing else."""
    for (name,) in conn.execute(case["strangers"]).fetchall():
        raise DemoError(
            f"this database has a schema {name!r} that no demo has made, and it is left as it is;"
            " set JOBWELL_SCHEMA to another name, so that the demo takes another one too"
        )
    # Workers of a demo that was killed would take jobs of this one, and send them to a mail server that is gone.
    if conn.execute(case["has_workers"]).fetchone() == (True,):
        for pid, host in conn.execute(case["alive"]).fetchall():
            if host != socket.gethostname() or _is_worker(pid):
                where = f"process {pid} on {host}"
                raise DemoError(f"a worker of an earlier demo seems alive ({where}); stop it, or try again in a minute")
    conn.execute(case["drop"])


def _is_worker(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("jobwell" in word for word in psutil.Process(pid).cmdline())
    return False


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
