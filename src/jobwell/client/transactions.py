"""Enqueue within the caller's transaction: the job commits or vanishes with the caller's rows."""

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from jobwell.core.errors import TransactionMisuse
from jobwell.store.database import Database

PLAIN_ADVICE = "use `using(conn=…)`, or enqueue without `within`"


class Within:
    """`with app.within(conn): …` — every enqueue inside goes through that connection. Never commits, never rolls back."""

    def __init__(self, guard: "Guard", connection: Any) -> None:
        self._guard = guard
        self.connection = connection
        self.open = False
        self._token: Token[Within | None] | None = None

    def __enter__(self) -> Self:
        self._guard.check(self.connection)
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
        TransactionMisuse: that `within` has ended (a task or thread that began inside it goes on).
    """
    inside = _current.get()
    if inside is None:
        return None
    if not inside.open:
        raise TransactionMisuse(
            "this code began inside `app.within(…)`, which has ended since; its transaction may be over."
            f" Nothing was enqueued; {PLAIN_ADVICE}"
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
        self._good: set[tuple[str, str, str]] = set()

    def check(self, connection: Any) -> None:
        """Refuse what can be seen without asking the server.

        Raises:
            TransactionMisuse: not a psycopg connection; idle in autocommit mode; or in a failed transaction.
        """
        if not isinstance(connection, Connection | AsyncConnection):
            raise TransactionMisuse(
                f"a {type(connection).__module__}.{type(connection).__qualname__} is not a connection that can be used here;"
                " give a psycopg Connection or AsyncConnection"
            )
        if connection.closed:
            raise TransactionMisuse("the connection given is closed; nothing was enqueued")
        status = connection.info.transaction_status
        if connection.autocommit and status == TransactionStatus.IDLE:
            raise TransactionMisuse(
                "the connection is in autocommit mode and has no open transaction, so the job could not commit together with"
                " your rows; open one first (`with conn.transaction():`), or enqueue without `within`"
            )
        if status == TransactionStatus.INERROR:
            raise TransactionMisuse("the transaction has failed already and can only be rolled back; nothing was enqueued")

    def colour(self, connection: Any, wanted: type, verb: str) -> None:
        """Refuse a connection of the other colour.

        Raises:
            TransactionMisuse: with the verb to use.
        """
        self.check(connection)
        if not isinstance(connection, wanted):
            found = "plain" if wanted is AsyncConnection else "async"
            raise TransactionMisuse(
                f"the transaction is on the {found} connection given; call `{verb}` instead; nothing was enqueued"
            )

    def known(self, connection: Any) -> bool:
        """Whether this server and database was found to be the store's before."""
        return _address(connection) in self._good

    def ours(self) -> UUID:
        """The store's identity."""
        if self._ours is None:
            with self._database.connect("client") as conn, self._database.telling():
                row = conn.execute(self._database.statements["server.store_id"]).fetchone()
            self._ours = row[0] if row else None
        if self._ours is None:
            raise TransactionMisuse("the store has no identity; run `jobwell migrate`")
        return self._ours

    def compare(self, connection: Any, found: UUID | None) -> None:
        """Accept or refuse by the identity read over the caller's connection.

        Raises:
            TransactionMisuse: it is another database than the store's.
        """
        if found is None or found != self.ours():
            where = f"{connection.info.host or 'localhost'}:{connection.info.port}/{connection.info.dbname}"
            raise TransactionMisuse(
                f"the connection leads to {where}, but the jobs are in {self._database.place};"
                " one transaction cannot span two databases. Nothing was enqueued; write to an outbox table,"
                " or enqueue after commit"
            )
        self._good.add(_address(connection))


def _address(connection: Any) -> tuple[str, str, str]:
    info = connection.info
    return info.host or info.hostaddr, str(info.port), info.dbname
