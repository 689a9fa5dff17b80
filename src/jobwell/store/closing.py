"""A store that is closed: its tables stand aside under another schema's name, and a marker stands in their place.

Every statement of producers, workers and operators then fails before it writes anything, and the marker says where to go.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg import Connection, sql

from jobwell.core.errors import Conflict

State = Literal["moved", "arriving"]


@dataclass(frozen=True, slots=True)
class Marker:
    """What stands in the place of a closed store.

    Attributes:
        place: where the store went to, or comes from; without passwords.
        aside: the schema that holds the tables now.
        store: its identity.
        state: "moved" away from here, or "arriving": copied to here, and the old one is not closed yet.
    """

    place: str
    aside: str
    store: UUID
    state: State
    at: datetime
    actor: str

    @property
    def sentence(self) -> str:
        """For people."""
        if self.state == "moved":
            return (
                f"this store was moved to {self.place} on {self.at:%Y-%m-%d %H:%M %Z} by {self.actor}; set database_url to that."
                f" Nothing was written here. (The old tables stand in the schema {self.aside!r}.)"
            )
        return (
            f"a store is on its way to here from {self.place}; run the same `jobwell move` again to end it. Nothing was written"
        )


def marker(conn: "Connection[Any]", schema: str) -> Marker | None:
    """The marker in a schema, if it is closed."""
    row = conn.execute("select to_regclass(%s)", [f"{schema}.moved"], binary=True).fetchone()
    if row is None or row[0] is None:
        return None
    names = ("place", "aside", "store", "state", "at", "actor")
    found = conn.execute(
        sql.SQL("select place, aside, store, state, at, actor from {}.moved").format(sql.Identifier(schema)), binary=True
    ).fetchone()
    return None if found is None else Marker(**dict(zip(names, found, strict=True)))


def close(conn: "Connection[Any]", schema: str, *, place: str, state: State, store: UUID, actor: str) -> str:
    """Put the tables aside and the marker in their place, in the caller's transaction. Returns the other name."""
    aside = _free(conn, f"{schema}_{state}")
    conn.execute(sql.SQL("alter schema {} rename to {}").format(sql.Identifier(schema), sql.Identifier(aside)))
    conn.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
    moved = sql.Identifier(schema, "moved")
    conn.execute(
        sql.SQL(
            "create table {} (place text not null, aside text not null, store uuid not null, state text not null,"
            " at timestamptz not null default clock_timestamp(), actor text not null)"
        ).format(moved)
    )
    conn.execute(
        sql.SQL("insert into {} (place, aside, store, state, actor) values (%s, %s, %s, %s, %s)").format(moved),
        [place, aside, store, state, actor],
    )
    return aside


def reopen(conn: "Connection[Any]", schema: str, aside: str) -> None:
    """Put the tables back, in the caller's transaction."""
    remove_marker(conn, schema)
    conn.execute(sql.SQL("alter schema {} rename to {}").format(sql.Identifier(aside), sql.Identifier(schema)))


def remove_marker(conn: "Connection[Any]", schema: str) -> None:
    """The marker with its schema, which holds nothing else."""
    conn.execute(sql.SQL("drop table {}").format(sql.Identifier(schema, "moved")))
    conn.execute(sql.SQL("drop schema {}").format(sql.Identifier(schema)))  # refused where somebody has put something there


def _free(conn: "Connection[Any]", wanted: str) -> str:
    row = conn.execute("select to_char(clock_timestamp() at time zone 'utc', 'YYYYMMDD')").fetchone()
    base = f"{wanted}_{row[0] if row else ''}"
    for name in (base, *(f"{base}_{number}" for number in range(2, 100))):
        there = conn.execute("select to_regnamespace(%s)", [name]).fetchone()
        if there is None or there[0] is None:
            return name
    raise Conflict(f"a hundred schemas {base}… are there already; drop those that nobody needs")
