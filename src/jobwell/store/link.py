"""One async connection that is made when it is needed and made again after it broke."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import psycopg
from psycopg import AsyncConnection

from jobwell.core.errors import StoreUnavailable
from jobwell.store.database import Database, is_lost
from jobwell.store.wire import LoopConnection, outdated

MARGIN = 2.0  # seconds beyond a statement's own deadline, which tells more


class Link:
    """A connection under a lock: one statement, or one short group of them, at a time.

    Args:
        database: where.
        name: shown in pg_stat_activity.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._lock = asyncio.Lock()
        self._conn: LoopConnection | None = None

    @contextlib.asynccontextmanager
    async def use(self) -> "AsyncIterator[AsyncConnection[Any]]":
        """The connection. What is done with it has the statement timeout as its deadline.

        Raises:
            StoreUnavailable: no connection can be made, or the deadline passed; the connection is thrown away then, since
                the fate of the statement is not known.
        """
        async with self._lock:
            if self._conn is not None and not self._conn.closed and outdated(self._conn):
                await self._conn.close()  # after an idle timeout perhaps; nothing was sent yet
            if self._conn is None or self._conn.closed:
                self._conn = await self._database.aconnect(self._name)
            conn, good = self._conn, False
            try:
                async with asyncio.timeout(self._database.settings.statement_timeout + MARGIN):
                    yield conn
                good = True
            except TimeoutError as error:
                raise StoreUnavailable(f"{self._database.place} did not answer in time", unsure=True) from error
            except psycopg.Error as error:
                good = not conn.broken and not is_lost(error)
                raise
            finally:
                if not good:
                    self._conn = None
                    await conn.close()

    async def close(self) -> None:
        """Close it; the next use makes a new one."""
        async with self._lock:
            if self._conn is not None:
                await self._conn.close()
                self._conn = None
