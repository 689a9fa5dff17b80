"""What a worker tells `@app.on(…)` handlers: frozen values, delivered at most once, after the fact.

They are for counters, logs and chats. What must happen after a job is a job of its own, enqueued by the first one.

Event
├── WorkerStarted, WorkerStopping, LeaseLost
├── BreakerOpened, BreakerClosed
└── JobEvent
    ├── JobStarted
    ├── JobSucceeded
    ├── JobQuarantined        failed for good
    ├── JobRetrying           failed, another attempt follows
    ├── JobCancelled          stopped, as an operator asked
    ├── JobCrashed            its process died
    └── JobSnoozed, JobReleased
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events.

    Attributes:
        at: when it was told, by the database's clock as far as the worker knows it.
        worker: the id of the worker process.
    """

    at: datetime
    worker: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A worker process is registered and claims.

    Attributes:
        queues: that it serves.
        slots: jobs at once.
    """

    queues: tuple[str, ...]
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStopping(Event):
    """A worker process claims no more; what runs has the grace to end.

    Attributes:
        running: jobs that run.
    """

    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(Event):
    """A worker process has lost the right to its jobs, stops them without writing anything, and ends.

    Attributes:
        why: a sentence.
        running: jobs that it held.
    """

    why: str
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOpened(Event):
    """The breaker of a resource was opened by its calls: told once, by the worker that wrote it down. Not by operators.

    Attributes:
        resource: its name.
        why: a sentence.
        until: when single jobs may try again.
    """

    resource: str
    why: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerClosed(Event):
    """The breaker of a resource was closed, since a probe went well: told once, by the worker that wrote it down.

    Attributes:
        resource: its name.
        why: a sentence.
    """

    resource: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent(Event):
    """Base of what is told about one attempt of a job. Arguments and results are not part of it: they may be secret.

    Attributes:
        job_id: of the job.
        task, queue, tenant: as they stand on the job; the tenant may be empty.
        attempt: its number, from 1.
        correlation: request_id, initiator and whatever else the job carries.
    """

    job_id: UUID
    task: str
    queue: str
    tenant: str
    attempt: int
    correlation: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted(JobEvent):
    """A job was claimed and its attempt begins. Told before the outcome, and also where the worker dies afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSucceeded(JobEvent):
    """An attempt succeeded, and that is stored.

    Attributes:
        seconds: from the claim to the stored outcome.
        note: why there is no result, or None.
    """

    seconds: float
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuarantined(JobEvent):
    """A job failed for good, and stands in the quarantine.

    Attributes:
        seconds: from the claim to the stored outcome.
        reason: rejected, exhausted, deadline, invalid, …
        code: of `Reject`, or None.
        error_type, message: what was raised, cut and cleaned.
    """

    seconds: float
    reason: str
    code: str | None
    error_type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetrying(JobEvent):
    """An attempt failed, and the next one is planned.

    Attributes:
        seconds: from the claim to the stored outcome.
        delay: seconds until the next attempt.
        kind: temporary, logical, throttled or unknown.
        error_type, message: what was raised, cut and cleaned.
    """

    seconds: float
    delay: float
    kind: str
    error_type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnoozed(JobEvent):
    """A job asked to be looked at later, and that is stored. No attempt was used.

    Attributes:
        delay: seconds until then.
        message: why.
    """

    delay: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased(JobEvent):
    """A job was handed back, and that is stored. No attempt was used.

    Attributes:
        delay: seconds until it may be claimed again.
        cause: shutdown, or why its attempt never began.
    """

    delay: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled(JobEvent):
    """A running job was stopped as an operator asked, and is final. What is cancelled while it waits tells no event.

    Attributes:
        seconds: from the claim to the stored outcome.
    """

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCrashed(JobEvent):
    """The child process of a job died. It runs again, or stands in the quarantine after the third time.

    Attributes:
        seconds: from the claim to the stored outcome.
        how: the signal or the exit code, and the host.
    """

    seconds: float
    how: str
