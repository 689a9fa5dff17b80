"""The report on failed jobs: read, composed and written as a stream. Changes nothing in the store."""

import difflib
from datetime import datetime, timedelta

from jobwell.core.errors import NotFound
from jobwell.core.report import Summary, Wanted
from jobwell.reports.writing import FORMATS, write
from jobwell.store import report
from jobwell.store.database import Database

__all__ = ["FORMATS", "check_owner", "find", "write"]


def find(database: Database, wanted: Wanted, since: datetime | timedelta, until: datetime | None = None) -> Summary:
    """How many failed and what they have in common, read at one moment.

    Args:
        database: the store.
        wanted: which jobs, and by what they are grouped.
        since: failed after this moment; a timedelta counts back from `until`.
        until: failed no later (default: now, by the database's clock).

    Raises:
        StoreUnavailable: the database cannot be reached.
    """
    return report.read(database, wanted, since, until)


def check_owner(database: Database, owner: str | None) -> None:
    """Refuse an owner of whom nobody has heard: a slip of the pen would look as if nothing of theirs had failed.

    Raises:
        NotFound: with the nearest name.
    """
    if not owner:
        return
    known = database.run(report.owners(database.statements))
    if owner not in known:
        near = difflib.get_close_matches(owner, known, n=1)
        more = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known[:20]) or 'none'}"
        raise NotFound(f"no task and no group of failed jobs has the owner {owner!r}; {more}")
