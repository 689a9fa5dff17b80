"""Actions on workers: end them."""

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from jobwell.core.errors import Conflict
from jobwell.store import audit, control
from jobwell.store.database import Database
from jobwell.store.statements import run


def ask(database: Database, workers: Sequence[UUID], what: Literal["drain", "stop"], *, by: str, why: str | None = None) -> int:
    """Ask live workers to end. Their supervisors do not start them again.

    Args:
        database: the store.
        workers: which.
        what: "drain" claims no more and gives running jobs the grace; "stop" hands them back at once, uncounted.
        by: who acts.
        why: the reason, for the audit.

    Returns:
        How many were asked.

    Raises:
        Conflict: none of them lives.
    """
    statements = database.statements
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        asked = run(conn, control.ask(statements, workers, what))
        if not asked:
            raise Conflict("none of these workers lives")
        target = str(asked[0]) if len(asked) == 1 else f"{len(asked)} workers"
        detail = {"ids": asked, "why": why}
        run(conn, audit.record(statements, actor=by, action=f"workers.{what}", target=target, detail=detail))
    return len(asked)
