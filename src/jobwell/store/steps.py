"""Steps of jobs: begun and done by an attempt, each write fenced by its claim; answered, and begun again, by people."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from jobwell.core.errors import Conflict, NotFound
from jobwell.core.filters import Selection
from jobwell.core.text import check_storable
from jobwell.store import audit, quarantine
from jobwell.store.statements import Program, Statements

PIECE = 200
MOST = 10_000
COLUMNS = (
    "name", "state", "unknown", "attempt", "started_at", "done_at", "kept", "result", "note", "call", "compensate", "undo_id",
    "undone_at",
)  # fmt: skip

OPEN_COLUMNS = (
    "job", "task", "job_state", "name", "state", "attempt", "started_at", "call", "note", "undo_id", "undo_failed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """A step as an attempt finds it.

    Attributes:
        mine: begun by this very claim, just now or by a statement whose answer was lost.
        done: whether it has happened.
        kept: whether what it gave can be given again: `result`, as JSON.
        attempt, started_at, call, note: of who began it, where it was not this claim.
    """

    mine: bool
    done: bool = False
    kept: bool = False
    result: str | None = None
    attempt: int = 0
    started_at: datetime | None = None
    call: str = ""
    note: str | None = None


def begin(
    statements: Statements, job: UUID, claim: UUID, name: str, *, unknown: str, call: str, compensate: str | None
) -> Program[Found | None]:
    """Begin a step, or find it as it stands. None: the job is not this claim's any more; nothing was written."""
    given = {"job": job, "claim": claim, "name": name, "unknown": unknown, "call": call, "compensate": compensate}
    while True:
        rows = yield statements("steps.begin", **given)
        if not rows:
            return None
        begun, state, attempt, by, started_at, kept, result, note, called = rows[0]
        if begun:
            return Found(mine=True)
        if state is not None:  # otherwise a statement of ours whose answer was lost has come in between: look again
            return Found(
                by == claim and state == "started", state != "started", kept, result, attempt, started_at, called or "", note
            )


def again(
    statements: Statements, job: UUID, claim: UUID, name: str, *, unknown: str, call: str, compensate: str | None
) -> Program[bool]:
    """Begin one that was found started. False: the job is not this claim's any more."""
    rows = yield statements("steps.again", job=job, claim=claim, name=name, unknown=unknown, call=call, compensate=compensate)
    return bool(rows)


def done(statements: Statements, job: UUID, claim: UUID, name: str, *, result: str | None, note: str | None) -> Program[bool]:
    """It has happened. `result` is None where what it gave cannot be given again; the note says why. False: not ours any more."""
    rows = yield statements("steps.done", job=job, claim=claim, name=name, kept=result is not None, result=result, note=note)
    return bool(rows)


def forget(statements: Statements, job: UUID, claim: UUID, name: str) -> Program[bool]:
    """It has not happened. False: the job is not this claim's any more."""
    return bool((yield statements("steps.forget", job=job, claim=claim, name=name)))


def remark(statements: Statements, job: UUID, claim: UUID, name: str, *, note: str) -> Program[bool]:
    """What is known of one whose outcome is not. False: the job is not this claim's any more."""
    return bool((yield statements("steps.remark", job=job, claim=claim, name=name, note=note)))


def of_job(statements: Statements, job: UUID) -> Program[list[dict[str, Any]]]:
    """All steps of a job, in the order in which they were begun."""
    rows = yield statements("steps.of_job", job=job, limit=MOST)
    return [dict(zip(COLUMNS, row[:-1], strict=True)) for row in rows]


def unsettled(statements: Statements, *, limit: int) -> Program[list[dict[str, Any]]]:
    """Of all jobs, the oldest first: steps whose outcome nobody knows, and those whose undoing is not over."""
    rows = yield statements("steps.open", limit=limit)
    return [dict(zip(OPEN_COLUMNS, row, strict=True)) for row in rows]


def go_on_undoing(statements: Statements) -> Program[int]:
    """Where what undoes a step is over, the next one is undone. Returns how many were settled; call again while it is `PIECE`."""
    rows = yield statements("steps.go_on_undoing", limit=PIECE)
    return int(rows[0][0])


def prune(
    statements: Statements, *, after: tuple[UUID, str], seconds: float, limit: int
) -> Program[tuple[int, int, tuple[UUID, str] | None]]:
    """A piece of those whose jobs are gone: how many were looked at and deleted, and where the walk goes on."""
    rows = yield statements("steps.prune", after_job=after[0], after_name=after[1], seconds=seconds, limit=limit)
    looked, deleted, job, name = rows[0]
    return int(looked), int(deleted), None if job is None else (job, name)


# --- what people do; each is to be run in one transaction -----------------------------------------------------------------------


