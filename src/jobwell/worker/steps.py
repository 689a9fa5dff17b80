"""Steps of an attempt, written once for tasks of both colours: what to do next is told by `_flow`, and two drivers do it.

1. begin: it is written down that it begins, or found what became of it before
2. settle: begun before and not known to be done, it is repeated, held for a person, or the outside system is asked
3. call: the function
4. done: what it returned is written down; or what it raised tells whether it happened
"""

import asyncio
import contextlib
import contextvars
import inspect
import logging
import math
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from jobwell.client.connections import Connections
from jobwell.core import steps as core
from jobwell.core import text
from jobwell.core.errors import DeclarationError, StoreError, StoreUnavailable
from jobwell.core.outcome import Failed, Failure
from jobwell.core.states import Reason
from jobwell.core.step_errors import did_not_happen
from jobwell.core.steps import CannotTell, DidNotHappen, Happened, Step
from jobwell.store import steps
from jobwell.store.statements import Program, arun, run
from jobwell.store.steps import Found
from jobwell.worker.executors.threads import deliver
from jobwell.worker.failures import said

if TYPE_CHECKING:
    from jobwell.worker.record import Attempt

log = logging.getLogger("jobwell.worker")

NOTE_LIMIT = 500
FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0  # seconds between two tries where the store is away
STALE = 1.0  # seconds after which it is asked once more whether the job is still ours, before the call: a host may have frozen
LAST_WORD = 2.0  # seconds for writing down what has happened, where the attempt is told to stop meanwhile


class Ended(BaseException):
    """The attempt is over here: a person must say, or another worker has the job. No `except Exception` catches it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The store. `make` makes the program anew for each try.

    Attributes:
        surely: also where the attempt is told to stop meanwhile.
    """

    make: Callable[[], Program[Any]]
    surely: bool = False


@dataclass(frozen=True, slots=True)
class Do:
    """A function of the user."""

    fn: Callable[..., Any]
    step: Step


Flow = Generator[Ask | Do, Any, Any]


def reached(point: str, step: Step, attempt: "Attempt") -> None:
    """Where a process may die in the middle of a step; tests put something else in its place.

    Points: "begin" (nothing is written), "begun" (written, not called), "called" (called, not written), "done" (written).
    """


def steps_of(attempt: "Attempt") -> "Callable[[], Steps] | None":
    """What a context is given; None where nothing is stored."""
    around = attempt.around
    return partial(Steps, attempt, around.connections) if around is not None and around.connections is not None else None


