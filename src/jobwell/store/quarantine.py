"""The quarantine: failed jobs that wait for a human."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from jobwell.core.errors import NOT_CHANGED, Conflict, NotFound
from jobwell.core.filters import Selection
from jobwell.core.fingerprint import normalised, short
from jobwell.core.text import check_storable
from jobwell.store import audit
from jobwell.store.jobs import INLINE
from jobwell.store.statements import Program, Statements

OF_A_RUN = "it is a job of a run's stage, and its items have failed with it: to open them, retry the run (`jobwell runs retry`)"
PIECE = 500
MOST_GROUPS = 10_000
State = Literal["new", "looked at", "waiting", "resolved"]
STATES: tuple[State, ...] = ("new", "looked at", "waiting", "resolved")
_ROW = ("fingerprint", "task", "reason", "code", "error_type", "origin", "message", "count", "first_seen", "last_seen", "tenants",
        "some_tenants", "examples", "owner", "state", "note", "set_at", "set_by")  # fmt: skip
GROUP_COLUMNS = ("group", *_ROW)


class Moved(NamedTuple):
    """What went back, and with a pace the moment at which the next one may."""

    ids: list[UUID]
    after: datetime | None


def count(statements: Statements, chosen: Selection) -> Program[int]:
    """How many there are."""
    rows = yield statements("quarantine.count", **chosen.parameters())
    return int(rows[0][0])


def now(statements: Statements) -> Program[datetime]:
    """The database's time: the bound of what is counted and retried."""
    rows = yield statements("jobs.now")
    found: datetime = rows[0][0]
    return found


def retry(
    statements: Statements, chosen: Selection, *, pace: float | None = None, start: datetime | None = None
) -> Program[Moved]:
    """Put one piece of them back: a new attempt budget and a new deadline, the history kept.

    Args:
        statements: of the store.
        chosen: which.
        pace: jobs in a second; each becomes due at its turn. None: all at once.
        start: the first turn is not before it.

    Returns:
        What went back. One for which an equal job stands (`Dedup`) stays where it is: `held` names that job.
    """
    rows = yield statements("quarantine.retry", **chosen.parameters(), limit=PIECE, pace=pace, start=start)
    keyed = [row[0] for row in rows if row[3]]
    rows = [row for row in rows if not row[3]]
    if keyed:
        start = max((row[1] for row in rows if row[1] is not None), default=start)
        rows += yield statements("quarantine.retry_keyed", ids=keyed, pace=pace, start=start)
    return Moved([row[0] for row in rows], max((row[1] for row in rows if row[1] is not None), default=start))


def held(statements: Statements, ids: Sequence[UUID]) -> Program[dict[UUID, tuple[str, UUID | None, str | None]]]:
    """Of these, those that have a key: the key, the job that stands for it and that job's state, where there is one."""
    rows = yield statements("quarantine.held", ids=list(ids))
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def of_stages(statements: Statements, ids: Sequence[UUID]) -> Program[list[UUID]]:
    """Of these, those that are jobs of a run's stage: a retry leaves them where they are."""
    rows = yield statements("quarantine.of_stages", ids=list(ids))
    return [row[0] for row in rows]


def check_held(statements: Statements, job: UUID) -> Program[None]:
    """To be asked where a retry of one job did nothing.

    Raises:
        Conflict: because an equal job stands for its key, or it is a run's; the sentence names it.
    """
    for key, holder, state in (yield from held(statements, [job])).values():
        raise Conflict(f"job {job} stays in the quarantine: {stands(key, holder, state)}. {NOT_CHANGED.capitalize()}")
    if (yield from of_stages(statements, [job])):
        raise Conflict(f"job {job} stays in the quarantine: {OF_A_RUN}. {NOT_CHANGED.capitalize()}")


def stands(key: str, holder: UUID | None, state: str | None) -> str:
    """Who stands for a key, in words."""
    if holder is None:
        return f"an equal job (key {key!r}) was put in, or ended, at this moment; try again"
    said = "it is done, and its window is not over" if state == "over" else f"it is {state}"
    return f"job {holder} stands for its key {key!r} ({said})"


