"""Connections that a caller lends us, with a transaction of the caller: psycopg, asyncpg, SQLAlchemy.

A door looks at what was lent, refuses it where the promise cannot be kept, and drives programs on it. It never commits, never
rolls back and never flushes; only a bulk sets a savepoint of its own. The errors of the caller's driver stay what they are: a
serialization failure has to reach the caller's own retry loop.

Neither library is imported unless the object at hand comes from it.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from psycopg import AsyncConnection, Connection, NotSupportedError
from psycopg.pq import Conninfo, PipelineStatus, TransactionStatus

from jobwell.core.errors import TransactionMisuse
from jobwell.store import bulk
from jobwell.store.dialects import as_text, numbered
from jobwell.store.feed import Feed
from jobwell.store.statements import Program, Query, Row, Statements, T, aask, ask

IN_FAILED_TRANSACTION = "25P02"
WHAT_MAY_COME = (
    "give a psycopg Connection or AsyncConnection, an asyncpg Connection,"
    " or a SQLAlchemy Session, Connection, AsyncSession or AsyncConnection"
)
PIPELINE = (
    "the connection is in pipeline mode, in which the server carries out what was sent only later: an enqueue would return before"
    " its job is stored, and in autocommit mode the job may be committed without your rows; enqueue outside `conn.pipeline()`."
    " Nothing was enqueued"
)
FAILED = "the transaction has failed already and can only be rolled back; nothing was enqueued"


class Door(ABC):
    """What both colours have.

    Attributes:
        key: stands for the database that the connection leads to: its address, or the driver's own connection.
        address: host, port and database, as they were given to the driver; None where it does not tell.
        place: where that is, for an error.
    """

    @abstractmethod
    def look(self) -> None:
        """Refuse what can be seen without asking the server.

        Raises:
            TransactionMisuse: with what is wrong and what to do.
        """

    @property
    @abstractmethod
    def key(self) -> Any:
        """See above."""

    @property
    @abstractmethod
    def address(self) -> tuple[str, str, str] | None:
        """See above."""

    @property
    def place(self) -> str:
        """See above."""
        return "another server or database"


class PlainDoor(Door):
    """To a connection for `enqueue`."""

    def open(self) -> None:
        """Look, and be ready to run programs. A session begins its transaction here."""
        self.look()

    def run(self, program: Program[T]) -> T:
        """Drive a program; an error of the driver passes through it first."""
        try:
            query = next(program)
            while True:
                try:
                    rows = self.execute(query)
                except BaseException as error:  # noqa: BLE001  the program decides: it gives it on
                    query = program.throw(told(error))
                else:
                    query = program.send(rows)
        except StopIteration as stop:
            value: T = stop.value
            return value

    @abstractmethod
    def execute(self, query: Query) -> list[Row]:
        """One statement."""

    def put(self, statements: Statements, feed: Feed) -> None:
        """Insert all or nothing."""
        self.run(bulk.by_arrays(statements, feed))


class AsyncDoor(Door):
    """To a connection for `aenqueue`."""

    async def open(self) -> None:
        """As of a plain one."""
        self.look()

    async def run(self, program: Program[T]) -> T:
        """As of a plain one."""
        try:
            query = next(program)
            while True:
                try:
                    rows = await self.execute(query)
                except BaseException as error:  # noqa: BLE001  the program decides: it gives it on
                    query = program.throw(told(error))
                else:
                    query = program.send(rows)
        except StopIteration as stop:
            value: T = stop.value
            return value

    @abstractmethod
    def execute(self, query: Query) -> Awaitable[list[Row]]:
        """One statement."""

    async def put(self, statements: Statements, feed: Feed) -> None:
        """Insert all or nothing."""
        await self.run(bulk.by_arrays(statements, feed))


def told(error: BaseException) -> BaseException:
    """The error as it is raised: the driver's own, save the one that says the transaction is over."""
    driver = getattr(error, "orig", None) or error
    state = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    if state != IN_FAILED_TRANSACTION:
        return error
    misuse = TransactionMisuse(FAILED)
    misuse.__cause__ = error
    return misuse


def key(driver: Any) -> Any:
    """What stands for the database behind a driver's connection: host, address, port and name, or else the connection itself."""
    info = getattr(driver, "info", None)
    if info is None or not hasattr(info, "dbname"):
        return getattr(driver, "_con", None) or driver  # asyncpg's pool wraps a connection anew each time it lends it
    return info.host, getattr(info, "hostaddr", ""), str(info.port), info.dbname


def address(driver: Any) -> tuple[str, str, str] | None:
    """Host, port and database of a driver's connection, where the driver tells."""
    info = getattr(driver, "info", None)
    if info is not None and hasattr(info, "dbname"):
        return info.host, str(info.port), info.dbname
    where, name = getattr(driver, "_addr", None), getattr(getattr(driver, "_params", None), "database", None)  # asyncpg
    if isinstance(where, str) and name:
        folder, _, file = where.rpartition("/")
        return folder, file.rpartition(".")[2], name
    return (str(where[0]), str(where[1]), name) if isinstance(where, tuple) and name else None


