"""Work on the quarantine: groups of failures of one kind, what people say of them, and retries with a pace or other arguments."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from jobwell.actions.jobs import Done, check_pace, refusals
from jobwell.core.editing import Edit
from jobwell.core.errors import InvalidArguments
from jobwell.core.filters import Selection
from jobwell.store import audit, control, edits, quarantine
from jobwell.store.database import Database
from jobwell.store.edits import Code, nobodys
from jobwell.store.quarantine import STATES, State
from jobwell.store.statements import run


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
    code: Code = nobodys,
) -> Done:
    """Put jobs named by id back to ready: a new attempt budget and deadline, the history kept.

    Args:
        database: the store.
        ids: the jobs.
        by: who acts.
        why: the reason.
        pace: jobs in a second. Each waits as scheduled for its turn, so nothing has to stay alive for it.
        args: arguments by name, as plain JSON, that go in place of the stored ones; what is not named stays as it is. The
            original ones are kept with who edited them, when and why (`jobwell jobs show`).
        code: gives a task's code by its name, where it is known: then values are held against its signature. Without it a value
            that does not fit brings the job back as `invalid`.

    Raises:
        InvalidArguments, PayloadTooLarge: the arguments cannot be stored, or do not fit. Nothing more was done.

    Returns:
        What was done, and for each job that it could not be done to, why not.
    """
    check_pace(pace)
    edit = Edit.of_json(args, database.settings.payload_limit) if args is not None else None
    statements, wanted = database.statements, list(dict.fromkeys(ids))
    touched: set[UUID] = set()
    start: datetime | None = None
    detail: dict[str, Any] = {"why": why} | ({"pace": pace} if pace else {}) | ({"edited": edit.names} if edit else {})
    with database.connect("actions") as conn, database.telling():
        for at in range(0, len(wanted), quarantine.PIECE):
            piece = wanted[at : at + quarantine.PIECE]
            with conn.transaction():
                run(conn, control.brief(statements))
                if edit is not None:  # a job that could not be edited is not let go: it would run with what it has
                    piece = run(conn, edits.apply(statements, piece, edit, actor=by, why=why, code=code))
                moved, start = run(conn, quarantine.retry(statements, Selection(ids=piece), pace=pace, start=start))
                if edit is not None:  # one that stays where it is stays as it is
                    run(conn, quarantine.unedit(statements, [job for job in piece if job not in set(moved)]))
                if moved:
                    target = str(moved[0]) if len(moved) == 1 else f"{len(moved)} jobs"
                    record = audit.record(
                        statements, actor=by, action="quarantine.retry", target=target, detail=detail | {"ids": moved}
                    )
                    run(conn, record)
            touched.update(moved)
        left = [job for job in wanted if job not in touched]
        refused = run(conn, refusals(statements, "quarantine.retry", left))
    return Done(len(touched), refused=refused)
