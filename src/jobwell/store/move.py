"""A store moves to another server: everything is copied in one transaction from one snapshot, compared, and the old one closed.

What the steps leave, wherever they are interrupted:

1. copied and compared, not committed: nothing; the old store is open as before
2. committed on the target, which is still closed ("arriving"): the old store is open; the next move clears it away
3. the old store closed ("moved"), the target still closed: the next move with the same target only opens it
4. the target open
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import UUID

import psycopg
from psycopg import Connection, sql

from jobwell.core.errors import Conflict, StoreError
from jobwell.store import audit, closing, migrations
from jobwell.store.database import Database, first_line, is_locked
from jobwell.store.migrations import STEP_PATIENCE
from jobwell.store.statements import Program, run

Conn = Connection[Any]


@dataclass(frozen=True, slots=True)
class Step:
    """How far it is: a table, rows compared so far (None: it begins), bytes copied."""

    table: str
    rows: int | None
    bytes: int


class Move:
    """One move.

    Args:
        source: the store as it is.
        target: another server or database, with the same schema name.
        by: who acts.
        told: called as it goes on.
    """

    def __init__(self, source: Database, target: Database, *, by: str, told: Callable[[Step], None] = lambda _: None) -> None:
        self._source = source
        self._target = target
        self._schema = source.settings.schema
        self._by = by
        self._told = told
        self._closed = False  # the source, so that the move must be ended and cannot be forgotten

    def run(self) -> dict[str, int]:
        """Move. Returns the rows of each table; empty where only the last step of an earlier move was left to do.

        Raises:
            Conflict: workers live, somebody writes, or the target holds jobs. Nothing was changed.
            SchemaMismatch: the tables of one of them do not fit this release.
            StoreError: a server cannot be reached, or the counts differ. The source is as it was; or it is closed already, and
                the sentence says so: then the same move, given again, ends it.
        """
        with (
            self._source.connect("move", direct=True) as source,
            self._source.connect("move", direct=True) as lock,
            self._target.connect("move", direct=True) as target,
            self._telling(target),
        ):
            for conn in (source, lock, target):
                conn.silence = STEP_PATIENCE  # a large table is not counted within the deadline of a claim
            if self._only_opened(source, target):
                return {}
            self._may_leave(source)
            identity = run(source, _identity(self._source))
            self._prepare(target, identity)
            with lock.transaction():
                self._hold(lock)
                self._nobody_works(lock)
                with target.transaction():
                    counts = self._copied(source, target)
                    self._note(target, counts)
                    aside = self._close(target, self._source.place, "arriving", identity)
                self._close(lock, self._target.place, "moved", identity)
            self._closed = True
            with target.transaction():
                closing.reopen(target, self._schema, aside)
            return counts

    def _close(self, conn: Conn, place: str, state: closing.State, identity: UUID) -> str:
        return closing.close(conn, self._schema, place=place, state=state, store=identity, actor=self._by)

    @contextlib.contextmanager
    def _telling(self, target: Conn) -> Iterator[None]:
        """Turn the driver's errors into ours, and name the right server."""
        try:
            yield
        except psycopg.Error as error:
            if self._closed:
                detail = (error.diag.message_detail or "").replace("\n", "; ")
                raise StoreError(
                    f"everything is copied to {self._target.place} and the old store is closed, but the new one could not be"
                    f" opened: {first_line(error)}{f' ({detail})' if detail else ''}. Nothing is lost, and nobody can write"
                    " meanwhile: take away what stands in the way, and run the same command again"
                ) from error
            self._tell(error, target)

    def _tell(self, error: psycopg.Error, target: Conn) -> NoReturn:
        if isinstance(error, psycopg.OperationalError):
            with (self._target if target.broken else self._source).telling():
                raise error
        raise StoreError(f"the move failed and the old store is as it was: {first_line(error)}") from error

    def _only_opened(self, source: Conn, target: Conn) -> bool:
        left, came = closing.marker(source, self._schema), closing.marker(target, self._schema)
        if left is None:
            return False
        if left.state == "arriving":
            raise Conflict(left.sentence)
        if came is None or came.state != "arriving" or came.store != left.store:
            raise Conflict(left.sentence)
        self._closed = True
        with target.transaction():
            closing.reopen(target, self._schema, came.aside)
        return True

    def _may_leave(self, source: Conn) -> None:
        migrations.check(source, self._schema)
        row = source.execute(self._source.statements["move.rights"], {"schema": self._schema}).fetchone()
        if row is None or not all(row):
            raise Conflict(
                f"the role at {self._source.place} may not close the store afterwards: it must own schema {self._schema!r} and"
                " may create schemas in the database. Nothing was changed"
            )
        self._nobody_works(source)

    def _nobody_works(self, conn: Conn) -> None:
        names = [name for (name,) in conn.execute(self._source.statements["move.live_workers"]).fetchall()]
        if names:
            raise Conflict(
                f"workers live: {', '.join(names)}; stop them first, so that nothing runs on both sides. Nothing was changed"
            )

    def _prepare(self, target: Conn, identity: UUID) -> None:
        came = closing.marker(target, self._schema)
        if came is not None and came.state == "arriving" and came.store == identity:
            with target.transaction():  # an earlier move was interrupted before it closed the source, which has gone on since
                migrations.drop(target, came.aside)
                closing.remove_marker(target, self._schema)
        elif came is not None:
            raise Conflict(f"{self._target.place}: {came.sentence}")
        row = target.execute("select to_regclass(%s)", [f"{self._schema}.store"]).fetchone()
        if row is not None and row[0] is not None and run(target, _identity(self._target)) == identity:
            raise Conflict(f"{self._target.place} is this very store, or a copy of it; give another database")
        migrations.migrate(self._target)
        for table, _ in target.execute(self._target.statements["move.tables"]).fetchall():
            if table != "store" and target.execute(
                sql.SQL("select exists (select from {})").format(sql.Identifier(self._schema, table))
            ).fetchone() == (True,):
                raise Conflict(
                    f"{self._target.place} is in use already: its table {self._schema}.{table} holds rows. Give an empty"
                    " database, or another schema. Nothing was changed"
                )

    def _hold(self, lock: Conn) -> None:
        """Nobody writes from here to the end; readers go on. Whoever waits finds the store closed, or goes on unharmed."""
        lock.execute(self._source.statements["move.patience"])
        names = [
            sql.Identifier(self._schema, table) for table, _ in lock.execute(self._source.statements["move.tables"]).fetchall()
        ]
        try:
            lock.execute(sql.SQL("lock table {} in share row exclusive mode").format(sql.SQL(", ").join(names)))
        except Exception as error:
            if is_locked(error):
                raise Conflict("somebody writes into the store for more than 5 s; stop the producers or try again") from error
            raise

    def _copied(self, source: Conn, target: Conn) -> dict[str, int]:
        target.execute(self._target.statements["move.patience"])
        counts: dict[str, int] = {}
        source.execute("begin isolation level repeatable read read only")
        try:
            source.execute(self._source.statements["move.patience"])
            tables = dict(source.execute(self._source.statements["move.tables"]).fetchall())
            there = dict(target.execute(self._target.statements["move.tables"]).fetchall())
            if {name: set(columns) for name, columns in tables.items()} != {
                name: set(columns) for name, columns in there.items()
            }:
                raise StoreError("the tables of the two stores are not alike; run `jobwell migrate` on both. Nothing was changed")
            self._make_days(source, target)
            target.execute(sql.SQL("delete from {}").format(sql.Identifier(self._schema, "store")))
            for table, columns in tables.items():
                counts[table] = self._copy(source, target, table, columns)
        finally:
            source.execute("rollback")
        for table, column, sequence in target.execute(self._target.statements["move.sequences"]).fetchall():
            query = "select setval(%s, greatest((select max({}) from {}), 1))"
            name = sql.Identifier(self._schema, table.split(".")[-1])
            target.execute(sql.SQL(query).format(sql.Identifier(column), name), [sequence])
        return counts

    def _make_days(self, source: Conn, target: Conn) -> None:
        """The days that the source has, so that the retention can drop them whole here too."""
        there = {name for _, name, _ in target.execute(self._target.statements["move.partitions"]).fetchall()}
        for parent, name, bounds in source.execute(self._source.statements["move.partitions"]).fetchall():
            if name not in there:
                parts = (sql.Identifier(self._schema, name), sql.Identifier(self._schema, parent), sql.SQL(bounds))
                target.execute(sql.SQL("create table {} partition of {} {}").format(*parts))

    def _copy(self, source: Conn, target: Conn, table: str, columns: list[str]) -> int:
        self._told(Step(table, None, 0))
        size = 0
        name, listed = sql.Identifier(self._schema, table), sql.SQL(", ").join(map(sql.Identifier, columns))
        out = sql.SQL("copy (select {} from {}) to stdout (format binary)").format(listed, name)
        into = sql.SQL("copy {} ({}) from stdin (format binary)").format(name, listed)
        with source.cursor().copy(out) as reads, target.cursor().copy(into) as writes:
            for piece in reads:
                writes.write(piece)
                size += len(piece)
                self._told(Step(table, None, size))
        count = sql.SQL("select count(*) from {}").format(name)
        before, after = (conn.execute(count).fetchone() for conn in (source, target))
        if before is None or before != after:
            raise StoreError(f"{table} has {before} rows at the source and {after} at the target. Nothing was changed")
        self._told(Step(table, before[0], size))
        return int(before[0])

    def _note(self, target: Conn, counts: dict[str, int]) -> None:
        detail = {"from": self._source.place, "rows": counts}
        run(
            target,
            audit.record(self._target.statements, actor=self._by, action="store.move", target=self._target.place, detail=detail),
        )


def _identity(database: Database) -> Program[UUID]:
    rows = yield database.statements("server.store_id")
    return UUID(rows[0][0])