class Steps:
    """The steps of one attempt.

    Args:
        attempt: whose.
        connections: over which its steps are stored.
    """

    def __init__(self, attempt: "Attempt", connections: Connections) -> None:
        self._attempt = attempt
        self._connections = connections
        self._statements = connections.statements
        self._of = (attempt.job.id, attempt.claim_id)

    # --- what to do -----------------------------------------------------------------------------------------------------------

    def _flow(self, step: Step) -> Flow:
        self._check(step)
        self._may_go_on()
        reached("begin", step, self._attempt)
        given: dict[str, Any] = {"unknown": step.unknown, "call": core.called(step), "compensate": core.stored_compensation(step)}
        sent = time.monotonic()
        found = yield Ask(lambda: steps.begin(self._statements, *self._of, step.name, **given))
        if found is None:
            raise self._lost()
        if found.done:
            return self._given_again(step, found)
        doubt: Found | None = None  # an earlier attempt began it, and nobody knows what became of that
        if not found.mine:
            told = yield from self._settle(step, found)
            if isinstance(told, Happened):
                return (yield from self._done(step, told.result))
            doubt = found if told is None else None
        if not found.mine or time.monotonic() - sent > STALE:
            yield from self._write(steps.again, step, **given)
        reached("begun", step, self._attempt)
        if self._attempt.stopped is not None:
            yield from self._not_now(step, doubt, "told to stop before the call")
            self._may_go_on()
        try:
            result = yield Do(step.fn, step)
        except Exception as error:
            yield from self._broke(step, error, doubt)
            raise
        reached("called", step, self._attempt)
        yield from self._done(step, result)
        reached("done", step, self._attempt)
        return result

    def _settle(self, step: Step, found: Found) -> Generator[Ask | Do, Any, Happened | DidNotHappen | None]:
        """Begun before, by another attempt, and not known to be done. None: it is to be called although nobody knows."""
        if step.check is None:
            if step.unknown == "hold":
                raise self._held(step, found, "")
            return None
        told = yield Do(step.check, step)
        if told is Happened or told is DidNotHappen or told is CannotTell:
            told = told()
        if isinstance(told, Happened | DidNotHappen):
            return told
        if isinstance(told, CannotTell):
            raise self._held(step, found, f"asked, {core.named(step.check)} cannot tell" + (f": {told.why}" if told.why else ""))
        raise DeclarationError(
            f"step {step.name!r}: {core.named(step.check)} returned {type(told).__name__}; it must return Happened(result),"
            " DidNotHappen() or CannotTell(why). The step was not called"
        )

    def _done(self, step: Step, result: Any) -> Flow:
        """It has happened: whatever becomes of the attempt, that is written down."""
        kept, note = None, None
        try:
            encoded = core.shape_of(step.fn).encode(result, self._known)
            limit = self._limit
            if len(encoded) <= limit:
                kept = encoded.decode()
            else:
                note = f"its result takes {len(encoded):,} bytes and was not stored; the limit is {limit:,}"
        except Exception as error:  # noqa: BLE001  a result may hold anything, also objects that raise when looked at
            note = text.clean(f"its result could not be stored: {said(error)}", NOTE_LIMIT)
        if note is not None:
            log.warning("step %r of job %s (%s) is done, and %s", step.name, self._attempt.job.id, self._attempt.job.task, note)
        yield from self._write(steps.done, step, surely=True, result=kept, note=note)
        return result

    def _not_now(self, step: Step, doubt: Found | None, why: str) -> Flow:
        """It has not happened in this attempt. What an earlier one began is not made undone by that."""
        if doubt is None:
            return (yield from self._write(steps.forget, step))
        earlier = f"what became of it in attempt {doubt.attempt} is not known" + (f" ({doubt.note})" if doubt.note else "")
        note = text.clean(f"{earlier}; this time it did not happen: {why}", NOTE_LIMIT)
        return (yield from self._write(steps.remark, step, note=note))

    def _broke(self, step: Step, error: Exception, doubt: Found | None) -> Generator[Ask | Do, Any, None]:
        """What its function raised tells that it has not happened, or is noted for whoever will be asked."""
        spec = self._attempt.spec
        certain = did_not_happen(error, spec.errors if spec is not None else ())
        with contextlib.suppress(StoreError):  # the error itself is what counts; the step stays begun, and is settled as such
            note = text.clean(f"{type(error).__name__}: {said(error)}", NOTE_LIMIT)
            if certain:
                yield from self._not_now(step, doubt, note)
            else:
                yield from self._write(steps.remark, step, note=note)

    def _given_again(self, step: Step, found: Found) -> Any:
        """What it returned in an earlier attempt."""
        why = found.note or "it was not stored"
        if found.kept:
            try:
                return core.shape_of(step.fn).decode(found.result or "null", self._known)
            except Exception as error:  # noqa: BLE001  classes of the user are made here, and raise what they like
                why = f"it does not fit what {core.named(step.fn)} returns: {said(error)}"
        raise self._end_as(core.asked_for_result(self._attempt.job.id, step, why))

    def _write(self, program: Callable[..., Program[bool]], step: Step, *, surely: bool = False, **given: Any) -> Flow:
        if not (yield Ask(lambda: program(self._statements, *self._of, step.name, **given), surely)):
            raise self._lost()
        return None

    def _check(self, step: Step) -> None:
        around = self._attempt.around
        if step.compensate is not None and around is not None and step.compensate["task"] not in around.catalog:
            raise DeclarationError(
                f"step {step.name!r}: compensate={step.compensate['task']} belongs to another app, so nobody here would run it;"
                " include it. The step was not called"
            )

    def _may_go_on(self) -> None:
        if self._attempt.ends_as is not None:
            raise Ended(self._attempt.ends_as.failure.message)
        if self._attempt.stopped is not None:
            raise asyncio.CancelledError("the attempt was told to stop, so the step was not begun")

    def _held(self, step: Step, found: Found, why: str) -> Ended:
        began = found.started_at or datetime.now(UTC)
        message = core.question(
            self._attempt.job.id,
            step,
            attempt=found.attempt,
            began=began.astimezone(UTC),
            call=found.call,
            note=found.note,
            why=why,
        )
        return self._end_as(message)

    def _end_as(self, message: str) -> Ended:
        failure = Failure("StepHeld", text.clean(message, 4 * NOTE_LIMIT), kind="unknown")
        self._attempt.ends_as = Failed(Reason.HELD, failure, counts=False)
        return Ended(message)

    def _lost(self) -> Ended:
        self._attempt.stopped = self._attempt.stopped or "lost"
        return Ended(f"the job {self._attempt.job.id} is not this attempt's any more")

    @property
    def _known(self) -> Any:
        spec = self._attempt.spec
        return spec.signature.known if spec is not None else {}

    @property
    def _limit(self) -> int:
        around = self._attempt.around
        return around.result_limit if around is not None else 0

    # --- and who does it --------------------------------------------------------------------------------------------------------

    async def run(self, step: Step) -> Any:
        """In an async task."""
        flow = self._flow(step)
        meet = partial(next, flow)
        while True:
            try:
                need = meet()
            except StopIteration as stop:
                return stop.value
            try:
                answer = await (self._answer(need) if isinstance(need, Ask) else _call(need))
            except BaseException as error:  # noqa: BLE001  the flow decides about all of them
                meet = partial(flow.throw, error)
            else:
                meet = partial(flow.send, answer)

    def run_plain(self, step: Step) -> Any:
        """In a plain task, on its thread."""
        flow = self._flow(step)
        meet = partial(next, flow)
        while True:
            try:
                need = meet()
            except StopIteration as stop:
                return stop.value
            try:
                answer = self._answer_plain(need) if isinstance(need, Ask) else _call_plain(need)
            except BaseException as error:  # noqa: BLE001  the flow decides about all of them
                meet = partial(flow.throw, error)
            else:
                meet = partial(flow.send, answer)

    async def _answer(self, need: Ask) -> Any:
        if not need.surely:
            return await self._ask(need)
        writing = asyncio.ensure_future(self._ask(need))
        cancelled: asyncio.CancelledError | None = None
        until = math.inf
        while not writing.done() and (left := until - time.monotonic()) > 0:
            try:
                await asyncio.wait({writing}, timeout=None if cancelled is None else left)
            except asyncio.CancelledError as error:  # the time limit says it again at each of its looks
                if cancelled is None:
                    cancelled, until = error, time.monotonic() + LAST_WORD
        if cancelled is None:
            return writing.result()
        if not writing.cancel() and not writing.cancelled():
            writing.exception()  # it is the cancellation that goes on
        raise cancelled

    async def _ask(self, need: Ask) -> Any:
        wait = FIRST_WAIT
        while True:
            try:
                async with self._connections.of_loop() as conn:
                    return await arun(conn, need.make())
            except StoreUnavailable:
                if not self._patient(wait):
                    raise
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)

    def _answer_plain(self, need: Ask) -> Any:
        wait = FIRST_WAIT
        while True:
            try:
                with self._connections.plain() as conn:
                    return run(conn, need.make())
            except StoreUnavailable:
                if not self._patient(wait):
                    raise
            time.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)

    def _patient(self, wait: float) -> bool:
        """Whether to try the store once more: what has happened outside is worth more than a slot."""
        return self._attempt.stopped is None and time.monotonic() + wait < self._attempt.limit_at


async def _call(need: Do) -> Any:
    """A function of the user: on the loop where it is async, on a thread otherwise."""
    if _is_async(need.fn):
        return await need.step.call(need.fn)
    result = await _on_thread(partial(need.step.call, need.fn))
    return await result if inspect.isawaitable(result) else result


def _call_plain(need: Do) -> Any:
    result = need.step.call(need.fn)
    if inspect.iscoroutine(result):
        result.close()
        raise DeclarationError(
            f"step {need.step.name!r}: {core.named(need.fn)} is async, and this task is a plain one; it was not called"
        )
    return result


def _is_async(fn: Any) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004  its colour is asked


async def _on_thread(call: Callable[[], Any]) -> Any:
    """On a thread of its own, which nobody waits for at the end of the process. Cancelled, it is left behind."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        result, error = None, None
        try:
            result = context.run(call)
        except BaseException as raised:  # noqa: BLE001  SystemExit included: it ends the attempt, not the process
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended meanwhile
            loop.call_soon_threadsafe(deliver, future, result, error)

    threading.Thread(target=work, name="jobwell-step", daemon=True).start()
    return await future
