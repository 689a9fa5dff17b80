"""Connections for async code in a test: async ones that belong to no loop.

Each test has its own loop: to connect anew each time, and to plan the claim anew in that session, takes longer than the test.
The loop stands for the millisecond of a statement.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Self

from psycopg import AsyncConnection, waiting

from jobwell.store.arrays import teach
from jobwell.store.database import Database
from jobwell.store.link import Link

INTERVAL = 0.1  # seconds after which a Ctrl-C is seen


class BlockingConnection(AsyncConnection[Any]):
    """An async connection that waits for the server itself instead of asking the running loop to."""

    async def wait(self, gen: Any, interval: float = INTERVAL, timeout: float | None = None) -> Any:
        """Drive one exchange with the server to its end."""
        return waiting.wait(gen, self.pgconn.socket, interval=interval, timeout=timeout)

    @classmethod
    async def to(cls, database: Database, name: str) -> Self:
        """Connect."""
        with database.telling():
            return await cls.connect(**database.parameters(name), autocommit=True)

    def shut(self) -> None:
        """Close it, also where no loop runs."""
        self.pgconn.finish()


class BlockingLink(Link):
    """As a worker's link; on any loop, and kept from test to test.

    Args:
        database: where.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database, "testing worker")
        self._kept: BlockingConnection | None = None

    @contextlib.asynccontextmanager
    async def use(self) -> "AsyncIterator[AsyncConnection[Any]]":
        """The connection."""
        if self._kept is None or self._kept.closed:
            self._kept = await BlockingConnection.to(self._database, self._name)
            self._kept.prepare_threshold = 0
            teach(self._kept)
        with self._database.telling():
            yield self._kept

    async def close(self) -> None:
        """Close it; the next use makes a new one."""
        self.shut()

    def shut(self) -> None:
        """The same, without a loop."""
        if self._kept is not None:
            self._kept.shut()
