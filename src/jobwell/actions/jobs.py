"""Actions on jobs: cancel, the next attempt now, another priority, back from the quarantine.

Few by id, or many by what they have in common. Many are an action of their own in the store: it moves piece by piece, each one
commit with its audit row, and where its driver dies, a worker or `jobwell actions resume` goes on with it. Nothing is touched
twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from jobwell.core.editing import Edit
from jobwell.core.errors import Conflict, InvalidArguments, NotFound
from jobwell.core.filters import Selection
from jobwell.store import audit, control, edits, quarantine
from jobwell.store.control import Verb
from jobwell.store.database import Database
from jobwell.store.edits import Code, nobodys
from jobwell.store.statements import Program, Statements, run

Told = Callable[[int], None]
SLOWEST, FASTEST = 0.0001, 100_000  # jobs in a second


@dataclass(frozen=True)
class Done:
    """What an action has done.

    Attributes:
        touched: jobs that it was done to.
        asked: of these, running ones whose workers were asked to stop them.
        refused: jobs named by id that it could not be done to, each with the reason.
        action: the id of an action on many.
        finished: False where another process goes on with it.
    """

    touched: int
    asked: int = 0
    refused: dict[UUID, str] = field(default_factory=dict)
    action: UUID | None = None
    finished: bool = True


def preview(database: Database, verb: Verb, chosen: Selection) -> tuple[int, Selection]:
    """How many jobs an action would touch, and the choice bound to this moment: what comes later is not touched.

    Args:
        database: the store.
        verb: "jobs.cancel", "jobs.retry" (the next attempt now), "jobs.priority" (another one, for what waits),
            "quarantine.retry" or "quarantine.discard".
        chosen: which.
    """
    with database.connect("actions") as conn, database.telling():
        if chosen.until is None:
            chosen = replace(chosen, until=run(conn, control.now(database.statements)))
        return run(conn, control.count(database.statements, verb, chosen)), chosen


def named(database: Database, verb: Verb, ids: Sequence[UUID], *, by: str, why: str | None = None, to: int | None = None) -> Done:
    """Act on jobs named by id: one commit for each 500 of them, with its audit row.

    Args:
        database: the store.
        verb: as for `preview`.
        ids: the jobs.
        by: who acts.
        why: the reason, for the audit and for whoever looks at the job.
        to: the priority that "jobs.priority" gives.

    Returns:
        What was done, and for each job that it could not be done to, why not.
    """
    _check_reason(verb, why)
    statements, wanted = database.statements, list(dict.fromkeys(ids))
    touched: set[UUID] = set()
    asked = 0
    with database.connect("actions") as conn, database.telling():
        for start in range(0, len(wanted), control.PIECE):
            piece = wanted[start : start + control.PIECE]
            with conn.transaction():
                run(conn, control.brief(statements))
                if verb == "jobs.cancel":
                    ends = run(conn, control.cancel(statements, piece, actor=by, why=why))
                    moved = list(ends)
                    asked += list(ends.values()).count("asked")
                else:
                    moved = run(conn, control.apply(statements, verb, piece, actor=by, why=why, to=to))
                    if verb == "jobs.retry":  # named, a job is taken wherever it waits
                        moved += run(conn, control.apply(statements, "quarantine.retry", piece, actor=by, why=why))
                if moved:
                    target = str(moved[0]) if len(moved) == 1 else f"{len(moved)} jobs"
                    detail: dict[str, Any] = {"ids": moved, "why": why} | ({} if to is None else {"to": to})
                    run(conn, audit.record(statements, actor=by, action=verb, target=target, detail=detail))
            touched.update(moved)
        refused = run(conn, refusals(statements, verb, [job for job in wanted if job not in touched]))
    return Done(len(touched), asked, refused)


def many(
    database: Database,
    verb: Verb,
    chosen: Selection,
    *,
    total: int,
    by: str,
    why: str | None = None,
    told: Told = lambda _: None,
    id: UUID | None = None,
    to: int | None = None,
    pace: float | None = None,
    args: Mapping[str, Any] | None = None,
    code: Code = nobodys,
) -> Done:
    """Act on all jobs that a choice names.

    Args:
        database: the store.
        verb: as for `preview`.
        chosen: as `preview` returned it.
        total: how many it counted: what the action's progress is measured by.
        by: who acts.
        why: the reason.
        told: of the size of each piece.
        id: of the action (default: a new one). Who knows it can stop the action however far it has come.
        to: the priority that "jobs.priority" gives.
        pace: how many jobs in a second "quarantine.retry" lets go. Each waits as scheduled for its turn, so nothing has to stay
            alive for it.
        args: arguments by name, as plain JSON, that "quarantine.retry" puts in place of the stored ones, as `triage.retry` does.
            All jobs are looked at before the first is touched.
        code: gives a task's code by its name, where it is known: then values are held against its signature.

    Returns:
        What was done; `finished` is False where another process has taken the action over.

    Raises:
        InvalidArguments, PayloadTooLarge: the pace is out of range, or a job does not take the arguments. Nothing was done.
        StoreUnavailable: the database went away. What is done is done, and a worker goes on with the rest when it is back.
    """
    _check_reason(verb, why)
    check_pace(pace)
    if verb != "quarantine.retry" and not (pace is None and args is None):
        raise InvalidArguments(f"{verb} takes neither a pace nor arguments; nothing was done")
    edit = None if args is None else check_edit(database, chosen, args, code)
    begin = control.begin(database.statements, verb, chosen, actor=by, why=why, total=total, id=id, to=to, pace=pace, edit=edit)
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        action = run(conn, begin)
    return resume(database, action, told=told)


def check_edit(database: Database, chosen: Selection, args: Mapping[str, Any], code: Code = nobodys) -> Edit:
    """Whether all failed jobs of a choice take other arguments. Reads them all, and changes nothing.

    Raises:
        InvalidArguments, PayloadTooLarge: one does not; the sentence names it.
    """
    edit = Edit.of_json(args, database.settings.payload_limit)
    with database.connect("actions") as conn, database.telling():
        run(conn, edits.check(database.statements, chosen, edit, code))
    return edit


def check_pace(pace: float | None) -> None:
    """Refuse what is no pace.

    Raises:
        InvalidArguments: it is not from about one in three hours to 100,000 in a second.
    """
    if pace is not None and not SLOWEST <= pace <= FASTEST:
        raise InvalidArguments(f"pace={pace!r} must be from {SLOWEST} to {FASTEST:,} jobs in a second; nothing was done", "pace")


def resume(database: Database, action: UUID, *, told: Told = lambda _: None) -> Done:
    """Go on with an action on many jobs that was left in the middle.

    Raises:
        NotFound: there is no such action.
        Conflict: it is over.
    """
    statements, touched = database.statements, 0
    with database.connect("actions") as conn, database.telling():
        found = run(conn, control.actions(statements, id=action))
        if not found:
            raise NotFound(f"there is no action {action}")
        if found[0]["state"] != "open":
            raise Conflict(f"action {action} is {found[0]['state']}: there is nothing to go on with")
        while True:
            with conn.transaction():
                moved = run(conn, control.step(statements, action))
            if moved is None:
                return Done(touched, action=action, finished=False)
            touched += moved[0]
            told(moved[0])
            if moved[1]:
                return Done(touched, action=action)


def stop(database: Database, action: UUID, *, by: str) -> None:
    """End an action before its end. What it has done stays done.

    Raises:
        NotFound: there is no such action.
        Conflict: it is over already.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        if run(conn, control.stop(statements, action)):
            run(conn, audit.record(statements, actor=by, action="actions.stop", target=str(action)))
            return
        if run(conn, control.actions(statements, id=action)):
            raise Conflict(f"action {action} is over already")
        raise NotFound(f"there is no action {action}")


