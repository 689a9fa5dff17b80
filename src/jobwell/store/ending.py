"""Transactions in which a job's work is done, opened and ended by us: on a connection of ours, or on what SQLAlchemy makes.

Each is opened, used by the task, and ended once: by a commit, behind whatever statement we add as the last, or undone.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

from psycopg import AsyncTransaction, IsolationLevel, Transaction
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from jobwell.core.errors import TransactionMisuse
from jobwell.store.borrowed import AsyncDoor, PlainDoor
from jobwell.store.database import USES_BEFORE_PREPARING
from jobwell.store.statements import Program, T, arun, run

First = Callable[[], Program[None]]
Isolation = Literal["read committed", "repeatable read", "serializable"]
LEVELS = {
    "read committed": IsolationLevel.READ_COMMITTED, "repeatable read": IsolationLevel.REPEATABLE_READ,
    "serializable": IsolationLevel.SERIALIZABLE,
}  # fmt: skip
ENDED = (
    "the transaction of `ctx.transaction()` was ended inside its block, so that the job's end cannot commit with what was written"
    " there; leave commit and rollback to the block"
)
FAILED = (
    "the transaction of `ctx.transaction()` has failed, and the error was caught inside its block; let it pass, or use a"
    " savepoint (`conn.transaction()` inside) around what may fail. Everything was rolled back"
)
NOT_ONE = "ctx.transaction({0}) takes nothing, or what makes transactions of SQLAlchemy: {1}. Nothing was written"
ASYNC_KINDS, PLAIN_KINDS = "an AsyncEngine or an async_sessionmaker", "an Engine or a sessionmaker"


class Hold(Protocol):
    """One transaction of plain code."""

    def open(self) -> Any:
        """Begin; what the task is given."""

    def last(self, program: Program[T]) -> T:
        """Write what was kept back, and then this, behind which nothing comes any more.

        Raises:
            TransactionMisuse: the transaction is over, or has failed.
        """

    def commit(self) -> None:
        """Commit. After an error it is not known whether that has taken effect."""

    def undo(self, error: BaseException | None = None) -> None:
        """Roll back, because of this. Never raises."""

    def close(self) -> None:
        """Give the connection back. Never raises."""


class AsyncHold(Protocol):
    """The same of async code."""

    def open(self) -> Awaitable[Any]:
        """As of a plain one."""

    def last(self, program: Program[T]) -> Awaitable[T]:
        """As of a plain one."""

    def commit(self) -> Awaitable[None]:
        """As of a plain one."""

    def undo(self, error: BaseException | None = None) -> Awaitable[None]:
        """As of a plain one."""

    def close(self) -> Awaitable[None]:
        """As of a plain one."""


# --- on connections of our own -------------------------------------------------------------------------------------------


def _ready(conn: Any, seconds: float, *, pooled: bool) -> None:
    """A statement of the task's own may take as long as the job, and leaves nothing of its kind behind."""
    conn.silence = seconds
    conn.row_factory = tuple_row
    conn.prepare_threshold = None if pooled else USES_BEFORE_PREPARING


def _check(conn: Any) -> None:
    status = conn.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise TransactionMisuse(FAILED)
    if status != TransactionStatus.INTRANS and not conn.closed:
        raise TransactionMisuse(ENDED)


def _read_only(error: BaseException | None) -> BaseException | None:
    """Of an error and those behind it: that the server is not the primary any more. The pool closes its other connections too."""
    for _ in range(20):
        if error is None or isinstance(error, ReadOnlySqlTransaction):
            return error
        error = error.__cause__ or error.__context__
    return None


class _Pooled:
    """On a psycopg connection of a pool.

    Args:
        lend: lends it, as a context manager.
        isolation: of the transaction; None: as the server says.
        first: what is sent right behind the BEGIN.
        seconds: for which one statement may take.
        patience: seconds for our own statements.
        pooled: whether a pooler is in between.
    """

    def __init__(
        self,
        lend: Callable[[], Any],
        isolation: Isolation | None,
        first: First,
        *,
        seconds: float,
        patience: float,
        pooled: Callable[[], bool],
    ) -> None:
        self._lent = lend()
        self._isolation = isolation
        self._first = first
        self._seconds = seconds
        self._patience = patience
        self._pooled = pooled
        self._conn: Any = None
        self._told: BaseException | None = None  # what the pool is to know


