"""What people do with steps: look at them, say what became of one whose outcome is unknown, let a job begin again from one."""

from typing import Any
from uuid import UUID

from jobwell.core.errors import InvalidArguments
from jobwell.core.steps import given_result
from jobwell.store import control, reads, steps
from jobwell.store.database import Database
from jobwell.store.statements import run


def of_job(database: Database, job: UUID) -> list[dict[str, Any]]:
    """The steps of a job, in the order in which they were begun.

    Raises:
        NotFound: there is no such job.
    """
    with database.connect("steps") as conn, database.telling():
        run(conn, reads.one(database.statements, job))
        return run(conn, steps.of_job(database.statements, job))


def unsettled(database: Database, *, limit: int = 100) -> list[dict[str, Any]]:
    """Of all jobs, the oldest first: steps whose outcome nobody knows, and those whose undoing is under way or has failed.

    Args:
        database: the store.
        limit: the most of them.
    """
    return database.run(steps.unsettled(database.statements, limit=limit))


def answer(database: Database, job: UUID, name: str, *, happened: bool, by: str, why: str, result: str | None = None) -> str:
    """Say whether a step whose outcome is unknown has happened. A job that waited in the quarantine for it goes on.

    Args:
        database: the store.
        job: whose step it is.
        name: of the step.
        happened: whether it has. If not, the next attempt does it.
        by: who says it.
        why: how it is known.
        result: what the step is to return, as JSON; None: nothing. Also for a step that is done and whose result was not stored.

    Returns:
        "retried": the job is back from the quarantine, with a new attempt budget and deadline; "waits": its next attempt comes by
        itself; "over": it does not go on, and what its steps have done is being undone.

    Raises:
        NotFound: there is no such job, or no such step.
        Conflict: the job runs, or the outcome of the step is known. Nothing was done.
        InvalidArguments: the reason is missing, or the result cannot be stored. Nothing was done.
    """
    _check_reason(why, "how it is known")
    if result is not None and not happened:
        raise InvalidArguments("what did not happen has no result; nothing was done", "result")
    statements, stored = database.statements, given_result(result)
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        run(conn, control.brief(statements))
        return run(
            conn,
            steps.answer(
                statements, job, name, result=stored, happened=happened, given=result is not None, actor=by, why=why
            ),
        )  # fmt: skip


def restart(database: Database, job: UUID, name: str, *, by: str, why: str) -> list[str]:
    """Let a job do a step again, and all that were begun after it; a job in the quarantine is taken back from there.

    Args:
        database: the store.
        job: whose step it is; it may wait or be failed, and not run.
        name: of the first step that is to be done again.
        by: who acts.
        why: the reason: effects will be repeated.

    Returns:
        The names of the steps that were forgotten. As they were they stand in the audit.

    Raises:
        NotFound: there is no such job, or no such step.
        Conflict: the job runs or is over, or the outcome of one of these steps is unknown. Nothing was done.
        InvalidArguments: the reason is missing. Nothing was done.
    """
    _check_reason(why, "why these steps are to be done again")
    with database.connect("actions") as conn, database.telling(), conn.transaction():
        run(conn, control.brief(database.statements))
        return run(conn, steps.restart(database.statements, job, name, actor=by, why=why))


def _check_reason(why: str, what: str) -> None:
    if not why.strip():
        raise InvalidArguments(f"why: say {what}; whoever looks at the job later will ask. Nothing was done", "why")
