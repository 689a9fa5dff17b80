"""Actions on circuit breakers: look at them, close one before its time, open one by hand."""

import difflib
from datetime import datetime
from typing import Any

from jobwell.core.errors import Conflict, NotFound
from jobwell.store import audit
from jobwell.store import breakers as store
from jobwell.store.database import Database
from jobwell.store.statements import run


def listed(database: Database) -> list[dict[str, Any]]:
    """All of them, with what calls told within their windows."""
    return database.run(store.listed(database.statements))


def on(database: Database, resource: str) -> dict[str, Any] | None:
    """That of one resource, or None."""
    return next(iter(database.run(store.listed(database.statements, resource))), None)


def one(database: Database, resource: str) -> dict[str, Any]:
    """That of one resource.

    Raises:
        NotFound: it has none; with the nearest name.
    """
    rows = {row["resource"]: row for row in listed(database)}
    if resource not in rows:
        near = difflib.get_close_matches(resource, rows, n=1)
        more = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(rows) or 'none yet'}"
        raise NotFound(f"no worker has declared a breaker for the resource {resource!r}; {more}")
    return rows[resource]


def close(database: Database, resource: str, *, by: str, why: str | None = None) -> dict[str, Any]:
    """Close it: all jobs of the resource may be claimed at once. It opens again if their calls fail.

    Args:
        database: the store.
        resource: its name.
        by: who acts.
        why: the reason.

    Returns:
        The breaker as it is now.

    Raises:
        NotFound: the resource has none.
        Conflict: it is closed.
    """
    return _turn(database, resource, None, by=by, why=why)


def open_until(database: Database, resource: str, until: datetime, *, by: str, why: str) -> dict[str, Any]:
    """Open it: no job of the resource is claimed until then, and then single ones try.

    Args:
        database: the store.
        resource: its name.
        until: when probes are let in.
        by: who acts.
        why: the reason, shown wherever the breaker is.

    Returns:
        The breaker as it is now.

    Raises:
        NotFound: the resource has none.
    """
    return _turn(database, resource, until, by=by, why=why)


def _turn(database: Database, resource: str, until: datetime | None, *, by: str, why: str | None) -> dict[str, Any]:
    statements = database.statements
    one(database, resource)
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        if not run(conn, store.turn(statements, resource, until, actor=by, why=why)):
            raise Conflict(f"the breaker of {resource!r} is closed already; nothing was done")
        action = "breakers.close" if until is None else "breakers.open"
        run(conn, audit.record(statements, actor=by, action=action, target=resource, detail={"why": why, "until": until}))
    return one(database, resource)
