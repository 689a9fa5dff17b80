"""What operators do: hold queues, cancel jobs, and act on many at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import orjson

from jobwell.core.editing import Edit
from jobwell.core.errors import Conflict, NotFound
from jobwell.core.filters import NOT_RUNNING, Selection
from jobwell.core.ids import new_id
from jobwell.core.ranks import rank_of
from jobwell.core.text import check_storable
from jobwell.store import audit, edits, quarantine
from jobwell.store.statements import Program, Statements

Verb = Literal["jobs.cancel", "jobs.retry", "jobs.priority", "quarantine.retry", "quarantine.discard"]
VERBS: tuple[Verb, ...] = ("jobs.cancel", "jobs.retry", "jobs.priority", "quarantine.retry", "quarantine.discard")
PACED = "quarantine.paced"  # as a retry at a pace is stored: a worker of an older release leaves it alone, and hurries nothing
EDITED = "quarantine.edited"  # as one with other arguments is: it would let them go with those that they have
FAILED = ("quarantine.retry", "quarantine.discard")  # of failed jobs
PIECE = 500
UNKNOWN_CAP = 1000
ALL = "*"
ACTION = ("id", "at", "actor", "verb", "chosen", "total", "done", "state", "why", "beat_at", "ended_at", "to")
HELD = ("queue", "paused_at", "paused_by", "paused_why", "paused_until")


def now(statements: Statements) -> Program[datetime]:
    """The database's time: the bound of what is counted and then touched."""
    rows = yield statements("jobs.now")
    found: datetime = rows[0][0]
    return found


def pause(
    statements: Statements, queues: Sequence[str], *, actor: str, why: str | None, until: datetime | None
) -> Program[list[str]]:
    """Hold queues: nothing in them is claimed any more. Held already, they are held from now on with this reason."""
    check_storable(by=actor, why=why)
    yield statements("control.forget")
    rows = yield statements("control.pause", queues=list(queues), actor=actor, why=why, until=until)
    return sorted(row[0] for row in rows)


def resume(statements: Statements, queues: Sequence[str], *, everything: bool = False) -> Program[list[str]]:
    """Let them go on. Returns those that were held."""
    yield statements("control.forget")
    rows = yield statements("control.resume", queues=list(queues), everything=everything)
    if any(row[0] == ALL for row in rows):
        yield statements("control.wake_all")
    return sorted(row[0] for row in rows)


def held(statements: Statements) -> Program[list[dict[str, Any]]]:
    """The queues that are held now; the queue '*' stands for all of them."""
    rows = yield statements("control.held")
    return [dict(zip(HELD, row, strict=True)) for row in rows]


def queues(statements: Statements) -> Program[list[str]]:
    """Queues that somebody serves, declares, uses or holds."""
    rows = yield statements("control.known")
    return [row[0] for row in rows]


def seen(statements: Statements, *, queue: str | None = None, task: str | None = None) -> Program[tuple[bool, bool]]:
    """Whether any job, live or over, is of this queue, and of this task. Reads far, where none is."""
    check_storable(queue=queue, task=task)
    rows = yield statements("control.seen", queue=queue, task=task)
    return bool(rows[0][0]), bool(rows[0][1])


def cancel(statements: Statements, ids: Sequence[UUID], *, actor: str, why: str | None) -> Program[dict[UUID, str]]:
    """Cancel live jobs. Tells of each whether it is over ("cancelled") or its worker was asked ("asked"); others are left out."""
    check_storable(by=actor, why=why)
    rows = yield statements("control.cancel", ids=list(ids), actor=actor, why=why)
    found: dict[UUID, str] = dict(rows)
    if "asked" in found.values():
        yield statements("control.wake_all")
    return found


def cancel_one(statements: Statements, job: UUID, *, actor: str, why: str | None) -> Program[str]:
    """Cancel one job, with its audit row; to be run in one transaction.

    Returns:
        "cancelled", "cancelling" where its worker was asked, or the final state that it has already.

    Raises:
        NotFound: it is nowhere.
    """
    found = yield from cancel(statements, [job], actor=actor, why=why)
    if job not in found:
        state = yield from state_of(statements, job)
        if state is None:
            raise NotFound(f"there is no job {job}: its retention is over, or its transaction has not committed")
        return state
    yield from audit.record(statements, actor=actor, action="jobs.cancel", target=str(job), detail={"ids": [job], "why": why})
    return "cancelled" if found[job] == "cancelled" else "cancelling"


