"""What a report on the quarantine reads: counts in a few statements, the jobs in pages."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from psycopg import IsolationLevel

from jobwell.core.report import COLUMNS, GROUPS_TOLD, KINDS_TOLD, Group, Kind, Summary, Wanted
from jobwell.core.text import check_storable
from jobwell.store.database import Database
from jobwell.store.statements import Program, Statements, run

PAGE = 1000
TASKS_TOLD = 200
_NEWEST_ID = UUID(int=2**128 - 1)


def summary(
    statements: Statements, wanted: Wanted, since: datetime | timedelta, until: datetime | None = None
) -> Program[Summary]:
    """How many failed, and what they have in common; read at one moment inside a REPEATABLE READ transaction.

    Args:
        statements: of the store.
        wanted: which jobs, and by what they are grouped.
        since: failed after this moment; a timedelta counts back from the database's time.
        until: failed no later (default: now, by the database's clock).
    """
    rows = yield statements("jobs.now")
    now: datetime = rows[0][0]
    until = now if until is None else until
    since = until - since if isinstance(since, timedelta) else since
    chosen = {"since": since, "until": until, "filters": stored(wanted)}
    kinds = yield statements("report.kinds", **chosen, limit=KINDS_TOLD)
    groups = yield statements("report.groups", **chosen, by=wanted.group_by, limit=GROUPS_TOLD)
    scope = yield statements("report.scope", **chosen, limit=TASKS_TOLD + 1)
    word = yield from _tenant_word(statements, [task for task, _ in scope if task is not None])
    return Summary(
        wanted=wanted, since=since, until=until, made_at=now, tenant_word=word, tenants=scope[0][1] if scope else 0,
        total=kinds[0][4] if kinds else 0,
        more_kinds=kinds[0][5] - len(kinds) if kinds else 0, kinds=[Kind(*row[:4]) for row in kinds],
        more_groups=groups[0][7] - len(groups) if groups else 0, groups=[Group(*row[:7]) for row in groups],
        schema=statements.schema,
    )  # fmt: skip


def count(statements: Statements, wanted: Wanted, since: datetime, until: datetime, most: int) -> Program[int]:
    """How many failed in this time, counted up to a bound."""
    rows = yield statements("report.count", since=since, until=until, filters=stored(wanted), most=most)
    return int(rows[0][0])


def owners(statements: Statements) -> Program[list[str]]:
    """All that answer for a task or a group."""
    rows = yield statements("report.owners")
    return [row[0] for row in rows]


def stored(wanted: Wanted) -> str:
    """Which jobs, as `jobwell.failed_within` takes it."""
    given = wanted.given()
    check_storable(**given)
    return orjson.dumps(given).decode()


def _tenant_word(statements: Statements, tasks: list[str]) -> Program[str]:
    """What these tasks call a tenant: the parameter by which they all declare it, or else "tenant"."""
    words = set()
    if len(tasks) > TASKS_TOLD:
        return "tenant"
    for task in tasks:
        rows = yield statements("catalog.one", task=task)
        if rows:
            words.add(str(orjson.loads(rows[0][0]).get("tenant") or "tenant"))
    return words.pop() if len(words) == 1 else "tenant"


def read(database: Database, wanted: Wanted, since: datetime | timedelta, until: datetime | None = None) -> Summary:
    """The summary, on a connection of its own.

    Raises:
        StoreUnavailable: the database cannot be reached.
    """
    with closing(database.connect("report")) as conn, database.telling():
        conn.isolation_level, conn.read_only = IsolationLevel.REPEATABLE_READ, True
        with conn.transaction():
            return run(conn, summary(database.statements, wanted, since, until))


def jobs(database: Database, found: Summary, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """The jobs of a report, the newest first, a page at a time on a connection of its own.

    No transaction is open between pages: a slow reader keeps nothing from being vacuumed. So a job that is retried meanwhile is
    left out, and none comes twice.

    Args:
        database: the store.
        found: the summary that goes with it.
        limit: at most so many.

    Raises:
        StoreUnavailable: the database went away in the middle.
    """
    left = limit
    at, id = found.until, _NEWEST_ID
    with closing(database.connect("report")) as conn:
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            with database.telling():
                rows = run(conn, _page(database.statements, found, at, id, size))
            for row in rows:
                yield _job(row)
            if len(rows) < size:
                return
            at, id = rows[-1][8], rows[-1][0]
            left = None if left is None else left - len(rows)


def _page(statements: Statements, found: Summary, at: datetime, id: UUID, size: int) -> Program[list[tuple[Any, ...]]]:
    rows = yield statements(
        "report.jobs", filters=stored(found.wanted), since=found.since, before_at=at, before_id=id, limit=size
    )  # fmt: skip
    return rows


def _job(row: tuple[Any, ...]) -> dict[str, Any]:
    job = dict(zip((*COLUMNS[:-1], "meta"), row, strict=True))
    carried: dict[str, Any] = orjson.loads(job.pop("meta") or "{}")
    job["failed_at"] = job["failed_at"].astimezone(UTC)
    job["carries"] = carried
    return job
