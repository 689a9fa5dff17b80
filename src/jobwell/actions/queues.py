"""Actions on queues: hold them, and let them go on."""

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from jobwell.core.errors import NotFound
from jobwell.core.task import STANDARD_QUEUES
from jobwell.store import audit, catalog, control
from jobwell.store.control import ALL
from jobwell.store.database import Database
from jobwell.store.statements import run


def pause(
    database: Database, queues: Sequence[str], *, by: str, why: str | None = None, until: datetime | None = None
) -> list[str]:
    """Hold queues: no job of theirs is claimed, from the next claim on, in every worker, across restarts. What runs goes on.

    Args:
        database: the store.
        queues: names; "*" holds all, those included that nobody knows yet.
        by: who acts.
        why: the reason, shown wherever the queue is.
        until: resume by itself then.

    Returns:
        The queues that are held now because of this.

    Raises:
        NotFound: nobody knows such a queue.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        _check(queues, run(conn, control.queues(statements)))
        held = run(conn, control.pause(statements, queues, actor=by, why=why, until=until))
        detail = {"why": why, "until": until}
        run(conn, audit.record(statements, actor=by, action="queues.pause", target=", ".join(held), detail=detail))
    return held


def resume(database: Database, queues: Sequence[str], *, by: str, everything: bool = False) -> list[str]:
    """Let queues go on.

    Args:
        database: the store.
        queues: names; "*" is the hold on all of them.
        by: who acts.
        everything: every hold there is.

    Returns:
        The queues that were held. A queue named while all are held by "*" stays held.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        _check(queues, run(conn, control.queues(statements)))
        freed = run(conn, control.resume(statements, queues, everything=everything))
        if freed:
            run(conn, audit.record(statements, actor=by, action="queues.resume", target=", ".join(freed)))
    return freed


def held(database: Database) -> list[dict[str, Any]]:
    """The queues that are held now; "*" stands for all."""
    return database.run(control.held(database.statements))


def check_filters(database: Database, *, queue: str | None, task: str | None) -> None:
    """Refuse a filter that nothing could ever fit: a slip of the pen would look like success with nothing to do.

    Args:
        database: the store.
        queue: a queue that somebody serves, declares or holds, or that some job is in; None: no filter.
        task: one that a worker has published, or that some job is of; None: no filter.

    Raises:
        NotFound: with the nearest name.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling():
        queues = {*run(conn, control.queues(statements)), *STANDARD_QUEUES} if queue else set()
        tasks = set(run(conn, catalog.names(statements))) if task else set()
        unsure = {"queue": None if queue in queues else queue, "task": None if task in tasks else task}
        if not any(unsure.values()):
            return
        there = dict(zip(("queue", "task"), run(conn, control.seen(statements, **unsure)), strict=True))
    for kind, names in (("queue", queues), ("task", tasks)):
        name = unsure[kind]
        if name and not there[kind]:
            near = difflib.get_close_matches(name, names, n=1)
            some = ", ".join(sorted(names)[:20]) or "none yet"
            hint = f"did you mean {near[0]!r}?" if near else f"there are {some}"
            raise NotFound(f"nobody knows the {kind} {name!r}, and no job is of it; {hint}")


def _check(queues: Sequence[str], known: Sequence[str]) -> None:
    there = {*known, *STANDARD_QUEUES, ALL}
    for queue in queues:
        if queue not in there:
            near = difflib.get_close_matches(queue, there, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(there - {ALL}))}"
            raise NotFound(f"nobody knows the queue {queue!r}{hint}")
