"""The producer's connections: one pool per process for plain code, one per event loop for async code.

Made at the first use, never at import. A forked child gets pools of its own: a connection that two processes share
mixes their answers.
"""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from jobwell.store.database import Database

LARGEST = 4


class Connections:
    """Lends connections to the client.

    Args:
        database: where.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._plain: ConnectionPool[Connection[Any]] | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncConnectionPool[AsyncConnection[Any]]]
        self._loops = weakref.WeakKeyDictionary()

    def _here(self) -> None:
        if self._pid != os.getpid():
            # The parent's pools stay referenced nowhere: their sockets are the parent's to close.
            self._forget()

    @contextlib.contextmanager
    def plain(self) -> "Iterator[Connection[Any]]":
        """A plain connection, from any thread.

        Raises:
            StoreUnavailable: none could be had in time.
        """
        self._here()
        if self._plain is None:
            with self._guard:
                if self._plain is None:
                    self._plain = self._database.pool("client", LARGEST)
        with self._database.telling(), self._plain.connection() as conn:
            yield conn

    @contextlib.asynccontextmanager
    async def of_loop(self) -> "AsyncIterator[AsyncConnection[Any]]":
        """A connection of the running loop; none ever crosses loops.

        Raises:
            StoreUnavailable: none could be had in time.
        """
        self._here()
        loop = asyncio.get_running_loop()
        pool = self._loops.get(loop)
        if pool is None:
            # An embedded server is started off the loop; two callers at once may both come here, one pool stays.
            await asyncio.to_thread(lambda: self._database.url)
            pool = self._loops.get(loop)
        if pool is None:
            pool = self._loops[loop] = self._database.apool("client", LARGEST)
            await pool.open()
        with self._database.telling():
            async with pool.connection() as conn:
                yield conn

    def close(self) -> None:
        """Close the plain pool."""
        self._here()
        pool, self._plain = self._plain, None
        if pool is not None:
            pool.close()

    async def aclose(self) -> None:
        """Close the pools of this process and the running loop."""
        self.close()
        pool = self._loops.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()
