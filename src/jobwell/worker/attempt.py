"""One attempt, from claim to outcome. Read it from top to bottom: it is the specification of an attempt.

* open: the task, its deadline, its arguments, its context
* call: through the middleware, on the loop or on a thread
* judge: what was returned or raised becomes an outcome
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from random import random
from typing import Any

from jobwell.client import correlation
from jobwell.core import text
from jobwell.core.classify import Verdict, classify
from jobwell.core.context import Context, SyncContext
from jobwell.core.duration import text as duration_text
from jobwell.core.elsewhere import going
from jobwell.core.envelope import version_of
from jobwell.core.error_rules import Rules
from jobwell.core.errors import JobwellError, ResourceUnavailable
from jobwell.core.job import upgraded
from jobwell.core.orders import Raised, deciding
from jobwell.core.outcome import (
    Cancelled,
    Committed,
    Compensate,
    Crashed,
    Failed,
    Failure,
    Lost,
    Moment,
    Outcome,
    Reject,
    Released,
    Retry,
    Retrying,
    Snooze,
    Snoozed,
    after_seconds,
)
from jobwell.core.retry import Match, matching, next_attempt
from jobwell.core.states import Reason
from jobwell.core.task import TaskSpec
from jobwell.worker.calls import gone_back
from jobwell.worker.checkpoints import part
from jobwell.worker.completing import after_commit, succeeded
from jobwell.worker.executors.children import CannotStart, Children
from jobwell.worker.executors.kept import Died, TooMuchMemory
from jobwell.worker.failures import MESSAGE_LIMIT, failure_of, said, trace_of
from jobwell.worker.middleware import compose
from jobwell.worker.record import Attempt, Surroundings
from jobwell.worker.steps import steps_of

log = logging.getLogger("jobwell.worker")

UNKNOWN_DELAY = 30.0
TOO_NEW_BOUND = 120  # times 30 s: an hour for a deploy
OVERDUE = Failure("DeadlinePassed", "the deadline passed before the attempt began", origin="limits")


async def run(attempt: Attempt, around: Surroundings) -> Outcome | None:
    """Run it to its end.

    Returns:
        The outcome to be stored; None where the worker has lost the job and nothing may be written.
    """
    if attempt.apart and around.children is not None:
        return await _apart(attempt, around.children, around)
    attempt.calls, attempt.queues, attempt.around = around.calls, around.queues, around
    refusal = _open(attempt, around)
    if refusal is not None:
        return refusal
    if attempt.stopped is not None:  # told to stop before its first step
        return _judge(attempt, asyncio.CancelledError(), around.now)
    try:
        result = await _call(attempt, around)
    except BaseException as error:  # noqa: BLE001  everything that user code raises is judged, SystemExit included
        return await _raised(attempt, error, around)
    if attempt.committed is not None:
        return after_commit(attempt, result, None)
    if attempt.left_off and around.keeping is not None:
        await part(attempt, around.keeping)
    if attempt.stopped == "timeout":
        return timed_out(attempt, around.now)
    return _returned(attempt, result, around.now, around.result_limit)


async def _raised(attempt: Attempt, error: BaseException, around: Surroundings) -> Outcome | None:
    if attempt.committed is not None:
        return after_commit(attempt, None, error)
    if attempt.walks and around.keeping is not None:
        await part(attempt, around.keeping)
    try:
        return _judge(attempt, error, around.now)
    except BaseException:  # noqa: BLE001  an error that cannot even be read is the task's, and counts
        unread = Failure(type(error).__name__, "what it raised cannot be read", origin="code")
        return _again(attempt, unread, None, around.now)


def _returned(attempt: Attempt, result: Any, now: Callable[[], datetime], limit: int) -> Outcome | None:
    if attempt.left_off:  # half of its work is done, although its code has caught that
        return _judge(attempt, asyncio.CancelledError(), now)
    return attempt.ends_as or succeeded(attempt, result, limit)


async def _apart(attempt: Attempt, children: Children, around: Surroundings) -> Outcome | None:
    """The same in a child process; here is only what a child cannot tell of itself."""
    spec, now = attempt.spec, around.now
    if attempt.stopped is not None:
        return _judge(attempt, asyncio.CancelledError(), now)
    memory = spec.memory if spec is not None else None
    attempt.kill = partial(children.kill, attempt.job.id, attempt.claim_id)
    began = partial(_limit_from_now, attempt, attempt.limit_at - attempt.began)
    attempt.limit_at = math.inf  # the start of a child takes none of the job's time
    try:
        told = around.keeping.heard(attempt) if around.keeping is not None else lambda _: None
        outcome = await children.run(attempt.job, attempt.claim_id, memory, began, told)
        if isinstance(outcome, Committed):  # whatever it was told meanwhile
            return outcome
    except asyncio.CancelledError as error:
        return _judge(attempt, error, now)
    except Died as death:
        return None if attempt.stopped == "lost" else Crashed(death.how)
    except TooMuchMemory as error:
        return _again(attempt, Failure("MemoryLimit", str(error), kind="unknown", origin="limits"), None, now)
    except CannotStart as error:
        log.error("job %s (%s) goes back: %s", attempt.job.id, attempt.job.task, error)  # noqa: TRY400  it says all
        return Released(text.clean(str(error), MESSAGE_LIMIT), UNKNOWN_DELAY, begun=False)
    return timed_out(attempt, now) if attempt.stopped == "timeout" else outcome


def _limit_from_now(attempt: Attempt, limit: float) -> None:
    left = _remaining(attempt)
    attempt.limit_at = time.monotonic() + (limit if left is None else min(limit, max(left, 0.0)))


def _open(attempt: Attempt, around: Surroundings) -> Outcome | None:
    job, spec = attempt.job, attempt.spec
    correlation.inherit(job)
    if spec is None:
        return Released(f"this worker does not know the task {job.task!r}", UNKNOWN_DELAY, begun=False)
    if job.remaining is not None and job.remaining <= 0:
        return Failed(Reason.DEADLINE, OVERDUE, counts=False)
    if job.args is None and job.bytes:
        gone = f"its arguments ({job.bytes:,} bytes) stood apart, and are not there any more"
        return Failed(Reason.INVALID, Failure("ArgumentsGone", gone, origin="validation"), counts=False)
    try:
        version, stored = version_of(job.args or "{}")
        if version > spec.version:
            return _too_new(attempt, version, spec.version)
        attempt.args = upgraded(spec, version, stored)
    except BaseException as error:  # noqa: BLE001  classes and upgrades of the user work here, and raise what they like
        words = text.clean(said(error), MESSAGE_LIMIT)
        unfit = Failure(type(error).__name__, f"the payload does not fit the task: {words}", origin="validation")
        return Failed(Reason.INVALID, unfit, counts=False)
    if spec.signature.context:
        attempt.context = _context(attempt, spec, around)
    return None


def _too_new(attempt: Attempt, version: int, known: int) -> Outcome:
    """Made by a newer release, which is being deployed, or was taken back."""
    told = f"its payload has version {version}, and this release knows {known}"
    if attempt.job.postponements >= TOO_NEW_BOUND:
        gone = Failure("TooNew", f"{told}; nobody who knows it has come", origin="code")
        return Failed(Reason.UNSUPPORTED, gone, counts=False)
    log.warning("job %s (%s) goes back: %s", attempt.job.id, attempt.job.task, told)
    return Released(told, UNKNOWN_DELAY, begun=False)


def _context(attempt: Attempt, spec: TaskSpec, around: Surroundings) -> Context | SyncContext:
    job = attempt.job
    kind = Context if spec.coroutine else SyncContext
    return kind(
        id=job.id, task=job.task, queue=job.queue, tenant=job.tenant, attempt=job.attempt, deadline_in=job.remaining,
        monotonic=time.monotonic, meta=job.meta, calls=partial(attempt.calls.begin, attempt) if attempt.calls else None,
        steps=steps_of(attempt),
        holding=partial(around.keeping.of, attempt) if around.keeping is not None else None,
        claim_id=attempt.claim_id,
    )  # fmt: skip


async def _call(attempt: Attempt, around: Surroundings) -> Any:
    spec = attempt.spec
    assert spec is not None
    given = (attempt.context,) if spec.signature.context else ()
    call: Callable[[], Awaitable[Any]]
    if not spec.coroutine:
        call = partial(around.threads.submit, partial(_noted, attempt, partial(spec.fn, *given, **attempt.args)))
    elif not around.middleware:
        return await spec.fn(*given, **attempt.args)
    else:
        call = partial(spec.fn, *given, **attempt.args)
    if around.middleware:
        attempt.context = attempt.context or _context(attempt, spec, around)
        call = compose(around.middleware, attempt.context, call)
    return await call()


def _noted(attempt: Attempt, call: Callable[[], Any]) -> Any:
    """On the thread: what has been done is known from here on, also where the loop cannot be told any more."""
    try:
        result = call()
    except BaseException as error:
        attempt.known = (None, error)
        raise
    attempt.known = (result, None)
    return result


def concluded(attempt: Attempt, now: Callable[[], datetime], limit: int) -> Outcome | None:
    """What becomes of an attempt whose plain function has ended and whose loop does not answer; None: it has not ended."""
    if attempt.committed is not None:
        return attempt.committed
    if attempt.known is None or attempt.stopped == "timeout":
        return None
    result, error = attempt.known
    return _judge(attempt, error, now) if error is not None else _returned(attempt, result, now, limit)


def _judge(attempt: Attempt, error: BaseException, now: Callable[[], datetime]) -> Outcome | None:
    if attempt.stopped == "lost" or isinstance(error, Lost):
        return None
    if attempt.ends_as is not None:
        return attempt.ends_as
    if attempt.stopped == "timeout":
        return timed_out(attempt, now)
    raised = deciding(error, now)
    order = raised.order
    if attempt.stopped == "shutdown" and isinstance(order, asyncio.CancelledError):
        return Released("shutdown")
    if attempt.stopped == "cancelled":
        asked = isinstance(order, asyncio.CancelledError)
        return Cancelled(None if asked else failure_of(error, classify(error, _rules(attempt))))
    if isinstance(order, Reject | Compensate):
        return _over(order)
    if isinstance(order, Snooze):
        return _snoozed(attempt, order, now)
    if isinstance(order, ResourceUnavailable):
        return gone_back(order, _remaining(attempt))
    if isinstance(order, Retry):
        # A subclass may have forgotten to call ours.
        failure = failure_of(order, replace(classify(order), kind="temporary"))
        return _again(attempt, failure, getattr(order, "after", None), now, wish=order)
    return _failed(attempt, error, raised, now)


def _over(order: Reject | Compensate) -> Outcome:
    """It has said itself that it is over."""
    message, code, origin = (
        text.clean(said(order.message), MESSAGE_LIMIT),
        text.clean(said(order.code), 200),
        classify(order).origin,
    )
    if isinstance(order, Reject):
        return Failed(Reason.REJECTED, Failure("Reject", message, trace_of(order), "", "logical", origin), code)
    return Cancelled(Failure("Compensate", f"{message} ({code})", trace_of(order), "", "logical", origin))


def _failed(attempt: Attempt, error: BaseException, raised: Raised, now: Callable[[], datetime]) -> Outcome:
    """An error that is no order: classified, and tried again by the rule that fits it."""
    spec, verdict = attempt.spec, classify(raised.error, _rules(attempt))
    assert spec is not None
    failure = failure_of(error, verdict)
    match = matching(spec.retry, verdict, (f"{one.__module__}.{one.__qualname__}" for one in type(error).__mro__))
    if verdict.kind == "logical" and not match.again:
        return Failed(Reason.REJECTED, failure)
    if verdict.asked is None and raised.asked is not None:
        return _again(attempt, failure, raised.asked, now, match)
    return _again(attempt, failure, verdict.asked, now, match, header=True)


def _rules(attempt: Attempt) -> Sequence[Rules]:
    return attempt.spec.errors if attempt.spec is not None else ()


def timed_out(attempt: Attempt, now: Callable[[], datetime]) -> Outcome:
    """What becomes of an attempt that is over its time limit."""
    spec, job = attempt.spec, attempt.job
    assert spec is not None
    if job.remaining is not None and job.remaining <= spec.timeout:
        passed = Failure("DeadlinePassed", "the deadline passed while it ran", kind="temporary", origin="limits")
        return Failed(Reason.DEADLINE, passed)
    message = f"it ran longer than its time limit of {duration_text(spec.timeout)}"
    return _again(attempt, Failure("TimeLimit", message, kind="temporary", origin="limits"), None, now)


def _again(
    attempt: Attempt,
    failure: Failure,
    after: Moment | None,
    now: Callable[[], datetime],
    match: Match | None = None,
    *,
    header: bool = False,
    wish: Retry | None = None,
) -> Outcome:
    """Another attempt, or the end. A header that names no time to come (a clock may be off) leaves it to the rule."""
    spec, job = attempt.spec, attempt.job
    assert spec is not None
    match = match or matching(spec.retry, Verdict("unknown" if failure.kind == "unknown" else "temporary"))
    asked, note = None, None
    if after is not None:
        try:
            asked = after_seconds(after, now(), "after")
        except JobwellError as error:  # a wish that cannot be read must not cost the attempt its place
            note = text.clean(f"its wish could not be read: {error}", MESSAGE_LIMIT)
        if header and asked == 0:
            asked = None
    remaining = _remaining(attempt)
    plan = next_attempt(
        match.rule, failures=job.failures + 1, kind=failure.kind, asked=asked, remaining=remaining, uniform=random, own=match.own
    )
    if plan == "exhausted":
        return Failed(Reason.EXHAUSTED, failure)
    if plan == "deadline":
        if asked is not None:
            told = text.clean(
                f"{failure.message} (asked to wait {duration_text(asked)}, which is past its deadline)", MESSAGE_LIMIT
            )
            failure = replace(failure, message=told)
        return Failed(Reason.DEADLINE, failure)
    if attempt.failed_in is not None and attempt.calls is not None:
        plan = attempt.calls.paced(attempt, plan, _remaining(attempt))
    place = going(match.rule, failures=job.failures + 1, wish=wish, at_queue=job.queue, at_rank=job.rank, queues=attempt.queues)
    notes = "; ".join(filter(None, (plan.note or note, place.note)))
    return Retrying(plan.delay, failure, notes or None, place.queue, place.priority)


def _snoozed(attempt: Attempt, wish: Snooze, now: Callable[[], datetime]) -> Outcome:
    try:
        delay = after_seconds(wish.until, now(), "until")
    except (JobwellError, AttributeError) as error:
        return _again(attempt, failure_of(error, Verdict("unknown")), None, now)
    remaining = _remaining(attempt)
    message = text.clean(said(wish), MESSAGE_LIMIT)
    if remaining is not None and delay >= remaining:
        past = Failure("Snooze", f"it asked to sleep past its deadline: {message}", origin="limits")
        return Failed(Reason.DEADLINE, past, counts=False)
    return Snoozed(max(delay, 0.001), message)


def _remaining(attempt: Attempt) -> float | None:
    remaining = attempt.job.remaining
    return None if remaining is None else remaining - (time.monotonic() - attempt.began)
