"""The fields of a log line that belongs to a job, under names that no log record has for itself."""

import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

OWN = ("job", "task", "attempt", "queue", "tenant")
# A standard record cannot take these from outside, and those of structlog would hide what the line says.
TAKEN = frozenset((
    *vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "event", "level", "timestamp", "logger", "exception",
    "stack", "traceback", *OWN,
))  # fmt: skip


def of_job(job: UUID, *, task: str, attempt: int, queue: str, tenant: str, carried: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an attempt; `carried` is what the job was given by `app.correlate`."""
    return {"job": str(job), "task": task, "attempt": attempt, "queue": queue, "tenant": tenant, **safe(carried)}


def safe(carried: Mapping[str, Any]) -> dict[str, Any]:
    """What is carried, where a name is taken under `carried_<name>`."""
    return {f"carried_{name}" if name in TAKEN else name: value for name, value in carried.items() if not name.startswith("$")}
