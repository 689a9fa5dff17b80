"""Connections for async code in a test: plain ones behind the face of async ones.

An async connection belongs to its loop, and each test has its own: to connect anew each time, and to
plan the claim anew in that session, takes longer than the test. The loop stands for the millisecond of a statement.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Self, cast

from psycopg import AsyncConnection, Connection, Copy, Cursor

from jobwell.store.arrays import teach
from jobwell.store.database import Database
from jobwell.store.link import Link


class BlockingLink(Link):
    """As a worker's link; on any loop, and kept from test to test.

    Args:
        database: where.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database, "testing worker")
        self._plain: Connection[Any] | None = None

    @contextlib.asynccontextmanager
    async def use(self) -> "AsyncIterator[AsyncConnection[Any]]":
        """The connection."""
        if self._plain is None or self._plain.closed:
            self._plain = self._database.connect(self._name)
            self._plain.prepare_threshold = 0
            teach(cast("AsyncConnection[Any]", self._plain))
        with self._database.telling():
            yield face(self._plain)

    async def close(self) -> None:
        """Close it; the next use makes a new one."""
        self.shut()

    def shut(self) -> None:
        """The same, without a loop."""
        if self._plain is not None:
            self._plain.close()


def face(conn: "Connection[Any]") -> "AsyncConnection[Any]":
    """A plain connection behind as much of an async one's face as the store uses."""
    return cast("AsyncConnection[Any]", _Face(conn))


class _Face:
    def __init__(self, conn: "Connection[Any]") -> None:
        self._conn = conn

    def cursor(self, *, binary: bool = False) -> "_CursorFace":
        return _CursorFace(self._conn.cursor(binary=binary))

    async def execute(self, query: str, parameters: Any = None, *, binary: bool = False) -> "_CursorFace":
        return await self.cursor().execute(query, parameters, binary=binary)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        with self._conn.transaction() as transaction:
            yield transaction


class _CursorFace:
    def __init__(self, cursor: "Cursor[Any]") -> None:
        self._cursor = cursor

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._cursor.close()

    @property
    def description(self) -> Any:
        return self._cursor.description

    async def execute(self, query: str, parameters: Any = None, *, binary: bool | None = None) -> Self:
        self._cursor.execute(query, parameters, binary=binary)
        return self

    async def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    async def fetchone(self) -> Any:
        return self._cursor.fetchone()

    @contextlib.asynccontextmanager
    async def copy(self, query: str) -> AsyncIterator["_CopyFace"]:
        with self._cursor.copy(query) as copy:
            yield _CopyFace(copy)


class _CopyFace:
    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self.set_types = copy.set_types

    async def write_row(self, row: Any) -> None:
        self._copy.write_row(row)