def orders(statements: Statements, worker: UUID) -> Program[tuple[list[tuple[UUID, UUID]], str | None]]:
    """What a worker is told.

    Settles, besides, what others have left of cancels.

    Returns:
        What it runs and shall stop, as (id, claim id); and what it is asked itself: "drain", "stop" or None.
    """
    rows = yield statements("control.orders", worker=worker)
    return [(row[0], row[1]) for row in rows if row[0] is not None], next((row[2] for row in rows if row[2]), None)


def ask(statements: Statements, workers: Sequence[UUID], what: Literal["drain", "stop"]) -> Program[list[UUID]]:
    """Ask live workers to end: "drain" gives jobs the grace, "stop" hands them back at once. Returns those that were asked."""
    rows = yield statements("control.ask", workers=list(workers), what=what)
    return [row[0] for row in rows]


def run_now(statements: Statements, ids: Sequence[UUID]) -> Program[list[UUID]]:
    """The next attempt of jobs that wait for it: now. Their failures stay counted. Returns what was moved."""
    rows = yield statements("control.run_now", ids=list(ids))
    return [row[0] for row in rows]


def reprioritize(statements: Statements, ids: Sequence[UUID], priority: int) -> Program[list[UUID]]:
    """Give jobs that wait another priority; what runs keeps its own. Returns those that have it now."""
    rows = yield statements("control.reprioritize", ids=list(ids), rank=rank_of(priority))
    return [row[0] for row in rows]


def reprioritize_one(statements: Statements, job: UUID, priority: int, *, actor: str, why: str | None) -> Program[bool]:
    """The same for one job, with its audit row; to be run in one transaction. False: it runs, or is over.

    Raises:
        NotFound: it is nowhere.
    """
    check_storable(by=actor, why=why)
    if not (yield from reprioritize(statements, [job], priority)):
        if (yield from state_of(statements, job)) is None:
            raise NotFound(f"there is no job {job}: its retention is over, or its transaction has not committed")
        return False
    detail = {"ids": [job], "why": why, "to": priority}
    yield from audit.record(statements, actor=actor, action="jobs.priority", target=str(job), detail=detail)
    return True


def state_of(statements: Statements, job: UUID) -> Program[str | None]:
    """Where one job is; None: nowhere."""
    rows = yield statements("reads.one", id=job)
    return str(rows[0][2]) if rows else None


def count(statements: Statements, verb: Verb, chosen: Selection) -> Program[int]:
    """How many jobs an action would touch: the preview."""
    check_storable(queue=chosen.queue, task=chosen.task, tenant=chosen.tenant, fingerprint=chosen.fingerprint)
    name = "quarantine.count" if verb in FAILED else "control.count_live"
    rows = yield statements(name, **_narrowed(verb, chosen).parameters())
    return int(rows[0][0])


def begin(
    statements: Statements,
    verb: Verb,
    chosen: Selection,
    *,
    actor: str,
    why: str | None,
    total: int,
    id: UUID | None = None,
    to: int | None = None,
    pace: float | None = None,
    edit: Edit | None = None,
) -> Program[UUID]:
    """Write an action on many jobs down, so that any process can go on with it. Its id is the caller's, or a new one.

    `to` is the priority that jobs.priority gives; `pace` how many jobs in a second quarantine.retry lets go, `edit`
    what goes in place of their arguments.
    """
    check_storable(by=actor, why=why)
    stored = orjson.dumps(_narrowed(verb, chosen).stored()).decode()
    given, written = _given(to, pace), PACED if pace is not None else verb
    args = given
    if edit is not None:
        args, given, written = given | edit.stored(), given | {"edited": edit.names}, EDITED
    rows = yield statements(
        "control.begin", id=id or new_id(), actor=actor, verb=written, chosen=stored, total=total, why=why,
        args=orjson.dumps(args).decode() if args else None,
    )  # fmt: skip
    action: UUID = rows[0][0]
    detail = {"filter": chosen.said(), "total": total, "why": why} | given
    yield from audit.record(statements, actor=actor, action=f"{verb}.begin", target=str(action), detail=detail)
    return action


def brief(statements: Statements) -> Program[None]:
    """Say in a transaction that locks jobs that it is a short one: while its client stands still, workers wait for their rows."""
    yield statements("control.brief")


