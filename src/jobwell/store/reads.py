"""What people see: bounded queries, counts with a cap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from jobwell.core import timeline as timelines
from jobwell.core.errors import NotFound
from jobwell.core.timeline import Action, Event
from jobwell.store import checkpoints, follow, steps
from jobwell.store.statements import Program, Statements

CAP = 100_000
LIST_COLUMNS = (
    "id", "state", "task", "queue", "priority", "tenant", "attempt", "failures", "enqueued_at", "run_at", "started_at",
    "ended_at", "note",
)  # fmt: skip
QUARANTINE_COLUMNS = (*LIST_COLUMNS[:-1], "reason", "code", "error_type", "message", "fingerprint", "origin")
ONE_COLUMNS = (
    "place", "id", "state", "task", "queue", "priority", "tenant", "lock_key", "attempt", "failures", "crashes", "losses",
    "postponements", "bytes", "enqueued_at", "run_at", "started_at", "ended_at", "deadline", "worker",
    "reason", "code", "error_type", "message", "traceback", "origin", "note", "args", "meta", "result",
    "dedup_key", "dedup",
)  # fmt: skip
PAUSE_COLUMNS = ("queue", "paused_at", "paused_by", "paused_why", "paused_until")
ATTEMPT_COLUMNS = (
    "attempt", "outcome", "kind", "error_type", "message", "traceback", "started_at", "ended_at", "next_at", "worker", "note",
    "origin", "queue",
)  # fmt: skip


EDIT_COLUMNS = ("at", "by", "why", "args")


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which jobs; None means all.

    Attributes:
        reason, fingerprint: of failed jobs only.
        since, until: enqueued at or after, and before; a timedelta counts back from the database's time.
    """

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    since: datetime | timedelta | None = None
    until: datetime | timedelta | None = None
    ids: Sequence[UUID] | None = None
    before: UUID | None = None
    limit: int = 50

    def parameters(self, now: datetime | None) -> dict[str, Any]:
        """What the lists of all places have in common."""
        return {
            "queue": self.queue, "task": self.task, "tenant": self.tenant, "before": self.before, "limit": self.limit,
            "since": _moment(self.since, now), "until": _moment(self.until, now),
            "ids": None if self.ids is None else list(self.ids),
        }  # fmt: skip


def jobs(statements: Statements, wanted: Filter) -> Program[list[dict[str, Any]]]:
    """Jobs wherever they stand, newest first; running ones with their progress."""
    common = wanted.parameters((yield from _now(statements, wanted)))
    found: list[dict[str, Any]] = []
    only_failed = wanted.reason is not None or wanted.fingerprint is not None
    if wanted.state not in ("succeeded", "cancelled", "failed") and not only_failed:
        rows = yield statements("reads.list_live", state=wanted.state, **common)
        found += _named(LIST_COLUMNS, rows)
    if wanted.state in (None, "succeeded", "cancelled") and not only_failed:
        rows = yield statements("reads.list_finished", state=wanted.state, **common)
        found += _named(LIST_COLUMNS, rows)
    if wanted.state in (None, "failed"):
        rows = yield statements("reads.list_quarantine", reason=wanted.reason, fingerprint=wanted.fingerprint, **common)
        found += _named(LIST_COLUMNS, [row[:13] for row in rows])
    found = sorted(found, key=lambda row: row["id"], reverse=True)[: wanted.limit]
    running = [row["id"] for row in found if row["state"] == "running"]
    told = (yield from checkpoints.progress(statements, running)) if running else {}
    return [row | {"progress": told.get(row["id"])} for row in found]


def quarantine(statements: Statements, wanted: Filter) -> Program[list[dict[str, Any]]]:
    """Failed jobs, newest first."""
    common = wanted.parameters((yield from _now(statements, wanted)))
    rows = yield statements("reads.list_quarantine", reason=wanted.reason, fingerprint=wanted.fingerprint, **common)
    return _named(QUARANTINE_COLUMNS, rows)