def answer(
    statements: Statements, job: UUID, name: str, *, result: str | None, happened: bool, given: bool, actor: str, why: str | None
) -> Program[str]:
    """Say whether a step whose outcome is unknown has happened, and go on.

    Args:
        statements: of the store.
        job: whose step it is.
        name: of the step.
        result: what it gave, as stored JSON.
        happened: whether it has.
        given: whether the result was given, and is not only assumed to be nothing.
        actor: who says it.
        why: how it is known.

    Returns:
        "retried": the job is back from the quarantine; "waits": its next attempt comes by itself; "over": it does not go on, and
        what its steps have done is being undone, this one first.

    Raises:
        NotFound: there is no such job, or no such step.
        Conflict: it runs, or the outcome is known.
    """
    check_storable(name=name, by=actor, why=why)
    place = yield from _place(statements, job)
    before = {row["name"]: row for row in (yield from of_job(statements, job))}
    if name not in before:
        there = ", ".join(map(repr, before)) or "none"
        raise NotFound(f"job {job} has no step {name!r}; it has {there}")
    known = before[name]
    note = f"{'happened' if happened else 'did not happen'}, says {actor}" + (f": {why}" if why else "")
    if happened:
        rows = yield statements(
            "steps.answer_yes", job=job, name=name, result=result, kept=known["state"] == "started" or given, note=note
        )
    else:
        rows = yield statements("steps.answer_no", job=job, name=name)
    if not rows:
        raise Conflict(f"step {name!r} of job {job} is {known['state']}: its outcome is known, and nothing was done")
    detail = {"ids": [job], "step": name, "happened": happened, "why": why, "before": _told(known)}
    yield from audit.record(statements, actor=actor, action="steps.answer", target=str(job), detail=detail)
    return (yield from _go_on(statements, job, place, undo=happened))


def restart(statements: Statements, job: UUID, name: str, *, actor: str, why: str | None) -> Program[list[str]]:
    """Forget a step and all that were begun after it, so that they are done again. Returns their names.

    Raises:
        NotFound: there is no such job, or no such step.
        Conflict: it runs or is over, or the outcome of one of them is unknown.
    """
    check_storable(name=name, by=actor, why=why)
    place = yield from _place(statements, job)
    if place[0] == "over":
        raise Conflict(f"job {job} is {place[1]}, which is final; enqueue a new one. Nothing was done")
    rows = yield statements("steps.of_job", job=job, limit=MOST)
    at = next((row[-1] for row in rows if row[0] == name), None)
    if at is None:
        there = ", ".join(repr(row[0]) for row in rows) or "none"
        raise NotFound(f"job {job} has no step {name!r}; it has {there}")
    later = [dict(zip(COLUMNS, row[:-1], strict=True)) for row in rows if row[-1] >= at]
    unsure = [row["name"] for row in later if row["state"] == "started"]
    if unsure:
        raise Conflict(
            f"the outcome of step {unsure[0]!r} of job {job} is unknown; say first what became of it: `jobwell steps answer`."
            " Nothing was done"
        )
    yield statements("steps.delete_from", job=job, seq=at)
    names = [row["name"] for row in later]
    detail = {"ids": [job], "step": name, "why": why, "before": [_told(row) for row in later]}
    yield from audit.record(statements, actor=actor, action="jobs.restart", target=str(job), detail=detail)
    yield from _go_on(statements, job, place, undo=False)
    return names


Place = tuple[str, str, str, str | None]


def _place(statements: Statements, job: UUID) -> Program[Place]:
    """Where a job stands, held there: live, failed or over; its state; its tenant and what it carries, where it is over."""
    rows = yield statements("steps.hold_live", job=job)
    if rows:
        if rows[0][0] == "running":
            raise Conflict(f"job {job} is running: wait for the end of its attempt, or cancel it. Nothing was done")
        return "live", str(rows[0][0]), "", None
    rows = yield statements("steps.hold_failed", job=job)
    if rows:
        return "failed", str(rows[0][0]), "", None
    rows = yield statements("steps.over", job=job)
    if not rows:
        raise NotFound(f"there is no job {job}; its retention may be over")
    return "over", str(rows[0][0]), str(rows[0][1]), rows[0][2]


def _go_on(statements: Statements, job: UUID, place: Place, *, undo: bool) -> Program[str]:
    where, state, tenant, meta = place
    if where == "failed":
        if not (yield from quarantine.retry(statements, Selection(ids=[job]))).ids:
            yield from quarantine.check_held(statements, job)
        return "retried"
    if where == "over" and undo and state != "succeeded":
        yield statements("steps.undo_next", job=job, tenant=tenant, meta=meta)
    return "waits" if where == "live" else "over"


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """A step for the audit, as it was."""
    return {name: value for name, value in row.items() if value is not None}
