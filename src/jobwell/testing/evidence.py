"""What is known about the jobs of a test: by their producers, by themselves, and by Jobwell's tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import orjson

from jobwell.store.history import Tables

Fate = Literal["committed", "rolled back", "unknown"]


@dataclass(frozen=True, slots=True)
class Put:
    """What a producer knows about a job: `unknown` where the answer to its commit was lost."""

    job: UUID
    fate: Fate
    lock_key: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a job wrote itself. `call` is drawn at each call of the function; `what` is begin, effect or end."""

    call: UUID
    job: UUID
    attempt: int
    worker: UUID
    executor: str
    what: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Stored:
    """A row of a job. Counters that its place does not keep are None."""

    job: UUID
    place: str
    state: str
    attempt: int
    failures: int
    crashes: int | None
    losses: int | None
    postponements: int | None
    worker: UUID | None
    started_at: datetime | None
    ended_at: datetime | None
    queue: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A row of the log of attempts."""

    job: UUID
    attempt: int
    outcome: str
    worker: UUID | None
    claim: UUID | None
    started_at: datetime | None
    ended_at: datetime
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A queue that was held; `*` is all of them."""

    queue: str
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """A cancel that was stored."""

    job: UUID
    at: datetime


@dataclass(frozen=True, kw_only=True)
class History:
    """All that is known.

    Attributes:
        sums: rows by (place, state), counted by the database.
        asked: jobs with a cancel that nobody has answered.
        marked: every task writes its marks; then a success without an effect is work that was lost.
        drained: nothing waits or runs any more, by what the caller has done; then a live job is one too many.
        lateness: for how long a claim may have been under way when its queue was held.
        tolerance: of the clock.
    """

    puts: Sequence[Put] = ()
    stored: Sequence[Stored] = ()
    ended: Sequence[Ended] = ()
    marks: Sequence[Mark] = ()
    holds: Sequence[Hold] = ()
    cancels: Sequence[Cancel] = ()
    sums: dict[tuple[str, str], int] = field(default_factory=dict)
    asked: frozenset[UUID] = frozenset()
    marked: bool = True
    drained: bool = True
    lateness: timedelta = timedelta(seconds=1)
    tolerance: timedelta = timedelta(milliseconds=10)


def read(tables: Tables, *, puts: Sequence[Put], marks: Sequence[Mark], **options: Any) -> History:
    """Put a history together from the store's tables and what the test knows besides.

    Args:
        tables: as `jobwell.store.history.tables` reads them.
        puts: what producers know; jobs that were retried from the quarantine are not understood.
        marks: what jobs wrote.
        options: `marked`, `drained`, `lateness`, `tolerance` of `History`.
    """
    cancels, holds = _acts(tables.actions)
    return History(
        puts=puts, marks=marks, cancels=cancels, holds=holds, stored=[Stored(*row) for row in tables.places],
        ended=[Ended(*row) for row in tables.attempts], sums={(place, state): count for place, state, count in tables.sums},
        asked=frozenset(row[0] for row in tables.asked), **options,
    )  # fmt: skip


def _acts(rows: Iterable[Sequence[Any]]) -> tuple[list[Cancel], list[Hold]]:
    """Cancels and holds from the audit, which is written in the same commit."""
    cancels: list[Cancel] = []
    holds: list[Hold] = []
    open_since: dict[str, tuple[datetime, datetime | None]] = {}
    for at, action, target, text in rows:
        detail = orjson.loads(text) if text else {}
        if action == "jobs.cancel":
            cancels += [Cancel(UUID(job), at) for job in detail.get("ids", ())]
            continue
        for queue in (target or "").split(", "):
            if queue in open_since:  # resumed, or held anew with another end
                since, until = open_since.pop(queue)
                holds.append(Hold(queue, since, min(at, until) if until else at))
            if action == "queues.pause":
                until = detail.get("until")
                open_since[queue] = at, datetime.fromisoformat(until) if until else None
    return cancels, holds + [Hold(queue, *times) for queue, times in open_since.items()]
