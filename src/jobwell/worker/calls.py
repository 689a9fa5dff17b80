"""What jobs do with resources inside `ctx.call(…)`: how each call ends is counted here, and told to the store in batches.

* a call whose breaker is open does not begin: the job goes back
* its time is capped by what is left of the job's
* how it ended is added to a tally; nothing is written for a single call
"""

import asyncio
import difflib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from random import random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from jobwell.core import text
from jobwell.core.breaker import Guard, Standing, Told, put_off, told_by
from jobwell.core.classify import classify
from jobwell.core.duration import text as duration_text
from jobwell.core.error_rules import Rules
from jobwell.core.errors import DeclarationError, JobwellError, ResourceUnavailable
from jobwell.core.orders import deciding
from jobwell.core.outcome import Reject, Released, Retry, Snooze, after_seconds
from jobwell.core.retry import Plan
from jobwell.worker.failures import said as spoken

if TYPE_CHECKING:
    from jobwell.worker.record import Attempt

SAID_LIMIT = 200
SHORTEST_BACK, LONGEST_BACK = 1.0, 60.0  # seconds for which a job goes back whose resource is not to be called


@dataclass(slots=True)
class Tally:
    """What calls of one resource told since it was last passed on.

    Attributes:
        term: of the breaker when they began.
        asked: seconds for which the resource asked not to be called, the wish that ends last.
        asked_at: the monotonic time when it did.
        said: the last error.
    """

    term: int = 0
    good: int = 0
    bad: int = 0
    firsts: int = 0
    retries: int = 0
    asked: float | None = None
    asked_at: float = 0.0
    said: str = ""

    def wishes(self, asked: float, at: float) -> None:
        """It asked not to be called."""
        if self.asked is None or at + asked > self.asked_at + self.asked:
            self.asked, self.asked_at = asked, at

    @property
    def wish(self) -> "Tally":
        """The same without what is counted."""
        return Tally(self.term, asked=self.asked, asked_at=self.asked_at, said=self.said)


@dataclass(slots=True)
class Known:
    """How a breaker stands, as this worker last heard.

    Attributes:
        until: monotonic time at which an open one lets probes in.
        learned_at: monotonic time at which its state was heard first.
        fresh: first attempts and retries counted here since.
    """

    at: Standing
    until: float
    learned_at: float
    firsts: int = 0
    retries: int = 0


