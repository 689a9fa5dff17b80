"""Work on the quarantine: groups of failures of one kind, what people say of them, and retries with a pace or other arguments."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from jobwell.actions.jobs import Done, check_pace, refusal
from jobwell.core.envelope import version_of
from jobwell.core.errors import InvalidArguments, NotFound
from jobwell.core.filters import Selection
from jobwell.core.job import check_size
from jobwell.core.published import Published, stored_form
from jobwell.store import audit, catalog, control, quarantine
from jobwell.store.database import Database
from jobwell.store.quarantine import STATES, State
from jobwell.store.statements import Program, Statements, run


def groups(database: Database, chosen: Selection, *, state: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """Failures of one kind: how many, since when, of whom, and what people have said of them; the one that failed last first.

    Args:
        database: the store.
        chosen: by reason, queue, task, tenant and fingerprint.
        state: only groups in it: "new", "looked at", "waiting", "resolved", "new again" (resolved, and failed since), or "open":
            all but those that are resolved.
        limit: the most groups.
    """
    return database.run(quarantine.groups(database.statements, chosen, state=state, limit=limit))


def named(database: Database, group: str) -> str:
    """The fingerprint of a group, by the beginning of its short name (four letters at least) or by itself.

    Raises:
        NotFound: no group is called so, or several are.
    """
    return database.run(quarantine.named(database.statements, group))


def put(
    database: Database, group: str, *, by: str, owner: str | None = None, note: str | None = None, state: State | None = None
) -> dict[str, Any]:
    """Say whose a group is, what is known of it, and how far it is; with an audit row.

    Args:
        database: the store.
        group: as for `named`.
        by: who says it.
        owner: who answers for it; None leaves it as it was, "" takes it away: then the one counts that the task declares.
        note: what is known of it; None leaves it as it was, "" takes it away.
        state: "new", "looked at", "waiting" or "resolved". A failure after that makes a resolved group "new again".

    Raises:
        NotFound: no group is called so, or several are.
        InvalidArguments: there is nothing to say, or it cannot be stored.
    """
    if owner is None and note is None and state is None:
        raise InvalidArguments("give an owner, a note or a state; nothing was done")
    if state is not None and state not in STATES:
        raise InvalidArguments(f"state={state!r} is not known; there are {', '.join(STATES)}", "state")
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        fingerprint = run(conn, quarantine.named(statements, group))
        return run(conn, quarantine.put(statements, fingerprint, owner=owner, note=note, state=state, actor=by))


def retry(
    database: Database,
    ids: Sequence[UUID],
    *,
    by: str,
    why: str | None = None,
    pace: float | None = None,
    args: Mapping[str, Any] | None = None,
) -> Done:
    """Put jobs named by id back to ready: a new attempt budget and deadline, the history kept.

    Args:
        database: the store.
        ids: the jobs.
        by: who acts.
        why: the reason.
        pace: jobs in a second. Each waits as scheduled for its turn, so nothing has to stay alive for it.
        args: arguments by name, as plain JSON, that go in place of the stored ones; what is not named stays as it is. The
            original ones are kept with who edited them, when and why (`jobwell jobs show`). A value that does not fit the task
            brings the job back as `invalid`, unless its published contract shows it here.

    Raises:
        InvalidArguments, PayloadTooLarge: the arguments cannot be stored, or do not fit. Nothing more was done.

    Returns:
        What was done, and for each job that it could not be done to, why not.
    """
    check_pace(pace)
    edited = {name: stored_form(value, name) for name, value in (args or {}).items()}
    statements, wanted = database.statements, list(dict.fromkeys(ids))
    touched: set[UUID] = set()
    start: datetime | None = None
    detail: dict[str, Any] = {"why": why} | ({"pace": pace} if pace else {}) | ({"edited": sorted(edited)} if edited else {})
    with database.connect("actions") as conn, database.telling():
        for at in range(0, len(wanted), quarantine.PIECE):
            piece = wanted[at : at + quarantine.PIECE]
            with conn.transaction():
                run(conn, control.brief(statements))
                if edited:  # a job that could not be edited is not let go: it would run with what it has
                    limit = database.settings.payload_limit
                    piece = run(conn, _edit(statements, piece, edited, by=by, why=why, limit=limit))
                moved, start = run(conn, quarantine.retry(statements, Selection(ids=piece), pace=pace, start=start))
                if moved:
                    target = str(moved[0]) if len(moved) == 1 else f"{len(moved)} jobs"
                    record = audit.record(
                        statements, actor=by, action="quarantine.retry", target=target, detail=detail | {"ids": moved}
                    )
                    run(conn, record)
            touched.update(moved)
        left = [job for job in wanted if job not in touched]
        refused = {job: refusal("quarantine.retry", run(conn, control.state_of(statements, job))) for job in left}
    return Done(len(touched), refused=refused)


def _edit(
    statements: Statements, ids: Sequence[UUID], edited: Mapping[str, Any], *, by: str, why: str | None, limit: int
) -> Program[list[UUID]]:
    made = []
    known: dict[str, Published | None] = {}
    for job, task, stored in (yield from quarantine.arguments(statements, ids)):
        if task not in known:
            try:
                known[task] = yield from catalog.one(statements, task)
            except NotFound:
                known[task] = None
        made.append((job, _merged(job, task, stored, edited, known[task])))
        check_size(task, len(made[-1][1].encode()), limit)
    yield from quarantine.edit(statements, made, actor=by, why=why)
    return [job for job, _ in made]


def _merged(job: UUID, task: str, stored: str | None, edited: Mapping[str, Any], known: Published | None) -> str:
    """The stored arguments with these in their place. What is not edited keeps its bytes' meaning, tags included."""
    there = orjson.loads(stored) if stored is not None else None
    if not isinstance(there, dict):
        raise InvalidArguments(f"job {job}: its stored arguments cannot be read, so they cannot be edited; nothing was done")
    names = set(there) | set(known.parameters if known is not None and version_of(stored or "")[0] == known.version else ())
    for name in edited:
        if name.startswith("$") or name not in names:
            has = ", ".join(sorted(name for name in names if not name.startswith("$"))) or "none"
            raise InvalidArguments(f"job {job}: {name} is not an argument of {task}; it has {has}. Nothing was done", name)
        if known is not None and name in (*known.lock, known.tenant):
            use = "tenant" if name == known.tenant else "lock"
            raise InvalidArguments(
                f"job {job}: the {use} of {task} goes by {name}, which was settled when the job was enqueued;"
                " enqueue a new job with the right value and discard this one. Nothing was done", name,
            )  # fmt: skip
    return orjson.dumps(there | dict(edited)).decode()
