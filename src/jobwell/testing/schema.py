"""A migrated schema of one's own on a real PostgreSQL, for the length of a test run."""

import contextlib
import getpass
import os
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from jobwell import settings
from jobwell.embedded import EmbeddedUnavailable
from jobwell.settings import Settings
from jobwell.store import testing as store
from jobwell.store.database import Database
from jobwell.store.migrations import migrate
from jobwell.store.pool import LoopPool, Pool
from jobwell.testing.clock import Clock
from jobwell.testing.driver import Driver
from jobwell.testing.errors import TestbedError
from jobwell.testing.link import BlockingConnection

VARIABLE = "JOBWELL_TEST_DATABASE_URL"
QUICK = "-c synchronous_commit=off"  # nobody misses a test's rows after a crash of the server


def find_url(given: str = "") -> str:
    """The server for tests: the one given, else that of JOBWELL_TEST_DATABASE_URL, else an embedded one is started.

    `JOBWELL_DATABASE_URL` is never looked at: it may lead to jobs that matter.

    Raises:
        TestbedError: there is none.
    """
    url = given or os.environ.get(VARIABLE, "")
    if url and url != "embedded":
        settings.check_url(url, VARIABLE)
        return url
    from jobwell import embedded

    try:
        return embedded.start(Path(tempfile.gettempdir(), f"jobwell-tests-{getpass.getuser()}")).url
    except EmbeddedUnavailable as error:
        raise TestbedError(
            f"tests need a PostgreSQL: set {VARIABLE}=postgresql://…, or install `jobwell[embedded]` to have one started"
            f" ({error.message})"
        ) from None


class Schema:
    """A schema with Jobwell's tables: made and migrated at entry, dropped at exit. Any number of tests use it one by one.

    Args:
        url: of the server, "postgresql://…" (default: as `find_url` says). The role must be allowed to create schemas.

    Raises:
        TestbedError: no server is named, and none can be started; or the role may not create schemas.
        StoreUnavailable: it cannot be reached.
    """

    def __init__(self, url: str = "") -> None:
        self._given = url
        self.name = ""

    def __enter__(self) -> Self:
        url = find_url(self._given)
        self.name = f"{store.PREFIX}{uuid.uuid4().hex[:16]}"
        # A direct URL from the environment would lead the migration elsewhere; nothing of it is taken over.
        self.settings = settings.load({"database_url": url, "schema": self.name, "direct_url": ""})
        self.database = TestDatabase(self.settings)
        self.conn: Connection[Any] = self.database.connect("testing")
        try:
            store.sweep(self.conn)
            store.make(self.conn, self.name)
            migrate(self.database)
            self._tables = store.tables(self.conn, self.name)
        except BaseException as error:
            self.conn.close()  # what was made is swept by the next run
            if isinstance(error, psycopg.errors.InsufficientPrivilege):
                raise TestbedError(
                    f"the role in the URL may not make a schema for tests in {self.database.place}: grant it"
                    " `create on database`, or give another test server"
                ) from error
            raise
        self.clock = Clock(self.conn, self.name)
        self.driver = Driver(self.database)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.driver.close()
        self.database.close()
        try:
            store.drop(self.conn, self.name)
        finally:
            self.conn.close()

    def empty(self) -> None:
        """Empty all tables, and set the clock right.

        Raises:
            TestbedError: somebody has a transaction open that has touched them.
        """
        self.clock.reset()
        try:
            store.empty(self.conn, self.name, self._tables)
        except psycopg.errors.LockNotAvailable as error:
            raise TestbedError(
                "the tables of jobs cannot be emptied: a transaction that has touched them is still open, probably on a"
                " connection that an earlier test (or this one) did not commit, roll back or close"
            ) from error


class TestDatabase(Database):
    """Connections without the threads and background tasks of pools: a test leaves neither behind."""

    __test__ = False

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._lends = _Lender(self)

    def parameters(self, name: str, url: str = "", patience: float = 0.0, within: float = 0.0) -> dict[str, Any]:
        """As for any connection, and quick to commit."""
        found = super().parameters(name, url, patience, within)
        given = conninfo_to_dict(url or self.url).get("options")
        return {**found, "options": f"{given} {QUICK}" if given else QUICK}

    def pool(self, name: str, largest: int) -> Pool:
        """What lends connections as a pool does."""
        return cast("Pool", self._lender)

    def apool(self, name: str, largest: int) -> LoopPool:
        """The same for async code."""
        return cast("LoopPool", _AsyncLender(self._lender))

    def close(self) -> None:
        """Close what is idle."""
        self._lender.close()

    @property
    def _lender(self) -> "_Lender":
        if self._lends.owner != os.getpid():  # a forked child: those are its parent's
            self._lends = _Lender(self)
        return self._lends


class _Lender:
    def __init__(self, database: Database) -> None:
        self.database = database
        self._guard = threading.Lock()
        self._idle: list[Connection[Any]] = []
        self.idle_async: list[BlockingConnection] = []
        self.owner = os.getpid()

    @contextlib.contextmanager
    def connection(self, patience: float | None = None) -> "Iterator[Connection[Any]]":
        with self._guard:
            conn = self._idle.pop() if self._idle else None
        if conn is None or conn.closed:
            conn = self.database.connect("testing client")
        try:
            yield conn
        finally:
            if not conn.closed and conn.info.transaction_status == TransactionStatus.IDLE:
                with self._guard:
                    self._idle.append(conn)
            else:
                conn.close()

    def close(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for conn in idle:
            conn.close()
        while self.idle_async:
            self.idle_async.pop().shut()


class _AsyncLender:
    def __init__(self, lender: _Lender) -> None:
        self._lender = lender

    async def open(self) -> None:
        """There is nothing to open."""

    @contextlib.asynccontextmanager
    async def connection(self, patience: float | None = None) -> "AsyncIterator[AsyncConnection[Any]]":
        idle = self._lender.idle_async
        conn = idle.pop() if idle else None
        if conn is None or conn.closed:
            conn = await BlockingConnection.to(self._lender.database, "testing client")
        try:
            yield conn
        finally:
            if not conn.closed and conn.info.transaction_status == TransactionStatus.IDLE:
                idle.append(conn)
            else:
                conn.shut()

    async def close(self) -> None:
        """The connections stay: they belong to no loop."""

    def abandon(self) -> None:
        """They stay as well."""
