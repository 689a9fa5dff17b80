"""Events to their handlers, beside the work and never in its way.

* each handler has a line of its own, so a slow one delays nobody else; order is kept within a line
* plain functions run on threads, async ones on the loop
* bounds: HANDLER_LIMIT for one call, LONGEST_LINE events that wait, STRIKES overruns in a row
* nothing at all is made where nobody listens
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, assert_never
from uuid import UUID

import orjson

from jobwell.core.events import (
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
)
from jobwell.core.outcome import Cancelled, Crashed, Failed, Outcome, Released, Retrying, Snoozed, Succeeded
from jobwell.worker.executors.threads import Threads
from jobwell.worker.record import Attempt

log = logging.getLogger("jobwell.events")

Handler = Callable[[Any], Any]

HANDLER_LIMIT = 10.0  # seconds for one call
LONGEST_LINE = 10_000
STRIKES = 3  # calls in a row that overran their limit: the handler is switched off
LAST_CALL = 2.0  # seconds for what still waits when the worker ends
OUTCOMES = (JobSucceeded, JobQuarantined, JobRetrying, JobSnoozed, JobReleased, JobCancelled, JobCrashed)


class Hub:
    """Hands events to the handlers of an app.

    Args:
        handlers: by the kind of event.
        threads: for the plain ones.
        worker: whose events these are.
        now: the database's time.
    """

    def __init__(
        self, handlers: Mapping[type[Event], Sequence[Handler]], threads: Threads, worker: UUID, now: Callable[[], datetime]
    ) -> None:
        lines: dict[Handler, Line] = {}
        self._lines = {
            kind: [lines.setdefault(handler, Line(handler, threads)) for handler in given]
            for kind, given in handlers.items()
            if given
        }
        self._all = list(lines.values())
        self._worker = worker
        self._now = now

    def wants(self, *kinds: type[Event]) -> bool:
        """Whether somebody listens to one of these."""
        return any(kind in self._lines for kind in kinds)

    def tell(self, kind: type[Event], /, **about: Any) -> None:
        """Make an event and put it into the lines of those who listen; they are called later."""
        lines = self._lines.get(kind)
        if lines:
            event = kind(at=self._now(), worker=self._worker, **about)
            for line in lines:
                line.put(event)

    def started(self, attempts: Iterable[Attempt]) -> None:
        """These attempts begin."""
        for attempt in attempts:
            self.tell(JobStarted, **_common(attempt))

    def ended(self, ends: Iterable[tuple[Attempt, Outcome]], lost: set[UUID]) -> None:
        """These outcomes are stored, but for the lost ones."""
        for attempt, outcome in ends:
            if attempt.job.id not in lost:
                kind, about = _told(outcome, time.monotonic() - attempt.began)
                if kind in self._lines:
                    self.tell(kind, **_common(attempt), **about)

    async def close(self) -> None:
        """Let the lines come to their end, for LAST_CALL seconds."""
        ends = [end for line in self._all if (end := line.close()) is not None]
        if ends:
            _, late = await asyncio.wait(ends, timeout=LAST_CALL)
            for end in late:
                end.cancel()
            if late:
                log.warning("%d handler(s) of events did not end in time; what waited for them is dropped", len(late))


class Line:
    """One handler with the events that wait for it."""

    def __init__(self, handler: Handler, threads: Threads) -> None:
        self._handler = handler
        self._async = any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None))))  # noqa: B004
        self._threads = threads
        self._name = getattr(handler, "__qualname__", repr(handler))
        self._waiting: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._late: set[asyncio.Future[Any]] = set()
        self._dropped = 0
        self._strikes = 0

    def put(self, event: Event) -> None:
        """Take an event in, where there is room."""
        if self._strikes >= STRIKES:
            return
        if self._waiting.qsize() >= LONGEST_LINE:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:  # the first, the second, the fourth, …
                log.warning("%d event(s) dropped: %s is slower than what it listens to", self._dropped, self._name)
            return
        self._waiting.put_nowait(event)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve(), name=f"jobwell events {self._name}")

    def close(self) -> "asyncio.Task[None] | None":
        """Take nothing more. Gives the task to wait for."""
        self._waiting.put_nowait(None)
        return self._task

    async def _serve(self) -> None:
        while self._strikes < STRIKES and (event := await self._waiting.get()) is not None:
            call = self._call(event)
            await asyncio.wait([call], timeout=HANDLER_LIMIT)
            if call.done():
                self._strikes = 0
                self._judge(event, call)
            else:
                self._overran(event, call)

    def _call(self, event: Event) -> "asyncio.Future[Any]":
        if self._async:
            return asyncio.get_running_loop().create_task(_guarded(self._handler, event))
        return self._threads.submit(partial(self._handler, event))

    def _judge(self, event: Event, call: "asyncio.Future[Any]") -> None:
        error = asyncio.CancelledError("it was cancelled") if call.cancelled() else call.exception()
        if error is None and isinstance(call.result(), Raised):
            error = call.result().error
        if error is not None:
            log.error("%s failed at %s: %s", self._name, type(event).__name__, type(error).__name__, exc_info=error)

    def _overran(self, event: Event, call: "asyncio.Future[Any]") -> None:
        self._strikes += 1
        log.error("%s took longer than %g s at %s and is left behind", self._name, HANDLER_LIMIT, type(event).__name__)
        self._late.add(call)  # the loop holds tasks weakly
        call.add_done_callback(self._late.discard)
        call.cancel()
        if self._strikes >= STRIKES:
            log.error("%s is switched off until this worker starts again", self._name)
            self._waiting = asyncio.Queue()


class Raised:
    """What an async handler raised, as a value: a task that ends by SystemExit would end the loop with it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _guarded(handler: Handler, event: Event) -> Raised | None:
    try:
        await handler(event)
    except BaseException as error:  # noqa: BLE001  logged by its line; nothing of it reaches the jobs
        return Raised(error)
    return None


def _common(attempt: Attempt) -> dict[str, Any]:
    job = attempt.job
    return {
        "job_id": job.id, "task": job.task, "queue": job.queue, "tenant": job.tenant, "attempt": job.attempt,
        "correlation": orjson.loads(job.meta) if job.meta else {},
    }  # fmt: skip


def _told(outcome: Outcome, seconds: float) -> tuple[type[JobEvent], dict[str, Any]]:
    match outcome:
        case Succeeded():
            return JobSucceeded, {"seconds": seconds, "note": outcome.note}
        case Failed(reason, failure, code):
            error = {"error_type": failure.error_type, "message": failure.message}
            return JobQuarantined, {"seconds": seconds, "reason": str(reason), "code": code, **error}
        case Retrying(delay, failure):
            error = {"error_type": failure.error_type, "message": failure.message}
            return JobRetrying, {"seconds": seconds, "delay": delay, "kind": failure.kind, **error}
        case Snoozed(delay, message):
            return JobSnoozed, {"delay": delay, "message": message}
        case Released(cause, delay):
            return JobReleased, {"delay": delay, "cause": cause}
        case Cancelled():
            return JobCancelled, {"seconds": seconds}
        case Crashed(how):
            return JobCrashed, {"seconds": seconds, "how": how}
        case _:
            assert_never(outcome)
