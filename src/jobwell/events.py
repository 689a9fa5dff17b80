"""What workers tell the handlers of `@app.on(…)`: `from jobwell.events import JobQuarantined`. Each says when it is told."""

from jobwell.core.events import (
    BreakerClosed,
    BreakerOpened,
    Event,
    JobCancelled,
    JobCrashed,
    JobEvent,
    JobQuarantined,
    JobReleased,
    JobRetrying,
    JobSnoozed,
    JobStarted,
    JobSucceeded,
    LeaseLost,
    WorkerStarted,
    WorkerStopping,
)

__all__ = [
    "BreakerClosed",
    "BreakerOpened",
    "Event",
    "JobCancelled",
    "JobCrashed",
    "JobEvent",
    "JobQuarantined",
    "JobReleased",
    "JobRetrying",
    "JobSnoozed",
    "JobStarted",
    "JobSucceeded",
    "LeaseLost",
    "WorkerStarted",
    "WorkerStopping",
]
