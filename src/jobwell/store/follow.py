"""Jobs that follow others: put in, and looked at. How they are released is in functions/follow.sql: the store does it itself."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from jobwell.core.errors import NotFound
from jobwell.core.job import NewJob
from jobwell.store.statements import Program, Statements

PIECE = 1000
SHOWN = 20


class Before(NamedTuple):
    """A job that another one follows: how that one sees it, and in which state it is now."""

    id: UUID
    state: str
    now: str
    task: str | None


class Behind(NamedTuple):
    """A job that follows another one."""

    id: UUID
    state: str
    task: str | None


class Counts(NamedTuple):
    """How many jobs a job follows, by how it sees them, and how many follow it (`behind`).

    `ended` says whether it waits for their ends, whatever they are; None: it does not wait any more.
    """

    live: int
    succeeded: int
    failed: int
    discarded: int
    cancelled: int
    ended: bool | None
    behind: int


def check(statements: Statements, followers: Sequence[NewJob], *, but: Collection[NewJob] = ()) -> Program[None]:
    """Refuse to wait for what is not there.

    Args:
        statements: of the store.
        followers: about to be stored.
        but: jobs that are stored with them.

    Raises:
        NotFound: nothing would ever tell whether it has ended.
    """
    wanted = {parent for job in followers for parent in job.after} - {job.id for job in but} - {job.id for job in followers}
    if not wanted:
        return
    rows = yield statements("follow.there", ids=list(wanted))
    if missing := wanted - {UUID(str(row[0])) for row in rows}:
        some = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise NotFound(
            f"job {min(missing)}{some}, to be followed, is nowhere: its retention is over, its transaction has not committed yet,"
            " or in this call it stands behind the job that follows it. Nothing was enqueued"
        )


def insert(
    statements: Statements,
    followers: Sequence[NewJob],
    columns: Mapping[str, Any],
    meta: str | None,
    *,
    members: int = 0,
    fresh: bool = False,
) -> Program[None]:
    """Put jobs in that wait.

    Args:
        statements: of the store.
        followers: the jobs.
        columns: what all jobs have.
        meta: what they carry.
        members: jobs that each of them follows besides, as `link` has written down.
        fresh: whether where those stand has to be looked at.
    """
    pairs = [(job.id, parent) for job in followers for parent in job.after]
    yield statements(
        "follow.insert", **columns, meta=meta, open=[len(job.after) + members for job in followers],
        ended=[job.ended for job in followers], job=[job for job, _ in pairs], after=[parent for _, parent in pairs],
        fresh=fresh or bool(pairs),
    )  # fmt: skip


def link(statements: Statements, follower: UUID, members: Sequence[UUID], *, mine: bool) -> Program[None]:
    """Write down that a job follows these. `mine`: the same transaction has stored all of them."""
    for at in range(0, len(members), PIECE):
        yield statements("follow.link", job=follower, ids=list(members[at : at + PIECE]), mine=mine)


def before(statements: Statements, job: UUID, *, limit: int = SHOWN) -> Program[list[Before]]:
    """What a job follows, what is open still in front."""
    return [Before._make(row) for row in (yield statements("follow.before", id=job, limit=limit))]


def behind(statements: Statements, job: UUID, *, limit: int = SHOWN) -> Program[list[Behind]]:
    """What follows a job."""
    return [Behind._make(row) for row in (yield statements("follow.behind", id=job, limit=limit))]


def counts(statements: Statements, job: UUID) -> Program[Counts]:
    """How many there are of both."""
    rows = yield statements("follow.counts", id=job)
    return Counts._make(rows[0])


def forget(statements: Statements, *, seconds: float, limit: int = PIECE) -> Program[int]:
    """A piece of what jobs have followed that are nowhere any more."""
    return len((yield statements("follow.forget", seconds=seconds, limit=limit)))
