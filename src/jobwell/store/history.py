"""Everything that the tables say about what happened to jobs, for a checker. Whole tables: not for a production store."""

from dataclasses import dataclass
from typing import Any

from jobwell.store.statements import Program, Row, Statements


@dataclass(frozen=True)
class Tables:
    """Rows as the statements in `history.sql` give them.

    Attributes:
        places: jobs, wherever they stand.
        attempts: the log.
        sums: rows counted by place and state.
        actions: the operators' actions that matter to jobs.
        asked: cancels that no attempt has answered yet.
    """

    places: list[Row]
    attempts: list[Row]
    sums: list[Row]
    actions: list[Row]
    asked: list[Row]


def tables(statements: Statements) -> Program[Tables]:
    """Read them all; in one REPEATABLE READ transaction they fit each other."""
    found: dict[str, Any] = {}
    for name in ("places", "attempts", "sums", "actions", "asked"):
        found[name] = yield statements(f"history.{name}")
    return Tables(**found)
