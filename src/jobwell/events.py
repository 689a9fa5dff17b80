"""What workers tell the handlers of `@app.on(…)`: `from jobwell.events import JobQuarantined`. Each says when it is told.

`Report`, with `Attachment`, is for `@app.on_report` alone.
"""

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
from jobwell.core.letter import Attachment, Report

__all__ = [
    "Attachment",
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
    "Report",
    "WorkerStarted",
    "WorkerStopping",
]
