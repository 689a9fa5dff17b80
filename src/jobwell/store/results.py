"""Results: looked at while somebody waits, stored with an end of their own, taken out when it has come."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection

from jobwell.core.outcome import RESULT_EXPIRED, Expiring
from jobwell.store.arrays import Uuids
from jobwell.store.statements import Program, Statements

PIECE = 1000


class Stand(NamedTuple):
    """How a job stands: while it lives only its state says something, afterwards what came of it."""

    place: int
    id: UUID
    state: str
    task: str
    attempt: int
    result: str | None
    note: str | None
    reason: str | None
    code: str | None
    error_type: str | None
    message: str | None


def look(statements: Statements, ids: Sequence[UUID]) -> Program[list[Stand]]:
    """How these jobs stand now; a job that is nowhere is left out."""
    rows = yield statements("results.look", ids=list(ids), expired=RESULT_EXPIRED)
    return [Stand._make(row) for row in rows]


def expire(statements: Statements) -> Program[bool]:
    """Take out one piece of the results whose time is over. True: there may be more."""
    rows = yield statements("results.expire", limit=PIECE, note=RESULT_EXPIRED)
    return bool(rows[0][0] >= PIECE)


async def finish_expiring(
    conn: "AsyncConnection[Any]", statements: Statements, ids: Sequence[UUID], claims: Sequence[UUID], ends: Sequence[Expiring]
) -> set[UUID]:
    """Succeeded, with results that are kept for a time. Returns the ids that were no longer the caller's."""
    cursor = await conn.cursor(binary=True).execute(
        statements["results.finish_expiring"],
        {
            "ids": Uuids(ids), "claims": Uuids(claims), "results": [end.result for end in ends],
            "notes": [end.note for end in ends], "seconds": [end.ttl for end in ends],
        },
    )  # fmt: skip
    return {row[0] for row in await cursor.fetchall()}
