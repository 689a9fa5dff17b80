"""The error tree. Each message says what happened, what it means for the job, and what to do.

JobwellError
├── SettingsError            a setting is wrong; nothing was started
├── DeclarationError         a task, queue or app is declared wrongly; refused at import
├── EnqueueError             the job was not stored; nothing is half-written
│   ├── InvalidArguments     an argument does not fit the task or cannot be stored
│   ├── PayloadTooLarge      the arguments are above the limit
│   └── TransactionMisuse    `within`/`conn=` cannot give the promise that the job commits with the caller's rows
├── StoreError
│   ├── StoreUnavailable     the database cannot be reached
│   ├── StoreRefused         the server answers, and refuses: no such database or user, wrong password
│   └── SchemaMismatch       code and tables do not fit each other
├── NotFound                 no such job, queue, …
├── Conflict                 the thing is not in a state in which this can be done
└── WorkerError              a worker process cannot go on
"""


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


class NotFound(JobwellError):
    """There is no such thing in this store."""


class Conflict(JobwellError):
    """The thing is no longer in a state in which this can be done. Nothing was changed."""


class WorkerError(JobwellError):
    """A worker process cannot go on. Its jobs are handed back or rescued by another one."""
