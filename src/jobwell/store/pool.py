"""Pools of connections that cannot go stale: whoever finds none ready makes one, and is told the reason when that fails.

No thread of a pool's own reconnects, gives up, or is out of step with the server: there is nothing to recover from. Who waits
for a place holds no connection.
"""

import asyncio
import contextlib
import os
import queue
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from jobwell.core.errors import StoreUnavailable
from jobwell.store.wire import LoopConnection, PlainConnection, speaks

REST = 60.0  # seconds after which an idle connection is closed
PROVE_AFTER = 5.0  # seconds of idleness after which a connection must answer before it is trusted: firewalls drop in silence
PROOF_PATIENCE = 2.0  # seconds for that answer

C = TypeVar("C", PlainConnection, LoopConnection)


def pauses(longest: float = 1.0) -> Iterator[float]:
    """Seconds between attempts to connect: growing, and never the same for two processes that failed together."""
    pause = 0.05
    while True:
        yield pause * random.uniform(0.5, 1.5)  # noqa: S311
        pause = min(longest, pause * 2)


class _Shelf(Generic[C]):
    """Idle connections, the freshest last, with the time since when each has been idle. For any thread and signal handler."""

    def __init__(self) -> None:
        self._idle: deque[tuple[C, float]] = deque()  # whose single steps need no lock
        self._pid = os.getpid()

    def __del__(self) -> None:
        # Nobody can use them any more, and the driver warns of what is left open. Those of a parent are the parent's.
        with contextlib.suppress(Exception):
            self.clear()

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> tuple[C, float] | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def put(self, conn: C) -> None:
        self._idle.append((conn, time.monotonic()))

    def clear(self, *, older_than: float = 0.0) -> None:
        """Close what has been idle for longer."""
        if os.getpid() != self._pid:
            return
        limit = time.monotonic() - older_than
        with contextlib.suppress(IndexError):
            while True:
                conn, since = self._idle.popleft()
                if since > limit:
                    self._idle.appendleft((conn, since))
                    return
                conn.pgconn.finish()


def _reusable(conn: PlainConnection | LoopConnection) -> bool:
    return not conn.closed and conn.pgconn.transaction_status == TransactionStatus.IDLE


class Pool:
    """Plain connections, for any thread.

    Also for a signal handler that runs in the middle of anything here: there are no locks to wait for, but a queue of places,
    which Python makes for that.

    Args:
        connect: makes one, within so many seconds.
        largest: connections at the most.
        patience: seconds for which a caller waits for a place, or for the server.
    """

    def __init__(self, connect: Callable[[float], PlainConnection], largest: int, patience: float) -> None:
        self._connect = connect
        self._patience = patience
        self._largest = largest
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(largest):
            self._places.put(None)
        self._shelf: _Shelf[PlainConnection] = _Shelf()
        self._cleaning = threading.Lock()  # held by the planned cleaning; nobody waits for it
        self._cleaner: threading.Timer | None = None
        self._closed = False
        self._reason = ""

    @contextlib.contextmanager
    def connection(self, patience: float | None = None) -> Iterator[PlainConnection]:
        """One, for the block. What the block leaves in a transaction, or broken, is closed.

        Args:
            patience: seconds to wait for a place (default: the pool's own).

        Raises:
            StoreUnavailable: none could be had in time; nothing was sent.
        """
        conn = self._take(patience)
        try:
            yield conn
        except psycopg.errors.ReadOnlySqlTransaction:  # the others lead to the same server, which is not the primary any more
            conn.close()
            self._shelf.clear()
            raise
        finally:
            self._give(conn)

    def _take(self, patience: float | None) -> PlainConnection:
        until = time.monotonic() + self._patience
        try:
            self._places.get(timeout=self._patience if patience is None else patience)
        except queue.Empty:
            raise _full(self._largest, patience or self._patience, self._reason) from None
        if patience is not None:
            until = time.monotonic() + self._patience
        try:
            while (found := self._shelf.take()) is not None:
                if self._lives(*found):
                    return found[0]
            return self._make(until)
        except BaseException:
            self._places.put(None)
            raise

    def _lives(self, conn: PlainConnection, since: float) -> bool:
        idle = time.monotonic() - since
        if conn.way is not None and conn.way.left:
            conn.close()
            return False
        if idle < PROVE_AFTER and not speaks(conn):
            return True
        usual, conn.silence = conn.silence, min(PROOF_PATIENCE, conn.silence)
        try:
            conn.execute("")
        except psycopg.Error:
            conn.close()
            self._shelf.clear(older_than=min(idle, PROVE_AFTER))  # what rested as long will be no better
            return False
        conn.silence = usual
        return True

    def _make(self, until: float) -> PlainConnection:
        for pause in pauses():
            try:
                made = self._connect(until - time.monotonic())
            except StoreUnavailable as error:
                self._reason = error.message
                if time.monotonic() + pause > until:
                    raise
                time.sleep(pause)
            else:
                self._reason = ""
                return made
        raise AssertionError  # the pauses have no end

    def _give(self, conn: PlainConnection) -> None:
        # What was asked for is done, perhaps committed: nothing here may say otherwise, nor cost a place.
        try:
            if not self._closed and _reusable(conn):
                self._shelf.put(conn)
                self._plan_cleaning()
            else:
                conn.close()
            if self._closed:
                self._shelf.clear()
        finally:
            self._places.put(None)

    def _plan_cleaning(self) -> None:
        if not self._cleaning.acquire(blocking=False):
            return
        try:
            timer = threading.Timer(REST, _clean, [weakref.ref(self)])
            timer.daemon = True
            timer.start()
        except RuntimeError:  # no more threads: the next connection that is given back tries again
            self._cleaning.release()
        else:
            self._cleaner = timer

    def clean(self) -> None:
        """Close what has not been used for long."""
        self._cleaning.release()
        self._shelf.clear(older_than=REST)
        if len(self._shelf):
            self._plan_cleaning()

    def close(self) -> None:
        """Close them; those in use when they are given back."""
        self._closed = True
        self._shelf.clear()
        if self._cleaner is not None:
            self._cleaner.cancel()