def _now(statements: Statements, wanted: Filter) -> Program[datetime | None]:
    if not isinstance(wanted.since, timedelta) and not isinstance(wanted.until, timedelta):
        return None
    rows = yield statements("jobs.now")
    now: datetime = rows[0][0]
    return now


def _moment(value: datetime | timedelta | None, now: datetime | None) -> datetime | None:
    return now - value if isinstance(value, timedelta) and now is not None else value if isinstance(value, datetime) else None


def one(statements: Statements, job: UUID) -> Program[dict[str, Any]]:
    """Everything about one job, with its attempts, its progress, and what it keeps for the next attempt.

    Raises:
        NotFound: it is nowhere.
    """
    rows = yield statements("reads.one", id=job)
    if not rows:
        raise NotFound(f"there is no job {job}; its retention may be over")
    found = dict(zip(ONE_COLUMNS, rows[0], strict=True))
    if found["args"] is None:
        payload = yield statements("reads.payload", id=job)
        found["args"] = payload[0][0] if payload else None
    attempts = yield statements("reads.attempts", id=job, limit=100)
    found["attempts"] = _named(ATTEMPT_COLUMNS, attempts)
    found["progress"] = (yield from checkpoints.progress(statements, [job])).get(job)
    found["checkpoints"] = [kept._asdict() for kept in (yield from checkpoints.of_job(statements, job))]
    found["follows"] = [{"id": row.id, "state": row.now, "task": row.task} for row in (yield from follow.before(statements, job))]
    found["followed_by"] = [row._asdict() for row in (yield from follow.behind(statements, job))]
    found["follow_counts"] = (yield from follow.counts(statements, job))._asdict()
    found["edits"] = _named(EDIT_COLUMNS, (yield statements("quarantine.edits", id=job)))
    del found["place"]
    return found


def timeline(statements: Statements, found: Mapping[str, Any]) -> Program[list[Event]]:
    """What happened to a job, in order.

    Args:
        statements: of the store.
        found: as `one` returned it.
    """
    since = timelines.came(found)
    actions = yield statements("reads.actions_on", id=found["id"], since=since, actions=list(timelines.ACTIONS), limit=100)
    workers = {row["worker"] for row in (found, *found["attempts"]) if row["worker"] is not None}
    named = (yield statements("reads.names_of", workers=list(workers))) if workers else []
    return timelines.timeline(
        found,
        actions=[Action(at, actor, action, orjson.loads(detail) if detail else {}) for at, actor, action, detail in actions],
        workers={id: f"{name} on {host}" for id, name, host in named},
        steps=(yield from steps.of_job(statements, found["id"])),
    )


def by_prefix(statements: Statements, typed: str) -> Program[UUID]:
    """The job whose id begins as typed.

    Raises:
        NotFound: none does, or several do.
    """
    plain = typed.replace("-", "").lower()
    if not 4 <= len(plain) <= 32 or any(letter not in "0123456789abcdef" for letter in plain):
        raise NotFound(f"{typed!r} is not a job id; give at least its first 4 hexadecimal digits")
    rows = yield statements("reads.find", low=UUID(plain.ljust(32, "0")), high=UUID(plain.ljust(32, "f")))
    if not rows:
        raise NotFound(f"no job's id begins with {typed!r}")
    if len(rows) > 1:
        raise NotFound(f"several jobs' ids begin with {typed!r}; give more of it")
    return UUID(str(rows[0][0]))


def overview(statements: Statements, queues: Sequence[str]) -> Program[dict[str, Any]]:
    """Counts by state and by queue, capped."""
    states = yield statements("reads.states", cap=CAP)
    by_queue = yield statements("reads.queues", queues=list(queues), cap=CAP)
    return {
        "states": dict(states),
        "queues": [{"queue": queue, "ready": ready, "oldest_seconds": oldest} for queue, ready, oldest in by_queue],
        "paused": _named(PAUSE_COLUMNS, (yield statements("reads.paused"))),
    }


def _named(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in rows]
