"""Connections whose every wait has an end, also when the peer acknowledges and never answers.

Neither keep-alives nor tcp_user_timeout notice such a peer (a proxy, a frozen server), and a statement_timeout of the server's
would need a session setting, which a pooler hands on to strangers. So the driver's waiting is watched from here: it looks up
ten times a second while nothing comes, which costs nothing while something does.
"""

import contextlib
import os
import select
import threading
import time
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.abc import RV, PQGen, PQGenConn

from jobwell.store.hosts import Way

CANCEL_PATIENCE = 1.0  # seconds for the request to stop the statement
LEFT_PATIENCE = 1.0  # seconds for a statement on a host from which this process has gone to another one
FORK_PATIENCE = 5.0  # seconds for which a fork waits for another thread's step of connecting: a name may be slow to look up


class Silence(psycopg.OperationalError):
    """The server took a statement and did not answer in time. The connection is closed."""


class _Connecting:
    """Keeps forks and the steps of connecting apart.

    While it connects (TLS, scram), the driver's C libraries hold locks of the whole process for moments. A child forked in such
    a moment by another thread inherits the lock, and nobody in it will ever open it: its own first connection would hang.
    """

    def __init__(self) -> None:
        self._step = threading.RLock()  # a signal handler may connect, or fork, in the middle of its thread's own step
        self._held = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._in_child)

    def apart(self, gen: PQGenConn[RV]) -> PQGenConn[RV]:
        """Hand the driver's generator through, each of its steps under the lock; what lies between holds nobody up."""
        try:
            with self._step:
                wanted = next(gen)
            while True:
                ready = yield wanted
                with self._step:
                    wanted = gen.send(ready)
        except StopIteration as stop:
            value: RV = stop.value
            return value
        finally:
            gen.close()

    def _before(self) -> None:
        self._held = self._step.acquire(timeout=FORK_PATIENCE)

    def _after(self) -> None:
        if self._held:
            self._step.release()

    def _in_child(self) -> None:
        self._step = threading.RLock()


_connecting = _Connecting()


class PlainConnection(Connection[Any]):
    """A plain connection with a deadline.

    Attributes:
        silence: seconds for which one wait for the server may last.
        cancelling: seconds for the request to stop what was not answered; 0: none is sent.
        way: which of several hosts it leads to.
    """

    silence = 30.0
    cancelling = CANCEL_PATIENCE
    way: Way | None = None

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[Self]:
        return _connecting.apart(super()._connect_gen(conninfo))

    def wait(self, gen: PQGen[RV], *given: Any, **options: Any) -> RV:
        """Drive the driver's generator.

        Raises:
            Silence: nothing came for so long.
        """
        try:
            return super().wait(_bounded(gen, self.silence, self.way), *given, **options)
        except Silence:
            if self.cancelling and not (self.way and self.way.left):
                with contextlib.suppress(psycopg.Error):  # it may wait for a lock, and would be carried out later
                    self.cancel_safe(timeout=self.cancelling)
            self.pgconn.finish()
            raise


class LoopConnection(AsyncConnection[Any]):
    """The same for async code."""

    silence = 30.0
    way: Way | None = None

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[Self]:
        return _connecting.apart(super()._connect_gen(conninfo))

    async def wait(self, gen: PQGen[RV], *given: Any, **options: Any) -> RV:
        """As in `PlainConnection`."""
        try:
            return await super().wait(_bounded(gen, self.silence, self.way), *given, **options)
        except Silence:
            if not (self.way and self.way.left):
                with contextlib.suppress(psycopg.Error):
                    await self.cancel_safe(timeout=CANCEL_PATIENCE)
            self.pgconn.finish()
            raise


def _bounded(gen: PQGen[RV], seconds: float, way: Way | None) -> PQGen[RV]:
    """Hand the driver's generator through, and break the wait when nothing has come for so long, or nothing good can come."""
    try:
        wanted = next(gen)
        began = time.monotonic()
        while True:
            ready = yield wanted
            if not ready:
                waited = time.monotonic() - began
                if waited > seconds:
                    if way is not None:
                        way.doubt()
                    raise Silence(f"no answer for {seconds:g} s")
                if waited > LEFT_PATIENCE and way is not None and way.left:
                    raise Silence("no answer, and another host is the primary now")
            wanted = gen.send(ready)
    except StopIteration as stop:
        value: RV = stop.value
        return value


def outdated(conn: PlainConnection | LoopConnection) -> bool:
    """Whether a connection leads to a host that is not the primary any more, or was ended by the server while it rested."""
    return (conn.way is not None and conn.way.left) or speaks(conn)


def speaks(conn: "Connection[Any] | AsyncConnection[Any]") -> bool:
    """Whether the server has said something unasked: mostly that it has closed the connection."""
    # poll, and not select: a process with many files has sockets beyond 1024
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(conn.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([conn.fileno()], [], [], 0)[0])