@dataclass(slots=True)
class Calls:
    """The calls of one worker.

    Args:
        guards: breaker and budget by the name of each declared resource.
        now: the database's time.
        urgent: told, from any thread, of something that the store should hear at once.
    """

    guards: Mapping[str, Guard | None]
    now: Callable[[], datetime]
    urgent: Callable[[], None] = lambda: None
    known: dict[str, Known] = field(default_factory=dict)
    _tallies: dict[tuple[str, int], Tally] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, attempt: "Attempt", resource: str, seconds: float | None) -> "Call":
        """One call of an attempt.

        Raises:
            DeclarationError: its task does not name the resource.
        """
        spec = attempt.spec
        names = spec.resources if spec is not None else ()
        if resource not in names:
            near = difflib.get_close_matches(str(resource), names, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise DeclarationError(
                f"the task {attempt.job.task} calls the resource {resource!r} and does not name it{hint}, so that nothing could"
                f" hold its jobs back; say resources=({resource!r},) in its declaration"
            )
        return Call(self, attempt, resource, seconds)

    def learn(self, standings: list[Standing], now: float) -> None:
        """How breakers stand, read at this monotonic time."""
        for at in standings:
            before = self.known.get(at.resource)
            learned = before.learned_at if before is not None and before.at.term == at.term else now
            until = now + (at.until - at.now).total_seconds() if at.open and at.until is not None else 0.0
            self.known[at.resource] = Known(at, until, learned)

    def refuse(self, attempt: "Attempt", resource: str) -> None:
        """Let nobody through an open breaker who was claimed before this worker heard of it; whoever came later is a probe.

        Raises:
            ResourceUnavailable: it is open.
        """
        known = self.known.get(resource)
        if known is None or not known.at.open or attempt.began > known.learned_at:
            return
        left = max(0.0, known.until - time.monotonic())
        raise ResourceUnavailable(
            f"the breaker of {resource} is open, so it was not called; the job goes back and spends no attempt",
            resource=resource, retry_in=left,
        )  # fmt: skip

    def term(self, resource: str) -> int:
        """Of the breaker, as far as is known."""
        known = self.known.get(resource)
        return known.at.term if known is not None else 1

    def ended(
        self, resource: str, term: int, told: Told | None, *, first: bool, asked: float | None = None, said: str = ""
    ) -> None:
        """A call has ended. From any thread.

        Args:
            resource: that was called.
            term: of its breaker when the call began.
            told: what that says about it.
            first: it was made by an attempt before which none had failed.
            asked: seconds for which the resource asked not to be called.
            said: its error.
        """
        if self.guards.get(resource) is None:
            return
        with self._lock:
            tally = self._tallies.setdefault((resource, term), Tally(term))
            tally.good += told == "good"
            tally.bad += told == "bad"
            tally.firsts += first
            tally.said = said or tally.said
            if asked is not None:
                tally.wishes(asked, time.monotonic())
            known = self.known.get(resource)
            if known is not None:
                known.firsts += first
        if asked is not None or self._matters(resource, tally):
            self.urgent()

    def _matters(self, resource: str, tally: Tally) -> bool:
        guard, known = self.guards[resource], self.known.get(resource)
        if guard is None or guard.breaker is None:
            return False
        if known is not None and known.at.open:
            return True  # a probe
        return tally.bad > 0 and (tally.bad + tally.good) % guard.breaker.at_least == 0

    def paced(self, attempt: "Attempt", plan: Plan, remaining: float | None) -> Plan:
        """The plan for another attempt, put off where the budget of the resource that failed is spent. Never past a deadline."""
        resource = attempt.failed_in
        guard = self.guards.get(resource) if resource is not None else None
        if resource is None or guard is None or guard.budget is None:
            return plan
        known = self.known.get(resource)
        firsts = known.at.firsts + known.firsts if known is not None else 0
        retries = known.at.retries + known.retries if known is not None else 0
        with self._lock:
            self._tallies.setdefault((resource, self.term(resource)), Tally(self.term(resource))).retries += 1
            if known is not None:
                known.retries += 1
        wait = put_off(guard.budget, guard.window, firsts=firsts, retries=retries, uniform=random())  # noqa: S311  it only spreads
        if wait is None or wait <= plan.delay or (remaining is not None and wait >= remaining):
            return plan
        note = f"put off by {duration_text(wait)}: the retry budget of {resource} is spent"
        return Plan(wait, f"{plan.note}; {note}" if plan.note else note)

    @property
    def waiting(self) -> bool:
        """Whether something is to be passed on."""
        return bool(self._tallies)

    def take(self) -> list[tuple[str, Tally]]:
        """What is to be passed on; it is counted from nothing again."""
        with self._lock:
            tallies, self._tallies = self._tallies, {}
        return [(resource, tally) for (resource, _), tally in tallies.items()]

    def give_back(self, taken: list[tuple[str, Tally]]) -> None:
        """It could not be passed on."""
        for resource, tally in taken:
            self._add(resource, tally)

    def _add(self, resource: str, more: Tally) -> None:
        with self._lock:
            tally = self._tallies.setdefault((resource, more.term), Tally(more.term))
            tally.good += more.good
            tally.bad += more.bad
            tally.firsts += more.firsts
            tally.retries += more.retries
            tally.said = more.said or tally.said
            if more.asked is not None:
                tally.wishes(more.asked, more.asked_at)

    def dumped(self) -> list[dict[str, Any]]:
        """In a child process: what its calls told, as plain data for the worker."""
        now = time.monotonic()
        return [
            {"resource": resource, "good": tally.good, "bad": tally.bad, "firsts": tally.firsts, "retries": tally.retries,
             "asked": tally.asked, "ago": now - tally.asked_at, "said": tally.said}
            for resource, tally in self.take()
        ]  # fmt: skip

    def heard(self, told: list[dict[str, Any]], terms: Mapping[str, int]) -> None:
        """From a child process. `terms` are those of the time when it began. From any thread."""
        for each in told:
            resource, at = str(each["resource"]), time.monotonic() - each["ago"]
            counts = {name: each[name] for name in ("good", "bad", "firsts", "retries", "asked", "said")}
            tally = Tally(terms.get(resource, 1), asked_at=at, **counts)
            if self.guards.get(resource) is not None:
                self._add(resource, tally)
                self.urgent()

    def terms(self) -> dict[str, int]:
        """Of each breaker."""
        return {resource: known.at.term for resource, known in self.known.items()}


class Call:
    """One use of a resource, for `async with` or `with`.

    Attributes:
        timeout: seconds that it may take: what was asked for, capped by what is left of the job's time.
    """

    __slots__ = ("_attempt", "_calls", "_limit", "_resource", "_seconds", "_term", "timeout")

    def __init__(self, calls: Calls, attempt: "Attempt", resource: str, seconds: float | None) -> None:
        self._calls = calls
        self._attempt = attempt
        self._resource = resource
        self._seconds = seconds
        self._term = 1
        self._limit: AbstractAsyncContextManager[Any] | None = None
        self.timeout: float = 0.0

    def __enter__(self) -> Self:
        self._calls.refuse(self._attempt, self._resource)
        self._term = self._calls.term(self._resource)
        left = max(0.0, self._attempt.limit_at - time.monotonic())
        self.timeout = left if self._seconds is None else min(self._seconds, left)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over(error)

    async def __aenter__(self) -> Self:
        self.__enter__()
        self._limit = asyncio.timeout(self.timeout)
        await self._limit.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._limit is not None
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError as late:
            self._over(late)
            raise
        self._over(error)

    def _over(self, error: BaseException | None) -> None:
        attempt = self._attempt
        first = attempt.job.failures == 0 and self._resource not in attempt.called
        attempt.called.add(self._resource)
        told, asked = self._judged(error)
        if told == "bad":
            attempt.failed_in = self._resource
        said = "" if error is None or told != "bad" else text.clean(f"{type(error).__name__}: {spoken(error)}", SAID_LIMIT)
        self._calls.ended(self._resource, self._term, told, first=first, asked=asked, said=said)

    def _judged(self, error: BaseException | None) -> tuple[Told | None, float | None]:
        """What the end of the call says, and for how many seconds the resource asked not to be called."""
        if isinstance(error, BaseExceptionGroup):
            raised = deciding(error, self._calls.now)
            error = raised.order or raised.error
        if isinstance(error, Reject | Snooze):
            return "good", None
        if isinstance(error, Retry):
            return "bad", self._asked(getattr(error, "after", None))  # a subclass may have forgotten to call ours
        if error is not None and not isinstance(error, Exception):  # cancelled: by the job's own time limit, or not its fault
            return ("bad" if self._attempt.stopped == "timeout" else None), None
        if isinstance(error, JobwellError):
            return None, None
        verdict = classify(error, self._rules()) if error is not None else None
        told = told_by(error, verdict)
        return told, self._asked(verdict.asked) if told == "bad" and verdict is not None else None

    def _rules(self) -> Sequence[Rules]:
        return self._attempt.spec.errors if self._attempt.spec is not None else ()

    def _asked(self, wish: Any) -> float | None:
        if wish is None:
            return None
        try:
            return after_seconds(wish, self._calls.now(), "asked") or None
        except (JobwellError, TypeError):
            return None  # what cannot be read is no wish; the failure counts all the same


def gone_back(error: ResourceUnavailable, remaining: float | None) -> Released:
    """What becomes of a job whose resource is not to be called: it waits behind the closed gate, and spends no attempt.

    Also where the error is raised by hand it does not come back at once; and it is never kept past its deadline by this.
    """
    delay = min(max(error.retry_in, SHORTEST_BACK), LONGEST_BACK) * (1 + 0.1 * random())  # noqa: S311  it only spreads
    if remaining is not None and delay >= remaining:
        delay = 0.0
    return Released(text.clean(error.message, SAID_LIMIT), delay)