class LoopPool:
    """Async connections, for one event loop. As `Pool`.

    Args:
        connect: makes one, within so many seconds.
        largest: connections at the most.
        patience: seconds for which a caller waits for a place, or for the server.
    """

    def __init__(self, connect: Callable[[float], Awaitable[LoopConnection]], largest: int, patience: float) -> None:
        self._connect = connect
        self._patience = patience
        self._largest = largest
        self._places = asyncio.Semaphore(largest)
        self._shelf: _Shelf[LoopConnection] = _Shelf()
        self._cleaning = False  # the handle itself would hold the loop, and so keep it and this pool for ever
        self._closed = False
        self._reason = ""

    @contextlib.asynccontextmanager
    async def connection(self, patience: float | None = None) -> AsyncIterator[LoopConnection]:
        """One, for the block.

        Args:
            patience: seconds to wait for a place (default: the pool's own).

        Raises:
            StoreUnavailable: none could be had in time; nothing was sent.
        """
        conn = await self._take(patience)
        try:
            yield conn
        except psycopg.errors.ReadOnlySqlTransaction:
            await conn.close()
            self._shelf.clear()
            raise
        finally:
            await self._give(conn)

    async def _take(self, patience: float | None) -> LoopConnection:
        until = time.monotonic() + self._patience
        try:
            async with (
                asyncio.timeout(self._patience if patience is None else patience)
                if self._places.locked()
                else contextlib.nullcontext()
            ):
                await self._places.acquire()
        except TimeoutError:
            raise _full(self._largest, patience or self._patience, self._reason) from None
        if patience is not None:
            until = time.monotonic() + self._patience
        try:
            while (found := self._shelf.take()) is not None:
                if await self._lives(*found):
                    return found[0]
            return await self._make(until)
        except BaseException:
            self._places.release()
            raise

    async def _lives(self, conn: LoopConnection, since: float) -> bool:
        idle = time.monotonic() - since
        if conn.way is not None and conn.way.left:
            await conn.close()
            return False
        if idle < PROVE_AFTER and not speaks(conn):
            return True
        usual, conn.silence = conn.silence, min(PROOF_PATIENCE, conn.silence)
        try:
            await conn.execute("")
        except psycopg.Error:
            await conn.close()
            self._shelf.clear(older_than=min(idle, PROVE_AFTER))
            return False
        except asyncio.CancelledError:
            await conn.close()
            raise
        conn.silence = usual
        return True

    async def _make(self, until: float) -> LoopConnection:
        for pause in pauses():
            try:
                made = await self._connect(until - time.monotonic())
            except StoreUnavailable as error:
                self._reason = error.message
                if time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(pause)
            else:
                self._reason = ""
                return made
        raise AssertionError  # the pauses have no end

    async def _give(self, conn: LoopConnection) -> None:
        try:
            if not self._closed and _reusable(conn):
                self._shelf.put(conn)
                self._plan_cleaning()
            else:
                await conn.close()
        finally:
            self._places.release()

    def _plan_cleaning(self) -> None:
        if not self._cleaning:
            asyncio.get_running_loop().call_later(REST, _clean, weakref.ref(self))
            self._cleaning = True

    def clean(self) -> None:
        """Close what has not been used for long."""
        self._cleaning = False
        self._shelf.clear(older_than=REST)
        if len(self._shelf):
            self._plan_cleaning()

    async def close(self) -> None:
        """Close them; those in use when they are given back."""
        self.abandon()

    def abandon(self) -> None:
        """As `close`; needs no loop, so that it also serves when the loop is closed."""
        self._closed = True
        self._shelf.clear()


def _clean(pool: "weakref.ref[Pool] | weakref.ref[LoopPool]") -> None:
    alive = pool()
    if alive is not None:
        alive.clean()


def _full(largest: int, patience: float, reason: str) -> StoreUnavailable:
    why = f"; the last attempt to connect said: {reason}" if reason else ""
    return StoreUnavailable(
        f"all {largest} connections of this process have been in use for {patience:g} s, so nothing was sent{why}"
    )