class Own(_Pooled):
    """Of plain code."""

    _transaction: Transaction | None = None

    def open(self) -> Any:
        """Begin."""
        conn = self._conn = self._lent.__enter__()
        _ready(conn, self._seconds, pooled=self._pooled())
        conn.isolation_level = LEVELS[self._isolation] if self._isolation else None
        self._transaction = Transaction(conn)
        self._transaction.__enter__()
        run(conn, self._first())
        return conn

    def last(self, program: Program[T]) -> T:
        """Nothing was kept back here."""
        _check(self._conn)
        self._conn.silence = self._patience
        return run(self._conn, program)

    def commit(self) -> None:
        """Commit."""
        transaction, self._transaction = self._transaction, None
        assert transaction is not None
        transaction.__exit__(None, None, None)

    def undo(self, error: BaseException | None = None) -> None:
        """Roll back; where that cannot be done the connection is closed, which does it."""
        self._told = self._told or _read_only(error)
        conn, transaction, self._transaction = self._conn, self._transaction, None
        if conn is not None and transaction is not None:
            conn.silence = self._patience
            with contextlib.suppress(Exception):
                transaction.__exit__(RuntimeError, RuntimeError("rolled back"), None)
        if conn is not None and conn.info.transaction_status != TransactionStatus.IDLE:
            conn.close()

    def close(self) -> None:
        """Back to the pool, which closes what is not fit any more."""
        if self._conn is not None:
            if not self._conn.closed:
                self._conn.silence = self._patience
            with contextlib.suppress(Exception):
                self._lent.__exit__(type(self._told) if self._told else None, self._told, None)


class AsyncOwn(_Pooled):
    """As `Own`, for async code."""

    _transaction: AsyncTransaction | None = None

    async def open(self) -> Any:
        """Begin."""
        conn = self._conn = await self._lent.__aenter__()
        _ready(conn, self._seconds, pooled=self._pooled())
        await conn.set_isolation_level(LEVELS[self._isolation] if self._isolation else None)
        self._transaction = AsyncTransaction(conn)
        await self._transaction.__aenter__()
        await arun(conn, self._first())
        return conn

    async def last(self, program: Program[T]) -> T:
        """Nothing was kept back here."""
        _check(self._conn)
        self._conn.silence = self._patience
        return await arun(self._conn, program)

    async def commit(self) -> None:
        """Commit."""
        transaction, self._transaction = self._transaction, None
        assert transaction is not None
        await transaction.__aexit__(None, None, None)

    async def undo(self, error: BaseException | None = None) -> None:
        """Roll back; where that cannot be done the connection is closed, which does it."""
        self._told = self._told or _read_only(error)
        conn, transaction, self._transaction = self._conn, self._transaction, None
        if conn is not None and transaction is not None:
            conn.silence = self._patience
            with contextlib.suppress(Exception):
                await transaction.__aexit__(RuntimeError, RuntimeError("rolled back"), None)
        if conn is not None and conn.info.transaction_status != TransactionStatus.IDLE:
            await conn.close()

    async def close(self) -> None:
        """Back to the pool, which closes what is not fit any more."""
        if self._conn is not None:
            if not self._conn.closed:
                self._conn.silence = self._patience
            with contextlib.suppress(Exception):
                await self._lent.__aexit__(type(self._told) if self._told else None, self._told, None)


# --- on what SQLAlchemy makes --------------------------------------------------------------------------------------------


def check_source(source: Any, *, coroutine: bool) -> None:
    """Refuse what makes no transaction of this colour.

    Raises:
        TransactionMisuse: with what to give.
    """
    modules = [kind.__module__ for kind in type(source).__mro__]
    known = any(module.startswith("sqlalchemy.") for module in modules) and (hasattr(source, "connect") or callable(source))
    of_async = any(module.startswith("sqlalchemy.ext.asyncio") for module in modules)
    if not known or of_async != coroutine or not (hasattr(source, "dialect") or callable(source)):
        raise TransactionMisuse(NOT_ONE.format(type(source).__name__, ASYNC_KINDS if coroutine else PLAIN_KINDS))


