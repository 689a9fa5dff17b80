"""What becomes of one failed job, as code decides it: each is one transaction, with its audit row."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from jobwell.core.editing import Edit
from jobwell.core.errors import NOT_CHANGED, Conflict, InvalidArguments
from jobwell.core.filters import Selection
from jobwell.store import audit, control, edits, quarantine, reads
from jobwell.store.edits import Code
from jobwell.store.statements import Program, Statements


def one(statements: Statements, job: UUID) -> Program[dict[str, Any]]:
    """Everything about a failed job.

    Raises:
        NotFound: it is nowhere.
        Conflict: it is not in the quarantine.
    """
    found = yield from reads.one(statements, job)
    if found["reason"] is None:
        raise _elsewhere(job, found["state"])
    return found


def retry(
    statements: Statements, job: UUID, args: Mapping[str, Any] | None, *, code: Code, limit: int, actor: str, why: str | None
) -> Program[str]:
    """Back to work. To be run in one transaction: where it raises, nothing was changed.

    Args:
        statements: of the store.
        job: which.
        args: values that go in place of those that it has; None: none.
        code: of tasks, where it is known.
        limit: bytes that its arguments may take.
        actor: who.
        why: the reason.

    Returns:
        The name of its task.

    Raises:
        InvalidArguments, PayloadTooLarge: the arguments do not fit.
        NotFound, Conflict: it is nowhere, or not in the quarantine.
    """
    yield from control.brief(statements)
    task: str = (yield from one(statements, job))["task"]
    detail: dict[str, Any] = {"ids": [job], "why": why}
    able = [job]
    if args is not None:
        edit = Edit.of_values(args, code(task), limit)
        able = yield from edits.apply(statements, able, edit, actor=actor, why=why, code=code)
        detail["edited"] = edit.names
    if not able or not (yield from quarantine.retry(statements, Selection(ids=able))).ids:
        yield from quarantine.check_held(statements, job)
        raise _taken(job)
    yield from audit.record(statements, actor=actor, action="quarantine.retry", target=str(job), detail=detail)
    return task


def discard(statements: Statements, job: UUID, *, actor: str, why: str) -> Program[None]:
    """Given up for good. To be run in one transaction.

    Raises:
        InvalidArguments: there is no reason.
        NotFound, Conflict: it is nowhere, or not in the quarantine.
    """
    if not why.strip():
        raise InvalidArguments(f"why: say why the job is given up; whoever looks at it later will ask; {NOT_CHANGED}", "why")
    yield from control.brief(statements)
    yield from one(statements, job)
    if not (yield from quarantine.discard(statements, [job], actor=actor, why=why)):
        raise _taken(job)
    detail = {"ids": [job], "why": why}
    yield from audit.record(statements, actor=actor, action="quarantine.discard", target=str(job), detail=detail)


def _elsewhere(job: UUID, state: str) -> Conflict:
    return Conflict(f"job {job} is {state}, and not in the quarantine; {NOT_CHANGED}")


def _taken(job: UUID) -> Conflict:
    return Conflict(f"somebody else is deciding about job {job} at this moment; {NOT_CHANGED}. Look at it again")
