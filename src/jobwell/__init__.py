"""Background jobs for business applications on PostgreSQL: nothing lost, nothing blindly repeated, everything visible."""

from jobwell.app import App
from jobwell.client.handle import Group
from jobwell.core.breaker import Breaker
from jobwell.core.context import Context, SyncContext
from jobwell.core.dedup import Dedup
from jobwell.core.errors import (
    BatchTooLarge,
    CheckpointMismatch,
    Conflict,
    DeclarationError,
    Duplicate,
    EnqueueError,
    InvalidArguments,
    JobCancelled,
    JobFailed,
    JobwellError,
    NotFound,
    PayloadTooLarge,
    QueueFull,
    ResourceUnavailable,
    ResultError,
    ResultExpired,
    ResultMismatch,
    ResultUnavailable,
    SchemaMismatch,
    SettingsError,
    StoreError,
    StoreUnavailable,
    TransactionMisuse,
    WaitTimeout,
)
from jobwell.core.failed import FailedJob
from jobwell.core.follow import Followed
from jobwell.core.job import NewJob
from jobwell.core.limits import Limit, Rate, Tier
from jobwell.core.outcome import Compensate, Reject, Retry, Snooze
from jobwell.core.pools import Pool
from jobwell.core.progress import Progress
from jobwell.core.queues import Pressure, Queue
from jobwell.core.retry import Backoff, Delays, Fixed, Retries
from jobwell.core.steps import CannotTell, DidNotHappen, Happened
from jobwell.core.task import Lock
from jobwell.tasks import Tasks

__version__ = "0.1.0"

__all__ = [
    "App",
    "Backoff",
    "BatchTooLarge",
    "Breaker",
    "CannotTell",
    "CheckpointMismatch",
    "Compensate",
    "Conflict",
    "Context",
    "DeclarationError",
    "Dedup",
    "Delays",
    "DidNotHappen",
    "Duplicate",
    "EnqueueError",
    "FailedJob",
    "Fixed",
    "Followed",
    "Group",
    "Happened",
    "InvalidArguments",
    "JobCancelled",
    "JobFailed",
    "JobwellError",
    "Limit",
    "Lock",
    "NewJob",
    "NotFound",
    "PayloadTooLarge",
    "Pool",
    "Pressure",
    "Progress",
    "Queue",
    "QueueFull",
    "Rate",
    "Reject",
    "ResourceUnavailable",
    "ResultError",
    "ResultExpired",
    "ResultMismatch",
    "ResultUnavailable",
    "Retries",
    "Retry",
    "SchemaMismatch",
    "SettingsError",
    "Snooze",
    "StoreError",
    "StoreUnavailable",
    "SyncContext",
    "Tasks",
    "Tier",
    "TransactionMisuse",
    "WaitTimeout",
]
