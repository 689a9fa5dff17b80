"""What running jobs keep for their next attempt. Each write is fenced by the claim id."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from jobwell.core.progress import Progress
from jobwell.store.statements import Program, Statements


class Fence(NamedTuple):
    """Whose write it is."""

    job: UUID
    claim: UUID


class Kept(NamedTuple):
    """One thing that a job keeps, for people."""

    name: str
    saved_at: datetime
    attempt: int
    value: str


def load(statements: Statements, job: UUID, name: str) -> Program[str | None]:
    """What is kept under a name, as JSON; None where nothing is."""
    rows = yield statements("checkpoints.load", job=job, name=name)
    return rows[0][0] if rows else None


def save(statements: Statements, fence: Fence, name: str, value: str) -> Program[bool]:
    """Keep something. False: the job is no longer the caller's, and nothing was written."""
    rows = yield statements("checkpoints.save", job=fence.job, claim=fence.claim, name=name, value=value)
    return bool(rows)


def bounded(statements: Statements, program: Program[bool], seconds: float) -> Program[bool]:
    """The same in a transaction of the caller's, which the server ends when it stands still for so long from now on."""
    yield from bound(statements, seconds)
    return (yield from program)


def bound(statements: Statements, seconds: float) -> Program[None]:
    """From now on the server ends this transaction when it stands still for so long."""
    yield statements("checkpoints.bound", ms=round(seconds * 1000))


def clear(statements: Statements, fence: Fence, name: str) -> Program[bool]:
    """Keep it no longer. False as for `save`."""
    rows = yield statements("checkpoints.clear", job=fence.job, claim=fence.claim, name=name)
    return bool(rows)


def of_job(statements: Statements, job: UUID) -> Program[list[Kept]]:
    """Everything that a job keeps."""
    rows = yield statements("checkpoints.of_job", job=job)
    return [Kept._make(row) for row in rows]


def delete_old(statements: Statements, table: str, *, after: UUID, limit: int) -> Program[tuple[int, int, UUID | None]]:
    """A piece of what ended jobs have left in "checkpoints" or "progress": looked at, deleted, and where the walk goes on."""
    rows = yield statements(f"{table}.delete_old", after=after, limit=limit)
    looked, deleted, last = rows[0]
    return int(looked), int(deleted), last


class Finish(NamedTuple):
    """The end of a job, to be stored in the transaction that did its work.

    Attributes:
        ttl: seconds for which the result is kept; None: as long as the job.
    """

    fence: Fence
    result: str | None
    note: str | None
    ttl: float | None


def finish(statements: Statements, end: Finish) -> Program[bool]:
    """Store it. False: the job is no longer the caller's, and the transaction is to be rolled back."""
    given: dict[str, Any] = {"job": end.fence.job, "claim": end.fence.claim, "result": end.result, "note": end.note}
    if end.ttl is None:
        rows = yield statements("ending.finish", **given)
    else:
        rows = yield statements("ending.finish_expiring", **given, seconds=end.ttl)
    return rows[0][0] is None


def fate(statements: Statements, fence: Fence, attempt: int) -> Program[str]:
    """What became of a COMMIT whose answer was lost: done, undone, open (not known yet), or lost."""
    rows = yield statements("ending.fate", job=fence.job, claim=fence.claim, attempt=attempt)
    return str(rows[0][0])


class Told(NamedTuple):
    """How far an attempt is."""

    fence: Fence
    done: int
    total: int | None
    note: str | None


def tell(statements: Statements, reports: Sequence[Told]) -> Program[None]:
    """Write how far these attempts are, in one statement."""
    given = [
        {"id": str(r.fence.job), "claim_id": str(r.fence.claim), "done": r.done, "total": r.total, "note": r.note}
        for r in reports
    ]
    yield statements("progress.tell", given=orjson.dumps(given).decode())


def tell_last(statements: Statements, report: Told) -> Program[None]:
    """The last word of an attempt, in the transaction that ends its job."""
    given = {"job": report.fence.job, "claim": report.fence.claim, "done": report.done, "total": report.total}
    yield statements("progress.tell_last", **given, note=report.note)


def progress(statements: Statements, ids: Sequence[UUID]) -> Program[dict[UUID, Progress]]:
    """How far these jobs have said that they are; those that have said nothing are left out."""
    rows = yield statements("progress.of_jobs", ids=list(ids))
    return {job: Progress(done, total, note or "", at) for job, done, total, note, at in rows}
