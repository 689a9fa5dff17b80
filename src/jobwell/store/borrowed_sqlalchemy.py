"""Doors to what SQLAlchemy lends. Imported only when such an object is at hand.

Statements go through SQLAlchemy's own `execute` alone: its asyncpg adapter begins the transaction before its own statements
only, so what is written on the raw connection behind it would not be rolled back. They go to the session's connection and not
to the session, whose `execute` and `begin_nested` may flush and call the caller's hooks.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import TextClause, text
from sqlalchemy.engine import Connection, TwoPhaseTransaction
from sqlalchemy.exc import InvalidRequestError, MissingGreenlet, UnboundExecutionError

from jobwell.core.errors import TransactionMisuse
from jobwell.store.borrowed import FAILED, PIPELINE, AsyncDoor, Door, PlainDoor, address, in_pipeline, key
from jobwell.store.dialects import as_text, named
from jobwell.store.statements import Query, Row

AUTOCOMMIT = (
    'the SQLAlchemy connection has the isolation level "AUTOCOMMIT", so the job could not commit together with your rows;'
    " take an engine with transactions, or enqueue without `within`"
)
TWO_PHASES = (
    "a two-phase transaction cannot carry jobs: PostgreSQL prepares none that has told a worker of its jobs (NOTIFY);"
    " enqueue after commit. Nothing was enqueued"
)
ONE_BIND = "give the connection that holds your rows: `conn=session.connection(bind_arguments={'mapper': Order})`"
MANY_BINDS = (
    f"the session has binds for single classes or tables, so it has more than one transaction; {ONE_BIND}. Nothing was enqueued"
)
WHOLE: dict[str, Any] = {"stream_results": False, "yield_per": None}  # a cursor of the server takes no INSERT


@cache
def _clause(statement: str) -> TextClause:
    return text(named(statement))


def _parameters(query: Query) -> dict[str, Any]:
    return {name: as_text(value) for name, value in (query.parameters or {}).items()}


# --- what is refused -----------------------------------------------------------------------------------------------------


def _check_dialect(bind: Any) -> None:
    if bind.dialect.name != "postgresql":
        raise TransactionMisuse(
            f"the transaction is on a {bind.dialect.name} database, but jobs live in PostgreSQL; one transaction cannot span two"
            " databases. Nothing was enqueued; write to an outbox table, or enqueue after commit"
        )


def _check_connection(connection: Connection | None) -> None:
    if connection is None:
        raise TransactionMisuse("the connection given is not open yet (`async with engine.connect() as conn:`)")
    if connection.closed or connection.invalidated:
        raise TransactionMisuse("the connection given is closed; nothing was enqueued")
    _check_dialect(connection)
    chosen = connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
    if chosen or getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise TransactionMisuse(AUTOCOMMIT)
    if in_pipeline(connection.connection.driver_connection):
        raise TransactionMisuse(PIPELINE)
    transaction = connection.get_nested_transaction() or connection.get_transaction()
    if isinstance(connection.get_transaction(), TwoPhaseTransaction):
        raise TransactionMisuse(TWO_PHASES)
    if transaction is not None and not transaction.is_active:
        raise TransactionMisuse(FAILED)


def _check_session(session: Any) -> None:
    if session.in_transaction() and not session.is_active:
        raise TransactionMisuse(FAILED)
    if session.twophase:
        raise TransactionMisuse(TWO_PHASES)
    try:
        bind = session.get_bind()
    except UnboundExecutionError as error:
        raise _no_transaction(error) from error
    _check_dialect(bind)
    binds = getattr(session, "binds", None) or getattr(session, "_Session__binds", {})  # since 2.1, and a private name of 2.0's
    if any(other is not bind for other in binds.values()):
        raise TransactionMisuse(MANY_BINDS)


def _no_transaction(error: InvalidRequestError) -> TransactionMisuse:
    advice = ""
    if isinstance(error, MissingGreenlet):
        advice = "; the engine is async: give the AsyncSession, and call `await task.aenqueue(…)`"
    elif isinstance(error, UnboundExecutionError):
        advice = f"; {ONE_BIND}"
    said = str(error).split(" (Background on this error")[0].strip().rstrip(".")
    return TransactionMisuse(f"the session has no transaction for a job: {said}{advice}. Nothing was enqueued")


# --- plain ---------------------------------------------------------------------------------------------------------------


class _Sqlalchemy(Door):
    _opened: Connection

    @property
    def key(self) -> Any:
        return key(self._opened.connection.driver_connection)

    @property
    def address(self) -> tuple[str, str, str] | None:
        return address(self._opened.connection.driver_connection)

    @property
    def place(self) -> str:
        return self._opened.engine.url.render_as_string(hide_password=True)


class _Plain(_Sqlalchemy, PlainDoor):
    def execute(self, query: Query) -> list[Row]:
        try:
            result = self._opened.execute(_clause(query.sql), _parameters(query), execution_options=WHOLE)
        except MissingGreenlet as error:
            raise _no_transaction(error) from error
        return [tuple(row) for row in result] if result.returns_rows else []


class _ConnectionDoor(_Plain):
    """To a SQLAlchemy Connection."""

    def __init__(self, connection: Any) -> None:
        self._opened = connection

    def look(self) -> None:
        _check_connection(self._opened)


class _SessionDoor(_Plain):
    """To a SQLAlchemy Session. One that has not begun yet begins here, as at any first statement."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def look(self) -> None:
        _check_session(self.session)

    def open(self) -> None:
        self.look()
        try:
            self._opened = self.session.connection()
        except InvalidRequestError as error:
            raise _no_transaction(error) from error
        _check_connection(self._opened)


# --- async ---------------------------------------------------------------------------------------------------------------


class _Async(_Sqlalchemy, AsyncDoor):
    connection: Any

    async def execute(self, query: Query) -> list[Row]:
        result = await self.connection.execute(_clause(query.sql), _parameters(query), execution_options=WHOLE)
        return [tuple(row) for row in result] if result.returns_rows else []


class _AsyncConnectionDoor(_Async):
    """To a SQLAlchemy AsyncConnection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def look(self) -> None:
        _check_connection(self.connection.sync_connection)

    async def open(self) -> None:
        self.look()
        self._opened = self.connection.sync_connection


class _AsyncSessionDoor(_Async):
    """To a SQLAlchemy AsyncSession."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def look(self) -> None:
        _check_session(self.session.sync_session)

    async def open(self) -> None:
        self.look()
        try:
            self.connection = await self.session.connection()
        except InvalidRequestError as error:
            raise _no_transaction(error) from error
        self._opened = self.connection.sync_connection
        _check_connection(self._opened)


def makers(module: str) -> dict[str, Callable[[Any], PlainDoor | AsyncDoor]]:
    """The doors to the classes of one of SQLAlchemy's modules, by their names."""
    return _MAKERS.get(module, {})


_MAKERS: dict[str, dict[str, Callable[[Any], PlainDoor | AsyncDoor]]] = {
    "sqlalchemy.engine.base": {"Connection": _ConnectionDoor},
    "sqlalchemy.orm.session": {"Session": _SessionDoor},
    "sqlalchemy.orm.scoping": {"scoped_session": lambda scoped: _SessionDoor(scoped())},
    "sqlalchemy.ext.asyncio.engine": {"AsyncConnection": _AsyncConnectionDoor},
    "sqlalchemy.ext.asyncio.session": {"AsyncSession": _AsyncSessionDoor},
    "sqlalchemy.ext.asyncio.scoping": {"async_scoped_session": lambda scoped: _AsyncSessionDoor(scoped())},
}
