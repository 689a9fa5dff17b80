"""The quarantine: failed jobs that wait for a human."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from jobwell.store.statements import Program, Statements

PIECE = 500


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of them: by id, or by what they have in common."""

    ids: Sequence[UUID] | None = None
    reason: str | None = None
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None
    until: datetime | None = None  # failed no later than this: what fails again meanwhile is not taken again

    def parameters(self) -> dict[str, Any]:
        """As the statements take it."""
        return {
            "ids": list(self.ids) if self.ids is not None else None, "reason": self.reason, "queue": self.queue,
            "task": self.task, "tenant": self.tenant, "until": self.until,
        }  # fmt: skip


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
