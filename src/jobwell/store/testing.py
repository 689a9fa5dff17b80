"""Schemas for tests: made, marked as such, emptied, given a clock of their own, and dropped. No other schema is ever touched."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import Connection, sql

from jobwell.core.errors import StoreRefused
from jobwell.store.statements import Program, Statements

PREFIX = "jobwell_test_"
MARK = "a throw-away schema of jobwell.testing"  # the schema's comment: what has another one, or none, is not ours
KEPT = ("store", "migrations")
MANY = 5000  # rows: below it a delete is quicker than to make all the files of a table anew
LOCKED = "jobwell.testing:"
PATIENCE = "15s"  # a test that leaves a transaction open makes the next one fail, and not hang


def make(conn: "Connection[Any]", schema: str) -> None:
    """Make a marked and empty schema. It belongs to this connection: when that ends, `sweep` may drop it."""
    conn.execute("select set_config('lock_timeout', %s, false)", [PATIENCE])
    conn.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [LOCKED + schema])
    name = sql.Identifier(schema)
    with conn.transaction():
        conn.execute(sql.SQL("create schema {}").format(name))
        conn.execute(sql.SQL("comment on schema {} is {}").format(name, sql.Literal(MARK)))


def guard(conn: "Connection[Any]", schema: str) -> None:
    """Refuse a schema that was not made here.

    Raises:
        StoreRefused: nothing was changed.
    """
    row = conn.execute("select obj_description(to_regnamespace(%s), 'pg_namespace')", [schema]).fetchone()
    if row is None or row[0] != MARK:
        raise StoreRefused(
            f"the schema {schema!r} was not made by jobwell.testing; the clock and the tables of a real one are never touched."
            " Nothing was changed"
        )


def drop(conn: "Connection[Any]", schema: str) -> None:
    """Delete a schema that was made here, with everything in it."""
    guard(conn, schema)
    conn.execute("set client_min_messages = warning")
    conn.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))


def sweep(conn: "Connection[Any]") -> list[str]:
    """Drop what test runs that were killed have left: marked schemas to which no connection belongs any more."""
    rows = conn.execute(
        "select nspname from pg_namespace where starts_with(nspname, %s) and obj_description(oid, 'pg_namespace') = %s",
        [PREFIX, MARK],
    ).fetchall()
    swept = []
    for (schema,) in rows:
        row = conn.execute("select pg_try_advisory_lock(hashtextextended(%s, 0))", [LOCKED + schema]).fetchone()
        if row is not None and row[0]:
            try:
                there = conn.execute("select to_regnamespace(%s)", [schema]).fetchone()
                if there is not None and there[0] is not None:  # another run may have swept it meanwhile
                    drop(conn, schema)
                    swept.append(schema)
            finally:
                conn.execute("select pg_advisory_unlock(hashtextextended(%s, 0))", [LOCKED + schema])
    return swept


def tables(conn: "Connection[Any]", schema: str) -> list[str]:
    """The tables that hold what tests leave."""
    rows = conn.execute(
        "select relname from pg_class where relnamespace = %s::regnamespace and relkind in ('r', 'p') and not relispartition"
        " and relname <> all (%s)",
        [schema, list(KEPT)],
    ).fetchall()
    return sorted(name for (name,) in rows)


def empty(conn: "Connection[Any]", schema: str, named: Sequence[str]) -> None:
    """Empty these tables, as far as they hold anything.

    Raises:
        StoreRefused: the schema was not made here.
    """
    guard(conn, schema)
    looks = [
        sql.SQL("select {}, (select count(*) from (select from {} limit {}) c)").format(
            sql.Literal(name), sql.Identifier(schema, name), sql.Literal(MANY + 1)
        )
        for name in named
    ]
    held = {name: rows for name, rows in conn.execute(sql.SQL(" union all ").join(looks)) if rows}
    way = {True: sql.SQL("truncate {}"), False: sql.SQL("delete from {}")}
    parts = [way[rows > MANY].format(sql.Identifier(schema, name)) for name, rows in held.items()]
    if parts:
        conn.execute(sql.SQL("; ").join(parts))  # without parameters: one round trip and one commit for all


def set_clock(conn: "Connection[Any]", schema: str, *, ahead: timedelta | None = None, at: datetime | None = None) -> None:
    """Replace the schema's clock: every session reads it from its next statement on.

    A transaction that is open already may read the old one to its end.

    Args:
        conn: of the kit.
        schema: made here.
        ahead: so far before the real time (behind it, where negative).
        at: it stands still here. Without either: the real time.

    Raises:
        StoreRefused: the schema was not made here.
    """
    guard(conn, schema)
    body: sql.Composable = sql.SQL("select clock_timestamp()")
    if at is not None:
        body = sql.SQL("select timestamptz {}").format(sql.Literal(at.isoformat()))
    elif ahead:
        micros = ahead // timedelta(microseconds=1)
        body = sql.SQL("select clock_timestamp() + interval {}").format(sql.Literal(f"{micros} microseconds"))
    conn.execute(
        sql.SQL("create or replace function {}.now() returns timestamptz language sql volatile parallel safe as {}").format(
            sql.Identifier(schema), sql.Literal(body.as_string(conn))
        )
    )


def real_time(conn: "Connection[Any]") -> datetime:
    """What the server's clock says, whatever the schema's says."""
    row = conn.execute("select clock_timestamp()", binary=True).fetchone()
    assert row is not None
    found: datetime = row[0]
    return found


@dataclass(frozen=True, slots=True)
class Ready:
    """A job that could be claimed."""

    id: UUID
    queue: str
    rank: int
    gate: int
    tenant: str
    lock_key: str
    ready_us: int


class TestingVerbs:
    """Programs of the testing kit."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def ready(
        self, *, queues: Sequence[str], tasks: Sequence[str], ids: Sequence[UUID] | None, limit: int
    ) -> Program[list[Ready]]:
        """What could be claimed, first what a test runs first."""
        rows = yield self._statements(
            "testing.ready", queues=list(queues), tasks=list(tasks), ids=None if ids is None else list(ids), limit=limit
        )
        return [Ready(*row) for row in rows]

    def hold_others(self, job: Ready) -> Program[None]:
        """Inside a transaction: a claim of the lane finds this job only."""
        yield self._statements("testing.hold_others", queue=job.queue, rank=job.rank, gate=job.gate, tenant=job.tenant, id=job.id)

    def next_due(self, *, states: Sequence[str], queues: Sequence[str], tasks: Sequence[str]) -> Program[datetime | None]:
        """When the next of them is due; None: none waits."""
        rows = yield self._statements("testing.next_due", states=list(states), queues=list(queues), tasks=list(tasks))
        found: datetime | None = rows[0][0]
        return found

    def there(self, ids: Sequence[UUID]) -> Program[set[UUID]]:
        """Which of them are stored and committed."""
        rows = yield self._statements("testing.there", ids=list(ids))
        return {row[0] for row in rows}

    def all(self, *, task: str | None = None, id: UUID | None = None) -> Program[list[tuple[Any, ...]]]:
        """Jobs with everything that a test may ask about them, oldest first."""
        return (yield self._statements("testing.all", task=task, id=id))
