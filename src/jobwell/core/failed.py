"""What follows a final failure: `@app.task(on_failed=other)`, and what the other task is told."""

from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobwell.core.envelope import class_name
from jobwell.core.errors import DeclarationError

if TYPE_CHECKING:
    from jobwell.core.task import TaskSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A job that has gone to the quarantine: the one argument of a task that is named by `on_failed=`.

    Attributes:
        id: of the job; the argument of `jobwell jobs show`.
        task, queue, tenant: its own.
        reason: rejected, exhausted, deadline, crashed, lost, held, unsupported, invalid.
        code: of `Reject`; None otherwise.
        error_type: the error's class; None where there was no error.
        message: of the error, 1,000 characters at the most.
        attempt: how many there were.
        failures: how many of them counted as failures.
        enqueued_at, failed_at: on the database clock.
    """

    id: UUID
    task: str
    queue: str
    tenant: str
    reason: str
    code: str | None
    error_type: str | None
    message: str
    attempt: int
    failures: int
    enqueued_at: datetime
    failed_at: datetime


def follow_up_of(given: Any, who: str) -> "TaskSpec | None":
    """The task behind `on_failed=`.

    Raises:
        DeclarationError: it is no task, or cannot be told of a failed job.
    """
    if given is None:
        return None
    spec: TaskSpec | None = getattr(given, "spec", None)
    if spec is None or not hasattr(spec, "signature"):
        raise DeclarationError(f"{who}on_failed={given!r} must be a task that is declared above: on_failed=told")
    if len(spec.signature.parameters) != 1:
        raise DeclarationError(
            f"{who}on_failed={spec.name}: a task that follows a failure has one parameter besides its context, a FailedJob;"
            f" this one has {len(spec.signature.parameters)}"
        )
    if spec.tenant or spec.lock:
        raise DeclarationError(f"{who}on_failed={spec.name}: its only parameter is a FailedJob, so it can name no tenant or lock")
    return spec


def check_follow_up(spec: "TaskSpec", known: Container[str]) -> None:
    """Look again when all is declared and every annotation can be resolved.

    Raises:
        DeclarationError: its parameter is no FailedJob, or no worker of this app would know the task.
    """
    after = spec.on_failed
    if after is None:
        return
    if FailedJob not in after.signature.known.values():
        (name,) = after.signature.parameters
        raise DeclarationError(f"task {spec.name}: on_failed={after.name}: annotate its parameter: {name}: FailedJob")
    if after.name not in known:
        raise DeclarationError(
            f"task {spec.name}: on_failed={after.name} belongs to another app, so nobody here would run it; include it"
        )


def stored(spec: "TaskSpec") -> dict[str, Any] | None:
    """What the store needs to enqueue the task that follows. The gate is text: readers of JSON lose digits of large numbers."""
    after = spec.on_failed
    if after is None:
        return None
    (parameter,) = after.signature.parameters
    return {
        "task": after.name, "queue": after.queue, "rank": 100 - after.priority, "gate": str(after.gate),
        "deadline": after.deadline, "version": after.version, "parameter": parameter, "class": class_name(FailedJob),
    }  # fmt: skip
