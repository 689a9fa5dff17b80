"""Equal jobs: what was suppressed, what stands for a key, and letting a key go."""

from typing import Any
from uuid import UUID

from jobwell.core.errors import Conflict, InvalidArguments, NotFound
from jobwell.core.text import check_storable
from jobwell.store import audit, dedup, reads
from jobwell.store.database import Database
from jobwell.store.statements import Program, Statements, run


def suppressed(
    database: Database, *, task: str | None = None, limit: int = 50
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """How many enqueues were suppressed, by task and reason, and the last ones of them, newest first."""
    check_storable(task=task)
    with database.connect("actions") as conn, database.telling():
        counted = run(conn, dedup.totals(database.statements, task))
        return counted, run(conn, dedup.latest(database.statements, task=task, limit=limit))


def show(database: Database, named: str, *, limit: int = 20) -> dict[str, Any]:
    """What stands for a key, and the last enqueues that it suppressed.

    Args:
        database: the store.
        named: the key, or a job's id or its beginning.
        limit: the most suppressed enqueues.

    Raises:
        NotFound: nobody has, or had, such a key.
    """
    check_storable(key=named)
    with database.connect("actions") as conn, database.telling():
        key, held = run(conn, _meant(database.statements, named))
        hits = run(conn, dedup.latest(database.statements, key=key, limit=limit))
    if not held and not hits:
        raise NotFound(
            f"nothing stands for the key {key!r}, and nothing was suppressed by it lately; `jobwell dedup list` names keys"
        )
    return {"key": key, "held_by": held, "suppressed": hits}


def release(database: Database, named: str, *, by: str, why: str) -> list[UUID]:
    """Let go of a key: the next equal job is accepted. The job that held it goes on; audited.

    Args:
        database: the store.
        named: the key, or a job's id or its beginning.
        by: who acts.
        why: the reason; compulsory.

    Returns:
        The jobs that stood for it.

    Raises:
        InvalidArguments: no reason is given.
        NotFound: nothing stands for such a key.
        Conflict: what stood for it has ended, or changed, at this moment. Nothing was done.
    """
    check_storable(key=named, by=by, why=why)
    if not why.strip():
        raise InvalidArguments("why: say why the key is let go; whoever looks at it later will ask. Nothing was done", "why")
    statements = database.statements
    with database.connect("actions") as conn, database.telling():
        key, held = run(conn, _meant(statements, named))
        jobs = list(dict.fromkeys(row["job"] for row in held))
        if not jobs:
            raise NotFound(f"nothing stands for the key {key!r}; nothing was done")
        with conn.transaction():
            freed = [job for job in jobs if run(conn, dedup.release(statements, key, job))]
            if not freed:
                raise Conflict(f"what stood for the key {key!r} has ended at this moment; nothing was done")
            detail = {"why": why, "ids": freed}
            run(conn, audit.record(statements, actor=by, action="dedup.release", target=key, detail=detail))
    return freed


def _meant(statements: Statements, named: str) -> Program[tuple[str, list[dict[str, Any]]]]:
    """The key that a person names, itself or by a job, and what stands for it."""
    held = yield from dedup.holders(statements, named)
    if held or (yield from dedup.latest(statements, key=named, limit=1)):
        return named, held
    try:
        job = yield from reads.by_prefix(statements, named)
    except NotFound:
        return named, []
    key = yield from dedup.key_of(statements, job)
    if key is None:
        raise NotFound(f"job {job} has no key, or none any more")
    return key, (yield from dedup.holders(statements, key))
