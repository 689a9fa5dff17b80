"""Log lines that know their job: inside an attempt, on the loop or on a thread, whoever writes them.

An attempt leaves a reference to its job (client/correlation.py) and nothing else; the fields are made when a line is logged.
"""

import contextlib
import logging
from collections.abc import MutableMapping
from typing import Any

from jobwell.client import correlation
from jobwell.core import log_fields
from jobwell.core.duration import text as duration_text
from jobwell.core.outcome import Failed, Failure, Outcome, Retrying

log = logging.getLogger("jobwell.job")


def fields() -> dict[str, Any]:
    """The fields of a line logged here: job, task, attempt, queue, tenant, request_id, initiator and what else is carried.

    Outside of attempts: what `app.correlate` gives, or nothing.
    """
    job, carried = correlation.running()
    if job is None:
        return log_fields.safe(carried)
    return log_fields.of_job(job.id, task=job.task, attempt=job.attempt, queue=job.queue, tenant=job.tenant, carried=carried)


class JobFields(logging.Filter):
    """For handlers of one's own: gives each record the fields of its job as attributes. Lets every record pass.

    What the record has already (by `extra=`) stays. It belongs on a handler, since a logger's filter does not see the records
    of other loggers; and on the first one, where records go through a queue to another thread.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Fill in what the record does not have."""
        held = vars(record)
        for name, value in fields().items():
            held.setdefault(name, value)
        return True


def add_job_fields(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """For structlog configurations of one's own: a processor that gives each event the fields of its job."""
    for name, value in fields().items():
        event.setdefault(name, value)
    return event


def tell(outcome: Outcome) -> None:
    """Log how an attempt failed; called inside of it. Arguments are never part of it; the words are those of the error."""
    with contextlib.suppress(BaseException):  # filters and handlers of the application: their errors must not cost the outcome
        match outcome:
            case Failed(reason, failure, code):
                about = {"reason": str(reason), **({"code": code} if code else {}), **_extra(failure)}
                log.error("failed for good (%s): %s", reason, _said(failure), extra=about)
            case Retrying(delay, failure, queue=queue):
                when = duration_text(delay) + (f" in the queue {queue}" if queue is not None else "")
                log.info("failed, next attempt in %s: %s", when, _said(failure), extra=_extra(failure))
            case _:
                pass


def _said(failure: Failure) -> str:
    return f"{failure.error_type}: {failure.message}"


def _extra(failure: Failure) -> dict[str, Any]:
    trace = {"traceback": failure.traceback} if failure.traceback else {}
    return {"error_type": failure.error_type, "error_message": failure.message, "error_kind": failure.kind} | trace
