"""The quarantine: failed jobs that wait for a human."""

from datetime import datetime
from uuid import UUID

from jobwell.core.filters import Selection
from jobwell.store.statements import Program, Statements

PIECE = 500


def count(statements: Statements, chosen: Selection) -> Program[int]:
    """How many there are."""
    rows = yield statements("quarantine.count", **chosen.parameters())
    return int(rows[0][0])


def now(statements: Statements) -> Program[datetime]:
    """The database's time: the bound of what is counted and retried."""
    rows = yield statements("jobs.now")
    found: datetime = rows[0][0]
    return found


def retry(statements: Statements, chosen: Selection) -> Program[list[UUID]]:
    """Put one piece of them back: a new attempt budget and a new deadline, the history kept. Returns what was moved."""
    rows = yield statements("quarantine.retry", **chosen.parameters(), limit=PIECE)
    return [row[0] for row in rows]
