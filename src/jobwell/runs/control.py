"""What people may do to a run.

Each verb changes its state in one transaction with the audit row, where there is something to change: a second click finds
nothing. What follows (jobs made, items cancelled) goes on in small commits, by housekeeping if we die.
"""

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from jobwell.core.errors import Conflict, InvalidArguments
from jobwell.store import runs as store
from jobwell.store.statements import Program, Statements

Verb = Literal["pause", "resume", "let_go", "cancel"]


def change(statements: Statements, verb: Verb, run: UUID, by: str, why: str | None) -> Program[bool]:
    """In a transaction. False: there was nothing to change."""
    _check_who(by)
    done = yield from store.change(statements, verb, run, by=by, why=why)
    if done and verb == "resume":
        yield from store.prepare_again(statements, run)
    return done


def follow(statements: Statements, verb: str, run: UUID, by: str, why: str | None) -> Program[None]:
    """Behind the transaction, each statement a commit."""
    if verb == "cancel":
        while (yield from store.cancel_jobs(statements, run, by=by, why=why)):
            pass
    yield from store.turn(statements, run)


def retry(
    statements: Statements,
    run: UUID,
    *,
    stage: str | None,
    code: str | None,
    keys: Sequence[str] | None,
    by: str,
    why: str | None,
) -> Program[int]:
    """In a transaction. How many items are open again.

    Raises:
        Conflict: it was refused, or is still being cancelled.
    """
    _check_who(by)
    found = yield from store.retry(statements, run, stage=stage, code=code, keys=keys, by=by, why=why)
    if found < 0:
        yield from store.card(statements, run)  # raises where there is no such run
        raise Conflict(f"run {run} cannot be retried: nothing ran in it, or it is still being cancelled. Nothing was changed")
    return found


def _check_who(by: str) -> None:
    if not by.strip():
        raise InvalidArguments("by: say who does this; it stands in the audit. Nothing was changed", "by")
