"""Whether a connection that a caller lends leads to the store: by the store's identity, read over it and over one of ours."""

import contextlib
import threading
import time
import weakref
from typing import Any, NamedTuple
from uuid import UUID

from jobwell.core.errors import SchemaMismatch, StoreError, StoreRefused, StoreUnavailable, TransactionMisuse
from jobwell.store.borrowed import AsyncDoor, Door, PlainDoor, door, is_of
from jobwell.store.database import Database

PATIENCE = 2.0  # seconds for our own reading: the caller's transaction may hold the very connection that it waits for
SOON = 30.0  # seconds after which a reading that failed is tried again
LASTS = 300.0  # seconds for which a way is trusted: another server may take over the name


class Way(NamedTuple):
    """What a door tells of where it leads, taken where the connection may be touched."""

    key: Any
    address: tuple[str, str, str] | None
    place: str

    @classmethod
    def of(cls, lent: Door) -> "Way":
        """Of an open door."""
        return cls(lent.key, lent.address, lent.place)


class Guard:
    """Refuses connections on which the promise cannot be kept.

    Our own reading of the identity needs one connection more while the caller's transaction may hold the last one, of a full
    server or a pooler. So one caller at a time reads, for 2 s at the most. Where nothing is to be had, the address decides:
    host, port and database of the caller's connection, by the letter those of the store's URL; it is looked at again soon.

    Args:
        database: the store, whose identity is compared.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ours: UUID | None = None
        self._read_at = 0.0
        self._reading = threading.Lock()
        self._refused: tuple[float, str] | None = None  # when a reading has failed, and why
        self._addresses: dict[tuple[str, ...], float] = {}  # trusted until then
        self._connections: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()  # of drivers that tell no address

    def check(self, connection: Any) -> None:
        """Refuse what can be seen without asking the server.

        For plain code the identity is read here, the first time: the caller's transaction may hold nothing yet.

        Raises:
            TransactionMisuse: with what is wrong and what to do.
        """
        found = door(connection)
        found.look()
        if isinstance(found, PlainDoor):
            self.prepare()

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
        """Whether this way was found to lead to the store, not long ago."""
        key = lent.key
        until = self._addresses.get(key) if isinstance(key, tuple) else self._connections.get(key)
        return until is not None and time.monotonic() < until

    def prepare(self) -> None:
        """Read the store's identity, if that has not been done and can be done."""
        with contextlib.suppress(StoreError, TransactionMisuse):
            self.ours()

    def ours(self) -> UUID:
        """The store's identity.

        Raises:
            StoreUnavailable: it cannot be had now.
        """
        return self._ours or self._read(since=0.0)

    def _read(self, since: float) -> UUID:
        if not self._reading.acquire(timeout=2 * PATIENCE):
            raise StoreUnavailable("the store was not asked for its identity: another caller has been doing that for long")
        try:
            if self._ours is not None and self._read_at >= since:
                return self._ours
            if self._refused is not None and time.monotonic() < self._refused[0] + SOON:
                raise StoreUnavailable(self._refused[1])
            self._refused = None
            self._ours = self._asked()
            self._read_at = time.monotonic()
            return self._ours
        finally:
            self._reading.release()

    def _asked(self) -> UUID:
        try:
            with self._database.connect("client", patience=PATIENCE) as conn, self._database.telling(sent=False):
                row = conn.execute(self._database.statements["server.store_id"]).fetchone()
        except (SchemaMismatch, StoreRefused):
            raise
        except StoreError as error:
            self._refused = time.monotonic(), error.message
            raise
        if row is None:
            raise TransactionMisuse("the store has no identity; run `jobwell migrate`")
        return UUID(row[0])

    def compare(self, found: UUID | None, way: Way) -> None:
        """Accept or refuse by the identity read over the caller's connection.

        Raises:
            TransactionMisuse: it is another database than the store's.
            StoreUnavailable: neither identity nor address tell.
        """
        lasts = LASTS
        try:
            same = found is not None and (found == self.ours() or found == self._anew())
        except (SchemaMismatch, StoreRefused):
            raise
        except StoreError as error:
            if not is_of(self._database.parameters("client"), way.address):
                raise StoreUnavailable(
                    f"whether the connection given leads to the store cannot be found out now: {error.message};"
                    " nothing was enqueued"
                ) from error
            same, lasts = True, SOON
        if not same:
            raise TransactionMisuse(
                f"the connection leads to {way.place}, but the jobs are in {self._database.place};"
                " one transaction cannot span two databases. Nothing was enqueued; write to an outbox table,"
                " or enqueue after commit"
            )
        if isinstance(way.key, tuple):
            self._addresses[way.key] = time.monotonic() + lasts
        else:
            self._connections[way.key] = time.monotonic() + lasts

    def _anew(self) -> UUID | None:
        """Ours, read again: another store may have come to our own URL as well."""
        try:
            return self._read(since=time.monotonic() - 1.0)
        except StoreError:
            return self._ours