def progress(database: Database, action: UUID) -> tuple[int, int, str] | None:
    """How many jobs an action has touched, how many it was to touch, and its state; None: it was never begun."""
    found = database.run(control.actions(database.statements, id=action))
    return (found[0]["done"], found[0]["total"], found[0]["state"]) if found else None


def latest(database: Database, *, limit: int = 50) -> list[dict[str, Any]]:
    """The newest actions on many jobs, with their progress."""
    return database.run(control.actions(database.statements, limit=limit))


def _check_reason(verb: Verb, why: str | None) -> None:
    if verb == "quarantine.discard" and not (why or "").strip():
        raise InvalidArguments(
            "why: say why these jobs are given up; whoever looks at them later will ask. Nothing was done", "why"
        )


def refusals(statements: Statements, verb: Verb, jobs: Sequence[UUID]) -> Program[dict[UUID, str]]:
    """Why an action could not be done to each of these."""
    found: dict[UUID, str] = {}
    for job in jobs:
        found[job] = refusal(verb, (yield from control.state_of(statements, job)))
    if jobs and verb in ("jobs.retry", "quarantine.retry"):
        for job, (key, holder, state) in (yield from quarantine.held(statements, jobs)).items():
            found[job] = quarantine.stands(key, holder, state)
        for job in (yield from quarantine.of_stages(statements, jobs)):
            found[job] = quarantine.OF_A_RUN
    return found


def held(database: Database, chosen: Selection) -> int:
    """How many failed jobs of a choice a retry would refuse now, because equal jobs stand for them (`Dedup`)."""
    return database.run(quarantine.count_held(database.statements, chosen))


def refusal(verb: Verb, state: str | None) -> str:
    """Why an action could not be done to a job in this state (None: it is nowhere)."""
    if state is None:
        return "there is no such job: its retention is over, or its id is wrong"
    if verb == "jobs.cancel":
        return f"it is {state} already"
    if verb == "jobs.priority":
        return _no_priority(state)
    if verb == "quarantine.discard":
        return f"it is {state}, and not in the quarantine"
    if state in ("ready", "running"):
        return f"it is {state}: it needs no retry"
    if state == "waiting":
        return "it waits for other jobs to end and has not run yet; `jobwell jobs why` names them"
    if state == "scheduled":
        return "it is scheduled and has not run yet"
    return f"it is {state}, which is final; enqueue a new job instead"


def _no_priority(state: str) -> str:
    if state == "running":
        return (
            "it is running, and a priority counts only while a job waits; should it come back for another attempt, say it again"
        )
    if state == "failed":
        return "it is failed: `jobwell quarantine retry` makes it ready again, and then its priority can be changed"
    return f"it is {state} already"
