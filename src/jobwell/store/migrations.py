"""Migrations: numbered files, forward only, and functions that are versioned by content.

Safe from many processes at once: one of them holds an advisory lock, and the others poll for it, sleeping outside any
transaction (a waiter inside one would deadlock with CREATE INDEX CONCURRENTLY). Each file is one transaction with its
record, so an interrupted migration leaves nothing half-done and is simply run again.
"""

import hashlib
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from psycopg import Connection, sql

from jobwell.core.errors import SchemaMismatch, StoreError
from jobwell.store import closing
from jobwell.store.database import OLDEST_SERVER, Database
from jobwell.store.statements import run, within
from jobwell.store.upkeep import UpkeepVerbs

_VERSION = re.compile(r"-- version: (\d+)\n")
LOCK_WAIT = 120.0
STEP_PATIENCE = 3600.0  # seconds: an index over a large table takes its time
LOCK_TIMEOUT = "3s"  # an ALTER that waits for a lock makes everyone behind it wait


@dataclass(frozen=True)
class Step:
    """One file to run: a numbered migration, or a file of functions."""

    kind: Literal["migration", "functions"]
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Identifies the content."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @property
    def version(self) -> int:
        """The number in the file's name; of functions the one in the first line, raised with each change that is released."""
        if self.kind == "migration":
            return int(self.name.split("_", 1)[0])
        found = _VERSION.match(self.text)
        return int(found[1]) if found else 0

    @property
    def record(self) -> str:
        """What the ledger keeps."""
        return self.checksum if self.kind == "migration" else f"{self.version}:{self.checksum}"


def steps() -> list[Step]:
    """All files, in the order in which they run."""
    found: list[Step] = []
    kinds: tuple[tuple[Literal["migration", "functions"], str], ...] = (("migration", "migrations"), ("functions", "functions"))
    for kind, folder in kinds:
        for file in sorted((files("jobwell.store") / folder).iterdir(), key=lambda entry: entry.name):
            found.append(Step(kind, file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")))  # noqa: PERF401
    return found


NEWEST = max(step.version for step in steps())


def plan(conn: "Connection[Any]", schema: str) -> list[Step]:
    """What `migrate` would run on this server.

    Raises:
        SchemaMismatch: the tables belong to a newer release, a migration that has run was changed afterwards, or the store was
            moved away.
        StoreError: the server is too old.
    """
    if conn.info.server_version < OLDEST_SERVER:
        raise StoreError(f"this server is PostgreSQL {conn.info.server_version // 10000}; Jobwell needs 15 or newer")
    closed = closing.marker(conn, schema)
    if closed is not None:
        raise SchemaMismatch(closed.sentence)
    done = _recorded(conn, schema)
    newer = sorted(name for kind, name in done if kind == "migration" and int(name.split("_", 1)[0]) > NEWEST)
    if newer:
        raise SchemaMismatch(
            f"the tables in schema {schema!r} were made by a newer release ({newer[-1]}); this one knows up to {NEWEST:04d}."
            " Nothing was changed; deploy the newer release here too"
        )
    wanted = []
    for step in steps():
        there = done.get((step.kind, step.name))
        if there is None:
            wanted.append(step)
        elif step.kind == "functions":
            # Newer ones serve this release too, and are never put back: old and new workers run side by side in a deploy.
            stored = there.partition(":")[0]
            if there != step.record and (not stored.isdigit() or int(stored) <= step.version):
                wanted.append(step)
        elif there != step.record:
            raise SchemaMismatch(f"migration {step.name} has run with another content than this release has; nothing was changed")
    return wanted


def migrate(database: Database, *, say: Callable[[str], None] = lambda _: None) -> list[Step]:
    """Bring the tables up to this release. Safe from many processes at once, and after an interruption.

    Args:
        database: where.
        say: told of each step before it runs.

    Returns:
        The steps that ran here; empty when there was nothing to do.

    Raises:
        SchemaMismatch: the tables are newer than this release.
        StoreError: the server is too old, or another migration does not come to its end.
    """
    schema = database.settings.schema
    with database.connect("migrate", direct=True, patience=STEP_PATIENCE) as conn, database.telling():
        if not plan(conn, schema):
            return []
        if database.settings.pooler != "none" and database.is_pooled(conn):
            raise StoreError(
                f"{database.place} is reached through a pooler, and a migration holds a lock of its session, which a pooler in"
                " transaction mode hands on to strangers. Nothing was changed; set direct_url (JOBWELL_DIRECT_URL) to the server"
                " past the pooler, or pooler=none where the pooler works in session mode"
            )
        key = zlib.crc32(f"jobwell.migrate:{schema}".encode())
        _take_lock(conn, key)
        try:
            wanted = plan(conn, schema)
            for step in wanted:
                say(f"{step.kind} {step.name}")
                _apply(conn, schema, step)
            run(conn, UpkeepVerbs(database.statements).make_partitions())  # so that no row ever needs the default one
            return wanted
        finally:
            if not conn.closed:
                conn.execute("select pg_advisory_unlock(%s)", [key])


def check(conn: "Connection[Any]", schema: str) -> None:
    """The handshake at start: code and tables must fit.

    Raises:
        SchemaMismatch: with what to do.
    """
    wanted = plan(conn, schema)
    if wanted:
        names = ", ".join(step.name for step in wanted[:3])
        lacks = f"lacks {len(wanted)} step(s) of this release ({names})"
        state = "has no Jobwell tables" if len(wanted) == len(steps()) else lacks
        raise SchemaMismatch(f"the schema {schema!r} {state}; run `jobwell migrate` before anything is started")


def drop(conn: "Connection[Any]", schema: str) -> None:
    """Delete a schema with everything in it: for throw-away ones."""
    conn.execute("set client_min_messages = warning")
    conn.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(schema)))