def in_pipeline(driver: Any) -> bool:
    """Whether a driver's connection is in libpq's pipeline mode."""
    try:
        return bool(getattr(getattr(driver, "pgconn", None), "pipeline_status", PipelineStatus.OFF) != PipelineStatus.OFF)
    except NotSupportedError:  # a libpq that is older than pipelines
        return False


def is_of(parameters: Mapping[str, Any], found: tuple[str, str, str] | None) -> bool:
    """Whether an address is one of those that connection parameters name, by the letter."""
    usual = {option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults()}
    given = usual | {name: str(value) for name, value in parameters.items() if value}
    hosts, ports = given["host"].split(","), given["port"].split(",")
    pairs = zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False)
    return found is not None and found[:2] in pairs and found[2] == (given["dbname"] or given["user"])


# --- psycopg -------------------------------------------------------------------------------------------------------------


class _Psycopg(Door):
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def look(self) -> None:
        if self.connection.closed:
            raise TransactionMisuse("the connection given is closed; nothing was enqueued")
        if in_pipeline(self.connection):
            raise TransactionMisuse(PIPELINE)
        status = self.connection.info.transaction_status
        if self.connection.autocommit and status == TransactionStatus.IDLE:
            verb = "with" if isinstance(self, PlainDoor) else "async with"
            raise TransactionMisuse(
                "the connection is in autocommit mode and has no open transaction, so the job could not commit together with"
                f" your rows; open one first (`{verb} conn.transaction():`), or enqueue without `within`"
            )
        if status == TransactionStatus.INERROR:
            raise TransactionMisuse(FAILED)

    @property
    def key(self) -> Any:
        return key(self.connection)

    @property
    def address(self) -> tuple[str, str, str] | None:
        return address(self.connection)

    @property
    def place(self) -> str:
        info = self.connection.info
        return f"{info.host or 'localhost'}:{info.port}/{info.dbname}"


class _PsycopgDoor(_Psycopg, PlainDoor):
    """To a psycopg Connection."""

    def execute(self, query: Query) -> list[Row]:
        return ask(self.connection, query)

    def put(self, statements: Statements, feed: Feed) -> None:
        bulk.put(self.connection, statements, feed)


class _AsyncPsycopgDoor(_Psycopg, AsyncDoor):
    """To a psycopg AsyncConnection."""

    async def execute(self, query: Query) -> list[Row]:
        return await aask(self.connection, query)

    async def put(self, statements: Statements, feed: Feed) -> None:
        await bulk.aput(self.connection, statements, feed)


# --- asyncpg -------------------------------------------------------------------------------------------------------------


class _AsyncpgDoor(AsyncDoor):
    """To an asyncpg Connection, also one lent by a pool.

    Statements go through `fetch`, so the connection's own `statement_cache_size` holds: 0, as behind PgBouncer, is honoured.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def look(self) -> None:
        from asyncpg import InterfaceError

        try:
            closed, inside = self.connection.is_closed(), self.connection.is_in_transaction()
        except InterfaceError:  # given back to its pool
            closed, inside = True, False
        if closed:
            raise TransactionMisuse("the connection given is closed, or was given back to its pool; nothing was enqueued")
        if not inside:
            raise TransactionMisuse(
                "the asyncpg connection has no open transaction, so the job could not commit together with your rows;"
                " open one first (`async with conn.transaction():`), or enqueue without `within`"
            )

    @property
    def key(self) -> Any:
        return key(self.connection)

    @property
    def address(self) -> tuple[str, str, str] | None:
        return address(self.connection)

    async def execute(self, query: Query) -> list[Row]:
        statement, names = numbered(query.sql)
        given = query.parameters or {}
        return [tuple(row) for row in await self.connection.fetch(statement, *(as_text(given[name]) for name in names))]


# --- what was lent -------------------------------------------------------------------------------------------------------


def door(lent: Any) -> PlainDoor | AsyncDoor:
    """The door to what a caller gives.

    Raises:
        TransactionMisuse: it is nothing that can be used.
    """
    if isinstance(lent, Connection):
        return _PsycopgDoor(lent)
    if isinstance(lent, AsyncConnection):
        return _AsyncPsycopgDoor(lent)
    for kind in type(lent).__mro__:
        make = _makers(kind.__module__).get(kind.__name__)
        if make is not None:
            return make(lent)
    raise TransactionMisuse(
        f"a {type(lent).__module__}.{type(lent).__qualname__} is not a connection that can be used here; {WHAT_MAY_COME}"
    )


def _makers(module: str) -> dict[str, Callable[[Any], PlainDoor | AsyncDoor]]:
    library = module.partition(".")[0]
    if library == "asyncpg":
        return {"Connection": _AsyncpgDoor, "PoolConnectionProxy": _AsyncpgDoor}
    if library == "sqlalchemy":
        from jobwell.store import borrowed_sqlalchemy

        return borrowed_sqlalchemy.makers(module)
    return {}