def count_held(statements: Statements, chosen: Selection) -> Program[int]:
    """How many of them a retry would refuse now, because equal jobs stand for them."""
    rows = yield statements("quarantine.count_held", **chosen.parameters())
    return int(rows[0][0])


def discard(statements: Statements, ids: Sequence[UUID], *, actor: str, why: str) -> Program[list[UUID]]:
    """End them for good. Returns those that were there."""
    check_storable(by=actor, why=why)
    rows = yield statements("quarantine.discard", ids=list(ids), actor=actor, why=why)
    return [row[0] for row in rows]


def arguments(statements: Statements, ids: Sequence[UUID]) -> Program[list[tuple[UUID, str, str | None]]]:
    """Task and stored arguments of those that are there; locks them until the transaction ends."""
    rows = yield statements("quarantine.arguments", ids=list(ids))
    return [(row[0], row[1], row[2]) for row in rows]


def edit(statements: Statements, edited: Sequence[tuple[UUID, str]], *, actor: str, why: str | None) -> Program[None]:
    """Give them other arguments; the original ones are kept with who did it, when and why."""
    check_storable(by=actor, why=why)
    yield statements(
        "quarantine.edit", ids=[job for job, _ in edited], args=[args for _, args in edited],
        bytes=[len(args.encode()) for _, args in edited], inline=INLINE, actor=actor, why=why,
    )  # fmt: skip


def unedit(statements: Statements, jobs: Sequence[UUID]) -> Program[None]:
    """Give them back what they had before the last edit, in the transaction that made it: it leaves no trace."""
    if jobs:
        yield statements("quarantine.unedit", ids=list(jobs), inline=INLINE)


def groups(
    statements: Statements, chosen: Selection, *, state: str | None = None, limit: int = 100
) -> Program[list[dict[str, Any]]]:
    """Failures of one kind, the one that failed last first. `state` is one of `STATES`, "new again", or "open": not resolved."""
    check_storable(queue=chosen.queue, task=chosen.task, tenant=chosen.tenant, fingerprint=chosen.fingerprint)
    wanted = {name: getattr(chosen, name) for name in ("reason", "queue", "task", "tenant", "fingerprint")}
    rows = yield statements("quarantine.groups", **wanted, state=state, limit=limit)
    found = [dict(zip(_ROW, row, strict=True)) for row in rows]
    return [{"group": short(row["fingerprint"]), **row, "message": normalised(row["message"])} for row in found]


def named(statements: Statements, typed: str) -> Program[str]:
    """The fingerprint that a person means: all of it, or the beginning of its short name.

    Raises:
        NotFound: none is called so, or several are.
    """
    check_storable(group=typed)
    rows = yield statements("quarantine.fingerprints", limit=MOST_GROUPS)
    there = [row[0] for row in rows]
    if typed in there:
        return typed
    fitting = [whole for whole in there if len(typed) >= 4 and short(whole).startswith(typed.lower())]
    if not fitting:
        raise NotFound(f"no group of failed jobs is called {typed!r}; `jobwell quarantine groups` lists them")
    if len(fitting) > 1:
        raise NotFound(f"the names of several groups begin with {typed!r}; give more of it")
    return str(fitting[0])


def put(
    statements: Statements, fingerprint: str, *, owner: str | None, note: str | None, state: State | None, actor: str
) -> Program[dict[str, Any]]:
    """Say something of a group, with its audit row; to be run in one transaction. None stays as it was, "" takes it away."""
    check_storable(owner=owner, note=note, by=actor)
    rows = yield statements("quarantine.set", fingerprint=fingerprint, owner=owner, note=note, state=state, actor=actor)
    said = {name: value for name, value in (("owner", owner), ("note", note), ("state", state)) if value is not None}
    yield from audit.record(
        statements, actor=actor, action="quarantine.set", target=short(fingerprint), detail=said | {"fingerprint": fingerprint}
    )
    return {"group": short(fingerprint), **dict(zip(("owner", "note", "state", "set_at"), rows[0], strict=True))}
