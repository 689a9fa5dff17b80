"""Connections: how they are made, how their errors are told, and what a server looks like."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict

from jobwell.core.errors import JobwellError, SchemaMismatch, SettingsError, StoreError, StoreRefused, StoreUnavailable
from jobwell.settings import Settings, masked
from jobwell.store.arrays import teach
from jobwell.store.hosts import Hosts, failures, pairs, timeout
from jobwell.store.pool import LoopPool, Pool
from jobwell.store.statements import Program, Statements, T, run
from jobwell.store.wire import LoopConnection, PlainConnection, Silence

OLDEST_SERVER = 150000
ADVICE = {
    "does not exist": "create it, or correct the URL",
    "authentication failed": "check user, password and access rules",
    "no pg_hba.conf entry": "check user, password and access rules",
    "permission denied": "check user, password and access rules",
    "unsupported startup parameter": "take it out of the URL: a pooler does not pass it on",
}
QUOTED = re.compile("[\"'].*[\"']")
# The same where the driver gives a code: a server may speak another language.
ADVICE_BY_STATE = {
    "28P01": "check user, password and access rules",
    "28000": "check user, password and access rules",
    "42501": "check user, password and access rules",
    "3D000": "create it, or correct the URL",
}
# What statements find that were written for tables of this release.
OLDER = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedObject,
)
UNSENT_OR_UNDONE = ("53", "57014", "40")  # refused for want of room, cancelled, or rolled back: it took no effect
WHO = "select pg_backend_pid()"
USES_BEFORE_PREPARING = 5


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
        self._pooled = False  # what the last connection told
        self._hosts = Hosts()

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

    def parameters(self, name: str, url: str = "", patience: float = 0.0, within: float = 0.0) -> dict[str, Any]:
        """Keyword arguments for a connection: keep-alives and a deadline for everything that can hang.

        Of several hosts one that can be written is wanted, and the one that answered last is asked first.
        """
        settings = self.settings
        try:
            given = conninfo_to_dict(url or self.url)
        except psycopg.ProgrammingError as error:
            raise SettingsError(f"database_url={masked(settings.url)!r} cannot be read: {_unquoted(error)}") from None
        chosen = {
            "application_name": f"jobwell {name}",
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": round((patience or settings.statement_timeout) * 1000),
        }
        if len(pairs(given)) > 1:
            chosen["target_session_attrs"] = "read-write"
        seconds = timeout(given, settings.connect_timeout, within or patience)
        return {**chosen, **self._hosts.arranged(given), "connect_timeout": seconds}

    def connect(self, name: str = "tool", *, direct: bool = False, patience: float = 0.0) -> PlainConnection:
        """A plain autocommit connection of one's own. It prepares nothing, so that it works through any pooler.

        Args:
            name: shown in pg_stat_activity.
            direct: past a pooler, where a direct URL is set.
            patience: seconds after which a silent network is given up (default: the settings' timeouts).

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses; nothing was sent.
        """
        url = self.settings.direct_url if direct else ""
        parameters = self.parameters(name, url, patience)
        with self.telling(sent=False):
            conn = PlainConnection.connect(**parameters, autocommit=True, prepare_threshold=None)
        conn.way = self._hosts.answered(parameters, conn.info.host, conn.info.port)
        conn.silence = patience or self.settings.statement_timeout
        return conn

    async def aconnect(self, name: str = "tool", *, within: float = 0.0) -> LoopConnection:
        """An async autocommit connection, for one statement after the other: it prepares them, where the path allows it.

        Args:
            name: shown in pg_stat_activity.
            within: seconds that it may take (default: the setting).

        Raises:
            StoreUnavailable: the server cannot be reached, or refuses; nothing was sent.
        """
        parameters = self.parameters(name, within=within)
        with self.telling(sent=False):
            conn = await LoopConnection.connect(**parameters, autocommit=True, prepare_threshold=None)
            conn.way = self._hosts.answered(parameters, conn.info.host, conn.info.port)
            conn.silence = self.settings.statement_timeout
            try:
                if self.settings.pooler == "auto":
                    row = await (await conn.execute(WHO)).fetchone()
                    self._pooled = row is not None and row[0] != conn.info.backend_pid
            except BaseException:
                await conn.close()
                raise
        conn.prepare_threshold = None if self.pooled else 0
        teach(conn)
        return conn

    def is_pooled(self, conn: "Connection[Any]") -> bool:
        """Whether a pooler is in between: it gives out process ids of its own making."""
        row = conn.execute(WHO, prepare=False).fetchone()
        return row is not None and row[0] != conn.info.backend_pid

    @property
    def pooled(self) -> bool:
        """Whether the URL leads through a pooler in transaction mode, as the settings say or the last connection told."""
        return self.settings.pooler == "transaction" or (self.settings.pooler == "auto" and self._pooled)

    def pool(self, name: str, largest: int) -> Pool:
        """A pool of plain autocommit connections, empty."""

        def connect(seconds: float) -> PlainConnection:
            parameters = self.parameters(name, within=seconds)
            with self.telling(sent=False):
                conn = PlainConnection.connect(**parameters, autocommit=True, prepare_threshold=None)
                conn.way = self._hosts.answered(parameters, conn.info.host, conn.info.port)
                conn.silence = self.settings.statement_timeout
                try:
                    if self.settings.pooler == "auto":
                        self._pooled = self.is_pooled(conn)
                except BaseException:
                    conn.close()
                    raise
            conn.prepare_threshold = None if self.pooled else USES_BEFORE_PREPARING
            return conn

        return Pool(connect, largest, self.settings.connect_timeout)

    def apool(self, name: str, largest: int) -> LoopPool:
        """A pool of async autocommit connections, empty. Belongs to the running loop."""
        return LoopPool(lambda seconds: self.aconnect(name, within=seconds), largest, self.settings.connect_timeout)

    def run(self, program: Program[T], name: str = "tool") -> T:
        """Run a program on a connection made for it."""
        with self.connect(name) as conn, self.telling():
            return run(conn, program)

    @contextlib.contextmanager
    def telling(self, *, sent: bool = True) -> Iterator[None]:
        """Turn the driver's errors into ours, where a person would not understand them.

        Args:
            sent: whether something may have been sent: then a lost answer leaves its fate open.
        """
        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreRefused(self._lacks_rights(error)) from error
        except OLDER as error:
            lacks = f"{self.place} has no Jobwell tables in the schema {self.settings.schema!r}, or older ones"
            raise SchemaMismatch(self._moved() or f"{lacks}; run `jobwell migrate`") from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            raise StoreUnavailable(
                f"{self.place} cannot be written: {first_line(error)} (a replica, or not the primary yet?); nothing was changed"
            ) from error
        except psycopg.OperationalError as error:
            self._unreachable(error, sent=sent)

    def _moved(self) -> str:
        """Where the store went, if it was moved away; asked only after a statement found no tables."""
        from jobwell.store import closing

        try:
            with psycopg.connect(**self.parameters("tool", patience=2.0), autocommit=True) as conn:
                found = closing.marker(conn, self.settings.schema)
        except psycopg.Error:
            return ""
        return found.sentence if found is not None else ""

    def _lacks_rights(self, error: psycopg.Error) -> str:
        schema = self.settings.schema
        try:
            role = str(conninfo_to_dict(self.url).get("user") or "")
        except psycopg.Error:
            role = ""
        named = f"the role {role!r}" if role else "this role"
        to = f'"{role}"' if role else "it"
        return (
            f"{self.place}: {named} may not do this: {first_line(error)}. Nothing was changed by it; use the role that owns the"
            f" tables, or let that one `grant usage on schema {schema} to {to}` and `grant select, insert, update, delete on all"
            f" tables in schema {schema} to {to}`; tables are made, and old days dropped, by the owner only"
        )

    def _unreachable(self, error: psycopg.Error, *, sent: bool) -> NoReturn:
        reasons = failures(str(error))
        reason = "; ".join(f"{host}: {why}" for host, why in reasons) or first_line(error)
        state = error.sqlstate or ""
        if state == "57014":
            raise StoreUnavailable(f"{self.place} did not answer in time: {reason}") from error
        advice = _advice([why for _, why in reasons] or [reason], "" if reasons else state)
        if advice:
            raise StoreRefused(f"{self.place} refuses: {reason}; {advice}") from error
        unsure = sent and not state.startswith(UNSENT_OR_UNDONE)
        lost = "; the answer is lost, so it is not known whether what was asked for has taken effect" if unsure else ""
        what = "did not answer in time" if isinstance(error, Silence) else "cannot be reached"
        raise StoreUnavailable(f"{self.place} {what}: {reason}{lost}", unsure=unsure) from error


def _advice(reasons: list[str], state: str) -> str:
    """What to do about a server that refuses. Nothing while only some of several hosts do: the others may come back."""
    found = [next((words for sign, words in ADVICE.items() if sign in reason), "") for reason in reasons]
    return ADVICE_BY_STATE.get(state, "") or (found[0] if all(found) else "")


def check_fitness(conn: "Connection[Any]", statements: Statements) -> None:
    """What a worker cannot live with.

    Raises:
        StoreUnavailable: the server is read-only, which the end of a fail-over mends.
        StoreRefused: its transactions are stricter than claims and the fence are made for.
    """
    row = conn.execute(statements["server.fitness"]).fetchone()
    isolation, read_only, encoding = row if row is not None else ("", False, "")
    if encoding != "UTF8":
        raise StoreRefused(f"the database's encoding is {encoding}; Jobwell needs UTF8 to store any text")
    if read_only:
        raise StoreUnavailable(
            "this server cannot be written (a replica, or default_transaction_read_only); give the primary's URL, or wait for the"
            " end of its fail-over"
        )
    if isolation != "read committed":
        raise StoreRefused(
            f"default_transaction_isolation is {isolation!r} here, and a worker needs 'read committed': give its role that by"
            " `alter role … set default_transaction_isolation = 'read committed'`"
        )


def _unquoted(error: psycopg.Error) -> str:
    """What the driver says of a URL, without the pieces of it that it repeats: they may be of a password."""
    return f"{re.sub(QUOTED, '…', first_line(error))}; a '%' in a password is written '%25'"


def first_line(error: BaseException) -> str:
    """What an error of the driver says, without the places and hints below it."""
    said = str(error).strip().splitlines()
    return said[0].strip() if said else type(error).__name__


def last_word(error: BaseException) -> JobwellError | None:
    """An error of the driver that nobody has told, as one of ours; None: it is none of the driver's."""
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return StoreRefused(f"the role may not do this: {first_line(error)}; use the role that owns the tables")
    if isinstance(error, OLDER):
        return SchemaMismatch(f"the tables are not those of this release: {first_line(error)}; run `jobwell migrate`")
    if isinstance(error, psycopg.OperationalError):
        return StoreUnavailable(f"the database cannot be used now: {first_line(error)}", unsure=True)
    return StoreError(f"the database refused a statement: {first_line(error)}") if isinstance(error, psycopg.Error) else None


def is_lost(error: BaseException) -> bool:
    """Whether an error says that the connection or the server is gone, so that the answer to a statement is not known."""
    # A server that turned read-only is one to leave: behind its name there is another primary now, or soon.
    return isinstance(error, psycopg.OperationalError | psycopg.errors.ReadOnlySqlTransaction | OSError)


def is_locked(error: BaseException) -> bool:
    """Whether an error says that somebody else has what was asked for, and did not give it back in time."""
    return isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected)