def script(schema: str, wanted: list[Step]) -> str:
    """The same as SQL for a DBA: each step with its record, in one transaction."""
    parts = [f"create schema if not exists {schema};", within(_LEDGER, schema) + ";"]
    for step in wanted:
        record = (  # for a file that a person runs; kind, name and checksum are our own
            f"insert into {schema}.migrations (kind, name, checksum) values ('{step.kind}', '{step.name}', '{step.record}')\n"  # noqa: S608
            "on conflict (kind, name) do update set checksum = excluded.checksum, applied_at = clock_timestamp();"
        )
        parts.append(f"\n-- {step.kind} {step.name}\nbegin;\n{within(step.text, schema)}\n{record}\ncommit;")
    return "\n".join(parts) + "\n"


_LEDGER = """create table if not exists jobwell.migrations (
  kind text not null, name text not null, checksum text not null, applied_at timestamptz not null default clock_timestamp(),
  primary key (kind, name))"""


def _recorded(conn: "Connection[Any]", schema: str) -> dict[tuple[str, str], str]:
    row = conn.execute("select to_regclass(%s)", [f"{schema}.migrations"]).fetchone()
    if row is None or row[0] is None:
        return {}
    rows = conn.execute(sql.SQL("select kind, name, checksum from {}.migrations").format(sql.Identifier(schema))).fetchall()
    return {(kind, name): checksum for kind, name, checksum in rows}


def _take_lock(conn: "Connection[Any]", key: int) -> None:
    until = time.monotonic() + LOCK_WAIT
    while True:
        row = conn.execute("select pg_try_advisory_lock(%s)", [key]).fetchone()
        if row is not None and row[0]:
            return
        if time.monotonic() > until:
            raise StoreError("another `jobwell migrate` has held the lock for two minutes; nothing was changed here")
        time.sleep(0.05)


def _apply(conn: "Connection[Any]", schema: str, step: Step) -> None:
    name = sql.Identifier(schema)
    with conn.transaction():
        conn.execute(sql.SQL("set local lock_timeout = {}").format(LOCK_TIMEOUT))
        there = conn.execute("select to_regnamespace(%s)", [schema]).fetchone()
        if there is None or there[0] is None:  # `if not exists` would ask for a right that a given schema does not need
            conn.execute(sql.SQL("create schema {}").format(name))
        conn.execute(within(_LEDGER, schema))
        conn.execute(within(step.text, schema))
        conn.execute(
            sql.SQL(
                "insert into {}.migrations (kind, name, checksum) values (%s, %s, %s)"
                " on conflict (kind, name) do update set checksum = excluded.checksum, applied_at = clock_timestamp()"
            ).format(name),
            [step.kind, step.name, step.record],
        )
