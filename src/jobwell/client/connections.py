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

from jobwell.store.database import Database
from jobwell.store.pool import LoopPool, Pool
from jobwell.store.statements import Statements

LARGEST = 4


class Connections:
    """Lends connections to the client.

    Args:
        database: where.
        name: shown in pg_stat_activity.
        largest: connections of one process, and of each of its loops, at the most.
    """

    def __init__(self, database: Database, name: str = "client", largest: int = LARGEST) -> None:
        self._database = database
        self._name = name
        self._largest = largest
        self._of_parents: list[object] = []
        self._begin()
        _all.add(self)

    @property
    def statements(self) -> Statements:
        """Of the store to which they lead."""
        return self._database.statements

    def _begin(self) -> None:
        self._guard = threading.RLock()  # a signal handler may enqueue while its own thread makes the pool
        self._plain: Pool | None = None
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPool] = weakref.WeakKeyDictionary()

    def forked(self) -> None:
        """In a child that was just forked: begin anew."""
        # The parent's pools are kept and never touched: their sockets are the parent's to close, and their locks may be held
        # by threads that do not exist here.
        self._of_parents += [self._plain, self._loops]
        self._begin()

    @contextlib.contextmanager
    def plain(self, patience: float | None = None) -> "Iterator[Connection[Any]]":
        """A plain connection, from any thread.

        Args:
            patience: seconds to wait for one while all are in use (default: `connect_timeout`).

        Raises:
            StoreUnavailable: none could be had in time, and nothing was sent; or the answer was lost, and it is `unsure`.
        """
        pool = self._plain
        if pool is None:
            with self._guard:
                pool = self._plain = self._plain or self._database.pool(self._name, self._largest)
        with self._database.telling(), pool.connection(patience) as conn:
            yield conn

    @contextlib.asynccontextmanager
    async def of_loop(self, patience: float | None = None) -> "AsyncIterator[AsyncConnection[Any]]":
        """A connection of the running loop; none ever crosses loops.

        Args:
            patience: as for `plain`.

        Raises:
            StoreUnavailable: none could be had in time, and nothing was sent; or the answer was lost, and it is `unsure`.
        """
        loop = asyncio.get_running_loop()
        pool = self._loops.get(loop)
        if pool is None:
            # An embedded server is started off the loop; two callers at once may both come here, one pool stays.
            await asyncio.to_thread(lambda: self._database.url)
            pool = self._loops.get(loop)
        if pool is None:
            pool = self._loops[loop] = self._database.apool(self._name, self._largest)
        if len(self._loops) > 1:
            self._drop_closed()
        with self._database.telling():
            async with pool.connection(patience) as conn:
                yield conn

    def _drop_closed(self) -> None:
        # After `asyncio.run` nothing tells us that the loop is gone, and what a loop had to wait for may hold it: semaphores do.
        for ref in self._loops.keyrefs():
            loop = ref()
            if loop is not None and loop.is_closed() and (pool := self._loops.pop(loop, None)) is not None:
                pool.abandon()

    def close(self) -> None:
        """Close the plain pool, and those of loops that are closed."""
        pool, self._plain = self._plain, None
        if pool is not None:
            pool.close()
        self._drop_closed()

    async def aclose(self) -> None:
        """Close the pools of this process and the running loop."""
        self.close()
        pool = self._loops.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()


_all: "weakref.WeakSet[Connections]" = weakref.WeakSet()


def _forked() -> None:
    for connections in list(_all):
        connections.forked()


if hasattr(os, "register_at_fork"):  # before any thread of the child: two of them may be first at the same time
    os.register_at_fork(after_in_child=_forked)