def step(statements: Statements, action: UUID) -> Program[tuple[int, bool] | None]:
    """One piece of it; to be run in one transaction.

    Returns:
        How many jobs were touched, and whether it was the last piece. None: it is over, or another process is at it.
    """
    yield from brief(statements)
    rows = yield statements("control.take", id=action)
    if not rows:
        return None
    verb, actor, why, stored, after, _, to, pace, start, *edited = rows[0]
    try:
        chosen = Selection.read(stored if isinstance(stored, dict) else orjson.loads(stored))
    except (TypeError, ValueError, AttributeError) as error:
        raise Conflict(f"action {action} cannot be read by this release ({error}); a newer one began it") from None
    verb = "quarantine.retry" if verb in (PACED, EDITED) else verb
    if verb not in VERBS:
        raise Conflict(f"action {action} is a {verb}, which this release does not know; a newer one began it")
    picking = "control.pick_failed" if verb in FAILED else "control.pick_live"
    rows = yield statements(picking, **chosen.parameters(), after=after, limit=PIECE)
    ids = [row[0] for row in rows]
    touched: list[UUID] = []
    edit = Edit.read(*edited)
    if ids and (pace is not None or edit is not None):
        able = ids if edit is None else (yield from edits.apply(statements, ids, edit, actor=actor, why=why, lenient=True))
        touched, start = yield from quarantine.retry(statements, Selection(ids=able), pace=pace, start=start)
        if edit is not None:  # one that stays where it is stays as it is
            yield from quarantine.unedit(statements, [job for job in able if job not in set(touched)])
    elif ids:
        touched = yield from apply(statements, verb, ids, actor=actor, why=why, to=to)
    last = len(ids) < PIECE
    yield statements("control.move", id=action, after=ids[-1] if ids else after, count=len(touched), last=last, start=start)
    if touched:
        said = {} if why is None else {"why": why}
        detail = (
            {"action": action, "ids": touched} | said | _given(to, pace) | ({"edited": edit.names} if edit is not None else {})
        )
        yield from audit.record(statements, actor=actor, action=verb, target=f"{len(touched)} jobs", detail=detail)
    return len(touched), last


def apply(
    statements: Statements, verb: Verb, ids: Sequence[UUID], *, actor: str, why: str | None, to: int | None = None
) -> Program[list[UUID]]:
    """Do it to these jobs. Returns those that it could be done to."""
    if verb == "jobs.cancel":
        found = yield from cancel(statements, ids, actor=actor, why=why)
        return list(found)
    if verb == "jobs.retry":
        return (yield from run_now(statements, ids))
    if verb == "jobs.priority":
        return (yield from reprioritize(statements, ids, 0 if to is None else to))
    if verb == "quarantine.discard":
        return (yield from quarantine.discard(statements, ids, actor=actor, why=why or ""))
    return (yield from quarantine.retry(statements, Selection(ids=ids))).ids


def abandoned(statements: Statements, *, seconds: float, but: Iterable[UUID] = ()) -> Program[UUID | None]:
    """An action that nobody has moved for so long, and none of these."""
    rows = yield statements("control.abandoned", seconds=seconds, but=list(but))
    return rows[0][0] if rows else None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Ready jobs of one gate whose task no live worker knows.

    Attributes:
        jobs: how many, capped.
        waits: seconds for which the oldest has been ready, among those that were looked at.
    """

    queue: str
    rank: int
    gate: int
    task: str
    jobs: int
    waits: float


def unknown(statements: Statements) -> Program[list[Unknown]]:
    """What no live worker can run."""
    rows = yield statements("control.unknown", cap=UNKNOWN_CAP)
    return [Unknown(queue, rank, gate, task, jobs, waits) for queue, rank, gate, task, jobs, _since, waits in rows]


def give_up(statements: Statements, found: Unknown, *, seconds: float) -> Program[int]:
    """One piece of them that have waited for so long goes to the quarantine. Returns how many; call again while it is `PIECE`."""
    rows = yield statements(
        "control.give_up_unknown", queue=found.queue, rank=found.rank, gate=found.gate, seconds=seconds, limit=PIECE
    )
    return int(rows[0][0])


def stop(statements: Statements, action: UUID) -> Program[bool]:
    """Do not go on with it. What is done stays done."""
    rows = yield statements("control.stop", id=action)
    return bool(rows)


def actions(statements: Statements, *, id: UUID | None = None, limit: int = 50) -> Program[list[dict[str, Any]]]:
    """The newest actions on many jobs, or one."""
    rows = yield statements("control.actions", id=id, limit=limit)
    found = [dict(zip(ACTION, row, strict=True)) for row in rows]
    for row in found:
        if isinstance(row["chosen"], str | bytes):
            row["chosen"] = orjson.loads(row["chosen"])
    return found


def _narrowed(verb: Verb, chosen: Selection) -> Selection:
    if verb == "jobs.retry":
        return replace(chosen, state="retrying")
    if verb == "jobs.priority" and chosen.state is None:
        return replace(chosen, state=NOT_RUNNING)
    return chosen


def _given(to: int | None, pace: float | None = None) -> dict[str, Any]:
    return {name: value for name, value in (("to", to), ("pace", pace)) if value is not None}
