"""The error tree. Each message says what happened, what it means for the job, and what to do.

JobwellError
├── SettingsError            a setting is wrong; nothing was started
├── DeclarationError         a task, queue or app is declared wrongly; refused at import
├── EnqueueError             the job was not stored; nothing is half-written
│   ├── InvalidArguments     an argument does not fit the task or cannot be stored
│   ├── PayloadTooLarge      the arguments are above the limit
│   ├── BatchTooLarge        more jobs in one call than `batch_limit`
│   ├── QueueFull            the queue holds as many jobs as it may
│   ├── Duplicate            an equal job is there, and the task says that a second one is refused
│   └── TransactionMisuse    `within`/`conn=` cannot give the promise that the job commits with the caller's rows
├── StoreError
│   ├── StoreUnavailable     the database cannot be reached
│   ├── StoreRefused         the server answers, and refuses: no such database or user, wrong password
│   └── SchemaMismatch       code and tables do not fit each other
├── ResultError              a result was asked for and there is none to give; the job itself is as it was
│   ├── JobFailed            it failed for good
│   ├── JobCancelled         it was cancelled
│   ├── WaitTimeout          it has not ended yet, and goes on
│   ├── ResultExpired        it succeeded, and its result was kept no longer
│   ├── ResultUnavailable    it succeeded, and its result was never stored
│   └── ResultMismatch       its result is there and does not fit the task's type any more
├── CheckpointMismatch       what an earlier attempt has kept does not fit what this one asks for
├── ResourceUnavailable      the breaker of a resource is open; the job goes back and spends no attempt
├── NotFound                 no such job, queue, …
├── Conflict                 the thing is not in a state in which this can be done
└── WorkerError              a worker process cannot go on
"""

from typing import Any, Final
from uuid import UUID

NOT_ENQUEUED: Final = "nothing was enqueued"  # what a refusal means: for an enqueue,
NOT_CHANGED: Final = "nothing was changed"  # and for what was there already


class JobwellError(Exception):
    """Base of all errors that Jobwell raises by itself.

    Args:
        message: one or two sentences for a person.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class SettingsError(JobwellError):
    """A setting is missing or wrong. Nothing was started."""


class DeclarationError(JobwellError):
    """A task, queue or app is declared wrongly. Raised at import, before any job exists."""


class EnqueueError(JobwellError):
    """The job was not stored. Nothing is half-written."""


class InvalidArguments(EnqueueError):
    """An argument does not fit the task's signature or cannot be stored.

    Args:
        message: the sentence, which names the path.
        path: where it stands, such as `items[3].price`.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class PayloadTooLarge(EnqueueError):
    """The encoded arguments are above `payload_limit`. Pass a reference instead of the data."""


class BatchTooLarge(EnqueueError):
    """One call has more jobs than the setting `batch_limit`. Nothing of it was stored."""


class QueueFull(EnqueueError):
    """The queue holds as many ready jobs as its hard limit allows. Nothing of the call was stored, and the same may go later.

    Args:
        message: the sentence.
        queue: its name.
        length: ready jobs, as far as they were counted, with what this process is about to add.
        limit: the hard limit.
    """

    def __init__(self, message: str, *, queue: str, length: int, limit: int) -> None:
        super().__init__(message)
        self.queue = queue
        self.length = length
        self.limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, vars(self))


class Duplicate(EnqueueError):
    """An equal job is there already, and `Dedup(…, on_conflict="reject")` refuses a second one. Nothing of the call was stored.

    Args:
        message: the sentence.
        job_id: of the job that stands for the key.
        task, tenant: of the job that was refused.
        key: what both have in common.
        state: of that job: scheduled, ready, running or retrying; "over" where it is done and its window is not.
    """

    def __init__(self, message: str, *, job_id: UUID, task: str, tenant: str, key: str, state: str) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.task = task
        self.tenant = tenant
        self.key = key
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, vars(self))


class TransactionMisuse(EnqueueError):
    """The connection given cannot promise that the job commits or vanishes with the caller's rows."""


class StoreError(JobwellError):
    """Something is wrong with the store."""


