"""Connections: how they are made, how their errors are told, and what a server looks like."""

import contextlib
import select
from collections.abc import Iterator
from typing import Any, NoReturn

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from jobwell.core.errors import SchemaMismatch, SettingsError, StoreError, StoreRefused, StoreUnavailable
from jobwell.settings import Settings, masked
from jobwell.store.statements import Program, Statements, T, run

OLDEST_SERVER = 150000
REFUSALS = ("does not exist", "authentication failed", "no pg_hba.conf entry", "permission denied")


class Database:
    """Where the store is. Owns the URL (an embedded server is started at the first use), makes connections, tells errors.

    Args:
        settings: checked settings.

    Raises:
        SettingsError: no URL is set (at the first use, not here).
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.statements = Statements(settings.schema)
        self._url: str | None = None

    @property
    def url(self) -> str:
        """The URL of the server; an embedded one is started here."""
        if self._url is None:
            url = self.settings.url
            if url == "embedded":
                from jobwell import embedded

                url = embedded.start().url
            self._url = url
        return self._url

    @property
    def place(self) -> str:
        """The URL as it may be shown."""
        return "the embedded server" if self.settings.database_url == "embedded" else masked(self.settings.url)

    def parameters(self, name: str, url: str = "", patience: float = 0.0) -> dict[str, Any]:
        """Keyword arguments for a connection: keep-alives and a deadline for everything that can hang."""
        settings = self.settings
        try:
            given = conninfo_to_dict(url or self.url)
        except psycopg.ProgrammingError as error:
            raise SettingsError(f"database_url={masked(settings.url)!r} cannot be read: {str(error).strip()}") from None
        chosen = {
            "application_name": f"jobwell {name}",
            "connect_timeout": max(2, round(min(settings.connect_timeout, patience or settings.connect_timeout))),
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": round((patience or settings.statement_timeout) * 1000),
        }
        return {**chosen, **given}

    def connect(self, name: str = "tool", *, direct: bool = False, patience: float = 0.0) -> "Connection[Any]":
        """A plain autocommit connection of one's own.

        Args:
            name: shown in pg_stat_activity.
            direct: past a pooler, where a direct URL is set.
            patience: seconds after which a silent network is given up (default: the settings' timeouts).

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses.
        """
        url = self.settings.direct_url if direct else ""
        with self.telling():
            return psycopg.connect(**self.parameters(name, url, patience), autocommit=True)

    async def aconnect(self, name: str = "tool") -> "AsyncConnection[Any]":
        """An async autocommit connection of one's own. Raises as `connect`."""
        parameters = self.parameters(name)
        with self.telling():
            return await AsyncConnection.connect(**parameters, autocommit=True)

    def pool(self, name: str, largest: int) -> "ConnectionPool[Connection[Any]]":
        """A pool of plain autocommit connections, opened and empty."""
        return ConnectionPool(
            kwargs={**self.parameters(name), "autocommit": True}, min_size=0, max_size=largest, open=True,
            timeout=self.settings.connect_timeout, max_idle=60.0, check=_check,
        )  # fmt: skip

    def apool(self, name: str, largest: int, smallest: int = 0) -> "AsyncConnectionPool[AsyncConnection[Any]]":
        """A pool of async autocommit connections, not opened yet."""
        return AsyncConnectionPool(
            kwargs={**self.parameters(name), "autocommit": True, "prepare_threshold": 0}, min_size=smallest, max_size=largest,
            open=False, timeout=self.settings.connect_timeout, max_idle=60.0, check=_acheck,
        )  # fmt: skip

    def run(self, program: Program[T], name: str = "tool") -> T:
        """Run a program on a connection made for it."""
        with self.connect(name) as conn, self.telling():
            return run(conn, program)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Turn the driver's errors into ours, where a person would not understand them."""
        try:
            yield
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction) as error:
            lacks = f"{self.place} has no Jobwell tables in the schema {self.settings.schema!r}, or older ones"
            raise SchemaMismatch(self._moved() or f"{lacks}; run `jobwell migrate`") from error
        except (psycopg.OperationalError, PoolTimeout) as error:
            self._unreachable(error)

    def _moved(self) -> str:
        """Where the store went, if it was moved away; asked only after a statement found no tables."""
        from jobwell.store import closing

        try:
            with psycopg.connect(**self.parameters("tool", patience=2.0), autocommit=True) as conn:
                found = closing.marker(conn, self.settings.schema)
        except psycopg.Error:
            return ""
        return found.sentence if found is not None else ""

    def _unreachable(self, error: Exception) -> NoReturn:
        said = str(error).strip().splitlines()
        reason = said[0].strip() if said else type(error).__name__
        state = getattr(error, "sqlstate", None)
        if state == "57014":
            raise StoreUnavailable(f"{self.place} did not answer in time: {reason}") from error
        if state is not None and state.startswith("25"):
            raise StoreError(f"{self.place} cannot be written: {reason} (is this a replica?)") from error
        if any(sign in reason for sign in REFUSALS):
            advice = "create it, or correct the URL" if "does not exist" in reason else "check user, password and access rules"
            raise StoreRefused(f"{self.place} refuses: {reason}; {advice}") from error
        raise StoreUnavailable(f"{self.place} cannot be reached: {reason}") from error


def check_fitness(conn: "Connection[Any]", statements: Statements) -> None:
    """What a worker cannot live with.

    Raises:
        StoreError: the server is read-only, which a fail-over may mend.
        StoreRefused: its transactions are stricter than claims and the fence are made for.
    """
    row = conn.execute(statements["server.fitness"]).fetchone()
    isolation, read_only, encoding = row if row is not None else ("", False, "")
    if encoding != "UTF8":
        raise StoreRefused(f"the database's encoding is {encoding}; Jobwell needs UTF8 to store any text")
    if read_only:
        raise StoreError("this server cannot be written (a replica, or default_transaction_read_only); give the primary's URL")
    if isolation != "read committed":
        raise StoreRefused(
            f"default_transaction_isolation is {isolation!r} here, and a worker needs 'read committed': give its role that by"
            " `alter role … set default_transaction_isolation = 'read committed'`"
        )


def _check(conn: "Connection[Any]") -> None:
    """Refuse a pooled connection that the server has closed.

    A round trip only where the socket has something to say: a quiet one is a live one, as far as one can know unasked.
    """
    if select.select([conn.fileno()], [], [], 0)[0]:
        ConnectionPool.check_connection(conn)


async def _acheck(conn: "AsyncConnection[Any]") -> None:
    if select.select([conn.fileno()], [], [], 0)[0]:
        await AsyncConnectionPool.check_connection(conn)


def is_lost(error: BaseException) -> bool:
    """Whether an error says that the connection or the server is gone, so that the answer to a statement is not known."""
    # A server that turned read-only is one to leave: behind its name there is another primary now, or soon.
    return isinstance(error, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction | PoolTimeout | OSError)


def is_locked(error: BaseException) -> bool:
    """Whether an error says that somebody else has what was asked for, and did not give it back in time."""
    return isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected)