class Lent:
    """On a session or a connection that SQLAlchemy makes.

    Args:
        source: an Engine or a sessionmaker.
        isolation: of the transaction.
        first: what is sent right behind the BEGIN.
        vouch: opens the door to what was made, and refuses another database than the store's.
    """

    def __init__(self, source: Any, isolation: Isolation | None, first: First, vouch: Callable[[Any], PlainDoor]) -> None:
        check_source(source, coroutine=False)
        self._source = source
        self._isolation = isolation
        self._first = first
        self._vouch = vouch
        self._made: Any = None
        self._door: PlainDoor | None = None
        self._transaction: Any = None

    def open(self) -> Any:
        """Begin."""
        is_engine = hasattr(self._source, "connect")
        made = self._made = self._source.connect() if is_engine else self._source()
        options = {"isolation_level": self._isolation.upper()} if self._isolation else {}
        if is_engine:
            if options:
                made.execution_options(**options)
            made.begin()
        else:
            made.connection(execution_options=options)
        self._transaction = made.get_transaction()
        self._door = self._vouch(made)
        self._door.run(self._first())
        return made

    def last(self, program: Program[T]) -> T:
        """Behind what the session has kept back."""
        made, door = self._made, self._door
        assert door is not None
        if made.get_transaction() is not self._transaction or not self._transaction.is_active:
            raise TransactionMisuse(ENDED)
        if hasattr(made, "flush"):
            made.flush()
        return door.run(program)

    def commit(self) -> None:
        """Commit."""
        self._made.commit()

    def undo(self, error: BaseException | None = None) -> None:
        """Roll back."""
        with contextlib.suppress(Exception):
            self._made.rollback()

    def close(self) -> None:
        """Back to SQLAlchemy's pool."""
        if self._made is not None:
            with contextlib.suppress(Exception):
                self._made.close()


class AsyncLent:
    """As `Lent`, for async code: an AsyncEngine or an async_sessionmaker."""

    def __init__(
        self, source: Any, isolation: Isolation | None, first: First, vouch: Callable[[Any], Awaitable[AsyncDoor]]
    ) -> None:
        check_source(source, coroutine=True)
        self._source = source
        self._isolation = isolation
        self._first = first
        self._vouch = vouch
        self._made: Any = None
        self._door: AsyncDoor | None = None
        self._transaction: Any = None

    @property
    def _inner(self) -> Any:
        return getattr(self._made, "sync_session", None) or self._made.sync_connection

    async def open(self) -> Any:
        """Begin."""
        is_engine = hasattr(self._source, "connect")
        made = self._source.connect() if is_engine else self._source()
        self._made = await made if is_engine else made
        options = {"isolation_level": self._isolation.upper()} if self._isolation else {}
        if is_engine:
            if options:
                await self._made.execution_options(**options)
            await self._made.begin()
        else:
            await self._made.connection(execution_options=options)
        self._transaction = self._inner.get_transaction()
        self._door = await self._vouch(self._made)
        await self._door.run(self._first())
        return self._made

    async def last(self, program: Program[T]) -> T:
        """Behind what the session has kept back."""
        made, door = self._made, self._door
        assert door is not None
        if self._inner.get_transaction() is not self._transaction or not self._transaction.is_active:
            raise TransactionMisuse(ENDED)
        if hasattr(made, "flush"):
            await made.flush()
        return await door.run(program)

    async def commit(self) -> None:
        """Commit."""
        await self._made.commit()

    async def undo(self, error: BaseException | None = None) -> None:
        """Roll back."""
        with contextlib.suppress(Exception):
            await self._made.rollback()

    async def close(self) -> None:
        """Back to SQLAlchemy's pool."""
        if self._made is not None:
            with contextlib.suppress(Exception):
                await self._made.close()