class StoreUnavailable(StoreError):
    """The database cannot be reached. Nothing was changed, unless `unsure`; try again when it is back.

    Args:
        message: one or two sentences for a person.
        unsure: something was sent and the answer is lost: it may have taken effect, or not.
    """

    def __init__(self, message: str, *, unsure: bool = False) -> None:
        super().__init__(message)
        self.unsure = unsure


class StoreRefused(StoreError):
    """The server answers and refuses: there is no such database or user, or the password is wrong."""


class SchemaMismatch(StoreError):
    """Code and tables do not fit each other. Run `jobwell migrate`, or deploy the matching release."""


class ResultError(JobwellError):
    """A result was asked for and there is none to give. Asking changes nothing: the job is as it was."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, vars(self))  # with its fields, to another process too


def _again(kind: type[JobwellError], message: str, fields: dict[str, Any]) -> JobwellError:
    error = kind.__new__(kind, message)
    vars(error).update(fields)
    return error


class JobFailed(ResultError):
    """The job failed for good and waits in the quarantine for a person.

    Args:
        message: the sentence.
        job_id: of the job.
        task: its name.
        reason: rejected, exhausted, deadline, lost, … (docs/states.md).
        code: of `Reject`, or None.
        error_type: the name of what was raised, or None.
        error_message: what it said, cut and cleaned, or None.
        attempts: how many were begun.
    """

    def __init__(
        self,
        message: str,
        *,
        job_id: UUID,
        task: str,
        reason: str,
        code: str | None,
        error_type: str | None,
        error_message: str | None,
        attempts: int,
    ) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.task = task
        self.reason = reason
        self.code = code
        self.error_type = error_type
        self.error_message = error_message
        self.attempts = attempts


class JobCancelled(ResultError):
    """The job was cancelled before it could end by itself.

    Args:
        message: the sentence.
        job_id: of the job.
        note: why, as far as somebody said, or None.
    """

    def __init__(self, message: str, *, job_id: UUID, note: str | None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.note = note


class WaitTimeout(ResultError, TimeoutError):
    """The job has not ended in the time given. It goes on; its result may be asked for again.

    Args:
        message: the sentence.
        job_id: of the job, or of the first of several.
        state: its state when it was last looked at.
    """

    def __init__(self, message: str, *, job_id: UUID, state: str) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.state = state


class ResultExpired(ResultError):
    """The job succeeded; its result was kept for as long as the task's `result_ttl` says, and no longer."""


class ResultUnavailable(ResultError):
    """The job succeeded; its result was not stored, and the message says why. The work is done and is not done again.

    Args:
        message: the sentence.
        note: the reason as it stands on the job.
    """

    def __init__(self, message: str, *, note: str) -> None:
        super().__init__(message)
        self.note = note


class ResultMismatch(ResultError):
    """The job succeeded, and what it returned does not fit the type that its task declares now.

    Args:
        message: the sentence.
        raw: the result as it is stored, as JSON text.
    """

    def __init__(self, message: str, *, raw: str) -> None:
        super().__init__(message)
        self.raw = raw


class CheckpointMismatch(JobwellError):
    """What an earlier attempt has saved does not fit the type, or the items, that this one has. Raised inside a task.

    Not caught, it is an error like any other: the job tries again by its rule, perhaps on a worker of the other release.

    Args:
        message: the sentence.
        raw: what is kept, as JSON text.
    """

    def __init__(self, message: str, *, raw: str) -> None:
        super().__init__(message)
        self.raw = raw

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, vars(self))


class ResourceUnavailable(JobwellError):
    """The breaker of a resource is open, so `ctx.call` did not begin. Raised inside a task; there it may be caught.

    Not caught, it hands the job back, which has spent no attempt, and goes on when the breaker lets it.

    Args:
        message: the sentence.
        resource: its name.
        retry_in: seconds until the breaker lets the next one try, as far as this worker knows.
    """

    def __init__(self, message: str, *, resource: str, retry_in: float) -> None:
        super().__init__(message)
        self.resource = resource
        self.retry_in = retry_in

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, vars(self))


class NotFound(JobwellError):
    """There is no such thing in this store."""


class Conflict(JobwellError):
    """The thing is no longer in a state in which this can be done. Nothing was changed."""


class WorkerError(JobwellError):
    """A worker process cannot go on. Its jobs are handed back or rescued by another one."""
