"""Named SQL statements, read from `sql/*.sql`, and programs of them that run on connections of either colour.

The files run in psql as they stand: parameters are `:name`, the schema is written as `jobwell.`.
"""

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from jobwell.store.arrays import Uuids, UuidsDumper

Row = tuple[Any, ...]
T = TypeVar("T")

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_COMMENT = re.compile(r"--[^\n]*")


@dataclass(frozen=True, slots=True)
class Query:
    """One statement with its parameters."""

    sql: str
    parameters: Mapping[str, Any] | None = None


Program = Generator[Query, list[Row], T]


class Statements:
    """All statements, for one schema.

    Args:
        schema: a checked identifier (settings do that).
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._texts = {name: within(text, schema) for name, text in _read().items()}

    def __getitem__(self, name: str) -> str:
        """The text of one."""
        return self._texts[name]

    def __call__(self, name: str, /, **parameters: Any) -> Query:
        """One with its parameters."""
        return Query(self._texts[name], parameters or None)

    @property
    def channel(self) -> str:
        """The channel of wake-ups."""
        return f"{self.schema}.wake"

    @property
    def listen(self) -> str:
        """The statement that subscribes to wake-ups; the schema is a checked identifier."""
        return f'listen "{self.channel}"'

    def channel_of(self, worker: UUID) -> str:
        """A channel of one worker's own, on which it hears itself. A name has 63 letters, and a schema may take 40 of them."""
        return f"{self.schema}.{worker.hex[-16:]}"

    def listen_to(self, worker: UUID) -> str:
        """The statement that subscribes to it."""
        return f'listen "{self.channel_of(worker)}"'


def within(text: str, schema: str) -> str:
    """The text for another schema than the default."""
    return text if schema == "jobwell" else text.replace("jobwell.", f"{schema}.")


@cache
def _read() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted((files("jobwell.store") / "sql").iterdir(), key=lambda entry: entry.name):
        noun = file.name.removesuffix(".sql")
        pieces = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
            plain = _COMMENT.sub("", text).strip().rstrip(";").replace("%", "%%")
            found[f"{noun}.{name}"] = _PARAMETER.sub(r"%(\1)s", plain)
    return found


def run(conn: "Connection[Any]", program: Program[T]) -> T:
    """Drive a program on a plain connection."""
    try:
        query = next(program)
        while True:
            query = program.send(ask(conn, query))
    except StopIteration as stop:
        value: T = stop.value
        return value


async def arun(conn: "AsyncConnection[Any]", program: Program[T]) -> T:
    """Drive a program on an async connection."""
    try:
        query = next(program)
        while True:
            query = program.send(await aask(conn, query))
    except StopIteration as stop:
        value: T = stop.value
        return value


# What a caller has taught its connection plays no part in what is stored or read; nor does what a program teaches psycopg later.
_ADAPTERS = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_dumper(Uuids, UuidsDumper)


class OwnCursor(Cursor[Row]):
    """A cursor of our own on any connection, also a lent one: with our adapters, and rows as tuples."""

    def __init__(self, conn: "Connection[Any]") -> None:
        super().__init__(conn, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        """Ours."""
        return _ADAPTERS


class OwnAsyncCursor(AsyncCursor[Row]):
    """The same for async code."""

    def __init__(self, conn: "AsyncConnection[Any]") -> None:
        super().__init__(conn, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        """Ours."""
        return _ADAPTERS


def ask(conn: "Connection[Any]", query: Query) -> list[Row]:
    """One statement and its answer.

    Answers come in binary: as text, times would depend on the session's DateStyle. The cursor is of our own making, since row
    and cursor factories of a caller's connection are made for the caller.
    """
    cursor = OwnCursor(conn)
    cursor.execute(query.sql, query.parameters, binary=True)
    return cursor.fetchall() if cursor.description else []


async def aask(conn: "AsyncConnection[Any]", query: Query) -> list[Row]:
    """As `ask`, on an async connection."""
    cursor = OwnAsyncCursor(conn)
    await cursor.execute(query.sql, query.parameters, binary=True)
    return await cursor.fetchall() if cursor.description else []
