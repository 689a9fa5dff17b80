"""Actions on failed jobs."""

import getpass
import os
from collections.abc import Callable
from dataclasses import replace

from jobwell.core.errors import NotFound
from jobwell.store import audit
from jobwell.store import quarantine as store
from jobwell.store.database import Database
from jobwell.store.quarantine import Selection
from jobwell.store.statements import run


def actor(by: str | None = None) -> str:
    """Who acts: as given, else the user of the operating system."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def count(database: Database, chosen: Selection) -> int:
    """How many a retry would move: the preview."""
    return database.run(store.count(database.statements, chosen))


def retry(database: Database, chosen: Selection, *, by: str, moved: Callable[[int], None] = lambda _: None) -> int:
    """Put failed jobs back, in pieces of one commit each with its audit row.

    Args:
        database: the store.
        chosen: which.
        by: who acts.
        moved: told of each piece's size.

    Returns:
        How many were moved.

    Raises:
        NotFound: jobs were named by id and none of them is in the quarantine.
    """
    statements, total = database.statements, 0
    with database.connect("actions") as conn, database.telling():
        if chosen.until is None:
            chosen = replace(chosen, until=run(conn, store.now(statements)))
        while True:
            with conn.transaction():
                ids = run(conn, store.retry(statements, chosen))
                if ids:
                    given = chosen.parameters().items()
                    shown = {name: value for name, value in given if value is not None and name not in ("ids", "until")}
                    target = str(ids[0]) if len(ids) == 1 else f"{len(ids)} jobs"
                    detail = {"filter": shown, "ids": [str(job) for job in ids]}
                    run(conn, audit.record(statements, actor=by, action="quarantine.retry", target=target, detail=detail))
            total += len(ids)
            if ids:
                moved(len(ids))
            if len(ids) < store.PIECE:
                break
            if chosen.ids is not None:
                chosen = replace(chosen, ids=[job for job in chosen.ids if job not in set(ids)])
    if chosen.ids is not None and not total:
        raise NotFound("none of these jobs is in the quarantine; they may have been retried already")
    return total
