"""Enqueue within the caller's transaction: the job commits or vanishes with the caller's rows."""

import os
import weakref
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from jobwell.core.errors import TransactionMisuse
from jobwell.store.borrowed import AsyncDoor, Door, PlainDoor, door
from jobwell.store.database import Database

PLAIN_ADVICE = "use `using(conn=…)`, or enqueue without `within`"


class Within:
    """`with app.within(conn): …` — every enqueue inside goes through that connection. Never commits, never rolls back."""

    def __init__(self, guard: "Guard", connection: Any) -> None:
        self._guard = guard
        self.connection = connection
        self.open = False
        self.process = 0
        self._token: Token[Within | None] | None = None

    def __enter__(self) -> Self:
        self._guard.check(self.connection)
        self.process = os.getpid()
        self._token = _current.set(self)
        self.open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.open = False
        if self._token is not None:
            _current.reset(self._token)


_current: ContextVar[Within | None] = ContextVar("jobwell.within", default=None)


def current() -> Any | None:
    """The connection of the innermost `within`, or None.

    Raises:
        TransactionMisuse: that `within` has ended (a task or thread that began inside it goes on), or was entered before a fork.
    """
    inside = _current.get()
    if inside is None:
        return None
    if not inside.open:
        raise TransactionMisuse(
            "this code began inside `app.within(…)`, which has ended since; its transaction may be over."
            f" Nothing was enqueued; {PLAIN_ADVICE}"
        )
    if inside.process != os.getpid():
        raise TransactionMisuse(
            "this process was forked inside `app.within(…)`: the connection is its parent's, and two processes on one connection"
            f" mix their answers. Nothing was enqueued; {PLAIN_ADVICE} with a connection of this process"
        )
    return inside.connection


def refuse_waiting() -> None:
    """Refuse to wait for a job inside an open `within`.

    Raises:
        TransactionMisuse: the job may be one of this transaction, which commits only after the waiting.
    """
    inside = _current.get()
    if inside is not None and inside.open:
        raise TransactionMisuse(
            "waiting for a job inside `app.within(…)` would wait for ever: a job enqueued here begins after your transaction has"
            " committed. Keep the handle, and ask for its result behind the block"
        )


class Guard:
    """Refuses connections on which the promise cannot be kept.

    Args:
        database: the store, whose identity is compared.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ours: UUID | None = None
        self._addresses: set[tuple[str, str, str]] = set()
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()  # of drivers that do not tell an address

    def check(self, connection: Any) -> None:
        """Refuse what can be seen without asking the server.

        Raises:
            TransactionMisuse: with what is wrong and what to do.
        """
        door(connection).look()

    def plain(self, connection: Any) -> PlainDoor:
        """The door for `enqueue`.

        Raises:
            TransactionMisuse: as `check`, or the connection is async.
        """
        found = door(connection)
        if isinstance(found, PlainDoor):
            return found
        found.look()
        raise TransactionMisuse(
            "the transaction is on the async connection given; call `await task.aenqueue(…)` instead; nothing was enqueued"
        )

    def asynchronous(self, connection: Any) -> AsyncDoor:
        """The door for `aenqueue`. Raises as `plain`, the other way round."""
        found = door(connection)
        if isinstance(found, AsyncDoor):
            return found
        found.look()
        raise TransactionMisuse(
            "the transaction is on the plain connection given; call `task.enqueue(…)` instead; nothing was enqueued"
        )

    def known(self, lent: Door) -> bool:
        """Whether this way was found to lead to the store before."""
        key = lent.key
        return key in self._addresses if isinstance(key, tuple) else key in self._connections

    def ours(self) -> UUID:
        """The store's identity."""
        if self._ours is None:
            with self._database.connect("client") as conn, self._database.telling():
                row = conn.execute(self._database.statements["server.store_id"]).fetchone()
            self._ours = UUID(row[0]) if row else None
        if self._ours is None:
            raise TransactionMisuse("the store has no identity; run `jobwell migrate`")
        return self._ours

    def compare(self, lent: Door, found: UUID | None) -> None:
        """Accept or refuse by the identity read over the caller's connection.

        Raises:
            TransactionMisuse: it is another database than the store's.
        """
        if found is None or found != self.ours():
            raise TransactionMisuse(
                f"the connection leads to {lent.place}, but the jobs are in {self._database.place};"
                " one transaction cannot span two databases. Nothing was enqueued; write to an outbox table,"
                " or enqueue after commit"
            )
        key = lent.key
        if isinstance(key, tuple):
            self._addresses.add(key)
        else:
            self._connections.add(key)
